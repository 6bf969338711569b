"""Test HDF5 storage layouts, names and dtypes, with NumPy as the oracle."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import numpy as np
import pytest
from boxes import check_boxes
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import oocdata as ooc
from oocdata.datasets.view import View
from oocdata.engines.chunked import Chunked
from oocdata.engines.files import FileVersion
from oocdata.engines.source import Source
from oocdata.engines.strided import Strided
from oocdata.errors import (
    ArgumentError,
    MissingDependencyError,
    MissingFileError,
    MissingKeyError,
    SeveralDatasetsError,
    SourceError,
    TruncatedFileError,
    UnknownFormatError,
    UnsupportedDtypeError,
)
from oocdata.formats import tree as tree_module
from oocdata.formats.opening import list_datasets, open_source
from oocdata.testing import SourceConformance, sample_array


def read(source: Source, rows: Any = None) -> np.ndarray:
    view = View.of(source)
    return view.take(range(len(view)) if rows is None else rows)


def tile(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a chunk shape that splits every axis and leaves partial edges."""
    return tuple(min(length, size) for length, size in zip(shape, (4, 2, 3, 3), strict=False))


class TestContiguous(SourceConformance):
    engine: type = Strided

    def options(self, array: np.ndarray) -> dict[str, Any]:
        return {}

    def make(self, folder: Path, array: np.ndarray) -> Source:
        with h5py.File(folder / "a.h5", "w") as file:
            file.create_dataset("u", data=array, **self.options(array))
        source = open_source(str(folder / "a.h5"))
        assert isinstance(source, self.engine)
        return source


class TestGzip(TestContiguous):
    engine = Chunked

    def options(self, array: np.ndarray) -> dict[str, Any]:
        return {
            "chunks": tile(array.shape),
            "compression": "gzip",
            "shuffle": True,
            "fletcher32": True,
        }


def compact(file: h5py.File, array: np.ndarray) -> None:
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_layout(h5py.h5d.COMPACT)
    kind = h5py.h5t.py_create(array.dtype, logical=True)
    space = h5py.h5s.create_simple(array.shape)
    dataset = h5py.Dataset(h5py.h5d.create(file.id, b"u", kind, space, plist))
    dataset[...] = array


def rows_written_from_the_last(file: h5py.File, array: np.ndarray) -> None:
    chunks = (3, *array.shape[1:])
    u = file.create_dataset("u", array.shape, array.dtype, chunks=chunks)
    for start in reversed(range(0, len(array), 3)):
        u[start : start + 3] = array[start : start + 3]
        file.flush()


def stored_as(**options: Any) -> Callable[[h5py.File, np.ndarray], None]:
    """Return a function that stores a dataset with these options of h5py."""
    return lambda file, array: file.create_dataset("u", data=array, **options) and None


SHAPE = (23, 3, 5, 4)
EITHER_END = ("<f4", "<u8", "|u1", "|b1", "<c8", ">f2", ">i2", ">c8")
STORED: dict[str, tuple[type, tuple[str, ...], dict[str, Any], Any]] = {
    "behind a user block": (Strided, EITHER_END, {"userblock_size": 4096}, stored_as()),
    "newest format": (Strided, EITHER_END, {"libver": "latest"}, stored_as()),
    "compact": (Chunked, EITHER_END, {}, compact),
    "rows written from the last": (
        Strided,
        EITHER_END,
        {"libver": "latest"},
        rows_written_from_the_last,
    ),
    # Unfiltered chunks are read by offset.
    "chunks of rows": (Strided, EITHER_END, {}, stored_as(chunks=(3, *SHAPE[1:]))),
    "chunks": (Strided, EITHER_END, {}, stored_as(chunks=tile(SHAPE))),
    "chunks in the newest format": (
        Strided,
        EITHER_END,
        {"libver": "latest"},
        stored_as(chunks=tile(SHAPE)),
    ),
    "resizable": (
        Strided,
        EITHER_END,
        {},
        stored_as(chunks=tile(SHAPE), maxshape=(None,) * 4),
    ),
    "chunks that cut rows into short runs": (
        Chunked,
        EITHER_END,
        {},
        stored_as(chunks=tile(SHAPE)),
    ),
    "single rows": (
        Chunked,
        EITHER_END,
        {},
        stored_as(chunks=(1, *SHAPE[1:]), compression="lzf"),
    ),
    "lzf": (Chunked, EITHER_END, {}, stored_as(chunks=tile(SHAPE), compression="lzf")),
    # HDF5 1.14 can't read back bytes that need all their bits.
    "scale-offset": (
        Chunked,
        ("<i2", "<i4"),
        {},
        stored_as(chunks=tile(SHAPE), scaleoffset=0),
    ),
    "szip": (
        Chunked,
        ("<f4", "<i2", "<f8"),
        {},
        stored_as(chunks=tile(SHAPE), compression="szip", compression_opts=("nn", 2)),
    ),
}


