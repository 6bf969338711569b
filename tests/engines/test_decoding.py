"""Tasks in the decoding threads: each is run once, and errors are raised."""

from __future__ import annotations

import gc
import threading
import weakref
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from queue import SimpleQueue

import pytest

from oocdata.engines.decoding import in_decoding_thread, must_not_wait, run_tasks, scratch
from oocdata.formats.hdf5.file import hdf5_lock
from oocdata.threads import Threads, cores


def test_each_task_is_run_once_even_if_some_fail() -> None:
    done: Counter[int] = Counter()

    def task(number: int) -> None:
        done[number] += 1
        if number % 10 == 3:
            raise ValueError(number)

    with pytest.raises(ValueError, match="3"):
        run_tasks([partial(task, number) for number in range(100)])
    assert done == Counter(range(100))


@pytest.mark.skipif(cores() < 2, reason="needs two processors")
@pytest.mark.parametrize("within", [False, True])
def test_tasks_run_in_parallel_and_are_waited_for(within: bool) -> None:
    """Also in a decoding thread, whose scratch memory counts for the threads that help."""
    met, ended, nested = threading.Barrier(2), [], []

    def task() -> None:
        with suppress(threading.BrokenBarrierError):  # no other thread came
            met.wait(20)
        nested.append(must_not_wait())
        ended.append(threading.get_ident())

    def work() -> None:
        with scratch(8):
            run_tasks([task, task])

    if within:
        in_decoding_thread(work)
    else:
        run_tasks([task, task])
    assert len(ended) == len(set(ended)) == 2
    assert nested == [within] * 2
    assert not must_not_wait()


def test_a_decoding_thread_does_not_wait_for_another() -> None:
    """All of them may be waiting."""
    with ThreadPoolExecutor(4) as several:
        waiting = [
            several.submit(in_decoding_thread, lambda: in_decoding_thread(threading.get_ident))
            for _ in range(8)
        ]
        idents = {future.result(timeout=60) for future in waiting}
    assert len(idents) <= cores()


def test_who_may_be_waited_for_does_not_wait() -> None:
    """Decoding threads may wait for scratch memory of this thread, or for HDF5's lock."""
    assert in_decoding_thread(threading.get_ident) != threading.get_ident()
    with scratch(1):
        assert in_decoding_thread(threading.get_ident) == threading.get_ident()
    with hdf5_lock():
        assert in_decoding_thread(threading.get_ident) == threading.get_ident()


def test_what_work_refers_to_is_free_once_its_result_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else an array that is gone would keep its chunks in the cache for a moment."""
    freed = []

    class Work:
        def __call__(self) -> str:
            return "done"

    class Queue(SimpleQueue):  # type: ignore[type-arg]
        def put(self, item: object, *_: object) -> None:
            if isinstance(item, tuple):  # a result
                freed.append(gone() is None)
            super().put(item)

    monkeypatch.setattr("oocdata.threads.SimpleQueue", Queue)
    threads, work = Threads(1, "test"), Work()
    gone = weakref.ref(work)
    result = threads.begin(work)
    del work
    assert result() == "done"
    threads.close()
    assert freed == [True]


def test_an_error_is_free_once_it_was_handled() -> None:
    """What its traceback refers to is an open file of HDF5, which then closes."""

    class WorkError(Exception):
        pass

    def fail() -> None:
        raise WorkError

    gc.disable()
    try:
        try:
            run_tasks([fail])
        except WorkError as error:
            gone = weakref.ref(error)
        assert gone() is None
    finally:
        gc.enable()
