"""View a source along other axes: positions selected, axes dropped, or repeated as in broadcasting.

Turns the selection of a view into an array of its own, so that several can be stacked
(`oocdata.datasets.stack`). Nothing is copied: a box of the view is a box of the source, read into a
transposed view of the caller's memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent, Ints, slice_boxes, split_into_points
from oocdata.engines.columns import chosen_names
from oocdata.engines.copying import read_through
from oocdata.engines.source import Boxes, Source, Storage, WithStorage
from oocdata.index import Selection, distinct, take
from oocdata.threads import cached_property

_SCRATCH_BYTES = 1 << 20

_GAP_BYTES = 4096
"""Positions of an index array are read together, with those between them, if they are at most so
far apart in C order: 1,000 of 5,000 columns take 1 / 100 of the time of reads one by one."""

AxisMap: TypeAlias = tuple[int, Selection] | tuple[None, int]
"""Mapping of one axis of storage: the axis of the view, and the stored position for each position
along it; or no axis, and the one position that is read."""


@dataclass(frozen=True, eq=False)
class AxisView(WithStorage):
    """A view of a source along other axes; a `oocdata.engines.source.Source`.

    Each axis of the source has its own axis of the view, or none; see `AxisMap`. Along the other
    axes of the view, numbers are repeated. Numbers are converted to `dtype` as NumPy does.

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
        return (self.source,)

    @cached_property
    def repeated(self) -> list[int]:
        mapped = {axis for axis, _ in self.axis_maps}
        axes = enumerate(self.shape)
        return [axis for axis, length in axes if length > 1 and axis not in mapped]

    @cached_property
    def _storage(self) -> Storage:
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
        columns = None
        if [axis for axis, _ in self.axis_maps] == [0, 1] and not isinstance(places, int):
            columns = chosen_names(inner.columns, places)
        return replace(
            inner,
            chunks=None if inner.chunks is None else tuple(chunks),
            strides=None,
            offset=0,
            parts=parts,
            parts_axis=parts_axis,
            dimensions=tuple(names) if any(names) else (),
            columns=columns,
            opened=None,
        )

    def read(self, origins: Ints, extent: Extent, out: NDArray[Any]) -> None:
        if out.size == 0:
            return
        indexed = self._indexed_axis(extent)
        if indexed is not None and _are_alike(origins[:, indexed]):
            for view, begins, cut, within, places in self._neighbours(indexed, origins, extent):
                across: Any = (slice(None),) * indexed
                start, stop = int(places[0]), int(places[-1]) + 1
                if np.array_equal(places - start, within) and len(within) == stop - start:
                    view.read(begins, cut, out[(slice(None), *across, slice(start, stop))])
                    continue
                for batch, boxes in read_through(view, begins, cut, self.dtype, _SCRATCH_BYTES):
                    out[(batch, *across, places)] = boxes.take(within, indexed + 1)
            return
        if indexed is not None:
            spans = self._spans(indexed, origins, extent)
            if spans is None:  # read one position at a time
                for number in range(extent.lengths[indexed]):
                    begins, cut, region = slice_boxes(origins, extent, indexed, number, number + 1)
                    self.read(begins, cut, out[region])
                return
            view, begins, cut, within = spans
            for batch, boxes in read_through(view, begins, cut, self.dtype, _SCRATCH_BYTES):
                out[batch] = np.take_along_axis(boxes, within[batch], indexed + 1)
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
        first, (stored_origins, stored_extent) = out[tuple(once)], self._stored(origins, extent)
        if self.repeated and bool((stored_origins == stored_origins[0]).all()):
            first, stored_origins = first[:1], stored_origins[:1]
        order, index = self._stored_order
        self.source.read(stored_origins, stored_extent, first.transpose(order)[index])
        if first.shape != out.shape:
            out[...] = first

    def read_boxes(self, origins: Ints, extent: Extent) -> list[Boxes]:
        """Return the boxes of the source that are read, without duplicates."""
        indexed = self._indexed_axis(extent)
        if indexed is not None and len(origins) and _are_alike(origins[:, indexed]):
            parts = self._neighbours(indexed, origins, extent)
            return [box for view, begins, cut, *_ in parts for box in view.read_boxes(begins, cut)]
        if indexed is not None:
            if (spans := self._spans(indexed, origins, extent)) is not None:
                view, begins, cut, _ = spans
                return view.read_boxes(begins, cut)
            return self.read_boxes(*split_into_points(origins, extent, indexed))
        stored_origins, stored_extent = self._stored(origins, extent)
        return [(self.source, np.unique(stored_origins, axis=0), stored_extent)]

    def _indexed_axis(self, extent: Extent) -> int | None:
        """Return an axis along which boxes have several positions of an index array, or None."""
        for axis, places in self.axis_maps:
            if axis is not None and extent.lengths[axis] > 1 and isinstance(places, np.ndarray):
                return axis
        return None

    def _spans(
        self, axis: int, origins: Ints, extent: Extent
    ) -> tuple[AxisView, Ints, Extent, Ints] | None:
        """Return boxes that hold all positions between those of each box along an indexed axis.

        Also a view with all positions, of which they are boxes, and the places of the chosen
        positions in each, to be taken along the axis. None if that would read too much in between.
        """
        at = [mapped for mapped, _ in self.axis_maps].index(axis)
        table: Any = self.axis_maps[at][1]
        length, stored = extent.lengths[axis], self.source.shape[at]
        numbers = table[origins[:, axis, None] + np.arange(length) * extent.strides[axis]]
        lows = numbers.min(axis=1)
        span = int((numbers.max(axis=1) - lows).max(initial=0)) + 1
        nbytes = prod(self.source.shape[at + 1 :]) * self.dtype.itemsize
        if (span - length) * nbytes > length * _GAP_BYTES:
            return None
        begins, shape, maps = origins.copy(), list(self.shape), list(self.axis_maps)
        begins[:, axis] = np.minimum(lows, stored - span)
        maps[at], shape[axis] = (axis, range(stored)), stored
        view = replace(self, axis_maps=tuple(maps), shape=tuple(shape))
        within = numbers - begins[:, axis, None]
        others = [other + 1 for other in range(len(shape)) if other != axis]
        return view, begins, extent.with_axis(axis, span), np.expand_dims(within, others)

    def _neighbours(
        self, axis: int, origins: Ints, extent: Extent
    ) -> Iterator[tuple[AxisView, Ints, Extent, Ints, Ints]]:
        """Cut boxes that begin alike along an indexed axis into runs that are read at once.

        Yields a view of all positions of a run, the boxes in it, and the places of the chosen
        positions in these boxes and in the whole boxes.
        """
        at = [mapped for mapped, _ in self.axis_maps].index(axis)
        table: Any = self.axis_maps[at][1]
        begin, itemsize = int(origins[0, axis]), self.dtype.itemsize
        numbers = table[begin : begin + extent.spans[axis] : extent.strides[axis]]
        order = numbers.argsort(kind="stable")
        ordered = numbers[order]
        most = max(1, _SCRATCH_BYTES // max(1, extent.size // len(numbers) * itemsize))
        steps, nbytes = np.diff(ordered), prod(self.source.shape[at + 1 :]) * itemsize
        far = (steps * nbytes > _GAP_BYTES) | (np.diff(ordered // most) > 0)
        begins = origins.copy()
        begins[:, axis] = 0
        for places in np.split(order, np.flatnonzero((steps > 1) & far) + 1):
            low, stop = int(numbers[places[0]]), int(numbers[places[-1]]) + 1
            maps, shape = list(self.axis_maps), list(self.shape)
            maps[at], shape[axis] = (axis, range(low, stop)), stop - low
            view = replace(self, axis_maps=tuple(maps), shape=tuple(shape))
            yield view, begins, extent.with_axis(axis, stop - low), numbers[places] - low, places

    def _stored(self, origins: Ints, extent: Extent) -> tuple[Ints, Extent]:
        """Return boxes as boxes of the source."""
        stored = np.empty((len(origins), len(self.axis_maps)), np.int64)
        stored_extent = Extent.of([1] * len(self.axis_maps))
        for at, (axis, places) in enumerate(self.axis_maps):
            if axis is None:
                stored[:, at] = places
                continue
            assert not isinstance(places, int)
            begins = origins[:, axis]
            if isinstance(places, range):
                length, stride = extent.lengths[axis], extent.strides[axis]
                if places.step < 0:  # read forwards, into a reversed view of `out`
                    begins = begins + (length - 1) * stride
                stored_extent = stored_extent.with_axis(at, length, stride * abs(places.step))
            stored[:, at] = take(places, begins)
        return stored, stored_extent

    @cached_property
    def _stored_order(self) -> tuple[Any, Any]:
        """The axes of a batch in the order of storage, then those without one, and an index.

        The index reverses axes, inserts those without an axis of the view, and drops those at the
        end, of length 1.
        """
        axes = [axis for axis, _ in self.axis_maps if axis is not None]
        others = [axis for axis in range(len(self.shape)) if axis not in axes]
        index: list[Any] = [slice(None)]
        for axis, places in self.axis_maps:
            backwards = isinstance(places, range) and places.step < 0
            index.append(None if axis is None else slice(None, None, -1 if backwards else None))
        order = (0, *[axis + 1 for axis in (*axes, *others)])
        return order, (*index, *[0] * len(others))


@dataclass(frozen=True, eq=False)
class Taken(AxisView):
    """A view of chosen positions along an axis of the elements, with the rows of the source."""

    @cached_property
    def _storage(self) -> Storage:
        stored, chunks = super()._storage, self.source.storage().chunks
        if chunks is None:
            return stored
        # So long along the chosen axis that there are as many as hold the chosen positions.
        each = zip(chunks, self.axis_maps, strict=True)
        lengths = [
            length if isinstance(at, range | int) else -(-len(at) // len(distinct(at // length)))
            for length, (_, at) in each
        ]
        return replace(stored, chunks=tuple(lengths))

    @property
    def row_source(self) -> Source:
        return self.source


def take_places(source: Source, axis: int, places: Ints) -> Taken:
    """Return a source with chosen positions along an axis, in any order, with repeats."""
    maps: list[AxisMap] = [(at, range(length)) for at, length in enumerate(source.shape)]
    maps[axis] = axis, places
    shape = (*source.shape[:axis], len(places), *source.shape[axis + 1 :])
    return Taken(source, tuple(maps), shape, source.dtype)


def _are_alike(begins: Ints) -> bool:
    return bool((begins == begins[0]).all())
