"""Test ragged rows padded per batch, with lists of NumPy arrays as the oracle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import oocdata as ooc
from oocdata.describe import as_json, fingerprint, from_json
from oocdata.engines.buffers import ALIGNMENT
from oocdata.errors import ArgumentError
from oocdata.frontends.batching import stack_batches
from oocdata.runs import Run, run_bytes

BOUNDS = (5, 10, 30)
LENGTHS = np.random.default_rng(0).integers(0, 30, 200)
VALUES = np.arange(LENGTHS.sum() * 2, dtype="i4").reshape(-1, 2)


def expected(rows: list[np.ndarray], bounds: tuple[int, ...], value: Any) -> tuple[Any, Any]:
    longest = max([min(len(row), bounds[-1]) for row in rows], default=0)
    width = next(bound for bound in bounds if bound >= longest)
    out = np.full((len(rows), width, *rows[0].shape[1:]), value, rows[0].dtype)
    mask = np.zeros((len(rows), width), np.bool_)
    for place, row in enumerate(rows):
        out[place, : len(row)] = row[:width]
        mask[place, : len(row)] = True
    return out, mask


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=12),
    st.sampled_from([(), (3,), (2, 2)]),
    st.sampled_from(["<f4", ">i2", "u1"]),
    st.lists(st.integers(1, 9), min_size=1, max_size=3, unique=True).map(sorted),
    st.data(),
)
def test_any_rows(
    lengths: list[int], inner: tuple[int, ...], dtype: str, bounds: list[int], data: Any
) -> None:
    values = np.arange(sum(lengths) * int(np.prod(inner))).reshape(-1, *inner).astype(dtype)
    rows = ooc.ragged(values, lengths=lengths)
    native = values.astype(values.dtype.newbyteorder("="))
    each = np.split(native, np.cumsum(lengths)[:-1])
    both = ooc.zip(rows.pad(bounds, value=7, cut=True), rows.mask(bounds, cut=True))
    loader = both.batches(data.draw(st.integers(1, 5)), shuffle=True, bucket=(2, 6))
    batches = loader.read(Run(epoch=1, start=0, stop=len(loader)))
    assert len(batches) == len(loader) > 0
    for step, batch in enumerate(batches):
        wanted = expected([each[at] for at in loader.positions(step, 1)], tuple(bounds), 7)
        for one in (batch, loader.batch(step, 1)):
            for got, right in zip(one, wanted, strict=True):
                assert got.dtype == right.dtype
                assert_array_equal(got, right)


@pytest.fixture
def rows(tmp_path: Path) -> ooc.Ragged:
    np.save(tmp_path / "values.npy", VALUES)
    np.save(tmp_path / "offsets.npy", np.concatenate(([0], np.cumsum(LENGTHS))))
    return ooc.ragged(str(tmp_path / "values.npy"), str(tmp_path / "offsets.npy"))


@pytest.mark.parametrize("steps", [1, 3])
def test_tensors_are_the_memory_that_was_read_into(rows: ooc.Ragged, steps: int) -> None:
    loader = rows.pad(BOUNDS).astype("f8").batches(20, shuffle=True, bucket=BOUNDS)
    batches = loader.read(Run(epoch=0, start=0, stop=steps))
    values, counts, _ = stack_batches(batches, loader)
    assert len(values) == steps
    for step, batch in enumerate(batches):
        assert batch.dtype == np.float64
        assert_array_equal(counts[step], batch.shape[:2])
        assert values[step].ctypes.data == batch.ctypes.data
        assert batch.ctypes.data % ALIGNMENT == 0
    assert sum(batch.base.nbytes for batch in batches) <= run_bytes(loader, steps)
    assert loader.explain().batch_bytes == loader.batch_bytes


def test_a_mask_has_a_dtype_of_its_own(rows: ooc.Ragged) -> None:
    both = ooc.zip(rows.mask(BOUNDS), rows.mask(BOUNDS).astype("f4"))
    for mask, weights in both.batches(32, shuffle=True, bucket=BOUNDS):
        assert [mask.dtype, weights.dtype] == [np.bool_, np.float32]
        assert_array_equal(weights, mask)


def test_zips_splits_and_loaders(rows: ooc.Ragged) -> None:
    pairs = ooc.zip(rows.pad(BOUNDS, value=-1), rows.mask(BOUNDS), rows.lengths)
    train, test = pairs.split(0.7, 0.3)
    assert [len(train), len(test)] == [140, 60]
    loader = train.batches(32, shuffle=True, bucket=BOUNDS, seed=3)
    for epoch in range(2):
        seen = 0
        for x, mask, lengths in loader.epoch(epoch):
            assert_array_equal((x >= 0).all(axis=-1), mask)
            assert_array_equal(mask.sum(axis=1), lengths)
            assert x.shape[1] == BOUNDS[np.searchsorted(BOUNDS, lengths.max())]
            seen += int(x[x >= 0].sum())
        assert seen == VALUES[: LENGTHS[:140].sum()].sum()
    again = from_json(as_json(loader))
    assert fingerprint(again) == fingerprint(loader)
    assert_array_equal(again.batch(2, 1)[0], loader.batch(2, 1)[0])
    assert rows.pad(BOUNDS)[7].shape == (BOUNDS[np.searchsorted(BOUNDS, LENGTHS[7])], 2)
    assert str(pairs.spec[0]) == "(None, 2) int32, padded with -1 up to 5, 10, 30"


def test_invalid_calls(rows: ooc.Ragged) -> None:
    with pytest.raises(ArgumentError, match=r"longest row, 29.*got \(5, 9\)\. Write cut=True"):
        rows.pad((5, 9))
    with pytest.raises(ArgumentError, match="`to` must be lengths"):
        rows.mask((9, 5))
    padded = rows.pad(BOUNDS)
    assert not hasattr(padded, "pad")  # which would pad the rows, or make numbers of a mask
    with pytest.raises(ArgumentError, match="`mask` must be called on dense rows"):
        padded.mask()
    for select in (lambda: padded[:, 2:9], lambda: padded[:, :, 0], lambda: padded.transpose(1, 0)):
        with pytest.raises(ArgumentError, match=r"padded to several lengths.* must be whole"):
            select()
    for wrong in (
        lambda: padded.map(lambda x: x),
        lambda: padded.batches(4).to_keras(),
        lambda: padded.patches(3),
    ):
        with pytest.raises(ArgumentError, match="ragged"):
            wrong()
    with pytest.raises(ArgumentError, match="one dense array each; got <Bounded: 200 rows"):
        np.asarray(padded)
