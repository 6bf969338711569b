"""Test verified rows: healthy ones are exact, damaged ones are never delivered."""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr
from boxes import check_boxes
from recording import RecordingSource

import oocdata as ooc
from oocdata.box import Extent
from oocdata.engines.memory_array import MemoryArray
from oocdata.engines.source import Source
from oocdata.errors import (
    ArgumentError,
    ChecksumError,
    ManifestError,
    MissingFileError,
)
from oocdata.formats.manifest import CHECKSUM, FORMAT, checksums_of, unit_rows
from oocdata.formats.opening import open_source
from oocdata.formats.verified import Verified
from oocdata.memory import memory_limit, set_memory
from oocdata.testing import SourceConformance, boxes_of, sample_array

FRAMES = np.random.default_rng(0).random((60, 3, 8, 8), np.float32)
LABELS = np.random.default_rng(1).integers(-9, 9, 1000)


def write_manifest(path: Path, *datasets: tuple[str | None, Any], axis: int = 0) -> Path:
    """Write the manifest of a file, from correct arrays by key."""

    def npy(table: Any) -> bytes:
        buffer = io.BytesIO()
        np.save(buffer, table)
        return buffer.getvalue()

    members = {}
    known = []
    for number, (key, array) in enumerate(datasets or [(None, FRAMES)]):
        rows = np.moveaxis(array, axis, 0)
        unit = unit_rows(rows.shape, rows.dtype)
        member = f"rows/{number}"
        members[f"{member}.npy"] = npy(checksums_of(rows, unit))
        known.append(
            {
                "key": key,
                "shape": rows.shape,
                "dtype": rows.dtype.newbyteorder("<").str,
                "axis": axis,
                "unit_rows": unit,
                "member": member,
            }
        )
    about = {
        "format": FORMAT, "checksum": CHECKSUM, "name": path.name, "written": "", "datasets": known,
    }  # fmt: skip
    target = Path(f"{path}.manifest")
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("manifest.json", json.dumps(about))
        for name, content in members.items():
            archive.writestr(name, content)
    return target


def write_npy(path: Path) -> None:
    np.save(path, FRAMES)


def write_big_endian_fortran(path: Path) -> None:
    np.save(path, np.asfortranarray(FRAMES.astype(">f4")))


def write_hdf5(path: Path) -> None:
    with h5py.File(path, "w") as file:
        options: dict[str, Any] = {"compression": "gzip", "shuffle": True}
        file.create_dataset("u", data=FRAMES, chunks=(8, 3, 8, 8), **options)


