"""View a source along other axes: positions selected, axes dropped, or repeated as in broadcasting.

Turns the selection of a view into an array of its own, so that several can be stacked
(`oocdata.datasets.stack`). Nothing is copied: a box of the view is a box of the source, read into a
transposed view of the caller's memory.

Views of single positions of one array, such as the components of a vector, are merged. Read alone,
each is every n-th number of the array, and the disk delivers all of them each time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent, Ints, slice_boxes, split_into_points
from oocdata.engines.copying import read_through
from oocdata.engines.source import Boxes, Source, Storage, WithStorage
from oocdata.index import Selection, same_selection, take
from oocdata.threads import cached_property

__all__ = ["AxisMap", "AxisView", "merged"]

_SCRATCH_BYTES = 1 << 20

AxisMap: TypeAlias = tuple[int | None, Selection]
"""Mapping of one axis of storage: the axis of the view, or None, and the stored positions along it;
one position without an axis."""


@dataclass(frozen=True, eq=False)
class AxisView(WithStorage):
    """A view of a source along other axes; a `oocdata.engines.source.Source`.

    Attributes
    ----------
    source : Source
    axis_maps : tuple of AxisMap
        One for each axis of `source`. Ranges along one axis of the view form a block, whose
        positions are numbered in C order.
    shape : tuple of int
        Shape of the view. Along an axis that is in none of them, numbers are repeated.
    dtype : numpy.dtype
        Dtype of the view; numbers are converted as NumPy does.

    Examples
    --------
    >>> from oocdata.engines.memory_array import MemoryArray
    >>> source = MemoryArray(np.arange(12).reshape(4, 3))
    >>> maps = (1, range(3, -1, -2)), (None, range(2, 3))
    >>> view = AxisView(source, maps, (5, 2), np.dtype("i8"))
    >>> out = np.zeros((1, 5, 2))
    >>> view.read(np.array([[0, 0]]), Extent.of((5, 2)), out)
    >>> out[0, 4].tolist()
    [11.0, 5.0]
    """

    source: Source
    axis_maps: tuple[AxisMap, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def below(self) -> tuple[Source]:
        """The viewed source."""
        return (self.source,)

    @cached_property
    def repeated(self) -> list[int]:
        """The axes along which numbers are repeated."""
        mapped = {axis for axis, _ in self.axis_maps}
        axes = enumerate(self.shape)
        return [axis for axis, length in axes if length > 1 and axis not in mapped]

    @cached_property
    def _storage(self) -> Storage:
        """How the array is stored, along the axes of the view."""
        inner, ndim = self.source.storage(), len(self.shape)
        chunks, names = [1] * ndim, [""] * ndim
        parts: tuple[int, ...] = (0,)
        parts_axis = 0
        for at, (axis, places) in enumerate(self.axis_maps):
            if axis is None:
                continue
            names[axis] = inner.dimensions[at] if inner.dimensions else ""
            whole = isinstance(places, range) and places == range(self.source.shape[at])
            if inner.chunks is not None and isinstance(places, range):
                # If the selection begins within a chunk, blocks cross borders of chunks.
                chunks[axis] *= max(1, inner.chunks[at] // abs(places.step))
            if whole and at == inner.parts_axis and len(inner.parts) > 1:
                parts, parts_axis = inner.parts, axis
        return replace(
            inner,
            chunks=None if inner.chunks is None else tuple(chunks),
            strides=None,
            offset=0,
            parts=parts,
            parts_axis=parts_axis,
            dimensions=tuple(names) if any(names) else (),
            columns=None,
            opened=None,
        )

    def read(self, origins: Ints, extent: Extent, out: NDArray[Any]) -> None:
        """Write ``out[i] = the box at origins[i]``; see `oocdata.engines.source.Source.read`."""
        if out.size == 0:
            return
        axis = self._axis_of_points(extent)
        if axis is not None:
            for number in range(extent.lengths[axis]):
                begins, cut, region = slice_boxes(origins, extent, axis, number, number + 1)
                self.read(begins, cut, out[region])
            return
        if out.dtype != self.dtype and not np.can_cast(self.source.dtype, self.dtype, "safe"):
            # Convert by way of the view's dtype, which may round or wrap stored numbers.
            for batch, boxes in read_through(self, origins, extent, self.dtype, _SCRATCH_BYTES):
                out[batch] = boxes
            return
        # Repeated numbers are read once, to their first position, and copied from there.
        once = [slice(None)] * out.ndim
        for repeated in self.repeated:
            once[repeated + 1] = slice(0, 1)
        first, (stored_origins, stored_extent) = out[tuple(once)], self._stored(origins, extent)
        if self.repeated and bool((stored_origins == stored_origins[0]).all()):
            first, stored_origins = first[:1], stored_origins[:1]
        self.source.read(stored_origins, stored_extent, self._in_storage(first, stored_extent))
        if first.shape != out.shape:
            out[...] = first

    def read_boxes(self, origins: Ints, extent: Extent) -> list[Boxes]:
        """Return the boxes of the source that are read, without duplicates."""
        axis = self._axis_of_points(extent)
        if axis is not None:
            return self.read_boxes(*split_into_points(origins, extent, axis))
        stored_origins, stored_extent = self._stored(origins, extent)
        return [(self.source, np.unique(stored_origins, axis=0), stored_extent)]

    def _axis_of_points(self, extent: Extent) -> int | None:
        """Return an axis along which boxes are read position by position, or None.

        They are if several positions are of an index array, or a part of a block.
        """
        for axis, places in self.axis_maps:
            if axis is None or extent.lengths[axis] == 1:
                continue
            is_part = len(places) < self.shape[axis] > extent.lengths[axis]
            if is_part or isinstance(places, np.ndarray):
                return axis
        return None

    def _stored(self, origins: Ints, extent: Extent) -> tuple[Ints, Extent]:
        """Return boxes as boxes of the source."""
        stored = np.empty((len(origins), len(self.axis_maps)), np.int64)
        stored_extent = Extent.of([1] * len(self.axis_maps))
        for at, (axis, places) in enumerate(self.axis_maps):
            if axis is None:
                stored[:, at] = places[0]
                continue
            begins, length, stride = origins[:, axis], extent.lengths[axis], extent.strides[axis]
            if len(places) < self.shape[axis]:  # one axis of a block
                faster = [len(each) for own, each in self.axis_maps[at + 1 :] if own == axis]
                begins, length = begins // prod(faster) % len(places), min(length, len(places))
            if isinstance(places, range):
                if places.step < 0:  # read forwards, into a reversed view of `out`
                    begins = begins + (length - 1) * stride
                stored_extent = stored_extent.with_axis(at, length, stride * abs(places.step))
            stored[:, at] = take(places, begins)
        return stored, stored_extent

    def _in_storage(self, out: NDArray[Any], extent: Extent) -> NDArray[Any]:
        """Return a batch along the axes of the source; `extent` is that of its boxes there."""
        shape, places = [len(out)], dict[int, int]()
        for axis, length in enumerate(out.shape[1:]):
            maps = [at for at, (own, _) in enumerate(self.axis_maps) if own == axis]
            places.update({at: len(shape) + number for number, at in enumerate(maps)})
            shape += [extent.lengths[at] for at in maps] or [length]
        index: list[Any] = [slice(None)]
        for own, positions in self.axis_maps:
            backwards = isinstance(positions, range) and positions.step < 0
            index.append(None if own is None else slice(None, None, -1 if backwards else None))
        order = [0, *(places[at] for at in sorted(places))]
        others = [number for number in range(len(shape)) if number not in order]  # of length 1
        axes_of_source = out.reshape(shape).transpose(*order, *others)
        stored: NDArray[Any] = axes_of_source[(*index, *[0] * len(others))]
        return stored


def merged(parts: Iterable[AxisView], axis: int) -> list[AxisView]:
    """Return views that are joined along an axis; neighbours that are a block of a source as one.

    Compared with reading each component alone, The Well's 8 channels of 4 fields take 1 / 1.6 of
    the processor time by NumPy iteration, 1 / 1.5 through `to_tf`.
    """
    views: list[AxisView] = []
    for part in parts:
        views.append(part)
        while len(views) > 1 and (both := _merged(views[-2], views[-1], axis)):
            views[-2:] = [both]
    return views


def _merged(first: AxisView, second: AxisView, axis: int) -> AxisView | None:
    """Return two views, one after the other along an axis, as one; None if they are no block."""
    if first.source is not second.source or first.dtype != second.dtype:
        return None
    maps = list(first.axis_maps)
    pairs = enumerate(zip(maps, second.axis_maps, strict=True))
    differing = [
        at
        for at, (one, other) in pairs
        if one[0] != other[0] or not same_selection(one[1], other[1])
    ]
    if len(differing) != 1:
        return None
    (at,) = differing
    (own, before), (other_own, after) = maps[at], second.axis_maps[at]
    if not {own, other_own} <= {None, axis} or axis in [line[0] for line in maps[:at]]:
        return None
    positions = [*before, *after]
    start, step = positions[0], positions[1] - positions[0]
    block = range(start, start + step * len(positions), step or 1)
    if list(block) != positions:
        return None
    maps[at] = axis, block
    shape = list(first.shape)
    shape[axis] += second.shape[axis]
    return replace(first, axis_maps=tuple(maps), shape=tuple(shape))
