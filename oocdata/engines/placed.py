"""An array seen along other axes: places of it chosen, dropped, or repeated along axes of others.

What a view selects becomes an array of its own here, so that several can be put together
(`oocdata.datasets.stack`). Nothing is copied: a box here is a box there, read into the caller's
memory turned round.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent, cut_boxes, point_origins
from oocdata.engines.places import read_through
from oocdata.engines.source import Boxes, Source, Storage
from oocdata.index import Selection, take
from oocdata.threads import cached_property

__all__ = ["Line", "Placed"]

_SCRATCH_BYTES = 1 << 20

Line: TypeAlias = tuple[int, Selection] | tuple[None, int]
"""Where an axis of storage runs: the axis here and the place of storage at each place along it; or
no axis, and the one place that is read."""


@dataclass(frozen=True, eq=False)
class Placed:
    """A source along other axes; a `oocdata.engines.source.Source`.

    Attributes
    ----------
    source : Source
    lines : tuple of Line
        One for each axis of `source`; no two along one axis.
    shape : tuple of int
        As seen. Along an axis that none of the lines has, the same numbers are repeated.
    dtype : numpy.dtype
        As seen: converted as NumPy does.

    Examples
    --------
    >>> from oocdata.engines.memory_array import MemoryArray
    >>> source = MemoryArray(np.arange(12).reshape(4, 3))
    >>> seen = Placed(source, ((1, range(3, -1, -2)), (None, 2)), (5, 2), np.dtype("i8"))
    >>> out = np.zeros((1, 5, 2))
    >>> seen.read(np.array([[0, 0]]), Extent.of((5, 2)), out)
    >>> out[0, 4].tolist()
    [11.0, 5.0]
    """

    source: Source
    lines: tuple[Line, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def below(self) -> tuple[Source]:
        """What is read."""
        return (self.source,)

    @cached_property
    def repeated(self) -> list[int]:
        """The axes along which the same numbers are repeated."""
        along = {axis for axis, _ in self.lines}
        axes = enumerate(self.shape)
        return [axis for axis, length in axes if length > 1 and axis not in along]

    def storage(self) -> Storage:
        """Return how the array is stored, by the axes here."""
        return self._storage

    @cached_property
    def _storage(self) -> Storage:
        inner, ndim = self.source.storage(), len(self.shape)
        chunks, names = [1] * ndim, [""] * ndim
        parts: tuple[int, ...] = (0,)
        parts_axis = 0
        for at, (axis, places) in enumerate(self.lines):
            if axis is None:
                continue
            names[axis] = inner.dimensions[at] if inner.dimensions else ""
            whole = isinstance(places, range) and places == range(self.source.shape[at])
            if inner.chunks is not None and isinstance(places, range):
                # A selection that begins within a chunk shifts the grid: blocks then cross borders.
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
            opened=None,
        )

    def read(self, origins: NDArray[np.int64], extent: Extent, out: NDArray[Any]) -> None:
        """Write ``out[i] = the box at origins[i]``; see `oocdata.engines.source.Source.read`."""
        if out.size == 0:
            return
        for at, axis in self._by_themselves:
            if isinstance(self.lines[at][1], np.ndarray) and extent.lengths[axis] > 1:
                self._read_places(axis, origins, extent, out)
                return
        if out.dtype != self.dtype and not np.can_cast(self.source.dtype, self.dtype, "safe"):
            # By way of this dtype, which holds less than the stored one.
            for some, boxes in read_through(self, origins, extent, self.dtype, _SCRATCH_BYTES):
                out[some] = boxes
            return
        # The numbers that are repeated are read once, into their first place.
        once = [slice(None)] * out.ndim
        for axis in self.repeated:
            once[axis + 1] = slice(0, 1)
        first, own, inner = out[tuple(once)], self._origins(origins, extent), self._extent(extent)
        if self.repeated and bool((own == own[0]).all()):
            first, own = first[:1], own[:1]
        self.source.read(own, inner, self._turned(first))
        if first.shape != out.shape:
            out[...] = first

    def read_boxes(self, origins: NDArray[np.int64], extent: Extent) -> list[Boxes]:
        """Return the boxes of the source that are read for boxes here, each once."""
        for at, axis in self._by_themselves:
            if isinstance(self.lines[at][1], np.ndarray) and extent.lengths[axis] > 1:
                return self.read_boxes(*point_origins(origins, extent, axis))
        own = np.unique(self._origins(origins, extent), axis=0)
        return [(self.source, own, self._extent(extent))]

    def _read_places(
        self, axis: int, origins: NDArray[np.int64], extent: Extent, out: NDArray[Any]
    ) -> None:
        """Read boxes along an axis whose places follow no rule, a place at a time."""
        for number in range(extent.lengths[axis]):
            moved, single, where = cut_boxes(origins, extent, axis, number, number + 1)
            self.read(moved, single, out[where])

    # A box here as a box of storage.

    @cached_property
    def _along(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """For each axis of storage: the axis here, and the places at and from one place to another.

        Zeros where a table has the places.
        """
        rules = [
            (axis or 0, places.start, places.step)
            if isinstance(places, range)
            else (0, places if isinstance(places, int) else 0, 0)
            for axis, places in self.lines
        ]
        axes, starts, steps = np.array(rules, np.int64).reshape(-1, 3).T
        return axes, starts, steps

    def _origins(self, origins: NDArray[np.int64], extent: Extent) -> NDArray[np.int64]:
        axes, starts, steps = self._along
        moved: NDArray[np.int64] = origins[:, axes] * steps + starts
        for at, axis in self._by_themselves:
            places = self.lines[at][1]
            if isinstance(places, np.ndarray):
                moved[:, at] = take(places, origins[:, axis])
            else:  # read forwards into a turned view
                moved[:, at] += (extent.lengths[axis] - 1) * extent.strides[axis] * int(steps[at])
        return moved

    @cached_property
    def _by_themselves(self) -> list[tuple[int, int]]:
        """The axes of storage that are found in a table or lie in reverse, and their axes here."""
        return [
            (at, axis)
            for at, (axis, places) in enumerate(self.lines)
            if axis is not None
            and (isinstance(places, np.ndarray) or (isinstance(places, range) and places.step < 0))
        ]

    def _extent(self, extent: Extent) -> Extent:
        lengths, strides = [1] * len(self.lines), [1] * len(self.lines)
        for at, (axis, places) in enumerate(self.lines):
            if axis is not None and extent.lengths[axis] > 1:
                assert isinstance(places, range)
                lengths[at] = extent.lengths[axis]
                strides[at] = extent.strides[axis] * abs(places.step)
        return Extent(tuple(lengths), tuple(strides))

    def _turned(self, out: NDArray[Any]) -> NDArray[Any]:
        """Return a view of `out`, of length 1 where numbers are repeated, by axes of storage."""
        index, order, whole = self._turning
        found: NDArray[Any] = out[index].transpose(order)[whole]
        return found

    @cached_property
    def _turning(self) -> tuple[Any, ...]:
        """What to take of a batch, the order of its axes, and where axes of length 1 go."""
        index: list[Any] = [slice(None)] + [0] * len(self.shape)
        axes: list[int] = []
        for axis, places in self.lines:
            if axis is not None:
                assert not isinstance(places, int)
                back = isinstance(places, range) and places.step < 0
                index[axis + 1] = slice(None, None, -1 if back else None)
                axes.append(axis)
        kept = sorted(axes)
        order = 0, *[1 + kept.index(axis) for axis in axes]
        whole = [None if axis is None else slice(None) for axis, _ in self.lines]
        return tuple(index), order, (slice(None), *whole)
