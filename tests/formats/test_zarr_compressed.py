"""Large chunks of Zarr folders, each decoded into its place."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar

import numcodecs
import numpy as np
import pytest
import zarr
from boxes import check_boxes
from numpy.testing import assert_array_equal
from numpy.typing import NDArray
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, ZstdCodec

from oocdata.datasets.view import View
from oocdata.engines.chunked import Chunked
from oocdata.engines.source import Source
from oocdata.errors import (
    DamagedChunkError,
    MissingChunkError,
    MissingChunkWarning,
    SourceError,
)
from oocdata.formats.zarr import compressed, open_zarr
from oocdata.formats.zarr.compressed import CompressedReader
from oocdata.memory import DEFAULT_MEMORY, scratch_share, set_memory
from oocdata.testing import SourceConformance, sample_array

V2 = {"zarr_format": 2}


def write(path: Path, array: NDArray[Any], **options: Any) -> zarr.Array[Any]:
    options.setdefault("chunks", tuple(max(1, (n + 1) // 2) for n in array.shape))
    stored = zarr.create_array(
        path, shape=array.shape, dtype=array.dtype, config={"write_empty_chunks": True}, **options
    )
    stored[...] = array
    return stored


def reader_of(source: Source) -> Any:
    assert isinstance(source, Chunked)
    return source.reader


@pytest.fixture
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count every chunk as large."""
    monkeypatch.setattr(compressed, "_LARGE", 1)


@pytest.mark.usefixtures("any_size")
class TestConformance(SourceConformance):
    dtypes: ClassVar[Any] = ("<f4", ">i2")

    def make(self, folder: Path, array: NDArray[Any]) -> Source:
        if not (folder / "a.zarr").exists():
            write(folder / "a.zarr", array, **V2, compressors=numcodecs.Blosc())
        source = open_zarr(str(folder / "a.zarr"))
        assert type(reader_of(source)) is CompressedReader
        return source


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize(
    ("options", "here"),
    [
        ({**V2, "compressors": numcodecs.Blosc("zstd", 5, numcodecs.Blosc.BITSHUFFLE)}, True),
        ({**V2, "compressors": numcodecs.Zlib(3)}, True),
        ({**V2, "compressors": numcodecs.GZip(3)}, True),
        ({**V2, "compressors": numcodecs.Zstd(3), "chunks": (100, 4, 4, 4)}, True),
        ({"compressors": ZstdCodec(level=1, checksum=True), "chunks": (1, 3, 5, 4)}, True),
        ({"compressors": GzipCodec(level=1)}, True),
        ({"compressors": BloscCodec(), "serializer": BytesCodec(endian="big")}, True),
        ({**V2, "order": "F", "compressors": numcodecs.Blosc()}, False),
        ({**V2, "compressors": numcodecs.BZ2()}, False),
        ({**V2, "compressors": None}, False),
        ({"compressors": [ZstdCodec(), Crc32cCodec()]}, False),
        ({"shards": (24, 4, 6, 4), "compressors": ZstdCodec()}, False),
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
        "plain",
        "checksum",
        "shards",
    ],
)
def test_what_is_decoded_here(tmp_path: Path, options: dict[str, Any], here: bool) -> None:
    array = sample_array((23, 3, 5, 4))
    write(tmp_path / "a.zarr", array, **options)
    source = open_zarr(str(tmp_path / "a.zarr"))
    assert (type(reader_of(source)) is CompressedReader) == here
    check_boxes(source, array)
    assert_array_equal(View.of(pickle.loads(pickle.dumps(source))).take([7]), array[[7]])


@pytest.mark.parametrize(("width", "here"), [(128, True), (127, False)])
def test_small_chunks_are_for_the_library(tmp_path: Path, width: int, here: bool) -> None:
    write(tmp_path / "a.zarr", np.zeros((2, 1024, width), "f4"), chunks=(1, 1024, width))
    source = open_zarr(str(tmp_path / "a.zarr"))
    assert (type(reader_of(source)) is CompressedReader) == here


