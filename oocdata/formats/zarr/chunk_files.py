"""Read boxes of an uncompressed Zarr array by their offsets in the files of its chunks.

A full shuffle of large rows would read a whole chunk for each of them. The strided engine reads the
rows alone, as it reads HDF5's unfiltered chunks: where a chunk "lies" is its number, with room for
its bytes, so that an offset says which file it is in.
"""

from __future__ import annotations

import os
from ctypes import memmove
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent
from oocdata.engines.blocked import fits
from oocdata.engines.chunked import Chunked
from oocdata.engines.files import Descriptor, FileVersion, OpenFile
from oocdata.engines.runs import UnfinishedError, join, read_runs
from oocdata.engines.source import Storage
from oocdata.engines.strided import Strided, contiguous_strides
from oocdata.formats.zarr.objects import ABSENT
from oocdata.formats.zarr.readers import ZarrReader
from oocdata.formats.zarr.store import Folder

__all__ = ["ChunkFiles", "chunk_files"]

_LARGE = 4 << 10
"""Bytes of a row from which on reading it alone costs less than its share of a whole chunk."""

_RUNS_AT_ONCE = 64
"""Each may hold a file open."""

_MOST_FILES = 4096
"""Files remembered, some hundred bytes each."""


@dataclass(frozen=True, slots=True)
class _Numbers:
    """The number of each chunk, times the room for one; a `strided.ChunkOffsets`."""

    chunk_shape: tuple[int, ...]
    grid: tuple[int, ...]
    shift: int

    def offsets(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return where chunks begin, as if their files lay behind one another."""
        numbers: NDArray[np.int64] = np.ravel_multi_index(tuple(places.T), self.grid)
        return numbers << self.shift


class ChunkFiles(Strided):
    """Chunks that are files of nothing but elements in C order.

    Parameters
    ----------
    reader : ZarrReader
        Of the same array by whole chunks; it tells of absent ones.
    described : Storage
    """

    def __init__(self, reader: ZarrReader, described: Storage) -> None:
        metadata, version = reader.objects.metadata, reader.file
        stored, chunk = metadata.plain_dtype, metadata.object_shape
        assert stored is not None
        assert version is not None
        strides = contiguous_strides(chunk, stored.itemsize)
        self._shift = (prod(chunk) * stored.itemsize).bit_length()
        numbers = _Numbers(chunk, metadata.grid, self._shift)
        super().__init__(
            OpenFile(version), stored, metadata.shape, strides, 0, described, numbers,
            axis=reader.objects.axis,
        )  # fmt: skip
        self._reader, self._objects = reader, reader.objects
        self._absent = np.full(1, metadata.annotations.fill_value or 0, stored).tobytes()
        self._files: dict[int, OpenFile] = {}
        # A small array is read once and cached, which costs less than opening its files again.
        self._chunks, self._nbytes = Chunked(reader), prod(metadata.shape) * stored.itemsize

    def read(
        self,
        origins: NDArray[np.int64],
        extent: Extent,
        out: NDArray[Any],
        places: NDArray[np.int64] | None = None,
    ) -> None:
        """Write ``out[i] = the box at origins[i]``, or to ``out[places[i]]``; see `Source.read`."""
        read = self._chunks.read if fits(self, self._nbytes) else super().read
        read(origins, extent, out, places)

    read_to = read

    def __reduce__(self) -> Any:
        return ChunkFiles, (self._reader, self._storage)

    def _read_files(
        self,
        number: int,
        offsets: NDArray[np.int64],
        addresses: NDArray[np.int64],
        lengths: NDArray[np.int64] | int,
        target: NDArray[Any],
    ) -> None:
        """Read runs of many files; there is room between two, so none of theirs are joined."""
        found, joined = join(offsets, addresses, lengths)
        firsts = np.arange(len(offsets)) if found is None else found
        starts, places = offsets[firsts], addresses[firsts]
        nbytes = np.broadcast_to(joined, firsts.shape)
        numbers, within = starts >> self._shift, starts & ((1 << self._shift) - 1)
        for start in range(0, len(firsts), _RUNS_AT_ONCE):
            some = np.arange(start, min(start + _RUNS_AT_ONCE, len(firsts)))
            opened = {number: self._opened(number) for number in set(numbers[some].tolist())}
            each = [opened[number] for number in numbers[some].tolist()]
            if None in each:
                for run in some[[one is None for one in each]].tolist():
                    count = int(nbytes[run]) // self.stored.itemsize
                    memmove(int(places[run]), self._absent * count, int(nbytes[run]))
                some = some[[one is not None for one in each]]
            descriptors = np.array([one[1].number for one in each if one is not None])
            unfinished = None
            try:
                if some.size:
                    read_runs(descriptors, within[some], places[some], nbytes[some], target)
            except UnfinishedError as error:
                unfinished = UnfinishedError(int(firsts[some[error.run]]), error.cause)
            # Asked after the read, a version tells of what was written before and meanwhile.
            for number, one in opened.items():
                if one is None:
                    self._objects.compare([number])
                elif not one[0].version.matches(os.fstat(one[1].number)):
                    rows = self._objects.rows_of(self._objects.place(number))["rows"]
                    one[0].version.compare(os.fstat(one[1].number), self._storage.key, rows)
            if unfinished:
                raise unfinished

    def _opened(self, number: int) -> tuple[OpenFile, Descriptor] | None:
        """Return the file of a chunk, of the version that was there first; None without one."""
        objects, file = self._objects, self._files.get(number)
        try:
            if file is None:
                objects.note([number])
                if objects.versions is not None and objects.versions[number] == ABSENT:
                    self._reader.check_absent(np.array([objects.place(number)]), "one is not there")
                    return None
                path = f"{objects.store.path}/{objects.name(objects.place(number))}"
                file = OpenFile(FileVersion.of(path))
                objects.compare([number])
                if len(self._files) >= _MOST_FILES:
                    self._files.clear()
                self._files[number] = file
            return file, file.opened()
        except OSError:
            objects.compare([number])  # which knows the rows
            raise


def chunk_files(reader: ZarrReader) -> ChunkFiles | None:
    """Return the source that reads rows alone; None where whole chunks are better read."""
    objects = reader.objects
    metadata = objects.metadata
    dtype, chunk = metadata.plain_dtype, metadata.object_shape
    told = metadata.annotations.fill_value is not None or metadata.fill_value == "null"
    if dtype is None or not isinstance(objects.store, Folder) or 0 in metadata.shape or not told:
        return None
    if objects.versions is None or reader.file is None:
        return None
    last = max((axis for axis, count in enumerate(metadata.grid) if count > 1), default=0)
    # A place along the last axis that chunks cut is a run of bytes.
    if prod(chunk[:last]) > 1 or contiguous_strides(chunk, dtype.itemsize)[last] < _LARGE:
        return None
    how = "each row by its offset in its chunk's file, into the batch"
    described = reader.storage()
    reading = described.reading.replace(reader.how(), how)
    return ChunkFiles(reader, replace(described, chunks=None, reading=reading))
