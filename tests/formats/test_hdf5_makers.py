"""Test HDF5 layouts of MATLAB, pandas and PyTables, copied from files that they wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from numpy.testing import assert_array_equal

import oocdata as ooc
from oocdata.errors import UnsupportedDtypeError
from oocdata.tools.info import contents

ARRAY = np.arange(24.0).reshape(2, 3, 4)  # as MATLAB shows it


def matlab(path: Path, **options: Any) -> Path:
    """Write a file like MATLAB's ``save -v7.3``: a text in a user block, axes in reverse order."""
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, value, kind in [
            ("u", ARRAY.T, "double"),
            ("flag", np.ones((2, 1), "u1"), "logical"),
        ]:
            made = file.create_dataset(name, data=value, **(options if name == "u" else {}))
            made.attrs["MATLAB_class"] = np.bytes_(kind)
    with open(path, "r+b") as raw:
        raw.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM")
    return path


@pytest.mark.parametrize("options", [{}, {"compression": "gzip", "chunks": (4, 3, 1)}], ids=str)
def test_matlab(tmp_path: Path, options: Any):
    path = matlab(tmp_path / "a.mat", **options)
    view = ooc.open(path, "u")
    assert_array_equal(np.asarray(view.transpose()), np.moveaxis(ARRAY, -1, 0))
    assert view.storage.layout.endswith(", in MATLAB (2, 3, 4): its axes come in reverse")
    assert "its axes come in reverse" in " ".join(str(contents(str(path), "u")).split())


def test_an_empty_array_of_matlab(tmp_path: Path):
    """MATLAB stores the lengths of the axes instead of elements."""
    path = matlab(tmp_path / "a.mat")
    with h5py.File(path, "r+") as file:
        made = file.create_dataset("none", data=np.array([0, 3], "u8"))
        made.attrs["MATLAB_class"], made.attrs["MATLAB_empty"] = np.bytes_("double"), np.uint8(1)
    with pytest.raises(UnsupportedDtypeError, match=r"this one was empty, and MATLAB .*\(0, 3\)"):
        ooc.open(path, "none")
    assert "none" in str(contents(str(path)))
    assert len(ooc.open(path, "u")) == 4


