"""Work in a few threads, its results in order, with a bound on what is under way."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

__all__ = ["THREADS", "in_order"]

Item = TypeVar("Item")
Result = TypeVar("Result")

THREADS = max(2, min(4, os.cpu_count() or 1))


def in_order(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yield ``work(item)`` of each item, in their order; a few are worked on at a time.

    Parameters
    ----------
    work : callable
        Called from several threads. What it raises ends the iteration.
    items : iterable
        Asked for as they are needed.

    Examples
    --------
    >>> list(in_order(abs, [-3, 2, -1]))
    [3, 2, 1]
    """
    pool = ThreadPoolExecutor(THREADS, thread_name_prefix="oocdata check")
    started: deque[Future[Result]] = deque()
    try:
        for item in items:
            started.append(pool.submit(work, item))
            if len(started) > 2 * THREADS:
                yield started.popleft().result()
        while started:
            yield started.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
