"""Rows of uncompressed Zarr chunks by their offsets: the same as by whole chunks, faults too."""

from __future__ import annotations

import os
import pickle
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import tensorstore
import zarr
from conftest import close_handles, open_files
from google_crc32c import value
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from numpy.typing import NDArray
from zarr.codecs import BytesCodec, Crc32cCodec, ShardingCodec, TransposeCodec

from oocdata.datasets.view import View
from oocdata.errors import DamagedChunkError, MissingChunkError, MissingFileError, SourceError
from oocdata.sources import requests
from oocdata.sources.chunks import Chunks
from oocdata.sources.handles import handle
from oocdata.sources.slots import DEFAULT_BUDGET, set_chunk_budget
from oocdata.sources.source import Source
from oocdata.sources.zarr import chunk_files, open_zarr, survey
from oocdata.sources.zarr.chunk_files import ChunkFiles
from oocdata.testing import SourceConformance, sample_array

ARRAY = sample_array((20, 6, 5)) + 1
TURNED = [TransposeCodec(order=(0, 2, 1))]
CHECKED = [BytesCodec(), Crc32cCodec()]


@pytest.fixture(autouse=True)
def any_size(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Read rows of any size so, of arrays that would fit the budget."""
    monkeypatch.setattr(chunk_files, "_LARGE", 1)
    set_chunk_budget(1)
    yield
    set_chunk_budget(DEFAULT_BUDGET)


def write(
    where: Any, array: NDArray[Any] = ARRAY, axis: int = 0, **options: Any
) -> zarr.Array[Any]:
    """Write uncompressed chunks of four rows."""
    chunks = tuple(4 if place == axis else max(1, n) for place, n in enumerate(array.shape))
    options = {"chunks": chunks, "compressors": None, "fill_value": 7, **options}
    config = {"write_empty_chunks": True}
    made = zarr.create_array(where, shape=array.shape, dtype=array.dtype, config=config, **options)
    made[...] = array
    return made


def opened(path: Path, **options: Any) -> ChunkFiles:
    source = open_zarr(str(path), **options)
    assert isinstance(source, ChunkFiles)
    return source


def read(source: Source, rows: Any = range(20)) -> NDArray[Any]:
    return SourceConformance().read(source, np.asarray(rows, np.int64))


class TestV3(SourceConformance):
    options: ClassVar[dict[str, Any]] = {}

    def make(self, folder: Path, array: NDArray[Any], axis: int = 0) -> Source:
        write(folder / "a.zarr", array, axis, **self.options)
        return opened(folder / "a.zarr", axis=axis)


class TestV3BigEndian(TestV3):
    dtypes = ("<f4", "<c8", "|u1")
    options: ClassVar[dict[str, Any]] = {"serializer": BytesCodec(endian="big")}


class TestV3Transposed(TestV3):
    """No order that is its own inverse: that would hide the wrong direction."""

    dtypes = ("<f4",)

    def make(self, folder: Path, array: NDArray[Any], axis: int = 0) -> Source:
        order = (*range(1, array.ndim), 0)
        filters = [TransposeCodec(order=order)]
        write(folder / "a.zarr", array, axis, filters=filters)
        return opened(folder / "a.zarr", axis=axis)


class TestV2(TestV3):
    dtypes = ("<f4", ">f4", ">i2", "|b1", ">c16")
    options: ClassVar[dict[str, Any]] = {"zarr_format": 2}


class TestV2Fortran(TestV3):
    dtypes = ("<f4", ">i2")
    options: ClassVar[dict[str, Any]] = {"zarr_format": 2, "order": "F"}


class TestV3Shards(TestV3):
    """Shards of two chunks of two rows, that reach over the end of the array on every axis."""

    dtypes = ("<f4", "<c8", "|u1")
    shard: ClassVar[dict[str, Any]] = {}

    def make(self, folder: Path, array: NDArray[Any], axis: int = 0) -> Source:
        chunks = tuple(2 if place == axis else n for place, n in enumerate(array.shape))
        inner = ShardingCodec(chunk_shape=chunks, **self.shard)
        whole = tuple(2 * n for n in chunks)
        write(folder / "a.zarr", array, chunks=whole, serializer=inner)
        return opened(folder / "a.zarr", axis=axis)


class TestV3ShardIndexFirst(TestV3Shards):
    dtypes = ("<f4",)
    shard: ClassVar[dict[str, Any]] = {
        "index_location": "start",
        "index_codecs": [BytesCodec(endian="big")],
        "codecs": [BytesCodec(endian="big")],
    }


class TestV3TransposedInShards(TestV3Shards):
    dtypes = ("<f4",)

    def make(self, folder: Path, array: NDArray[Any], axis: int = 0) -> Source:
        codecs = [TransposeCodec(order=(*range(1, array.ndim), 0)), BytesCodec()]
        self.shard = {"codecs": codecs}  # type: ignore[misc]
        return super().make(folder, array, axis)


class TestTensorStoreWrites(SourceConformance):
    """Written by another implementation, chunks longer than the elements."""

    dtypes = ("<f4", "|u1")

    def make(self, folder: Path, array: NDArray[Any], axis: int = 0) -> Source:
        chunk = [5 if place == axis else n + 2 for place, n in enumerate(array.shape)]
        endian = {} if array.dtype.itemsize == 1 else {"configuration": {"endian": "little"}}
        store = tensorstore.open(
            {
                "driver": "zarr3",
                "kvstore": {"driver": "file", "path": f"{folder}/a.zarr/"},
                "metadata": {"codecs": [{"name": "bytes", **endian}]},
                "store_data_equal_to_fill_value": True,
            },
            create=True,
            dtype=array.dtype.name,
            shape=array.shape,
            chunk_layout=tensorstore.ChunkLayout(chunk_shape=chunk),
        ).result()
        store.write(array).result()
        return opened(folder / "a.zarr", axis=axis)


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_array_reads_as_numpy(tmp_path: Path, data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)))
    axis = data.draw(st.integers(0, len(shape) - 1))
    chunks = [n + data.draw(st.integers(0, 2)) for n in shape]
    chunks[axis] = data.draw(st.integers(1, shape[axis] + 2))
    version = data.draw(st.sampled_from((2, 3)))
    dtype = data.draw(st.sampled_from(("<f4", ">i8", "|b1", "<u2")))
    options: dict[str, Any] = {"chunks": tuple(chunks), "zarr_format": version}
    if version == 2:
        options["order"] = data.draw(st.sampled_from("CF"))
    else:
        order = data.draw(st.permutations(range(len(shape))))
        options["filters"] = [TransposeCodec(order=order)] * data.draw(st.integers(0, 2))
        options["serializer"] = BytesCodec(endian="big" if dtype[0] == ">" else "little")
        dtype = np.dtype(dtype).newbyteorder("<").str
    array = sample_array(shape, dtype)
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    write(folder / "a", array, **options)
    element = [n for place, n in enumerate(shape) if place != axis]
    cut = tuple(data.draw(st.one_of(st.slices(n), st.integers(-n, n - 1))) for n in element)
    source = open_zarr(str(folder / "a"), axis=axis)
    assert isinstance(source, ChunkFiles) or array.nbytes == 1  # what the smallest budget holds
    view = View.of(source)[(slice(None), *cut)]
    view = view.astype("f8") if data.draw(st.booleans()) else view
    expected = np.moveaxis(array, axis, 0)[(slice(None), *cut)]
    rows = np.array(data.draw(st.lists(st.integers(0, shape[axis] - 1), max_size=30)), np.int64)
    assert_array_equal(view.take(rows), expected[rows])


@pytest.mark.parametrize(
    "options",
    [
        {"chunks": (4, 3, 5)},
        {"compressors": "auto"},
        {"compressors": [Crc32cCodec()]},
        {"shards": (8, 6, 5), "compressors": "auto"},
        {"shards": (8, 6, 10), "chunks": (4, 3, 5)},
        {
            "chunks": (8, 6, 6),
            "serializer": ShardingCodec(chunk_shape=(4, 6, 6)),
            "filters": TURNED,
        },
        {"chunks": (8, 6, 5), "serializer": ShardingCodec(chunk_shape=(4, 6, 5), codecs=CHECKED)},
        {"compressors": "auto", "zarr_format": 2},
        {"chunks": (4, 3, 5), "zarr_format": 2},
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:Combining a `sharding_indexed` codec")
def test_what_is_read_as_whole_chunks(tmp_path: Path, options: dict[str, Any]) -> None:
    write(tmp_path / "a", **options)
    source = open_zarr(str(tmp_path / "a"))
    assert isinstance(source, Chunks)
    assert_array_equal(read(source), ARRAY)


def test_a_byte_order_that_is_not_said_is_not_guessed(tmp_path: Path) -> None:
    write(tmp_path / "a")
    file = tmp_path / "a/zarr.json"
    text = file.read_text()
    changed = text.replace('"configuration": {\n        "endian": "little"\n      }', '"x": 0')
    file.write_text(changed.replace(',\n      "x": 0', ""))
    assert "endian" not in file.read_text()
    assert isinstance(open_zarr(str(tmp_path / "a")), Chunks)


def test_arrays_that_fit_the_budget_and_small_rows_are_kept_as_whole_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a")
    set_chunk_budget(ARRAY.nbytes)
    assert isinstance(open_zarr(str(tmp_path / "a")), Chunks)
    set_chunk_budget(ARRAY.nbytes - 1)
    assert isinstance(open_zarr(str(tmp_path / "a")), ChunkFiles)
    monkeypatch.setattr(chunk_files, "_LARGE", 121)
    assert isinstance(open_zarr(str(tmp_path / "a")), Chunks)


def test_only_the_rows_asked_for_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    real = chunk_files.read_runs

    def spy(files: Any, offsets: Any, places: Any, lengths: Any, out: Any) -> None:
        asked.extend(zip(offsets.tolist(), lengths.tolist(), strict=True))
        real(files, offsets, places, lengths, out)

    monkeypatch.setattr(chunk_files, "read_runs", spy)
    write(tmp_path / "a")
    source = opened(tmp_path / "a")
    assert source.chunk_rows == 1
    assert_array_equal(read(source, [13, 2, 3, 4]), ARRAY[[13, 2, 3, 4]])
    assert asked == [(120, 120), (240, 240), (0, 120)]
    asked.clear()
    assert_array_equal(View.of(source)[:, 2].take([5, 10]), ARRAY[[5, 10], 2])
    assert asked == [(160, 20), (280, 20)]
    asked.clear()
    # Places that would follow on, were they in one file.
    assert_array_equal(read(source, [0, 5, 10, 15, 3, 4]), ARRAY[[0, 5, 10, 15, 3, 4]])
    assert len(asked) == 6


def test_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than may be open, in a call and altogether."""
    monkeypatch.setattr(chunk_files, "_FILES_AT_ONCE", 7)
    monkeypatch.setattr(chunk_files, "_MOST_OPEN", 12)
    array = sample_array((200, 3))
    write(tmp_path / "a", array, chunks=(1, 3))
    source = opened(tmp_path / "a")
    rng = np.random.default_rng(0)
    for _ in range(5):
        rows = rng.integers(0, 200, 300)
        assert_array_equal(read(source, rows), array[rows])
        assert len(open_files(tmp_path)) <= 12


def test_a_system_that_reads_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "read_many", lambda *_: None)
    write(tmp_path / "a")
    rows = np.random.default_rng(0).permutation(20)
    assert_array_equal(read(opened(tmp_path / "a"), rows), ARRAY[rows])


