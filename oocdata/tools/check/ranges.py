"""Rows as ranges: collected in any number, kept in a bounded one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

__all__ = ["Ranges", "ranges_of", "said"]

MOST_RANGES = 10_000
"""Kept of one finding; rows beyond them are counted."""


class Ranges:
    """Ranges of rows, added in order, none twice: the first 10,000 are kept, all rows counted.

    Examples
    --------
    >>> found = Ranges([range(0, 4), range(4, 6), range(9, 10)])
    >>> found.kept, found.count
    ([range(0, 6), range(9, 10)], 7)
    """

    def __init__(self, ranges: Iterable[range] = ()) -> None:
        self.kept: list[range] = []
        self.count = 0
        self.add_all(ranges)

    def add_all(self, ranges: Iterable[range]) -> None:
        """Add several ranges."""
        for one in ranges:
            self.add(one)

    def add(self, rows: range) -> None:
        """Add rows, and join them to their neighbours."""
        if not rows:
            return
        self.count += len(rows)
        if self.kept and self.kept[-1].stop == rows.start:
            self.kept[-1] = range(self.kept[-1].start, rows.stop)
        elif len(self.kept) < MOST_RANGES:
            self.kept.append(rows)


def ranges_of(
    chosen: NDArray[np.bool_], first: int = 0, step: int = 1, end: int | None = None
) -> Iterator[range]:
    """Yield the runs of what is true, as ranges of rows below `end`.

    Each entry stands for `step` rows, the first of them at `first`.

    Examples
    --------
    >>> list(ranges_of(np.array([True, True, False, True]), first=10))
    [range(10, 12), range(13, 14)]
    """
    edges = np.flatnonzero(np.diff(chosen, prepend=False, append=False))
    for start, stop in edges.reshape(-1, 2).tolist():
        last = first + stop * step
        yield range(first + start * step, last if end is None else min(last, end))


def said(ranges: Iterable[range], most: int) -> str:
    """Return ranges in words, with the last row of each.

    Examples
    --------
    >>> said([range(3, 4), range(17, 21), range(40, 50)], most=2)
    '3, 17-20, …'
    """
    words = [
        str(one.start) if len(one) == 1 else f"{one.start}-{one.stop - 1}"
        for _, one in zip(range(most + 1), ranges, strict=False)
    ]
    return ", ".join([*words[:most], "…"] if len(words) > most else words)
