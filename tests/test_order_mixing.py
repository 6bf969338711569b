"""The entropy of blocks in a batch, against values worked out by hand and by sampling."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from oocdata.errors import ArgumentError
from oocdata.order import BlockShuffle, Order, Sequential, Shuffle
from oocdata.order.mixing import batch_entropy, full_shuffle_entropy, mixing

pytestmark = pytest.mark.filterwarnings("error")


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        pytest.param([[3, 3, 3]], 0.0, id="one-block"),
        pytest.param([[0, 1, 2, 3]], 2.0, id="all-different"),
        pytest.param([[1, 0, 1, 0]], 1.0, id="unsorted"),
        pytest.param([[0, 0, 0, 1]], 2 - 0.75 * math.log2(3), id="uneven"),
        pytest.param([[0, 0], [0, 1]], 0.5, id="mean"),
        pytest.param([[1, 2], [2, 1]], 1.0, id="same-block-at-the-seam"),
        pytest.param([[7]], 0.0, id="batch-of-one"),
    ],
)
def test_batch_entropy(blocks: list[list[int]], expected: float) -> None:
    assert batch_entropy(np.array(blocks)) == pytest.approx(expected)


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (4,), (2, 2, 2)])
def test_batch_entropy_refuses_other_shapes(shape: tuple[int, ...]) -> None:
    with pytest.raises(ArgumentError, match="`blocks` must have shape"):
        batch_entropy(np.zeros(shape, dtype=np.int64))


@pytest.mark.parametrize(
    ("count", "batch_size", "block", "first"),
    [
        pytest.param(4000, 32, 32, None, id="many-blocks"),
        pytest.param(64, 32, 32, None, id="two-blocks"),
        pytest.param(100, 40, 33, 7, id="short-first-and-last"),
        pytest.param(50, 20, 100, 30, id="short-first-of-two"),
        pytest.param(300, 300, 7, None, id="whole-epoch"),
        pytest.param(50, 20, 100, None, id="one-block"),
        pytest.param(50, 20, 1, None, id="block-of-one"),
        pytest.param(50, 1, 3, None, id="batch-of-one"),
    ],
)
def test_full_shuffle_entropy_is_what_shuffling_gives(
    count: int, batch_size: int, block: int, first: int | None
) -> None:
    generator = np.random.default_rng(0)
    batches = [generator.permutation(count)[:batch_size] for _ in range(4000)]
    ids = (np.array(batches) + block - (first or block)) // block
    expected = batch_entropy(ids)
    assert full_shuffle_entropy(count, batch_size, block, first=first) == pytest.approx(
        expected, abs=0.01
    )


@pytest.mark.parametrize(("batch_size", "block"), [(32, 32), (65_536, 10**6), (4096, 1)])
def test_full_shuffle_entropy_of_huge_counts(batch_size: int, block: int) -> None:
    found = full_shuffle_entropy(2**62, batch_size, block)
    assert found == pytest.approx(math.log2(batch_size), abs=1e-3)


@pytest.mark.parametrize(("batch_size", "block"), [(32, 32), (256, 32), (1000, 100)])
def test_shuffle_mixes_like_a_full_shuffle(batch_size: int, block: int) -> None:
    found = mixing(Shuffle(), 10**6, batch_size, block, epochs=2)
    assert found.entropy == pytest.approx(found.full_shuffle_entropy, abs=0.01)


def test_sequential_does_not_mix() -> None:
    assert mixing(Sequential(), 32_000, 32, 32).entropy == 0
    assert mixing(Sequential(), 32_000, 64, 32).entropy == 1


def test_wider_windows_mix_better() -> None:
    entropies = [
        mixing(BlockShuffle(32, window), 10**6, 256, 32).entropy for window in (1, 4, 16, 64, 10**5)
    ]
    assert entropies == sorted(entropies)
    assert entropies[0] == 3
    full = full_shuffle_entropy(10**6, 256, 32)
    assert entropies[-1] == pytest.approx(full, abs=0.02)


def test_blocks_of_the_order_and_of_the_measure_agree_on_the_first() -> None:
    order = BlockShuffle(block=32, window=1, first=5)
    aligned = mixing(order, 5 + 32 * 999, 32, 32, first=5).entropy
    assert aligned < mixing(order, 5 + 32 * 999, 32, 32).entropy


def test_same_arguments_same_mixing() -> None:
    assert mixing(Shuffle(), 5000, 32, 8, seed=3) == mixing(Shuffle(), 5000, 32, 8, seed=3)
    assert mixing(Shuffle(), 5000, 32, 8, seed=3) != mixing(Shuffle(), 5000, 32, 8, seed=4)


@pytest.mark.parametrize(("batch_size", "most"), [(32, 32), (100, 10), (2**20, 2)])
def test_few_batches_are_looked_at(batch_size: int, most: int) -> None:
    calls: list[tuple[int, int, int]] = []

    class Recording:
        def positions(
            self, count: int, start: int, stop: int, *, seed: int, epoch: int
        ) -> np.ndarray:
            calls.append((start, stop, epoch))
            return np.arange(start, stop)

    order: Order = Recording()
    mixing(order, 1000 if batch_size == 100 else 2**24, batch_size, 32, epochs=2)
    assert len(calls) == len(set(calls)) == 2 * most
    assert all(start % batch_size == 0 and stop - start == batch_size for start, stop, _ in calls)


def test_a_batch_beyond_the_epoch_is_the_epoch() -> None:
    assert mixing(Shuffle(), 10, 32, 5) == mixing(Shuffle(), 10, 10, 5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"count": 0}, "`count`"),
        ({"batch_size": 0}, "`batch_size`"),
        ({"block": 0}, "`block`"),
        ({"first": 0}, "`first`"),
        ({"first": 9}, r"`first` must be at most `block` \(8\)"),
        ({"epochs": 0}, "`epochs`"),
        ({"seed": 0.5}, "`seed`"),
    ],
)
def test_wrong_arguments(change: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {"count": 100, "batch_size": 10, "block": 8}
    with pytest.raises(ArgumentError, match=message):
        mixing(Shuffle(), **good | change)


def test_a_batch_is_never_larger_than_the_epoch() -> None:
    with pytest.raises(ArgumentError, match=r"`batch_size` must be at most `count` \(10\)"):
        full_shuffle_entropy(10, 11, 2)
