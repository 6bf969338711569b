"""One element a file or dataset, ``axis=None``: against np.stack, and by counting reads."""

from __future__ import annotations

import os
import resource
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray
import zarr
from numpy.testing import assert_array_equal

import oocdata as ooc
from oocdata.describe import as_json, from_json
from oocdata.engines import many_files
from oocdata.engines.single_rows import single_row
from oocdata.engines.source import Source
from oocdata.errors import ArgumentError, UnsupportedDtypeError
from oocdata.formats.opening import open_source
from oocdata.testing import SourceConformance

ELEMENTS = np.random.default_rng(0).normal(size=(23, 6, 20, 7)).astype("f4")
ELEMENTS[2] = ELEMENTS[5]  # so that a lost element is not hidden by another count


def npy(path: Path, array: np.ndarray) -> None:
    np.save(path, array)


def fortran(path: Path, array: np.ndarray) -> None:
    np.save(path, np.asfortranarray(array))


def npz(path: Path, array: np.ndarray) -> None:
    np.savez(path, x=array, y=np.int16(3))


def packed_npz(path: Path, array: np.ndarray) -> None:
    np.savez_compressed(path, x=array, y=np.int16(3))


def hdf5(path: Path, array: np.ndarray, **options: Any) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=array, **options)
        file["y"] = 3


def unfiltered(path: Path, array: np.ndarray) -> None:
    hdf5(path, array, chunks=(2, 8, 7))


def gzip(path: Path, array: np.ndarray) -> None:
    hdf5(path, array, chunks=(2, 8, 7), compression="gzip")


def scale_offset(path: Path, array: np.ndarray) -> None:
    hdf5(path, array.astype(">f8"), chunks=(2, 8, 7), scaleoffset=5)


def zarr_array(path: Path, array: np.ndarray) -> None:
    group = zarr.open_group(path, mode="w")
    group.create_array("x", data=array, chunks=(2, 8, 7))


def plain_zarr(path: Path, array: np.ndarray) -> None:
    group = zarr.open_group(path, mode="w")
    group.create_array("x", data=array, chunks=(1, 20, 7), compressors=None)


KINDS: dict[str, tuple[str, Callable[[Path, np.ndarray], None]]] = {
    "npy": ("npy", npy), "fortran": ("npy", fortran), "npz": ("npz", npz),
    "packed npz": ("npz", packed_npz), "hdf5": ("h5", hdf5), "unfiltered": ("h5", unfiltered),
    "gzip": ("h5", gzip), "library": ("h5", scale_offset), "zarr": ("zarr", zarr_array),
    "plain zarr": ("zarr", plain_zarr),
}  # fmt: skip


def written(folder: Path, kind: str, elements: Any = ELEMENTS) -> tuple[str, str | None]:
    """Write a file an element; return the arguments of `open`."""
    suffix, write = KINDS[kind]
    for number, element in enumerate(elements):
        write(folder / f"a_{number}.{suffix}", element)
    return str(folder / f"a_*.{suffix}"), None if suffix == "npy" else "x"


def read(path: Path) -> np.ndarray:
    with h5py.File(path) as file:
        return file["x"][:].astype("f8")