def test_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_files, "_FILES_AT_ONCE", 5)
    monkeypatch.setattr(chunk_files, "_MOST_OPEN", 6)
    array = sample_array((100, 30))
    write(tmp_path / "a", array)
    source = opened(tmp_path / "a")

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(30):
            rows = rng.integers(0, 100, 40)
            assert_array_equal(read(source, rows), array[rows])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


def test_a_description_takes_nothing_along(tmp_path: Path) -> None:
    write(tmp_path / "a")
    source = opened(tmp_path / "a")
    read(source)
    copy = pickle.loads(pickle.dumps(source))
    assert copy == source
    assert hash(copy) == hash(source)
    assert_array_equal(read(copy), ARRAY)


def test_layout(tmp_path: Path) -> None:
    write(tmp_path / "a")
    layout = opened(tmp_path / "a").layout()
    assert layout.codec == "none"
    assert layout.stored_bytes == ARRAY.nbytes
    assert "offset" in layout.reading


def test_an_array_in_a_group(tmp_path: Path) -> None:
    group = zarr.create_group(tmp_path / "g")
    write(group.store, name="b/c")
    assert_array_equal(read(opened(tmp_path / "g", key="b/c")), ARRAY)


# What is missing or wrong -----------------------------------------------------------------------

VERSIONS = pytest.mark.parametrize(
    ("version", "chunk"), [(2, "1.0.0"), (3, "c/1/0/0")], ids=["v2", "v3"]
)


