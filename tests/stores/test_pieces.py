"""Runs are merged into ranges, and cut at the borders of ranges."""

from __future__ import annotations

import numpy as np

from oocdata.stores.pieces import Pieces, merge_runs, ranges_of


def test_runs_are_cut_at_borders() -> None:
    runs = Pieces(*(np.array([number]) for number in (0, 8, 1000, 10)))
    pieces, ranges = runs.cut(np.array([5, 12]), np.array([10, 20]))
    assert pieces.offsets.tolist() == [8, 10, 12]
    assert pieces.addresses.tolist() == [1000, 1002, 1004]
    assert pieces.counts.tolist() == [2, 2, 6]
    assert ranges.tolist() == [0, -1, 1]


def test_neighbours_are_merged() -> None:
    starts, stops = merge_runs(np.array([90_000, 0, 5, 5]), np.array([10, 8, 8, 8]))
    assert (starts.tolist(), stops.tolist()) == ([0, 90_000], [13, 90_010])


def test_runs_of_integers() -> None:
    firsts, stops = ranges_of(np.array([3, 4, 5, 9]))
    assert (firsts.tolist(), stops.tolist()) == ([3, 9], [6, 10])
