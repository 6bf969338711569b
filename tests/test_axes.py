"""Recognising axes: by the names in the file first, then by lengths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import given
from hypothesis import strategies as st

import oocdata as ooc
from oocdata.axes import axes_of, row_axes
from oocdata.errors import ArgumentError

# Element, letters, the axis of channels, the kind.
LENGTHS: list[tuple[tuple[int, ...], str, int | None, str]] = [
    ((), "", None, "number"),
    ((7,), "C", 0, "table"),
    ((64,), "C", 0, "table"),
    ((65,), "W", None, "curve"),
    ((5000,), "W", None, "curve"),
    ((50, 50), "HW", None, "image"),
    ((8, 8), "HW", None, "image"),
    ((3, 3), "HW", None, "image"),
    ((28, 20), "HW", None, "image"),
    ((3, 50), "CW", 0, "curve"),
    ((12, 1000), "CW", 0, "curve"),
    ((1000, 3), "WC", 1, "curve"),
    ((128, 9), "WC", 1, "curve"),
    ((50, 12), "WC", 1, "curve"),
    ((3, 50, 50), "CHW", 0, "image"),
    ((1, 28, 28), "CHW", 0, "image"),
    ((50, 50, 3), "HWC", 2, "image"),
    ((28, 28, 1), "HWC", 2, "image"),
    ((12, 50, 50), "CHW", 0, "image"),
    ((50, 60, 12), "HWC", 2, "image"),
    ((73, 721, 1440), "CHW", 0, "image"),
    ((40, 64, 64), "DHW", None, "image"),
    ((64, 64, 64), "DHW", None, "image"),
    ((101, 128, 384), "DHW", None, "image"),
    ((384, 384, 49), "DHW", None, "image"),
    ((3, 3, 3), "DHW", None, "image"),
    ((3, 50, 3), "DHW", None, "image"),
    ((2, 8, 3), "CHW", 0, "image"),
    ((3, 8, 2), "HWC", 2, "image"),
    ((1000, 2, 2), "DHW", None, "image"),
    ((8, 3, 50, 50), "TCHW", 1, "image"),
    ((8, 50, 50, 3), "THWC", 3, "image"),
    ((10, 64, 64, 64), "TDHW", None, "image"),
    ((3, 64, 64, 64), "CDHW", 0, "image"),
    ((64, 64, 64, 3), "THWC", 3, "image"),
    ((128, 384, 2, 2), "TDHW", None, "image"),
    ((5, 8, 3, 50, 50), "TDCHW", 2, "image"),
    ((5, 8, 64, 64, 64), "??DHW", None, "image"),
]


@pytest.mark.parametrize(
    ("element", "letters", "channel", "kind"), LENGTHS, ids=lambda one: str(one)
)
def test_axes_by_lengths(
    element: tuple[int, ...], letters: str, channel: int | None, kind: str
) -> None:
    axes = axes_of(element)
    assert (axes.letters, axes.channel, axes.kind) == (letters, channel, kind)
    assert axes.sizes == element


# Element, names, letters, the names in the result.
NAMES: list[tuple[tuple[int, ...], tuple[str | None, ...], str, str]] = [
    ((9, 9), ("lat", "lon"), "HW", "lat 9, lon 9"),
    ((9, 9, 9), ("level", "lat", "lon"), "DHW", "level 9, lat 9, lon 9"),
    ((50, 60, 12), ("lat", "lon", "level"), "HWD", "lat 50, lon 60, level 12"),
    ((50, 60), ("x", "y"), "WH", "x 50, y 60"),
    ((1000, 3), ("time", "channel"), "WC", "time 1000, channel 3"),
    ((50, 50), ("time", "feature"), "WC", "time 50, feature 50"),
    ((50, 90), ("level", "lat"), "HW", "level 50, lat 90"),
    ((50, 90), ("time", "lon"), "HW", "time 50, lon 90"),
    ((9, 9, 9), ("time", "level", "lat"), "THW", "time 9, level 9, lat 9"),
    ((500,), ("channel",), "C", "channel 500"),
    ((7,), ("time",), "W", "time 7"),
    # Names of some axes only.
    ((12, 50, 60), (None, "lat", "lon"), "CHW", "channel 12, lat 50, lon 60"),
    ((137, 50, 60), (None, "lat", "lon"), "DHW", "depth 137, lat 50, lon 60"),
    ((64, 64, 64), ("channel", None, None), "CHW", "channel 64, y 64, x 64"),
    ((8, 3, 50, 50), ("time", None, None, None), "TCHW", "time 8, channel 3, y 50, x 50"),
    # Unknown names are still used as labels, except names that libraries generate.
    ((3, 50, 60), ("kind", "j", "i"), "CHW", "kind 3, j 50, i 60"),
    ((3, 50, 60), ("dim_0", "phony_dim_1", "dim2"), "CHW", "channel 3, y 50, x 60"),
    ((50, 60), ("lat", "lat"), "HW", "lat 50, lat 60"),
    # Not a name for each axis.
    ((50, 60), ("lat",), "HW", "y 50, x 60"),
    ((7,), (), "C", "column 7"),
]


@pytest.mark.parametrize(("element", "names", "letters", "said"), NAMES)
def test_axes_by_names(
    element: tuple[int, ...], names: tuple[str | None, ...], letters: str, said: str
) -> None:
    axes = axes_of(element, names=names)
    assert (axes.letters, str(axes)) == (letters, said)


def test_a_layout_overrides_names_and_lengths() -> None:
    assert axes_of((3, 50, 50), "dhw").letters == "DHW"
    assert axes_of((7,), "W").kind == "curve"
    assert axes_of((500,), "C").kind == "table"
    named = axes_of((9, 9, 9), "CHW", ("level", "lat", "lon"))
    assert (named.letters, str(named)) == ("CHW", "level 9, lat 9, lon 9")


@pytest.mark.parametrize("layout", ["HW", "HWCX", "HHW", "", "nhwc", None])
def test_a_wrong_layout_is_refused(layout: Any) -> None:
    with pytest.raises(ArgumentError, match=r"`layout` must be 'auto' or a letter for each axis"):
        axes_of((3, 50, 50), layout)


@given(st.lists(st.integers(1, 200), max_size=7), st.data())
def test_every_element_has_letters(element: list[int], data: st.DataObject) -> None:
    name = st.sampled_from([None, "time", "lat", "lon", "level", "channel", "j", "member"])
    names = data.draw(st.none() | st.tuples(*[name for _ in element]))
    axes = axes_of(element, names=names)
    known = axes.letters.replace("?", "")
    assert len(axes.letters) == len(axes.names) == len(element)
    assert len(set(known)) == len(known)
    # An image has both H and W, a curve only W.
    assert "W" in known or "H" not in known
    assert axes.kind == "table" or "W" in known or not element


def written(folder: Path, kind: str) -> ooc.View:
    """Return a view of (9, 9, 9) whose axes have names."""
    dims, frames = ("time", "lat", "lon"), np.ones((9, 9, 9), "f4")
    table = xr.Dataset({"u": (dims, frames)}, {name: np.arange(9.0) for name in dims})
    path = folder / "a"
    if kind == "labels":
        with h5py.File(path, "w") as file:
            file["u"] = frames
            for axis, name in enumerate(dims):
                file["u"].dims[axis].label = name
    elif kind == "scales":
        with h5py.File(path, "w") as file:
            file["u"] = frames
            for axis, name in enumerate(dims):
                scale = file.create_dataset(name, data=np.arange(9))
                scale.make_scale(name)
                file["u"].dims[axis].attach_scale(scale)
    elif kind == "netCDF":
        table.to_netcdf(path, engine="h5netcdf")
    elif kind == "xarray":
        return ooc.open(table["u"])
    elif kind == "Zarr array":
        zarr.create_array(path, data=frames, dimension_names=dims)
        return ooc.open(path)
    else:
        table.to_zarr(path, zarr_format=int(kind[-1]), consolidated=False)
    return ooc.open(path, "u")


@pytest.mark.parametrize(
    "kind", ["labels", "scales", "netCDF", "xarray", "Zarr array", "Zarr 2", "Zarr 3"]
)
def test_every_format_keeps_its_names(tmp_path: Path, kind: str) -> None:
    view = written(tmp_path, kind)
    assert str(row_axes(view)) == "lat 9, lon 9"
    assert str(row_axes(view[:, :4, 1:])) == "lat 4, lon 8"
    assert str(row_axes(view[:, 0])) == "lon 9"
    assert row_axes(view).in_time(2).letters == "THW"
