"""Test texts of a fixed length, dates and enums, as arrays and as tensors."""

from __future__ import annotations

import base64
import json
import pickle
import warnings
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr
from numpy.testing import assert_array_equal
from zarr.storage import LocalStore, LoggingStore

import oocdata as ooc
from oocdata.describe import as_json, from_json
from oocdata.engines.byte_rows import size_counts
from oocdata.errors import (
    ArgumentError,
    DamagedChunkError,
    MismatchedPartsError,
    MissingChunkError,
    MissingChunkWarning,
    MissingFileError,
    SourceError,
    UnsupportedDtypeError,
)

NAMES = np.array([f"run {number}" for number in range(10)], "S6")
DATES = np.array(["2020-01-01", "NaT", "1950-02-03T04:05"] * 3, "M8[ns]")


def fixed_text(file: Any, pad: int, **options: Any) -> None:
    kind = h5py.h5t.C_S1.copy()
    kind.set_size(8)
    kind.set_strpad(pad)
    kind.set_cset(h5py.h5t.CSET_UTF8)
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    if options:
        plist.set_chunk((3,))
        plist.set_deflate(4)
    made = h5py.h5d.create(file.id, b"u", kind, h5py.h5s.create_simple((10,)), plist)
    memory = kind.copy()
    memory.set_strpad(h5py.h5t.STR_NULLPAD)
    made.write(h5py.h5s.ALL, h5py.h5s.ALL, NAMES.astype("S8"), memory)


HDF5 = {
    "bytes": lambda file: file.create_dataset("u", data=NAMES),
    "gzip": lambda file: file.create_dataset("u", data=NAMES, chunks=(3,), compression="gzip"),
    "utf8": lambda file: file.create_dataset("u", data=NAMES.astype(h5py.string_dtype("utf-8", 7))),
    "spaces": lambda file: fixed_text(file, h5py.h5t.STR_SPACEPAD),
    "ended": lambda file: fixed_text(file, h5py.h5t.STR_NULLTERM),
    "spaces, gzip": lambda file: fixed_text(file, h5py.h5t.STR_SPACEPAD, gzip=4),
}


@pytest.mark.parametrize("kind", HDF5)
def test_text_in_hdf5(tmp_path: Path, kind: str) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        HDF5[kind](file)
        expected = file["u"][:]
    assert_array_equal(expected, NAMES)
    view = ooc.open(tmp_path / "a.h5")
    assert view.dtype.kind == "S"
    assert_array_equal(np.asarray(view), NAMES)
    assert_array_equal(view.take([7, 0, 7]), NAMES[[7, 0, 7]])
    assert_array_equal(np.concatenate(list(view.batches(4, shuffle=False))), NAMES)


@pytest.mark.parametrize("kind", ["npy", "npz", "raw", "memory", "zarr2", "field"])
@pytest.mark.parametrize("text", [NAMES, NAMES.astype(">U6")], ids=["S", "U"])
def test_text_elsewhere(tmp_path: Path, kind: str, text: np.ndarray) -> None:
    view: ooc.View
    if kind == "npy":
        np.save(tmp_path / "a.npy", text)
        view = ooc.open(tmp_path / "a.npy")
    elif kind == "npz":
        np.savez(tmp_path / "a.npz", text)
        view = ooc.open(tmp_path / "a.npz")
    elif kind == "raw":
        text.tofile(tmp_path / "a.bin")
        view = ooc.open(tmp_path / "a.bin", dtype=text.dtype, shape=(-1,))
    elif kind == "memory":
        view = ooc.open(text)
    elif kind == "zarr2":
        made = zarr.create_array(
            tmp_path / "a.zarr", shape=(10,), chunks=(4,), dtype=text.dtype, zarr_format=2
        )
        made[:] = text
        view = ooc.open(tmp_path / "a.zarr")
    else:
        rows = np.zeros(10, [("a", "u1"), ("b", text.dtype)])
        rows["b"] = text
        np.save(tmp_path / "a.npy", rows)
        view = ooc.open(tmp_path / "a.npy")["b"]
    assert view.dtype == text.dtype.newbyteorder("=")
    assert_array_equal(np.asarray(view), text)
    loader = view.batches(4, shuffle=True, seed=3)
    again = loader if kind == "memory" else from_json(as_json(loader))
    assert_array_equal(again.batch(1), loader.batch(1))


