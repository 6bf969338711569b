"""The code that `info` prints for arrays of the same rows, against NumPy, h5py and xarray."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr
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


SPLIT_NAMES = [
    ("x_train", "y_train", "x_test", "y_test"),
    ("train_images", "train_labels", "test_images", "test_labels"),
    ("X_train", "Y_train", "X_valid", "Y_valid"),
]


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("names", SPLIT_NAMES)
def test_parts_of_a_split_in_npz(
    tmp_path: Path, save: Callable[..., None], names: tuple[str, ...]
) -> None:
    arrays = (IMAGES[:50], LABELS[:50], IMAGES[50:], LABELS[50:])
    save(tmp_path / "a.npz", **dict(zip(names, arrays, strict=True)))
    found = contents(tmp_path / "a.npz")
    other = "val" if "valid" in names[2] else "test"
    assert str(found).startswith(f"Parts of a split: train of 50 rows, {other} of 10 rows\n")
    ran = run(found)
    assert counted([ran["train"]]) == digests(zip(IMAGES[:50], LABELS[:50], strict=True))
    assert counted([ran[other]]) == digests(zip(IMAGES[50:], LABELS[50:], strict=True))
    assert ran["x"].shape == (32, 8, 7)


def test_parts_of_a_split_in_groups(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for part, rows in {"train": slice(40), "val": slice(40, 50), "test": slice(50, 60)}.items():
            file[f"{part}/image"], file[f"{part}/label"] = IMAGES[rows], LABELS[rows]
            file[f"{part}/weight"] = LABELS[rows] / 2
    ran = run(contents(tmp_path / "a.h5"))
    for part, rows in {"train": slice(40), "val": slice(40, 50), "test": slice(50, 60)}.items():
        expected = digests(
            {
                f"{part}/image": IMAGES[row],
                f"{part}/label": LABELS[row],
                f"{part}/weight": LABELS[row] / 2,
            }
            for row in range(60)[rows]
        )
        assert counted([ran[part]]) == expected


def test_a_pair_of_the_same_rows(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["a_label"], file["image"] = LABELS, IMAGES
        file["mean"], file["name"], file["count"] = IMAGES.mean(0), ["a"] * 60, 60
    found = contents(tmp_path / "a.h5")
    assert str(found).startswith("Arrays of the same rows: a_label, image, 60 rows\n")
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
@pytest.mark.parametrize("names", ["t2m u10 v10", "u10 v10"])
def test_variables_over_time_are_channels(tmp_path: Path, packed: bool, names: str) -> None:
    read = weather(tmp_path / "a.nc", names, packed=packed)
    found = contents(tmp_path / "a.nc")
    assert ("decode=True" in str(found.layout)) == packed
    ran = run(found)
    rows = np.stack([read[name].values for name in names.split()], -1)
    assert counted([ran["pairs"]]) == digests(pairwise(rows))
    parts = counted([ran["train"], ran["val"]])
    assert not parts - digests(pairwise(rows))
    assert sum(parts.values()) == 36 + 2  # a gap of a row, and none is shared


def test_times_beside_variables_are_not_decoded(tmp_path: Path) -> None:
    """Climate models write when each average began, in calendars that have no dates here."""
    read = weather(tmp_path / "a.nc", "t2m u10", packed=True)
    with h5py.File(tmp_path / "a.nc", "r+") as file:
        began = file.create_dataset("average_T1", data=np.arange(40.0))
        began.dims[0].attach_scale(file["time"])
        began.attrs.update(units="days since 1850-01-01", calendar="noleap")
    ran = run(contents(tmp_path / "a.nc"))
    rows = np.stack([read[name].values for name in ("t2m", "u10")], -1)
    assert counted([ran["pairs"]]) == digests(pairwise(rows))


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


def test_labels_in_the_order_of_their_classes(tmp_path: Path) -> None:
    """The last tenth of the rows would be of one class, which training would hardly see."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["image"], file["label"] = RANDOM.random((60, 8, 7)), np.repeat([4, 0, 7], 20)
    names = run(contents(tmp_path / "a.h5"))
    labels = [[int(y) for _, y in elements(names[part])] for part in ("train", "val")]
    assert [Counter(each) for each in labels] == [{4: 18, 0: 18, 7: 18}, {4: 2, 0: 2, 7: 2}]
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file["image"], file["label"] = RANDOM.random((60, 8, 7)), LABELS
    assert "stratify" not in str(contents(tmp_path / "b.h5"))
