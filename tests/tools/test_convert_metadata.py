"""Test converted metadata: xarray must read the same from the result and from the source."""

from __future__ import annotations

import ctypes
import io
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr
from numpy.testing import assert_array_equal

import oocdata as ooc
from oocdata.engines.source import Storage
from oocdata.tools.check import check
from oocdata.tools.convert import convert
from oocdata.tools.convert.metadata import target_for

xarray = pytest.importorskip("xarray")

NAMES = ("time", "lat", "lon")
VALUES = 280 + np.random.default_rng(0).integers(-400, 400, (8, 3, 4)) / 4
VALUES[2, 1, 1] = np.nan
PACKED = {"dtype": "i2", "scale_factor": 0.25, "add_offset": 280.0, "_FillValue": -32768}
KINDS = ["nc", "zarr2", "zarr3"]


def write(path: Path, encoding: Any = PACKED, values: Any = VALUES, **attributes: Any) -> Path:
    """Write an array as netCDF4 or Zarr with xarray."""
    data = xarray.Dataset({"u": (NAMES, values, {"units": "K", **attributes})})
    if path.suffix == ".nc":
        data.to_netcdf(path, encoding={"u": encoding})
    else:
        version = int(path.suffix[-1])
        data.to_zarr(path, zarr_format=version, consolidated=False, encoding={"u": encoding})
    return path


def read(path: Path, **options: Any) -> Any:
    """Read the array with xarray."""
    if "zarr" in path.suffix:
        return xarray.open_zarr(path, consolidated=False, **{"chunks": None, **options})["u"]
    return xarray.open_dataset(path, engine="h5netcdf", phony_dims="access", **options)["u"]


@pytest.fixture(params=KINDS)
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return write(tmp_path / f"a.{request.param}", valid_range=np.array([-400, 400], "i2"))


