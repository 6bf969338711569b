"""How rows are read best: small ones are kept, those whose bytes lie far apart are put together.

Rows lie far apart in Fortran order, or along a row axis that is fast in storage. One such row is
thousands of requests of a few bytes. Many rows at a time, each request is as long as the rows are
many, because neighbouring rows lie side by side in each of those places. So such an array is read
as if it were stored in chunks of rows, which are put together once and kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.sources.chunks import Chunks
from oocdata.sources.extents import Extents
from oocdata.sources.kept import SMALL, Kept
from oocdata.sources.source import Layout, Source

__all__ = ["StridedReader", "neighbours", "row_source"]

_SHORT = 4096
"""Bytes: pieces of a row shorter than this are better read for many rows at a time."""

_CHUNK_BYTES = 8 << 20
"""Bytes of rows that are put together at a time."""


_SMALL = 1 << 20
"""Bytes of an array that is read row by row all the same."""

_LOOSE = 2
"""Small rows are kept where they lie in at most this many times their bytes."""


def row_source(extents: Extents, axis: int) -> Source:
    """Return the source of an array's rows along an axis, in the way that reads them best.

    Parameters
    ----------
    extents : Extents
        The whole array as stored.
    axis : int
        The row axis, counted from the front.

    Returns
    -------
    Extents or Chunks
    """
    rows = _with_kept(extents.with_row_axis(axis))
    count = min(rows.shape[0], _CHUNK_BYTES // max(1, rows.nbytes_of_row))
    # A map that is open for writing may change at any time: nothing of it is kept.
    changing = rows.file.modified is None
    small = rows.shape[0] * rows.nbytes_of_row < _SMALL
    pieces, nbytes = rows.pieces_of_row()
    if changing or small or count < 2 or pieces == 1 or nbytes >= _SHORT or not neighbours(rows):
        return rows
    return Chunks.of(StridedReader(rows, count), 0)


def _with_kept(rows: Extents) -> Extents:
    """Return the same rows, kept once they are read if they are small and close together."""
    pieces, nbytes = rows.pieces_of_row()
    if pieces > 1 or not 0 < nbytes <= SMALL or rows.chunks or rows.file.modified is None:
        return rows
    first, end = rows.bounds
    if not 0 < end - first <= _LOOSE * rows.shape[0] * nbytes:
        return rows
    return replace(rows, kept=Kept(rows.file, first, end - first))


def neighbours(rows: Extents) -> bool:
    """Return whether neighbouring rows lie side by side, with nothing between them."""
    stride = rows.strides[0]
    faster = [n for n, step in zip(rows.shape, rows.strides, strict=True) if 0 < step < stride]
    return stride > 0 and min(rows.strides) > 0 and stride == prod(faster) * rows.stored.itemsize


@dataclass(frozen=True, slots=True)
class StridedReader:
    """Boxes of an array in a file whose rows lie far apart.

    Parameters
    ----------
    rows : Extents
        ``(rows, *element)``; neighbouring rows lie side by side.
    count : int
        Rows to read at a time.
    """

    rows: Extents
    count: int

    @property
    def shape(self) -> tuple[int, ...]:
        """``(rows, *element)``."""
        return self.rows.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Native byte order."""
        return self.rows.dtype

    @property
    def chunk_shape(self) -> tuple[int, ...]:
        """As many whole rows as are read at a time."""
        return (self.count, *self.shape[1:])

    def read_box(self, box: tuple[slice, ...]) -> NDArray[Any]:
        """Return whole rows, shape ``(stop - start, *element)``."""
        start, stop = box[0].start, box[0].stop
        strides, shape = self.rows.strides, list(self.shape)
        shape[0] = stop - start
        # Slowest in storage first: the axes before the rows are places, the rows and what is
        # faster than they are one run at each place.
        storage = sorted(range(len(shape)), key=lambda axis: -strides[axis])
        offsets = np.array([start * strides[0]], np.int64)
        for axis in storage[: storage.index(0)]:
            offsets = (offsets[:, None] + np.arange(shape[axis]) * strides[axis]).ravel()
        read = self.rows.read_runs(offsets, shape[0] * strides[0], np.arange(start, stop))
        stored = read.view(self.rows.stored).reshape([shape[axis] for axis in storage])
        return stored.transpose(np.argsort(storage))

    def layout(self) -> Layout:
        """Return where and how the array is stored."""
        return self.rows.layout()
