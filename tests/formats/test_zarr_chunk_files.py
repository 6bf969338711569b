"""Read rows of uncompressed Zarr arrays by their offsets in the files of chunks."""

from __future__ import annotations

import os
import pickle
import resource
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from boxes import check_boxes
from numpy.testing import assert_array_equal
from numpy.typing import NDArray
from zarr.codecs import BytesCodec, Crc32cCodec, TransposeCodec, ZstdCodec

from oocdata.box import Extent
from oocdata.datasets.view import View
from oocdata.engines import many_files, runs
from oocdata.engines.cache import cache
from oocdata.engines.chunked import Chunked
from oocdata.engines.files import FileVersion
from oocdata.engines.source import Source
from oocdata.errors import (
    DamagedChunkError,
    MissingChunkError,
    MissingChunkWarning,
    SourceError,
)
from oocdata.formats.opening import open_source
from oocdata.formats.zarr import chunk_files, objects
from oocdata.formats.zarr.chunk_files import ChunkFiles
from oocdata.testing import SourceConformance, sample_array

ARRAY = sample_array((20, 6, 5)) + 1

_KEPT = Chunked.kept


@pytest.fixture(autouse=True)
def small_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_files, "_LARGE", 1)
    monkeypatch.setattr(Chunked, "kept", lambda self, origins, _: np.zeros(len(origins), bool))


def write(where: Path, array: NDArray[Any] = ARRAY, **options: Any) -> None:
    """Write chunks of four rows, with the fill value 7."""
    options = {"chunks": (4, *array.shape[1:]), "compressors": None, "fill_value": 7, **options}
    stored = zarr.create_array(where, shape=array.shape, dtype=array.dtype, **options)
    stored = stored.with_config({"write_empty_chunks": True})
    stored[...] = array


def opened(path: Path, **options: Any) -> ChunkFiles:
    source = open_source(str(path), **options)
    assert isinstance(source, ChunkFiles)
    return source


def read(source: Source, rows: list[int]) -> NDArray[Any]:
    return View.of(source).take(np.array(rows))


class TestV3(SourceConformance):
    dtypes = ("<f4", "|b1", "<c16")

    def make(self, folder: Path, array: NDArray[Any]) -> Source:
        write(folder / "a", array)
        return opened(folder / "a")


@pytest.mark.parametrize("dtype", ["<f4", ">f4", ">i2"])
def test_version_2(tmp_path: Path, dtype: str) -> None:
    array = sample_array((23, 3, 5, 4), dtype)
    write(tmp_path / "a", array, zarr_format=2)
    check_boxes(opened(tmp_path / "a"), array)


def test_big_endian_by_its_codec(tmp_path: Path) -> None:
    write(tmp_path / "a", serializer=BytesCodec(endian="big"))
    check_boxes(opened(tmp_path / "a"), ARRAY)


@pytest.mark.parametrize(
    "options",
    [
        {"compressors": [ZstdCodec()]},
        {"compressors": [Crc32cCodec()]},
        {"chunks": (4, 3, 5)},  # several axes are cut
        {"chunks": (20, 6, 1)},  # what lies at one place of the axis is no run of bytes
        {"shards": (8, 6, 5)},
        {"zarr_format": 2, "order": "F", "chunks": (20, 6, 2)},  # the last axis is the slowest
        {"filters": [TransposeCodec(order=(1, 0, 2))], "chunks": (20, 4, 5)},
    ],
    ids=str,
)
def test_all_else_is_read_by_whole_chunks(tmp_path: Path, options: dict[str, Any]) -> None:
    write(tmp_path / "a", **options)
    source = open_source(str(tmp_path / "a"))
    assert isinstance(source, Chunked)
    assert_array_equal(np.asarray(View.of(source)), ARRAY)


def test_a_small_array_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Chunked, "kept", _KEPT)
    write(tmp_path / "a")
    source = opened(tmp_path / "a")
    _, bytes_of = count_bytes(monkeypatch)
    assert source.storage().chunks is None  # the order does not depend on the memory
    assert_array_equal(read(source, [19, 3, 3]), ARRAY[[19, 3, 3]])
    assert not bytes_of
    del source
    with monkeypatch.context() as patched:
        patched.setattr(cache, "budget", lambda: 1200)  # of two of five chunks
        write(tmp_path / "b")
        assert_array_equal(read(opened(tmp_path / "b"), [19, 3, 12]), ARRAY[[19, 3, 12]])
    assert bytes_of == [240]


def test_small_rows_are_read_by_whole_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a")
    monkeypatch.setattr(chunk_files, "_LARGE", 121)
    assert isinstance(open_source(str(tmp_path / "a")), Chunked)
    monkeypatch.setattr(chunk_files, "_LARGE", 120)
    opened(tmp_path / "a")


def test_few_files_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a")
    monkeypatch.setattr(chunk_files, "_MOST_FILES", 2)
    source = opened(tmp_path / "a")
    rows = np.random.default_rng(0).integers(0, 20, 50).tolist()
    assert_array_equal(read(source, rows), ARRAY[rows])
    assert len(source._files) <= 2


