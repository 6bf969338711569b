"""Blocks, lanes and windows of `BlockShuffle`: count what each of them guarantees."""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oocdata.blocks import Blocks, BlockTable, blocks_from_ids
from oocdata.errors import ArgumentError
from oocdata.order import BlockShuffle
from oocdata.order.block import RegularVisits, TableVisits

pytestmark = pytest.mark.filterwarnings("error")


@st.composite
def regular(draw: st.DrawFn) -> tuple[Blocks, int]:
    length = draw(st.integers(1, 12) | st.integers(1, 300))
    first = draw(st.integers(1, length))
    return Blocks(length, first), draw(st.integers(1, 150) | st.integers(1, 2000))


@st.composite
def irregular(draw: st.DrawFn) -> tuple[BlockTable, int]:
    ids = draw(st.lists(st.integers(-5, 40), min_size=1, max_size=400))
    return BlockTable.of_ids(np.array(ids)), len(ids)


def block_lists(blocks: Blocks | BlockTable, count: int) -> list[list[int]]:
    """Positions of every block."""
    if isinstance(blocks, BlockTable):
        numbers = blocks.of(np.arange(count))
        return [np.flatnonzero(numbers == number).tolist() for number in np.unique(numbers)]
    lists: list[list[int]] = []
    for position in range(count):
        if position == 0:
            left = blocks.first
        elif not left:
            left = blocks.length
        else:
            lists[-1].append(position)
            left -= 1
            continue
        lists.append([position])
        left -= 1
    return lists


@given(case=regular() | irregular(), seed=st.integers(), epoch=st.integers(0, 10**6))
def test_visits_lay_every_block_end_to_end(
    case: tuple[Blocks | BlockTable, int], seed: int, epoch: int
) -> None:
    blocks, count = case
    if isinstance(blocks, Blocks):
        visits: Any = RegularVisits(blocks, count, seed, epoch)
    else:
        visits = TableVisits(blocks, seed, epoch)
    wanted = block_lists(blocks, count)
    assert visits.number == len(wanted)
    places = np.arange(count)
    begins = visits.places_of(np.arange(visits.number + 1))
    assert (begins[0], begins[-1]) == (0, count)
    in_each = np.repeat(np.arange(visits.number), np.diff(begins))
    slots = visits.slots_of(in_each) + places - begins[in_each]
    positions = blocks.positions(slots)
    found = [positions[a:b].tolist() for a, b in itertools.pairwise(begins)]
    assert sorted(found) == sorted(wanted)
    np.testing.assert_array_equal(visits.visits_of(places), in_each)


@given(
    case=regular() | irregular(),
    mixed=st.integers(1, 400),
    lanes=st.sampled_from([None, 1, 2, 4, 64]),
    data=st.data(),
)
def test_every_position_once_and_slices_agree(
    case: tuple[Blocks | BlockTable, int], mixed: int, lanes: int | None, data: st.DataObject
) -> None:
    blocks, count = case
    order = BlockShuffle(blocks, mixed, lanes)
    whole = order.positions(count, 0, count, seed=1, epoch=2)
    np.testing.assert_array_equal(np.sort(whole), np.arange(count))
    start, stop = sorted(data.draw(st.tuples(st.integers(0, count), st.integers(0, count))))
    part = order.positions(count, start, stop, seed=1, epoch=2)
    np.testing.assert_array_equal(part, whole[start:stop])
    again = pickle.loads(pickle.dumps(order)).positions(count, start, stop, seed=1, epoch=2)
    np.testing.assert_array_equal(again, part)


