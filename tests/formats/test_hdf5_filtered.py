"""Test decoding of filtered chunks without HDF5, with h5py as the oracle, and of damaged bytes."""

from __future__ import annotations

import _thread
import ctypes
import itertools
import os
import pickle
import subprocess
import sys
import tempfile
import tracemalloc
import zlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import oocdata as ooc
from oocdata.engines.blocked import CachedRows
from oocdata.engines.chunked import Chunked
from oocdata.errors import (
    DamagedChunkError,
    MissingChunkError,
    SourceError,
)
from oocdata.formats.hdf5 import decode, table
from oocdata.formats.hdf5.decode import ChunkDecoder
from oocdata.formats.hdf5.filtered import FilteredChunks
from oocdata.formats.hdf5.library import ThroughLibrary
from oocdata.formats.opening import open_source

pytest.importorskip("imagecodecs")
DEFLATE, SHUFFLE, FLETCHER32, LZF, BLOSC, LZ4, ZSTD = 1, 2, 3, 32000, 32001, 32004, 32015

PIPELINES: dict[str, list[tuple[int, tuple[int, ...]]]] = {
    "gzip": [(DEFLATE, (4,))],
    "shuffle alone": [(SHUFFLE, ())],
    "fletcher32 alone": [(FLETCHER32, ())],
    "shuffle, gzip": [(SHUFFLE, ()), (DEFLATE, (1,))],
    "shuffle, gzip, fletcher32": [(SHUFFLE, ()), (DEFLATE, (1,)), (FLETCHER32, ())],
    "fletcher32, shuffle, gzip": [(FLETCHER32, ()), (SHUFFLE, ()), (DEFLATE, (1,))],
    "shuffle, fletcher32, gzip": [(SHUFFLE, ()), (FLETCHER32, ()), (DEFLATE, (1,))],
    "gzip, shuffle": [(DEFLATE, (1,)), (SHUFFLE, ())],
    "gzip twice": [(DEFLATE, (1,)), (DEFLATE, (1,))],
    "gzip 0, lzf": [(DEFLATE, (0,)), (LZF, ())],
    "lzf": [(LZF, ())],
    "shuffle, lzf, fletcher32": [(SHUFFLE, ()), (LZF, ()), (FLETCHER32, ())],
    "blosc": [(BLOSC, (0, 0, 0, 0, 5, 1, 1))],
    "blosc, fletcher32": [(BLOSC, (0, 0, 0, 0, 5, 2, 5)), (FLETCHER32, ())],
    "lz4": [(LZ4, (0,))],
    "fletcher32, lz4": [(FLETCHER32, ()), (LZ4, (0,))],
    "zstd": [(ZSTD, (3,))],
    "shuffle, zstd": [(SHUFFLE, ()), (ZSTD, (3,))],
}
UNTOLD = {"shuffle alone"}
"""Pipelines that can't tell filtered chunks from unfiltered ones by their size."""


def write(
    path: Path,
    array: np.ndarray,
    chunks: tuple[int, ...],
    pipeline: str,
    fill: Any = None,
) -> None:
    pytest.importorskip("hdf5plugin")
    with h5py.File(path, "w") as file:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk(chunks)
        if fill is not None:
            plist.set_fill_value(np.asarray(fill, array.dtype))
        for number, values in PIPELINES[pipeline]:
            plist.set_filter(number, h5py.h5z.FLAG_OPTIONAL, values)
        space = h5py.h5s.create_simple(array.shape)
        made = h5py.h5d.create(
            file.id, b"u", h5py.h5t.py_create(array.dtype, logical=True), space, plist
        )
        h5py.Dataset(made)[...] = array


