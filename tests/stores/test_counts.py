"""Count requests and bytes at the server: each byte once, never more at a time than the bound."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr
from anndata_files import random_csr, write_file
from conftest import our_threads
from numpy.testing import assert_array_equal
from servers.ranges import RangeServer
from stored_layouts import KINDS, numbers, write_kinds

import oocdata as ooc
from oocdata import cost, memory
from oocdata.describe import fingerprint
from oocdata.engines.cache import cache as chunk_cache
from oocdata.engines.prefetch import cost_of, prefetched
from oocdata.stores import blocks
from oocdata.stores.files import StoredFile
from oocdata.stores.link import REQUESTS, Link, link

ROWS = numbers((512, 64, 64))
"""16 KiB a row, 8 MiB in all."""

SMALL = ROWS.reshape(8192, 16, 16)
"""1 KiB a row, so they are read in blocks that are cached."""

PLACES = ROWS.reshape(-1, 64)
"""What rows of unequal length hold: 256 bytes a place."""

OFFSETS = np.arange(0, len(PLACES) + 1, 64)
OFFSETS[1:-1] += np.random.default_rng(0).integers(-30, 30, len(OFFSETS) - 2)


def noise(seed: int) -> np.ndarray:
    """Return 2 MiB that don't compress, 32 KiB a row."""
    return np.random.default_rng(seed).integers(0, 256, (64, 1 << 15), np.uint8)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RangeServer]:
    folder = tmp_path_factory.mktemp("counted")
    write_kinds(folder, ROWS, each=8, shard=64)
    with h5py.File(folder / "a.h5", "a") as file:
        file.create_dataset("again", data=ROWS, chunks=(8, 64, 64), compression="gzip")
        file["small"] = SMALL
    np.save(folder / "small.npy", SMALL)
    np.save(folder / "places.npy", PLACES)
    np.save(folder / "offsets.npy", OFFSETS)
    np.save(folder / "longer.npy", ROWS[:64])
    np.save(folder / "shorter.npy", ROWS[:64, :48])
    with h5py.File(folder / "places.h5", "w") as file:
        file.create_dataset("places", data=PLACES, chunks=(512, 64), compression="gzip")
        file.create_dataset("cut", data=PLACES, chunks=(512, 32), compression="gzip")
    zarr.create_array(folder / "places.zarr", data=PLACES, chunks=(512, 64))
    np.save(folder / "far.npy", np.asfortranarray(ROWS[:128]))
    with h5py.File(folder / "cut.h5", "w") as file:  # unfiltered, and rows lie in several chunks
        file.create_dataset("small", data=SMALL, chunks=(128, 4, 8))
        file.create_dataset("rows", data=ROWS[:128], chunks=(16, 16, 32))
        for name, some in [("a", ROWS[:48]), ("b", ROWS[48:128])]:
            file.create_dataset(name, data=some, chunks=(16, 16, 32))
    zarr.open_group(folder / "group.zarr").create_array("a/x", data=ROWS[:16])
    with h5py.File(folder / "demos.h5", "w") as file:
        for number in range(30):  # their metadata lie between their data
            rows = ROWS[number : number + 32]
            file.create_dataset(f"demo_{number}/obs", data=rows, chunks=(1, 64, 64))
    with RangeServer(folder) as server:
        yield server


@pytest.fixture
def server(served: RangeServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[RangeServer]:
    # Or on a busy machine an answer that is on its way is taken for lost, and asked for again.
    monkeypatch.setattr("oocdata.stores.address._SILENCE", 600.0)
    # Which other tests may have received or not: over new connections fewer are sent at once.
    monkeypatch.setattr(link(), "_answers", REQUESTS)
    chunk_cache.forget()
    blocks.forget()
    served.reset()
    yield served
    served.release()
    for _ in range(200):
        gc.collect(1)
        if link().held == len(link()._requested) == served.at_once == 0:
            break
        threading.Event().wait(0.01)
    assert (link().held, link()._requested, served.at_once) == (0, {}, 0)


def opened(server: RangeServer, kind: str) -> ooc.View:
    name, key = KINDS[kind]
    return ooc.open(f"{server.url}/{name}", key)


def fetched(server: RangeServer) -> Counter[tuple[str, int | None, int | None]]:
    """Count what was answered, without the metadata of Zarr, which is compared again."""
    return Counter(
        (one.path, one.start, one.stop)
        for one in server.log
        if one.status < 400 and not is_metadata(one.path)
    )


def is_metadata(path: str) -> bool:
    """Return whether it is compared; see `tests/formats/test_zarr_rewritten.py` for how often."""
    return path.endswith("zarr.json")


def for_data(server: RangeServer) -> int:
    """Count requests without those that compare metadata, which `explain` does not count."""
    return sum(not is_metadata(one.path) for one in server.log)


def round_trips(server: RangeServer, work: Any) -> int:
    """Return how many rounds of requests work takes; a round is answered when no more come."""
    server.hold()
    done = threading.Event()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)
        finally:
            done.set()

    thread = threading.Thread(target=run)
    thread.start()
    rounds = 0
    while not done.is_set():
        came = -1
        while server.requests != came and not done.wait(0.1):
            came = server.requests
        if server.at_once and not done.is_set():
            rounds += 1
            server.release(server.at_once)
            done.wait(0.02)
    thread.join()
    server.release()
    if errors:
        raise errors[0]
    return rounds


