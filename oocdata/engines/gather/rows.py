"""Gather boxes by rows: single positions (or few) along the outer axes, equal on the inner ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent, Ints
from oocdata.engines.gather.grid import chunk_groups
from oocdata.engines.gather.row_plan import RowPlan, plan_rows, take_boxes, take_rows

if TYPE_CHECKING:
    from oocdata.engines.chunked import Chunked
    from oocdata.engines.slots import Pin

__all__ = ["plan_for", "read_rows"]

_FEW_CUT = 8
"""Boxes of small rows are located as a whole if at most one in this many is cut by chunks."""

_ITEM_BYTES = 64
"""Bytes of rows up to which boxes that chunks cut are gathered by items: patches of 32 x 32 numbers
of 4 bytes take 1 / 4.5 of the processor's time by NumPy iteration, of 16 x 16 items of 16 bytes
1 / 1.8, and the points of rows so small would take several times the memory of the boxes."""


def plan_for(array: Chunked, origins: Ints, extent: Extent) -> RowPlan | None:
    """Return a plan to gather boxes by rows; None if copying pieces is faster."""
    lengths, axes = extent.lengths, len(array.shape)
    while axes > 1 and lengths[axes - 1] == array.shape[axes - 1]:
        axes -= 1  # taken whole
    if lengths[1:axes] != (1,) * (axes - 1):
        equal = (origins[:, 1:axes] == origins[0, 1:axes]).all(axis=0)
        axes = 1 + max(np.flatnonzero(~equal).tolist(), default=-1) + 1
    inner = tuple(origins[0, axes:].tolist())
    shapes = array.shape, array.chunk_shape, array.slot_shape
    return plan_rows(*shapes, array.dtype, axes, inner, extent)


def read_rows(
    array: Chunked,
    plan: RowPlan,
    origins: Ints,
    extent: Extent,
    out: NDArray[Any],
    places: Ints | None,
) -> None:
    """Gather boxes by the rows of a plan."""
    points = origins[:, : len(plan.chunk)]
    targets = places  # place of each point in `out`; None if they are in order
    if plan.steps is not None:
        cut = _read_boxes(array, plan, points, out, places)
        if not len(cut):
            return
        if plan.item.itemsize <= _ITEM_BYTES and plan.offsets is not None:
            array.read_cut(origins[cut], extent, out, cut if places is None else places[cut])
            return
        each, axes = plan.steps.shape
        if places is not None or len(cut) < len(points):
            boxes = cut if places is None else places[cut]
            targets = (boxes[:, None] * each + np.arange(each)).ravel()
        points = (points[cut, None] + plan.steps).reshape(-1, axes)
    numbers, rows = plan.located(points)
    pin = None
    if len(plan.columns) == 1:
        chunks = numbers + plan.numbers
        pin = array.cached.find(chunks) or _load_few(array, chunks)
    if pin is None:
        _read_columns(array, plan, numbers, rows, out, targets)
        return
    with pin:
        rows += pin.slots * plan.rows
        take_rows(plan, plan.columns, pin.memory, rows[None], out, targets)


def _read_boxes(
    array: Chunked, plan: RowPlan, points: Ints, out: NDArray[Any], places: Ints | None
) -> Ints:
    """Fill boxes of small rows; return the numbers of those that must be read point by point.

    `points` holds the first point of each box. Boxes that chunks cut are filled too, with other
    rows, if they are few: it takes less time than leaving them out.
    """
    every = np.arange(len(points))
    if plan.steps is None or plan.offsets is None:
        return every
    numbers, rows = plan.located(points)
    cut = np.flatnonzero(plan.located(points + plan.steps[-1])[0] != numbers)
    if len(cut) > len(points) // _FEW_CUT:
        return every
    chunks = numbers + plan.numbers
    pin = array.cached.find(chunks) or _load_few(array, chunks)
    if pin is None:
        return every
    with pin:
        take_boxes(plan, pin.memory, pin.slots * plan.rows + rows, out, places)
    return cut


def _load_few(array: Chunked, chunks: Ints) -> Pin | None:
    """Pin chunks, repeats allowed, if nearly all are cached; else return None."""
    return array.cached.load_few(chunks, array.decode, array.own_threads)


def _read_columns(
    array: Chunked,
    plan: RowPlan,
    numbers: Ints,
    rows: Ints,
    out: NDArray[Any],
    targets: Ints | None,
) -> None:
    """Gather rows from several columns of chunks, some of which may not be cached."""
    most = array.cached.most
    few = min(len(plan.columns), most)
    # Begin where another thread reads now, to share the chunks that it decodes. If two threads
    # each read all chunks of a long array, an epoch takes 1 / 1.3 of the time.
    for group, points, which in chunk_groups(numbers, most // few, array.cached.reading):
        array.cached.reading = int(group[0])
        places = None if isinstance(points, slice) else points
        if targets is not None:
            places = targets[points]
        # Always in ascending order: threads that read at the same time share decoded chunks.
        for first in range(0, len(plan.columns), few):
            columns = plan.columns[first : first + few]
            chunks = (plan.numbers[first : first + few, None] + group).ravel()
            with array.pin(chunks) as pin:
                slots = pin.slots.reshape(-1, len(group))[:, which]
                at = slots * plan.rows + rows[points]
                take_rows(plan, columns, pin.memory, at, out, places)
