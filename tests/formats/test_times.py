"""Test decoding of CF times into dates, with xarray as the oracle."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
import xarray
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import oocdata as ooc
from oocdata.describe import as_json, from_json
from oocdata.errors import (
    MismatchedPartsError,
    SourceError,
    UnsupportedDtypeError,
)

SINCE = {"units": "days since 2000-01-01"}

CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "hours, i4": (np.arange(1_000_000, 1_000_020, dtype="i4"), {"units": "hours since 1900-01-01"}),
    "days, f8": (np.arange(40000, 40020) + 1 / 3, {"units": "days since 1900-01-01 06:30:00"}),
    "days, f4": (np.arange(20, dtype="f4") / 7, {"units": "days since 2000-1-1 0:0:0.0"}),
    "seconds, i8": (np.arange(20) * 10**8, {"units": "seconds since 1970-01-01T00:00:00Z"}),
    "one second": (np.arange(20), {"units": "second since 1970-01-01 00:00:00 UTC"}),
    "minutes, u2": (np.arange(20, dtype="u2"), {"units": "minutes since 1970-01-01 0:0 +02:00"}),
    "west": (np.arange(20, dtype="i2"), {"units": "hours since 1970-01-01 00:00:00 -5:30"}),
    "microseconds": (np.arange(20) * 7, {"units": "microseconds since 1999-12-31 23:59:59.5"}),
    "nanoseconds": (np.arange(20), {"units": "nanoseconds since 1999-12-31"}),
    "before": (-np.arange(20, dtype="i4"), {**SINCE, "calendar": "gregorian"}),
    "upper case": (np.arange(20), {"units": "Hours since 1970-01-01", "calendar": "STANDARD"}),
    "fill": (
        np.array([1, -9, 3] * 6, "i4"),
        {**SINCE, "_FillValue": np.int32(-9)},
    ),
    "NaN": (np.array([1.5, np.nan, 3] * 6), {**SINCE, "_FillValue": np.nan}),
    "missing": (
        np.array([1.5, -99, 3] * 6), {"units": "hours since 2000-01-01", "missing_value": -99.0}
    ),
    "scaled": (
        np.arange(20, dtype="i2"), {**SINCE, "scale_factor": 0.25}
    ),
    "since year 1": (
        np.arange(17_000_000, 17_000_020) * 1.0, {"units": "hours since 1-1-1 00:00:0.0"}
    ),
    "since year 1, proleptic": (
        np.arange(730_000, 730_020),
        {"units": "days since 0001-01-01", "calendar": "proleptic_gregorian"},
    ),
    "since year 1600": (np.arange(150_000, 150_020), {"units": "days since 1582-10-15"}),
    "fractions since year 1, proleptic": (
        np.arange(730_000, 730_020) + 1 / 3,
        {"units": "days since 0001-01-01", "calendar": "proleptic_gregorian"},
    ),
    "fractions since year 1600": (
        np.arange(150_000, 150_020) + 0.25, {"units": "days since 1600-01-01"}
    ),
    "200 years after 1850": (np.arange(109_573, 109_593) * 1.0, {"units": "days since 1850-01-01"}),
    "noon, 200 years after 1850": (
        np.arange(109_573, 109_593) + 0.5, {"units": "days since 1850-01-01"}
    ),
}  # fmt: skip


def written(path: Path, numbers: np.ndarray, attributes: dict[str, Any], **options: Any) -> None:
    """Write times without netCDF4's own decoding."""
    attributes = dict(attributes)
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("x", len(numbers))
        fill = attributes.pop("_FillValue", None)
        made = file.createVariable("when", numbers.dtype, ("x",), fill_value=fill, **options)
        made.set_auto_maskandscale(False)
        made.setncatts(attributes)
        made[:] = numbers


def shown(path: Path, **options: Any) -> np.ndarray:
    with (
        warnings.catch_warnings(action="ignore"),
        xarray.open_dataset(path, **options) as data,
    ):
        values: np.ndarray = data["when"].values
    return values


def dates(view: ooc.View) -> np.ndarray:
    assert view.dtype == np.int64
    assert_array_equal(np.asarray(view).view(view.unit), np.asarray(view, "M8[ns]"))
    return np.asarray(view, view.unit)


