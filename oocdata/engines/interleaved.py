"""Sources side by side, some of which are places of one array: the components of a vector.

By itself each component would be read as every other number of the array, all of which the disk
gives. They are read together into small memory, and copied from there to where they go.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent
from oocdata.engines.buffers import empty
from oocdata.engines.concat import Concat
from oocdata.engines.placed import Placed
from oocdata.engines.places import blocks, read_to
from oocdata.engines.source import Source

__all__ = ["Interleaved"]

_PIECE_BYTES = 1 << 20
"""Of the places of one array that are read at a time. Beside places by themselves, The Well's 8
channels of 4 fields take 1 / 1.6 of the processor's time by NumPy iteration, 1 / 1.5 through
`to_tf`."""

_SPARSE = 2
"""Places of an array are read together where they are at most this many times those wanted."""

Ints = NDArray[np.int64]

_Wholes: TypeAlias = dict[Source, tuple[Placed, tuple[int, ...]]]
"""For a part, the array that it is a place of, and which one."""


class Interleaved(Concat):
    """Sources side by side along an axis of their elements.

    Parameters
    ----------
    parts : tuple of Placed
        Alike but for their length along the axis, which is not 0.
    axis : int
    """

    def __init__(self, parts: tuple[Placed, ...], axis: int) -> None:
        super().__init__(parts, axis)
        self._wholes = _wholes(parts, axis)

    def __reduce__(self) -> Any:
        return Interleaved, (self.parts, self.axis)

    def _read_across(self, origins: Ints, extent: Extent, out: NDArray[Any], boxes: Ints) -> None:
        wanted: dict[Placed | None, list[Any]] = defaultdict(list)
        for share in self._cut(origins, extent):
            whole, place = self._wholes.get(share[0], (None, ()))
            wanted[whole if len(boxes) == len(out) else None].append((share, place))
        for whole, some in wanted.items():
            if whole is None or len(some) == 1:
                for (part, within, own, where), _ in some:
                    read_to(part, within, own, out[where], boxes)
            else:
                places = [(where[-1], place) for (*_, where), place in some]
                self._read_places(whole, places, origins, extent, out)

    def _read_places(
        self,
        whole: Placed,
        places: Iterable[tuple[slice, tuple[int, ...]]],
        origins: Ints,
        extent: Extent,
        out: NDArray[Any],
    ) -> None:
        """Read places of one array together, each to where it goes along the axis."""
        axis, ndim = self.axis + 1, len(self.shape)
        further = whole.shape[ndim:]
        lengths = [1 if at == axis else length for at, length in enumerate(out.shape)]
        most = max(1, _PIECE_BYTES // (whole.dtype.itemsize * prod(further)))
        for cut in blocks(lengths, [*map(abs, out.strides)], most):
            starts, stops = zip(*((along.start, along.stop) for along in cut), strict=True)
            own = Extent(
                (*np.subtract(stops[1:], starts[1:]).tolist(), *further),
                (*extent.with_axis(self.axis, 1).strides, *[1] * len(further)),
            )
            moved = np.zeros((stops[0] - starts[0], ndim + len(further)), np.int64)
            moved[:, :ndim] = origins[cut[0]] + np.array(starts[1:]) * extent.strides
            moved[:, self.axis] = 0
            read = empty((len(moved), *own.lengths), whole.dtype)
            whole.read(moved, own, read)
            for where, place in places:
                taken: Any = (..., *place)
                out[(*cut[:axis], where, *cut[axis + 1 :])] = read[taken]


def _wholes(parts: Iterable[Placed], axis: int) -> _Wholes:
    """Return for parts that are places of one array, close together: that array, and the place."""
    alike: dict[Any, list[Placed]] = defaultdict(list)
    for part in parts:
        along = [at for at, _ in part.lines]
        ranges = all(isinstance(places, range | int) for _, places in part.lines)
        # Chunks are decoded once, however often numbers are taken of them.
        if ranges and axis not in along and part.storage().chunks is None:
            lines = tuple(line if line[0] is not None else None for line in part.lines)
            alike[id(part.source), lines].append(part)
    found: _Wholes = {}
    for some in alike.values():
        if len(some) > 1:
            found.update(_together(some))
    return found


def _together(some: list[Placed]) -> _Wholes:
    """Return for places of one array the array of all of them, and which place each is.

    Its further axes are those of storage along which the places differ. Nothing where other places
    would be read for them, or where numbers of one place lie side by side in storage.
    """
    first = some[0]
    lines, lengths = list(first.lines), list(first.shape)
    own: list[list[int]] = []
    for at, (axis, _) in enumerate(first.lines):
        numbers: list[Any] = [part.lines[at][1] for part in some]
        if axis is None and len(set(numbers)) > 1:
            low, high = min(numbers), max(numbers)
            lines[at] = len(lengths), range(low, high + 1)
            lengths.append(high + 1 - low)
            own.append([number - low for number in numbers])
        elif own and axis is not None and first.shape[axis] > 1:
            return {}
    if prod(lengths[len(first.shape) :]) > _SPARSE * len(some):
        return {}
    whole = replace(first, lines=tuple(lines), shape=tuple(lengths))
    places = zip(*own, strict=True) if own else [()] * len(some)
    return {part: (whole, place) for part, place in zip(some, places, strict=True)}
