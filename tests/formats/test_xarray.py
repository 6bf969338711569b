"""Read DataArrays: xarray is the oracle, and writes the files."""

from __future__ import annotations

import itertools
import pickle
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import dask.array
import numpy as np
import pytest
import xarray
from boxes import check_boxes
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import oocdata as ooc
from oocdata.engines.axis_views import AxisView
from oocdata.engines.chunked import Chunked
from oocdata.engines.decoded import Decoded
from oocdata.engines.memory_array import MemoryArray
from oocdata.engines.objects import Sliced
from oocdata.engines.source import Source
from oocdata.engines.wrapped import Relabelled, SourceChunks
from oocdata.errors import (
    ArgumentError,
    MissingChunkError,
    MissingKeyError,
    SeveralDatasetsError,
    SourceError,
    UnsupportedDtypeError,
)
from oocdata.formats.xarray import open_data_array
from oocdata.formats.xarray.stored import stored_array
from oocdata.memory import DEFAULT_MEMORY, set_memory
from oocdata.testing import SourceConformance, sample_array

SHAPE = (23, 6, 8)
NAMES = ("time", "lat", "lon")
PACKED = {"dtype": "i2", "scale_factor": 0.01, "add_offset": 280.0, "_FillValue": -32768}
FILES = ["h5netcdf", "netcdf4", "zarr2", "zarr3"]


def dataset() -> xarray.Dataset:
    rng = np.random.default_rng(0)
    packed = rng.normal(280, 10, SHAPE)
    packed[rng.random(SHAPE) < 0.1] = np.nan
    floats = rng.random(SHAPE, "f4")
    floats[3, 2, 1] = np.nan
    gaps = np.where(rng.random(SHAPE) < 0.1, np.nan, floats)
    return xarray.Dataset(
        {
            "packed": (NAMES, packed),
            "floats": (NAMES, floats),  # xarray writes NaN as its _FillValue
            "gaps": (NAMES, gaps.astype("f4")),  # stored as -999
            "counts": (NAMES, rng.integers(-500, 500, SHAPE, "i4")),
            "flags": (NAMES, rng.random(SHAPE) < 0.5),  # stored as int8
            "big": (NAMES, rng.random(SHAPE).astype(">f8")),
        },
        coords={"time": np.arange(23), "lat": np.linspace(0, 1, 6), "lon": np.linspace(0, 1, 8)},
    )


def write(
    data: xarray.Dataset, folder: Path, kind: str, chunks: tuple[int, ...] = (4, 3, 8)
) -> Path:
    """Write a Dataset as netCDF4 or Zarr, `packed` as packed integers, all in chunks."""
    path = folder / f"ds.{kind}"
    stored = kind.startswith("zarr")
    sizes = {"chunks": chunks} if stored else {"chunksizes": chunks, "zlib": True}
    encoding: dict[Any, dict[str, Any]] = {name: dict(sizes) for name in data.data_vars}
    if "gaps" in data:
        encoding["gaps"]["_FillValue"] = np.float32(-999)
    if "packed" in data:
        encoding["packed"] |= PACKED
    if stored:
        data.to_zarr(path, zarr_format=int(kind[-1]), consolidated=False, encoding=encoding)
    else:
        data.to_netcdf(path, engine=kind, encoding=encoding)  # type: ignore[call-overload]
    return path