def test_a_file_is_compared_once_a_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows in any order, some of them neighbours."""
    write(tmp_path / "a")
    source = opened(tmp_path / "a")
    asked: list[str] = []
    matches = FileVersion.matches
    monkeypatch.setattr(
        FileVersion,
        "matches",
        lambda version, now: (asked.append(version.path), matches(version, now))[1],
    )
    for rows in ([0, 18, 2, 9, 16, 1, 11, 3], [17, 18, 0, 10, 2, 19, 8]):
        read(source, rows)
        asked.clear()
        assert_array_equal(read(source, rows), ARRAY[rows])
        chunks = sorted(path for path in asked if not path.endswith("zarr.json"))
        assert chunks == [str(tmp_path / "a" / "c" / str(n) / "0/0") for n in (0, 2, 4)]


def test_several_axes_in_chunks_of_one(tmp_path: Path) -> None:
    array = sample_array((3, 7, 4, 5)) + 1
    write(tmp_path / "a", array, chunks=(1, 4, 4, 5))
    source = opened(tmp_path / "a")
    assert_array_equal(np.asarray(View.of(source, (0, 1))), array.reshape(21, 4, 5))
    out = np.empty((2, 2, 5, 1, 3), "f4")
    source.read(np.array([[1, 2, 3, 1], [0, 1, 0, 0]]), Extent.of((2, 5, 1, 3)), out)
    assert_array_equal(out, [array[1:3, 2:7, 3:4, 1:4], array[0:2, 1:6, :1, :3]])


def count_bytes(monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], list[int]]:
    """Return lists that record the joined runs and the bytes of each call that reads files."""
    runs_of: list[int] = []
    bytes_of: list[int] = []
    real = many_files.read_runs

    def counted(files: Any, offsets: Any, addresses: Any, lengths: Any, target: Any) -> None:
        nbytes = np.broadcast_to(lengths, len(offsets))
        runs_of.append(len(runs.join(offsets, addresses, nbytes, files)[0]))
        bytes_of.append(int(nbytes.sum()))
        real(files, offsets, addresses, lengths, target)

    monkeypatch.setattr(many_files, "read_runs", counted)
    return runs_of, bytes_of


def test_chunks_that_are_absent_are_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a")
    for number in (1, 3):
        (tmp_path / f"a/c/{number}/0/0").unlink()
    with pytest.warns(MissingChunkWarning, match="2 of 5 stored objects") as told:
        source = opened(tmp_path / "a")
    _, bytes_of = count_bytes(monkeypatch)
    expected = ARRAY.copy()
    expected[4:8] = expected[12:16] = 7
    assert_array_equal(np.asarray(View.of(source)), expected)
    assert sum(bytes_of) == 12 * 120
    assert_array_equal(read(source, [7, 3, 12, 18]), expected[[7, 3, 12, 18]])
    assert_array_equal(read(source, [7, 12]), expected[[7, 12]])
    assert sum(bytes_of) == 14 * 120
    assert len(told) == 1
    shutil.copy(tmp_path / "a/c/0/0/0", tmp_path / "a/c/1/0/0")
    with pytest.raises(SourceError, match=r"c/1/0/0.*written anew") as caught:
        read(source, [0, 7])
    assert caught.value.rows == (4, 5, 6, 7)


@pytest.mark.parametrize("dtype", [">f8", "|b1", "<i2"])
def test_fill_values_in_any_dtype(tmp_path: Path, dtype: str) -> None:
    array = zarr.create_array(
        tmp_path / "a", shape=(4, 3), chunks=(1, 3), dtype=dtype, fill_value=1, zarr_format=2,
        compressors=None,
    )  # fmt: skip
    array[2] = 0
    array.with_config({"write_empty_chunks": True})[3] = 1
    assert_array_equal(np.asarray(View.of(opened(tmp_path / "a", missing="fill"))), array[:])


def test_chunks_that_were_not_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of very many objects none is looked up before it is read."""
    monkeypatch.setattr(objects, "_MOST_SURVEYED", 4)
    write(tmp_path / "a")
    (tmp_path / "a/c/1/0/0").unlink()
    source = opened(tmp_path / "a")
    with pytest.warns(MissingChunkWarning, match="some chunks") as told:
        assert (read(source, [0, 5, 6]) == [ARRAY[0], ARRAY[0] * 0 + 7, ARRAY[0] * 0 + 7]).all()
    assert len(told) == 1
    with pytest.raises(MissingChunkError, match="must be stored") as caught:
        read(opened(tmp_path / "a", missing="error"), [0, 5])
    assert caught.value.rows == (4, 5, 6, 7)


