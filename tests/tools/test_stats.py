"""Test `ooc.stats` against NumPy in float64, or exact fractions where NumPy loses digits."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from recording import RecordingSource

import oocdata as ooc
from oocdata.errors import ArgumentError, UnsupportedDtypeError
from oocdata.tools.stats import stats
from oocdata.tools.stats.moments import Summary

RNG = np.random.default_rng(5)
DTYPES = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8"]


def check(found: Summary, values: NDArray[Any], axis: int | None = None) -> None:
    """Compare with NumPy in float64, channel by channel, over the finite values."""
    if axis is not None:
        assert found.mean.shape == (values.shape[axis],)
        for channel, part in enumerate(np.moveaxis(values, axis, 0)):
            check(found[channel], part)
        return
    wide = values.astype("f8")
    finite = wide[np.isfinite(wide)]
    assert (found.count, found.finite) == (wide.size, finite.size)
    assert (found.nan, found.inf) == (np.isnan(wide).sum(), np.isinf(wide).sum())
    numbers = (found.mean, found.variance, found.std)
    if not finite.size:
        assert all(np.isnan(number) for number in numbers)
        return
    expected = (finite.mean(), finite.var(), finite.std())
    assert_allclose(numbers, expected, rtol=1e-11, atol=1e-13)
    kept = values[np.isfinite(wide)]
    assert (found.min, found.max) == (kept.min(), kept.max())


def values_of(dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    kind = np.dtype(dtype)
    if kind.kind == "f":
        return (RNG.normal(size=shape) * 50 + 20).astype(kind)
    if kind.kind == "b":
        return RNG.random(shape) < 0.3
    low, high = max(np.iinfo(kind).min, -(2**40)), min(np.iinfo(kind).max, 2**40)
    return RNG.integers(low, high, shape, kind, endpoint=True)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_and_axis(dtype: str) -> None:
    values = values_of(dtype, (40, 3, 5, 6))
    for axis in (None, 1, 2, 3):
        found = stats(ooc.open(values), channels=axis)
        check(found.overall, values)
        check(found.channels if axis else found.channels[0], values, axis)
        assert found.mean.shape == (() if axis is None else (values.shape[axis],))


SHAPES = hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=7)
FLOATS = st.floats(-1e6, 1e6, width=32) | st.sampled_from([np.nan, np.inf, -np.inf])


@given(
    values=hnp.arrays(np.float32, SHAPES, elements=FLOATS),
    axis=st.none() | st.integers(1, 3),
    times=st.sampled_from([1, 1000]),
    wide=st.booleans(),
    memory=st.sampled_from([1 << 20, 512 << 20]),
)
def test_any_array(
    values: NDArray[Any], axis: int | None, times: int, wide: bool, memory: int
) -> None:
    """One block, and many; rows of one piece, and of many."""
    axis = axis if axis is not None and axis < values.ndim else None
    values = np.repeat(values, times, axis=values.ndim - 1 if wide else 0)
    try:
        ooc.set_memory(memory)
        found = stats(ooc.open(values), channels=axis)
    finally:
        ooc.set_memory(512 << 20)
    check(found.channels if axis else found.channels[0], values, axis)
    check(found.overall, values)


@pytest.fixture
def one_mib() -> Iterator[None]:
    """Blocks of 32 to 64 KiB."""
    ooc.set_memory(1 << 20)
    yield
    ooc.set_memory(512 << 20)


def exact(values: NDArray[Any]) -> tuple[Fraction, Fraction]:
    numbers = [Fraction(value) for value in values.reshape(-1).tolist()]
    mean = sum(numbers) / len(numbers)
    return mean, sum((number - mean) ** 2 for number in numbers) / len(numbers)


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(1e9 + 1e-3 * RNG.normal(size=9000), id="1e9 and 1e-3"),
        pytest.param(2**52 + RNG.integers(0, 9, 9000), id="int64"),
        pytest.param(np.float32(300) + RNG.normal(size=9000).astype("f4") / 100, id="kelvin"),
        pytest.param(np.where(np.arange(9000) < 40, 0, 1e9 + RNG.random(9000)), id="dead start"),
        pytest.param(np.arange(9000) * 1e6 + RNG.random(9000), id="drift"),
    ],
)
def test_badly_conditioned_data_keeps_its_digits(values: NDArray[Any], one_mib: None) -> None:
    mean, variance = exact(values)
    found = stats(ooc.open(values))
    assert abs(Fraction(float(found.mean)) - mean) <= Fraction(float(np.spacing(float(mean))))
    assert_allclose(found.variance, float(variance), rtol=1e-12)


def test_channels_that_begin_with_nan_keep_their_digits(one_mib: None) -> None:
    values = 1e9 + 1e-3 * RNG.normal(size=(9000, 2))
    values[:4510, 1] = np.nan
    found = stats(ooc.open(values))
    assert_allclose(found.variance[1], float(exact(values[4510:, 1])[1]), rtol=1e-12)
    assert_allclose(found.variance[0], float(exact(values[:, 0])[1]), rtol=1e-12)


@pytest.mark.thorough
def test_a_hundred_million_rows() -> None:
    """Compare in two orders with integer sums, which are exact."""
    values = (np.arange(100_000_000, dtype=np.int64) * 48_271 % 2_147_483_647).astype("i4")
    total = squares = 0
    for part in np.split(values, 100):
        high, low = (part >> 16).astype(np.int64), (part & 65535).astype(np.int64)
        total += int(part.sum(dtype=np.int64))
        squares += (int(high @ high) << 32) + (int(high @ low) << 17) + int(low @ low)
    mean = Fraction(total, len(values))
    variance = Fraction(squares, len(values)) - mean**2
    for view in (ooc.open(values), ooc.open(values)[::-1]):
        found = stats(view)
        assert_allclose(found.mean, float(mean), rtol=1e-15)
        assert_allclose(found.variance, float(variance), rtol=1e-13)
        assert (found.min, found.max) == (values.min(), values.max())


def test_numbers_at_their_limits() -> None:
    for dtype in ("i8", "u8"):
        edge = np.iinfo(dtype)
        found = stats(ooc.open(np.array([edge.min, edge.max, edge.max], dtype)))
        assert (int(found.min), int(found.max)) == (edge.min, edge.max)
        mean, variance = exact(np.array([edge.min, edge.max, edge.max], object))
        assert_allclose(found.mean, float(mean), rtol=1e-15)
        assert_allclose(found.variance, float(variance), rtol=1e-14)
    huge = stats(ooc.open(np.array([1e308, 1.5e308])))
    assert (huge.min, huge.max) == (1e308, 1.5e308)
    assert json.loads(json.dumps(huge.to_json()))["overall"]["variance"] is None
    with pytest.raises(ArgumentError, match="finite mean and variance"):
        huge.standardize  # noqa: B018
    assert stats(ooc.open(np.array([5e-324, 1e-323]))).min == 5e-324


def test_signalling_nan_is_counted_without_a_warning() -> None:
    values = np.array([0x7F800001, 0x3F800000], "<u4").view("f4").reshape(2, 1)
    found = stats(values).overall
    assert (int(found.nan), float(found.mean)) == (1, 1.0)


def test_values_that_are_all_equal_have_no_deviation() -> None:
    found = stats(ooc.open(np.full((1000, 4), [0.1, 1e17, -1 / 3, 1e160 / 3])))
    assert_array_equal(found.mean, [0.1, 1e17, -1 / 3, 1e160 / 3])
    assert_array_equal(found.variance, 0)


def test_nothing_finite_has_no_statistics() -> None:
    values = np.full((10, 2), np.nan, "f4")
    values[3, 1] = np.inf
    found = stats(ooc.open(values))
    assert_array_equal(found.channels.nan, [10, 9])
    assert_array_equal(found.channels.inf, [0, 1])
    for one in (found.mean, found.variance, found.min, found.max):
        assert np.isnan(one).all()
    text = json.dumps(found.to_json(), allow_nan=False)
    assert json.loads(text)["channels"]["mean"] == [None, None]
    with pytest.raises(ArgumentError, match="those of channel 0 have none"):
        found.normalization()


@pytest.mark.parametrize("shape", [(0, 3), (0,), (0, 4, 4, 3), (5, 0), (5, 3, 0, 4)])
def test_no_values(shape: tuple[int, ...]) -> None:
    found = stats(ooc.open(np.zeros(shape, "f4")))
    assert found.overall.count == 0
    assert np.isnan(found.overall.mean)
    assert found.rows.constant in (0, None, shape[0])
    json.dumps(found.to_json(), allow_nan=False)
    assert str(found)
    if found.mean.size:
        with pytest.raises(ArgumentError, match="have none"):
            found.standardize  # noqa: B018


def test_complex_numbers_and_dates_are_refused() -> None:
    for values, kind in ((np.zeros(3, "c8"), "complex"), (np.zeros(3, "M8[D]"), "dates")):
        with pytest.raises(UnsupportedDtypeError, match=f"these are {kind}"):
            stats(ooc.open(values))


@pytest.mark.parametrize(
    ("element", "axis", "reason"),
    [
        ((), None, "a row is one number"),
        ((7,), 1, "column, by the axes' lengths"),
        ((5000,), None, "taken for a signal"),
        ((1000, 3), 2, "channel, by the axes' lengths"),  # a curve of each of three
        ((3, 50, 40), 1, "channel, by the axes' lengths"),
        ((50, 40, 3), 3, "channel, by the axes' lengths"),
        ((64, 64, 64), None, "depth 64, y 64, x 64"),
    ],
)
def test_channels_by_the_one_rule_of_axes(
    element: tuple[int, ...], axis: int | None, reason: str
) -> None:
    found = stats(ooc.open(np.zeros((2, *element), "u1")))
    assert found.axis == axis
    assert reason in found.axis_reason


def test_a_table_has_statistics_of_each_column() -> None:
    values = RNG.normal(size=(1000, 3)) * [1, 10, 100]
    assert_allclose(stats(ooc.open(values)).std, values.std(axis=0))
    windows = stats(ooc.open(values).windows(8))
    assert windows.axis == 2
    assert_allclose(windows.std, [1, 10, 100], rtol=0.1)


def test_the_names_in_the_file_decide(tmp_path: Path) -> None:
    values = RNG.normal(size=(9, 20, 5, 6))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        data = file.create_dataset("u", data=values)
        for place, name in enumerate(("time", "band", "lat", "lon")):
            data.dims[place].label = name
    found = stats(tmp_path / "a.h5")
    assert (found.axis, found.axis_reason) == (1, "band, by the file's names")
    check(stats(tmp_path / "a.h5", channels="lon").channels, values, 3)
    with pytest.raises(ArgumentError, match="1 to 3, or band, lat, lon"):
        stats(tmp_path / "a.h5", channels="level")


def test_an_axis_that_is_asked_for() -> None:
    view = ooc.open(np.zeros((2, 5, 6, 7)))
    assert stats(view, channels=-1).axis == 3
    assert stats(view, channels=np.int64(-3)).axis == 1
    assert stats(view, channels=None).axis is None
    for channels in (0, 4, -4, -5, True, 1.0, "last"):
        with pytest.raises(ArgumentError, match="axis of a row"):
            stats(view, channels=channels)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="a row is one number"):
        stats(ooc.open(np.arange(3)), channels=1)


def test_a_path_or_a_dataset(tmp_path: Path) -> None:
    values = RNG.normal(size=(4, 6, 5, 3))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["u"] = values
        file["v"] = values
    found = stats(tmp_path / "a.h5", "u")
    opened = stats(ooc.open(tmp_path / "a.h5", "/u"))
    assert {**found.to_json(), "name": opened.name} == opened.to_json()
    assert (found.name, opened.name) == (f"{tmp_path}/a.h5 u", f"{tmp_path}/a.h5 /u")
    assert found.shape == values.shape
    for part in range(2):
        np.save(tmp_path / f"part{part}.npy", values[2 * part : 2 * part + 2])
    assert_allclose(stats(str(tmp_path / "part*.npy")).mean, values.mean((0, 1, 2)))


def test_all_formats_and_row_axes(tmp_path: Path) -> None:
    values = RNG.normal(size=(90, 3, 8, 9)).astype("f4")
    np.save(tmp_path / "a.npy", np.asfortranarray(values.astype(">f8")))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("u", data=np.moveaxis(values, 0, 2), chunks=(3, 8, 7, 5), compression=4)
    zarr.create_array(tmp_path / "a.zarr", data=values, chunks=(32, 3, 8, 9))
    for view in (
        ooc.open(tmp_path / "a.npy"),
        ooc.open(tmp_path / "a.h5", axis=2),
        ooc.open(tmp_path / "a.zarr"),
    ):
        found = stats(view)
        assert found.axis == 1
        check(found.channels, values, 1)


def test_a_part_reads_its_own_rows_only() -> None:
    values = np.arange(60, dtype="f8").reshape(20, 3)
    source = RecordingSource(values)
    view = ooc.View.of(source)
    train, _ = view.split(0.6, 0.4)
    found = stats(train)
    assert sorted(row for read in source.rows for row in read) == list(range(12))  # each once
    check(found.channels, values[:12], 1)
    assert found.shape == (12, 3)


def test_what_is_mapped_windowed_or_cut() -> None:
    values = RNG.integers(0, 255, (50, 4, 6), "u1")
    view = ooc.open(values)
    check(stats(view.map(lambda x: np.float32(x) / 255)).overall, np.float32(values) / 255)
    check(stats(view.map(lambda x: x[:, ::-1, ::2].swapaxes(1, 2))).overall, values[:, :, ::2])
    strided = view.map(lambda x: (x * np.float32(2))[:, ::2, ::3])
    check(stats(strided).overall, values[:, ::2, ::3] * 2.0)
    check(stats(view[:, 1:3, ::2]).overall, values[:, 1:3, ::2])
    check(stats(view.astype("f8")).overall, values, None)
    windows = np.lib.stride_tricks.sliding_window_view(values, 3, axis=0)
    check(stats(view.windows(3), channels=None).overall, windows)


def test_what_is_no_array_is_refused() -> None:
    view = ooc.open(np.zeros((10, 4)))
    for several in (view.next_frame(), ooc.zip({"u": view, "v": view})):
        with pytest.raises(ArgumentError, match=r"one array of each element, in `\.map`"):
            stats(several)
    with pytest.raises(ArgumentError, match="got a Loader"):
        stats(view.batches(2))


def test_an_error_while_reading_comes_out_as_it_is() -> None:
    def broken(x: NDArray[Any]) -> NDArray[Any]:
        raise KeyError("no")

    view = ooc.open(np.zeros((64, 3)))
    with pytest.raises(KeyError, match="no"):
        stats(view.map(broken, spec=view.spec))


def test_what_was_found_can_be_kept() -> None:
    values = RNG.normal(size=(60, 3, 4, 5)).astype("f4")
    values[3] = 1
    values[7, 2] = np.nan
    values[9] = values[8]
    found = stats(ooc.open(values))
    told = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert told["shape"] == list(found.shape)
    means = np.array(told["channels"]["mean"], float)  # None, where nothing is finite, is NaN
    assert_array_equal(means, found.channels.mean)
    again = pickle.loads(pickle.dumps(found))
    assert str(again) == str(found)
    assert again.to_json() == found.to_json()
    whole = stats(ooc.open(np.array([2**63 - 1, -5])))
    assert whole.to_json()["overall"]["max"] == 2**63 - 1


def test_the_text_fits_eighty_columns_and_says_what_was_done() -> None:
    values = RNG.normal(size=(60, 40, 50, 60)).astype("f4") * 1e30
    values[3, 5, :, 2] = np.inf
    values[:4, 7] = np.nan
    said = str(stats(ooc.open(values), channels=1))
    assert max(map(len, said.splitlines())) <= 80
    assert "channels   40, along axis 1 (as given)" in said
    assert "12,000 NaN, 50 infinite" in said
    assert "24 more channels" in said
    assert "of the population" in said
    extremes = np.array([[-(2**63)], [2**63 - 1]])
    assert max(map(len, str(stats(ooc.open(extremes))).splitlines())) <= 80
