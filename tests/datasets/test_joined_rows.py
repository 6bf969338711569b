"""Test ragged and sparse batches from several datasets, with NumPy lists as the oracle."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.sparse as sp
from anndata_files import random_csr, write_file
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import oocdata as ooc
from oocdata.datasets.multi_array import MultiArrayBatch
from oocdata.describe import as_json, fingerprint, from_json
from oocdata.engines import columns, ragged, ragged_rows
from oocdata.errors import ArgumentError, EmptyError, SourceError
from oocdata.runs import Run, run_bytes

Rows = list[np.ndarray]

COUNTS = (90, 31, 60)
"""Number of rows in each member."""

EVERY = sum(COUNTS)


def numbered(batch: np.ndarray) -> np.ndarray:
    """Map labels, so that each part makes a batch of its elements."""
    return batch * 2


def rows_of(batch: MultiArrayBatch) -> Rows:
    """Return the rows of a batch in the form of the oracle."""
    if isinstance(batch, ooc.SparseBatch):
        assert (np.diff(batch.indices @ (batch.shape[1], 1)) > 0).all()
        return list(batch.dense())
    assert isinstance(batch, ooc.RaggedBatch)
    assert batch.row_splits[0] == 0
    assert batch.row_splits[-1] == len(batch.values)
    return list(batch)


def same(batch: Any, positions: Any, rows: Rows) -> None:
    found = rows_of(batch)
    assert len(found) == len(positions)
    for row, position in zip(found, np.asarray(positions).tolist(), strict=True):
        assert row.dtype == rows[0].dtype
        assert_array_equal(row, rows[position])


def ragged_members(folder: Path) -> tuple[list[ooc.Ragged], Rows]:
    """Return tokens from a plain file, a compressed file converted to int64, and HDF5's heap."""
    lengths = np.random.default_rng(0).integers(0, 40, EVERY)
    values = np.arange(lengths.sum(), dtype="i4")
    rows = np.split(values, np.cumsum(lengths)[:-1])
    borders = np.cumsum((0, *COUNTS))
    one, two, three = (rows[a:b] for a, b in pairwise(borders))
    np.save(folder / "one.npy", np.concatenate(one))
    np.save(folder / "offsets.npy", np.concatenate(([0], np.cumsum([len(row) for row in one]))))
    with h5py.File(folder / "two.h5", "w") as file:
        file.create_dataset("v", data=np.concatenate(two, dtype="f8"), chunks=(64,), compression=4)
        file["offsets"] = np.concatenate(([0], np.cumsum([len(row) for row in two])))
        heap = file.create_dataset("heap", len(three), h5py.vlen_dtype("i4"))
        for place, row in enumerate(three):
            heap[place] = row
    path = str(folder / "two.h5")
    members = [
        ooc.ragged(str(folder / "one.npy"), str(folder / "offsets.npy")),
        ooc.ragged(ooc.open(path, "v"), ooc.open(path, "offsets")).astype("i4"),
        ooc.open(path, "heap"),
    ]
    return members, rows


def sparse_members(folder: Path) -> tuple[list[Any], Rows]:
    """Return matrices of two files, one converted, and some columns of a third."""
    matrix = random_csr(EVERY, 25, 0.3)
    borders = np.cumsum((0, *COUNTS))
    one, two, three = (matrix[a:b] for a, b in pairwise(borders))
    beside = random_csr(COUNTS[2], 10, 0.3)
    wide = sp.hstack([beside, three, beside], format="csr")
    paths = [
        write_file(folder / "one.h5ad", one, chunks=(32,), compression="gzip"),
        write_file(folder / "two.h5ad", two.astype("f8")),
        write_file(folder / "three.h5ad", wide, chunks=(32,), compression="gzip"),
    ]
    first, second, third = (ooc.open(path, "X") for path in paths)
    members = [first, second.astype("f4"), third[:, 10:35]]
    return [member.sparse() for member in members], list(matrix.toarray())


KINDS: dict[str, Callable[[Path], tuple[list[Any], Rows]]] = {
    "ragged": ragged_members, "sparse": sparse_members
}  # fmt: skip