@VERSIONS
def test_a_missing_chunk(tmp_path: Path, version: Any, chunk: str) -> None:
    write(tmp_path / "a", zarr_format=version)
    (tmp_path / "a" / chunk).unlink()
    with pytest.raises(MissingChunkError) as got:
        open_zarr(str(tmp_path / "a"))
    assert got.value.rows == (4, 5, 6, 7)
    expected = ARRAY.copy()
    expected[4:8] = 7
    filled = open_zarr(str(tmp_path / "a"), missing="fill")
    assert isinstance(filled, Chunks)  # an array with holes has too many of them to ask twice
    assert_array_equal(read(filled), expected)


@VERSIONS
def test_a_chunk_lost_while_open(tmp_path: Path, version: Any, chunk: str) -> None:
    write(tmp_path / "a", zarr_format=version)
    source, filling = opened(tmp_path / "a"), opened(tmp_path / "a", missing="fill")
    (tmp_path / "a" / chunk).unlink()
    assert_array_equal(read(source, [19, 0]), ARRAY[[19, 0]])
    with pytest.raises(MissingChunkError) as got:
        read(source, [19, 5, 0])
    assert got.value.rows == (4, 5, 6, 7)
    assert got.value.path == str(tmp_path / "a")
    expected = ARRAY.copy()
    expected[4:8] = 7
    assert_array_equal(read(filling), expected)


