"""Gather boxes out of decoded chunks, by rows or by items.

Boxes that are single places (or few) along the outer axes, and alike on the inner ones, are rows.
The chunks at one place along the inner axes are a column; each fills a part of a row, by one
`numpy.take`. Of other boxes chunks may hold many small pieces, each of which takes longer to copy
than its numbers. Then it is computed for every number in which chunk it lies and where in that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent
from oocdata.threads import cached_property

__all__ = [
    "BoxItems", "Column", "RowPlan", "c_strides", "chunk_parts", "plan_rows", "suits_items",
    "take_rows",
]  # fmt: skip

_SCRATCH_BYTES = 1 << 18
"""What goes through NumPy's own copy stays small, and in the processor's cache."""

_CACHE_LINE = 64
"""Bytes."""

_MOST_PLANS = 64
"""Remembered: arrays that are alike share theirs."""

_POINTS_FOR_A_PIECE = 32
"""A copy of a piece takes about as long as so many items of a take."""

_ITEMS_IN_A_PIECE = 256
"""And as so many items of which each has a place computed. In h5py's own chunks, crops of images
(12 KiB, 49 items a piece) and of weather fields (24 KiB, 61 items) take 1 / 4 of the processor's
time by NumPy iteration."""


Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """Chunks at one place along the inner axes, and the part of a row that they fill.

    Attributes
    ----------
    number : int
        Of the chunk at place 0 along the outer axes.
    within, target : tuple of slice
        What is taken of a chunk's inner axes, and where it goes in the box's.
    most : bool
        At least half of a chunk's row is taken: then `numpy.take` of whole rows, as opaque items,
        is several times as fast as an index with slices.
    """

    number: int
    within: tuple[slice, ...]
    target: tuple[slice, ...]
    most: bool


@dataclass(frozen=True, slots=True, eq=False)
class RowPlan:
    """How boxes are gathered by rows.

    Attributes
    ----------
    chunk : tuple of int
        Lengths of a chunk along the outer axes, along which boxes are cut into points.
    steps : ndarray of int64, shape (points, axes) or None
        From the origin of a box to the points that it is cut into; None where it is one.
    chunk_steps, row_steps : tuple of int
        From one chunk to the next in the grid, from one row to the next in a chunk.
    rows : int
        Of a chunk.
    inner : tuple of int
        Shape of a chunk's row.
    dtype : numpy.dtype
        Of the array.
    item : numpy.dtype
        A chunk's row as an opaque item.
    columns : tuple of Column
    numbers : ndarray of int64, shape (columns,)
        Those of the columns.
    whole : bool
        A row is one run of bytes, in its chunk and in the box.
    """

    chunk: tuple[int, ...]
    steps: NDArray[np.int64] | None
    chunk_steps: tuple[int, ...]
    row_steps: tuple[int, ...]
    rows: int
    inner: tuple[int, ...]
    dtype: np.dtype[Any]
    item: np.dtype[Any]
    columns: tuple[Column, ...]
    numbers: NDArray[np.int64]
    whole: bool

    def located(self, points: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the chunk of each point, in the first column, and its row there, shape (n,)."""
        numbers, rows = np.zeros((2, 1), np.int64)
        steps = zip(points.T, self.chunk, self.chunk_steps, self.row_steps, strict=True)
        for along, length, chunk_step, row_step in steps:
            places = along // length  # by a number: several times as fast as by an array
            numbers = numbers + places * chunk_step
            rows = rows + (along - places * length) * row_step
        return numbers, rows