def read(path: Path, **options: Any) -> xarray.Dataset:
    if "zarr" in path.suffix:
        return xarray.open_zarr(path, consolidated=False, **{"chunks": None, **options})
    return xarray.open_dataset(path, engine=path.suffix[1:], **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("files")
    return {kind: write(dataset(), folder, kind) for kind in FILES}


@pytest.fixture(params=FILES)
def path(request: pytest.FixtureRequest, paths: dict[str, Path]) -> Path:
    return paths[request.param]


@pytest.fixture(params=["netcdf4", "zarr3"])
def one_of_each(request: pytest.FixtureRequest, paths: dict[str, Path]) -> Path:
    """Whichever library reads the file, the result is what xarray makes of the array."""
    return paths[request.param]


@cache
def values_of(path: Path) -> xarray.Dataset:
    """Return the values that xarray reads from a file: the oracle."""
    with read(path) as opened:
        return opened.load()


def stored_behind(source: Source) -> Source:
    """Return the stored array behind a source that was made from it."""
    assert isinstance(source, Relabelled)
    assert isinstance(source.source, AxisView)
    return source.source.source


def through_xarray(view: ooc.View) -> bool:
    source = view.source
    return isinstance(source, Sliced) or (
        isinstance(source, Chunked) and isinstance(source.reader, SourceChunks)
    )


# --- the values are xarray's


@pytest.mark.parametrize("decode", [True, False], ids=["decoded", "as stored"])
def test_every_value(path: Path, decode: bool) -> None:
    names = ["packed", "floats", "gaps", "counts", "flags", "big"]
    with read(path, decode_cf=decode) as opened, read(path, decode_cf=decode) as oracle:
        oracle.load()
        for name, (axis, dimension) in itertools.product(names, enumerate(NAMES)):
            view = ooc.open(opened[name], axis=dimension)
            expected = np.moveaxis(oracle[name].values, axis, 0)
            found = np.asarray(view)
            assert found.dtype == expected.dtype.newbyteorder("=")
            assert_array_equal(found, expected)
        # Nothing stays in xarray's cache.
        assert not any(opened[name].variable._in_memory for name in names)


def test_axes_by_number(one_of_each: Path) -> None:
    with read(one_of_each) as opened:
        for axis in range(-3, 3):
            expected = np.moveaxis(values_of(one_of_each)["counts"].values, axis, 0)
            assert_array_equal(np.asarray(ooc.open(opened["counts"], axis=axis)), expected)


SELECTIONS: list[dict[str, Any]] = [
    {"time": slice(3, 20, 2)},
    {"time": slice(None, None, -3), "lat": 2},
    {"time": [5, 3, -1, 3], "lon": slice(1, 6, 2)},
    {"time": -1},
    {"lat": slice(None, None, -1), "lon": slice(2, 3)},
    {"lat": [4, 0]},  # a list: through xarray
    {"time": [5, 3], "lat": [4, 0]},
    {"time": slice(5, 5)},
    {"time": slice(5, 5), "lat": [4, 0]},
]


def test_a_selection(path: Path) -> None:
    oracle = values_of(path)
    with read(path) as opened:
        for name, places in itertools.product(("packed", "counts"), SELECTIONS):
            lists = any(isinstance(part, list) for part in places.values())
            chosen = opened[name].isel(places)
            expected = oracle[name].isel(places).values
            view = ooc.open(chosen)
            assert_array_equal(np.asarray(view), expected)
            assert view.shape == expected.shape
            assert through_xarray(view) == lists
            assert_array_equal(np.asarray(ooc.open(chosen, axis=-1)), np.moveaxis(expected, -1, 0))


@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_selections_of_selections(one_of_each: Path, data: st.DataObject) -> None:
    def part(length: int) -> st.SearchStrategy[Any]:
        within = st.integers(-length, length - 1)
        # xarray itself fails on an empty slice backwards.
        slices = st.slices(length).filter(lambda part: len(range(length)[part]) or not part.step)
        return st.one_of(slices, within, st.lists(within, min_size=1, max_size=4))

    name = data.draw(st.sampled_from(["packed", "counts"]))
    with read(one_of_each) as opened:
        chosen, expected = opened[name], values_of(one_of_each)[name]
        for _ in range(data.draw(st.integers(1, 3))):
            places = {
                dimension: data.draw(part(length))
                for dimension, length in chosen.sizes.items()
                if length and data.draw(st.booleans())
            }
            chosen, expected = chosen.isel(places), expected.isel(places)
        if not chosen.dims:
            with pytest.raises(ArgumentError, match="a single number"):
                ooc.open(chosen)
            return
        axis = data.draw(st.sampled_from(chosen.dims))
        found = np.asarray(ooc.open(chosen, axis=axis))
        assert_array_equal(found, np.moveaxis(expected.values, expected.dims.index(axis), 0))


@pytest.mark.parametrize(
    "change",
    [
        lambda array: array.transpose("lon", "time", "lat"),
        lambda array: array.chunk({"time": 5, "lat": (1, 5)}),
        lambda array: array.chunk({"time": 5}) * 2 + 1,
        lambda array: array + 1,  # in memory
        lambda array: array.load(),
        lambda array: array.variable,
        lambda array: array.astype("f4"),
        lambda array: array.rolling(time=3).mean(),
        lambda array: array.expand_dims("member"),
        lambda array: array.sel(lon=[0.0, 1.0], method="nearest"),
    ],
    ids=[
        *("transposed", "dask", "computed by dask", "in memory", "loaded", "variable", "converted"),
        *("rolling", "expanded", "nearest"),
    ],
)
def test_what_xarray_makes_of_it(one_of_each: Path, change: Any) -> None:
    oracle = values_of(one_of_each)
    with read(one_of_each) as opened:
        for name in ("packed", "counts"):
            view = ooc.open(change(opened[name]))
            assert_array_equal(np.asarray(view), change(oracle[name]).values)
            rows = [3, 0] if len(view) > 3 else [0]
            assert_array_equal(view[rows], np.asarray(view)[rows])


def test_several_as_one(path: Path) -> None:
    oracle = values_of(path)
    with read(path) as opened:
        parts = [opened["packed"][2:9], opened["packed"][[20, 1]], opened["packed"].isel(time=[5])]
        expected = np.concatenate([oracle["packed"].values[[*range(2, 9), 20, 1, 5]]])
        view = ooc.open(parts)
        assert_array_equal(np.asarray(view), expected)
        assert_array_equal(
            view[:, 2, ::-1].astype("f4")[[8, 0]], expected[[8, 0], 2, ::-1].astype("f4")
        )


def test_an_object_that_is_changed_after_it_was_cached(tmp_path: Path) -> None:
    path = write(dataset(), tmp_path, "h5netcdf")
    with read(path, cache=False) as opened:
        opened["counts"][3, :, :] = 7  # a copy in memory now
        view = ooc.open(opened["counts"])
        assert_array_equal(np.asarray(view), opened["counts"].values)
        assert (np.asarray(view)[3] == 7).all()


# --- by oocdata's own engines wherever the stored array is known


def test_it_is_read_from_its_file(path: Path) -> None:
    """Fails when xarray changes the classes known to `formats.xarray.stored`: all is slow then."""
    with read(path) as opened:
        for name in ("packed", "floats", "gaps", "counts", "big"):
            view = ooc.open(opened[name])
            assert not through_xarray(view)
            behind = stored_behind(view.source)
            assert isinstance(behind, Decoded) == (name in ("packed", "gaps"))
            said = view.source.storage()
            assert said.path == str(path)
            assert said.dimensions == NAMES
            assert said.format in ("HDF5", "Zarr v2", "Zarr v3")
            assert ("; decoded (scale_factor 0.01" in said.reading) == (name == "packed")
            assert "as stored" not in said.reading


@pytest.mark.parametrize("kind", ["h5netcdf", "netcdf4"])
def test_a_file_that_was_replaced_is_not_decoded_as_the_former_one(
    tmp_path: Path, kind: str
) -> None:
    def named(scale: float) -> Path:
        data = xarray.Dataset({"u": (NAMES, np.linspace(0, 10, 60).reshape(5, 3, 4))})
        path = tmp_path / f"{scale}.nc"
        encoding = {"u": {"dtype": "i2", "scale_factor": scale, "_FillValue": -1}}
        data.to_netcdf(path, engine=kind, encoding=encoding)
        return path

    path, other = named(0.01), named(0.005)
    with xarray.open_dataset(path, engine=kind) as opened:
        other.rename(path)
        assert_array_equal(np.asarray(ooc.open(opened["u"])), opened["u"].values)


def test_attributes_that_were_changed_are_decoded_by(path: Path) -> None:
    with read(path, decode_cf=False) as raw:
        raw["packed"].attrs["scale_factor"] = 0.5
        changed = xarray.decode_cf(raw)["packed"]
        assert_array_equal(np.asarray(ooc.open(changed)), changed.values)


def test_selections_one_after_the_other(tmp_path: Path) -> None:
    """Some versions of xarray keep several selections without merging them."""
    from xarray.core.indexing import BasicIndexer, LazilyIndexedArray

    path = write(dataset(), tmp_path, "h5netcdf")
    with read(path, decode_cf=False, cache=False) as opened:
        part = opened["counts"][2:20:3, ::-1].variable
        inner = part._data.array
        assert type(inner) is LazilyIndexedArray
        key = BasicIndexer((slice(4, 1, -2), 1, slice(2, None, 5)))
        part._data.array = LazilyIndexedArray(inner, key)
        chosen = xarray.Variable(("time", "lon"), part._data, fastpath=True)
        view = ooc.open(chosen)
        assert not through_xarray(view)
        expected = opened["counts"].values[2:20:3, ::-1][4:1:-2, 1, 2::5]
        assert_array_equal(np.asarray(view), expected)


def test_a_chain_that_is_not_known_proves_nothing(tmp_path: Path) -> None:
    from xarray.core.indexing import LazilyIndexedArray

    class Doubled(LazilyIndexedArray):
        pass

    path = write(dataset(), tmp_path, "h5netcdf")
    with read(path, decode_cf=False, cache=False) as opened:
        part = opened["counts"][2:9].variable
        assert stored_array(part) is not None
        part._data.array = Doubled(part._data.array)
        assert stored_array(part) is None
        assert stored_array(xarray.Variable("x", np.zeros(3))) is None


def test_the_chunks_are_those_of_dask(path: Path) -> None:
    with read(path) as opened:
        for sizes, largest in ((5, 5), ((3, 12, 8), 12)):
            view = ooc.open(opened["counts"].chunk({"time": sizes}))
            assert view.source.storage().chunks == (largest, *SHAPE[1:])
        listed = ooc.open(opened["counts"].isel(lat=[1, 0])).source.storage()
        assert listed.chunks == (4, 2, 8)


def test_the_chunks_of_a_selection_are_those_of_the_file(path: Path) -> None:
    with read(path) as opened:
        for places, chunks in (
            ({}, (4, 3, 8)),
            ({"time": slice(4, None, 2)}, (2, 3, 8)),
            ({"lat": 2, "lon": slice(None, None, -1)}, (4, 8)),
        ):
            assert ooc.open(opened["packed"].isel(places)).source.storage().chunks == chunks


@pytest.mark.parametrize("shuffle", [False, "global", "block"])
def test_a_level_costs_the_chunks_that_hold_it(tmp_path: Path, shuffle: Any) -> None:
    """All its levels are decoded, as for a cut of the file's own array."""
    array = sample_array((400, 8, 16))
    coding = {"u": {"chunksizes": (4, 8, 16), "zlib": True}}
    xarray.Dataset({"u": (["time", "level", "x"], array)}).to_netcdf(
        tmp_path / "a.nc", engine="h5netcdf", encoding=coding
    )
    cut = ooc.open(tmp_path / "a.nc", "u")[:, 3]
    set_memory(1 << 20)
    try:
        with xarray.open_dataset(tmp_path / "a.nc", engine="h5netcdf") as file:
            views = cut, ooc.open(file["u"].isel(level=3))
            said = [view.batches(4, shuffle=shuffle, seed=3).explain() for view in views]
    finally:
        set_memory(DEFAULT_MEMORY)
    assert said[0].amplification == said[1].amplification >= 8
    assert said[0].resident_bytes == pytest.approx(said[1].resident_bytes, rel=0.01)


def test_storage_tells_how(path: Path) -> None:
    with read(path) as opened:
        storage = ooc.open(opened["packed"]).source.storage()
        assert "decoded (scale_factor 0.01" in storage.reading
        assert storage.opened is None  # nothing but the DataArray itself tells of the decoding
        assert "through xarray" in ooc.open(opened["packed"].isel(lat=[1, 0])).storage.reading
        lazy = opened["packed"].chunk({"time": 5})
        assert "dask" in ooc.open(lazy).storage.reading


def test_rows_that_were_never_written(tmp_path: Path) -> None:
    import h5py

    path = tmp_path / "ds.h5netcdf"
    data = dataset()[["counts"]]
    data.to_netcdf(path, engine="h5netcdf", encoding={"counts": {"chunksizes": (4, 6, 8)}})
    with h5py.File(path, "a") as file:
        dims = [file["counts"].dims[axis][0] for axis in range(3)]
        holes = file.create_dataset("holes", SHAPE, "i4", chunks=(4, 6, 8), fillvalue=-1)
        holes[:8] = 3
        for axis, scale in enumerate(dims):
            holes.dims[axis].attach_scale(scale)
    with read(path) as opened:
        with pytest.raises(MissingChunkError, match="never written") as caught:
            ooc.open(opened["holes"])
        assert caught.value.rows == tuple(range(8, 23))
        filled = ooc.open(opened["holes"], missing="fill")
        assert_array_equal(np.asarray(filled), opened["holes"].values)


# --- in other threads, processes, frameworks


@pytest.mark.parametrize("kind", ["read by us", "read by xarray", "dask"])
def test_threads(one_of_each: Path, kind: str) -> None:
    with read(one_of_each) as opened:
        array, expected = opened["packed"], values_of(one_of_each)["packed"].values
        if kind == "read by xarray":
            array, expected = array.isel(lat=[5, 1]), expected[:, [5, 1]]
        if kind == "dask":
            array = array.chunk({"time": 5})
        view = ooc.open(array)

        def work(seed: int) -> None:
            for rows in np.random.default_rng(seed).integers(0, 23, (8, 5)):
                assert_array_equal(view.take(rows), expected[rows])

        with ThreadPoolExecutor(6) as threads:
            list(threads.map(work, range(6)))


CHILD = """
import pickle, sys, numpy as np
views = pickle.load(open(sys.argv[1], "rb"))
np.savez(sys.argv[2], *map(np.asarray, views))
"""


def test_another_process_opens_it_again(paths: dict[str, Path], tmp_path: Path) -> None:
    selections: list[dict[str, Any]] = [{}, {"lat": [5, 1]}, {"time": [3, 1], "lat": 2}]
    views, expected = [], []
    with ExitStack() as files:
        for path in paths.values():
            opened = files.enter_context(read(path))
            views += [ooc.open(opened["packed"].isel(places)) for places in selections]
            expected += [values_of(path)["packed"].isel(places).values for places in selections]
        for view in views:
            np.asarray(view)  # what is open by now stays here
        pickled = pickle.dumps(views)
    assert len(pickled) < 40_000 * len(paths)  # by its path, not by its values
    (tmp_path / "views").write_bytes(pickled)
    command = [sys.executable, "-c", CHILD, str(tmp_path / "views"), str(tmp_path / "found.npz")]
    subprocess.run(command, check=True, timeout=120)
    with np.load(tmp_path / "found.npz") as found:
        for number, one in enumerate(expected):
            assert_array_equal(found[f"arr_{number}"], one)


# --- what can't be opened


def test_a_name_that_is_not_there(path: Path) -> None:
    with (
        read(path) as opened,
        pytest.raises(
            ArgumentError, match=r"an axis of the .* \('time', 'lat', 'lon'\).*got 'level'"
        ),
    ):
        ooc.open(opened["counts"], axis="level")


def test_times(tmp_path: Path) -> None:
    days = np.arange("2000-01-01", "2000-01-24", dtype="M8[D]").astype("M8[ns]")
    spans = days - days[0]
    data = xarray.Dataset({"t": ("time", days), "d": ("time", spans)}, {"time": days})
    for name, expected in (("t", days), ("d", spans), ("time", days)):
        view = ooc.open(data[name], axis="time")
        assert view.dtype == np.int64
        assert_array_equal(np.asarray(view).view(view.unit), expected)
    data.to_netcdf(tmp_path / "a.nc")
    with xarray.open_dataset(tmp_path / "a.nc") as opened:
        with pytest.raises(UnsupportedDtypeError, match=r"Load times: array\.load\(\)"):
            ooc.open(opened["t"])
        assert_array_equal(np.asarray(ooc.open(opened["time"])), days.astype("i8"))


def test_text_and_objects(tmp_path: Path) -> None:
    texts = np.array([b"a", b"bc"])
    assert_array_equal(np.asarray(ooc.open(xarray.DataArray(texts.astype(str)))), texts.astype(str))
    xarray.Dataset({"s": ("x", texts)}).to_zarr(tmp_path, zarr_format=2, consolidated=False)
    for chunks in (None, {}):
        with xarray.open_zarr(tmp_path, consolidated=False, chunks=chunks) as opened:
            assert_array_equal(np.asarray(ooc.open(opened["s"])), texts)
    with pytest.raises(UnsupportedDtypeError, match=r"got dtype\('O'\)"):
        ooc.open(xarray.DataArray(np.array([{}, {}])))


def test_dtypes_of_pandas() -> None:
    import pandas as pd

    for values in (pd.Categorical(["a", "b"]), pd.array([1, None], dtype="Int64")):
        with pytest.raises(UnsupportedDtypeError, match=r"dtype of NumPy.*array\.astype\('f8'\)"):
            ooc.open(xarray.DataArray(values, dims="time"))


def test_a_dataset(path: Path) -> None:
    with read(path) as opened:
        with pytest.raises(SeveralDatasetsError, match=r"`key` must name .*'packed'"):
            ooc.open(opened)
        with pytest.raises(MissingKeyError, match=r"got 'wind'\. Its variables of numbers: '"):
            ooc.open(opened, "wind")
        with pytest.raises(ArgumentError, match="`key` must be None for a DataArray"):
            ooc.open(opened["packed"], "packed")
        assert ooc.open(opened, "counts", axis="lat").shape == (6, 23, 8)
        assert ooc.open(opened[["counts"]]).shape == SHAPE
        assert ooc.open(opened, "lat").shape == (6,)
        with pytest.raises(MissingKeyError, match="variables of numbers: none"):
            ooc.open(opened.coords.to_dataset()[[]])


def test_a_dataset_of_one_array_beside_single_numbers_needs_no_key() -> None:
    data = dataset()[["counts"]]
    data["crs"] = 4326
    assert ooc.open(data).shape == SHAPE


@pytest.mark.parametrize("name", [0, ("u", 1), "subtree"], ids=str)
def test_names_of_any_kind(name: Any) -> None:
    numbers = np.arange(6.0)
    data = xarray.Dataset({name: ("x", numbers)}, coords={"x": numbers})
    assert_array_equal(np.asarray(ooc.open(data)), numbers)
    data["other"] = ("x", numbers)
    with pytest.raises(SeveralDatasetsError, match=re.escape(f"numbers: {name!r}, 'other'")):
        ooc.open(data)


def test_a_tree_of_groups() -> None:
    numbers = xarray.Dataset({"u": ("x", np.arange(6.0))})
    tree = xarray.DataTree.from_dict(
        {"/": xarray.Dataset(coords={"x": np.zeros(6)}), "/a": numbers}
    )
    for key in ("a/u", "/a/u"):
        assert_array_equal(np.asarray(ooc.open(tree, key)), np.arange(6.0))
    tree["a/b"] = xarray.DataTree(numbers)
    assert ooc.open(tree["a"]).shape == (6,)
    assert ooc.open(tree["a"], "b/u").shape == (6,)
    with pytest.raises(MissingKeyError, match="variables of numbers: none"):
        ooc.open(tree)
    with pytest.raises(MissingKeyError, match=r"got 'a'\. Its variables of numbers: none"):
        ooc.open(tree, "a")


def test_a_dataset_without_numbers() -> None:
    data = xarray.Dataset({"s": ("x", np.array(["a", "b"])), "n": 4.0})
    with pytest.raises(MissingKeyError, match="variables of numbers: none"):
        ooc.open(data)
    assert np.asarray(ooc.open(data, "s")).tolist() == ["a", "b"]


def test_dates_of_cftime(tmp_path: Path) -> None:
    pytest.importorskip("cftime")
    days = xarray.date_range("2000-01-01", periods=4, calendar="noleap", use_cftime=True)
    xarray.Dataset({"t": ("x", days)}).to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    with (
        xarray.open_dataset(tmp_path / "a.nc", engine="h5netcdf") as opened,
        pytest.raises(UnsupportedDtypeError, match=r"[Dd]ates of cftime.*open it by its path"),
    ):
        ooc.open(opened["t"])
    assert_array_equal(np.asarray(ooc.open(tmp_path / "a.nc", "t")), np.arange(4))


def test_other_arguments_are_refused(path: Path) -> None:
    with read(path) as opened, pytest.raises(ArgumentError, match="raw binary"):
        ooc.open(opened["counts"], dtype="f4", shape=(3,))


def test_a_function_of_dask_that_fails() -> None:
    def fail(block: Any) -> Any:
        raise ValueError("no such block")

    values = dask.array.zeros((8, 2), chunks=(4, 2)).map_blocks(fail, dtype="f8")
    view = ooc.open(xarray.DataArray(values, dims=("time", "x")))
    with pytest.raises(SourceError, match="no such block"):
        np.asarray(view)


# --- conformance: every way a DataArray is read


def data_of(array: np.ndarray) -> xarray.Dataset:
    return xarray.Dataset({"u": (tuple("abcdefgh")[: array.ndim], array)})


def test_an_array_in_memory() -> None:
    array = sample_array((23, 3, 5, 4))
    source = open_data_array(data_of(array)["u"])
    assert isinstance(source, MemoryArray)
    check_boxes(source, array)


def test_an_array_of_dask() -> None:
    array = sample_array((23, 3, 5, 4))
    check_boxes(open_data_array(data_of(array).chunk({"a": 4})["u"]), array)


@pytest.mark.parametrize("dtype", ["<f4", "<i2"])
def test_an_array_of_zarr(tmp_path: Path, dtype: str) -> None:
    array = sample_array((23, 3, 5, 4), dtype)
    data_of(array).to_zarr(tmp_path / "a.zarr", consolidated=False, mode="w")
    opened = xarray.open_zarr(tmp_path / "a.zarr", consolidated=False, chunks=None)
    check_boxes(open_data_array(opened["u"]), array)


def test_values_that_xarray_has_loaded_since(tmp_path: Path) -> None:
    """The DataArray then has no link to its file any more, nor to decoders."""
    values = np.arange(12.0).reshape(6, 2) * 0.5 + 3
    encoding = {"dtype": "i2", "scale_factor": 0.5, "add_offset": 3.0, "_FillValue": -999}
    dataset = xarray.Dataset({"u": (("time", "x"), values)})
    dataset.to_netcdf(tmp_path / "a.nc", engine="h5netcdf", encoding={"u": encoding})
    with xarray.open_dataset(tmp_path / "a.nc", engine="h5netcdf") as opened:
        view = ooc.open(opened["u"])
        stored_behind(view.source)
        opened.load()
        assert_array_equal(np.asarray(view), values)
        assert_array_equal(np.asarray(pickle.loads(pickle.dumps(view))), values)


class TestDecoded(SourceConformance):
    dtypes = ("<f4", "<f8")

    def make(self, folder: Path, array: np.ndarray) -> Source:
        kind = array.dtype if array.dtype.kind == "f" else np.dtype("f8")
        stored = data_of((array * 2).astype("i2"))
        stored["u"].attrs["scale_factor"] = kind.type(0.5)
        stored.to_netcdf(folder / "a.nc", engine="h5netcdf")
        opened = xarray.open_dataset(folder / "a.nc", engine="h5netcdf")
        source = open_data_array(opened["u"])
        assert isinstance(stored_behind(source), Decoded)
        return source


class TestThroughXarray(SourceConformance):
    dtypes = ("<f4", "<i2")

    def make(self, folder: Path, array: np.ndarray) -> Source:
        data_of(array).to_netcdf(folder / "a.nc", engine="scipy")  # netCDF of version 3
        opened = xarray.open_dataset(folder / "a.nc", engine="scipy")
        return open_data_array(opened["u"])


def test_xarray_is_not_imported_for_others(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", sample_array((4, 2)))
    code = (
        "import sys, numpy as np, oocdata as ooc\n"
        f"ooc.open({str(tmp_path / 'a.npy')!r})[0], ooc.open(np.zeros(3))\n"
        "assert not {'xarray', 'dask', 'netCDF4', 'pandas'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
