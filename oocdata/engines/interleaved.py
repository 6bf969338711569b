"""Sources side by side whose numbers take turns in a batch: variables as channels of one tensor.

Each source by itself would write a few bytes at a time, a stride apart, all over the batch. Here a
piece of the batch is made at a time: sources are read into small memory in the order of storage, in
long runs, and copied from there to where they take turns, while both stay in the processor's cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent
from oocdata.engines.buffers import ALIGNMENT, empty
from oocdata.engines.concat import Concat
from oocdata.engines.placed import Line, Placed
from oocdata.engines.places import blocks, copy_together

__all__ = ["Interleaved"]

_PIECE_BYTES = 4 << 20
"""Of the batch made at a time. Beside parts that write by themselves, a batch through `to_tf` and
NumPy iteration takes 1 / 2.3 to 1 / 2.7 of the processor's time for The Well's 8 channels of 4
fields, 1 / 1.4 to 1 / 1.9 for PDEBench's 4 (time beside channels in the batch). Pieces of 1 MiB
cost 1.3 times as much: each is a call for every source."""

_SPARSE = 2
"""Places of an array are read together where they are at most this many times those wanted."""

_MOST_PLANS = 64

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """Sources that are read into memory together, and the parts that are copied from there.

    Attributes
    ----------
    sources : tuple of Placed
        In memory they follow on one another along `axis`. They have the axes of the whole, and then
        those of `further`.
    axis : int
        Along which the parts of the whole are side by side.
    taken : range
        What is taken of each along this axis.
    parts : tuple of (slice, tuple of int)
        Where a part goes along the axis, and its place along the further axes.
    further : tuple of int
        Lengths of the axes of storage along which parts of one array are single places.
    order : tuple of int
        The axes of memory, slowest first; 0 numbers the boxes. Empty where a source is read
        straight into the batch.
    outer : int
        How many of these are not in the order of storage.
    """

    sources: tuple[Placed, ...]
    axis: int
    taken: range
    parts: tuple[tuple[slice, tuple[int, ...]], ...]
    further: tuple[int, ...] = ()
    order: tuple[int, ...] = ()
    outer: int = 0

    def layout(self, shape: tuple[int, ...]) -> tuple[list[int], list[int], int]:
        """Return shape, strides and bytes of the memory for a piece of a batch of this shape."""
        lengths = [*shape, *self.further]
        lengths[self.axis + 1] = len(self.sources) * len(self.taken)
        strides, step = [0] * len(lengths), self.sources[0].dtype.itemsize
        for number, at in reversed(list(enumerate(self.order))):
            if number == self.outer - 1:
                # An odd number of lines: else all would share a few sets of the cache.
                step = (-(-step // ALIGNMENT) | 1) * ALIGNMENT
            strides[at] = step
            step *= lengths[at]
        return lengths, strides, step

    def read(
        self, origins: Ints, extent: Extent, piece: NDArray[Any], buffer: NDArray[Any]
    ) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        """Read boxes; yield what is to be copied from memory, and where in a piece of the batch."""
        along, length = (slice(None),) * (self.axis + 1), len(self.taken)
        memory = piece[(*along, self.parts[0][0])]
        if self.order:
            lengths, strides, _ = self.layout(piece.shape)
            memory = np.ndarray(lengths, self.sources[0].dtype, buffer, 0, strides)
        own = extent.with_axis(self.axis, length, self.taken.step)
        own = Extent((*own.lengths, *self.further), (*own.strides, *[1] * len(self.further)))
        moved = np.zeros((len(origins), len(own.lengths)), np.int64)
        moved[:, : origins.shape[1]] = origins
        moved[:, self.axis] = self.taken.start
        for number, source in enumerate(self.sources):
            here = slice(number * length, (number + 1) * length)
            source.read(moved, own, memory[(*along, here)])
        if not self.order:
            return
        if self.further and len(self.parts) == 1:  # all of their places, in their order
            flat = memory.reshape(*memory.shape[: len(extent.lengths) + 1], -1)
            memory = flat.swapaxes(self.axis + 1, -1)[..., 0]
        for where, place in self.parts:
            index: Any = (..., *place)
            yield memory[index], piece[(*along, where)]


class Interleaved(Concat):
    """Sources side by side along an axis that may be the fastest one of a batch.

    Parameters
    ----------
    parts : tuple of Placed
        Alike but for their length along the axis, which is not 0.
    axis : int
    """

    parts: tuple[Placed, ...]

    def __init__(self, parts: tuple[Placed, ...], axis: int) -> None:
        super().__init__(parts, axis)
        self._plans: dict[Any, list[_Group]] = {}
        # Chunks that are decoded for one piece may be gone when the next one needs them.
        self._in_pieces = all(part.storage().chunks is None for part in parts)

    def __reduce__(self) -> Any:
        return Interleaved, (self.parts, self.axis)

    def read(self, origins: Ints, extent: Extent, out: NDArray[Any]) -> None:
        """Write ``out[i] = the box at origins[i]``; see `oocdata.engines.source.Source.read`."""
        groups = self._planned(origins, extent, out)
        if not groups:
            super().read(origins, extent, out)
            return
        # Cut where neighbours are far apart, in the batch and in storage; never along the axis.
        axis, lengths = self.axis + 1, list(out.shape)
        lengths[axis] = 1
        layout = next(group for group in groups if group.order).layout(out.shape)[1]
        steps = [min(abs(a), b) for a, b in zip(out.strides, layout, strict=False)]
        most = max(1, _PIECE_BYTES // (out.itemsize * out.shape[axis]))
        strides, buffers = np.array(extent.strides), None
        for cut in blocks(lengths, steps, most):
            piece = out[(*cut[:axis], slice(None), *cut[axis + 1 :])]
            moved = origins[cut[0]] + strides * [along.start for along in cut[1:]]
            own = Extent(piece.shape[1:], extent.strides)
            if buffers is None:  # the first piece is the largest
                sizes = [group.layout(piece.shape)[2] for group in groups]
                buffers = [empty((size,), np.uint8) for size in sizes]
            read = zip(groups, buffers, strict=True)
            copy_together(
                pair for group, buffer in read for pair in group.read(moved, own, piece, buffer)
            )

    # Which parts are read together.

    def _planned(self, origins: Ints, extent: Extent, out: NDArray[Any]) -> list[_Group]:
        """Return the groups that boxes are made of; none where parts do as well by themselves."""
        first, length = origins[:, self.axis], extent.lengths[self.axis]
        if length < 2 or not (out.size and self._in_pieces and (first == first[0]).all()):
            return []
        key = int(first[0]), extent, out.strides
        if key not in self._plans:
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            groups = list(self._groups(int(first[0]), extent, out.strides))
            self._plans[key] = _side_by_side(groups) if any(one.order for one in groups) else []
        return self._plans[key]

    def _groups(self, first: int, extent: Extent, strides: tuple[int, ...]) -> Iterator[_Group]:
        """Yield parts by themselves, or several that are places of one array."""
        alike: dict[Any, list[tuple[Placed, slice]]] = {}
        length, stride = extent.lengths[self.axis], extent.strides[self.axis]
        for part, within, where in self.along(first, length, stride):
            assert isinstance(part, Placed)
            taken = range(within, within + (where.stop - where.start) * stride, stride)
            key: tuple[Any, ...] = taken, len(alike)
            if _is_plain(part, extent, self.axis):
                lines = tuple(line if line[0] is not None else None for line in part.lines)
                key = taken, id(part.source), lines
            alike.setdefault(key, []).append((part, where))
        for (taken, *plain), some in alike.items():
            if len(plain) == 1:
                yield _Group((some[0][0],), self.axis, taken, ((some[0][1], ()),))
                continue
            places = np.array([[at for axis, at in part.lines if axis is None] for part, _ in some])
            spans = np.ptp(places, axis=0) + 1 if places.size else np.ones(1)
            apart = spans.prod() > _SPARSE * len(some)
            for few in [[one] for one in some] if apart else [some]:
                yield from self._group(few, taken, extent, strides)

    def _group(
        self,
        some: list[tuple[Placed, slice]],
        taken: range,
        extent: Extent,
        strides: tuple[int, ...],
    ) -> Iterator[_Group]:
        """Yield the group of parts that are places of one array."""
        axis, ndim, part = self.axis, len(self.shape), some[0][0]
        lines: list[Line] = list(part.lines)
        lengths = list(part.shape)
        places: list[list[int]] = []
        for at, (along, _) in enumerate(part.lines):
            own: list[Any] = [one.lines[at][1] for one, _ in some]
            if along is None and len(set(own)) > 1:
                low, high = min(own), max(own)
                lines[at] = len(lengths), range(low, high + 1)
                lengths.append(high + 1 - low)
                places.append([place - low for place in own])
        # In memory: what is finer in the batch than the runs of storage are; then these runs.
        stored = [at + 1 for at, _ in lines if at is not None]
        runs = [at for at in stored if at <= ndim and at != axis + 1 and extent.lengths[at - 1] > 1]
        finest = abs(strides[runs[-1] if runs else 0])
        outer = [at + 1 for at, length in enumerate(extent.lengths) if length > 1]
        outer = [at for at in outer if abs(strides[at]) < finest]
        outer.sort(key=lambda at: -abs(strides[at]))
        if axis + 1 not in outer:
            for one, where in some:
                yield _Group((one,), axis, taken, ((where, ()),))
            return
        if axis + 1 in stored:
            outer.remove(axis + 1)
        order = [*outer, 0, *(at for at in stored if at not in outer)]
        single = [at for at in range(len(lengths) + 1) if at not in order]
        source = replace(part, lines=tuple(lines), shape=tuple(lengths))
        further = tuple(lengths[ndim:])
        picked = list(zip(*places, strict=True)) or [()] * len(some)
        parts = [(where, place) for (_, where), place in zip(some, picked, strict=True)]
        if further and picked == list(np.ndindex(further)) and _follow([to for to, _ in parts]):
            parts = [(slice(parts[0][0].start, parts[-1][0].stop), ())]
        outer_axes = len(single) + len(outer)
        yield _Group((source,), axis, taken, tuple(parts), further, (*single, *order), outer_axes)


def _follow(places: list[slice]) -> bool:
    """Return whether all are single places, one after the other."""
    stops = [place.start + 1 for place in places]
    return (
        stops == [place.stop for place in places] == [*[at.start for at in places[1:]], stops[-1]]
    )


def _is_plain(part: Placed, extent: Extent, axis: int) -> bool:
    """Return whether boxes of a part are boxes of its source, as they are stored."""
    repeated = [at for at in part.repeated if at != axis and extent.lengths[at] > 1]
    tables = [at for _, at in part.lines if isinstance(at, np.ndarray)]
    return not repeated and not tables and part.dtype == part.source.dtype


def _side_by_side(groups: list[_Group]) -> list[_Group]:
    """Return groups with those as one whose parts can lie side by side in memory too."""
    found: list[_Group] = []
    for group in groups:
        last, alone = found[-1] if found else group, len(group.parts) == 1 and not group.further
        (where, _), (before, _) = group.parts[0], last.parts[0]
        free = alone and group.axis + 1 in group.order[: group.outer]
        follows = len(last.parts) == 1 and before.stop == where.start
        if free and follows and last.order == group.order:
            parts = ((slice(before.start, where.stop), ()),)
            found[-1] = replace(last, sources=last.sources + group.sources, parts=parts)
        else:
            found.append(group)
    return found
