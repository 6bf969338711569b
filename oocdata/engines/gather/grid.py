"""Arithmetic of grids of chunks."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from oocdata.box import Ints

__all__ = ["ITEMS_IN_A_PIECE", "c_strides", "chunk_groups", "chunk_parts"]

ITEMS_IN_A_PIECE = 256
"""Items whose places are computed and that are copied in about the time of copying one piece. In
h5py's default chunks, crops of images (12 KiB, 49 items a piece) and of weather fields (24 KiB, 61
items) take 1 / 4 of the processor's time by NumPy iteration."""


def c_strides(shape: tuple[int, ...]) -> Ints:
    """Return the steps of an array's axes in C order, in elements."""
    return np.array([prod(shape[axis + 1 :]) for axis in range(len(shape))], np.int64)


def chunk_parts(
    origin: int, length: int, stride: int, step: int
) -> Iterator[tuple[int, slice, slice]]:
    """Yield the chunks that a box covers along one axis.

    Parameters
    ----------
    origin, length, stride : int
        Box along the axis.
    step : int
        Length of a chunk.

    Yields
    ------
    place : int
        Place of the chunk in the grid.
    within, target : slice
        Slices of the chunk and of the box.

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


def chunk_groups(numbers: Ints, most: int, first: int = 0) -> Iterator[tuple[Ints, Any, Ints]]:
    """Yield up to `most` distinct chunks, the points in them, and the chunk of each point.

    `numbers` holds the chunk number of each point. If there are several groups, chunks from number
    `first` on come first.

    Examples
    --------
    >>> for chunks, points, which in chunk_groups(np.array([7, 3, 5, 3]), 2):
    ...     print(chunks, points, which)
    [3 5] [1 2 3] [0 1 0]
    [7] [0] [0]
    """
    chunks, which = np.unique(numbers, return_inverse=True)
    if len(chunks) <= most:
        yield chunks, slice(None), which
        return
    skipped = int(np.searchsorted(chunks, first))
    chunks, which = np.roll(chunks, -skipped), (which - skipped) % len(chunks)
    for start in range(0, len(chunks), most):
        points = ((which >= start) & (which < start + most)).nonzero()[0]
        yield chunks[start : start + most], points, which[points] - start
