"""Orders as values: coverage, slices, memory, pickles, errors, and pinned results."""

from __future__ import annotations

import itertools
import pickle
import tracemalloc
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oocdata.blocks import Blocks, BlockTable
from oocdata.errors import ArgumentError
from oocdata.order import BlockShuffle, Order, Sequential, Shuffle
from oocdata.order.bucketed import Bucketed
from oocdata.order.mixture import Mixture
from oocdata.order.weighted import Weighted

pytestmark = pytest.mark.filterwarnings("error")

ORDERS: list[Any] = [
    pytest.param(Sequential(), id="sequential"),
    pytest.param(Shuffle(), id="shuffle"),
    pytest.param(BlockShuffle(32, 8), id="block"),
    pytest.param(BlockShuffle(Blocks(32, 3), 8), id="block-first"),
    pytest.param(BlockShuffle(Blocks(32, 3), 8, lanes=4), id="block-cut-lanes"),
    pytest.param(BlockShuffle(1, 1), id="block-of-one"),
]
RANDOM = ORDERS[1:]
BUCKETS = BlockTable.of_ids(np.array([1, 0, 1, 0, 0, 1, 1]))


def epoch_of(order: Order, count: int, seed: int = 7, epoch: int = 0) -> np.ndarray:
    return order.positions(count, 0, count, seed=seed, epoch=epoch)


@pytest.mark.parametrize("order", ORDERS)
def test_every_position_once(order: Order) -> None:
    for count in (0, 1, 2, 3, 31, 32, 33, 1000, 4096, 30_011):
        positions = epoch_of(order, count)
        assert positions.dtype == np.int64
        np.testing.assert_array_equal(np.sort(positions), np.arange(count))


@pytest.mark.parametrize("order", [Sequential(), Shuffle()])  # of blocks: test_block.py
@given(data=st.data())
def test_slices_agree_with_the_whole(order: Order, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, 20_000))
    cuts = sorted(data.draw(st.lists(st.integers(0, count), max_size=12)))
    bounds = [0, *cuts, count]
    parts = [
        order.positions(count, start, stop, seed=3, epoch=1)
        for start, stop in itertools.pairwise(bounds)
    ]
    np.testing.assert_array_equal(np.concatenate(parts), epoch_of(order, count, 3, 1))


@pytest.mark.parametrize("order", ORDERS)
def test_results_may_be_changed_by_the_caller(order: Order) -> None:
    expected = order.positions(1000, 10, 20, seed=1, epoch=0).copy()
    order.positions(1000, 10, 20, seed=1, epoch=0)[:] = -1
    np.testing.assert_array_equal(order.positions(1000, 10, 20, seed=1, epoch=0), expected)


@pytest.mark.parametrize("order", RANDOM)
def test_seeds_and_epochs_give_different_orders(order: Order) -> None:
    drawn = {
        epoch_of(order, 500, seed, epoch).tobytes()
        for seed in (0, 1, 2, -1, -2, 2**64, 2**64 + 1, 10**50)
        for epoch in (0, 1, 2, 10**6)
    }
    assert len(drawn) == 8 * 4


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("count", [10**9, 2**61])
def test_starts_at_once_in_constant_memory(order: Order, count: int) -> None:
    for start in (0, count // 3, count - 5000):
        tracemalloc.start()
        positions = order.positions(count, start, start + 5000, seed=1, epoch=0)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 2**21
        assert np.unique(positions).size == 5000
        assert positions.min() >= 0
        assert positions.max() < count


@pytest.mark.parametrize("order", ORDERS)
def test_frozen_hashable_picklable(order: Order) -> None:
    epoch_of(order, 100)
    copy = pickle.loads(pickle.dumps(order))
    assert copy == order
    assert hash(copy) == hash(order)
    assert isinstance(order, Order)
    np.testing.assert_array_equal(epoch_of(copy, 100), epoch_of(order, 100))
    with pytest.raises((FrozenInstanceError, TypeError, AttributeError)):
        order.blocks = 3  # type: ignore[attr-defined]


@pytest.mark.parametrize("order", [Sequential(), Shuffle(), BlockShuffle(32, 8)])
def test_numpy_integers_are_integers(order: Order) -> None:
    found = order.positions(
        np.int64(100), np.int32(10), np.uint8(20), seed=np.int64(7), epoch=np.int16(0)
    )
    np.testing.assert_array_equal(found, epoch_of(order, 100)[10:20])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param({"count": -1}, "`count` must be a whole number of at least 0", id="count<0"),
        pytest.param({"count": 1.5}, "`count` must be", id="count-float"),
        pytest.param({"count": 2**61 + 1}, r"`count` must be at most 2\*\*61", id="count-huge"),
        pytest.param({"start": -1}, "`start` must be", id="start<0"),
        pytest.param({"start": 6}, r"0 <= start <= stop <= 10; got 6 and 5", id="start>stop"),
        pytest.param({"stop": 11}, r"0 <= start <= stop <= 10; got 2 and 11", id="stop>n"),
        pytest.param({"epoch": -1}, "`epoch` must be a whole number of at least 0", id="epoch<0"),
        pytest.param({"epoch": 0.0}, "`epoch` must be", id="epoch-float"),
        pytest.param({"seed": 1.0}, "`seed` must be a whole number; got 1.0", id="seed-float"),
        pytest.param({"seed": None}, "`seed` must be a whole number; got None", id="seed-none"),
    ],
)
def test_wrong_arguments(change: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {"count": 10, "start": 2, "stop": 5, "seed": 1, "epoch": 0}
    for order in (Sequential(), Shuffle(), BlockShuffle(32, 8)):
        order.positions(**good)
        with pytest.raises(ArgumentError, match=message):
            order.positions(**good | change)


@pytest.mark.parametrize("order", [Sequential(), Shuffle(), BlockShuffle(32, 8)])
def test_wrong_arguments_of_empty_ranges(order: Order) -> None:
    with pytest.raises(ArgumentError, match="`seed`"):
        order.positions(0, 0, 0, seed="a", epoch=0)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="`epoch`"):
        order.positions(5, 3, 3, seed=1, epoch=-1)


# These values must never change: a resumed run would get different data.
@pytest.mark.parametrize(
    ("order", "count", "expected"),
    [
        (Sequential(), 100, [50, 51, 52, 53, 54, 55]),
        (Shuffle(), 12, [4, 0, 7, 3, 5, 11]),
        (Shuffle(), 20000, [1053, 7149, 11131, 2672, 7235, 9741]),
        (Shuffle(), 10**9, [569453310, 392949930, 804236954, 254216217, 970135171, 769213376]),
    ],
)
def test_orders_never_change(order: Order, count: int, expected: list[int]) -> None:
    start = count // 2
    assert order.positions(count, start, start + 6, seed=-5, epoch=3).tolist() == expected


@pytest.mark.parametrize(
    ("order", "count", "expected"),
    [
        (Bucketed(BUCKETS, (Sequential(), Sequential()), 2, True), 7, [5, 6, 0, 2, 1, 3, 4]),
        (Mixture((Sequential(), Sequential()), (70, 10), (7, 3), 6), 80, [0, 70, 1, 2, 3, 71]),
        (Weighted.of(Sequential(), np.array([1.0, 0.0, 3.0, 4.0])), 4, [0, 2, 3, 3]),
    ],
)
def test_orders_of_orders_never_change(order: Order, count: int, expected: list[int]) -> None:
    assert order.positions(count, 0, len(expected), seed=7, epoch=0).tolist() == expected
