"""Decode chunks of Zarr folders and archives directly into their places."""

from __future__ import annotations

import gzip
import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar

import google_crc32c
import numcodecs
import numpy as np
import pytest
import zarr
from boxes import check_boxes
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

from oocdata.datasets.view import View
from oocdata.engines.chunked import Chunked
from oocdata.engines.source import Source
from oocdata.errors import (
    DamagedChunkError,
    MissingChunkError,
    MissingChunkWarning,
    SourceError,
)
from oocdata.formats.opening import open_source
from oocdata.formats.zarr import readers, shards
from oocdata.formats.zarr.readers import ZarrReader
from oocdata.formats.zarr.shards import ShardReader
from oocdata.memory import DEFAULT_MEMORY, scratch_share, set_memory
from oocdata.testing import SourceConformance, sample_array

V2 = {"zarr_format": 2}


def write(path: Any, array: NDArray[Any], **options: Any) -> zarr.Array[Any]:
    options.setdefault("chunks", tuple(max(1, (n + 1) // 2) for n in array.shape))
    stored = zarr.create_array(
        path, shape=array.shape, dtype=array.dtype, config={"write_empty_chunks": True}, **options
    )
    stored[...] = array
    return stored


def reader_of(source: Source) -> Any:
    assert isinstance(source, Chunked)
    return source.reader


class TestConformance(SourceConformance):
    dtypes: ClassVar[Any] = ("<f4", ">i2")

    def make(self, folder: Path, array: NDArray[Any]) -> Source:
        if not (folder / "a.zarr").exists():
            write(folder / "a.zarr", array, **V2, compressors=numcodecs.Blosc())
        source = open_source(str(folder / "a.zarr"))
        assert type(reader_of(source)) is ZarrReader
        return source


@pytest.mark.parametrize(
    "options",
    [
        {**V2, "compressors": numcodecs.Blosc("zstd", 5, numcodecs.Blosc.BITSHUFFLE)},
        {**V2, "compressors": numcodecs.Zlib(3)},
        {**V2, "compressors": numcodecs.GZip(3)},
        {**V2, "compressors": numcodecs.Zstd(3), "chunks": (100, 4, 4, 4)},
        {"compressors": ZstdCodec(level=1, checksum=True), "chunks": (1, 3, 5, 4)},
        {"compressors": GzipCodec(level=1)},
        {"compressors": BloscCodec(), "serializer": BytesCodec(endian="big")},
        {**V2, "order": "F", "compressors": numcodecs.Blosc()},
        {**V2, "compressors": numcodecs.BZ2()},
        {**V2, "compressors": numcodecs.LZMA()},
        {**V2, "filters": [numcodecs.Zlib()]},
        {**V2, "compressors": None},
        {"compressors": [ZstdCodec(), Crc32cCodec()]},
        {"compressors": [Crc32cCodec()]},
        {"compressors": [GzipCodec(), ZstdCodec()]},
        {"filters": [TransposeCodec(order=(2, 0, 3, 1))]},
        {"shards": (24, 4, 6, 4), "compressors": ZstdCodec()},
    ],
    ids=[
        "blosc",
        "zlib",
        "gzip",
        "zstd",
        "zstd v3",
        "gzip v3",
        "blosc v3, big-endian",
        "Fortran",
        "bz2",
        "lzma",
        "filter",
        "plain",
        "checksum",
        "checksum alone",
        "two compressors",
        "transposed",
        "shards",
    ],
)
def test_every_codec(tmp_path: Path, options: dict[str, Any]) -> None:
    array = sample_array((23, 3, 5, 4))
    write(tmp_path / "a.zarr", array, **options)
    source = open_source(str(tmp_path / "a.zarr"))
    check_boxes(source, array)
    assert_array_equal(View.of(pickle.loads(pickle.dumps(source))).take([7]), array[[7]])


def test_gzip_of_several_members_is_refused(tmp_path: Path) -> None:
    array = sample_array((2, 6, 5), "<f8")
    write(tmp_path / "a.zarr", array, **V2, chunks=array[:1].shape, compressors=numcodecs.GZip(1))
    raw = array[0].tobytes()
    (tmp_path / "a.zarr/0.0.0").write_bytes(gzip.compress(raw[:100]) + gzip.compress(raw[100:]))
    view = View.of(open_source(str(tmp_path / "a.zarr")))
    assert_array_equal(view[1], array[1])
    with pytest.raises(DamagedChunkError, match="decodes to 100 bytes, not 240"):
        view[0]


@pytest.mark.parametrize("codec", [numcodecs.Blosc(), numcodecs.Zlib(), numcodecs.Zstd()], ids=str)
@pytest.mark.parametrize("harm", ["cut", "changed"])
def test_damaged_chunks(tmp_path: Path, codec: Any, harm: str) -> None:
    write(tmp_path / "a.zarr", sample_array((8, 400)), **V2, chunks=(2, 400), compressors=codec)
    path = tmp_path / "a.zarr/2.0"
    stored = path.read_bytes()
    path.write_bytes(stored[: len(stored) // 2] if harm == "cut" else b"x" * len(stored))
    view = View.of(open_source(str(tmp_path / "a.zarr")))
    view.take([0, 3, 6])
    with pytest.raises(DamagedChunkError, match="a chunk must decode") as caught:
        view.take([1, 4])
    assert list(caught.value.rows) == [4, 5]


def test_absent_chunks(tmp_path: Path) -> None:
    array = sample_array((8, 5))
    write(tmp_path / "a.zarr", array, chunks=(2, 5), fill_value=7)
    (tmp_path / "a.zarr/c/1/0").unlink()
    array[2:4] = 7
    path = str(tmp_path / "a.zarr")
    assert_array_equal(np.asarray(View.of(open_source(path, missing="fill"))), array)
    with pytest.warns(MissingChunkWarning):
        assert_array_equal(np.asarray(View.of(open_source(path))), array)
    with pytest.raises(MissingChunkError):
        open_source(path, missing="error")


@pytest.mark.parametrize(("data", "how"), [(b"other", "written anew"), (None, "was deleted")])
def test_a_chunk_that_changed_is_not_called_damaged(
    tmp_path: Path, data: bytes | None, how: str
) -> None:
    write(tmp_path / "a.zarr", sample_array((8, 5)), chunks=(2, 5))
    view = View.of(open_source(str(tmp_path / "a.zarr")))
    path = tmp_path / "a.zarr/c/1/0"
    if data is None:
        path.unlink()
    else:
        path.write_bytes(data)
    with pytest.raises(SourceError, match=how) as caught:
        view.take([3])
    assert list(caught.value.rows) == [2, 3]
    assert type(caught.value) is SourceError


def test_a_chunk_that_cannot_be_read(tmp_path: Path) -> None:
    write(tmp_path / "a.zarr", sample_array((8, 5)), chunks=(2, 5))
    path = tmp_path / "a.zarr/c/1/0"
    path.unlink()
    path.mkdir()
    view = View.of(open_source(str(tmp_path / "a.zarr")))
    with pytest.raises(SourceError, match=r"must be readable.*directory") as caught:
        view.take([3])
    assert list(caught.value.rows) == [2, 3]


def test_a_chunk_takes_what_is_stored_of_it_beside_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several threads together stay within the share of memory for decoding."""
    array = np.random.default_rng(0).integers(0, 1 << 32, (32, 512, 512), np.uint32)
    write(tmp_path / "a.zarr", array, **V2, chunks=(1, 512, 512), compressors=numcodecs.Blosc())
    source = open_source(str(tmp_path / "a.zarr"))
    view = View.of(source)[:, 1:]  # whole chunks would go past the cache
    slots, lock = source.cached.slots, Lock()  # type: ignore[attr-defined]
    decode, now, most = readers.decompress, [0], [0]

    def counting(codec: str, data: memoryview, out: NDArray[np.uint8]) -> Any:
        beside = 0 if np.may_share_memory(out, slots.memory) else out.nbytes
        with lock:
            now[0] += len(data) + beside
            most[0] = max(most[0], now[0])
        try:
            return decode(codec, data, out)
        finally:
            with lock:
                now[0] -= len(data) + beside

    monkeypatch.setattr(readers, "decompress", counting)
    set_memory(12 << 20)
    try:
        with ThreadPoolExecutor(4) as threads:
            for rows in threads.map(lambda first: view.take(range(first, 32, 4)), range(4)):
                assert rows.nbytes == 8 * 511 * 512 * 4
        # There is room for one at a time; Blosc adds a header to what it can't make smaller.
        assert array[0].nbytes <= most[0] <= array[0].nbytes + 64 < scratch_share()
    finally:
        set_memory(DEFAULT_MEMORY)


# --- shards


class TestShards(SourceConformance):
    dtypes: ClassVar[Any] = ("<f4", ">i2")

    def make(self, folder: Path, array: NDArray[Any]) -> Source:
        if not (folder / "a.zarr").exists():
            chunks = tuple(max(1, (n + 1) // 3) for n in array.shape)
            write(
                folder / "a.zarr", array, chunks=chunks, shards=tuple(2 * n for n in chunks),
                compressors=ZstdCodec(), serializer=BytesCodec(endian="big"),
            )  # fmt: skip
        source = open_source(str(folder / "a.zarr"))
        assert type(reader_of(source)) is ShardReader
        return source


@pytest.mark.parametrize(
    "codec",
    [
        {"codecs": [BytesCodec(), BloscCodec()], "index_location": "start"},
        {"codecs": [BytesCodec(), GzipCodec()], "index_codecs": [BytesCodec()]},
        {"codecs": [BytesCodec()]},
        {"codecs": [TransposeCodec(order=(1, 0, 2)), BytesCodec(), ZstdCodec()]},
        {"codecs": [BytesCodec(), ZstdCodec(), Crc32cCodec()]},
    ],
    ids=["index first", "no checksum", "plain", "transposed", "checksum"],
)  # fmt: skip
def test_codecs_of_shards(tmp_path: Path, codec: dict[str, Any]) -> None:
    array = sample_array((23, 6, 5)) + 1
    write(
        tmp_path / "a.zarr", array, chunks=(8, 6, 5), compressors=None,
        serializer=ShardingCodec(chunk_shape=(2, 3, 5), **codec),
    )  # fmt: skip
    source = open_source(str(tmp_path / "a.zarr"), missing="fill")
    reader = reader_of(source)
    assert isinstance(reader, ShardReader)
    check_boxes(source, array)
    assert_array_equal(View.of(pickle.loads(pickle.dumps(source))).take([7]), array[[7]])


def sharded(path: Path, array: NDArray[Any], **options: Any) -> Any:
    """Write shards of six rows, in chunks of two."""
    inside = {"chunks": (2, *array.shape[1:]), "shards": (6, *array.shape[1:])}
    return write(path, array, compressors=ZstdCodec(), fill_value=7, **inside, **options)


def test_an_index_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    array = sample_array((24, 4))
    sharded(tmp_path / "a", array)
    source, read = open_source(str(tmp_path / "a")), []
    reader = reader_of(source)
    index = ShardReader._read_shard
    monkeypatch.setattr(
        ShardReader, "_read_shard", lambda self, name: (read.append(name), index(self, name))[1]
    )
    for number in (0, 3, 11, 1, 2, 10):
        out = np.empty((2, 4), array.dtype)
        reader.read_chunks(np.array([[number, 0]]), [out])
        assert_array_equal(out, array[2 * number : 2 * number + 2])
    assert len(read) == 3
    monkeypatch.setattr(reader, "_most", 1)
    assert_array_equal(View.of(pickle.loads(pickle.dumps(source)))[...], array)
    for number in (6, 0, 6, 0):
        reader.read_chunks(np.array([[number, 0]]), [out])
        assert len(reader._shards) <= 1


def test_the_indices_of_many_large_shards_are_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """20 indices of 256 KiB fit into a quarter of the memory for tables."""
    count, chunks, read = 20, 1 << 14, list[str]()
    options: dict[str, Any] = {"compressors": None, "shards": (chunks,), "chunks": (1,)}
    zarr.create_array(tmp_path / "a", shape=(count * chunks,), dtype="u1", **options)
    addresses = np.stack((np.arange(chunks), np.ones(chunks)), axis=1).astype("<u8").tobytes()
    index = addresses + google_crc32c.value(addresses).to_bytes(4, "little")
    for number in range(count):
        shard = tmp_path / f"a/c/{number}"
        shard.parent.mkdir(exist_ok=True)
        shard.write_bytes(bytes([number]) * chunks + index)
    stored = ShardReader._read_shard
    monkeypatch.setattr(
        ShardReader, "_read_shard", lambda self, name: (read.append(name), stored(self, name))[1]
    )
    view = View.of(open_source(str(tmp_path / "a")))
    for row in (5, 7, chunks - 1):
        assert_array_equal(view.take(np.arange(count) * chunks + row), np.arange(count))
    assert len(read) == count


def test_one_index_is_kept_however_large_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = sample_array((24, 4))
    sharded(tmp_path / "a", array)
    monkeypatch.setattr(shards, "scratch_share", lambda: 51)
    source = open_source(str(tmp_path / "a"))
    assert source.storage().table_bytes == 4 * 8 + (16 * 3 + 4)
    assert_array_equal(View.of(source)[...], array)
    assert len(reader_of(source)._shards) == 1


def test_memory_states_the_indices(tmp_path: Path) -> None:
    sharded(tmp_path / "a", sample_array((24, 4)))
    assert open_source(str(tmp_path / "a")).storage().table_bytes == 4 * (8 + 16 * 3 + 4)


@pytest.mark.parametrize(("missing", "fill"), [(None, 7.0), ("fill", -0.0), ("error", 7.0)])
def test_chunks_and_shards_that_are_absent(tmp_path: Path, missing: Any, fill: float) -> None:
    array = sample_array((24, 4)).astype("f8")
    array[2:4] = fill
    array[12:18] = fill
    stored = zarr.create_array(
        tmp_path / "a", shape=array.shape, dtype=array.dtype, chunks=(2, 4), shards=(6, 4),
        compressors=ZstdCodec(), fill_value=fill,
    )  # fmt: skip
    stored[...] = array
    if missing == "error":
        with pytest.raises(MissingChunkError):
            open_source(str(tmp_path / "a"), missing=missing)
        return
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        source = open_source(str(tmp_path / "a"), missing=missing)
        assert type(reader_of(source)) is ShardReader
        assert View.of(source).take(np.arange(24)).tobytes() == array.tobytes()
    assert [one.category for one in told] == [MissingChunkWarning] * (missing is None)


@pytest.mark.parametrize(("at", "words"), [(-3, "index of a shard can't be read"), (9, "decode")])
def test_damage_names_its_rows(tmp_path: Path, at: int, words: str) -> None:
    """Of the index, all rows of the shard; of a chunk, its rows."""
    array = sample_array((24, 40))
    sharded(tmp_path / "a", array)
    file = tmp_path / "a/c/2/0"
    stored = bytearray(file.read_bytes())
    stored[at : at + 2] = b"\xff\xfe"
    file.write_bytes(stored)
    view = View.of(open_source(str(tmp_path / "a")))
    assert_array_equal(view.take(np.arange(12)), array[:12])
    with pytest.raises(DamagedChunkError, match=words) as caught:
        view.take(np.array([3, 12, 20]))
    assert caught.value.rows == ((12, 13) if at > 0 else tuple(range(12, 18)))
    assert_array_equal(view.take(np.array([20, 3])), array[[20, 3]])


def test_a_shard_that_is_written_anew(tmp_path: Path) -> None:
    array = sample_array((24, 4))
    stored = sharded(tmp_path / "a", array)
    view = View.of(open_source(str(tmp_path / "a")))
    assert_array_equal(view.take([13]), array[[13]])
    stored[12:18] = 3  # the same bytes long, perhaps
    with pytest.raises(SourceError, match="written anew"):
        view.take(np.array([16]))
    assert_array_equal(view.take([0]), array[[0]])


def test_shards_read_by_many_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    array = sample_array((240, 4))
    sharded(tmp_path / "a", array)
    source = open_source(str(tmp_path / "a"))
    monkeypatch.setattr(reader_of(source), "_most", 2)
    rows = np.random.default_rng(0).permutation(240).reshape(40, 6)
    with ThreadPoolExecutor(8) as pool:
        for some, batch in zip(rows, pool.map(View.of(source).take, rows), strict=True):
            assert_array_equal(batch, array[some])
