"""Define `Episodes`: runs of rows, which windows do not cross."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from oocdata.box import Ints
from oocdata.datasets.dataset import Described
from oocdata.errors import ArgumentError
from oocdata.index import Selection, as_lengths
from oocdata.stretches import stretches
from oocdata.threads import cached_property

if TYPE_CHECKING:
    from oocdata.datasets.array_rows import ArrayRows

_WORDS = ("parts", "files", "folders", "none")


@dataclass(frozen=True, eq=False)
class Episodes(Described):
    """Episodes as adjacent runs of positions, from their lengths, int64 of shape (episodes,)."""

    lengths: Ints

    @cached_property
    def starts(self) -> Ints:
        """The first position of each episode, shape (episodes,)."""
        return np.cumsum(self.lengths) - self.lengths

    def cut_by(self, others: Episodes) -> Episodes:
        """Return the runs, split wherever a run of `others` starts."""
        starts = np.sort(np.concatenate((self.starts, others.starts)))  # union1d: 5 times as long
        starts = starts[np.diff(starts, prepend=-1) > 0]
        return Episodes(np.diff(np.append(starts, self.lengths.sum())))


def part_episodes(part_starts: Sequence[int], rows: Selection) -> Episodes:
    """Return the runs of selected rows that are in one part each, e.g. in one file.

    If an irregular selection returns to a part, that is a new run.
    """
    starts = np.asarray(part_starts, np.int64)
    if not isinstance(rows, range):
        ids = np.searchsorted(starts, rows, side="right")
        begins = np.concatenate(([0], np.flatnonzero(np.diff(ids)) + 1))[: len(ids)]
        return Episodes(np.diff(np.append(begins, len(ids))))
    # From the starts, because ids for each of 10⁹ rows would take gigabytes.
    ascending = rows if rows.step > 0 else rows[::-1]
    bounds = np.clip(-((ascending.start - starts) // ascending.step), 0, len(rows))
    lengths = np.diff(bounds, append=len(rows))[:: 1 if rows.step > 0 else -1]
    return Episodes(lengths[lengths > 0])


def episodes_of(view: ArrayRows, given: ArrayLike | str | None) -> Episodes:
    """Return the episodes of a view's rows; `given` is the argument of `View.windows`."""
    storage, word = view.storage, given if isinstance(given, str) else None
    if word not in (None, *_WORDS):
        raise ArgumentError(
            "`episodes` must be lengths or one of the words 'parts', 'files', 'folders' and "
            f"'none'; got {word!r}."
        )
    episodes = Episodes(np.array([len(view)], np.int64))
    if given is not None and word is None:
        counts = as_lengths("episodes", given, len(view))
        episodes = Episodes(counts[counts > 0])  # `parts.lengths` counts parts without a row too
    lengths = list(map(len, view.grid))
    if len(lengths) > 1:
        starts = range(0, prod(lengths), max(1, lengths[-1]))
        return episodes.cut_by(part_episodes(starts, view.rows))
    if word is None and storage.episodes:
        word = "parts"
    elif given is None and (storage.row_files or storage.single_rows):
        word = "folders"
    if word in ("parts", "files", "folders"):
        return episodes.cut_by(part_episodes(_part_starts(view, word), view.rows))
    return episodes


def crosses_parts(view: ArrayRows) -> bool:
    """Return whether the view's default episodes continue from one part into the next."""
    storage = view.storage
    if len(view.grid) > 1 or len(storage.parts) < 2 or storage.single_rows:
        return False
    parts = part_episodes(_part_starts(view, "parts"), view.rows)
    cut = view.default_episodes.cut_by(parts)
    return len(cut.lengths) > len(view.default_episodes.lengths)


def crosses_gaps(view: ArrayRows) -> bool:
    """Return whether the view's default episodes continue over gaps between its rows.

    Rows that were selected one by one, such as those of a filter, are a series if their distances
    are equal.
    """
    rows, starts = view.rows, view.default_episodes.starts[1:]
    if isinstance(rows, range):
        return False
    found = set[int]()
    for part in stretches(len(rows) - 1):
        first, last = np.searchsorted(starts, (part.start + 1, part.stop + 1))
        borders = starts[first:last] - 1 - part.start
        within = np.delete(np.diff(rows[part.start : part.stop + 1]), borders)
        if len(within):
            found |= {int(within.min()), int(within.max())}
    return len(found) > 1


def likely_episodes(view: ArrayRows, rows: int) -> str | None:
    """Return an argument `episodes` for windows of so many rows, if all that is known is the files.

    Each file, or array, is a series if a window fits into one; None if the default crosses none.
    """
    if not crosses_parts(view):
        return None
    if episodes_of(view, "parts").lengths.max(initial=0) < rows:
        return "none"
    return "files" if all(path for path, _ in view.storage.part_names) else "parts"


def _part_starts(view: ArrayRows, unit: str) -> Sequence[int]:
    """Return the start of each part, file or folder along the first sample axis.

    (0,) if the array has no parts along that axis, or positions along the axis were selected.
    """
    storage, whole = view.storage, range(view.source.shape[view.axes[0]])
    if storage.parts_axis != view.axes[0] or view.grid[0] != whole:
        return (0,)
    starts: Sequence[int] = storage.parts
    where: Iterable[tuple[str | None, str | None]] = storage.part_names
    if storage.row_files:
        starts, where = range(len(storage.row_files)), ((path, None) for path in storage.row_files)
    if unit == "parts" or len(starts) == 1:
        return starts
    names = [(path or "").rpartition(os.sep)[0] if unit == "folders" else path for path, _ in where]
    pairs = zip(starts, names, [None, *names], strict=False)
    return [start for start, name, before in pairs if start == 0 or name != before]
