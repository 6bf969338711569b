"""Run work in threads, all at once or in order with a bound, and share state between threads."""

from __future__ import annotations

import functools
import os
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

__all__ = [
    "cached_property", "cores", "fork_safe", "holds_hdf5", "in_order", "in_threads", "silent",
]  # fmt: skip

Item = TypeVar("Item")
Made = TypeVar("Made")


if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property
else:

    class cached_property(functools.cached_property):  # noqa: N801
        """The `cached_property` of Python 3.12: without a lock, so two threads may compute a value.

        Python 3.11 has one lock for all objects of a class. A user's function that was run for one
        dataset blocked all others, and forked children for ever.
        """

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            if instance is None:
                return self
            values = instance.__dict__
            if self.attrname not in values:
                values[self.attrname] = self.func(instance)
            return values[self.attrname]


def cores() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def in_threads(
    threads: ThreadPoolExecutor, work: Callable[[Item], object], items: Iterable[Item]
) -> None:
    """Call `work` for all items; return or raise the first error when no call is running."""
    for _ in in_order(threads, work, items, most=sys.maxsize):
        pass


def in_order(
    threads: ThreadPoolExecutor,
    work: Callable[[Item], Made],
    items: Iterable[Item],
    most: int | None = None,
) -> Generator[Made]:
    """Yield the result for each item, in order; no call is running when the iteration ends.

    Items are consumed as needed: `most` results are being computed or ready at a time, by default
    enough to keep every core busy. An error in `work` ends the iteration.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> with ThreadPoolExecutor(2) as threads:
    ...     list(in_order(threads, str, range(3)))
    ['0', '1', '2']
    """
    from concurrent.futures import wait  # not for `import oocdata`: it is slow

    most = 2 * cores() + 1 if most is None else most
    waiting: deque[Future[Made]] = deque()
    try:
        for item in items:
            waiting.append(threads.submit(work, item))
            del item  # else it would be kept alive while the next one is made
            while len(waiting) >= most:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
        wait(waiting)


def holds_hdf5() -> bool:
    """Return whether this thread is in a call of h5py, as in a function given to ``visititems``.

    If so, another thread that needs HDF5 would block for ever.
    """
    objects = sys.modules.get("h5py._objects")
    owned = getattr(getattr(objects, "phil", None), "_is_owned", None)
    return bool(owned is not None and owned())


_Lock = TypeVar("_Lock")

_locks: WeakSet[Any] = WeakSet()
"""Locks that are free in a fork."""


def fork_safe(lock: _Lock) -> _Lock:
    """Return a lock that will be free in a fork, where a thread that may hold it does not exist.

    Examples
    --------
    >>> lock = fork_safe(threading.Lock())
    """
    _locks.add(lock)
    return lock


def _free_after_fork() -> None:
    for lock in list(_locks):
        lock._at_fork_reinit()  # as the standard library does


os.register_at_fork(after_in_child=_free_after_fork)

_silent = fork_safe(threading.RLock())


@contextmanager
def silent(*messages: str) -> Iterator[None]:
    """Silence warnings whose messages match patterns at their beginning, within a block.

    Examples
    --------
    >>> with silent("(Ginger|Sugar) is"):
    ...     warnings.warn("Sugar is sweet", stacklevel=1)
    """
    # Filters belong to the process: a second thread would save and restore those of the first.
    with _silent, warnings.catch_warnings():
        for message in messages:
            warnings.filterwarnings("ignore", message=message)
        yield
