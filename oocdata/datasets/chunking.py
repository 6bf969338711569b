"""Find which rows of a view share a storage chunk."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from oocdata.blocks import ADDRESSABLE, AnyBlocks, Blocks, BlockTable, blocks_from_ids
from oocdata.box import Ints
from oocdata.engines.gather.grid import chunks_along
from oocdata.index import compose_ranges, take

if TYPE_CHECKING:
    from oocdata.datasets.array_rows import ArrayRows

__all__ = ["MOST_IDS", "blocks_of", "chunk_ids"]

MOST_IDS = 1 << 23
"""Largest number of irregular positions whose chunks are looked up one by one."""


def blocks_of(view: ArrayRows) -> AnyBlocks:
    """Return the blocks of a view: positions that share a storage chunk along the sample axes.

    Blocks of regularly spaced rows are computed, and need no memory. Otherwise the chunk of each
    position is looked up, for up to `MOST_IDS` positions, or for any index array.
    """
    chunks = _chunk_lengths(view)
    if len(view) == 0 or max(chunks) == 1:
        return ADDRESSABLE
    if isinstance(view.rows, range):
        blocks = _blocks_of_range(view, view.rows, chunks)
        if blocks is not None:
            return blocks
        if len(view) > MOST_IDS:
            length = max(1, chunks[-1] // abs(view.rows.step * view.grid[-1].step))
            return Blocks(length, length)
    return blocks_from_ids(len(view), lambda positions: chunk_ids(view, take(view.rows, positions)))


def chunk_ids(view: ArrayRows, numbers: Ints) -> Ints:
    """Return a number of the chunk along the sample axes of each row, by its number in the grid."""
    ids = np.zeros(len(numbers), np.int64)
    storage, shape = view.storage, view.source.shape
    lengths = _chunk_lengths(view)
    for axis, places, chunk in zip(view.axes, view.places(numbers), lengths, strict=True):
        parts = storage.parts if axis == storage.parts_axis else (0,)
        (here,), count = chunks_along(shape[axis], chunk, parts, places)
        ids = ids * count + here
    return ids


def _chunk_lengths(view: ArrayRows) -> list[int]:
    """Return the chunk length along each sample axis."""
    chunks = view.storage.chunks
    return [1] * len(view.axes) if chunks is None else [chunks[axis] for axis in view.axes]


def _blocks_of_range(view: ArrayRows, rows: range, chunks: list[int]) -> Blocks | BlockTable | None:
    """Return the blocks of regularly spaced rows, or None if they have no simple form."""
    if len(view.storage.parts) > 1 and view.storage.parts_axis in view.axes:
        return None  # each part starts a new chunk
    # A chunk has several positions of axis `at`, with all rows of the axes after it.
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
    length, first = _positions_per_chunk(places, chunks[at])
    if at == 0:
        return Blocks(length * each, first * each)
    whole = lengths[at]  # the next position of the outer axis starts a new chunk
    length, first = min(length, whole), min(first, whole)
    if first == length and whole % length == 0:
        return Blocks(length * each, length * each)
    begins = np.concatenate(([0], np.arange(first, whole, length))) * each
    outer = np.arange(-(-len(rows) // (whole * each))) * (whole * each)
    starts = np.add.outer(outer, begins).ravel()
    return BlockTable(np.append(starts[starts < len(rows)], len(rows)))


def _positions_per_chunk(places: range, chunk: int) -> tuple[int, int]:
    """Return the number of positions in a chunk along an axis, and in the first chunk.

    Examples
    --------
    >>> _positions_per_chunk(range(3, 20), 8), _positions_per_chunk(range(19, -1, -2), 8)
    ((8, 5), (4, 2))
    """
    if len(places) == 0:
        return 1, 1
    step, within = places.step, places.start % chunk
    left = (within if step < 0 else chunk - 1 - within) // abs(step) + 1
    length = max(1, chunk // abs(step))
    return length, min(left, length)
