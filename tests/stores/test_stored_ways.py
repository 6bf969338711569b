"""Send sources at URLs to other processes, and open several URLs as one array."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr
from numpy.testing import assert_array_equal
from servers.ranges import RangeServer
from stored_layouts import KINDS as ALL_KINDS
from stored_layouts import numbers, write_kinds

import oocdata as ooc
from oocdata.describe import as_json, fingerprint, from_json
from oocdata.engines.source import Source
from oocdata.errors import ArgumentError, MissingFileError, SourceError
from oocdata.formats.npy import open_npy
from oocdata.formats.opening import open_source
from oocdata.testing import SourceConformance

ROWS = numbers((200, 4, 6))
WITHOUT_ZEROS = ("<f4", "<f8", "|u1", "<i2", "<c8", "<u8")
"""A chunk of False alone is left out by Zarr's writers."""

KINDS = ("npy", "gzip", "zarr")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RangeServer]:
    folder = tmp_path_factory.mktemp("served")
    write_kinds(folder, ROWS, each=8, shard=40)
    for number, part in enumerate(np.array_split(ROWS, 3)):
        np.save(folder / f"part {number}.npy", part)
    with RangeServer(folder) as made:
        yield made


def assert_reads(
    loader: ooc.Loader, rows: np.ndarray, number: int, epoch: int = 0, start: int = 0
) -> None:
    """Compare the batches of an epoch from a step on, and their number."""
    batches = list(loader.epoch(epoch, start=start))
    assert len(batches) == number
    for step, batch in enumerate(batches, start):
        assert_array_equal(batch, rows[loader.positions(step, epoch)])


def opened(server: RangeServer, kind: str) -> ooc.View:
    name, key = ALL_KINDS[kind]
    return ooc.open(f"{server.url}/{name}", key)


class Served(SourceConformance):
    """Sources that read through a server, with a folder of the test's own."""

    @pytest.fixture(autouse=True)
    def served(self, tmp_path: Path) -> Iterator[None]:
        with RangeServer(tmp_path) as self.server:
            yield


class TestNpy(Served):
    def make(self, folder: Path, array: np.ndarray) -> Source:
        np.save(folder / "a.npy", array)
        return open_npy(f"{self.server.url}/a.npy")


