"""Requesting runs ahead of the runs that are read: how far, in which order, and cancellation."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest

from oocdata.errors import SourceError
from oocdata.reading.prefetcher import Prefetcher
from oocdata.runs import Pass, Run


class Store:
    """Stands for a loader and its store; records the runs requested and in flight."""

    def __init__(self, room: int, fails: int = -1) -> None:
        self.room, self.fails, self.cold = room, fails, False
        self.requested: list[int] = []
        self.in_flight: set[int] = set()
        self.lock = threading.Lock()

    def has_room(self) -> bool:
        return len(self.in_flight) < self.room

    def is_cold(self) -> bool:
        return self.cold

    @contextmanager
    def ask(self, run: Run) -> Iterator[list[Any]]:
        with self.lock:
            self.requested.append(run.start)
        if run.start == self.fails:
            raise SourceError("it must be there; it is not.")
        self.in_flight.add(run.start)
        yield [self]
        self.in_flight.remove(run.start)


def ahead(store: Store, runs: int = 20, number: int = 0) -> Prefetcher:
    loader: Any = type("Loader", (), {"prefetched": staticmethod(store.ask)})
    return Prefetcher(loader, Pass(first=0, length=runs, steps=runs, together=1), number)


@pytest.mark.parametrize("room", [1, 4, 100])
def test_runs_are_requested_in_order_while_there_is_room(room: int) -> None:
    store = Store(room)
    prefetch = ahead(store)
    for number in range(20):
        with prefetch.reading(number):
            assert number in store.in_flight
            assert len(store.in_flight) == min(room, 20 - number)
    assert store.requested == list(range(20))
    assert not store.in_flight


def test_a_pass_that_begins_later() -> None:
    store = Store(3)
    with ahead(store, number=17).reading(17):
        assert store.requested == [17, 18, 19]


def test_one_of_several_workers_that_take_turns() -> None:
    store = Store(3)
    pass_ = Pass(first=0, length=20, steps=20, together=1)
    loader: Any = type("Loader", (), {"prefetched": staticmethod(store.ask)})
    prefetch = Prefetcher(loader, pass_, 1, every=4)
    for number in (1, 5, 9):
        assert prefetch.continues(pass_, number)
        with prefetch.reading(number):
            pass
    assert store.requested == [1, 5, 9, 13, 17]
    assert not any(prefetch.continues(pass_, number) for number in (1, 9, 2, 20))


@pytest.mark.parametrize("fails", [False, True])
def test_on_new_connections_the_first_run_is_alone(fails: bool) -> None:
    store = Store(4)
    store.cold = True
    prefetch = ahead(store, number=2)
    with ThreadPoolExecutor(1) as pool:
        second: Future[list[int]]

        def read() -> list[int]:
            with prefetch.reading(3):
                return list(store.requested)

        with suppress(KeyError), prefetch.reading(2):
            second = pool.submit(read)
            assert store.requested == [2]
            assert not second.done()
            if fails:
                raise KeyError
        assert second.result() == [2, 3, 4, 5, 6]


def test_closing_a_pass_while_its_first_run_is_awaited() -> None:
    store = Store(4)
    store.cold = True
    prefetch = ahead(store)

    def read() -> None:
        with prefetch.reading(1):
            pass

    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(read)
        prefetch.close()
        assert isinstance(second.exception(), CancelledError)
    assert store.requested == []


def test_requests_ahead_are_limited_for_small_runs() -> None:
    store = Store(1 << 30)
    with ahead(store, runs=1000).reading(0):
        assert len(store.requested) == 64


def test_an_error_is_raised_by_its_run() -> None:
    store = Store(100, fails=3)
    prefetch = ahead(store)
    for number in range(6):
        if number == 3:
            with pytest.raises(SourceError, match="must be there"), prefetch.reading(number):
                pass
        else:
            with prefetch.reading(number):
                pass
    assert store.requested == list(range(20))


def test_requests_that_nobody_reads_are_cancelled() -> None:
    store = Store(8)
    prefetch = ahead(store)
    with prefetch.reading(0):
        prefetch.close()
        assert store.in_flight == {0}  # still being read
    assert not store.in_flight
    with pytest.raises(CancelledError), prefetch.reading(1):
        pass
    prefetch.close()
    assert store.requested == list(range(8))


def test_requests_stay_open_while_another_thread_looks() -> None:
    """A thread that looked before a chunk was decoded would request the chunk again."""
    store = Store(100)
    prefetch = ahead(store, runs=2)
    looking, go = threading.Event(), threading.Event()
    ask = store.ask

    @contextmanager
    def look(run: Run) -> Iterator[list[Any]]:
        if run.start == 1:
            looking.set()
            assert go.wait(60)
        with ask(run) as files:
            yield files

    prefetch._loader = type("Loader", (), {"prefetched": staticmethod(look)})  # type: ignore[assignment]
    with ThreadPoolExecutor(2) as pool:
        # The first thread requests its run, and then looks up the next one.
        first = pool.submit(prefetch._request, 0)
        assert looking.wait(60)
        with prefetch.reading(0):
            pass
        in_flight = set(store.in_flight)
        go.set()
        first.result()
    assert in_flight == {0}
    assert store.in_flight == {1}
    with prefetch.reading(1):
        pass
    assert not store.in_flight


def test_a_pass_closed_by_the_collector() -> None:
    """The collector runs in the requesting thread while that holds the lock."""
    store = Store(8)
    prefetch = ahead(store)

    def has_room() -> bool:
        prefetch.close()
        return True

    store.has_room = has_room  # type: ignore[method-assign]

    def read() -> None:
        with suppress(CancelledError), prefetch.reading(0):
            pass

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    assert not store.in_flight


def test_a_run_requested_while_the_pass_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The collector closes the pass while a run is being added: that run is cancelled too."""
    store = Store(8)
    prefetch = ahead(store)

    def future() -> Future[ExitStack]:
        if prefetch._next == 4:
            prefetch.close()
        return Future()

    monkeypatch.setattr("oocdata.reading.prefetcher.Future", future)
    with suppress(CancelledError), prefetch.reading(0):
        pass
    assert (store.requested, store.in_flight) == ([0, 1, 2, 3], set())


def test_several_threads() -> None:
    """Each run is requested once, whichever thread comes first."""
    store = Store(5)
    prefetch = ahead(store, runs=500)
    turn = threading.Barrier(4)

    def read(number: int) -> bool:
        if number < 4:
            turn.wait()
        with prefetch.reading(number):
            return number in store.in_flight

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(read, range(500)))
    assert sorted(store.requested) == list(range(500))
    assert not store.in_flight
