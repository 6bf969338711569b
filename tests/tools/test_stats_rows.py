"""Test constant and repeated rows against `numpy.unique`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import oocdata as ooc
import oocdata.tools.stats as stats_module
from oocdata.tools.stats import fingerprints, stats

RNG = np.random.default_rng(11)


def repeats_of(values: NDArray[Any]) -> list[tuple[int, int]]:
    """Return each repeated row with the first row of the same bytes."""
    first: dict[bytes, int] = {}
    found = []
    for place, row in enumerate(values):
        earliest = first.setdefault(row.tobytes(), place)
        if earliest != place:
            found.append((place, earliest))
    return found


@given(
    drawn=st.lists(st.integers(0, 5), min_size=1, max_size=40),
    width=st.integers(2, 300),
    dtype=st.sampled_from(["u1", "i2", "f4", "f8"]),
    memory=st.sampled_from([1 << 20, 512 << 20]),
    times=st.sampled_from([1, 300]),
)
def test_repeats_and_constants_of_any_rows(
    drawn: list[int], width: int, dtype: str, memory: int, times: int
) -> None:
    width *= times
    kinds = np.arange(6 * width).reshape(6, width) % 127
    kinds[4] = 9
    kinds[5] = kinds[3]
    kinds[5, width // 3] += 1  # differs in one value
    values = kinds[drawn].astype(dtype)
    try:
        ooc.set_memory(memory)
        found = stats(ooc.open(values)).rows
    finally:
        ooc.set_memory(512 << 20)
    expected = repeats_of(values)
    assert found.repeats == len(expected)
    assert list(found.repeats_shown) == expected
    constant = [place for place, row in enumerate(values) if (row == row[0]).all()]
    assert (found.constant, list(found.constant_shown)) == (len(constant), constant)


@pytest.mark.parametrize("width", [2, 17, 785, 70_000])
def test_one_bit_anywhere_tells_two_rows_apart(width: int) -> None:
    row = RNG.integers(0, 256, width, "u1")
    places = RNG.integers(0, width * 8, 60)
    places[:4] = [0, 7, width * 8 - 1, width * 8 - 8]
    rows = np.tile(row, (61, 1))
    for number, place in enumerate(places):
        rows[number, place // 8] ^= np.uint8(1 << place % 8)
    prints = fingerprints(rows)
    assert prints.shape == (61, 2)
    assert len(np.unique(prints, axis=0)) == len(np.unique(rows, axis=0))


def test_zeros_and_nan_are_constant_but_only_bits_repeat() -> None:
    values = np.zeros((6, 4))
    values[1, 2] = -0.0
    values[2] = np.nan
    values[3, 1] = np.nan
    values[4, 3] = 1e-300
    found = stats(ooc.open(values)).rows
    assert found.constant_shown == (0, 1, 2, 5)
    assert found.repeats_shown == ((5, 0),)


def test_all_are_counted_and_the_first_hundred_listed() -> None:
    values = np.zeros((1000, 3), "u1")
    found = stats(ooc.open(values)).rows
    assert (found.constant, found.repeats) == (1000, 999)
    assert found.constant_shown == tuple(range(100))
    assert found.repeats_shown == tuple((row, 0) for row in range(1, 101))
    assert "999 rows are bit for bit the same as an earlier row: 1 (as 0)" in str(
        stats(ooc.open(values))
    )


def test_what_was_not_looked_for_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    single = stats(ooc.open(np.zeros(5)))
    assert (single.rows.repeats, single.rows.constant) == (None, None)
    assert str(single).count("not looked for: a row is one number") == 2
    without = str(stats(ooc.open(np.zeros((5, 0, 3)))))
    assert without.count("not looked for: a row holds no number") == 2
    monkeypatch.setattr(stats_module, "MOST_ROWS", 4)
    many = stats(ooc.open(np.zeros((5, 3))))
    assert (many.rows.repeats, many.rows.constant) == (None, 5)
    assert "repeated   not looked for: there are more than 4 rows" in str(many)


def test_halves_that_are_alike_are_no_repeat() -> None:
    values = np.array([[1, 1], [1, 2], [2, 1], [1, 1], [1, 2]], "u8")  # are their own fingerprints
    assert stats(ooc.open(values)).rows.repeats_shown == ((3, 0), (4, 1))
