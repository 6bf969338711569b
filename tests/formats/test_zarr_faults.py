"""Refuse Zarr arrays that can't be read: each with its exception, and the rows."""

from __future__ import annotations

import functools
import json
import os
import pickle
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
import zarr.codecs.numcodecs
from forked import in_a_fork
from numpy.testing import assert_array_equal
from servers.ranges import RangeServer
from zarr.codecs import BytesCodec, Crc32cCodec, GzipCodec, ShardingCodec, TransposeCodec, ZstdCodec
from zarr.storage import LocalStore, LoggingStore, MemoryStore

import oocdata as ooc
from oocdata.datasets.view import View
from oocdata.errors import (
    DamagedChunkError,
    MissingChunkError,
    MissingChunkWarning,
    MissingFileError,
    MissingKeyError,
    SourceError,
    UnknownFormatError,
    UnsupportedDtypeError,
)
from oocdata.formats.opening import list_datasets
from oocdata.formats.zarr import ZarrTree, objects
from oocdata.formats.zarr import from_array as from_array_as_it_is
from oocdata.formats.zarr.readers import ZarrReader
from oocdata.testing import sample_array

ARRAY = sample_array((20, 6, 5)) + 1


def open_as_it_is(path: str, key: str | None = None, *, axis: int = 0, missing: Any = None) -> Any:
    """Open an array of Zarr without detecting the format, also in what is damaged."""
    return ZarrTree(path, missing).open(key, axis)


def write(where: Any, array: np.ndarray = ARRAY, **options: Any) -> zarr.Array[Any]:
    """Write 20 rows in chunks of 4 × 3 × 5, with the fill value 7."""
    options = {"chunks": (4, 3, 5), "fill_value": 7, **options}
    stored = zarr.create_array(where, shape=array.shape, dtype="<f4", **options)
    stored[...] = array
    return stored


open_source = functools.partial(open_as_it_is, missing="error")
from_array = functools.partial(from_array_as_it_is, missing="error")


def read(source: Any, *rows: int) -> Any:
    """Read rows, or all of them."""
    return View.of(source).take(np.asarray(rows or range(source.shape[0])))


METADATA = ("zarr.json", ".zarray", ".zattrs")

KINDS: dict[str, tuple[dict[str, Any], str]] = {
    "v2": ({"zarr_format": 2}, "1.1.0"),
    "v2 raw": ({"zarr_format": 2, "compressors": None}, "1.1.0"),
    "v2 zlib": ({"zarr_format": 2, "compressors": numcodecs.Zlib()}, "1.1.0"),
    "v2 blosc": ({"zarr_format": 2, "compressors": numcodecs.Blosc()}, "1.1.0"),
    "v2 bz2": ({"zarr_format": 2, "compressors": numcodecs.BZ2()}, "1.1.0"),
    "v2 delta": ({"zarr_format": 2, "filters": [numcodecs.Delta("<f4")]}, "1.1.0"),
    "v2 lzma": ({"zarr_format": 2, "compressors": numcodecs.LZMA(preset=0)}, "1.1.0"),
    "v3": ({}, "c/1/1/0"),
    "v3 gzip": ({"compressors": [GzipCodec()]}, "c/1/1/0"),
    "v3 raw": ({"compressors": None}, "c/1/1/0"),
    "v3 crc32c": ({"compressors": [Crc32cCodec()]}, "c/1/1/0"),
    "v3 checksum": ({"compressors": [ZstdCodec(checksum=True)]}, "c/1/1/0"),
}


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function from a kind to its array, which is written once."""
    folder = tmp_path_factory.mktemp("originals")

    def original(kind: str) -> Path:
        if not (folder / kind).exists():
            write(folder / kind, **KINDS[kind][0])
        return folder / kind

    return original


@pytest.fixture(params=["v2", "v2 lzma", "v3", "v3 raw"])  # each version, each reader, no codec
def stored(
    request: pytest.FixtureRequest, tmp_path: Path, originals: Callable[[str], Path]
) -> tuple[str, Path]:
    """Return an array's path and that of the chunk of rows 4 to 7."""
    shutil.copytree(originals(request.param), tmp_path / "a.zarr")
    return str(tmp_path / "a.zarr"), tmp_path / "a.zarr" / KINDS[request.param][1]


def test_a_missing_chunk_is_found_at_open(stored: tuple[str, Path]) -> None:
    path, chunk = stored
    chunk.unlink()
    with pytest.raises(
        MissingChunkError, match=r'1 are not, the first object.*7.*missing="fill"'
    ) as got:
        open_source(path)
    assert got.value.path == path
    assert got.value.rows == (4, 5, 6, 7)
    expected = ARRAY.copy()
    expected[4:8, 3:] = 7
    assert_array_equal(read(open_source(path, missing="fill")), expected)


def test_missing_rows_are_those_of_the_row_axis(stored: tuple[str, Path]) -> None:
    path, chunk = stored
    chunk.unlink()
    with pytest.raises(MissingChunkError) as got:
        open_source(path, axis=1)
    assert got.value.rows == (3, 4, 5)


def test_a_chunk_lost_while_open(stored: tuple[str, Path]) -> None:
    path, chunk = stored
    source = open_source(path)
    chunk.unlink()
    with pytest.raises(MissingChunkError, match="every chunk must be stored") as got:
        read(source)
    assert got.value.rows == (4, 5, 6, 7)
    assert_array_equal(read(source, 0, 19), ARRAY[[0, 19]])
    # What is asked for does not lie in the lost chunk.
    assert_array_equal(View.of(source)[:, :3].take([5]), ARRAY[[5], :3])


