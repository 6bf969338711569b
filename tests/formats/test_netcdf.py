"""Test netCDF4 files opened by path, and dimension names in all formats that have them."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
import tensorstore
import xarray
import zarr
from numpy.testing import assert_array_equal
from typer.testing import CliRunner

import oocdata as ooc
from oocdata.cli import app
from oocdata.describe import as_json, from_json
from oocdata.errors import (
    ArgumentError,
    MismatchedPartsError,
    MissingChunkError,
    MissingKeyError,
    SeveralDatasetsError,
    SourceError,
    UnknownFormatError,
)
from oocdata.formats.dimensions import data_variables
from oocdata.formats.hdf5 import description
from oocdata.formats.opening import list_datasets, open_source
from oocdata.formats.tree import Array
from oocdata.testing import sample_array

NAMES = ("time", "lat", "lon")
VALUES = sample_array((10, 4, 5), "f4") / 4 + 250


@pytest.fixture
def weather(tmp_path: Path) -> str:
    """Write a file like a weather service's: one packed variable with many attributes."""
    path = str(tmp_path / "weather.nc")
    with netCDF4.Dataset(path, "w") as file:
        for name, length in {"time": None, "lat": 4, "lon": 5, "side": 2, "strlen": 8}.items():
            file.createDimension(name, length)
        time = file.createVariable("time", "f8", ("time",))
        time.units, time.bounds = "days since 2000-01-01", "time_bounds"
        packed = file.createVariable(
            "t2m", "i2", NAMES, zlib=True, shuffle=True, chunksizes=(3, 4, 5), fill_value=-9999
        )
        packed.scale_factor, packed.add_offset, packed.coordinates = 0.25, 250.0, "lat2d lon2d"
        packed[:] = VALUES
        time[:] = np.arange(10)
        file.createVariable("time_bounds", "f8", ("time", "side"))[:] = 0
        for name in ("lat", "lon"):
            file.createVariable(name, "f4", (name,))[:] = 0
            file.createVariable(f"{name}2d", "f4", ("lat", "lon"))[:] = 0
        file.createVariable("crs", "i4", ())[...] = 1
        file.createVariable("station", "S1", ("lat", "strlen"))[:] = b"a"
        file.createVariable("name", str, ("lat",))[0] = "x"
    return path


def test_one_variable_of_data_needs_no_key(weather: str) -> None:
    view = ooc.open(weather)
    with netCDF4.Dataset(weather) as file:
        file.set_auto_maskandscale(False)
        assert_array_equal(np.asarray(view), file["t2m"][:])
    assert view.source.storage().key == "/t2m"
    for key in ("time", "lat2d", "/time_bounds"):
        assert ooc.open(weather, key).ndim in (1, 2)
    # A dimension without values is no dataset.
    assert not {"/side", "/strlen"} & set(list_datasets(weather))
    with pytest.raises(MissingKeyError, match="holds no"):
        ooc.open(weather, "side")


def test_two_variables_need_one(weather: str) -> None:
    with netCDF4.Dataset(weather, "a") as file:
        file.createVariable("wind", "f4", NAMES)[:] = 1
    with pytest.raises(SeveralDatasetsError, match=r"several datasets: '/t2m', '/wind'\."):
        ooc.open(weather)


def test_only_coordinates(tmp_path: Path) -> None:
    xarray.Dataset(coords={"x": [1, 2], "y": [1, 2, 3]}).to_netcdf(tmp_path / "a.nc")
    with pytest.raises(SeveralDatasetsError, match="'/x', '/y'"):
        ooc.open(tmp_path / "a.nc")


@pytest.mark.parametrize("axis", range(3))
def test_an_axis_by_its_name(weather: str, axis: int) -> None:
    assert_array_equal(
        np.asarray(ooc.open(weather, axis=NAMES[axis])), np.asarray(ooc.open(weather, axis=axis))
    )


def test_packed_numbers_come_as_stored_and_info_says_so(weather: str) -> None:
    packed = " ".join(CliRunner().invoke(app, ["info", f"{weather}::t2m"]).output.split())
    assert "delivered as stored (scale_factor 0.25, add_offset 250.0" in packed
    assert "--decode decodes" in packed
    assert ooc.open(weather).source.storage().packed == (
        "scale_factor 0.25, add_offset 250.0, _FillValue -9999"
    )
    with xarray.open_dataset(weather) as data:
        assert_array_equal(np.asarray(ooc.open(data, "t2m")), VALUES)


