"""Plan to gather boxes by rows, and copy the rows.

The chunks at one place along the inner axes are a column; each column fills a part of a row, by one
`numpy.take`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent, Ints
from oocdata.engines.gather.grid import ITEMS_IN_A_PIECE, c_strides, chunk_parts

__all__ = ["Column", "RowPlan", "plan_rows", "take_boxes", "take_rows"]

_SCRATCH_BYTES = 1 << 18
"""Size of NumPy's intermediate copies, which fits the processor's cache."""

_CACHE_LINE = 64
"""Bytes."""

_MOST_PLANS = 64
"""Plans that are cached; arrays of equal layout share them."""

_POINTS_PER_PIECE = 32
"""Points that a `numpy.take` copies in about the time of copying one piece."""

_SMALL_ROW, _TINY_ROW = 1024, 32
"""Bytes of a row. Boxes of small rows are located as a whole, not row by row: epochs of windows of
64 rows of 68 bytes are 2.8 times as fast by NumPy iteration. Boxes of tiny rows are also copied as
a whole: windows of 128 numbers of 8 bytes are 1.3 times as fast so, of 2 bytes 2 times."""

_POINTS_AT_ONCE, _RUN_BYTES = 1 << 14, 1 << 20
"""Rows of boxes that are located at a time, and bytes of boxes of tiny rows that are copied at a
time: NumPy holds the GIL meanwhile, and threads that often wait for it take 1.3 times as long."""


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """Chunks at one place along the inner axes, and the part of a row that they fill.

    Attributes
    ----------
    number : int
        Number of the chunk at place 0 along the outer axes.
    within, target : tuple of slice
        Slices of a chunk's inner axes, and of the box's.
    most : bool
        At least half of a chunk's row is taken. If so, `numpy.take` of whole rows as opaque items
        is several times as fast as an index with slices.
    """

    number: int
    within: tuple[slice, ...]
    target: tuple[slice, ...]
    most: bool


@dataclass(frozen=True, slots=True, eq=False)
class RowPlan:
    """Plan to gather boxes by rows.

    Attributes
    ----------
    chunk : tuple of int
        Lengths of a chunk along the outer axes, along which boxes are cut into points.
    steps : ndarray of int64, shape (points, axes) or None
        Offsets from the origin of a box to its points; None if a box is one point.
    offsets : ndarray of int64, shape (points,) or None
        Rows of a chunk from the first point of a box to each, for boxes of small rows.
    chunk_steps, row_steps : tuple of int
        Steps along the outer axes from chunk to chunk in the grid, and from row to row in a chunk.
    rows : int
        Rows of a slot.
    inner : tuple of int
        Shape of a chunk's row.
    dtype : numpy.dtype
        Dtype of the array.
    item : numpy.dtype
        A chunk's row as an opaque item.
    columns : tuple of Column
    numbers : ndarray of int64, shape (columns,)
        Numbers of the columns.
    whole : bool
        A row is one run of bytes, in the chunk and in the box.
    """

    chunk: tuple[int, ...]
    steps: Ints | None
    offsets: Ints | None
    chunk_steps: tuple[int, ...]
    row_steps: tuple[int, ...]
    rows: int
    inner: tuple[int, ...]
    dtype: np.dtype[Any]
    item: np.dtype[Any]
    columns: tuple[Column, ...]
    numbers: Ints
    whole: bool

    def writes_to(self, out: NDArray[Any]) -> bool:
        """Return whether rows are copied to `out` as they are, each as one item."""
        return self.whole and out.dtype == self.dtype and out.flags.c_contiguous

    def located(self, points: Ints) -> tuple[Ints, Ints]:
        """Return the chunk of each point in the first column, and its row there, shape (n,)."""
        numbers, rows = np.zeros((2, 1), np.int64)
        steps = zip(points.T, self.chunk, self.chunk_steps, self.row_steps, strict=True)
        for along, length, chunk_step, row_step in steps:
            places = along // length  # by a scalar: several times as fast as by an array
            numbers = numbers + places * chunk_step
            rows = rows + (along - places * length) * row_step
        return numbers, rows


@lru_cache(_MOST_PLANS)
def plan_rows(
    shape: tuple[int, ...],
    chunk_shape: tuple[int, ...],
    slot_shape: tuple[int, ...],
    dtype: np.dtype[Any],
    axes: int,
    inner_origin: tuple[int, ...],
    extent: Extent,
) -> RowPlan | None:
    """Return a plan to gather boxes by rows; None if copying pieces is faster.

    Parameters
    ----------
    shape, chunk_shape, slot_shape : tuple of int
        Shapes of the array, of a whole chunk, and of the memory for one, which may be longer along
        axis 0.
    dtype : numpy.dtype
        Dtype of the array.
    axes : int
        Number of outer axes, along which boxes are cut into points.
    inner_origin : tuple of int
        Origin of all boxes along the inner axes.
    extent : Extent
    """
    points, inner = prod(extent.lengths[:axes]), chunk_shape[axes:]
    item = np.dtype(f"V{prod(inner) * dtype.itemsize}")
    small = extent.lengths[axes:] == inner == shape[axes:] and item.itemsize <= _SMALL_ROW
    outer = zip(extent.spans[:axes], chunk_shape[:axes], strict=True)
    most = ITEMS_IN_A_PIECE if small else _POINTS_PER_PIECE
    if points > most * prod((span - 1) // step + 1 for span, step in outer):
        return None
    grid = tuple(-(-n // step) for n, step in zip(shape, chunk_shape, strict=True))
    chunk_steps = c_strides(grid)
    lengths, strides = extent.lengths[axes:], extent.strides[axes:]
    inner_axes = zip(inner_origin, lengths, strides, chunk_shape[axes:], strict=True)
    parts = [list(chunk_parts(*axis)) for axis in inner_axes]
    columns = []
    for column in product(*parts):
        places = np.array([place for place, _, _ in column], np.int64)
        number = int(places @ chunk_steps[axes:])
        within, target = tuple(w for _, w, _ in column), tuple(t for *_, t in column)
        taken = prod(t.stop - t.start for t in target)
        columns.append(Column(number, within, target, 2 * taken >= prod(chunk_shape[axes:])))
    steps = np.indices(extent.lengths[:axes]).reshape(axes, -1).T * extent.strides[:axes]
    row_steps = c_strides(chunk_shape[:axes])
    return RowPlan(
        chunk=chunk_shape[:axes],
        steps=steps if points > 1 else None,
        offsets=steps @ row_steps if small and points > 1 else None,
        chunk_steps=tuple(chunk_steps[:axes].tolist()),
        row_steps=tuple(row_steps.tolist()),
        rows=prod(slot_shape[:axes]),
        inner=inner,
        dtype=dtype,
        item=item,
        columns=tuple(columns),
        numbers=np.array([column.number for column in columns], np.int64),
        whole=extent.lengths[axes:] == inner and len(columns) == 1,
    )


def take_rows(
    plan: RowPlan,
    columns: Sequence[Column],
    memory: NDArray[np.uint8],
    rows: Ints,
    out: NDArray[Any],
    places: Ints | None = None,
) -> None:
    """Fill points of `out` with rows of decoded chunks.

    Parameters
    ----------
    plan : RowPlan
    columns : sequence of Column
        All or some columns of the plan.
    memory : ndarray of uint8
        Decoded chunks, side by side.
    rows : ndarray of int64, shape (columns, points)
        Row of each point in `memory`.
    out : ndarray, shape (boxes, *lengths)
        Any strides and numeric dtype.
    places : ndarray of int64, shape (points,), optional
        Place of each point in `out`, in C order of its outer axes; by default in order, all points.
    """
    count = len(memory) // plan.item.itemsize
    items = np.ndarray(count, plan.item, memory)
    if plan.writes_to(out):
        # `mode="clip"` writes to `out` without a buffer.
        target = np.ndarray(out.nbytes // plan.item.itemsize, plan.item, out)
        if places is None:
            items.take(rows[0], out=target, mode="clip")
            return
        # Rows of 256 bytes of 8 files in chunks take 1 / 1.3 of the processor's time by NumPy
        # iteration, of 2 to 64 KB 1 / 1.15.
        scratch = np.empty(max(1, _SCRATCH_BYTES // plan.item.itemsize), plan.item)
        for start in range(0, len(places), len(scratch)):
            some = places[start : start + len(scratch)]
            at = rows[0, start : start + len(some)]
            target[some] = items.take(at, out=scratch[: len(some)], mode="clip")
        return
    flat = np.ndarray((count, *plan.inner), plan.dtype, memory)
    axes, count = len(plan.chunk), rows.shape[1]
    points = count // len(out) if places is None else 1
    lengths = out.shape[1 : 1 + axes]
    # Adjacent columns share cache lines of `out`.
    boxes = max(1, _SCRATCH_BYTES // (max(plan.item.itemsize, _CACHE_LINE) * points))
    for start in range(0, count, boxes * points):
        part = slice(start, start + boxes * points)
        where: tuple[Any, ...] = (...,)
        if places is None:
            target = out[start // points : start // points + boxes]
        else:
            target, where = out, np.unravel_index(places[part], out.shape[: 1 + axes])
        for column, at in zip(columns, rows[:, part], strict=True):
            if column.most:
                taken = items.take(at).view(plan.dtype).reshape(-1, *plan.inner)
                taken = taken[(slice(None), *column.within)]
            else:
                taken = flat[(at, *column.within)]
            if places is None:
                taken = taken.reshape(-1, *lengths, *taken.shape[1:])
            target[(*where, *column.target)] = taken


def take_boxes(
    plan: RowPlan,
    memory: NDArray[np.uint8],
    firsts: Ints,
    out: NDArray[Any],
    places: Ints | None,
) -> None:
    """Fill boxes of `out`, each with rows of one decoded chunk.

    Parameters
    ----------
    plan : RowPlan
        With `offsets`.
    memory : ndarray of uint8
        Decoded chunks, side by side.
    firsts : ndarray of int64, shape (boxes,)
        First row of each box in `memory`.
    out : ndarray, shape (boxes, *lengths)
        Any strides and numeric dtype.
    places : ndarray of int64, shape (boxes,), optional
        Place of each box in `out`; by default in order, all boxes.
    """
    assert plan.offsets is not None
    points, row = len(plan.offsets), plan.item.itemsize
    items = np.ndarray(len(memory) // row, plan.item, memory)
    box = np.dtype(f"V{points * row}")
    is_run = row <= _TINY_ROW and plan.offsets[-1] == points - 1
    if is_run:  # overlapping items
        items = np.ndarray(len(items) - points + 1, box, memory, strides=(row,))
        firsts = np.minimum(firsts, len(items) - 1)
    direct = plan.writes_to(out) and places is None and not is_run
    few = max(1, (_RUN_BYTES // box.itemsize) if is_run else (_POINTS_AT_ONCE // points))
    for start in range(0, len(firsts), few):
        at = firsts[start : start + few]
        rows = at if is_run else (at[:, None] + plan.offsets).ravel()
        if direct:
            target = np.ndarray(len(rows), plan.item, out, start * box.itemsize)
            items.take(rows, out=target, mode="clip")
            continue
        taken = items[rows] if is_run else items.take(rows, mode="clip")
        where = slice(start, start + few) if places is None else places[start : start + few]
        out[where] = taken.view(plan.dtype).reshape(-1, *out.shape[1:])
