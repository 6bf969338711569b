"""Rows whose bytes lie far apart: put together many at a time, and each byte read once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from oocdata.datasets.view import View
from oocdata.errors import SourceError, TruncatedFileError
from oocdata.sources import strided
from oocdata.sources.chunks import Chunks
from oocdata.sources.extents import Extents
from oocdata.sources.npy import open_npy
from oocdata.sources.source import Source
from oocdata.testing import SourceConformance, sample_array


@pytest.fixture
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays of the conformance tests are small: let them be read this way too."""
    monkeypatch.setattr(strided, "_SMALL", 0)
    monkeypatch.setattr(strided, "_CHUNK_BYTES", 9000)


@pytest.mark.usefixtures("any_size")
class TestFortranOrder(SourceConformance):
    dtypes = (">f4", "<f8", "|u1", ">i2", "|b1", "<c8")

    def make(self, folder: Path, array: np.ndarray, axis: int = 0) -> Source:
        np.save(folder / "a.npy", np.asfortranarray(array))
        source = open_npy(str(folder / "a.npy"), axis=axis)
        if array.shape == self.shape:
            assert isinstance(source, Chunks if axis == 0 else Extents)
        return source


def test_a_row_axis_that_is_fast_in_storage(tmp_path: Path) -> None:
    array = sample_array((20, 30, 900), ">i4")
    np.save(tmp_path / "a.npy", array)
    source = open_npy(str(tmp_path / "a.npy"), axis=2)
    assert isinstance(source, Chunks)
    rows = np.random.default_rng(0).integers(0, 900, 50)
    assert_array_equal(View.of(source).take(rows), np.moveaxis(array, 2, 0)[rows])


def far_apart(folder: Path) -> tuple[np.ndarray, Path]:
    array = np.asfortranarray(sample_array((3000, 20, 10)))
    np.save(folder / "a.npy", array)
    return array, folder / "a.npy"


def test_each_byte_is_read_once_in_long_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    array, path = far_apart(tmp_path)
    asked: list[int] = []
    real = os.preadv

    def spy(number: int, buffers: Any, offset: int) -> int:
        asked.append(sum(len(buffer) for buffer in buffers))
        return real(number, buffers, offset)

    monkeypatch.setattr(os, "preadv", spy)
    view = View.of(open_npy(str(path)))
    for start in range(0, 3000, 30):
        rows = np.arange(start, start + 30)
        assert_array_equal(view.take(rows), array[rows])
    assert sum(asked) == array.nbytes
    assert len(asked) <= 2 * 200


@pytest.mark.parametrize(
    ("shape", "order", "axis"),
    [((3000, 200), "C", 0), ((20, 1000, 64, 64), "C", 1), ((40, 20), "F", 0)],
    ids=["C order", "long pieces", "small"],
)
def test_what_is_better_read_row_by_row(
    tmp_path: Path, shape: tuple[int, ...], order: Any, axis: int
) -> None:
    np.save(tmp_path / "a.npy", np.zeros(shape, "u1", order=order))
    assert isinstance(open_npy(str(tmp_path / "a.npy"), axis=axis), Extents)


def test_a_file_cut_short_or_written_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strided, "_CHUNK_BYTES", 80_000)
    array, path = far_apart(tmp_path)
    view = View.of(open_npy(str(path)))
    view.take([0])
    os.utime(path, ns=(0, 0))
    with pytest.raises(SourceError, match="has changed"):
        view.take([2900])
    os.truncate(path, array.nbytes // 2)
    with pytest.raises(TruncatedFileError, match="cut short"):
        view.take([2900])
