"""Boxes of which chunks hold many small pieces, gathered number by number: integer arithmetic.

A copy of each piece would take longer than its numbers. So for every number of a box it is computed
in which chunk it lies and where in that, axis by axis.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent

__all__ = ["BoxItems", "suits"]

Ints = NDArray[np.int64]

_ITEMS_IN_A_PIECE = 256
"""A copy of a piece takes about as long as so many items. In h5py's own chunks, crops of images (12
KiB, 49 items a piece) and of weather fields (24 KiB, 61 items) take 1 / 4 of the processor's time by
NumPy iteration."""


def suits(extent: Extent, cut: tuple[int, ...], axes: int) -> bool:
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
