"""Define `Runs`: episodes as runs of rows, which windows do not cross."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from oocdata.box import Ints
from oocdata.datasets.dataset import Described
from oocdata.index import Selection, as_lengths
from oocdata.threads import cached_property

__all__ = ["Runs", "episode_runs", "part_runs"]


@dataclass(frozen=True, eq=False)
class Runs(Described):
    """Episodes as adjacent runs of positions. Memory is proportional to the number of episodes.

    Attributes
    ----------
    lengths : ndarray of int64, shape (episodes,)
    """

    lengths: Ints

    @cached_property
    def starts(self) -> Ints:
        """The first position of each episode, shape (episodes,)."""
        return np.cumsum(self.lengths) - self.lengths

    def cut_by(self, others: Runs) -> Runs:
        """Return the runs, split wherever a run of `others` starts."""
        if not len(self.starts) or not len(others.starts):
            return self
        starts = np.sort(np.concatenate((self.starts, others.starts)))  # union1d: 5 times as long
        starts = starts[np.diff(starts, prepend=-1) > 0]
        return Runs(np.diff(np.append(starts, self.lengths.sum())))


def episode_runs(episodes: ArrayLike | None, rows: int) -> Runs:
    """Return episodes as runs, from their lengths."""
    if episodes is None:
        return Runs(np.array([rows], np.int64))
    return Runs(as_lengths("episodes", episodes, rows, at_least=1))


def _runs_of_ids(ids: Ints) -> Runs:
    """Return the runs of adjacent rows with equal ids."""
    starts = np.concatenate(([0], np.flatnonzero(np.diff(ids)) + 1))[: len(ids)]
    return Runs(np.diff(np.append(starts, len(ids))))


def part_runs(part_starts: Sequence[int], rows: Selection) -> Runs:
    """Return the runs of selected rows that are in one part each, e.g. in one file.

    If an irregular selection returns to a part, that is a new run.
    """
    starts = np.asarray(part_starts, np.int64)
    if not isinstance(rows, range):
        return _runs_of_ids(np.searchsorted(starts, rows, side="right"))
    # From the starts, because ids for each of 10⁹ rows would take gigabytes.
    ascending = rows if rows.step > 0 else rows[::-1]
    bounds = np.clip(-((ascending.start - starts) // ascending.step), 0, len(rows))
    lengths = np.diff(bounds, append=len(rows))[:: 1 if rows.step > 0 else -1]
    return Runs(lengths[lengths > 0])