def delivered(dataset: ooc.Dataset) -> Iterator[bytes]:
    """Yield the bytes of each element of a shuffled epoch."""
    for batch in dataset.batches(4, shuffle=True, seed=3).epoch(0):
        for element in batch:
            yield element.tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_each_file_is_an_element(tmp_path: Path, kind: str) -> None:
    target, key = written(tmp_path, kind)
    view = ooc.open(target, key, axis=None)
    expected = ELEMENTS
    if kind == "library":  # it rounds
        expected = np.stack([read(tmp_path / f"a_{n}.h5") for n in range(23)])
    assert_array_equal(np.asarray(view), expected)
    assert_array_equal(view[4][::2], expected[4, ::2])
    assert_array_equal(view[[7, 1], 2:5, ::-3].take([0, 1]), expected[[7, 1], 2:5, ::-3])
    counts = Counter(element.tobytes() for element in expected)
    assert Counter(delivered(view)) == counts
    train, val = view.split(0.5, 0.5)
    assert Counter(delivered(train)) + Counter(delivered(val)) == counts
    frames = [*view.next_frame().batches(5)]
    assert_array_equal(np.concatenate([x for x, _ in frames]), expected[:-1])
    assert_array_equal(np.concatenate([y for _, y in frames]), expected[1:])
    windows = view.windows(4, 0, shift=3)
    assert_array_equal(windows.take([1, 0]), [expected[3:7], expected[:4]])
    patches = view.patches((3, 10, 7), step=(3, 10, 7))
    assert len(patches) == 23 * 4
    assert_array_equal(patches[5], expected[1, :3, 10:])
    assert view.parts.numbers.tolist() == [*range(23)]
    loader = windows.batches(2, shuffle=True, seed=1)
    assert_array_equal(from_json(as_json(loader)).batch(2), loader.batch(2))


@pytest.mark.parametrize("kind", ["npz", "packed npz", "hdf5", "gzip"])
def test_a_single_number_a_file(tmp_path: Path, kind: str) -> None:
    target, key = written(tmp_path, kind)
    pairs = ooc.zip(ooc.open(target, key, axis=None), ooc.open(target, "y", axis=None))
    x, y = pairs.batches(23).batch(0)
    assert_array_equal(x, ELEMENTS)
    assert y.tolist() == [3] * 23


def test_a_file_of_one_number_is_explained(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.float64(3))
    view = ooc.open(tmp_path / "a.npy", axis=None)
    assert view.storage.strides == (8,)
    assert "1 element" in str(view.batches(1).explain())


def zarr_number(path: Path, number: float, **options: Any) -> None:
    zarr.create_array(path, shape=(), **options)[...] = number


def write_compact(path: Path, value: Any, kind: Any = h5py.h5t.IEEE_F32BE) -> None:
    layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    layout.set_layout(h5py.h5d.COMPACT)
    with h5py.File(path, "w") as file:
        space = h5py.h5s.create(h5py.h5s.SCALAR)
        h5py.Dataset(h5py.h5d.create(file.id, b"x", kind, space, layout))[()] = value


def twelve_bit_number(path: Path, number: float) -> None:
    kind = h5py.h5t.STD_I16LE.copy()
    kind.set_precision(12)
    with h5py.File(path, "w") as file:
        space = h5py.h5s.create(h5py.h5s.SCALAR)
        h5py.Dataset(h5py.h5d.create(file.id, b"x", kind, space))[()] = number


NUMBERS: dict[str, tuple[str, Callable[[Path, float], None]]] = {
    "zarr": ("zarr", partial(zarr_number, dtype="<f8")),
    "big zarr": ("zarr", partial(zarr_number, dtype=">i2")),
    "plain zarr": ("zarr", partial(zarr_number, dtype="f4", compressors=None)),
    "zarr v2": ("zarr", partial(zarr_number, dtype="f4", zarr_format=2)),
    "compact": ("h5", write_compact), "12 bits": ("h5", twelve_bit_number),
}  # fmt: skip


@pytest.mark.parametrize("kind", NUMBERS)
def test_a_number_that_must_be_decoded(tmp_path: Path, kind: str) -> None:
    suffix, write = NUMBERS[kind]
    for number in range(5):
        write(tmp_path / f"{number}.{suffix}", 3 + number)
    assert ooc.open(tmp_path / f"1.{suffix}", axis=None).take([0, 0, 0]).tolist() == [4] * 3
    view = ooc.open(tmp_path / f"*.{suffix}", axis=None)
    assert view.take([4, 0, 2, 2]).tolist() == [7, 3, 5, 5]
    assert [*view.batches(2)][1].tolist() == [5, 6]


PAIR = np.dtype([("a", "<i4"), ("b", ">f8")])


