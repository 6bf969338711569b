"""Windows: runs of rows that make an element, never across an episode."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from oocdata.datasets.dataset import Blocks, Dataset, Draw, Request
from oocdata.datasets.spec import ArraySpec, Batch, Spec
from oocdata.errors import ArgumentError, EmptyError
from oocdata.index import Selection, as_count, check_distinct, select, take
from oocdata.sources.source import Source

__all__ = ["Runs", "Windows", "episode_runs", "part_runs"]


class _Rows(Protocol):
    """What windows need of a view."""

    @property
    def source(self) -> Source: ...
    @property
    def rows(self) -> Selection: ...
    @property
    def blocks(self) -> Blocks: ...


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """Episodes as runs of positions: O(episodes) memory, whatever their lengths.

    Attributes
    ----------
    starts, lengths : ndarray of int64, shape (episodes,)
    """

    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]


def episode_runs(episodes: ArrayLike | None, rows: int) -> Runs:
    """Return episodes given as lengths, or as an id for each row, as runs.

    Raises
    ------
    oocdata.errors.ArgumentError
        If lengths don't sum to `rows`, or an id comes back after another one.

    Examples
    --------
    >>> episode_runs([3, 4], 7).starts
    array([0, 3])
    >>> episode_runs([5, 5, 5, 8, 8, 8, 8], 7).lengths
    array([3, 4])
    """
    if episodes is None:
        return Runs(np.zeros(1, np.int64), np.array([rows], np.int64))
    try:
        given = np.asarray(episodes if np.size(episodes) else np.zeros(0, np.int64))
    except ValueError as error:
        raise ArgumentError(f"`episodes` must be integers in one dimension; {error}.") from error
    if given.ndim != 1 or given.dtype.kind not in "iu":
        raise ArgumentError(
            "`episodes` must be integers in one dimension, lengths or an id for each row; got "
            f"{given.dtype} of shape {given.shape}."
        )
    values = given.astype(np.int64)
    # (As many lengths as rows would all be 1, where no window fits.)
    if rows == 0 or len(values) != rows:
        if values.sum() != rows or (values < 1).any() or (values > rows).any():
            raise ArgumentError(
                f"`episodes` must be lengths that sum to the {rows} rows, or {rows} ids; got "
                f"{len(values)} numbers with a sum of {int(values.sum())}."
            )
        return Runs(np.cumsum(values) - values, values)
    starts = np.concatenate(([0], np.flatnonzero(np.diff(values)) + 1))
    if len(np.unique(values[starts])) != len(starts):
        raise ArgumentError(
            "`episodes` must keep the rows of an episode side by side; an id comes back after "
            "another one. Give every stretch its own id."
        )
    return Runs(starts, np.diff(np.append(starts, rows)))


def part_runs(part_starts: Sequence[int], rows: Selection) -> Runs:
    """Return the runs of chosen rows that lie in one part each, e.g. in one file.

    Raises
    ------
    oocdata.errors.ArgumentError
        If the rows come back to a part after another one.

    Examples
    --------
    >>> part_runs((0, 10, 20), range(25, 5, -2)).lengths
    array([3, 5, 2])
    """
    if not isinstance(rows, range):
        return episode_runs(np.searchsorted(part_starts, rows, side="right"), len(rows))
    # By bisection: ids for each of 10⁹ rows would take gigabytes.
    ascending = rows if rows.step > 0 else rows[::-1]
    bounds = [bisect_left(ascending, start) for start in part_starts]
    lengths = np.diff([*bounds, len(rows)])[:: 1 if rows.step > 0 else -1]
    lengths = lengths[lengths > 0]
    return Runs(np.cumsum(lengths) - lengths, lengths)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Windows(Dataset):
    """Runs of a view's rows as elements: ``x (inputs, …)``, or ``(x, y (targets, …))``.

    Made by `View.windows` and `View.next_frame`. Positions are arithmetic: a window over 10⁹ rows
    costs nothing.
    """

    view: _Rows
    inputs: int
    targets: int
    shift: int
    dilation: int
    horizon: int
    time_axis: bool
    runs: Runs
    ends: NDArray[np.int64]
    """Elements up to the end of each episode, shape (episodes,)."""
    chosen: Selection
    """Which of all elements, in order."""

    @classmethod
    def of(
        cls,
        view: _Rows,
        inputs: int,
        targets: int,
        shift: int,
        dilation: int,
        horizon: int,
        runs: Runs,
        *,
        time_axis: bool,
    ) -> Windows:
        """Check the arguments and count the elements of each episode."""
        made = cls(
            view,
            as_count("inputs", inputs),
            as_count("targets", targets, at_least=0),
            as_count("shift", shift),
            as_count("dilation", dilation),
            as_count("horizon", horizon),
            time_axis,
            runs,
            np.zeros(0, np.int64),
            range(0),
        )
        longest = int(runs.lengths.max(initial=0))
        if made.span > longest:
            raise EmptyError(
                f"a window must fit into the data; it spans {made.span} rows and the longest run "
                f"has {longest}. Ask for fewer inputs or targets, or a smaller dilation or horizon."
            )
        counts = np.maximum((runs.lengths - made.span) // made.shift + 1, 0)
        return replace(made, ends=np.cumsum(counts), chosen=range(int(counts.sum())))

    def __repr__(self) -> str:
        return f"<Windows: {len(self)} elements of {self.inputs}+{self.targets} rows>"

    def __len__(self) -> int:
        return len(self.chosen)

    @property
    def span(self) -> int:
        """Rows from the first input to the last row used, both counted."""
        inputs = (self.inputs - 1) * self.dilation
        if self.targets == 0:
            return inputs + 1
        return inputs + self.horizon + (self.targets - 1) * self.dilation + 1

    @property
    def spec(self) -> Spec:
        """Shape and dtype of ``x``, or of ``x`` and ``y``."""
        element, dtype = self.view.source.shape[1:], self.view.source.dtype
        if not self.time_axis:
            return (ArraySpec(element, dtype), ArraySpec(element, dtype))
        x = ArraySpec((self.inputs, *element), dtype)
        return (x, ArraySpec((self.targets, *element), dtype)) if self.targets else x

    @property
    def blocks(self) -> Blocks:
        """Elements that start in one storage chunk."""
        rows = self.view.blocks
        if not isinstance(self.chosen, range) or len(self.chosen) == 0:
            return Blocks(1, 1)
        step = self.shift * abs(self.chosen.step)
        length = max(1, rows.length // step)
        start = int(self._starts(np.array([self.chosen[0]]))[0])
        ahead = rows.first - 1 - start if self.chosen.step > 0 else start - rows.first
        left = ahead % rows.length + 1
        return Blocks(length, min(length, (left - 1) // step + 1))

    def gap_positions(self, gap: int) -> int:
        """Return the positions to drop so that `gap` rows lie between neighbours, unused."""
        check_distinct(self.view.rows)
        # Element b starts at row b * shift; the last element before it, a, ends at a * shift +
        # span.
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
        # Across episodes elements may lie closer than `shift`; what is dropped still keeps its
        # rows.
        return max(dropped, -(-gap // min(step, self.span)))

    def _starts(self, elements: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the view's position at which each of all elements starts."""
        if len(self.ends) == 1:
            return elements * self.shift + int(self.runs.starts[0])
        episode = np.searchsorted(self.ends, elements, side="right")
        before = np.concatenate(([0], self.ends[:-1]))[episode]
        return self.runs.starts[episode] + (elements - before) * self.shift

    def requests(self, positions: NDArray[np.int64]) -> tuple[Request, ...]:
        """Return the rows of the inputs, and of the targets if there are any."""
        starts = self._starts(take(self.chosen, positions))
        if not self.time_axis:
            return (self._request(starts), self._request(starts + self.horizon))
        within = np.arange(self.inputs) * self.dilation
        inputs = self._request(starts[:, None] + within)
        if not self.targets:
            return (inputs,)
        first = within[-1] + self.horizon
        targets = starts[:, None] + first + np.arange(self.targets) * self.dilation
        return (inputs, self._request(targets))

    def _request(self, positions: NDArray[np.int64]) -> Request:
        return Request(self.view.source, take(self.view.rows, positions))

    def assemble(self, arrays: Iterator[NDArray[Any]], draw: Draw) -> Batch:
        """Return ``x``, or ``(x, y)``."""
        return (next(arrays), next(arrays)) if self.targets else next(arrays)

    def select(self, positions: Selection) -> Self:
        """Return the elements at checked positions."""
        return replace(self, chosen=select(self.chosen, positions))
