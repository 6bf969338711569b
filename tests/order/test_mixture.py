"""Mixtures and draws by weight: exact shares, every element once an epoch, for any ranks."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from oocdata.blocks import Blocks, BlockTable
from oocdata.errors import ArgumentError
from oocdata.order import BlockShuffle, Order, Sequential, Shuffle
from oocdata.order.mixture import Mixture, Shares
from oocdata.order.steps import Steps
from oocdata.order.weighted import Weighted

WEIGHTS = st.lists(st.integers(1, 1000), min_size=1, max_size=4).map(tuple)


@st.composite
def mixtures(draw: st.DrawFn) -> tuple[Mixture, int]:
    """A mixture and its lanes."""
    weights = draw(WEIGHTS)
    counts = tuple(draw(st.integers(9, 90)) for _ in weights)
    lanes = draw(st.sampled_from([1, 2, 8]))
    orders: list[Order] = []
    for count in counts:
        length = draw(st.integers(1, 20))
        blocks = draw(
            st.sampled_from(
                [
                    Blocks(length, length),
                    Blocks(length, 1),
                    BlockTable.of_ids(np.arange(count) % length),
                ]
            )
        )
        mixed = BlockShuffle(blocks, draw(st.integers(1, 9)), lanes)
        orders.append(draw(st.sampled_from([Sequential(), Shuffle(), mixed, mixed])))
    in_lanes = any(isinstance(order, BlockShuffle) for order in orders)
    length = lanes * draw(st.integers(1, 12))
    made = Mixture(tuple(orders), counts, weights, length, lanes if in_lanes else None)
    return made, lanes


# --- shares


@given(WEIGHTS, st.sampled_from([1, 2, 8]), st.integers(0, 10**12))
def test_every_lane_gives_one_element_per_row_and_members_their_shares(
    weights: tuple[int, ...], lanes: int, first: int
) -> None:
    rows = np.arange(first, first + 200)
    given_ = Shares(weights, lanes).counts(rows)
    steps = np.diff(given_, axis=2)
    assert ((steps == 0) | (steps == 1)).all()
    assert_array_equal(steps.sum(axis=0), 1)
    if first == 0:
        ideal = np.outer(np.array(weights) / sum(weights), rows) * lanes
        off = np.abs(given_.sum(axis=1) - ideal).max()
        assert off <= 0.5 + 1e-6 if len(weights) <= 2 else off < (2 if lanes == 1 else 4)


def test_shares_hold_from_the_first_batch_on() -> None:
    shares = Shares((7, 3), 4).counts(np.arange(0, 10_001))
    ideal = np.outer([0.7, 0.3], np.arange(10_001)) * 4
    assert np.abs(shares.sum(axis=1) - ideal).max() <= 0.5 + 1e-9
    assert np.abs(shares - ideal[:, None] / 4).max() < 1  # and in each lane


@given(WEIGHTS, st.sampled_from([1, 2, 8]), st.integers(0, 10**12), st.lists(st.integers(1, 3)))
def test_the_element_at_each_place(
    weights: tuple[int, ...], lanes: int, first: int, steps: list[int]
) -> None:
    """Its member, and its numbers among the elements of this in its lane and in all lanes."""
    shares, rows = Shares(weights, lanes), np.cumsum([first, *steps])
    before = shares.counts(rows)
    gives = shares.counts(rows + 1) - before
    member, lane = gives.argmax(axis=0), np.arange(lanes)[:, None]
    at = member, lane, np.arange(len(rows))
    earlier = (np.cumsum(gives, axis=1) - gives + before.sum(axis=1, keepdims=True))[at]
    assert_array_equal(shares.turns(rows), [member, before[at], earlier])


def test_elements_only_pass_the_sides_that_they_go_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mixture of many members counts an element at 7 nodes of 127, not at all."""
    counted, left = [], Shares._left

    def counting(self: Shares, node: Any, elements: np.ndarray, phase: np.ndarray) -> np.ndarray:
        counted.append(elements.size)
        return left(self, node, elements, phase)

    monkeypatch.setattr(Shares, "_left", counting)
    Shares((1,) * 128, 1).turns(np.arange(1000))
    assert sum(counted) == 2 * 7 * 1000 + 127


@given(WEIGHTS, st.sampled_from([1, 2, 8]), st.integers(0, 10**13), st.data())
def test_the_row_of_a_draw(
    weights: tuple[int, ...], lanes: int, draw: int, data: st.DataObject
) -> None:
    member = data.draw(st.integers(0, len(weights) - 1))
    shares = Shares(weights, lanes)
    row = shares.row_of(member, draw)
    before, after = shares.counts(np.array([row, row + 1]))[member].sum(axis=0).tolist()
    assert before <= draw < after or (before == after == draw) or draw == before


# --- mixtures


