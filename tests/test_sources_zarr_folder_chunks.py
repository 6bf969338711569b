"""Chunks in the files of a folder, without TensorStore; whatever is odd about one is left to it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
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
from oocdata.errors import DamagedChunkError
from oocdata.sources.zarr import open_zarr, readers
from oocdata.sources.zarr.folder_chunks import FolderChunks
from oocdata.testing import sample_array

SHAPE, CHUNKS, SHARDS = (23, 7, 9), (4, 3, 9), (8, 6, 9)

PLAIN: dict[str, dict[str, Any]] = {
    "v2": {"zarr_format": 2},
    "v2 slash": {"zarr_format": 2, "chunk_key_encoding": {"name": "v2", "separator": "/"}},
    "v2 raw": {"zarr_format": 2, "compressors": None},
    "v2 zlib": {"zarr_format": 2, "compressors": numcodecs.Zlib(3)},
    "v2 gzip": {"zarr_format": 2, "compressors": numcodecs.GZip(3)},
    "v2 zstd": {"zarr_format": 2, "compressors": numcodecs.Zstd(3)},
    "v2 blosc": {"zarr_format": 2, "compressors": numcodecs.Blosc("zstd", 5, 1)},
    "v2 blosc bits": {"zarr_format": 2, "compressors": numcodecs.Blosc("lz4", 5, 2)},
    "v3": {},
    "v3 raw": {"compressors": None},
    "v3 gzip": {"compressors": [GzipCodec(level=2)]},
    "v3 blosc": {"compressors": [BloscCodec(cname="lz4hc", shuffle="bitshuffle")]},
    "v3 checksum": {"compressors": [ZstdCodec(level=3, checksum=True)]},
    "v3 shards": {"shards": SHARDS},
    "v3 shards gzip": {"shards": SHARDS, "compressors": [GzipCodec(level=1)]},
    "v3 shards raw": {"shards": SHARDS, "compressors": None},
    "v3 index first": {
        "chunks": SHARDS,
        "serializer": ShardingCodec(
            chunk_shape=CHUNKS,
            codecs=[BytesCodec(endian="big"), ZstdCodec()],
            index_codecs=[BytesCodec(endian="little")],
            index_location="start",
        ),
        "compressors": None,
    },
}
BIG_ENDIAN: dict[str, dict[str, Any]] = {
    "v3 big": {"serializer": BytesCodec(endian="big")},
    "v3 big-endian index": {
        "chunks": SHARDS,
        "serializer": ShardingCodec(
            chunk_shape=CHUNKS, index_codecs=[BytesCodec(endian="big"), Crc32cCodec()]
        ),
        "compressors": None,
    },
}

OTHER: dict[str, dict[str, Any]] = {
    "v2 fortran": {"zarr_format": 2, "order": "F"},
    "v2 bz2": {"zarr_format": 2, "compressors": numcodecs.BZ2(1)},
    "v3 crc32c": {"compressors": [Crc32cCodec()]},
    "v3 two": {"compressors": [ZstdCodec(), Crc32cCodec()]},
    "v3 transpose": {"filters": [TransposeCodec(order=(2, 0, 1))]},
    "v3 shards in shards": {
        "chunks": SHARDS,
        "serializer": ShardingCodec(
            chunk_shape=(8, 3, 9), codecs=[ShardingCodec(chunk_shape=CHUNKS)]
        ),
        "compressors": None,
    },
}


def write(where: Path, array: np.ndarray, **options: Any) -> str:
    options = {"chunks": CHUNKS, "fill_value": 7, "config": {"write_empty_chunks": True}, **options}
    zarr.create_array(where, shape=array.shape, dtype=array.dtype, **options)[...] = array
    return str(where)


@pytest.fixture
def no_tensorstore(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise AssertionError("TensorStore was asked")

    monkeypatch.setattr(readers, "tensorstore", refuse)


@pytest.mark.usefixtures("no_tensorstore")
@pytest.mark.parametrize("kind", [*PLAIN, *BIG_ENDIAN])
@pytest.mark.parametrize("dtype", ["<f4", ">i2", "<c16", "|b1", "<f2"])
def test_plain_files_are_read_without_tensorstore(kind: str, dtype: str, tmp_path: Path) -> None:
    array = sample_array(SHAPE).astype(dtype)
    path = write(tmp_path / "a", array, **{**PLAIN, **BIG_ENDIAN}[kind])
    for axis in range(3):
        view = View.of(open_zarr(path, axis=axis))
        assert view.source.reader.own_threads is False
        assert_array_equal(np.asarray(view), np.moveaxis(array, axis, 0))
        assert_array_equal(
            np.asarray(view[2:, ::-1, 1:].take([3, 0])),
            np.moveaxis(array, axis, 0)[2:, ::-1, 1:][[3, 0]],
        )


@pytest.mark.parametrize("kind", OTHER)
@pytest.mark.filterwarnings("ignore:Combining a `sharding_indexed` codec")
def test_all_else_is_left_to_tensorstore(kind: str, tmp_path: Path) -> None:
    array = sample_array(SHAPE)
    source = open_zarr(write(tmp_path / "a", array, **OTHER[kind]))
    assert source.reader.own_threads is True
    assert FolderChunks.of(source.reader.stored) is None
    assert_array_equal(np.asarray(View.of(source)), array)


@pytest.mark.usefixtures("no_tensorstore")
@given(
    shape=st.tuples(st.integers(1, 12), st.integers(1, 6)),
    chunk=st.tuples(st.integers(1, 13), st.integers(1, 7)),
    per_shard=st.none() | st.tuples(st.integers(1, 3), st.integers(1, 3)),
)
def test_any_shape(
    shape: tuple[int, int],
    chunk: tuple[int, int],
    per_shard: tuple[int, int] | None,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    assume(max(map(min, shape, chunk)) > 1)  # single elements are read in runs
    array = sample_array(shape)
    options: dict[str, Any] = {"chunks": chunk}
    if per_shard:
        options["shards"] = tuple(n * k for n, k in zip(chunk, per_shard, strict=True))
    path = write(tmp_path_factory.mktemp("any") / "a", array, **options)
    assert_array_equal(np.asarray(View.of(open_zarr(path))), array)


@pytest.mark.parametrize("kind", ["v2", "v3", "v3 shards"])
def test_chunks_that_are_not_there_are_filled_by_tensorstore(kind: str, tmp_path: Path) -> None:
    array = sample_array(SHAPE)
    options = {**PLAIN[kind], "config": {"write_empty_chunks": False}}
    stored = zarr.create_array(
        tmp_path / "a", shape=SHAPE, dtype="f4", chunks=CHUNKS, fill_value=7, **options
    )
    stored[4:8] = array[4:8]
    expected = np.full(SHAPE, 7, "f4")
    expected[4:8] = array[4:8]
    source = open_zarr(str(tmp_path / "a"), missing="fill")
    assert source.reader.own_threads is False
    assert_array_equal(np.asarray(View.of(source)), expected)


def index_at(path: str) -> Path:
    return Path(path) / "c/0/0/0"


@pytest.mark.parametrize("kind", ["v3 shards", "v3 shards raw"])
def test_a_damaged_index_is_noticed(kind: str, tmp_path: Path) -> None:
    """Two chunks of as many bytes, told the other way round: only the checksum can tell."""
    array = sample_array(SHAPE)
    path = write(tmp_path / "a", array, **PLAIN[kind])
    source = open_zarr(path)
    shard = bytearray(index_at(path).read_bytes())
    first, second = len(shard) - 4 - 64, len(shard) - 4 - 48
    swapped = shard[second : second + 16] + shard[first : first + 16]
    shard[first : second + 16] = swapped
    index_at(path).write_bytes(shard)
    with pytest.raises(DamagedChunkError) as caught:
        View.of(source).take([0])
    assert set(caught.value.rows) <= set(range(8))
    assert_array_equal(View.of(source).take([9, 22]), array[[9, 22]])


def test_the_index_of_a_shard_that_was_written_again_is_read_again(tmp_path: Path) -> None:
    array = sample_array(SHAPE)
    path = write(tmp_path / "a", array, **PLAIN["v3 shards"])
    here = FolderChunks.of(open_zarr(path).reader.stored)
    assert here is not None
    box, out = (slice(0, 4), slice(0, 3), slice(0, 9)), np.empty(CHUNKS, "f4")
    assert here.read([box], [out]) == []
    assert_array_equal(out, array[box])
    noise = np.random.default_rng(0).normal(size=SHAPE).astype("f4")  # of another length, stored
    other = write(tmp_path / "b", noise, **PLAIN["v3 shards"])
    os.utime(index_at(other), ns=(0, 0))  # no newer than the array was when it was opened
    os.replace(index_at(other), index_at(path))
    assert here.read([box], [out]) == []
    assert_array_equal(out, noise[box])


@pytest.mark.usefixtures("no_tensorstore")
def test_indices_are_read_once_and_within_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from oocdata.sources.zarr import folder_chunks

    array = sample_array(SHAPE)
    path = write(tmp_path / "a", array, **PLAIN["v3 shards"])
    read: list[int] = []
    real = FolderChunks._read_index

    def counting(self: FolderChunks, *arguments: Any) -> Any:
        read.append(1)
        return real(self, *arguments)

    monkeypatch.setattr(FolderChunks, "_read_index", counting)
    for _ in range(3):
        assert_array_equal(np.asarray(View.of(open_zarr(path))), array)
    shards = 3 * 2
    assert len(read) == shards
    monkeypatch.setattr(folder_chunks, "_INDEX_CACHE_BYTES", 1)  # room for one
    here = FolderChunks.of(open_zarr(path).reader.stored)
    assert here is not None
    for _ in range(2):
        for row in range(0, 23, 4):
            box = (slice(row, min(row + 4, 23)), slice(0, 3), slice(0, 9))
            out = np.empty(array[box].shape, "f4")
            assert here.read([box], [out]) == []
            assert_array_equal(out, array[box])
    assert len(read) == shards + 2 * 3


def test_metadata_that_say_too_little_are_left_to_tensorstore(tmp_path: Path) -> None:
    source = open_zarr(write(tmp_path / "a", sample_array(SHAPE)))
    node = json.loads((tmp_path / "a/zarr.json").read_text())
    for change in ({"codecs": []}, {"codecs": ["bytes"]}, {"codecs": None}, {}):
        (tmp_path / "a/zarr.json").write_text(json.dumps({**node, **change}) if change else "{}")
        assert FolderChunks.of(source.reader.stored) is None