def write_again(path: str, value: float, seconds: int) -> None:
    """Write other values to the same chunks, with a time that is so much later."""
    chunks = [
        file for file in Path(path).rglob("*") if file.is_file() and file.name not in METADATA
    ]
    before = {file: file.stat().st_mtime_ns for file in chunks}
    zarr.open_array(path, mode="r+")[...] = value
    for file, written in before.items():
        os.utime(file, ns=(0, written + seconds * 10**9))


@pytest.mark.parametrize(
    ("first", "seconds"), [(True, 10), (False, -10)], ids=["later", "as tar and rsync -t do"]
)
def test_chunks_written_again_while_open(
    stored: tuple[str, Path], first: bool, seconds: int
) -> None:
    """Cached chunks would be of the old array, the others of the new one."""
    path, _ = stored
    source = open_source(path)
    if first:
        assert_array_equal(read(source, 0), ARRAY[[0]])
    write_again(path, 8, seconds)
    with pytest.raises(SourceError, match=r"written anew\. Open the array again\. .*rows 16, 17"):
        read(source, 18)
    assert_array_equal(read(open_source(path)), np.full_like(ARRAY, 8))


@pytest.mark.parametrize("kind", ["v3", "v2 lzma"])
@pytest.mark.parametrize("known", [True, False], ids=["asked for at open", "first seen now"])
def test_a_chunk_written_in_place_while_it_is_read(
    tmp_path: Path, kind: str, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not known:
        monkeypatch.setattr(objects, "_MOST_SURVEYED", 9)
    options, chunk = KINDS[kind]
    write(tmp_path / "a", **options)
    source = open_source(str(tmp_path / "a"))
    path, pread = tmp_path / "a" / chunk, os.pread

    def meanwhile(number: int, nbytes: int, offset: int) -> bytes:
        data = pread(number, nbytes, offset)
        if os.path.samestat(os.fstat(number), path.stat()):
            with open(path, "r+b") as file:
                file.write(file.read(1))
        return data

    monkeypatch.setattr(os, "pread", meanwhile)
    message = "written anew" if known else "must not change while it is read"
    with pytest.raises(SourceError, match=message) as got:
        read(source, 5)
    assert got.value.rows == (4, 5, 6, 7)


@pytest.mark.parametrize("shards", [None, (20, 30)])
def test_a_chunk_that_is_a_named_pipe(tmp_path: Path, shards: Any) -> None:
    """Nobody writes to it: whoever opened it as a file would wait for ever."""
    zarr.create_array(tmp_path / "a", data=np.ones((40, 30)), chunks=(10, 30), shards=shards)
    path = tmp_path / "a" / "c" / "0" / "0"
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(SourceError, match="rows 0, 1"):
        read(open_source(str(tmp_path / "a")), 3)


@pytest.mark.parametrize("name", ["zarr.json", ".zarray", ".zgroup"])
def test_metadata_that_are_a_named_pipe(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a"
    path.mkdir()
    os.mkfifo(path / name)
    with pytest.raises(SourceError, match="must be readable") as got:
        list_datasets(str(path))
    assert got.value.path == str(path / name)


def test_a_chunk_that_is_larger_than_memory(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "a", data=np.ones((40, 30)), chunks=(10, 30))
    text = (tmp_path / "a" / "zarr.json").read_text()
    shape = json.loads(text)["chunk_grid"]["configuration"]["chunk_shape"]
    document = json.loads(text)
    document["chunk_grid"]["configuration"]["chunk_shape"] = [1 << 40, *shape[1:]]
    (tmp_path / "a" / "zarr.json").write_text(json.dumps(document))
    with pytest.raises(SourceError, match="no memory"):
        read(open_source(str(tmp_path / "a")), 3)


def test_an_array_that_is_renamed_over_is_another(tmp_path: Path) -> None:
    write(tmp_path / "a")
    write(tmp_path / "b", ARRAY + 1)
    source = open_source(str(tmp_path / "a"))
    (tmp_path / "a").rename(tmp_path / "old")
    (tmp_path / "b").rename(tmp_path / "a")
    with pytest.raises(SourceError, match="has changed"):
        read(source, 5)


def test_chunks_written_after_open_are_no_longer_what_was_missing(
    stored: tuple[str, Path],
) -> None:
    path, chunk = stored
    content = chunk.read_bytes()
    chunk.unlink()
    source = open_source(path, missing="fill")
    elsewhere = read(source, 0, 19)
    chunk.write_bytes(content)
    later = (Path(path) / chunk).stat().st_mtime_ns + 10**9
    os.utime(chunk, ns=(later, later))
    assert_array_equal(read(source, 0, 19), elsewhere)
    with pytest.raises(SourceError, match="written anew"):
        read(source, 5)


def test_many_objects_are_looked_for_when_read(
    stored: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "_MOST_SURVEYED", 9)
    path, chunk = stored
    chunk.unlink()
    source = open_source(path)
    assert source.storage().stored_bytes is None
    assert_array_equal(read(source, 0, 19), ARRAY[[0, 19]])
    with pytest.raises(MissingChunkError) as got:
        read(source)
    assert got.value.rows == (4, 5, 6, 7)


def test_a_chunk_cut_short(stored: tuple[str, Path]) -> None:
    path, chunk = stored
    source = open_source(path)
    chunk.write_bytes(chunk.read_bytes()[:-9])
    with pytest.raises(SourceError, match="written anew") as got:
        read(source)
    assert (got.value.path, got.value.rows) == (path, (4, 5, 6, 7))
    assert_array_equal(read(source, 0, 19), ARRAY[[0, 19]])
    with pytest.raises(DamagedChunkError, match="a chunk must decode") as got:
        read(open_source(path))
    assert (got.value.path, got.value.rows) == (path, (4, 5, 6, 7))


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_chunk(tmp_path: Path, kind: str) -> None:
    options, name = KINDS[kind]
    write(tmp_path / "a", **options)
    (tmp_path / "a" / name).write_bytes(b"")
    with pytest.raises(DamagedChunkError) as got:
        read(open_source(str(tmp_path / "a"), missing="fill"))
    assert got.value.rows == (4, 5, 6, 7)


@pytest.mark.parametrize("kind", ["v2 raw", "v3 raw", "v3 crc32c"])
@pytest.mark.parametrize("change", [-4, 4])
def test_an_uncompressed_chunk_of_another_size(tmp_path: Path, kind: str, change: int) -> None:
    options, name = KINDS[kind]
    write(tmp_path / "a", **options)
    chunk = tmp_path / "a" / name
    content = chunk.read_bytes()
    chunk.write_bytes((content + bytes(4))[: len(content) + change])
    with pytest.raises(DamagedChunkError, match="a chunk must decode") as got:
        read(open_source(str(tmp_path / "a")))
    assert got.value.rows == (4, 5, 6, 7)


@pytest.mark.parametrize("kind", ["v2", "v2 zlib", "v2 blosc", "v2 lzma", "v3", "v3 gzip"])
def test_a_flipped_header_byte(tmp_path: Path, kind: str) -> None:
    _flipped(tmp_path, kind, 1)


@pytest.mark.parametrize("kind", ["v2 zlib", "v2 bz2", "v3 crc32c", "v3 gzip", "v3 checksum"])
@pytest.mark.parametrize("place", [-1, 40])
def test_a_flipped_byte_with_a_checksum(tmp_path: Path, kind: str, place: int) -> None:
    """Without a checksum a flipped bit can decode: the damage can't be detected."""
    _flipped(tmp_path, kind, place)


@pytest.mark.parametrize("kind", ["v2 zlib", "v2 bz2", "v3 crc32c", "v3 gzip", "v3 checksum"])
def test_no_flipped_bit_changes_numbers_that_have_a_checksum(tmp_path: Path, kind: str) -> None:
    """A decoder that stops at the last number never gets to the checksum after it."""
    array = np.random.default_rng(0).random((4, 3, 5), "f4")
    write(tmp_path / "a", array, **KINDS[kind][0])
    chunk = tmp_path / "a" / ("c/0/0/0" if kind.startswith("v3") else "0.0.0")
    content = chunk.read_bytes()
    for bit in range(0, 8 * len(content), 7):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        chunk.write_bytes(damaged)
        try:
            found = read(open_source(str(tmp_path / "a")))
        except DamagedChunkError:
            continue
        assert_array_equal(found, array)


def _flipped(folder: Path, kind: str, place: int) -> None:
    options, name = KINDS[kind]
    write(folder / "a", **options)
    chunk = folder / "a" / name
    content = bytearray(chunk.read_bytes())
    content[place] ^= 0xFF
    chunk.write_bytes(content)
    with pytest.raises(DamagedChunkError) as got:
        read(open_source(str(folder / "a")))
    assert got.value.rows == (4, 5, 6, 7)


def test_rows_that_fail_are_told_apart_in_a_run(tmp_path: Path) -> None:
    """Chunks of one row are read in runs; the error names the row."""
    write(tmp_path / "a", chunks=(1, 6, 5))
    source = open_source(str(tmp_path / "a"))
    (tmp_path / "a/c/9/0/0").unlink()
    with pytest.raises(MissingChunkError) as got:
        read(source, *range(5, 15))
    assert got.value.rows == (9,)


def test_a_chunk_that_may_not_be_read(tmp_path: Path) -> None:
    write(tmp_path / "a")
    chunk = tmp_path / "a/c/1/1/0"
    source = open_source(str(tmp_path / "a"))
    chunk.unlink()
    chunk.mkdir()  # the superuser may read every file; nobody can read a folder
    with pytest.raises(SourceError, match="rows 4, 5, 6, 7"):
        read(source)


# Shards -----------------------------------------------------------------------------------------


def _shards(where: Any, **options: Any) -> zarr.Array[Any]:
    """Write shards of 8 × 6 × 5 in which the chunk of rows 4 to 7, columns 3 to 5 holds only 7s."""
    options = {"chunks": (4, 3, 5), "shards": (8, 6, 5), "fill_value": 7, **options}
    stored = zarr.create_array(where, shape=ARRAY.shape, dtype="<f4", **options)
    holed = ARRAY.copy()
    holed[4:8, 3:] = 7
    stored[...] = holed
    return stored


@pytest.fixture(params=["end", "start", "by zarr", "memory", "wrapped"])
def shards(request: pytest.FixtureRequest, tmp_path: Path) -> functools.partial[Any]:
    """Return a function that opens shards with a missing chunk."""
    where: Any = tmp_path / "s"
    options: dict[str, Any] = {}
    inner = ShardingCodec(
        chunk_shape=(4, 3, 5), index_location="start", index_codecs=[BytesCodec(endian="big")]
    )
    if request.param == "start":
        options = {"shards": None, "chunks": (8, 6, 5), "serializer": inner, "compressors": None}
    if request.param == "memory":
        where = MemoryStore()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if request.param == "by zarr":
            options = {"filters": [zarr.codecs.numcodecs.Delta(dtype="<f4")]}
        array = _shards(where, **options)
    if request.param == "memory":
        return functools.partial(from_array, array)
    if request.param == "wrapped":
        store = LoggingStore(LocalStore(where), log_level="ERROR")
        return functools.partial(from_array, zarr.open_array(store, mode="r"))
    return functools.partial(open_source, str(where))


def test_a_chunk_missing_within_a_shard(shards: functools.partial[Any]) -> None:
    with pytest.raises(MissingChunkError) as got:
        read(shards())
    assert got.value.rows == (4, 5, 6, 7)
    with pytest.raises(MissingChunkError) as got:
        read(shards(axis=1))
    assert got.value.rows == (3, 4, 5)
    expected = ARRAY.copy()
    expected[4:8, 3:] = 7
    assert_array_equal(read(shards(missing="fill")), expected)


def test_chunks_beyond_the_end_of_the_array_are_not_missed(tmp_path: Path) -> None:
    stored = zarr.create_array(
        tmp_path / "a", shape=(10, 5), chunks=(4, 2), shards=(16, 8), dtype="f4", fill_value=7
    )
    stored[...] = sample_array((10, 5)) + 10
    assert_array_equal(read(open_source(str(tmp_path / "a"))), sample_array((10, 5)) + 10)


def test_a_hole_made_while_open(tmp_path: Path) -> None:
    stored = _shards(tmp_path / "s", config={"write_empty_chunks": True})
    source = open_source(str(tmp_path / "s"))
    os.remove(tmp_path / "s/c/1/0/0")
    with pytest.raises(MissingChunkError) as got:
        read(source)
    assert got.value.rows is not None
    assert set(got.value.rows) <= set(range(8, 16))
    holed = stored.with_config({"write_empty_chunks": False})
    holed[...] = 7
    with pytest.raises(SourceError, match="was deleted"):
        read(source, 0, 19)


@pytest.mark.parametrize("kept", [5, 60, -30])
def test_a_shard_cut_short(tmp_path: Path, kept: int) -> None:
    write(tmp_path / "s", shards=(8, 6, 5))
    shard = tmp_path / "s/c/1/0/0"
    whole = open_source(str(tmp_path / "s"))
    shard.write_bytes(shard.read_bytes()[:kept])
    with pytest.raises(SourceError, match="was written anew") as got:
        read(whole)
    assert got.value.rows is not None
    assert set(got.value.rows) <= set(range(8, 16))
    with pytest.raises(DamagedChunkError, match=r"cut short|the index of a shard") as got:
        read(open_source(str(tmp_path / "s")))
    assert got.value.rows is not None
    assert set(got.value.rows) <= set(range(8, 16))


def _delta() -> Any:
    return zarr.codecs.numcodecs.Delta(dtype="<f4")


@pytest.mark.parametrize(
    ("named", "options"),
    [
        ("gzip around shards", lambda: {"serializer": ShardingCodec(chunk_shape=(4, 3, 5)),
                                        "compressors": [GzipCodec()]}),
        ("shards in shards", lambda: {"serializer": ShardingCodec(
            chunk_shape=(4, 6, 5), codecs=[ShardingCodec(chunk_shape=(2, 3, 5))])}),
        ("delta of moved axes",
         lambda: {"filters": [zarr.codecs.TransposeCodec(order=(2, 0, 1)), _delta()]}),
        ("big-endian",
         lambda: {"filters": [_delta()], "serializer": BytesCodec(endian="big")}),
    ],
    ids=["around shards", "in shards", "moved axes", "byte order"],
)  # fmt: skip
def test_codecs_that_are_refused(
    tmp_path: Path, named: str, options: Callable[[], dict[str, Any]]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        write(tmp_path / "s", chunks=(8, 6, 5), **{"compressors": None, **options()})
    with pytest.raises(UnknownFormatError, match=named):
        open_source(str(tmp_path / "s"))


def test_transposed_shards_are_refused(tmp_path: Path) -> None:
    options: dict[str, Any] = {"shape": (8, 6), "dtype": "f4", "chunks": (4, 6)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        zarr.create_array(
            tmp_path / "s", **options, filters=[TransposeCodec(order=(1, 0))], compressors=None,
            serializer=ShardingCodec(chunk_shape=(2, 2)),
        )  # fmt: skip
    with pytest.raises(UnknownFormatError, match="transpose around shards"):
        open_source(str(tmp_path / "s"))


@pytest.mark.parametrize(
    ("dtype", "fill"),
    [("S4", b"xy"), ("U4", "xy"), ([("a", "<i4"), ("b", ">f8")], (7, 1.5))],
    ids=["bytes", "text", "compound"],
)
def test_fill_values_in_base64(tmp_path: Path, dtype: Any, fill: Any) -> None:
    fill = np.array(fill, dtype)[()]
    options = {"shape": (6, 2), "chunks": (3, 2), "dtype": fill.dtype, "zarr_format": 2}
    stored = zarr.create_array(tmp_path / "a", **options, fill_value=fill)
    stored[:3] = np.zeros((3, 2), fill.dtype)
    found = read(open_source(str(tmp_path / "a"), missing="fill"))
    assert_array_equal(found, stored[...])
    assert (found[3:] == fill).all()


@pytest.mark.parametrize("version", [2, 3])
def test_a_chunk_of_texts_that_says_it_holds_others(tmp_path: Path, version: Any) -> None:
    options: dict[str, Any] = {"shape": (4,), "chunks": (4,), "dtype": str, "compressors": None}
    stored = zarr.create_array(tmp_path / "a", **options, zarr_format=version)
    stored[:] = np.array(["a", "bc", "", "d"], object)
    chunk = tmp_path / "a" / ("0" if version == 2 else "c/0")
    # numcodecs would make an array of so many objects, before it finds that they are not there.
    chunk.write_bytes((1 << 24).to_bytes(4, "little") + chunk.read_bytes()[4:])
    with pytest.raises(DamagedChunkError, match=r"holds 16777216 texts, not 4.*rows 0, 1, 2, 3"):
        open_source(str(tmp_path / "a"))


@pytest.mark.parametrize(
    ("dtype", "fill"),
    [
        ("float16", "0x7e00"), ("float32", "0x7fc00000"), ("float32", "0x40490fdb"),
        ("float64", "0x3ff8000000000000"), ("float32", "-Infinity"), ("float64", "2.5"),
        ("complex64", ["0x40490fdb", "NaN"]), ("int64", str((1 << 60) + 1)),
    ],
    ids=str,
)  # fmt: skip
def test_fill_values_as_texts(tmp_path: Path, dtype: str, fill: Any) -> None:
    """Version 3 has the bytes of a float in hexadecimal digits (core specification, "Fill value").

    zarr-python also accepts a number as text.
    """
    zarr.create_array(tmp_path / "a", shape=(4,), chunks=(2,), dtype=dtype)
    file = tmp_path / "a" / "zarr.json"
    file.write_text(json.dumps({**json.loads(file.read_bytes()), "fill_value": fill}))
    expected = zarr.open_array(tmp_path / "a", mode="r")[...]
    assert_array_equal(read(open_source(str(tmp_path / "a"), missing="fill")), expected)


@pytest.mark.parametrize(("fill", "value"), [("NaN", np.nan), ("0x3fc0", 1.5)])
def test_fill_values_of_bfloat16(tmp_path: Path, fill: str, value: float) -> None:
    zarr.create_array(tmp_path / "a", shape=(4,), chunks=(2,), dtype="float16")
    file = tmp_path / "a" / "zarr.json"
    node = {**json.loads(file.read_bytes()), "fill_value": fill, "data_type": "bfloat16"}
    file.write_text(json.dumps(node))
    found = read(open_source(str(tmp_path / "a"), missing="fill"))
    assert_array_equal(found.astype("f4"), np.full(4, value, "f4"))


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("fill", ["x", "0x", [1], {"a": 1}, [[]], "AAAAAA=="], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "int16", "bool", "complex64"])
def test_a_fill_value_that_is_no_number(
    tmp_path: Path, version: Any, fill: Any, dtype: str
) -> None:
    zarr.create_array(tmp_path / "a", shape=(4,), chunks=(2,), dtype=dtype, zarr_format=version)
    file = tmp_path / "a" / (".zarray" if version == 2 else "zarr.json")
    file.write_text(json.dumps({**json.loads(file.read_bytes()), "fill_value": fill}))
    with pytest.raises(UnknownFormatError, match="metadata is wrong"):
        open_source(str(tmp_path / "a"), missing="fill")


_TYPES_V3: dict[str, Any] = {
    "null_terminated_bytes": {"length_bytes": 4}, "fixed_length_utf32": {"length_bytes": 8},
    "numpy.datetime64": {"unit": "s", "scale_factor": 1},
    "structured": {"fields": [["a", "int32"], ["b", "float32"]]},
}  # fmt: skip


@pytest.mark.parametrize(
    ("fill", "refused"),
    [
        (None, "int8 uint64 float16 float32 float64 complex64 string numpy.datetime64 structured"),
        ("0x3f", "float16 float32 float64 complex64 numpy.datetime64 structured"),
        ("0x3f8", "float16 float32 float64 null_terminated_bytes"),
        ("0x3f80_0000", "float32 float64"),
        (["0x3f80", "0x0"], "complex64 complex128 string"),
        (1.5, "int8 complex64 complex128 null_terminated_bytes fixed_length_utf32 structured"),
        ("AAAA", "float32 structured"),
        ("é", "null_terminated_bytes float64"),
        ({}, "float32 string null_terminated_bytes fixed_length_utf32"),
    ],
    ids=str,
)
def test_fill_values_that_zarr_python_refuses(tmp_path: Path, fill: Any, refused: str) -> None:
    for name in refused.split():
        dtype: Any = name
        if name in _TYPES_V3:
            dtype = {"name": name, "configuration": _TYPES_V3[name]}
        zarr.create_array(tmp_path / name, shape=(4,), chunks=(2,), dtype="f4", compressors=None)
        file = tmp_path / name / "zarr.json"
        node = json.loads(file.read_bytes())
        if name == "string":
            node["codecs"] = [{"name": "vlen-utf8"}]
        file.write_text(json.dumps({**node, "fill_value": fill, "data_type": dtype}))
        with pytest.raises(TypeError):
            zarr.open_array(tmp_path / name, mode="r")
        with pytest.raises(UnknownFormatError, match="Zarr metadata") as raised:
            open_source(str(tmp_path / name))
        assert raised.value.path == str(tmp_path / name)


# Store objects ----------------------------------------------------------------------------------


def test_missing_chunks_in_memory_are_found_at_open() -> None:
    stored = write(store := MemoryStore())
    del store._store_dict["c/1/1/0"]
    with pytest.raises(MissingChunkError, match="memory://") as got:
        from_array(stored)
    assert got.value.rows == (4, 5, 6, 7)
    expected = ARRAY.copy()
    expected[4:8, 3:] = 7
    assert_array_equal(read(from_array(stored, missing="fill")), expected)


def test_missing_chunks_in_a_wrapped_store_are_found_when_read(tmp_path: Path) -> None:
    write(tmp_path / "a")
    (tmp_path / "a/c/1/1/0").unlink()
    store = LoggingStore(LocalStore(tmp_path / "a"), log_level="ERROR")
    source = from_array(zarr.open_array(store, mode="r"))
    assert type(source.reader) is ZarrReader
    assert_array_equal(read(source, 0, 19), ARRAY[[0, 19]])
    with pytest.raises(MissingChunkError) as got:
        read(source)
    assert got.value.rows == (4, 5, 6, 7)


# What is no Zarr, or none that can be read ------------------------------------------------------


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="must exist"):
        open_source(str(tmp_path / "none.zarr"))
    with pytest.raises(UnknownFormatError, match=r"zarr\.json, \.zarray or \.zgroup"):
        open_source(str(tmp_path))
    zarr.create_group(tmp_path / "g")
    with pytest.raises(MissingKeyError, match="it holds none"):
        open_source(str(tmp_path / "g"))
    for key in ("a\0b", "a\ud800"):
        with pytest.raises(MissingKeyError, match="It holds: nothing"):
            open_source(str(tmp_path / "g"), key)
        with pytest.raises(MissingKeyError, match="must match datasets"):
            ooc.open(tmp_path / "g", f"{key}/*")
    with pytest.raises(UnknownFormatError, match="got ftp://"):
        open_source("ftp://host/a.zarr")


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (b"{", "must be JSON"),
        (b"[]", "must be a JSON object; got list"),
        (b"\xff\xfe", "must be JSON"),
        ({"shape": [20, -6, 5]}, "shape must be whole numbers of at least 0"),
        ({"shape": "20"}, "shape must be whole numbers"),
        ({"shape": [1 << 70, 6, 5]}, "shape must be whole numbers"),
        ({"dtype": "<i4", "data_type": "int32", "fill_value": 1 << 31}, "is wrong.*int32"),
        ({"zarr_format": 4}, "zarr_format"),
        ({"chunks": [4, 3], "chunk_grid": {"name": "regular", "configuration": {}}}, "chunk"),
        ({"dtype": "<q9", "codecs": [{}]}, "q9|name"),
        ({"order": "A", "storage_transformers": [1]}, "order|storage_transformers"),
        (
            {"dimension_separator": "-", "chunk_key_encoding": {"name": "other"}},
            "separator|encoding",
        ),
        ({"compressor": 3, "codecs": 3}, "is wrong"),
        ({"compressor": 3, "codecs": ["bytes"]}, "is wrong"),
        ({"dtype": "|f4", "surprise": 1}, "byte order|'surprise'"),
        ({"dtype": "f4", "chunk_key_encoding": 4}, "byte order|with a name"),
        (
            {
                "compressor": 3,
                "codecs": [
                    {
                        "name": "sharding_indexed",
                        "configuration": {"chunk_shape": [4, 3, 5], "index_location": "middle"},
                    }
                ],
            },
            "is wrong: (index_location|'int')",
        ),
        ({"dtype": "|u1", "data_type": "uint8", "fill_value": 256}, "be of uint8; got 256"),
        ({"dtype": "<i4", "data_type": "int32", "fill_value": 1.5}, "of int32; got 1.5"),
        ({"dtype": "<i4", "data_type": "int32", "fill_value": "Infinity"}, "Infinity"),
        ({"dtype": "f4", "data_type": {"name": "numpy.datetime64"}}, "scale_factor|byte order"),
        ({"dtype": "f4", "data_type": ["int32"]}, "with a name|byte order"),
        ({"dtype": ",f4", "data_type": ["int32"]}, "is wrong: .*(syntax|with a name)"),
        ({"dtype": "<04", "data_type": ["int32"]}, "is wrong: .*(zeros|with a name)"),
        ({"dtype": [["a", "<f4"], ["b", "0f4"]], "data_type": 4}, "byte order|with a name"),
    ],
)
def test_metadata_that_is_wrong(tmp_path: Path, version: Any, change: Any, message: str) -> None:
    write(tmp_path / "a", zarr_format=version)
    file = tmp_path / "a" / (".zarray" if version == 2 else "zarr.json")
    if isinstance(change, dict):  # the fields of version 2, then those of version 3
        older = ("chunks", "dtype", "order", "dimension_separator", "compressor")
        fields = {n: v for n, v in change.items() if version == 2 or n not in older}
        change = json.dumps({**json.loads(file.read_bytes()), **fields}).encode()
    file.write_bytes(change)
    with pytest.raises(UnknownFormatError, match=message) as got:
        open_source(str(tmp_path / "a"))
    assert got.value.path == str(tmp_path / "a")


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("name", ["shape", "fill_value"])
def test_metadata_that_lack_a_field(tmp_path: Path, version: Any, name: str) -> None:
    write(tmp_path / "a", zarr_format=version)
    file = tmp_path / "a" / (".zarray" if version == 2 else "zarr.json")
    node = json.loads(file.read_bytes())
    del node[name]
    file.write_text(json.dumps(node))
    with pytest.raises(UnknownFormatError, match=f"lacks '{name}'"):
        open_source(str(tmp_path / "a"))


