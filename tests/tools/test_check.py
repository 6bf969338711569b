"""Test the findings of a check on damaged files, also on files with several faults."""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import h5py
import ml_dtypes
import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import oocdata as ooc
from oocdata.errors import (
    ArgumentError,
    ExternalDataError,
    MissingFileError,
    MissingKeyError,
    SourceError,
    UnknownFormatError,
    UnsupportedDtypeError,
)
from oocdata.threads import Threads, cores, in_order
from oocdata.tools.check import Health, check, opening
from oocdata.tools.opening import Opening

ROWS = np.random.default_rng(0).integers(0, 9, (60, 3, 40)).astype("f4")


def found(health: Health, key: str | None = None) -> dict[str, list[int]]:
    """Return the rows of each kind of finding of a dataset."""
    return {
        one.kind: [row for part in one.rows for row in part]
        for one in health.findings
        if one.key == key
    }


def runs(*parts: range) -> list[int]:
    return [row for part in parts for row in part]


def write_npz(path: Path, array: Any) -> None:
    with path.open("wb") as file:
        np.savez(file, u=array)


def write_hdf5(path: Path, array: Any, **options: Any) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("u", data=array, **options)


HEALTHY: dict[str, Any] = {
    "a.npy": np.save,
    "fortran.npy": lambda path, array: np.save(path, np.asfortranarray(array)),
    "big.npy": lambda path, array: np.save(path, array.astype(">f4")),
    "a.npz": write_npz,
    "plain.h5": write_hdf5,
    "chunks.h5": lambda path, array: write_hdf5(path, array, chunks=(7, 3, 40)),
    "tiles.h5": lambda path, array: write_hdf5(path, array, chunks=(7, 2, 11), compression="gzip"),
    "offset.h5": lambda path, array: write_hdf5(path, array, chunks=(7, 3, 40), scaleoffset=0),
    "v2.zarr": lambda path, array: zarr.create_array(
        path, data=array, chunks=(7, 2, 40), zarr_format=2, fill_value=-1
    ),
    "v3.zarr": lambda path, array: zarr.create_array(
        path, data=array, chunks=(7, 3, 40), shards=(14, 3, 40), fill_value=-1
    ),
    "plain.zarr": lambda path, array: zarr.create_array(
        path, data=array, chunks=(7, 3, 40), compressors=None, fill_value=-1
    ),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_array(tmp_path: Path, name: str) -> None:
    HEALTHY[name](tmp_path / name, ROWS)
    for axis in (0, 1, -1):
        health = check(Opening.of(tmp_path / name, axis=axis))
        assert health.healthy(), health
        (one,) = health.datasets
        assert one.shape == np.moveaxis(ROWS, axis, 0).shape
        assert (one.dtype, one.nbytes) == ("float32", ROWS.nbytes)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(data=st.data())
def test_numbers_that_are_not_finite(tmp_path: Path, data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(["f2", "f4", ">f8", "c8"]))
    shape = data.draw(st.sampled_from([(50,), (50, 3), (5000, 40), (3, 600_000)]))
    array = np.ones(shape, dtype)
    places = data.draw(st.lists(st.integers(0, array.size - 1), max_size=9))
    for place in places:
        value = data.draw(st.sampled_from([np.nan, np.inf, -np.inf]))
        array.reshape(-1)[place] = value
    np.save(tmp_path / "a.npy", array)
    health = check(tmp_path / "a.npy")
    wrong = {"nan": np.isnan(array), "inf": np.isinf(array)}
    for kind, mask in wrong.items():
        rows = np.flatnonzero(mask.reshape(len(array), -1).any(axis=1)).tolist()
        assert found(health).get(kind, []) == rows
        assert sum(one.values or 0 for one in health.findings if one.kind == kind) == mask.sum()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(
    nbytes=st.integers(128, 128 + ROWS.nbytes - 1),
    axis=st.sampled_from([0, 1, 2]),
    order=st.sampled_from("CF"),
)
def test_a_npy_cut_anywhere(tmp_path: Path, nbytes: int, axis: int, order: str) -> None:
    np.save(tmp_path / "a.npy", np.asarray(ROWS, order=order))  # type: ignore[call-overload]
    os.truncate(tmp_path / "a.npy", nbytes)
    ends = 128 + 4 * (1 + np.arange(ROWS.size).reshape(ROWS.shape, order=order))  # type: ignore[call-overload]
    beyond = np.moveaxis(ends > nbytes, axis, 0).reshape(ROWS.shape[axis], -1).any(axis=1)
    health = check(Opening.of(tmp_path / "a.npy", axis=axis))
    assert found(health) == {"truncated": np.flatnonzero(beyond).tolist()}


def test_what_is_left_of_a_npy_is_still_read(tmp_path: Path) -> None:
    rows = ROWS.copy()
    rows[[3, 50], 0, 0] = np.nan
    np.save(tmp_path / "a.npy", rows)
    os.truncate(tmp_path / "a.npy", 128 + 40 * 480 + 7)
    assert found(check(tmp_path / "a.npy")) == {"truncated": runs(range(40, 60)), "nan": [3]}


def test_trailing_bytes(tmp_path: Path) -> None:
    rows = ROWS.copy()
    rows[59, 2, 39] = np.inf
    np.save(tmp_path / "a.npy", rows)
    with (tmp_path / "a.npy").open("ab") as file:
        file.write(b"xxx")
    health = check(tmp_path / "a.npy")
    assert found(health) == {"trailing": [], "inf": [59]}
    assert "got 3 more" in health.findings[0].reason


def test_raw_binary(tmp_path: Path) -> None:
    ROWS.astype(">f4").tofile(tmp_path / "a.bin")
    raw: dict[str, Any] = {"dtype": ">f4", "shape": (-1, 3, 40)}
    assert check(Opening.of(tmp_path / "a.bin", **raw)).healthy()
    os.truncate(tmp_path / "a.bin", 480 * 10 + 100)
    assert found(check(Opening.of(tmp_path / "a.bin", **raw))) == {"trailing": []}
    raw["shape"] = (60, 3, 40)
    assert found(check(Opening.of(tmp_path / "a.bin", **raw))) == {"truncated": runs(range(10, 60))}
    with pytest.raises(UnknownFormatError):
        check(tmp_path / "a.bin")
    with pytest.raises(MissingFileError):
        check(Opening.of(tmp_path / "none.bin", **raw))


def chunks_of(path: Path, key: str) -> list[Any]:
    with h5py.File(path) as file:
        dataset = file[key].id
        return [dataset.get_chunk_info(number) for number in range(dataset.get_num_chunks())]


def spoil(path: Path, offset: int, nbytes: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(b"\xee" * nbytes)


@pytest.mark.parametrize(
    "options",
    [
        {"chunks": (7, 3, 40), "compression": "gzip", "shuffle": True},
        {"chunks": (7, 2, 11), "compression": "gzip"},
        {"chunks": (7, 3, 40), "fletcher32": True},
        {"chunks": (7, 3, 40), "compression": "szip", "fletcher32": True},
    ],
    ids=["gzip", "tiles", "fletcher32", "by h5py"],
)
def test_every_damaged_chunk_of_hdf5(tmp_path: Path, options: dict[str, Any]) -> None:
    path = tmp_path / "a.h5"
    write_hdf5(path, ROWS, **options)
    chunks = chunks_of(path, "u")
    hurt = [chunks[0], chunks[len(chunks) // 2], chunks[len(chunks) // 2 + 1], chunks[-1]]
    for chunk in hurt:
        spoil(path, chunk.byte_offset + chunk.size // 3, chunk.size // 2)
    rows = {
        row
        for chunk in hurt
        for row in range(chunk.chunk_offset[0], min(60, chunk.chunk_offset[0] + 7))
    }
    health = check(path)
    assert found(health, "/u") == {"damaged": sorted(rows)}


@pytest.mark.parametrize("options", [{}, {"compression": "gzip"}], ids=["plain", "gzip"])
def test_a_chunk_whose_place_is_beyond_any_file(tmp_path: Path, options: dict[str, Any]) -> None:
    path = tmp_path / "a.h5"
    write_hdf5(path, np.random.default_rng(0).random((40, 6, 5)), chunks=(8, 6, 5), **options)
    place = chunks_of(path, "u")[2].byte_offset.to_bytes(8, "little")
    data = path.read_bytes()
    assert data.count(place) == 1
    path.write_bytes(data.replace(place, place[:7] + b"\xff"))
    assert found(check(path), "/u") == {"truncated": runs(range(16, 24))}
    with pytest.raises(SourceError):
        np.asarray(ooc.open(path))


def test_several_kinds_in_several_datasets(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    rows = ROWS.copy()
    rows[11, 1, 1] = np.nan
    with h5py.File(path, "w") as file:
        options = {"compression": "gzip", "chunks": (10, 3, 40)}
        file.create_dataset("a", data=rows, **options)
        part = file.create_dataset("b", ROWS.shape, "f4", **options)
        part[:15] = 1
        part[30:40] = 1
        file["c"] = ROWS
        file.create_dataset("d", (60, 3), "f4")
        file["note"], file["number"] = "text", 1.5
        file["names"] = np.array([b"x"])
    spoil(path, chunks_of(path, "a")[2].byte_offset, 30)
    health = check(path)
    assert found(health, "/a") == {"damaged": runs(range(20, 30)), "nan": [11]}
    assert found(health, "/b") == {"unwritten": runs(range(20, 30), range(40, 60))}
    assert found(health, "/c") == {}
    assert found(health, "/d") == {"unwritten": runs(range(60))}
    assert [one.key for one in health.findings if one.kind == "unchecked"] == ["/note", "/number"]
    assert [one.key for one in health.datasets] == ["/a", "/b", "/c", "/d", "/names"]
    assert [one.key for one in check(path, "c").datasets] == ["/c"]


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_hdf5_that_was_cut_short(tmp_path: Path, share: float) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("u", data=ROWS, chunks=(7, 2, 40), compression="gzip")
        file["v"] = ROWS
    os.truncate(path, int(path.stat().st_size * share))
    health = check(path)
    assert found(health) == {"truncated": []}
    assert not health.datasets
    assert "as long as its superblock says" in health.findings[0].reason


def test_hdf5_that_promises_more_than_any_file_holds(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    write_hdf5(path, ROWS)
    data = bytearray(path.read_bytes())
    data[47] = data[71] = 0xFF  # the highest bytes of the file's end and of its root group's place
    path.write_bytes(data)
    assert found(check(path)) == {"truncated": []}


def test_a_group_that_can_not_be_read(tmp_path: Path) -> None:
    write_hdf5(tmp_path / "a.h5", ROWS)
    spoil(tmp_path / "a.h5", 100, 200)
    health = check(tmp_path / "a.h5")
    assert [one.kind for one in health.findings] == ["unreadable"]


def test_damaged_rows_are_not_called_changed_as_well(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    write_hdf5(path, ROWS, chunks=(10, 3, 40), compression="gzip")
    check(path, write_manifest=True)
    spoil(path, chunks_of(path, "u")[2].byte_offset, 30)
    assert found(check(path, manifest=True), "/u") == {"damaged": runs(range(20, 30))}
    # Of 16 rows that share a checksum, the others of a damaged chunk are what they were.
    write_hdf5(path, np.arange(240.0).reshape(60, 4), chunks=(10, 4), compression="gzip")
    check(path, write_manifest=True, overwrite=True)
    spoil(path, chunks_of(path, "u")[2].byte_offset, 30)
    assert found(check(path, manifest=True), "/u") == {"damaged": runs(range(20, 30))}


def test_a_file_that_somebody_writes_to(tmp_path: Path) -> None:
    write_hdf5(tmp_path / "a.h5", ROWS)
    with (tmp_path / "a.h5").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # as HDF5 does
        with pytest.raises(SourceError, match="open for writing"):
            check(tmp_path / "a.h5")


@pytest.mark.parametrize("there", [(0, 1, 2), (0, 2)])
def test_missing_sources_of_a_virtual_dataset(tmp_path: Path, there: tuple[int, ...]) -> None:
    layout = h5py.VirtualLayout((60, 3, 40), "f4")
    for part in range(3):
        write_hdf5(tmp_path / f"{part}.h5", ROWS[part * 20 : part * 20 + 20])
        source = h5py.VirtualSource(f"{part}.h5", "u", (20, 3, 40))
        layout[part * 20 : part * 20 + 20] = source
    with h5py.File(tmp_path / "all.h5", "w") as file:
        file.create_virtual_dataset("u", layout)
    for part in {0, 1, 2} - set(there):
        (tmp_path / f"{part}.h5").unlink()
    health = check(Opening.of(tmp_path / "all.h5", external=True))
    expected = {} if 1 in there else {"missing": runs(range(20, 40))}
    assert found(health, "/u") == expected
    with pytest.raises(ExternalDataError):
        check(tmp_path / "all.h5")


@pytest.mark.parametrize("version", [2, 3])
def test_zarr_chunks_of_every_kind_of_damage(tmp_path: Path, version: int) -> None:
    path = tmp_path / "a.zarr"
    rows = ROWS.copy()
    rows[59, 0, 0] = np.nan
    zarr.create_array(path, data=rows, chunks=(5, 3, 20), zarr_format=version, fill_value=-1)

    def chunk(row: int, column: int) -> Path:
        return path / (f"{row}.0.{column}" if version == 2 else f"c/{row}/0/{column}")

    chunk(0, 1).unlink()
    os.truncate(chunk(2, 0), 0)
    os.truncate(chunk(3, 0), chunk(3, 0).stat().st_size // 2)
    spoil(chunk(5, 1), 0, 8)
    chunk(6, 0).unlink()
    spoil(chunk(6, 1), 0, 8)
    health = check(path)
    assert found(health) == {
        "damaged": runs(range(10, 20), range(25, 35)),
        "unwritten": runs(range(5), range(30, 35)),
        "nan": [59],
    }


@pytest.mark.parametrize("member", ["X/data", "X/indptr", "lab/codes"])
def test_an_absent_chunk_of_an_array_made_of_several(tmp_path: Path, member: str) -> None:
    root = zarr.open_group(tmp_path / "cells.zarr", mode="w")
    matrix = root.create_group("X", attributes={"encoding-type": "csr_matrix", "shape": [3, 4]})
    for name, values in {"data": [1.0, 2.0], "indices": [0, 3], "indptr": [0, 1, 1, 2]}.items():
        matrix.create_array(name, data=np.array(values))
    column = root.create_group("lab", attributes={"encoding-type": "categorical"})
    column.create_array("codes", data=np.array([0, 1, 0], "i1"))
    column.create_array("categories", data=np.array([5, 7]))
    assert check(tmp_path / "cells.zarr").healthy()
    (tmp_path / "cells.zarr" / member / "c" / "0").unlink()
    found = check(tmp_path / "cells.zarr").findings
    assert "unwritten" in {one.kind for one in found}
    assert {one.key for one in found} == {member.partition("/")[0]}


@pytest.mark.parametrize("shards", [None, (12, 3, 40)])
@pytest.mark.parametrize("kind", ["deleted", "written anew"])
def test_a_zarr_object_that_changes_during_the_check(
    tmp_path: Path, shards: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows are neither the fill value nor rows of another time, so they are not healthy."""
    path, step = tmp_path / "a.zarr", 12 if shards else 4
    zarr.create_array(path, data=ROWS, chunks=(4, 3, 40), shards=shards, fill_value=0)
    second = path / "c" / "1" / "0" / "0"
    absent = opening._absent

    def then_changed(objects: Any) -> Any:
        found = absent(objects)
        if kind == "deleted":
            second.unlink()
        else:
            shutil.copy(path / "c" / "0" / "0" / "0", tmp_path / "new")
            (tmp_path / "new").replace(second)
        return found

    monkeypatch.setattr(opening, "_absent", then_changed)
    health = check(path, write_manifest=True)
    (finding,) = health.findings
    assert (finding.kind, finding.rows) == ("unreadable", (range(step, 2 * step),))
    assert kind in finding.reason
    assert health.written == ()


def test_zarr_shards(tmp_path: Path) -> None:
    path = tmp_path / "a.zarr"
    rows = ROWS.copy()
    rows[4:8] = -1
    zarr.create_array(path, data=rows, chunks=(4, 3, 40), shards=(12, 3, 40), fill_value=-1)
    (path / "c/1/0/0").unlink()
    os.truncate(path / "c/2/0/0", 20)
    shard = path / "c/4/0/0"
    spoil(shard, 2, 30)
    health = check(path)
    assert found(health) == {
        "unwritten": runs(range(4, 8), range(12, 24)),
        "damaged": runs(range(24, 36), range(48, 52)),
    }


def test_chunks_of_the_wrong_length(tmp_path: Path) -> None:
    path = tmp_path / "a.zarr"
    zarr.create_array(path, data=ROWS, chunks=(6, 3, 40), compressors=None, fill_value=-1)
    os.truncate(path / "c/3/0/0", 100)
    with (path / "c/5/0/0").open("ab") as file:
        file.write(b"xx")
    assert found(check(path)) == {"damaged": runs(range(18, 24), range(30, 36))}


def test_members_of_an_archive_match_their_checksum(tmp_path: Path) -> None:
    with (tmp_path / "a.npz").open("wb") as file:
        np.savez(file, u=ROWS, v=np.arange(100))
    spoil(tmp_path / "a.npz", 5000, 3)
    health = check(tmp_path / "a.npz")
    assert found(health, "u") == {"damaged": runs(range(60))}
    assert found(health, "v") == {}
    np.savez_compressed(tmp_path / "b.npz", u=np.random.default_rng(0).random((60, 40)))
    assert found(check(tmp_path / "b.npz"), "u") == {}
    spoil(tmp_path / "b.npz", 5000, 3)
    assert found(check(tmp_path / "b.npz"), "u") == {"damaged": []}


def test_work_in_threads_is_in_order_and_bounded() -> None:
    started, done, most = [], [], 0
    lock = threading.Lock()

    def work(number: int) -> int:
        with lock:
            started.append(number)
        return number

    threads = Threads(4, "test")
    for number in in_order(threads, work, range(200)):
        done.append(number)
        with lock:
            most = max(most, len(started) - len(done))
    assert done == list(range(200))
    assert most <= 2 * cores() + 1

    def fail(number: int) -> int:
        if number == 5:
            raise SourceError("no.")
        return number

    with pytest.raises(SourceError):
        list(in_order(threads, fail, range(1000)))
    assert threads.begin(threading.get_ident)() != threading.get_ident()
    threads.close()
    assert threads.begin(threading.get_ident)() == threading.get_ident()


def test_a_file_of_no_known_format_is_a_finding_among_others(tmp_path: Path) -> None:
    for number in range(3):
        np.save(tmp_path / f"part{number}.npy", np.arange(6.0).reshape(3, 2))
    (tmp_path / "part1.npy").write_bytes(b"<html>404</html>")
    health = ooc.check(f"{tmp_path}/part*.npy")
    (finding,) = health.findings
    assert (finding.kind, finding.path) == ("unreadable", f"{tmp_path}/part1.npy")
    assert "its first bytes are b'<html>" in finding.reason
    assert [checked.path[-9:] for checked in health.datasets] == ["part0.npy", "part2.npy"]
    assert not health.healthy()
    (tmp_path / "part1.npy").write_bytes(b"")
    with pytest.raises(UnknownFormatError, match=r"; it is empty\."):
        check(tmp_path / "part1.npy")
    health = check(ooc.open([tmp_path / "part0.npy", tmp_path / "part2.npy"])[:4])
    assert health.healthy()


def test_a_file_of_no_numbers_is_a_note_among_others(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([1, "a", None], object))
    np.save(tmp_path / "b.npy", np.array(3.0))
    np.save(tmp_path / "c.npy", [[np.nan]])
    health = check(f"{tmp_path}/*.npy")
    assert [(one.kind, one.path[-5:]) for one in health.findings] == [
        ("unchecked", "a.npy"), ("unchecked", "b.npy"), ("nan", "c.npy"),
    ]  # fmt: skip
    assert "an array must have a row axis; got a single number" in health.findings[1].reason
    with pytest.raises(UnsupportedDtypeError, match="an array of objects"):
        check([tmp_path / "a.npy", tmp_path / "b.npy"])
    with pytest.raises(ArgumentError, match="2-dimensional"):
        check(Opening.of([tmp_path / "c.npy", tmp_path / "c.npy"], axis=7))


def test_files_of_rows_that_are_wrong_are_named(tmp_path: Path) -> None:
    for number in range(6):
        rows = np.arange(6.0).reshape(3, 2)
        rows[1:] = np.nan if number in (1, 2, 3, 5) else 0
        np.save(tmp_path / f"part{number}.npy", rows)
    (finding,) = check(ooc.open(f"{tmp_path}/part*.npy")[1:]).findings
    assert finding.row_count == 8
    names = ", ".join(f"{tmp_path}/part{number}.npy" for number in (1, 2, 3))
    assert finding.reason == f"16 numbers are NaN. In {names}, …."
    across = ooc.View.of(ooc.open(f"{tmp_path}/part*.npy").source, 1)  # each row is of all files
    assert [one.reason for one in check(across).findings] == ["16 numbers are NaN."]


def test_globs_and_wrong_calls(tmp_path: Path) -> None:
    for part in (0, 1, 10):
        np.save(tmp_path / f"part{part}.npy", ROWS)
    os.truncate(tmp_path / "part10.npy", 200)
    paths = [tmp_path / f"part{part}.npy" for part in (0, 1, 10)]
    for target in (paths, tmp_path / "part*.npy"):
        health = check(target)
        assert [one.path for one in health.datasets] == list(map(str, paths))
        assert {one.path for one in health.findings} == {str(paths[-1])}
    whole = check(ooc.open(paths[:1] * 2))
    assert [one.shape for one in whole.datasets] == [(120, 3, 40)]
    assert whole.healthy()
    with pytest.raises(MissingFileError):
        check(tmp_path / "none*.npy")
    with pytest.raises(MissingFileError, match=r"Nearby: part1"):
        check(tmp_path / "part.npy")
    with pytest.raises(ArgumentError, match="of one file"):
        check(tmp_path / "part*.npy", write_manifest=tmp_path / "all.manifest")
    with pytest.raises(ArgumentError, match="together"):
        check(tmp_path / "part0.npy", write_manifest=True, manifest=True)
    with pytest.raises(ArgumentError, match="together"):
        check(Opening.of(tmp_path / "part0.npy", shape=(3,)))
    with pytest.raises(ArgumentError, match="3-dimensional"):
        check(Opening.of(tmp_path / "part0.npy", axis=3))
    with pytest.raises(ArgumentError, match="`key` must be None"):
        check(tmp_path / "part0.npy", "u")
    with pytest.raises(ArgumentError, match="`manifest` must be the path of a manifest for a URL"):
        check("http://127.0.0.1:9/a.zarr", manifest=True)
    write_hdf5(tmp_path / "a.h5", ROWS)
    with pytest.raises(MissingKeyError):
        check(tmp_path / "a.h5", "w")


def test_empty_arrays(tmp_path: Path) -> None:
    for name, shape in (("a", (0, 3)), ("b", (4, 0)), ("c", (0,))):
        np.save(tmp_path / f"{name}.npy", np.zeros(shape))
        assert check(tmp_path / f"{name}.npy", write_manifest=True).healthy()
        assert check(tmp_path / f"{name}.npy", manifest=True).healthy()
        assert ooc.open(tmp_path / f"{name}.npy", verify=True).shape == shape


def test_files_of_others(tmp_path: Path) -> None:
    """Write as netCDF4 does: dimension scales, packed numbers, fill value, unlimited axis."""
    netcdf4 = pytest.importorskip("netCDF4")
    with netcdf4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("time", None)
        file.createDimension("x", 40)
        time = file.createVariable("time", "f8", ("time",))
        packed = file.createVariable("t", "i2", ("time", "x"), zlib=True, fill_value=-1)
        packed.scale_factor = 0.1
        time[:] = np.arange(60)
        packed[:] = np.arange(2400).reshape(60, 40) / 10
    health = check(tmp_path / "a.nc", write_manifest=True)
    assert {one.key for one in health.datasets} == {"/time", "/t"}
    assert not {one.kind for one in health.findings} & {"damaged", "truncated", "unreadable"}
    assert check(tmp_path / "a.nc", manifest=True).findings == health.findings


def test_a_manifest_of_one_dataset_does_not_speak_for_the_others(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["u"] = np.ones((10, 3))
        file["v"] = np.full((4, 3), np.nan)
        file["note"] = "text"
    assert check(path, "/u", write_manifest=True).healthy()
    health = check(path, manifest=True)
    assert [one.key for one in health.datasets] == ["/u", "/v"]
    assert [(one.kind, one.key) for one in health.findings] == [
        ("unchecked", "/note"),
        ("nan", "/v"),
        ("unchecked", "/v"),
    ]
    assert check(path, "/u", manifest=True).healthy()


def test_rows_along_one_axis(tmp_path: Path) -> None:
    values = ROWS.copy()
    values[7, 1, 30] = np.nan
    np.save(tmp_path / "a.npy", values)
    zarr.create_array(tmp_path / "a.zarr", data=values, chunks=(6, 1, 7))
    write_hdf5(tmp_path / "a.h5", values, chunks=(6, 1, 7), compression="gzip")
    for name in ("a.npy", "a.zarr", "a.h5"):
        assert [one.rows for one in check(Opening.of(tmp_path / name, axis=2)).findings] == [
            (range(30, 31),)
        ]
        (nan,) = check(Opening.of(tmp_path / name, axis=(1, 0))).findings
        assert nan.rows == (range(1, 2),)


def test_single_numbers_without_a_row_axis(tmp_path: Path) -> None:
    values = {"loss": np.float64(np.nan), "steps": np.int64(7), "u": np.full(3, np.inf)}
    np.save(tmp_path / "a.npy", values["loss"])
    np.savez(tmp_path / "a.npz", **values)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.update(values)
    group = zarr.create_group(tmp_path / "a.zarr")
    for name, array in values.items():
        group.create_array(name, data=np.asarray(array))
    for name in ("a.npz", "a.h5", "a.zarr"):
        health = check(Opening.of(tmp_path / name, axis=None))
        shapes = {str(one.key).strip("/"): one.shape for one in health.datasets}
        assert shapes == {"loss": (1,), "steps": (1,), "u": (3,)}
        findings = {str(one.key).strip("/"): (one.kind, *one.rows) for one in health.findings}
        assert findings == {"loss": ("nan", range(1)), "u": ("inf", range(3))}
        assert check(Opening.of(tmp_path / name, "steps", axis=None)).healthy()
    group.create_array("absent", shape=(), dtype="f4")
    group.create_array("cut", data=np.float64(3), compressors=None)
    (tmp_path / "a.zarr/cut/c").write_bytes(b"1234")
    findings = {
        str(one.key): one.kind for one in check(Opening.of(tmp_path / "a.zarr", axis=None)).findings
    }
    assert findings == {"absent": "unwritten", "cut": "damaged", "loss": "nan", "u": "inf"}
    assert found(check(Opening.of([tmp_path / "a.npy"], axis=None))) == {"nan": [0]}
    with (tmp_path / "a.npy").open("r+b") as file:
        file.truncate(130)
    (cut,) = check(Opening.of(tmp_path / "a.npy", axis=None)).findings
    assert (cut.kind, cut.row_count) == ("truncated", 0)


def test_part_of_an_array_by_the_positions_in_it(tmp_path: Path) -> None:
    values = ROWS.copy()
    values[[7, 30, 31, 50], 1, 30] = np.nan
    write_hdf5(tmp_path / "a.h5", values, chunks=(6, 3, 40), compression="gzip")
    chunk = chunks_of(tmp_path / "a.h5", "u")[4]
    spoil(tmp_path / "a.h5", chunk.byte_offset, 20)
    view = ooc.open(tmp_path / "a.h5")
    train, test = view.split(0.5, 0.5)
    assert found(check(train)) == {"damaged": runs(range(24, 30)), "nan": [7]}
    assert found(check(test)) == {"nan": [0, 1, 20]}
    assert found(check(view[::-1][:40])) == {"damaged": runs(range(30, 36)), "nan": [9, 28, 29]}
    assert found(check(view[:, :1])) == {"damaged": runs(range(24, 30))}
    assert found(check(ooc.open(values, axis=(0, 1)))) == {"nan": [22, 91, 94, 151]}
    said = " ".join(str(check(train)).split())
    assert "a.h5 /u: 30 rows of (3, 40) float32" in said
    with pytest.raises(ArgumentError, match="`manifest` must be left out"):
        check(train, manifest=True)
    with pytest.raises(ArgumentError, match="must be a path, or a View"):
        check(view.windows(2))


def test_only_files_and_views_are_checked() -> None:
    with pytest.raises(ArgumentError, match="path of a file"):
        check(np.zeros(3))
    with pytest.raises(ArgumentError, match="`missing` must be left out"):
        check(Opening.of("a.npy", missing="fill"))
    for name, value in (("decode", True), ("field", "u")):  # or it would be of other numbers
        with pytest.raises(ArgumentError, match=f"`{name}` must be left out"):
            check(Opening.of("a.npy", **{name: value}), write_manifest=True)


def test_rows_never_written_without_a_fill_value(tmp_path: Path) -> None:
    """Test an undefined fill value: ``H5Pset_fill_value(…, NULL)``, which h5py does not offer."""
    maps = Path("/proc/self/maps")
    words = maps.read_text().split() if maps.exists() else []
    library = next((ctypes.CDLL(word) for word in words if "h5py.libs/libhdf5-" in word), None)
    if library is None:
        pytest.skip("h5py has not brought HDF5 as a library of its own")
    kind, plist = h5py.h5t.NATIVE_INT32, h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk((4,))
    assert library.H5Pset_fill_value(*map(ctypes.c_int64, (plist.id, kind.id)), None) == 0
    with h5py.File(tmp_path / "a.h5", "w") as file:
        made = h5py.h5d.create(file.id, b"u", kind, h5py.h5s.create_simple((8,)), plist)
        h5py.Dataset(made)[4:] = 1
    assert "4 rows: 0-3" in str(ooc.check(tmp_path / "a.h5"))


def test_fields_and_small_floats_that_are_not_finite(tmp_path: Path) -> None:
    rows = np.zeros(40, [("at", "f4", (3,)), ("inner", [("p", "f8"), ("n", "i4")]), ("id", "i8")])
    rows["at"][[3, 9], 1] = np.nan
    rows["inner"]["p"][9] = np.inf
    np.save(tmp_path / "a.npy", rows)
    write_hdf5(tmp_path / "a.h5", rows)
    for name, key in (("a.npy", None), ("a.h5", "/u")):
        health = check(tmp_path / name)
        assert found(health, key) == {"nan": [3, 9], "inf": [9]}
        assert [one.values for one in health.findings] == [2, 1]
        assert found(check(Opening.of(tmp_path / name, field="inner")), key) == {"inf": [9]}
    os.truncate(tmp_path / "a.npy", os.path.getsize(tmp_path / "a.npy") - 1)
    assert found(check(Opening.of(tmp_path / "a.npy", field="inner"))) == {
        "truncated": [39],
        "inf": [9],
    }
    small = np.ones((20, 4), ml_dtypes.bfloat16)
    small[5, 2] = np.nan
    np.save(tmp_path / "small.npy", small)
    assert found(check(Opening.of(tmp_path / "small.npy", dtype="bfloat16"))) == {"nan": [5]}


def test_packed_numbers_as_they_are_and_decoded(tmp_path: Path) -> None:
    values = np.arange(60, dtype="i2").reshape(20, 3)
    attributes = {"scale_factor": 0.5, "_FillValue": np.int16(13)}
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("u", data=values, chunks=(4, 3)).attrs.update(attributes)
    array = zarr.create_array(tmp_path / "a.zarr", data=values, chunks=(4, 3), zarr_format=2)
    array.attrs.update({**attributes, "_FillValue": 13})
    for name, key in (("a.h5", "/u"), ("a.zarr", None)):
        assert found(check(tmp_path / name), key) == {}
        assert found(check(Opening.of(tmp_path / name, decode=True)), key) == {"nan": [4]}


def test_rows_that_a_view_compares_as_it_reads_them(tmp_path: Path) -> None:
    values = np.random.default_rng(0).random((20, 100))
    np.save(tmp_path / "a.npy", values)
    check(tmp_path / "a.npy", write_manifest=True)
    values[[4, 11]] += 1
    np.save(tmp_path / "a.npy", values)
    assert found(check(ooc.open(tmp_path / "a.npy", verify=True))) == {"changed": [4, 11]}