@pytest.mark.parametrize("kind", ["nc", "zarr2", "zarr3"])
@pytest.mark.parametrize(
    ("dtype", "fill", "packed"),
    [
        ("i2", -99, "_FillValue -99"),
        ("f4", np.float32(-99), "_FillValue -99.0"),
        ("f4", np.nan, ""),
    ],
)
def test_missing_values_come_as_stored_too(
    tmp_path: Path, kind: str, dtype: str, fill: Any, packed: str
) -> None:
    path = tmp_path / f"a.{kind}"
    data = xarray.Dataset({"u": (("time", "x"), np.array([[1.0, np.nan], [3.0, 4.0]]))})
    encoding = {"u": {"dtype": dtype, "_FillValue": fill}}
    if kind == "nc":
        data.to_netcdf(path, encoding=encoding)
    else:
        data.to_zarr(path, zarr_format=int(kind[-1]), consolidated=False, encoding=encoding)
    view = ooc.open(path, missing="fill")
    assert_array_equal(np.asarray(view), np.array([[1, fill], [3, 4]], dtype))
    assert view.source.storage().packed == packed


def test_text(weather: str) -> None:
    assert ooc.open(weather, "station").dtype == np.dtype("S1")
    assert np.asarray(ooc.open(weather, "name")).tolist() == [b"x", b"", b"", b""]


def test_a_single_number(weather: str) -> None:
    with pytest.raises(ArgumentError, match="a single number"):
        ooc.open(weather, "crs")


@pytest.fixture
def unusual_file(tmp_path: Path) -> str:
    """Write a file with groups, user-defined types and missing chunks."""
    path = str(tmp_path / "odd.nc")
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", None)
        file.createDimension("x", 6)
        time = file.createVariable("time", "i4", ("time",))
        short = file.createVariable("short", "f4", ("time", "x"))
        holes = file.createVariable("holes", "f4", ("time", "x"), chunksizes=(2, 6), zlib=True)
        file.createVariable("never", "f4", ("x",))
        time[:10], short[:4], holes[8:10] = np.arange(10), 2.0, 3.0
        sky = file.createEnumType(np.uint8, "cloud", {"clear": 0, "cloudy": 1})
        file.createVariable("sky", sky, ("time",))[:] = np.ones(10, "u1")
        ragged = file.createVLType(np.float64, "ragged_t")
        file.createVariable("ragged", ragged, ("x",))[0] = np.zeros(3)
        pair = file.createCompoundType(np.dtype([("a", "f4"), ("b", "i2")]), "pair_t")
        file.createVariable("pair", pair, ("x",))[:] = np.zeros(6, [("a", "f4"), ("b", "i2")])
        group = file.createGroup("model/run1")
        group.createDimension("y", 3)
        inner = group.createVariable("u", ">f8", ("time", "y"), endian="big")
        inner[:] = np.arange(30).reshape(10, 3)
    return path


def test_a_variable_in_a_group_with_a_dimension_of_its_parent(unusual_file: str) -> None:
    view = ooc.open(unusual_file, "model/run1/u", axis="y")
    assert view.dtype == np.dtype("f8")
    assert_array_equal(np.asarray(view), np.arange(30.0).reshape(10, 3).T)
    assert view.source.storage().dimensions == ("time", "y")
    with pytest.raises(MissingKeyError, match=r"is a group, which holds: '/model/run1/u'\."):
        ooc.open(unusual_file, "model/run1")


def test_what_was_never_written(unusual_file: str) -> None:
    with netCDF4.Dataset(unusual_file) as file:
        file.set_auto_mask(False)
        filled = file["holes"][:]
    with pytest.raises(MissingChunkError, match=r"never written.*9\.96") as caught:
        ooc.open(unusual_file, "holes")
    assert caught.value.rows == tuple(range(8))
    assert_array_equal(np.asarray(ooc.open(unusual_file, "holes", missing="fill")), filled)
    with pytest.raises(MissingChunkError, match="all of it was never written"):
        ooc.open(unusual_file, "never")


