"""Define `Windows`: elements made of rows at offsets from an anchor, within one episode.

An *anchor* is a row of an episode. Numbers of inputs and targets, strides, horizons and explicit
lags all become *offsets* from it, so there is only one arithmetic. The episode is found once per
window, for all its arrays. Memory is proportional to the number of episodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from oocdata.blocks import ADDRESSABLE, AnyBlocks, Blocks, blocks_from_ids
from oocdata.box import Ints
from oocdata.datasets.array_rows import MOST_IDS
from oocdata.datasets.dataset import Dataset, Draw
from oocdata.datasets.episodes import Episodes
from oocdata.datasets.request import Request
from oocdata.datasets.shared_rows import Rows, check_direction
from oocdata.datasets.spec import Spec, leaves, map_tree
from oocdata.datasets.window_arrays import AnchoredArray, WindowArray, with_masks
from oocdata.errors import ArgumentError
from oocdata.index import Selection, as_numbers, compose_ranges, is_all, select, shifted, take
from oocdata.threads import cached_property

if TYPE_CHECKING:
    from oocdata.datasets.view import View


@dataclass(frozen=True, eq=False, repr=False)
class Windows(Dataset):
    """Elements made of rows at offsets from an anchor; see `View.windows` and `oocdata.windows`.

    Attributes
    ----------
    views : tuple of View
        The distinct Views of all arrays.
    arrays : tree of WindowArray
        The arrays of an element, without masks.
    shift : int
        Distance in rows between consecutive anchors.
    pad : bool
        Whether there are windows at the edges of an episode, which repeat its first or last row.
    mask : bool
        Whether padded windows have masks.
    chosen : range or ndarray of int64
        Numbers of the selected windows, in order.
    """

    views: tuple[View, ...]
    arrays: Any
    shift: int
    pad: bool
    mask: bool
    chosen: Selection

    def __repr__(self) -> str:
        rows = "+".join(str(len(array.offsets)) for array in self.anchored)
        padded = ", padded" if self.pad else ""
        return f"<Windows: {len(self)} elements of {rows} rows{padded}>"

    def __len__(self) -> int:
        return len(self.chosen)

    @property
    def _members(self) -> tuple[View, ...]:
        return self.views

    @cached_property
    def _tree(self) -> Any:
        """Arrays of an element, without masks, as a tree of `AnchoredArray`."""

        def anchor(array: WindowArray) -> AnchoredArray:
            view = self.views[array.view]
            own = self._default_episodes(view) if array.episodes is None else array.episodes
            return AnchoredArray(view, own, array.offsets, array.time_axis, self.pad)

        return map_tree(anchor, self.arrays)

    def _default_episodes(self, view: View) -> Episodes:
        """Return the episodes of a view; of one without, those of another of as many rows.

        So labels of each row need no `episodes` beside the frames of films.
        """
        own = view.default_episodes
        others = [other.default_episodes for other in self.views if len(other) == len(view)]
        several = [other for other in others if len(other.lengths) > 1]
        return several[0] if several and len(own.lengths) == 1 else own

    @cached_property
    def anchored(self) -> tuple[AnchoredArray, ...]:
        """Arrays that are read around each anchor. Episode i of each belongs together."""
        return tuple(leaves(self._tree))

    @cached_property
    def layout(self) -> Any:
        """Arrays of an element with their masks, as a tree of `AnchoredArray` and `Mask`."""
        return with_masks(self._tree) if self.pad and self.mask else self._tree

    @property
    def explicit_episodes(self) -> bool:
        """Whether the caller specified the episodes."""
        return any(array.episodes is not None for array in leaves(self.arrays))

    @property
    def view(self) -> Any:
        """The View of all arrays, or None if there are several."""
        return self._members[0] if len(self._members) == 1 else None

    @property
    def time_axes(self) -> tuple[bool, ...]:
        """Whether the first axis of each array is time."""
        return tuple(leaf.time_axis for leaf in self._leaves)

    @cached_property
    def spec(self) -> Spec:
        return map_tree(lambda leaf: leaf.spec, self.layout)

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Lengths of the views' sample axes; ``(len,)`` after a selection of windows."""
        shapes = [view.sample_shape for view in self._members]
        whole = is_all(self.chosen, int(self.ends[-1]))
        same_outer = len({shape[:-1] for shape in shapes}) == 1
        return min(shapes) if whole and same_outer and not self.explicit_episodes else (len(self),)

    # Anchors -------------------------------------------------------------------------------------

    @cached_property
    def first(self) -> int:
        """First anchor of an episode.

        With `pad`, each row that all arrays have is an anchor. Otherwise anchors are the positions
        from which all offsets are inside the episode; an anchor itself may be outside.
        """
        return 0 if self.pad else -_low(self.anchored)

    @cached_property
    def ends(self) -> Ints:
        """Number of windows up to the end of each episode, shape (episodes,)."""
        last = [0 if self.pad else array.offsets[-1] for array in self.anchored]
        counts = ((self._lengths.T - last).min(axis=1) - self.first - 1) // self.shift + 1
        return np.cumsum(np.maximum(counts, 0))

    @property
    def _lengths(self) -> Ints:
        """Length of each episode of each array, shape (arrays, episodes)."""
        return np.array([array.episodes.lengths for array in self.anchored])

    def count(self) -> int:
        """Return the number of windows; raise ArgumentError if episodes of arrays differ."""
        numbers = [len(array.episodes.starts) for array in self.anchored]
        if len(set(numbers)) > 1:
            raise ArgumentError(
                "arrays of an element must have equally many episodes, because episode i of each "
                f"goes together; got {', '.join(map(str, numbers))}."
            )
        lengths = self._lengths
        uneven = np.flatnonzero(np.ptp(lengths, axis=0) > 1)
        if len(uneven):
            raise ArgumentError(
                "arrays of an element must have episodes of the same length, or one row longer "
                f"(the states beside the actions); those of episode {uneven[0]} are "
                f"{', '.join(map(str, lengths[:, uneven[0]]))}. Cut them, or give `episodes`."
            )
        fits = self.longest > 0 and (self.pad or self.span <= self.longest)
        return int(self.ends[-1]) if fits else 0

    @property
    def span(self) -> int:
        """Number of rows from the first to the last row of a window, inclusive."""
        return _span(self.anchored)

    @property
    def longest(self) -> int:
        """Number of rows of the longest episode."""
        return int(self._lengths.max(initial=0))

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

    # Rows and boxes ------------------------------------------------------------------------------

    @cached_property
    def _leaves(self) -> list[AnchoredArray]:
        return list(leaves(self.layout))

    def rows(self, positions: Ints) -> Ints:
        """Return the views' row numbers in each element, array by array, shape (n, rows)."""
        where = self.find(take(self.chosen, positions))
        return np.concatenate([array.rows(*where) for array in self.anchored], axis=1)

    def requests(self, positions: Ints, draw: Draw) -> tuple[Request, ...]:
        episodes, anchors = self.find(take(self.chosen, positions))
        return tuple([leaf.request(episodes, anchors) for leaf in self._leaves])

    @cached_property
    def blocks(self) -> AnyBlocks:
        """Blocks of windows that start in one storage chunk.

        With several views, of the view whose blocks are largest. A padded window is assigned to the
        block of its anchor, because windows are then as regular as rows.
        """
        largest, chosen, shift = super().blocks, self.chosen, self.shift
        if largest == ADDRESSABLE or len(self) == 0:
            return ADDRESSABLE
        view = next(view for view in self.views if view.blocks is largest)
        of_view = [array for array in self.anchored if array.view is view]
        first = self.first + (0 if self.pad else _low(of_view))  # of window 0 in its episode
        if isinstance(chosen, range) and len(self.ends) == 1:
            start, step = int(chosen[0]) * shift + first, shift * chosen.step
            return view._select(range(start, start + len(self) * step, step)).blocks
        if isinstance(chosen, range) and len(self) > MOST_IDS and isinstance(largest, Blocks):
            length = max(1, largest.length // (shift * abs(chosen.step)))
            return Blocks(length, length)
        starts = of_view[0].episodes.starts + first - self.first

        def chunks(positions: Ints) -> Ints:
            episodes, anchors = self.find(take(chosen, positions))
            return view.chunk_ids(take(view.rows, anchors + starts[episodes]))

        return blocks_from_ids(len(self), chunks)

    # Selections and splits -----------------------------------------------------------------------

    def _select(self, positions: Selection) -> Self:
        return replace(self, chosen=select(self.chosen, positions))

    def _select_along(self, at: int, places: range) -> Self:
        if at == len(self.sample_shape) - 1:  # windows of cut views would begin at the cut
            return super()._select_along(at, places)
        views = tuple(view._select_along(at, places) for view in self._members)
        windows = replace(self, views=views)
        return replace(windows, chosen=range(windows.count()))

    _elements_are_rows = False

    @property
    def _longest(self) -> AnchoredArray:
        """The longest array; ids of rows for a split refer to its rows."""
        return max(self.anchored, key=lambda array: len(array.view))

    def _row_positions(self, at: int) -> Selection:
        return self._longest.view._row_positions(at)

    def _rows(self, positions: Selection, *, ids: bool = False) -> Iterator[Rows]:
        chosen, starts = select(self.chosen, positions), self._longest.episodes.starts
        episodes: Ints | int = 0
        anchors: Selection
        if isinstance(chosen, range) and len(self.ends) == 1:
            anchors = compose_ranges(range(self.first, self.first + 1, self.shift), chosen)
        else:
            episodes, anchors = self.find(as_numbers(chosen))
        for array in self.anchored:
            # Row i of an episode belongs to row i of the episode in other arrays.
            shift = starts[episodes] - array.episodes.starts[episodes]
            for offsets in [(each,) for each in array.offsets] if self.pad else [array.offsets]:
                first, moves = offsets[0], tuple(offset - offsets[0] for offset in offsets)
                if isinstance(anchors, range) and not self.pad:
                    numbers: Selection = shifted(anchors, first + int(array.episodes.starts[0]))
                else:
                    one = replace(array, offsets=(first,))
                    numbers = one.rows(episodes, as_numbers(anchors))[:, 0]
                yield Rows(array.view, numbers, range(len(chosen)), moves, shift)

    def _positions_to_drop(self, gap: int) -> int:
        chosen, step = self.chosen, self.shift
        low, high = _low(self.anchored), _high(self.anchored)
        if self.pad:  # offsets outside the episode give a row between the anchor and the edge
            low, high = min(low, 0), max(high, 0)
        # A window at a uses rows up to a + high; the next one kept, at b, rows from b + low on.
        span = high - low + 1
        check_direction("windows", chosen)
        if isinstance(chosen, range):
            step *= abs(chosen.step)
        dropped = max(0, -(-(span + gap) // step) - 1)
        if len(self.ends) == 1 or gap == 0:
            return dropped
        # Across episodes, anchors may be closer than `shift`. Dropped windows leave at least their
        # own rows unused; a padded one its anchor, unless a neighbour in its episode covers it.
        if self.pad:
            return max(dropped, gap + high // step + -low // step)
        least = min(
            _span([array for array in self.anchored if array.view is view]) for view in self.views
        )
        return max(dropped, -(-gap // min(step, least)))


def _low(arrays: Sequence[AnchoredArray]) -> int:
    return min(array.offsets[0] for array in arrays)


def _high(arrays: Sequence[AnchoredArray]) -> int:
    return max(array.offsets[-1] for array in arrays)


def _span(arrays: Sequence[AnchoredArray]) -> int:
    """Return the number of rows from the first to the last row of some arrays, inclusive."""
    return _high(arrays) - _low(arrays) + 1
