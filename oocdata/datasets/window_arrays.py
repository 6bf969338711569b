"""Define the arrays of a window, and compute which rows they have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np

from oocdata.box import Extent, Ints
from oocdata.datasets.dataset import fields_of
from oocdata.datasets.request import Placement, Request
from oocdata.datasets.spec import ArraySpec, leaves, map_tree
from oocdata.engines.memory_array import MemoryArray
from oocdata.errors import ArgumentError
from oocdata.threads import cached_property

if TYPE_CHECKING:
    from oocdata.datasets.episodes import Episodes
    from oocdata.datasets.view import View

Offsets: TypeAlias = range | tuple[int, ...]
"""Ascending offsets of rows from the anchor: a range if they are regular."""

_FLAGS = MemoryArray(np.array([False, True]))
"""Source of masks: a mask consists of boxes of this array, and is read like other arrays."""


@dataclass(frozen=True, eq=False)
class WindowArray:
    """One array of a window, as specified: rows at `offsets` from the anchor, of a View.

    `view` is its index in `Windows.views`. With `time_axis`, rows are the first axis of the array;
    if not, there is one row. `episodes` is None for those of the View.
    """

    view: int
    offsets: Offsets
    time_axis: bool
    episodes: Episodes | None


@dataclass(frozen=True, eq=False)
class AnchoredArray:
    """One array of a window, with its View and the View's episodes; see `WindowArray`.

    With `pad`, offsets outside the episode give its first or last row.
    """

    view: View
    episodes: Episodes
    offsets: Offsets
    time_axis: bool
    pad: bool

    @cached_property
    def spec(self) -> ArraySpec:
        """Spec of the array: ``(rows, *element)``, or ``element`` without a time axis."""
        return ArraySpec((*self._time, *self.view.element), self.view.dtype)

    @cached_property
    def _time(self) -> tuple[int, ...]:
        return (len(self.offsets),) if self.time_axis else ()

    @cached_property
    def may_repeat_edge(self) -> bool:
        """Whether an offset may be outside the episode; offset 0, the anchor, never is."""
        return self.pad and (len(self.offsets) > 1 or self.offsets[0] != 0)

    def rows(self, episodes: Ints | int, anchors: Ints) -> Ints:
        """Return row numbers of the View, shape (anchors, rows), for anchors within episodes."""
        rows = anchors[:, None] + np.array(self.offsets, np.int64)
        if self.may_repeat_edge:
            np.clip(rows, 0, self.episodes.lengths[episodes][..., None] - 1, out=rows)
        rows += self.episodes.starts[episodes][..., None]
        return rows

    def request(self, episodes: Ints | int, anchors: Ints) -> Request:
        """Return the request for the rows at anchors.

        Rows at regular offsets are one box along the last sample axis; other rows are a box each.
        """
        view, run = self.view, self._run
        if run is not None and self.may_repeat_edge:
            # Without anchors, assume irregular rows: then no box has a time axis to cut.
            inside = anchors + self.offsets[-1] < self.episodes.lengths[episodes]
            regular = len(anchors) > 0 and bool((anchors >= -self.offsets[0]).all())
            run = run if regular and inside.all() else None
        if run is None:
            extent, placement = view.extent, view.placement
            numbers = self.rows(episodes, anchors).ravel()
        else:
            extent, placement, first = run
            numbers = anchors + (self.episodes.starts[episodes] + first)
        origins = view.origins(numbers)
        shape = (len(anchors), *self._time, *view.element)
        return Request(view.source, origins, extent, shape, view.dtype, placement)

    @cached_property
    def _run(self) -> tuple[Extent, Placement, int] | None:
        """Box of rows at regular offsets, and the offset of the first one in storage; else None."""
        view, offsets = self.view, self.offsets
        if not isinstance(offsets, range):
            return None
        if len(offsets) == 1:
            return view.extent, view.placement, offsets[0]
        if not isinstance(view.rows, range):
            return None
        step = view.rows.step * offsets.step * view.grid[-1].step
        extent = view.extent.with_axis(view.axes[-1], len(offsets), abs(step))
        axes = [None if axis is None else axis + 1 for axis in view.placement.axes]
        axes[view.axes[-1]] = 0  # time is the first axis of the element
        flipped = [0] if step < 0 else []
        flipped += [axis + 1 for axis in view.placement.flipped]
        return extent, Placement(tuple(axes), tuple(flipped)), offsets[-1 if step < 0 else 0]


class Mask(AnchoredArray):
    """A mask of one array of a window: True for rows inside the episode."""

    @cached_property
    def spec(self) -> ArraySpec:
        return ArraySpec(self._time, np.dtype(np.bool_))

    def request(self, episodes: Ints | int, anchors: Ints) -> Request:
        rows = anchors[:, None] + np.array(self.offsets, np.int64)
        inside = (rows >= 0) & (rows < self.episodes.lengths[episodes][..., None])
        origins, shape = inside.reshape(-1, 1).astype(np.int64), (len(anchors), *self._time)
        extent, placement = Extent.of((1,)), Placement((None,))
        return MaskRequest(_FLAGS, origins, extent, shape, _FLAGS.dtype, placement)


class MaskRequest(Request):
    """A request for a mask, which patches leave as it is."""

    def crop(self, axes: tuple[int, ...], size: tuple[int, ...], offsets: Ints) -> Self:
        return self


def _mask(part: AnchoredArray) -> Mask:
    return Mask(**fields_of(part))


def with_masks(parts: Any) -> Any:
    """Return a tree of arrays with a mask for each array that may repeat an edge; see `windows`."""

    def needs_mask(tree: Any) -> bool:
        return any(part.may_repeat_edge for part in leaves(tree))

    if isinstance(parts, dict):
        masked: dict[str, Any] = {}
        for name, part in parts.items():
            masked[name] = part
            if needs_mask(part):
                mask = f"{name}_mask"
                if mask in parts:
                    raise ArgumentError(
                        f"`windows` must not get an array with the name of a mask, {mask}."
                    )
                masked[mask] = map_tree(_mask, part)
        return masked
    arrays = parts if isinstance(parts, tuple) else (parts,)
    return (*arrays, map_tree(_mask, arrays[-1])) if needs_mask(arrays[-1]) else parts