def test_an_empty_frame_of_pandas(tmp_path: Path):
    """Pandas stores one number instead of no rows, with their shape as an attribute."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for day, values in enumerate([[1.0, 2.0], [0.0], [3.0]]):
            file[f"day{day}/values"] = values
        empty = file["day1/values"].attrs
        empty["value_type"], empty["shape"] = np.bytes_("float64"), np.bytes_(b"(I0\ntp1\n.")
    for key in ("day1/values", "day*/values"):
        with pytest.raises(UnsupportedDtypeError, match=r"this one was empty, and pandas .*day1"):
            ooc.open(tmp_path / "a.h5", key)
    joined = ooc.open(tmp_path / "a.h5", ["day0/values", "day2/values"])
    assert np.asarray(joined).tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    "options",
    [{}, {"chunks": (3, 2)}, {"chunks": (3, 2), "compression": "gzip", "shuffle": True}, "virtual"],
    ids=str,
)
@pytest.mark.parametrize("part", ["<f8", ">f8", "<f4", ">f4"])
def test_complex_numbers_of_matlab(tmp_path: Path, part: str, options: Any):
    """MATLAB stores a compound of ``real`` and ``imag``, which h5py reads as two fields."""
    pairs = np.zeros((7, 2), [("real", part), ("imag", part)])
    pairs["real"], pairs["imag"] = (
        ARRAY.ravel()[:14].reshape(7, 2),
        -ARRAY.ravel()[7:21].reshape(7, 2),
    )
    with h5py.File(tmp_path / "a.mat", "w", userblock_size=512) as file:
        if options == "virtual":
            file["stored"] = pairs
            layout = h5py.VirtualLayout(pairs.shape, pairs.dtype)
            layout[...] = h5py.VirtualSource(file["stored"])
            file.create_virtual_dataset("c", layout)
        else:
            file.create_dataset("c", data=pairs, **options)
    expected = pairs["real"] + 1j * pairs["imag"]
    view = ooc.open(tmp_path / "a.mat", "c")
    assert view.dtype == np.dtype("c16" if part[1:] == "f8" else "c8")
    assert_array_equal(np.asarray(view), expected)
    assert_array_equal(view.take([6, 0, 3]), expected[[6, 0, 3]])
    assert_array_equal(np.asarray(ooc.open(tmp_path / "a.mat", "c", axis=1)), expected.T)


@pytest.mark.parametrize("kind", [["f8", "f4"], ["i4", "i4"], ["f2", "f2"], ["f8", "f8", "f8"]])
def test_fields_that_are_no_complex_number(tmp_path: Path, kind: list[str]):
    fields = np.dtype(list(zip(("real", "imag", "more"), kind)))  # noqa: B905
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["c"] = np.ones(4, fields)
    assert_array_equal(np.asarray(ooc.open(tmp_path / "a.h5", "c")["imag"]), np.ones(4))


def frame(path: Path) -> np.ndarray:
    """Write a file like ``DataFrame.to_hdf(path, key="df", format="fixed")``."""
    values = np.arange(100.0).reshape(50, 2)
    with h5py.File(path, "w") as file:
        group = file.create_group("df")
        group.attrs["pandas_type"] = np.bytes_("frame")
        for name, data in [
            ("axis0", np.array(["a", "speed", "n"], "S5")),
            ("axis1", np.arange(50)),
            ("block0_items", np.array(["a", "speed"], "S5")),
            ("block0_values", values),
            ("block1_items", np.array(["n"], "S1")),
            ("block1_values", np.arange(50)[:, None]),
        ]:
            made = group.create_dataset(name, data=data)
            made.attrs["CLASS"] = np.bytes_("ARRAY")
            made.attrs["transposed"] = np.uint8(1)
    return values


def test_a_fixed_frame_of_pandas(tmp_path: Path):
    values = frame(tmp_path / "a.h5")
    view = ooc.open(tmp_path / "a.h5", "df/block0_values")
    assert_array_equal(np.asarray(view), values)
    names = np.asarray(ooc.open(tmp_path / "a.h5", "df/block0_items"))
    assert names.tolist() == [b"a", b"speed"]
    assert_array_equal(ooc.open(tmp_path / "a.h5", "df/axis1").take([3, 1]), [3, 1])


def write_times(file: Any, name: str, kind: Any, values: np.ndarray, chunks: int = 0) -> None:
    """Write bytes as numbers of an HDF5 type that NumPy lacks."""
    space = h5py.h5s.create_simple(values.shape)
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    if chunks:
        plist.set_chunk((chunks,))
        plist.set_deflate(4)
    made = h5py.h5d.create(file.id, name.encode(), kind, space, plist)
    made.write(space, space, values, kind)


def test_indices_of_pytables_are_not_listed(tmp_path: Path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["df/table"] = np.zeros(5, [("index", "i8"), ("a", "f8")])
        file["df/_i_table/a/sorted"] = np.zeros((0, 9))
        file["df/_i_table"].attrs["CLASS"] = np.bytes_("TINDEX")
        file["df/_i_mine/u"] = np.zeros(3)
    shown = [entry.key for entry in contents(str(tmp_path / "a.h5")).datasets]
    assert shown == ["/df/_i_mine/u", "/df/table"]
    assert len(ooc.open(tmp_path / "a.h5", "df/_i_table/a/sorted")) == 0
    assert ooc.check(str(tmp_path / "a.h5")).findings == ()


def test_what_pandas_and_pytables_write(tmp_path: Path):
    pd, tables = pytest.importorskip("pandas"), pytest.importorskip("tables")
    frame = pd.DataFrame({"a": np.arange(50.0), "b": np.arange(50.0) * 2})
    for number, options in enumerate([{}, {"complevel": 5, "complib": "zlib"}]):
        path = tmp_path / f"{number}.h5"
        frame.to_hdf(path, key="df", mode="w", format="fixed", **options)
        view = ooc.open(path, "df/block0_values")
        assert_array_equal(np.asarray(view), frame.to_numpy())
    with tables.open_file(tmp_path / "t.h5", "w") as file:
        file.create_carray("/", "u", obj=ARRAY, filters=tables.Filters(5, "zlib", shuffle=True))
    assert_array_equal(np.asarray(ooc.open(tmp_path / "t.h5", "u")), ARRAY)
    assert ooc.open(tmp_path / "t.h5").shape == ARRAY.shape
    frame.to_hdf(tmp_path / "i.h5", key="df", mode="w", format="table", data_columns=True)
    assert [each.key for each in contents(str(tmp_path / "i.h5")).datasets] == ["/df/table"]
