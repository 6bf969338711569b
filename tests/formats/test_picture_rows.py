"""Read pictures from rows of bytes in HDF5, Zarr and others: Pillow and h5py are the oracles."""

from __future__ import annotations

import io
import pickle
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import tensorflow as tf
import zarr
from numpy.testing import assert_array_equal
from numpy.typing import NDArray
from PIL import Image

import oocdata as ooc
from oocdata.describe import as_json, from_json
from oocdata.engines.cache import cache
from oocdata.errors import (
    ArgumentError,
    DamagedChunkError,
    EmptyError,
    MismatchedPartsError,
    SourceError,
    TruncatedFileError,
    UnknownFormatError,
    UnsupportedDtypeError,
)
from oocdata.formats.hdf5.file import hdf5_lock
from oocdata.formats.hdf5.varying import VaryingRows
from oocdata.formats.pictures import reader

AS_THEY_ARE = ooc.Pictures()
BYTES = h5py.vlen_dtype(np.uint8)


def drawn(number: int) -> NDArray[np.uint8]:
    return (np.indices((16, 24, 3)).sum(axis=0) * (number % 5 + 1) + number).astype(np.uint8)


def encoded(array: NDArray[np.uint8], kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.fromarray(array).save(file, kind)
    return file.getvalue()


EXPECTED = np.stack([drawn(number) for number in range(20)])
ROWS = [encoded(picture) for picture in EXPECTED]


def varying(rows: list[bytes]) -> NDArray[Any]:
    made = np.empty(len(rows), object)
    made[:] = [np.frombuffer(row, np.uint8) for row in rows]
    return made


def padded(rows: list[bytes], more: int = 0) -> NDArray[np.uint8]:
    made = np.zeros((len(rows), max(map(len, rows)) + more), np.uint8)
    for row, out in zip(rows, made, strict=True):
        out[: len(row)] = np.frombuffer(row, np.uint8)
    return made


def in_hdf5(**made: Any) -> Callable[[Path, list[bytes]], str]:
    def write(folder: Path, rows: list[bytes]) -> str:
        given = {name: value(rows) if callable(value) else value for name, value in made.items()}
        with h5py.File(folder / "a.h5", "w") as file:
            file.create_dataset("images", **given)
        return str(folder / "a.h5")

    return write


def in_npy(folder: Path, rows: list[bytes]) -> str:
    np.save(folder / "a.npy", padded(rows))
    return str(folder / "a.npy")


def in_zarr(folder: Path, rows: list[bytes]) -> str:
    zarr.create_array(folder / "a.zarr", data=padded(rows), chunks=(3, 1000))
    return str(folder / "a.zarr")


def in_tfrecord(folder: Path, rows: list[bytes]) -> str:
    with tf.io.TFRecordWriter(str(folder / "a.tfrecord")) as writer:
        for row in rows:
            writer.write(row)
    return str(folder / "a.tfrecord")


def text_of(rows: list[bytes]) -> NDArray[Any]:
    return np.array(rows, "S")


GZIP = {"compression": "gzip", "shuffle": True}
STORES: dict[str, Callable[[Path, list[bytes]], str]] = {
    "varying": in_hdf5(data=varying, dtype=BYTES),
    "varying, gzip": in_hdf5(data=varying, dtype=BYTES, chunks=(7,), **GZIP),
    "padded": in_hdf5(data=padded),
    "padded, gzip": in_hdf5(data=lambda rows: padded(rows, 9), chunks=(2, 50), **GZIP),
    "text of one length": in_hdf5(data=text_of),
    "npy": in_npy,
    "zarr": in_zarr,
    "records": in_tfrecord,
}


@pytest.mark.parametrize("store", STORES)
def test_each_row_is_a_picture(tmp_path: Path, store: str) -> None:
    path = STORES[store](tmp_path, ROWS)
    view = ooc.open(path, pictures=AS_THEY_ARE)
    assert view.shape == EXPECTED.shape
    assert view.dtype == np.uint8
    assert_array_equal(np.asarray(view), EXPECTED)
    chosen = [7, 0, 19, 7]
    assert_array_equal(view[:, 2:9, ::-1, 1].take(chosen), EXPECTED[chosen, 2:9, ::-1, 1])
    loader = view.batches(6, shuffle=True, seed=2)
    assert_array_equal(from_json(as_json(loader)).batch(1), loader.batch(1))
    assert_array_equal(pickle.loads(pickle.dumps(view))[3], EXPECTED[3])
    small = ooc.open(path, pictures=ooc.Pictures(size=(5, 6), channels=1))
    wanted = Image.fromarray(EXPECTED[4]).convert("L").resize((6, 5), Image.Resampling.BILINEAR)
    assert_array_equal(small[4], np.asarray(wanted))


@pytest.mark.parametrize("channels", [None, 3])
def test_jpegs_of_all_colours(tmp_path: Path, channels: int | None) -> None:
    image, rows = Image.fromarray(EXPECTED[1]), []
    for mode, options in [
        ("RGB", {}), ("RGB", {"progressive": True}), ("RGB", {"subsampling": 0}),
        ("CMYK", {}), ("L", {}),
    ]:  # fmt: skip
        file = io.BytesIO()
        image.convert(mode).save(file, "JPEG", **options)
        rows.append(file.getvalue())
    rows = rows if channels else rows[:-1]
    found = np.asarray(
        ooc.open(STORES["varying"](tmp_path, rows), pictures=ooc.Pictures(channels=channels))
    )
    for row, picture in zip(rows, found, strict=True):
        assert_array_equal(picture, np.asarray(Image.open(io.BytesIO(row)).convert("RGB")))


def test_a_jpeg_that_is_as_it_shall_be_needs_no_pillow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = ooc.open(
        STORES["padded"](tmp_path, [encoded(one, "JPEG") for one in EXPECTED]),
        pictures=AS_THEY_ARE,
    )
    decoded: list[int] = []
    monkeypatch.setattr(reader, "decode_converted", lambda *given: decoded.append(1))
    view.take(range(8))
    assert decoded == []


def test_workers_and_tensors(tmp_path: Path) -> None:
    loader = ooc.open(STORES["varying"](tmp_path, ROWS), pictures=AS_THEY_ARE).batches(
        6, shuffle=True, workers=1
    )
    for ours, theirs in zip(loader.epoch(0), loader.to_tf(), strict=True):
        assert_array_equal(ours, theirs)


def test_sample_axes(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("images", data=varying(ROWS).reshape(4, 5), dtype=BYTES)
    view = ooc.open(tmp_path / "a.h5", "images", axis=(0, 1), pictures=AS_THEY_ARE)
    assert_array_equal(np.asarray(view), EXPECTED)
    assert len(view.windows(2)) == 16


def test_episodes_that_are_padded_to_unlike_lengths(tmp_path: Path) -> None:
    for number, parts in enumerate([(0, 4, 9), (9, 15, 20)]):
        with h5py.File(tmp_path / f"episode_{number}.h5", "w") as file:
            for start, stop in pairwise(parts):
                file[f"demo_{start}/top"] = padded(ROWS[start:stop], start)
    view = ooc.open(tmp_path / "episode_*.h5", "demo_*/top", pictures=AS_THEY_ARE)
    assert_array_equal(np.asarray(view), EXPECTED)
    assert len(view.windows(2, episodes="parts")) == 16
    assert [key for _, key in view.storage.part_names] == [
        f"/demo_{start}/top" for start in (0, 4, 9, 15)
    ]
    loader = view.batches(3, shuffle=True)
    assert_array_equal(from_json(as_json(loader)).batch(2), loader.batch(2))


@pytest.mark.parametrize("store", ["varying", "varying, gzip"])
def test_only_the_rows_of_the_batch_are_read(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = ooc.open(STORES[store](tmp_path, ROWS), pictures=AS_THEY_ARE)
    calls: list[list[int]] = []
    original = VaryingRows.read

    def counting(self: VaryingRows, origins: Any, extent: Any, out: Any) -> None:
        calls.append(origins[:, 0].tolist())
        original(self, origins, extent, out)

    monkeypatch.setattr(VaryingRows, "read", counting)
    view.take([5, 2, 5, 11])
    view.take([2, 11])  # kept
    assert calls == [[2, 5, 11]]  # by one call


def test_pictures_to_be_resized_are_read_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    smaller = ooc.Pictures(size=(4, 4))  # of pictures that may be large
    view = ooc.open(STORES["varying"](tmp_path, ROWS), pictures=smaller)
    calls: list[int] = []
    original = VaryingRows.read

    def counting(self: VaryingRows, origins: Any, extent: Any, out: Any) -> None:
        calls.append(len(origins))
        original(self, origins, extent, out)

    monkeypatch.setattr(VaryingRows, "read", counting)
    view.take([5, 2, 11])
    assert calls == [1, 1, 1]


def test_a_damaged_record_among_others(tmp_path: Path) -> None:
    path = STORES["records"](tmp_path, ROWS)
    stored = bytearray(Path(path).read_bytes())
    stored[stored.index(ROWS[7]) + 20] ^= 1
    Path(path).write_bytes(stored)
    view = ooc.open(path, pictures=AS_THEY_ARE)
    with pytest.raises(DamagedChunkError, match="must have the checksum") as caught:
        view.take([9, 7, 4])
    assert (caught.value.path, caught.value.rows) == (path, (7,))
    assert_array_equal(view.take([9, 4]), EXPECTED[[9, 4]])


def test_decoding_holds_no_lock_of_hdf5(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    view = ooc.open(STORES["varying"](tmp_path, ROWS), pictures=AS_THEY_ARE)
    original, free = reader.decode_converted, []

    def try_lock() -> None:
        lock: Any = hdf5_lock()
        free.append(lock.acquire(blocking=False))
        if free[-1]:
            lock.release()

    def decoding(*given: Any) -> Any:
        other = threading.Thread(target=try_lock)
        other.start()
        other.join()
        return original(*given)

    monkeypatch.setattr(reader, "decode_converted", decoding)
    view.take(range(8))
    assert free == [True] * 8


WRONG: dict[str, tuple[bytes, type[Exception], str]] = {
    "empty": (b"", TruncatedFileError, "it is empty"),
    "no picture": (b"nothing", UnknownFormatError, "must be a picture"),
    "cut short": (ROWS[0][:-30], DamagedChunkError, "must decode as PNG"),
    "cut short, jpeg": (encoded(drawn(3), "JPEG")[:-9], TruncatedFileError, "must have an end"),
    "another shape": (encoded(drawn(3)[:9]), MismatchedPartsError, r"has \(9, 24, 3\)"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_row_that_is_wrong(tmp_path: Path, case: str) -> None:
    data, kind, rule = WRONG[case]
    path = STORES["varying"](tmp_path, [*ROWS[:7], data, *ROWS[8:]])
    view = ooc.open(path, pictures=AS_THEY_ARE)
    with pytest.raises(kind, match=rule) as caught:
        view[3:].take([9, 4, 1])
    assert isinstance(caught.value, SourceError)
    assert (caught.value.path, caught.value.key) == (path, "/images")
    assert caught.value.rows == (7,)
    (finding,) = ooc.check(view).findings
    assert finding.rows == (range(7, 8),)
    good = np.ones(20, bool)
    good[7] = False
    assert_array_equal(view.filter(good).take(range(19)), EXPECTED[good])


def test_a_first_row_that_is_wrong(tmp_path: Path) -> None:
    path = STORES["padded"](tmp_path, [ROWS[0][:-40], *ROWS[1:]])
    with pytest.raises(DamagedChunkError, match=r"must decode as PNG.*'/images', row 0\]"):
        ooc.open(path, pictures=AS_THEY_ARE)


def test_a_file_that_changes(tmp_path: Path) -> None:
    path = STORES["varying"](tmp_path, ROWS)
    view = ooc.open(path, pictures=AS_THEY_ARE)
    assert_array_equal(view[3], EXPECTED[3])
    with open(path, "ab") as file:
        file.write(b"more")
    cache.forget()
    with pytest.raises(SourceError, match="it has changed"):
        view[3]


def test_rows_of_bytes_alone(tmp_path: Path) -> None:
    view = ooc.open(STORES["varying"](tmp_path, ROWS))
    assert view.dtype == object
    assert view.take([19, 2, 2]).tolist() == [ROWS[19], ROWS[2], ROWS[2]]
    assert sum(view.storage.row_sizes) == 20


def test_what_is_no_picture(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((4, 3)))
    for target in (tmp_path / "a.npy", [tmp_path / "a.npy"], np.zeros((4, 3))):
        with pytest.raises(UnsupportedDtypeError, match="`pictures` must be given for"):
            ooc.open(target, pictures=AS_THEY_ARE)
    np.save(tmp_path / "a.npy", np.zeros((4, 300), np.uint8))
    with pytest.raises(UnknownFormatError, match="must be a picture"):
        ooc.open(tmp_path / "a.npy", pictures=AS_THEY_ARE)
    with pytest.raises(ArgumentError, match=r"must be an oocdata\.Pictures"):
        ooc.open(tmp_path / "a.npy", pictures=(4, 4))  # type: ignore[arg-type]
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("images", (0,), BYTES)
    with pytest.raises(EmptyError, match="there must be a picture"):
        ooc.open(tmp_path / "a.h5", pictures=AS_THEY_ARE)


def test_an_open_dataset(tmp_path: Path) -> None:
    path = STORES["varying"](tmp_path, ROWS)
    with (
        h5py.File(path, "a") as file,
        pytest.raises(UnsupportedDtypeError, match="opened by its path"),
    ):
        ooc.open(file["images"], pictures=AS_THEY_ARE)
    with h5py.File(path) as file:
        view = ooc.open(file["images"], pictures=AS_THEY_ARE)
    assert_array_equal(view[3], EXPECTED[3])
