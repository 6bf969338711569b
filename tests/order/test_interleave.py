"""Interleaved parts against TensorFlow's own interleave."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import oocdata as ooc
from oocdata.describe import fingerprint, from_json
from oocdata.errors import ArgumentError


def of_tensorflow(lengths: list[int], cycle: int, block: int) -> list[int]:
    ends = np.cumsum(lengths)
    bounds = np.stack([ends - lengths, ends], 1).astype(np.int64)
    parts = tf.data.Dataset.from_tensor_slices(bounds)
    each = parts.interleave(
        lambda pair: tf.data.Dataset.range(pair[0], pair[1]), cycle_length=cycle, block_length=block
    )
    return [int(number) for number in each.as_numpy_iterator()]


@given(st.lists(st.integers(0, 12), min_size=1, max_size=9), st.integers(1, 5), st.integers(1, 5))
@settings(max_examples=25)
def test_the_order_equals_tensorflows_interleave(
    lengths: list[int], cycle: int, block: int
) -> None:
    order, count = ooc.Interleave(np.array(lengths), cycle, block), sum(lengths)
    wanted = of_tensorflow(lengths, cycle, block)
    assert order.positions(count, 0, count, seed=3, epoch=1).tolist() == wanted
    middle = count // 3
    assert order.positions(count, middle, count, seed=3, epoch=1).tolist() == wanted[middle:]


@given(st.lists(st.integers(0, 30), min_size=1), st.integers(1, 6), st.integers(1, 6))
def test_every_position_once_with_shuffled_parts(
    lengths: list[int], cycle: int, block: int
) -> None:
    order, count = ooc.Interleave(np.array(lengths), cycle, block, shuffle_parts=True), sum(lengths)
    for epoch in range(3):
        found = order.positions(count, 0, count, seed=1, epoch=epoch)
        assert np.array_equal(np.sort(found), np.arange(count))
    again = pickle.loads(pickle.dumps(order))
    assert np.array_equal(again.positions(count, 0, count, seed=1, epoch=2), found)


def test_in_a_loader(tmp_path: Path) -> None:
    for number in range(6):
        np.save(tmp_path / f"{number}.npy", np.arange(number * 10, number * 10 + 10))
    view = ooc.open(str(tmp_path / "*.npy"))
    order = ooc.Interleave(view.parts.lengths, cycle_length=3, block_length=2, shuffle_parts=True)
    loader = view.batches(6, shuffle=order, seed=4)
    for epoch in range(2):
        batches = list(loader.epoch(epoch))
        assert sorted(np.concatenate(batches).tolist()) == list(range(60))
        assert len({number // 10 for number in batches[0].tolist()}) == 3
        ranks = [loader.shard(2, rank) for rank in range(2)]
        for step, batch in enumerate(batches):
            parts = [rank.batch(step, epoch) for rank in ranks]
            assert np.array_equal(np.concatenate(parts), batch)
        rest = [batch.numpy() for batch in loader.to_tf(start=(epoch, 4))]
        assert np.array_equal(np.concatenate(rest), np.concatenate(batches[4:]))
    assert not np.array_equal(loader.batch(0, 0), loader.batch(0, 1))
    again = from_json(loader.describe())
    assert fingerprint(again) == fingerprint(loader)
    assert np.array_equal(again.batch(3), loader.batch(3))
    told = loader.explain()
    assert told.resident_bytes >= order.nbytes
    assert told.order == "3 parts at a time, 2 from each in turn"


def test_lengths_that_do_not_fit() -> None:
    view = ooc.open(np.arange(10))
    with pytest.raises(
        ArgumentError, match="must be the 9 elements that `lengths` add up to; got 10"
    ):
        view.batches(2, shuffle=ooc.Interleave(np.array([4, 5])))
    with pytest.raises(
        ArgumentError, match="`lengths` must be lengths, whole numbers of at least 0"
    ):
        ooc.Interleave(np.array([4, -5]))
    with pytest.raises(ArgumentError, match="`block_length` must be a whole number of at least 1"):
        ooc.Interleave(np.array([4]), block_length=0)
