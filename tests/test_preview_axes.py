"""Which axis is which, and which places of each are shown."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

import oocdata as ooc
from oocdata.errors import ArgumentError
from oocdata.tools.preview import preview
from oocdata.tools.preview.axes import axes_of
from oocdata.tools.preview.names import names_in_file
from oocdata.tools.preview.parts import Part, canonical, spread, thinned

READINGS = [
    ((), "", True),
    ((100,), "W", True),
    ((50, 50), "HW", True),
    ((3, 50), "CW", False),
    ((1000, 3), "WC", False),
    ((3, 3), "HW", True),
    ((3, 50, 50), "CHW", True),
    ((1, 28, 28), "CHW", True),
    ((50, 50, 3), "HWC", True),
    ((28, 28, 1), "HWC", True),
    ((12, 50, 50), "CHW", False),
    ((50, 60, 12), "HWC", False),
    ((64, 64, 64), "DHW", True),
    ((40, 64, 64), "DHW", True),
    ((3, 3, 3), "CHW", False),
    ((3, 50, 3), "CHW", False),
    ((2, 8, 2), "CHW", False),
    ((2, 8, 3), "CHW", False),
    ((3, 8, 2), "HWC", False),
    ((8, 3, 50, 50), "TCHW", True),
    ((8, 50, 50, 3), "THWC", True),
    ((10, 64, 64, 64), "TDHW", True),
    ((5, 8, 3, 50, 50), "TDCHW", True),
]


@pytest.mark.parametrize(("element", "letters", "certain"), READINGS)
def test_lengths_say_which_axis_is_which(
    element: tuple[int, ...], letters: str, certain: bool
) -> None:
    axes = axes_of(element)
    assert (axes.letters, axes.certain, axes.sizes) == (letters, certain, element)


@given(st.lists(st.integers(1, 200), max_size=7))
def test_every_shape_has_a_reading_or_a_clear_error(element: list[int]) -> None:
    try:
        axes = axes_of(element)
    except ArgumentError as error:
        assert len(element) > 4
        assert str(tuple(element)) in str(error)  # noqa: PT017
        return
    assert len(axes.letters) == len(set(axes.letters)) == len(element)
    assert ("W" in axes.letters) == bool(element)
    if np.prod(element) < 10**4:
        moved = canonical(np.zeros((2, *element)), axes.letters)
        assert moved.shape[2:] == (axes.size("C"), axes.size("H"), axes.size("W"))


@pytest.mark.parametrize("layout", ["HW", "HWCX", "HHW", "CHD", "", "nhwc"])
def test_a_wrong_layout_is_refused(layout: str) -> None:
    with pytest.raises(ArgumentError, match=r"`layout` must be 'auto' or a letter for each axis"):
        axes_of((3, 50, 50), layout)


def test_a_layout_and_names_win_over_lengths() -> None:
    assert axes_of((3, 50, 50), "dhw").letters == "DHW"
    named = axes_of((50, 60, 12), names=("lat", "lon", "level"))
    assert (named.letters, str(named), named.certain) == ("HWD", "lat 50, lon 60, level 12", True)
    # Names that say nothing still label.
    other = axes_of((3, 50, 60), names=("kind", "j", "i"))
    assert (other.letters, other.names) == ("CHW", ("kind", "j", "i"))


LETTERS = st.sampled_from(["HW", "CHW", "HWC", "DHW", "TCHW", "WC", "CW", "W", "HWTDC", "THWC"])


@given(LETTERS, st.data())
def test_the_order_of_axes_is_that_of_einsum(letters: str, data: st.DataObject) -> None:
    sizes = tuple(data.draw(st.integers(1, 4)) for _ in letters)
    array = np.arange(2 * np.prod(sizes)).reshape(2, *sizes).astype(float)
    kept = "".join(letter for letter in "TDCHW" if letter in letters)
    size = dict(zip(letters, sizes, strict=True))
    t, d, c, h, w = (size.get(letter, 1) for letter in "TDCHW")
    expected = np.einsum(f"n{letters}->n{kept}".lower(), array).reshape(2, t * d, c, h, w)
    assert np.array_equal(canonical(array, letters), expected)


@given(st.integers(1, 300), st.integers(1, 20))
def test_slices_are_spread_evenly(length: int, count: int) -> None:
    places = spread(length, count)
    assert len(places) == min(length, count)
    assert places[0] >= 0
    assert places[-1] < length
    if count < length:
        assert abs(places[0] - (length - 1 - places[-1])) <= places.step


def test_channels_are_the_first_or_those_named() -> None:
    axes = axes_of((12, 50, 50))
    usual = Part.of("", axes, np.dtype("f4"), None, 8)
    assert list(usual.of_letter("C")) == list(range(8))
    assert usual.left_out() == ["channel: 8 of 12 shown (0 to 7)"]
    named = Part.of("", axes, np.dtype("f4"), (11, -3), 8)
    assert list(named.of_letter("C")) == [11, 9]
    with pytest.raises(ArgumentError, match=r"`channel` must be below 12; got \[12\]"):
        Part.of("", axes, np.dtype("f4"), (12,), 8)
    with pytest.raises(ArgumentError, match="no channel axis"):
        Part.of("", axes_of((50, 50)), np.dtype("f4"), (0,), 8)


def test_lines_that_are_left_out_are_told() -> None:
    part = thinned(Part.of("", axes_of((100, 90)), np.dtype("f4"), None, 8), 4)
    assert part.left_out() == ["y: 1 in 4 shown", "x: 1 in 4 shown"]


def test_names_and_units_come_from_the_file(tmp_path: Path) -> None:
    frames = np.ones((4, 20, 30), "f4")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        u = file.create_dataset("u", data=frames)
        u.attrs["units"] = "m s-1"
        for axis, name in enumerate(("time", "lat", "lon")):
            scale = file.create_dataset(name, data=np.arange(frames.shape[axis]))
            scale.make_scale(name)
            u.dims[axis].attach_scale(scale)
    made = zarr.create_array(
        tmp_path / "a.zarr", data=frames, dimension_names=["time", "level", "lon"]
    )
    made.attrs["units"] = "K"
    np.save(tmp_path / "a.npy", frames)

    h5 = names_in_file(ooc.open(tmp_path / "a.h5", "u"))
    assert (h5.axes, h5.unit) == (("lat", "lon"), "m s-1")
    turned = names_in_file(ooc.open(tmp_path / "a.h5", "u", axis=2))
    assert turned.axes == ("time", "lat")
    v3 = names_in_file(ooc.open(tmp_path / "a.zarr"))
    assert (v3.axes, v3.unit) == (("level", "lon"), "K")
    plain = names_in_file(ooc.open(tmp_path / "a.npy"))
    assert (plain.axes, plain.unit) == (None, None)


@pytest.mark.parametrize("chunks", [None, (1, 20, 30), (4, 7, 30)])
def test_cut_rows_keep_the_names_of_their_axes(
    tmp_path: Path, chunks: tuple[int, ...] | None
) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        u = file.create_dataset("u", data=np.ones((10, 20, 30)), chunks=chunks)
        for axis, name in enumerate(("time", "lat", "lon")):
            u.dims[axis].label = name
    view = ooc.open(tmp_path / "a.h5")
    for cut, words in [
        (view[:, :10], "lat 10, lon 30"),
        (view[:3, :, :10], "lat 20, lon 10"),
        (view[5:].astype("f4")[:, ::2, 3:13], "lat 10, lon 10"),
        (view[:, 0], "lon 30"),
        (ooc.open(tmp_path / "a.h5", axis="lon")[:, :, :10], "time 10, lat 10"),
        (ooc.open(str(tmp_path / "*.h5"), "u")[:, :10], "lat 10, lon 30"),
    ]:
        assert str(preview(cut, count=1).axes[""]) == words
    assert str(preview(view[:, :10].windows(2), count=1).axes[""]) == "time 2, lat 10, lon 30"


def test_names_follow_the_axes_where_all_lengths_are_equal(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "a.zarr", data=np.ones((9, 9, 9)), dimension_names=["t", "y", "x"])
    assert names_in_file(ooc.open(tmp_path / "a.zarr", axis=1)).axes == ("t", "x")


def test_the_unit_of_packed_numbers_is_left_out(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["u"] = np.arange(60, dtype="i2").reshape(5, 3, 4)
        file["u"].attrs.update(units="K", scale_factor=0.5)
    found = preview(ooc.open(str(tmp_path / "a.h5")))
    assert found.unit is None
    assert "packed (scale_factor 0.5): as stored" in found.notes
