"""Test ragged batches, with NumPy lists as the oracle, and their reads."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from counting import counted
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import oocdata as ooc
from oocdata.describe import as_json, fingerprint, from_json
from oocdata.engines import ragged_rows
from oocdata.engines.buffers import ALIGNMENT
from oocdata.errors import ArgumentError, SourceError
from oocdata.frontends.batching import stack_batches
from oocdata.runs import Run, run_bytes

LENGTHS = np.random.default_rng(0).integers(0, 40, 200)
VALUES = np.arange(LENGTHS.sum() * 3, dtype="i4").reshape(-1, 3)
ROWS = np.split(VALUES, np.cumsum(LENGTHS)[:-1])


@pytest.fixture
def rows(tmp_path: Path) -> ooc.Ragged:
    with h5py.File(tmp_path / "events.h5", "w") as file:
        file.create_dataset("values", data=VALUES, chunks=(64, 3), compression="gzip")
        file["offsets"] = np.concatenate(([0], np.cumsum(LENGTHS)))
    path = str(tmp_path / "events.h5")
    return ooc.ragged(ooc.open(path, "values"), ooc.open(path, "offsets"))


def same(batch: Any, positions: Any, rows: list[np.ndarray] = ROWS) -> None:
    assert isinstance(batch, ooc.RaggedBatch)
    assert len(batch) == len(positions)
    assert batch.row_splits[0] == 0
    assert batch.row_splits[-1] == len(batch.values)
    for row, position in zip(batch, positions, strict=True):
        assert row.dtype == rows[0].dtype
        assert_array_equal(row, rows[position])


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=12),
    st.sampled_from([(), (3,), (2, 2)]),
    st.sampled_from(["<f4", ">i2", "u1"]),
    st.data(),
)
def test_any_rows(lengths: list[int], inner: tuple[int, ...], dtype: str, data: Any) -> None:
    values = np.arange(sum(lengths) * int(np.prod(inner))).reshape(-1, *inner).astype(dtype)
    made = ooc.ragged(values, lengths=lengths)
    expected = np.split(values.astype(values.dtype.newbyteorder("=")), np.cumsum(lengths)[:-1])
    positions = data.draw(st.lists(st.integers(0, len(lengths) - 1), max_size=8))
    same(made.take(positions), positions, expected)
    chosen = made[positions]
    assert_array_equal(chosen.lengths.take(np.arange(len(positions))), np.take(lengths, positions))
    if positions:
        same(chosen.take([0]), positions[:1], expected)
        assert chosen.longest == max(lengths[at] for at in positions)
        pad, mask = chosen.pad(9), chosen.mask(9)
        assert pad.shape == (len(positions), 9, *inner)
        assert mask.take([0]).sum() == lengths[positions[0]]
    size = data.draw(st.integers(1, 12))
    loader = made.batches(size, shuffle=True)
    for step, batch in enumerate(loader.epoch(1)):
        same(batch, loader.positions(step, 1), expected)


@pytest.mark.parametrize("shuffle", [False, True, "block"])
def test_an_epoch_has_each_row_once(rows: ooc.Ragged, shuffle: Any) -> None:
    loader = ooc.zip({"x": rows, "at": ooc.open(np.arange(200))}).batches(32, shuffle=shuffle)
    assert str(loader.spec["x"]) == "(None, None, 3) int32, ragged"
    for epoch in range(2):
        seen = []
        for step, batch in enumerate(loader.epoch(epoch)):
            same(batch["x"], batch["at"])
            same(loader.batch(step, epoch)["x"], batch["at"])  # read alone, not in a run
            seen += batch["at"].tolist()
        assert sorted(seen) == list(range(200))


def test_parts_of_an_epoch(rows: ooc.Ragged) -> None:
    loader = rows.batches(32, shuffle=True, seed=3)
    ranks = [loader.shard(2, rank) for rank in range(2)]
    for step, batch in enumerate(loader):
        parts = [rank.batch(step) for rank in ranks]
        positions = np.concatenate([rank.positions(step) for rank in ranks])
        same(batch, loader.positions(step))
        assert sorted(positions) == sorted(loader.positions(step))
        for rank, part in zip(ranks, parts, strict=True):
            same(part, rank.positions(step))
    rest = [loader.positions(step, 2) for step in range(4, len(loader))]
    for batch, positions in zip(loader.epoch(2, 4), rest, strict=True):
        same(batch, positions)
    weighted = rows.batches(32, shuffle=True, weights=LENGTHS.max() == LENGTHS)
    same(weighted.batch(0), weighted.positions(0))


def test_splits_share_no_row(rows: ooc.Ragged) -> None:
    pairs = ooc.zip(rows[:-1], rows.pad()[1:])
    seen = []
    for part in pairs.split(0.5, 0.5):
        x, y = part.take(np.arange(len(part)))
        seen.append({*x.values[:, 0].tolist(), *y[..., 0].ravel().tolist()} - {0})
    assert not seen[0] & seen[1]
    groups = np.arange(200) // 7
    for one, other in rows.folds(3, by=groups):
        found = [*one.take(np.arange(len(one))), *other.take(np.arange(len(other)))]
        assert len(found) == 200
        assert_array_equal(np.sort(np.concatenate(found), axis=0), VALUES)


def test_description(rows: ooc.Ragged) -> None:
    loader = rows[::-1].astype("f8").batches(32, shuffle=True).shard(2, 1)
    again = from_json(as_json(loader))
    assert fingerprint(again) == fingerprint(loader)
    same(again.batch(1, 4), 199 - loader.positions(1, 4), [row.astype("f8") for row in ROWS])


def test_each_chunk_is_decoded_once_a_batch() -> None:
    values, decoded = counted(np.arange(1000), 50)
    rows = ooc.ragged(values, lengths=[10] * 100)
    assert len(rows.take(np.arange(0, 100, 2))) == 50
    assert set(decoded.values()) == {1}
    assert len(decoded) == 20


def test_rows_of_a_run_are_one_read(rows: ooc.Ragged, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, usual = [], ragged_rows.scatter_runs
    monkeypatch.setattr(
        ragged_rows,
        "scatter_runs",
        lambda source, starts, *others: (calls.append(len(starts)), usual(source, starts, *others)),
    )
    rows.batches(16).read(Run(epoch=0, start=0, stop=4))
    assert calls == [64]


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("dtype", ["i4", "f8"])
def test_tensors_are_the_memory_that_was_read_into(
    rows: ooc.Ragged, steps: int, dtype: str
) -> None:
    loader = rows.astype(dtype).batches(8, shuffle=True)
    batches = loader.read(Run(epoch=0, start=0, stop=steps))
    *values, splits, count = stack_batches(batches, loader)
    most = loader.most_together
    assert count == steps <= most
    assert (len(values), splits.shape) == (most, (most, 9))
    assert not splits[steps:].any()
    assert not any(map(len, values[steps:]))
    for step, batch in enumerate(batches):
        same(batch, loader.positions(step), [row.astype(dtype) for row in ROWS])
        assert values[step].shape == batch.values.shape
        assert values[step].ctypes.data == batch.values.ctypes.data
        assert values[step].ctypes.data % ALIGNMENT == 0
        assert_array_equal(splits[step], batch.row_splits)


def test_batches_take_no_more_than_is_counted(rows: ooc.Ragged) -> None:
    loader = rows.astype("f8").batches(20, shuffle=True)
    largest = int(np.sort(LENGTHS)[-20:].sum())
    assert 20 * 3 * 8 <= largest * 24 <= loader.array_bytes[0] < 1.2 * largest * 24 + 24 * ALIGNMENT
    assert loader.explain().batch_bytes == loader.batch_bytes
    assert largest * 12 * 3 <= loader.input_bytes(steps=3) * 1.0001 + 3 * 12 * 20 * 40
    for steps in (1, 3):
        batches = loader.read(Run(epoch=0, start=0, stop=steps))
        assert sum(batch.values.base.nbytes for batch in batches) <= run_bytes(loader, steps)
    assert "rows of unequal length" in str(loader.explain())


def test_errors_of_methods_that_need_dense_rows(rows: ooc.Ragged) -> None:
    both = ooc.zip(rows, rows.lengths)
    for wrong in (
        lambda: both.map(lambda x, y: x),
        lambda: both.patches(3),
        lambda: both.batches(4, workers=2),
        lambda: both.batches(4).to_keras(),
        lambda: both.batches(4).to_tf(service="localhost:1"),
    ):
        with pytest.raises(ArgumentError, match="ragged"):
            wrong()
    for wrong in (
        lambda: rows.windows(2),
        lambda: ooc.stack([rows, rows]),
        lambda: np.asarray(rows),
        lambda: both.cache(),
    ):
        with pytest.raises(ArgumentError, match=r"<Ragged|ragged"):
            wrong()
    with pytest.raises(IndexError):
        rows.take([0])[1]


def test_a_damaged_row_is_named(tmp_path: Path) -> None:
    np.save(tmp_path / "values.npy", VALUES)
    rows = ooc.ragged(ooc.open(str(tmp_path / "values.npy")), lengths=LENGTHS)
    with open(tmp_path / "values.npy", "r+b") as file:
        file.truncate(128 + VALUES[:-1].nbytes)
    with pytest.raises(SourceError, match=r"values\.npy"):
        rows.take([3, 199])
    wrong = ooc.ragged(np.arange(15), ooc.open(np.array([0, 9, 5, 20])))
    with pytest.raises(SourceError, match=r"say places 9 to 5.*rows 1, 2"):
        wrong.take([0, 1, 2])


def test_rows_of_several_files(tmp_path: Path) -> None:
    for number, part in enumerate(np.array_split(VALUES, 7)):
        np.save(tmp_path / f"{number}.npy", part)
    rows = ooc.ragged(str(tmp_path / "*.npy"), lengths=LENGTHS)
    positions = np.random.default_rng(1).permutation(200)
    same(rows.take(positions), positions)


def test_rows_of_lines(tmp_path: Path) -> None:
    """Test values that are ``bytes``: documents of several lines."""
    lines = [b"%d" % number * (number % 3) for number in range(50)]
    (tmp_path / "a.txt").write_bytes(b"".join(line + b"\n" for line in lines))
    borders = [0, 3, 3, 10, 11, 25, 50]
    rows = ooc.ragged(tmp_path / "a.txt", borders)
    expected = [lines[start:stop] for start, stop in pairwise(borders)]
    assert [rows[at].tolist() for at in range(6)] == expected
    for size in (1, 4):
        read = [row.tolist() for batch in rows.batches(size) for row in batch]
        given = [row for batch in rows.batches(size).to_tf() for row in batch.to_list()]
        assert read == given == expected
    both = ooc.concat([rows[2:], rows[:2]])
    assert [row.tolist() for row in both.take(np.arange(6))] == [*expected[2:], *expected[:2]]


def test_values_that_the_dtype_cannot_represent() -> None:
    rows = ooc.ragged(np.arange(5, dtype="f2"), lengths=[2, 3])
    with pytest.raises(ArgumentError, match="must be a number that float16 holds; got 1000000"):
        rows.pad(value=1e6)
    assert rows.pad(value=np.inf)[0].tolist() == [0, 1, np.inf]
    assert rows.pad(value=0.1)[0].tolist() == [0, 1, np.float16(0.1)]


@pytest.mark.parametrize("dtype", ["S2", "U2"])
def test_text_is_padded_with_text(dtype: str) -> None:
    text = np.array(["a", "b", "cc", "d"], dtype)
    rows = ooc.ragged(text, lengths=[3, 0, 1])
    for fill, value in ((0, text.dtype.type()), (text[2], text[2])):
        padded = rows.pad(4, value=fill)
        expected = [[*text[:3], value], [value] * 4, [text[3], value, value, value]]
        assert_array_equal(np.asarray(padded), np.array(expected, dtype))
        (batch,) = padded.batches(3).to_tf()
        assert_array_equal(batch.numpy(), np.array(expected, "S2"))
    with pytest.raises(ArgumentError, match="must be text that"):
        rows.pad(value=np.array("xyz", dtype[0] + "3")[()])
    with pytest.raises(ArgumentError, match="must be text that"):
        rows.pad(value=7)
