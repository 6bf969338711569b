"""Read the compressed chunks of a Zarr folder out of files, and decode each into its place.

TensorStore decodes into memory of its own, and copies from there. For a chunk of 31 MB by Blosc
that takes 1.5 times as much of the processor's time; and malloc keeps as much as a chunk for each
of its threads, which no limit counts: 190 MB more than was stated, where six of them had decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.files import Descriptor, FileVersion, OpenFile
from oocdata.engines.runs import UnfinishedError, announce
from oocdata.errors import MissingFileError, SourceError
from oocdata.formats.codecs import decompress, room_for, write_chunk
from oocdata.formats.zarr.codecs import ShardIndex
from oocdata.formats.zarr.objects import Objects
from oocdata.formats.zarr.readers import Missing, ZarrReader
from oocdata.formats.zarr.store import Folder

__all__ = ["CompressedReader", "ShardReader", "compressed_reader"]

_LARGE = 1 << 17
"""Bytes of a chunk that is a file. At 512 KiB TensorStore takes 1.2 times as much of the
processor's time as this reader, at this size 1.05 times and 1.06 times as long, and as much at 64
KiB. At 16 KiB, where Python's calls for each chunk weigh, it takes less than half as long."""

_INDEX_BYTES = 4 << 20
"""Of the indices of shards that are kept, for an array."""

_FAILURES = (SourceError, UnfinishedError, ValueError, RuntimeError)


class CompressedReader(ZarrReader):
    """Chunks that are files of their own, of elements in C order, compressed by one codec."""

    def how(self) -> str:
        """Say how chunks are read."""
        return "whole chunks, each decoded into its place, outside Python's lock"

    def _decode(
        self, places: NDArray[np.int64], boxes: Sequence[Any], outs: Sequence[NDArray[Any]]
    ) -> None:
        self._write(places, outs, lambda number: self._read_file(places[number].tolist()))

    def _write(
        self,
        places: NDArray[np.int64],
        outs: Sequence[NDArray[Any]],
        stored: Callable[[int], memoryview | None],
    ) -> None:
        """Decode chunks, given what returns the bytes of one, or None where it is not there."""
        metadata = self.objects.metadata
        assert metadata.plain_dtype is not None
        absent: list[int] = []
        for number, out in enumerate(outs):
            try:
                data = stored(number)
                if data is None:
                    absent.append(number)
                    continue
                decode = partial(_decoded, metadata.codecs.compressor, data)
                write_chunk(out, metadata.plain_dtype, metadata.chunk_shape, decode)
            except _FAILURES as error:
                self._failed(places, number, error)
        if absent:
            self.check_absent(places[absent], "some are not there")
            fill = metadata.annotations.fill_value
            for number in absent:
                outs[number][...] = 0 if fill is None else fill  # which may be -0.0

    def _read_file(self, place: Sequence[int]) -> memoryview | None:
        """Return the bytes of a chunk's file; None where there is none."""
        try:
            file = Descriptor(f"{self.objects.store.path}/{self.objects.name(place)}")
        except MissingFileError:
            return None
        return _read(file, 0, file.version.nbytes)

    def _failed(self, places: NDArray[np.int64], number: int, error: Exception) -> NoReturn:
        """Raise what is wrong with one of some chunks."""
        # What was written anew meanwhile is not damaged.
        self.objects.compare(self.objects.numbers(places))
        reason: BaseException = error
        if isinstance(error, UnfinishedError):
            reason = error.cause or EOFError("it ends before its bytes do")
        damaged = isinstance(error, ValueError | RuntimeError)
        self._fail(str(reason).rstrip("."), places, [(number, error)], damaged)


