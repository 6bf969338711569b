"""Test the arithmetic of grids of chunks."""

from __future__ import annotations

import numpy as np

from oocdata.engines.gather.grid import chunk_grid, chunk_groups, chunk_parts


def test_the_number_of_chunks() -> None:
    assert chunk_grid((10, 3), (4, 3)) == (3, 1)


def test_parts_of_a_box_with_a_stride() -> None:
    assert list(chunk_parts(3, 4, 2, 5)) == [
        (0, slice(3, 4, 2), slice(0, 1, None)),
        (1, slice(0, 5, 2), slice(1, 4, None)),
    ]


def test_groups_of_a_few_chunks() -> None:
    groups = chunk_groups(np.array([7, 3, 5, 3]), 2)
    assert [group.tolist() for group in groups] == [[1, 2, 3], [0]]