def test_a_field_of_a_compound_that_must_be_decoded(tmp_path: Path) -> None:
    for number in range(3):
        values = np.array((number, 2.5 + number), PAIR)
        zarr.create_array(tmp_path / f"{number}.zarr", data=values, zarr_format=2)
        write_compact(tmp_path / f"{number}.h5", values, h5py.h5t.py_create(PAIR))
    for suffix in ("zarr", "h5"):
        one = ooc.open(tmp_path / f"1.{suffix}", axis=None, field="b")
        assert one.take([0, 0]).tolist() == [3.5, 3.5]
        view = ooc.open(tmp_path / f"*.{suffix}", axis=None, field="a")
        assert view.take([2, 0, 1, 1]).tolist() == [2, 0, 1, 1]


@pytest.mark.parametrize("engine", ["zarr", "h5netcdf"])
def test_a_number_of_xarray(tmp_path: Path, engine: Any) -> None:
    data = xarray.Dataset({"u": (("t", "x"), np.arange(12.0).reshape(6, 2)), "s": ((), 5.0)})
    if engine == "zarr":
        data.to_zarr(tmp_path / "a", consolidated=False)
    else:
        data.to_netcdf(tmp_path / "a", engine=engine)
    options = {"consolidated": False} if engine == "zarr" else {}
    with xarray.open_dataset(tmp_path / "a", engine=engine, **options) as opened:
        assert ooc.open(opened["s"], axis=None).take([0, 0]).tolist() == [5, 5]
        picked = ooc.open([opened["u"][row, 1] for row in range(4)], axis=None)
        assert picked.take([3, 0, 3]).tolist() == [7, 1, 7]


def test_datasets_of_a_pattern(tmp_path: Path) -> None:
    for name, first in (("a", 0), ("b", 10)):
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            for number in range(10):
                file[f"run_{number}/x"] = ELEMENTS[first + number]
    for target, count in ((tmp_path / "a.h5", 10), (tmp_path / "*.h5", 20)):
        for key in ("run_*/x", [f"run_{n}/x" for n in range(10)]):
            view = ooc.open(target, key, axis=None)
            assert_array_equal(np.asarray(view), ELEMENTS[:count])
            assert len(view.windows(3)) == count - 2
            loader = view.batches(4, shuffle=True)
            assert_array_equal(from_json(as_json(loader)).batch(1), loader.batch(1))


def test_arrays_in_memory_and_one_file(tmp_path: Path) -> None:
    assert_array_equal(np.asarray(ooc.open([*ELEMENTS], axis=None)), ELEMENTS)
    np.save(tmp_path / "a.npy", ELEMENTS)
    assert_array_equal(np.asarray(ooc.open(tmp_path / "a.npy", axis=None)), ELEMENTS[None])


def test_files_of_other_lengths(tmp_path: Path) -> None:
    volumes = [ELEMENTS[number, : number + 1] for number in range(5)]
    target, _ = written(tmp_path, "npy", volumes)
    ragged = ooc.open(target, axis=None)
    assert [len(ragged[n]) for n in range(5)] == [1, 2, 3, 4, 5]
    assert_array_equal(ragged[3], volumes[3])
    padded = ooc.open(target, axis=None, pad=-1)
    assert padded.shape == (5, 5, 20, 7)
    assert_array_equal(padded[1], [*volumes[1], *np.full((3, 20, 7), -1)])
    assert padded.mask()[1][:, 0, 0].tolist() == [True, True, False, False, False]


def test_packed_numbers_are_decoded(tmp_path: Path) -> None:
    stored = np.arange(24, dtype="i2").reshape(4, 2, 3)
    for number, values in enumerate(stored):
        with h5py.File(tmp_path / f"{number}.nc", "w") as file:
            file["x"] = values
            file["x"].attrs.update(scale_factor=np.float32(0.5), _FillValue=np.int16(7))
    expected = np.where(stored == 7, np.nan, stored * np.float32(0.5))
    view = ooc.open(tmp_path / "*.nc", "x", axis=None, decode=True)
    assert_array_equal(np.asarray(view), expected)