def test_a_variable_that_is_shorter_than_its_dimension(unusual_file: str) -> None:
    view = ooc.open(unusual_file, "short")
    assert view.shape == (4, 6)  # the written part; netCDF shows ten rows
    with xarray.open_dataset(unusual_file, drop_variables=["pair", "ragged"]) as data:
        expected = data["short"].values
    with xarray.open_dataset(unusual_file, drop_variables=["pair", "ragged"]) as data:
        assert expected.shape == (10, 6)
        assert_array_equal(np.asarray(ooc.open(data["short"])), expected)


def test_types(unusual_file: str) -> None:
    assert_array_equal(np.asarray(ooc.open(unusual_file, "sky")), np.ones(10, "u1"))
    with netCDF4.Dataset(unusual_file) as file:
        rows = file["ragged"][:]
    for row, truth in zip(ooc.open(unusual_file, "ragged", missing="fill"), rows, strict=True):
        assert_array_equal(row, truth)
    assert ooc.open(unusual_file, "pair", field="b").dtype == np.int16


@pytest.mark.parametrize("form", ["NETCDF3_CLASSIC", "NETCDF3_64BIT"])
@pytest.mark.parametrize("engine", ["scipy", "netcdf4"])
def test_netcdf_of_version_3(tmp_path: Path, form: Any, engine: Any) -> None:
    path = tmp_path / "old.nc"
    data = xarray.Dataset({"u": (("time", "x"), sample_array((6, 2), "f8"))})
    data.to_netcdf(path, format=form)
    with pytest.raises(UnknownFormatError, match=r"netCDF of version 3\. Open it through xarray"):
        ooc.open(path)
    with xarray.open_dataset(path, engine=engine) as opened:
        assert_array_equal(np.asarray(ooc.open(opened, axis="x")), data["u"].values.T)


@pytest.mark.parametrize("target", ["variable", "dataset"])
def test_objects_of_netcdf4_are_refused(weather: str, target: str) -> None:
    with (
        netCDF4.Dataset(weather) as file,
        pytest.raises(
            UnknownFormatError, match=r"only one thread.*ooc\.open\('.*weather\.nc', key"
        ),
    ):
        ooc.open(file if target == "dataset" else file["t2m"])


# --- names of dimensions, by every format


