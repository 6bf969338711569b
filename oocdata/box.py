"""Describe boxes of an array by integers; nothing is read.

An array has N axes. A box has an *origin*, one integer per axis, and an *extent*, a length and a
stride per axis. All elements of a dataset have the same extent, so a batch is an int64 array of
origins, shape (n, N), and one `Extent`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from oocdata.threads import cached_property

Ints: TypeAlias = NDArray[np.int64]
"""Positions, origins and other whole numbers."""


@dataclass(frozen=True)
class Extent:
    """Length and stride of a box along each axis of the array as stored, at least 0 and 1.

    A reversed axis is read forwards into a reversed view of the batch, so strides are never
    negative.
    """

    lengths: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def of(cls, lengths: Sequence[int]) -> Extent:
        """Return the extent of these lengths, with strides of 1."""
        return cls(tuple(lengths), (1,) * len(lengths))

    @cached_property
    def spans(self) -> tuple[int, ...]:
        """Distance from the first to the last position along each axis, plus 1; 0 if empty."""
        return tuple(
            (length - 1) * stride + 1 if length else 0
            for length, stride in zip(self.lengths, self.strides, strict=True)
        )

    @cached_property
    def size(self) -> int:
        """Number of values in a box."""
        return prod(self.lengths)

    def with_axis(self, axis: int, length: int, stride: int = 1) -> Extent:
        """Return the extent with another length and stride along one axis."""
        lengths, strides = list(self.lengths), list(self.strides)
        lengths[axis], strides[axis] = length, stride if length > 1 else 1
        return Extent(tuple(lengths), tuple(strides))


def covered_positions(
    origins: NDArray[np.int64], extent: Extent, axis: int
) -> range | NDArray[np.int64]:
    """Return the positions along an axis that boxes cover, for messages.

    If the boxes have length 1, in their order, with repeats; else ascending and unique.
    """
    starts, length, stride = origins[:, axis], extent.lengths[axis], extent.strides[axis]
    if length == 1:
        return starts
    if len(starts) == 1:
        start = int(starts[0])
        return range(start, start + extent.spans[axis], stride)
    return np.unique(starts[:, None] + np.arange(length) * stride)


def slice_boxes(
    origins: NDArray[np.int64], extent: Extent, axis: int, start: int, stop: int
) -> tuple[NDArray[np.int64], Extent, tuple[slice, ...]]:
    """Cut boxes to a range of their positions along an axis; return also the index into `out`."""
    stride = extent.strides[axis]
    moved = origins.copy()
    moved[:, axis] += start * stride
    where = (*[slice(None)] * (axis + 1), slice(start, stop))
    return moved, extent.with_axis(axis, stop - start, stride), where


def split_into_points(
    origins: NDArray[np.int64], extent: Extent, axis: int
) -> tuple[NDArray[np.int64], Extent]:
    """Cut boxes into boxes of length 1 along an axis, those of each box in order."""
    length, stride = extent.lengths[axis], extent.strides[axis]
    points = np.repeat(origins, length, axis=0)
    points[:, axis] += np.tile(np.arange(length) * stride, len(origins))
    return points, extent.with_axis(axis, 1)


def covered_rows(origins: NDArray[np.int64], extent: Extent) -> Ints:
    """Return the positions along axis 0 that boxes cover, those of each box in order."""
    rows: Ints = (origins[:, :1] + np.arange(extent.lengths[0]) * extent.strides[0]).ravel()
    return rows


def groups_of(numbers: Ints) -> Iterator[tuple[int, Ints]]:
    """Yield each distinct number, ascending, with the places that have it, ascending."""
    order = numbers.argsort(kind="stable")
    ordered = numbers[order]
    borders = [0, *((ordered[1:] != ordered[:-1]).nonzero()[0] + 1).tolist(), len(order)]
    for start, stop in pairwise(borders):
        if start < stop:
            yield int(ordered[start]), order[start:stop]


def split_at_gaps(
    origins: NDArray[np.int64], extent: Extent, chunk_shape: Sequence[int]
) -> tuple[NDArray[np.int64], Extent]:
    """Cut boxes into points along axes whose stride skips whole chunks."""
    for axis, (stride, chunk) in enumerate(zip(extent.strides, chunk_shape, strict=True)):
        if stride > chunk and extent.lengths[axis] > 1:
            origins, extent = split_into_points(origins, extent, axis)
    return origins, extent
