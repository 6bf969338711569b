"""Arithmetic of grids of chunks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

import numpy as np

from oocdata.box import Extent, Ints, split_at_gaps
from oocdata.index import distinct


def c_strides(shape: tuple[int, ...]) -> Ints:
    """Return the steps of an array's axes in C order, in elements."""
    return np.array([prod(shape[axis + 1 :]) for axis in range(len(shape))], np.int64)


def chunk_grid(shape: tuple[int, ...], chunk_shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the number of chunks along each axis."""
    return tuple(-(-length // step) for length, step in zip(shape, chunk_shape, strict=True))


def chunks_along(
    length: int, chunk: int, parts: Sequence[int], *several: Ints
) -> tuple[list[Ints], int]:
    """Return the chunk of each position along an axis, and the number of chunks.

    Each part of the array begins at a position of `parts`, and with a new chunk.
    """
    if len(parts) < 2:
        return [places // chunk for places in several], -(-length // chunk)
    starts = np.asarray(parts, np.int64)
    counts = -(-np.diff(starts, append=max(length, starts[-1])) // chunk)
    before, found = np.cumsum(counts) - counts, []
    for places in several:
        part = np.searchsorted(starts, places, side="right") - 1
        found.append(before[part] + (places - starts[part]) // chunk)
    return found, int(counts.sum())


def covered_chunks(
    shape: Sequence[int],
    chunk_shape: Sequence[int],
    origins: Ints,
    extent: Extent,
    parts: Sequence[int] = (0,),
    parts_axis: int = 0,
) -> Ints:
    """Return the numbers of the chunks that boxes cover, each once, in C order of the grid.

    `shape` is the array's. If it has several parts along an axis, chunks begin anew in each part.
    """
    if not len(origins) or 0 in extent.lengths:
        return np.empty(0, np.int64)
    origins, extent = split_at_gaps(origins, extent, chunk_shape)
    sides, kind = [], np.zeros(len(origins), np.int64)
    for axis, chunk in enumerate(chunk_shape):
        first = origins[:, axis]
        last = first + (extent.spans[axis] - 1)
        begins = parts if axis == parts_axis else (0,)
        (low, high), count = chunks_along(shape[axis], chunk, begins, first, last)
        most = int((high - low).max()) + 1
        sides.append((low, high, most, count))
        kind = (kind * count + low) * most + (high - low)
    # Most boxes of a batch cover the same chunks as others: list each set of chunks once.
    boxes = np.unique(kind, return_index=True)[1]
    numbers = np.zeros((len(boxes), 1), np.int64)
    for low, high, most, count in sides:
        along = np.minimum(low[boxes, None] + np.arange(most), high[boxes, None])
        numbers = (numbers[:, :, None] * count + along[:, None, :]).reshape(len(boxes), -1)
    return distinct(numbers.ravel())


def chunk_parts(
    origin: int, length: int, stride: int, step: int
) -> Iterator[tuple[int, slice, slice]]:
    """Yield the chunks of length `step` that a box covers along one axis.

    Each with its place in the grid, and the slices of the chunk and of the box.
    """
    taken = 0
    while taken < length:
        place, start = divmod(origin + taken * stride, step)
        count = min(length - taken, (step - 1 - start) // stride + 1)
        within = slice(start, start + (count - 1) * stride + 1, stride)
        yield place, within, slice(taken, taken + count)
        taken += count


def chunk_groups(numbers: Ints, most: int, first: int = 0) -> Iterator[Ints]:
    """Yield the points in up to `most` distinct chunks, ascending from chunk `first` on.

    `numbers` holds the chunk number of each point.
    """
    chunks = distinct(numbers)
    which = np.searchsorted(chunks, numbers)
    which = (which - np.searchsorted(chunks, first)) % len(chunks)
    for start in range(0, len(chunks), most):
        yield ((which >= start) & (which < start + most)).nonzero()[0]
