"""Read with little memory: answers keep within the bound, and each is fetched once.

Bytes are fetched again only where a batch needs more chunks than memory holds, or where several of
its arrays need the same bytes.
"""

from __future__ import annotations

import gc
import signal
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr
from forked import in_a_fork
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from servers.ranges import RangeServer
from stored_layouts import KINDS, numbers, write_kinds

import oocdata as ooc
from oocdata.engines.cache import cache as chunk_cache
from oocdata.engines.planned import PlannedCache
from oocdata.engines.prefetch import Fetch
from oocdata.memory import DEFAULT_MEMORY, lowered_limit, scratch_share
from oocdata.stores import blocks
from oocdata.stores.budget import AnswerBudget, Request
from oocdata.stores.link import link

MEBI = 1 << 20
ROWS = numbers((128, 128, 512), "u1")
"""64 KiB a row, 8 MiB in all."""

LARGE = ROWS.reshape(8, 1024, 1024)
"""1 MiB a row."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RangeServer]:
    folder = tmp_path_factory.mktemp("bound")
    write_kinds(folder, ROWS, each=4, shard=32)
    np.save(folder / "large.npy", LARGE)
    np.save(folder / "far.npy", np.asfortranarray(ROWS[:, :, :8]))
    with h5py.File(folder / "large.h5", "w") as file:
        file.create_dataset("x", data=LARGE, chunks=(2, 1024, 1024), compression="gzip")
    zarr.create_array(folder / "large.zarr", data=LARGE, chunks=(2, 1024, 1024), compressors=None)
    with RangeServer(folder) as server:
        yield server


@pytest.fixture
def server(served: RangeServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[RangeServer]:
    monkeypatch.setattr("oocdata.stores.address._SILENCE", 600.0)
    yield served
    ooc.set_memory(DEFAULT_MEMORY)


def opened(server: RangeServer, kind: str) -> ooc.View:
    name, key = KINDS.get(kind, (kind, None))
    return ooc.open(f"{server.url}/{name}", key)


def read(
    server: RangeServer,
    loader: ooc.Loader,
    memory: int,
    wanted: Callable[[np.ndarray], Any],
    parallel: int = 2,
    feed: str = "numpy",
) -> tuple[int, int, int]:
    """Read an epoch; return the most bytes held at a time, the bytes sent, and the bound."""
    chunk_cache.forget()
    blocks.forget()
    ooc.set_memory(memory * MEBI)
    server.reset()
    link().most_held = link().held
    if feed == "tf":
        batches: Any = loader.to_tf().as_numpy_iterator()
    else:
        batches = loader.epoch(0, parallel=parallel, prefetch=parallel)
    for step, batch in enumerate(batches):
        for one, other in zip(flat(batch), flat(wanted(loader.positions(step))), strict=True):
            assert_array_equal(one, other)
    del batches
    for _ in range(500):
        gc.collect(1)
        if link().held == len(link()._requested) == server.at_once == 0:
            break
        threading.Event().wait(0.01)
    assert (link().held, link()._requested, server.at_once) == (0, {}, 0)
    return link().most_held, server.nbytes, scratch_share()


def flat(batch: Any) -> list[np.ndarray]:
    return list(batch) if isinstance(batch, tuple) else [batch]


@pytest.mark.parametrize("shuffle", [False, True, "global"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("memory", "parallel", "feed"), [(4, 1, "numpy"), (4, 8, "numpy"), (16, 2, "tf")]
)
def test_rows(
    server: RangeServer, kind: str, shuffle: Any, memory: int, parallel: int, feed: str
) -> None:
    """A batch has 2 MiB; memory has room for 1 MiB, or for 4 MiB with several reads at a time."""
    loader = opened(server, kind).batches(32, shuffle=shuffle)
    most, came, bound = read(server, loader, memory, ROWS.__getitem__, parallel, feed)
    assert most <= bound
    if kind in ("npy", "contiguous") or shuffle is False:
        # Of several runs that are read, one may push out what another has asked for.
        assert came <= (1.02 if parallel == 1 else 1.25) * ROWS.nbytes
    else:
        assert came <= 1.1 * len(loader) * ROWS.nbytes  # a batch has rows of almost all chunks


@pytest.mark.parametrize("memory", [1, 4, 16])
@pytest.mark.parametrize("parallel", [1, 8])
@pytest.mark.parametrize("shuffle", [False, "global"])
def test_columns_of_which_rows_are_fetched_whole(
    server: RangeServer, memory: int, parallel: int, shuffle: Any
) -> None:
    """One byte of each 1,024 fetched ones is delivered."""
    loader = opened(server, "large.npy")[:, :, :1].batches(4, shuffle=shuffle)
    most, came, bound = read(server, loader, memory, lambda at: LARGE[at, :, :1], parallel)
    assert most <= bound
    assert came <= (1.1 if parallel == 1 else 1.25) * LARGE.nbytes


@pytest.mark.parametrize("memory", [1, 4])
@pytest.mark.parametrize("name", ["large.npy", "large.h5"])
def test_ranges_that_exceed_the_bound_are_cut(server: RangeServer, name: str, memory: int) -> None:
    """Rows and chunks have 1 and 2 MiB; the bound is a quarter of a MiB, or one."""
    loader = opened(server, name).batches(2)
    most, came, bound = read(server, loader, memory, LARGE.__getitem__)
    assert most <= bound
    assert came <= 1.25 * LARGE.nbytes


def test_an_object_that_exceeds_the_bound_is_held_alone(server: RangeServer) -> None:
    loader = opened(server, "large.zarr").batches(2)
    most, came, bound = read(server, loader, 4, LARGE.__getitem__, parallel=8)
    assert bound < most == 2 * LARGE[0].nbytes
    assert came <= 1.01 * LARGE.nbytes


@pytest.mark.parametrize("kind", ["npy", "gzip", "zarr"])
@pytest.mark.parametrize("shuffle", [False, "global"])
@pytest.mark.parametrize("memory", [4, 64])
def test_several_arrays_of_the_same_bytes(
    server: RangeServer, kind: str, shuffle: Any, memory: int
) -> None:
    windows = opened(server, kind).windows(4, 1)
    loader = windows.batches(16, shuffle=shuffle)

    def wanted(at: np.ndarray) -> Any:
        return ROWS[at[:, None] + np.arange(4)], ROWS[at + 4][:, None]

    most, came, bound = read(server, loader, memory, wanted)
    assert most <= bound
    if memory == 64 and kind != "npy":  # each chunk is decoded once
        assert came <= 1.02 * ROWS.nbytes
    elif shuffle is False and kind != "npy":
        assert came <= 1.2 * ROWS.nbytes


@pytest.mark.parametrize("memory", [4, 64])
def test_rows_that_are_read_through_scratch_memory(server: RangeServer, memory: int) -> None:
    """Some rows are converted at a time; their ranges come in the order of the file."""
    loader = opened(server, "npy").astype("f4").batches(32, shuffle="global")
    most, came, bound = read(server, loader, memory, lambda at: ROWS[at].astype("f4"))
    assert most <= bound
    assert came <= 1.25 * ROWS.nbytes


@pytest.mark.parametrize("memory", [4, 16])
def test_into_a_cache_folder(server: RangeServer, memory: int, tmp_path: Path) -> None:
    view = ooc.open(f"{server.url}/a.npy", cache=str(tmp_path))
    loader = view.batches(32, shuffle="global")
    most, came, bound = read(server, loader, memory, ROWS.__getitem__)
    assert most <= bound
    assert came <= 1.25 * ROWS.nbytes
    assert read(server, loader, memory, ROWS.__getitem__)[1] == 0


def test_two_loaders_that_are_read_in_turns(server: RangeServer) -> None:
    """Answers that one reader requested and does not read make room for those of the other."""
    ooc.set_memory(4 * MEBI)
    loaders = [opened(server, kind).batches(16, shuffle="global") for kind in ("npy", "contiguous")]
    link().most_held = link().held
    epochs = [loader.epoch(0) for loader in loaders]
    for step in range(len(loaders[0])):
        for loader, epoch in zip(loaders, epochs, strict=True):
            assert_array_equal(next(epoch), ROWS[loader.positions(step)])
    assert link().most_held <= scratch_share()
    assert [next(epoch, None) for epoch in epochs] == [None, None]


class Noting(AnswerBudget):
    """A budget that records which answers are fetched and which given up, in place of a link."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: set[Request[Any]] = set()
        self.leaving: set[Request[Any]] = set()

    def begin(self, request: Request[Any]) -> None:
        assert request not in self.fetched
        assert not request.done.cancelled()
        self.fetched.add(request)

    def call(self, work: Callable[[], None]) -> None:
        work()

    def check(self) -> None: ...

    def is_in_flight(self, request: Request[Any]) -> bool:
        return request in self.fetched and not request.done.done()

    def leave(self, *requests: Request[Any]) -> None:
        for request in requests:
            request.is_awaited = False  # its reader leaves
        self.leaving = set(requests)
        super().leave(*requests)

    def _drop(self, *requests: Request[Any]) -> None:
        assert not any(request.is_awaited for request in self.fetched.intersection(requests))
        assert not any(map(self.is_in_flight, {*requests} - self.leaving))
        self.fetched.difference_update(requests)
        super()._drop(*requests)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_whoever_waits_is_served_and_the_bound_holds(data: st.DataObject) -> None:
    """Readers take turns, and each waits for one answer after the other; answers come when they do.

    Nothing is given up while it is in flight: what the server sent would be asked for again.
    """
    with lowered_limit(4 * MEBI), ExitStack() as stack:
        room, bound = Noting(), scratch_share()
        sizes = st.lists(st.integers(1, 5).map(lambda n: n * bound // 4), min_size=1, max_size=6)
        readers = []
        for at_once in data.draw(st.lists(st.booleans(), min_size=1, max_size=5)):
            requests = [Request(never, nbytes, nbytes) for nbytes in data.draw(sizes)]
            asked = stack.enter_context(ExitStack())
            asked.enter_context(room.requested(requests, at_once=at_once))
            readers.append((requests, iter(range(len(requests) + 1)), asked))
        largest = max(one.nbytes for requests, *_ in readers for one in requests)
        waiting: dict[int, Request[Any]] = {}
        left = set(range(len(readers)))
        while left:
            ready = [who for who in left if who not in waiting or waiting[who].done.done()]
            coming = [one for each, *_ in readers for one in each if room.is_in_flight(one)]
            assert ready or coming  # or all would wait for ever
            if coming and (not ready or data.draw(st.booleans())):
                data.draw(st.sampled_from(coming)).done.set_result(None)
                room.serve()
                continue
            who = data.draw(st.sampled_from(ready))
            requests, numbers, asked = readers[who]
            if who in waiting:
                request = waiting.pop(who)
                room.read(request, data.draw(st.sampled_from([request.nbytes, 1])))
            number = next(numbers)
            if number >= len(requests):
                asked.close()
                left.remove(who)
            elif not requests[number].done.cancelled():
                waiting[who] = requests[number]
                room.hurry(requests[number])
            assert room.held <= max(bound, largest)
        assert (room.held, room._requested) == (0, {})
        assert room.most_held <= max(bound, largest)
        assert not any((*room._waiting, room._read, room._granted))


def test_small_requests_count_with_their_objects() -> None:
    """However little each asks for, a thread that requests ahead makes no more than fit."""
    with lowered_limit(4 * MEBI):
        room, made = Noting(), list[Request[Any]]()
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        with ExitStack() as stack:
            while room.has_room() and len(made) < 2000:
                made.append(Request(partial(never, 1, 2, 3), 1, 1))
                stack.enter_context(room.requested(made[-1:]))
            taken = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        assert len(made) > 64
        assert taken < 2 * scratch_share()  # with those of `ExitStack`


def test_memory_for_many_small_chunks_is_stated(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).integers(0, 9, (20_000, 16))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name, each in (("few", 200), ("many", 1)):
            file.create_dataset(name, data=rows, chunks=(each, 16), compression="gzip")
    tracemalloc.start()
    planned = PlannedCache(1e9)
    planned.load({(id(planned), number): 128 for number in range(len(rows))})
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    with RangeServer(tmp_path) as server:
        few, many = (
            ooc.open(f"{server.url}/a.h5", name).batches(16, shuffle=False).explain()
            for name in ("few", "many")
        )
    assert taken > 100 * len(rows)
    assert many.resident_bytes - few.resident_bytes > taken


async def never(*_: object) -> None:
    raise AssertionError


def test_a_fork_while_a_thread_notes_what_it_read(server: RangeServer) -> None:
    """Answers that came before are read in the child, where no thread releases the lock."""
    file = opened(server, "npy").source.file
    some = np.array([1 << 20]), np.array([8])
    with file.prefetch([Fetch(file, some)]):
        (asked,) = file.requests[0].each.values()
        expected = bytes(link().take(asked).data)
        with link()._lock:

            def work() -> bool:
                signal.alarm(30)
                link().read(asked, 8)
                return bytes(link().take(asked).data) == expected

            assert in_a_fork(work) == "True"
