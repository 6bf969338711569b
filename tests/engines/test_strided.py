"""Boxes at byte offsets: which bytes are read, in how many requests, and failures."""

from __future__ import annotations

import errno
import os
import pickle
import sys
import threading
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from boxes import check_boxes
from conftest import close_files
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from oocdata.box import Extent
from oocdata.datasets.view import View
from oocdata.engines import plan, ring
from oocdata.engines.files import Descriptor, FileVersion, OpenFile
from oocdata.engines.source import Storage
from oocdata.engines.strided import Strided, contiguous_strides
from oocdata.errors import MissingFileError, SourceError, TruncatedFileError
from oocdata.formats.npy import open_npy, open_raw
from oocdata.testing import SourceConformance, boxes_of, sample_array


class Grid:
    """Chunks in any order in a file, with other bytes between them."""

    def __init__(self, chunk_shape: tuple[int, ...], table: np.ndarray) -> None:
        self.chunk_shape, self.table = chunk_shape, table

    def offsets(self, places: np.ndarray) -> np.ndarray:
        found: np.ndarray = self.table[tuple(places.T)]
        return found


def in_chunks(path: Path, array: np.ndarray, chunk: tuple[int, ...], seed: int = 0) -> Strided:
    """Store an array in whole chunks, and return the source that reads it."""
    shape = tuple(-(-n // c) for n, c in zip(array.shape, chunk, strict=True))
    nbytes = int(np.prod(chunk)) * array.itemsize
    order = np.random.default_rng(seed).permutation(int(np.prod(shape))).reshape(shape)
    table = 7 + order * (nbytes + 5)
    content = bytearray(7 + table.size * (nbytes + 5))
    for place in np.ndindex(*shape):
        box = tuple(slice(p * c, (p + 1) * c) for p, c in zip(place, chunk, strict=True))
        padded = np.full(chunk, 99, array.dtype)
        part = array[box]
        padded[tuple(slice(0, n) for n in part.shape)] = part
        content[table[place] : table[place] + nbytes] = padded.tobytes()
    path.write_bytes(content)
    strides = contiguous_strides(chunk, array.itemsize)
    file = OpenFile(FileVersion.of(str(path)))
    grid = Grid(chunk, table)
    return Strided(file, array.dtype, array.shape, strides, 0, Storage("chunks"), grid)


class TestChunksThatCutEveryAxis(SourceConformance):
    def make(self, folder: Path, array: np.ndarray) -> Strided:
        return in_chunks(folder / "a.bin", array, tuple(max(1, n // 2) for n in array.shape))


@pytest.mark.parametrize("chunk", [(5, 3, 5, 4), (4, 1, 1, 1)], ids=str)
def test_boxes_of_chunks(tmp_path: Path, chunk: tuple[int, ...]) -> None:
    array = sample_array((23, 3, 5, 4))
    check_boxes(in_chunks(tmp_path / "a.bin", array, chunk), array)


def test_every_second_chunk_of_length_1(tmp_path: Path) -> None:
    """In storage, the next of them seems to follow the numbers of the axis before."""
    array = sample_array((4, 2, 7))
    extent, origins = Extent((1, 2, 3), (1, 1, 2)), np.array([[3, 0, 0], [0, 0, 2], [1, 0, 1]])
    out = np.empty((3, 1, 3, 2), array.dtype).transpose(0, 1, 3, 2)
    in_chunks(tmp_path / "a.bin", array, (4, 2, 1)).read(origins, extent, out)
    assert_array_equal(out, boxes_of(array, origins, extent))


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Record (offset, bytes) of every request to the kernel; io_uring is switched off."""
    seen: list[tuple[int, int]] = []
    real = os.preadv

    def preadv(number: int, buffers: Any, offset: int, *flags: int) -> int:
        seen.append((offset, sum(memoryview(buffer).nbytes for buffer in buffers)))
        return real(number, buffers, offset, *flags)

    monkeypatch.setattr(os, "preadv", preadv)
    monkeypatch.setattr(ring, "_usable", False)
    return seen


def saved(folder: Path, array: np.ndarray) -> Strided:
    (folder / "a.bin").write_bytes(array.tobytes())
    source = open_raw(str(folder / "a.bin"), dtype=array.dtype, shape=array.shape)
    assert isinstance(source, Strided)
    return source


def rows_of(source: Any, rows: Any) -> np.ndarray:
    return View.of(source).take(rows)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([0, 1, 2, 3], [(0, 48)]),
        ([3, 4, 9, 10, 0], [(36, 24), (108, 24), (0, 12)]),
        ([2, 1, 0], [(24, 12), (12, 12), (0, 12)]),
        ([5, 5, 6], [(60, 12), (60, 24)]),
        ([], []),
    ],
    ids=str,
)
def test_neighbours_are_joined(tmp_path: Path, requests: Any, rows: Any, expected: Any) -> None:
    array = sample_array((20, 3))
    assert_array_equal(rows_of(saved(tmp_path, array), rows), array[np.array(rows, int)])
    assert requests == expected


def test_a_cut_reads_only_its_bytes(tmp_path: Path, requests: Any) -> None:
    array = sample_array((10, 100, 500))
    view = View.of(saved(tmp_path, array))
    assert_array_equal(view[:, 7].take([2]), array[[2], 7])
    assert requests == [(2 * 200_000 + 7 * 2000, 2000)]
    requests.clear()
    assert_array_equal(view[:, 3:5].take([0]), array[[0], 3:5])
    assert requests == [(6000, 4000)]
    requests.clear()
    # Far apart: a request for each run; close together: one for all, holes too.
    assert_array_equal(view[:, ::40, :3].take([1]), array[[1], ::40, :3])
    assert requests == [(200_000 + line * 2000, 12) for line in (0, 40, 80)]
    requests.clear()
    assert_array_equal(view[:, 5, :20:-2].take([1]), array[[1], 5, :20:-2])
    assert requests == [(200_000 + 10_000 + 21 * 4, 478 * 4 + 4)]
    requests.clear()
    # Holes of a page and more cost more to read than a request, however long the runs are.
    large = sample_array((3, 6, 1500))
    frames = View.of(saved(tmp_path, large))[:, ::2]
    assert_array_equal(frames.take([2]), large[[2], ::2])
    assert requests == [(2 * 36_000 + line * 6000, 6000) for line in (0, 2, 4)]


def pages(runs: Iterable[tuple[int, int]]) -> set[int]:
    """Return the pages of the disk cache that runs of bytes, (offset, bytes), are in."""
    return {
        page for at, nbytes in runs for page in range(at // 4096, (at + nbytes - 1) // 4096 + 1)
    }


@pytest.mark.parametrize("dtype", ["u1", "<f4", ">f4"])
def test_a_patch_reads_its_own_bytes(tmp_path: Path, requests: Any, dtype: str) -> None:
    array = sample_array((3, 1024, 1024), dtype)
    source = saved(tmp_path, array)
    rng = np.random.default_rng(0)
    origins = np.stack([rng.integers(0, 3, 16), *rng.integers(0, 960, (2, 16))], axis=1)
    out = np.empty((16, 1, 64, 64), source.dtype)
    source.read(origins, Extent.of((1, 64, 64)), out)
    assert_array_equal(out, boxes_of(array, origins, Extent.of((1, 64, 64))))
    if dtype == "u1":  # a patch is one request, of the pages that hold it
        firsts = (source.offset + origins @ array.strides).tolist()
        lines = [(first + line * 1024, 64) for first in firsts for line in range(64)]
        assert len(requests) == len(origins)
        assert pages(requests) == pages(lines)
    else:
        assert sum(nbytes for _, nbytes in requests) == out.nbytes


@pytest.mark.parametrize("step", [64, 32])
def test_patches_of_a_grid_are_read_with_their_neighbours(
    tmp_path: Path, requests: Any, step: int
) -> None:
    array = sample_array((2, 1024, 1024), "<f4")
    source = saved(tmp_path, array)
    places = [(1, y, x) for y in range(128, 256, step) for x in range(0, 961, step)]
    origins = np.random.default_rng(0).permutation(places)
    out = np.empty((len(places), 1, 64, 64), "f4")
    source.read(origins, Extent.of((1, 64, 64)), out)
    assert_array_equal(out, boxes_of(array, origins, Extent.of((1, 64, 64))))
    assert len(requests) <= 1 + out.nbytes // (256 << 10)
    if step == 64:
        assert sum(nbytes for _, nbytes in requests) == out.nbytes
    os.truncate(tmp_path / "a.bin", (1024 + 200) * 4096)
    with pytest.raises(TruncatedFileError, match="rows 1, 1"):
        source.read(origins, Extent.of((1, 64, 64)), out)


def test_small_holes_are_read_over_however_short_the_runs(tmp_path: Path, requests: Any) -> None:
    array = sample_array((4, 9, 32, 100))
    view = View.of(saved(tmp_path, array))
    assert_array_equal(view[..., 7].take([2, 0]), array[[2, 0], ..., 7])
    box = (9 * 32 - 1) * 400 + 4
    assert requests == [(row * 9 * 32 * 400 + 28, box) for row in (2, 0)]
    requests.clear()
    assert_array_equal(view[:, :, ::9, 7].take([1]), array[1:2, :, ::9, 7])
    assert len(requests) == 9 * 4  # 3,596 bytes lie between two


def test_rows_in_parts_of_a_batch_are_read_without_a_copy(tmp_path: Path, requests: Any) -> None:
    """As for one of several stacked variables, or the targets of a window."""
    array = sample_array((20, 6, 50))
    source = saved(tmp_path, array)
    out = np.zeros((3, 4, 6, 50), "f4")
    source.read(np.array([[2, 0, 0], [9, 0, 0], [4, 0, 0]]), Extent.of((1, 6, 50)), out[:, 2:3])
    assert_array_equal(out[:, 2], array[[2, 9, 4]])
    assert not out[:, [0, 1, 3]].any()
    assert requests == [(row * 1200, 1200) for row in (2, 9, 4)]


def test_a_box_in_chunks_reads_its_own_bytes(tmp_path: Path, requests: Any) -> None:
    array = sample_array((4, 64, 64), "<f4")
    source = in_chunks(tmp_path / "a.bin", array, (2, 16, 16))
    origins = np.array([[0, 3, 5], [1, 40, 9], [3, 15, 31]])
    for shape in [(1, 20, 20), (1, 10, 30)]:
        out = np.empty((3, *shape), "f4")
        requests.clear()
        source.read(origins, Extent.of(shape), out)
        assert_array_equal(out, boxes_of(array, origins, Extent.of(shape)))
        assert sum(nbytes for _, nbytes in requests) == out.nbytes
        # One request for each line of each chunk that a box covers.
        crossed = sum((o[2] + shape[2] - 1) // 16 - o[2] // 16 + 1 for o in origins.tolist())
        assert len(requests) == crossed * shape[1]


def test_rows_of_chunks_are_joined(tmp_path: Path, requests: Any) -> None:
    array = sample_array((12, 5))
    source = in_chunks(tmp_path / "a.bin", array, (4, 5))
    assert_array_equal(rows_of(source, [4, 5, 6, 7, 8, 2]), array[[4, 5, 6, 7, 8, 2]])
    assert sorted(nbytes for _, nbytes in requests) == [20, 20, 80]
    requests.clear()
    window = np.empty((1, 6, 5), "f4")
    source.read(np.array([[1, 0]]), Extent.of((6, 5)), window)
    assert_array_equal(window[0], array[1:7])
    assert sorted(nbytes for _, nbytes in requests) == [60, 60]


def test_a_batch_of_any_size_is_read(tmp_path: Path) -> None:
    array = sample_array((5000, 7), "<i4")
    view = View.of(saved(tmp_path, array))
    rows = np.random.default_rng(0).integers(0, 5000, 100_000)
    assert_array_equal(view.take(rows), array[rows])
    assert_array_equal(view[:, ::-1].astype("f8").take(rows), array[rows, ::-1])


@pytest.mark.parametrize("most", [(1, 1 << 16), (100, 7), (1 << 20, 1)], ids=str)
def test_large_boxes_are_read_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: tuple[int, int]
) -> None:
    monkeypatch.setattr(plan, "_SCRATCH_BYTES", most[0])
    monkeypatch.setattr(plan, "_MOST_RUNS", most[1])
    array = np.asfortranarray(sample_array((40, 5, 6), ">i4"))
    np.save(tmp_path / "a.npy", array)
    source = open_npy(str(tmp_path / "a.npy"))
    rows = np.random.default_rng(0).integers(0, 40, 77)
    assert_array_equal(rows_of(source, rows), array[rows])
    out = np.empty((2, 30, 5, 6), "f8")
    source.read(np.array([[3, 0, 0], [10, 0, 0]]), Extent.of((30, 5, 6)), out)
    assert_array_equal(out, [array[3:33], array[10:]])


@pytest.mark.parametrize("most", [1, 3, 1000])
def test_short_reads_are_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    array = sample_array((20, 30), ">f4")
    source = saved(tmp_path, array)
    real = os.preadv

    def short(number: int, buffers: Any, offset: int, *flags: int) -> int:
        return real(number, [memoryview(buffers[0]).cast("B")[:most]], offset, *flags)

    monkeypatch.setattr(os, "preadv", short)
    assert_array_equal(rows_of(source, [3, 4, 0]), array[[3, 4, 0]])
    assert_array_equal(rows_of(source, [3]), array[[3]])


@pytest.mark.parametrize("how", ["plain", "sliced", "transposed", "converting", "read-only"])
@pytest.mark.parametrize("count", [1, 3, 40])
def test_out_of_any_kind(tmp_path: Path, how: str, count: int) -> None:
    array = sample_array((10, 4, 4), "<i4")
    source = saved(tmp_path, array)
    rows = np.arange(count) * 7 % 10
    origins, extent = np.zeros((count, 3), np.int64), Extent.of((1, 4, 4))
    origins[:, 0] = rows
    if how == "sliced":
        out: np.ndarray = np.zeros((2 * count, 1, 4, 8), "i4")[::2, :, :, 1::2]
    elif how == "transposed":
        out = np.zeros((count, 4, 4, 1), "i4").transpose(0, 3, 2, 1)
    else:
        out = np.zeros((count, 1, 4, 4), "f8" if how == "converting" else "i4")
    if how == "read-only":
        out.flags.writeable = False
        with pytest.raises(ValueError, match="read-only"):
            source.read(origins, extent, out)
        assert not out.any()
        return
    source.read(origins, extent, out)
    assert_array_equal(out[:, 0], array[rows])


@given(st.data())
def test_every_arrangement(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Any box of any array, contiguous in either order or in chunks, into memory of any kind."""
    ndim = data.draw(st.integers(1, 4))
    shape = tuple(data.draw(st.integers(1, 9)) for _ in range(ndim))
    dtype = data.draw(st.sampled_from(["<i4", ">i4", "u1", "<c8"]))
    array = sample_array(shape, dtype)
    folder = tmp_path_factory.mktemp("arrangement")
    kind = data.draw(st.sampled_from(["C", "F", "chunks"]))
    if kind == "chunks":
        chunk = tuple(data.draw(st.integers(1, n + 2)) for n in shape)
        source = in_chunks(folder / "a.bin", array, chunk)
    else:
        np.save(folder / "a.npy", np.asarray(array, order=kind))
        source = open_npy(str(folder / "a.npy"))  # type: ignore[assignment]
    strides = tuple(data.draw(st.integers(1, 3)) for _ in shape)
    lengths = tuple(
        data.draw(st.integers(1, (n - 1) // stride + 1))
        for n, stride in zip(shape, strides, strict=True)
    )
    extent = Extent(lengths, strides)
    origin = st.tuples(*[st.integers(0, n - s) for n, s in zip(shape, extent.spans, strict=True)])
    origins = np.array(data.draw(st.lists(origin, min_size=1, max_size=12)))
    expected = boxes_of(array, origins, extent)
    axes = data.draw(st.permutations(range(1 + ndim)))
    memory = np.zeros(
        [expected.shape[axis] * 2 for axis in axes],
        data.draw(st.sampled_from([source.dtype, np.dtype("c16")])),
    )
    out = memory.transpose(np.argsort(axes))[
        tuple(
            slice(None, n) if data.draw(st.booleans()) else slice(None, None, -2)
            for n in expected.shape
        )
    ]
    source.read(origins, extent, out)
    assert_array_equal(out, expected)


def test_strides_of_an_empty_array() -> None:
    assert contiguous_strides((), 4) == ()
    assert contiguous_strides((0, 3), 4) == (12, 4)


def test_a_batch_takes_few_calls(tmp_path: Path) -> None:
    """Each call costs as much as copying some kilobytes, and is made under the GIL."""
    source = saved(tmp_path, sample_array((100, 1000)))
    origins = np.zeros((32, 2), np.int64)
    origins[:, 0] = np.random.default_rng(0).permutation(100)[:32]
    extent, out = Extent.of((1, 1000)), np.empty((32, 1, 1000), "f4")
    source.read(origins, extent, out)
    calls = []

    def count(_: Any, event: str, __: Any) -> None:
        if event in ("call", "c_call"):
            calls.append(event)

    threading.setprofile(count)
    sys.setprofile(count)
    source.read(origins, extent, out)
    sys.setprofile(None)
    threading.setprofile(None)
    if ring._usable:
        assert len(calls) <= 34


def test_plans_of_many_extents_are_not_cached(tmp_path: Path) -> None:
    source = saved(tmp_path, sample_array((10, 300)))
    for length in range(1, 300):
        source.read(np.array([[3, 0]]), Extent.of((1, length)), np.empty((1, 1, length), "f4"))
    assert plan.plan_box.cache_info().currsize <= 64


# --- files that change


def test_a_file_cut_short_while_it_is_open(tmp_path: Path) -> None:
    source = saved(tmp_path, sample_array((100, 25)))
    assert rows_of(source, [99])[0, 0] == 99 * 25
    os.truncate(tmp_path / "a.bin", 5050)
    with pytest.raises(TruncatedFileError, match=r"hold 10000 bytes.*ends at 5050.*row 50\]"):
        rows_of(source, [50])
    with pytest.raises(TruncatedFileError) as raised:
        rows_of(source, [3, 48, 49, 50, 51, 52])
    assert raised.value.rows == (3, 48, 49, 50, 51, 52)
    # The remaining bytes may be the start of another array, so none are delivered.
    with pytest.raises(TruncatedFileError, match=r"rows 3, 4\]"):
        rows_of(source, [3, 4])
    assert raised.value.path == str(tmp_path / "a.bin")


def test_a_file_cut_short_before_it_is_read(tmp_path: Path) -> None:
    source = saved(tmp_path, sample_array((100, 25)))
    os.truncate(tmp_path / "a.bin", 5050)
    with pytest.raises(TruncatedFileError, match="5050"):
        rows_of(source, [0])


@pytest.mark.parametrize("read_first", [True, False])
def test_a_file_that_is_replaced_is_never_read_as_the_old_one(
    tmp_path: Path, read_first: bool
) -> None:
    """Same length, other dtype: read with the old header, every number would be wrong."""
    np.save(tmp_path / "a.npy", np.arange(100, dtype="<i4"))
    source = open_npy(str(tmp_path / "a.npy"))
    before = os.stat(tmp_path / "a.npy")
    if read_first:
        assert rows_of(source, [7]) == [7]
    np.save(tmp_path / "b.npy", np.arange(100, dtype="<f4"))
    os.utime(tmp_path / "b.npy", ns=(before.st_atime_ns, before.st_mtime_ns))
    os.replace(tmp_path / "b.npy", tmp_path / "a.npy")
    if read_first:  # the descriptor is that of the old file
        assert rows_of(source, [7]) == [7]
        close_files()  # as when thousands of other files were read in between
    with pytest.raises(SourceError, match=r"changed.*Open it again.*a\.npy"):
        rows_of(source, [7])
    assert rows_of(open_npy(str(tmp_path / "a.npy")), [7]) == [7.0]


@pytest.mark.parametrize("after", [1, -1])
def test_another_modification_time_is_another_version(tmp_path: Path, after: int) -> None:
    """Also an earlier time, as `rsync -t` and `tar` set it."""
    source = saved(tmp_path, sample_array((10, 2)))
    now = os.stat(tmp_path / "a.bin").st_mtime_ns
    os.utime(tmp_path / "a.bin", ns=(now, now + after * 10**9))
    with pytest.raises(SourceError, match=r"has changed\. Open it again\. .*rows 3, 4"):
        rows_of(source, [3, 4])


def test_a_file_that_is_written_to_with_its_time_restored(tmp_path: Path) -> None:
    source = saved(tmp_path, sample_array((10, 2)))
    before = os.stat(tmp_path / "a.bin")
    with open(tmp_path / "a.bin", "r+b") as file:
        file.write(b"other")
    os.utime(tmp_path / "a.bin", ns=(before.st_atime_ns, before.st_mtime_ns))
    if os.stat(tmp_path / "a.bin").st_ctime_ns == before.st_ctime_ns:
        pytest.skip("the file system's clock is too coarse")
    with pytest.raises(SourceError, match="has changed"):
        rows_of(source, [3])


def test_a_file_that_is_deleted(tmp_path: Path) -> None:
    source = saved(tmp_path, sample_array((10, 2)))
    (tmp_path / "a.bin").unlink()
    with pytest.raises(MissingFileError, match="it is gone"):
        rows_of(source, [0])


def test_a_file_that_is_deleted_while_it_is_open(tmp_path: Path) -> None:
    source = saved(tmp_path, sample_array((10, 2)))
    rows_of(source, [0])
    (tmp_path / "a.bin").unlink()
    assert rows_of(source, [4]).tolist() == [[8, 9]]


def test_a_symlink_to_another_file(tmp_path: Path) -> None:
    for name, dtype in (("a", "<i4"), ("b", "<f4")):
        np.save(tmp_path / f"{name}.npy", np.arange(9, dtype=dtype))
    (tmp_path / "link.npy").symlink_to("a.npy")
    source = open_npy(str(tmp_path / "link.npy"))
    (tmp_path / "link.npy").unlink()
    (tmp_path / "link.npy").symlink_to("b.npy")
    with pytest.raises(SourceError, match="Open it again"):
        rows_of(source, [7])


def test_a_disk_error_names_file_and_rows(tmp_path: Path, monkeypatch: Any) -> None:
    source = saved(tmp_path, sample_array((10, 2)))

    def preadv(*_: Any) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "preadv", preadv)
    with pytest.raises(SourceError, match=r"could not be read.*a\.bin', row 3\]") as raised:
        rows_of(source, [3, 4, 9])
    assert isinstance(raised.value.__cause__, OSError)
    with pytest.raises(SourceError, match=r"could not be read.*a\.bin', row 9\]"):
        rows_of(source, [9])


def test_a_signal_handler_may_raise_while_a_file_is_read(tmp_path: Path, monkeypatch: Any) -> None:
    """Its TimeoutError is an OSError, but says nothing of the file."""
    source = saved(tmp_path, sample_array((10, 2)))

    def preadv(*_: Any) -> int:
        raise TimeoutError("of the caller")

    monkeypatch.setattr(os, "preadv", preadv)
    for rows in ([3], [3, 4, 9]):
        with pytest.raises(TimeoutError, match="of the caller"):
            rows_of(source, rows)
    with pytest.raises(TimeoutError, match="of the caller"):
        Descriptor(str(tmp_path / "a.bin")).read(0, 3)


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: Any) -> None:
    source = saved(tmp_path, sample_array((10, 2)))

    def refuse(*_: Any, **__: Any) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(SourceError, match=r"Permission denied.*a\.bin"):
        rows_of(source, [0])


def test_the_path_is_absolute_so_the_folder_may_change(tmp_path: Path, monkeypatch: Any) -> None:
    saved(tmp_path, sample_array((10, 2)))
    monkeypatch.chdir(tmp_path)
    source = open_raw("a.bin", dtype="<f4", shape=(10, 2))
    monkeypatch.chdir("/")
    assert rows_of(source, [1]).tolist() == [[2, 3]]


@pytest.mark.parametrize("count", [1, 3])
def test_a_file_written_over_during_a_read_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.ones((100, 4), "f4"))
    view = View.of(open_npy(str(path)))
    real = os.preadv

    def while_another_writes(number: int, buffers: Any, offset: int, *flags: int) -> int:
        got = real(number, buffers, offset, *flags)
        np.save(path, np.full((100, 4), 2, "f4"))
        os.utime(path, ns=(0, 0))
        return got

    monkeypatch.setattr(os, "preadv", while_another_writes)
    with pytest.raises(SourceError, match=r"has changed\. Open it again"):
        view.take(range(3, 3 + count))


def test_a_source_is_pickled_without_open_files(tmp_path: Path) -> None:
    array = sample_array((10, 2))
    source = saved(tmp_path, array)
    before = pickle.dumps(source)
    rows_of(source, [3])
    assert pickle.dumps(source) == before
    assert len(before) < 2000
    copy = pickle.loads(before)
    assert copy.axis == source.axis
    assert copy.file.version == source.file.version
    assert_array_equal(rows_of(copy, [3]), array[[3]])


def test_a_file_open_for_writing_may_grow_and_change(tmp_path: Path) -> None:
    source = saved(tmp_path, sample_array((10, 2)))
    file = OpenFile(source.file.version.writable())
    growing = Strided(
        file, source.stored, source.shape, source.strides, 0, replace(source.storage())
    )
    with open(tmp_path / "a.bin", "ab") as more:
        more.write(b"more")
    assert rows_of(growing, [4]).tolist() == [[8, 9]]
    os.truncate(tmp_path / "a.bin", 79)
    with pytest.raises(TruncatedFileError, match="must hold 80 bytes"):
        rows_of(growing, [4])
