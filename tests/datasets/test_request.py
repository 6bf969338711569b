"""Requests whose boxes lie within those of another are copied from its batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from recording import RecordingSource

import oocdata as ooc

ARRAY = np.arange(40 * 6 * 5, dtype="f4").reshape(40, 6, 5)
ALL = slice(None)

Element = Callable[[int], tuple[Any, ...]]


def _within(index: tuple[Any, ...]) -> tuple[Callable[[Any], Any], Element]:
    """Return a dataset of parts of rows with the rows, and its elements by NumPy."""
    return (
        lambda view: ooc.zip(view[ALL, *index], view),
        lambda row: (ARRAY[row][index], ARRAY[row]),
    )


CASES = {
    "a crop": (*_within((slice(2, 5), slice(1, 3))), 1),
    "the end": (*_within((slice(4, 6),)), 1),
    "one position": (*_within((ALL, slice(3, 4))), 1),
    "every second position": (*_within((slice(None, None, 2),)), 2),
    "reversed": (*_within((slice(2, None, -1),)), 2),
    "chosen positions": (*_within(([0, 3, 4],)), 2),
    "the larger one first": (
        lambda view: ooc.zip(view, view[:, :2]),
        lambda row: (ARRAY[row], ARRAY[row, :2]),
        1,
    ),
    "two within a third": (
        lambda view: ooc.zip(view[:, :2], view, view[:, :4]),
        lambda row: (ARRAY[row, :2], ARRAY[row], ARRAY[row, :4]),
        1,
    ),
    "transposed": (
        lambda view: ooc.zip(view.transpose(1, 0)[:, :, :2], view.transpose(1, 0)),
        lambda row: (ARRAY[row].T[:, :2], ARRAY[row].T),
        1,
    ),
    "with a time axis of one row": (
        lambda view: ooc.windows((view[:, 1:3], (0,)), (view, (0,))),
        lambda row: (ARRAY[None, row, 1:3], ARRAY[None, row]),
        1,
    ),
    "only one with a time axis": (
        lambda view: ooc.windows((view[:, :3], (0,)), view, (view, (1,))),
        lambda row: (ARRAY[None, row, :3], ARRAY[row], ARRAY[None, row + 1]),
        2,
    ),
    "other order of axes": (
        lambda view: ooc.zip(view.transpose(1, 0)[:, :, :2], view),
        lambda row: (ARRAY[row].T[:, :2], ARRAY[row]),
        2,
    ),
    "other dtype": (
        lambda view: ooc.zip(view[:, :2].astype("f8"), view),
        lambda row: (ARRAY[row, :2].astype("f8"), ARRAY[row]),
        2,
    ),
    "other rows": (
        lambda view: ooc.zip(view[1:, :2], view[:-1]),
        lambda row: (ARRAY[row + 1, :2], ARRAY[row]),
        2,
    ),
    "the first steps": (
        lambda view: ooc.windows((view, 3), (view, 5)),
        lambda row: (ARRAY[row : row + 3], ARRAY[row : row + 5]),
        1,
    ),
    "the next step": (
        lambda view: view.windows(3, 1),
        lambda row: (ARRAY[row : row + 3], ARRAY[row + 3 : row + 4]),
        2,
    ),
}


@pytest.mark.parametrize("batch_size", [3, 4])
@pytest.mark.parametrize(("make", "element", "reads"), CASES.values(), ids=CASES)
def test_boxes_within_other_boxes_are_read_once(
    make: Callable[[Any], Any], element: Element, reads: int, batch_size: int
) -> None:
    source = RecordingSource(ARRAY)
    dataset = make(ooc.open(source))
    loader = dataset.batches(batch_size, shuffle=True, seed=3)
    batches, seen = list(loader), []
    for batch in batches:
        whole = max(batch, key=np.size)
        rows = (whole.reshape(len(whole), -1).min(axis=1) // 30).astype(int).tolist()
        expected = zip(*map(element, rows), strict=True)
        for array, right in zip(batch, expected, strict=True):
            assert_array_equal(array, np.stack(right))
            assert array.flags.c_contiguous
            assert array.flags.writeable
        seen += rows
    assert sorted(seen) == list(range(len(dataset)))
    assert len({extent.lengths for extent in source.extents}) == reads


def test_batches_share_no_memory() -> None:
    view = ooc.open(RecordingSource(ARRAY))
    (first, *_), (whole, *_) = zip(*ooc.zip(view[:, :2], view).batches(4), strict=True)
    first[...] = -1
    assert_array_equal(whole, ARRAY[:4])
