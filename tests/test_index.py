"""Integer arguments and selections, against NumPy and against counting."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import oocdata as ooc
from oocdata.datasets.splits import split_ranges
from oocdata.errors import ArgumentError, EmptyError, PositionError
from oocdata.index import (
    as_count,
    as_lengths,
    as_positions,
    as_range,
    compose_ranges,
    expand_key,
    select,
    take,
)

INTS = st.one_of(st.none(), st.integers(-25, 25))


SLICES = st.builds(slice, INTS, INTS, INTS.filter(lambda step: step != 0))


@pytest.mark.parametrize("value", [3, np.int8(3), np.uint64(3), np.array(3)], ids=repr)
def test_as_count_takes_every_kind_of_whole_number(value):
    count = as_count("n", value)
    assert count == 3
    assert type(count) is int


@pytest.mark.parametrize(
    "value", [0, -1, 1.0, "3", None, True, np.True_, np.float32(2), [3], 2**63, 10**30], ids=repr
)
def test_as_count_raises_with_the_name_of_the_argument(value):
    with pytest.raises(ArgumentError, match=r"`inputs` must be a whole number .*; got "):
        as_count("inputs", value)


def test_as_count_from_zero():
    assert as_count("gap", 0, at_least=0) == 0
    with pytest.raises(ArgumentError, match="at least 0; got -1"):
        as_count("gap", -1, at_least=0)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], []),
        ((), []),
        (np.zeros(0, int), []),
        ([0, -1, 9, -10], [0, 9, 9, 0]),
        (range(3), [0, 1, 2]),
        (np.array([-1, 2], np.int8), [9, 2]),
        (np.array([9, 0], np.uint64), [9, 0]),
        ([True, False] * 5, [0, 2, 4, 6, 8]),
        (np.zeros(10, bool), []),
    ],
    ids=repr,
)
def test_as_positions(given, expected):
    positions = as_positions(given, 10)
    assert positions.dtype == np.int64
    assert positions.tolist() == expected


@pytest.mark.parametrize(
    "wrong",
    [[10], [-11], [0, 2**62], [2**63], [10**30], [-(10**30)], np.array([2**63], np.uint64)],
    ids=repr,
)
def test_positions_out_of_range(wrong):
    with pytest.raises(PositionError, match=r"within \[-10, 10\) for a length of 10; got "):
        as_positions(wrong, 10)


@pytest.mark.parametrize(
    "wrong",
    [0, [0.0], np.zeros(0), [[0]], "0", None, [None], [True] * 9, [[1, 2], [3]], [1j], ["a"]],
    ids=repr,
)
def test_positions_of_the_wrong_type(wrong):
    with pytest.raises(ArgumentError, match="must"):
        as_positions(wrong, 10)


@pytest.mark.parametrize(
    ("call", "values"),
    [
        (lambda view, masked: view.take(masked), [1, 0]),
        (lambda view, masked: view.filter(masked), [True, False, True, True]),
        (lambda view, masked: view.split(0.5, 0.5, by=masked), [0, 0, 1, 1]),
        (lambda view, masked: view.batches(2, shuffle=True, weights=masked), [1, 2, 3, 4]),
        (lambda view, masked: view.windows(2, episodes=masked), [2, 2]),
    ],
    ids=["take", "filter", "split", "weights", "episodes"],
)
def test_masked_arguments_are_refused_rather_than_unmasked(call, values):
    view, masked = ooc.open(np.arange(4)), np.ma.masked_array(values)
    call(view, masked)
    masked[1] = np.ma.masked
    with pytest.raises(ArgumentError, match=r"must not be masked.*filled"):
        call(view, masked)


def test_int8_positions_do_not_overflow():
    assert as_positions(np.array([-1], np.int8), 1000).tolist() == [999]


def test_positions_are_a_copy():
    given = np.array([1, 2, 3])
    positions = as_positions(given, 10)
    given[:] = 99
    assert positions.tolist() == [1, 2, 3]


@given(st.integers(0, 20), SLICES, SLICES)
def test_ranges_compose_as_slices_do(length, first, second):
    numbers = np.arange(length)
    old = range(length)[first]
    new = range(len(old))[second]
    composed = compose_ranges(old, new)
    assert list(composed) == numbers[first][second].tolist()
    assert_array_equal(select(numbers[first], new), numbers[first][second])


@given(st.integers(1, 20), SLICES, st.data())
def test_take_and_select(length, cut, data):
    old = range(length)[cut]
    numbers = np.array(old, np.int64)
    places = np.array(
        data.draw(st.lists(st.integers(0, len(old) - 1)) if old else st.just([])), np.int64
    )
    assert_array_equal(take(old, places), numbers[places])
    assert_array_equal(take(numbers, places), numbers[places])
    assert_array_equal(select(old, places), numbers[places])
    assert_array_equal(select(numbers, places), numbers[places])
    square = np.resize(places, (2, 3)) if len(places) else np.zeros((0, 3), np.int64)
    assert take(old, square).shape == square.shape


def test_ranges_of_any_length_cost_nothing():
    huge = range(0, 10**18, 3)
    assert select(select(huge, range(10, 10**17)), range(10**16, 0, -1)) == range(
        30 + 3 * 10**16, 30, -3
    )
    assert split_ranges(10**18, (0.7, 0.2, 0.1))[2] == range(9 * 10**17, 10**18)


@pytest.mark.parametrize(
    ("length", "sizes", "lengths"),
    [
        (10, (0.7, 0.2, 0.1), [7, 2, 1]),
        (10, (0.1, 0.2, 0.7), [1, 2, 7]),
        (3, (1 / 3, 1 / 3, 1 / 3), [1, 1, 1]),
        (7, (0.5,), [4]),
        (1, (1.0,), [1]),
        (1, (1,), [1]),
        (100, (np.float64(0.6), np.float64(0.2), np.float64(0.2)), [60, 20, 20]),
        (100, (np.float32(0.6), np.float32(0.2), np.float32(0.2)), [60, 20, 20]),
        (100, (np.float16(0.7), np.float16(0.2), np.float16(0.1)), [70, 20, 10]),
        (9, (Fraction(1, 3), Fraction(2, 3)), [3, 6]),
        (9, (np.int8(4), np.uint16(5)), [4, 5]),
        (1000, (0.001,) * 1000, [1] * 1000),
        (20, (0.05,) * 20, [1] * 20),
    ],
    ids=repr,
)
def test_split(length, sizes, lengths):
    parts = split_ranges(length, sizes)
    assert [len(part) for part in parts] == lengths
    assert [i for part in parts for i in part] == list(range(sum(lengths)))


@given(st.integers(1, 300), st.lists(st.integers(1, 9), min_size=1, max_size=8), st.integers(0, 5))
def test_fractions_that_sum_to_one_use_every_place(length, weights, gap):
    sizes = [weight / sum(weights) for weight in weights]
    try:
        parts = split_ranges(length, sizes, gap)
    except EmptyError:
        return
    assert sum(map(len, parts)) + gap * (len(parts) - 1) == length
    assert all(after.start - before.stop == gap for before, after in pairwise(parts))
    left = length - gap * (len(parts) - 1)
    assert all(abs(len(part) - size * left) <= 1 for part, size in zip(parts, sizes, strict=True))


@pytest.mark.parametrize(
    "sizes",
    [(), (0.6, 0.5), (0.6, 4), (True, 2), (0.0, 0.5), (-1, 2), (6, 5), ("a",), (float("nan"), 0.2),
     (float("inf"),), (1.5,), (None,), (-0.5,), (np.True_,)],
    ids=repr,
)  # fmt: skip
def test_split_refuses(sizes):
    with pytest.raises(ArgumentError, match=r"must .*; got "):
        split_ranges(10, sizes)


@pytest.mark.parametrize(
    ("length", "sizes", "gap"),
    [(2, (0.4, 0.3, 0.3), 0), (10, (0.5, 0.5), 9), (10, (0.5, 0.5), 100), (0, (0.5, 0.5), 0),
     (0, (1.0,), 0)],
)  # fmt: skip
def test_no_part_is_empty(length, sizes, gap):
    with pytest.raises(EmptyError, match="at least one element"):
        split_ranges(length, sizes, gap)


def test_the_message_gives_the_sum():
    with pytest.raises(ArgumentError, match=r"a sum of 1\.1\."):
        split_ranges(10, (0.6, 0.5))
    with pytest.raises(ArgumentError, match=r"at most 8 \(10 less 2 .*a sum of 9\."):
        split_ranges(10, (4, 5), gap=2)


def test_consecutive_positions_are_a_range() -> None:
    assert as_range(np.array([3, 4, 5])) == range(3, 6)
    assert as_range(np.array([], np.int64)) == range(0)
    assert_array_equal(as_range(np.array([3, 5, 7])), [3, 5, 7])


def test_lengths_and_keys() -> None:
    assert_array_equal(as_lengths("episodes", [3, 0, 2], 5), [3, 0, 2])
    whole = slice(None)
    assert expand_key((whole, ..., 3), 4) == (whole, (whole, whole, 3))
