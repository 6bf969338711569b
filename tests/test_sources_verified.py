"""Rows that are compared with their checksums: exact when all is well, never delivered when not."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr

import oocdata as ooc
from oocdata.description import as_text, describe, loader_from
from oocdata.errors import ArgumentError, ChecksumError, ManifestError, MissingFileError
from oocdata.sources.checksums import checksums_of, unit_rows
from oocdata.sources.memory import Memory
from oocdata.sources.opening import open_source
from oocdata.sources.slots import chunk_budget, set_chunk_budget
from oocdata.sources.source import Source
from oocdata.sources.verified import Verified
from oocdata.testing import RecordingSource, SourceConformance
from oocdata.tools.check import check

FRAMES = np.random.default_rng(0).random((60, 3, 8, 8), np.float32)
LABELS = np.random.default_rng(1).integers(-9, 9, 1000)


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
    check(tmp_path / name, write_manifest=True)
    return tmp_path / name


def damage(path: Path) -> None:
    """Change one byte of the numbers, in the middle of the largest file."""
    file = max((one for one in [path, *path.rglob("*")] if one.is_file()), key=os.path.getsize)
    with file.open("r+b") as opened:
        opened.seek(file.stat().st_size // 2)
        old = opened.read(1)[0]
        opened.seek(-1, os.SEEK_CUR)
        opened.write(bytes([old ^ 0x10]))


def verified(array: Any) -> Source:
    unit = unit_rows(array.shape, array.dtype)
    return Verified(Memory(array), Memory(checksums_of(array, unit)), unit, "a.manifest")


class TestRowsOfTheirOwn(SourceConformance):
    shape = (23, 30, 20, 4)

    def make(self, folder: Path, array: Any, axis: int = 0) -> Source:
        return verified(np.moveaxis(array, axis, 0))


class TestManyRowsToAChecksum(SourceConformance):
    shape = (23, 3, 2, 2)
    axes = (0,)

    def make(self, folder: Path, array: Any, axis: int = 0) -> Source:
        return verified(array)


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
    check(path, write_manifest=True)
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
    check(tmp_path / "a.npy", write_manifest=True)
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
    check(tmp_path / "a.npy", write_manifest=True)
    order = np.random.default_rng(0).permutation(len(rows))
    view = ooc.open(tmp_path / "a.npy", verify=True)
    np.testing.assert_array_equal(view.take(order), rows[order])


def test_opening_and_composing_read_nothing() -> None:
    rows, table = RecordingSource(FRAMES), RecordingSource(checksums_of(FRAMES, 1))
    view = ooc.open(Verified(rows, table, 1, "a.manifest"))
    loader = view[10:, :1].astype("f8").split(0.5)[0].next_frame().batches(4, shuffle=True)
    assert not rows.reads
    assert not table.reads
    loader.batch(0)
    assert len(table.reads) == len(rows.reads)


def test_chunks_are_checked_every_time_they_are_used(tmp_path: Path) -> None:
    write_hdf5(tmp_path / "a.h5")
    check(tmp_path / "a.h5", write_manifest=True)
    view = ooc.open(tmp_path / "a.h5", verify=True)
    before = chunk_budget()
    set_chunk_budget(20_000)  # a few chunks of 6 KiB
    try:
        for epoch in range(2):
            seen = np.concatenate(list(view.batches(16, shuffle="block").epoch(epoch)))
            np.testing.assert_array_equal(np.sort(seen.ravel()), np.sort(FRAMES.ravel()))
    finally:
        set_chunk_budget(before)


def test_workers_and_pickles(path: Path) -> None:
    loader = ooc.open(path, verify=True).batches(16, shuffle=True, seed=3, workers=1)
    plain = ooc.open(path).batches(16, shuffle=True, seed=3)
    for one, other in zip(loader.epoch(0), plain.epoch(0), strict=True):
        np.testing.assert_array_equal(one, other)
    again = pickle.loads(pickle.dumps(loader.dataset))
    assert isinstance(again.source, Verified)
    np.testing.assert_array_equal(again.take([4]), FRAMES[[4]])


def test_the_error_comes_out_of_worker_processes(tmp_path: Path) -> None:
    write_npy(tmp_path / "a.npy")
    check(tmp_path / "a.npy", write_manifest=True)
    damage(tmp_path / "a.npy")
    loader = ooc.open(tmp_path / "a.npy", verify=True).batches(16, workers=1)
    with pytest.raises(ChecksumError):
        list(loader.epoch(0))


def test_a_description_keeps_it(path: Path) -> None:
    loader = ooc.open(path, verify=True)[3:].batches(16, shuffle=True)
    again = loader_from(json.loads(as_text(describe(loader))))
    assert isinstance(again.dataset.source, Verified)
    np.testing.assert_array_equal(again.batch(1), loader.batch(1))
    damage(path)
    with pytest.raises(ooc.errors.OocdataError):
        for _ in loader_from(describe(ooc.open(path, verify=True).batches(16))).epoch(0):
            pass


def test_through_tf_data_and_fit(tmp_path: Path) -> None:
    import keras

    write_npy(tmp_path / "a.npy")
    check(tmp_path / "a.npy", write_manifest=True)
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


def test_explain_and_info_say_it(path: Path) -> None:
    view = ooc.open(path, verify=True)
    assert "verified: whole rows, each by its checksum" in str(view.batches(8).explain())
    assert (
        view.batches(8).explain().resident_bytes
        >= ooc.open(path).batches(8).explain().resident_bytes
    )


def test_a_glob_has_a_manifest_beside_each(tmp_path: Path) -> None:
    for part in range(3):
        np.save(tmp_path / f"part{part}.npy", FRAMES[part * 20 : part * 20 + 20])
    health = check(tmp_path / "part*.npy", write_manifest=True)
    assert len(health.written) == 3
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
    check(tmp_path / "a.npy", write_manifest=True)
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
    check(tmp_path / "a.npy", write_manifest=True)
    manifest = tmp_path / "a.npy.manifest"
    for target in (FRAMES, np.load(tmp_path / "a.npy", mmap_mode="r")):
        np.testing.assert_array_equal(np.asarray(ooc.open(target, verify=manifest)), FRAMES)
        with pytest.raises(ArgumentError, match="for an object"):
            ooc.open(target, verify=True)
    with pytest.raises(ChecksumError):
        ooc.open(FRAMES + 1, verify=manifest)[3]


def test_raw_binary_and_a_row_axis(tmp_path: Path) -> None:
    FRAMES.astype(">f4").tofile(tmp_path / "a.bin")
    raw: dict[str, Any] = {"dtype": ">f4", "shape": (-1, 3, 8, 8)}
    check(tmp_path / "a.bin", write_manifest=True, **raw)
    np.testing.assert_array_equal(
        np.asarray(ooc.open(tmp_path / "a.bin", verify=True, **raw)), FRAMES
    )
    square = np.arange(64.0).reshape(8, 8)
    np.save(tmp_path / "square.npy", square)
    check(tmp_path / "square.npy", axis=1, write_manifest=True)
    for axis in (1, -1):
        view = ooc.open(tmp_path / "square.npy", axis=axis, verify=True)
        np.testing.assert_array_equal(np.asarray(view), square.T)
    with pytest.raises(ManifestError, match="`axis` must be 1"):
        ooc.open(tmp_path / "square.npy", verify=True)


def test_chunks_left_out_are_fill_values_or_lost(tmp_path: Path) -> None:
    rows = FRAMES.copy()
    rows[16:24] = 0
    zarr.create_array(tmp_path / "a.zarr", data=rows, chunks=(8, 3, 8, 8))
    health = check(tmp_path / "a.zarr", write_manifest=True)
    assert [(one.kind, one.rows) for one in health.findings] == [("unwritten", (range(16, 24),))]
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
    check(tmp_path / "a.npy", write_manifest=True)
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(ManifestError, match=words):
        ooc.open(tmp_path / "a.npy", verify=True)


def test_a_key_that_the_manifest_does_not_know(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for key in ("u", "v", "w"):
            file[key] = FRAMES
    check(tmp_path / "a.h5", "u", write_manifest=True)
    assert ooc.open(tmp_path / "a.h5", "u", verify=True)[3].shape == (3, 8, 8)
    check(tmp_path / "a.h5", write_manifest=tmp_path / "all.manifest")
    ooc.open(tmp_path / "a.h5", "w", verify=tmp_path / "all.manifest")
    with h5py.File(tmp_path / "a.h5", "a") as file:
        file["x"] = FRAMES
    with pytest.raises(ManifestError, match="'/u', '/v', '/w'"):
        ooc.open(tmp_path / "a.h5", "x", verify=tmp_path / "all.manifest")


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
    assert not isinstance(open_source(str(tmp_path / "a.npy"), verify=False), Verified)


def test_a_manifest_that_is_damaged_calls_right_rows_wrong_but_never_wrong_ones_right(
    tmp_path: Path,
) -> None:
    np.save(tmp_path / "a.npy", FRAMES)
    check(tmp_path / "a.npy", write_manifest=True)
    manifest = tmp_path / "a.npy.manifest"
    whole = manifest.read_bytes()
    wrong = FRAMES.copy()
    wrong[5] += 1
    np.save(tmp_path / "a.npy", wrong)
    random = np.random.default_rng(0)
    for bit in random.integers(0, len(whole) * 8, 400).tolist():
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        manifest.write_bytes(changed)
        with pytest.raises((ManifestError, ChecksumError)):
            ooc.open(tmp_path / "a.npy", verify=True).take([5])
