"""Read Zarr arrays of every kind as zarr-python, TensorStore or NumPy wrote them."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import tempfile
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numcodecs
import numpy as np
import obstore.store
import pytest
import tensorstore
import zarr
import zarr.codecs.numcodecs
from boxes import check_boxes
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from layout_files import write_ome
from numpy.testing import assert_array_equal
from numpy.typing import NDArray
from zarr.codecs import (
    BloscCodec,
    BytesCodec,
    Crc32cCodec,
    GzipCodec,
    ShardingCodec,
    TransposeCodec,
    ZstdCodec,
)
from zarr.storage import LoggingStore, MemoryStore, ZipStore

import oocdata as ooc
from oocdata.datasets.view import View
from oocdata.engines.chunked import Chunked
from oocdata.engines.source import Source
from oocdata.errors import (
    ArgumentError,
    MissingKeyError,
    SeveralDatasetsError,
    UnknownFormatError,
)
from oocdata.formats.opening import list_datasets, open_source
from oocdata.formats.zarr import from_array
from oocdata.formats.zarr.readers import ZarrReader
from oocdata.formats.zarr.shards import ShardReader
from oocdata.testing import SourceConformance, sample_array

FULL = {"write_empty_chunks": True}
"""zarr-python leaves out chunks of zeros by default; here absent chunks are lost ones."""


def write(where: Any, array: NDArray[Any], **options: Any) -> zarr.Array[Any]:
    """Write an array with zarr-python, every chunk stored."""
    options.setdefault("chunks", tuple(max(1, (n + 1) // 2) for n in array.shape))
    stored = zarr.create_array(where, shape=array.shape, dtype=array.dtype, config=FULL, **options)
    stored[...] = array
    return stored


def reader_of(source: Source) -> ZarrReader:
    """Return the object that decodes the chunks of a source."""
    assert isinstance(source, Chunked)
    assert isinstance(source.reader, ZarrReader)
    return source.reader


def kind_of(source: Source) -> str:
    """Return how chunks are found: each an object, or in shards."""
    reader = reader_of(source)
    return "shards" if isinstance(reader, ShardReader) else "here"


def options_for(array: NDArray[Any], **options: Any) -> dict[str, Any]:
    """Return codecs made for this array."""
    return {name: option(array) if callable(option) else option for name, option in options.items()}


class Written(SourceConformance):
    """An array written by zarr-python with the class's options, once for all tests that read it."""

    dtypes = ("<f4", "<i2")
    options: ClassVar[dict[str, Any]] = {}
    reader: str = "here"
    folder: ClassVar[Path]

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def written(cls, tmp_path_factory: pytest.TempPathFactory) -> None:
        cls.folder = tmp_path_factory.mktemp(cls.__name__)

    def path(self, array: NDArray[Any]) -> Path:
        path = self.folder / f"{zlib.crc32(array.tobytes())}{array.dtype.str}{array.shape}"
        if not path.exists():
            with _quiet():
                write(path, array, **options_for(array, **self.options))
        return path

    def make(self, folder: Path, array: NDArray[Any]) -> Source:
        source = open_source(str(self.path(array)))
        assert kind_of(source) == self.reader
        return source


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence warnings of zarr-python for writers."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Numcodecs codecs are not in")
        warnings.filterwarnings("ignore", message="Combining a `sharding_indexed` codec")
        warnings.filterwarnings("ignore", message="Consolidated metadata is currently not")
        yield


class TestV3(Written):
    dtypes = ("<f4", "|i1", "<c16", "<u8", "<f2")
    options: ClassVar[dict[str, Any]] = {"zarr_format": 3}


class TestV2Filters(Written):
    dtypes = ("<i2", ">i4", "|u1")
    options: ClassVar[dict[str, Any]] = {
        "zarr_format": 2,
        "filters": lambda array: [numcodecs.Delta(array.dtype.str)],
        "compressors": numcodecs.LZMA(preset=0),
    }