@pytest.mark.parametrize("compressor", [None, numcodecs.Zstd(1)], ids=["plain", "zstd"])
def test_metadata_of_version_2_may_lack_filters(tmp_path: Path, compressor: Any) -> None:
    write(tmp_path / "a", zarr_format=2, compressors=compressor)
    file = tmp_path / "a/.zarray"
    node = json.loads(file.read_bytes())
    del node["filters"]
    file.write_text(json.dumps(node))
    assert_array_equal(zarr.open_array(tmp_path / "a")[...], ARRAY)
    assert_array_equal(read(open_source(str(tmp_path / "a"))), ARRAY)


def test_chunks_of_several_shapes_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "a")
    file = tmp_path / "a/zarr.json"
    node = json.loads(file.read_bytes())
    node["chunk_grid"] = {"name": "rectilinear", "configuration": {"kind": "inline"}}
    file.write_text(json.dumps(node))
    with pytest.raises(UnknownFormatError, match="must be regular; got 'rectilinear'"):
        open_source(str(tmp_path / "a"))


@pytest.mark.parametrize(
    ("version", "dtype", "message"),
    [
        (2, "|O", "variable length"),
        (2, "<f16", "float128"),
        (3, "variable_length_bytes", "variable_length_bytes"),
        (3, "r16", "'r16'"),
        (3, {"name": "raw_bytes", "configuration": {"length_bytes": 2}}, "raw_bytes"),
        (3, "float8_e5m2", "float8_e5m2"),
    ],
    ids=str,
)
def test_dtypes_that_no_batch_holds(tmp_path: Path, version: Any, dtype: Any, message: str) -> None:
    write(tmp_path / "a", zarr_format=version)
    file = tmp_path / "a" / (".zarray" if version == 2 else "zarr.json")
    node = json.loads(file.read_bytes())
    node["dtype" if version == 2 else "data_type"] = dtype
    file.write_text(json.dumps(node))
    with pytest.raises(UnsupportedDtypeError, match=message):
        open_source(str(tmp_path / "a"))


