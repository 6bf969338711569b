"""Gather boxes from decoded chunks, in one of two ways.

By points: along its outer axes, each box is cut into points. A point is a row of a chunk, or of
several chunks side by side (*columns*), and one `numpy.take` copies the points of many boxes,
however many chunks they come from. All boxes have the same origin along the inner axes.

By pieces, where points would be many and small, or chunks are too many to pin: one copy for all
small boxes within chunks, and one for each chunk that each other box covers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product
from math import prod
from operator import mul
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from oocdata.box import Extent, Ints
from oocdata.engines.buffers import scratch_memory
from oocdata.engines.copying import copy_reordered
from oocdata.engines.decoding import run_tasks
from oocdata.engines.gather.grid import c_strides, chunk_grid, chunk_parts
from oocdata.threads import cores

if TYPE_CHECKING:
    from oocdata.engines.chunked import Chunked

_POINTS_PER_PIECE, _CUT_POINTS_PER_PIECE = 256, 32
"""Points that are copied in about the time of copying one piece, if they are whole rows of chunks,
and if not. In h5py's default chunks, crops of images (12 KiB, 49 numbers a piece) and of weather
fields (24 KiB, 61 numbers) take 1 / 4 of the processor's time by NumPy iteration by points."""

_POINTS_AT_ONCE = 1 << 14
"""Points that are located at a time: few enough that tables stay in the processor's cache."""

_SCRATCH_BYTES = 1 << 18
"""Size of NumPy's intermediate copies, which fits the processor's cache."""

_TASK_BYTES = 4 << 20
"""Least bytes that a thread copies, where idle decoding threads help: memory may have room for only
one batch being read. On two cores, such batches of ARCO-ERA5 come 1.3 times as fast by `to_tf`, of
anemoi 1.2 times.
"""

_FEWEST_BOXES = 8
"""Boxes within a chunk are copied together if so many fit there. Patches of 32 x 32 bytes take
1 / 7 of the processor's time by NumPy iteration."""

_CACHE_LINE = 64
"""Bytes."""

_MOST_PLANS = 64
"""Plans that are cached; arrays of equal layout share them."""


def gather(
    array: Chunked, origins: Ints, extent: Extent, out: NDArray[Any], places: Ints | None
) -> None:
    """Write ``out[i] = the box at origins[i]``, or to ``out[places[i]]``."""
    lengths, axes = extent.lengths, len(array.shape)
    while axes > 1 and lengths[axes - 1] == array.shape[axes - 1]:
        axes -= 1  # taken whole
    if axes > 1:
        differs = (origins[:, 1:axes] != origins[0, 1:axes]).any(axis=0)
        axes = 2 + max(np.flatnonzero(differs).tolist(), default=-1)
    inner = tuple(origins[0, axes:].tolist())
    shapes = array.shape, array.chunk_shape, array.slot_shape
    plan = plan_points(*shapes, array.dtype, axes, inner, extent)
    if plan is None or not _gather_points(array, plan, origins, extent, out, places):
        _gather_pieces(array, origins, extent, out, places)


class _Axis(NamedTuple):
    """An outer axis: the length of a chunk, and steps from chunk to chunk and from row to row."""

    chunk: int
    chunk_step: int
    row_step: int


class _Column(NamedTuple):
    """Chunks at one place along the inner axes, and the part of a point that they fill.

    `number` is that of the chunk at place 0 along the outer axes; `within` and `target` are slices
    of a chunk's inner axes, and of the box's. If at least half of a chunk's row is taken (`most`),
    `numpy.take` of whole rows as opaque items is several times as fast as an index with slices.
    """

    number: int
    within: tuple[slice, ...]
    target: tuple[slice, ...]
    most: bool


