"""Objects change between two epochs: the right bytes are read, or an error names the object."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr
from numpy.testing import assert_array_equal
from servers.faults import Refuse
from servers.proxy import FaultProxy
from servers.ranges import RangeServer

import oocdata as ooc
from oocdata import memory
from oocdata.engines.cache import cache as chunk_cache
from oocdata.errors import OocdataError, SourceError
from oocdata.stores import address as addresses
from oocdata.stores import blocks
from oocdata.stores import link as links

ROWS = np.random.default_rng(0).integers(0, 256, (256, 4096), np.uint8)
"""4 KiB a row, 1 MiB in all, which does not compress."""

FIELDS = np.zeros(256, [("rest", "u1", 96), ("pixels", "u1", 4000)])
FIELDS["pixels"] = ROWS[:, :4000]

ENDS = np.cumsum(np.random.default_rng(1).multinomial(256 * 4096, np.full(256, 1 / 256)))


def write(folder: Path, rows: np.ndarray) -> None:
    """Write all layouts."""
    np.save(folder / "rows.npy", rows)
    np.save(folder / "small.npy", rows.reshape(-1, 512))
    np.save(folder / "values.npy", rows.reshape(-1))
    np.save(folder / "far.npy", np.asfortranarray(rows))
    np.savez(folder / "members.npz", rows=rows, others=rows[:1])
    fields = FIELDS.copy()
    fields["pixels"] = rows[:, :4000]
    np.save(folder / "fields.npy", fields)
    with h5py.File(folder / "a.h5", "w") as file:
        file["contiguous"] = rows
        file.create_dataset("gzip", data=rows, chunks=(8, 4096), compression="gzip")
        file["fields"] = fields
        file.create_dataset("chunked_fields", data=fields, chunks=(8,), compression="gzip")
        layout = h5py.VirtualLayout(rows.shape, rows.dtype)
        for name, half in [("gzip", slice(0, 128)), ("contiguous", slice(128, 256))]:
            layout[half] = h5py.VirtualSource(".", name, rows.shape)[half]
        file.create_virtual_dataset("virtual", layout)
        compact = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        compact.set_layout(h5py.h5d.COMPACT)
        space, kind = h5py.h5s.create_simple((256, 64)), h5py.h5t.NATIVE_UINT8
        made = h5py.h5d.create(file.id, b"compact", kind, space, compact)
        made.write(h5py.h5s.ALL, h5py.h5s.ALL, np.ascontiguousarray(rows[:, :64]))
    zarr.create_array(folder / "a.zarr", data=rows, chunks=(8, 4096))
    zarr.create_array(folder / "s.zarr", data=rows, chunks=(8, 4096), shards=(64, 4096))


THOROUGH = pytest.mark.thorough

Way = tuple[Callable[[str], ooc.Dataset], np.ndarray]


def ragged(url: str) -> ooc.Dataset:
    offsets = np.concatenate([[0], ENDS])
    return ooc.ragged(ooc.open(f"{url}/values.npy"), offsets).pad()


def padded() -> np.ndarray:
    starts = np.concatenate([[0], ENDS[:-1]])
    found = np.zeros((256, int((ENDS - starts).max())), np.uint8)
    for row, (start, stop) in enumerate(zip(starts, ENDS, strict=True)):
        found[row, : stop - start] = ROWS.reshape(-1)[start:stop]
    return found


WAYS: dict[str, Way] = {
    "npy": (lambda u: ooc.open(f"{u}/rows.npy"), ROWS),
    "small": (lambda u: ooc.open(f"{u}/small.npy"), ROWS.reshape(-1, 512)),
    "far": (lambda u: ooc.open(f"{u}/far.npy"), ROWS),
    "member": (lambda u: ooc.open(f"{u}/members.npz", "rows"), ROWS),
    "fields": (lambda u: ooc.open(f"{u}/fields.npy")["pixels"], ROWS[:, :4000]),
    "contiguous": (lambda u: ooc.open(f"{u}/a.h5", "contiguous"), ROWS),
    "gzip": (lambda u: ooc.open(f"{u}/a.h5", "gzip"), ROWS),
    "HDF5 fields": (lambda u: ooc.open(f"{u}/a.h5", "fields")["pixels"], ROWS[:, :4000]),
    "chunked fields": (
        lambda u: ooc.open(f"{u}/a.h5", "chunked_fields")["pixels"],
        ROWS[:, :4000],
    ),
    "virtual": (lambda u: ooc.open(f"{u}/a.h5", "virtual"), ROWS),
    "compact": (lambda u: ooc.open(f"{u}/a.h5", "compact"), ROWS[:, :64]),
    "zarr": (lambda u: ooc.open(f"{u}/a.zarr"), ROWS),
    "shards": (lambda u: ooc.open(f"{u}/s.zarr"), ROWS),
    "ragged": (ragged, padded()),
    "mapped": (lambda u: ooc.open(f"{u}/a.zarr").map(np.invert), ~ROWS),
}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a folder of all layouts, and one of the same files with other numbers."""
    first, anew = (tmp_path_factory.mktemp(name) for name in ("first", "anew"))
    write(first, ROWS)
    write(anew, 255 - ROWS)
    for one in anew.rglob("*"):
        os.utime(one, (2_000_000_000, 2_000_000_000))
    return first, anew


@pytest.fixture
def proxy(
    tmp_path: Path, written: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> Iterator[FaultProxy]:
    monkeypatch.setattr(addresses, "_FIRST_PAUSE", 0.001)
    monkeypatch.setattr(addresses, "_LONGEST_PAUSE", 0.002)
    monkeypatch.setattr(links, "_PAUSE", 0.001)
    chunk_cache.forget()
    blocks.forget()
    shutil.copytree(written[0], tmp_path, dirs_exist_ok=True)
    with RangeServer(tmp_path) as server, FaultProxy(server.url) as made:
        yield made


def happens(how: str, folder: Path, anew: Path, proxy: FaultProxy) -> None:
    if how == "written anew":
        shutil.copytree(anew, folder, dirs_exist_ok=True)
    elif how == "deleted":
        for one in folder.rglob("*"):
            if one.is_file():
                one.unlink()
    else:
        status = int(how)
        proxy.plan = lambda number, record: Refuse(status)


@pytest.mark.parametrize(
    "how",
    ["written anew", "503", *(pytest.param(one, marks=THOROUGH) for one in ("deleted", "403"))],
)
@pytest.mark.parametrize("way", WAYS)
def test_between_two_epochs(
    proxy: FaultProxy,
    tmp_path: Path,
    written: tuple[Path, Path],
    way: str,
    how: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if way != "member":  # which must fit
        monkeypatch.setattr(memory, "_memory", 1 << 19)
    made, rows = WAYS[way]
    loader = made(proxy.url).batches(64, shuffle="global")
    for step, batch in enumerate(loader.epoch(0)):
        assert_array_equal(batch, rows[loader.positions(step)])
    if way != "compact":
        assert proxy.requests
    happens(how, tmp_path, written[1], proxy)
    proxy.reset()
    error: OocdataError | None = None
    try:
        for step, batch in enumerate(loader.epoch(1)):
            assert_array_equal(batch, rows[loader.positions(step, 1)])
    except OocdataError as raised:
        error = raised
    if error is None:
        assert not proxy.requests  # all of it is in memory
        return
    assert isinstance(error, SourceError)
    assert (error.path or "").startswith(proxy.url), error
    assert error.rows is not None, error
    assert len(error.rows)