Members = Callable[[], tuple[list[Any], Rows]]


@pytest.fixture(params=KINDS)
def members(request: pytest.FixtureRequest, tmp_path: Path) -> Members:
    """Return a function that opens the members; h5py's file closes when they are dropped."""
    return partial(KINDS[request.param], tmp_path)


def labelled(members: list[Any]) -> list[Any]:
    """Zip members with row positions, by name."""
    starts = np.cumsum((0, *COUNTS))
    made = []
    for number, member in enumerate(members):
        at = ooc.open(np.arange(starts[number], starts[number + 1]))
        made.append(ooc.zip({"x": member, "at": at}))
    return made


@given(
    st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=8), min_size=1, max_size=4),
    st.sampled_from([(), (3,), (2, 2)]),
    st.lists(st.sampled_from(["<f4", ">i2", "u1", "i8"]), min_size=4, max_size=4),
    st.data(),
)
def test_any_members(
    lengths: list[list[int]], inner: tuple[int, ...], kinds: list[str], data: Any
) -> None:
    members, rows = [], []
    for own, kind in zip(lengths, kinds, strict=False):
        values = np.random.default_rng(len(rows)).integers(0, 99, (sum(own), *inner)).astype(kind)
        members.append(ooc.ragged(values, lengths=own).astype("f8"))
        rows += np.split(values.astype("f8"), np.cumsum(own)[:-1])
    labels = [ooc.open(np.full(len(own), at)) for at, own in enumerate(lengths)]
    whole = ooc.concat([ooc.zip(*pair) for pair in zip(members, labels, strict=True)])
    owners = np.repeat(np.arange(len(lengths)), [len(own) for own in lengths])
    if data.draw(st.booleans()):
        chosen = np.array(data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1)))
        whole, rows, owners = whole[chosen], [rows[at] for at in chosen], owners[chosen]
    nested = ooc.concat([whole, whole])
    positions = np.array(data.draw(st.lists(st.integers(0, 2 * len(rows) - 1), max_size=8)), int)
    for found, at in ((nested, positions), (whole, positions % len(rows))):
        x, label = found.take(at)
        same(x, at % len(rows), rows)
        assert_array_equal(label, owners[at % len(rows)])
    loader = nested.batches(data.draw(st.integers(1, 12)), shuffle=True)
    batches = loader.read(Run(epoch=1, start=0, stop=len(loader)))
    for step, (x, label) in enumerate(batches):
        at = loader.positions(step, 1) % len(rows)
        same(x, at, rows)
        same(loader.batch(step, 1)[0], at, rows)
        assert_array_equal(label, owners[at])


@pytest.mark.parametrize("shuffle", [False, True, "block", "global"])
def test_an_epoch_has_each_row_once(members: Members, shuffle: Any) -> None:
    views, rows = members()
    loader = ooc.concat(labelled(views)).batches(32, shuffle=shuffle, seed=3)
    for epoch in range(2):
        seen = []
        for step, batch in enumerate(loader.epoch(epoch)):
            at = batch["at"]
            assert_array_equal(at, loader.positions(step, epoch))
            same(batch["x"], at, rows)
            same(loader.batch(step, epoch)["x"], at, rows)  # read alone, not in a run
            seen += at.tolist()
        assert sorted(seen) == list(range(EVERY))


@pytest.mark.parametrize("shuffle", [False, True, "block"])
def test_every_batch_of_a_mixture_has_its_shares(members: Members, shuffle: Any) -> None:
    views, rows = members()
    one, two, _ = labelled(views)
    loader = ooc.mix({one: 0.7, two: 0.3}).batches(20, shuffle=shuffle, seed=5)
    assert len(loader) == 5
    drawn = []
    for epoch in range(3):
        for batch in loader.epoch(epoch):
            at = batch["at"]
            same(batch["x"], at, rows)
            assert (at >= COUNTS[0]).sum() == 6
            drawn += at.tolist()
    second = [at for at in drawn if at >= COUNTS[0]]
    assert set(Counter(second[:62]).values()) == {2}  # two epochs of the member
    first = [at for at in drawn if at < COUNTS[0]]
    assert set(Counter(first[:180]).values()) == {2}