@dataclass(frozen=True, slots=True, eq=False)
class _Plan:
    """Plan to gather boxes by points.

    `axes` are the outer axes; `every` has the offsets from the first point of a box to all of its
    `points`, along each axis, an open mesh. A slot has so many `rows`, each a chunk's row of shape
    `inner`, or one opaque `item`. `numbers` (int64) are those of the columns. A point is `whole`
    if it is one run of bytes, in the chunk and in the box.
    """

    axes: tuple[_Axis, ...]
    every: list[Ints]
    points: int
    rows: int
    inner: tuple[int, ...]
    dtype: np.dtype[Any]
    item: np.dtype[Any]
    columns: tuple[_Column, ...]
    numbers: Ints
    whole: bool

    def located(self, origins: Ints) -> tuple[Ints, Ints]:
        """Return the chunk of each point in the column of number 0, and its row there.

        Both have shape (boxes, points).
        """
        numbers, rows = np.zeros((2, len(origins) if self.points == 1 else 1), np.int64)
        points: Iterable[Ints] = origins.T
        if self.points > 1:
            begins = origins.T.reshape(len(self.axes), -1, *[1] * len(self.axes))
            points = map(np.add, begins, self.every)
        for along, axis in zip(points, self.axes, strict=True):
            places = along // axis.chunk  # by a scalar: several times as fast as by an array
            numbers = numbers + places * axis.chunk_step
            rows = rows + (along - places * axis.chunk) * axis.row_step
        return numbers.reshape(-1, self.points), rows.reshape(-1, self.points)


