"""Batches of similar length: each position once, one bucket per batch except at borders."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import oocdata as ooc
from oocdata.blocks import BlockTable
from oocdata.describe import as_json, fingerprint, from_json
from oocdata.errors import ArgumentError
from oocdata.order import BlockShuffle, Sequential, Shuffle
from oocdata.order.bucketed import Bucketed

BOUNDS = (5, 10, 20)
LENGTHS = np.random.default_rng(0).integers(0, 25, 500)
ROWS = ooc.ragged(np.arange(LENGTHS.sum()), lengths=LENGTHS)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=60), st.integers(1, 9), st.data())
def test_every_position_comes_once(ids: list[int], size: int, data: Any) -> None:
    blocks, count = BlockTable.of_ids(np.array(ids)), len(ids)
    kinds = st.sampled_from([Sequential(), Shuffle(), BlockShuffle(3, 2)])
    orders = tuple(data.draw(kinds) for _ in set(ids))
    order = Bucketed(blocks, orders, size, shuffled=data.draw(st.booleans()))
    for epoch in range(2):
        whole = order.positions(count, 0, count, seed=3, epoch=epoch)
        assert sorted(whole) == list(range(count))
        start, stop = sorted(data.draw(st.tuples(*[st.integers(0, count)] * 2)))
        some = order.positions(count, start, stop, seed=3, epoch=epoch)
        assert_array_equal(some, whole[start:stop])
        batches = [np.array(ids)[whole[at : at + size]] for at in range(0, count, size)]
        mixed = sum(len(set(batch.tolist())) - 1 for batch in batches)
        assert mixed <= len(set(ids)) - 1  # one at each border
    with pytest.raises(ArgumentError, match="`count` must be"):
        order.positions(count + 1, 0, 1, seed=0, epoch=0)


def test_batches_are_full_and_of_similar_length() -> None:
    loader = ROWS.batches(32, shuffle=True, seed=1, bucket=BOUNDS)
    assert len(loader) == 16
    buckets = np.searchsorted(BOUNDS, LENGTHS)
    firsts = []
    for epoch in range(3):
        seen, mixed = Counter[int](), 0
        for step, batch in enumerate(loader.epoch(epoch)):
            positions = loader.positions(step, epoch)
            assert len(batch) == (32 if step < 15 else 500 % 32)
            assert_array_equal(batch.row_lengths, LENGTHS[positions])
            assert_array_equal(
                batch.values, np.concatenate([ROWS[at] for at in positions.tolist()])
            )
            seen.update(positions.tolist())
            mixed += len(set(buckets[positions].tolist())) > 1
        assert seen == Counter(range(500))
        assert 0 < mixed <= len(BOUNDS)
        firsts.append(loader.positions(0, epoch).tolist())
    assert len({tuple(first) for first in firsts}) == 3
    few = ROWS.batches(32, shuffle=True, seed=1, bucket=BOUNDS, drop_remainder=True)
    assert [len(batch) for batch in few] == [32] * 15


def test_any_element_may_be_in_the_short_batch() -> None:
    loader = ROWS.batches(64, shuffle=True, bucket=BOUNDS)
    last = np.concatenate([loader.positions(len(loader) - 1, epoch) for epoch in range(200)])
    shares = np.bincount(np.searchsorted(BOUNDS, LENGTHS[last]), minlength=4) / len(last)
    whole = np.bincount(np.searchsorted(BOUNDS, LENGTHS), minlength=4) / len(LENGTHS)
    assert abs(shares - whole).max() < 0.15


def test_unshuffled_batches_are_in_order_of_buckets() -> None:
    loader = ROWS.batches(32, bucket=BOUNDS)
    positions = np.concatenate([loader.positions(step) for step in range(len(loader))])
    assert_array_equal(positions, np.argsort(np.searchsorted(BOUNDS, LENGTHS), kind="stable"))


def test_ranks_and_resuming() -> None:
    loader = ROWS.batches(32, shuffle=True, seed=1, bucket=BOUNDS)
    ranks = [loader.shard(4, rank) for rank in range(4)]
    for step in range(len(loader)):
        parts = np.concatenate([rank.positions(step, 1) for rank in ranks])
        whole = loader.positions(step, 1)
        assert len(parts) == len(whole) // 4 * 4
        assert_array_equal(parts, whole[: len(parts)])
    left = list(loader.epoch(1, start=9))
    assert len(left) == len(loader) - 9 > 0
    for step, batch in enumerate(left, 9):
        assert_array_equal(batch.values, loader.batch(step, 1).values)


def test_zipped_rows_are_bucketed_by_the_longest_and_described(tmp_path: Any) -> None:
    np.save(tmp_path / "values.npy", np.arange(LENGTHS.sum()))
    np.save(tmp_path / "offsets.npy", np.concatenate(([0], np.cumsum(LENGTHS))))
    rows = ooc.ragged(str(tmp_path / "values.npy"), str(tmp_path / "offsets.npy"))
    pairs = ooc.zip(rows[:-1], rows[1:])
    longest = np.maximum(LENGTHS[:-1], LENGTHS[1:])
    assert_array_equal(pairs.row_lengths(), longest)
    loader = pairs.batches(8, shuffle=True, bucket=(10, 20))
    again = from_json(as_json(loader))
    assert fingerprint(again) == fingerprint(loader)
    assert_array_equal(again.positions(7, 2), loader.positions(7, 2))
    assert fingerprint(loader) != fingerprint(pairs.batches(8, shuffle=True, bucket=(10, 21)))
    assert "3 buckets by length, each: full shuffle" in str(loader.explain())


def test_blocks_of_chunks_within_a_bucket() -> None:
    loader = ROWS.batches(32, shuffle="block", bucket=BOUNDS)
    seen = np.concatenate([loader.positions(step) for step in range(len(loader))])
    assert sorted(seen) == list(range(500))


def test_wrong_arguments() -> None:
    for wrong in ((), (0, 3), (5, 5), (5, 3), 7, "ab", (1.5,)):
        with pytest.raises(ArgumentError, match="`bucket` must be lengths"):
            ROWS.batches(4, bucket=wrong)
    with pytest.raises(ArgumentError, match="`bucket` must be None for elements of one length"):
        ooc.open(np.arange(9)).batches(4, bucket=(3,))
    with pytest.raises(ArgumentError, match="`weights` must be None"):
        ROWS.batches(4, shuffle=True, bucket=(3,), weights=np.ones(500))
    with pytest.raises(ArgumentError, match="`shuffle` must be a bool or a word"):
        ROWS.batches(4, shuffle=Shuffle(), bucket=(3,))