@pytest.mark.parametrize("kind", ["npy", "gzip"])
def test_many_files_hold_few_descriptors(tmp_path: Path, kind: str) -> None:
    elements = np.arange(400 * 6, dtype="i4").reshape(400, 2, 3)
    suffix, write = KINDS[kind]
    if kind == "gzip":

        def write(path: Path, array: np.ndarray) -> None:
            hdf5(path, array, chunks=(1, 3), compression="gzip")

    for number, element in enumerate(elements):
        write(tmp_path / f"{number}.{suffix}", element)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 100, hard))
    try:
        view = ooc.open(tmp_path / f"*.{suffix}", axis=None)
        batches = [*view.batches(100, shuffle=True, seed=1)]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    firsts = np.concatenate(batches)[:, 0, 0]
    assert sorted(firsts.tolist()) == elements[:, 0, 0].tolist()


def test_elements_of_many_files_are_read_in_one_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elements = np.arange(20 * 4096, dtype="f4").reshape(20, 64, 64)
    target, _ = written(tmp_path, "npy", elements)
    seen: list[int] = []
    real = many_files.read_runs
    monkeypatch.setattr(
        many_files,
        "read_runs",
        lambda file, offsets, *rest: (seen.append(len(offsets)), real(file, offsets, *rest)),
    )
    rows = np.random.default_rng(0).permutation(20)
    assert_array_equal(ooc.open(target, axis=None).take(rows), elements[rows])
    assert seen == [20]


def test_opening_reads_no_numbers(tmp_path: Path) -> None:
    target, _ = written(tmp_path, "npy")
    view = ooc.open(target, axis=None)
    (tmp_path / "a_5.npy").unlink()
    assert_array_equal(view[4], ELEMENTS[4])
    with pytest.raises(ooc.errors.SourceError, match=r"a_5\.npy"):
        _ = view[5]


def test_a_damaged_element_is_named(tmp_path: Path) -> None:
    target, key = written(tmp_path, "gzip")
    with h5py.File(tmp_path / "a_4.h5") as file:
        place = file["x"].id.get_chunk_info(5).byte_offset
    with open(tmp_path / "a_4.h5", "r+b") as damaged:
        damaged.seek(place + 20)
        damaged.write(b"\xff" * 30)
    with pytest.raises(ooc.errors.DamagedChunkError, match=r"a_4\.h5', dataset '/x', row 0\]"):
        ooc.open(target, key, axis=None).take(range(23))


def test_rows_that_cannot_be_one_row(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    with pytest.raises(ArgumentError, match="`axis` must name"):
        ooc.open(tmp_path / "a.txt", axis=None)
    zarr_number(tmp_path / "a.zarr", "text", dtype=str)  # type: ignore[arg-type]
    with pytest.raises(UnsupportedDtypeError, match="got text of varying length"):
        ooc.open(tmp_path / "a.zarr", axis=None)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", (2,), h5py.vlen_dtype("f4"))[:] = [np.ones(3), np.ones(2)]
    with pytest.raises(ArgumentError, match="`axis` must name"):
        ooc.open(tmp_path / "a.h5", axis=None)


class TestStrided(SourceConformance):
    kind = "npy"

    def make(self, folder: Path, array: np.ndarray) -> Source:
        target, key = written(folder, self.kind, array)
        return open_source(target, key, axis=None)


class TestChunked(TestStrided):
    kind = "gzip"

    def make(self, folder: Path, array: np.ndarray) -> Source:
        for number, element in enumerate(array):
            options: dict[str, Any] = {}
            if element.ndim:
                options = {"chunks": (*element.shape[:-1], 2), "compression": "gzip"}
            hdf5(folder / f"{number}.h5", element, **options)
        return open_source(str(folder / "*.h5"), "x", axis=None)


class TestOtherSources(TestStrided):
    def make(self, folder: Path, array: np.ndarray) -> Source:
        np.save(folder / "a.npy", array[:1])
        source = open_source(str(folder / "a.npy"))
        assert single_row(source).shape == (1, *source.shape)
        return open_source([*array], axis=None)
