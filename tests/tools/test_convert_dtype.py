"""Test conversion to another dtype against `numpy.ndarray.astype`, where the number is the same."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_array_equal
from typer.testing import CliRunner

import oocdata as ooc
from oocdata.cli import app
from oocdata.engines.dtypes import named_dtype
from oocdata.errors import SourceError, UnsupportedDtypeError
from oocdata.tools.convert import cast

pytestmark = pytest.mark.usefixtures("no_waiting_for_the_disk")

VALUES = np.arange(60 * 4 * 6, dtype="f8").reshape(60, 4, 6) % 251
BAD_ROW = 37


def c_order(path: Path, values: np.ndarray[Any, Any]) -> ooc.View:
    np.save(path / "a.npy", values)
    return ooc.open(path / "a.npy")


def fortran(path: Path, values: np.ndarray[Any, Any]) -> ooc.View:
    np.save(path / "a.npy", np.asfortranarray(values))
    return ooc.open(path / "a.npy")


def chunked(path: Path, values: np.ndarray[Any, Any]) -> ooc.View:
    with h5py.File(path / "a.h5", "w") as file:
        file.create_dataset("u", data=values, chunks=(7, 3, 6), compression="gzip")
    return ooc.open(path / "a.h5")


def other_axis(path: Path, values: np.ndarray[Any, Any]) -> ooc.View:
    with h5py.File(path / "a.h5", "w") as file:
        file.create_dataset("u", data=np.moveaxis(values, 0, 1), chunks=(4, 9, 6), compression=1)
    return ooc.open(path / "a.h5", axis=1)


def sharded(path: Path, values: np.ndarray[Any, Any]) -> ooc.View:
    store = str(path / "a.zarr")
    zarr.create_array(store, data=values, chunks=(5, 4, 6), shards=(20, 4, 6))
    return ooc.open(store)


def parts(path: Path, values: np.ndarray[Any, Any]) -> ooc.View:
    for number in range(3):
        np.save(path / f"a{number}.npy", values[20 * number : 20 * number + 20])
    return ooc.open(str(path / "a?.npy"))


STORED = pytest.mark.parametrize(
    "stored", [c_order, fortran, chunked, other_axis, sharded, parts], ids=lambda one: one.__name__
)
CHOSEN = pytest.mark.parametrize(
    "chosen", [slice(None), slice(30, 55), slice(None, None, -3), [40, 37, 3]], ids=str
)


@pytest.mark.parametrize(
    ("dtype", "name", "other"),
    [
        ("bfloat16", "b.h5", "npy"),
        ("float8_e4m3fn", "b.zarr", "npy"),
        ([("a", "i4"), ("b", "f4", (2,))], "b.zarr", "npy"),
    ],
    ids=str,
)
def test_a_format_that_has_no_such_dtype(dtype: Any, name: str, other: str, tmp_path: Path) -> None:
    view = ooc.open(np.zeros((4, 2), named_dtype(dtype)))
    with pytest.raises(UnsupportedDtypeError, match=r"must be .* can be written to ") as raised:
        ooc.convert(view, tmp_path / name)
    assert not os.listdir(tmp_path)
    if not view.dtype.names:
        assert str(raised.value).endswith(
            "Write .npy, or convert them: .astype('f4'), --to-dtype f4."
        )
        ooc.convert(view.astype("f4"), tmp_path / f"a{name}", verify=True)
    assert ooc.convert(view, tmp_path / f"c.{other}", verify=True).verified


@STORED
@CHOSEN
def test_numbers_that_fit_and_one_that_does_not(stored: Any, chosen: Any, tmp_path: Path) -> None:
    values = VALUES.copy()
    view = stored(tmp_path, values)[chosen]
    ooc.convert(view.astype("u1"), tmp_path / "fits.npy", verify=True)
    found = np.load(tmp_path / "fits.npy")
    assert found.dtype == np.uint8
    assert (found == VALUES[chosen]).all()
    values[BAD_ROW, 2, 5] = 300
    (tmp_path / "wrong").mkdir()
    view = stored(tmp_path / "wrong", values)[chosen].astype("u1")
    if BAD_ROW not in np.arange(60)[chosen]:
        ooc.convert(view, tmp_path / "b.npy")
        return
    with pytest.raises(SourceError, match=r"must fit .*uint8; got 300\.0\.") as caught:
        ooc.convert(view, tmp_path / "b.npy")
    # In storage; of the file that holds it.
    assert caught.value.rows == (BAD_ROW % 20 if stored is parts else BAD_ROW,)
    assert str(tmp_path) in str(caught.value)
    assert not [name for name in os.listdir(tmp_path) if name.startswith("b.")]


FLOATS = st.floats(width=64, allow_nan=True, allow_infinity=True)
NUMBERS = st.one_of(
    hnp.arrays(st.sampled_from(["f8", "f4", "f2"]), st.integers(1, 9), elements=FLOATS.filter(
        lambda number: not abs(number) < np.inf or abs(number) < 6e4).map(np.float16).map(float)),
    hnp.arrays("f8", st.integers(1, 9), elements=FLOATS),
    hnp.arrays(st.sampled_from(["i8", "u8", "i4", "i1", "u1", "?"]), st.integers(1, 9)),
)  # fmt: skip


@given(NUMBERS, st.sampled_from(["f8", "f4", "f2", "i8", "u8", "i4", "u4", "i2", "u1", "?"]))
def test_the_rule_is_that_of_exact_numbers(values: np.ndarray[Any, Any], dtype: str) -> None:
    """Compare as Python's integers and floats, which compare exactly."""
    with np.errstate(all="ignore"):
        usual = values.astype(dtype)
    fits = [
        (after == before)
        if usual.dtype.kind in "biu"
        else not (np.isinf(after) and np.isfinite(before))
        for before, after in zip(values.tolist(), usual.tolist(), strict=True)
    ]
    if all(fits):
        np.testing.assert_array_equal(cast(values, usual.dtype, ooc.open(values)), usual)
    else:
        with pytest.raises(SourceError) as caught:
            cast(values, usual.dtype, ooc.open(values))
        assert caught.value.rows == (fits.index(False),)


