"""Run work in threads, all at once or in order with a bound, and share state between threads."""

from __future__ import annotations

import atexit
import functools
import os
import sys
import threading
import warnings
from _thread import start_new_thread
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from weakref import WeakSet, finalize

__all__ = [
    "Threads", "cached_property", "cores", "fork_safe", "holds_hdf5", "in_order", "in_threads",
    "silent",
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
    """Return a lock that will be free in a fork, where a thread that may hold it does not exist."""
    _locks.add(lock)
    return lock


def _free_after_fork() -> None:
    for lock in list(_locks):
        lock._at_fork_reinit()  # as the standard library does


os.register_at_fork(after_in_child=_free_after_fork)


_Tasks: TypeAlias = "SimpleQueue[Callable[[], object] | None]"
_numbers = count()
_starting = fork_safe(threading.Lock())
"""Held while threads start, which can't be waited for until they have."""
_exiting = False


class Threads:
    """At most `most` threads, which run tasks in the order in which these are given.

    They start with the first task, also in a fork. They end after `close`, or when this object is
    gone, once the tasks given so far are done; the interpreter waits for them when it exits.

    `concurrent.futures` can't be used: Ctrl-C between the start of a thread and its entry in a
    table leaves a thread that is never told to end, and in the first line of
    ``Condition.__enter__`` a lock that nobody releases. Here the main thread calls functions
    written in C, which are interrupted before or after. And `concurrent.futures` serves no threads
    that outlive the main thread.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name, self._number = most, name, next(_numbers)
        self._at_fork_reinit()
        fork_safe(self)

    def _at_fork_reinit(self) -> None:
        self._tasks: _Tasks = SimpleQueue()
        self._threads: list[_Thread] = []
        self.close = finalize(self, self._tasks.put, None)
        self.close.atexit = False

    def put(self, task: Callable[[], object]) -> None:
        """Let a thread run a task that raises nothing.

        It is run here after `close`, when the interpreter exits, or if no thread can start.
        """
        if not self._threads and self.close.alive and not _exiting:
            started: SimpleQueue[None] = SimpleQueue()
            with suppress(RuntimeError):
                start_new_thread(self._start, (started,))
                started.get()
        if self._threads and self.close.alive and not _exiting:
            self._tasks.put(task)
        else:
            task()

    def _start(self, started: SimpleQueue[None]) -> None:
        """Start the threads, in a thread of its own, which Ctrl-C does not reach."""
        try:
            with _starting, suppress(RuntimeError):
                while len(self._threads) < self._most and not _exiting:
                    name = f"{self._name}_{len(self._threads)}"
                    thread = _Thread(self._tasks, self._number, name)
                    thread.start()
                    self._threads.append(thread)
        finally:
            started.put(None)

    def begin(self, work: Callable[[], Made]) -> Callable[[], Made]:
        """Let a thread call `work`; return a function that waits and returns its result.

        That function raises what `work` raised; it can be called once.
        """
        ended: SimpleQueue[Any] = SimpleQueue()
        waiting = [work]

        def task() -> None:
            try:
                ended.put((waiting.pop()(), None))  # what `work` refers to is free by then
            except BaseException as error:  # raised in the thread that waits
                ended.put((None, error))

        def result() -> Any:
            made, error = ended.get()
            try:
                if error is not None:
                    raise error
                return made
            finally:
                del error  # its traceback refers to this frame

        self.put(task)
        return result

    def include_this(self) -> bool:
        """Return whether the current thread is one of these."""
        return threading.get_ident() in [thread.ident for thread in self._threads]


class _Thread(threading.Thread):
    """Thread that runs tasks until it gets None, which it leaves for the next one."""

    def __init__(self, tasks: _Tasks, number: int, name: str) -> None:
        # Else the interpreter would wait for the thread before `_end_threads` is called.
        super().__init__(name=name, daemon=True)
        self.tasks, self.number = tasks, number

    def run(self) -> None:
        while (task := self.tasks.get()) is not None:
            task()
            del task  # with what it refers to
        self.tasks.put(None)


@atexit.register
def _end_threads() -> None:
    """Wait until no thread runs, which may crash the interpreter: the first made are the last."""
    global _exiting
    _exiting = True
    with _starting:
        running = [thread for thread in threading.enumerate() if isinstance(thread, _Thread)]
    for thread in sorted(running, key=lambda thread: thread.number, reverse=True):
        thread.tasks.put(None)
        thread.join()


def in_threads(threads: Threads, work: Callable[[Item], object], items: Iterable[Item]) -> None:
    """Call `work` for all items; return or raise the first error when no call is running."""
    for _ in in_order(threads, work, items, most=sys.maxsize):
        pass


def in_order(
    threads: Threads, work: Callable[[Item], Made], items: Iterable[Item], most: int | None = None
) -> Generator[Made]:
    """Yield the result for each item, in order; no call is running when the iteration ends.

    Items are consumed as needed: `most` results are being computed or ready at a time, by default
    enough to keep every core busy. An error in `work` ends the iteration.
    """
    most = 2 * cores() + 1 if most is None else most
    waiting: deque[Callable[[], Made]] = deque()
    begun, stopped, ended = 0, False, SimpleQueue[None]()

    def call(item: Item) -> Made:
        try:
            if stopped:
                raise GeneratorExit  # nobody waits for the result
            return work(item)
        finally:
            ended.put(None)

    try:
        for item in items:
            waiting.append(threads.begin(functools.partial(call, item)))
            begun += 1
            del item  # else it would be kept alive while the next one is made
            while len(waiting) >= most:
                yield waiting.popleft()()
        while waiting:
            yield waiting.popleft()()
    finally:
        stopped = True
        for _ in range(begun):
            ended.get()


_silent = fork_safe(threading.RLock())


@contextmanager
def silent(*messages: str) -> Iterator[None]:
    """Silence warnings whose messages match patterns at their beginning, within a block."""
    # Filters belong to the process: a second thread would save and restore those of the first.
    with _silent, warnings.catch_warnings():
        for message in messages:
            warnings.filterwarnings("ignore", message=message)
        yield