TRIPS = {"npy": 5, "contiguous": 6, "gzip": 9, "zarr": 8, "shards": 8}


@pytest.mark.parametrize("kind", KINDS)
def test_round_trips_to_the_first_batch(server: RangeServer, kind: str) -> None:
    def work() -> None:
        loader = opened(server, kind).batches(32, shuffle=True)
        assert_array_equal(loader.batch(0), ROWS[loader.positions(0)])

    assert round_trips(server, work) <= TRIPS[kind]
    assert server.most_at_once <= REQUESTS


@pytest.mark.parametrize("kind", KINDS)
def test_a_fingerprint_asks_for_its_sample_at_once(server: RangeServer, kind: str) -> None:
    """`to_tf` takes it before the first batch, from sixteen places."""
    loader = opened(server, kind).batches(32, shuffle=True)
    loader.explain()  # fetches the table of chunks, and indices of shards
    server.reset()
    server.hold()
    with ThreadPoolExecutor(1) as threads:
        taken = threads.submit(fingerprint, loader)
        try:
            server.wait_for(8)  # neighbours are joined
        finally:
            server.release()
        assert taken.result()


@pytest.mark.parametrize(("name", "key"), [("group.zarr", "a/x"), ("places.zarr", None)])
def test_an_array_of_a_zarr_hierarchy_is_opened_in_one_round_trip(
    server: RangeServer, name: str, key: str | None
) -> None:
    """Its metadata is requested together with the files that mark a hierarchy."""
    assert round_trips(server, lambda: ooc.open(f"{server.url}/{name}", key)) == 1
    assert all(times == 1 for times in Counter(one.path for one in server.log).values())


def test_a_hierarchy_is_known_by_what_lies_in_it(server: RangeServer, tmp_path: Path) -> None:
    """Some servers redirect requests for the folder itself to a listing: that is not waited for."""

    class Listing(RangeServer):
        async def answer(self, request: Any, record: Any) -> Any:
            if request.target.endswith(".zarr"):
                await asyncio.to_thread(opened.wait, 60)
            return await super().answer(request, record)

    opened = threading.Event()
    with Listing(server.folder) as listing:
        try:
            assert ooc.open(f"{listing.url}/group.zarr", "a/x").shape == (16, 64, 64)
            assert not opened.is_set()
            assert listing.at_once == 1
        finally:
            opened.set()
        listing.wait_idle()


