"""Sorting and counting in stretches, compared with NumPy; the memory of splits and draws."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import oocdata as ooc
from oocdata import stretches
from oocdata.datasets.splits import class_parts
from oocdata.order import Shuffle
from oocdata.order.weighted import Weighted, cumulated

RNG = np.random.default_rng(5)

VALUES = [
    np.zeros(0, np.int64),
    np.zeros(50, np.int8),
    RNG.integers(-9, 9, 100),
    RNG.integers(0, 2**63, 90).astype(np.uint64),
    RNG.permutation(200),
    RNG.random(80),
    np.where(RNG.random(99) < 0.9, 0.5, RNG.random(99)),
    np.array(["cat", "mouse", ""])[RNG.integers(0, 3, 77)],
    RNG.integers(0, 20, 60).astype("M8[D]"),
]


@pytest.mark.parametrize("stretch", [1, 7])
@pytest.mark.parametrize("values", VALUES, ids=lambda values: f"{len(values)} {values.dtype}")
def test_stretches_give_what_numpy_gives(
    values: np.ndarray[Any, Any], stretch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stretches, "STRETCH", stretch)
    found, first, inverse, counts = np.unique(
        values, return_index=True, return_inverse=True, return_counts=True
    )
    distinct, numbers = stretches.numbered(values)
    assert_array_equal(distinct, found)
    assert_array_equal(numbers, inverse)
    assert_array_equal(stretches.counted(numbers, len(found)), counts)
    assert_array_equal(stretches.first_places(numbers, len(found)), first)
    assert_array_equal(stretches.looked_up(distinct, numbers), values)
    parts = list(stretches.sorted_positions(len(values), values.take))
    assert_array_equal(np.concatenate(parts), np.argsort(values, kind="stable"))
    if values.dtype.kind == "f":
        monkeypatch.setattr(stretches, "STRETCH", 1 << 20)
        whole = cumulated(values)
        monkeypatch.setattr(stretches, "STRETCH", stretch)
        assert_array_equal(cumulated(values), whole)


COUNT = 1 << 15
LABELS, IDS = RNG.integers(0, 9, COUNT), RNG.permutation(COUNT)
WEIGHTS, MASK, NEGATIVE = LABELS / 9, LABELS < 4, LABELS - 9
ROWS = ooc.open(np.broadcast_to(np.uint8(0), COUNT))


@pytest.mark.parametrize(
    ("most", "made"),
    [
        (10, lambda: class_parts(LABELS, (0.8, 0.2), 0)),  # bytes for each element
        (12, lambda: ROWS.split(0.8, 0.2, stratify=LABELS)),
        (12, lambda: ROWS.split(0.8, 0.2, by=LABELS)),
        (11, lambda: ROWS.windows(2).split(0.8, 0.2, by=LABELS)),
        (14, lambda: Weighted.of(Shuffle(), WEIGHTS)),
        (11, lambda: ooc.balanced(LABELS)),
        (9, lambda: ROWS[LABELS]),
        (10, lambda: ROWS[NEGATIVE]),
        (4, lambda: ROWS.filter(MASK)),
        (28, lambda: ooc.join(ROWS, ROWS, on=(LABELS, IDS))),
        (21, lambda: ooc.zip(ROWS, ROWS).folds(2, gap=1)),
    ],
)
def test_peaks_of_memory(
    most: float, made: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With NumPy's functions for all elements at once, these were up to 75 bytes an element."""
    monkeypatch.setattr(stretches, "STRETCH", 1 << 11)
    monkeypatch.setattr(stretches, "_SAMPLED", 64)
    made()
    tracemalloc.start()
    try:
        made()
        assert tracemalloc.get_traced_memory()[1] < most * COUNT
    finally:
        tracemalloc.stop()
