"""Compute where windows are, and which rows their arrays have.

An anchor is the row in an episode that all arrays of a window are relative to, so the episode is
found once per window. Memory is proportional to the number of episodes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent
from oocdata.datasets.dataset import fields_of
from oocdata.datasets.offsets import LARGEST_OFFSET, Offsets
from oocdata.datasets.request import Placement, Request
from oocdata.datasets.spec import ArraySpec, leaves, map_tree
from oocdata.engines.memory_array import MemoryArray
from oocdata.errors import ArgumentError
from oocdata.index import Selection, take
from oocdata.threads import cached_property

if TYPE_CHECKING:
    from oocdata.datasets.episodes import Runs
    from oocdata.datasets.view import View

__all__ = ["Anchors", "Mask", "Part", "WindowArray", "with_masks"]

Ints: TypeAlias = NDArray[np.int64]

_FLAGS = MemoryArray(np.array([False, True]))
"""Source of masks: a mask consists of boxes of this array, and is read like other arrays."""


@dataclass(frozen=True, eq=False)
class WindowArray:
    """One array of a window, as specified by the caller.

    Attributes
    ----------
    view : int
        Index of the View in `Windows.views`.
    offsets : range or tuple of int
        Offsets of the rows from the anchor.
    time_axis : bool
        Whether rows are the first axis of the array; if not, there is one row.
    episodes : ndarray of int64, str or None
        As for `View.windows`, with ids replaced by lengths.
    """

    view: int
    offsets: Offsets
    time_axis: bool
    episodes: NDArray[np.int64] | str | None


@dataclass(frozen=True, eq=False)
class Part:
    """One array of a window, with its View and episodes.

    Attributes
    ----------
    view : View
    runs : Runs
        Episodes of the View.
    offsets : range or tuple of int
        Offsets of the rows from the anchor.
    time_axis : bool
        Whether rows are the first axis of the array; if not, there is one row.
    pad : bool
        Whether offsets outside the episode give its first or last row.
    """

    view: View
    runs: Runs
    offsets: Offsets
    time_axis: bool
    pad: bool

    @cached_property
    def spec(self) -> ArraySpec:
        """Spec of the array: ``(rows, *element)``, or ``element`` without a time axis."""
        return ArraySpec((*self._time, *self.view.element), self.view.dtype)

    @property
    def _time(self) -> tuple[int, ...]:
        return (len(self.offsets),) if self.time_axis else ()

    @property
    def may_repeat_edge(self) -> bool:
        """Whether an offset may be outside the episode; offset 0, the anchor, never is."""
        return self.pad and (len(self.offsets) > 1 or self.offsets[0] != 0)

    def rows(self, episodes: Ints | int, anchors: Ints) -> Ints:
        """Return row numbers of the View, shape (anchors, rows), for anchors within episodes."""
        rows = anchors[:, None] + np.array(self.offsets, np.int64)
        if self.may_repeat_edge:
            np.clip(rows, 0, self.runs.lengths[episodes][..., None] - 1, out=rows)
        rows += self.runs.starts[episodes][..., None]
        return rows

    def request(self, episodes: Ints | int, anchors: Ints) -> Request:
        """Return the request for the rows at anchors.

        Rows at regular offsets are one box along the last sample axis; other rows are a box each.
        """
        view, offsets = self.view, self.offsets
        extent, placement, length = view.extent, view.placement, len(offsets)
        regular = isinstance(offsets, range) and (length == 1 or isinstance(view.rows, range))
        if regular and self.may_repeat_edge:
            # Without anchors, assume irregular rows: then no box has a time axis to cut.
            inside = anchors + offsets[-1] < self.runs.lengths[episodes]
            regular = len(anchors) > 0 and bool((anchors >= -offsets[0]).all() and inside.all())
        if not (regular and isinstance(offsets, range)):
            numbers = self.rows(episodes, anchors).ravel()
        else:
            numbers = anchors + (self.runs.starts[episodes] + offsets[0])
            if length > 1 and isinstance(view.rows, range):
                step = view.rows.step * offsets.step * view.grid[-1].step
                if step < 0:  # the origin is the lowest position in storage
                    numbers += (length - 1) * offsets.step
                extent = extent.with_axis(view.axes[-1], length, abs(step))
                placement = self._reversed if step < 0 else self._forwards
        origins = view.origins(take(view.rows, numbers))
        shape = (len(anchors), *self._time, *view.element)
        return Request(view.source, origins, extent, shape, view.dtype, placement)

    @cached_property
    def _forwards(self) -> Placement:
        """Placement of a box with a time axis, which is the first axis of the element."""
        of_row = self.view.placement
        axes = [None if axis is None else axis + 1 for axis in of_row.axes]
        axes[self.view.axes[-1]] = 0
        return Placement(tuple(axes), tuple(axis + 1 for axis in of_row.flipped))

    @cached_property
    def _reversed(self) -> Placement:
        """Placement of a box with a time axis that is delivered in reverse, for a reversed view."""
        return replace(self._forwards, flipped=(0, *self._forwards.flipped))


class Mask(Part):
    """A mask of one array of a window: True for rows inside the episode."""

    @cached_property
    def spec(self) -> ArraySpec:
        """Spec of the mask: bool, one value per row."""
        return ArraySpec(self._time, np.dtype(np.bool_))

    def request(self, episodes: Ints | int, anchors: Ints) -> Request:
        """Return the request for the mask's values, as boxes of an array in memory."""
        rows = anchors[:, None] + np.array(self.offsets, np.int64)
        inside = (rows >= 0) & (rows < self.runs.lengths[episodes][..., None])
        origins, shape = inside.reshape(-1, 1).astype(np.int64), (len(anchors), *self._time)
        return Request(_FLAGS, origins, Extent.of((1,)), shape, _FLAGS.dtype, Placement((None,)))


