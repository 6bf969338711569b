"""Gather boxes item by item.

Boxes may be cut by chunks into many small pieces, and copying a piece takes longer than copying its
numbers. Then the chunk of every item (a number, or all numbers along axes that box and chunk take
whole), and its place in that chunk, are computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent, Ints
from oocdata.engines.gather.grid import ITEMS_IN_A_PIECE
from oocdata.engines.gather.pieces import read_pieces
from oocdata.threads import cached_property

if TYPE_CHECKING:
    from oocdata.engines.chunked import Chunked

__all__ = ["read_items", "suits_items"]

_ITEMS = 1 << 14
"""Items gathered at a time: few enough that their places stay in the processor's cache."""


def suits_items(array: Chunked, extent: Extent) -> bool:
    """Return whether boxes are better gathered by items than copied by pieces."""
    axes = _item_axes(array, extent)
    spans = zip(extent.spans[:axes], array.chunk_shape, strict=False)
    pieces = prod((span - 1) // step + 1 for span, step in spans)
    return prod(extent.lengths[:axes]) <= ITEMS_IN_A_PIECE * pieces


def read_items(
    array: Chunked, origins: Ints, extent: Extent, out: NDArray[Any], places: Ints | None
) -> None:
    """Gather boxes item by item, in halves of the boxes if their chunks are too many to pin."""
    axes = _item_axes(array, extent)
    lengths, chunk = extent.lengths[:axes], array.chunk_shape[:axes]
    items_of = _BoxItems(origins, lengths, extent.strides[:axes], chunk, array.steps[:axes])
    chunks, which = np.unique(items_of.chunks, return_inverse=True)
    if len(chunks) > array.cached.most:
        if len(origins) == 1:
            read_pieces(array, origins, extent, out, places)
            return
        order = items_of.chunks[:, 0].argsort(kind="stable")
        for half in np.array_split(order, 2):
            targets = half if places is None else places[half]
            read_items(array, origins[half], extent, out, targets)
        return
    each = prod(array.slot_shape[:axes])
    nbytes = prod(array.chunk_shape[axes:]) * array.dtype.itemsize
    few = max(1, _ITEMS // prod(lengths))
    with array.pin(chunks) as pin:
        items = np.ndarray(len(pin.memory) // nbytes, f"V{nbytes}", pin.memory)
        firsts = (pin.slots * each)[which.reshape(len(origins), -1)]
        for start in range(0, len(origins), few):
            part = slice(start, start + few)
            taken = items.take(items_of.places(firsts[part], part), mode="clip")
            boxes = taken.view(array.dtype).reshape(-1, *extent.lengths)
            out[part if places is None else places[part]] = boxes


def _item_axes(array: Chunked, extent: Extent) -> int:
    """Return the number of axes that number items; the others are taken and stored whole."""
    axes, chunk = len(array.shape), array.chunk_shape
    while axes > 1 and extent.lengths[axes - 1] == array.shape[axes - 1] == chunk[axes - 1]:
        axes -= 1
    return axes


@dataclass(frozen=True, eq=False)
class _BoxItems:
    """Chunks, and places in them, of the items of boxes.

    Attributes
    ----------
    origins : ndarray of int64, shape (n, N)
    lengths, strides, chunk_shape : tuple of int
        Boxes and chunks along the axes that number items; both are whole along the other axes.
    steps : ndarray of int64, shape (N,)
        Steps from one chunk to the next in the grid.
    """

    origins: Ints
    lengths: tuple[int, ...]
    strides: tuple[int, ...]
    chunk_shape: tuple[int, ...]
    steps: Ints

    @cached_property
    def _along(self) -> list[Ints]:
        """Places of the chunks of each box along each axis, shape (n, chunks); some repeated."""
        found = []
        axes = zip(self.lengths, self.strides, self.chunk_shape, strict=True)
        for axis, (length, stride, step) in enumerate(axes):
            origins = self.origins[:, axis, None]
            if stride > step:  # chunks are left out
                found.append((origins + np.arange(length) * stride) // step)
                continue
            first, last = origins // step, (origins + (length - 1) * stride) // step
            found.append(np.minimum(first + np.arange(int((last - first).max()) + 1), last))
        return found

    @cached_property
    def chunks(self) -> Ints:
        """Numbers of the chunks that each box covers, shape (n, chunks); some repeated."""
        found = np.zeros((len(self.origins), 1), np.int64)
        for chunks, step in zip(self._along, self.steps.tolist(), strict=True):
            found = _combined(found, chunks * step)
        return found

    def places(self, firsts: Ints, part: slice) -> Ints:
        """Return the places of the items of some boxes, shape (boxes, items).

        `firsts` holds the place of the first item of each of their `chunks`.
        """
        which, within = np.zeros((2, len(firsts), 1), np.int64)
        axes = zip(self._along, self.lengths, self.strides, self.chunk_shape, strict=True)
        for axis, (chunks, length, stride, step) in enumerate(axes):
            places = self.origins[part, axis, None] + np.arange(length) * stride
            number = places // step
            within = _combined(within * step, places - number * step)
            if stride > step:
                number = np.broadcast_to(np.arange(length), places.shape)
            else:
                number = number - chunks[part, :1]
            which = _combined(which * chunks.shape[1], number)
        found: Ints = np.take_along_axis(firsts, which, axis=1)
        found += within
        return found


def _combined(outer: Ints, inner: Ints) -> Ints:
    """Return the outer sums of the rows of two arrays, flattened, row by row."""
    return (outer[:, :, None] + inner[:, None, :]).reshape(len(outer), -1)
