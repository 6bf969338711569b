"""Test decoding of packed and missing numbers, with xarray as the oracle."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
import xarray
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from zarr.storage import LocalStore, WrapperStore

import oocdata as ooc
from oocdata.describe import as_json, from_json
from oocdata.errors import MismatchedPartsError, UnsupportedDtypeError
from oocdata.testing import sample_array

F4, F8, I4 = np.float32, np.float64, np.int32

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "scale": ("i2", {"scale_factor": F8(0.01)}),
    "scale, f4": ("i2", {"scale_factor": F4(0.01)}),
    "offset": ("i2", {"add_offset": F4(0.25)}),
    "both, f4": ("i2", {"scale_factor": F4(0.01), "add_offset": F4(280)}),
    "both, unlike": ("u1", {"scale_factor": F4(0.01), "add_offset": F8(280)}),
    "int32": ("i4", {"scale_factor": F4(0.01), "add_offset": F4(280)}),
    "integers": ("i2", {"scale_factor": I4(3)}),
    "an array of one": ("i2", {"scale_factor": np.array([0.5]), "add_offset": np.array([1.0])}),
    "fill": ("i2", {"_FillValue": np.int16(7)}),
    "fill of 32 bits": ("i4", {"_FillValue": I4(7)}),
    "fill and scale": ("i2", {"scale_factor": F8(0.01), "_FillValue": np.int16(7)}),
    "two fills": ("u1", {"_FillValue": np.uint8(7), "missing_value": np.uint8(9)}),
    "several missing": ("i2", {"missing_value": np.array([3, 4], "i2")}),
    "missing, f4": ("f4", {"missing_value": F4(7)}),
    "missing, f8 of f4": ("f4", {"missing_value": F8(7.1), "_FillValue": F4(9)}),
    "NaN": ("f4", {"_FillValue": F4(np.nan)}),
    "NaN and scale": ("f4", {"_FillValue": F4(np.nan), "scale_factor": F8(0.1)}),
    "unsigned": ("i1", {"_Unsigned": "true", "_FillValue": np.int8(-3)}),
    "unsigned, scaled": ("i1", {"_Unsigned": "true", "scale_factor": F4(0.5)}),
    "signed": ("u1", {"_Unsigned": "false"}),
    "float64": ("f8", {"scale_factor": F8(0.1), "add_offset": F8(3)}),
    "bool": ("i1", {"dtype": "bool"}),  # xarray writes bool variables so
    "another dtype": ("i1", {"dtype": "int8"}),
    "nothing": ("f4", {"units": "K", "valid_max": F4(3)}),
}


def written(path: Path, dtype: str, attributes: dict[str, Any], kind: str) -> None:
    """Write packed numbers without netCDF4's own scaling."""
    numbers = np.arange(-40, 200).astype(dtype).reshape(20, 3, 4)
    options: dict[str, Any] = {"zlib": True, "chunksizes": (7, 3, 4)} if kind == "gzip" else {}
    attributes = dict(attributes)
    with netCDF4.Dataset(path, "w") as file:
        for name, length in zip(("time", "y", "x"), numbers.shape, strict=True):
            file.createDimension(name, length)
        fill = attributes.pop("_FillValue", None)
        made = file.createVariable("u", dtype, ("time", "y", "x"), fill_value=fill, **options)
        made.set_auto_maskandscale(False)
        made.setncatts(attributes)
        made[:] = numbers


def shown(path: Path, **options: Any) -> np.ndarray:
    with (
        warnings.catch_warnings(action="ignore"),
        xarray.open_dataset(path, decode_times=False, **options) as data,
    ):
        values: np.ndarray = data["u"].values
    return values