def test_zarr_2_without_a_fill_value_fills_with_zeros(tmp_path: Path) -> None:
    """Other libraries refuse it too."""
    write(tmp_path / "a", zarr_format=2, fill_value=None)
    (tmp_path / "a/1.1.0").unlink()
    with pytest.raises(MissingChunkError, match="the fill value null"):
        open_source(str(tmp_path / "a"))
    expected = ARRAY.copy()
    expected[4:8, 3:] = 0
    assert_array_equal(read(open_source(str(tmp_path / "a"), missing="fill")), expected)
    assert_array_equal(zarr.open_array(tmp_path / "a", mode="r")[...], expected)


@pytest.mark.parametrize("version", [2, 3])
def test_metadata_that_other_libraries_refuse(tmp_path: Path, version: Any) -> None:
    """zarr-python accepts a number as the fill value of a bool, and null for optional fields."""
    array = zarr.create_array(
        tmp_path / "a", shape=(6, 2), chunks=(2, 2), dtype="?", zarr_format=version
    )
    array[2:4] = True
    file = tmp_path / "a" / (".zarray" if version == 2 else "zarr.json")
    node = {**json.loads(file.read_bytes()), "fill_value": 1}
    nulls = {} if version == 2 else {"attributes": None, "dimension_names": None}
    for change in ({"fill_value": 1}, {"fill_value": True, **nulls}):
        file.write_text(json.dumps({**node, **change}))
        assert read(open_source(str(tmp_path / "a"), missing="fill")).all()