def sample(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    """Return an array of which one half compresses well and the other does not."""
    rng = np.random.default_rng(seed)
    array = rng.integers(0, 256, (*shape, np.dtype(dtype).itemsize), np.uint8)
    array[: shape[0] // 2] //= 64
    if np.dtype(dtype).kind in "fc":
        return (array.sum(-1) * 0.5).astype(dtype)
    return np.ascontiguousarray(array).view(dtype).reshape(shape)


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_every_pipeline_reads_as_h5py_does(pipeline: str, tmp_path: Path) -> None:
    for axis, dtype in enumerate(["u1", "<i2", ">f4", ">c16"], -2):
        array = sample((23, 7, 9), dtype)
        write(tmp_path / f"{axis}.h5", array, (4, 3, 9), pipeline)
        with h5py.File(tmp_path / f"{axis}.h5") as file:
            expected = np.moveaxis(file["u"][...], axis, 0)
        view = ooc.open(tmp_path / f"{axis}.h5", axis=axis)
        source = view.source.source if isinstance(view.source, CachedRows) else view.source
        assert isinstance(source, Chunked)
        reader = ThroughLibrary if pipeline in UNTOLD else FilteredChunks
        assert isinstance(source.reader, reader)
        assert view.dtype.isnative
        assert_array_equal(np.asarray(view), expected)
        assert_array_equal(view[:, 1:, ::-2].take([3, 0]), expected[[3, 0], 1:, ::-2])


@pytest.mark.parametrize("several", [False, True])
def test_unfiltered_chunks_that_cut_rows_are_read_whole_and_once(
    several: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In h5py's default chunks of growable datasets a row of 784 bytes is 196 runs of 4 bytes."""
    array = sample((9000, 28, 28), "u1")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name, part in [("a/x", array[:4000]), ("b/x", array[4000:])]:
            file.create_dataset(name, data=part, maxshape=(None, 28, 28), chunks=(512, 2, 4))
    read: Counter[tuple[int, ...]] = Counter()
    real = FilteredChunks.read_chunks

    def read_chunks(self: FilteredChunks, places: Any, outs: Any) -> None:
        read.update(tuple(place) for place in places.tolist())
        real(self, places, outs)

    monkeypatch.setattr(FilteredChunks, "read_chunks", read_chunks)
    expected = array if several else array[4000:]
    loader = ooc.open(tmp_path / "a.h5", "*/x" if several else "b/x").batches(64, shuffle=True)
    seen = np.zeros(len(expected), int)
    for step, batch in enumerate(loader.epoch(0)):
        positions = loader.positions(step)
        seen[positions] += 1
        assert_array_equal(batch, expected[positions])
    assert (seen == 1).all()
    assert set(read.values()) == {1}
    assert len(read) == sum(-(-n // 512) for n in (4000, 5000)[not several :]) * 14 * 7


@given(
    shape=st.tuples(st.integers(1, 12), st.integers(1, 6)),
    chunk=st.tuples(st.integers(1, 12), st.integers(1, 6)),
    pipeline=st.sampled_from(sorted(PIPELINES)),
    dtype=st.sampled_from(["u1", "<u2", ">i4", ">f8"]),
)
def test_any_shape(
    shape: tuple[int, int],
    chunk: tuple[int, int],
    pipeline: str,
    dtype: str,
) -> None:
    array = sample(shape, dtype)
    chunk = (min(chunk[0], shape[0]), min(chunk[1], shape[1]))
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "a.h5", array, chunk, pipeline)
        assert_array_equal(np.asarray(ooc.open(f"{folder}/a.h5")), array)


@pytest.mark.parametrize("codec", [None, "gzip"])
@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_an_unlimited_axis_that_is_not_the_first(
    tmp_path: Path, libver: str, codec: str | None
) -> None:
    """HDF5 1.14 lists the chunks of such a dataset with wrong origins."""
    array = sample((5, 4, 9, 6), "<i4")
    options = {"chunks": (2, 3, 2, 4), "maxshape": (5, 7, None, 6), "compression": codec}
    with h5py.File(tmp_path / "a.h5", "w", libver=libver) as file:
        for name in ("run_1", "run_2"):
            file.create_dataset(name, data=array, **options)
        last = file.create_dataset("last", array.shape, "i4", **options)
        last[4:, 3:, 8:] = array[4:, 3:, 8:]
        some = file.create_dataset("some", array.shape, "i4", **options)
        some[:2, 1:, 2:6] = array[:2, 1:, 2:6]
        half = file.create_dataset("half", array.shape, "i4", **options)
        half[:, :, 2:6] = array[:, :, 2:6]
        expected = {name: dataset[:] for name, dataset in file.items()}
    for name, numbers in expected.items():
        view = ooc.open(tmp_path / "a.h5", name, missing="fill", axis=2)
        assert_array_equal(np.asarray(view), np.moveaxis(numbers, 2, 0))
    runs = ooc.open(tmp_path / "a.h5", "run_*")
    assert_array_equal(np.asarray(runs), np.concatenate([array, array]))
    with pytest.raises(MissingChunkError, match="rows 0, 1, 6, 7, 8"):
        ooc.open(tmp_path / "a.h5", "half", axis=2)


@pytest.mark.parametrize("pipeline", ["shuffle alone", "shuffle, gzip, fletcher32", "blosc"])
def test_chunks_over_the_edge_that_are_not_filtered(tmp_path: Path, pipeline: str) -> None:
    """``H5Pset_chunk_opts(…, H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS)`` is called by ctypes."""
    pytest.importorskip("hdf5plugin")
    maps = Path("/proc/self/maps")
    words = maps.read_text().split() if maps.exists() else []
    library = next((ctypes.CDLL(word) for word in words if "h5py.libs/libhdf5-" in word), None)
    if library is None:
        pytest.skip("h5py has not brought HDF5 as a library of its own")
    arrays = [sample((rows, 7), "<i4", rows) for rows in (8, 10, 3, 4)]
    with h5py.File(tmp_path / "a.h5", "w") as file:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((4, 7))
        for number, values in PIPELINES[pipeline]:
            plist.set_filter(number, h5py.h5z.FLAG_OPTIONAL, values)
        assert library.H5Pset_chunk_opts(ctypes.c_int64(plist.id), 2) == 0
        for name, array in enumerate(arrays):
            kind = h5py.h5t.py_create(array.dtype)
            space = h5py.h5s.create_simple(array.shape, (h5py.h5s.UNLIMITED, 7))
            made = h5py.h5d.create(file.id, b"%d" % name, kind, space, plist)
            h5py.Dataset(made)[...] = array
        assert file["1"].id.get_chunk_info(2).size == 4 * 7 * 4
    for name, array in enumerate(arrays):
        assert_array_equal(np.asarray(ooc.open(tmp_path / "a.h5", f"{name}")), array)
    assert_array_equal(np.asarray(ooc.open(tmp_path / "a.h5", "*")), np.concatenate(arrays))


def test_chunks_with_a_filter_left_out(tmp_path: Path) -> None:
    """Bit i of a filter mask is set if filter i was not applied to the chunk."""
    array = sample((12, 8), "<i4")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        made = file.create_dataset(
            "u", array.shape, array.dtype, chunks=(4, 8), compression="gzip", shuffle=True
        )
        made.id.write_direct_chunk((0, 0), array[:4].tobytes(), 0b11)
        made.id.write_direct_chunk((4, 0), zlib.compress(array[4:8].tobytes()), 0b01)
        planes = np.ascontiguousarray(array[8:].reshape(-1).view("u1").reshape(-1, 4).T)
        made.id.write_direct_chunk((8, 0), planes.tobytes(), 0b10)
    assert_array_equal(np.asarray(ooc.open(tmp_path / "a.h5")), array)


@pytest.mark.parametrize("fill", [None, 7])
def test_what_was_never_written(fill: int | None, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        made = file.create_dataset(
            "u", (20, 3), ">i4", chunks=(4, 3), compression="gzip", fillvalue=fill
        )
        made[4:8] = 1
    expected = np.full((20, 3), fill or 0)
    expected[4:8] = 1
    assert_array_equal(np.asarray(ooc.open(tmp_path / "a.h5", missing="fill")), expected)


@pytest.mark.parametrize("compression", [None, "gzip"])
@pytest.mark.parametrize("kind", ["matlab", "dates", "bytes"])
def test_what_was_never_written_of_other_dtypes(
    tmp_path: Path, kind: str, compression: str | None
) -> None:
    """Test complex numbers as MATLAB stores them, dates, and rows of varying length."""
    pair = np.dtype([("real", ">f4"), ("imag", ">f4")])
    dtype: Any = {
        "matlab": pair,
        "dates": h5py.opaque_dtype(np.dtype("<M8[us]")),
        "bytes": h5py.vlen_dtype("u1"),
    }[kind]
    with h5py.File(tmp_path / "a.h5", "w") as file:
        fill = np.array((3, -4), pair)[()] if kind == "matlab" else None
        options: Any = {"chunks": (2,), "compression": compression, "fillvalue": fill}
        made = file.create_dataset("u", (7,), dtype, **options)
        value = {"matlab": (1, 2), "dates": np.datetime64(77, "us"), "bytes": [1, 2, 3]}[kind]
        made[2] = np.array(value, "u1" if kind == "bytes" else dtype)
        expected = made[...]
    view = ooc.open(tmp_path / "a.h5", missing="fill")
    if kind == "matlab":
        assert_array_equal(np.asarray(view), expected["real"] + 1j * expected["imag"])
    elif kind == "dates":
        assert_array_equal(np.asarray(view).view(view.unit), expected)
    else:
        assert [list(row) for row in view.take(range(7))] == [list(row) for row in expected]


@pytest.mark.parametrize("fill", [None, 7, b"seven"])
def test_a_fill_value_that_is_undefined_or_never_written(tmp_path: Path, fill: Any) -> None:
    """HDF5 leaves the memory of such elements as it is, and that of h5py is 0."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((4, 3))
        dtype = np.dtype("S5" if isinstance(fill, bytes) else "i4")
        if fill is not None:
            plist.set_fill_value(np.array(fill, dtype))
        plist.set_deflate(1)
        plist.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        space = h5py.h5s.create_simple((8, 3))
        h5py.h5d.create(file.id, b"u", h5py.h5t.py_create(dtype), space, plist)
        expected = file["u"][()]
    assert_array_equal(np.asarray(ooc.open(tmp_path / "a.h5", missing="fill")), expected)


def chunk_places(path: Path) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    with h5py.File(path) as file:
        file["u"].id.chunk_iter(lambda info: found.append((info.byte_offset, info.size)))
    return found


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_a_damaged_chunk_is_named_or_reads_as_something(pipeline: str, tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    array = sample((32, 50), "<f4")
    write(path, array, (8, 50), pipeline)
    offset, size = chunk_places(path)[1]
    with open(path, "r+b") as raw:
        raw.seek(offset)
        raw.write(np.random.default_rng(1).integers(0, 256, size, np.uint8).tobytes())
    view = ooc.open(path)
    assert_array_equal(view.take([0, 31]), array[[0, 31]])
    if pipeline in UNTOLD:
        view.take([9])
        return
    with pytest.raises(DamagedChunkError, match=r"a\.h5', dataset '/u', rows 8, 9") as caught:
        view.take([9])
    assert caught.value.rows == tuple(range(8, 16))


def test_zeros_that_were_compressed_before_lzf(tmp_path: Path) -> None:
    """Of LZF's input only a limit is known, 88 times its output, and these come close to it."""
    write(tmp_path / "a.h5", np.zeros((4, 5000), "f4"), (2, 5000), "gzip 0, lzf")
    assert_array_equal(np.asarray(ooc.open(tmp_path / "a.h5")), np.zeros((4, 5000), "f4"))


def test_an_error_of_many_rows_holds_few(tmp_path: Path) -> None:
    path, count = tmp_path / "a.h5", 1 << 22
    write(path, np.zeros(count, "u1"), (count,), "gzip")
    ((offset, size),) = chunk_places(path)
    with open(path, "r+b") as raw:
        raw.seek(offset)
        raw.write(bytes(size))
    view = ooc.open(path)
    tracemalloc.start()
    with pytest.raises(DamagedChunkError) as caught:
        view.take([9])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (caught.value.rows, caught.value.count) == (tuple(range(1000)), count)
    assert peak < 8 * count  # fewer than the pointers of a list of the rows


def test_the_table_of_another_file_is_not_used(tmp_path: Path) -> None:
    """The file is replaced after it was opened, before its table of chunks is read."""
    path = tmp_path / "a.h5"
    array = sample((32, 50), "<f4")
    write(path, array, (8, 50), "gzip")
    view = ooc.open(path)
    view.take([0])
    view.source.reader.table._read.clear()
    write(tmp_path / "b.h5", sample((32, 50), "<f4", seed=1), (8, 50), "shuffle, gzip")
    (tmp_path / "b.h5").replace(path)
    with pytest.raises(SourceError, match=r"has changed|was cut short"):
        view.take([25])


@pytest.mark.parametrize("early", [True, False], ids=["before its bytes are read", "after"])
def test_a_chunk_written_over_while_it_is_read_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, early: bool
) -> None:
    path, other = tmp_path / "a.h5", tmp_path / "b.h5"
    array = np.arange(64 * 16, dtype="i4").reshape(64, 16)
    for name, content in ((path, array), (other, array + array.size)):
        with h5py.File(name, "w") as file:
            file.create_dataset("u", data=content, chunks=(8, 16), compression=0)
    view = ooc.open(path)
    assert_array_equal(view[0], array[0])
    preadv = os.preadv

    def racing(*arguments: Any) -> int:
        got = 0 if early else preadv(*arguments)
        path.write_bytes(other.read_bytes())
        os.utime(path, ns=(0, 0))  # clocks may be coarser than this test is fast
        return preadv(*arguments) if early else got

    monkeypatch.setattr(os, "preadv", racing)
    for _ in range(2):
        with pytest.raises(SourceError, match=r"has changed\. Open it again\. .*row 40\]"):
            view.take([40])
    with pytest.raises(SourceError, match=r"has changed"):  # chunks decoded before are refused too
        view[1]


# Damaged bytes are passed to native code, so a process of its own runs it, in case of a crash.
FUZZ = """
import h5py, hdf5plugin, numpy as np, sys, tempfile
sys.path.insert(0, {tests!r})
from pathlib import Path
from oocdata.formats.hdf5.decode import ChunkDecoder
from test_hdf5_filtered import PIPELINES, write
def fuzz(name):
    pipeline = PIPELINES[name]
    array = (np.arange(64 * 100) % 97).astype("f4").reshape(64, 100)
    rng = np.random.default_rng(0)
    array += rng.integers(0, 3, array.shape)
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "a.h5", array, array.shape, name)
        with h5py.File(folder + "/a.h5") as file:
            skipped, whole = file["u"].id.read_direct_chunk((0, 0))
    decoder = ChunkDecoder(tuple(number for number, _ in pipeline), array.dtype, array.shape)
    out = np.empty_like(array)
    decoder.decode(whole, skipped, out)
    assert (out == array).all()
    refused = 0
    for turn in range(700):
        data = bytearray(whole)
        kind = turn % 5
        if kind == 0:
            data = bytearray(rng.integers(0, 256, rng.integers(0, 400), np.uint8).tobytes())
        elif kind == 1:
            data[rng.integers(len(data))] ^= 1 << rng.integers(8)
        elif kind == 2:
            data = data[: rng.integers(len(data))]
        elif kind == 3:
            for _ in range(3):
                data[rng.integers(min(40, len(data)))] = rng.integers(256)
        else:
            data = data[: rng.integers(len(data))] + bytes(rng.integers(0, 256, 40, np.uint8))
        try:
            decoder.decode(bytes(data), skipped, out)
        except (ValueError, RuntimeError):
            refused += 1
    assert refused > 230, (name, refused)
    print(name, flush=True)
for name in {pipelines!r}:
    fuzz(name)
"""


def test_no_bytes_end_the_process() -> None:
    pytest.importorskip("hdf5plugin")
    pipelines = sorted(set(PIPELINES) - UNTOLD)
    code = FUZZ.format(tests=str(Path(__file__).parent), pipelines=pipelines)
    # netCDF4 would load the plugins of its own HDF5.
    plain = {name: value for name, value in os.environ.items() if name != "HDF5_PLUGIN_PATH"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=plain)
    assert (done.stdout.splitlines(), done.returncode) == (pipelines, 0), done.stderr[-2000:]


@pytest.mark.parametrize("data", [b"", b"abc", b"\0" * 16])
@pytest.mark.parametrize("number", [DEFLATE, FLETCHER32, LZF, BLOSC, LZ4, ZSTD])
def test_hardly_any_bytes(number: int, data: bytes) -> None:
    decoder = ChunkDecoder((number,), np.dtype("u1"), (50,))
    with pytest.raises((ValueError, RuntimeError)):
        decoder.decode(data, 0, np.empty(50, "u1"))


def test_shuffled_chunks_longer_than_a_tile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(decode, "_TILE_BYTES", 1000)
    array = sample((20, 301), "<f4")
    for pipeline in ("shuffle, gzip, fletcher32", "fletcher32, shuffle, gzip", "shuffle alone"):
        write(tmp_path / "a.h5", array, (7, 301), pipeline)
        assert_array_equal(np.asarray(ooc.open(tmp_path / "a.h5")), array)


def test_filters_that_only_hdf5_has(tmp_path: Path) -> None:
    hdf5plugin = pytest.importorskip("hdf5plugin")
    array = sample((20, 30), "<i4") % 1000
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("blosc2", data=array, chunks=(4, 30), **dict(hdf5plugin.Blosc2()))
        file.create_dataset("scaled", data=array, chunks=(4, 30), scaleoffset=0)
        file.create_dataset("bits", data=array, chunks=(4, 30), **dict(hdf5plugin.Bitshuffle()))
    for name in ("blosc2", "scaled", "bits"):
        view = ooc.open(tmp_path / "a.h5", name)
        assert not isinstance(view.source.reader, FilteredChunks)
        assert_array_equal(np.asarray(view), array)


def test_a_read_that_stops_short_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux reads at most 2 GiB in one call."""
    array = sample((32, 50), "<f4")
    write(tmp_path / "a.h5", array, (8, 50), "gzip")
    real = os.preadv

    def short(number: int, parts: list[memoryview], offset: int) -> int:
        return real(number, [parts[0][:100]], offset)

    monkeypatch.setattr(os, "preadv", short)
    assert_array_equal(np.asarray(ooc.open(tmp_path / "a.h5")), array)


def test_an_error_of_a_signal_handler_stays_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a.h5", sample((32, 50), "<f4"), (8, 50), "gzip")
    view = ooc.open(tmp_path / "a.h5")

    def interrupted(*_: Any) -> int:
        raise TimeoutError("by a handler")

    monkeypatch.setattr(os, "preadv", interrupted)
    with pytest.raises(TimeoutError, match="by a handler"):
        view.take([3])


def test_an_interrupt_leaves_no_chunk_half_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = sample((64, 50), "<f4")
    write(tmp_path / "a.h5", array, (4, 50), "gzip")
    view = ooc.open(tmp_path / "a.h5")
    real, interrupts, count = ChunkDecoder.decode, iter([True]), itertools.count()

    def slow(*arguments: Any) -> None:
        if next(interrupts, False):
            _thread.interrupt_main()
        sum(range(1_000_000))
        real(*arguments)
        next(count)

    with monkeypatch.context() as patched:
        patched.setattr(ChunkDecoder, "decode", slow)
        with pytest.raises(KeyboardInterrupt):
            view.take(range(64))
        # A chunk that is being decoded is waited for, not decoded again.
        assert_array_equal(np.asarray(view), array)
    assert next(count) == 16


# Tables of chunks


def test_the_tables_of_many_files_are_read_once_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    array, count = sample((12, 5), "<f4"), 60
    for number in range(count):
        write(tmp_path / f"{number}.h5", array + number, (4, 5), "gzip")
    read: list[str] = []
    real = table.open_file
    monkeypatch.setattr(
        table, "open_file", lambda path, *version: read.append(path) or real(path, *version)
    )
    view = ooc.open(str(tmp_path / "*.h5"))
    rng = np.random.default_rng(0)
    for _ in range(20):
        rows = rng.integers(0, len(view), 64)
        assert_array_equal(view.take(rows), array[rows % 12] + (rows // 12)[:, None])
    assert len(read) == len(set(read)) == count


def test_the_table_of_a_sparse_dataset_holds_what_is_there(tmp_path: Path) -> None:
    """Each dataset has one chunk of a grid of 2**41, and memory is taken for stored chunks only."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        for name, value in (("u", 1), ("v", 2)):
            options = {"chunks": (1, 8), "compression": "gzip", "fillvalue": -1}
            made = file.create_dataset(name, (1 << 40, 16), "i2", **options)
            made[1 << 39, :8] = value
    for name, value in (("u", 1), ("v", 2)):
        view = ooc.open(path, name, missing="fill")
        rows = [1 << 39, 0, (1 << 40) - 1]
        assert_array_equal(view.take(rows)[:, ::8], [[value, -1], [-1, -1], [-1, -1]])
        assert view.source.source.reader.table._read[0].shape == (4, 1)


def test_missing_rows_are_counted_and_a_few_are_named(tmp_path: Path) -> None:
    path = str(tmp_path / "a.h5")
    with h5py.File(path, "w") as file:
        made = file.create_dataset("u", (1 << 40, 16), "i2", chunks=(1 << 10, 8))
        made[1 << 11 : 3 << 10] = 1
    with pytest.raises(MissingChunkError, match=r"rows 0, 1, .* in all") as caught:
        open_source(path)
    assert caught.value.rows == tuple(range(1000))
    assert caught.value.count == (1 << 40) - (1 << 10)


def test_a_read_within_a_callback_of_h5py(tmp_path: Path) -> None:
    """The callback's thread holds HDF5's lock, while another waits for it to read the file."""
    array = sample((64, 50), "<f4")
    write(tmp_path / "a.h5", array, (4, 50), "gzip")
    views = [ooc.open(tmp_path / "a.h5") for _ in range(2)]
    got: list[np.ndarray] = []
    with h5py.File(tmp_path / "a.h5") as file, ThreadPoolExecutor(1) as pool:
        # Started before the callback, since a starting thread may collect objects of h5py.
        pool.submit(int).result()

        def visit(name: str) -> None:
            others.append(pool.submit(views[0].take, range(64)))
            got.append(views[1].take(range(64)))

        others: list[Any] = []
        file.visit(visit)
        got.append(others[0].result(60))
    for one in got:
        assert_array_equal(one, array)


def test_two_opens_of_one_file_decode_a_chunk_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = sample((64, 50), "<f4")
    write(tmp_path / "a.h5", array, (4, 50), "gzip")
    decoded: list[int] = []
    real = ChunkDecoder.decode
    monkeypatch.setattr(ChunkDecoder, "decode", lambda *given: decoded.append(1) or real(*given))
    views = [ooc.open(tmp_path / "a.h5") for _ in range(2)]
    for view in (*views, pickle.loads(pickle.dumps(views[0]))):
        assert_array_equal(np.asarray(view), array)
    assert len(decoded) == 16
    # A new version of the file is a different array.
    write(tmp_path / "b.h5", -array, (4, 50), "gzip")
    (tmp_path / "b.h5").replace(tmp_path / "a.h5")
    assert_array_equal(np.asarray(ooc.open(tmp_path / "a.h5")), -array)
    assert len(decoded) == 32