@pytest.mark.parametrize("case", CASES)
def test_netcdf(tmp_path: Path, case: str) -> None:
    written(tmp_path / "a.nc", *CASES[case], "gzip" if "scale" in case else "contiguous")
    expected = shown(tmp_path / "a.nc")
    view = ooc.open(tmp_path / "a.nc", "u", decode=True)
    assert view.dtype == expected.dtype
    assert_array_equal(np.asarray(view), expected)
    turned = view[3:15:2, 1:, ::-1].transpose(1, 0)
    assert_array_equal(turned.take([2, 0]), expected[3:15:2, 1:, ::-1].transpose(0, 2, 1)[[2, 0]])
    assert_array_equal(view.astype("f8")[4], expected[4].astype("f8"))
    x, y = view.windows(2, 1).take([0, 5])
    assert_array_equal(x[1], expected[5:7])
    assert_array_equal(y[1], expected[7:8])
    assert view.storage.packed == ""
    with warnings.catch_warnings(action="ignore"):
        raw = ooc.open(tmp_path / "a.nc", "u")
    assert raw.dtype == np.dtype(CASES[case][0])


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize(
    "encoding",
    [
        {"dtype": "i2", "scale_factor": 0.5, "add_offset": 1.0, "_FillValue": -9},
        {"dtype": "i4", "scale_factor": 0.5},
        {"dtype": "f4", "_FillValue": 3.0},
        {"dtype": "f4", "_FillValue": np.nan},
        {"dtype": "f4", "_FillValue": np.nan, "scale_factor": 0.1, "add_offset": 5.0},
    ],
    ids=str,
)
def test_zarr(tmp_path: Path, version: int, encoding: dict[str, Any]) -> None:
    values = np.arange(60.0, 84.0).reshape(6, 4) / 10
    values[2, 1] = np.nan if "_FillValue" in encoding else 0
    data = xarray.Dataset({"u": (("time", "x"), values)})
    path = tmp_path / "a.zarr"
    with warnings.catch_warnings(action="ignore"):
        data.to_zarr(path, zarr_format=version, consolidated=False, encoding={"u": encoding})
    expected = shown(path, engine="zarr", consolidated=False)
    store = WrapperStore(LocalStore(path))  # a store that can't be opened by path
    for target in ((path, "u"), (zarr.open_array(store, path="u", mode="r"),)):
        view = ooc.open(*target, axis="time", decode=True, missing="fill")
        assert view.dtype == expected.dtype
        assert_array_equal(np.asarray(view), expected)


NUMBERS = st.sampled_from([F4(0.1), F8(0.1), F4(3), F8(-2.5), I4(2), np.int16(5)])


def test_zarr_with_two_fill_values(tmp_path: Path) -> None:
    """The array's own fill value stands for missing numbers, as for xarray, not the attribute's."""
    array = zarr.create_array(
        tmp_path / "v2", name="t", shape=6, chunks=3, dtype="i2", fill_value=-1, zarr_format=2
    )
    array[:] = [1, -1, -9, 4, -9, -1]
    array.attrs.update({"_ARRAY_DIMENSIONS": ["x"], "_FillValue": -9, "scale_factor": 2.0})
    wanted = xarray.open_zarr(tmp_path / "v2", consolidated=False)["t"].values
    assert_array_equal(wanted, [2, np.nan, -18, 8, -18, np.nan])
    assert_array_equal(ooc.open(tmp_path / "v2", "t", decode=True), wanted)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_attributes(tmp_path: Path, data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(["i1", "u1", "i2", "u2", "i4", "u4", "f4", "f8"]))
    attributes: dict[str, Any] = {}
    for name in ("scale_factor", "add_offset"):
        if data.draw(st.booleans()):
            attributes[name] = data.draw(NUMBERS)
    if data.draw(st.booleans()):
        attributes["_FillValue"] = np.dtype(dtype).type(data.draw(st.integers(0, 100)))
        if isinstance(
            attributes.get("scale_factor"), np.integer
        ):  # xarray can't represent NaN as an integer
            del attributes["scale_factor"]
    scale = attributes.get("scale_factor")
    narrow = isinstance(scale, np.integer) and np.result_type(dtype, scale.dtype) != scale.dtype
    if narrow and "add_offset" not in attributes:  # xarray overflows
        del attributes["scale_factor"]
    path = tmp_path / "a.nc"
    written(path, dtype, attributes, "contiguous")
    expected = shown(path)
    view = ooc.open(path, "u", decode=True)
    assert view.dtype == expected.dtype
    assert_array_equal(np.asarray(view), expected)