def test_rounding_is_what_the_dtype_is_for(tmp_path: Path) -> None:
    values = np.array([[0.1, np.nan], [np.inf, 1e-300]])
    np.save(tmp_path / "a.npy", values)
    ooc.convert(ooc.open(tmp_path / "a.npy").astype("f4"), tmp_path / "b.npy", verify=True)
    assert np.load(tmp_path / "b.npy").tobytes() == values.astype("f4").tobytes()


@pytest.mark.parametrize("dtype", ["S3", "U3", "i4,f8", "i4,M8[D]"])
@pytest.mark.parametrize("suffix", [".npy", ".h5", ".zarr"])
def test_what_a_format_has_no_place_for(tmp_path: Path, suffix: str, dtype: str) -> None:
    values = np.ones(5, dtype)
    view, target = c_order(tmp_path, values), tmp_path / f"b{suffix}"
    if suffix == ".npy" or (suffix == ".h5" and dtype in ("S3", "i4,f8")):
        ooc.convert(view, target, verify=True)
        assert np.array_equal(np.asarray(ooc.open(target)), values)
        return
    with pytest.raises(UnsupportedDtypeError, match=r"can be written to.*Write \.npy") as raised:
        ooc.convert(view, target)
    assert "astype" not in str(raised.value)  # which text and fields refuse
    assert ("one field" in str(raised.value)) == bool(view.dtype.names)
    assert os.listdir(tmp_path) == ["a.npy"]


@pytest.mark.parametrize("fields", [["名"], [f"channel {number}" for number in range(500)]])
def test_names_of_fields_that_no_header_of_npy_holds(tmp_path: Path, fields: list[str]) -> None:
    """NumPy writes others than Latin-1 by itself only, and reads 10,000 bytes at most."""
    view = ooc.open(np.ones(5, [(field, "f4") for field in fields]))
    with pytest.raises(UnsupportedDtypeError, match=r"can be written to \.npy.*Write \.h5"):
        ooc.convert(view, tmp_path / "a.npy")
    ooc.convert(view, tmp_path / "a.h5", verify=True)


def test_fields_that_are_not_in_the_order_of_their_bytes(tmp_path: Path) -> None:
    dtype = np.dtype({"names": ["a", "b"], "formats": ["i4", "f8"], "offsets": [8, 0]})
    view = ooc.open(np.ones(5, dtype))
    with pytest.raises(UnsupportedDtypeError, match=r"can be written to \.npy.*Write \.h5"):
        ooc.convert(view, tmp_path / "b.npy")
    ooc.convert(view, tmp_path / "b.h5", verify=True)
    assert_array_equal(np.asarray(ooc.open(tmp_path / "b.h5")["a"]), np.ones(5))


def test_on_the_command_line(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([1.0, 2.0, np.nan]))
    given = ["convert", str(tmp_path / "a.npy"), str(tmp_path / "b.npy"), "--to-dtype", "u1"]
    result = CliRunner().invoke(app, given)
    assert result.exit_code == 1
    assert "got nan" in " ".join(result.stderr.split())
    assert "Warning" not in result.stderr
    assert os.listdir(tmp_path) == ["a.npy"]
    np.save(tmp_path / "a.npy", np.array([1j]))
    given = ["convert", str(tmp_path / "a.npy"), str(tmp_path / "b.npy"), "--to-dtype", "f4"]
    result = CliRunner().invoke(app, given)
    assert result.exit_code == 2
    assert "--to-dtype must be complex for complex rows" in " ".join(result.stderr.split())


@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.parametrize("dtype", ["S5", "i4,S5", "f4"])
def test_the_default_fill_value_of_hdf5_is_zero(tmp_path: Path, dtype: str, codec: str) -> None:
    """The fill value of text was taken from uninitialised memory."""
    np.save(tmp_path / "a.npy", np.zeros(7, dtype))
    ooc.convert(tmp_path / "a.npy", tmp_path / "a.h5", codec=codec)
    with h5py.File(tmp_path / "a.h5") as file:
        assert file["data"].fillvalue == np.zeros((), dtype)
