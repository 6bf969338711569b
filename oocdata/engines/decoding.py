"""The threads in which chunks are decoded: few, shared by all arrays, with bounded scratch.

The thread that asks only waits. So Ctrl-C, which reaches the main thread alone, ends the waiting
and nothing else, and however many threads ask, no more decode than there are processors.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

from oocdata.memory import scratch_share
from oocdata.threads import cores

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

__all__ = ["decodes_already", "in_decoding_thread", "in_turns", "scratch"]

Made = TypeVar("Made")


class _Local(threading.local):
    counted = 0
    """Bytes of scratch memory of this thread."""


_local = _Local()
_gate = threading.Condition()
_in_use = 0
_threads: ThreadPoolExecutor | None = None


def _pool() -> ThreadPoolExecutor:
    global _threads
    if _threads is None:
        from concurrent.futures import ThreadPoolExecutor  # not for `import oocdata`: it is slow

        _threads = ThreadPoolExecutor(cores(), "oocdata-decode")
    return _threads


def in_decoding_thread(work: Callable[[], Made]) -> Made:
    """Return what comes of work that is done in a decoding thread; in this one if none can start.

    Examples
    --------
    >>> in_decoding_thread(lambda: threading.current_thread().name[:14])
    'oocdata-decode'
    """
    try:
        future = _pool().submit(work)
    except RuntimeError:  # no more threads, or the interpreter is ending
        return work()
    try:
        return future.result()
    finally:
        del future  # the traceback of an error would hold it, and it holds the error


def in_turns(tasks: Sequence[Callable[[], None]]) -> None:
    """Do tasks here, and in decoding threads that are free; return when all of them are done.

    Raises
    ------
    Exception
        The first that a task raised, after all were done.

    Examples
    --------
    >>> done = []
    >>> in_turns([lambda: done.append("a"), lambda: done.append("b")])
    >>> sorted(done)
    ['a', 'b']
    """
    todo, ended, counted = deque(tasks), threading.Semaphore(0), _local.counted
    errors: list[BaseException] = []

    def work() -> None:
        own, _local.counted = _local.counted, counted  # what is counted here is for helpers too
        try:
            with suppress(IndexError):  # nothing is left to do
                while True:
                    _do(todo.popleft(), ended, errors)
        finally:
            _local.counted = own

    helpers: list[Future[None]] = []
    with suppress(RuntimeError):
        while len(helpers) < min(len(tasks), cores()) - 1:
            helpers.append(_pool().submit(work))
    work()
    for one in helpers:
        one.cancel()
    for _ in tasks:
        ended.acquire()
    if errors:
        try:
            raise errors[0]
        finally:
            errors.clear()  # whose traceback leads back here


def _do(task: Callable[[], None], ended: threading.Semaphore, errors: list[BaseException]) -> None:
    try:
        task()
    except BaseException as error:  # it is for whoever waits
        errors.append(error)
    ended.release()


@contextmanager
def scratch(nbytes: int) -> Iterator[None]:
    """Count the scratch memory of a thread that decodes, and wait while others take too much.

    Where one chunk takes more than there is, it is decoded alone. Within another block of this kind
    the larger of both counts: so a format can say what it takes once it has seen the stored bytes.

    Examples
    --------
    >>> with scratch(1 << 20):
    ...     decodes_already()
    True
    """
    global _in_use
    before, nbytes = _local.counted, max(nbytes, _local.counted, 1)
    with _gate:
        # Counted as nothing while it waits: two threads would wait for what the other has.
        _in_use -= before
        _gate.notify_all()
        while _in_use and _in_use + nbytes > scratch_share():
            _gate.wait()
        _in_use += nbytes
    _local.counted = nbytes
    try:
        yield
    finally:
        _local.counted = before
        with _gate:
            _in_use += before - nbytes
            _gate.notify_all()


def decodes_already() -> bool:
    """Return whether this thread is decoding a chunk, of an array that is made of another one."""
    return _local.counted > 0


def _fresh_after_fork() -> None:
    global _gate, _in_use, _local, _threads
    _gate, _in_use, _local, _threads = threading.Condition(), 0, _Local(), None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_fresh_after_fork)