def shards(where: Path) -> None:
    """Write shards of eight rows in chunks of four."""
    write(where, shards=(8, 6, 5))


def test_a_hole_in_a_shard(tmp_path: Path) -> None:
    shards(tmp_path / "a")
    source, filling = opened(tmp_path / "a"), opened(tmp_path / "a", missing="fill")
    file = tmp_path / "a/c/0/0/0"
    content = bytearray(file.read_bytes())
    content[-4 - 16 : -4] = b"\xff" * 16  # the second of two chunks
    content[-4:] = value(bytes(content[-36:-4])).to_bytes(4, "little")
    file.write_bytes(content)
    os.utime(file, ns=(0, 0))  # no newer than the array was when it was opened
    assert_array_equal(read(source, [3, 19]), ARRAY[[3, 19]])
    with pytest.raises(MissingChunkError) as got:
        read(source, [19, 5])
    assert got.value.rows == (4, 5, 6, 7)
    expected = ARRAY.copy()
    expected[4:8] = 7
    assert_array_equal(read(filling), expected)
    with pytest.raises(MissingChunkError):
        open_zarr(str(tmp_path / "a"))


@pytest.mark.parametrize("place", [-1, -4, -5, -30, -36])
def test_an_index_that_is_damaged(tmp_path: Path, place: int) -> None:
    shards(tmp_path / "a")
    source = opened(tmp_path / "a")
    file = tmp_path / "a/c/0/0/0"
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)
    with pytest.raises(DamagedChunkError):
        read(source, [3])
    assert_array_equal(read(source, [8, 19]), ARRAY[[8, 19]])


@pytest.mark.parametrize("kept", [0, 5, 36, 900])
@pytest.mark.parametrize("first", [True, False])
def test_a_shard_cut_short(tmp_path: Path, kept: int, first: bool) -> None:
    shards(tmp_path / "a")
    source = opened(tmp_path / "a")
    if not first:
        read(source)
    os.truncate(tmp_path / "a/c/0/0/0", kept)
    os.utime(tmp_path / "a/c/0/0/0", ns=(0, 0))  # clocks may be coarser than this test is fast
    with pytest.raises(DamagedChunkError):
        read(source, [3])
    assert_array_equal(read(source, [8, 19]), ARRAY[[8, 19]])


def test_a_shard_written_again_in_place(tmp_path: Path) -> None:
    """Its chunks may lie elsewhere in it."""
    shards(tmp_path / "a")
    source = opened(tmp_path / "a")
    read(source)
    file = tmp_path / "a/c/0/0/0"
    content = file.read_bytes()
    index = np.frombuffer(content[-36:-4], "<u8").copy()
    index[[0, 2]] = index[[2, 0]]
    moved = content[480:960] + content[:480] + index.tobytes()
    file.write_bytes(moved + value(index.tobytes()).to_bytes(4, "little"))
    os.utime(file, ns=(0, 0))
    assert_array_equal(read(source), ARRAY)


def test_many_objects_are_looked_for_when_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survey, "_MOST_OBJECTS", 4)
    write(tmp_path / "a")
    (tmp_path / "a/c/1/0/0").unlink()
    with pytest.raises(MissingChunkError) as got:
        read(opened(tmp_path / "a"))
    assert got.value.rows == (4, 5, 6, 7)
    assert isinstance(open_zarr(str(tmp_path / "a"), missing="fill"), Chunks)


@VERSIONS
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("change", [-9, 9])
def test_a_chunk_of_another_length(
    tmp_path: Path, version: Any, chunk: str, first: bool, change: int
) -> None:
    write(tmp_path / "a", zarr_format=version)
    source = opened(tmp_path / "a")
    if not first:
        read(source, [4])
        close_handles()
    content = (tmp_path / "a" / chunk).read_bytes()
    (tmp_path / "a" / chunk).write_bytes((content + bytes(9))[: len(content) + change])
    for rows in ([7], [4, 19], [19, 5, 6]):
        with pytest.raises(DamagedChunkError) as got:
            read(source, rows)
        assert got.value.rows == (4, 5, 6, 7)
        assert got.value.path == str(tmp_path / "a")
    assert_array_equal(read(source, [0, 19]), ARRAY[[0, 19]])