def test_storage_is_that_of_one_array(tmp_path: Path) -> None:
    write(tmp_path / "a", dimension_names=("t", "y", "x"))
    storage = opened(tmp_path / "a", missing="error").storage()
    assert (storage.format, storage.path, storage.chunks) == ("Zarr v3", str(tmp_path / "a"), None)
    assert (storage.parts, storage.layout) == ((0,), "chunks of (4, 6, 5)")
    assert storage.dimensions == ("t", "y", "x")
    assert storage.opened == {"target": str(tmp_path / "a"), "key": None, "missing": "error"}
    assert storage.stored_bytes == ARRAY.nbytes


@pytest.mark.parametrize("ring", [True, False], ids=["in one call", "one by one"])
def test_rows_of_many_files_are_read_alone_and_in_few_calls(
    tmp_path: Path, ring: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = sample_array((400, 64), "f8")
    write(tmp_path / "a", array)
    source = opened(tmp_path / "a")
    monkeypatch.setattr(runs, "_MANY", 1 if ring else 10**9)
    runs_of, bytes_of = count_bytes(monkeypatch)
    rows = np.arange(0, 400, 4)[::-1]
    assert_array_equal(read(source, rows.tolist()), array[rows])
    assert (runs_of, bytes_of) == ([64, 36], [64 * 512, 36 * 512])
    # Neighbours in a file are joined, and only there.
    assert_array_equal(read(source, list(range(98, 200))), array[98:200])
    assert (runs_of[2:], bytes_of[2:]) == ([26], [102 * 512])


def test_few_descriptors_are_open_at_a_time(tmp_path: Path) -> None:
    array = sample_array((400, 64), "f8")
    write(tmp_path / "a", array, chunks=(1, 64))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        rows = np.random.default_rng(0).permutation(400)
        assert_array_equal(read(opened(tmp_path / "a"), rows.tolist()), array[rows])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


CHANGES: dict[str, Any] = {
    "shorter": lambda file: os.truncate(file, 300),
    "longer": lambda file: os.truncate(file, 500),
    "in place": lambda file: file.write_bytes(file.read_bytes()[::-1]),
    "older": lambda file: (file.write_bytes(file.read_bytes()[::-1]), os.utime(file, (0, 0))),
    "replaced": lambda file: shutil.copy(file, f"{file}~") and os.replace(f"{file}~", file),
    "deleted": os.unlink,
    "a folder": lambda file: (file.unlink(), file.mkdir()),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("rows", [[5], [4, 19], [19, 5, 6]], ids=str)
def test_a_chunk_that_is_no_longer_what_it_was(
    tmp_path: Path, change: str, first: bool, rows: list[int]
) -> None:
    write(tmp_path / "a")
    source = opened(tmp_path / "a")
    if first:
        read(source, list(range(20)))
    CHANGES[change](tmp_path / "a/c/1/0/0")
    if first and change in ("replaced", "deleted", "a folder"):
        assert_array_equal(read(source, rows), ARRAY[rows])  # of the file that is still open
    else:
        with pytest.raises(SourceError) as got:
            read(source, rows)
        assert "c/1/0/0" in str(got.value)
        assert got.value.rows == (4, 5, 6, 7)
    assert_array_equal(read(source, [0, 19]), ARRAY[[0, 19]])


@pytest.mark.parametrize("nbytes", [0, 476, 484])
def test_a_chunk_of_another_size(tmp_path: Path, nbytes: int) -> None:
    write(tmp_path / "a")
    chunk = tmp_path / "a/c/1/0/0"
    chunk.write_bytes((chunk.read_bytes() + bytes(4))[:nbytes])
    with pytest.raises(DamagedChunkError, match=r"must hold 480 bytes; 'c/1/0/0'") as got:
        read(opened(tmp_path / "a"), [5])
    assert got.value.rows == (4, 5, 6, 7)


def test_a_chunk_written_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a")
    source = opened(tmp_path / "a")
    real = many_files.read_runs

    def while_another_writes(*arguments: Any) -> None:
        real(*arguments)
        os.utime(tmp_path / "a/c/1/0/0", ns=(0, 0))

    monkeypatch.setattr(many_files, "read_runs", while_another_writes)
    with pytest.raises(SourceError, match="has changed"):
        read(source, [5, 19])


def test_a_source_travels_without_its_open_files(tmp_path: Path) -> None:
    write(tmp_path / "a")
    source = opened(tmp_path / "a")
    read(source, [3, 9])
    copy = pickle.loads(pickle.dumps(source))
    assert_array_equal(read(copy, [3, 9, 9]), ARRAY[[3, 9, 9]])
    assert copy.storage() == source.storage()


def test_parts_of_rows_are_read_alone(tmp_path: Path) -> None:
    write(tmp_path / "a")
    source = opened(tmp_path / "a")
    out = np.empty((2, 6, 2, 3), "f4")
    source.read(np.array([[2, 1, 1], [9, 0, 2]]), Extent((6, 2, 3), (1, 3, 1)), out)
    expected = [ARRAY[2:8, 1:5:3, 1:4], ARRAY[9:15, 0:4:3, 2:5]]
    assert_array_equal(out, expected)