def test_an_integer_scale_loses_nothing(tmp_path: Path) -> None:
    for dtype, expected in (("f4", "f8"), ("u4", "i8")):
        written(tmp_path / "a.nc", dtype, {"scale_factor": I4(3)}, "contiguous")
        view = ooc.open(tmp_path / "a.nc", "u", decode=True)
        assert view.dtype == np.dtype(expected)
        raw = np.arange(-40, 200).astype(dtype).reshape(20, 3, 4)
        assert_array_equal(np.asarray(view), raw.astype(expected) * 3)


def test_many_boxes_at_a_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from oocdata.engines import decoded

    written(tmp_path / "a.nc", *CASES["fill and scale"], "gzip")
    expected = shown(tmp_path / "a.nc")
    view = ooc.open(tmp_path / "a.nc", "u", decode=True)
    for nbytes in (1, 100, 150):
        monkeypatch.setattr(decoded, "_BLOCK_BYTES", nbytes)
        assert_array_equal(np.asarray(view), expected)
        assert_array_equal(np.asarray(view.astype("f4")), expected.astype("f4"))


def test_channels_patches_and_files_packed_differently(tmp_path: Path) -> None:
    written(tmp_path / "1.nc", *CASES["both, f4"], "gzip")
    written(tmp_path / "2.nc", "i2", {"scale_factor": F4(0.5), "add_offset": F4(1)}, "contiguous")
    each = [shown(tmp_path / f"{number}.nc") for number in (1, 2)]
    with pytest.raises(MismatchedPartsError, match="packed alike"):
        ooc.open(str(tmp_path / "*.nc"), "u")
    files = ooc.open(str(tmp_path / "*.nc"), "u", decode=True)
    assert_array_equal(np.asarray(files), np.concatenate(each))
    parts = [ooc.open(tmp_path / f"{number}.nc", "u", decode=True) for number in (1, 2)]
    both = ooc.stack(parts)
    expected = np.stack(each, -1)
    assert_array_equal(np.asarray(both), expected)
    loader = both.patches((2, 2), axes=(0, 1)).batches(8, shuffle=True, seed=1)
    again = from_json(as_json(loader))
    assert_array_equal(again.batch(2), loader.batch(2))
    assert_array_equal(both.patches((2, 2), axes=(0, 1))[3], expected[1, 0:2, 2:4])
    cut = files.batches(4, workers=1)
    assert_array_equal(next(iter(cut)), files.take([0, 1, 2, 3]))


UNITS = (
    ("K", "degC", True), ("m", "mm", True), ("kg kg-1", "g kg-1", True), ("hPa", "Pa", True),
    ("degC", "celsius", False), ("m s-1", "m s**-1", False), ("m", "M", False), ("K", None, False),
    ("mm/day", "mm/h", True), ("mm day-1", "mm d**-1", False),
    ("Kelvin", "degrees_K", False), ("kg m-2 s-1", "mm s-1", False), ("W m-2", "J m-2", False),
)  # fmt: skip


@pytest.mark.parametrize(("one", "other", "refused"), UNITS)
def test_parts_in_other_units(tmp_path: Path, one: str, other: str | None, refused: bool) -> None:
    both, values = tmp_path / "both.h5", sample_array((4, 3), "f4")
    attributes: list[dict[str, Any]] = [{"units": one}, {"units": other} if other else {}]
    for number, each in enumerate(attributes):
        for path, key in ((tmp_path / f"{number}.h5", "u"), (both, f"r{number}/u")):
            with h5py.File(path, "a") as file:
                file[key] = values
                file[key].attrs.update(each)
        zarr.create_array(tmp_path / f"{number}.zarr", data=values).attrs.update(each)
    paths = [[tmp_path / f"{number}.{kind}" for kind in ("h5", "zarr")] for number in range(2)]
    kinds = [([str(path) for path in each], None) for each in zip(*paths, strict=True)]
    for target, key in (*kinds, (str(both), "r*/u")):
        joins = [lambda target=target, key=key: ooc.open(target, key)]
        if key is None:
            views = [ooc.open(path) for path in target]
            joins += [
                lambda views=views: ooc.concat(views),
                lambda views=views: ooc.mix({views[0]: 1, views[1]: 1}),
                lambda views=views: ooc.concat([ooc.zip(view.windows(1)) for view in views]),
            ]
            assert len(ooc.stack(views)) == 4  # variables of one row may have any units
            assert len(ooc.concat(views[0], views[1].map(np.negative))) == 8
        for join in joins:
            if not refused:
                assert len(join()) == 8
                continue
            with pytest.raises(MismatchedPartsError, match=f"file '.*' has '{one}'.*'{other}'"):
                join()