@pytest.mark.parametrize("kind", ["v3", "v2 lzma"])
def test_an_array_resized_since_open(tmp_path: Path, kind: str) -> None:
    stored = write(tmp_path / "a", **KINDS[kind][0])
    source = open_source(str(tmp_path / "a"))
    stored.resize((10, 6, 5))
    with pytest.raises(SourceError, match=r"it has changed\. Open it again"):
        read(source)


def test_an_array_in_memory_resized_since_open() -> None:
    """zarr-python cuts rows beyond its end, so that fewer rows would be repeated."""
    stored = write(MemoryStore())
    source = from_array(stored)
    stored.resize((17, 6, 5))
    with pytest.raises(UnknownFormatError, match=r"as when it was opened; it has \(17, 6, 5\)"):
        read(source, 16)


@pytest.mark.parametrize("kind", ["v3", "v2 lzma"])
def test_an_array_gone_since_open(tmp_path: Path, kind: str) -> None:
    write(tmp_path / "a", **KINDS[kind][0])
    source = open_source(str(tmp_path / "a"))
    shutil.rmtree(tmp_path / "a")
    with pytest.raises(MissingFileError, match="it was deleted"):
        read(source)


def test_an_array_gone_from_a_store_of_python(tmp_path: Path) -> None:
    """All its chunks are absent then, as in a worker process without the memory of this one."""
    store = LoggingStore(LocalStore(write(tmp_path / "a").store.root), log_level="ERROR")
    source = from_array_as_it_is(zarr.open_array(store, mode="r"))
    assert_array_equal(read(source, 0), ARRAY[[0]])
    shutil.rmtree(tmp_path / "a")
    with pytest.raises(MissingFileError, match=r"no 'zarr\.json'. It was deleted"):
        read(source, 19)


