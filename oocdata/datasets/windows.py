"""Windows: rows at offsets from an anchor, never across an episode.

An *anchor* is a place in an episode. Each array of an element is made of the rows at its *offsets*
from there. Numbers of inputs and targets, strides, horizons, lags given one by one, and several
arrays over the same rows are ways to write offsets: the arithmetic is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from oocdata.blocks import ADDRESSABLE, BlockIds, Blocks
from oocdata.datasets.anchors import Anchors, Mask, Part, with_masks
from oocdata.datasets.chunking import MOST_IDS
from oocdata.datasets.dataset import Dataset, Draw
from oocdata.datasets.offsets import as_offsets, as_rows, as_whole, each_array, is_listed
from oocdata.datasets.request import Request
from oocdata.datasets.spec import Batch, Spec, leaves, map_tree
from oocdata.datasets.splits import split_ranges
from oocdata.errors import ArgumentError, EmptyError
from oocdata.index import Selection, as_count, check_distinct, compose_ranges, select, take

if TYPE_CHECKING:
    from oocdata.datasets.view import View

__all__ = ["Windows", "windows_of_several", "windows_of_view"]


def windows_of_view(
    view: View,
    inputs: int | Sequence[int],
    targets: int | Sequence[int],
    shift: int,
    stride: int,
    horizon: int,
    episodes: ArrayLike | str | None,
    *,
    time_axis: bool = True,
    pad: bool = False,
    mask: bool = True,
) -> Windows:
    """Check the arguments of `View.windows` and return the windows."""
    stride, horizon = as_count("stride", stride), as_whole("horizon", horizon)
    x = as_rows("inputs", inputs, stride)
    if is_listed(targets):
        y = as_offsets("targets", targets)
    else:
        first, number = x[-1] + horizon, as_count("targets", targets, at_least=0)
        y = range(first, first + number * stride, stride)
    idle = {"horizon": is_listed(targets), "stride": is_listed(inputs)}
    idle["stride"] &= is_listed(targets) or not y
    for name, value in {"stride": stride, "horizon": horizon}.items():
        if idle[name] and value != 1:
            raise ArgumentError(
                f"`{name}` must be left out where offsets are given one by one; got {value!r}."
            )
    asked = {
        "view": view,
        "inputs": x if is_listed(inputs) else len(x),
        "targets": y if is_listed(targets) else len(y),
        "shift": shift,
        "stride": stride,
        "horizon": horizon,
        "time_axis": time_axis,
    }
    runs = view.runs(episodes)
    parts = tuple(Part(view, runs, offsets, time_axis, pad) for offsets in (x, y) if offsets)
    return _fitting(parts if y else parts[0], asked, episodes is not None, pad=pad, mask=mask)


def windows_of_several(
    parts: Any,
    shift: int,
    episodes: Sequence[ArrayLike | str | None] | None,
    *,
    time_axis: bool,
    pad: bool = False,
    mask: bool = True,
) -> Windows:
    """Check the arguments of `oocdata.windows`, with `episodes` of each array."""
    each, known = iter(episodes or ()), dict[int, Any]()

    def words(view: View, given: Any) -> Any:
        return view if given is None else (view, as_rows("offsets", given))

    def part(view: View, given: Any) -> Part:
        if episodes is None and id(view) not in known:
            known[id(view)] = view.runs(None)
        runs = known[id(view)] if episodes is None else view.runs(next(each))
        offsets = range(1) if given is None else given
        return Part(view, runs, offsets, given is not None and (time_axis or len(given) > 1), pad)

    asked = {"parts": each_array(parts, words), "shift": shift, "time_axis": time_axis}
    made = each_array(asked["parts"], part)
    return _fitting(made, asked, episodes is not None, pad=pad, mask=mask)


def _fitting(parts: Any, asked: dict[str, Any], given: bool, *, pad: bool, mask: bool) -> Windows:
    """Return all windows that fit, if there are any."""
    for name, value in {"pad": pad, "mask": mask}.items():
        if not isinstance(value, bool):
            raise ArgumentError(f"`{name}` must be True or False; got {value!r}.")
    anchors = Anchors(tuple(leaves(parts)), as_count("shift", asked["shift"]), pad)
    layout = with_masks(parts) if pad and mask else parts
    asked |= {"pad": pad, "mask": mask} if pad else {}
    if not (number := anchors.count()):
        names = ("inputs", "targets", "stride", "horizon")
        said = ", ".join(f"`{name}`={asked[name]}" for name in names if name in asked)
        raise EmptyError(
            f"a window must fit into the data; {said or 'the offsets'} span {anchors.span} rows, "
            f"and the longest episode has {anchors.longest}. Ask for fewer rows, a smaller stride "
            "or horizon; or repeat rows at the edges, `pad=True`."
        )
    return Windows(anchors, layout, range(number), given, asked)


@dataclass(frozen=True, eq=False, repr=False)
class Windows(Dataset):
    """Rows at offsets from an anchor as elements; see `View.windows` and `oocdata.windows`.

    Attributes
    ----------
    anchors : Anchors
        Where they stand, and the arrays that are read around each.
    layout : tree of Part and Mask
        The element.
    chosen : range or ndarray of int64
        Which of all windows, in order.
    given_episodes : bool
        Whether the user named the episodes.
    asked : dict
        What it was made from, by the names of public arguments.
    """

    anchors: Anchors
    layout: Any
    chosen: Selection
    given_episodes: bool
    asked: dict[str, Any]

    def __repr__(self) -> str:
        rows = "+".join(str(len(part.offsets)) for part in self.anchors.parts)
        padded = ", padded" if self.anchors.pad else ""
        return f"<Windows: {len(self)} elements of {rows} rows{padded}>"

    def __len__(self) -> int:
        return len(self.chosen)

    @cached_property
    def _members(self) -> list[View]:  # each once
        return list({id(part.view): part.view for part in self.anchors.parts}.values())

    @property
    def view(self) -> Any:
        """The View that all arrays are made of; None where they are several."""
        return self._members[0] if len(self._members) == 1 else None

    @property
    def span(self) -> int:
        """Rows from the first to the last one that an element is made of, both counted."""
        return self.anchors.span

    @property
    def time_axes(self) -> tuple[bool, ...]:
        """Whether the first axis of each array is time."""
        parts = [leaf.part if isinstance(leaf, Mask) else leaf for leaf in self._leaves]
        return tuple(part.time_axis for part in parts)

    @cached_property
    def spec(self) -> Spec:
        """Shapes and dtypes of the arrays and masks."""
        spec: Spec = map_tree(lambda leaf: leaf.spec, self.layout)
        return spec

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Lengths of the views' sample axes, while all their windows are chosen."""
        shapes = [view.sample_shape for view in self._members]
        whole = isinstance(self.chosen, range) and self.chosen == range(int(self.anchors.ends[-1]))
        alike = len({shape[:-1] for shape in shapes}) == 1
        return min(shapes) if whole and alike and not self.given_episodes else (len(self),)

    # Which boxes ---------------------------------------------------------------------------------

    def starts(self, windows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the row of the first array at which each of all windows starts."""
        return self.anchors.parts[0].rows(*self.anchors.find(windows))[:, 0]

    @cached_property
    def _leaves(self) -> list[Part | Mask]:
        return list(leaves(self.layout))

    def rows(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the views' rows that elements are made of, array by array, shape (n, rows)."""
        where = self.anchors.find(take(self.chosen, positions))
        return np.concatenate([part.rows(*where) for part in self.anchors.parts], axis=1)

    def requests(self, positions: NDArray[np.int64], draw: Draw) -> tuple[Request, ...]:
        """Return the rows of each array, and the numbers of each mask."""
        episodes, anchors = self.anchors.find(take(self.chosen, positions))
        return tuple([leaf.request(episodes, anchors) for leaf in self._leaves])

    def assemble(self, arrays: Iterator[NDArray[Any]], draw: Draw) -> Batch:
        """Return one array, a tuple or a dict."""
        batch: Batch = map_tree(lambda _: next(arrays), self.layout)
        return batch

    @cached_property
    def blocks(self) -> Blocks | BlockIds:
        """Windows that start in one storage chunk: the blocks of the rows at which they start.

        Of several views, in the one that costs most to read badly. A padded window starts at its
        anchor, so that windows are as regular as rows.
        """
        worst, chosen, anchors = super().blocks, self.chosen, self.anchors
        if worst == ADDRESSABLE or len(self) == 0:
            return ADDRESSABLE
        view = next(view for view in self._members if view.blocks is worst)
        own = anchors.of_view(view)
        ends, shift, beyond = anchors.ends, anchors.shift, 0 if anchors.pad else own.low
        if isinstance(chosen, range):
            first = anchors.first + beyond
            if len(ends) == 1:
                start, step = int(chosen[0]) * shift + first, shift * chosen.step
                return view._select(range(start, start + len(self) * step, step)).blocks
            if anchors.pad and shift == 1 and int(ends[-1]) == len(view):
                return view._select(chosen).blocks  # every row starts one
            if len(view.sample_shape) > 1 and not self.given_episodes:
                places = view.grid[-1][first : first + int(ends[0]) * shift : shift]
                return replace(view._with_places(view.axes[-1], places), rows=chosen).blocks
            if len(self) > MOST_IDS and isinstance(worst, Blocks):
                length = max(1, worst.length // (shift * abs(chosen.step)))
                return Blocks(length, length)
        episodes, at = anchors.find(np.asarray(chosen, np.int64))
        return view._select(at + (own.parts[0].runs.starts[episodes] + beyond)).blocks

    @property
    def _can_cut(self) -> list[bool]:
        return [isinstance(leaf, Part) for leaf in self._leaves]

    # Other windows -------------------------------------------------------------------------------

    def _select(self, positions: Selection) -> Self:
        return replace(self, chosen=select(self.chosen, positions))

    def of_views(self, change: Callable[[View], View]) -> Self:
        """Return the same windows of changed views, which have the same rows."""
        made = {id(view): change(view) for view in self._members}
        parts = {part: replace(part, view=made[id(part.view)]) for part in self.anchors.parts}
        layout = map_tree(
            lambda leaf: Mask(parts[leaf.part]) if isinstance(leaf, Mask) else parts[leaf],
            self.layout,
        )
        anchors = replace(self.anchors, parts=tuple(parts.values()))
        return replace(self, anchors=anchors, layout=layout, asked=_of_views(self.asked, made))

    def _split_axis(
        self, sizes: Sequence[float], gap: int, axis: int | str | None
    ) -> tuple[Self, ...]:
        self._check_rows()
        at = 0 if axis is None else self._members[0].axis_place(axis)
        lengths = [len(view.grid[at]) for view in self._members]
        made = []
        for part in split_ranges(min(lengths), sizes, gap):
            views = {}
            for view, length in zip(self._members, lengths, strict=True):
                # The row that one array is longer by belongs to the last part.
                stop = length if part.stop == min(lengths) else part.stop
                places = compose_ranges(view.grid[at], range(part.start, stop))
                kept = view._with_places(view.axes[at], places)
                views[id(view)] = replace(kept, rows=range(prod(map(len, kept.grid))))
            made.append(_of_words({**_of_views(self.asked, views), "episodes": None}))
        return tuple(made)  # type: ignore[arg-type]  # Self is Windows: it has no subclasses

    def _check_split_axis(self, axis: int | str | None) -> None:
        self._members[0]._check_split_axis(axis)

    def _check_rows(self) -> None:
        """Raise if two parts of a split could share a row, because views chose it twice."""
        known: dict[int, View] = {}
        for view in self._members:
            check_distinct(view.rows)
            other = known.setdefault(id(view.source), view)
            if (view.axes, view.grid) != (other.axes, other.grid) or not _equal(view, other):
                raise ArgumentError(
                    "views of one array must have the same rows for their windows to be split "
                    "without sharing one. Give the one view at several offsets: (view, (1,))."
                )

    @property
    def _leading(self) -> Part:
        """The array whose rows have ids where windows are split by them: the longest."""
        return max(self.anchors.parts, key=lambda part: len(part.view))

    def _row_places(self, axis: int | str | None) -> NDArray[np.int64]:
        self._check_rows()
        return self._leading.view._row_places(axis)

    def _made_of(self, rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
        episodes, anchors = self.anchors.find(np.asarray(self.chosen, np.int64))
        starts, made = self._leading.runs.starts[episodes], np.ones(len(anchors), np.bool_)
        for part in self.anchors.parts:  # row i of an episode goes with row i of the others'
            moved = np.asarray(starts - part.runs.starts[episodes])
            made &= rows[part.rows(episodes, anchors) + moved[..., None]].all(axis=1)
        return made

    def _first_rows(self) -> list[tuple[View, Selection]]:
        where = self.anchors.find(np.asarray(self.chosen, np.int64))
        found: list[tuple[View, Selection]] = []
        for view in self._members:
            own = min(self.anchors.of_view(view).parts, key=lambda part: part.offsets[0])
            found.append((view, take(view.rows, own.rows(*where)[:, 0])))
        return found

    def _gap_positions(self, gap: int) -> int:
        self._check_rows()
        return self.anchors.between(self.chosen, gap)

    def describe(self) -> dict[str, Any]:
        """Return what the windows are made of; the runs that sample axes give need not be told."""
        asked = map_tree(
            lambda part: part.describe() if isinstance(part, Dataset) else part, self.asked
        )
        each = [part.runs.given() for part in self.anchors.parts]
        episodes = each[0] if "view" in asked else each
        given = episodes if self.given_episodes else None
        return {"kind": "windows", **asked, "chosen": self.chosen, "episodes": given}

    @classmethod
    def of_description(cls, described: dict[str, Any]) -> Self:
        """Return the windows that `describe` told of; the views are made already."""
        chosen = described.pop("chosen")
        return replace(_of_words(described), chosen=chosen)  # type: ignore[return-value]


def _equal(view: View, other: View) -> bool:
    """Return whether the rows chosen are the same, and in one order."""
    if isinstance(view.rows, range) or isinstance(other.rows, range):
        return isinstance(view.rows, range) and view.rows == other.rows
    return np.array_equal(view.rows, other.rows)


def _of_words(asked: dict[str, Any]) -> Windows:
    """Return windows by the names of the arguments that make them."""
    return windows_of_view(**asked) if "view" in asked else windows_of_several(**asked)


def _of_views(asked: dict[str, Any], made: dict[int, View]) -> dict[str, Any]:
    """Return arguments with other views in place of those of these ids."""
    changed: dict[str, Any] = map_tree(lambda leaf: made.get(id(leaf), leaf), asked)
    return changed