def test_a_member_that_restarts_within_a_batch(members: Members) -> None:
    views, rows = members()
    few = ooc.mix({views[0]: 1, views[1][:3]: 1}, length=64).batches(32, shuffle=True)
    for step in range(2):
        positions = few.positions(step)
        assert (positions >= COUNTS[0]).sum() == 16
        same(few.batch(step), positions, rows)


def test_parts_of_an_epoch(members: Members) -> None:
    views, rows = members()
    for whole in (ooc.concat(views), ooc.mix([(view, 1) for view in views])):
        loader = whole.batches(24, shuffle=True, seed=3, drop_remainder=True)
        ranks = [loader.shard(2, rank) for rank in range(2)]
        for step, batch in enumerate(loader):
            positions = np.concatenate([rank.positions(step) for rank in ranks])
            assert sorted(positions) == sorted(loader.positions(step))
            same(batch, loader.positions(step), rows)
            for rank in ranks:
                same(rank.batch(step), rank.positions(step), rows)
        for step, batch in enumerate(loader.epoch(2, 1), 1):  # as after a restart
            same(batch, loader.positions(step, 2), rows)
        numbered = whole.enumerate().batches(24, shuffle=True).batch(1)
        same(numbered[1], numbered[0], rows)


def test_selections_and_splits(members: Members) -> None:
    views, rows = members()
    whole = ooc.concat(views)
    same(whole[::-2].take([3, 0]), np.arange(EVERY)[::-2][[3, 0]], rows)
    same(whole[5:].filter(np.arange(EVERY - 5) % 7 == 3).take([9, 2]), [71, 22], rows)
    assert_array_equal(rows_of(whole.take([100]))[0], rows[100])
    assert_array_equal(np.ravel(rows_of(whole.take([-1]))[0]), rows[-1])
    groups = np.arange(EVERY) // 7
    for one, other in (
        whole.split(0.5, 0.5),
        whole.split(0.5, 0.5, by=groups),
        whole.split(0.5, 0.5, stratify=groups % 2),
        *whole.folds(3, by=groups),
    ):
        parts = [part.enumerate().take(np.arange(len(part))) for part in (one, other)]
        found = [row.tobytes() for _, batch in parts for row in rows_of(batch)]
        assert Counter(found) == Counter(row.tobytes() for row in rows)
    shards = [whole[:50], whole[50:99], whole[99:]]
    found = [row for part in shards for row in rows_of(part.take(np.arange(len(part))))]
    for got, row in zip(found, rows, strict=True):
        assert_array_equal(got, row)
    twice = ooc.concat([views[0], views[0]]).split(0.5, 0.5)
    assert [len(part) for part in twice] == [45, 45]


def test_draws_by_weight(members: Members) -> None:
    views, rows = members()
    weights = (np.arange(EVERY) % 9 == 0).astype("f8")
    loader = ooc.concat(views).batches(40, shuffle=True, weights=weights)
    for step, batch in enumerate(loader.epoch(1)):
        positions = loader.positions(step, 1)
        assert (positions % 9 == 0).all()
        same(batch, positions, rows)


def test_descriptions_and_workers(members: Members) -> None:
    views, rows = members()
    mixed = ooc.mix({views[0]: 0.7, views[1]: 0.3})
    for whole in (ooc.concat(views), mixed, mixed.enumerate()):
        loader = whole.batches(20, shuffle=True, seed=2).shard(2, 1)
        again = from_json(as_json(loader))
        assert fingerprint(again) == fingerprint(loader)
        for other in (again, pickle.loads(pickle.dumps(loader))):
            batch = other.batch(1, 1)
            x = batch[1] if isinstance(batch, tuple) else batch
            same(x, loader.positions(1, 1), rows)