# URLs -------------------------------------------------------------------------------------------


@pytest.fixture
def served(tmp_path: Path) -> Iterator[RangeServer]:
    """Serve the test's folder."""
    with RangeServer(tmp_path) as server:
        yield server


@pytest.mark.parametrize("version", [2, 3])
def test_reading_over_http(tmp_path: Path, served: RangeServer, version: Any) -> None:
    url = served.url
    group = zarr.create_group(tmp_path / "g", zarr_format=version)
    write(group.store, name="b/c", zarr_format=version)
    with pytest.raises(MissingKeyError, match="no consolidated metadata"):
        open_source(f"{url}/g")
    assert_array_equal(read(open_source(f"{url}/g", "b/c")), ARRAY)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        zarr.consolidate_metadata(tmp_path / "g")
    assert list_datasets(f"{url}/g") == ["b/c"]
    source = open_source(f"{url}/g")
    assert_array_equal(read(source), ARRAY)
    assert source.storage().stored_bytes is None
    (tmp_path / "g" / ("b/c/1.1.0" if version == 2 else "b/c/c/1/1/0")).unlink()
    with pytest.raises(MissingChunkError) as got:
        read(open_source(f"{url}/g"))
    assert got.value.rows == (4, 5, 6, 7)
    with pytest.raises(UnknownFormatError, match="there is none of them"):
        open_source(f"{url}/other")


