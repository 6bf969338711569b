"""Rows read in blocks: which bytes are read, how often, and when."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from boxes import check_boxes
from counting import Decoder, counted
from numpy.testing import assert_array_equal

import oocdata as ooc
from oocdata.box import Extent
from oocdata.datasets.view import View
from oocdata.engines import blocked as blocked_module
from oocdata.engines import files, many_files, strided
from oocdata.engines.blocked import CachedRows, blocked
from oocdata.engines.cache import ArrayCache, Cache, cache
from oocdata.engines.chunked import Chunked
from oocdata.engines.copying import copy_reordered
from oocdata.engines.files import Descriptor
from oocdata.engines.gather import boxes
from oocdata.engines.source import Source
from oocdata.engines.strided import Strided
from oocdata.engines.wrapped import Transposed
from oocdata.errors import SourceError, TruncatedFileError
from oocdata.formats.hdf5.filtered import FilteredChunks
from oocdata.formats.memory import open_array
from oocdata.formats.npy import open_npy
from oocdata.formats.opening import open_source
from oocdata.memory import DEFAULT_MEMORY, set_memory
from oocdata.testing import SourceConformance, sample_array
from oocdata.threads import cores


@pytest.fixture
def lengths_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the bytes of every read of runs."""
    seen: list[int] = []
    real, real_one = files.read_runs, Descriptor.read_into

    def read_runs(file: int, offsets: Any, addresses: Any, lengths: Any, target: Any) -> None:
        seen.append(int(np.broadcast_to(lengths, len(offsets)).sum()))
        real(file, offsets, addresses, lengths, target)

    def read_into(self: Descriptor, memory: np.ndarray, offset: int) -> None:
        seen.append(memory.nbytes)
        real_one(self, memory, offset)

    for module in (files, many_files):
        monkeypatch.setattr(module, "read_runs", read_runs)
    monkeypatch.setattr(Descriptor, "read_into", read_into)
    return seen


@pytest.fixture(autouse=True)
def memory() -> Any:
    gc.collect()
    yield
    set_memory(DEFAULT_MEMORY)


def saved(folder: Path, array: np.ndarray, axes: tuple[int, ...] = (0,)) -> Source:
    np.save(folder / "a.npy", array)
    return blocked(open_npy(str(folder / "a.npy")), axes)


class TestFortranOrder(SourceConformance):
    def make(self, folder: Path, array: np.ndarray) -> Source:
        source = saved(folder, np.asfortranarray(array))
        assert array.ndim == 1 or isinstance(source, Chunked)
        return source


class TestTimeLast(SourceConformance):
    def make(self, folder: Path, array: np.ndarray) -> Source:
        source = saved(folder, array, (array.ndim - 1,))
        assert isinstance(source, CachedRows if array.ndim == 1 else Transposed)
        return source


class TestSmallRows(SourceConformance):
    dtypes = (">f4", "<f8", "|u1", ">i2", "|b1", "<c8")

    def make(self, folder: Path, array: np.ndarray) -> Source:
        source = saved(folder, array)
        assert isinstance(source, CachedRows)
        return source


class TestSmallRowsInChunks(SourceConformance):
    def make(self, folder: Path, array: np.ndarray) -> Source:
        with h5py.File(folder / "a.h5", "w") as file:
            chunks = (min(5, len(array)), *array.shape[1:])
            file.create_dataset("x", data=array, chunks=chunks, maxshape=(None, *array.shape[1:]))
        source = blocked(open_source(str(folder / "a.h5"), "x"), (0,))
        assert isinstance(source, CachedRows)
        return source


@pytest.mark.parametrize("several", [False, True])
def test_each_byte_of_small_rows_in_chunks_is_read_once(
    tmp_path: Path, lengths_read: list[int], several: bool
) -> None:
    """As uncompressed labels, written batch by batch."""
    array = sample_array((3000, 2), "<i4")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name, part in [("a/x", array[:1100]), ("b/x", array[1100:])]:
            file.create_dataset(name, data=part, chunks=(512, 2), maxshape=(None, 2))
    view = ooc.open(tmp_path / "a.h5", "*/x" if several else "b/x")
    expected = array if several else array[1100:]
    lengths_read.clear()  # reads of the file's metadata
    rng = np.random.default_rng(0)
    for _ in range(60):
        rows = rng.integers(0, len(expected), 250)
        assert_array_equal(view.take(rows), expected[rows])
    # The last chunk of each of several datasets is read whole, as stored.
    assert sum(lengths_read) == (7 * 512 if several else 1900) * 8
    assert view.storage.chunks is None  # each row has an address, although blocks are read


