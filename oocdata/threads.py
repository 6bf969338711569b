"""Work for several threads: all of it, or in order with a bound on what is ready."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

__all__ = ["cores", "in_order", "in_threads"]

Item = TypeVar("Item")
Made = TypeVar("Made")


def cores() -> int:
    """Return the number of processors that this process may use.

    Examples
    --------
    >>> cores() >= 1
    True
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def in_threads(
    threads: ThreadPoolExecutor, work: Callable[[Item], object], items: Iterable[Item]
) -> None:
    """Do it for all items, and return when none is under way any more; raise the first error.

    Examples
    --------
    >>> done = set()
    >>> with ThreadPoolExecutor(2) as threads:
    ...     in_threads(threads, done.add, range(3))
    >>> done
    {0, 1, 2}
    """
    started = [threads.submit(work, item) for item in items]
    try:
        for one in started:
            one.result()
    finally:
        for one in started:
            one.cancel()
        wait(started)


def in_order(
    threads: ThreadPoolExecutor, work: Callable[[Item], Made], items: Iterable[Item]
) -> Generator[Made]:
    """Yield what comes of each item, in order; no more are ready than keep the threads busy.

    None is under way any more when it ends, or is closed.

    Examples
    --------
    >>> with ThreadPoolExecutor(2) as threads:
    ...     list(in_order(threads, str, range(3)))
    ['0', '1', '2']
    """
    waiting: deque[Future[Made]] = deque()
    try:
        for item in items:
            waiting.append(threads.submit(work, item))
            if len(waiting) > 2 * cores():
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for one in waiting:
            one.cancel()
        wait(waiting)