def _transposed(ndim: int) -> TransposeCodec:
    return TransposeCodec(order=(*range(1, ndim), 0))


def _delta_v3(array: NDArray[Any]) -> list[Any]:
    return [zarr.codecs.numcodecs.Delta(dtype=array.dtype.str)]


ENCODINGS: dict[str, tuple[type, dict[str, Any]]] = {
    "v2, Fortran, slashes, blosc": (
        "here",
        {
            "zarr_format": 2,
            "order": "F",
            "chunk_key_encoding": {"name": "v2", "separator": "/"},
            "compressors": numcodecs.Blosc("lz4", 5, numcodecs.Blosc.BITSHUFFLE),
        },
    ),
    "v2, zlib": ("here", {"zarr_format": 2, "compressors": numcodecs.Zlib(3)}),
    "v2, raw": ("here", {"zarr_format": 2, "compressors": None}),
    "v2, chunks longer than the array": (
        "here",
        {"zarr_format": 2, "chunks": (100, 4, 4, 4)},
    ),
    "v3, raw": ("here", {"compressors": None}),
    "v3, single rows": ("here", {"chunks": (1, 3, 5, 4)}),
    "v3, transposed, big-endian": (
        "here",
        {
            "filters": [_transposed(4)],
            "serializer": BytesCodec(endian="big"),
            "compressors": [BloscCodec(cname="zstd", shuffle="shuffle"), Crc32cCodec()],
            "chunk_key_encoding": {"name": "v2", "separator": "."},
        },
    ),
    "v3, index first": (
        "shards",
        {
            "chunks": (8, 3, 5, 4),
            "compressors": None,
            "serializer": ShardingCodec(
                chunk_shape=(2, 3, 5, 4),
                index_location="start",
                index_codecs=[BytesCodec()],
                codecs=[TransposeCodec(order=(3, 2, 1, 0)), BytesCodec(), GzipCodec()],
            ),
        },
    ),
    "v3, shards": ("shards", {"chunks": (2, 3, 3, 3), "shards": (8, 6, 6, 6)}),
    "v3, filter of numcodecs": (
        "here",
        {"filters": _delta_v3},
    ),
    "v3, shards, filter of numcodecs": (
        "shards",
        {
            "chunks": (2, 3, 5, 4),
            "shards": (6, 3, 5, 4),
            "filters": _delta_v3,
        },
    ),
}


@pytest.mark.parametrize("name", ENCODINGS)
def test_every_encoding_reads_as_it_was_written(tmp_path: Path, name: str) -> None:
    array = sample_array((23, 3, 5, 4))
    reader, options = ENCODINGS[name]
    with _quiet():
        write(tmp_path / "a.zarr", array, **options_for(array, **options))
    source = open_source(str(tmp_path / "a.zarr"))
    assert kind_of(source) == reader
    check_boxes(source, array)
    assert_array_equal(View.of(source, (3, 0)).take([5, 88, 0]), _rows(array, [5, 88, 0]))
    stored = ooc.open("a.zarr", store=obstore.store.LocalStore(tmp_path), missing="fill")
    assert_array_equal(stored.take([22, 3, 8]), array[[22, 3, 8]])


def _rows(array: NDArray[Any], rows: list[int]) -> NDArray[Any]:
    moved = np.moveaxis(array, (3, 0), (0, 1))
    return moved.reshape(-1, *moved.shape[2:])[rows]