# Forks ------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_reading_after_a_fork(tmp_path: Path) -> None:
    write(tmp_path / "2", zarr_format=2, order="F")
    write(tmp_path / "3", filters=[TransposeCodec(order=(2, 0, 1))])
    sources = [open_source(str(tmp_path / version)) for version in "23"]
    for source in sources:
        read(source)
    # The parent's decoded chunks are forgotten by the child, so it must read.
    found = in_a_fork(lambda: " ".join(str(read(source, 1, 2).sum()) for source in sources))
    assert found == f"{ARRAY[1:3].sum()} {ARRAY[1:3].sum()}"
    for source in sources:
        assert_array_equal(read(source), ARRAY)  # the parent goes on


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize("where", ["lzma", "memory", "blosc filter"])
def test_zarr_python_starts_again_after_a_fork(tmp_path: Path, where: str) -> None:
    if where == "memory":
        source = from_array(write(MemoryStore()))
    else:
        filters = [numcodecs.Delta("<f4")] if where == "blosc filter" else None
        codec = numcodecs.LZMA() if where == "lzma" else numcodecs.Blosc()
        write(tmp_path / "a", zarr_format=2, compressors=codec, filters=filters)
        source = open_source(str(tmp_path / "a"))
    read(source)
    assert in_a_fork(lambda: str(read(source, 1, 2).sum())) == str(ARRAY[1:3].sum())


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_an_array_written_anew_or_deleted_while_it_is_read(
    tmp_path: Path, zarr_format: Any
) -> None:
    """Cached chunks would be of the old array, the others of the new one."""
    path = tmp_path / "a.zarr"

    def write(value: float) -> None:
        array = zarr.create_array(
            path, shape=(40, 3), chunks=(10, 3), dtype="f4", zarr_format=zarr_format, overwrite=True
        )
        array[...] = value

    write(1)
    source = open_source(str(path))
    read(source, 3)
    metadata = path / ("zarr.json" if zarr_format == 3 else ".zarray")
    write(2)
    os.utime(metadata, ns=(0, 0))  # clocks may be coarser than this test is fast
    with pytest.raises(SourceError, match=r"it has changed\. Open it again"):
        read(source, 33)
    shutil.rmtree(path)
    with pytest.raises(MissingFileError, match="deleted"):
        read(source, 33)