@pytest.mark.parametrize("parallel", [1, 2])
@pytest.mark.parametrize("kind", ["npy", "zarr"])
def test_over_a_new_link_the_first_batch_comes_alone(
    server: RangeServer, kind: str, parallel: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests for later runs would take their share of the link."""
    loader = opened(server, kind)[::8].batches(4, shuffle="global" if kind == "npy" else False)
    assert loader.steps_together > 1
    events: list[str] = []
    ask = Link._ask

    async def noted(self: Link, address: Any, *given: Any) -> Any:
        if is_metadata(address.name):
            return await ask(self, address, *given)
        events.append("asked")
        answer = await ask(self, address, *given)
        events.append("came")
        return answer

    monkeypatch.setattr(link(), "_answers", 0)
    monkeypatch.setattr(Link, "_ask", noted)
    batches = list(loader.epoch(0, parallel=parallel))
    assert events[:8] == 4 * ["asked"] + 4 * ["came"]
    for step, batch in enumerate(batches):
        assert_array_equal(batch, ROWS[::8][loader.positions(step)])
    assert len(events) == 2 * 64


def test_metadata_of_many_datasets_are_fetched_side_by_side(server: RangeServer) -> None:
    def work() -> None:
        view = ooc.open(f"{server.url}/demos.h5", "demo_*/obs")
        assert_array_equal(view[32], ROWS[1])

    assert round_trips(server, work) <= 20  # 38 with one for the chunks of each dataset


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_round_trips_to_a_row_of_a_file_that_grew(tmp_path: Path, libver: str) -> None:
    """Its chunks are stored among the nodes of their index, which is read once."""
    rows = ROWS[:, :16]
    with h5py.File(tmp_path / "a.h5", "w", libver=libver) as file:
        shape: dict[str, Any] = {"shape": (0, 16, 64), "maxshape": (None, 16, 64)}
        for name in "uv":
            file.create_dataset(name, dtype=rows.dtype, chunks=(1, 16, 64), **shape)
        for number, row in enumerate(rows):
            for name in "uv":
                file[name].resize(number + 1, 0)
                file[name][number] = row
    with RangeServer(tmp_path) as server:

        def work() -> None:
            loader = ooc.open(f"{server.url}/a.h5", "u").batches(8, shuffle=True)
            assert_array_equal(loader.batch(0), rows[loader.positions(0)])

        assert round_trips(server, work) <= 8
        assert len(fetched(server)) == server.requests - MISSING  # each piece once
        assert server.nbytes < 10 * ROWS[:8].nbytes


MISSING = 5
"""Metadata files of Zarr, which are asked for too."""


@pytest.mark.parametrize("kind", KINDS)
def test_an_epoch_fetches_each_byte_once(server: RangeServer, kind: str) -> None:
    view = opened(server, kind)
    server.reset()
    loader = view.batches(32, shuffle="block")
    for step, batch in enumerate(loader.epoch(0)):
        assert_array_equal(batch, ROWS[loader.positions(step)])
    assert {one: n for one, n in fetched(server).items() if n > 1} == {}
    assert server.most_at_once <= REQUESTS
    stored = sum(path.stat().st_size for path in files_of(server.folder, kind))
    assert server.nbytes <= 1.35 * stored
    server.reset()
    list(loader.epoch(1))
    if kind not in ("npy", "contiguous"):  # what was decoded is in the cache
        assert server.requests == 0


def files_of(folder: Path, kind: str) -> list[Path]:
    path = folder / KINDS[kind][0]
    return [one for one in path.rglob("*") if one.is_file()] if path.is_dir() else [path]


@pytest.mark.parametrize("kind", ["npy", "contiguous"])
def test_rows_in_any_order_fetch_what_they_need(server: RangeServer, kind: str) -> None:
    view = opened(server, kind)
    server.reset()
    loader = view.batches(32, shuffle="global")
    for step, batch in enumerate(loader.epoch(0)):
        assert_array_equal(batch, ROWS[loader.positions(step)])
    assert server.nbytes <= 1.35 * ROWS.nbytes
    assert server.requests <= len(ROWS)  # neighbours are joined


@pytest.mark.parametrize("lanes", [1, 2])
def test_a_window_that_is_longer_than_the_planned_runs(server: RangeServer, lanes: int) -> None:
    """Its chunks come early in it: the later of these runs need fewer than those that follow."""
    rows = np.zeros((1 << 17, 16), "f4")
    zarr.create_array(server.folder / f"{lanes}.zarr", data=rows, chunks=(128, 16), fill_value=None)
    loader = ooc.open(f"{server.url}/{lanes}.zarr").batches(
        256, shuffle=ooc.BlockShuffle(128, 512, lanes)
    )
    memory.set_memory(16 << 20)
    try:
        assert loader.explain().fetching.epoch.requests == 1024  # not 512, or 384 in two lanes
    finally:
        memory.set_memory(memory.DEFAULT_MEMORY)


def test_new_connections_share_large_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server sends slowly at first: 64 KiB on each of 64 connections come before 1 MiB on 4."""
    rows = np.random.default_rng(0).integers(0, 256, (16, 1 << 20), np.uint8)
    np.save(tmp_path / "rows.npy", rows)
    with RangeServer(tmp_path) as server:
        loader = ooc.open(f"{server.url}/rows.npy")[::2].batches(4)
        for answers, requests in ((0, 4 << 4), (REQUESTS, 4)):
            monkeypatch.setattr(link(), "_answers", answers)
            server.reset()
            assert_array_equal(loader.batch(0), rows[:8:2])
            assert (server.requests, server.nbytes) == (requests, 4 << 20)


@pytest.mark.parametrize("offset", [0, 5000, (1 << 16) - 9, 200_000])
def test_bytes_are_read_where_they_were_fetched(server: RangeServer, offset: int) -> None:
    """Also those of two answers, and those that were not requested."""
    path, size = server.folder / "small.npy", np.array([1 << 16])
    file = StoredFile.at(f"{server.url}/small.npy")
    server.reset()
    with file.prefetch(file.fetches(0 * size, size)), file.prefetch(file.fetches(size, size)):
        found = [bytes(file.read(start, 99)) for start in (offset, 0, 1 << 16)]
    assert found == [path.read_bytes()[start : start + 99] for start in (offset, 0, 1 << 16)]
    assert server.requests == 2 + (offset == 200_000)


@pytest.mark.parametrize("kind", ["gzip", "zarr"])
def test_reading_what_came_does_not_wake_the_link(
    server: RangeServer, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each wake-up makes a thread that decodes wait for the GIL."""
    source: Any = opened(server, kind).source
    places = np.arange(64)[:, None] * [1, 0, 0]
    outs = [np.empty(source.chunk_shape, source.dtype) for _ in places]
    fetches = source.reader.fetches(places)
    requests, others = cost_of(fetches).requests, set(link()._granted)
    with prefetched(fetches):
        for _ in range(1000):
            granted = [one for one in list(link()._granted) if one not in others]
            if len(granted) >= requests and all(one.done.done() for one in granted):
                break
            threading.Event().wait(0.01)
        calls: list[Any] = []
        monkeypatch.setattr(Link, "call", lambda self, work: calls.append(work))
        source.reader.read_chunks(places, outs)
        monkeypatch.undo()
    assert_array_equal(np.concatenate(outs), ROWS)
    assert calls == []


def test_neighbours_are_one_request(server: RangeServer) -> None:
    view = opened(server, "npy")
    server.reset()
    assert_array_equal(view.take([7, 8, 9, 100, 102, 400]), ROWS[[7, 8, 9, 100, 102, 400]])
    assert server.requests == 3
    assert server.nbytes == 7 * ROWS[0].nbytes  # row 101 costs less than a request


@pytest.mark.parametrize("kind", KINDS)
def test_pairs_fetch_what_both_take_once(server: RangeServer, kind: str) -> None:
    view = opened(server, kind)
    pairs = ooc.zip(view, view[:, ::2])
    server.reset()
    loader = pairs.batches(32)
    for step, (rows, halves) in enumerate(loader.epoch(0)):
        assert_array_equal(rows, ROWS[loader.positions(step)])
        assert_array_equal(halves, ROWS[loader.positions(step), ::2])
    assert set(fetched(server).values()) == {1}


@pytest.mark.parametrize("shuffle", [False, "block", "global"])
@pytest.mark.parametrize(
    ("name", "key", "rows"),
    [
        ("small.npy", None, SMALL),
        ("a.h5", "small", SMALL),
        ("far.npy", None, ROWS[:128]),
        ("cut.h5", "small", SMALL),
        ("cut.h5", "rows", ROWS[:128]),
        ("cut.h5", "[ab]", ROWS[:128]),
    ],
)
def test_blocks_that_several_batches_need_are_fetched_once(
    server: RangeServer, name: str, key: str | None, rows: np.ndarray, shuffle: Any
) -> None:
    view = ooc.open(f"{server.url}/{name}", key)
    server.reset()
    loader = view.batches(16, shuffle=shuffle)
    for step, batch in enumerate(loader.epoch(0)):
        assert_array_equal(batch, rows[loader.positions(step)])
    assert set(fetched(server).values()) == {1}
    assert server.nbytes <= 1.1 * rows.nbytes


def test_a_shuffled_epoch_of_rows_that_fit_into_memory_fetches_each_byte_once(
    tmp_path: Path,
) -> None:
    """Joined with what lies between them, such rows would be 1.8 times the array in each epoch."""
    rows = np.random.default_rng(0).integers(0, 256, (8192, 8192), np.uint8)
    np.save(tmp_path / "a.npy", rows)
    with RangeServer(tmp_path) as server:
        loader = ooc.open(f"{server.url}/a.npy").batches(512, shuffle=True)
        said = loader.explain().fetching.epoch
        server.reset()
        for step, batch in enumerate(loader.epoch(0)):
            assert_array_equal(batch, rows[loader.positions(step)])
        assert said.nbytes == server.nbytes == rows.nbytes
        list(loader.epoch(1))
        assert server.nbytes == rows.nbytes


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize(("name", "key"), [("small.npy", None), ("a.h5", "small")])
def test_few_small_rows_at_a_time_come_out_of_blocks(
    server: RangeServer, name: str, key: str | None, batch: int
) -> None:
    """With a function of `map`, each batch is a read of its own."""
    view = ooc.open(f"{server.url}/{name}", key)[:512]
    server.reset()
    loader = view.map(np.negative).batches(batch, shuffle="global")
    for step, rows in enumerate(loader.epoch(0)):
        assert_array_equal(rows, -SMALL[loader.positions(step)])
    assert set(fetched(server).values()) == {1}
    assert server.nbytes <= 1.1 * SMALL[:1024].nbytes  # a block has so many
    server.reset()
    list(loader.epoch(1))
    assert server.requests == 0


def test_a_window_that_nearly_fills_the_cache(server: RangeServer) -> None:
    """Chunks of the windows before it are evicted late, so some of its own come twice.

    Of one thread: how many two fetch, 570 to 900, depends on which of them is done first.
    """
    rows = np.ones((1 << 16, 16), "f4")
    zarr.create_array(server.folder / "full.zarr", data=rows, chunks=(128, 16), fill_value=None)
    memory.set_memory(4 << 20)  # a cache of 256 chunks
    try:
        loader = ooc.open(f"{server.url}/full.zarr").batches(
            64, shuffle=ooc.BlockShuffle(128, 248, 8)
        )
        said = loader.explain().fetching.epoch.requests
        server.reset()
        list(loader.epoch(0, parallel=1))
        assert said == pytest.approx(for_data(server), rel=0.1)
    finally:
        memory.set_memory(memory.DEFAULT_MEMORY)


FIELDS = np.zeros(16384, [("image", "u1", (8, 8)), ("label", "i4"), ("speed", "f4")])
FIELDS["label"], FIELDS["speed"] = np.arange(16384), np.linspace(0, 1, 16384)


@pytest.mark.parametrize("ending", ["npy", "h5"])
def test_a_field_comes_out_of_blocks(tmp_path: Path, ending: str) -> None:
    """Bytes between its numbers are fetched with them: once, and not again in a later epoch."""
    if ending == "npy":
        np.save(tmp_path / "rows.npy", FIELDS)
    else:
        with h5py.File(tmp_path / "rows.h5", "w") as file:
            file["rows"] = FIELDS
    with RangeServer(tmp_path) as server:
        view = ooc.open(f"{server.url}/rows.{ending}", None if ending == "npy" else "rows")
        loader = view["label"].batches(64, shuffle="global")
        said = loader.explain().fetching
        server.reset()
        found = np.concatenate(list(loader.epoch(0)))
        assert_array_equal(np.sort(found), FIELDS["label"])
        assert FIELDS.nbytes * 0.9 < server.nbytes < FIELDS.nbytes * 1.1
        assert said is not None
        assert 0.9 < said.epoch.nbytes / server.nbytes < 1.1
        list(loader.epoch(1))
        assert server.nbytes < FIELDS.nbytes * 1.1


def test_a_field_of_large_rows_is_fetched_alone(tmp_path: Path) -> None:
    rows = np.zeros(64, [("image", "u1", 1 << 16), ("label", "i4")])
    rows["label"] = np.arange(64)
    np.save(tmp_path / "rows.npy", rows)
    with RangeServer(tmp_path) as server:
        loader = ooc.open(f"{server.url}/rows.npy")["label"].batches(16, shuffle="global")
        server.reset()
        found = np.concatenate(list(loader))
        assert_array_equal(np.sort(found), rows["label"])
        assert server.nbytes == 4 * 64


@pytest.mark.parametrize("shuffle", [False, "block"])
def test_chunks_beside_rows_of_the_same_file_are_fetched_once(
    server: RangeServer, shuffle: Any
) -> None:
    """Cached and missing bytes of a file are told apart run by run."""
    frames, targets = opened(server, "gzip"), opened(server, "contiguous")
    server.reset()
    loader = ooc.zip(frames, targets).batches(2, shuffle=shuffle)
    for step, (one, other) in enumerate(loader.epoch(0)):
        assert_array_equal(one, ROWS[loader.positions(step)])
        assert_array_equal(other, ROWS[loader.positions(step)])
    assert set(fetched(server).values()) == {1}


@pytest.mark.parametrize("kind", ["gzip", "zarr", "shards"])
def test_chunks_between_the_rows_of_a_window_are_not_fetched(
    server: RangeServer, kind: str
) -> None:
    windows = opened(server, kind)[:72].windows(2, stride=64)  # in the chunks 0 and 8
    server.reset()
    (batch,) = windows.batches(8).epoch(0)
    assert_array_equal(batch, np.stack([ROWS[:8], ROWS[64:72]], axis=1))
    data = [one for one in server.log if one.nbytes > 4096]  # no index
    assert len(data) == 2
    assert sum(one.nbytes for one in data) < 2 * ROWS[:8].nbytes


@pytest.mark.parametrize("kind", ["gzip", "zarr", "shards"])
def test_ranks_fetch_their_lanes(server: RangeServer, kind: str) -> None:
    view = opened(server, kind)
    loader = view.batches(32, shuffle=True)
    chunks, total = [], 0
    for rank in range(4):
        chunk_cache.forget()
        server.reset()
        own = loader.shard(4, rank)
        for step, batch in enumerate(own.epoch(0)):
            assert_array_equal(batch, ROWS[own.positions(step)])
        chunks.append(server.nbytes)
        total += server.nbytes
    stored = sum(path.stat().st_size for path in files_of(server.folder, kind))
    stored = stored // 4 if kind == "gzip" else stored  # the file holds four arrays' bytes at most
    assert max(chunks) <= 0.6 * total
    assert total <= 4 * 1.35 * stored


@pytest.mark.parametrize("kind", ["npy", "contiguous", "zarr"])
def test_more_is_asked_for_than_is_read(server: RangeServer, kind: str) -> None:
    """The link stays busy while one run is read at a time: to the end, where memory allows."""
    rows = opened(server, kind)[::8]  # a row of each chunk, too far apart to be joined
    loader = rows.batches(4, shuffle="global" if kind != "zarr" else False)
    server.reset()
    server.hold()
    epoch = loader.epoch(0, parallel=1, prefetch=0)
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(next, epoch)
        while server.at_once < REQUESTS:
            threading.Event().wait(0.001)
        assert loader.steps_together * 4 <= 16
        server.release()
        assert_array_equal(first.result(), ROWS[::8][loader.positions(0)])
        for step, batch in enumerate(epoch, start=1):
            assert_array_equal(batch, ROWS[::8][loader.positions(step)])
    assert fetched(server).total() == 64


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("a.h5ad", {}),
        ("a.h5ad", {"chunks": (1024,), "compression": "gzip"}),
        ("a.zarr", {"chunks": (1024,)}),
    ],
)
@pytest.mark.parametrize("sparse", [False, True])
def test_sparse_rows_are_asked_for_before_they_are_read(
    tmp_path: Path, name: str, options: dict[str, Any], sparse: bool, monkeypatch: Any
) -> None:
    monkeypatch.setattr("oocdata.stores.address._SILENCE", 600.0)
    monkeypatch.setattr(link(), "_answers", REQUESTS)
    matrix = random_csr(1100, 2000, 0.5)
    write_file(tmp_path / name, matrix, **options)
    with RangeServer(tmp_path) as server:
        view = ooc.open(f"{server.url}/{name}", "X")[::64]  # too far apart to be joined
        loader = (view.sparse() if sparse else view).batches(4, shuffle="global")
        assert len(view.source.indptr) == 1101
        server.reset()
        server.hold()
        epoch = loader.epoch(0, parallel=1, prefetch=0)
        with ThreadPoolExecutor(1) as threads:
            first = threads.submit(next, epoch)
            try:
                server.wait_for(30)  # of 18 rows, the numbers and their columns
            finally:
                server.release()
            for step, batch in enumerate([first.result(), *epoch]):
                dense = np.asarray(batch)
                assert_array_equal(dense, matrix[::64][loader.positions(step)].toarray())
        assert set(fetched(server).values()) == {1}


@pytest.mark.parametrize("stored", [False, True], ids=["memory", "stored"])
@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("places.npy", None),
        ("places.h5", "places"),
        ("places.h5", "cut"),
        ("places.zarr", None),
    ],
)
@pytest.mark.parametrize("padded", [False, True])
def test_rows_of_unequal_length_are_asked_for_before_they_are_read(
    server: RangeServer, name: str, key: str | None, stored: bool, padded: bool
) -> None:
    """The offsets of rows are read once."""
    offsets = f"{server.url}/offsets.npy" if stored else OFFSETS
    ragged = ooc.ragged(ooc.open(f"{server.url}/{name}", key), offsets)
    server.reset()
    view = ragged.pad(100, cut=True) if padded else ragged
    loader = view[::8].batches(4, shuffle="global")  # too far apart to be joined
    assert loader.explain().steps == 16
    server.hold()
    epoch = loader.epoch(0, parallel=1, prefetch=0)
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(next, epoch)
        try:
            server.wait_for(25 if "h5" in name else 60)  # neighbouring chunks are joined
        finally:
            server.release()
        batches = [first.result(), *epoch]
    for step, batch in enumerate(batches):
        for place, row in enumerate(loader.positions(step) * 8):
            whole = PLACES[OFFSETS[row] : OFFSETS[row + 1]]
            if padded:
                whole = np.pad(whole, ((0, 100), (0, 0)))[:100]
            assert_array_equal(batch[place], whole)
    assert set(fetched(server).values()) == {1}
    server.reset()
    list(loader.epoch(1))
    assert server.requests == (64 if name.endswith(".npy") else 0)


@pytest.mark.parametrize("padded", [False, True])
def test_rows_of_parts_of_unequal_length_are_asked_for_before_they_are_read(
    server: RangeServer, padded: bool
) -> None:
    parts = [f"{server.url}/{name}.npy" for name in ("longer", "shorter")]
    ragged = ooc.open(parts)
    assert isinstance(ragged, ooc.Ragged)
    view = (ragged.pad() if padded else ragged)[::8]  # too far apart to be joined
    loader = view.batches(16, shuffle="global")
    server.reset()
    server.hold()
    with ThreadPoolExecutor(1) as threads:
        batch = threads.submit(loader.batch, 0)
        try:
            server.wait_for(16)
        finally:
            server.release()
        found = list(batch.result())
    for row, place in zip(found, loader.positions(0) * 8, strict=True):
        whole = ROWS[place] if place < 64 else ROWS[place - 64, :48]
        assert_array_equal(row, np.pad(whole, ((0, 64 - len(whole)), (0, 0))) if padded else whole)


@pytest.mark.parametrize("kind", ["gzip", "zarr", "small", "npy"])
@pytest.mark.parametrize("shuffle", [False, "global"])
def test_what_workers_fetch_is_said_before(server: RangeServer, kind: str, shuffle: Any) -> None:
    """Each worker fetches the chunks that it needs, so most shuffled chunks come twice."""
    name, key = KINDS.get(kind, ("small.npy", None))
    view = ooc.open(f"{server.url}/{name}", key)
    np.asarray(view)  # workers don't share this process's memory
    loader = view.batches(16, shuffle=shuffle, workers=2)
    said = loader.explain().fetching.epoch
    assert loader.explain().fetching.first.requests
    server.reset()
    list(loader.epoch(0))
    if kind == "zarr":  # compressed by how much?
        assert said.requests == pytest.approx(for_data(server), rel=0.25)
    else:
        assert said.nbytes == pytest.approx(server.nbytes, rel=0.25)


@pytest.mark.parametrize("kind", ["npy", "zarr"])
def test_workers_ask_for_more_than_they_read(server: RangeServer, kind: str) -> None:
    """Each worker requests the runs that it will be sent: all of an epoch, each byte once."""
    rows = opened(server, kind)[::8]
    loader = rows.batches(4, shuffle="global" if kind != "zarr" else False, workers=2)
    server.reset()
    server.hold()
    epoch = loader.epoch(0)
    with ThreadPoolExecutor(1) as threads:
        first, of_first_runs = threads.submit(next, epoch), 4 * loader.steps_together
        compared = 2 if kind == "zarr" else 0  # over new connections at the same time
        server.wait_for(of_first_runs + compared)  # over new connections these come alone
        server.release(of_first_runs + compared)
        server.wait_for(64 - of_first_runs)
        server.release()
        assert_array_equal(first.result(), ROWS[::8][loader.positions(0)])
        for step, batch in enumerate(epoch, start=1):
            assert_array_equal(batch, ROWS[::8][loader.positions(step)])
    assert list(fetched(server).values()) == [1] * 64


def twice(server: RangeServer, kind: str) -> ooc.Dataset:
    return ooc.zip(opened(server, kind), opened(server, kind))


SAID: dict[str, Any] = {
    "chunks beside rows": lambda s: ooc.zip(opened(s, "gzip"), opened(s, "npy")),
    "chunks beside small rows": lambda s: ooc.zip(
        opened(s, "gzip"), ooc.open(f"{s.url}/small.npy")[:512]
    ),
    "small rows twice": lambda s: ooc.zip(
        *(ooc.open(f"{s.url}/small.npy")[:2048] for _ in range(2))
    ),
    "chunks twice": lambda s: twice(s, "gzip"),
    "shards twice": lambda s: twice(s, "shards"),
    "rows twice": lambda s: twice(s, "npy"),
    "windows": lambda s: opened(s, "gzip").windows(4, 1),
    "a part": lambda s: opened(s, "gzip")[100:300],
}


@pytest.mark.parametrize("shuffle", [False, "block", "global"])
@pytest.mark.parametrize(
    ("way", "mebibytes"), [*((way, 8) for way in SAID), ("windows", 64), ("shards twice", 64)]
)
def test_what_an_epoch_fetches_is_said_before(
    server: RangeServer, way: str, shuffle: Any, mebibytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of a second one, with chunks that the first has left in memory."""
    monkeypatch.setattr(memory, "_memory", mebibytes << 20)
    loader = SAID[way](server).batches(16, shuffle=shuffle)
    for _ in range(2):
        said = loader.explain().fetching.epoch
        server.reset()
        list(loader.epoch(0))
        # Two threads use chunks in another order than planned: up to 1.18 times as many are sent.
        # Late ones join more neighbours, on a busy machine by more than a fifth.
        assert said.nbytes == pytest.approx(server.nbytes, rel=0.25)
        assert said.requests == pytest.approx(for_data(server), rel=0.35, abs=3)


@pytest.mark.parametrize("way", ["chunks beside rows", "rows twice", "windows"])
def test_what_the_first_epoch_of_a_process_fetches_is_said_before(
    server: RangeServer, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over new connections the first requests are shorter, and the later ones are not."""
    monkeypatch.setattr(memory, "_memory", 8 << 20)
    loader = SAID[way](server).batches(16)
    monkeypatch.setattr(link(), "_answers", 0)
    said = loader.explain().fetching.epoch
    server.reset()
    list(loader.epoch(0))
    assert said.nbytes == pytest.approx(server.nbytes, rel=0.15)
    # As many more are short as are under way when all connections have answered once.
    assert said.requests == pytest.approx(for_data(server), rel=0.35)


@pytest.mark.parametrize("kind", ["gzip", "shards", "zarr"])
def test_chunks_that_will_be_evicted_are_asked_for_with_others(
    server: RangeServer, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks that an epoch leaves in memory are evicted by the next before it comes to them."""
    monkeypatch.setattr(memory, "_memory", 8 << 20)
    loader = opened(server, kind).batches(32, shuffle=False)
    loader.explain()  # fetches the table of chunks
    for epoch in range(3):
        server.reset()
        list(loader.epoch(epoch))
        chunks = [one for one in fetched(server) if one[1] is None or one[1] >= 0]
        # Threads may use chunks in another order than planned: a few are then asked for singly.
        assert 0 <= len(chunks) - (64 if kind == "zarr" else 16) <= 8


@pytest.mark.parametrize("way", [one for one in SAID if one not in ("rows twice", "a part")])
def test_what_a_long_epoch_fetches_is_said_by_some_of_it(
    server: RangeServer, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The epoch starts in its middle, from where memory may hold all steps."""
    monkeypatch.setattr(cost, "_MOST_TOUCHES", 4800)
    monkeypatch.setattr(cost, "_MOST_ELEMENTS", 4800)
    loader = SAID[way](server).batches(4, shuffle="global")
    said = loader.explain().fetching.epoch
    server.reset()
    list(loader.epoch(0))
    assert said.nbytes == pytest.approx(server.nbytes, rel=0.2)


@pytest.mark.parametrize("shuffle", [False, "global"])
def test_the_short_first_reads_of_a_long_epoch_are_said(
    tmp_path: Path, shuffle: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They fetch few chunks each; in a shuffle they need nearly all that the epoch fetches."""
    with h5py.File(tmp_path / "long.h5", "w") as file:
        rows = np.random.default_rng(0).integers(0, 99, (32768, 64)).astype("f4")
        file.create_dataset("x", data=rows, chunks=(8, 64), compression="gzip")
    with RangeServer(tmp_path) as server:
        loader = ooc.open(f"{server.url}/long.h5", "x").batches(16, shuffle=shuffle)
        loader.explain()  # fetches the table of chunks
        monkeypatch.setattr(cost, "_MOST_ELEMENTS", 8192)
        said = loader.explain().fetching.epoch
        server.reset()
        list(loader.epoch(0, parallel=1))
        assert said.requests == pytest.approx(for_data(server), rel=0.1)
        assert said.nbytes == pytest.approx(server.nbytes, rel=0.1)


@pytest.mark.parametrize("mebibytes", [8, 64])
@pytest.mark.parametrize("shuffle", [False, "global"])
@pytest.mark.parametrize("kind", [*KINDS, "small", "cut"])
def test_what_an_epoch_fetches_into_a_folder_is_said_before(
    server: RangeServer, tmp_path: Path, kind: str, shuffle: Any, mebibytes: int, monkeypatch: Any
) -> None:
    """Each byte is fetched once, however little memory there is, and cached bytes not at all."""
    monkeypatch.setattr(memory, "_memory", mebibytes << 20)
    name, key = KINDS.get(kind, ("small.npy" if kind == "small" else "a.npy", None))
    for is_kept in (False, True):
        view = ooc.open(f"{server.url}/{name}", key, cache=tmp_path)
        view = view[:, :, :2] if kind == "cut" else view  # with the bytes between
        loader = view.batches(16, shuffle=shuffle)
        said = loader.explain().fetching.epoch
        server.reset()
        list(loader.epoch(0))
        if kind == "zarr":
            assert said.requests == for_data(server) == 64  # kept: each answered by 304
            assert said.nbytes == (0 if is_kept else ROWS.nbytes)  # compressed by how much?
        elif is_kept:
            assert said.requests == said.nbytes == 0
            data = [one for one in server.log if not is_metadata(one.path)]
            assert sum(one.nbytes for one in data) < 1000  # indices of shards
        else:
            assert said.nbytes == pytest.approx(server.nbytes, rel=0.25)  # some of it twice


def test_nothing_is_asked_for_when_the_loader_is_closed(server: RangeServer) -> None:
    epoch = opened(server, "npy").batches(8, shuffle="global").epoch(0)
    next(epoch)
    epoch.close()  # type: ignore[attr-defined]
    while our_threads():  # which end the step that they are at
        threading.Event().wait(0.01)
    link().start(_nothing).result()
    came = link().traffic.requests
    gc.collect()
    server.wait_idle()
    link().start(_nothing).result()
    assert (link().traffic.requests, link().held) == (came, 0)


async def _nothing() -> None: ...


BOUNDED = """
import resource, sys, threading
import numpy as np
import oocdata as ooc
from oocdata import cost, memory
from oocdata.describe import fingerprint
from oocdata.stores.link import link
most = at_once = 0
over = threading.Event()
def watch():
    global most, at_once
    while not over.wait(0.001):
        most, at_once = max(most, link().held), max(at_once, link()._in_flight)
view = ooc.open(sys.argv[1])
loader = view.batches(16, shuffle="global")
threading.Thread(target=watch, daemon=True).start()
total = sum(float(batch.sum()) for batch in loader)
over.set()
print(most, total, at_once)
"""


@pytest.mark.parametrize("kind", ["npy", "zarr", "shards"])
def test_held_within_the_bound(
    server: RangeServer, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = 8 << 20
    monkeypatch.setenv("OOCDATA_MEMORY", str(memory))
    command = [sys.executable, "-c", BOUNDED, f"{server.url}/{KINDS[kind][0]}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    most, total, at_once = done.stdout.split()
    assert float(total) == float(ROWS.sum(dtype="f8"))
    one_batch = 16 * 8 * ROWS[0].nbytes if kind != "npy" else 16 * ROWS[0].nbytes
    assert int(most) <= memory // 4 + one_batch
    assert int(at_once) <= REQUESTS


def test_chunks_that_do_not_compress_keep_within_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before an object was fetched, each is counted at its uncompressed size."""
    monkeypatch.setattr(memory, "_memory", 4 << 20)
    zarr.create_array(tmp_path / "a.zarr", data=np.zeros((40, 1 << 16), "u1"), chunks=(1, 1 << 16))
    with RangeServer(tmp_path) as server:
        objects = ooc.open(f"{server.url}/a.zarr").source.reader._whole
        server.hold()
        with objects.prefetch(objects.fetches(range(40))):
            server.wait_for(16)
            assert link()._in_flight << 16 <= 1 << 20
            server.release()
