"""Read the chunks of Zarr shards by the addresses in a shard's index."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from numpy.typing import NDArray

from oocdata.box import Ints
from oocdata.engines.files import Descriptor, OpenFile
from oocdata.engines.runs import announce
from oocdata.formats.patterns import Missing
from oocdata.formats.zarr.objects import Objects
from oocdata.formats.zarr.readers import FAILURES, ZarrReader

_INDEX_BYTES = 4 << 20
"""Bytes of cached shard indices, for an array."""


class ShardReader(ZarrReader):
    """Reader of the chunks of shards, by their addresses in the shard's index."""

    def __init__(
        self, objects: Objects, missing: Missing | None, opened: dict[str, Any] | None = None
    ) -> None:
        super().__init__(objects, missing, opened)
        index = objects.metadata.codecs.shard_index
        assert index is not None
        # An index may be cached if the version of its shard is compared.
        is_compared = objects.versions is not None or not objects.store.versioned
        may_cache = self.file is not None and is_compared
        self._index = index
        self._most = max(1, _INDEX_BYTES // index.nbytes) if may_cache else 0
        tables = self._storage.table_bytes + min(objects.count, self._most) * index.nbytes
        self._storage = replace(self._storage, table_bytes=tables)
        self._shards: dict[int, _Shard | None] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_shards": {}}

    def read_chunks(self, places: Ints, outs: Sequence[NDArray[Any]]) -> None:
        """Decode chunks; see `oocdata.engines.chunked.ChunkReader`."""
        numbers = self.objects.numbers(places)
        self.objects.note(numbers)
        addresses = self._locate(places)
        for file, offset, nbytes in list(filter(None, addresses))[1:]:
            if isinstance(file, Descriptor):  # so that reads do not wait for the disk in turn
                announce([file.number], [offset], [nbytes])

        def stored(number: int) -> Any:
            address = addresses[number]
            return None if address is None else self._read(*address)

        self._write(places, outs, stored)
        self.objects.compare(numbers)

    def _locate(self, places: Ints) -> list[_Address | None]:
        """Return the address of each chunk: file, offset and length; None for an absent one."""
        metadata = self.objects.metadata
        inside = (places % metadata.chunks_per_object).tolist()
        found: list[_Address | None] = []
        shards: dict[int, _Shard | None] = {}
        for at, number in enumerate(self.objects.object_numbers(places)):
            try:
                if number not in shards:
                    shards[number] = self._shard(number)
                shard = shards[number]
                offset, nbytes = (-1, 0) if shard is None else shard.addresses[*inside[at]].tolist()
                if shard is None or offset < 0:
                    found.append(None)
                    continue
                file = shard.file if isinstance(shard.file, str) else shard.file.opened()
            except FAILURES as error:
                self._failed(places, at, error)
            found.append((file, offset, nbytes))
        return found

    def _shard(self, number: int) -> _Shard | None:
        """Return the chunk addresses of a shard; None if it is absent."""
        shards = self._shards  # another thread may replace the dictionary
        if number in shards:
            return shards[number]
        found = self._read_shard(self.objects.name(self.objects.place(number)))
        if len(shards) >= self._most:
            shards = self._shards = {}
        if self._most:
            shards[number] = found
        return found

    def _read_shard(self, name: str) -> _Shard | None:
        """Read the index of a shard; `ValueError` if it is damaged."""
        store, index = self.objects.store, self._index
        found = store.locate(name)
        stored = store.read(name, *index.part)
        if stored is None:
            return None
        nbytes = sys.maxsize if found is None else found.version.nbytes
        try:
            return _Shard(found or name, index.addresses(stored, nbytes))
        except ValueError as error:
            raise ValueError(f"the index of a shard can't be read: {error}") from error

    def _read(self, file: Descriptor | str, offset: int, nbytes: int) -> Any:
        if isinstance(file, str):
            return self.objects.store.read(file, offset, offset + nbytes)
        return file.read(offset, nbytes)


class _Shard(NamedTuple):
    file: OpenFile | str
    """Its name, if it is not in a file."""
    addresses: Ints


_Address: TypeAlias = tuple[Descriptor | str, int, int]


def reader_of(
    objects: Objects, missing: Missing | None, opened: dict[str, Any] | None = None
) -> ZarrReader:
    """Return the reader for an array: of a store, of shards, or of whole objects."""
    if objects.store.is_remote:
        from oocdata.formats.zarr.remote import remote_reader  # not for `import oocdata`

        return remote_reader(objects, missing, opened)
    return (ShardReader if objects.metadata.sharded else ZarrReader)(objects, missing, opened)
