"""Portions: each is worked on once, by whoever waits, and nobody waits for ever."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from oocdata.errors import SourceError
from oocdata.sources import portions as module
from oocdata.sources.portions import Portion, complete, wait_until_ended


def portion_of(work: object) -> Portion:
    portion = Portion()
    portion.work = work  # type: ignore[assignment]
    return portion


def test_many_threads_work_on_each_portion_once():
    done: Counter[tuple[int, int]] = Counter()
    all_of_them = [
        [portion_of(lambda key=(owner, number): done.update([key])) for number in range(50)]
        for owner in range(6)
    ]
    start = threading.Barrier(6)

    def work(owner: int) -> None:
        start.wait()
        # Each wants some of its neighbour's too, who may come later or be done already.
        complete(all_of_them[owner], all_of_them[owner] + all_of_them[(owner + 1) % 6][:10])
        assert all(portion.ended for portion in all_of_them[owner])

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    assert set(done.values()) == {1}
    assert len(done) == 300


def test_who_waits_works_for_others(monkeypatch: pytest.MonkeyPatch):
    """One thread is held up in its first portion; the other, who wants all, does the rest."""
    monkeypatch.setattr(module, "cores", lambda: 1)  # no help from the pool
    held_up, go_on, workers = threading.Event(), threading.Event(), set()

    def first() -> None:
        held_up.set()
        assert go_on.wait(30)

    def other() -> None:
        workers.add(threading.current_thread().name)
        if all(portion.ended or portion is last for portion in rest):
            go_on.set()

    rest = [portion_of(other) for _ in range(5)]
    last = rest[-1]
    own = [portion_of(first), *rest]
    with ThreadPoolExecutor(1, "slow") as slow, ThreadPoolExecutor(1, "quick") as quick:
        owner = slow.submit(complete, own, own)
        assert held_up.wait(30)
        helper = quick.submit(complete, [], own)
        owner.result(timeout=30)
        helper.result(timeout=30)
    assert workers == {"quick_0"}


def test_cores_that_have_nothing_to_do_help(monkeypatch: pytest.MonkeyPatch):
    """Two portions that each wait for the other to begin can only end in two threads."""
    monkeypatch.setattr(module, "cores", lambda: 2)
    both = threading.Barrier(2)
    own = [portion_of(lambda: both.wait(30)) for _ in range(2)]
    complete(own, own)
    assert [portion.error for portion in own] == [None, None]


def test_an_interrupt_is_its_own_threads():
    def interrupted() -> None:
        raise KeyboardInterrupt

    portion = portion_of(interrupted)
    with pytest.raises(KeyboardInterrupt):
        portion.run()
    portion.wait()
    assert isinstance(portion.error, SourceError)
    assert "was interrupted" in str(portion.error)


def test_the_main_thread_begins_nothing_but_its_own(monkeypatch: pytest.MonkeyPatch):
    """What it was interrupted in could not be told from what another thread is working on."""
    monkeypatch.setattr(module, "cores", lambda: 1)
    ran: list[str] = []
    stranger = portion_of(lambda: ran.append("stranger"))
    module._handed_out.append(stranger)
    try:
        own = portion_of(lambda: ran.append("own"))
        complete([own], [own])
        assert ran == ["own"]
        assert list(module._handed_out) == [stranger]
    finally:
        module._handed_out.clear()


def test_what_is_cancelled_is_over_and_never_begun():
    ran: list[int] = []
    ends: list[Portion] = []
    portion = Portion(ends.append)
    portion.work = lambda: ran.append(1)
    portion.cancel()
    portion.run()
    portion.cancel()
    assert (ran, ends, portion.ended) == ([], [portion], True)


def test_cancelling_waits_for_the_thread_that_works(monkeypatch: pytest.MonkeyPatch):
    begun, go_on, done = threading.Event(), threading.Event(), []

    def work() -> None:
        begun.set()
        assert go_on.wait(30)
        done.append(1)

    portion = portion_of(work)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(portion.run)
        assert begun.wait(30)
        real = portion._ended.wait

        def wait() -> bool:  # as if an interrupt came while it waits
            if not go_on.is_set():
                go_on.set()
                raise KeyboardInterrupt
            return real()

        monkeypatch.setattr(portion._ended, "wait", wait)
        portion.cancel()
        assert done == [1]
        running.result(timeout=30)
    assert portion.error is None


def test_an_interrupt_right_after_the_claim():
    """Between claiming and working: whoever claimed it must end it."""
    portion = portion_of(lambda: None)
    portion._claims.append(threading.get_ident())
    portion.cancel()
    assert portion.ended
    assert isinstance(portion.error, SourceError)


def test_a_wait_goes_on_when_it_is_interrupted():
    class Task:
        asked = 0

        def done(self) -> bool:
            return self.asked == 3

        def exception(self) -> None:
            self.asked += 1
            if self.asked < 3:
                raise KeyboardInterrupt

    task = Task()
    wait_until_ended([task])
    assert task.asked == 3