# Chunks left out by their writer ----------------------------------------------------------------


def _with_blank_rows(where: Any, **options: Any) -> np.ndarray:
    """Write an array of which rows 4 to 7 hold only the fill value, which zarr leaves out."""
    array = ARRAY.copy()
    array[4:8] = 7
    write(where, array, **options)
    return array


@pytest.mark.parametrize("kind", [*KINDS, "memory"])
def test_blank_chunks_are_told_at_open_and_once(tmp_path: Path, kind: str) -> None:
    where: Any = tmp_path / "a"
    if kind == "memory":
        where = MemoryStore()
    array = _with_blank_rows(where, **KINDS.get(kind, ({}, ""))[0])
    path = str(tmp_path / "a")

    def opened() -> Any:
        if kind == "memory":
            return from_array_as_it_is(zarr.open_array(where, mode="r"))
        return open_as_it_is(path)

    with pytest.warns(MissingChunkWarning, match=r"2 of 10 stored objects .* fill value 7") as told:
        source = opened()
    assert len(told) == 1
    assert_array_equal(read(source), array)  # a second warning would be an error here
    assert "2 of 10 stored objects are absent" in source.storage().reading
    copy = pickle.loads(pickle.dumps(source))
    assert_array_equal(read(copy), array)


@pytest.mark.parametrize("reason", ["within a shard", "many", "wrapped"])
def test_blank_chunks_that_were_not_asked_for_are_told_when_read(
    tmp_path: Path, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if reason == "within a shard":
        array = _with_blank_rows(tmp_path / "a", shards=(8, 6, 5))
        source = open_as_it_is(str(tmp_path / "a"))
    elif reason == "many":
        monkeypatch.setattr(objects, "_MOST_SURVEYED", 9)
        array = _with_blank_rows(tmp_path / "a")
        source = open_as_it_is(str(tmp_path / "a"))
    else:
        array = _with_blank_rows(tmp_path / "a")
        store = LoggingStore(LocalStore(tmp_path / "a"), log_level="ERROR")
        source = from_array_as_it_is(zarr.open_array(store, mode="r"))
    assert_array_equal(read(source, 0, 19), array[[0, 19]])
    with pytest.warns(MissingChunkWarning, match="some chunks of the Zarr array") as told:
        assert_array_equal(read(source, 5, 6), array[[5, 6]])
    assert len(told) == 1
    assert_array_equal(read(source), array)


def test_a_chunk_lost_while_open_is_not_filled(stored: tuple[str, Path]) -> None:
    path, chunk = stored
    for missing in (None, "fill"):
        source = open_as_it_is(path, missing=missing)
        content = chunk.read_bytes()
        chunk.unlink()
        with pytest.raises(SourceError, match="it was deleted") as got:
            read(source, 5)
        assert got.value.rows == (4, 5, 6, 7)
        chunk.write_bytes(content)


def test_an_error_of_many_rows_holds_few(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "a", shape=(10_000_000,), chunks=(5_000_000,), dtype="u1")
    with pytest.raises(MissingChunkError, match=r"rows 0, 1, .*… \(10000000 in all\)") as got:
        open_source(str(tmp_path / "a"))
    assert got.value.rows == tuple(range(1000))
    assert got.value.count == 10_000_000


# What opening and reading take ------------------------------------------------------------------


class Touch:
    """An object whose pickle runs code."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("place", ["compressor", "filters"])
def test_pickled_chunks_are_refused(tmp_path: Path, place: str) -> None:
    """An array of numbers may name any codec; that one would run the code of a stranger."""
    write(tmp_path / "a", zarr_format=2)
    codec = {"id": "pickle", "protocol": 5}
    node = json.loads((tmp_path / "a/.zarray").read_bytes())
    node |= {"compressor": None, "filters": None, place: [codec] if place == "filters" else codec}
    (tmp_path / "a/.zarray").write_text(json.dumps(node))
    (tmp_path / "a/0.0.0").write_bytes(pickle.dumps(Touch(tmp_path / "ran")))
    with pytest.raises(UnknownFormatError, match="got the codec pickle"):
        read(open_source(str(tmp_path / "a"), missing="fill"), 0)
    assert not (tmp_path / "ran").exists()