def test_chunk_shape_is_the_one_that_tensorstore_sees(tmp_path: Path) -> None:
    options = ENCODINGS["v3, shards"][1]
    with _quiet():
        write(tmp_path / "a.zarr", sample_array((23, 3, 5, 4)), **options)
    store = tensorstore.open(
        {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{tmp_path}/a.zarr/"}}
    ).result()
    metadata = reader_of(open_source(str(tmp_path / "a.zarr"))).objects.metadata
    assert metadata.chunk_shape == store.chunk_layout.read_chunk.shape


def by_tensorstore(folder: Path, array: NDArray[Any]) -> Source:
    """The array was written by another implementation."""
    path = folder / "a.zarr"
    chunk = [max(1, (n + 1) // 2) for n in array.shape]
    store = tensorstore.open(
        {
            "driver": "zarr3",
            "kvstore": {"driver": "file", "path": f"{path}/"},
            "store_data_equal_to_fill_value": True,
        },
        create=True,
        dtype=array.dtype.name,
        shape=array.shape,
        chunk_layout=tensorstore.ChunkLayout(chunk_shape=chunk),
    ).result()
    store.write(array).result()
    return open_source(str(path))


def in_version_2(folder: Path, array: NDArray[Any]) -> Source:
    write(folder / "a.zarr", array, zarr_format=2)
    return open_source(str(folder / "a.zarr"))


def in_an_archive(folder: Path, array: NDArray[Any]) -> Source:
    with ZipStore(folder / "a.zarr.zip", mode="w") as store:
        write(store, array)
    with pytest.raises(UnknownFormatError, match=r"zipped Zarr.*zarr\.open_array\(ZipStore"):
        open_source(str(folder / "a.zarr.zip"))
    return from_array(zarr.open_array(ZipStore(folder / "a.zarr.zip"), mode="r"))


def array_in_memory(folder: Path, array: NDArray[Any]) -> Source:
    return from_array(write(MemoryStore(), array))


def array_on_disk(folder: Path, array: NDArray[Any]) -> Source:
    group = zarr.create_group(folder / "g.zarr")
    source = from_array(write(group.store, array, name="deep/a"))
    assert kind_of(source) == "here"
    return source


def array_in_a_wrapped_store(folder: Path, array: NDArray[Any]) -> Source:
    """A store for which `status` is not known to be cheap."""
    write(folder / "a.zarr", array)
    wrapped = LoggingStore(zarr.storage.LocalStore(folder / "a.zarr"), log_level="ERROR")
    source = from_array(zarr.open_array(wrapped, mode="r"))
    assert kind_of(source) == "here"
    return source


@pytest.mark.parametrize(
    ("store", "dtypes"),
    [
        (by_tensorstore, ["<f4"]),
        (in_version_2, ["<f4", ">i2", "|b1", "<c16", "<f2"]),
        (in_an_archive, ["<f4"]),
        (array_in_memory, ["<f4"]),
        (array_on_disk, ["<f4"]),
        (array_in_a_wrapped_store, ["<f4"]),
    ],
)
def test_ways_of_storing(tmp_path: Path, store: Any, dtypes: list[str]) -> None:
    for dtype in dtypes:
        array = sample_array((23, 3, 5, 4), dtype)
        (tmp_path / dtype.strip("|")).mkdir()
        source = store(tmp_path / dtype.strip("|"), array)
        check_boxes(source, array)
        if store is not array_in_a_wrapped_store:  # that can be pickled if the user's store can
            assert_array_equal(View.of(pickle.loads(pickle.dumps(source))).take([7]), array[[7]])


@st.composite
def stored_arrays(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a shape, its chunks, a row axis, a cut of the element and rows."""
    shape = tuple(draw(st.lists(st.integers(1, 13), min_size=1, max_size=4)))
    chunks = tuple(draw(st.integers(1, n + 2)) for n in shape)
    version = draw(st.sampled_from((2, 3)))
    shards = None
    if version == 3 and draw(st.booleans()):
        shards = tuple(n * draw(st.integers(1, 3)) for n in chunks)
    axis = draw(st.integers(0, len(shape) - 1))
    rows = draw(st.lists(st.integers(0, shape[axis] - 1), max_size=20))
    element = [n for place, n in enumerate(shape) if place != axis]
    cut = tuple(draw(st.one_of(st.slices(n), st.integers(-n, n - 1))) for n in element)
    dtype = draw(st.sampled_from(("<f4", ">f4", "|b1", "<u2", ">i8", "<f2", "<c8")))
    memory = draw(st.booleans())
    return {
        "shape": shape,
        "options": {"chunks": chunks, "shards": shards, "zarr_format": version},
        "axis": axis,
        "rows": rows,
        "cut": cut,
        "dtype": dtype if version == 2 else np.dtype(dtype).newbyteorder("<").str,
        "memory": memory,
    }


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(case=stored_arrays())
def test_any_array_reads_as_numpy(tmp_path: Path, case: dict[str, Any]) -> None:
    array = sample_array(case["shape"], case["dtype"])
    where = MemoryStore() if case["memory"] else tempfile.mkdtemp(dir=tmp_path)
    stored = write(where, array, **case["options"])
    view = View.of(from_array(stored), (case["axis"],))[(slice(None), *case["cut"])]
    expected = np.moveaxis(array, case["axis"], 0)[(slice(None), *case["cut"])]
    assert view.shape == expected.shape
    rows = np.asarray(case["rows"], np.int64)
    assert_array_equal(view.take(rows), expected[rows])


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("consolidate", [False, True])
def test_arrays_in_groups(tmp_path: Path, version: Any, consolidate: bool) -> None:
    path = str(tmp_path / "g.zarr")
    group = zarr.create_group(path, zarr_format=version)
    group.create_group("empty")
    arrays = {name: sample_array((6, n)) for n, name in enumerate(("u", "deep/er/v", "deep/w"), 1)}
    for name, array in arrays.items():
        write(group.store, array, name=name, zarr_format=version)
    if consolidate:
        with _quiet():
            zarr.consolidate_metadata(path)
    assert list_datasets(path) == ["deep/er/v", "deep/w", "u"]
    for name, array in arrays.items():
        source = open_source(path, f"/{name}/")
        assert source.storage().key == name
        assert_array_equal(np.asarray(View.of(source)), array)
    with pytest.raises(SeveralDatasetsError, match="'deep/er/v', 'deep/w', 'u'"):
        open_source(path)
    with pytest.raises(MissingKeyError, match=r"'deep'.*holds: 'deep/er/v'"):
        open_source(path, "deep")
    with pytest.raises(MissingKeyError, match=r"\.\./g\.zarr/u"):
        open_source(path, "../g.zarr/u")
    assert open_source(f"{path}/deep/er").storage().key == "v"  # the only one
    assert list_datasets(f"{path}/u") == [""]
    with pytest.raises(MissingKeyError, match="an array itself"):
        open_source(f"{path}/u", "u")


def test_a_link_back_up_is_not_followed_for_ever(tmp_path: Path) -> None:
    group = zarr.create_group(tmp_path / "g.zarr")
    write(group.store, sample_array((4,)), name="a")
    (tmp_path / "g.zarr/back").symlink_to(tmp_path / "g.zarr", target_is_directory=True)
    assert list_datasets(str(tmp_path / "g.zarr")) == ["a"]


def test_file_url(tmp_path: Path) -> None:
    write(tmp_path / "my a.zarr", sample_array((5, 2)))
    url = (tmp_path / "my a.zarr").as_uri()
    assert_array_equal(np.asarray(ooc.open(url)), sample_array((5, 2)))


@pytest.mark.parametrize(
    ("options", "storage", "codec", "reading"),
    [
        ({"zarr_format": 2}, "chunks of (4, 3)", "zstd 0", "decoded into its place"),
        (
            {"zarr_format": 2, "compressors": None},
            "chunks of (4, 3)",
            "none",
            "decoded into its place",
        ),
        (
            {"zarr_format": 2, "compressors": numcodecs.Blosc("lz4", 5, 1)},
            "chunks of (4, 3)",
            "blosc lz4 5 shuffle",
            "decoded into its place",
        ),
        (
            {"zarr_format": 2, "compressors": numcodecs.Zstd(3, checksum=True)},
            "chunks of (4, 3)",
            "zstd 3",
            "decoded into its place",
        ),
        (
            {"zarr_format": 2, "compressors": numcodecs.LZ4()},
            "chunks of (4, 3)",
            "lz4",
            "decoded by numcodecs",
        ),
        (
            {"shards": (8, 6), "compressors": [ZstdCodec(level=3)]},
            "shards of (8, 6) holding chunks of (4, 3)",
            "zstd 3",
            "decoded into its place",
        ),
    ],
    ids=lambda value: str(value) if isinstance(value, str) else "",
)
def test_layout(
    tmp_path: Path, options: dict[str, Any], storage: str, codec: str, reading: str
) -> None:
    array = sample_array((16, 6))
    path = tmp_path / "a.zarr"
    with _quiet():
        write(path, array, **{"chunks": (4, 3), **options})
    source = open_source(str(path), missing="fill")
    layout = source.storage()
    assert layout.format == f"Zarr v{options.get('zarr_format', 3)}"
    assert (layout.path, layout.key) == (str(path), None)
    assert (layout.layout, layout.codec) == (storage, codec)
    assert reading in layout.reading
    files = [file for file in path.rglob("*") if file.is_file()]
    names = (".zarray", ".zattrs", "zarr.json")
    assert layout.stored_bytes == sum(f.stat().st_size for f in files if f.name not in names)
    assert layout.chunks == (4, 3)
    assert_array_equal(np.asarray(View.of(source)), array)


@pytest.mark.parametrize("level", [-1, 0, 9])
@pytest.mark.parametrize("codec", [numcodecs.Zlib, numcodecs.GZip, numcodecs.Zstd])
def test_levels_at_the_edge(tmp_path: Path, codec: Any, level: int) -> None:
    """An option that a codec refuses must not be found at the first read."""
    array = sample_array((16, 6))
    write(tmp_path / "a", array, zarr_format=2, compressors=codec(level))
    assert_array_equal(np.asarray(View.of(open_source(str(tmp_path / "a")))), array)


def test_content_written_again_is_not_taken_from_the_cache(tmp_path: Path) -> None:
    path = str(tmp_path / "a.zarr")
    stored = write(path, sample_array((8, 4)))
    assert_array_equal(np.asarray(View.of(open_source(path))), sample_array((8, 4)))
    stored[...] = sample_array((8, 4)) + 1
    assert_array_equal(np.asarray(View.of(open_source(path))), sample_array((8, 4)) + 1)


def test_an_empty_list_of_filters_is_none(tmp_path: Path) -> None:
    for number, codec in enumerate((numcodecs.LZMA(), numcodecs.Zlib())):
        write(tmp_path / str(number), sample_array((6, 3)), zarr_format=2, compressors=codec)
        file = tmp_path / str(number) / ".zarray"
        file.write_text(json.dumps({**json.loads(file.read_bytes()), "filters": []}))
        source = open_source(str(tmp_path / str(number)))
        assert_array_equal(np.asarray(View.of(source)), sample_array((6, 3)))


def test_fields_that_need_not_be_understood(tmp_path: Path) -> None:
    write(tmp_path / "a", sample_array((6, 3)), dimension_names=["t", None])
    file = tmp_path / "a/zarr.json"
    file.write_text(json.dumps({**json.loads(file.read_bytes()), "x": {"must_understand": False}}))
    source = open_source(str(tmp_path / "a"))
    assert_array_equal(np.asarray(View.of(source)), sample_array((6, 3)))


def test_two_arrays_in_memory_are_never_mixed_up() -> None:
    for start in range(8):  # objects that die may be followed by others at the same address
        array = sample_array((6, 3)) + start
        assert_array_equal(np.asarray(View.of(from_array(write(MemoryStore(), array)))), array)


def test_a_source_in_memory_travels_with_its_content() -> None:
    source = from_array(write(MemoryStore(), sample_array((6, 3))))
    copy = pickle.loads(pickle.dumps(source))
    assert reader_of(copy) != reader_of(source)
    assert_array_equal(np.asarray(View.of(copy)), sample_array((6, 3)))


def test_opening_imports_no_library(tmp_path: Path) -> None:
    """`info` must answer at once; zarr takes longer to import than all the rest."""
    write(tmp_path / "a.zarr", sample_array((6, 3)))
    code = (
        "import sys\n"
        "from oocdata.formats.opening import open_source\n"
        f"print(open_source({str(tmp_path / 'a.zarr')!r}).storage())\n"
        "assert not {'zarr', 'tensorflow'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda a: from_array(a, axis=2), "`axis` must be an axis of the 2-dim.*got 2"),
        (lambda a: from_array(write({}, np.float32(1), chunks=())), "got a single number"),
    ],
)
def test_wrong_arguments(call: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        call(write({}, sample_array((6, 3))))


@pytest.mark.parametrize(
    ("encoding", "name"),
    [
        ({"name": "default"}, "c/2/0"),
        ({"name": "default", "configuration": {"separator": "."}}, "c.2.0"),
        ({"name": "v2"}, "2.0"),
        ({"name": "v2", "configuration": {"separator": "/"}}, "2/0"),
    ],
    ids=str,
)
def test_names_of_chunks(tmp_path: Path, encoding: Any, name: str) -> None:
    """Metadata as TensorStore writes it, with the defaults of the specification."""
    array = sample_array((6, 3)) + 1
    write(tmp_path / "a", array, chunks=(2, 3))
    file = tmp_path / "a/zarr.json"
    node = json.loads(file.read_bytes())
    node["chunk_key_encoding"] = encoding
    file.write_text(json.dumps(node))
    for row in range(3):
        old = tmp_path / f"a/c/{row}/0"
        new = tmp_path / "a" / name.replace("2", str(row), 1)
        new.parent.mkdir(parents=True, exist_ok=True)
        old.rename(new)
    source = open_source(str(tmp_path / "a"))
    assert reader_of(source).objects.metadata.name((2, 0)) == name
    assert_array_equal(np.asarray(View.of(source)), array)


@pytest.mark.parametrize("version", [2, 3])
def test_no_rows(tmp_path: Path, version: Any) -> None:
    zarr.create_array(tmp_path / "a", shape=(0, 3), chunks=(4, 3), dtype="f4", zarr_format=version)
    source = open_source(str(tmp_path / "a"))
    assert source.shape == (0, 3)
    assert np.asarray(View.of(source)).shape == (0, 3)


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_axes_of_picture_pyramids_are_named_by_their_group(tmp_path, version):
    path = write_ome(tmp_path, version=version)
    for key in ("0", "1", "labels/nuclei/0"):
        view = ooc.open(path, key, axis=("t", "z"))
        assert view.storage.dimensions == ("t", "c", "z", "y", "x")
        assert view.sample_shape == (2, 24)
    expected = zarr.open_array(f"{path}/0", mode="r")[1, :, 5]
    assert (ooc.open(path, "0", axis=("t", "z"))[1 * 24 + 5] == expected).all()


@pytest.mark.parametrize(
    "attributes",
    [
        {"multiscales": 3},
        {"multiscales": [{"datasets": [{"path": "0"}], "axes": ["y"]}]},
        {"ome": []},
    ],
)
def test_other_attributes_of_a_group_name_no_axes(tmp_path, attributes):
    group = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=2, attributes=attributes)
    group.create_array("0", shape=(4, 3), dtype="f4")
    assert ooc.open(tmp_path / "a.zarr", "0", missing="fill").storage.dimensions == ()


@pytest.mark.parametrize("name", [".zattrs", ".zgroup", "zarr.json"])
def test_an_array_opens_though_its_group_is_damaged(tmp_path, name):
    group = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=2)
    group.create_group("deep").create_array("0", data=np.arange(4), chunks=(4,))
    (tmp_path / "a.zarr" / "deep" / name).write_text("{")
    assert_array_equal(ooc.open(tmp_path / "a.zarr", "deep/0").take([0, 3]), [0, 3])
