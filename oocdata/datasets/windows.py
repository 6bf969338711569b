"""Windows: runs of rows that make an element, never across an episode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from oocdata.blocks import ADDRESSABLE, BlockIds, Blocks
from oocdata.datasets.chunking import MOST_IDS
from oocdata.datasets.dataset import Dataset, Draw
from oocdata.datasets.episodes import Runs
from oocdata.datasets.request import Placement, Request
from oocdata.datasets.spec import ArraySpec, Batch, Spec
from oocdata.errors import ArgumentError, EmptyError
from oocdata.index import Selection, as_count, check_distinct, select, take

if TYPE_CHECKING:
    from oocdata.datasets.view import View

__all__ = ["Windows", "make_windows"]


def make_windows(
    view: View,
    inputs: int,
    targets: int,
    shift: int,
    stride: int,
    horizon: int,
    episodes: ArrayLike | str | None,
    *,
    time_axis: bool,
) -> Windows:
    """Check the arguments of `View.windows` and return the windows."""
    runs = view.runs(episodes)
    made = Windows(
        view,
        as_count("inputs", inputs),
        as_count("targets", targets, at_least=0),
        as_count("shift", shift),
        as_count("stride", stride),
        as_count("horizon", horizon),
        time_axis,
        runs,
        range(0),
        given_episodes=episodes is not None,
    )
    longest = int(runs.lengths.max(initial=0))
    if made.span > longest:
        raise EmptyError(
            f"a window must fit into the data; `inputs`={inputs}, `targets`={targets}, "
            f"`stride`={stride} and `horizon`={horizon} span {made.span} rows, and the longest "
            f"episode has {longest}. Ask for fewer rows, or a smaller stride or horizon."
        )
    return replace(made, chosen=range(int(made.ends[-1])))


@dataclass(frozen=True, eq=False, repr=False)
class Windows(Dataset):
    """Runs of a view's rows as elements: ``x (inputs, …)``, or ``(x, y (targets, …))``.

    Made by `View.windows` and `View.next_frame`.
    """

    view: View
    inputs: int
    targets: int
    shift: int
    stride: int
    horizon: int
    time_axis: bool
    runs: Runs
    chosen: Selection
    """Which of all windows, in order."""
    given_episodes: bool
    """Whether the user named the episodes."""

    _described = (
        "view", "inputs", "targets", "shift", "stride", "horizon", "time_axis", "chosen"
    )  # fmt: skip

    def __repr__(self) -> str:
        return f"<Windows: {len(self)} elements of {self.inputs}+{self.targets} rows>"

    def __len__(self) -> int:
        return len(self.chosen)

    @property
    def span(self) -> int:
        """Rows from the first input to the last row used, both counted."""
        inputs = (self.inputs - 1) * self.stride
        if self.targets == 0:
            return inputs + 1
        return inputs + self.horizon + (self.targets - 1) * self.stride + 1

    @cached_property
    def ends(self) -> NDArray[np.int64]:
        """Windows up to the end of each episode, shape (episodes,)."""
        counts = np.maximum((self.runs.lengths - self.span) // self.shift + 1, 0)
        return np.cumsum(counts)

    @cached_property
    def spec(self) -> Spec:
        """Shape and dtype of ``x``, or of ``x`` and ``y``."""
        view, lengths = self.view, (self.inputs, self.targets)[: 2 if self.targets else 1]
        shapes = [((length,) if self.time_axis else ()) + view.element for length in lengths]
        specs = tuple(ArraySpec(shape, view.dtype) for shape in shapes)
        return specs if self.targets else specs[0]

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Lengths of the view's sample axes, while all its windows are chosen."""
        whole = isinstance(self.chosen, range) and self.chosen == range(int(self.ends[-1]))
        return self.view.sample_shape if whole and not self.given_episodes else (len(self),)

    # Which boxes ---------------------------------------------------------------------------------

    def starts(self, windows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the view's position at which each of all windows starts."""
        if len(self.ends) == 1:
            return windows * self.shift + int(self.runs.starts[0])
        episode = np.searchsorted(self.ends, windows, side="right")
        before = np.where(episode > 0, self.ends[episode - 1], 0)
        return self.runs.starts[episode] + (windows - before) * self.shift

    def requests(self, positions: NDArray[np.int64], draw: Draw) -> tuple[Request, ...]:
        """Return the rows of the inputs, and of the targets if there are any."""
        starts = self.starts(take(self.chosen, positions))
        inputs = self._rows(starts, self.inputs)
        if not self.targets:
            return (inputs,)
        first = (self.inputs - 1) * self.stride + self.horizon
        return (inputs, self._rows(starts + first, self.targets))

    def _rows(self, starts: NDArray[np.int64], length: int) -> Request:
        """Return windows of so many rows: boxes along the last sample axis, or their rows."""
        view = self.view
        time = (length,) if self.time_axis else ()
        shape = (len(starts), *time, *view.element)
        extent, placement = view.extent, view.placement
        if length > 1 and isinstance(view.rows, range):
            step = view.rows.step * self.stride * view.grid[-1].step
            if step < 0:  # the origin is the place with the lowest number
                starts = starts + (length - 1) * self.stride
            extent = extent.with_axis(view.axes[-1], length, abs(step))
            placement = self._reversed if step < 0 else self._forwards
        elif length > 1:  # rows chosen one by one: each is a box of its own
            starts = (starts[:, None] + np.arange(length) * self.stride).ravel()
        origins = view.origins(take(view.rows, starts))
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

    def assemble(self, arrays: Iterator[NDArray[Any]], draw: Draw) -> Batch:
        """Return ``x``, or ``(x, y)``."""
        return (next(arrays), next(arrays)) if self.targets else next(arrays)

    @cached_property
    def blocks(self) -> Blocks | BlockIds:
        """Windows that start in one storage chunk: the blocks of the rows at which they start."""
        view, chosen = self.view, self.chosen
        if view.blocks == ADDRESSABLE or len(self) == 0:
            return ADDRESSABLE
        if isinstance(chosen, range):
            if len(self.ends) == 1:
                start, step = int(self.starts(np.array(chosen[:1]))[0]), self.shift * chosen.step
                return view._select(range(start, start + len(self) * step, step)).blocks
            if len(view.sample_shape) > 1 and not self.given_episodes:
                last = view.grid[-1][: int(self.ends[0]) * self.shift : self.shift]
                return replace(view._with_places(view.axes[-1], last), rows=chosen).blocks
            if len(self) > MOST_IDS and isinstance(view.blocks, Blocks):
                length = max(1, view.blocks.length // (self.shift * abs(chosen.step)))
                return Blocks(length, length)
        return view._select(self.starts(np.asarray(chosen, np.int64))).blocks

    # Other windows -------------------------------------------------------------------------------

    def _select(self, positions: Selection) -> Self:
        return replace(self, chosen=select(self.chosen, positions))

    def _split_axis(
        self, sizes: Sequence[float], gap: int, axis: int | str | None
    ) -> tuple[Self, ...]:
        parts = self.view.split(*sizes, gap=gap, axis=axis)
        given = (self.inputs, self.targets, self.shift, self.stride, self.horizon)
        made = [make_windows(part, *given, None, time_axis=self.time_axis) for part in parts]
        return tuple(made)  # type: ignore[arg-type]  # Self is Windows: it has no subclasses

    def _check_split_axis(self, axis: int | str | None) -> None:
        self.view._check_split_axis(axis)

    def _row_places(self, axis: int | str | None) -> NDArray[np.int64]:
        return self.view._row_places(axis)

    def _made_of(self, rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
        starts = self.starts(np.asarray(self.chosen, np.int64))
        first = (self.inputs - 1) * self.stride + self.horizon
        made = np.ones(len(starts), np.bool_)
        for offset in [
            *(number * self.stride for number in range(self.inputs)),
            *(first + number * self.stride for number in range(self.targets)),
        ]:
            made &= rows[starts + offset]
        return made

    def _first_rows(self) -> list[tuple[View, Selection]]:
        starts = self.starts(np.asarray(self.chosen, np.int64))
        return [(self.view, take(self.view.rows, starts))]

    def _gap_positions(self, gap: int) -> int:
        check_distinct(self.view.rows)
        # Element b starts at row b * shift; the last one before it, a, ends at a * shift + span.
        step = self.shift
        if isinstance(self.chosen, range):
            step *= abs(self.chosen.step)
        else:
            steps = np.diff(self.chosen)
            if not (np.all(steps > 0) or np.all(steps < 0)):
                raise ArgumentError(
                    "windows must be in ascending or descending order to be split without sharing "
                    "a row; these were selected in another order. Split first, then select."
                )
        dropped = max(0, -(-(self.span + gap) // step) - 1)
        if len(self.runs.starts) == 1:
            return dropped
        # Across episodes elements may lie closer than `shift`; those dropped still keep their rows.
        return max(dropped, -(-gap // min(step, self.span)))

    def describe(self) -> dict[str, Any]:
        """Return what the windows are made of; the runs that sample axes give need not be told."""
        return {
            **super().describe(),
            "episodes": self.runs.lengths if self.given_episodes else None,
        }

    @classmethod
    def of_description(cls, described: dict[str, Any]) -> Self:
        """Return the windows that `describe` told of; the view is made already."""
        names = ("view", "inputs", "targets", "shift", "stride", "horizon", "episodes")
        made = make_windows(*(described[name] for name in names), time_axis=described["time_axis"])
        return replace(made, chosen=described["chosen"])  # type: ignore[return-value]
