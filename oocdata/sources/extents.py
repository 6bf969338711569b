"""The extents engine: rows at known byte offsets of one file.

``.npy``, raw binary, stored ``.npz`` members and contiguous HDF5 are all the same thing: an offset,
a dtype and a stride for each axis. Fortran order, another row axis and cuts of the element axes
only change those integers, so one engine reads them all.

A row is decomposed into *pieces*, the runs of bytes that lie together; a batch is then a list of
(offset, length) requests, with neighbours joined into one. Reading is by ``preadv``, straight into
the batch: the GIL is released, no page is mapped (resident memory stays flat), and a file that is
cut short gives a short read, never SIGBUS.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import prod
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from oocdata.errors import SourceError, TruncatedFileError
from oocdata.index import Cut
from oocdata.sources.handles import Descriptor, handle
from oocdata.sources.ring import read_many
from oocdata.sources.source import Layout, Source

__all__ = ["ChunkStarts", "Extents", "FileStamp", "contiguous_strides"]

_SCRATCH_BYTES = 1 << 20
"""Rows that must be rearranged or converted pass through a block of about this size, in cache."""

_WORTH_A_RING = 8
"""Requests from which on handing them to the kernel together costs less than it gains."""

_SPARSE = 8
"""A row is read as one span when the span is at most this many times its bytes."""


@dataclass(frozen=True, slots=True)
class FileStamp:
    """What tells one version of a file from the next.

    Attributes
    ----------
    path : str
        Absolute.
    nbytes : int
    modified : int or None
        Nanoseconds since the epoch; None where whoever opened it may also write to it.
    """

    path: str
    nbytes: int
    modified: int | None

    @classmethod
    def of(cls, path: str) -> FileStamp:
        """Return the stamp of the file as it is now."""
        status = os.stat(path)
        return cls(os.path.abspath(path), status.st_size, status.st_mtime_ns)

    def descriptor(self) -> Descriptor:
        """Return this process's open descriptor.

        Raises
        ------
        oocdata.errors.MissingFileError, oocdata.errors.SourceError
            If the file is gone, or is no longer what it was.
        """
        return handle(self, self._open)

    def _open(self) -> Descriptor:
        opened = Descriptor(self.path)
        try:
            self.check(opened)
        except SourceError:
            opened.close()  # the error's traceback would keep it open
            raise
        return opened

    def check(
        self,
        opened: Descriptor,
        key: str | None = None,
        rows: NDArray[np.int64] | None = None,
        ends: NDArray[np.int64] | None = None,
    ) -> None:
        """Raise if the open file is no longer what it was: its bytes may mean something else.

        Parameters
        ----------
        opened : Descriptor
        key : str, optional
        rows, ends : ndarray of int64, shape (n,), optional
            The rows about to be read and where each ends, for the message.

        Raises
        ------
        oocdata.errors.TruncatedFileError, oocdata.errors.SourceError
        """
        status = os.fstat(opened.number)
        if status.st_size < self.nbytes:
            if rows is not None and ends is not None and (ends > status.st_size).any():
                rows = rows[ends > status.st_size]  # the others are still there
            raise TruncatedFileError(
                f"the file must hold {self.nbytes} bytes, as when it was opened; it ends at "
                f"{status.st_size}. It was cut short after it was opened.",
                path=self.path,
                key=key,
                rows=rows,
            )
        if self.modified not in (None, status.st_mtime_ns):
            raise SourceError(
                "the file must be as it was when it was opened; it has changed. Open it again.",
                path=self.path,
                key=key,
                rows=rows,
            )


def contiguous_strides(
    shape: tuple[int, ...], itemsize: int, *, fortran: bool = False
) -> tuple[int, ...]:
    """Return the byte strides of a contiguous array.

    Examples
    --------
    >>> contiguous_strides((10, 3, 4), 8)
    (96, 32, 8)
    >>> contiguous_strides((10, 3, 4), 8, fortran=True)
    (8, 80, 240)
    """
    strides = [0] * len(shape)
    step = itemsize
    for axis in range(len(shape)) if fortran else reversed(range(len(shape))):
        strides[axis] = step
        step *= shape[axis]
    return tuple(strides)


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
    """

    file: FileStamp
    stored: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    described: Layout = field(compare=False)
    chunks: ChunkStarts | None = None

    converts = True
    chunk_rows = 1

    @property
    def dtype(self) -> np.dtype[Any]:
        """The stored dtype in native byte order."""
        return self.stored.newbyteorder("=")

    def layout(self) -> Layout:
        """Return where and how the array is stored."""
        return self.described

    def with_row_axis(self, axis: int) -> Extents:
        """Return the same array with `axis` moved to the front, as ``numpy.moveaxis`` does."""
        order = [axis, *(other for other in range(len(self.shape)) if other != axis)]
        return replace(
            self,
            shape=tuple(self.shape[axis] for axis in order),
            strides=tuple(self.strides[axis] for axis in order),
        )

    def cut(self, cuts: tuple[Cut, ...]) -> Source:
        """Return the source of ``row[cuts]``: other offsets and strides, nothing else."""
        offset, shape, strides = self.offset, [self.shape[0]], [self.strides[0]]
        for cut, stride in zip(cuts, self.strides[1:], strict=True):
            if isinstance(cut, int):
                offset += cut * stride
            else:
                offset += cut.start * stride
                shape.append(len(cut))
                strides.append(cut.step * stride)
        return replace(self, offset=offset, shape=tuple(shape), strides=tuple(strides))

    def read_into(self, rows: NDArray[np.int64], out: NDArray[Any]) -> None:
        """Write ``out[i] = row rows[i]``; `out` may have any numeric dtype."""
        if out.size == 0:
            return
        pieces = _pieces(self.shape[1:], self.strides[1:], self.stored.itemsize)
        if pieces.dense and out.dtype == self.dtype and out.flags.c_contiguous:
            # Storage is the batch but for byte order: read in place.
            self._read(rows, self._offsets(rows), pieces, out.reshape(-1))
            if not self.stored.isnative:
                out.byteswap(inplace=True)
            return
        count = max(1, _SCRATCH_BYTES // pieces.row_bytes)
        scratch = np.empty(min(count, len(rows)) * pieces.row_bytes, np.uint8)
        for start in range(0, len(rows), count):
            some = rows[start : start + count]
            used = scratch[: len(some) * pieces.row_bytes]
            self._read(some, self._offsets(some), pieces, used)
            out[start : start + count] = pieces.view(used, len(some), self.stored)

    @property
    def nbytes_of_row(self) -> int:
        """Bytes of one row."""
        return prod(self.shape[1:]) * self.stored.itemsize

    def pieces_of_row(self) -> tuple[int, int]:
        """Return how many runs of bytes a single row is read by, and the bytes of each."""
        pieces = _pieces(self.shape[1:], self.strides[1:], self.stored.itemsize)
        return len(pieces.offsets), pieces.nbytes

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
        run = _Pieces(True, np.zeros(1, np.int64), nbytes, nbytes, (nbytes,), (1,))
        self._read(np.full(len(offsets), rows[0]), self.offset + offsets, run, out)
        return out

    def _offsets(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the byte offset of each row."""
        if self.chunks is None:
            return self.offset + rows * self.strides[0]
        number, within = np.divmod(rows, self.chunks.rows)
        offsets: NDArray[np.int64] = self.chunks.offsets()[number]
        offsets += self.offset + within * self.strides[0]  # indexing has made them ours
        return offsets

    def _read(
        self,
        rows: NDArray[np.int64],
        offsets: NDArray[np.int64],
        pieces: _Pieces,
        out: NDArray[Any],
    ) -> None:
        """Fill one-dimensional `out` with the pieces of each row, neighbours in one request."""
        starts = (offsets[:, None] + pieces.offsets).ravel()
        # A request ends where the next piece does not follow on.
        breaks = np.flatnonzero(np.diff(starts) != pieces.nbytes) + 1
        firsts = np.concatenate(([0], breaks))
        lengths = np.diff(np.append(firsts, len(starts))) * pieces.nbytes
        memory = out.view(np.uint8).data
        number = self.file.descriptor()
        # Written over in place, it would deliver bytes of another array.
        ends = offsets + (int(pieces.offsets.max()) + pieces.nbytes)
        self.file.check(number, self.described.key, rows, ends)
        offsets, places = starts[firsts], firsts * pieces.nbytes
        finished = np.zeros(len(firsts), np.int64)
        if len(firsts) >= _WORTH_A_RING:
            found = read_many(number.number, offsets, out.ctypes.data + places, lengths)
            if found is not None:
                # What fell short or failed is read again below, where errors are told.
                finished = np.maximum(found, 0)
        left = np.flatnonzero(finished < lengths)
        requests = zip(
            *(part[left].tolist() for part in (offsets, places, lengths, finished)), strict=True
        )
        for offset, place, length, done in requests:
            while done < length:
                try:
                    got = os.preadv(
                        number.number, [memory[place + done : place + length]], offset + done
                    )
                except OSError as error:
                    wrong = rows[place // pieces.row_bytes : (place + length) // pieces.row_bytes]
                    raise self._error(SourceError, f"could not be read: {error}.", wrong) from error
                if got == 0:
                    wrong = rows[(place + done) // pieces.row_bytes :][:1]
                    raise self._error(
                        TruncatedFileError,
                        f"the file must hold at least {offset + length} bytes; it ends at "
                        f"{os.fstat(number.number).st_size}. It was cut short after it was opened.",
                        wrong,
                    )
                done += got
        # Nor what was written over while this was being read.
        self.file.check(number, self.described.key, rows, ends)

    def _error(self, kind: type[SourceError], message: str, rows: NDArray[np.int64]) -> SourceError:
        return kind(message, path=self.file.path, key=self.described.key, rows=rows.tolist())


@dataclass(frozen=True, slots=True)
class _Pieces:
    """One row as runs of bytes, and the element as it lies in them once they are read.

    Attributes
    ----------
    dense : bool
        The row is one run and is the element in C order.
    offsets : ndarray of int64, shape (pieces,)
        From the row's own offset.
    nbytes : int
        Of each piece.
    row_bytes : int
        Of all pieces: what one row takes once it is read.
    shape, strides : tuple of int
        Of the element within those bytes.
    origin : int
        Byte offset of element (0, …) within them.
    """

    dense: bool
    offsets: NDArray[np.int64]
    nbytes: int
    row_bytes: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    origin: int = 0

    def view(self, scratch: NDArray[np.uint8], rows: int, stored: np.dtype[Any]) -> NDArray[Any]:
        """Return bytes that were read as elements, shape (rows, *shape)."""
        strides = (self.row_bytes, *self.strides)
        return np.ndarray((rows, *self.shape), stored, scratch, self.origin, strides)


@lru_cache(maxsize=256)
def _pieces(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> _Pieces:
    nbytes = prod(shape) * itemsize
    if strides == contiguous_strides(shape, itemsize):
        return _Pieces(True, np.zeros(1, np.int64), nbytes, nbytes, shape, strides)
    reach = [(length - 1) * step for length, step in zip(shape, strides, strict=True)]
    low = sum(step for step in reach if step < 0)
    span = sum(abs(step) for step in reach) + itemsize
    if span <= _SPARSE * nbytes:
        # The row with its holes and its own strides (cuts, steps, flips): one request.
        return _Pieces(False, np.array([low]), span, span, shape, strides, -low)
    # Far apart: the axes that are dense in storage, innermost first, make a piece; the others,
    # places. By stride, not by axis: a Fortran row has its dense axis first.
    inner = sorted(range(len(shape)), key=lambda axis: abs(strides[axis]))
    piece, dense = itemsize, 0
    for axis in inner:
        if shape[axis] != 1 and strides[axis] != piece:
            break
        piece *= shape[axis]
        dense += 1
    offsets = np.zeros(1, np.int64)
    inside = [0] * len(shape)
    step = itemsize
    for axis in inner:
        inside[axis] = step
        step *= shape[axis]
    for axis in reversed(inner[dense:]):
        offsets = (offsets[:, None] + np.arange(shape[axis]) * strides[axis]).ravel()
    return _Pieces(False, offsets, piece, nbytes, shape, tuple(inside))