class TestHdf5(Served):
    def make(self, folder: Path, array: np.ndarray) -> Source:
        chunks = tuple(max(1, (length + 1) // 2) for length in array.shape)
        with h5py.File(folder / "a.h5", "w") as file:
            file.create_dataset("u", data=array, chunks=chunks, compression="gzip", shuffle=True)
        return open_source(f"{self.server.url}/a.h5")


class TestShards(Served):
    dtypes = WITHOUT_ZEROS

    def make(self, folder: Path, array: np.ndarray) -> Source:
        chunks = tuple(max(1, (length + 1) // 2) for length in array.shape)
        shards = (2 * chunks[0], *chunks[1:])
        zarr.create_array(folder / "a.zarr", data=array, chunks=chunks, shards=shards)
        return open_source(f"{self.server.url}/a.zarr")


# ---- several URLs ----


def test_files_end_to_end(server: RangeServer) -> None:
    urls = [f"{server.url}/part%20{number}.npy" for number in range(3)]
    assert_reads(ooc.open(urls).batches(16, shuffle=True), ROWS, 13)


def test_a_file_of_this_machine_and_one_elsewhere(server: RangeServer) -> None:
    view = ooc.open([server.folder / "a.npy", f"{server.url}/a.npy"])
    assert_reads(view.batches(16, shuffle=True), np.concatenate([ROWS, ROWS]), 25)


def test_http_can_not_list(server: RangeServer) -> None:
    with pytest.raises(SourceError, match="list"):
        ooc.open(f"{server.url}/part*.npy")


def test_a_part_that_is_not_there(server: RangeServer) -> None:
    with pytest.raises(MissingFileError, match=r"gone\.npy"):
        ooc.open([f"{server.url}/a.npy", f"{server.url}/gone.npy"])


def test_external_files_are_not_looked_for(server: RangeServer) -> None:
    with pytest.raises(ArgumentError, match="external"):
        ooc.open(f"{server.url}/a.h5", "gzip", external=True)


# ---- threads, processes and descriptions ----


def together(server: RangeServer, **options: int) -> ooc.Loader:
    """Return a loader of all kinds: processes and pipelines take longer to start than to read."""
    views = {kind: opened(server, kind) for kind in KINDS}
    return ooc.zip(views).batches(16, shuffle=True, **options)


def test_workers(server: RangeServer) -> None:
    loader = together(server, workers=2)
    batches = list(loader.epoch(0))
    assert len(batches) == 13
    for step, batch in enumerate(batches):
        for kind in KINDS:
            assert_array_equal(batch[kind], ROWS[loader.positions(step)])


@pytest.mark.parametrize("kind", KINDS)
def test_pickles(server: RangeServer, kind: str) -> None:
    loader = opened(server, kind).batches(16, shuffle=True)
    copy = pickle.loads(pickle.dumps(loader))
    assert_array_equal(copy.batch(3), ROWS[loader.positions(3)])


READ = """
import json, sys
import numpy as np
from oocdata.describe import from_json
loaders = map(from_json, json.loads(sys.stdin.read()))
np.save(sys.stdout.buffer, [np.concatenate(list(loader.epoch(1))) for loader in loaders])
"""


def test_described_to_another_process(server: RangeServer) -> None:
    loaders = [opened(server, kind)[10:].batches(16, shuffle=True) for kind in KINDS]
    texts = [as_json(loader) for loader in loaders]
    for text, loader in zip(texts, loaders, strict=True):
        assert fingerprint(from_json(text)) == fingerprint(loader)
    command = [sys.executable, "-c", READ]
    asked = json.dumps(texts).encode()
    done = subprocess.run(command, input=asked, capture_output=True, check=True)
    for loader, found in zip(loaders, np.load(BytesIO(done.stdout)), strict=True):
        positions = [loader.positions(step, 1) for step in range(len(loader))]
        assert_array_equal(found, ROWS[10:][np.concatenate(positions)])


@pytest.mark.parametrize("kind", KINDS)
def test_an_epoch_goes_on_at_a_step(server: RangeServer, kind: str) -> None:
    assert_reads(opened(server, kind).batches(16, shuffle=True), ROWS, 8, epoch=2, start=5)


@pytest.mark.parametrize("kind", KINDS)
def test_ranks(server: RangeServer, kind: str) -> None:
    loader = opened(server, kind).batches(16, shuffle=True)
    found = []
    for rank in range(2):
        own = loader.shard(2, rank)
        assert_reads(own, ROWS, 13)
        found += np.concatenate([own.positions(step) for step in range(13)]).tolist()
    assert sorted(found) == list(range(200))


def test_to_tensorflow(server: RangeServer) -> None:
    loader = together(server)
    batches = list(loader.to_tf())
    assert len(batches) == 13
    for step, batch in enumerate(batches):
        for kind in KINDS:
            assert_array_equal(batch[kind].numpy(), ROWS[loader.positions(step)])


@pytest.mark.parametrize("suffix", ["npy", "h5"])
def test_an_object_that_is_opened_again_is_read_anew(tmp_path: Path, suffix: str) -> None:
    """The server tells versions by their time alone, and a second one is of the same second."""
    path = tmp_path / f"a.{suffix}"

    def write(dtype: str) -> np.ndarray:
        rows = ROWS.astype(dtype)
        if suffix == "npy":
            np.save(path, rows)
        else:
            with h5py.File(path, "w") as file:
                file.create_dataset("x", data=rows, chunks=(8, 4, 6))
        os.utime(path, (1e9, 1e9))
        return rows

    with RangeServer(tmp_path, etag=False) as server:
        for dtype in ("<f4", "<i4", "<u4"):
            rows = write(dtype)
            view = ooc.open(f"{server.url}/a.{suffix}")
            assert view.dtype == rows.dtype
            assert_array_equal(np.asarray(view), rows)


def test_parts_of_unlike_shapes(tmp_path: Path) -> None:
    """Requests ahead are for each part as it is stored."""
    parts = [numbers((50, 4, 6)), numbers((40, 7, 6)), numbers((30, 4, 6))]
    with RangeServer(tmp_path) as server:
        for number, part in enumerate(parts):
            np.save(tmp_path / f"{number}.npy", part)
        urls = [f"{server.url}/{number}.npy" for number in range(3)]
        rows = [row for part in parts for row in part]
        loader = ooc.open(urls).batches(16, shuffle=True, seed=3)
        for step, batch in enumerate(loader):
            for position, row in zip(loader.positions(step), batch, strict=True):
                assert_array_equal(row, rows[position])
        filled = np.concatenate(
            [np.pad(part, ((0, 0), (0, 7 - part.shape[1]), (0, 0))) for part in parts]
        )
        view = ooc.open(urls, pad=0)
        assert_reads(view.batches(16, shuffle=True, seed=3), filled, 8)
        assert_reads(view[:, 3:, ::2].batches(16, shuffle=True, seed=3), filled[:, 3:, ::2], 8)
