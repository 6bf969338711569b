"""Steps: every position once, and the same global batches for every number of ranks."""

from __future__ import annotations

import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from forked import in_a_fork
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

from oocdata.blocks import Blocks, BlockTable
from oocdata.order import BlockShuffle, Order, Sequential, Shuffle
from oocdata.order.mixing import batch_entropy
from oocdata.order.order import EpochOrder
from oocdata.order.steps import Steps


@st.composite
def orders(draw: st.DrawFn) -> tuple[Order, int, int]:
    """An order, a count and a number of lanes that ranks may share."""
    count = draw(st.integers(1, 700))
    lanes = draw(st.sampled_from([1, 2, 8, 16]))
    length = draw(st.integers(1, 60))
    blocks = draw(
        st.sampled_from(
            [
                Blocks(length, length),
                Blocks(length, 1),
                BlockTable.of_ids(np.arange(count) ** 2 % (length + 1)),
            ]
        )
    )
    mixed = BlockShuffle(blocks, draw(st.integers(1, 40)), lanes)
    return draw(st.sampled_from([Sequential(), Shuffle(), mixed, mixed])), count, lanes


@given(
    case=orders(),
    times=st.integers(1, 5),
    drop=st.booleans(),
    ranks=st.sampled_from([1, 2, 4, 8, 16]),
    epoch=st.integers(0, 9),
)
def test_an_epoch_is_every_position_once_and_ranks_share_it(
    case: tuple[Order, int, int], times: int, drop: bool, ranks: int, epoch: int
) -> None:
    order, count, lanes = case
    ranks, size = min(ranks, lanes), lanes * times
    whole = Steps(order, count, size, 5, drop)
    batches = [whole.positions(step, epoch) for step in range(whole.number)]
    assert all(len(batch) == size for batch in batches[:-1])
    seen = np.concatenate([*batches, np.empty(0, np.int64)])
    assert len(np.unique(seen)) == len(seen) == (count // size * size if drop else count)

    parts = [Steps(order, count, size, 5, drop, ranks, index) for index in range(ranks)]
    assert {part.number for part in parts} <= {whole.number, count // size}
    for step in range(parts[0].number):
        shares = [part.positions(step, epoch) for part in parts]
        assert len({len(share) for share in shares}) == 1
        together = np.concatenate(shares)
        if len(together) == size:
            assert_array_equal(together, batches[step])
        else:  # elements of a short batch that can't be divided are dropped
            assert len(np.setdiff1d(together, batches[step])) == 0
            assert len(batches[step]) - len(together) < ranks
    read = sum(len(part.positions(step, epoch)) for part in parts for step in range(part.number))
    assert 0 <= len(seen) - read < ranks


@given(case=orders(), data=st.data())
def test_a_step_does_not_depend_on_earlier_calls(
    case: tuple[Order, int, int], data: st.DataObject
) -> None:
    order, count, lanes = case
    used, fresh = (Steps(order, count, lanes, 1, False) for _ in range(2))
    asked = st.tuples(st.integers(0, used.number - 1), st.integers(0, 2))
    for step, epoch in data.draw(st.lists(asked, min_size=1, max_size=20)):
        used.positions(step, epoch)
    assert_array_equal(used.positions(step, epoch), fresh.positions(step, epoch))
    assert len(used._stretches) <= 8


def needed_at_a_time(steps: Steps, block: int) -> tuple[int, int]:
    """Return the blocks that a rank needs in an epoch, and the maximum needed at a time."""
    of = np.concatenate([steps.positions(step, 0) for step in range(steps.number)]) // block
    numbers, first = np.unique(of, return_index=True)
    last = len(of) - 1 - np.unique(of[::-1], return_index=True)[1]
    begun = np.zeros(len(of) + 1, np.int64)
    np.add.at(begun, first, 1)
    np.add.at(begun, last + 1, -1)
    return len(numbers), int(np.cumsum(begun).max())


@pytest.mark.parametrize(("size", "lanes", "mixed"), [(32, 32, 64), (256, 64, 256)])
@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_a_rank_needs_its_share_of_the_blocks(
    size: int, lanes: int, mixed: int, ranks: int
) -> None:
    order, blocks = BlockShuffle(32, mixed, lanes), 3125
    for index in (0, ranks - 1):
        steps = Steps(order, 32 * blocks, size, 7, False, ranks, index)
        needed, _ = needed_at_a_time(steps, 32)
        assert needed <= blocks / ranks + lanes / ranks + 1
        assert needed <= 0.15 * blocks or ranks < 8


@pytest.mark.parametrize(
    ("count", "block", "size", "lanes", "mixed", "entropy"),
    [
        (100_000, 32, 32, 32, 64, 4.9),
        (100_000, 32, 256, 64, 256, 7.2),
        (10_000, 500, 32, 2, 4, 1.8),
    ],
)
def test_lanes_mix_well(
    count: int, block: int, size: int, lanes: int, mixed: int, entropy: float
) -> None:
    steps = Steps(BlockShuffle(block, mixed, lanes), count, size, 7, False)
    batches = [steps.positions(step, 0) // block for step in range(0, steps.number - 1, 37)]
    assert batch_entropy(np.array(batches)) > entropy


def test_ranks_read_different_positions_of_a_short_epoch() -> None:
    """Fewer positions than lanes: some lanes are empty."""
    order: Any = BlockShuffle(2, 8, lanes=8)
    parts = [Steps(order, 5, 8, 1, False, 4, index) for index in range(4)]
    found = np.concatenate([part.positions(0, 0) for part in parts]).tolist()
    assert len(found) == len(set(found) & set(range(5))) == 4
    assert [part.number for part in parts] == [1] * 4


class Meeting(Order):
    """An order that counts calls, and waits for a second thread to make the same call."""

    def __init__(self) -> None:
        self.calls = 0
        self.began = threading.Event()
        self.met = threading.Barrier(2)

    def epoch_order(self, count: int, seed: int, epoch: int) -> EpochOrder:
        return self.at

    def at(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        self.calls += 1
        self.began.set()
        with suppress(threading.BrokenBarrierError):  # no other thread came
            self.met.wait(0.5)
        return places


def test_positions_are_computed_once_for_all_threads() -> None:
    order = Meeting()
    steps = Steps(order, 100, 10, 0, False)
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda step: steps.positions(step, 0).tolist(), range(2)))
    assert found == [list(range(10)), list(range(10, 20))]
    assert order.calls == 1


def test_a_fork_computes_positions_while_a_thread_of_the_parent_does() -> None:
    order = Meeting()
    steps = Steps(order, 100, 10, 0, False)
    other = Steps(Sequential(), 100, 10, 0, False)
    thread = threading.Thread(target=steps.positions, args=(0, 0))
    thread.start()
    order.began.wait()
    assert in_a_fork(lambda: other.positions(1, 0).tolist()) == str(list(range(10, 20)))
    thread.join()


@pytest.mark.parametrize("order", [Sequential(), Shuffle(), BlockShuffle(8, 2)], ids=repr)
def test_a_batch_larger_than_the_dataset_takes_memory_for_what_there_is(order: Order) -> None:
    tracemalloc.start()
    try:
        steps = Steps(order, 100, 10**9, seed=0, drop_remainder=False)
        assert sorted(steps.positions(0, 0).tolist()) == list(range(100))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
