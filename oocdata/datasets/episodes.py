"""Episodes: runs of rows that no window leaves."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from oocdata.errors import ArgumentError
from oocdata.index import Selection

__all__ = ["Runs", "episode_runs", "part_runs"]


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """Episodes as runs of positions: O(episodes) memory, whatever their lengths.

    Attributes
    ----------
    starts, lengths : ndarray of int64, shape (episodes,)
    """

    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]

    def given(self) -> NDArray[np.int64]:
        """Return the argument `episodes` that they are made from again."""
        alone = len(self.lengths) > 1 and bool((self.lengths == 1).all())
        return self.starts if alone else self.lengths  # as many lengths as rows are taken for ids

    def cut_by(self, others: Runs) -> Runs:
        """Return the runs cut wherever one of the others begins."""
        if not len(self.starts):
            return self
        starts = np.union1d(self.starts, others.starts)
        stop = int(self.starts[-1] + self.lengths[-1])
        return Runs(starts, np.diff(np.append(starts, stop)))


def episode_runs(episodes: ArrayLike | None, rows: int) -> Runs:
    """Return episodes given as lengths, or as an id for each row, as runs."""
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
    if len(values) == rows > 1 and (values == 1).all():
        raise ArgumentError(
            f"`episodes` must not be {rows} times 1, which may be lengths or one id for all. Give "
            "each row an id of its own, or None for one episode."
        )
    if rows == 0 or len(values) != rows:
        if values.sum() != rows or (values < 1).any() or (values > rows).any():
            raise ArgumentError(
                f"`episodes` must be lengths that sum to the {rows} rows, or {rows} ids; got "
                f"{len(values)} numbers with a sum of {int(values.sum())}."
            )
        return Runs(np.cumsum(values) - values, values)
    runs = _runs_alike(values)
    if len(np.unique(values[runs.starts])) != len(runs.starts):
        raise ArgumentError(
            "`episodes` must keep the rows of an episode side by side; an id comes back after "
            "another one. Give every stretch its own id."
        )
    return runs


def _runs_alike(ids: NDArray[np.int64]) -> Runs:
    """Return the runs of rows that have one id."""
    starts = np.concatenate(([0], np.flatnonzero(np.diff(ids)) + 1))[: len(ids)]
    return Runs(starts, np.diff(np.append(starts, len(ids))))


def part_runs(part_starts: Sequence[int], rows: Selection) -> Runs:
    """Return the runs of chosen rows that lie in one part each, e.g. in one file.

    Where rows were chosen in any order, a part that comes back begins another run.
    """
    if not isinstance(rows, range):
        starts = np.asarray(part_starts, np.int64)
        return _runs_alike(np.searchsorted(starts, rows, side="right"))
    # By bisection: ids for each of 10⁹ rows would take gigabytes.
    ascending = rows if rows.step > 0 else rows[::-1]
    bounds = [bisect_left(ascending, start) for start in part_starts]
    lengths = np.diff([*bounds, len(rows)])[:: 1 if rows.step > 0 else -1]
    lengths = lengths[lengths > 0]
    return Runs(np.cumsum(lengths) - lengths, lengths)