def write_contiguous(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["u"] = FRAMES


def write_zarr(path: Path) -> None:
    zarr.create_array(path, data=FRAMES, chunks=(8, 2, 8, 8))


def write_plain_zarr(path: Path) -> None:
    zarr.create_array(path, data=FRAMES, chunks=(8, 3, 8, 8), shards=(16, 3, 8, 8),
                      compressors=None, zarr_format=3)  # fmt: skip


FORMATS: dict[str, tuple[str, Callable[[Path], None]]] = {
    "npy": ("a.npy", write_npy),
    "fortran": ("f.npy", write_big_endian_fortran),
    "gzip": ("a.h5", write_hdf5),
    "contiguous": ("c.h5", write_contiguous),
    "zarr": ("a.zarr", write_zarr),
    "sharded": ("s.zarr", write_plain_zarr),
}


@pytest.fixture(params=FORMATS)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    name, write = FORMATS[request.param]
    write(tmp_path / name)
    write_manifest(tmp_path / name)
    return tmp_path / name


def damage(path: Path) -> None:
    """Change one byte in the middle of the largest file."""
    file = max((one for one in [path, *path.rglob("*")] if one.is_file()), key=os.path.getsize)
    with file.open("r+b") as opened:
        opened.seek(file.stat().st_size // 2)
        old = opened.read(1)[0]
        opened.seek(-1, os.SEEK_CUR)
        opened.write(bytes([old ^ 0x10]))


def verified(array: Any, axis: int = 0) -> Source:
    rows = np.moveaxis(array, axis, 0)
    unit = unit_rows(rows.shape, rows.dtype)
    table = MemoryArray(checksums_of(rows, unit))
    return Verified(MemoryArray(array), axis, table, unit, "a.manifest")


class TestRowsOfTheirOwn(SourceConformance):
    shape = (23, 30, 20, 4)

    def make(self, folder: Path, array: Any) -> Source:
        return verified(array)


class TestManyRowsToAChecksum(SourceConformance):
    shape = (23, 3, 2, 2)
    dtypes = ("<f4",)

    def make(self, folder: Path, array: Any) -> Source:
        return verified(array)


def test_rows_along_another_axis() -> None:
    array = sample_array((23, 3, 5, 4))
    check_boxes(verified(array, axis=3), array)


def test_boxes_that_are_parts_of_rows_read_each_row_once() -> None:
    array = sample_array((12, 64, 9))
    rows = RecordingSource(array)
    source = Verified(rows, 0, MemoryArray(checksums_of(array, 1)), 1, "a.manifest")
    origins = np.array([[3, 0, 0], [2, 5, 1], [3, 30, 4], [2, 5, 1]])
    extent = Extent((2, 8, 3), (2, 3, 1))
    out = np.empty((4, *extent.lengths), array.dtype)
    source.read(origins, extent, out)
    np.testing.assert_array_equal(out, boxes_of(array, origins, extent))
    assert rows.rows == [[2, 3, 4, 5]]
    assert rows.extents == [Extent.of((1, 64, 9))]


def test_a_wrong_row_is_not_delivered_in_part(tmp_path: Path) -> None:
    array = sample_array((12, 64, 9))
    table = checksums_of(array, 1)
    array[7, 63, 8] += 1
    source = Verified(MemoryArray(array), 0, MemoryArray(table), 1, "a.manifest")
    extent = Extent.of((2, 4, 4))
    out = np.empty((1, 2, 4, 4), array.dtype)
    source.read(np.array([[8, 0, 0]]), extent, out)
    with pytest.raises(ChecksumError) as caught:  # the box itself is undamaged
        source.read(np.array([[6, 0, 0]]), extent, out)
    assert caught.value.rows == (7,)


def test_delivers_what_is_stored(path: Path) -> None:
    view = ooc.open(path, verify=True)
    assert isinstance(view.source, Verified)
    np.testing.assert_array_equal(np.asarray(view), FRAMES)
    np.testing.assert_array_equal(view[[7, 7, 59, 0]].take([3, 0, 1]), FRAMES[[0, 7, 7]])
    np.testing.assert_array_equal(
        view[5:50:3, :2, ::-1, 4].take([1, 3]), FRAMES[5:50:3, :2, ::-1, 4][[1, 3]]
    )
    np.testing.assert_array_equal(np.asarray(view.astype("f8")), FRAMES.astype("f8"))
    seen = np.concatenate(list(view.split(0.5, 0.5)[1].batches(7, shuffle=True)))
    np.testing.assert_array_equal(np.sort(seen.ravel()), np.sort(FRAMES[30:].ravel()))
    x, y = view.next_frame().batches(4).batch(2)
    np.testing.assert_array_equal(x, FRAMES[8:12])
    np.testing.assert_array_equal(y, FRAMES[9:13])


def test_damage_is_never_delivered(path: Path) -> None:
    damage(path)
    view = ooc.open(path, verify=True)
    refused = []
    for row in range(len(FRAMES)):
        try:
            np.testing.assert_array_equal(view[row], FRAMES[row])
        except ooc.errors.SourceError as error:
            refused.append((row, error))
    assert refused
    assert all(row in (error.rows or ()) for row, error in refused)
    assert all(str(path) in str(error) for _, error in refused)


@pytest.mark.parametrize("name", ["npy", "contiguous", "sharded"])
def test_the_error_names_file_dataset_and_row(tmp_path: Path, name: str) -> None:
    file, write = FORMATS[name]
    path = tmp_path / file
    write(path)
    write_manifest(path)
    damage(path)
    with pytest.raises(ChecksumError) as caught:
        np.asarray(ooc.open(path, verify=True))
    (row,) = caught.value.rows
    changed = (np.asarray(ooc.open(path)) != FRAMES).any(axis=(1, 2, 3))
    assert [row] == np.flatnonzero(changed).tolist()
    assert caught.value.path == str(path)
    assert caught.value.key == ("/u" if name == "contiguous" else None)
    assert f"'{path}.manifest'" in str(caught.value)
    assert isinstance(pickle.loads(pickle.dumps(caught.value)), ChecksumError)


def test_units_of_many_rows_name_them_all(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", LABELS)
    write_manifest(tmp_path / "a.npy", (None, LABELS))
    damage(tmp_path / "a.npy")
    view = ooc.open(tmp_path / "a.npy", verify=True)
    wrong = int(np.flatnonzero(np.load(tmp_path / "a.npy") != LABELS)[0])
    first = wrong // 64 * 64
    with pytest.raises(ChecksumError) as caught:
        view.take([3, first + 1, 999])
    assert caught.value.rows == tuple(range(first, first + 64))
    others = [row for row in range(1000) if not first <= row < first + 64]
    np.testing.assert_array_equal(view.take(others), LABELS[others])


def test_large_requests_of_small_rows_go_in_parts(tmp_path: Path) -> None:
    rows = np.arange(300_000, dtype="f8")  # more than a MiB of units
    np.save(tmp_path / "a.npy", rows)
    write_manifest(tmp_path / "a.npy", (None, rows))
    order = np.random.default_rng(0).permutation(len(rows))
    view = ooc.open(tmp_path / "a.npy", verify=True)
    np.testing.assert_array_equal(view.take(order), rows[order])


def test_opening_and_composing_read_nothing() -> None:
    rows, table = RecordingSource(FRAMES), RecordingSource(checksums_of(FRAMES, 1))
    view = ooc.open(Verified(rows, 0, table, 1, "a.manifest"))
    loader = view[10:, :1].astype("f8").split(0.5)[0].next_frame().batches(4, shuffle=True)
    assert not rows.reads
    assert not table.reads
    loader.batch(0)
    assert len(table.reads) == len(rows.reads)


def test_chunks_are_checked_every_time_they_are_used(tmp_path: Path) -> None:
    write_hdf5(tmp_path / "a.h5")
    write_manifest(tmp_path / "a.h5")
    view = ooc.open(tmp_path / "a.h5", verify=True)
    before = memory_limit()
    set_memory(1 << 20)
    try:
        for epoch in range(2):
            seen = np.concatenate(list(view.batches(16, shuffle="block").epoch(epoch)))
            np.testing.assert_array_equal(np.sort(seen.ravel()), np.sort(FRAMES.ravel()))
    finally:
        set_memory(before)


def test_pickles(path: Path) -> None:
    again = pickle.loads(pickle.dumps(ooc.open(path, verify=True)))
    assert isinstance(again.source, Verified)
    np.testing.assert_array_equal(again.take([4]), FRAMES[[4]])


def test_the_error_comes_out_of_worker_processes(tmp_path: Path) -> None:
    write_npy(tmp_path / "a.npy")
    write_manifest(tmp_path / "a.npy")
    damage(tmp_path / "a.npy")
    loader = ooc.open(tmp_path / "a.npy", verify=True).batches(16, workers=1)
    with pytest.raises(ChecksumError):
        list(loader.epoch(0))


def test_how_it_was_opened_tells_of_it(path: Path) -> None:
    opened = ooc.open(path, verify=True).source.storage().opened
    assert opened["target"] == str(path)
    assert opened["verify"] == f"{path}.manifest"
    assert isinstance(open_source(**opened), Verified)


def test_through_tf_data_and_fit(tmp_path: Path) -> None:
    import keras

    write_npy(tmp_path / "a.npy")
    write_manifest(tmp_path / "a.npy")
    damage(tmp_path / "a.npy")
    view = ooc.open(tmp_path / "a.npy", verify=True)
    pairs = view[:, 0].next_frame().batches(8)
    model = keras.Sequential([keras.Input((8, 8)), keras.layers.Dense(8)])
    model.compile("sgd", "mse")
    with pytest.raises(ChecksumError) as caught:
        model.fit(pairs.to_tf(), epochs=1, shuffle=False, verbose=0)
    assert len(caught.value.rows) == 1
    with pytest.raises(ChecksumError):
        list(view.batches(8).to_tf())


def test_storage_tells_it(path: Path) -> None:
    storage = ooc.open(path, verify=True).source.storage()
    assert storage.reading.endswith("; verified: whole rows, each by its checksum")
    assert storage.strides is None


def test_a_glob_has_a_manifest_beside_each(tmp_path: Path) -> None:
    for part in range(3):
        rows = FRAMES[part * 20 : part * 20 + 20]
        np.save(tmp_path / f"part{part}.npy", rows)
        write_manifest(tmp_path / f"part{part}.npy", (None, rows))
    view = ooc.open(tmp_path / "part*.npy", verify=True)
    np.testing.assert_array_equal(view[::3].take(range(20)), FRAMES[::3])
    np.testing.assert_array_equal(view[:, 1:2, ::2].take([59, 0]), FRAMES[:, 1:2, ::2][[59, 0]])
    np.testing.assert_array_equal(np.asarray(view.astype("i2")), FRAMES.astype("i2"))
    with pytest.raises(ArgumentError, match="must be True for several files"):
        ooc.open(tmp_path / "part*.npy", verify=tmp_path / "part0.npy.manifest")
    damage(tmp_path / "part1.npy")
    view = ooc.open(tmp_path / "part*.npy", verify=True)
    with pytest.raises(ChecksumError, match=r"part1\.npy"):
        np.asarray(view)


def test_the_same_array_in_another_format(tmp_path: Path) -> None:
    write_npy(tmp_path / "a.npy")
    write_manifest(tmp_path / "a.npy")
    write_zarr(tmp_path / "a.zarr")
    write_hdf5(tmp_path / "a.h5")
    write_big_endian_fortran(tmp_path / "f.npy")
    for name in ("a.zarr", "a.h5", "f.npy"):
        view = ooc.open(tmp_path / name, verify=tmp_path / "a.npy.manifest")
        np.testing.assert_array_equal(np.asarray(view), FRAMES)
    wrong = FRAMES.copy()
    wrong[17, 0, 0, 0] += 1
    np.save(tmp_path / "b.npy", wrong)
    with pytest.raises(ChecksumError) as caught:
        np.asarray(ooc.open(tmp_path / "b.npy", verify=tmp_path / "a.npy.manifest"))
    assert caught.value.rows == (17,)


def test_objects_take_the_path_of_a_manifest(tmp_path: Path) -> None:
    write_npy(tmp_path / "a.npy")
    write_manifest(tmp_path / "a.npy")
    manifest = tmp_path / "a.npy.manifest"
    for target in (FRAMES, np.load(tmp_path / "a.npy", mmap_mode="r")):
        np.testing.assert_array_equal(np.asarray(ooc.open(target, verify=manifest)), FRAMES)
        with pytest.raises(ArgumentError, match="for an object"):
            ooc.open(target, verify=True)
    with pytest.raises(ChecksumError):
        ooc.open(FRAMES + 1, verify=manifest)[3]


def test_raw_binary(tmp_path: Path) -> None:
    FRAMES.astype(">f4").tofile(tmp_path / "a.bin")
    raw: dict[str, Any] = {"dtype": ">f4", "shape": (-1, 3, 8, 8)}
    write_manifest(tmp_path / "a.bin")
    np.testing.assert_array_equal(
        np.asarray(ooc.open(tmp_path / "a.bin", verify=True, **raw)), FRAMES
    )


@pytest.mark.parametrize("axis", [0, 1, -1, (1, 0), (2, 1)], ids=str)
def test_rows_are_those_of_the_manifest_whatever_the_sample_axes(tmp_path: Path, axis: Any) -> None:
    cube = np.arange(512.0).reshape(8, 8, 8)
    np.save(tmp_path / "cube.npy", cube)
    write_manifest(tmp_path / "cube.npy", (None, cube), axis=1)
    expected = np.asarray(ooc.open(tmp_path / "cube.npy", axis=axis))
    view = ooc.open(tmp_path / "cube.npy", axis=axis, verify=True)
    np.testing.assert_array_equal(np.asarray(view), expected)
    changed = cube.copy()
    changed[5, 3, 1] += 1
    np.save(tmp_path / "cube.npy", changed)
    with pytest.raises(ChecksumError) as caught:
        np.asarray(ooc.open(tmp_path / "cube.npy", axis=axis, verify=True))
    assert caught.value.rows == (3,)


def test_the_row_axis_counts_where_the_manifest_is_of_another_file(tmp_path: Path) -> None:
    write_npy(tmp_path / "a.npy")
    manifest = write_manifest(tmp_path / "a.npy")
    np.save(tmp_path / "b.npy", np.moveaxis(FRAMES, 0, 2))
    view = ooc.open(tmp_path / "b.npy", axis=2, verify=manifest)
    np.testing.assert_array_equal(np.asarray(view), FRAMES)
    with pytest.raises(ManifestError, match="another row axis"):
        ooc.open(tmp_path / "b.npy", verify=manifest)


def test_chunks_left_out_are_fill_values_or_lost(tmp_path: Path) -> None:
    rows = FRAMES.copy()
    rows[16:24] = 0
    zarr.create_array(tmp_path / "a.zarr", data=rows, chunks=(8, 3, 8, 8))
    write_manifest(tmp_path / "a.zarr", (None, rows))
    view = ooc.open(tmp_path / "a.zarr", missing="fill", verify=True)
    np.testing.assert_array_equal(np.asarray(view), rows)
    (tmp_path / "a.zarr/c/5/0/0/0").unlink()
    view = ooc.open(tmp_path / "a.zarr", missing="fill", verify=True)
    with pytest.raises(ChecksumError) as caught:
        np.asarray(view)
    assert caught.value.rows == tuple(range(40, 48))


@pytest.mark.parametrize(
    ("array", "words"),
    [(FRAMES[:-1], "shape"), (FRAMES.astype("f8"), "float64"), (FRAMES[:, :1], "shape")],
)
def test_other_data_are_refused_when_they_are_opened(
    tmp_path: Path, array: Any, words: str
) -> None:
    np.save(tmp_path / "a.npy", FRAMES)
    write_manifest(tmp_path / "a.npy")
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(ManifestError, match=words):
        ooc.open(tmp_path / "a.npy", verify=True)


def test_a_key_that_the_manifest_does_not_know(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for key in ("u", "v", "w"):
            file[key] = FRAMES
    write_manifest(tmp_path / "a.h5", ("/u", FRAMES))
    assert ooc.open(tmp_path / "a.h5", "u", verify=True)[3].shape == (3, 8, 8)
    manifest = write_manifest(tmp_path / "a.h5", *[(f"/{key}", FRAMES) for key in "uvw"])
    ooc.open(tmp_path / "a.h5", "w", verify=manifest)
    with h5py.File(tmp_path / "a.h5", "a") as file:
        file["x"] = FRAMES
    with pytest.raises(ManifestError, match="'/u', '/v', '/w'"):
        ooc.open(tmp_path / "a.h5", "x", verify=manifest)


def test_no_manifest_or_none(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", FRAMES)
    with pytest.raises(MissingFileError, match="--write-manifest"):
        ooc.open(tmp_path / "a.npy", verify=True)
    for text in (b"", b"PK\3\4 nothing", b"\0" * 4000):
        (tmp_path / "a.npy.manifest").write_bytes(text)
        with pytest.raises(ManifestError, match="damaged or none"):
            ooc.open(tmp_path / "a.npy", verify=True)
    np.savez(tmp_path / "other.npz", x=FRAMES)
    with pytest.raises(ManifestError):
        ooc.open(tmp_path / "a.npy", verify=tmp_path / "other.npz")
    with pytest.raises(ArgumentError, match="path of a manifest"):
        ooc.open(tmp_path / "a.npy", verify=3)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"got a URL, https://…\.") as raised:
        ooc.open(tmp_path / "a.npy", verify="https://user:secret@host/a.manifest")
    assert "secret" not in str(raised.value)
    assert not isinstance(open_source(str(tmp_path / "a.npy"), verify=False), Verified)


def test_a_manifest_that_is_damaged_calls_right_rows_wrong_but_never_wrong_ones_right(
    tmp_path: Path,
) -> None:
    np.save(tmp_path / "a.npy", FRAMES)
    write_manifest(tmp_path / "a.npy")
    manifest = tmp_path / "a.npy.manifest"
    whole = manifest.read_bytes()
    wrong = FRAMES.copy()
    wrong[5] += 1
    np.save(tmp_path / "a.npy", wrong)
    random = np.random.default_rng(0)
    for bit in random.integers(0, len(whole) * 8, 150).tolist():
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        manifest.write_bytes(changed)
        with pytest.raises((ManifestError, ChecksumError)):
            ooc.open(tmp_path / "a.npy", verify=True).take([5])


@pytest.mark.parametrize("value", [None, "x", -1, 0.5, [None], {}], ids=repr)
@pytest.mark.parametrize("entry", ["key", "shape", "dtype", "axis", "unit_rows", "member"])
def test_a_manifest_with_wrong_entries(tmp_path: Path, entry: str, value: Any) -> None:
    np.save(tmp_path / "a.npy", FRAMES)
    write_manifest(tmp_path / "a.npy")
    manifest = tmp_path / "a.npy.manifest"
    with zipfile.ZipFile(manifest) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    content = json.loads(members["manifest.json"])
    content["datasets"][0][entry] = value
    members["manifest.json"] = json.dumps(content).encode()
    with zipfile.ZipFile(manifest, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    if entry == "key" and value in (None, "x"):
        np.asarray(ooc.open(tmp_path / "a.npy", verify=True))
    else:
        with pytest.raises(ManifestError):
            ooc.open(tmp_path / "a.npy", verify=True).take([5])
