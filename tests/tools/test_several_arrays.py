"""The code that `info` prints for arrays of the same rows, against NumPy, h5py and xarray."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr
from numpy.testing import assert_array_equal
from test_layouts import digest, elements
from typer.testing import CliRunner

import oocdata as ooc
from oocdata.cli import app
from oocdata.tools.info import Contents, contents
from oocdata.tools.opening import Opening

RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.integers(0, 255, (60, 8, 7), "u1")
LABELS = np.arange(60, dtype="i8") % 10


def run(found: Contents) -> dict[str, Any]:
    """Run the printed code; return its variables."""
    assert found.layout is not None
    assert all(line in str(found) for line in found.layout.code)
    names: dict[str, Any] = {}
    exec("\n".join(found.layout.code), names)
    return names


def counted(parts: Any) -> Counter[bytes]:
    return Counter(digest(element) for part in parts for element in elements(part))


def digests(rows: Any) -> Counter[bytes]:
    return Counter(map(digest, rows))


def test_one_array_besides_coordinates(tmp_path: Path) -> None:
    """The usual netCDF file: a variable with the coordinates of its axes."""
    values = RANDOM.random((30, 4, 5))
    axes = {"time": np.arange(30), "lat": np.arange(4.0), "lon": np.arange(5.0)}
    field = xr.DataArray(values, axes, list(axes))
    xr.Dataset({"t2m": field}).to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    found = contents(str(tmp_path / "a.nc"))
    assert str(found).startswith("One array besides coordinates: /t2m\n")
    ran = run(found)
    assert_array_equal(ran["frames"].read_all(), values)
    assert_array_equal(ran["x"], ran["loader"].batch(0)[0])
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["clips"] = np.zeros((30, 2))
        file["other"] = np.zeros((20, 2))
    assert contents(str(tmp_path / "a.h5")).layout is None


def test_the_training_part_of_a_split(tmp_path: Path) -> None:
    parts = {"x_train": IMAGES[:50], "y_train": LABELS[:50], "x_test": IMAGES[50:]}
    np.savez(tmp_path / "a.npz", **parts, y_test=LABELS[50:])
    ran = run(contents(tmp_path / "a.npz"))
    rows = counted([ran["train"], ran["val"]])
    assert rows == digests(zip(IMAGES[:50], LABELS[:50], strict=True))
    assert counted([ran["test"]]) == digests(zip(IMAGES[50:], LABELS[50:], strict=True))


def test_all_parts_of_a_split(tmp_path: Path) -> None:
    parts = {"train": slice(40), "val": slice(40, 45), "test": slice(45, 60)}
    arrays = {f"{name}_images": IMAGES[rows] for name, rows in parts.items()}
    labels = {f"{name}_labels": LABELS[rows, None] for name, rows in parts.items()}
    np.savez(tmp_path / "a.npz", **arrays, **labels)
    ran = run(contents(tmp_path / "a.npz"))
    for name, rows in parts.items():
        expected = digests(zip(IMAGES[rows], LABELS[rows, None], strict=True))
        assert counted([ran[name]]) == expected
    # Of two pairs of as many rows it is not known which belong together.
    arrays["test_images"], labels["test_labels"] = IMAGES[45:50], LABELS[45:50, None]
    np.savez(tmp_path / "b.npz", **arrays, **labels)
    assert {"train", "val", "test"} - {*run(contents(tmp_path / "b.npz"))} == {"test"}


def test_a_pair_of_the_same_rows(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["a_label"], file["image"] = LABELS, IMAGES
        file["mean"], file["name"], file["count"] = IMAGES.mean(0), ["a"] * 60, 60
    found = contents(tmp_path / "a.h5")
    assert str(found).startswith("Arrays of the same rows: 2 arrays, 60 rows\n")
    ran = run(found)
    expected = digests(zip(IMAGES, LABELS, strict=True))
    assert counted([ran["train"], ran["val"]]) == expected
    # The command prints the same, and its JSON is valid.
    printed = CliRunner().invoke(app, ["info", str(tmp_path / "a.h5")]).output
    assert "ooc.zip(ooc.open(path, 'image'), ooc.open(path, 'a_label'))" in printed
    encoded = CliRunner().invoke(app, ["info", str(tmp_path / "a.h5"), "--json"]).output
    assert len(json.loads(encoded)["datasets"]) == 5


@pytest.mark.parametrize("kind", ["npz", "h5"])
def test_more_arrays_of_the_same_rows(tmp_path: Path, kind: str) -> None:
    arrays = {"a": IMAGES, "b": LABELS, "c": RANDOM.normal(size=(60, 3))}
    if kind == "npz":
        np.savez(tmp_path / "a.npz", **arrays)
    else:
        with h5py.File(tmp_path / "a.h5", "w") as file:
            for name, array in arrays.items():
                file[f"group/{name}"] = array
    prefix = "" if kind == "npz" else "group/"
    ran = run(contents(tmp_path / f"a.{kind}"))
    expected = digests({prefix + n: array[row] for n, array in arrays.items()} for row in range(60))
    assert counted([ran["train"], ran["val"]]) == expected


def weather(path: Path, names: str, *, packed: bool = False, level: bool = False) -> xr.Dataset:
    """Write variables over time, lat and lon; return what xarray reads."""
    shape, dims = (40, 5, 6), ("time", "lat", "lon")
    variables: dict[str, Any] = {
        name: (dims, RANDOM.normal(size=shape).astype("f4")) for name in names.split()
    }
    if level:
        variables["z"] = (("time", "level", *dims[1:]), RANDOM.normal(size=(40, 2, 5, 6)))
    times = np.datetime64("2020-01-01", "ns") + np.arange(40) * np.timedelta64(1, "h")
    coordinates = {"time": times, "lat": np.arange(5.0), "lon": np.arange(6.0)}
    encoding = {"dtype": "i2", "scale_factor": 0.01, "_FillValue": -999} if packed else {}
    xr.Dataset(variables, coordinates).to_netcdf(
        path, engine="h5netcdf", encoding=dict.fromkeys(names.split(), encoding)
    )
    return xr.load_dataset(path, engine="h5netcdf")


@pytest.mark.parametrize("packed", [False, True])
def test_variables_over_time(tmp_path: Path, packed: bool) -> None:
    read = weather(tmp_path / "a.nc", "u10 v10", packed=packed)
    found = contents(tmp_path / "a.nc")
    assert ("decode=True" in str(found.layout)) == packed
    ran = run(found)
    expected = digests(zip(read["u10"].values, read["v10"].values, strict=True))
    assert counted([ran["train"], ran["val"]]) == expected


def test_times_beside_variables_are_not_decoded(tmp_path: Path) -> None:
    """Climate models write when each average began, in calendars that have no dates here."""
    read = weather(tmp_path / "a.nc", "t2m u10", packed=True)
    with h5py.File(tmp_path / "a.nc", "r+") as file:
        began = file.create_dataset("average_T1", data=np.arange(40.0))
        began.dims[0].attach_scale(file["time"])
        began.attrs.update(units="days since 1850-01-01", calendar="noleap")
    ran = run(contents(tmp_path / "a.nc"))
    expected = digests(zip(read["t2m"].values, read["u10"].values, strict=True))
    assert counted([ran["train"], ran["val"]]) == expected


def test_variables_of_other_shapes_over_time(tmp_path: Path) -> None:
    read = weather(tmp_path / "a.nc", "t2m u10", level=True)
    ran = run(contents(tmp_path / "a.nc"))
    expected = digests(
        {name: read[name].values[row] for name in ("t2m", "u10", "z")} for row in range(40)
    )
    assert counted([ran["train"], ran["val"]]) == expected


def test_no_code_without_common_rows(tmp_path: Path) -> None:
    for arrays in (
        {"x": np.zeros((3, 4)), "y": np.zeros(3)},  # too few to be sure
        {"x": np.zeros((30, 4)), "y": np.zeros(29)},
        {"x_train": np.zeros((30, 4)), "x_test": np.zeros((9, 4)), "y_test": np.zeros(8)},
    ):
        np.savez(tmp_path / "a.npz", **arrays)
        assert contents(tmp_path / "a.npz").layout is None
    np.savez(tmp_path / "a.npz", x=np.zeros((30, 4)), y=np.zeros(30))
    assert contents(Opening.of(tmp_path / "a.npz", axis=1)).layout is None
    with h5py.File(tmp_path / "a.h5", "w") as file:  # both axes are as long, but not the same
        for name, dimensions in {"u": ("time", "x"), "v": ("station", "x")}.items():
            file[name] = np.zeros((9, 4))
            for at, dimension in enumerate(dimensions):
                file[name].dims[at].label = dimension
    assert contents(tmp_path / "a.h5").layout is None
    assert ooc.open(tmp_path / "a.npz", "x").shape == (30, 4)