@lru_cache(_MOST_PLANS)
def plan_rows(
    shape: tuple[int, ...],
    chunk_shape: tuple[int, ...],
    dtype: np.dtype[Any],
    axes: int,
    inner_origin: tuple[int, ...],
    extent: Extent,
) -> RowPlan | None:
    """Return how boxes are gathered by rows; None where they are better copied by pieces.

    Parameters
    ----------
    shape, chunk_shape : tuple of int
        Of the array, and of a whole chunk.
    dtype : numpy.dtype
        Of the array.
    axes : int
        Outer axes, along which boxes are cut into points.
    inner_origin : tuple of int
        Where boxes begin along the inner axes.
    extent : Extent
    """
    points = prod(extent.lengths[:axes])
    outer = zip(extent.spans[:axes], chunk_shape[:axes], strict=True)
    if points > _POINTS_FOR_A_PIECE * prod((span - 1) // step + 1 for span, step in outer):
        return None
    grid = tuple(-(-n // step) for n, step in zip(shape, chunk_shape, strict=True))
    chunk_steps = c_strides(grid)
    lengths, strides = extent.lengths[axes:], extent.strides[axes:]
    inner_axes = zip(inner_origin, lengths, strides, chunk_shape[axes:], strict=True)
    parts = [list(chunk_parts(*axis)) for axis in inner_axes]
    columns = []
    for some in product(*parts):
        places = np.array([place for place, _, _ in some], np.int64)
        number = int(places @ chunk_steps[axes:])
        within, target = tuple(w for _, w, _ in some), tuple(t for *_, t in some)
        taken = prod(t.stop - t.start for t in target)
        columns.append(Column(number, within, target, 2 * taken >= prod(chunk_shape[axes:])))
    steps = np.indices(extent.lengths[:axes]).reshape(axes, -1).T * extent.strides[:axes]
    inner = chunk_shape[axes:]
    return RowPlan(
        chunk=chunk_shape[:axes],
        steps=steps if points > 1 else None,
        chunk_steps=tuple(chunk_steps[:axes].tolist()),
        row_steps=tuple(c_strides(chunk_shape[:axes]).tolist()),
        rows=prod(chunk_shape[:axes]),
        inner=inner,
        dtype=dtype,
        item=np.dtype(f"V{prod(inner) * dtype.itemsize}"),
        columns=tuple(columns),
        numbers=np.array([column.number for column in columns], np.int64),
        whole=extent.lengths[axes:] == inner and len(columns) == 1,
    )


def take_rows(
    plan: RowPlan,
    columns: Sequence[Column],
    memory: NDArray[np.uint8],
    slots: NDArray[np.int64],
    which: NDArray[np.int64] | None,
    rows: NDArray[np.int64],
    out: NDArray[Any],
    places: NDArray[np.int64] | None = None,
) -> None:
    """Fill points of `out`, all or those at some places, from rows of decoded chunks.

    Parameters
    ----------
    plan : RowPlan
    columns : sequence of Column
        All columns of the plan, or some.
    memory : ndarray of uint8
        Decoded chunks, side by side.
    slots : ndarray of int64, shape (columns, chunks)
        Where the chunks lie in memory.
    which : ndarray of int64, shape (points,), or None
        The chunk of each point, among those in a line of `slots`; None where these are of points.
    rows : ndarray of int64, shape (points,)
        The row of each point within its chunk.
    out : ndarray, shape (boxes, *lengths)
        Of any strides and numeric dtype.
    places : ndarray of int64, shape (points,), optional
        Where each point goes, numbered in C order along the outer axes of `out`.
    """
    count = len(memory) // plan.item.itemsize
    items = np.ndarray(count, plan.item, memory)
    firsts = slots * plan.rows
    if plan.whole and out.dtype == plan.dtype and out.flags.c_contiguous:
        # Rows as opaque items; mode="clip" writes to `out` without a buffer.
        target = np.ndarray(out.nbytes // plan.item.itemsize, plan.item, out)
        at = (firsts[0] if which is None else firsts[0][which]) + rows
        if places is None:
            items.take(at, out=target, mode="clip")
            return
        scratch = np.empty(max(1, _SCRATCH_BYTES // plan.item.itemsize), plan.item)
        for start in range(0, len(at), len(scratch)):
            part = at[start : start + len(scratch)]
            taken = items.take(part, out=scratch[: len(part)], mode="clip")
            target[places[start : start + len(part)]] = taken
        return
    flat = np.ndarray((count, *plan.inner), plan.dtype, memory)
    axes, points = len(plan.chunk), len(rows) // len(out) if places is None else 1
    lengths = out.shape[1 : 1 + axes]
    # Columns that lie side by side share lines of the processor's cache in `out`.
    boxes = max(1, _SCRATCH_BYTES // (max(plan.item.itemsize, _CACHE_LINE) * points))
    for start in range(0, len(rows), boxes * points):
        some = slice(start, start + boxes * points)
        few, within = some if which is None else which[some], rows[some]
        where: tuple[Any, ...] = (...,)
        if places is None:
            target = out[start // points : start // points + boxes]
        else:
            target, where = out, np.unravel_index(places[some], out.shape[: 1 + axes])
        for column, first in zip(columns, firsts, strict=True):
            at = first[few] + within
            if column.most:
                part = items.take(at).view(plan.dtype).reshape(-1, *plan.inner)
                part = part[(slice(None), *column.within)]
            else:
                part = flat[(at, *column.within)]
            if places is None:
                part = part.reshape(-1, *lengths, *part.shape[1:])
            target[(*where, *column.target)] = part


def c_strides(shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Return how much further in C order the next place along each axis is."""
    return np.array([prod(shape[axis + 1 :]) for axis in range(len(shape))], np.int64)


def chunk_parts(
    origin: int, length: int, stride: int, step: int
) -> Iterator[tuple[int, slice, slice]]:
    """Yield the chunks that a box covers along one axis.

    Parameters
    ----------
    origin, length, stride : int
        Of the box.
    step : int
        Of the grid.

    Yields
    ------
    place : int
        Of the chunk.
    within, target : slice
        What is taken of it, and where that goes in the box.

    Examples
    --------
    >>> list(chunk_parts(3, 4, 2, 5))
    [(0, slice(3, 4, 2), slice(0, 1, None)), (1, slice(0, 5, 2), slice(1, 4, None))]
    """
    taken = 0
    while taken < length:
        place, start = divmod(origin + taken * stride, step)
        count = min(length - taken, (step - 1 - start) // stride + 1)
        within = slice(start, start + (count - 1) * stride + 1, stride)
        yield place, within, slice(taken, taken + count)
        taken += count


def suits_items(extent: Extent, cut: tuple[int, ...], axes: int) -> bool:
    """Return whether boxes are rather gathered by items than copied by pieces."""
    spans = zip(extent.spans[:axes], cut, strict=False)
    pieces = prod((span - 1) // step + 1 for span, step in spans)
    return prod(extent.lengths[:axes]) <= _ITEMS_IN_A_PIECE * pieces


@dataclass(frozen=True, eq=False)
class BoxItems:
    """Where the items of boxes lie in chunks.

    Attributes
    ----------
    origins : ndarray of int64, shape (n, N)
    lengths, strides, cut : tuple of int
        Of the boxes and of a chunk, along the axes that number items: the others are whole in both.
    steps : ndarray of int64, shape (N,)
        From one chunk to the next in the grid.
    """

    origins: Ints
    lengths: tuple[int, ...]
    strides: tuple[int, ...]
    cut: tuple[int, ...]
    steps: Ints

    @cached_property
    def _along(self) -> list[tuple[Ints, Ints, Ints]]:
        """For each axis the chunks of each box, shape (n, chunks); some of them several times.

        And of each place of a box, shape (n, length), which of these it lies in, and where in that.
        """
        axes = enumerate(zip(self.lengths, self.strides, self.cut, strict=True))
        found = []
        for axis, (length, stride, step) in axes:
            places = self.origins[:, axis, None] + np.arange(length) * stride
            chunks = places // step
            within = places - chunks * step
            which = np.broadcast_to(np.arange(length), places.shape)
            if stride <= step:  # no chunk is left out
                which = chunks - chunks[:, :1]
                count = np.arange(int(which[:, -1].max()) + 1)
                chunks = np.minimum(chunks[:, :1] + count, chunks[:, -1:])
            found.append((chunks, which, within))
        return found

    @cached_property
    def chunks(self) -> Ints:
        """The numbers of the chunks that each box covers, shape (n, chunks); some several times."""
        found = np.zeros((len(self.origins), 1), np.int64)
        for (chunks, *_), step in zip(self._along, self.steps.tolist(), strict=True):
            found = _combined(found, chunks * step)
        return found

    def places(self, firsts: Ints, some: slice) -> Ints:
        """Return where items of some boxes lie, given the first item of each of their `chunks`.

        Shape (boxes, items).
        """
        which, within = np.zeros((2, len(firsts), 1), np.int64)
        for (chunks, number, inside), length in zip(self._along, self.cut, strict=True):
            which = _combined(which * chunks.shape[1], number[some])
            within = _combined(within * length, inside[some])
        found: Ints = np.take_along_axis(firsts, which, axis=1)
        found += within
        return found


def _combined(outer: Ints, inner: Ints) -> Ints:
    """Return the sum of each number of one axis and each of the next, line by line."""
    return (outer[:, :, None] + inner[:, None, :]).reshape(len(outer), -1)
