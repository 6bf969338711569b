"""Test sparse batches, and other uses of rows of sparse matrices."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from anndata_files import random_csr, write_file
from numpy.testing import assert_array_equal
from scipy import sparse

import oocdata as ooc
from oocdata.datasets.spec import ArraySpec
from oocdata.describe import as_json, from_json
from oocdata.engines import buffers
from oocdata.engines.buffers import ALIGNMENT
from oocdata.errors import ArgumentError
from oocdata.frontends.batching import separate_arrays, stack_batches
from oocdata.runs import Run, run_bytes

MATRIX = random_csr(200, 25, 0.3)
DENSE = MATRIX.toarray()


@pytest.fixture
def path(tmp_path: Path) -> str:
    return write_file(tmp_path / "cells.h5ad", MATRIX, chunks=(64,), compression="gzip")


def test_memory_is_recycled_although_batches_differ_in_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks were cut for smaller batches, then mapped anew for larger ones: 20 in 40 reads."""
    rng, mapped, reserve = np.random.default_rng(0), [], buffers.reserve
    counts = rng.integers(2000, 7000, 256)
    columns = [np.sort(rng.choice(8000, count, replace=False)) for count in counts]
    csr = (np.ones(counts.sum(), "f4"), np.concatenate(columns), np.append(0, counts.cumsum()))
    matrix = sparse.csr_matrix(csr, (256, 8000))

    def count(kind: Any, nbytes: int, *flags: int) -> Any:
        mapped.append(nbytes)
        return reserve(kind, nbytes, *flags)

    path = write_file(tmp_path / "large.h5ad", matrix)
    loader = ooc.open(path, "X").sparse().batches(64, shuffle=True)
    batches = []
    for step in range(60):
        if step == 20:
            monkeypatch.setattr(buffers, "reserve", count)
        batches = [*batches[max(0, len(batches) - step % 4) :], loader.batch(step % 4, step // 4)]
    assert not mapped
    assert_array_equal(batches[-1].dense(), matrix[loader.positions(3, 14)].toarray())


def test_a_batch_is_the_same_dense_and_sparse(path: str) -> None:
    both = ooc.zip({"x": ooc.open(path, "X"), "y": ooc.open(path, "obs/n_genes")})
    dense = both.batches(32, shuffle="block", seed=3)
    sparse = both.sparse().batches(32, shuffle="block", seed=3)
    assert str(sparse.spec["x"]) == "(None, 25) float32, sparse"
    for step, (one, other) in enumerate(zip(dense.epoch(2), sparse.epoch(2), strict=True)):
        assert isinstance(other["x"], ooc.SparseBatch)
        assert_array_equal(other["x"].dense(), one["x"])
        assert_array_equal(other["y"], one["y"])
        alone = sparse.batch(step, 2)["x"]  # read alone, not in a run
        assert_array_equal(alone.indices, other["x"].indices)
        assert_array_equal(alone.values, other["x"].values)


@pytest.mark.parametrize("steps", [1, 3])
def test_tensors_are_the_memory_that_was_read_into(path: str, steps: int) -> None:
    loader = ooc.open(path, "X").sparse().batches(4, shuffle=True)
    batches = loader.read(Run(epoch=0, start=0, stop=steps))
    *arrays, shapes, count = stack_batches(batches, loader)
    most = loader.most_together
    assert count == steps <= most
    assert len(arrays) == 2 * most
    assert not any(map(len, [*arrays[steps:most], *arrays[most + steps :]]))
    for step, batch in enumerate(batches):
        indices, values = arrays[step], arrays[most + step]
        for array, own in ((indices, batch.indices), (values, batch.values)):
            assert array.shape == own.shape
            assert array.ctypes.data == own.ctypes.data
            assert array.ctypes.data % ALIGNMENT == 0
        assert shapes[step].tolist() == [4, 25]
        assert_array_equal(batch.dense(), DENSE[loader.positions(step)])


def test_batches_of_other_memory_are_copied_to_aligned_memory() -> None:
    numbers = np.arange(200.0)
    batches = [
        ooc.SparseBatch(np.ones((n, 2), np.int64), numbers[1 : n + 1], (9, 9)) for n in (3, 65)
    ]
    leaf = ArraySpec((9, 9), np.dtype("f8"), "sparse")
    *_, one, other, none, shapes = separate_arrays(batches, leaf, 3)
    for array, batch in ((one, batches[0]), (other, batches[1])):
        assert array.ctypes.data % ALIGNMENT == 0
        assert_array_equal(array, batch.values)
    assert none.shape == (0,)
    assert shapes.tolist() == [[9, 9], [9, 9], [0, 0]]


def test_an_epoch_has_each_number_once(path: str) -> None:
    loader = ooc.open(path, "X").sparse().batches(48, shuffle=True, seed=1)
    seen = Counter[bytes]()
    for batch in loader:
        seen.update(batch[row].dense().tobytes() for row in range(len(batch)))
    assert seen == Counter(row.tobytes() for row in DENSE)


def test_one_element_and_slices(path: str) -> None:
    rows = ooc.open(path, "X").astype("f8").sparse()
    assert len(rows[10:50]) == 40
    assert rows[7].values.dtype == np.float64
    assert_array_equal(rows[7].dense(), DENSE[7:8])
    assert_array_equal(rows[[3, 3]].take([1]).dense(), DENSE[[3]])
    assert [part.dense().tolist() for part in rows.__getitems__([2, 5])] == DENSE[
        [2, 5], None
    ].tolist()
    assert_array_equal(
        ooc.open(path, "X")[:, 4:20:3].sparse().take([9]).dense(), DENSE[[9], 4:20:3]
    )


def test_description(path: str) -> None:
    loader = ooc.open(path, "X").sparse().batches(32, shuffle=True).shard(2, 1)
    again = from_json(as_json(loader)).batch(1, 4)
    assert_array_equal(again.dense(), loader.batch(1, 4).dense())


def test_splits_share_no_row(path: str) -> None:
    parts = ooc.open(path, "X").sparse().split(0.5, 0.5, gap=4)
    assert [len(part) for part in parts] == [98, 98]
    assert_array_equal(parts[1].take([0]).dense(), DENSE[[102]])


def test_splits_by_ids_and_classes(path: str) -> None:
    rows, number = ooc.open(path, "X").sparse(), ooc.open(np.arange(200))
    pairs, groups = ooc.zip(rows, number), np.arange(200) // 7
    for part, other in (
        pairs.split(0.5, 0.5, by=groups),
        pairs.split(0.5, 0.5, stratify=groups % 2),
        *pairs.folds(3, by=groups, seed=1),
        rows.enumerate().split(0.5, 0.5, stratify=groups % 2),
    ):
        found = [one.take(np.arange(len(one))) for one in (part, other)]
        numbers = [at if isinstance(at, np.ndarray) else x for x, at in found]
        dense = [x if isinstance(x, ooc.SparseBatch) else at for x, at in found]
        assert sorted(np.concatenate(numbers).tolist()) == list(range(200))
        for places, batch in zip(numbers, dense, strict=True):
            assert_array_equal(batch.dense(), DENSE[places])
    twice = ooc.zip(ooc.open(path, "X")[np.arange(400) % 200].sparse(), ooc.open(np.arange(400)))
    assert [len(part) for part in twice.split(0.5, 0.5)] == [100, 100]  # 200 between
    shifted = ooc.zip(rows[1:], rows[:-1])
    assert [len(part) for part in shifted.split(0.5, 0.5)] == [99, 99]  # one between


def test_draws_by_weight(path: str) -> None:
    weights = (np.arange(200) % 2).astype("f8")
    loader = ooc.open(path, "X").sparse().batches(40, shuffle=True, weights=weights)
    assert len(loader) == 5
    for step in range(5):
        batch, positions = loader.batch(step, 1), loader.positions(step, 1)
        assert len(positions) == 40
        assert (positions % 2 == 1).all()
        assert_array_equal(batch.dense(), DENSE[positions])


def test_dense_rows_are_put_together(path: str) -> None:
    view = ooc.open(path, "X")
    halves = ooc.concat([view[:100], view[100:]])
    rows = np.random.default_rng(2).permutation(200)
    assert_array_equal(halves.take(rows), DENSE[rows])
    beside = ooc.concatenate([view, view.astype("f4")[:, :5]], axis=0)
    assert_array_equal(beside.take(rows), np.hstack([DENSE, DENSE[:, :5]])[rows])
    mixed = ooc.mix({view[:100]: 0.5, view[100:]: 0.5}).batches(20, shuffle=True)
    assert Counter(row.tobytes() for batch in mixed for row in batch) == Counter(
        row.tobytes() for row in DENSE
    )


def test_errors_of_methods_that_need_dense_rows(path: str) -> None:
    view = ooc.open(path, "X")
    rows = ooc.zip(view, view).sparse()
    for wrong in (
        lambda: rows.map(lambda x, y: x),
        lambda: rows.patches(3),
        lambda: rows.batches(4, workers=2),
        lambda: rows.batches(4).to_keras(),
        lambda: rows.batches(4).to_tf(service="localhost:1"),
        lambda: view.windows(3).sparse(),
        lambda: view[:, 3].sparse(),
        lambda: view[:, ::-1].sparse(),
        lambda: ooc.open(DENSE).sparse(),
        lambda: ooc.zip(ooc.open(DENSE)).sparse(),
        lambda: ooc.open(DENSE).batches(4).to_tf(sparse=True),
    ):
        with pytest.raises(ArgumentError, match="sparse"):
            wrong()


def test_sparse_rows_are_a_view(path: str) -> None:
    rows = ooc.open(path, "X").sparse()
    assert rows.sparse().is_multi_array
    assert_array_equal(rows[:, [3, 9]].astype("f8")[-1].dense(), DENSE[-1:, [3, 9]])
    assert_array_equal(rows[:, 2:8][[7, 4]].take([1, 0]).dense(), DENSE[[4, 7], 2:8])
    for wrong in (
        lambda: rows[:, 3],
        lambda: rows[:, ::-1],
        lambda: rows.windows(2),
        lambda: ooc.windows((rows, 2)),
        lambda: ooc.stack([rows, rows]),
        lambda: np.asarray(rows),
    ):
        with pytest.raises(ArgumentError, match=r"sparse|<Sparse"):
            wrong()


def test_columns_are_chosen_one_by_one(path: str) -> None:
    view = ooc.open(path, "X")
    mask = np.arange(25) % 7 == 0
    assert_array_equal(np.asarray(view[:, mask]), DENSE[:, mask])
    assert view[3, [5, -1]].tolist() == DENSE[3, [5, -1]].tolist()
    with pytest.raises(ArgumentError, match="one after the other"):
        view[[1, 2], [3, 4]]


def test_dense_rows_in_windows_zips_and_loaders(path: str) -> None:
    view, labels = ooc.open(path, "X"), ooc.open(path, "obs/cell_type")
    x, y = view.windows(3, 1, shift=2)[5]
    assert_array_equal(x, DENSE[10:13])
    assert_array_equal(y, DENSE[13:14])
    assert_array_equal(view.patches(4, step=3)[2], DENSE[0, 6:10])
    both = ooc.zip(view.astype("f8"), labels).map(lambda x, y: (np.log1p(x), y))
    train, _ = both.split(0.75, 0.25)
    loader = train.batches(16, shuffle=True, seed=2)
    positions = loader.positions(4, 1)
    assert_array_equal(loader.batch(4, 1)[0], np.log1p(DENSE[positions].astype("f8")))
    ranks = [loader.shard(2, rank).batch(4, 1)[1] for rank in range(2)]
    assert Counter(np.concatenate(ranks).tolist()) == Counter(loader.batch(4, 1)[1].tolist())
    assert "CSR, nnz" in str(loader.explain())


def test_worker_processes(path: str) -> None:
    view = ooc.open(path, "X")[:, [3, 9]]
    loader = view.batches(50, shuffle=True, seed=2, workers=1)
    found = np.concatenate(list(loader))
    here = np.concatenate(list(view.batches(50, shuffle=True, seed=2)))
    assert_array_equal(found, here)


def test_a_batch_is_a_sequence_of_rows_and_an_array() -> None:
    batch = ooc.SparseBatch(np.array([[0, 2], [2, 0]]), np.array([5, 7]), (3, 4))
    dense = [[0, 0, 5, 0], [0, 0, 0, 0], [7, 0, 0, 0]]
    assert np.asarray(batch).tolist() == dense
    assert np.asarray(batch, "f4").dtype == np.float32
    assert [one.dense()[0].tolist() for one in batch] == dense
    assert batch[-1].dense().tolist() == dense[2:]
    with pytest.raises(IndexError):
        batch[3]


@pytest.mark.parametrize("cut", [slice(None), slice(0, 2)])
def test_batches_take_no_more_than_is_counted(path: str, cut: slice) -> None:
    """Test sizes of batches; above about 20 % nonzeros, sparse ones exceed dense ones."""
    loader = ooc.zip(ooc.open(path, "X")[:, cut].sparse(), ooc.open(path, "obs/n_genes")).batches(
        20, shuffle=True
    )
    longest = min(int(np.diff(MATRIX.indptr).max()), len(range(25)[cut]))
    indices, values, labels = 20 * longest * 16, 20 * longest * 4, 20 * 8
    assert 0 <= loader.batch_bytes - (indices + values + labels) < 2 * ALIGNMENT * 20
    assert loader.explain().batch_bytes == loader.batch_bytes
    assert loader.input_bytes(steps=3) == 3 * 20 * longest * (4 + 4)  # as stored
    for steps in (1, 3):
        batches = loader.read(Run(epoch=0, start=0, stop=steps))
        assert sum(x.indices.nbytes + x.values.nbytes for x, _ in batches) > 0
        taken = sum(
            array.nbytes if array.base is None else array.base.nbytes
            for x, _ in batches
            for array in (x.indices, x.values)
        )
        assert taken <= run_bytes(loader, steps)
