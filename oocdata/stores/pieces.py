"""Runs of bytes as ranges to fetch, and as parts of ranges that were fetched. Integers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.soon import GAP
from oocdata.memory import scratch_share

__all__ = ["Pieces", "joined", "pages_of", "ranges_of"]

Ints = NDArray[np.int64]

PART = 8 << 20
"""Longer ranges are fetched in parts, side by side."""

_PARTS, _LEAST_PART = 8, 64 << 10
"""So many parts fit into the memory of the link at least, unless they were shorter than that: while
one is read, others are under way. Each is some of these, so pages of the cache folder are not cut,
and no part lies in a gap alone."""


class Pieces(NamedTuple):
    """Runs of bytes, or parts of them: where each begins, where it goes, how long it is.

    `runs` is the number of the run, or says in which order they are read.
    """

    runs: Ints
    offsets: Ints
    addresses: Ints
    counts: Ints

    def of(self, some: NDArray[Any]) -> Pieces:
        """Return some of them."""
        return Pieces(*(column[some] for column in self))

    def and_(self, more: Pieces) -> Pieces:
        """Return them and more."""
        return Pieces(*(np.concatenate(both) for both in zip(self, more, strict=True)))

    def within(self, starts: Ints, stops: Ints) -> tuple[Pieces, Ints]:
        """Return them cut at the borders of ranges, and the range in which each lies; -1 for none.

        Examples
        --------
        >>> runs = Pieces(*(np.array([number]) for number in (0, 8, 1000, 10)))
        >>> pieces, ranges = runs.within(np.array([5, 12]), np.array([10, 20]))
        >>> pieces.offsets.tolist(), pieces.counts.tolist(), ranges.tolist()
        ([8, 10, 12], [2, 2, 6], [0, -1, 1])
        """
        if not len(starts):
            return self, np.full(len(self.runs), -1)
        borders = np.stack((starts, stops), axis=1).ravel()
        first = np.searchsorted(borders, self.offsets, side="right") - 1
        last = np.searchsorted(borders, self.offsets + self.counts - 1, side="right") - 1
        whole, parts = self, first
        if (first != last).any():
            numbers = last - first + 1
            steps = np.arange(numbers.sum()) - np.repeat(np.cumsum(numbers) - numbers, numbers)
            parts = np.repeat(first, numbers) + steps
            whole = self.of(np.repeat(np.arange(len(numbers)), numbers))
            ends = np.append(borders, np.iinfo(np.int64).max)[parts + 1]
            begins = np.where(steps > 0, borders[parts], whole.offsets)
            counts = np.minimum(whole.offsets + whole.counts, ends) - begins
            moved = whole.addresses + begins - whole.offsets
            some = counts > 0
            whole = Pieces(whole.runs, begins, moved, counts).of(some)
            parts = parts[some]
        return whole, np.where(parts % 2, -1, parts // 2)


def joined(offsets: Ints, lengths: Ints) -> tuple[Ints, Ints]:
    """Return runs as ranges to fetch: where they start and stop.

    Ranges ascend and don't overlap; neighbours are joined, long ones cut.

    Examples
    --------
    >>> starts, stops = joined(np.array([90_000, 0, 5, 5]), np.array([10, 8, 8, 8]))
    >>> starts.tolist(), stops.tolist()
    ([0, 90000], [13, 90010])
    """
    if not len(offsets):
        return offsets, offsets
    order = np.argsort(offsets, kind="stable")
    starts, counts = offsets[order], lengths[order]
    ends = np.maximum.accumulate(starts + counts)
    firsts = np.flatnonzero(np.append(True, starts[1:] > ends[:-1] + GAP))
    starts, stops = starts[firsts], ends[np.append(firsts[1:], len(ends)) - 1]
    part = min(PART, max(1, scratch_share() // _PARTS // _LEAST_PART) * _LEAST_PART)
    parts = np.maximum(1, -(-(stops - starts) // part))
    if (parts > 1).any():
        within = np.arange(parts.sum()) - np.repeat(np.cumsum(parts) - parts, parts)
        starts = np.repeat(starts, parts) + within * part
        stops = np.minimum(np.repeat(stops, parts), starts + part)
    return starts, stops


def pages_of(first: Ints, last: Ints) -> Ints:
    """Return the integers from each of `first` to that of `last`.

    Examples
    --------
    >>> pages_of(np.array([3, 9]), np.array([5, 9])).tolist()
    [3, 4, 5, 9]
    """
    counts = last - first + 1
    found: Ints = np.arange(counts.sum()) + np.repeat(first - counts.cumsum() + counts, counts)
    return found


def ranges_of(pages: Ints) -> tuple[Ints, Ints]:
    """Return where pages that ascend begin and end to follow on one another: first, past the last.

    Examples
    --------
    >>> [part.tolist() for part in ranges_of(np.array([3, 4, 5, 9]))]
    [[3, 9], [6, 10]]
    """
    if not pages.size:
        return pages, pages
    apart = np.diff(pages) != 1
    return pages[np.append(True, apart)], pages[np.append(apart, True)] + 1