@lru_cache(_MOST_PLANS)
def plan_points(
    shape: tuple[int, ...],
    chunk_shape: tuple[int, ...],
    slot_shape: tuple[int, ...],
    dtype: np.dtype[Any],
    axes: int,
    inner_origin: tuple[int, ...],
    extent: Extent,
) -> _Plan | None:
    """Return a plan to gather boxes by points; None if copying pieces is faster.

    The memory for a chunk has `slot_shape`, perhaps longer than a chunk along axis 0. Boxes are cut
    into points along the `axes` outer ones; `inner_origin` is that of all boxes along the others.
    """
    lengths, strides, inner = extent.lengths, extent.strides, chunk_shape[axes:]
    chunk_steps = c_strides(chunk_grid(shape, chunk_shape)).tolist()
    parts = [
        list(chunk_parts(*along))
        for along in zip(inner_origin, lengths[axes:], strides[axes:], inner, strict=True)
    ]
    columns = []
    for column in product(*parts):
        steps = zip(column, chunk_steps[axes:], strict=True)
        within, target = tuple(w for _, w, _ in column), tuple(t for *_, t in column)
        taken = prod(t.stop - t.start for t in target)
        number = sum(place * step for (place, _, _), step in steps)
        columns.append(_Column(number, within, target, 2 * taken >= prod(inner)))
    whole = lengths[axes:] == inner and len(columns) == 1
    points = prod(lengths[:axes])
    spans = zip(extent.spans[:axes], chunk_shape, strict=False)
    pieces = prod((span - 1) // step + 1 for span, step in spans)
    if points > pieces * (_POINTS_PER_PIECE if whole else _CUT_POINTS_PER_PIECE):
        return None
    item = np.dtype(f"V{prod(inner) * dtype.itemsize}")
    row_steps = c_strides(chunk_shape[:axes])
    outer = zip(chunk_shape, chunk_steps, row_steps.tolist(), strict=False)
    along = [np.arange(n) * stride for n, stride in zip(lengths[:axes], strides, strict=False)]
    every = list(np.meshgrid(np.zeros(1, np.int64), *along, indexing="ij", sparse=True))[1:]
    return _Plan(
        axes=tuple(_Axis(*axis) for axis in outer),
        every=every,
        points=points,
        rows=prod(slot_shape[:axes]),
        inner=inner,
        dtype=dtype,
        item=item,
        columns=tuple(columns),
        numbers=np.array([column.number for column in columns], np.int64),
        whole=whole,
    )


def _gather_points(
    array: Chunked,
    plan: _Plan,
    origins: Ints,
    extent: Extent,
    out: NDArray[Any],
    places: Ints | None,
) -> bool:
    """Gather boxes by points; return False if their chunks are too many to pin."""
    few = max(1, _POINTS_AT_ONCE // plan.points)
    if len(origins) > few and plan.points > 1:
        order = array.number_at(origins).argsort(kind="stable")
        for start in range(0, len(order), few):
            some = order[start : start + few]
            gather(array, origins[some], extent, out, some if places is None else places[some])
        return True
    numbers, rows = plan.located(origins[:, : len(plan.axes)])
    numbers = numbers[:, :, None] + plan.numbers
    pin = array.pin(numbers.ravel())
    if pin is None:
        return False
    with pin:
        rows = rows[:, :, None] + (pin.slots * plan.rows).reshape(numbers.shape)
        if out.nbytes < 2 * _TASK_BYTES:
            _take(plan, pin.memory, rows, out, places)
            return True
        few = max(-(-_TASK_BYTES * len(out) // out.nbytes), -(-len(rows) // cores()))
        parts = [slice(start, start + few) for start in range(0, len(rows), few)]
        targets = [(out[p], None) if places is None else (out, places[p]) for p in parts]
        tasks = zip(parts, targets, strict=True)
        run_tasks([partial(_take, plan, pin.memory, rows[p], *target) for p, target in tasks])
    return True


def _take(
    plan: _Plan, memory: NDArray[np.uint8], rows: Ints, out: NDArray[Any], places: Ints | None
) -> None:
    """Fill boxes of `out` (any strides and numeric dtype) with points of decoded chunks.

    `memory` (uint8) holds the chunks side by side, and `rows` (int64), of shape (boxes, points,
    columns), the row of each point there. `places` are those of the boxes in `out`; by default in
    order, all boxes.
    """
    count = len(memory) // plan.item.itemsize
    items = np.ndarray(count, plan.item, memory)
    if plan.whole and out.dtype == plan.dtype and out.flags.c_contiguous and places is None:
        # With mode="clip" it writes to `out` without a buffer.
        items.take(rows.ravel(), out=np.ndarray(rows.size, plan.item, out), mode="clip")
        return
    flat = np.ndarray((count, *plan.inner), plan.dtype, memory)
    axes = len(plan.axes)
    few = max(1, _SCRATCH_BYTES // (max(plan.item.itemsize, _CACHE_LINE) * plan.points))
    scratch = scratch_memory((min(few, len(rows)) * plan.points,), plan.item)
    for start in range(0, len(rows), few):
        part = slice(start, start + few)
        where = part if places is None else places[part]
        for number, column in enumerate(plan.columns):  # adjacent columns share lines of `out`
            at = rows[part, :, number].ravel()
            if not column.most:
                index: tuple[Any, ...] = (at, *column.within)
                taken = flat[index]
            else:
                whole = items.take(at, out=scratch[: len(at)], mode="clip")
                taken = whole.view(plan.dtype).reshape(-1, *plan.inner)
                taken = taken[(slice(None), *column.within)]
            target = out[(*[slice(None)] * (1 + axes), *column.target)]
            target[where] = taken.reshape(-1, *out.shape[1 : 1 + axes], *taken.shape[1:])


def _gather_pieces(
    array: Chunked, origins: Ints, extent: Extent, out: NDArray[Any], places: Ints | None
) -> None:
    """Copy the pieces that boxes and chunks share, of as many chunks at a time as may be pinned.

    Small boxes within a chunk are copied many at a time.
    """
    targets = np.arange(len(origins)) if places is None else places
    chunks, within = np.divmod(origins, array.chunk_lengths)
    few = _SCRATCH_BYTES // (extent.size * array.dtype.itemsize)
    inside = (within + extent.spans <= array.chunk_lengths).all(axis=1) & (few >= _FEWEST_BOXES)
    within, whole, steps = within[inside], targets[inside], array.steps.tolist()
    numbers, pieces = (chunks[inside] @ array.steps).tolist(), []
    for target, origin in zip(targets[~inside].tolist(), origins[~inside].tolist(), strict=True):
        axes = zip(origin, extent.lengths, extent.strides, array.chunk_shape, strict=True)
        for parts in product(*[list(chunk_parts(*axis)) for axis in axes]):
            chunk, source, region = zip(*parts, strict=True)
            numbers.append(sum(map(mul, chunk, steps)))
            pieces.append((source, (target, *region)))
    strides = [slice(None, None, stride) for stride in extent.strides]
    for pin, some in array.pinned(np.array(numbers, np.int64)):
        slots, small = array.slots_of(pin.memory), some < len(whole)
        if small.any():
            boxes: Any = sliding_window_view(slots, extent.spans, tuple(range(1, slots.ndim)))
            which, places = some[small], pin.slots[small]
            for at in range(0, len(which), few):
                part = which[at : at + few]
                index = (places[at : at + few], *within[part].T)
                out[whole[part]] = boxes[(..., *strides)][index]
        cut = zip(pin.slots[~small].tolist(), some[~small].tolist(), strict=True)
        for slot, number in cut:
            source, region = pieces[number - len(whole)]
            copy_reordered(slots[(slot, *source)], out[region])
