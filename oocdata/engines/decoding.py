"""The threads in which chunks are decoded: few, shared by all arrays, with bounded scratch.

The thread that asks only waits. So Ctrl-C, which reaches the main thread alone, ends the waiting
and nothing else, and however many threads ask, no more decode than there are processors.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

from oocdata.memory import scratch_share
from oocdata.threads import cores

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

__all__ = ["decodes_already", "in_decoding_thread", "scratch", "with_help"]

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


def with_help(work: Callable[[], None], helpers: int) -> None:
    """Do work here, and the same at once in decoding threads that are free, at most so many.

    Returns when it is done here; what helpers have begun may still be under way.

    Examples
    --------
    >>> todo = [3, 2, 1]
    >>> with_help(todo.clear, helpers=1)
    >>> todo
    []
    """
    started: list[Future[None]] = []
    with suppress(RuntimeError):
        while len(started) < min(helpers, cores() - 1):
            started.append(_pool().submit(work))
    work()
    for one in started:
        one.cancel()


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