@pytest.mark.parametrize("options", [{}, {"zlib": True, "chunksizes": (7,)}], ids=["plain", "gzip"])
@pytest.mark.parametrize("case", CASES)
def test_netcdf(tmp_path: Path, case: str, options: dict[str, Any]) -> None:
    numbers, attributes = CASES[case]
    written(tmp_path / "a.nc", numbers, attributes, **options)
    expected = shown(tmp_path / "a.nc")
    assert expected.dtype == np.dtype("M8[ns]")
    view = ooc.open(tmp_path / "a.nc", decode=True)
    assert view.unit == "datetime64[ns]"
    assert_array_equal(dates(view), expected)
    assert_array_equal(dates(view[15:2:-3]), expected[15:2:-3])
    assert np.datetime64(int(view[5]), "ns") == expected[5] or np.isnat(expected[5])
    loader = view.batches(4, shuffle=True, seed=1)
    assert_array_equal(from_json(as_json(loader)).batch(1), loader.batch(1))
    assert view.storage.packed == ""
    assert not {"units", "calendar", "_FillValue"} & {
        name for name, value in view.storage.annotations().attributes.items() if value is not None
    }
    raw = ooc.open(tmp_path / "a.nc")
    assert raw.unit == ""
    assert_array_equal(np.asarray(raw), numbers)
    assert attributes["units"] in raw.storage.packed


@pytest.mark.parametrize("version", [2, 3])
def test_zarr(tmp_path: Path, version: int) -> None:
    hours = np.datetime64("1959-01-01", "ns") + np.arange(50) * np.timedelta64(6, "h")
    data = xarray.Dataset({"u": ("time", np.zeros(50)), "when": ("time", hours)}, {"time": hours})
    encoding = {"time": {"units": "hours since 1900-01-01", "dtype": "i8", "chunks": (7,)}}
    path = tmp_path / "a.zarr"
    with warnings.catch_warnings(action="ignore"):
        data.to_zarr(path, zarr_format=version, consolidated=False, encoding=encoding)
    for key in ("time", "when"):
        assert_array_equal(dates(ooc.open(path, key, decode=True)), hours)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_times(tmp_path: Path, data: st.DataObject) -> None:
    unit = data.draw(st.sampled_from(["days", "hours", "minutes", "seconds", "milliseconds"]))
    date = data.draw(
        st.dates(np.datetime64("1700-01-01").item(), np.datetime64("2200-01-01").item())
    )
    calendar = data.draw(st.sampled_from(["standard", "proleptic_gregorian", None]))
    kind = data.draw(st.sampled_from(["i2", "i4", "f4", "f8"]))
    numbers = np.array(
        data.draw(st.lists(st.integers(-15000, 15000), min_size=2, max_size=9)), kind
    ) / (np.array(data.draw(st.integers(1, 24)), kind) if kind[0] == "f" else 1)
    attributes: dict[str, Any] = {"units": f"{unit} since {date}"}
    attributes |= {"calendar": calendar} if calendar else {}
    if data.draw(st.booleans()):
        attributes["_FillValue"] = numbers[0].astype(kind)
    written(tmp_path / "a.nc", numbers.astype(kind), attributes)
    assert_array_equal(dates(ooc.open(tmp_path / "a.nc", decode=True)), shown(tmp_path / "a.nc"))