def test_a_large_array_in_an_archive_is_for_the_library(tmp_path: Path) -> None:
    with zarr.storage.ZipStore(tmp_path / "a.zip", mode="w") as store:
        write(store, np.zeros((2, 1024, 256), "f4"), chunks=(1, 1024, 256))  # type: ignore[arg-type]
    assert type(reader_of(open_zarr(str(tmp_path / "a.zip")))) is not CompressedReader


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize("codec", [numcodecs.Blosc(), numcodecs.Zlib(), numcodecs.Zstd()], ids=str)
@pytest.mark.parametrize("harm", ["cut", "changed"])
def test_damaged_chunks(tmp_path: Path, codec: Any, harm: str) -> None:
    write(tmp_path / "a.zarr", sample_array((8, 400)), **V2, chunks=(2, 400), compressors=codec)
    path = tmp_path / "a.zarr/2.0"
    stored = path.read_bytes()
    path.write_bytes(stored[: len(stored) // 2] if harm == "cut" else b"x" * len(stored))
    view = View.of(open_zarr(str(tmp_path / "a.zarr")))
    view.take([0, 3, 6])
    with pytest.raises(DamagedChunkError, match="every chunk must decode") as caught:
        view.take([1, 4])
    assert list(caught.value.rows) == [4, 5]


@pytest.mark.usefixtures("any_size")
def test_absent_chunks(tmp_path: Path) -> None:
    array = sample_array((8, 5))
    write(tmp_path / "a.zarr", array, chunks=(2, 5), fill_value=7)
    (tmp_path / "a.zarr/c/1/0").unlink()
    array[2:4] = 7
    path = str(tmp_path / "a.zarr")
    assert_array_equal(np.asarray(View.of(open_zarr(path, missing="fill"))), array)
    with pytest.warns(MissingChunkWarning):
        assert_array_equal(np.asarray(View.of(open_zarr(path))), array)
    with pytest.raises(MissingChunkError):
        open_zarr(path, missing="error")


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize(("data", "how"), [(b"other", "written anew"), (None, "was deleted")])
def test_a_chunk_that_changed_is_not_called_damaged(
    tmp_path: Path, data: bytes | None, how: str
) -> None:
    write(tmp_path / "a.zarr", sample_array((8, 5)), chunks=(2, 5))
    view = View.of(open_zarr(str(tmp_path / "a.zarr")))
    path = tmp_path / "a.zarr/c/1/0"
    if data is None:
        path.unlink()
    else:
        path.write_bytes(data)
    with pytest.raises(SourceError, match=how) as caught:
        view.take([3])
    assert list(caught.value.rows) == [2, 3]
    assert type(caught.value) is SourceError


@pytest.mark.usefixtures("any_size")
def test_a_chunk_that_cannot_be_read(tmp_path: Path) -> None:
    write(tmp_path / "a.zarr", sample_array((8, 5)), chunks=(2, 5))
    path = tmp_path / "a.zarr/c/1/0"
    path.unlink()
    path.mkdir()
    view = View.of(open_zarr(str(tmp_path / "a.zarr")))
    with pytest.raises(SourceError, match=r"must be readable.*directory") as caught:
        view.take([3])
    assert list(caught.value.rows) == [2, 3]


def test_a_chunk_takes_what_is_stored_of_it_beside_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several threads together stay within the share of memory for what is being decoded."""
    array = np.random.default_rng(0).integers(0, 1 << 32, (32, 512, 512), np.uint32)
    write(tmp_path / "a.zarr", array, **V2, chunks=(1, 512, 512), compressors=numcodecs.Blosc())
    source = open_zarr(str(tmp_path / "a.zarr"))
    view, slots, lock = View.of(source), source._slots, Lock()  # type: ignore[attr-defined]
    decode, now, most = compressed.decompress, [0], [0]

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

    monkeypatch.setattr(compressed, "decompress", counting)
    set_memory(12 << 20)
    try:
        with ThreadPoolExecutor(4) as threads:
            for rows in threads.map(lambda first: view.take(range(first, 32, 4)), range(4)):
                assert rows.nbytes == 8 << 20
        # There is room for one at a time; Blosc adds a header to what it can't make smaller.
        assert array[0].nbytes <= most[0] <= array[0].nbytes + 64 < scratch_share()
    finally:
        set_memory(DEFAULT_MEMORY)
