"""Test that a manifest detects every flipped bit that changes a number, and names its rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import tensorstore
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import oocdata as ooc
from oocdata.errors import OocdataError
from oocdata.tools.check import Health, check

ROWS = np.random.default_rng(0).integers(0, 99, (24, 2, 40)).astype("f4")


def npy(path: Path) -> None:
    np.save(path, ROWS)


def npz(path: Path) -> None:
    with open(path, "wb") as file:
        np.savez(file, u=ROWS, v=np.arange(40))


def hdf5(path: Path) -> None:
    """Write a file with contiguous and compressed data, text, attributes and unused space."""
    with h5py.File(path, "w", userblock_size=512) as file:
        file["flow/plain"] = ROWS
        file["flow/plain"].attrs["unit"] = "m/s"
        file["gone"] = np.arange(100)
        options: dict[str, Any] = {"compression": "gzip", "shuffle": True}
        file.create_dataset("packed", data=ROWS, chunks=(5, 2, 40), **options)
        file["note"] = "text"
        del file["gone"]


def zarr_2(path: Path) -> None:
    zarr.create_array(path, data=ROWS, chunks=(5, 2, 40), zarr_format=2)


def zarr_plain(path: Path) -> None:
    zarr.create_array(path, data=ROWS, chunks=(5, 1, 40), compressors=None)


def zarr_sharded(path: Path) -> None:
    codecs = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "zstd"}]
    shard = {"chunk_shape": [4, 2, 40], "codecs": codecs}
    array = tensorstore.open(
        {
            "driver": "zarr3",
            "kvstore": {"driver": "file", "path": str(path)},
            "metadata": {
                "shape": list(ROWS.shape),
                "data_type": "float32",
                "chunk_grid": {
                    "name": "regular",
                    "configuration": {"chunk_shape": [8, 2, 40]},
                },
                "codecs": [{"name": "sharding_indexed", "configuration": shard}],
            },
        },
        create=True,
    ).result()
    array.write(ROWS).result()


WRITERS = {
    "a.npy": npy, "a.npz": npz, "a.h5": hdf5, "v2.zarr": zarr_2, "plain.zarr": zarr_plain,
    "sharded.zarr": zarr_sharded,
}  # fmt: skip


def written(folder: Path, name: str) -> Path:
    path = folder / name
    WRITERS[name](path)
    health = check(path, write_manifest=True)
    assert health.healthy()
    assert health.written == (f"{path}.manifest",)
    return path


def files_of(path: Path) -> list[tuple[str, int]]:
    """Return name and length of every file, including hidden files."""
    if path.is_file():
        return [("", path.stat().st_size)]
    files = (one for one in path.rglob("*") if one.is_file())
    return sorted((str(one.relative_to(path)), one.stat().st_size) for one in files)


def flip(path: Path, files: list[tuple[str, int]], bit: int) -> Callable[[], None]:
    """Flip one bit in the bytes of files; return a function that flips it back."""
    byte, place = divmod(bit, 8)
    starts = np.cumsum([0, *(nbytes for _, nbytes in files)])
    number = int(np.searchsorted(starts, byte, side="right")) - 1
    byte -= int(starts[number])
    file = path / files[number][0] if files[number][0] else path

    def change() -> None:
        with file.open("r+b") as opened:
            opened.seek(byte)
            old = opened.read(1)[0]
            opened.seek(byte)
            opened.write(bytes([old ^ 1 << place]))

    change()
    return change


def named(health: Health, key: str | None) -> set[int]:
    """Return the rows of a dataset that findings name; all rows if they name the dataset only."""
    rows: set[int] = set()
    for finding in health.findings:
        if finding.key == key or (finding.kind == "unreadable" and finding.key is None):
            rows |= {row for part in finding.rows for row in part} or set(range(1000))
    return rows


def rows_that_differ(path: Path) -> dict[str | None, set[int]]:
    """Return the rows that other libraries read differently, or can't read."""
    found: dict[str | None, set[int]] = {}
    try:
        if path.suffix == ".npy":
            with open(path, "rb") as file:
                arrays = {None: np.load(file)}
        elif path.suffix == ".h5":
            with h5py.File(path) as file:
                arrays = {f"/{key}": file[key][()] for key in ("flow/plain", "packed")}
        elif path.suffix == ".zarr":
            arrays = {None: np.asarray(zarr.open_array(str(path), mode="r")[...])}
        else:
            return {}
    except Exception:  # whatever a library makes of a damaged file
        return {}
    for key, array in arrays.items():
        if array.shape == ROWS.shape and array.dtype == ROWS.dtype:
            differ = (array.view("u4") != ROWS.view("u4")).any(axis=(1, 2))
            found[key] = set(np.flatnonzero(differ).tolist())
    return found


def assert_noticed(path: Path) -> None:
    try:
        health = check(path, manifest=True)
    except OocdataError:  # it is of no known format any more
        return
    for key, rows in rows_that_differ(path).items():
        # HDF5 finds a chunk by its keys in a tree, of which one may be damaged and the chunk whole:
        # h5py then reads the fill value, and we list the chunks.
        left = sorted(rows - named(health, key))
        assert not left or np.array_equal(ooc.open(path, key).take(left), ROWS[left]), key
        assert set(left) == rows or not health.healthy()


@pytest.mark.parametrize("name", WRITERS)
@settings(
    max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(data=st.data())
def test_any_bit(tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject) -> None:
    path = _kept(tmp_path_factory, name)
    files = files_of(path)
    bit = data.draw(st.integers(0, 8 * sum(nbytes for _, nbytes in files) - 1))
    back = flip(path, files, bit)
    try:
        assert_noticed(path)
    finally:
        back()
    assert check(path, manifest=True).healthy()


_paths: dict[str, Path] = {}


def _kept(factory: pytest.TempPathFactory, name: str) -> Path:
    if name not in _paths:
        _paths[name] = written(factory.mktemp("flips"), name)
    return _paths[name]