@pytest.mark.parametrize("attribute", ["bounds", "climatology"])
@pytest.mark.parametrize("form", ["nc", "zarr"])
@pytest.mark.parametrize("coordinate", ["time", "valid_time"])  # of an axis, and auxiliary
def test_bounds_have_the_units_of_their_coordinate(
    tmp_path: Path, form: str, attribute: str, coordinate: str
) -> None:
    paths, expected, name = [], [], f"{coordinate}_bnds"
    for year in (2020, 2021):
        paths.append(tmp_path / f"{year}.{form}")
        days = {"units": f"days since {year}-01-01", attribute: name}
        bounds = np.arange(6.0).reshape(3, 2)
        data = xarray.Dataset(
            {name: (("time", "nv"), bounds), "u": (("time", "nv"), bounds)},
            {coordinate: ("time", np.arange(3), days)},
        )
        if form == "nc":
            data.to_netcdf(paths[-1])
        else:
            data.to_zarr(paths[-1], zarr_format=2, consolidated=False)
        expected.append(np.datetime64(f"{year}-01-01", "ns") + bounds.astype("m8[D]"))
        with xarray.open_dataset(paths[-1], **({} if form == "nc" else ZARR)) as shown_data:
            if attribute == "bounds":  # xarray decodes no climatology
                assert_array_equal(shown_data[name].values, expected[-1])
    view = ooc.open(paths, name, decode=True)
    assert_array_equal(dates(view), np.concatenate(expected))
    assert_array_equal(from_json(as_json(view.batches(4))).batch(1), view.batches(4).batch(1))
    assert_array_equal(dates(ooc.open(paths[1], f"{coordinate}_b*", decode=True)), expected[1])
    assert ooc.open(paths[0], "u", decode=True).unit == ""
    views = [ooc.open(path, name) for path in paths]
    assert views[1].storage.packed == "days since 2021-01-01"
    with pytest.raises(MismatchedPartsError, match=r"days since 2021-01-01.*\. decode=True"):
        ooc.open(paths, f"{coordinate}_b*")
    with pytest.raises(MismatchedPartsError, match="and here is days since 2021-01-01"):
        ooc.concat(views)
    assert_array_equal(ooc.open([paths[0], paths[0]], name), np.tile(bounds, (2, 1)))


ZARR: dict[str, Any] = {"engine": "zarr", "consolidated": False}


def test_parts_that_count_from_other_dates(tmp_path: Path) -> None:
    paths = [tmp_path / f"{year}.nc" for year in (2020, 2021)]
    for path in paths:
        written(path, np.arange(5), {"units": f"days since {path.stem}-01-01"})
    expected = np.concatenate([shown(path) for path in paths])
    both = ooc.open(paths, decode=True)
    assert_array_equal(dates(both), expected)
    rows = ooc.open(np.zeros((10, 2)))
    train, val = rows.split_at("2021", coordinate=both)
    assert (len(train), len(val)) == (5, 5)
    with pytest.raises(MismatchedPartsError, match=r"days since 2021-01-01\. decode=True"):
        ooc.open(paths)
    plain = tmp_path / "plain.nc"
    written(plain, np.arange(5), {})
    with pytest.raises(MismatchedPartsError, match="here is none packed"):
        ooc.open([paths[0], plain], decode=True)


@pytest.mark.parametrize("shape", [(5,), (5, 2)], ids=str)
@pytest.mark.parametrize("options", [{}, {"chunks": True, "compression": "gzip"}], ids=str)
def test_datasets_of_a_file_that_count_from_other_dates(
    tmp_path: Path, shape: tuple[int, ...], options: dict[str, Any]
) -> None:
    numbers = np.arange(np.prod(shape)).reshape(shape)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for year in (2020, 2021, 2022):
            made = file.create_dataset(f"{year}/when", data=numbers, **options)
            made.attrs["units"] = f"days since {year}-01-01"
    days = numbers.astype("m8[D]")
    expected = [np.datetime64(f"{year}-01-01") + days for year in (2020, 2021, 2022)]
    found = ooc.open(tmp_path / "a.h5", "*/when", decode=True)
    assert_array_equal(dates(found), np.concatenate(expected))
    with h5py.File(tmp_path / "a.h5") as file:
        objects = [file["2020/when"], file["2021/when"]]
        for target, key in ((tmp_path / "a.h5", "*/when"), (objects, None)):
            with pytest.raises(MismatchedPartsError, match=r"days since 2021-01-01\. decode=True"):
                ooc.open(target, key)


def test_dates_of_unlike_units_are_no_one_array(tmp_path: Path) -> None:
    for unit in ("s", "ns"):
        np.save(tmp_path / f"{unit}.npy", np.array(["2020-01-01"], f"M8[{unit}]"))
    with pytest.raises(MismatchedPartsError, match=r"has datetime64\[s\], and here is .*\[ns\]"):
        ooc.open([tmp_path / "s.npy", tmp_path / "ns.npy"])


