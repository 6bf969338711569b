"""Randomness of the permutations: chi-squared tests with fixed seeds.

Every test turns a table of counts into the normal deviate of its chi-squared statistic and asks
for less than 5, which chance exceeds once in three million. The last tests turn the rounds down,
and see the same deviates rise far above: these tests can fail.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from oocdata.order import BlockShuffle, Shuffle, permutation
from oocdata.order.permutation import derive_keys, epoch_key, forward

pytestmark = pytest.mark.filterwarnings("error")

LIMIT = 5.0
BASE = epoch_key(2024, 0, "statistics")


def deviate(chi_squared: float, freedom: int) -> float:
    """Normal deviate of a chi-squared statistic (Wilson and Hilferty 1931)."""
    spread = 2 / (9 * freedom)
    return float(((chi_squared / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread))


def uniformity(counts: np.ndarray) -> float:
    """Deviate of counts from equal counts."""
    expected = counts.sum() / counts.size
    return deviate(float(((counts - expected) ** 2).sum() / expected), counts.size - 1)


def permutations(size: int, number: int) -> np.ndarray:
    """Permutations under ``number`` derived keys, shape (number, size)."""
    keys = derive_keys(BASE, np.arange(number, dtype=np.uint64))
    values = np.tile(np.arange(size, dtype=np.uint64), number)
    permuted = forward(values, size, np.repeat(keys, size))
    return permuted.reshape(number, size).astype(np.int64)


def whole_permutations(drawn: np.ndarray) -> float:
    """Deviate of the counts of all n! permutations."""
    size = drawn.shape[1]
    codes = drawn @ size ** np.arange(size)
    counts = np.zeros(math.factorial(size))
    found = np.unique(codes, return_counts=True)[1]
    counts[: found.size] = found
    return uniformity(counts)


def differences(drawn: np.ndarray, lag: int) -> float:
    """Deviate of ``positions[place + lag] - positions[place]`` modulo the size, over many keys."""
    size = drawn.shape[1]
    found = (drawn[:, lag:] - drawn[:, :-lag]) % size
    return uniformity(np.bincount(found.ravel(), minlength=size)[1:])


def lags(size: int) -> list[int]:
    """Small lags, and those that leave one half of the network unchanged."""
    low = int(permutation._bases(np.array(size, dtype=np.uint64))[0])
    candidates = {1, 2, low // 2, low - 1, low, low + 1, 2 * low, size // 2}
    return sorted(lag for lag in candidates if 0 < lag < size)


def parity(drawn: np.ndarray) -> np.ndarray:
    """Whether each permutation is odd."""
    first, second = np.triu_indices(drawn.shape[1], 1)
    return (drawn[:, first] > drawn[:, second]).sum(axis=1) % 2 == 1


@pytest.mark.parametrize("size", [2, 3, 4, 5, 6, 7])
def test_all_orders_are_equally_likely(size: int) -> None:
    assert whole_permutations(permutations(size, 50_000)) < LIMIT


def test_all_orders_are_equally_likely_over_seeds_and_epochs() -> None:
    shuffle, size = Shuffle(), 5
    drawn = [
        shuffle.positions(size, 0, size, seed=seed, epoch=epoch)
        for seed in range(-20, 20)
        for epoch in range(20)  # 7 of each of the 120 orders of 5
    ]
    assert whole_permutations(np.array(drawn)) < LIMIT


@pytest.mark.parametrize("size", [8, 9, 10, 12, 15, 16])
def test_even_and_odd_permutations_are_equally_likely(size: int) -> None:
    odd = parity(permutations(size, 20_000))
    assert uniformity(np.array([odd.sum(), (~odd).sum()])) < LIMIT


@pytest.mark.parametrize("size", [2, 3, 5, 8, 9, 13, 16, 17, 31, 32, 33, 41, 50])
def test_every_place_sees_every_position_equally_often(size: int) -> None:
    drawn = permutations(size, 20_000)
    cells = np.bincount((drawn + np.arange(size) * size).ravel(), minlength=size**2)
    expected = len(drawn) / size
    # Rows and columns have fixed sums, so the table has (size - 1)^2 degrees of freedom.
    chi_squared = ((cells - expected) ** 2).sum() / expected * (size - 1) / size
    assert deviate(float(chi_squared), (size - 1) ** 2) < LIMIT


@pytest.mark.parametrize("size", [8, 10, 31, 64, 100, 511, 512, 4096])
def test_no_difference_is_favoured(size: int) -> None:
    drawn = permutations(size, -(-500_000 // size))
    for lag in lags(size):
        assert differences(drawn, lag) < LIMIT, lag


@pytest.mark.parametrize("size", [65_535, 1_000_000])
def test_no_difference_is_favoured_on_large_sizes(size: int) -> None:
    drawn = permutations(size, 2_000_000 // size)
    for lag in lags(size):
        assert differences(drawn, lag) < LIMIT, lag


@pytest.mark.parametrize("count", [10**6, 10**9, 2**31 + 11, 10**15, 2**61])
def test_positions_of_huge_counts_are_spread_evenly(count: int) -> None:
    positions = Shuffle().positions(count, count // 7, count // 7 + 500_000, seed=5, epoch=1)
    # Integer arithmetic, or counts near 2**61 would be rounded; bins that divide the count evenly.
    bins = np.minimum(positions // (count // 1000), 999)
    if count > 10**6:
        assert uniformity(np.bincount(bins, minlength=1000)) < LIMIT
    for lag in (1, 2, 3, 7, 1000):
        found = (positions[lag:] - positions[:-lag]) % count
        assert uniformity(np.bincount(np.minimum(found // (count // 1000), 999))) < LIMIT, lag
    coarse = np.minimum(positions // (count // 32), 31)
    pairs = coarse[:-1:2] * 32 + coarse[1::2]
    assert uniformity(np.bincount(pairs, minlength=1024)) < LIMIT


@pytest.mark.parametrize("count", [10**6, 999_983, 10**9, 2**61])
def test_low_bits_of_neighbours_are_independent(count: int) -> None:
    positions = Shuffle().positions(count, 1000, 401_000, seed=5, epoch=0)
    low = positions % 8
    triples = low[:-2:3] * 64 + low[1:-1:3] * 8 + low[2::3]
    assert uniformity(np.bincount(triples, minlength=512)) < LIMIT


@pytest.mark.parametrize("count", [100, 65_537, 10**9])
@pytest.mark.parametrize("step", [(0, 1), (1, 0), (1, -1), (-1, 0), (2**64, 0)])
def test_neighbouring_seeds_and_epochs_are_unrelated(count: int, step: tuple[int, int]) -> None:
    shuffle, number = Shuffle(), min(count, 50_000)
    seed_step, epoch_step = step
    found = np.zeros(50)
    for seed in range(max(4, 50_000 // count)):
        here = shuffle.positions(count, 0, number, seed=seed, epoch=5)
        there = shuffle.positions(count, 0, number, seed=seed + seed_step, epoch=5 + epoch_step)
        found += np.bincount((here - there) % count * 50 // count, minlength=50)
    # Bins of the residues modulo the count, which need not all be of one size.
    edges = np.array([-(-number * count // 50) for number in range(51)])
    expected = found.sum() * np.diff(edges) / count
    assert deviate(float(((found - expected) ** 2 / expected).sum()), 49) < LIMIT


def test_block_shuffle_visits_blocks_and_mixes_windows_in_every_order() -> None:
    order, count = BlockShuffle(2, 2), 8
    drawn = np.array(
        [order.positions(count, 0, count, seed=1, epoch=epoch) for epoch in range(1200)]
    )
    # Six pairs of blocks can make the first window; each of the windows has 4! orders.
    pairs = np.unique(np.bitwise_or.reduce(1 << drawn[:, :4] // 2, axis=1), return_counts=True)[1]
    assert pairs.size == 6
    assert uniformity(pairs) < LIMIT
    for half in (drawn[:, :4], drawn[:, 4:]):
        ranks = np.argsort(np.argsort(half, axis=1), axis=1)
        assert whole_permutations(ranks) < LIMIT


# --- These tests can fail -------------------------------------------------------------------


@pytest.mark.parametrize("rounds", [2, 4])
def test_a_weak_mixer_is_caught_by_whole_permutations(
    monkeypatch: pytest.MonkeyPatch, rounds: int
) -> None:
    monkeypatch.setattr(permutation, "rounds_for", lambda size: rounds)
    assert whole_permutations(permutations(5, 100_000)) > 2 * LIMIT


@pytest.mark.parametrize(("size", "rounds"), [(16, 6), (50, 6), (256, 4), (1000, 4), (65_536, 4)])
def test_a_weak_mixer_is_caught_by_differences(
    monkeypatch: pytest.MonkeyPatch, size: int, rounds: int
) -> None:
    monkeypatch.setattr(permutation, "rounds_for", lambda size: rounds)
    drawn = permutations(size, -(-1_000_000 // size))
    assert max(differences(drawn, lag) for lag in lags(size)) > 2 * LIMIT


def test_odd_bases_are_caught_by_parity(monkeypatch: pytest.MonkeyPatch) -> None:
    three = np.array(3, dtype=np.uint64)
    monkeypatch.setattr(permutation, "_bases", lambda sizes: (three, three))
    assert not parity(permutations(9, 1000)).any()
