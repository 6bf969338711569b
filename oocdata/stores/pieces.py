"""Merge runs of bytes into ranges to fetch, and cut them at the borders of fetched ranges."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Ints
from oocdata.engines.prefetch import GAP
from oocdata.engines.ragged import run_positions
from oocdata.memory import scratch_share

PART = 8 << 20
"""Bytes of a range; longer ones are fetched in parts, side by side."""

_PARTS, _LEAST_PART = 8, 64 << 10
"""At least 8 parts fit into the memory of the link, unless that makes them shorter than 64 KiB:
while one is read, others are in flight. Parts are multiples of 64 KiB, so that pages of the cache
folder are not cut and no part lies entirely in a gap."""


class Pieces(NamedTuple):
    """Runs of bytes, or parts of runs: file offset, address in memory, length in bytes.

    `runs` numbers the runs, in the order in which they are read.
    """

    runs: Ints
    offsets: Ints
    addresses: Ints
    counts: Ints

    def take(self, selected: NDArray[Any]) -> Pieces:
        """Return the pieces at the selected positions."""
        return Pieces(*(column[selected] for column in self))

    def concat(self, more: Pieces) -> Pieces:
        """Return these pieces followed by more."""
        return Pieces(*(np.concatenate(both) for both in zip(self, more, strict=True)))

    def cut(self, starts: Ints, stops: Ints) -> tuple[Pieces, Ints]:
        """Return the pieces cut at borders of ranges, and the range of each, -1 for none."""
        if not len(starts):
            return self, np.full(len(self.runs), -1)
        borders = np.stack((starts, stops), axis=1).ravel()
        first = np.searchsorted(borders, self.offsets, side="right") - 1
        last = np.searchsorted(borders, self.offsets + self.counts - 1, side="right") - 1
        whole, parts = self, first
        if (first != last).any():
            numbers = last - first + 1
            parts = run_positions(first, numbers)
            whole = self.take(np.repeat(np.arange(len(numbers)), numbers))
            ends = np.append(borders, np.iinfo(np.int64).max)[parts + 1]
            begins = np.where(parts > np.repeat(first, numbers), borders[parts], whole.offsets)
            counts = np.minimum(whole.offsets + whole.counts, ends) - begins
            moved = whole.addresses + begins - whole.offsets
            nonempty = counts > 0
            whole = Pieces(whole.runs, begins, moved, counts).take(nonempty)
            parts = parts[nonempty]
        return whole, np.where(parts % 2, -1, parts // 2)


def merge_runs(offsets: Ints, lengths: Ints, connections: int = 1) -> tuple[Ints, Ints]:
    """Return starts and stops of the ranges to fetch for runs.

    Ranges ascend and don't overlap; neighbouring runs are merged, long ranges cut. They are cut
    shorter for several new connections, on each of which a server sends slowly at first.
    """
    if not len(offsets):
        return offsets, offsets
    order = np.argsort(offsets, kind="stable")
    starts, counts = offsets[order], lengths[order]
    ends = np.maximum.accumulate(starts + counts)
    firsts = np.flatnonzero(np.append(True, starts[1:] > ends[:-1] + GAP))
    starts, stops = starts[firsts], ends[np.append(firsts[1:], len(ends)) - 1]
    share = -(-int((stops - starts).sum()) // (connections * _LEAST_PART)) * _LEAST_PART
    bound = scratch_share() // _PARTS // _LEAST_PART * _LEAST_PART
    part = max(_LEAST_PART, min(PART, share, bound))
    parts = np.maximum(1, -(-(stops - starts) // part))
    if (parts > 1).any():
        within = run_positions(np.zeros_like(parts), parts)
        starts = np.repeat(starts, parts) + within * part
        stops = np.minimum(np.repeat(stops, parts), starts + part)
    return starts, stops


def ranges_of(pages: Ints) -> tuple[Ints, Ints]:
    """Return first and stop of each run of consecutive integers among ascending ones."""
    if not pages.size:
        return pages, pages
    apart = np.diff(pages) != 1
    return pages[np.append(True, apart)], pages[np.append(apart, True)] + 1
