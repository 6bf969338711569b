"""Read the chunks of Zarr shards by the addresses in a shard's index."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from numpy.typing import NDArray

from oocdata.box import Ints
from oocdata.engines.runs import announce
from oocdata.formats.patterns import Missing
from oocdata.formats.zarr.objects import Objects
from oocdata.formats.zarr.readers import FAILURES, ZarrReader
from oocdata.memory import scratch_share

_MOST_INDICES = 4096
"""Largest number of cached shard indices, within a quarter of the memory for tables."""

Shard: TypeAlias = tuple[Any, Ints]
"""A shard's file, as of `Store.locate`, and offset and length of each chunk in it."""


class ShardReader(ZarrReader):
    """Reader of the chunks of shards, by their addresses in the shard's index."""

    def __init__(
        self, objects: Objects, missing: Missing | None, opened: dict[str, Any] | None = None
    ) -> None:
        super().__init__(objects, missing, opened)
        self._index = objects.metadata.codecs.shard_index
        self._shards: dict[int, Shard | None] = {}
        if self._index is not None:
            # An index may be cached if the version of its shard is compared.
            self._most = 0 if objects.versions is None else self._most_indices()
            tables = self._storage.table_bytes + min(objects.count, self._most) * self._index.nbytes
            self._storage = replace(self._storage, table_bytes=tables)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_shards": {}}

    def _most_indices(self) -> int:
        """Return the largest number of shard indices that are cached, or requested at a time."""
        assert self._index is not None
        return max(1, min(_MOST_INDICES, scratch_share() // 4 // self._index.nbytes))

    def read_chunks(self, places: Ints, outs: Sequence[NDArray[Any]]) -> None:
        """Decode chunks; see `oocdata.engines.chunked.ChunkReader`."""
        numbers, stored = self.objects.numbers(places), dict[int, Callable[[], Any]]()
        self.objects.note(numbers)
        for file, runs in self._located(places):
            positions, offsets, sizes = map(list, zip(*runs, strict=True))
            try:
                opened = file.opened()
            except FAILURES as error:
                self._failed(error, places[positions])
            if len(places) > 1 and opened.number >= 0:  # reads do not wait for the disk in turn
                announce([opened.number] * len(positions), offsets, sizes)
            for position, offset, nbytes in runs:
                stored[position] = partial(opened.read, offset, nbytes)
        each = (stored[at]() if at in stored else None for at in range(len(places)))
        self._write(places, outs, each)
        self.objects.compare(numbers)

    def _located(self, places: Ints) -> Iterator[tuple[Any, list[tuple[int, int, int]]]]:
        """Yield for each shard its file, and position, offset and size of each chunk in it."""
        inside = (places % self.objects.metadata.chunks_per_object).tolist()
        groups: dict[int, list[int]] = {}
        for position, number in enumerate(self.objects.object_numbers(places)):
            groups.setdefault(number, []).append(position)
        for group, shard in zip(groups.values(), self._shards_of([*groups]), strict=True):
            if shard is not None:
                file, addresses = shard
                runs = [(at, *addresses[*inside[at]].tolist()) for at in group]
                if runs := [run for run in runs if run[1] >= 0]:  # the chunk exists
                    yield file, runs

    def _shards_of(self, numbers: Sequence[int]) -> Iterator[Shard | None]:
        """Yield shards; None for an absent one."""
        shards = self._shards if self._most else {}  # another thread may replace the dictionary
        for number in numbers:
            if number not in shards:
                place = self.objects.place(number)
                try:
                    found = self._read_shard(self.objects.name(place))
                except FAILURES as error:
                    self._failed(error, self.objects.chunks(place))
                if self._most and len(shards) >= self._most:
                    shards = self._shards = {}
                shards[number] = found
            yield shards[number]

    def _read_shard(self, name: str) -> Shard | None:
        assert self._index is not None
        found = self.objects.store.locate(name)
        stored = found and self.objects.store.read(name, *self._index.part)
        if found is None or stored is None:
            return None
        try:
            return found[0], self._index.addresses(stored, found[1])
        except ValueError as error:
            raise ValueError(f"the index of a shard can't be read: {error}") from error


def reader_of(
    objects: Objects, missing: Missing | None, opened: dict[str, Any] | None = None
) -> ZarrReader:
    """Return the reader for an array: of a store, of shards, or of whole objects."""
    if objects.store.is_remote:
        from oocdata.formats.zarr.remote import remote_reader  # not for `import oocdata`

        return remote_reader(objects, missing, opened)
    return (ShardReader if objects.metadata.sharded else ZarrReader)(objects, missing, opened)