class ShardReader(CompressedReader):
    """Chunks of shards, which lie at the addresses in a shard's index.

    Epochs of an array that is larger than the cache take TensorStore 1.2 to 1.3 times as long for
    zstd chunks of 10 to 240 KB by NumPy iteration, 1.0 to 1.1 times through `to_tf` (1.0 to 1.2
    times the processor's time); out of the page cache, 1.0 to 1.2 times.
    """

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

    def _decode(
        self, places: NDArray[np.int64], boxes: Sequence[Any], outs: Sequence[NDArray[Any]]
    ) -> None:
        found = self._located(places)
        for file, offset, nbytes in list(filter(None, found))[1:]:
            announce([file.number], [offset], [nbytes])  # or each would wait for the disk in turn

        def stored(number: int) -> memoryview | None:
            where = found[number]
            return None if where is None else _read(*where)

        self._write(places, outs, stored)

    def _located(self, places: NDArray[np.int64]) -> list[tuple[Descriptor, int, int] | None]:
        """Return where chunks lie: file, offset and length; None for one that is not there."""
        per = self.objects.metadata.chunks_per_object
        inside, found = (places % per).tolist(), list[tuple[Descriptor, int, int] | None]()
        for at, number in enumerate(self.objects.numbered(places)):
            try:
                shard = self._shard(number)
                offset, nbytes = (-1, 0) if shard is None else shard.addresses[*inside[at]].tolist()
                there = None if shard is None or offset < 0 else shard.file.opened()
            except _FAILURES as error:
                self._failed(places, at, error)
            found.append(None if there is None else (there, offset, nbytes))
        return found

    def _shard(self, number: int) -> _Shard | None:
        """Return where the chunks of a shard lie; None where it is not there."""
        shards = self._shards  # another thread may begin anew
        if number not in shards:
            path = f"{self.objects.store.path}/{self.objects.name(self.objects.place(number))}"
            found = None
            with suppress(MissingFileError):
                found = _Shard.of(path, self._index)
            if len(shards) >= self._most:
                shards = self._shards = {}
            shards[number] = found
        return shards[number]


class _Shard(NamedTuple):
    file: OpenFile
    addresses: NDArray[np.int64]

    @classmethod
    def of(cls, path: str, index: ShardIndex) -> _Shard:
        """Read the index of a shard; `ValueError` if it is damaged."""
        version, stored = _read_index(path, index)
        try:
            return cls(OpenFile(version), index.addresses(stored, version.nbytes))
        except ValueError as error:
            raise ValueError(f"the index of a shard can't be read: {error}") from error


def _decoded(compressor: str, data: Any, out: NDArray[np.uint8]) -> None:
    if compressor:
        decompress(compressor, data, out)
    elif len(data) != len(out):
        raise ValueError(f"it has {len(data)} bytes, not {len(out)}")
    else:
        out[:] = np.frombuffer(data, np.uint8)


def _read(file: Descriptor, offset: int, nbytes: int) -> memoryview:
    memory = room_for(nbytes)[:nbytes]
    file.read_into(memory, offset)
    return memory


def _read_index(path: str, index: ShardIndex) -> tuple[FileVersion, bytes]:
    file = Descriptor(path)  # no error's traceback keeps it open
    nbytes = file.version.nbytes
    stored = bytearray(min(nbytes, index.nbytes))
    file.read_into(memoryview(stored), nbytes - len(stored) if index.at_end else 0)
    return file.version, bytes(stored)


def compressed_reader(
    objects: Objects, missing: Missing | None, opened: dict[str, Any] | None
) -> CompressedReader | None:
    """Return the reader of an array whose chunks are better decoded here than by a library."""
    metadata = objects.metadata
    plain = metadata.plain_dtype is not None and bool(metadata.codecs.compressor)
    if not plain or not metadata.fill_known or not isinstance(objects.store, Folder):
        return None
    index = metadata.codecs.shard_index
    if index is not None:
        # What is kept of an index must be of the shard's present version, which is compared.
        if objects.versions is None or index.nbytes > _INDEX_BYTES:
            return None
        return ShardReader(objects, missing, opened)
    large = prod(metadata.chunk_shape) * metadata.dtype.itemsize >= _LARGE
    return CompressedReader(objects, missing, opened) if large else None