def _mask(part: Part) -> Mask:
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


@dataclass(frozen=True, eq=False)
class Anchors:
    """Anchors of the windows of some arrays.

    Attributes
    ----------
    parts : tuple of Part
        The arrays. Episode i of each belongs together.
    shift : int
        Distance in rows between consecutive anchors.
    pad : bool
        True: each row that all arrays have is an anchor. False: anchors are the positions in an
        episode from which all offsets are inside it; an anchor itself may be outside.
    """

    parts: tuple[Part, ...]
    shift: int
    pad: bool

    @property
    def low(self) -> int:
        """Lowest offset of all arrays."""
        return min(part.offsets[0] for part in self.parts)

    @property
    def high(self) -> int:
        """Highest offset of all arrays."""
        return max(part.offsets[-1] for part in self.parts)

    @property
    def span(self) -> int:
        """Number of rows from the first to the last row of an element, inclusive."""
        return self.high - self.low + 1

    @cached_property
    def first(self) -> int:
        """First anchor of an episode."""
        return 0 if self.pad else -self.low

    @cached_property
    def ends(self) -> Ints:
        """Number of windows up to the end of each episode, shape (episodes,)."""
        stops = [part.runs.lengths - (0 if self.pad else part.offsets[-1]) for part in self.parts]
        counts = (np.minimum.reduce(stops) - self.first - 1) // self.shift + 1
        return np.cumsum(np.maximum(counts, 0))

    def count(self) -> int:
        """Return the number of windows; raise ArgumentError if episodes of arrays differ."""
        numbers = [len(part.runs.starts) for part in self.parts]
        if len(set(numbers)) > 1:
            raise ArgumentError(
                "arrays of an element must have equally many episodes, because episode i of each "
                f"goes together; got {', '.join(map(str, numbers))}."
            )
        lengths = np.array([part.runs.lengths for part in self.parts])
        uneven = np.flatnonzero(np.ptp(lengths, axis=0) > 1)
        if len(uneven):
            raise ArgumentError(
                "arrays of an element must have episodes of the same length, or one row longer "
                f"(the states beside the actions); those of episode {uneven[0]} are "
                f"{', '.join(map(str, lengths[:, uneven[0]]))}. Cut them, or give `episodes`."
            )
        if self.pad and max(-self.low, self.high) >= LARGEST_OFFSET:
            raise ArgumentError("offsets must lie between -2**62 and 2**62; got longer ones.")
        fits = self.longest > 0 and (self.pad or self.span <= self.longest)
        return int(self.ends[-1]) if fits else 0

    @property
    def longest(self) -> int:
        """Number of rows of the longest episode."""
        return max(int(part.runs.lengths.max(initial=0)) for part in self.parts)

    @cached_property
    def _first_anchors(self) -> Ints:
        """The anchor in each episode that window 0 would have."""
        before = np.concatenate((np.zeros(1, np.int64), self.ends[:-1]))
        return self.first - before * self.shift

    def find(self, windows: Ints) -> tuple[Ints | int, Ints]:
        """Return the episode of each window (an int 0 if there is one episode), and its anchor."""
        if len(self.ends) == 1:
            return 0, windows * self.shift + self.first
        episodes = self.ends.searchsorted(windows, side="right")
        return episodes, windows * self.shift + self._first_anchors[episodes]

    def windows_between(self, chosen: Selection, gap: int) -> int:
        """Return the number of windows to drop so that `gap` unused rows separate two parts."""
        low, high, step = self.low, self.high, self.shift
        if self.pad:  # offsets outside the episode give a row between the anchor and the edge
            low, high = min(low, 0), max(high, 0)
        # A window at a uses rows up to a + high; the next one kept, at b, rows from b + low on.
        span = high - low + 1
        if isinstance(chosen, range):
            step *= abs(chosen.step)
        else:
            steps = np.diff(chosen)
            if not (np.all(steps > 0) or np.all(steps < 0)):
                raise ArgumentError(
                    "windows must be in ascending or descending order to be split without sharing "
                    "a row; these were selected in another order. Split first, then select."
                )
        dropped = max(0, -(-(span + gap) // step) - 1)
        if len(self.ends) == 1 or gap == 0:
            return dropped
        # Across episodes, anchors may be closer than `shift`. Dropped windows leave at least their
        # own rows unused; a padded one its anchor, unless a neighbour in its episode covers it.
        if self.pad:
            return max(dropped, gap + high // step + -low // step)
        least = min(self.of_view(part.view).span for part in self.parts)
        return max(dropped, -(-gap // min(step, least)))

    def of_view(self, view: View) -> Anchors:
        """Return the same anchors, with the arrays of one View."""
        return replace(self, parts=tuple(part for part in self.parts if part.view is view))
