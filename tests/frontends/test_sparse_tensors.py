"""`to_tf(sparse=True)`: the same batches as dense ones, as `tf.sparse.SparseTensor`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from anndata_files import random_csr, write_file
from numpy.testing import assert_array_equal

import oocdata as ooc
from oocdata.datasets.sparse import Sparse
from oocdata.memory import lowered_limit

MATRIX = random_csr(100, 25, 0.3)


@pytest.fixture
def both(tmp_path: Path) -> ooc.Zip:
    path = write_file(tmp_path / "cells.h5ad", MATRIX, chunks=(64,), compression="gzip")
    return ooc.zip({"x": ooc.open(path, "X"), "y": ooc.open(path, "obs/cell_type")})


@pytest.mark.parametrize("size", [20, 32])
def test_batches_are_the_loaders(both: ooc.Zip, size: int) -> None:
    loader = both.batches(size, shuffle=True, seed=3)
    dataset = loader.to_tf(sparse=True)
    length = size if size == 20 else None
    assert dataset.element_spec["x"] == tf.SparseTensorSpec((length, 25), tf.float32)
    assert int(dataset.cardinality()) == len(loader)
    for epoch in range(2):
        batches = list(dataset)
        assert len(batches) == len(loader)
        for made, batch in zip(batches, loader.epoch(epoch), strict=True):
            assert made["x"].dense_shape.numpy().tolist() == list(batch["x"].shape)
            assert_array_equal(tf.sparse.to_dense(made["x"]), batch["x"])  # checks the order too
            assert_array_equal(made["y"], batch["y"])


def test_several_large_batches_are_read_together(tmp_path: Path) -> None:
    matrix = random_csr(640, 1000, 0.8)
    loader = ooc.open(write_file(tmp_path / "cells.h5ad", matrix), "X").batches(20, shuffle=True)
    sparse = ooc.open(write_file(tmp_path / "more.h5ad", matrix), "X").sparse().batches(20)
    assert sparse.batch_bytes > 256 << 10
    assert sparse.steps_together > 1
    dataset = loader.to_tf(sparse=True)
    assert len(list(dataset)) == 32
    for made, batch in zip(dataset, loader.epoch(1), strict=True):
        assert made.indices.shape == (len(made.values), 2)
        assert_array_equal(tf.sparse.to_dense(made), batch)


def test_text_beside_sparse_rows(both: ooc.Zip) -> None:
    names = ooc.open(np.array([f"ü{row}" for row in range(100)]))
    pairs = ooc.zip(names, both.parts["x"])
    loader = pairs.batches(32, shuffle=True)
    expected = list(loader.epoch(0))
    assert len(expected) == 4
    for (name, made), (text, rows) in zip(loader.to_tf(sparse=True), expected, strict=True):
        assert [one.decode() for one in name.numpy().tolist()] == text.tolist()
        assert_array_equal(tf.sparse.to_dense(made), rows)


def test_a_later_start(both: ooc.Zip) -> None:
    loader = both[:90].batches(20, shuffle=True)
    first = next(iter(loader.to_tf(sparse=True, start=(1, 4))))
    assert_array_equal(tf.sparse.to_dense(first["x"]), loader.batch(4, 1)["x"])


def test_empty_rows() -> None:
    from oocdata.datasets.view import View
    from oocdata.engines.memory_array import MemoryArray
    from oocdata.engines.source import Storage
    from oocdata.engines.sparse import SparseRows

    parts = [np.empty(0, "f4"), np.empty(0, "i4"), np.zeros(7, "i8")]
    source = SparseRows(*map(MemoryArray, parts), (6, 4), Storage("CSR"))
    batches = [tf.sparse.to_dense(one) for one in View.of(source).batches(4).to_tf(sparse=True)]
    assert [one.shape.as_list() for one in batches] == [[4, 4], [2, 4]]
    assert not any(one.numpy().any() for one in batches)


def test_rows_never_become_dense(both: ooc.Zip, monkeypatch: pytest.MonkeyPatch) -> None:
    from oocdata.engines.sparse import SparseRows

    def read(*_: object) -> None:
        raise AssertionError("dense rows were read")

    dataset = both.batches(20).to_tf(sparse=True)  # its fingerprint takes a few numbers
    monkeypatch.setattr(SparseRows, "read", read)
    assert len(list(dataset)) == 5


def test_keras_fits_on_it(both: ooc.Zip) -> None:
    import keras

    pairs = ooc.zip(both.parts["x"], both.parts["y"].map(lambda y: (y > 0).astype("f4")))
    model = keras.Sequential([keras.Input((25,), sparse=True), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    batches = pairs.batches(20, shuffle=True).to_tf(sparse=True)
    history = model.fit(batches, epochs=2, verbose=0, shuffle=False)
    assert len(history.history["loss"]) == 2


def test_a_mixture_of_files(both: ooc.Zip, tmp_path: Path) -> None:
    path = write_file(tmp_path / "others.h5ad", MATRIX[:30] * 2)
    others = ooc.zip({"x": ooc.open(path, "X"), "y": ooc.open(path, "obs/cell_type")})
    loader = ooc.mix([(both, 3), (others, 1)]).batches(20, shuffle=True, seed=3)
    dataset = loader.to_tf(sparse=True)
    assert dataset.element_spec["x"] == tf.SparseTensorSpec((20, 25), tf.float32)
    for epoch in range(2):
        batches = list(dataset)
        assert len(batches) == len(loader) == 6
        for step, (made, batch) in enumerate(zip(batches, loader.epoch(epoch), strict=True)):
            assert (loader.positions(step, epoch) >= 100).sum() == 5
            assert_array_equal(tf.sparse.to_dense(made["x"]), batch["x"])
            assert_array_equal(made["y"], batch["y"])


def test_tensors_are_the_memory_that_was_read_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix = random_csr(640, 300, 0.3)
    loader = ooc.open(write_file(tmp_path / "cells.h5ad", matrix), "X").sparse().batches(20)
    read, usual = [], Sparse.read_batches

    def spy(*arguments: Any) -> Any:
        batches = usual(*arguments)
        read.extend((each.indices.ctypes.data, each.values.ctypes.data) for each in batches)
        return batches

    monkeypatch.setattr(Sparse, "read_batches", spy)
    assert loader.steps_together > 1
    taken = [
        tuple(np.asarray(memoryview(part)).ctypes.data for part in (made.indices, made.values))
        for made in loader.to_tf(parallel=1)
    ]
    assert len(taken) == len(loader) == 32
    assert taken == read


def test_a_saved_iterator_with_less_memory(tmp_path: Path) -> None:
    matrix = random_csr(640, 1000, 0.8)
    view = ooc.open(write_file(tmp_path / "cells.h5ad", matrix), "X").sparse()
    loader = view.batches(4, shuffle=True)
    expected = [batch.dense() for batch in loader.epoch(0)]
    dataset = loader.to_tf()
    many = loader.steps_together
    assert many > 4
    iterator = iter(dataset)
    for batch in expected[:23]:
        assert_array_equal(tf.sparse.to_dense(next(iterator)), batch)
    saved = tf.train.Checkpoint(iterator=iterator).write(str(tmp_path / "saved"))
    with lowered_limit(1 << 20):
        few = view.batches(4, shuffle=True)
        assert few.steps_together < many == few.most_together
        again = few.to_tf()
        restored = iter(again)
        tf.train.Checkpoint(iterator=restored).read(saved).assert_consumed()
        rest = list(restored)
    assert len(rest) == 160 - 23
    for made, batch in zip(rest, expected[23:], strict=True):
        assert_array_equal(tf.sparse.to_dense(made), batch)
