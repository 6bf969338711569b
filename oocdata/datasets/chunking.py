"""Which rows of a view lie in one storage chunk: arithmetic on its sample axes."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from oocdata.blocks import ADDRESSABLE, AnyBlocks, BlockRuns, Blocks, numbered
from oocdata.index import compose_ranges, take

if TYPE_CHECKING:
    from oocdata.datasets.view import View
    from oocdata.engines.source import Storage

__all__ = ["MOST_IDS", "blocks_of", "chunk_ids", "chunks_along"]

MOST_IDS = 1 << 23
"""Positions of which the chunk of each may be looked at, where no rule tells it."""


def blocks_of(view: View) -> AnyBlocks:
    """Return which positions of a view lie in one storage chunk along the sample axes.

    Where the rows follow a rule, so do the blocks, and nothing is kept. Else the chunk of each
    position is looked at, for up to `MOST_IDS` of them, or for as many as an index array chose.
    """
    chunks = _chunk_lengths(view)
    if len(view) == 0 or max(chunks) == 1:
        return ADDRESSABLE
    if isinstance(view.rows, range):
        found = _regular(view, view.rows, chunks)
        if found is not None:
            return found
        if len(view) > MOST_IDS:
            length = max(1, chunks[-1] // abs(view.rows.step * view.grid[-1].step))
            return Blocks(length, length) if length > 1 else ADDRESSABLE
    return numbered(len(view), lambda positions: chunk_ids(view, take(view.rows, positions)))


def chunk_ids(view: View, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a number of the chunk that each row of the grid lies in, along the sample axes."""
    found = np.zeros(len(numbers), np.int64)
    storage, shape = view.storage, view.source.shape
    lengths = _chunk_lengths(view)
    for axis, places, chunk in zip(view.axes, view.places(numbers), lengths, strict=True):
        (here,), count = chunks_along(storage, axis, shape[axis], chunk, places)
        found = found * count + here
    return found


def chunks_along(
    storage: Storage, axis: int, length: int, chunk: int, *several: NDArray[np.int64]
) -> tuple[list[NDArray[np.int64]], int]:
    """Return the number of the chunk of each place along an axis, and how many chunks there are.

    Where an array has several parts along the axis, chunks begin anew in each.
    """
    if axis != storage.parts_axis or len(storage.parts) < 2:
        return [places // chunk for places in several], -(-length // chunk)
    starts = np.asarray(storage.parts, np.int64)
    counts = -(-np.diff(starts, append=max(length, starts[-1])) // chunk)
    before, found = np.cumsum(counts) - counts, []
    for places in several:
        part = np.searchsorted(starts, places, side="right") - 1
        found.append(before[part] + (places - starts[part]) // chunk)
    return found, int(counts.sum())


def _chunk_lengths(view: View) -> list[int]:
    """Return the places of a storage chunk along each sample axis."""
    chunks = view.storage.chunks
    return [1] * len(view.axes) if chunks is None else [chunks[axis] for axis in view.axes]


def _regular(view: View, rows: range, chunks: list[int]) -> Blocks | BlockRuns | None:
    """Return the blocks of rows that follow one another by a rule, if one tells them."""
    if len(view.storage.parts) > 1 and view.storage.parts_axis in view.axes:
        return None  # chunks begin anew in each part
    # A chunk holds several places of this axis, with all rows below them.
    at = next(place for place, chunk in enumerate(chunks) if chunk > 1)
    below = zip(view.axes[at + 1 :], chunks[at + 1 :], strict=True)
    if any(chunk < view.source.shape[axis] for axis, chunk in below) and len(view) <= MOST_IDS:
        return None
    lengths = [len(places) for places in view.grid]
    each, places = prod(lengths[at + 1 :]), view.grid[at]
    if len(lengths) == 1:
        places = compose_ranges(places, rows)
    elif rows.step != 1 or rows.start % (each * lengths[at] if at else each):
        return None
    elif at == 0:
        places = places[rows.start // each :]
    length, first = _along(places, chunks[at])
    if at == 0:
        return Blocks(length * each, first * each)
    whole = lengths[at]  # after which chunks begin anew
    length, first = min(length, whole), min(first, whole)
    if first == length and whole % length == 0:
        return Blocks(length * each, length * each)
    begins = np.concatenate(([0], np.arange(first, whole, length))) * each
    stretches = np.arange(-(-len(rows) // (whole * each))) * (whole * each)
    found = np.add.outer(stretches, begins).ravel()
    return BlockRuns(np.append(found[found < len(rows)], len(rows)))


def _along(places: range, chunk: int) -> tuple[int, int]:
    """Return how many places lie in one chunk along an axis, and how many in the first one.

    Examples
    --------
    >>> _along(range(3, 20), 8), _along(range(19, -1, -2), 8)
    ((8, 5), (4, 2))
    """
    if len(places) == 0:
        return 1, 1
    step, within = places.step, places.start % chunk
    left = (within if step < 0 else chunk - 1 - within) // abs(step) + 1
    length = max(1, chunk // abs(step))
    return length, min(left, length)
