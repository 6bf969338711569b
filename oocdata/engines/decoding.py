"""Run decoding in a few threads, which all arrays share, with bounded scratch memory.

The calling thread only waits. So Ctrl-C, which only reaches the main thread, interrupts nothing but
the wait; and however many threads read, no more decode than there are processors.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

from oocdata.memory import scratch_share
from oocdata.threads import cores, holds_hdf5

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

__all__ = ["in_decoding_thread", "is_decoding", "run_tasks", "scratch"]

Made = TypeVar("Made")


class _Local(threading.local):
    counted = 0
    """Scratch bytes counted for this thread."""
    decodes = False
    """Whether this is a decoding thread."""


_local = _Local()
_scratch_freed = threading.Condition()
_in_use = 0
"""Scratch bytes of all threads."""
_threads: ThreadPoolExecutor | None = None


def _pool() -> ThreadPoolExecutor:
    global _threads
    if _threads is None:
        from concurrent.futures import ThreadPoolExecutor  # not for `import oocdata`: it is slow

        _threads = ThreadPoolExecutor(cores(), "oocdata-decode", _begin)
    return _threads


def _begin() -> None:
    _local.decodes = True


def in_decoding_thread(work: Callable[[], Made]) -> Made:
    """Return the result of `work`, run in a decoding thread.

    It is run in this thread if it is one itself, if none can start, or if they could wait for this
    thread: if it is decoding, or holds HDF5's lock.

    Examples
    --------
    >>> in_decoding_thread(lambda: threading.current_thread().name[:14])
    'oocdata-decode'
    """
    if _local.decodes or is_decoding() or holds_hdf5():
        return work()
    try:
        future = _pool().submit(work)
    except RuntimeError:  # no more threads can start, or the interpreter is shutting down
        return work()
    try:
        return future.result()
    finally:
        del future  # it refers to the error, whose traceback would refer to it


def run_tasks(tasks: Sequence[Callable[[], None]]) -> None:
    """Run tasks in this thread and in idle decoding threads; return when all are done.

    Raises
    ------
    Exception
        The first error of a task, after all tasks are done.

    Examples
    --------
    >>> done = []
    >>> run_tasks([lambda: done.append("a"), lambda: done.append("b")])
    >>> sorted(done)
    ['a', 'b']
    """
    pending, counted = iter(tasks), _local.counted
    errors: list[BaseException] = []

    def work() -> None:
        before, _local.counted = _local.counted, counted  # helpers share what is counted here
        for task in pending:
            try:
                task()
            except BaseException as error:  # raised in the thread that waits
                errors.append(error)
        _local.counted = before

    helpers: list[Future[None]] = []
    with suppress(RuntimeError):
        while len(helpers) < min(len(tasks), cores()) - 1:
            helpers.append(_pool().submit(work))
    work()
    for helper in helpers:
        if not helper.cancel():
            helper.result()
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

    Examples
    --------
    >>> with scratch(1 << 20):
    ...     is_decoding()
    True
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


def is_decoding() -> bool:
    """Return whether this thread is decoding a chunk, which is made from another array's."""
    return _local.counted > 0


def _reset_after_fork() -> None:
    global _in_use, _local, _scratch_freed, _threads
    _scratch_freed, _in_use, _local, _threads = threading.Condition(), 0, _Local(), None


os.register_at_fork(after_in_child=_reset_after_fork)
