"""Runs of unequal length, compared with NumPy for each engine; counts reads of storage."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from counting import Decoder
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import oocdata as ooc
from oocdata.engines import cache, files, strided
from oocdata.engines.chunked import Chunked
from oocdata.engines.concat import Concat
from oocdata.engines.memory_array import MemoryArray
from oocdata.engines.ragged import copy_runs, cut_runs, read_ragged, run_positions
from oocdata.engines.source import Source
from oocdata.errors import SourceError, TruncatedFileError
from oocdata.formats.memory import open_array
from oocdata.formats.npy import open_npy
from oocdata.formats.opening import open_source

ARRAY = np.arange(1000, dtype="i4") * 3


def _npy(folder: Path, dtype: str) -> Source:
    np.save(folder / "a.npy", ARRAY.astype(dtype))
    return open_npy(str(folder / "a.npy"))


def _hdf5(folder: Path, **options: Any) -> Source:
    with h5py.File(folder / "a.h5", "w") as file:
        file.create_dataset("a", data=ARRAY, **options)
    return open_source(str(folder / "a.h5"))


SOURCES: dict[str, Any] = {
    "in memory": lambda folder: MemoryArray(ARRAY),
    "npy": lambda folder: _npy(folder, "<i4"),
    "npy, big-endian": lambda folder: _npy(folder, ">i4"),
    "chunks as they are": lambda folder: _hdf5(folder, chunks=(37,)),
    "filtered chunks": lambda folder: _hdf5(folder, chunks=(37,), compression="gzip"),
}


WIDE = np.arange(3000, dtype="i4").reshape(1000, 3)


def _parts(folder: Path) -> Source:
    borders, files = [0, 1, 1, 400, 1000], []
    for number, (start, stop) in enumerate(itertools.pairwise(borders)):
        files.append(str(folder / f"{number}.npy"))
        np.save(files[-1], WIDE[start:stop])
    return ooc.open(files).source


def _wide(folder: Path, **options: Any) -> Source:
    with h5py.File(folder / "a.h5", "w") as file:
        file.create_dataset("a", data=WIDE, **options)
    return open_source(str(folder / "a.h5"))


WIDE_SOURCES: dict[str, Any] = {
    "in memory": lambda folder: MemoryArray(WIDE),
    "in memory, columns first": lambda folder: MemoryArray(np.asfortranarray(WIDE)),
    "in memory, big-endian": lambda folder: MemoryArray(WIDE.astype(">i4")),
    "contiguous": lambda folder: _wide(folder),
    "small rows": lambda folder: ooc.open(_wide(folder)).source,
    "chunks as they are": lambda folder: _wide(folder, chunks=(37, 3)),
    "chunks that cut rows": lambda folder: _wide(folder, chunks=(37, 2)),
    "filtered chunks": lambda folder: _wide(folder, chunks=(37, 3), compression="gzip"),
    "filtered, that cut rows": lambda folder: _wide(folder, chunks=(37, 2), compression="gzip"),
    "several files": _parts,
    "along another axis": lambda folder: Concat(
        (MemoryArray(WIDE[:, :1]), MemoryArray(WIDE[:, 1:])), 1
    ),
}


@pytest.mark.parametrize("name", WIDE_SOURCES)
def test_any_runs_of_rows(tmp_path: Path, name: str) -> None:
    source, rng = WIDE_SOURCES[name](tmp_path), np.random.default_rng(0)
    assert hasattr(source, "has_runs")
    cases = [([], []), ([0], [1000]), ([999, 0, 1000], [1, 0, 0]), ([0, 1, 0], [1, 1, 3])]
    for count in range(1, 30):
        starts = rng.integers(0, 1001, count)
        lengths = np.minimum(rng.integers(0, 400 if count % 2 else 5, count), 1000 - starts)
        cases.append((starts.tolist(), lengths.tolist()))
    for starts, lengths in cases:
        assert_array_equal(read(source, starts, lengths), expected(starts, lengths, WIDE))


def expected(starts: Any, lengths: Any, array: np.ndarray = ARRAY) -> np.ndarray:
    runs = [array[a : a + n] for a, n in zip(starts, lengths, strict=True)]
    return np.concatenate([array[:0], *runs])


def read(source: Source, starts: Any, lengths: Any) -> np.ndarray:
    out = np.full((int(np.sum(lengths)), *source.shape[1:]), 7, source.dtype)
    read_ragged(source, np.array(starts, np.int64), np.array(lengths, np.int64), out)
    return out


@pytest.mark.parametrize("name", SOURCES)
def test_any_runs(tmp_path: Path, name: str) -> None:
    source = SOURCES[name](tmp_path)
    assert hasattr(source, "has_runs")
    rng = np.random.default_rng(0)
    cases = [([], []), ([0], [1000]), ([999, 0, 5], [1, 0, 700]), ([1000], [0]), ([37], [37])]
    for count in range(1, 30):
        starts = rng.integers(0, 1001, count)
        lengths = np.minimum(rng.integers(0, 400, count), 1000 - starts)
        cases.append((starts.tolist(), lengths.tolist()))
    for starts, lengths in cases:
        assert_array_equal(read(source, starts, lengths), expected(starts, lengths))


runs = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 40)), max_size=8)


@given(runs, st.integers(1, 50))
def test_runs_are_cut_at_borders(pairs: list[tuple[int, int]], chunk: int) -> None:
    starts, lengths = np.array(pairs, np.int64).reshape(-1, 2).T
    chunks, within, taken = cut_runs(starts, lengths, chunk)
    assert_array_equal(
        run_positions(chunks * chunk + within, taken), run_positions(starts, lengths)
    )
    assert (taken > 0).all()
    assert (within + taken <= chunk).all()


@given(runs)
def test_runs_are_copied_to_their_targets(pairs: list[tuple[int, int]]) -> None:
    starts, lengths = np.array(pairs, np.int64).reshape(-1, 2).T
    targets = np.cumsum(lengths) - lengths
    order = np.argsort(starts, kind="stable")
    out = np.full(int(lengths.sum()) + 2, -1, "i4")
    copy_runs(ARRAY, starts[order], out, targets[order], lengths[order])
    assert out[-2:].tolist() == [-1, -1]
    assert_array_equal(out[:-2], expected(starts, lengths))


def test_each_chunk_is_decoded_once_even_if_few_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: Counter[tuple[int, ...]] = Counter()
    source = Chunked(Decoder(ARRAY, (10,), decoded))
    starts = np.random.default_rng(0).permutation(990)[:200]
    monkeypatch.setattr(cache.ArrayCache, "most", 3)
    assert_array_equal(read(source, starts, [11] * 200), expected(starts, [11] * 200))
    wanted = {place for start in starts for place in (start // 10, (start + 10) // 10)}
    assert decoded == Counter(dict.fromkeys(((place,) for place in wanted), 1))


def test_a_file_that_is_gone_before_its_runs_are_read_names_them(tmp_path: Path) -> None:
    source = _npy(tmp_path, "<i4")
    (tmp_path / "a.npy").unlink()
    with pytest.raises(SourceError, match="it is gone") as raised:
        read_ragged(source, np.array([7, 3]), np.array([2, 1]), np.empty(3, "i4"))
    assert raised.value.rows == (3, 4, 5, 6, 7, 8)  # from the first run to the last one


def test_neighbouring_runs_are_read_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    usual = files.read_runs
    monkeypatch.setattr(
        files,
        "read_runs",
        lambda file, offsets, places, lengths, out: (
            calls.append(int(np.sum(lengths))),
            usual(file, offsets, places, lengths, out),
        ),
    )
    source = SOURCES["npy"](tmp_path)
    read(source, [10, 500, 3], [5, 100, 7])
    assert calls == [4 * 112]  # one call and no other


@pytest.mark.parametrize("name", ["npy", "chunks as they are", "filtered chunks"])
def test_a_file_that_is_cut_short(tmp_path: Path, name: str) -> None:
    source = SOURCES[name](tmp_path)
    path = next(tmp_path.iterdir())
    with open(path, "r+b") as file:
        file.truncate(path.stat().st_size - 100)
    with pytest.raises(TruncatedFileError if name == "npy" else SourceError):
        read(source, [0, 900], [1, 100])


def test_runs_apart_in_the_file(tmp_path: Path) -> None:
    np.save(tmp_path / "b.npy", np.arange(20.0).reshape(10, 2))
    column = open_array(np.load(tmp_path / "b.npy", mmap_mode="r")[:, 1])
    assert isinstance(column, strided.Strided)
    assert_array_equal(read(column, [3, 0], [2, 1]), [7.0, 9.0, 1.0])


def test_the_cache_shrinks_while_runs_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another loader's batches may take memory of the cache."""
    budgets = [4000]
    monkeypatch.setattr(cache.cache, "budget", lambda: budgets[0])

    class Shrinking(Decoder):
        def read_chunks(self, places: Any, outs: Any) -> None:
            super().read_chunks(places, outs)
            budgets[0] = 1000

    decoded: Counter[tuple[int, ...]] = Counter()
    source = Chunked(Shrinking(ARRAY, (10,), decoded))
    assert_array_equal(read(source, [3, 0], [995, 1000]), expected([3, 0], [995, 1000]))
    assert max(decoded.values()) == 1
