"""Fields of structured rows in all formats, against NumPy, with bytes and chunks counted."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr
from counting import counted
from numpy.testing import assert_array_equal

import oocdata as ooc
from oocdata.cli.options import opening_of
from oocdata.describe import as_json, from_json
from oocdata.engines import ring
from oocdata.engines.fields import field_of
from oocdata.engines.source import Source
from oocdata.errors import ArgumentError, MissingKeyError, UnsupportedDtypeError
from oocdata.testing import SourceConformance

INNER = np.dtype([("x", "<f8"), ("y", ">i2")])
ROW = np.dtype(
    [("id", "<i4"), ("at", INNER), ("seen", "?"), ("matrix", ">f4", (2, 3)), ("n", "S3")]
)


def rows(*shape: int) -> np.ndarray:
    found = np.zeros(shape, ROW)
    count = found.size
    found["id"] = np.arange(count).reshape(shape)
    found["at"]["x"] = found["id"] / 8
    found["at"]["y"] = -found["id"]
    found["seen"] = found["id"] % 3 == 0
    found["matrix"] = np.arange(count * 6).reshape(*shape, 2, 3)
    return found


def npy(folder: Path, array: np.ndarray) -> Any:
    np.save(folder / "a.npy", array)
    return folder / "a.npy"


def fortran(folder: Path, array: np.ndarray) -> Any:
    return npy(folder, np.asfortranarray(array))


def memory_map(folder: Path, array: np.ndarray) -> Any:
    return np.load(npy(folder, array), mmap_mode="r")


def hdf5(**options: Any) -> Callable[[Path, np.ndarray], Any]:
    def make(folder: Path, array: np.ndarray) -> Any:
        with h5py.File(folder / "a.h5", "w") as file:
            file.create_dataset("u", data=array, **options)
        return folder / "a.h5"

    return make


KINDS = {
    "npy": npy,
    "fortran": fortran,
    "memory": lambda folder, array: array,
    "memmap": memory_map,
    "contiguous": hdf5(),
    "chunks": hdf5(chunks=(4, 5)),
    "gzip": hdf5(chunks=(4, 3), compression="gzip", shuffle=True),
    "lzf": hdf5(chunks=(4, 3), fletcher32=True, compression="lzf"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_fields_of_every_format(tmp_path: Path, kind: str) -> None:
    array = rows(9, 5)
    view = ooc.open(KINDS[kind](tmp_path, array))
    assert view.dtype.names == ROW.names
    for path in (["id"], ["at", "x"], ["at", "y"], ["seen"], ["matrix"]):
        field: Any = view
        expected: Any = array
        for name in path:
            field, expected = field[name], expected[name]
        assert field.dtype == expected.dtype.newbyteorder("=")
        assert field.shape == expected.shape
        assert_array_equal(np.asarray(field), expected)
        assert_array_equal(field.take([7, 0, 7]), expected[[7, 0, 7]])
    assert_array_equal(
        view[2:8, 1:4]["matrix"][:, 1, :, ::-2].take([3]), array["matrix"][5:6, 2, :, ::-2]
    )
    assert_array_equal(view[2:8, 1:4]["at"]["x"].astype("f4")[1], array["at"]["x"][3, 1:4])


@pytest.mark.parametrize("kind", KINDS)
def test_rows_whose_only_big_endian_numbers_are_in_an_array(tmp_path: Path, kind: str) -> None:
    array = np.zeros((9, 5), [("id", "<i4"), ("at", ">f8", (2,))])
    array["id"] = np.arange(45).reshape(9, 5)
    array["at"] = array["id"][..., None] / [4, 8]
    assert array.dtype.isnative  # so says NumPy
    view = ooc.open(KINDS[kind](tmp_path, array))
    for found in (np.asarray(view), np.asarray(view[:, ::-1])[:, ::-1]):
        assert_array_equal(found["at"], array["at"])
        assert_array_equal(found["id"], array["id"])


class TestField(SourceConformance):
    """A field with a shape, in rows that are read whole."""

    def make(self, folder: Path, array: np.ndarray) -> Source:
        outer = array.shape[:-2]
        table = np.zeros(outer, [("a", "u1"), ("b", array.dtype, array.shape[len(outer) :])])
        table["b"] = array
        with h5py.File(folder / "a.h5", "w") as file:
            if not outer:
                file["u"] = np.zeros(len(array), [("a", "u1"), ("b", array.dtype)])
                file["u"]["b"] = array
            else:
                chunks = tuple(min(4, n) for n in outer)
                file.create_dataset("u", data=table, chunks=chunks, compression="lzf")
        return field_of(ooc.open(folder / "a.h5").source, "b")


class TestFieldInPlace(SourceConformance):
    """The same in rows of which every byte has an address."""

    def make(self, folder: Path, array: np.ndarray) -> Source:
        table = np.zeros(array.shape[:1], [("a", "u1"), ("b", array.dtype, array.shape[1:])])
        table["b"] = array
        np.save(folder / "a.npy", table)
        return ooc.open(folder / "a.npy", field="b").source


def test_only_the_bytes_of_the_field_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = np.zeros(50, [("image", "u1", (100, 100)), ("label", "i8")])
    table["label"] = np.arange(50)
    np.save(tmp_path / "a.npy", table)
    labels = ooc.open(tmp_path / "a.npy")["label"]
    read = 0
    real = os.preadv

    def counting(*arguments: Any) -> int:
        nonlocal read
        got = real(*arguments)
        read += got
        return got

    monkeypatch.setattr(ring, "_usable", False)
    monkeypatch.setattr(os, "preadv", counting)
    assert [labels[n] for n in (40, 3, 9)] == [40, 3, 9]
    assert read == 24


def test_chunks_are_decoded_once_for_all_fields() -> None:
    array = rows(40)
    view, decoded = counted(array, 8)
    both = ooc.zip({"id": view["id"], "matrix": view["matrix"]})
    batches = list(both.batches(8, shuffle="block").epoch(0))
    assert sorted(np.concatenate([batch["id"] for batch in batches]).tolist()) == list(range(40))
    for batch in batches:
        assert_array_equal(batch["matrix"], array["matrix"][batch["id"]])
    assert set(decoded.values()) == {1}
    assert len(decoded) == 5


def test_a_compound_of_more_than_255_bytes_that_was_shuffled(tmp_path: Path) -> None:
    array = np.zeros(40, [("a", "f4", 100), ("b", "i4")])
    array["a"], array["b"] = np.arange(4000).reshape(40, 100), np.arange(40)
    path = hdf5(chunks=(7,), compression="gzip", shuffle=True)(tmp_path, array)
    view = ooc.open(path)
    assert_array_equal(np.asarray(view["a"]), array["a"])
    assert_array_equal(np.asarray(view["b"]), array["b"])


def test_fields_of_zarr(tmp_path: Path) -> None:
    """Zarr version 2 has fields; zarr-python reads numeric fields, but no nested ones."""
    array = np.zeros((9, 5), [("id", "<i4"), ("x", ">f8"), ("n", "S3")])
    array["id"] = np.arange(45).reshape(9, 5)
    array["x"] = array["id"] / 8
    made = zarr.create_array(
        tmp_path / "a.zarr", shape=(9, 5), chunks=(4, 5), dtype=array.dtype, zarr_format=2
    )
    made[...] = array
    view = ooc.open(tmp_path / "a.zarr")
    for name in ("id", "x"):
        assert_array_equal(np.asarray(view[name]), array[name])
    loader = view["x"].batches(4, shuffle="block")
    assert_array_equal(from_json(as_json(loader)).batch(1), loader.batch(1))


def test_an_enum_in_a_compound_is_its_integers(tmp_path: Path) -> None:
    kind = np.dtype([("class", h5py.enum_dtype({"A": 0, "B": 300}, ">i2")), ("x", "f4")])
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("u", data=np.array([(300, 1), (0, 2)], kind))
    found = ooc.open(tmp_path / "a.h5", field="class")
    assert found.dtype.metadata is None
    assert_array_equal(np.asarray(found), [300, 0])


def test_files_end_to_end_and_raw(tmp_path: Path) -> None:
    array = rows(10)
    np.save(tmp_path / "0.npy", array[:4])
    np.save(tmp_path / "1.npy", array[4:])
    array.tofile(tmp_path / "a.bin")
    files = ooc.open(str(tmp_path / "*.npy"))["matrix"]
    raw = ooc.open(tmp_path / "a.bin", dtype=ROW, shape=(-1,), field="matrix")
    assert_array_equal(np.asarray(files), array["matrix"])
    assert_array_equal(np.asarray(raw), array["matrix"])
    x, y = files.windows(3, 1, episodes="none").take([2])
    assert_array_equal(x[0], array["matrix"][2:5])
    assert_array_equal(y[0, 0], array["matrix"][5])


@pytest.mark.parametrize("kind", ["npy", "gzip"])
def test_a_description_restores_the_view(tmp_path: Path, kind: str) -> None:
    view = ooc.open(KINDS[kind](tmp_path, rows(9, 5)))
    loader = ooc.stack([view["at"]["x"], view["matrix"][:, :, 1, 0].astype("f8")]).batches(4)
    again = from_json(as_json(loader))
    assert_array_equal(again.batch(1), loader.batch(1))
    opened = view["at"]["y"].storage.opened
    assert opened is not None
    assert opened["field"] == ["at", "y"]
    assert_array_equal(np.asarray(ooc.open(**opened)), np.asarray(view["at"]["y"]))


def test_rows_without_a_chosen_field(tmp_path: Path) -> None:
    view = ooc.open(npy(tmp_path, rows(9)))
    with pytest.raises(UnsupportedDtypeError, match=r"fields .*'id', 'at'.*view\['id'\].*a\.npy"):
        ooc.zip(view, view).batches(2)
    with pytest.raises(UnsupportedDtypeError, match="Choose one of the fields"):
        view.astype("f4")
    with pytest.raises(UnsupportedDtypeError, match="Choose one of the fields"):
        ooc.stack([view])
    with pytest.raises(MissingKeyError, match=r"field 'z'; they have the fields 'id', 'at'"):
        view["z"]
    with pytest.raises(ArgumentError, match=r"got 'z'\. Only a View of records has fields"):
        view["at"]["x"]["z"]
    with pytest.raises(MissingKeyError, match="they have none: float64"):
        ooc.open(tmp_path / "a.npy", field=("at", "x", "z"))
    with pytest.raises(UnsupportedDtypeError, match="V2"):
        ooc.open(np.zeros(3, [("a", "V2"), ("b", "i4")]), field="a")
    with pytest.raises(UnsupportedDtypeError, match="some are objects"):
        ooc.open(np.zeros(3, [("a", "O"), ("b", "i4")]))


def test_the_command_line_option(tmp_path: Path) -> None:
    path = str(npy(tmp_path, rows(9)))
    opening = opening_of([path], field="at,x", decode=True)
    assert opening.code() == f"ooc.open({path!r}, field=('at', 'x'), decode=True)"
    assert_array_equal(np.asarray(opening.view()), rows(9)["at"]["x"])
    assert ooc.stats(ooc.open(path, field="id")).overall.max == 8
