"""Anchors: the places in episodes that windows are made around, and the arrays around each.

All arrays of an element count their rows from one anchor, so its place in the episode is found
once. Memory is that of the episodes, whatever their lengths.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent
from oocdata.datasets.dataset import fields_of
from oocdata.datasets.offsets import REACH, Offsets
from oocdata.datasets.request import Placement, Request
from oocdata.datasets.spec import ArraySpec, leaves, map_tree
from oocdata.engines.memory_array import MemoryArray
from oocdata.errors import ArgumentError
from oocdata.index import Selection, take
from oocdata.threads import cached_property

if TYPE_CHECKING:
    from oocdata.datasets.episodes import Runs
    from oocdata.datasets.view import View

__all__ = ["Anchors", "Asked", "Mask", "Part", "with_masks"]

Ints: TypeAlias = NDArray[np.int64]

_FLAGS = MemoryArray(np.array([False, True]))
"""A mask is boxes of this array, so it is read like any other."""


@dataclass(frozen=True, eq=False)
class Asked:
    """One array of a window as it was asked for.

    Attributes
    ----------
    view : int
        Which of the windows' views.
    offsets : range or tuple of int
        Its rows, counted from the anchor.
    time_axis : bool
        Whether rows are the first axis of the array; else there is one row.
    episodes : ndarray of int64, str or None
        As for `View.windows`, ids as lengths.
    """

    view: int
    offsets: Offsets
    time_axis: bool
    episodes: NDArray[np.int64] | str | None


@dataclass(frozen=True, eq=False)
class Part:
    """One array of a window.

    Attributes
    ----------
    view : View
    runs : Runs
        Its episodes.
    offsets : range or tuple of int
        Its rows, counted from the anchor.
    time_axis : bool
        Whether rows are the first axis of the array; else there is one row.
    pad : bool
        Whether rows outside of the episode are its first or last one.
    """

    view: View
    runs: Runs
    offsets: Offsets
    time_axis: bool
    pad: bool

    @cached_property
    def spec(self) -> ArraySpec:
        """``(rows, *element)``, or one row."""
        return ArraySpec((*self._time, *self.view.element), self.view.dtype)

    @property
    def _time(self) -> tuple[int, ...]:
        return (len(self.offsets),) if self.time_axis else ()

    @property
    def reaches(self) -> bool:
        """Whether a row may lie outside of the episode: the anchor itself never does."""
        return self.pad and (len(self.offsets) > 1 or self.offsets[0] != 0)

    def rows(self, episodes: Ints | int, anchors: Ints) -> Ints:
        """Return the view's rows, shape (anchors, rows), of anchors counted in their episodes."""
        rows = anchors[:, None] + np.array(self.offsets, np.int64)
        if self.reaches:
            np.clip(rows, 0, self.runs.lengths[episodes][..., None] - 1, out=rows)
        rows += self.runs.starts[episodes][..., None]
        return rows

    def request(self, episodes: Ints | int, anchors: Ints) -> Request:
        """Return the rows at anchors: a box along the last sample axis, or each row by itself."""
        view, offsets = self.view, self.offsets
        extent, placement, length = view.extent, view.placement, len(offsets)
        regular = isinstance(offsets, range) and (length == 1 or isinstance(view.rows, range))
        if regular and self.reaches:
            # Without anchors, what holds for any: whoever asks whether boxes can be cut along time.
            last = anchors + offsets[-1] < self.runs.lengths[episodes]
            regular = len(anchors) > 0 and bool((anchors >= -offsets[0]).all() and last.all())
        if not (regular and isinstance(offsets, range)):
            numbers = self.rows(episodes, anchors).ravel()
        else:
            numbers = anchors + (self.runs.starts[episodes] + offsets[0])
            if length > 1 and isinstance(view.rows, range):
                step = view.rows.step * offsets.step * view.grid[-1].step
                if step < 0:  # the origin is the place with the lowest number
                    numbers += (length - 1) * offsets.step
                extent = extent.with_axis(view.axes[-1], length, abs(step))
                placement = self._reversed if step < 0 else self._forwards
        origins = view.origins(take(view.rows, numbers))
        shape = (len(anchors), *self._time, *view.element)
        return Request(view.source, origins, extent, shape, view.dtype, placement)

    @cached_property
    def _forwards(self) -> Placement:
        """Where the axes of storage lie in an element whose first axis is time."""
        of_row = self.view.placement
        axes = [None if axis is None else axis + 1 for axis in of_row.axes]
        axes[self.view.axes[-1]] = 0
        return Placement(tuple(axes), tuple(axis + 1 for axis in of_row.flipped))

    @cached_property
    def _reversed(self) -> Placement:
        """The same for windows of a reversed view, which are delivered reversed."""
        return replace(self._forwards, flipped=(0, *self._forwards.flipped))


