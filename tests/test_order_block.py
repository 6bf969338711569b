"""Blocks and windows of `BlockShuffle`, against a slow oracle that keeps tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oocdata.errors import ArgumentError
from oocdata.order import BlockShuffle

pytestmark = pytest.mark.filterwarnings("error")


def block_lists(order: BlockShuffle, count: int) -> list[list[int]]:
    """Positions of every block."""
    first = min(order.block if order.first is None else order.first, count)
    begins = [0, *range(first, count, order.block)] if count else []
    return [list(range(a, b)) for a, b in zip(begins, [*begins[1:], count], strict=True)]


@st.composite
def cases(draw: st.DrawFn) -> tuple[BlockShuffle, int]:
    block = draw(st.integers(1, 40) | st.integers(1, 600))
    first = draw(st.none() | st.integers(1, block))
    window = draw(st.integers(1, 6) | st.integers(1, 400))
    return BlockShuffle(block, window, first), draw(st.integers(1, 60) | st.integers(1, 2000))


@given(case=cases(), seed=st.integers(), epoch=st.integers(0, 10**6))
@settings(max_examples=300, deadline=None)
def test_every_window_holds_its_blocks_and_nothing_else(
    case: tuple[BlockShuffle, int], seed: int, epoch: int
) -> None:
    order, count = case
    at = {"seed": seed, "epoch": epoch}
    blocks = block_lists(order, count)
    assert order.block_count(count) == len(blocks)
    assert order.window_count(count) == -(-len(blocks) // order.window)
    positions = order.positions(count, 0, count, **at)
    np.testing.assert_array_equal(np.sort(positions), np.arange(count))

    visited: list[int] = []
    place = 0
    for window in range(order.window_count(count)):
        found = order.window_blocks(count, window, **at).tolist()
        assert len(found) == min(order.window, len(blocks) - len(visited))
        start, stop = order.window_bounds(count, window, **at)
        assert start == place
        assert sorted(positions[start:stop]) == sorted(p for block in found for p in blocks[block])
        assert order.window_at(count, start, **at) == window
        assert order.window_at(count, stop - 1, **at) == window
        visited += found
        place = stop
    assert place == count
    assert sorted(visited) == list(range(len(blocks)))


@given(case=cases(), data=st.data())
@settings(max_examples=200, deadline=None)
def test_slices_agree_with_the_whole(case: tuple[BlockShuffle, int], data: st.DataObject) -> None:
    order, count = case
    start, stop = sorted(data.draw(st.tuples(st.integers(0, count), st.integers(0, count))))
    whole = order.positions(count, 0, count, seed=1, epoch=2)
    part = order.positions(count, start, stop, seed=1, epoch=2)
    np.testing.assert_array_equal(part, whole[start:stop])


@given(case=cases())
@settings(deadline=None)
def test_block_bounds(case: tuple[BlockShuffle, int]) -> None:
    order, count = case
    blocks = block_lists(order, count)
    starts, stops = order.block_bounds(count, np.arange(len(blocks)))
    assert starts.tolist() == [block[0] for block in blocks]
    assert stops.tolist() == [block[-1] + 1 for block in blocks]


@pytest.mark.parametrize("first", [None, 1, 5, 32])
@pytest.mark.parametrize("window", [1, 16, 1000])
@pytest.mark.parametrize("count", [10**9, 10**9 + 7, 2**62])
def test_huge_counts(count: int, window: int, first: int | None) -> None:
    order = BlockShuffle(32, window, first)
    at = {"seed": 1, "epoch": 0}
    last = order.window_count(count) - 1
    for window_number in (0, 1, last // 2, last):
        start, stop = order.window_bounds(count, window_number, **at)
        blocks = order.window_blocks(count, window_number, **at)
        starts, stops = order.block_bounds(count, blocks)
        expected = np.concatenate([np.arange(a, b) for a, b in zip(starts, stops, strict=True)])
        found = order.positions(count, start, stop, **at)
        np.testing.assert_array_equal(np.sort(found), np.sort(expected))
    assert stop == count


@pytest.mark.parametrize("huge", [2**62, 2**63 - 1])
def test_blocks_and_windows_beyond_the_count(huge: int) -> None:
    order = BlockShuffle(huge, huge, first=huge - 1)
    assert order.block_count(1000) == order.window_count(1000) == 1
    found = order.positions(1000, 0, 1000, seed=1, epoch=0)
    np.testing.assert_array_equal(np.sort(found), np.arange(1000))
    starts, stops = order.block_bounds(2**62, np.array([0]))
    assert (starts.item(), stops.item()) == (0, min(huge - 1, 2**62))
    assert order.positions(2**62, 2**61, 2**61 + 10, seed=1, epoch=0).size == 10


def test_first_of_a_full_block_changes_nothing() -> None:
    plain, named = BlockShuffle(8, 3), BlockShuffle(8, 3, first=8)
    for epoch in range(5):
        np.testing.assert_array_equal(
            plain.positions(100, 0, 100, seed=1, epoch=epoch),
            named.positions(100, 0, 100, seed=1, epoch=epoch),
        )


def test_windows_of_one_epoch_are_mixed_differently() -> None:
    order, count = BlockShuffle(block=64, window=1), 64 * 50
    positions = order.positions(count, 0, count, seed=1, epoch=0).reshape(50, 64)
    assert len({tuple(row % 64) for row in positions}) == 50


def test_windows_mix_their_blocks() -> None:
    # A batch of a window's size / 8 sees nearly all of its eight blocks, as chance would have it.
    order, count = BlockShuffle(block=32, window=8), 32 * 8 * 100
    blocks = order.positions(count, 0, count, seed=1, epoch=0).reshape(-1, 32) // 32
    seen = np.mean([np.unique(batch).size for batch in blocks])
    assert 7.7 < seen < 8.0


def test_epochs_visit_the_blocks_in_different_orders() -> None:
    order = BlockShuffle(block=10, window=4)
    visits = {
        tuple(order.window_blocks(400, 0, seed=1, epoch=epoch).tolist()) for epoch in range(20)
    }
    assert len(visits) == 20


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param({"block": 0}, "`block` must be a whole number of at least 1", id="block-0"),
        pytest.param({"block": 2.0}, "`block` must be", id="block-float"),
        pytest.param({"block": True}, "`block` must be", id="block-bool"),
        pytest.param({"block": 2**70}, "`block` must be", id="block-huge"),
        pytest.param({"window": 0}, "`window` must be", id="window-0"),
        pytest.param({"window": None}, "`window` must be", id="window-none"),
        pytest.param({"first": 0}, "`first` must be", id="first-0"),
        pytest.param({"first": 5}, r"`first` must be at most `block` \(4\); got 5", id="first-5"),
        pytest.param({"first": "1"}, "`first` must be", id="first-text"),
    ],
)
def test_wrong_fields(arguments: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {"block": 4, "window": 2, "first": None}
    BlockShuffle(**good)
    with pytest.raises(ArgumentError, match=message):
        BlockShuffle(**good | arguments)


def test_wrong_windows_and_places() -> None:
    order = BlockShuffle(4, 2)
    with pytest.raises(ArgumentError, match=r"`window` must be less than .* \(2\); got 2"):
        order.window_bounds(16, 2, seed=0, epoch=0)
    with pytest.raises(ArgumentError, match="`window` must be"):
        order.window_blocks(16, -1, seed=0, epoch=0)
    with pytest.raises(ArgumentError, match="`stop` must be"):
        order.window_at(16, 16, seed=0, epoch=0)
    with pytest.raises(ArgumentError, match="`window` must be less than"):
        order.window_blocks(0, 0, seed=0, epoch=0)


def test_fields_become_python_integers() -> None:
    order = BlockShuffle(np.int64(4), np.int32(2), np.uint8(3))
    assert [type(value) for value in (order.block, order.window, order.first)] == [int] * 3
    assert order == BlockShuffle(4, 2, 3)