@pytest.fixture(params=["b.h5", "b.zarr"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / request.param


def test_packed_numbers_stay_packed(source: Path, target: Path) -> None:
    done = convert(source, target, key="u", to_key="u", verify=True)
    assert done.plan.target.lost == ()
    assert done.plan.target.dimension_names == NAMES
    if target.suffix == ".h5":
        with h5py.File(target) as file:
            assert [axis.label for axis in file["u"].dims] == list(NAMES)
            assert file["u"].fillvalue == (0 if source.suffix == ".zarr3" else -32768)
    found = read(target)
    assert_array_equal(found.values, VALUES)
    assert found.encoding["_FillValue"] == -32768
    assert_array_equal(found.attrs.pop("valid_range"), [-400, 400])
    assert found.attrs.pop("DIMENSION_LABELS", None) is None or target.suffix == ".h5"
    assert found.attrs == {"units": "K"}


@pytest.mark.parametrize("options", [{}, {"chunks": {}}], ids=["lazy", "dask"])
@pytest.mark.parametrize("loaded", [False, True])
def test_decoded_numbers_are_not_decoded_again(
    source: Path, target: Path, options: Any, loaded: bool
) -> None:
    opened = read(source, **options)
    if loaded:
        opened.load()
    done = convert(ooc.open(opened[1:], axis="lat"), target, to_key="u", verify=True)
    assert_array_equal(read(target).values, np.moveaxis(VALUES[1:], 1, 0))
    assert done.plan.target.dimension_names == ("lat", "time", "lon")
    assert dict(done.plan.target.attributes) == {"units": "K"}
    # They bound the packed numbers.
    assert done.plan.target.lost == ("valid_range",)


def test_numbers_in_mappings_that_json_lacks_are_text(tmp_path: Path) -> None:
    given = {"limits": {"low": -np.inf, "high": [None, np.nan]}}
    zarr.create_array(tmp_path / "a.zarr", data=VALUES, attributes=given)
    done = convert(tmp_path / "a.zarr", tmp_path / "b.zarr")
    assert done.plan.target.lost == ()
    wanted = {"limits": {"low": "-Infinity", "high": [None, "NaN"]}}
    assert dict(zarr.open_array(tmp_path / "b.zarr").attrs) == wanted


def test_names_of_what_is_left_of_a_decoded_array(source: Path) -> None:
    view = ooc.open(read(source).isel(lat=1), axis="lon")
    assert target_for(view, "zarr").dimension_names == ("lon", "time")
    assert target_for(view[2:, 3], "zarr").dimension_names == ("lon",)
    assert target_for(ooc.open(source, "u")[:, 1], "hdf5").dimension_names == ("time", "lon")


@pytest.mark.parametrize("dtype", ["i2", "f4", "f8"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_missing_value(tmp_path: Path, target: Path, kind: str, dtype: str) -> None:
    path = write(tmp_path / f"a.{kind}", {"dtype": dtype, "_FillValue": -999})
    convert(path, target, key="u", to_key="u")
    assert_array_equal(read(target).values, read(path).values)
    assert np.isnan(read(target).values[2, 1, 1])


@pytest.mark.parametrize(
    ("stored", "fill", "dtype"),
    [("i2", -9, "f4"), ("f4", -9, "i2"), ("i4", -9, "i2"), ("f8", -999.9, "f4"), ("i2", -9, "c8")],
)
def test_the_missing_value_in_another_dtype(
    tmp_path: Path, target: Path, stored: str, fill: float, dtype: str
) -> None:
    values = np.array([[[1.0, fill], [2.0, 3.0]]], stored)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["u"] = values
        file["u"].attrs["_FillValue"] = values[0, 0, 1]
        for axis, name in zip(file["u"].dims, NAMES, strict=True):
            axis.label = name
    convert(ooc.open(tmp_path / "a.h5").astype(dtype), target, to_key="u")
    found = read(target).values
    assert np.isnan(found[0, 0, 1])
    assert np.count_nonzero(np.isnan(found)) == 1
    if target.suffix == ".h5":
        with h5py.File(target) as file:
            assert file["u"].attrs["_FillValue"].dtype == dtype


def test_a_missing_value_that_the_dtype_can_not_hold(tmp_path: Path, target: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["u"] = np.array([[[1, 2]]], "i2")
        file["u"].attrs["_FillValue"] = np.int16(-9)
        file["u"].attrs["missing_value"] = np.array([-9, 3], "i2")
        for axis, name in zip(file["u"].dims, NAMES, strict=True):
            axis.label = name
    view = ooc.open(tmp_path / "a.h5")
    done = convert(view.astype("u1"), target, to_key="u", overwrite=True)
    assert done.plan.target.lost == ("_FillValue", "missing_value")
    assert_array_equal(read(target).values, [[[1, 2]]])
    done = convert(view.astype("f4"), target, to_key="u", overwrite=True)
    assert_array_equal(dict(done.plan.target.attributes)["missing_value"], [-9, 3])


def test_the_sign_of_numbers_in_another_dtype(tmp_path: Path, target: Path) -> None:
    path = write(
        tmp_path / "a.nc",
        {"dtype": "i1", "_Unsigned": "true", "scale_factor": 0.5, "_FillValue": -1},
        VALUES % 100,
    )
    convert(path, target, key="u", to_key="u")
    assert_array_equal(read(target).values, read(path).values)
    view = ooc.open(path, "u")
    for dtype in ("i2", "f4"):
        done = convert(view.astype(dtype), target, to_key="u", overwrite=True)
        assert set(done.plan.target.lost) == {"_Unsigned", "scale_factor", "_FillValue"}
        assert_array_equal(read(target).values, np.asarray(view))


def test_attributes_that_parts_do_not_share(tmp_path: Path, target: Path) -> None:
    paths = [
        write(tmp_path / "a.nc", history="a", nan=np.nan, levels=[1, 2]),
        write(tmp_path / "b.nc", history="b", nan=np.nan, levels=[1, 2], extra=1),
    ]
    done = convert(ooc.open(paths, "u").astype("f4"), target, to_key="u")
    assert done.plan.target.lost[:-1] == ("history", "extra")
    assert_array_equal(read(target).values, np.concatenate([VALUES, VALUES]))
    assert read(target).attrs["units"] == "K"
    data = xarray.open_dataset(paths[1])["u"].rename(lat="y")
    other = target_for(ooc.open([xarray.open_dataset(paths[0])["u"].load(), data.load()]), "zarr")
    assert other.dimension_names == ("time", None, "lon")  # what is true of both


# What holds the array


def in_store(folder: Path) -> Any:
    array = zarr.create_array({}, shape=(4, 3), dtype="i2", attributes={"scale_factor": 0.5})
    array[:] = 1
    return array


def at_a_url(folder: Path) -> Any:
    array = zarr.create_array(
        folder / "a.zarr", shape=(4, 3), dtype="i2", attributes={"scale_factor": 0.5}
    )
    array[:] = 1
    return f"file://{folder}/a.zarr"


def in_bytes(folder: Path) -> Any:
    file = h5py.File(io.BytesIO(), "w")
    file["u"] = np.ones((4, 3), "i2")
    file["u"].attrs["scale_factor"] = 0.5
    return file["u"]


def in_memory(folder: Path) -> Any:
    return xarray.DataArray(np.ones((4, 3), "i2"), attrs={"scale_factor": 0.5})


@pytest.mark.parametrize("make", [in_store, at_a_url, in_bytes, in_memory])
def test_attributes_of_whatever_holds_the_array(tmp_path: Path, target: Path, make: Any) -> None:
    done = convert(make(tmp_path), target)
    assert dict(done.plan.target.attributes) == {"scale_factor": 0.5}


def test_packed_numbers_of_a_source_that_says_no_more(tmp_path: Path, target: Path) -> None:
    class Own:
        shape, dtype = (4, 3), np.dtype("i2")

        def read(self, origins: Any, extent: Any, out: Any) -> None:
            out[...] = 1

        def storage(self) -> Storage:
            return Storage("mine", packed="scale_factor 0.5, _FillValue -9")

    assert target_for(ooc.open(Own()), "zarr").lost == ("scale_factor", "_FillValue")


def test_verified_rows_have_their_attributes(tmp_path: Path) -> None:
    path = write(tmp_path / "a.nc")
    check(path, "u", write_manifest=True)
    assert "units" in dict(target_for(ooc.open(path, "u", verify=True), "zarr").attributes)


def test_attributes_called_like_those_of_scales(tmp_path: Path, target: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["u"] = np.zeros((4, 3), "u1")
        file["u"].attrs.update({"CLASS": "IMAGE", "NAME": "mine", "unread": h5py.Empty("f4")})
        file["x"] = np.arange(4.0)
        file["x"].make_scale("x")
        file["x"].attrs["units"] = "m"
    found = target_for(ooc.open(tmp_path / "a.h5", "u"), "zarr")
    assert dict(found.attributes) == {"CLASS": "IMAGE", "NAME": "mine"}
    assert found.lost == ("unread",)
    assert dict(target_for(ooc.open(tmp_path / "a.h5", "x"), "zarr").attributes) == {"units": "m"}


def test_attributes_of_a_dataset_of_other_files_that_is_being_read(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file["u"] = np.ones((4, 3), "f4")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        layout = h5py.VirtualLayout((4, 3), "f4")
        layout[:] = h5py.VirtualSource(tmp_path / "b.h5", "u", (4, 3))
        made = file.create_virtual_dataset("u", layout)
        made.attrs.update({"units": "K", "höhe": 1})
    view = ooc.open(tmp_path / "a.h5", external=True)
    view.take([0])
    assert dict(target_for(view, "hdf5").attributes) == {"höhe": 1, "units": "K"}


def test_the_unit_of_dates_is_not_lost_without_a_word(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(9).astype("M8[D]"))
    done = ooc.convert(tmp_path / "a.npy", tmp_path / "b.h5")
    assert done.plan.target.lost == ("the unit of its dates (datetime64[D])",)


def test_a_fill_value_that_hdf5_leaves_undefined(tmp_path: Path) -> None:
    library = ctypes.CDLL(h5py.h5p.__file__)  # h5py itself has no way to say so
    library.H5Pset_fill_value.argtypes = [ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    assert library.H5Pset_fill_value(properties.id, h5py.h5t.NATIVE_INT16.id, None) == 0
    with h5py.File(tmp_path / "a.h5", "w") as file:
        space = h5py.h5s.create_simple((4,))
        made = h5py.h5d.create(file.id, b"u", h5py.h5t.NATIVE_INT16, space, properties)
        h5py.Dataset(made)[:] = 3
    assert target_for(ooc.open(tmp_path / "a.h5"), "zarr").fill_value is None


def test_borders_of_episodes_are_named(tmp_path: Path) -> None:
    for number in range(3):
        np.save(tmp_path / f"part{number}.npy", np.arange(4.0))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["demo_0/u"], file["demo_1/u"] = np.zeros(3), np.zeros(2)
    files, runs = ooc.open(f"{tmp_path}/part*.npy"), ooc.open(np.zeros((3, 4)), axis=(0, 1))
    demos = ooc.open(tmp_path / "a.h5", "demo_*/u")
    for view in (files, runs, demos, files[2:7]):
        (lost,) = target_for(view, "zarr").lost
        assert lost.startswith("where its files or episodes begin")
    for view in (files[:4], ooc.open(np.zeros((3, 4))), demos[3:]):
        assert not target_for(view, "zarr").lost
    text = str(convert(files, tmp_path / "whole.npy"))
    assert "give windows `episodes`, their lengths" in " ".join(text.split())