class Mask(Part):
    """Which rows of one array of a window lie in the episode; the others repeat its edge."""

    @cached_property
    def spec(self) -> ArraySpec:
        """Bool, a number for each row."""
        return ArraySpec(self._time, np.dtype(np.bool_))

    def request(self, episodes: Ints | int, anchors: Ints) -> Request:
        """Return the numbers as boxes of an array in memory."""
        rows = anchors[:, None] + np.array(self.offsets, np.int64)
        inside = (rows >= 0) & (rows < self.runs.lengths[episodes][..., None])
        origins, shape = inside.reshape(-1, 1).astype(np.int64), (len(anchors), *self._time)
        return Request(_FLAGS, origins, Extent.of((1,)), shape, _FLAGS.dtype, Placement((None,)))


def _mask(part: Part) -> Mask:
    return Mask(**fields_of(part))


def with_masks(parts: Any) -> Any:
    """Return a tree of parts with masks of those that may repeat an edge: see `windows`."""

    def reach(tree: Any) -> bool:
        return any(part.reaches for part in leaves(tree))

    if isinstance(parts, dict):
        made: dict[str, Any] = {}
        for name, part in parts.items():
            made |= (
                {name: part, f"{name}_mask": map_tree(_mask, part)} if reach(part) else {name: part}
            )
            if reach(part) and f"{name}_mask" in parts:
                raise ArgumentError(
                    f"`windows` must not get an array of a mask's name, {name}_mask."
                )
        return made
    each = parts if isinstance(parts, tuple) else (parts,)
    return (*each, map_tree(_mask, each[-1])) if reach(each[-1]) else parts


@dataclass(frozen=True, eq=False)
class Anchors:
    """Where the windows of some arrays stand.

    Attributes
    ----------
    parts : tuple of Part
        Their episodes go together one by one.
    shift : int
        Rows from anchor to anchor.
    pad : bool
        Whether each row is an anchor that all arrays have. Else the anchors of an episode are the
        places around which all rows lie in it; they need not be rows themselves.
    """

    parts: tuple[Part, ...]
    shift: int
    pad: bool

    @property
    def low(self) -> int:
        """The first offset of all."""
        return min(part.offsets[0] for part in self.parts)

    @property
    def high(self) -> int:
        """The last offset of all."""
        return max(part.offsets[-1] for part in self.parts)

    @property
    def span(self) -> int:
        """Rows from the first to the last one that an element is made of, both counted."""
        return self.high - self.low + 1

    @cached_property
    def first(self) -> int:
        """The first anchor of an episode."""
        return 0 if self.pad else -self.low

    @cached_property
    def ends(self) -> Ints:
        """Windows up to the end of each episode, shape (episodes,)."""
        room = [part.runs.lengths - (0 if self.pad else part.offsets[-1]) for part in self.parts]
        return np.cumsum(
            np.maximum((np.minimum.reduce(room) - self.first - 1) // self.shift + 1, 0)
        )

    def count(self) -> int:
        """Return the number of windows; raise ArgumentError if episodes do not go together."""
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
        if self.pad and max(-self.low, self.high) >= REACH:
            raise ArgumentError("offsets must lie between -2**62 and 2**62; got longer ones.")
        fits = self.longest > 0 and (self.pad or self.span <= self.longest)
        return int(self.ends[-1]) if fits else 0

    @property
    def longest(self) -> int:
        """Rows of the longest episode."""
        return max(int(part.runs.lengths.max(initial=0)) for part in self.parts)

    @cached_property
    def _zeros(self) -> Ints:
        """The anchor that the first of all windows would have in each episode."""
        before = np.concatenate((np.zeros(1, np.int64), self.ends[:-1]))
        return self.first - before * self.shift

    def find(self, windows: Ints) -> tuple[Ints | int, Ints]:
        """Return the episode of each of all windows (0 of a single one), and its anchor there."""
        if len(self.ends) == 1:
            return 0, windows * self.shift + self.first
        episodes = self.ends.searchsorted(windows, side="right")
        return episodes, windows * self.shift + self._zeros[episodes]

    def between(self, chosen: Selection, gap: int) -> int:
        """Return how many windows to drop so that `gap` rows lie between neighbours, unused."""
        low, high, step = self.low, self.high, self.shift
        if self.pad:  # rows outside of the episode are rows between the anchor and its edge
            low, high = min(low, 0), max(high, 0)
        # A window at a uses no row after a + high; the next one kept, at b, none before b + low.
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
        # Across episodes anchors may lie closer than `shift`. Those dropped still keep their rows;
        # a padded one its anchor, unless a neighbour in the same episode reaches over it.
        if self.pad:
            return max(dropped, gap + high // step + -low // step)
        least = min(self.of_view(part.view).span for part in self.parts)
        return max(dropped, -(-gap // min(step, least)))

    def of_view(self, view: View) -> Anchors:
        """Return the anchors with the arrays of one view alone."""
        return replace(self, parts=tuple(part for part in self.parts if part.view is view))
