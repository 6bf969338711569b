"""Work for other threads: all of it, in order with a bound, or out of reach of interrupts."""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
from _thread import allocate_lock
from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

__all__ = ["cores", "holds_hdf5", "in_order", "in_order_by_few", "in_threads", "uninterrupted"]

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
    >>> from concurrent.futures import ThreadPoolExecutor
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
        _end(started)


def in_order(
    threads: ThreadPoolExecutor,
    work: Callable[[Item], Made],
    items: Iterable[Item],
    most: int | None = None,
) -> Generator[Made]:
    """Yield what comes of each item, in order.

    None is under way any more when it ends, or is closed.

    Parameters
    ----------
    threads : ThreadPoolExecutor
    work : callable
        What it raises ends the iteration.
    items : iterable
        Asked for as they are needed.
    most : int, optional
        Items under way or ready at a time; by default enough to keep every core busy.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> with ThreadPoolExecutor(2) as threads:
    ...     list(in_order(threads, str, range(3)))
    ['0', '1', '2']
    """
    most = 2 * cores() + 1 if most is None else most
    waiting: deque[Future[Made]] = deque()
    try:
        for item in items:
            waiting.append(threads.submit(work, item))
            del item  # or it would be held while the next one is made
            while len(waiting) >= most:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        _end(waiting)


def in_order_by_few(
    name: str, work: Callable[[Item], Made], items: Iterable[Item]
) -> Generator[Made]:
    """Yield what comes of each item, in order, by two to four threads of that name.

    For what gains little from more, and takes memory in each.

    Examples
    --------
    >>> list(in_order_by_few("example", abs, [-3, 2, -1]))
    [3, 2, 1]
    """
    from concurrent.futures import ThreadPoolExecutor  # not for `import oocdata`: it is slow

    with ThreadPoolExecutor(max(2, min(4, cores())), name) as threads:
        yield from in_order(threads, work, items)


def _end(started: Iterable[Future[Made]]) -> None:
    """Let nothing of it begin, and wait for what has begun."""
    from concurrent.futures import wait  # not for `import oocdata`: it is slow

    for one in started:
        one.cancel()
    wait(started)


def uninterrupted(work: Callable[[], object]) -> None:
    """Do what must not be torn, where no signal's handler can raise an exception in its midst.

    Python runs handlers in the main thread, between any two of its instructions, so Ctrl-C could
    leave queues and tables half changed there. Another thread does the work then; Ctrl-C ends the
    waiting for it, and it goes on to its end by itself.

    Examples
    --------
    >>> done = []
    >>> uninterrupted(lambda: done.append(1))
    >>> done
    [1]
    """
    inside = threading.get_ident() == threading.main_thread().ident
    if not inside or not callable(signal.getsignal(signal.SIGINT)) or holds_hdf5():
        work()
        return
    try:
        tasks = _tasks()
    except RuntimeError:  # no more threads: then without
        work()
        return
    task = _Task(work)
    tasks.put(task)
    task.ended.acquire()
    if task.error is not None:
        try:
            raise task.error
        finally:
            del task  # the error's traceback holds this frame


def holds_hdf5() -> bool:
    """Return whether this thread is in a call of h5py, as in a function given to ``visititems``.

    Another thread that needs HDF5 would wait for it for ever.
    """
    objects = sys.modules.get("h5py._objects")
    owned = getattr(getattr(objects, "phil", None), "_is_owned", None)
    return bool(owned is not None and owned())


class _Task:
    """Work, and how it ended."""

    __slots__ = ("ended", "error", "work")

    def __init__(self, work: Callable[[], object]) -> None:
        self.work = work
        self.error: BaseException | None = None
        self.ended = allocate_lock()
        self.ended.acquire()

    def run(self) -> None:
        try:
            self.work()
        except BaseException as error:  # told in the thread that waits
            self.error = error
        del self.work  # it holds what it worked on
        self.ended.release()


_queue: queue.SimpleQueue[_Task] | None = None


def _tasks() -> queue.SimpleQueue[_Task]:
    """Return what a thread takes its tasks from; started when it is first needed."""
    global _queue
    if _queue is None:
        made: queue.SimpleQueue[_Task] = queue.SimpleQueue()
        # A daemon, or the interpreter could not end while it waits for another task.
        threading.Thread(
            target=_serve, args=(made,), name="oocdata-uninterrupted", daemon=True
        ).start()
        _queue = made
    return _queue


def _serve(tasks: queue.SimpleQueue[_Task]) -> None:
    while True:
        tasks.get().run()


def _forget_after_fork() -> None:
    global _queue
    _queue = None  # its thread is the parent's


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