def test_buckets_batch_rows_of_similar_length(tmp_path: Path) -> None:
    views, rows = ragged_members(tmp_path)
    bounds, lengths = (10, 20, 40), np.array([len(row) for row in rows])
    whole = ooc.concat(labelled(views))
    assert_array_equal(whole[::-1].row_lengths(), lengths[::-1])
    loader = whole.batches(16, shuffle=True, bucket=bounds, seed=1)
    seen, mixed = [], 0
    for batch in loader.epoch(1):
        same(batch["x"], batch["at"], rows)
        seen += batch["at"].tolist()
        mixed += len(np.unique(np.searchsorted(bounds, lengths[batch["at"]]))) > 1
    assert sorted(seen) == list(range(EVERY))
    assert mixed <= 2  # at the border of two buckets
    with pytest.raises(ArgumentError, match="`bucket` must be None with a mixture"):
        ooc.mix([(view, 1) for view in views]).batches(16, bucket=bounds)


def test_padded_rows(tmp_path: Path) -> None:
    views, rows = ragged_members(tmp_path)
    bounds, lengths = (10, 20, 40), np.array([len(row) for row in rows])
    pairs = [
        ooc.zip(view.pad(bounds, value=-1), view.mask(bounds), view.pad(40, value=-1))
        for view in views
    ]
    padded = np.full((EVERY, 40), -1, "i4")
    for out, row in zip(padded, rows, strict=True):
        out[: len(row)] = row
    for whole, bucket in ((ooc.concat(pairs), bounds), (ooc.mix([(p, 1) for p in pairs]), None)):
        loader = whole.batches(16, shuffle=True, bucket=bucket)
        batches = loader.read(Run(epoch=1, start=0, stop=len(loader)))
        for step, batch in enumerate(batches):
            at = loader.positions(step, 1)
            width = bounds[np.searchsorted(bounds, lengths[at].max())]
            for x, mask, long in (batch, loader.batch(step, 1)):
                assert_array_equal(x, padded[at][:, :width])
                assert_array_equal(mask, padded[at][:, :width] >= 0)
                assert_array_equal(long, padded[at])
    for other in (views[1].pad((20, 40)), views[1].pad(bounds, value=7)):
        with pytest.raises(ArgumentError, match=r"dataset 0 has .*up to.* dataset 1 has .*up to"):
            ooc.concat([views[0].pad(bounds), other])


def test_dense_members_become_sparse(tmp_path: Path) -> None:
    _, rows = sparse_members(tmp_path)
    paths = [tmp_path / name for name in ("one.h5ad", "two.h5ad")]
    views = [ooc.open(path, "X").astype("f4") for path in paths]
    for whole in (ooc.concat(views), ooc.mix([(view, 1) for view in views])):
        loader = whole.sparse().batches(20, shuffle=True)
        same(loader.batch(2), loader.positions(2), rows)
        both = ooc.zip(whole, whole).sparse().take([100, 4])
        same(both[1], [100, 4], rows)
    with pytest.raises(ArgumentError, match="got <Concat"):
        ooc.concat([views[0], ooc.open(np.zeros((3, 25), "f4"))]).sparse()


