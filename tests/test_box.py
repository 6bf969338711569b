"""The arithmetic of boxes."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_array_equal

from oocdata.box import Extent, covered_positions, covered_rows, slice_boxes, split_at_gaps


def test_spans_and_size() -> None:
    extent = Extent((1, 3, 4), (1, 2, 1))
    assert (extent.spans, extent.size) == ((1, 5, 4), 12)


def test_positions_that_boxes_cover() -> None:
    origins = np.array([[2, 0], [4, 0]])
    assert_array_equal(covered_positions(origins, Extent.of((3, 5)), axis=0), range(2, 7))
    assert covered_positions(origins[:1], Extent((3, 5), (2, 1)), axis=0) == range(2, 7, 2)
    again = np.array([[7, 0], [2, 0], [7, 0]])
    assert covered_positions(again, Extent.of((1, 5)), axis=0).tolist() == [7, 2, 7]
    assert covered_rows(again[:2], Extent((2, 9), (3, 1))).tolist() == [7, 10, 2, 5]


def test_boxes_are_cut() -> None:
    origins, extent, where = slice_boxes(np.array([[7, 0]]), Extent((5, 9), (2, 1)), 0, 1, 3)
    assert (origins.tolist(), extent) == ([[9, 0]], Extent((2, 9), (2, 1)))
    assert where == (slice(None), slice(1, 3))
    origins, extent = split_at_gaps(np.array([[7, 0]]), Extent((2, 9), (20, 1)), (8, 8))
    assert (origins.tolist(), extent.lengths) == ([[7, 0], [27, 0]], (1, 9))
