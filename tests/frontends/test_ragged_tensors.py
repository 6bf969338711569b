"""`to_tf` of rows of unequal length: the same batches, as `tf.RaggedTensor`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_array_equal

import oocdata as ooc

LENGTHS = np.random.default_rng(0).integers(0, 40, 100)
VALUES = np.arange(LENGTHS.sum() * 3, dtype="f4").reshape(-1, 3)


@pytest.fixture
def both(tmp_path: Path) -> ooc.Zip:
    np.save(tmp_path / "values.npy", VALUES)
    rows = ooc.ragged(str(tmp_path / "values.npy"), lengths=LENGTHS)
    return ooc.zip({"x": rows, "y": ooc.open(np.arange(100))})


@pytest.mark.parametrize(("size", "drop"), [(20, False), (32, False), (32, True), (128, False)])
def test_batches_are_the_loaders(both: ooc.Zip, size: int, drop: bool) -> None:
    loader = both.batches(size, shuffle=True, seed=3, drop_remainder=drop)
    dataset = loader.to_tf()
    length = size if size == 20 or drop else None
    assert dataset.element_spec["x"] == tf.RaggedTensorSpec((length, None, 3), tf.float32, 1)
    assert int(dataset.cardinality()) == len(loader)
    for epoch in range(2):
        batches = list(dataset)
        assert len(batches) == len(loader)
        for made, batch in zip(batches, loader.epoch(epoch), strict=True):
            x = made["x"]
            assert x.shape.as_list() == [len(batch["x"]), None, 3]
            x = tf.RaggedTensor.from_row_splits(x.values, x.row_splits, validate=True)
            assert_array_equal(x.values, batch["x"].values)
            assert_array_equal(x.row_splits, batch["x"].row_splits)
            assert_array_equal(made["y"], batch["y"])


def test_a_single_array_and_a_later_start() -> None:
    rows = ooc.ragged(np.arange(100), lengths=[0, 30, 0, 70, 0])
    loader = rows.batches(2, shuffle=True)
    first = next(iter(loader.to_tf(start=(1, 1))))
    assert first.to_list() == [row.tolist() for row in loader.batch(1, 1)]
    empty = ooc.ragged(np.zeros(0, "f4"), lengths=[0] * 5).batches(2).to_tf()
    assert [batch.to_list() for batch in empty] == [[[], []], [[], []], [[]]]


def test_a_saved_iterator_continues(both: ooc.Zip, tmp_path: Path) -> None:
    dataset = both.batches(8, shuffle=True, seed=1).to_tf()
    batches = iter(dataset)
    for _ in range(5):
        next(batches)
    path = tf.train.Checkpoint(batches).write(str(tmp_path / "place"))
    rest = [batch["y"].numpy().tolist() for batch in batches]
    again = iter(both.batches(8, shuffle=True, seed=1).to_tf())
    tf.train.Checkpoint(again).read(path)
    assert [batch["y"].numpy().tolist() for batch in again] == rest


def test_a_function_trains_on_it(both: ooc.Zip) -> None:
    @tf.function
    def total(x: tf.RaggedTensor) -> tf.Tensor:
        return tf.reduce_sum(x)

    batches = both.batches(16, shuffle=True).to_tf()
    found = sum(float(total(batch["x"])) for batch in batches)
    assert np.isclose(found, VALUES.astype("f8").sum(), rtol=1e-4)


@pytest.mark.parametrize("drop", [False, True])
def test_buckets_of_static_shapes(both: ooc.Zip, drop: bool) -> None:
    bounds, rows = (10, 20, 40), both.parts["x"]
    pairs = ooc.zip(rows.pad(bounds), rows.mask(bounds), both.parts["y"])
    loader = pairs.batches(16, shuffle=True, seed=3, bucket=bounds, drop_remainder=drop)
    dataset = loader.to_tf()
    length = 16 if drop else None
    assert dataset.element_spec[:2] == (
        tf.TensorSpec((length, None, 3), tf.float32),
        tf.TensorSpec((length, None), tf.bool),
    )
    assert int(dataset.cardinality()) == len(loader)
    for epoch in range(2):
        for made, batch in zip(dataset, loader.epoch(epoch), strict=True):
            assert made[0].shape[1] in bounds
            for tensor, array in zip(made, batch, strict=True):
                assert_array_equal(tensor, array)


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "in a tuple of one"])
def test_padded_rows_without_others(both: ooc.Zip, alone: bool) -> None:
    padded: Any = both.parts["x"].pad((10, 20, 40))
    loader = (padded if alone else ooc.zip(padded)).batches(16, shuffle=True, bucket=(10, 20, 40))
    for made, batch in zip(loader.to_tf(), loader.epoch(0), strict=True):
        assert_array_equal(*((made, batch) if alone else (made[0], batch[0])))


def test_a_mixture(both: ooc.Zip, tmp_path: Path) -> None:
    """Shares, epochs and restarts are the loader's; each value occurs as often as it is drawn."""
    few = {"x": ooc.ragged(-VALUES[:60], lengths=[20, 0, 40]), "y": ooc.open(np.arange(-3, 0))}
    mixed = ooc.mix([(both, 3), (ooc.zip(few), 1)], length=96)
    dataset = mixed.batches(16, shuffle=True, seed=3).to_tf()
    assert dataset.element_spec["x"] == tf.RaggedTensorSpec((16, None, 3), tf.float32, 1)
    drawn = []
    for epoch in range(2):
        batches = list(dataset)
        assert len(batches) == 6
        for made, batch in zip(
            batches, mixed.batches(16, shuffle=True, seed=3).epoch(epoch), strict=True
        ):
            x = made["x"]
            x = tf.RaggedTensor.from_row_splits(x.values, x.row_splits, validate=True)
            assert_array_equal(x.values, batch["x"].values)
            assert_array_equal(x.row_splits, batch["x"].row_splits)
            assert_array_equal(x.row_lengths(), np.r_[LENGTHS, 20, 0, 40][made["y"]])
            assert int((made["y"].numpy() < 0).sum()) == 4
            drawn += made["y"].numpy().tolist()
    assert [drawn.count(at) for at in (-3, -2, -1)] == [16, 16, 16]
    rest = list(mixed.batches(16, shuffle=True, seed=3).to_tf(start=(1, 4)))
    assert [batch["y"].numpy().tolist() for batch in rest] == [
        batch["y"].numpy().tolist() for batch in batches[4:]
    ]