def by_scales(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["u"] = sample_array((6, 4, 5))
        for axis, name in enumerate(NAMES):
            file[name] = np.arange(file["u"].shape[axis])
            file[name].make_scale(name)
            file["u"].dims[axis].attach_scale(file[name])


def by_labels(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["u"] = sample_array((6, 4, 5))
        for axis, name in enumerate(NAMES):
            file["u"].dims[axis].label = name


def by_zarr_3(path: Path) -> None:
    zarr.create_array(path, data=sample_array((6, 4, 5)), chunks=(2, 4, 5), dimension_names=NAMES)


def by_tensorstore(path: Path) -> None:
    spec = {
        "driver": "zarr3",
        "kvstore": {"driver": "file", "path": f"{path}/"},
        "metadata": {"dimension_names": list(NAMES), "shape": [6, 4, 5], "data_type": "float32"},
    }
    opened = tensorstore.open(spec, create=True).result()
    opened.write(sample_array((6, 4, 5))).result()


def by_zarr_2(path: Path) -> None:
    group = zarr.create_group(path, zarr_format=2)
    array = group.create_array("u", data=sample_array((6, 4, 5)), chunks=(2, 4, 5))
    array.attrs["_ARRAY_DIMENSIONS"] = list(NAMES)
    group.create_array("time", data=np.arange(6)).attrs["_ARRAY_DIMENSIONS"] = ["time"]


@pytest.mark.parametrize("make", [by_scales, by_labels, by_zarr_3, by_tensorstore, by_zarr_2])
def test_names(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "a")
    for axis, name in enumerate(NAMES):
        view = ooc.open(tmp_path / "a", axis=name)
        assert_array_equal(np.asarray(view), np.moveaxis(sample_array((6, 4, 5)), axis, 0))
    assert view.source.storage().dimensions == NAMES
    with pytest.raises(ArgumentError, match=r"\('time', 'lat', 'lon'\).*got 'level'.*\[file '.*a'"):
        ooc.open(tmp_path / "a", axis="level")


def test_a_list_and_a_glob_by_name(tmp_path: Path) -> None:
    for number in range(3):
        by_scales(tmp_path / f"part{number}.h5")
    view = ooc.open(str(tmp_path / "part*.h5"), "u", axis="lat")
    assert view.shape == (12, 6, 5)


@pytest.mark.parametrize("axis", [0, "time", None])
def test_files_whose_axes_are_in_another_order(tmp_path: Path, axis: Any) -> None:
    """All axes are as long, so only the names tell."""
    paths = [tmp_path / f"{number}.nc" for number in range(2)]
    for path, dims in zip(paths, (("time", "lat", "lon"), ("lat", "time", "lon")), strict=True):
        xarray.Dataset({"u": (dims, sample_array((4, 4, 4)))}).to_netcdf(path)
    with pytest.raises(MismatchedPartsError, match="must have the axis 'lat' at one place"):
        ooc.open(paths, "u", axis=axis)
    if axis == 0:
        by_nobody = tmp_path / "2.h5"
        with h5py.File(by_nobody, "w") as file:
            file["u"] = sample_array((4, 4, 4))
        named, unnamed, other = (ooc.open(path, "u") for path in (paths[0], by_nobody, paths[1]))
        windows = [ooc.zip(view.windows(1)) for view in (named, other)]
        for join, parts in (
            (ooc.open, [view.source for view in (named, unnamed, other)]),
            (ooc.concat, [named, unnamed, other]),
            (ooc.concat, windows),
            (ooc.mix, {named: 1, other: 1}),
        ):
            with pytest.raises(MismatchedPartsError, match="must have the axis 'lat' at one place"):
                join(parts)
    # By their names, rows and elements go together.
    named, other = (ooc.open(path, "u", axis="time") for path in paths)
    assert_array_equal(ooc.concat(named, other)[5], sample_array((4, 4, 4))[:, 1])


@pytest.mark.parametrize("axis", [0, None])
def test_files_whose_latitude_runs_the_other_way(
    tmp_path: Path, axis: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`xarray.open_mfdataset` aligns such files by their coordinates."""
    paths, dims = [tmp_path / f"{number}.nc" for number in range(5)], ("time", "lat", "lon")
    north, coordinates = sample_array((3, 4, 2), "f4"), {"lat": np.arange(4), "lon": [7.0, 8.0]}
    whole = xarray.Dataset({"u": (dims, north)}, coordinates)
    for path, part in zip(
        paths, (whole, whole.assign_coords(lat=whole.lat * 2), whole.drop_vars("lat"), whole,
                whole.assign_coords(lat=[3, 1, 2, 0])),
        strict=True,
    ):  # fmt: skip
        part.to_netcdf(path)
    turned = tmp_path / "turned.nc"
    whole.isel(lat=slice(None, None, -1)).to_netcdf(turned)
    for decode in (False, True):
        assert ooc.open(paths, "u", axis=axis, decode=decode).nbytes == 5 * north.nbytes
        with pytest.raises(MismatchedPartsError, match=r"'lat'.*; it rises in .*0\.nc', and falls"):
            ooc.open([*paths, turned], "u", axis=axis, decode=decode)
    if axis == 0:
        views = ooc.open(paths[0], "u"), ooc.open(turned, "u")[:, ::-1]
        assert_array_equal(np.asarray(ooc.concat(*views)), np.concatenate([north, north]))
        assert len(ooc.open([paths[0], turned], "u", axis="lat")) == 8
    monkeypatch.setattr(description, "_MOST_PLACES", 3)  # longer ones are not read on opening
    assert ooc.open([*paths, turned], "u", axis=axis).nbytes == 6 * north.nbytes


def test_rows_along_unlike_numbers_of_axes() -> None:
    runs, days, turned, others = (
        ooc.open(xarray.DataArray(np.zeros((3,) * len(dims)), dims=dims), axis=axis)
        for dims, axis in (
            (("run", "time", "lat", "lon"), (0, 1)), (("time", "lat", "lon"), 0),
            (("time", "lon", "lat"), 0), (("run", "time", "lon"), 0),
        )
    )  # fmt: skip
    assert len(ooc.concat(runs, days)) == 12
    for other, name in ((turned, "lat"), (others, "time")):
        for first in (runs, days):
            with pytest.raises(MismatchedPartsError, match=f"have the axis '{name}' at one place"):
                ooc.concat(first, other)


def test_sample_axes_in_another_order(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.nc" for number in range(2)]
    for path, dims in zip(paths, (("time", "z", "x"), ("z", "time", "x")), strict=True):
        xarray.Dataset({"u": (dims, sample_array((4, 4, 5)))}).to_netcdf(path)
    one, other = (ooc.open(path, "u", axis=(0, 1)) for path in paths)
    for parts in ((one, ooc.open(np.arange(16)), other), (one.windows(2), other.windows(2))):
        with pytest.raises(MismatchedPartsError, match="must have the axis 'time' at one place"):
            ooc.zip(*parts)
    other = ooc.open(paths[1], "u", axis=("time", "z"))
    assert_array_equal(ooc.zip(one, other)[6][1], sample_array((4, 4, 5))[2, 1])


def test_some_axes_without_a_name(tmp_path: Path) -> None:
    path = tmp_path / "a.zarr"
    zarr.create_array(path, shape=(4, 3), dtype="f4", dimension_names=("time", None))[:] = 1
    assert ooc.open(path, axis="time").shape == (4, 3)
    with pytest.raises(ArgumentError, match=r"\('time', ''\)"):
        ooc.open(path, axis="x")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["u"] = np.zeros((4, 3))
        file["u"].dims[1].label = "x"
    assert ooc.open(tmp_path / "a.h5", axis="x").shape == (3, 4)


def test_a_name_that_two_axes_have(tmp_path: Path) -> None:
    path = tmp_path / "a.zarr"
    zarr.create_array(path, shape=(4, 4), dtype="f4", dimension_names=("x", "x"))[:] = 1
    with pytest.raises(ArgumentError, match="got 'x', which several axes have"):
        ooc.open(path, axis="x")
    assert ooc.open(path, axis=1).shape == (4, 4)


@pytest.mark.parametrize("kind", ["npy", "hdf5", "zarr", "memory", "object"])
def test_no_names(tmp_path: Path, kind: str) -> None:
    array, target = sample_array((4, 3)), tmp_path / "a"
    if kind == "npy":
        np.save(tmp_path / "a.npy", array)
        target = tmp_path / "a.npy"
    elif kind == "hdf5":
        with h5py.File(target, "w") as file:
            file["u"] = array
    elif kind == "zarr":
        zarr.create_array(target, data=array)
    source = {"memory": array, "object": zarr.create_array({}, data=array)}.get(kind, target)
    with pytest.raises(
        ArgumentError, match=r"no dimension names; got 'time'\. Its axes are 0 to 1"
    ):
        ooc.open(source, axis="time")


def test_a_variable_named_as_its_dimension_with_several_axes(tmp_path: Path) -> None:
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        for name, length in (("time", 3), ("nv", 2)):
            file.createDimension(name, length)
        file.createVariable("time", "f8", ("time", "nv"))[:] = 0
        group = file.createGroup("g")
        group.createDimension("z", 4)
        group.createVariable("z", "f8", ("z", "time"))[:] = 0
    assert ooc.open(tmp_path / "a.nc", "time", axis="nv").names == ("nv", "time")
    assert ooc.open(tmp_path / "a.nc", "g/z").names == ("z", "time")


@pytest.mark.parametrize("group", ["", "/runs/one"])
def test_a_variable_named_as_a_dimension_of_others(tmp_path: Path, group: str) -> None:
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("time", 3)
        inner = file.createGroup(group) if group else file
        inner.createDimension("lat", 4)
        inner.createVariable("lat", "i4", ("time",), zlib=True)[:] = np.arange(3)
        inner.createVariable("u", "i4", ("time", "lat"))[:] = 7
    with h5py.File(tmp_path / "a.nc") as file:
        assert f"{group}/_nc4_non_coord_lat" in file  # as netCDF-C stores it
        for key in (f"{group}/lat", f"{group}/l*", f"{group}/_nc4_non_coord_lat"):
            view = ooc.open(tmp_path / "a.nc", key)
            assert_array_equal(np.asarray(view), [0, 1, 2])
            assert view.storage.dimensions == ("time",)
            assert_array_equal(from_json(as_json(view.batches(2))).batch(1), [2])
    assert list_datasets(str(tmp_path / "a.nc")) == [f"{group}/lat", f"{group}/u"]
    assert ooc.open(tmp_path / "a.nc", f"{group}/u").storage.dimensions == ("time", "lat")


def test_a_scale_far_above_its_variable(tmp_path: Path) -> None:
    """As many groups as there may be, not as many as Python calls may be nested."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        made = file.create_dataset(f"{'g/' * 300}u", data=np.zeros((4, 3)))
        file["time"] = np.arange(4)
        file["time"].make_scale("time")
        made.dims[0].attach_scale(file["time"])
        key = made.name
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 200)
    try:
        dimensions = open_source(str(tmp_path / "a.h5"), key).storage().dimensions
    finally:
        sys.setrecursionlimit(limit)
    assert dimensions == ("time", "")


def test_a_scale_that_was_deleted(tmp_path: Path) -> None:
    by_scales(tmp_path / "a.h5")
    with h5py.File(tmp_path / "a.h5", "a") as file:
        del file["lat"]
    view = ooc.open(tmp_path / "a.h5", "u", axis="lon")
    assert view.source.storage().dimensions[::2] == ("time", "lon")


@pytest.mark.parametrize("names", [["time"], "time", [], [None, None, None], None])
def test_names_that_do_not_fit(tmp_path: Path, names: Any) -> None:
    by_zarr_2(tmp_path / "a")
    zarr.open_group(tmp_path / "a")["u"].attrs["_ARRAY_DIMENSIONS"] = names
    with pytest.raises(ArgumentError, match="no dimension names"):
        ooc.open(tmp_path / "a", "u", axis="time")


def test_damaged_attributes_are_no_reason_not_to_read(tmp_path: Path) -> None:
    by_zarr_2(tmp_path / "a")
    (tmp_path / "a/u/.zattrs").write_text("{")
    assert ooc.open(tmp_path / "a", "u").shape == (6, 4, 5)
    with pytest.raises(ArgumentError, match="no dimension names"):
        ooc.open(tmp_path / "a", "u", axis="lat")


def test_a_group_of_zarr_with_text_and_a_damaged_array(tmp_path: Path) -> None:
    group = zarr.create_group(tmp_path / "a")
    group.create_array("u", data=np.zeros((4, 3)))
    group.create_array("count", shape=(), dtype="i4")[...] = 3
    group.create_array("bad", data=np.zeros(3))
    assert list_datasets(str(tmp_path / "a")) == ["bad", "count", "u"]
    with pytest.raises(SeveralDatasetsError, match="'bad', 'u'"):
        ooc.open(tmp_path / "a")
    metadata = tmp_path / "a/bad/zarr.json"
    metadata.write_text(metadata.read_text().replace("regular", "irregular"))
    with pytest.raises(SeveralDatasetsError, match="'bad', 'u'"):
        ooc.open(tmp_path / "a")


def array(*dimensions: str, coordinates: str = "") -> Array:
    return Array((3,) * len(dimensions), np.dtype("f4"), dimensions, {"coordinates": coordinates})


@pytest.mark.parametrize(
    ("arrays", "data"),
    [
        ({"u": array("t", "x"), "t": array("t"), "x": array("x")}, ["u"]),
        ({"g/u": array("t"), "g/t": array("t"), "t": array("t")}, ["g/u"]),
        ({"u": array("t", coordinates="g/lat"), "lat": array("t")}, ["u", "lat"]),
        ({"/g/u": array("t", coordinates="lat"), "/g/lat": array("t")}, ["/g/u"]),
        ({"t": array("t"), "x": array("x")}, ["t", "x"]),
        ({"t": array("t"), "linked": None}, ["linked"]),
        ({"t": array("t", "t")}, ["t"]),
        ({}, []),
    ],
)
def test_which_arrays_are_data(arrays: dict[str, Array | None], data: list[str]) -> None:
    assert data_variables(arrays) == data


def test_an_attribute_that_is_bytes() -> None:
    u = Array((3,), np.dtype("f4"), attributes={"coordinates": b"lat lon", "bounds": 3})
    assert data_variables({"u": u, "lat": array("t"), "lon": array("t")}) == ["u"]


def test_an_error_of_a_damaged_file_stays_clear(weather: str) -> None:
    whole = Path(weather).read_bytes()
    Path(weather).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(SourceError):
        ooc.open(weather)
