"""The entropy of blocks in a batch, against values worked out by hand and by sampling."""

from __future__ import annotations

import math

import numpy as np
import pytest

from oocdata.blocks import Blocks, BlockTable
from oocdata.order import BlockShuffle, Order, Sequential, Shuffle
from oocdata.order.mixing import Mixing, batch_entropy, full_shuffle_entropy, mixing

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


@pytest.mark.parametrize(
    ("count", "batch_size", "blocks"),
    [
        pytest.param(4000, 32, Blocks(32, 32), id="many-blocks"),
        pytest.param(64, 32, Blocks(32, 32), id="two-blocks"),
        pytest.param(100, 40, Blocks(33, 7), id="short-first-and-last"),
        pytest.param(50, 20, Blocks(100, 30), id="short-first-of-two"),
        pytest.param(300, 300, Blocks(7, 7), id="whole-epoch"),
        pytest.param(50, 20, Blocks(100, 100), id="one-block"),
        pytest.param(50, 20, Blocks(1, 1), id="block-of-one"),
        pytest.param(50, 1, Blocks(3, 3), id="batch-of-one"),
        pytest.param(200, 40, BlockTable.of_ids(np.arange(200) ** 2 % 37), id="ids"),
    ],
)
def test_full_shuffle_entropy_equals_that_of_a_shuffle(
    count: int, batch_size: int, blocks: Blocks | BlockTable
) -> None:
    generator = np.random.default_rng(0)
    batches = [generator.permutation(count)[:batch_size] for _ in range(4000)]
    expected = batch_entropy(blocks.of(np.array(batches)))
    # Measured on at most 32 batches, and on 5 of 205 positions.
    assert full_shuffle_entropy(count, batch_size, blocks) == pytest.approx(expected, abs=0.06)


@pytest.mark.parametrize("blocks", [Blocks(7, 3), Blocks(30, 5), Blocks(300, 5)])
def test_a_number_for_each_block(blocks: Blocks) -> None:
    numbers = blocks.of(np.arange(205))
    starts = np.flatnonzero(np.diff(numbers, prepend=-1))
    np.testing.assert_array_equal(numbers, np.cumsum(np.isin(np.arange(205), starts)) - 1)
    np.testing.assert_array_equal(starts, blocks.starts(np.arange(len(starts))))
    assert blocks.number(205) == len(starts)


@pytest.mark.parametrize(("batch_size", "block"), [(32, 32), (65_536, 10**6), (4096, 1)])
def test_full_shuffle_entropy_of_huge_counts(batch_size: int, block: int) -> None:
    found = full_shuffle_entropy(2**61, batch_size, Blocks(block, block))
    assert found == pytest.approx(math.log2(batch_size), abs=2e-3)


def mixing_of(order: Order, count: int, batch_size: int, block: int, first: int = 0) -> Mixing:
    def positions(step: int) -> np.ndarray:
        start = step * batch_size
        stop = min(start + batch_size, count)
        return order.positions(count, start, stop, seed=0, epoch=0)

    steps = -(-count // batch_size)
    return mixing(positions, steps, Blocks(block, first or block), count)


@pytest.mark.parametrize(("batch_size", "block"), [(32, 32), (256, 32), (1000, 100)])
def test_shuffle_mixes_like_a_full_shuffle(batch_size: int, block: int) -> None:
    found = mixing_of(Shuffle(), 10**6, batch_size, block)
    assert found.entropy == pytest.approx(found.full_shuffle_entropy, abs=0.02)


def test_sequential_does_not_mix() -> None:
    assert mixing_of(Sequential(), 32_000, 32, 32).entropy == 0
    assert mixing_of(Sequential(), 32_000, 64, 32).entropy == 1


def test_more_blocks_mix_better() -> None:
    entropies = [
        mixing_of(BlockShuffle(32, mixed), 10**6, 256, 32).entropy
        for mixed in (1, 4, 16, 64, 10**5)
    ]
    assert entropies == sorted(entropies)
    assert entropies[0] == 3
    full = full_shuffle_entropy(10**6, 256, Blocks(32, 32))
    assert entropies[-1] == pytest.approx(full, abs=0.02)


def test_blocks_of_the_order_and_of_the_measure_agree_on_the_first() -> None:
    order, count = BlockShuffle(Blocks(32, 5), 1), 5 + 32 * 999
    aligned = mixing_of(order, count, 32, 32, first=5).entropy
    assert aligned < mixing_of(order, count, 32, 32).entropy


@pytest.mark.parametrize(("batch_size", "most"), [(32, 32), (96, 10), (2**20, 2)])
def test_few_batches_are_measured(batch_size: int, most: int) -> None:
    count = 1000 if batch_size == 96 else 2**24
    asked: list[int] = []

    def positions(step: int) -> np.ndarray:
        asked.append(step)
        return np.arange(step * batch_size, min((step + 1) * batch_size, count))

    steps = -(-count // batch_size)
    assert mixing(positions, steps, Blocks(32, 32), count).entropy >= 0
    sampled = set(asked)
    assert len(sampled) <= most + 2
    assert steps - 1 not in asked[2:] or count % batch_size == 0