def test_names_in_any_order() -> None:
    """TensorFlow sorts the keys of a dict."""
    tokens, labels = np.arange(100, 100 + LENGTHS.sum()), np.arange(100)
    rows = ooc.ragged(tokens, lengths=LENGTHS)
    parts = {"tokens": rows, "label": ooc.open(labels), "mask": rows.mask((40,))}
    ends = LENGTHS.cumsum()
    for start, made in zip(range(0, 100, 32), ooc.zip(parts).batches(32).to_tf(), strict=True):
        own = range(start, min(start + 32, 100))
        expected = [tokens[ends[row] - LENGTHS[row] : ends[row]].tolist() for row in own]
        assert made["tokens"].to_list() == expected
        assert_array_equal(made["label"], labels[own])
        assert_array_equal(tf.reduce_sum(tf.cast(made["mask"], tf.int64), 1), LENGTHS[own])


def test_text_that_is_not_ascii() -> None:
    words = np.array(["日本", "", "ü", "a𝄞", "wort", "z"] * 30)
    rows = ooc.ragged(words, lengths=[3, 0, 7] * 18)
    loader = rows.batches(4, shuffle=True)
    found = [row.numpy().tolist() for batch in loader.to_tf() for row in batch]
    assert found == [[word.encode() for word in row] for batch in loader.epoch(0) for row in batch]


def test_names_need_not_be_sorted() -> None:
    lengths = np.arange(60) % 7 + 1
    rows = ooc.ragged(np.arange(lengths.sum()), lengths=lengths)
    named = ooc.zip({"z": rows.pad((4, 8)), "a": rows, "m": rows.lengths, "b": rows.mask((4, 8))})
    for spec in (named, ooc.zip(named, rows.lengths)):
        loader = spec.batches(7, shuffle=True, seed=2)
        batches = list(loader.epoch(0))
        for made, batch in zip(loader.to_tf(), batches, strict=True):
            if isinstance(batch, tuple):
                assert_array_equal(made[1], batch[1])
                made, batch = made[0], batch[0]
            assert list(batch) == ["z", "a", "m", "b"]
            assert made["a"].to_list() == [row.tolist() for row in batch["a"]]
            for name in ("z", "m", "b"):
                assert_array_equal(made[name], batch[name])