@pytest.mark.parametrize("way", STORED)
def test_ways_of_storing(tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, dtypes, options, store = STORED[way]
    if engine is Strided:  # the engine for long runs
        monkeypatch.setattr("oocdata.formats.hdf5.found._LARGE", 0)
    if way == "szip" and not h5py.h5z.filter_avail(h5py.h5z.FILTER_SZIP):
        pytest.skip("h5py without szip")
    for number, dtype in enumerate(dtypes):
        array = sample_array(SHAPE, dtype)
        with h5py.File(tmp_path / f"{number}.h5", "w", **options) as file:
            store(file, array)
        source = open_source(str(tmp_path / f"{number}.h5"))
        assert isinstance(source, engine)
        check_boxes(source, array)


@pytest.mark.parametrize(
    ("codec", "name"),
    [
        (hdf5plugin.Zstd(), "zstd"),
        (hdf5plugin.Blosc(cname="lz4"), "blosc"),
        (hdf5plugin.Blosc2(), "blosc2"),
        (hdf5plugin.LZ4(), "lz4"),
        (hdf5plugin.Bitshuffle(), "bitshuffle"),
        (hdf5plugin.BZip2(), "bzip2"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_plugins(tmp_path: Path, codec: Any, name: str) -> None:
    for stored in ("<f4", ">f8", "|u1", "<i8"):
        array, path = sample_array((50, 7, 9), stored), str(tmp_path / f"{stored[1:]}.h5")
        with h5py.File(path, "w") as file:
            file.create_dataset("u", data=array, chunks=(8, 4, 9), **codec)
        source = open_source(path)
        assert_array_equal(read(source), array)
        assert_array_equal(read(source, [49, 0, 17]), array[[49, 0, 17]])
        assert source.storage().codec == name


def test_plugin_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("u", data=np.zeros((8, 4)), chunks=(4, 4), **hdf5plugin.Zstd())
    monkeypatch.setattr(h5py.h5z, "filter_avail", lambda number: False)
    with pytest.raises(MissingDependencyError, match=r"filter 32015 \(zstd\).*must be on"):
        open_source(str(tmp_path / "a.h5"))
    monkeypatch.setitem(__import__("sys").modules, "hdf5plugin", None)
    with pytest.raises(
        MissingDependencyError, match=r"filter 32015 \(zstd\).*pip install hdf5plugin.*'/u'"
    ):
        open_source(str(tmp_path / "a.h5"))


@st.composite
def stored_arrays(draw: st.DrawFn) -> tuple[Any, ...]:
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)))
    chunks = draw(st.none() | st.tuples(*[st.integers(1, length) for length in shape]))
    axis = draw(st.integers(0, len(shape) - 1))
    dtype = draw(st.sampled_from(["<f4", ">i2", "|u1", "<c16", "|b1", ">f8"]))
    gzip = chunks is not None and draw(st.booleans())
    rows = draw(st.lists(st.integers(0, shape[axis] - 1), max_size=12))
    slices = [
        draw(st.slices(length) | st.integers(-length, length - 1))
        for place, length in enumerate(shape)
        if place != axis
    ]
    return shape, chunks, axis, dtype, gzip, rows, tuple(slices)


@given(stored_arrays())
def test_any_rows_and_cuts(case: tuple[Any, ...]) -> None:
    shape, chunks, axis, dtype, gzip, rows, cuts = case
    array = sample_array(shape, dtype)
    with tempfile.TemporaryDirectory() as folder:
        with h5py.File(f"{folder}/a.h5", "w") as file:
            options = {"compression": "gzip", "shuffle": True} if gzip else {}
            file.create_dataset("u", data=array, chunks=chunks, **options)
        view = View.of(open_source(f"{folder}/a.h5", axis=axis), axis)[(slice(None), *cuts)]
        expected = np.moveaxis(array, axis, 0)[(slice(None), *cuts)]
        assert_array_equal(view.take(rows), expected[np.asarray(rows, int)])


# Names


@pytest.fixture
def tree(tmp_path: Path) -> str:
    path = str(tmp_path / "tree.h5")
    with h5py.File(path, "w") as file:
        file["a/b/u"] = sample_array((6, 2))
        file["v"] = sample_array((5, 2))
        file["note"] = "text"
        file["scalar"] = 3.0
        file["loop"] = h5py.SoftLink("/loop2")
        file["loop2"] = h5py.SoftLink("loop")
        file["dangling"] = h5py.SoftLink("/nowhere")
        file["short"] = h5py.SoftLink("a/b/u")
        file["a/up"] = h5py.SoftLink("/v")
        file["folder"] = h5py.SoftLink("/a/b")
        file["a/b/self"] = file["a"]  # a hard link that makes a cycle
        file["out"] = h5py.ExternalLink("nowhere.h5", "/x")
        file["type"] = np.dtype("f4")
    return path


def test_list(tree: str) -> None:
    assert list_datasets(tree) == ["/a/b/u", "/a/up", "/note", "/out", "/scalar", "/short", "/v"]


@pytest.mark.parametrize(
    "key", ["/a/b/u", "a/b/u", "a//b/./u", "short", "/folder/u", "a/b/self/b/u"]
)
def test_key(tree: str, key: str) -> None:
    assert_array_equal(read(open_source(tree, key)), sample_array((6, 2)))


@pytest.mark.parametrize("key", ["nothing", "a/b/w", "v/w", "loop", "dangling"])
def test_key_leads_nowhere(tree: str, key: str) -> None:
    with pytest.raises(MissingKeyError, match=rf"got '{key}'.*holds: '/a/b/u'.*tree\.h5"):
        open_source(tree, key)


@pytest.mark.parametrize(
    ("key", "listed"), [("a", "'/a/b/u', '/a/up'"), ("/", "'/a/b/u', '/a/up'")], ids=["a", "root"]
)
def test_key_names_a_group(tree: str, key: str, listed: str) -> None:
    with pytest.raises(MissingKeyError, match=f"is a group, which holds: {listed}"):
        open_source(tree, key)


def test_key_names_a_type(tree: str) -> None:
    with pytest.raises(MissingKeyError, match="a type"):
        open_source(tree, "type")


def test_several(tree: str) -> None:
    with pytest.raises(SeveralDatasetsError, match=r"several datasets: '/a/b/u', '/a/up', '/out'"):
        open_source(tree)


def test_several_are_compared_without_keeping_them_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HDF5 takes 13 KB for each open dataset."""
    path, compare, counts = str(tmp_path / "a.h5"), tree_module.data_variables, []
    with h5py.File(path, "w") as file:
        for number in range(20):
            file[f"u{number}"] = np.arange(3)

    def count(arrays: Any) -> list[str]:
        counts.append(h5py.h5f.get_obj_count(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_DATASET))
        return compare(arrays)

    monkeypatch.setattr(tree_module, "data_variables", count)
    before = h5py.h5f.get_obj_count(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_DATASET)
    with pytest.raises(SeveralDatasetsError):
        open_source(path)
    assert counts == [before]


def test_dimension_scales_are_datasets_that_need_no_key(tmp_path: Path) -> None:
    path = str(tmp_path / "cdf.h5")  # what netCDF-4 writes
    with h5py.File(path, "w") as file:
        file.create_dataset("time", (4,), "f8", maxshape=(None,), chunks=(4,))[:] = range(4)
        file["time"].make_scale("time")
        file.create_dataset("u", (4, 3), "f4", maxshape=(None, 3), chunks=(1, 3))[:] = 1
        file["u"].dims[0].attach_scale(file["time"])
    assert list_datasets(path) == ["/time", "/u"]
    assert open_source(path).shape == open_source(path, "u").shape == (4, 3)
    assert open_source(path, "time").shape == (4,)


def test_only_one_array(tmp_path: Path) -> None:
    path = str(tmp_path / "a.h5")
    with h5py.File(path, "w") as file:
        file["u"] = sample_array((5, 2))
        file["w"] = file["u"]  # a second name of the same dataset
        file["z"] = h5py.SoftLink("/u")
        file["note"] = "text"
        file["scalar"] = 1.0
        file["empty"] = h5py.Empty("f4")
    assert_array_equal(read(open_source(path)), sample_array((5, 2)))


@pytest.mark.parametrize(
    ("dtype", "value"),
    [(h5py.vlen_dtype("i2"), np.arange(3)), (np.dtype([("a", "f4"), ("b", "i4")]), (1, 2))],
    ids=["rows of unequal length", "fields"],
)
def test_labels_are_not_the_only_array_beside_rows_of_another_kind(
    tmp_path: Path, dtype: Any, value: Any
) -> None:
    """Else a file of audio clips and labels would be opened as its labels, in silence."""
    path = str(tmp_path / "a.h5")
    with h5py.File(path, "w") as file:
        file.create_dataset("clips", (3,), dtype)[0] = value
        file["note"] = np.array([b"a", b"b"])
    assert len(ooc.open(path)) == 3
    with h5py.File(path, "a") as file:
        file["labels"] = np.arange(3)
    with pytest.raises(SeveralDatasetsError, match=r"several datasets: '/clips', '/labels'\."):
        ooc.open(path)


def test_no_array(tmp_path: Path) -> None:
    path = str(tmp_path / "a.h5")
    with h5py.File(path, "w"):
        pass
    assert list_datasets(path) == []
    with pytest.raises(MissingKeyError, match="it holds none"):
        open_source(path)
    with h5py.File(path, "a") as file:
        file["note"] = "text"
    with pytest.raises(ArgumentError, match=r"single number or text\. With axis=None"):
        open_source(path)
    with h5py.File(path, "a") as file:
        file["scalar"] = 1.0
    with pytest.raises(SeveralDatasetsError, match="several datasets: '/note', '/scalar'"):
        open_source(path)


@pytest.mark.parametrize("make", [h5py.SoftLink, None], ids=["soft", "hard"])
def test_a_second_name_of_text_is_no_second_dataset(tmp_path: Path, make: Any) -> None:
    path = str(tmp_path / "a.h5")
    with h5py.File(path, "w") as file:
        file["text"] = np.array([b"a", b"b"])
        file["z"] = make("/text") if make else file["text"]
    assert_array_equal(ooc.open(path).read_all(), [b"a", b"b"])
    with h5py.File(path, "a") as file:
        file["more"] = np.array([b"a", b"b"])
    with pytest.raises(SeveralDatasetsError, match=r"several datasets: '/more', '/text'\."):
        ooc.open(path)


# Dtypes


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda f: f.create_dataset("u", (3,), h5py.vlen_dtype(h5py.vlen_dtype("i4"))),
            "varying length",
        ),
        (lambda f: f.create_dataset("u", (3,), h5py.ref_dtype), "references"),
        (lambda f: f.create_dataset("u", (3,), [("a", h5py.string_dtype())]), "field must have"),
        (lambda f: f.create_dataset("u", (3,), "(2,)f4"), "a numeric dtype"),
        (lambda f: f.create_dataset("u", data=np.zeros(3, "V5")), "V5"),
        (lambda f: f.create_dataset("u", data=np.zeros(3, np.longdouble)), "float128"),
        (
            lambda f: h5py.h5d.create(f.id, b"u", _three_bytes(), h5py.h5s.create_simple((3,))),
            "no dtype",
        ),
        (
            lambda f: h5py.h5d.create(f.id, b"u", _quad(), h5py.h5s.create_simple((3,))),
            "no dtype",
        ),
    ],
    ids=["vlen", "ref", "compound", "array", "opaque", "longdouble", "int24", "quad"],
)
def test_unsupported_dtypes(tmp_path: Path, make: Any, words: str) -> None:
    path = str(tmp_path / "a.h5")
    with h5py.File(path, "w") as file:
        make(file)
    with pytest.raises(UnsupportedDtypeError, match=words) as caught:
        open_source(path, "u")
    assert (caught.value.path, caught.value.key) == (path, "/u")


def _quad() -> Any:
    kind = h5py.h5t.IEEE_F64LE.copy()
    kind.set_size(16)
    kind.set_precision(128)
    kind.set_fields(127, 112, 15, 0, 112)
    kind.set_ebias(16383)
    return kind


def _three_bytes() -> Any:
    kind = h5py.h5t.STD_I32LE.copy()
    kind.set_precision(24)
    kind.set_size(3)
    return kind


@pytest.mark.parametrize("chunks", [None, (2,)], ids=["contiguous", "chunked"])
def test_enum_is_its_integers(tmp_path: Path, chunks: Any) -> None:
    path = str(tmp_path / "a.h5")
    with h5py.File(path, "w") as file:
        kind = h5py.enum_dtype({"A": 0, "B": 1, "C": 258}, ">i4")
        file.create_dataset("u", data=[0, 258, 1], dtype=kind, chunks=chunks)
    source = open_source(path)
    assert source.dtype == np.dtype("i4")
    assert source.dtype.metadata is None
    assert_array_equal(read(source), [0, 258, 1])


def test_types_that_numpy_lacks(tmp_path: Path) -> None:
    path = str(tmp_path / "a.h5")
    with h5py.File(path, "w") as file:
        brain = h5py.h5t.IEEE_F32LE.copy()
        brain.set_fields(15, 7, 8, 0, 7)
        brain.set_size(2)
        brain.set_ebias(127)
        twelve = h5py.h5t.STD_I16LE.copy()
        twelve.set_precision(12)
        turned = twelve.copy()
        turned.set_order(h5py.h5t.ORDER_BE)
        for name, kind in ((b"brain", brain), (b"twelve", twelve), (b"turned", turned)):
            dataset = h5py.h5d.create(file.id, name, kind, h5py.h5s.create_simple((4,)))
            h5py.Dataset(dataset)[:] = [1, 2, 3, -4]
    for key, dtype in (("brain", "f4"), ("twelve", "i2"), ("turned", "i2")):
        source = open_source(path, key)
        assert source.dtype == np.dtype(dtype)
        assert_array_equal(read(source), [1, 2, 3, -4])


@pytest.mark.parametrize("way", ["virtual", "compact", "object"])
@pytest.mark.parametrize("kind", ["<M8[us]", ">M8[us]", "fields"])
def test_what_hdf5_does_not_convert(tmp_path: Path, kind: str, way: str) -> None:
    """HDF5 converts neither dates, which are opaque, nor character sets of texts in fields."""
    dates = h5py.opaque_dtype(np.dtype("<M8[us]" if kind == "fields" else kind))
    fields = [("name", h5py.string_dtype("utf-8", 4)), ("at", dates), ("x", ">f4")]
    dtype = np.dtype(fields) if kind == "fields" else dates
    array = np.zeros(3, dtype)
    if kind == "fields":
        array["name"], array["x"] = ["é".encode(), b"", b"abcd"], [1, 2, 3]
    (array["at"] if kind == "fields" else array)[...] = np.array([5, -7, 1 << 40], "M8[us]")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("s", data=array, dtype=dtype)
        if way == "virtual":
            layout = h5py.VirtualLayout((3,), dtype)
            layout[...] = h5py.VirtualSource(file["s"])
            file.create_virtual_dataset("u", layout)
        else:
            plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            plist.set_layout(h5py.h5d.COMPACT)
            space = h5py.h5s.create_simple((3,))
            made = h5py.h5d.create(file.id, b"u", file["s"].id.get_type(), space, plist)
            h5py.Dataset(made)[...] = array
    with h5py.File(tmp_path / "a.h5", "r+" if way == "object" else "r") as file:
        view = ooc.open(file["u"]) if way == "object" else ooc.open(file.filename, "u")
        if kind != "fields":
            assert_array_equal(np.asarray(view).view(view.unit), array)
            return
        assert_array_equal(np.asarray(view["name"]), array["name"])
        assert_array_equal(np.asarray(view["at"]).view("M8[us]"), array["at"])
        assert_array_equal(view["x"].take([2, 0]), array["x"][[2, 0]])


def test_fields_that_h5py_takes_for_larger_ones(tmp_path: Path) -> None:
    """H5py would read such fields over one another, and beyond the end of its buffer."""
    brain = h5py.h5t.IEEE_F32LE.copy()
    brain.set_fields(15, 7, 8, 0, 7)
    brain.set_size(2)
    brain.set_ebias(127)
    pair = h5py.h5t.create(h5py.h5t.COMPOUND, 6)
    pair.insert(b"a", 0, brain)
    pair.insert(b"b", 2, h5py.h5t.IEEE_F32LE)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        h5py.h5d.create(file.id, b"u", pair, h5py.h5s.create_simple((4,)))
    with pytest.raises(UnsupportedDtypeError, match=r"which would overlap others: .*'b'"):
        open_source(str(tmp_path / "a.h5"), missing="fill")


def test_no_row_axis(tmp_path: Path) -> None:
    path = str(tmp_path / "a.h5")
    with h5py.File(path, "w") as file:
        file["scalar"] = 1.0
        file["empty"] = h5py.Empty("f4")
        file["u"] = np.zeros((3, 2))
    with pytest.raises(ArgumentError, match=r"single number.*'/scalar'"):
        open_source(path, "scalar")
    with pytest.raises(ArgumentError, match=r"empty dataspace.*'/empty'"):
        open_source(path, "empty")
    with pytest.raises(ArgumentError, match="`axis` must be"):
        open_source(path, "u", axis=2)
    with pytest.raises(ArgumentError, match="`missing` must be"):
        ooc.open(path, "u", missing="zero")  # type: ignore[arg-type]


# Files


@pytest.mark.parametrize(
    "options", [{}, {"chunks": (7, 10)}, {"chunks": (7, 10), "libver": "latest"}]
)
def test_a_file_cut_anywhere_is_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    whole, path = tmp_path / "whole.h5", str(tmp_path / "cut.h5")
    array = sample_array((40, 10))
    libver = options.pop("libver", None) if "libver" in options else None
    with h5py.File(whole, "w", libver=libver) as file:
        file.create_dataset("u", data=array, **options)
    content = whole.read_bytes()
    for length in {0, 1, 8, 48, 96, *range(0, len(content), 97), len(content) - 1}:
        Path(path).write_bytes(content[:length])
        with pytest.raises((TruncatedFileError, UnknownFormatError), match=r"cut\.h5"):
            open_source(path)


def test_no_hdf5_file(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"nowhere\.h5"):
        open_source(str(tmp_path / "nowhere.h5"))
    (tmp_path / "text.h5").write_text("hello")
    with pytest.raises(UnknownFormatError, match=r"its first bytes are b'hello'"):
        list_datasets(str(tmp_path / "text.h5"))
    with pytest.raises(SourceError, match=str(tmp_path)):
        open_source(str(tmp_path))


def test_overwritten_metadata_never_crashes(tmp_path: Path) -> None:
    whole, path = tmp_path / "whole.h5", str(tmp_path / "bad.h5")
    array = sample_array((20, 10))
    with h5py.File(whole, "w") as file:
        file.create_dataset("g/u", data=array, chunks=(5, 10), compression="gzip")
    content = whole.read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for start in range(0, len(content), 64):
        damaged = bytearray(content)
        damaged[start : start + 64] = rng.bytes(len(damaged[start : start + 64]))
        Path(path).write_bytes(damaged)
        try:
            source = open_source(path)
            got = read(source)
        except (SourceError, ArgumentError, MissingDependencyError, MemoryError):
            refused += 1
        else:
            if got.shape == array.shape and source.dtype == array.dtype:
                assert_array_equal(got, array)
    assert refused > 10


# Layouts


@pytest.mark.parametrize(
    ("options", "layout", "codec", "chunks"),
    [
        ({}, "contiguous", "none", None),
        ({"chunks": (8, 3)}, "chunks of (8, 3)", "none", None),
        ({"chunks": (8, 2)}, "chunks of (8, 2)", "none", (8, 2)),
        ({"chunks": (1, 3)}, "chunks of (1, 3)", "none", None),
        (
            {"chunks": (8, 3), "compression": "gzip", "shuffle": True, "fletcher32": True},
            "chunks of (8, 3)",
            "shuffle, gzip 4, fletcher32",
            (8, 3),
        ),
        ({"chunks": (8, 3), "compression": "lzf"}, "chunks of (8, 3)", "lzf", (8, 3)),
        ({"chunks": (64, 3), "maxshape": (None, 3)}, "chunks of (64, 3)", "none", None),
        (
            {"chunks": (64, 3), "maxshape": (None, 3), "compression": "lzf"},
            "chunks of (64, 3)",
            "lzf",
            (20, 3),
        ),
    ],
    ids=[
        "contiguous",
        "whole rows",
        "chunked",
        "single rows",
        "gzip",
        "lzf",
        "larger than the array",
        "filtered, larger than the array",
    ],
)
def test_layout(tmp_path: Path, options: Any, layout: str, codec: str, chunks: Any) -> None:
    path = str(tmp_path / "a.h5")
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("u", data=np.zeros((20, 3)), **options)
        file.flush()
        nbytes = dataset.id.get_storage_size()
    source = open_source(path)
    storage = source.storage()
    assert (storage.format, storage.path, storage.key) == ("HDF5", path, "/u")
    assert (storage.layout, storage.codec, storage.stored_bytes) == (layout, codec, nbytes)
    assert storage.opened == {"target": path, "key": "/u"}
    assert storage.files == (FileVersion.of(path),)
    assert storage.chunks == chunks
    assert storage.strides == ((24, 8) if layout == "contiguous" else None)


def test_opening_reads_no_data(tmp_path: Path) -> None:
    path = str(tmp_path / "a.h5")
    with h5py.File(path, "w") as file:
        file.create_dataset("u", data=np.ones((20, 3)), chunks=(5, 3), compression="gzip")
        info = file["u"].id.get_chunk_info(0)
    content = bytearray(Path(path).read_bytes())
    content[info.byte_offset : info.byte_offset + info.size] = bytes(info.size)
    Path(path).write_bytes(content)
    assert open_source(path).shape == (20, 3)
    # Opening leaves no handle behind: the file can be written to.
    with h5py.File(path, "a") as file:
        file.attrs["written"] = 1


@pytest.mark.parametrize("shape", [(0, 3), (5, 0)], ids=str)
@pytest.mark.parametrize("chunks", [None, (2, 2)], ids=["contiguous", "chunked"])
def test_no_elements(tmp_path: Path, shape: tuple[int, int], chunks: Any) -> None:
    path = str(tmp_path / "a.h5")
    with h5py.File(path, "w") as file:
        limit = None if chunks is None else (None, None)
        file.create_dataset("u", shape, "f4", chunks=chunks, maxshape=limit)
    source = open_source(path)
    assert source.shape == shape
    assert read(source).shape == shape