def test_a_sample_axis_that_is_fast_in_storage(tmp_path: Path) -> None:
    """As a time axis that is last: (N, 384, 384, 49) opened along axes 0 and 3."""
    array = sample_array((23, 3, 5, 4))
    check_boxes(saved(tmp_path, array, (0, 3)), array)


def test_boxes_of_rows_cut_by_chunks() -> None:
    array = sample_array((23, 3, 5, 4))
    source = blocked(counted(array, 3, 1, 2, 2)[0].source, (0,))
    assert isinstance(source, CachedRows)
    check_boxes(source, array)


def test_rows_cut_by_chunks_are_decoded_once_and_whole() -> None:
    array = sample_array((100, 6, 5), "f8")
    view, decoded = counted(array, 8, 4, 5)
    view = View.of(blocked(view.source, (0,)))
    assert view.source.storage().chunks == (8, 4, 5)  # the order does not depend on the memory
    rows = np.random.default_rng(0).integers(0, 100, 64)
    for _ in range(3):
        assert_array_equal(view.take(rows), array[rows])
        assert_array_equal(view[7], array[7])
    assert set(decoded.values()) == {1}
    assert set(decoded) == {(row // 8, part, 0) for row in rows for part in (0, 1)}


def test_a_part_of_rows_decodes_its_own_chunks() -> None:
    array = sample_array((100, 6, 5), "f8")
    view, decoded = counted(array, 8, 4, 5)
    view = View.of(blocked(view.source, (0,)))
    assert_array_equal(view[:, :3].take(np.arange(100)), array[:, :3])
    assert decoded == {(block, 0, 0): 1 for block in range(13)}


def test_rows_of_several_datasets_cut_by_chunks_are_decoded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As robomimic's images: demos of different lengths, h5py's default chunks, windows."""
    demos = [sample_array((length, 9, 7, 3), "u1") + length for length in (11, 4, 1, 23, 8)]
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for number, array in enumerate(demos):
            chunks = (min(4, len(array)), 5, 7, 1)
            file.create_dataset(f"demo_{number}/image", data=array, chunks=chunks, compression=1)
    decoded: Counter[tuple[int, ...]] = Counter()
    real = FilteredChunks.read_chunks

    def read_chunks(self: FilteredChunks, places: Any, outs: Any) -> None:
        decoded.update((self.chunk_shape[0], *place) for place in places.tolist())
        real(self, places, outs)

    monkeypatch.setattr(FilteredChunks, "read_chunks", read_chunks)
    view = ooc.open(tmp_path / "a.h5", "demo_*/image")
    windows = view.windows(3, 1)
    expected = [(demo[i : i + 3], demo[i + 3]) for demo in demos for i in range(len(demo) - 3)]
    assert len(windows) == len(expected)
    chosen = np.random.default_rng(0).permutation(len(expected))
    for _ in range(2):
        x, y = windows.take(chosen)
        assert_array_equal(x, [expected[i][0] for i in chosen])
        assert_array_equal(y, np.array([expected[i][1] for i in chosen]).reshape(y.shape))
    assert_array_equal(view.take(np.arange(len(view))), np.concatenate(demos))
    assert set(decoded.values()) == {1}
    assert len(decoded) == sum(-(-len(demo) // min(4, len(demo))) for demo in demos) * 2 * 3


@pytest.mark.skipif(cores() < 2, reason="one processor decodes one chunk at a time")
def test_the_chunks_of_one_block_of_rows_are_decoded_in_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("oocdata.engines.slots._TASK_BYTES", (1, 1))
    array = sample_array((6, 8), "f8")
    view, decoded = counted(array, 6, 1)
    met, real = threading.Barrier(2), Decoder.read_chunks

    def read_chunks(self: Decoder, places: Any, outs: Any) -> None:
        with suppress(threading.BrokenBarrierError):  # no other thread came
            met.wait(20)
        real(self, places, outs)

    monkeypatch.setattr(Decoder, "read_chunks", read_chunks)
    view = View.of(blocked(view.source, (0,)))
    assert_array_equal(view.take(np.arange(6)), array)
    assert not met.broken
    assert decoded == Counter((0, column) for column in range(8))


@pytest.mark.parametrize("rows", [16, 17, 60])
def test_boxes_of_several_blocks_share_decoded_chunks(rows: int) -> None:
    array = sample_array((100, 6, 5), "f8")
    view, decoded = counted(array, 8, 4, 5)
    view = View.of(blocked(view.source, (0,)))
    assert_array_equal(view.windows(rows, 0).take([8]), array[None, 8 : 8 + rows])
    assert_array_equal(view.take(np.arange(8, 8 + rows)), array[8 : 8 + rows])
    assert set(decoded.values()) == {1}


@pytest.mark.parametrize(("blocks", "alone"), [(4, 0), (3, 26)])
def test_rows_cut_by_chunks_that_exceed_a_part_of_the_cache(
    monkeypatch: pytest.MonkeyPatch, blocks: int, alone: int
) -> None:
    """Whole rows are cached as long as the cache has room for several blocks."""
    monkeypatch.setattr(blocked_module, "cache_share", lambda: blocks * 8 * 240)
    array = sample_array((100, 6, 5), "f8")
    view, decoded = counted(array, 8, 4, 5)
    source = blocked(view.source, (0,))
    assert_array_equal(View.of(source).take(np.arange(100)[::-1]), array[::-1])
    assert decoded == {(block, part, 0): 1 for block in range(13) for part in (0, 1)}
    assert isinstance(source, CachedRows)
    assert 26 - len(source.source.cached.missing(np.arange(26))) == alone  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("shape", "chunk", "axes", "cached"),
    [
        ((9, 6), (4, 6), (0,), None),
        ((9, 6), (4, 5), (0,), (4, 6)),
        ((9, 7, 6), (1, 4, 5), (0, 1), (1, 4, 6)),
        ((9, 1025), (4, 5), (0,), (4, 1025)),
        ((17_000, 1000), (17_000, 5), (0,), None),  # blocks of more than 64 MiB
        ((9,), (4,), (0,), None),
    ],
)
def test_which_chunked_rows_are_cached_whole(
    shape: tuple[int, ...], chunk: tuple[int, ...], axes: tuple[int, ...], cached: Any
) -> None:
    source = counted(np.zeros(shape, "f4"), *chunk)[0].source
    found = blocked(source, axes)
    if cached is None:
        assert found is source
    else:
        assert isinstance(found, CachedRows)
        assert found.chunk_shape == cached


def test_each_byte_is_read_once_in_long_runs(tmp_path: Path, lengths_read: list[int]) -> None:
    array = np.asfortranarray(sample_array((2000, 40, 30), "<i4"))
    source = saved(tmp_path, array)
    storage = source.storage()
    assert storage.chunks is not None
    assert storage.chunks[0] == 2000  # 9.6 MB of interleaved rows
    assert f"{storage.chunks[0]} interleaved rows" in storage.reading
    rng = np.random.default_rng(0)
    view = View.of(source)
    for _ in range(6):
        rows = rng.integers(0, 2000, 32)
        assert_array_equal(view.take(rows), array[rows])
    assert sum(lengths_read) == array.nbytes


def test_blocks_of_a_large_array_are_a_few_rows(tmp_path: Path, lengths_read: list[int]) -> None:
    array = np.asfortranarray(sample_array((3000, 100, 80), "u1"))
    source = saved(tmp_path, array, (0,))
    assert source.storage().chunks == (3000, 100, 27)
    blocked_module._WHOLE_BYTES, before = 1 << 20, blocked_module._WHOLE_BYTES
    try:
        source = saved(tmp_path, array, (0,))
    finally:
        blocked_module._WHOLE_BYTES = before
    rows = (8 << 20) // 8000
    assert source.storage().chunks == (rows, 100, 80)
    assert_array_equal(View.of(source).take([7, 2]), array[[7, 2]])
    assert sum(lengths_read) == rows * 8000


def test_time_last_is_read_with_its_neighbours(tmp_path: Path, lengths_read: list[int]) -> None:
    array = sample_array((6, 24, 24, 49), "<i4")
    source = saved(tmp_path, array, (0, 3))
    assert source.storage().chunks == (1, 24, 24, 49)
    view = View.of(source, (0, 3))
    assert_array_equal(view.take([49 * 2 + 3, 49 * 2 + 48]), array[2, :, :, [3, 48]])
    assert sum(lengths_read) == array[2].nbytes


@pytest.fixture
def bytes_reordered(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the bytes of every copy in which the order of axes changes."""
    seen: list[int] = []

    def copy(array: np.ndarray, out: np.ndarray) -> None:
        fastest = [min(range(a.ndim), key=lambda axis: a.strides[axis]) for a in (array, out)]
        seen.append(array.nbytes if fastest[0] != fastest[1] else 0)
        copy_reordered(array, out)

    for module in (boxes, strided):
        monkeypatch.setattr(module, "copy_reordered", copy)
    return seen


def films(folder: Path, height: int = 24) -> tuple[str, np.ndarray]:
    """Write films of three files, with time last; return them also with time first."""
    array = sample_array((9, height, 20, 17), "u1")
    for number, part in enumerate(np.split(array, [4, 5])):
        np.save(folder / f"{number}.npy", part)
    return str(folder / "*.npy"), array.transpose(0, 3, 1, 2)


def test_time_last_is_reordered_once_for_all_windows(
    tmp_path: Path, lengths_read: list[int], bytes_reordered: list[int]
) -> None:
    path, frames = films(tmp_path, 500)
    windows = ooc.open(path, axis=(0, 3)).windows(4, 1)
    expected = np.lib.stride_tricks.sliding_window_view(frames, 5, 1).transpose(0, 1, 4, 2, 3)
    expected = expected.reshape(-1, 5, 500, 20)
    for epoch in range(2):
        loader = windows.batches(8, shuffle=True, seed=1, drop_remainder=False)
        batches = [loader.batch(step, epoch) for step in range(len(loader))]
        found = [np.concatenate(pair, 1) for pair in batches]
        assert Counter(map(np.ndarray.tobytes, np.concatenate(found))) == Counter(
            map(np.ndarray.tobytes, expected)
        )
    assert sum(lengths_read) == frames.nbytes
    assert sum(bytes_reordered) == frames.nbytes


@pytest.mark.parametrize("seed", range(8))
def test_time_last_in_random_compositions(tmp_path: Path, seed: int) -> None:
    path, frames = films(tmp_path)
    rng = np.random.default_rng(seed)
    rows, view = frames.reshape(-1, 24, 20), ooc.open(path, axis=(0, 3))
    if rng.random() < 0.5:
        begin, step = int(rng.integers(0, 9)), int(rng.choice([-2, 1, 3]))
        rows, view = rows[:, begin:20:2, ::step], view[:, begin:20:2, ::step]
    if rng.random() < 0.5:
        rows, view = rows.transpose(0, 2, 1), view.transpose(1, 0)
    if rng.random() < 0.5:
        rows, view = rows.astype("f4"), view.astype("f4")
    if rng.random() < 0.5:
        chosen = rng.integers(0, len(rows), 90)
        rows, view = rows[chosen], view[chosen]
    numbers = rng.integers(0, len(rows), 40)
    assert_array_equal(view.take(numbers), rows[numbers])
    halves = ooc.mix({view[: len(rows) // 2]: 0.5, view[len(rows) // 2 :]: 0.5}, length=len(rows))
    loader = halves.batches(7, shuffle=True, seed=seed)
    found = np.concatenate([loader.batch(step) for step in range(len(loader))])
    assert set(map(np.ndarray.tobytes, found)) <= set(map(np.ndarray.tobytes, rows))
    assert_array_equal(pickle.loads(pickle.dumps(view)).take(numbers), rows[numbers])


def test_errors_name_the_rows_of_frames_with_time_last(tmp_path: Path) -> None:
    path, frames = films(tmp_path)
    view = ooc.open(path, axis=(0, 3))
    assert_array_equal(view.take([0, 80]), frames.reshape(-1, 24, 20)[[0, 80]])  # cached
    os.truncate(tmp_path / "1.npy", 4000)
    assert_array_equal(view.take([1, 60]), frames.reshape(-1, 24, 20)[[1, 60]])  # of another file
    os.truncate(tmp_path / "2.npy", 20_000)
    with pytest.raises(TruncatedFileError, match="row 0") as caught:
        view.take([1, 88])
    assert (caught.value.path, list(caught.value.rows or ())) == (str(tmp_path / "2.npy"), [0])


@pytest.mark.parametrize(
    ("shape", "order", "axes", "kind"),
    [
        ((50, 4097), "C", (0,), Strided),
        ((50, 4096), "C", (0,), CachedRows),
        ((50, 10, 10), "C", (0, 1), CachedRows),
        ((50, 10, 10), "C", (1, 0), CachedRows),
        ((50, 10, 10), "C", (1,), Transposed),
        ((50, 10, 4097), "C", (1,), Strided),
        ((50, 10, 10), "F", (2,), CachedRows),
        ((50, 10, 10), "F", (0,), Chunked),
        ((0, 7), "C", (0,), Strided),
        ((7, 0), "C", (0,), Strided),
    ],
    ids=str,
)
def test_which_arrays_are_read_in_blocks(
    tmp_path: Path, shape: Any, order: Any, axes: tuple[int, ...], kind: type
) -> None:
    array = np.asarray(sample_array(shape, "u1"), order=order)
    source = saved(tmp_path, array, axes)
    assert type(source) is kind
    expected = np.moveaxis(array, axes, range(len(axes)))
    assert_array_equal(np.asarray(View.of(source, axes)).reshape(expected.shape), expected)


def test_each_byte_of_small_rows_is_read_once(tmp_path: Path, lengths_read: list[int]) -> None:
    array = sample_array((3000, 7), ">i4")
    source = saved(tmp_path, array)
    assert source.storage().chunks is None  # each row has an address, although blocks are read
    assert "read once and cached" in source.storage().reading
    view, rng = View.of(source), np.random.default_rng(0)
    for _ in range(60):
        rows = rng.integers(0, 3000, 250)
        assert_array_equal(view.take(rows), array[rows])
    assert sum(lengths_read) == array.nbytes


def test_a_few_rows_and_neighbours_are_not_worth_a_block(
    tmp_path: Path, lengths_read: list[int]
) -> None:
    array = sample_array((3000, 7), "<i4")
    view = View.of(saved(tmp_path, array))
    assert_array_equal(view[5], array[5])
    assert_array_equal(view.take([8, 3]), array[[8, 3]])
    assert_array_equal(np.concatenate(list(view.batches(250))), array)
    assert sum(lengths_read) == 3003 * 28


@pytest.mark.parametrize(("memory", "kept"), [(1 << 20, 0), (4 << 20, 37_449), (64 << 20, 100_000)])
def test_small_rows_are_cached_as_far_as_there_is_room(
    tmp_path: Path, lengths_read: list[int], memory: int, kept: int
) -> None:
    """Of 2.8 MB in blocks of 1 MiB: each of the first blocks once, other rows one by one."""
    array = sample_array((100_000, 7), "<i4")
    source: Any = saved(tmp_path, array)
    set_memory(memory)  # takes effect with the next read
    assert ("cached" in blocked(source.source, (0,)).storage().reading) is (kept > 0)
    view, expected = View.of(source), kept * 28
    windows, rng = view.windows(3), np.random.default_rng(0)
    for _ in range(5):
        rows = rng.integers(0, len(array) - 2, 500)
        assert_array_equal(view.take(rows), array[rows])
        assert_array_equal(windows.take(rows), array[rows[:, None] + np.arange(3)])
        expected += 28 * int((rows >= kept).sum() + 3 * (rows + 2 >= kept).sum())
    assert sum(lengths_read) == expected
    assert cache.nbytes <= memory // 2


def test_small_arrays_together_stay_within_their_share(
    tmp_path: Path, lengths_read: list[int]
) -> None:
    array, rows = sample_array((100_000, 7), "<i4"), np.arange(0, 100_000, 100)
    labels = array[:, 0].astype("u1")
    set_memory(10 << 20)  # 5 MiB are cached: three and one block of the first two, and the labels
    expected, views = [array, array + 1, labels], []
    for name, part in zip("abc", expected, strict=True):
        np.save(tmp_path / f"{name}.npy", part)
        views.append(View.of(blocked(open_npy(str(tmp_path / f"{name}.npy")), (0,))))
    for _ in range(3):
        lengths_read.clear()
        for view, part in zip(views, expected, strict=True):
            assert_array_equal(view.take(rows), part[rows])
        assert cache.nbytes <= 5 << 20
    assert sum(lengths_read) == 28 * np.count_nonzero(rows >= 37_449)
    del views[0], view
    gc.collect()
    for _ in range(2):  # there is room now
        lengths_read.clear()
        views[0].take(rows)
    assert not lengths_read


def test_more_than_half_of_the_cache_is_used_only_while_nothing_else_is_cached(
    tmp_path: Path, lengths_read: list[int]
) -> None:
    array = sample_array((100_000, 7), "<i4")
    set_memory(8 << 20)  # 4 MiB are cached
    small = View.of(saved(tmp_path, array))
    rng = np.random.default_rng(0)
    for _ in range(10):
        rows = rng.integers(0, len(array), 1000)
        assert_array_equal(small.take(rows), array[rows])
    assert sum(lengths_read) == array.nbytes
    large = sample_array((40, 1 << 16), "u1")
    chunks, decoded = counted(large, 1, 1 << 16)
    lengths_read.clear()
    for row in [*range(40)] * 4:  # 2.5 MiB of chunks, which need the room
        assert_array_equal(chunks.take([row])[0], large[row])
        rows = rng.integers(0, len(array), 50)
        assert_array_equal(small.take(rows), array[rows])
    assert decoded.total() <= 2 * 40
    assert sum(lengths_read) <= 4 * 40 * 50 * 28  # no block is read again, a MiB for a row
    assert cache.nbytes <= 4 << 20


def test_rows_far_apart_are_not_cached(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", sample_array((1000, 10), "f8"))
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    assert isinstance(blocked(open_array(mapped[::50]), (0,)), CachedRows)  # 4,000 bytes
    assert isinstance(blocked(open_array(mapped[::52]), (0,)), Strided)


def test_each_row_of_a_field_is_read_once(tmp_path: Path, lengths_read: list[int]) -> None:
    records = np.zeros(3000, [("image", "u1", (90,)), ("label", "<i4")])
    records["label"] = sample_array((3000,), "<i4")
    np.save(tmp_path / "a.npy", records)
    labels, rng = ooc.open(tmp_path / "a.npy")["label"], np.random.default_rng(0)
    lengths_read.clear()
    for epoch in range(3):
        rows = rng.permutation(3000)
        assert_array_equal(labels.take(rows), records["label"][rows])
        if not epoch:
            assert 0 < sum(lengths_read) <= records.nbytes
            lengths_read.clear()
    assert not lengths_read


def test_a_file_open_for_writing_is_never_cached(tmp_path: Path) -> None:
    mapped = np.memmap(tmp_path / "a.bin", "f4", "w+", shape=(50, 3))
    view = ooc.open(mapped)
    rows = np.arange(50)[::-1]
    view.take(rows)
    mapped[2] = 7
    assert view.take(rows)[47].tolist() == [7, 7, 7]


def test_parts_are_blocked_one_by_one(tmp_path: Path) -> None:
    array = np.asfortranarray(sample_array((40, 5, 6)))
    for number, part in enumerate(np.split(array, 4)):
        np.save(tmp_path / f"{number}.npy", np.asfortranarray(part))
    view = ooc.open([str(tmp_path / f"{n}.npy") for n in range(4)])
    storage = view.source.storage()
    assert (storage.chunks, storage.parts) == ((10, 5, 6), (0, 10, 20, 30))
    assert_array_equal(view.take([31, 2, 12]), array[[31, 2, 12]])


def test_small_rows_of_many_files_are_read_as_one(
    tmp_path: Path, lengths_read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int] = []
    read = Chunked.read

    def counting(self: Chunked, origins: Any, *arguments: Any) -> None:
        reads.append(len(origins))
        read(self, origins, *arguments)

    monkeypatch.setattr(Chunked, "read", counting)
    made: list[int] = []  # chunks of each array in the cache

    def cached(self: Cache, key: Any, nbytes: int, chunks: int, *more: Any) -> ArrayCache:
        made.append(chunks)
        return cached_array(self, key, nbytes, chunks, *more)

    cached_array = Cache.array
    monkeypatch.setattr(Cache, "array", cached)
    array = sample_array((2000, 7), "<i4")
    paths = [str(tmp_path / f"{number}.npy") for number in range(40)]
    for path, part in zip(paths, np.split(array, 40), strict=True):
        np.save(path, part)
    view = ooc.open(paths)
    for dataset in (view, pickle.loads(pickle.dumps(view))):
        rows = np.random.default_rng(0).permutation(2000)
        assert_array_equal(dataset.take(rows), array[rows])
    assert reads == [2000, 2000]  # one read whatever the number of files
    assert made == [40, 40]  # blocks, one a file
    assert sum(lengths_read) == array.nbytes
    windows = view.windows(3, episodes=[2000])  # which cross the files
    starts = np.arange(0, 1998, 7)
    taken = windows.take(starts)
    assert_array_equal(taken, array[starts[:, None] + np.arange(3)])
    os.utime(paths[3], (1, 1))
    assert_array_equal(view.take(rows[rows < 150]), array[rows[rows < 150]])
    with pytest.raises(SourceError) as caught:
        view.take(rows)
    assert caught.value.path == paths[3]


def test_small_rows_of_many_files_are_cached_as_far_as_there_is_room(
    tmp_path: Path, lengths_read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    array = sample_array((2000, 7), "<i4")
    paths = [str(tmp_path / f"{number}.npy") for number in range(41)]
    lengths = [50] * 30 + [5] + [50] * 9 + [45]  # one of another layout
    for path, part in zip(paths, np.split(array, np.cumsum(lengths)[:-1]), strict=True):
        np.save(path, part)
    view = ooc.open(paths)
    monkeypatch.setattr(cache, "budget", lambda: 30_000)  # of 56,000
    for epoch in range(3):
        rows = np.random.default_rng(epoch).permutation(2000)
        lengths_read.clear()
        assert_array_equal(view.take(rows), array[rows])
        windows = view.windows(3, episodes=[2000]).take(rows[rows < 1998])
        assert_array_equal(windows, array[rows[rows < 1998, None] + np.arange(3)])
    assert sum(lengths_read) < 4 * 0.6 * array.nbytes
    assert cache.nbytes <= 30_000


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_file_that_changes_is_not_read_from_the_cache(tmp_path: Path, order: Any) -> None:
    array = np.asarray(sample_array((3000, 7), "<i4"), order=order)
    view = View.of(saved(tmp_path, array))
    rows = np.arange(3000)[::-1]
    view.take(rows)
    os.utime(tmp_path / "a.npy", ns=(0, 0))
    with pytest.raises(SourceError, match=r"has changed\. Open it again\. .*rows 2999, 2998"):
        view.take(rows)
    np.save(tmp_path / "a.npy", array + 1)
    assert_array_equal(ooc.open(tmp_path / "a.npy").take(rows), array[rows] + 1)


def test_two_opens_of_a_file_read_it_once(tmp_path: Path, lengths_read: list[int]) -> None:
    array = sample_array((3000, 7), "<i4")
    first = View.of(saved(tmp_path, array))
    second = View.of(blocked(open_npy(str(tmp_path / "a.npy")), (0,)))
    rows = np.arange(0, 3000, 10)
    for view in (first, second, pickle.loads(pickle.dumps(first))):
        assert_array_equal(view.take(rows), array[rows])
    assert sum(lengths_read) == array.nbytes


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_reads_small_rows(tmp_path: Path):
    array = sample_array((1000, 4))
    source = saved(tmp_path, array)
    out = np.empty((100, 1, 4), array.dtype)
    origins = np.stack([np.arange(100), np.zeros(100, np.int64)], axis=1)
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with cache.lock:
            held.set()
            done.wait()

    other = threading.Thread(target=hold)
    other.start()
    held.wait()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(60)
            source.read(origins, Extent.of((1, 4)), out)
            status = 0 if (out[:, 0] == array[:100]).all() else 2
        finally:
            os._exit(status)
    done.set()
    other.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_errors_name_the_rows_of_a_truncated_block(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(1003))
    loader = ooc.open(tmp_path / "a.npy").batches(10, shuffle=True)
    os.truncate(tmp_path / "a.npy", 1000)
    with pytest.raises(TruncatedFileError, match=r"rows \d.* in all") as caught:
        list(loader)
    assert len(caught.value.rows or ()) == caught.value.count
    assert caught.value.count == 10  # of the first batch, which is read alone
