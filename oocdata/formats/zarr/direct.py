"""Read the stored chunks of a Zarr array, and decode each straight into its place.

No library of whole arrays stands between: it would decode into memory of its own, which no limit
counts, and copy from there. TensorStore takes 1.03 to 1.22 times as long for epochs of zstd chunks
of 4 and 16 KiB, and for larger ones and shards that exceed the cache 1.0 to 1.3 times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.files import Descriptor, OpenFile
from oocdata.engines.runs import UnfinishedError, announce
from oocdata.errors import SourceError
from oocdata.formats.codecs import decompress, room_for, write_chunk
from oocdata.formats.patterns import Missing
from oocdata.formats.zarr.objects import Objects
from oocdata.formats.zarr.readers import ZarrReader

__all__ = ["DirectReader", "ShardReader", "reader_of"]

_INDEX_BYTES = 4 << 20
"""Of the indices of shards that are kept, for an array."""

_FAILURES = (SourceError, UnfinishedError, OSError, ValueError, RuntimeError)


class DirectReader(ZarrReader):
    """Chunks that are objects of their own: elements in codecs that are undone here."""

    def how(self) -> str:
        """Say how chunks are read."""
        return "whole chunks, each decoded into its place, outside Python's lock"

    def read_chunks(self, places: NDArray[np.int64], outs: Sequence[NDArray[Any]]) -> None:
        """Decode chunks; see `oocdata.engines.chunked.ChunkReader`."""
        objects, numbers, each = self.objects, self.objects.numbered(places), places.tolist()

        def stored(at: int) -> Any:
            found = objects.store.fetch(objects.name(each[at]))
            if found is None:
                return None
            objects.expect(numbers[at], found[1].version)
            return found[0]

        self._write(places, outs, stored)

    def _write(
        self,
        places: NDArray[np.int64],
        outs: Sequence[NDArray[Any]],
        stored: Callable[[int], Any],
    ) -> None:
        """Decode chunks, given what returns the bytes of one, or None where it is not there."""
        metadata = self.objects.metadata
        dtype, codecs = metadata.plain_dtype, metadata.codecs
        assert dtype is not None
        native, axes = dtype.newbyteorder("="), codecs.axes or range(len(metadata.shape))
        shape = tuple(metadata.chunk_shape[axis] for axis in axes)
        first, others = next(iter(codecs.compressors), ""), codecs.compressors[:0:-1]
        absent: list[int] = []
        for number, out in enumerate(outs):
            try:
                data = stored(number)
                if data is None:
                    absent.append(number)
                    continue
                for codec in others:  # before there is memory for the elements: two forms at a time
                    data = decompress(codec, data, None)
                decode = partial(decompress, first, data)
                write_chunk(out.view(native).transpose(axes), dtype, shape, decode)
            except _FAILURES as error:
                self._failed(places, number, error)
        if absent:
            self.check_absent(places[absent], "some are not there")
            fill = metadata.annotations.fill_value
            for number in absent:  # the fill value may be -0.0
                outs[number][...] = np.zeros((), self.dtype) if fill is None else fill

    def _failed(self, places: NDArray[np.int64], number: int, error: Exception) -> NoReturn:
        """Raise what is wrong with one of some chunks."""
        reason: BaseException = error
        if isinstance(error, UnfinishedError):
            reason = error.cause or EOFError("it ends before its bytes do")
        damaged = isinstance(error, ValueError | RuntimeError)
        self._fail(str(reason).rstrip("."), places, [(number, error)], damaged)


class ShardReader(DirectReader):
    """Chunks of shards, which lie at the addresses in a shard's index."""

    def __init__(
        self, objects: Objects, missing: Missing | None, opened: dict[str, Any] | None = None
    ) -> None:
        super().__init__(objects, missing, opened)
        index = objects.metadata.codecs.shard_index
        assert index is not None
        self._index, self._most = index, max(1, _INDEX_BYTES // index.nbytes)
        tables = self._storage.table_bytes + min(objects.count, self._most) * index.nbytes
        self._storage = replace(self._storage, table_bytes=tables)
        self._shards: dict[int, _Shard | None] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_shards": {}}

    def read_chunks(self, places: NDArray[np.int64], outs: Sequence[NDArray[Any]]) -> None:
        """Decode chunks; see `oocdata.engines.chunked.ChunkReader`."""
        numbers = self.objects.numbers(places)
        self.objects.note(numbers)
        found = self._located(places)
        for file, offset, nbytes in list(filter(None, found))[1:]:
            announce([file.number], [offset], [nbytes])  # or each would wait for the disk in turn

        def stored(number: int) -> memoryview | None:
            where = found[number]
            return None if where is None else _read(*where)

        self._write(places, outs, stored)
        self.objects.compare(numbers)

    def _located(self, places: NDArray[np.int64]) -> list[tuple[Descriptor, int, int] | None]:
        """Return where chunks lie: file, offset and length; None for one that is not there."""
        metadata = self.objects.metadata
        inside = (places % metadata.chunks_per_object)[:, self._index.axes].tolist()
        found: list[tuple[Descriptor, int, int] | None] = []
        for at, number in enumerate(self.objects.numbered(places)):
            try:
                shard = self._shard(number)
                offset, nbytes = (-1, 0) if shard is None else shard.addresses[*inside[at]].tolist()
                there = None if shard is None or offset < 0 else shard.file.opened()
            except _FAILURES as error:
                self._failed(places, at, error)
            first = 0 if shard is None else shard.first
            found.append(None if there is None else (there, first + offset, nbytes))
        return found

    def _shard(self, number: int) -> _Shard | None:
        """Return where the chunks of a shard lie; None where it is not there."""
        shards = self._shards  # another thread may begin anew
        if number not in shards:
            found = self._read_shard(self.objects.name(self.objects.place(number)))
            if len(shards) >= self._most:
                shards = self._shards = {}
            shards[number] = found
        return shards[number]

    def _read_shard(self, name: str) -> _Shard | None:
        """Read the index of a shard; `ValueError` if it is damaged."""
        found, index = self.objects.store.locate(name), self._index
        if found is None:
            return None
        file, first, nbytes = found
        stored = bytearray(min(nbytes, index.nbytes))
        at = first + nbytes - len(stored) if index.at_end else first
        file.opened().read_into(memoryview(stored), at)
        try:
            return _Shard(file, first, index.addresses(bytes(stored), nbytes))
        except ValueError as error:
            raise ValueError(f"the index of a shard can't be read: {error}") from error


class _Shard(NamedTuple):
    file: OpenFile
    first: int
    """Where it begins in the file."""
    addresses: NDArray[np.int64]


def _read(file: Descriptor, offset: int, nbytes: int) -> memoryview:
    memory = room_for(nbytes)[:nbytes]
    file.read_into(memory, offset)
    return memory


def reader_of(
    objects: Objects, missing: Missing | None, opened: dict[str, Any] | None = None
) -> ZarrReader:
    """Return the reader of an array: decoded here where that can be, else by zarr-python."""
    if objects.store.is_remote:
        from oocdata.formats.zarr.remote import remote_reader  # not for `import oocdata`

        return remote_reader(objects, missing, opened)
    kind = ShardReader if objects.metadata.sharded else DirectReader
    return (ZarrReader if objects.zarr_only else kind)(objects, missing, opened)