def test_packed_beside_plain_numbers(tmp_path: Path) -> None:
    written(tmp_path / "packed.nc", "i2", {"scale_factor": F4(0.5)}, "contiguous")
    written(tmp_path / "plain.nc", "i2", {}, "contiguous")
    packed, plain = (ooc.open(tmp_path / f"{name}.nc", "u") for name in ("packed", "plain"))
    for join in (lambda: ooc.concat(packed, plain), lambda: ooc.mix({plain: 1, packed: 1})):
        with pytest.raises(MismatchedPartsError, match=r"packed alike.*none packed"):
            join()
    in_memory = ooc.open(np.asarray(plain))  # of which nothing is known
    assert len(ooc.concat(packed, in_memory)) == len(packed) + len(plain)


def test_what_it_says_of_itself(tmp_path: Path) -> None:
    attributes = {**CASES["fill and scale"][1], "units": "K", "valid_max": np.int16(90)}
    written(tmp_path / "a.nc", "i2", attributes, "gzip")
    raw, view = (ooc.open(tmp_path / "a.nc", "u", decode=decode) for decode in (False, True))
    assert raw.storage.packed == "scale_factor 0.01, _FillValue 7"
    assert "delivered as stored (scale_factor" in raw.storage.reading
    assert view.storage.reading.endswith("; decoded (scale_factor 0.01, _FillValue 7)")
    assert "as stored" not in view.storage.reading
    assert view.storage.annotations().attributes == {"units": b"K", "valid_max": None}
    assert view.storage.opened is not None
    assert view.storage.opened["decode"] is True
    assert_array_equal(np.asarray(ooc.open(**view.storage.opened)), np.asarray(view))
    plain = ooc.open(np.arange(3), decode=True)
    assert plain.dtype == np.int64


@pytest.mark.parametrize("kind", ["hdf5", "zarr"])
def test_datasets_of_a_file_packed_differently(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a"
    group: Any = h5py.File(path, "w") if kind == "hdf5" else zarr.open_group(path, mode="w")
    for number in range(3):
        name = f"run_{number}/u"
        if kind == "hdf5":
            made = group.create_dataset(name, data=np.arange(4, dtype="i2"))
        else:
            made = group.create_array(name, shape=(4,), dtype="i2", chunks=(2,))
            made[:] = np.arange(4)
        made.attrs["scale_factor"] = 0.5 + number
    if kind == "hdf5":
        group.close()
    view = ooc.open(path, "run_*/u", decode=True, missing="fill")
    expected = np.concatenate([np.arange(4) * (0.5 + number) for number in range(3)])
    assert_array_equal(np.asarray(view), expected)
    again = ooc.open(**dict(view.storage.opened or {}))
    assert_array_equal(np.asarray(again), expected)
    with pytest.raises(MismatchedPartsError, match=r"here is scale_factor 1\.5\. decode=True"):
        ooc.open(path, "run_*/u")


@pytest.mark.parametrize("name", ["scale_factor", "add_offset"])
@pytest.mark.parametrize("value", [[0.1, 0.2], [], "0.1"], ids=["several", "none", "text"])
@pytest.mark.parametrize("kind", ["hdf5", "zarr"])
def test_what_is_no_one_number(tmp_path: Path, kind: str, value: Any, name: str) -> None:
    """Neither several numbers nor texts are silently accepted."""
    path = tmp_path / "a"
    group: Any = h5py.File(path, "w") if kind == "hdf5" else zarr.open_group(path, mode="w")
    if kind == "hdf5":
        made = group.create_dataset("u", data=np.arange(4, dtype="i2"))
    else:
        made = group.create_array("u", data=np.arange(4, dtype="i2"))
    made.attrs[name] = value
    if kind == "hdf5":
        group.close()
    with pytest.raises(UnsupportedDtypeError, match=rf"`{name}` must be one number.*dataset '/?u'"):
        ooc.open(path, "u", decode=True)
    assert_array_equal(np.asarray(ooc.open(path, "u")), np.arange(4))
