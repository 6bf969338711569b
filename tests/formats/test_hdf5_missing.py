"""Test HDF5 chunks that were never written, are damaged, or are beyond the end of the file."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from oocdata.datasets.view import View
from oocdata.engines.source import Source
from oocdata.errors import DamagedChunkError, MissingChunkError, SourceError, TruncatedFileError
from oocdata.formats.hdf5 import storage
from oocdata.formats.hdf5.opening import from_dataset
from oocdata.formats.opening import open_source
from oocdata.testing import sample_array


def read(source: Source, rows: Any = None) -> np.ndarray:
    view = View.of(source)
    return view.take(range(len(view)) if rows is None else rows)


def copy_of(path: str) -> str:
    """Copy a file, since HDF5 refuses to write to one that a reader has open."""
    return shutil.copy(path, path + ".copy")


def write(path: str, shape: tuple[int, ...], written: list[Any], **options: Any) -> np.ndarray:
    """Write parts of a dataset, and return its content."""
    with h5py.File(path, "w", libver=options.pop("libver", None)) as file:
        dataset = file.create_dataset("u", shape, "f4", **options)
        for part in written:
            dataset[part] = sample_array(shape, "f4")[part] + 1
        content: np.ndarray = dataset[...]
    return content


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize(
    "extra", [{}, {"compression": "gzip"}, {"maxshape": (None, None)}], ids=str
)
def test_chunks_never_written(tmp_path: Path, libver: str, extra: dict[str, Any]) -> None:
    path = str(tmp_path / "a.h5")
    parts = [np.s_[:20, :], np.s_[30:43, :4], np.s_[30:40, 4:]]
    content = write(path, (43, 7), parts, chunks=(10, 4), fillvalue=-9, libver=libver, **extra)
    with pytest.raises(
        MissingChunkError,
        match=r"3 of 10 chunks were never.*missing=\"fill\".*-9.*rows 20, 21,.*\(13 in all\)",
    ) as caught:
        open_source(path)
    error = caught.value
    assert (error.path, error.key, error.rows) == (path, "/u", (*range(20, 30), 40, 41, 42))
    assert_array_equal(read(open_source(path, missing="fill")), content)
    with pytest.raises(MissingChunkError) as caught:
        open_source(path, axis=1)
    assert caught.value.rows == tuple(range(7))
    moved = View.of(open_source(path, missing="fill", axis=1), 1)
    assert_array_equal(np.asarray(moved), content.T)


def test_single_chunk_never_written(tmp_path: Path) -> None:
    path = str(tmp_path / "a.h5")
    content = write(path, (5, 3), [], chunks=(5, 3), fillvalue=2.5)
    with pytest.raises(MissingChunkError, match="1 of 1 chunks"):
        open_source(path)
    assert_array_equal(read(open_source(path, missing="fill")), content)


@pytest.mark.parametrize("when", ["EARLY", "LATE", "INCR"])
@pytest.mark.parametrize("chunks", [None, (10,)], ids=["contiguous", "chunked"])
def test_allocation_time(tmp_path: Path, when: str, chunks: Any) -> None:
    path = str(tmp_path / "a.h5")
    with h5py.File(path, "w") as file:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_alloc_time(getattr(h5py.h5d, f"ALLOC_TIME_{when}"))
        if chunks:
            plist.set_chunk(chunks)
        space = h5py.h5s.create_simple((25,))
        h5py.h5d.create(file.id, b"u", h5py.h5t.IEEE_F32LE, space, plist)
    if when == "EARLY":  # allocated early and filled with zeros, so nothing is missing
        assert_array_equal(read(open_source(path)), np.zeros(25))
    else:
        with pytest.raises(MissingChunkError, match=r"rows 0, 1,.*\(25 in all\)"):
            open_source(path)
        assert_array_equal(read(open_source(path, missing="fill")), np.zeros(25))
    other = copy_of(path)
    with h5py.File(other, "a") as file:
        file["u"][...] = np.arange(25)
    assert_array_equal(read(open_source(other)), np.arange(25))


@pytest.mark.parametrize("block", [0, 512], ids="user block of {}".format)
def test_contiguous_never_written(tmp_path: Path, block: int) -> None:
    path = str(tmp_path / "a.h5")
    with h5py.File(path, "w", userblock_size=block) as file:
        content = file.create_dataset("u", (6, 2), "f4", fillvalue=7)[...]
        for name in ("demo_1", "demo_2"):
            file.create_dataset(name, (6, 2), "f4", fillvalue=7)
    with pytest.raises(MissingChunkError, match=r"all of it was never written.*7\.0") as caught:
        open_source(path, "u")
    assert caught.value.rows == tuple(range(6))
    source = open_source(path, "u", missing="fill")
    assert_array_equal(read(source), content)
    assert source.storage().layout == "contiguous"
    with pytest.raises(MissingChunkError, match="demo_1"):
        open_source(path, "demo_*")
    assert_array_equal(read(open_source(path, "demo_*", missing="fill")), np.full((12, 2), 7))


def test_undefined_fill_value_reads_zeros(tmp_path: Path) -> None:
    path = str(tmp_path / "a.h5")
    with h5py.File(path, "w") as file:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((10, 100))
        plist.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        space = h5py.h5s.create_simple((30, 100))
        h5py.h5d.create(file.id, b"u", h5py.h5t.IEEE_F64LE, space, plist)
    source = open_source(path, missing="fill")
    for _ in range(5):
        junk = np.full((10, 100), 3.0)
        del junk
        assert_array_equal(read(source, [0, 29]), np.zeros((2, 100)))


def test_shrunk_and_grown(tmp_path: Path) -> None:
    path = str(tmp_path / "a.h5")
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("u", (100, 10), chunks=(10, 4), maxshape=(None, None))
        dataset[...] = 1
        dataset.resize((55, 10))
    assert_array_equal(read(open_source(path)), np.ones((55, 10)))
    other = copy_of(path)
    with h5py.File(other, "a") as file:
        file["u"].resize((70, 10))
    with pytest.raises(MissingChunkError, match=r"3 of 21 chunks.*rows 60, 61,.*\(10 in all\)"):
        open_source(other)


def test_whole_files_are_not_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "a.h5")
    write(path, (100, 2), [np.s_[...]], chunks=(1, 2))

    def listed(*_: Any) -> None:
        raise AssertionError("the chunks were listed")

    monkeypatch.setattr(storage, "stored_chunks", listed)
    assert open_source(path).shape == (100, 2)


# Damage


def chunk_infos(path: str) -> list[Any]:
    infos: list[Any] = []
    with h5py.File(path) as file:
        file["u"].id.chunk_iter(infos.append)
    return infos


def overwrite(path: str, offset: int, content: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(content)


@pytest.mark.parametrize(
    "options",
    [
        {"compression": "gzip"},
        {"compression": "gzip", "shuffle": True},
        {"fletcher32": True},
        {"compression": "lzf"},
        dict(hdf5plugin.Zstd()),
        dict(hdf5plugin.Blosc()),
        dict(hdf5plugin.Blosc2()),
        dict(hdf5plugin.LZ4()),
    ],
    ids=["gzip", "shuffled gzip", "fletcher32", "lzf", "zstd", "blosc", "blosc2", "lz4"],
)
def test_damaged_chunk(tmp_path: Path, options: Any) -> None:
    path = str(tmp_path / "a.h5")
    array = np.random.default_rng(0).integers(0, 99, (100, 50))
    with h5py.File(path, "w") as file:
        file.create_dataset("u", data=array, chunks=(10, 50), **options)
    info = next(info for info in chunk_infos(path) if info.chunk_offset[0] == 30)
    overwrite(path, info.byte_offset, b"\xff" * min(info.size, 300))
    source = open_source(path)
    with pytest.raises(DamagedChunkError, match=r"a chunk must decode; .*rows 30, 31") as caught:
        read(source, [5, 33])
    error = caught.value
    assert (error.path, error.key, error.rows) == (path, "/u", tuple(range(30, 40)))
    # Complete rows can be read before and after the error.
    assert_array_equal(read(source, [29, 40, 99]), array[[29, 40, 99]])
    with pytest.raises(DamagedChunkError):
        read(source, [33])


def test_damage_names_rows_of_the_row_axis(tmp_path: Path) -> None:
    path = str(tmp_path / "a.h5")
    with h5py.File(path, "w") as file:
        file.create_dataset("u", data=np.ones((4, 100)), chunks=(4, 10), compression="gzip")
    info = next(info for info in chunk_infos(path) if info.chunk_offset[1] == 70)
    overwrite(path, info.byte_offset, b"\xff" * info.size)
    with pytest.raises(DamagedChunkError) as caught:
        View.of(open_source(path, axis=1), 1).take([75])
    assert caught.value.rows == tuple(range(70, 80))


@pytest.mark.parametrize("options", [{}, {"compression": "gzip"}, {"fletcher32": True}], ids=str)
@pytest.mark.parametrize("chunks", [None, (10, 1000), (1, 1000)], ids=str)
@pytest.mark.parametrize("through", ["path", "object"])
def test_cut_short_while_open(tmp_path: Path, options: Any, chunks: Any, through: str) -> None:
    """HDF5 silently reads zeros beyond the end of a file."""
    if chunks is None and options:
        pytest.skip("filters need chunks")
    path = str(tmp_path / "a.h5")
    array = np.random.default_rng(0).integers(1, 1 << 60, (100, 1000))
    with h5py.File(path, "w") as file:
        file.create_dataset("u", data=array, chunks=chunks, **options)
    with h5py.File(path) as file:
        source = open_source(path) if through == "path" else from_dataset(file["u"])
        assert_array_equal(read(source, [0, 1]), array[:2])
        os.truncate(path, os.path.getsize(path) // 2)
        with pytest.raises((TruncatedFileError, DamagedChunkError)) as caught:
            read(source, range(90, 100))
        assert caught.value.path == path
        assert caught.value.rows is not None
        assert set(caught.value.rows) <= set(range(90, 100))
        assert caught.value.rows


def test_cut_short_before_the_first_read(tmp_path: Path) -> None:
    path = str(tmp_path / "a.h5")
    write(path, (100, 10), [np.s_[...]], chunks=(10, 10))
    source = open_source(path)
    os.truncate(path, os.path.getsize(path) // 2)
    with pytest.raises(TruncatedFileError, match="cut short"):
        read(source)


def test_changed_between_open_and_read(tmp_path: Path) -> None:
    path = str(tmp_path / "a.h5")
    write(path, (100, 10), [np.s_[...]], chunks=(10, 10))
    source = open_source(path)
    write(path, (50, 10), [np.s_[...]], chunks=(10, 10))
    with pytest.raises(SourceError, match="as when it was opened"):
        read(source, [0])
    os.remove(path)
    with pytest.raises(SourceError, match=r"must exist|is gone"):
        read(source, [0])


def scale_offset(file: h5py.File, array: np.ndarray) -> None:
    file.create_dataset("u", data=array, chunks=(8, 16), scaleoffset=0)


def gzip(file: h5py.File, array: np.ndarray) -> None:
    file.create_dataset("u", data=array, chunks=(8, 16), compression="gzip", compression_opts=0)


def compact(file: h5py.File, array: np.ndarray) -> None:
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_layout(h5py.h5d.COMPACT)
    space = h5py.h5s.create_simple(array.shape)
    made = h5py.h5d.create(file.id, b"u", h5py.h5t.NATIVE_INT32, space, plist)
    h5py.Dataset(made)[...] = array


def virtual(file: h5py.File, array: np.ndarray) -> None:
    file["stored"] = array
    layout = h5py.VirtualLayout(array.shape, array.dtype)
    layout[...] = h5py.VirtualSource(file["stored"])
    file.create_virtual_dataset("u", layout)


@pytest.mark.parametrize("how", ["renamed", "in place", "in place after a read"])
@pytest.mark.parametrize("make", [scale_offset, gzip, compact, virtual])
def test_another_file_of_the_same_layout(tmp_path: Path, make: Any, how: str) -> None:
    if make is compact and "after" in how:
        pytest.skip("all of it is kept after a read")
    array = sample_array((64, 16), "i4")
    for name, content in (("a.h5", array), ("b.h5", array[::-1])):
        with h5py.File(tmp_path / name, "w") as file:
            make(file, content)
    path, other = tmp_path / "a.h5", tmp_path / "b.h5"
    source = open_source(str(path), "u")
    if "after" in how:
        assert_array_equal(read(source, [0]), array[:1])
    if how == "renamed":
        other.replace(path)
    else:
        with open(path, "r+b") as raw:
            raw.write(other.read_bytes())
    os.utime(path, ns=(0, 0))  # clocks may be coarser than this test is fast
    with pytest.raises(SourceError, match=r"has changed\. Open it again\. .*a\.h5"):
        read(source, [40])