@given(mixtures(), st.integers(0, 3))
def test_a_member_gives_each_element_once_before_any_again(
    case: tuple[Mixture, int], seed: int
) -> None:
    order, lanes = case
    count, rows = sum(order.counts), order.length // lanes
    counts = np.zeros(count, np.int64)
    steps = Steps(order, count, lanes, seed, False)  # a batch is a row: one element of each lane
    assert steps.number == rows
    for epoch in range(6):
        for step in range(rows):
            np.add.at(counts, steps.positions(step, epoch), 1)
            if order.lanes is None or lanes == 1:
                for start, own in zip(order.starts, order.counts, strict=True):
                    part = counts[start : start + own]
                    assert part.max() - part.min() <= 1 or lanes > 1
    # Over all rows: whole epochs of each member, and the beginning of one.
    shares = Shares(order.weights, order.lanes or 1)
    elements = np.array([6 * order.length // (order.lanes or 1)])
    given_ = shares.counts(elements).sum(axis=(1, 2))
    for start, own, total in zip(order.starts, order.counts, given_.tolist(), strict=True):
        part = counts[start : start + own]
        assert part.sum() == total
        assert set(part.tolist()) <= {total // own, total // own + 1}


@given(mixtures(), st.sampled_from([1, 2, 4, 8]), st.integers(0, 4))
def test_ranks_share_the_batches_of_a_mixture(
    case: tuple[Mixture, int], ranks: int, epoch: int
) -> None:
    order, lanes = case
    ranks, count = min(ranks, lanes), sum(order.counts)
    for size in {size for size in (lanes, lanes * 3) if order.length % size == 0}:
        whole = Steps(order, count, size, 5, False)
        parts = [Steps(order, count, size, 5, False, ranks, index) for index in range(ranks)]
        for step in range(whole.number):
            together = np.concatenate([part.positions(step, epoch) for part in parts])
            assert_array_equal(together, whole.positions(step, epoch))


@given(mixtures(), st.data())
def test_a_place_of_a_mixture_does_not_depend_on_earlier_calls(
    case: tuple[Mixture, int], data: st.DataObject
) -> None:
    order, lanes = case
    used, fresh = (Steps(order, sum(order.counts), lanes, 1, False) for _ in range(2))
    asked = st.tuples(st.integers(0, used.number - 1), st.integers(0, 50))
    for step, epoch in data.draw(st.lists(asked, min_size=1, max_size=6)):
        used.positions(step, epoch)
    assert_array_equal(used.positions(step, epoch), fresh.positions(step, epoch))


def test_members_in_order_go_on_from_epoch_to_epoch() -> None:
    order = Mixture((Sequential(), Sequential()), (5, 7), (2, 1), 6)
    every = np.concatenate([order.positions(12, 0, 6, seed=0, epoch=e) for e in range(7)])
    assert every[every < 5].tolist() == [*range(5)] * 5 + [0, 1, 2]
    assert every[every >= 5].tolist() == [*range(5, 12)] * 2


def test_epochs_whose_elements_cannot_be_numbered_are_refused() -> None:
    order = Mixture((Shuffle(), Shuffle()), (50, 50), (1, 1), 100)
    last = 2**61 // 100 - 1
    positions = order.positions(100, 0, 100, seed=0, epoch=last)
    assert sorted(positions.tolist()) == [*range(100)]
    for epoch in (last + 1, 2**60):
        with pytest.raises(ArgumentError, match=f"`epoch` must be less than {last + 1}"):
            order.positions(100, 0, 100, seed=0, epoch=epoch)


def test_members_of_equal_length_are_shuffled_differently() -> None:
    order = Mixture((Shuffle(), Shuffle()), (50, 50), (1, 1), 100)
    every = order.positions(100, 0, 100, seed=3, epoch=0)
    assert every[every < 50].tolist() != (every[every >= 50] - 50).tolist()


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_a_rank_needs_its_share_of_each_member(ranks: int) -> None:
    blocks = 200
    order = Mixture(
        (BlockShuffle(16, 16, 8), BlockShuffle(16, 16, 8)), (16 * blocks,) * 2, (3, 1), 3200, 8
    )
    for index in (0, ranks - 1):
        steps = Steps(order, 32 * blocks, 32, 7, False, ranks, index)
        every = np.concatenate(
            [steps.positions(step, epoch) for epoch in range(4) for step in range(100)]
        )
        # Four epochs of the mixture are three of the first member, and one of the second.
        runs = np.unique(every[every < 16 * blocks] // 16, return_counts=True)[0]
        assert len(runs) <= min(blocks, 3 * (blocks / ranks + 8))
        second = np.unique(every[every >= 16 * blocks] // 16)
        assert len(second) <= blocks / ranks + 8 // ranks + 1


def test_a_mixture_of_other_positions() -> None:
    with pytest.raises(ArgumentError, match="the 7 positions"):
        Mixture((Shuffle(), Shuffle()), (3, 4), (1, 1), 4).epoch_order(8, 0, 0)


# --- weights


@st.composite
def weighted(draw: st.DrawFn) -> tuple[Weighted, np.ndarray, int]:
    """An order by weight, the weights of positions, and its lanes."""
    count = draw(st.integers(1, 300))
    random = np.random.default_rng(draw(st.integers(0, 99)))
    weights = draw(
        st.sampled_from(
            [
                np.ones(count),
                random.integers(0, 4, count) + (np.arange(count) == count // 2),
                random.pareto(1, count) + 0.001,
                (np.arange(count) == count - 1) * 1.0,
            ]
        )
    ).astype(float)
    lanes, length = draw(st.sampled_from([1, 2, 8])), draw(st.integers(1, 40))
    blocks: Any = draw(
        st.sampled_from(
            [
                Blocks(length, length),
                Blocks(length, 1),
                BlockTable.of_ids(np.arange(count) ** 2 % (length + 1)),
                BlockTable(np.unique(np.append(np.arange(0, count, length), count))),
            ]
        )
    )
    order: Order = BlockShuffle(blocks, draw(st.integers(1, 9)), lanes)
    order = draw(st.sampled_from([order, order, Shuffle(), Sequential()]))
    return Weighted.of(order, weights), weights, lanes


@given(weighted(), st.integers(0, 9), st.integers(0, 9))
def test_each_element_is_drawn_as_often_as_it_weighs(
    case: tuple[Weighted, np.ndarray, int], seed: int, epoch: int
) -> None:
    order, weights, lanes = case
    count = len(weights)
    steps = Steps(order, count, lanes, seed, False)
    drawn = np.concatenate([steps.positions(step, epoch) for step in range(steps.number)])
    times = np.bincount(drawn, minlength=count)
    expected = count * weights / weights.sum()
    assert times.sum() == count
    assert (np.abs(times - expected) < 1 + 1e-6).all()
    assert (times[weights == 0] == 0).all()
    assert_array_equal(
        order.positions(count, count // 3, count, seed=seed, epoch=epoch),
        order.positions(count, 0, count, seed=seed, epoch=epoch)[count // 3 :],
    )


def test_equal_weights_draw_each_element_once() -> None:
    for count in (7, 1000, 12_345):
        order = Weighted.of(Shuffle(), np.full(count, 0.1))
        for epoch in range(5):
            drawn = order.positions(count, 0, count, seed=1, epoch=epoch)
            assert_array_equal(np.sort(drawn), np.arange(count))


def test_over_epochs_draws_are_in_proportion() -> None:
    random, epochs = np.random.default_rng(0), 400
    weights = random.random(50)
    order = Weighted.of(Shuffle(), weights)
    times = np.zeros(50)
    for epoch in range(epochs):
        times += np.bincount(order.positions(50, 0, 50, seed=3, epoch=epoch), minlength=50)
    # An epoch adds a draw or none to the whole part: five standard deviations of that.
    expected = epochs * 50 * weights / weights.sum()
    part = 50 * weights / weights.sum() % 1
    assert (np.abs(times - expected) <= 5 * np.sqrt(epochs * part * (1 - part)) + 1e-6).all()


@given(weighted(), st.sampled_from([2, 4, 8]))
def test_ranks_share_the_draws(case: tuple[Weighted, np.ndarray, int], ranks: int) -> None:
    order, weights, lanes = case
    ranks, count, size = min(ranks, lanes), len(weights), 2 * lanes
    whole = Steps(order, count, size, 5, True)
    parts = [Steps(order, count, size, 5, True, ranks, index) for index in range(ranks)]
    for step in range(whole.number):
        together = np.concatenate([part.positions(step, 1) for part in parts])
        assert_array_equal(together, whole.positions(step, 1))


def test_draws_by_weight_need_each_block_in_one_stretch() -> None:
    weights = np.random.default_rng(1).random(3200)
    order = Weighted.of(BlockShuffle(16, 8, 4), weights)
    steps = Steps(order, 3200, 32, 7, False)
    of = np.concatenate([steps.positions(step, 0) for step in range(100)]) // 16
    begun, ended = {}, {}
    for place, block in enumerate(of.tolist()):
        begun.setdefault(block, place)
        ended[block] = place
    spans = [ended[block] - begun[block] for block in begun]
    assert len(begun) == 200
    # A block lasts for its window: two blocks of each of four lanes, read side by side.
    assert np.median(spans) <= 2 * 16 * 4 * 1.5
    assert Counter(span > 600 for span in spans)[True] <= 4 + 1  # blocks cut by a border


def test_a_count_other_than_that_of_the_weights_is_refused() -> None:
    with pytest.raises(ArgumentError, match="the 3 elements"):
        Weighted.of(Shuffle(), np.ones(3)).positions(4, 0, 4, seed=0, epoch=0)
