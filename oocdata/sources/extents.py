"""The extents engine: rows at known byte offsets of one file.

``.npy``, raw binary, stored ``.npz`` members and contiguous HDF5 are all the same thing: an offset,
a dtype and a stride for each axis. Fortran order, another row axis and cuts of the element axes
only change those integers, so one engine reads them all.

A row is decomposed into *pieces*, the runs of bytes that lie together; a batch is then a list of
(offset, length) requests, with neighbours joined into one, read straight into the batch. Scattered
rows of a few bytes come out of memory instead, where their array fits (see `Kept`).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from oocdata.errors import SourceError, TruncatedFileError
from oocdata.index import Cut
from oocdata.sources.dimensions import as_stored
from oocdata.sources.kept import SMALL, Kept, KeptBlocks
from oocdata.sources.pieces import Pieces, contiguous_strides, cut_strides, deliver, pieces_of
from oocdata.sources.requests import MANY, UnfinishedError, join, read_runs
from oocdata.sources.source import Layout, Source
from oocdata.sources.stamp import FileStamp
from oocdata.threads import uninterrupted

__all__ = ["ChunkStarts", "Extents", "FileStamp", "contiguous_strides"]

_KEPT = "small rows, in blocks that are each read once and kept in memory"

_SCRATCH_BYTES = 1 << 20
_MOST_BYTES = 128 << 20
"""Rows that must be rearranged or converted pass through a block of about this size, in cache."""


class ChunkStarts(Protocol):
    """Where chunks lie that follow one another along the row axis but not in the file.

    Attributes
    ----------
    rows : int
        Of one chunk.
    """

    @property
    def rows(self) -> int:
        """Of one chunk."""
        ...

    def offsets(self) -> NDArray[np.int64]:
        """Return the byte offset of each chunk, shape (chunks,); looked up once in a process."""
        ...


@dataclass(frozen=True, slots=True)
class Extents:
    """Rows at known byte offsets of one file.

    Parameters
    ----------
    file : FileStamp
    stored : numpy.dtype
        As stored, with its byte order.
    shape : tuple of int
        ``(rows, *element)``.
    strides : tuple of int
        Bytes from one place to the next, for each axis of `shape`; may be negative.
    offset : int
        Byte offset of element (0, …, 0).
    described : Layout
        What ``info`` says of it.
    chunks : ChunkStarts, optional
        For unfiltered chunks: `offset` and `strides` then hold within a chunk.
    kept : Kept, optional
        The part of the file that the array takes, if its rows are so small that they are better
        kept; shared with the sources cut from this one.
    """

    file: FileStamp
    stored: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    described: Layout = field(compare=False)
    chunks: ChunkStarts | None = None
    kept: Kept | None = field(default=None, compare=False, repr=False)

    converts = True
    chunk_rows = 1

    @property
    def dtype(self) -> np.dtype[Any]:
        """The stored dtype in native byte order."""
        return self.stored.newbyteorder("=")

    def layout(self) -> Layout:
        """Return where and how the array is stored."""
        if not self.kept_bytes:
            return self.described
        return replace(self.described, reading=_KEPT + as_stored(self.described.packed))

    def with_row_axis(self, axis: int) -> Extents:
        """Return the same array with `axis` moved to the front, as ``numpy.moveaxis`` does."""
        order = [axis, *(other for other in range(len(self.shape)) if other != axis)]
        return replace(
            self,
            shape=tuple(self.shape[axis] for axis in order),
            strides=tuple(self.strides[axis] for axis in order),
            described=self.described.with_row_axis(axis),
        )

    def cut(self, cuts: tuple[Cut, ...]) -> Source:
        """Return the source of ``row[cuts]``: other offsets and strides, nothing else."""
        offset, shape, strides = cut_strides(self.offset, self.shape, self.strides, cuts)
        described = self.described.cut(cuts)
        return replace(self, offset=offset, shape=shape, strides=strides, described=described)

    @property
    def kept_bytes(self) -> int:
        """Bytes of the file that reading rows may keep; all sources together, the budget's."""
        return 0 if self.kept is None else self.kept.most_bytes

    def read_into(self, rows: NDArray[np.int64], out: NDArray[Any]) -> None:
        """Write ``out[i] = row rows[i]``; `out` may have any numeric dtype."""
        if out.size == 0:
            return
        pieces = self._pieces
        memory = None if self.kept is None else self.kept.memory()
        read = partial(self._read_some, memory, pieces)
        if len(rows) * len(pieces.offsets) < MANY or (memory is not None and memory.complete):
            read(rows, out)  # without the queues of the kernel, which must not be left half changed
            return
        # Some at a time, so that Ctrl-C ends long reads soon.
        count = max(1, _MOST_BYTES // pieces.row_bytes)
        for start in range(0, len(rows), count):
            part = slice(start, start + count)
            uninterrupted(partial(read, rows[part], out[part]))

    def _read_some(
        self,
        memory: KeptBlocks | None,
        pieces: Pieces,
        rows: NDArray[np.int64],
        out: NDArray[Any],
    ) -> None:
        if memory is None or not self._take(memory, rows, pieces, out):
            deliver(pieces, self.stored, rows, out, self._read_rows)

    def _take(
        self, memory: KeptBlocks, rows: NDArray[np.int64], pieces: Pieces, out: NDArray[Any]
    ) -> bool:
        """Fill `out` from memory; return whether that was possible, and better than reading."""
        if not memory.complete:
            runs = 1 + np.count_nonzero(np.diff(rows) != 1)
            if len(rows) * pieces.row_bytes > runs * SMALL:
                return False
            low, high = pieces.bounds
            if not memory.fill(self._offsets(rows) + low, high - low):
                return False
        start = self.offset - memory.first
        array = np.ndarray(self.shape, self.stored, memory.bytes, start, self.strides)
        same = out.dtype == self.dtype and out.flags.c_contiguous
        if same and pieces.dense and array.flags.c_contiguous:
            # Rows as opaque items, outside the GIL; mode="clip" writes to `out` without a buffer.
            item = f"V{pieces.row_bytes}"
            items = np.ndarray(len(array), item, memory.bytes, start)
            np.take(items, rows, out=np.ndarray(len(out), item, out), mode="clip")
            if not self.stored.isnative:
                out.byteswap(inplace=True)
        else:
            # What goes through NumPy's own copy stays small, and in the processor's cache.
            count = max(1, _SCRATCH_BYTES // pieces.row_bytes)
            for begin in range(0, len(rows), count):
                some = rows[begin : begin + count]
                out[begin : begin + count] = array[some]
        return memory.unchanged()

    @property
    def _pieces(self) -> Pieces:
        return pieces_of(self.shape[1:], self.strides[1:], self.stored.itemsize)

    @property
    def bounds(self) -> tuple[int, int]:
        """Where the array begins and ends in the file; only without `chunks`."""
        reach = [(length - 1) * step for length, step in zip(self.shape, self.strides, strict=True)]
        low, high = sum(min(step, 0) for step in reach), sum(max(step, 0) for step in reach)
        return self.offset + low, self.offset + high + self.stored.itemsize

    @property
    def nbytes_of_row(self) -> int:
        """Bytes of one row."""
        return prod(self.shape[1:]) * self.stored.itemsize

    def pieces_of_row(self) -> tuple[int, int]:
        """Return how many runs of bytes a single row is read by, and the bytes of each."""
        return len(self._pieces.offsets), self._pieces.nbytes

    def read_runs(
        self, offsets: NDArray[np.int64], nbytes: int, rows: NDArray[np.int64]
    ) -> NDArray[np.uint8]:
        """Read runs of bytes, one after the other.

        Parameters
        ----------
        offsets : ndarray of int64, shape (n,)
            Of each run, from element (0, …, 0).
        nbytes : int
            Of each run.
        rows : ndarray of int64
            The rows that the runs belong to, for errors.

        Returns
        -------
        ndarray of uint8, shape (n * nbytes,)
        """
        opened = self.file.descriptor()
        self.file.check(opened, self.described.key, rows)
        out = np.empty(len(offsets) * nbytes, np.uint8)
        run = Pieces(True, np.zeros(1, np.int64), nbytes, nbytes, (nbytes,), (1,))
        first = np.full(len(offsets), rows[0])
        uninterrupted(partial(self._read, first, self.offset + offsets, run, out))
        return out

    def _offsets(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the byte offset of each row."""
        if self.chunks is None:
            return self.offset + rows * self.strides[0]
        number, within = np.divmod(rows, self.chunks.rows)
        offsets: NDArray[np.int64] = self.chunks.offsets()[number]
        offsets += self.offset + within * self.strides[0]  # indexing has made them ours
        return offsets

    def _read_rows(self, rows: NDArray[np.int64], pieces: Pieces, out: NDArray[np.uint8]) -> None:
        self._read(rows, self._offsets(rows), pieces, out)

    def _read(
        self,
        rows: NDArray[np.int64],
        offsets: NDArray[np.int64],
        pieces: Pieces,
        out: NDArray[np.uint8],
    ) -> None:
        """Fill one-dimensional `out` with the pieces of each row, neighbours in one request."""
        starts = (offsets[:, None] + pieces.offsets).ravel()
        firsts, lengths = join(starts, pieces.nbytes)
        opened = self.file.descriptor()
        # Written over in place, it would deliver bytes of another array.
        ends = offsets + pieces.bounds[1]
        self.file.check(opened, self.described.key, rows, ends)
        places = firsts * pieces.nbytes
        try:
            read_runs(opened.number, starts[firsts], places, lengths, out)
        except UnfinishedError as error:
            first, length = int(places[error.run]), int(lengths[error.run])
            if error.cause is not None:
                wrong = rows[first // pieces.row_bytes : (first + length) // pieces.row_bytes]
                raise self._error(
                    SourceError, f"could not be read: {error.cause}.", wrong
                ) from error.cause
            end = int(starts[firsts[error.run]]) + length
            raise self._error(
                TruncatedFileError,
                f"the file must hold at least {end} bytes; it ends at "
                f"{os.fstat(opened.number).st_size}. It was cut short after it was opened.",
                rows[(first + error.done) // pieces.row_bytes :][:1],
            ) from None
        # Nor what was written over while this was being read.
        self.file.check(opened, self.described.key, rows, ends)

    def _error(self, kind: type[SourceError], message: str, rows: NDArray[np.int64]) -> SourceError:
        return kind(message, path=self.file.path, key=self.described.key, rows=rows.tolist())
