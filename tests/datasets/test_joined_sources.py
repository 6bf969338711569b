"""Datasets one after the other whose sources are of one layout: read as one array."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from engines.test_chunked import CountingReader
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

import oocdata as ooc
from oocdata.datasets.view import View
from oocdata.engines.cache import cache
from oocdata.engines.chunked import Chunked
from oocdata.errors import SourceError


def arrays(lengths: list[int], row: tuple[int, ...] = (4, 6)) -> list[NDArray[Any]]:
    rows = np.arange(sum(lengths) * int(np.prod(row)), dtype="f4").reshape(-1, *row)
    return np.split(rows, np.cumsum(lengths)[:-1])


@given(st.data())
def test_any_datasets(data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.integers(4, 12), min_size=1, max_size=4))
    steps = [data.draw(st.integers(2, 4)) for _ in lengths]
    columns = data.draw(st.sampled_from([6, 3]))
    stored = arrays(lengths)
    readers = [
        CountingReader(array, (step, 4, columns)) for array, step in zip(stored, steps, strict=True)
    ]
    kind = data.draw(st.sampled_from(["rows", "cut", "turned", "windows", "zip", "mapped"]))
    datasets, expected = [], []
    for reader in data.draw(st.lists(st.sampled_from(readers), min_size=1, max_size=5)):
        view, array = View.of(Chunked(reader)), reader.array
        if data.draw(st.booleans()):
            view, array = view[::-2], array[::-2]
        if kind == "cut":
            view, array = view[:, 1:3, ::-1], array[:, 1:3, ::-1]
        if kind == "turned":
            view, array = view.transpose(1, 0), array.transpose(0, 2, 1)
        dataset: Any = view
        if kind == "windows":
            if len(view) < 3:
                continue
            dataset = view.windows(3)
            array = np.stack([array[start : start + 3] for start in range(len(array) - 2)])
        if kind == "zip":
            dataset, array = ooc.zip(view, view[:, 2]), (array, array[:, 2])
        if kind == "mapped":
            dataset, array = view.map(lambda rows: rows * 2), array * 2
        datasets.append(dataset)
        expected.append(array if isinstance(array, tuple) else (array,))
    if not datasets:
        return
    whole = ooc.concat(datasets)
    wanted = [np.concatenate(parts) for parts in zip(*expected, strict=True)]
    some = st.lists(st.integers(0, len(whole) - 1), min_size=1, max_size=12)
    for positions in (data.draw(some), np.arange(len(whole))):
        taken = whole.take(positions)
        for got, want in zip(taken if kind == "zip" else (taken,), wanted, strict=True):
            assert_array_equal(got, want[positions])
    # No chunk is decoded for one dataset and again for another; nor for one alone, if the chunks of
    # all have one size.
    if columns == 6:
        for reader in readers if len(set(steps)) == 1 else ():
            View.of(Chunked(reader)).take(np.arange(len(reader.array)))
        assert all(set(reader.count.values()) <= {1} for reader in readers)


def test_a_batch_of_many_datasets_is_decoded_at_once(loads: list[int]) -> None:
    stored = arrays([20] * 30)
    readers = [CountingReader(array, (10, 4, 6)) for array in stored]
    views = [View.of(Chunked(reader)) for reader in readers]
    whole, rows = np.concatenate(stored), np.arange(5, 600, 20)
    assert_array_equal(ooc.concat(views).take(rows), whole[rows])
    assert loads == [30]
    loads.clear()
    later = ooc.concat([view.split(0.5, 0.5, gap=0)[1] for view in views])
    assert_array_equal(later.take(np.arange(0, 300, 10)), whole.reshape(30, 20, 4, 6)[:, 10])
    assert loads == [30]
    assert [reader.count.total() for reader in readers] == [2] * 30


def test_datasets_of_other_layouts_are_read_one_by_one(loads: list[int]) -> None:
    stored = arrays([20] * 4)
    shapes = [(10, 4, 6), (5, 4, 6), (10, 4, 6), (5, 2, 6)]
    readers = [CountingReader(array, shape) for array, shape in zip(stored, shapes, strict=True)]
    views = [View.of(Chunked(reader)) for reader in readers]
    rows = np.arange(80)[::-1]
    assert_array_equal(ooc.concat(views).take(rows), np.concatenate(stored)[rows])
    assert [reader.count.total() for reader in readers] == [2, 4, 2, 8]
    assert len(loads) > 1


def test_arrays_of_two_layouts_in_turns(loads: list[int]) -> None:
    """Those of each layout are read at once, into their places in the batch."""
    readers = [
        CountingReader(array, (10, *array.shape[1:]))
        for array in (*arrays([20] * 2, (4, 4)), *arrays([20] * 2, (4, 8)))
    ]
    narrow, other, wide, last = [View.of(Chunked(reader)) for reader in readers]
    views = [narrow, wide[:, :, :4], other.transpose(1, 0), last[:, :, :4], other]
    whole = ooc.concat(views)
    rows = np.random.default_rng(0).permutation(100)
    expected = np.concatenate([view.take(np.arange(20)) for view in views])
    assert_array_equal(expected[40:60], readers[1].array.transpose(0, 2, 1))
    cache.forget()
    loads.clear()
    assert_array_equal(whole.take(rows), expected[rows])
    assert loads == [4, 4]


def test_members_of_a_mixture_are_read_at_once(loads: list[int]) -> None:
    stored = arrays([20] * 2)
    readers = [CountingReader(array, (10, 4, 6)) for array in stored]
    mixed = ooc.mix([(View.of(Chunked(reader)), 1) for reader in readers])
    rows = np.concatenate(list(mixed.batches(8).epoch(0, parallel=1)))
    assert_array_equal(rows[np.argsort(rows[:, 0, 0])], np.concatenate(stored))
    assert loads == [2, 2]
    assert [reader.count.total() for reader in readers] == [2, 2]


def files(folder: Path, lengths: list[int], **options: Any) -> tuple[NDArray[Any], list[Path]]:
    stored, paths = arrays(lengths, (40, 50)), []
    for number, array in enumerate(stored):
        paths.append(folder / f"{number}.h5")
        with h5py.File(paths[-1], "w") as file:
            file.create_dataset("x", data=array, **options)
    return np.concatenate(stored), paths


AUTO = {"compression": "gzip"}
WHOLE = {"compression": "gzip", "chunks": (7, 40, 50)}


@pytest.mark.parametrize("options", [AUTO, WHOLE, {}], ids=["auto", "whole", "contiguous"])
def test_epochs_of_files(tmp_path: Path, options: Any) -> None:
    """Ranks and worker processes too, and a split that cuts each file."""
    array, paths = files(tmp_path, [33, 40, 51], **options)
    whole = ooc.concat([ooc.open(path, "x") for path in paths])
    for order in (True, False, "global"):
        loader = whole.batches(8, shuffle=order, seed=3)
        rows = np.concatenate(list(loader.epoch(1)))
        assert_array_equal(rows[np.argsort(rows[:, 0, 0])], array)
        parts = [np.concatenate(list(loader.shard(2, rank).epoch(1))) for rank in range(2)]
        shared = np.concatenate(parts)
        assert_array_equal(shared[np.argsort(shared[:, 0, 0])], array)
    train, test = whole.split(0.5, 0.5)
    taken = np.concatenate([train.take(np.arange(len(train))), test.take(np.arange(len(test)))])
    assert_array_equal(taken[np.argsort(taken[:, 0, 0])], array)
    by_processes = whole.batches(16, workers=2).epoch(0)
    assert_array_equal(np.concatenate(list(by_processes)), array)


@pytest.mark.parametrize("options", [AUTO, WHOLE, {}], ids=["auto", "whole", "contiguous"])
def test_an_error_names_the_file_and_its_rows(tmp_path: Path, options: Any) -> None:
    array, paths = files(tmp_path, [33, 40, 51], **options)
    whole = ooc.concat([ooc.open(path, "x") for path in paths])
    assert_array_equal(whole.take([2, 40, 100]), array[[2, 40, 100]])
    os.utime(paths[1], (1, 1))
    assert_array_equal(whole.take([3, 110]), array[[3, 110]])
    with pytest.raises(SourceError) as caught:
        whole.take([3, 40, 110])
    assert caught.value.path == str(paths[1])
    assert caught.value.rows is None or list(caught.value.rows) == [7]
