"""View a source along other axes: positions selected, axes dropped, or repeated as in broadcasting.

Turns the selection of a view into an array of its own, so that several can be stacked
(`oocdata.datasets.stack`). Nothing is copied: a box of the view is a box of the source, read into a
transposed view of the caller's memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent, slice_boxes, split_into_points
from oocdata.engines.copying import read_through
from oocdata.engines.source import Boxes, Source, Storage, WithStorage
from oocdata.index import Selection, take
from oocdata.threads import cached_property

__all__ = ["AxisMap", "AxisView"]

_SCRATCH_BYTES = 1 << 20

AxisMap: TypeAlias = tuple[int, Selection] | tuple[None, int]
"""Mapping of one axis of storage: the axis of the view, and the stored position for each position
along it; or no axis, and the one position that is read."""


@dataclass(frozen=True, eq=False)
class AxisView(WithStorage):
    """A view of a source along other axes; a `oocdata.engines.source.Source`.

    Attributes
    ----------
    source : Source
    axis_maps : tuple of AxisMap
        One for each axis of `source`, each with an axis of its own.
    shape : tuple of int
        Shape of the view. Along an axis that is in none of them, numbers are repeated.
    dtype : numpy.dtype
        Dtype of the view; numbers are converted as NumPy does.

    Examples
    --------
    >>> from oocdata.engines.memory_array import MemoryArray
    >>> source = MemoryArray(np.arange(12).reshape(4, 3))
    >>> view = AxisView(source, ((1, range(3, -1, -2)), (None, 2)), (5, 2), np.dtype("i8"))
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
                chunks[axis] = max(1, inner.chunks[at] // abs(places.step))
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

    def read(self, origins: NDArray[np.int64], extent: Extent, out: NDArray[Any]) -> None:
        """Write ``out[i] = the box at origins[i]``; see `oocdata.engines.source.Source.read`."""
        if out.size == 0:
            return
        for at, axis in self._irregular:
            if isinstance(self.axis_maps[at][1], np.ndarray) and extent.lengths[axis] > 1:
                self._read_places(axis, origins, extent, out)
                return
        if out.dtype != self.dtype and not np.can_cast(self.source.dtype, self.dtype, "safe"):
            # Convert by way of the view's dtype, which may round or wrap stored numbers.
            for batch, boxes in read_through(self, origins, extent, self.dtype, _SCRATCH_BYTES):
                out[batch] = boxes
            return
        # Repeated numbers are read once, to their first position, and copied from there.
        once = [slice(None)] * out.ndim
        for axis in self.repeated:
            once[axis + 1] = slice(0, 1)
        first, stored_origins = out[tuple(once)], self._origins(origins, extent)
        if self.repeated and bool((stored_origins == stored_origins[0]).all()):
            first, stored_origins = first[:1], stored_origins[:1]
        self.source.read(stored_origins, self._extent(extent), self._in_stored_order(first))
        if first.shape != out.shape:
            out[...] = first

    def read_boxes(self, origins: NDArray[np.int64], extent: Extent) -> list[Boxes]:
        """Return the boxes of the source that are read, without duplicates."""
        for at, axis in self._irregular:
            if isinstance(self.axis_maps[at][1], np.ndarray) and extent.lengths[axis] > 1:
                return self.read_boxes(*split_into_points(origins, extent, axis))
        stored_origins = np.unique(self._origins(origins, extent), axis=0)
        return [(self.source, stored_origins, self._extent(extent))]

    def _read_places(
        self, axis: int, origins: NDArray[np.int64], extent: Extent, out: NDArray[Any]
    ) -> None:
        """Read boxes one position at a time along an axis whose selection is an index array."""
        for number in range(extent.lengths[axis]):
            part_origins, part_extent, region = slice_boxes(
                origins, extent, axis, number, number + 1
            )
            self.read(part_origins, part_extent, out[region])

    @cached_property
    def _mappings(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """For each axis of storage: the axis of the view, the first position and the step along it.

        Zeros where positions are in an index array.
        """
        mappings = [
            (axis or 0, places.start, places.step)
            if isinstance(places, range)
            else (0, places if isinstance(places, int) else 0, 0)
            for axis, places in self.axis_maps
        ]
        axes, starts, steps = np.array(mappings, np.int64).reshape(-1, 3).T
        return axes, starts, steps

    def _origins(self, origins: NDArray[np.int64], extent: Extent) -> NDArray[np.int64]:
        axes, starts, steps = self._mappings
        stored_origins: NDArray[np.int64] = origins[:, axes] * steps + starts
        for at, axis in self._irregular:
            places = self.axis_maps[at][1]
            if isinstance(places, np.ndarray):
                stored_origins[:, at] = take(places, origins[:, axis])
            else:  # a reversed axis is read forwards, into a reversed view of `out`
                last = (extent.lengths[axis] - 1) * extent.strides[axis]
                stored_origins[:, at] += last * int(steps[at])
        return stored_origins

    @cached_property
    def _irregular(self) -> list[tuple[int, int]]:
        """Axes of storage with an index array or in reverse, each with its axis of the view."""
        return [
            (at, axis)
            for at, (axis, places) in enumerate(self.axis_maps)
            if axis is not None
            and (isinstance(places, np.ndarray) or (isinstance(places, range) and places.step < 0))
        ]

    def _extent(self, extent: Extent) -> Extent:
        lengths, strides = [1] * len(self.axis_maps), [1] * len(self.axis_maps)
        for at, (axis, places) in enumerate(self.axis_maps):
            if axis is not None and extent.lengths[axis] > 1:
                assert isinstance(places, range)
                lengths[at] = extent.lengths[axis]
                strides[at] = extent.strides[axis] * abs(places.step)
        return Extent(tuple(lengths), tuple(strides))

    def _in_stored_order(self, out: NDArray[Any]) -> NDArray[Any]:
        """Return a view with the axes of storage; `out` has length 1 along repeated axes."""
        index, order, inserted = self._transposition
        view: NDArray[Any] = out[index].transpose(order)[inserted]
        return view

    @cached_property
    def _transposition(self) -> tuple[Any, ...]:
        """Index of a batch, order of its axes, and index that inserts axes of length 1."""
        index: list[Any] = [slice(None)] + [0] * len(self.shape)
        axes: list[int] = []
        for axis, places in self.axis_maps:
            if axis is not None:
                assert not isinstance(places, int)
                reversed_axis = isinstance(places, range) and places.step < 0
                index[axis + 1] = slice(None, None, -1 if reversed_axis else None)
                axes.append(axis)
        ascending = sorted(axes)
        order = 0, *[1 + ascending.index(axis) for axis in axes]
        inserted = [None if axis is None else slice(None) for axis, _ in self.axis_maps]
        return tuple(index), order, (slice(None), *inserted)
