"""Asking for runs ahead of those that are read: how far, in which order, and what is given up."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest

from oocdata.errors import SourceError
from oocdata.reading.asking import AskAhead
from oocdata.runs import Pass, Run


class Store:
    """Stands for a loader and for the store that it reads: notes what is under way."""

    def __init__(self, room: int, fails: int = -1) -> None:
        self.room, self.fails, self.cold = room, fails, False
        self.asked: list[int] = []
        self.under_way: set[int] = set()
        self.lock = threading.Lock()

    def has_room(self) -> bool:
        return len(self.under_way) < self.room

    def is_cold(self) -> bool:
        return self.cold

    @contextmanager
    def ask(self, run: Run) -> Iterator[list[Any]]:
        with self.lock:
            self.asked.append(run.start)
        if run.start == self.fails:
            raise SourceError("it must be there; it is not.")
        self.under_way.add(run.start)
        yield [self]
        self.under_way.remove(run.start)


def ahead(store: Store, runs: int = 20, number: int = 0) -> AskAhead:
    loader: Any = type("Loader", (), {"prefetched": staticmethod(store.ask)})
    return AskAhead(loader, Pass(first=0, length=runs, steps=runs, together=1), number)


@pytest.mark.parametrize("room", [1, 4, 100])
def test_runs_are_asked_for_in_order_while_there_is_room(room: int) -> None:
    store = Store(room)
    asking = ahead(store)
    for number in range(20):
        with asking.reading(number):
            assert number in store.under_way
            assert len(store.under_way) == min(room, 20 - number)
    assert store.asked == list(range(20))
    assert not store.under_way


def test_a_pass_that_begins_later() -> None:
    store = Store(3)
    with ahead(store, number=17).reading(17):
        assert store.asked == [17, 18, 19]


def test_runs_of_one_of_several_that_take_turns() -> None:
    store = Store(3)
    over = Pass(first=0, length=20, steps=20, together=1)
    loader: Any = type("Loader", (), {"prefetched": staticmethod(store.ask)})
    asking = AskAhead(loader, over, 1, every=4)
    for number in (1, 5, 9):
        assert asking.continues(over, number)
        with asking.reading(number):
            pass
    assert store.asked == [1, 5, 9, 13, 17]
    assert not any(asking.continues(over, number) for number in (1, 9, 2, 20))


@pytest.mark.parametrize("fails", [False, True])
def test_over_new_connections_the_first_run_comes_alone(fails: bool) -> None:
    store = Store(4)
    store.cold = True
    asking = ahead(store, number=2)
    with ThreadPoolExecutor(1) as pool:
        second: Future[list[int]]

        def read() -> list[int]:
            with asking.reading(3):
                return list(store.asked)

        with suppress(KeyError), asking.reading(2):
            second = pool.submit(read)
            assert store.asked == [2]
            assert not second.done()
            if fails:
                raise KeyError
        assert second.result() == [2, 3, 4, 5, 6]


def test_a_pass_that_is_closed_while_its_first_run_is_waited_for() -> None:
    store = Store(4)
    store.cold = True
    asking = ahead(store)

    def read() -> None:
        with asking.reading(1):
            pass

    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(read)
        asking.close()
        assert isinstance(second.exception(), CancelledError)
    assert store.asked == []


def test_small_runs_are_asked_for_so_far_and_no_further() -> None:
    store = Store(1 << 30)
    with ahead(store, runs=1000).reading(0):
        assert len(store.asked) == 64


def test_an_error_is_that_of_its_own_run() -> None:
    store = Store(100, fails=3)
    asking = ahead(store)
    for number in range(6):
        if number == 3:
            with pytest.raises(SourceError, match="must be there"), asking.reading(number):
                pass
        else:
            with asking.reading(number):
                pass
    assert store.asked == list(range(20))


def test_what_is_not_read_any_more_is_given_up() -> None:
    store = Store(8)
    asking = ahead(store)
    with asking.reading(0):
        asking.close()
        assert store.under_way == {0}  # which is being read
    assert not store.under_way
    with pytest.raises(CancelledError), asking.reading(1):
        pass
    asking.close()
    assert store.asked == list(range(8))


def test_what_is_read_stays_asked_for_while_another_thread_looks() -> None:
    """A run that looked before a chunk was decoded would ask for it again after it was read."""
    store = Store(100)
    asking = ahead(store, runs=2)
    looking, go = threading.Event(), threading.Event()
    ask = store.ask

    @contextmanager
    def look(run: Run) -> Iterator[list[Any]]:
        if run.start == 1:
            looking.set()
            assert go.wait(60)
        with ask(run) as files:
            yield files

    asking._loader = type("Loader", (), {"prefetched": staticmethod(look)})  # type: ignore[assignment]
    with ThreadPoolExecutor(2) as pool:
        # The first thread asks for its run, and then looks for the next one.
        first = pool.submit(asking._request, 0)
        assert looking.wait(60)
        with asking.reading(0):
            pass
        under_way = set(store.under_way)
        go.set()
        first.result()
    assert under_way == {0}
    assert store.under_way == {1}
    with asking.reading(1):
        pass
    assert not store.under_way


def test_a_pass_that_the_collector_closes() -> None:
    """In the thread that asks, at a moment at which it holds the lock."""
    store = Store(8)
    asking = ahead(store)

    def has_room() -> bool:
        asking.close()
        return True

    store.has_room = has_room  # type: ignore[method-assign]

    def read() -> None:
        with suppress(CancelledError), asking.reading(0):
            pass

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    assert not store.under_way


def test_a_run_that_is_asked_for_while_the_pass_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The collector closes it once that run has its turn: it is given up all the same."""
    store = Store(8)
    asking = ahead(store)

    def future() -> Future[ExitStack]:
        if asking._next == 4:
            asking.close()
        return Future()

    monkeypatch.setattr("oocdata.reading.asking.Future", future)
    with suppress(CancelledError), asking.reading(0):
        pass
    assert (store.asked, store.under_way) == ([0, 1, 2, 3], set())


def test_several_threads() -> None:
    """Each run is asked for once, whoever comes first."""
    store = Store(5)
    asking = ahead(store, runs=500)
    turn = threading.Barrier(4)

    def read(number: int) -> bool:
        if number < 4:
            turn.wait()
        with asking.reading(number):
            return number in store.under_way

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(read, range(500)))
    assert sorted(store.asked) == list(range(500))
    assert not store.under_way