@given(case=regular() | irregular(), width=st.integers(1, 30), lanes=st.sampled_from([1, 2, 8]))
def test_a_lane_needs_few_blocks_at_a_time(
    case: tuple[Blocks | BlockTable, int], width: int, lanes: int
) -> None:
    """While a block is needed in its lane, few others are begun."""
    blocks, count = case
    order = BlockShuffle(blocks, width * lanes, lanes)
    number = order.blocks.number(count)
    width = max(1, min(width * lanes, number) // lanes)
    cut = 0
    seen: set[int] = set()
    borders = (lane * count // lanes for lane in range(lanes + 1))
    for start, stop in itertools.pairwise(borders):
        of = blocks.of(order.positions(count, start, stop, seed=3, epoch=0))
        uses = {int(block): np.flatnonzero(of == block)[[0, -1]] for block in np.unique(of)}
        cut += len(seen & uses.keys())
        seen |= uses.keys()
        if not uses:
            continue
        begun, done = (np.array(one) for one in zip(*uses.values(), strict=True))
        in_use = np.bincount(begun, minlength=len(of) + 1)
        in_use -= np.bincount(done + 1, minlength=len(of) + 1)
        assert in_use.cumsum().max() <= width
    assert cut < lanes
    assert len(seen) == number


@pytest.mark.parametrize("first", [5, 32])
@pytest.mark.parametrize("mixed", [1, 16, 10**5])
@pytest.mark.parametrize("count", [10**9 + 7, 2**61])
def test_huge_counts(count: int, mixed: int, first: int) -> None:
    order = BlockShuffle(Blocks(32, first), mixed, lanes=1)
    width = min(mixed, 2000)
    for start in (0, count // 2, count - 32 * width):
        found = order.positions(count, start, start + 32 * width, seed=1, epoch=0)
        assert found.min() >= 0
        assert found.max() < count
        assert np.unique(found).size == found.size
        # Windows that were begun, and the one that follows: not more blocks than in those.
        if mixed <= 16:
            touched = np.unique(order.blocks.of(found)).size
            assert touched <= 32 * width // 14 + 2 * mixed


@pytest.mark.parametrize("huge", [2**61, 2**63 - 1])
def test_blocks_and_windows_beyond_the_count(huge: int) -> None:
    for blocks in (Blocks(huge, huge - 1), Blocks(huge, 1), Blocks(huge, huge)):
        order = BlockShuffle(blocks, huge)
        found = order.positions(1000, 0, 1000, seed=1, epoch=0)
        np.testing.assert_array_equal(np.sort(found), np.arange(1000))
        assert order.positions(2**61, 2**60, 2**60 + 10, seed=1, epoch=0).size == 10


def test_windows_of_one_epoch_are_mixed_differently() -> None:
    order, count = BlockShuffle(64, 1), 64 * 50
    positions = order.positions(count, 0, count, seed=1, epoch=0).reshape(50, 64)
    assert len({tuple(row % 64) for row in positions}) == 50


def test_windows_mix_their_blocks() -> None:
    # A batch of a window's size / 8 sees nearly all of its eight blocks, as chance would have it.
    order, count = BlockShuffle(32, 8), 32 * 8 * 100
    blocks = order.positions(count, 0, count, seed=1, epoch=0).reshape(-1, 32) // 32
    seen = np.mean([np.unique(batch).size for batch in blocks])
    assert 7.7 < seen < 8.0


def test_lanes_begin_their_windows_at_different_times() -> None:
    """Blocks are begun at an even pace; else all lanes would decode at once, and then wait."""
    order, each, count = BlockShuffle(32, 64 * 16, lanes=16), 6400, 16 * 6400
    steps = np.stack(
        [order.positions(count, a, a + each, seed=1, epoch=0) for a in range(0, count, each)]
    )
    begun, known = [], set()
    for batch in (steps // 32).T:
        begun.append(len(set(batch.tolist()) - known))
        known.update(batch.tolist())
    # 3,200 blocks over 6,400 steps, once the first windows are under way.
    paces = [sum(begun[at : at + 256]) for at in range(2048, 6144, 256)]
    assert max(paces) < 2 * 128


def test_the_short_last_block_comes_anywhere() -> None:
    order, count = BlockShuffle(Blocks(5, 5), 1), 1013
    where = [
        np.flatnonzero(order.positions(count, 0, count, seed=1, epoch=epoch) >= 1010)
        for epoch in range(40)
    ]
    assert min(at.min() for at in where) < 100
    assert max(at.max() for at in where) > count - 100


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param({"blocks": 0}, "`blocks` must be a whole number of at least 1", id="block-0"),
        pytest.param({"blocks": 2.0}, "`blocks` must be", id="block-float"),
        pytest.param({"blocks": True}, "`blocks` must be", id="block-bool"),
        pytest.param({"blocks": 2**70}, "`blocks` must be", id="block-huge"),
        pytest.param({"blocks_mixed": 0}, "`blocks_mixed` must be", id="mixed-0"),
        pytest.param({"blocks_mixed": None}, "`blocks_mixed` must be", id="mixed-none"),
        pytest.param({"lanes": 3}, "`lanes` must be a power of two up to 64; got 3", id="lanes-3"),
        pytest.param({"lanes": 128}, "`lanes` must be a power of two", id="lanes-128"),
    ],
)
def test_wrong_fields(arguments: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {"blocks": 4, "blocks_mixed": 2, "lanes": None}
    BlockShuffle(**good)
    with pytest.raises(ArgumentError, match=message):
        BlockShuffle(**good | arguments)


def test_ids_of_another_dataset_are_refused() -> None:
    order = BlockShuffle(BlockTable.of_ids(np.zeros(10, np.int64)), 1)
    with pytest.raises(ArgumentError, match="`count` must be the 10 positions"):
        order.positions(11, 0, 5, seed=0, epoch=0)


def test_fields_become_python_integers() -> None:
    order = BlockShuffle(np.int64(4), np.int32(2), np.uint8(8))
    assert order == BlockShuffle(4, 2, 8)
    assert isinstance(order.blocks, Blocks)
    assert [type(n) for n in (order.blocks.length, order.blocks_mixed, order.lanes)] == [int] * 3


# These values must never change: a resumed run would get different data.
@pytest.mark.parametrize(
    ("order", "count", "expected"),
    [
        (BlockShuffle(4, 2), 20, [14, 12, 13, 16, 17, 15]),
        (BlockShuffle(32, 64, 8), 20000, [16154, 12523, 16130, 10140, 17284, 10129]),
        (BlockShuffle(Blocks(32, 5), 64, 8), 20000, [5375, 11184, 5351, 15521, 14601, 15510]),
        (
            BlockShuffle(Blocks(64, 1), 100),
            10**9,
            [99081263, 220763535, 45627518, 520037448, 45627478, 554594718],
        ),
        (
            BlockShuffle(BlockTable.of_ids(np.arange(1000) ** 2 % 37), 4, 2),
            1000,
            [861, 952, 750, 898, 767, 824],
        ),
    ],
)
def test_orders_never_change(order: BlockShuffle, count: int, expected: list[int]) -> None:
    start = count // 2
    assert order.positions(count, start, start + 6, seed=-5, epoch=3).tolist() == expected


@given(st.lists(st.integers(-3, 9), min_size=1, max_size=60), st.booleans(), st.integers(1, 7))
def test_runs_are_visited_as_ids_are(ids: list[int], ascending: bool, piece: int) -> None:
    """If ids never decrease, only the starts of runs are stored, and the order is the same."""
    given_ = np.array(sorted(ids) if ascending else ids)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("oocdata.blocks._PIECE", piece)
        blocks = blocks_from_ids(len(given_), lambda positions: given_[positions])
    falls = bool((np.diff(given_) < 0).any())
    assert (blocks.order is not None) == falls
    orders = [BlockShuffle(one, 3) for one in (blocks, BlockTable.of_ids(given_))]
    found = [one.positions(len(ids), 0, len(ids), seed=5, epoch=2) for one in orders]
    assert found[0].tolist() == found[1].tolist()


@given(st.lists(st.integers(-3, 2**40), min_size=1, max_size=60))
def test_positions_of_equal_ids_are_a_block(ids: list[int]) -> None:
    blocks = blocks_from_ids(len(ids), lambda positions: np.array(ids)[positions])
    numbers = np.unique(ids, return_inverse=True)[1]
    assert blocks.of(np.arange(len(ids))).tolist() == numbers.tolist() or blocks.order is None
    starts, slots = blocks.starts(np.arange(blocks.number(len(ids)) + 1)), np.arange(len(ids))
    for block, (start, stop) in enumerate(itertools.pairwise(starts.tolist())):
        held = blocks.positions(slots[start:stop])
        assert sorted(held.tolist()) == np.flatnonzero(numbers == block).tolist()
        assert set(blocks.of(held).tolist()) == {block}


def test_the_order_of_few_positions_takes_four_bytes_each() -> None:
    blocks = BlockTable.of_ids(np.array([5, 2**40, 0]))
    assert blocks.order is not None
    assert blocks.order.nbytes == 3 * 4
    assert blocks.of(np.arange(3)).dtype == blocks.positions(np.arange(3)).dtype == np.int64