def test_a_chunk_cut_short_after_it_was_read(tmp_path: Path) -> None:
    write(tmp_path / "a")
    source = opened(tmp_path / "a")
    read(source)
    os.truncate(tmp_path / "a/c/1/0/0", 300)
    with pytest.raises(DamagedChunkError) as got:
        read(source, [*range(19, 0, -1), 7])
    assert got.value.rows == (4, 5, 6, 7)


def test_a_chunk_that_is_a_folder(tmp_path: Path) -> None:
    write(tmp_path / "a")
    source = opened(tmp_path / "a")
    (tmp_path / "a/c/1/0/0").unlink()
    (tmp_path / "a/c/1/0/0").mkdir()
    with pytest.raises(SourceError, match="rows 4, 5, 6, 7"):
        read(source, [5])


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_an_array_written_anew_or_deleted_while_it_is_read(
    tmp_path: Path, zarr_format: Any
) -> None:
    write(tmp_path / "a", zarr_format=zarr_format)
    source = opened(tmp_path / "a")
    read(source, [3])
    write(tmp_path / "a", ARRAY + 1, zarr_format=zarr_format, overwrite=True)
    os.utime(tmp_path / "a" / ("zarr.json" if zarr_format == 3 else ".zarray"), ns=(0, 0))
    with pytest.raises(SourceError, match=r"written anew\. Open it again"):
        read(source, [3])
    # The same paths, other files: nothing open is taken for them.
    assert_array_equal(read(opened(tmp_path / "a"), [3]), ARRAY[[3]] + 1)
    shutil.rmtree(tmp_path / "a")
    with pytest.raises(MissingFileError, match="deleted"):
        read(source, [3])


def test_an_array_written_anew_during_a_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a")
    source = opened(tmp_path / "a")
    real = chunk_files.read_runs

    def while_another_writes(*arguments: Any) -> None:
        real(*arguments)
        os.utime(tmp_path / "a/zarr.json", ns=(0, 0))

    monkeypatch.setattr(chunk_files, "read_runs", while_another_writes)
    with pytest.raises(SourceError, match="written anew"):
        read(source, [3])


@VERSIONS
@pytest.mark.parametrize("first", [True, False])
def test_a_chunk_written_again(tmp_path: Path, version: Any, chunk: str, first: bool) -> None:
    write(tmp_path / "a", zarr_format=version)
    source = opened(tmp_path / "a")
    if first:
        read(source)
    file = tmp_path / "a" / chunk
    later = file.stat().st_mtime_ns + 10**9
    file.write_bytes(file.read_bytes()[::-1])
    os.utime(file, ns=(later, later))
    with pytest.raises(SourceError, match=r"written anew\. Open it again\. .*rows 4, 5, 6, 7"):
        read(source, [0, 5])
    assert_array_equal(read(source, [0, 19]), ARRAY[[0, 19]])


def test_a_chunk_written_again_during_a_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a")
    source = opened(tmp_path / "a")
    file = tmp_path / "a/c/1/0/0"
    later = file.stat().st_mtime_ns + 10**9
    real = chunk_files.read_runs

    def while_another_writes(*arguments: Any) -> None:
        real(*arguments)
        os.utime(file, ns=(later, later))

    monkeypatch.setattr(chunk_files, "read_runs", while_another_writes)
    with pytest.raises(SourceError, match="written anew"):
        read(source, [5])


def test_no_more_files_may_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole chunks take no descriptor of ours."""
    write(tmp_path / "a")
    source = opened(tmp_path / "a")

    def refuse(*_: Any) -> Any:
        raise SourceError("the file must be readable; Too many open files.")

    monkeypatch.setattr(chunk_files, "Descriptor", refuse)
    assert_array_equal(read(source, [3, 9]), ARRAY[[3, 9]])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_reading_after_a_fork(tmp_path: Path) -> None:
    write(tmp_path / "a")
    source = opened(tmp_path / "a")
    read(source, [3])
    child = os.fork()
    if child == 0:
        os._exit(0 if (read(source) == ARRAY).all() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_files_are_closed_with_the_table(tmp_path: Path) -> None:
    write(tmp_path / "a")
    read(opened(tmp_path / "a"))
    assert len(open_files(tmp_path)) == 5
    assert handle(chunk_files._OpenFiles, chunk_files._OpenFiles)._open
    close_handles()
    assert not open_files(tmp_path)