def test_text_as_tensors(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    umlauts = np.array(["ä", "€uro", ""] * 3 + ["z"])
    loader = ooc.zip(ooc.open(NAMES), ooc.open(umlauts)).batches(4, workers=1)
    dataset = loader.to_tf()
    assert [spec.dtype for spec in dataset.element_spec] == [tf.string, tf.string]
    found = list(dataset)
    names = [name for one, _ in found for name in one.numpy().tolist()]
    assert names == NAMES.tolist()
    texts = [text.decode() for _, one in found for text in one.numpy().tolist()]
    assert texts == umlauts.tolist()


@pytest.mark.parametrize("options", [{}, {"chunks": (3,), "compression": "gzip"}], ids=str)
def test_text_of_varying_length(tmp_path: Path, options: dict[str, Any]) -> None:
    texts = ["a", "", "größer", "run 10"]
    for name, more in (("1", []), ("2", ["much longer than these"])):
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            kind = h5py.string_dtype()
            file.create_dataset("u", data=np.array(texts + more, object), dtype=kind, **options)
    view = ooc.open(tmp_path / "1.h5")
    assert view.dtype == np.dtype("S8")
    assert [one.decode() for one in np.asarray(view).tolist()] == texts
    loader = view.batches(2, shuffle=True, seed=1)
    assert_array_equal(from_json(as_json(loader)).batch(1), loader.batch(1))
    both = ooc.open([tmp_path / "1.h5", tmp_path / "2.h5"])
    assert [one.decode() for one in both.take(range(9)).tolist()] == [*texts, *texts, more[0]]
    assert both[3] == b"run 10"
    with h5py.File(tmp_path / "1.h5", "a") as file:
        file["u"][0] = "b"
    with pytest.raises(SourceError, match=r"1\.h5"):
        view.take([0])
    (tmp_path / "1.h5").unlink()
    with pytest.raises(MissingFileError, match=r"it is gone.*1\.h5"):
        view.take([0])


@pytest.mark.parametrize("kind", ["text", "fixed text", "number"])
def test_a_single_value_of_each_file_is_a_row(tmp_path: Path, kind: str) -> None:
    """Test one value a file, as fastMRI's header of text."""
    texts = ["<?xml?>", "", "größer", "<?xml version='1.0'?>"]
    values: list[Any] = [one.encode() for one in texts] if kind != "number" else [1.5, 2.5]
    for number, value in enumerate(values):
        with h5py.File(tmp_path / f"{number}.h5", "w") as file:
            file["u"] = (
                texts[number]
                if kind == "text"
                else np.array(value, "S24" * (kind != "number") or "f4")
            )
    for path, expected in ((tmp_path / "0.h5", values[:1]), (tmp_path / "*.h5", values)):
        view = ooc.open(path, "u", axis=None)
        assert (len(view), view.shape) == (len(expected), (len(expected),))
        assert np.asarray(view).tolist() == expected
        loader = view.batches(2, shuffle=True, seed=1)
        assert sorted(one for batch in loader.epoch(0) for one in batch.tolist()) == sorted(
            expected
        )
        assert_array_equal(from_json(as_json(loader)).batch(0), loader.batch(0))
        with pytest.raises(ArgumentError, match="row axis"):
            ooc.open(path, "u")
    with h5py.File(tmp_path / "0.h5", "a") as file:
        file["u"][()] = values[1]
    with pytest.raises(SourceError, match=r"0\.h5"):
        view.take([0])


@pytest.mark.parametrize("options", [{}, {"chunks": (3, 2), "compression": "gzip"}], ids=str)
def test_much_text_is_read_by_row(
    tmp_path: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from oocdata.formats.hdf5 import varying

    monkeypatch.setattr(varying, "_MOST_TEXT", 4000)
    monkeypatch.setattr(varying, "_PIECE", 3)
    texts = np.array(["größer " * (number * 7 % 50) for number in range(40)], object)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        kind = h5py.string_dtype()
        file.create_dataset("u", data=texts.reshape(20, 2), dtype=kind, **options)
        with pytest.raises(UnsupportedDtypeError, match="got 40 others"):
            ooc.open(file["u"])
    expected = np.array([text.encode() for text in texts], object).reshape(20, 2)
    view = ooc.open(tmp_path / "a.h5")
    assert view.dtype == object
    assert_array_equal(np.asarray(view), expected)
    assert_array_equal(view[:, 1].take([7, 0, 19, 7]), expected[[7, 0, 19, 7], 1])
    both = ooc.open(tmp_path / "a.h5", axis=(0, 1))
    assert_array_equal(both.take([39, 4]), expected.ravel()[[39, 4]])
    sizes = np.array([len(text) for text in expected.ravel()])
    assert view.storage.row_sizes == tuple(size_counts(sizes).tolist())
    loader = both.batches(8, shuffle=True, seed=1)
    assert_array_equal(from_json(as_json(loader)).batch(1), loader.batch(1))
    assert_array_equal(pickle.loads(pickle.dumps(view))[3], expected[3])
    with (tmp_path / "a.h5").open("ab") as raw:
        raw.write(b"more")
    with pytest.raises(SourceError, match=r"has changed.*a\.h5"):
        view.take([0])


def test_what_text_is_not_made_of(tmp_path: Path) -> None:
    view = ooc.open(NAMES)
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    for text in (view, ooc.open(tmp_path / "a.txt")):
        with pytest.raises(ArgumentError, match="left as it is for text and bytes; got float32"):
            text.astype("f4")
    with pytest.raises(UnsupportedDtypeError, match="one of numbers; got"):
        ooc.open(np.arange(3)).astype("S3")
    with pytest.raises(ArgumentError, match="one dtype"):
        ooc.stack([ooc.open(np.zeros((10, 3))), NAMES[:3]])
    for tool in (ooc.stats, ooc.preview):
        with pytest.raises(UnsupportedDtypeError, match=r"must be numbers; got \|S6"):
            tool(view)


@pytest.mark.parametrize("kind", ["npy", "big", "memmap", "memory", "raw", "field"])
def test_dates_are_integers_with_a_unit(tmp_path: Path, kind: str) -> None:
    dates = DATES.astype(">M8[s]") if kind == "big" else DATES
    np.save(tmp_path / "a.npy", dates)
    view: ooc.View
    if kind == "memmap":
        view = ooc.open(np.load(tmp_path / "a.npy", mmap_mode="r"))
    elif kind == "memory":
        view = ooc.open(dates)
    elif kind == "raw":
        dates.tofile(tmp_path / "a.bin")
        view = ooc.open(tmp_path / "a.bin", dtype="M8[ns]", shape=(-1,))
    elif kind == "field":
        rows = np.zeros(9, [("a", "u1"), ("b", "M8[ns]")])
        rows["b"] = dates
        view = ooc.open(rows)["b"]
    else:
        view = ooc.open(tmp_path / "a.npy")
    assert view.dtype == np.int64
    assert view.unit == f"datetime64[{'s' if kind == 'big' else 'ns'}]"
    assert_array_equal(np.asarray(view).view(view.unit), dates)
    opened = view.storage.opened
    if opened is not None:
        assert ooc.open(**opened).unit == view.unit


@pytest.mark.parametrize("options", [{}, {"chunks": (2,)}, {"chunks": (2,), "compression": "gzip"}])
def test_dates_in_hdf5(tmp_path: Path, options: dict[str, Any]) -> None:
    """H5py writes dates as opaque data, with NumPy's dtype as a tag."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("t", data=DATES.astype(h5py.opaque_dtype(DATES.dtype)), **options)
    view = ooc.open(tmp_path / "a.h5", "t")
    assert (view.dtype, view.unit) == (np.int64, "datetime64[ns]")
    assert_array_equal(np.asarray(view).view(view.unit), DATES)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("dtype", ["<M8[ns]", ">M8[s]", "<m8[10s]"])
@pytest.mark.parametrize("options", [{"chunks": (2,)}, {"chunks": (2,), "compressors": None}])
def test_dates_in_zarr(tmp_path: Path, version: Any, dtype: str, options: dict[str, Any]) -> None:
    """As anemoi writes them. The third chunk is absent: the fill value, which is NaT."""
    dates = DATES.astype(f"M8[{np.datetime_data(dtype)[0]}]").astype("i8").view(dtype[1:])
    dates = dates.astype(dtype)
    dates[4:6] = np.array("NaT", dtype)
    array = zarr.create_array(
        tmp_path / "a.zarr", shape=9, dtype=dates.dtype, zarr_format=version,
        dimension_names=("time",) if version == 3 else None,
        attributes={"_ARRAY_DIMENSIONS": ["time"]} if version == 2 else {}, **options,
    )  # fmt: skip
    array[...] = dates
    (tmp_path / "a.zarr" / ("c/2" if version == 3 else "2")).unlink(missing_ok=True)
    for decode in (False, True):
        view = ooc.open(tmp_path / "a.zarr", decode=decode, missing="fill")
        assert (view.dtype, view.unit) == (np.int64, np.dtype(dtype).newbyteorder("=").name)
        assert_array_equal(np.asarray(view).view(view.unit), dates)
        assert_array_equal(np.asarray(view[::-2]).view(view.unit), dates[::-2])


@pytest.mark.parametrize("dtype", ["<M8[s]", ">M8[ns]", "<m8[D]"])
def test_dates_without_a_fill_value(tmp_path: Path, dtype: str) -> None:
    """As zarr-python delivers them; zero would be a date."""
    array = zarr.create_array(
        tmp_path / "a.zarr", shape=4, chunks=2, dtype=dtype, zarr_format=2, fill_value=None
    )
    array[:2] = np.arange(2).view(dtype.replace(">", "<"))
    view = ooc.open(tmp_path / "a.zarr", missing="fill")
    assert_array_equal(np.asarray(view).view(view.unit), array[...])


@pytest.mark.filterwarnings("ignore:The data type")  # no specification of Zarr 3 has it
@pytest.mark.parametrize("version", [2, 3])
def test_text_and_structures_in_zarr(tmp_path: Path, version: Any) -> None:
    rows = np.zeros(9, [("at", "<i4"), ("name", "S3"), ("speed", "f8")])
    rows["at"], rows["name"], rows["speed"] = np.arange(9), b"ab", np.arange(9) / 4
    for name, data in {"S": rows["name"], "U": rows["name"].astype("U5"), "V": rows}.items():
        zarr.create_array(tmp_path / name, data=data, chunks=(2,), zarr_format=version)
        view = ooc.open(tmp_path / name)
        for field in data.dtype.names or [None]:
            stored = data if field is None else data[field]
            assert_array_equal(np.asarray(view if field is None else view[field]), stored)


def test_fill_values_of_structures(tmp_path: Path) -> None:
    """Zarr-python 3.1 writes base64, 3.4 an object of fields."""
    dtype = np.dtype([("at", "<i4"), ("name", "S3"), ("when", "<M8[s]")])
    chain = [{"name": "bytes", "configuration": {"endian": "little"}}]
    fields = [
        {"name": "at", "data_type": "int32"},
        {
            "name": "name",
            "data_type": {"name": "null_terminated_bytes", "configuration": {"length_bytes": 3}},
        },
        {
            "name": "when",
            "data_type": {
                "name": "numpy.datetime64", "configuration": {"unit": "s", "scale_factor": 1},
            },
        },
    ]  # fmt: skip
    filled = np.array((-5, b"xy", "NaT"), dtype)
    encoded = base64.b64encode(filled.tobytes()).decode()
    fills = {"at": -5, "name": base64.b64encode(b"xy").decode(), "when": "NaT"}
    for kind, fill in {"struct": fills, "structured": encoded}.items():
        node = {
            "zarr_format": 3, "node_type": "array", "shape": [4], "codecs": chain,
            "data_type": {"name": kind, "configuration": {"fields": fields}}, "fill_value": fill,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
            "chunk_key_encoding": {"name": "default"},
        }  # fmt: skip
        (tmp_path / kind / "c").mkdir(parents=True)
        (tmp_path / kind / "zarr.json").write_text(json.dumps(node))
        rows = np.array([(1, b"a", "2000-01-01"), (2, b"b", "NaT")], dtype)
        (tmp_path / kind / "c/0").write_bytes(rows.tobytes())
        view = ooc.open(tmp_path / kind, missing="fill")
        for name in dtype.names or ():
            got = np.asarray(view[name])
            wanted = np.concatenate([rows[name], [filled[name]] * 2])
            assert_array_equal(got.view(view[name].unit or got.dtype), wanted)


def test_dates_are_no_spans_of_time() -> None:
    view = ooc.open(np.array(["2000-01-02"], "M8[D]"))
    assert_array_equal(np.asarray(view, "M8[h]"), np.array(["2000-01-02T00"], "M8[h]"))
    for dtype in ("m8[D]", "m8[s]"):
        with pytest.raises(ooc.errors.UnsupportedDtypeError, match="got timedelta64"):
            np.asarray(view, dtype)


def test_spans_of_time() -> None:
    spans = np.array([1, 2, "NaT"], "m8[D]")
    view = ooc.open(spans)
    assert_array_equal(np.asarray(view).view(view.unit), spans)
    assert ooc.open(np.arange(3)).unit == ""


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_text_of_varying_length_in_zarr(tmp_path: Path, zarr_format: Any) -> None:
    texts = ["a", "run 10", "", "é€", "the last one"]
    group = zarr.create_group(tmp_path / "a.zarr", zarr_format=zarr_format)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # strings are no part of the specification yet
        stored = group.create_array("names", shape=(5,), dtype=str, chunks=(2,))
    stored[:] = np.array(texts, object)
    group.create_array("u", shape=(5, 2), dtype="f4")[:] = 1
    view = ooc.open(tmp_path / "a.zarr", "names")
    expected = [text.encode() for text in texts]
    assert np.asarray(view).tolist() == expected
    assert view.take([3, 0, 3]).tolist() == [expected[3], b"a", expected[3]]
    batches = view.batches(2, shuffle=False)
    assert [text for batch in batches for text in batch.tolist()] == expected
    assert [text for batch in batches.to_tf() for text in batch.numpy().tolist()] == expected
    assert ooc.open(tmp_path / "a.zarr").storage.key == "u"  # text is no candidate
    again = from_json(as_json(view.batches(2, shuffle=False)))
    assert again.batch(1).tolist() == expected[2:4]
    assert pickle.loads(pickle.dumps(view)).take([4]).tolist() == [b"the last one"]


def test_text_in_zarr_that_is_absent_or_damaged(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stored = zarr.create_array(tmp_path / "a.zarr", shape=(5,), dtype=str, chunks=(2,))
    stored[2:] = np.array(["b", "c", "d"], object)
    with pytest.warns(MissingChunkWarning, match="1 of 3"):
        view = ooc.open(tmp_path / "a.zarr")
    assert np.asarray(view).tolist() == [b"", b"", b"b", b"c", b"d"]
    with pytest.raises(MissingChunkError) as caught:
        ooc.open(tmp_path / "a.zarr", missing="error")
    assert caught.value.rows == (0, 1)
    file = tmp_path / "a.zarr/c/1"
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(DamagedChunkError, match="must decode"):
        ooc.open(tmp_path / "a.zarr", missing="fill")
    (tmp_path / "a.zarr/zarr.json").touch()
    with pytest.raises(SourceError, match="changed"):
        view[0]


SKY = {"cloudy": 1, "clear": 0, "rain": 2}


@pytest.mark.parametrize(
    "options", [{}, {"chunks": (3,)}, {"chunks": (3,), "compression": "gzip"}], ids=str
)
@pytest.mark.parametrize("names", [SKY, {"clear": 0, "missing": 255}, {"low": -3, "high": 700}])
def test_names_of_an_enum(tmp_path: Path, options: Any, names: dict[str, int]) -> None:
    codes = np.resize(list(names.values()), 10)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("u", data=codes, dtype=h5py.enum_dtype(names, ">i4"), **options)
        file["flags"] = codes > 0
        there = ooc.open(file["u"]).categories
    view = ooc.open(tmp_path / "a.h5", "u")
    with h5py.File(tmp_path / "a.h5") as file:
        name_of = {code: name for name, code in h5py.check_enum_dtype(file["u"].dtype).items()}
        expected = [name_of[code] for code in file["u"][:].tolist()]
    for one in (view, view[::-2], view.astype("i8"), view.split(0.5, 0.5)[1]):
        assert one.categories == there
    assert [view.categories[code] for code in np.asarray(view).tolist()] == expected
    assert isinstance(view.categories, tuple if names is SKY else dict)
    assert ooc.open(tmp_path / "a.h5", "flags").categories == ()


def test_names_of_enums_in_several_datasets(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for number, names in enumerate([SKY, SKY, {"cloudy": 0, "clear": 1, "rain": 2}]):
            kind = h5py.enum_dtype(names, "u1")
            file.create_dataset(f"run{number}", data=[0, 1, 2], dtype=kind)
        file["plain"] = np.zeros(3, "u1")
    same = ooc.open(tmp_path / "a.h5", ["run0", "run1"])
    assert same.categories == ("clear", "cloudy", "rain")
    for keys in ("run*", ["run0", "plain"]):
        with pytest.raises(MismatchedPartsError, match="categories must be the same"):
            ooc.open(tmp_path / "a.h5", keys)


@pytest.mark.parametrize(
    ("target", "names"),
    [("b.zarr", SKY), ("b.h5", SKY), ("b.zarr", {"clear": 0, "missing": 255})],
    ids=["zarr", "hdf5", "dict"],
)
def test_names_of_an_enum_are_converted(tmp_path: Path, target: str, names: dict[str, int]) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("u", data=[0, 1], dtype=h5py.enum_dtype(names, "u1"))
    view = ooc.open(tmp_path / "a.h5")
    ooc.convert(view, tmp_path / target)
    assert ooc.open(tmp_path / target).categories == view.categories


def test_categories_of_anndata_before_0_8(tmp_path: Path) -> None:
    """An attribute of the codes refers to the names (anndata 0.7, `write_series`)."""
    names = np.array(["B cell", "T cell"], object)
    with h5py.File(tmp_path / "a.h5ad", "w") as file:
        file["obs/type"] = np.array([1, 0, -1], "i1")
        made = file.create_dataset("obs/__categories/type", data=names, dtype=h5py.string_dtype())
        file["obs/type"].attrs["categories"] = made.ref
    assert ooc.open(tmp_path / "a.h5ad", "obs/type").categories == ("B cell", "T cell")


def test_absent_chunks_of_texts_are_told(tmp_path: Path) -> None:
    """The warning is issued even if chunks are not listed on opening."""
    texts = np.array([f"row {number}" for number in range(12)], object)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # strings are no part of the specification yet
        zarr.create_array(tmp_path / "a", shape=12, chunks=3, dtype=str)[:] = texts
        (tmp_path / "a/c/2").unlink()
        store = LoggingStore(LocalStore(tmp_path / "a"), log_level="ERROR")
        array = zarr.open_array(store, mode="r")
    with pytest.warns(MissingChunkWarning, match="some chunks"):
        view = ooc.open(array)
    assert np.asarray(view)[5:10].tolist() == [b"row 5", b"", b"", b"", b"row 9"]
    with pytest.raises(MissingChunkError) as got:
        ooc.open(array, missing="error")
    assert got.value.rows == (6, 7, 8)


@pytest.mark.parametrize("dtype", ["M8[s]", "m8[D]", object])
def test_rows_become_no_dates_or_objects(dtype: Any) -> None:
    with pytest.raises(UnsupportedDtypeError, match="`dtype` must be one of numbers; got"):
        ooc.open(np.arange(3)).astype(dtype)
