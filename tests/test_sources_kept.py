"""Small rows out of memory: each block read once, within the budget, and never of another file."""

from __future__ import annotations

import gc
import os
import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from oocdata.datasets.view import View
from oocdata.errors import SourceError, TruncatedFileError
from oocdata.sources import kept
from oocdata.sources.extents import Extents
from oocdata.sources.memory import open_array
from oocdata.sources.npy import open_npy, open_raw
from oocdata.sources.requests import UnfinishedError
from oocdata.sources.slots import DEFAULT_BUDGET, set_chunk_budget
from oocdata.sources.source import Source
from oocdata.testing import SourceConformance, sample_array


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(kept, "_BLOCK", kept.SMALL)
    yield
    set_chunk_budget(DEFAULT_BUDGET)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the bytes of every run that is read to be kept."""
    seen: list[int] = []
    real = kept.read_runs

    def read_runs(file: int, offsets: Any, places: Any, lengths: Any, out: Any) -> None:
        seen.extend(lengths.tolist())
        real(file, offsets, places, lengths, out)

    monkeypatch.setattr(kept, "read_runs", read_runs)
    return seen


def saved(folder: Path, array: np.ndarray, name: str = "a") -> Extents:
    np.save(folder / f"{name}.npy", array)
    return opened(folder / f"{name}.npy")


def opened(path: Path) -> Extents:
    source = open_npy(str(path))
    assert isinstance(source, Extents)
    return source


def read(source: Source, rows: Any) -> np.ndarray:
    return SourceConformance().read(source, rows)


class TestKept(SourceConformance):
    dtypes = (">f4", "<f8", "|u1", ">i2", "|b1", "<c8")

    def make(self, folder: Path, array: np.ndarray, axis: int = 0) -> Source:
        np.save(folder / "a.npy", array)
        source = open_npy(str(folder / "a.npy"), axis=axis)
        if axis == 0:
            assert isinstance(source, Extents)
            assert source.kept_bytes == array.nbytes
        return source


def test_each_byte_is_read_once(tmp_path: Path, asked: list[int]) -> None:
    array = sample_array((3000, 7), ">i4")
    source = saved(tmp_path, array)
    rng = np.random.default_rng(0)
    for _ in range(60):
        rows = rng.integers(0, 3000, 250)
        assert_array_equal(read(source, rows), array[rows])
    assert sum(asked) == array.nbytes
    assert source.chunk_rows == 1  # whatever is read together, each row has an address


@pytest.mark.parametrize("row", [0, 145, 146, 147, 292, 2998, 2999])
def test_rows_across_the_border_of_blocks(tmp_path: Path, row: int) -> None:
    array = sample_array((3000, 7), "<i4") + 1
    assert kept.SMALL // 28 == 146
    assert_array_equal(read(saved(tmp_path, array), [row]), array[[row]])


def test_a_first_batch_reads_no_more_than_its_blocks(tmp_path: Path, asked: list[int]) -> None:
    array = sample_array((100_000, 10), "<i4")
    rows = np.random.default_rng(0).integers(0, 100_000, 5)
    assert_array_equal(read(saved(tmp_path, array), rows), array[rows])
    assert 5 * 40 <= sum(asked) <= 5 * 2 * kept.SMALL


def test_long_runs_are_read_straight_into_the_batch(tmp_path: Path, asked: list[int]) -> None:
    array = sample_array((10_000, 10), "<i4")
    source = saved(tmp_path, array)
    for start in range(0, 10_000, 500):
        rows = np.arange(start, start + 500)
        assert_array_equal(read(source, rows), array[rows])
    assert asked == []


@pytest.mark.parametrize(
    ("shape", "dtype"), [((1000, 4097), "u1"), ((0, 7), "u1"), ((5, 0), "u1")], ids=str
)
def test_what_is_not_kept(tmp_path: Path, shape: tuple[int, ...], dtype: str) -> None:
    source = saved(tmp_path, np.zeros(shape, dtype))
    assert source.kept is None
    assert source.kept_bytes == 0


def test_rows_with_other_things_between_them_are_not_kept(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", sample_array((1000, 10)))
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    source = open_array(mapped[::50])
    assert isinstance(source, Extents)
    assert source.kept is None
    source = open_array(mapped[::-1])
    assert isinstance(source, Extents)
    assert source.kept_bytes == 40_000
    assert_array_equal(read(source, [3, 999]), mapped[[996, 0]])


def test_an_array_above_the_budget_is_read_row_by_row(tmp_path: Path, asked: list[int]) -> None:
    array = sample_array((3000, 7), "<i4")
    source = saved(tmp_path, array)
    set_chunk_budget(array.nbytes - 1)
    assert source.kept_bytes == 0
    rows = np.random.default_rng(0).integers(0, 3000, 50)
    assert_array_equal(read(source, rows), array[rows])
    assert asked == []
    set_chunk_budget(array.nbytes)
    assert source.kept_bytes == array.nbytes
    assert_array_equal(read(source, rows), array[rows])
    assert asked
    set_chunk_budget(1)  # forgotten again
    asked.clear()
    assert_array_equal(read(source, rows), array[rows])
    assert asked == []
    assert not kept._memories


def test_all_arrays_together_stay_within_the_budget(tmp_path: Path, asked: list[int]) -> None:
    array = sample_array((3000, 7), "<i4")
    first, second = saved(tmp_path, array), saved(tmp_path, array, "b")
    set_chunk_budget(array.nbytes * 3 // 2)
    rows = np.arange(0, 3000, 10)
    for source in (first, second, first):
        assert_array_equal(read(source, rows), array[rows])
    assert sum(asked) <= array.nbytes
    assert sum(len(memory.bytes) for memory in kept._memories.values()) == array.nbytes
    asked.clear()
    del first, source
    gc.collect()
    assert_array_equal(read(second, rows), array[rows])  # there is room now
    assert asked


def test_what_is_kept_goes_with_the_last_source(tmp_path: Path, asked: list[int]) -> None:
    array = sample_array((3000, 7), "<i4")
    source = saved(tmp_path, array)
    rows = np.arange(0, 3000, 10)
    read(source, rows)
    again = opened(tmp_path / "a.npy")
    asked.clear()
    assert_array_equal(read(again, rows), array[rows])
    assert asked == []  # one memory for both
    del source
    gc.collect()
    assert len(kept._memories) == 1
    del again
    gc.collect()
    assert not kept._memories


def test_a_description_takes_nothing_along(tmp_path: Path) -> None:
    array = sample_array((3000, 7), "<i4")
    source = saved(tmp_path, array)
    read(source, np.arange(3000)[::-1])
    sent = pickle.dumps(source)
    assert len(sent) < 2000
    received = pickle.loads(sent)
    assert received == source
    assert hash(received) == hash(source)
    assert received.kept_bytes == array.nbytes
    assert_array_equal(read(received, [5, 3]), array[[5, 3]])


def test_threads(tmp_path: Path) -> None:
    array = sample_array((20_000, 3), "<i4")
    source = saved(tmp_path, array)

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(30):
            rows = rng.integers(0, 20_000, 100)
            assert_array_equal(read(source, rows), array[rows])

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_fills_memory_of_its_own(tmp_path: Path) -> None:
    array = sample_array((3000, 7), "<i4")
    source = saved(tmp_path, array)
    read(source, [0, 2999])
    child = os.fork()
    if child == 0:
        rows = np.arange(3000)[::-2]
        os._exit(0 if (read(source, rows) == array[rows]).all() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    memory = source.kept.memory()  # type: ignore[union-attr]
    assert memory is not None
    assert not memory.bytes[kept.SMALL : -2 * kept.SMALL].any()
    assert not memory.complete


STEPS = st.sampled_from([1, 2, 3, -1, -2])


@given(
    st.tuples(st.integers(1, 90), st.integers(1, 5), st.integers(1, 9)),
    st.tuples(STEPS, STEPS),
    st.sampled_from(["<i4", ">i4", "u1"]),
    st.sampled_from(["same", "f8"]),
    st.data(),
)
def test_cuts_and_conversions(
    tmp_path_factory: pytest.TempPathFactory,
    shape: tuple[int, ...],
    steps: tuple[int, int],
    dtype: str,
    to: str,
    data: st.DataObject,
) -> None:
    array = sample_array(shape, dtype)
    source = saved(tmp_path_factory.mktemp("kept"), array)
    key = tuple(
        data.draw(st.one_of(st.just(slice(None, None, step)), st.just(-1))) for step in steps
    )
    view = View.of(source)[(slice(None), *key)]
    view = view if to == "same" else view.astype(to)
    places = st.integers(0, len(array) - 1)
    for _ in range(2):  # as it is filled, and from what is there
        rows = np.array(data.draw(st.lists(places, min_size=1, max_size=20)))
        got = view.take(rows)
        assert got.dtype == (array.dtype.newbyteorder("=") if to == "same" else to)
        assert_array_equal(got, array[(slice(None), *key)][rows])
    assert view.source.shape == array[(slice(None), *key)].shape


def test_an_array_within_a_file(tmp_path: Path) -> None:
    array = sample_array((500, 3), ">u2")
    (tmp_path / "a.bin").write_bytes(b"\xff" * 1001 + array.tobytes())
    source = open_raw(str(tmp_path / "a.bin"), dtype=">u2", shape=(-1, 3), offset=1001)
    rows = np.random.default_rng(0).integers(0, 500, 40)
    assert_array_equal(read(source, rows), array[rows])


# --- files that change


@pytest.mark.parametrize("everything", [True, False])
def test_a_file_that_changes_is_not_read_from_memory(tmp_path: Path, everything: bool) -> None:
    array = sample_array((3000, 7), "<i4")
    source = saved(tmp_path, array)
    path = tmp_path / "a.npy"
    before = os.stat(path).st_mtime_ns
    read(source, np.arange(3000)[::-1] if everything else [0, 5])
    os.utime(path, ns=(0, 0))
    with pytest.raises(SourceError, match=r"has changed\. Open it again\. .*rows 5, 3"):
        read(source, [5, 3])
    # Nothing that was read until then is trusted, should the file ever look the same again.
    np.save(path, array + 1)
    os.utime(path, ns=(before, before))
    assert_array_equal(read(source, [5, 3]), array[[5, 3]] + 1)


def test_a_file_cut_short_names_the_rows(tmp_path: Path) -> None:
    source = saved(tmp_path, sample_array((3000, 7), "<i4"))
    read(source, np.arange(3000)[::-1])
    os.truncate(tmp_path / "a.npy", 128 + 28 * 100)
    with pytest.raises(TruncatedFileError, match="cut short after it was opened") as raised:
        read(source, [5, 99, 100, 2000])
    assert raised.value.rows == (100, 2000)


def test_a_file_written_over_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = saved(tmp_path, np.ones((3000, 7), "<i4"))
    real = kept.read_runs

    def while_another_writes(*arguments: Any) -> None:
        real(*arguments)
        np.save(tmp_path / "a.npy", np.full((3000, 7), 2, "<i4"))
        os.utime(tmp_path / "a.npy", ns=(0, 0))

    monkeypatch.setattr(kept, "read_runs", while_another_writes)
    with pytest.raises(SourceError, match="has changed"):
        read(source, [3, 1])
    with pytest.raises(SourceError, match="has changed"):
        read(source, [3, 1])


def test_a_file_written_over_while_rows_are_gathered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = saved(tmp_path, np.ones((3000, 7), "<i4"))
    read(source, np.arange(3000)[::-1])
    real = np.take

    def while_another_writes(*arguments: Any, **named: Any) -> Any:
        os.utime(tmp_path / "a.npy", ns=(0, 0))
        return real(*arguments, **named)

    monkeypatch.setattr(np, "take", while_another_writes)
    with pytest.raises(SourceError, match="has changed"):
        read(source, [3, 1])


def test_a_bad_place_in_a_block_spares_the_other_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = sample_array((3000, 7), "<i4")
    source = saved(tmp_path, array)

    def bad(*_: Any) -> None:
        raise UnfinishedError(0, 0, OSError(5, "Input/output error"))

    monkeypatch.setattr(kept, "read_runs", bad)
    assert_array_equal(read(source, [8, 3]), array[[8, 3]])


def test_a_system_that_grants_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    array = sample_array((3000, 7), "<i4")
    source = saved(tmp_path, array)

    def refused(*_: Any, **__: Any) -> Any:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(kept.mmap, "mmap", refused)
    assert_array_equal(read(source, [8, 3]), array[[8, 3]])


def test_a_read_only_batch(tmp_path: Path) -> None:
    source = saved(tmp_path, sample_array((300, 7), "<i4"))
    out = np.zeros((20, 7), "<i4")
    out.flags.writeable = False
    for rows in (np.arange(20)[::-1], np.arange(0, 300, 15)):
        with pytest.raises(ValueError, match=r"read-?only|writable"):
            source.read_into(rows, out)
    assert not out.any()