@pytest.mark.parametrize("calendar", ["noleap", "360_day", "365_day", "julian", "all_leap"])
def test_calendars_with_other_days(tmp_path: Path, calendar: str) -> None:
    written(tmp_path / "a.nc", np.arange(5), {**SINCE, "calendar": calendar})
    with pytest.raises(
        UnsupportedDtypeError, match=f"in '{calendar}', which has other days"
    ) as got:
        ooc.open(tmp_path / "a.nc", decode=True)
    assert got.value.key == "/when"
    assert_array_equal(np.asarray(ooc.open(tmp_path / "a.nc")), np.arange(5))


@pytest.mark.parametrize(
    "units",
    [
        "months since 2000-01-01",
        "days since then",
        "days since 2000-02-30",
        "days since 2000-13-01",
    ],
)
def test_units_that_are_none(tmp_path: Path, units: str) -> None:
    written(tmp_path / "a.nc", np.arange(5), {"units": units})
    with pytest.raises(UnsupportedDtypeError, match="number of days, hours, minutes or seconds"):
        ooc.open(tmp_path / "a.nc", decode=True)


@pytest.mark.parametrize("numbers", [[0, 400 * 366], [0.0, -400 * 366.0], [0.0, np.inf]])
def test_dates_that_datetime64_has_not(tmp_path: Path, numbers: list[Any]) -> None:
    written(tmp_path / "a.nc", np.array(numbers), SINCE)
    view = ooc.open(tmp_path / "a.nc", decode=True)
    assert view[0] == np.datetime64("2000-01-01", "ns").astype(int)
    with pytest.raises(SourceError, match="years 1678 to 2262") as caught:
        view.take([0, 1])
    assert (caught.value.path, caught.value.rows) == (str(tmp_path / "a.nc"), (0, 1))
    assert str(caught.value.key).strip("/") == "when"


@pytest.mark.parametrize("resolution", ["ns", "s"])
@pytest.mark.parametrize("kind", ["i4", "f8"])
def test_durations(tmp_path: Path, kind: str, resolution: str) -> None:
    """Durations have no date, but the dtype that xarray wrote."""
    attributes = {"units": "hours", "dtype": f"timedelta64[{resolution}]", "_FillValue": -9}
    written(tmp_path / "a.nc", np.array([0, 6, -9, 18], kind), attributes)
    view = ooc.open(tmp_path / "a.nc", decode=True)
    assert view.unit == "timedelta64[ns]"
    assert_array_equal(np.asarray(view).view(view.unit), shown(tmp_path / "a.nc"))
    assert "hours, timedelta64" in ooc.open(tmp_path / "a.nc").storage.packed


def test_whole_seconds_stay_whole(tmp_path: Path) -> None:
    """In nanoseconds float64 has not all of them; xarray rounds to multiples of 1,024."""
    numbers = 5_364_662_401 + np.arange(20)
    written(tmp_path / "a.nc", numbers.astype("f8"), {"units": "seconds since 1850-01-01"})
    expected = np.datetime64("1850-01-01", "ns") + numbers.astype("m8[s]")
    assert_array_equal(dates(ooc.open(tmp_path / "a.nc", decode=True)), expected)


def test_a_coordinate_of_xarray(tmp_path: Path) -> None:
    written(tmp_path / "a.nc", np.arange(5), SINCE)
    with xarray.open_dataset(tmp_path / "a.nc") as data:
        expected = data["when"].values
        assert_array_equal(dates(ooc.open(data["when"].load())), expected)


@pytest.mark.parametrize("name", ["units", "calendar", "scale_factor"])
def test_attributes_that_cannot_be_read(tmp_path: Path, name: str) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        made = file.create_dataset("u", data=np.arange(3))
        kind, space = h5py.h5t.UNIX_D32LE, h5py.h5s.create(h5py.h5s.SCALAR)
        h5py.h5a.create(made.id, name.encode(), kind, space)
        with pytest.raises(TypeError):
            made.attrs[name]
    for decode in (False, True):
        view = ooc.open(tmp_path / "a.h5", decode=decode)
        assert_array_equal(np.asarray(view), np.arange(3))
        assert view.storage.annotations().attributes == {name: None}