def test_batches_take_no_more_than_is_counted(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    views, _ = members()
    scratch = []
    for module in (ragged, columns):
        usual = module.empty_rows

        def counting(shape: Any, dtype: Any, usual: Any = usual) -> np.ndarray:
            made: np.ndarray = usual(shape, dtype)
            scratch.append(made.nbytes)
            return made

        monkeypatch.setattr(module, "empty_rows", counting)
    few = [ooc.mix({views[0][5:n]: 1, views[1][5:8]: 1}, length=60) for n in (7, 90)]
    for whole in (ooc.concat(views), ooc.mix([(view, 1) for view in views]), *few):
        loader = whole.batches(20, shuffle=True)
        assert loader.explain().batch_bytes == loader.batch_bytes
        for steps in (1, 3):
            scratch.clear()
            batches = loader.read(Run(epoch=0, start=0, stop=steps))
            taken = sum(
                long.nbytes if long.base is None else long.base.nbytes
                for batch in batches
                for long in batch.arrays[:-1]
            )
            assert 0 < taken <= run_bytes(loader, steps)
            assert 0 < sum(scratch) <= loader.input_bytes(steps)


def test_rows_are_written_once_where_one_member_gives_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    views, rows = ragged_members(tmp_path)
    monkeypatch.setattr(ragged, "empty_rows", lambda *_: pytest.fail("values were copied"))
    same(ooc.concat([views[0], views[2]]).take([5, 3, 70]), [5, 3, 70], rows)
    borders = ooc.concat([views[0], views[2]]).take([5, 3, 90, 92])  # rows of a member are adjacent
    same(borders, [5, 3, 121, 123], rows)


def test_each_row_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    views, rows = ragged_members(tmp_path)
    whole = ooc.concat(labelled(views[:2]))
    calls, usual = [], ragged_rows.scatter_runs
    monkeypatch.setattr(
        ragged_rows,
        "scatter_runs",
        lambda source, starts, *others: (calls.append(len(starts)), usual(source, starts, *others)),
    )
    same(whole.take([5, 93, 7, 92, 8])["x"], [5, 93, 7, 92, 8], rows)
    assert calls == [3, 2]


def test_functions_and_names_in_another_order_are_refused(tmp_path: Path) -> None:
    (one, two, _), _ = ragged_members(tmp_path)
    at, others = ooc.open(np.arange(90)), ooc.open(np.arange(31))
    first = ooc.zip({"x": one, "at": at})
    with pytest.raises(ArgumentError, match=r"with the names in one order; dataset 0"):
        ooc.concat([first, ooc.zip({"at": others, "x": two})])
    with pytest.raises(ArgumentError, match=r"ooc\.zip\(ooc\.concat\(rows\)"):
        ooc.concat([first, ooc.zip({"x": two, "at": others.map(np.negative)})])


def test_errors_name_the_difference(tmp_path: Path) -> None:
    one, two, _ = ragged_members(tmp_path)[0]
    dense, cells = ooc.open(np.zeros((5, 3), "i4")), sparse_members(tmp_path)[0]
    wide = ooc.ragged(np.zeros((9, 2), "i4"), lengths=[4, 5])
    for others, message in (
        (
            [one, one.astype("f8")],
            r"0 has \(None,\) int32, ragged, dataset 1 has .*float64, ragged",
        ),
        ([one, one, wide], r"dataset 0 has \(None,\) int32, ragged, dataset 2 has \(None, 2\)"),
        ([one, dense], r"dataset 0 has \(None,\) int32, ragged, dataset 1 has \(3,\) int32"),
        ([cells[0], cells[0][:, :9]], r"dataset 1 has \(9,\) float32, sparse"),
        ([cells[0], one], r"dataset 0 has \(25,\) float32, sparse, dataset 1 has .*ragged"),
        ([one, one.pad((10, 40))], r"dataset 1 has \(None,\) int32, padded"),
    ):
        with pytest.raises(ArgumentError, match=message) as raised:
            ooc.concat(others)
        assert "`.map`" not in str(raised.value)  # not possible for these rows
        with pytest.raises(ArgumentError, match=message):
            ooc.mix([(other, 1) for other in others])
    mixed = ooc.mix({one: 1, two: 1})
    for wrong in (
        lambda: mixed.map(numbered),
        lambda: mixed.patches(3),
        lambda: mixed.batches(4, workers=2),
        lambda: mixed.batches(4).to_keras(),
        lambda: mixed.batches(4).to_tf(service="localhost:1"),
        lambda: ooc.concat([one, two]).cache(),
    ):
        with pytest.raises(ArgumentError, match="ragged"):
            wrong()
    with pytest.raises(ArgumentError, match="`weights` must be None with a mixture"):
        mixed.batches(4, shuffle=True, weights=np.ones(len(mixed)))
    with pytest.raises(EmptyError, match="member 1 holds none"):
        ooc.mix([(one, 1), (two[:0], 1)])


def test_a_damaged_row_is_named(tmp_path: Path) -> None:
    views, _ = ragged_members(tmp_path)
    whole = ooc.concat(views[::-1])
    with open(tmp_path / "one.npy", "r+b") as file:
        file.truncate(200)
    with pytest.raises(SourceError, match=r"one\.npy"):
        whole.take([0, EVERY - 1])
