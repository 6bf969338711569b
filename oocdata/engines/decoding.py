"""Run decoding in a few threads, which all arrays share, with bounded scratch memory.

The calling thread only waits. So Ctrl-C, which only reaches the main thread, interrupts nothing but
the wait; and however many threads read, no more decode than there are processors.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from queue import SimpleQueue
from typing import TypeVar

from oocdata.memory import scratch_share
from oocdata.threads import Threads, cores, holds_hdf5

Made = TypeVar("Made")


class _Local(threading.local):
    counted = 0
    """Scratch bytes counted for this thread."""


_local = _Local()
_scratch_freed = threading.Condition()
_in_use = 0
"""Scratch bytes of all threads."""
_threads = Threads(cores(), "oocdata-decode")


def in_decoding_thread(work: Callable[[], Made]) -> Made:
    """Return the result of `work`, run in a decoding thread.

    It is run in this thread if it is one itself, if none can start, or if this thread must not wait
    for them.
    """
    if _threads.include_this() or must_not_wait():
        return work()
    return _threads.begin(work)()


def run_tasks(tasks: Sequence[Callable[[], None]]) -> None:
    """Run tasks in this thread and in idle decoding threads; return when all are done.

    Raises the first error of a task, after all tasks are done.
    """
    pending, counted = iter(tasks), _local.counted
    ended: SimpleQueue[BaseException | None] = SimpleQueue()

    def work() -> None:
        before, _local.counted = _local.counted, counted  # helpers share what is counted here
        for task in pending:
            try:
                task()
                ended.put(None)
            except BaseException as error:  # raised in the thread that waits
                ended.put(error)
        _local.counted = before

    for _ in range(min(len(tasks), cores()) - 1):
        _threads.put(work)
    work()
    errors = [error for error in [ended.get() for _ in tasks] if error is not None]
    if errors:
        try:
            raise errors[0]
        finally:
            errors.clear()  # their tracebacks refer to this frame


@contextmanager
def scratch(nbytes: int) -> Iterator[None]:
    """Count scratch memory of this thread, after waiting until it fits.

    A chunk that needs more than the whole share is decoded alone. In nested blocks the larger
    number counts, so a format can give the exact number once it has the stored bytes.
    """
    global _in_use
    before, nbytes = _local.counted, max(nbytes, 1)
    if nbytes <= before:
        yield
        return
    with _scratch_freed:
        # Not counted while waiting: else two threads would wait for each other.
        _in_use -= before
        _scratch_freed.notify_all()
        while _in_use and _in_use + nbytes > scratch_share():
            _scratch_freed.wait()
        _in_use += nbytes
    _local.counted = nbytes
    try:
        yield
    finally:
        _local.counted = before
        with _scratch_freed:
            _in_use += before - nbytes
            _scratch_freed.notify_all()


def must_not_wait() -> bool:
    """Return whether other threads may wait for this one, so that it must not wait for them.

    It is decoding a chunk, which is made from another array's, or it holds HDF5's lock.
    """
    return _local.counted > 0 or holds_hdf5()


def _reset_after_fork() -> None:
    global _in_use, _local, _scratch_freed
    _scratch_freed, _in_use, _local = threading.Condition(), 0, _Local()


os.register_at_fork(after_in_child=_reset_after_fork)
