"""Read the same bytes in several threads at the same time: each gets all of them."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from numpy.testing import assert_array_equal
from servers.ranges import RangeServer
from stored_layouts import hdf5_compact

import oocdata as ooc
from oocdata.engines.cache import cache as chunk_cache
from oocdata.engines.prefetch import Fetch
from oocdata.stores.address import Address
from oocdata.stores.answers import Answer
from oocdata.stores.files import StoredFile
from oocdata.stores.objects import StoredObjects

EACH, APART = 500, 70_000  # too far apart to be fetched as one range


def objects_of(server: RangeServer) -> StoredObjects:
    """Return objects whose versions are not compared."""

    def address_of(number: int) -> Address:
        return Address.of(server.url) / str(number)

    return StoredObjects(address_of, lambda number: 0, lambda number, version: None, 100)


def test_threads_that_read_the_same_runs(tmp_path: Path) -> None:
    """One reader takes and drops an answer that the other still needs."""
    data = np.random.default_rng(0).integers(0, 256, 60 * APART, np.uint8)
    (tmp_path / "a.bin").write_bytes(data.tobytes())
    starts = np.arange(0, len(data), APART)
    wanted = np.stack([data[start : start + EACH] for start in starts])
    wrong: list[int] = []

    def read(file: StoredFile, turn: threading.Barrier, order: Any) -> None:
        out = np.zeros((len(starts), EACH), np.uint8)
        turn.wait()
        file.read_runs(starts[order], out.ctypes.data + order * EACH, EACH, out)
        wrong.append(int((out != wanted).any(axis=1).sum()))

    with RangeServer(tmp_path) as server:
        file = StoredFile.at(f"{server.url}/a.bin")
        for number in range(30):
            turn = threading.Barrier(3)
            orders = [np.random.default_rng((number, who)).permutation(60) for who in range(3)]
            threads = [threading.Thread(target=read, args=(file, turn, one)) for one in orders]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    assert wrong == [0] * 90
    assert file.requests == []


def test_an_hdf5_file_that_was_opened_twice_is_read_when_one_is_gone(tmp_path: Path) -> None:
    layout = hdf5_compact(tmp_path, "a")  # through HDF5 itself
    with RangeServer(tmp_path) as server:
        first = ooc.open(f"{server.url}/a.h5", "u")
        assert_array_equal(first.take([3, 7]), layout.array[[3, 7]])
        ooc.open(f"{server.url}/a.h5", "u")
        gc.collect()
        chunk_cache.forget()
        assert_array_equal(first.take([2, 5]), layout.array[[2, 5]])


@pytest.mark.parametrize("shards", [None, (20, 30)])
def test_a_zarr_array_that_was_opened_twice_is_fetched_once(tmp_path: Path, shards: Any) -> None:
    rows = np.random.default_rng(1).integers(0, 500, (40, 30))
    array = zarr.create_array(tmp_path / "a", data=rows, chunks=(10, 30), shards=shards)
    with RangeServer(tmp_path) as server:
        first, second = (ooc.open(f"{server.url}/a") for _ in range(2))
        server.reset()
        for x, y in ooc.zip(first, second).batches(10, shuffle=False):
            assert_array_equal(x, y)
        asked = [(one.path, one.start) for one in server.log]
        chunks = Counter(one for one in asked if not one[0].endswith("zarr.json"))
        assert set(chunks.values()) == {1}

        array[10:20] = -rows[10:20]  # the metadata stay
        assert_array_equal(ooc.open(f"{server.url}/a")[10:20], -rows[10:20])
        assert_array_equal(second[10:20], rows[10:20])  # cached


def test_objects_that_two_batches_need(tmp_path: Path) -> None:
    """The second reader does not request what the first took and decodes; it fetches the rest."""
    (tmp_path / "0").write_bytes(b"zero")
    with RangeServer(tmp_path) as server:
        objects = objects_of(server)
        with objects.prefetch(objects.fetches([0, 1])):
            assert list(objects.take([0, 1])) == [b"zero", None]
            with objects.prefetch(objects.fetches([1, 0])):
                assert server.requests == 2
                assert list(objects.take([0, 0])) == [b"zero", b"zero"]
                came = server.requests
                assert came <= 3  # 2 where it was not yet let go
            with objects.prefetch(objects.fetches([0])):
                assert server.requests == came
        with objects.prefetch(objects.fetches([0])):
            assert list(objects.take([0])) == [b"zero"]
        assert server.requests == came + 1


def test_an_object_is_delivered_before_the_next_one_arrives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So it is decoded while others are in flight."""
    was_taken = threading.Event()

    async def fetch(start: int, stop: int, folder: object) -> Answer:
        is_in_time = not start or await asyncio.to_thread(was_taken.wait, 10)
        return Answer(b"%d" % start if is_in_time else b"late", 1, "", 0)

    objects = StoredObjects(lambda _: Address("", ""), lambda _: 0, lambda *_: None, 100)
    monkeypatch.setattr(objects, "_fetch", fetch)
    for ahead in ([], [0, 1]):
        was_taken.clear()
        with objects.prefetch(objects.fetches(ahead)), closing(objects.take([0, 1])) as taken:
            assert next(taken) == b"0"
            was_taken.set()
            assert next(taken) == b"1"


@pytest.mark.parametrize("kind", ["file", "objects"])
def test_a_pass_that_the_collector_closes(tmp_path: Path, kind: str) -> None:
    """A thread, this or another one, makes other requests and holds the lock meanwhile."""
    (tmp_path / "0").write_bytes(b"zero")
    with RangeServer(tmp_path) as server:
        some = np.array([0]), np.array([2])
        if kind == "file":
            file = StoredFile.at(f"{server.url}/0")
            asking, lock = file.prefetch([Fetch(file, some, cached=True)]), file.lock
        else:
            objects = objects_of(server)
            asking, lock = objects.prefetch(objects.fetches([0])), objects.lock
        asking.__enter__()

        with lock:
            thread = threading.Thread(target=asking.__exit__, args=(None, None, None), daemon=True)
            thread.start()
            thread.join(30)
            assert not thread.is_alive()


def test_views_of_one_file_in_several_threads(tmp_path: Path) -> None:
    rows = np.random.default_rng(1).integers(0, 500, (40, 3000))
    np.save(tmp_path / "a.npy", rows)
    wrong: list[int] = []

    def read(view: ooc.View) -> None:
        wrong.extend(int((np.asarray(view) != rows).sum()) for _ in range(10))

    with RangeServer(tmp_path) as server:
        view = ooc.open(f"{server.url}/a.npy")
        threads = [threading.Thread(target=read, args=(view,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert_array_equal(np.asarray(view), rows)
    assert wrong == [0] * 30
