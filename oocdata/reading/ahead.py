"""Read ahead: hand out runs of steps while the following runs are being read.

NumPy iteration, Keras and tf.data all read through `ReadAhead`, in threads or in worker processes.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import closing, nullcontext, suppress
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakKeyDictionary, finalize

from oocdata.datasets.spec import Batch
from oocdata.engines.buffers import keep_freed_memory
from oocdata.errors import DatasetGoneError, RestoreError
from oocdata.generator_batches import Merged
from oocdata.loader import Loader
from oocdata.memory import account
from oocdata.reading.prefetcher import Prefetcher
from oocdata.runs import Pass, fitted, run_bytes
from oocdata.threads import Threads

if TYPE_CHECKING:
    from oocdata.reading.workers.pool import WorkerPool
    from oocdata.stream import Stream

_Idle: TypeAlias = "tuple[WorkerPool, Sequence[Callable[..., object]]]"
"""A pool, and the functions that wait for its unread runs."""

_SECONDS = 1.0
"""How long to wait for runs that nobody will read: as long as processes take to start."""

_idle_of: WeakKeyDictionary[Loader | Stream, list[_Idle]] = WeakKeyDictionary()
"""Idle pools of loaders that are iterated over, from one epoch to the next."""


def read_ahead(
    loader: Loader | Stream, epoch: int, start: int = 0, *, parallel: int = 2, prefetch: int = 2
) -> Iterator[Batch]:
    """Yield the batches of an epoch from step `start`; see `oocdata.Loader.epoch`."""
    idle = _idle_of.setdefault(loader, []) if loader.workers else None
    with closing(Reader(loader, parallel, prefetch, runs_in_use=1, idle=idle)) as reader:
        yield from reader.batches(loader.pass_from(epoch, start))


class Reader:
    """Source of passes over a loader's steps.

    `parallel` runs of steps are read at a time, with worker processes two for each, and `prefetch`
    batches are kept ready besides, rounded down to whole runs; the caller usually has
    `runs_in_use`. `finish`, called in the thread that has read a run, converts its batches to what
    is handed out.

    All passes have the same threads: in new ones for each pass, malloc kept 3.5 MiB of temporary
    arrays once for each. Worker processes are kept from one pass to the next, until `close`; those
    in `idle`, if given, also after it.
    """

    def __init__(
        self,
        loader: Loader | Stream,
        parallel: int,
        prefetch: int,
        runs_in_use: int,
        finish: Callable[[list[Batch]], list[Any]] = list,
        idle: list[_Idle] | None = None,
    ) -> None:
        keep_freed_memory()
        self.loader, self.plan = loader, loader.ahead(parallel, prefetch)
        self._threads = Threads(self.plan.reading, "oocdata-read-ahead")
        self._finish, self._runs_in_use = finish, runs_in_use
        self._idle, self._ends_workers = [] if idle is None else idle, idle is None
        self._closed = False

    def begin(self, pass_: Pass, number: int = 0) -> ReadAhead | Merged:
        """Begin to read the runs of a pass from `number` on, and return them.

        Where other iterations leave little memory, threads read shorter runs from the first one on.

        Raises RestoreError if `number` is not 0 for a stream: generators can't start in the middle.
        """
        if isinstance(self.loader, Loader):
            if not number and not self.loader.workers:  # a pool keeps its slots, of one size
                pass_ = fitted(self.loader, pass_)
            return self._runs(pass_, number, self._finish)
        if number:
            raise RestoreError(
                "batches of generators must be read from the first on, in order; a saved or failed "
                f"iterator asks for batch {number}. Begin a new pass."
            )
        return Merged(self._runs(pass_, 0, list), self.loader, self._finish)

    def batches(self, pass_: Pass) -> Iterator[Batch]:
        """Yield the batches of a pass."""
        with closing(self.begin(pass_)) as runs:
            while batches := runs.read():
                batches.reverse()
                while batches:
                    yield batches.pop()

    def _runs(
        self, pass_: Pass, number: int, finish: Callable[[list[Batch]], list[Any]]
    ) -> ReadAhead:
        if self.loader.workers:
            return ReadAhead(_Workers(self, pass_), pass_, number, finish)
        return ReadAhead(_Threads(self, pass_, number, finish), pass_, number)

    @property
    def threads(self) -> Threads:
        """The threads of all passes; new ones after a read has failed, or a pass was broken off."""
        if not (self._threads.close.alive or self._closed):
            self._threads = Threads(self.plan.reading, "oocdata-read-ahead")
        return self._threads

    def acquire(self, together: int) -> WorkerPool:
        """Return a pool of worker processes whose slots hold runs of `together` steps."""
        from oocdata.reading.workers.pool import WorkerPool  # not for `import oocdata`: it is slow

        for pool, unread in _popped(self._idle):
            if together <= pool.together and pool.can_read(self.loader):
                for result in unread:
                    with suppress(Exception):  # the pass that requested this run has ended
                        result(_SECONDS)
                if pool.failure is None:
                    return pool
            pool.close()
        together = max(together, self.loader.steps_together)
        return WorkerPool(self.loader, self._runs_in_use, together)

    def release(self, pool: WorkerPool, unread: Sequence[Callable[..., object]]) -> None:
        """Keep the worker processes of a finished pass for the next one, unless one has died."""
        if pool.failure is not None or (self._closed and self._ends_workers):
            pool.close()
        else:
            self._idle.append((pool, unread))

    def close(self) -> None:
        """End the threads and worker processes, also of a running pass. May be called again.

        Worker processes in `idle` end with the loader.
        """
        self._closed = True
        self._threads.close()
        for pool, _ in _popped(self._idle) if self._ends_workers else ():
            pool.close()


def _popped(idle: list[_Idle]) -> Iterator[_Idle]:
    """Take one after the other from a list, until it is empty; other threads may do so too."""
    with suppress(IndexError):
        while True:
            yield idle.pop()  # atomic


class ReadAhead:
    """The runs of a pass from `number` on, in order; later runs are read while one is in use.

    The attribute `number` is the run that `read` returns next.
    """

    def __init__(
        self,
        readers: _Threads | _Workers,
        pass_: Pass,
        number: int,
        finish: Callable[[list[Any]], list[Any]] = list,
    ) -> None:
        self.pass_, self._finish = pass_, finish
        self.number = number
        self._readers = readers
        self._ahead: deque[Callable[[], list[Any]]] = deque()
        self._runs, self._in_use = len(pass_), False
        self._process = os.getpid()

    def read(self) -> list[Any] | None:
        """Return the next run, or None after the last one; the previous run is no longer in use."""
        if os.getpid() != self._process:
            raise DatasetGoneError(
                "batches must be read in the process that began to read them; this one is a "
                "fork of it. Begin anew: `.epoch(epoch, start=step)`."
            )
        if self._in_use:
            self._in_use = False
            self._readers.give()
        self._begin()
        if not self._ahead:
            self.close()
            return None
        batches = self._finish(self._ahead.popleft()())
        self._in_use = True
        self.number += 1
        self._begin()
        return batches

    def _begin(self) -> None:
        """Begin to read as many more runs as there is room for."""
        ahead = len(self._ahead)
        while self.number + ahead < self._runs and self._readers.take(ahead):
            self._ahead.append(self._readers.begin(self.number + ahead))
            ahead += 1

    def close(self) -> None:
        """Stop reading, without waiting for reads in flight. May be called again."""
        # The exception of a failed read keeps this object, but must not keep what was read.
        ahead, self._ahead = self._ahead, deque()
        self._runs, self._in_use = -1, False
        # In a fork, locks that another thread held would stay locked forever.
        if os.getpid() == self._process:
            self._readers.close(ahead)


class _Threads:
    """Threads that read the runs of one pass, and account for the memory in flight."""

    def __init__(
        self,
        reader: Reader,
        pass_: Pass,
        number: int,
        finish: Callable[[list[Batch]], list[Any]],
    ) -> None:
        loader, plan, self._account = reader.loader, reader.plan, account()
        # In case Ctrl-C comes before `close` is called.
        finalize(self, self._account.end, id(self)).atexit = False
        self._most, self._cached = plan.reading + plan.ready, loader.cached
        self._nbytes = run_bytes(loader, pass_.together) + loader.input_bytes(pass_.together)
        self._pass, self._finish, self._threads = pass_, finish, reader.threads
        self._read_run = loader.reader()
        self._prefetch: Prefetcher | None = None
        if isinstance(loader, Loader) and loader.dataset.is_remote:
            self._read_run = loader.read_requested
            self._prefetch = Prefetcher(loader, pass_, number)
        self._running: dict[int, None] = {}
        self._closed = False

    def take(self, ahead: int) -> bool:
        """Return whether there is room for one more run; if so, count it until `give`.

        Reads of a pass that was broken off take the room of this pass until they end.
        """
        most = self._most
        if ahead and (ending := self._account.ending):
            most -= -(-ending // max(1, self._nbytes))
        return ahead < most and self._account.take(
            id(self), self._nbytes, always=ahead == 0, cached=self._cached
        )

    def give(self) -> None:
        self._account.give(id(self), self._nbytes)

    def begin(self, number: int) -> Callable[[], list[Any]]:
        return self._threads.begin(lambda: self._read(number))

    def _read(self, number: int) -> list[Any]:
        self._running[number] = None
        try:
            if self._closed:
                raise CancelledError
            run = self._pass.run(number)
            with nullcontext() if self._prefetch is None else self._prefetch.reading(number):
                return self._finish(self._read_run(run))
        except BaseException:
            if not self._closed:
                self._threads.close()  # the exception may keep `self`, as long as the user likes
            raise
        finally:
            del self._running[number]
            if self._closed:
                self._end()

    def close(self, ahead: Sequence[Any]) -> None:
        # Without waiting: the garbage collector may close this object in any thread, also in one
        # of the pool's own threads, or in one that holds a lock which they need. Reads that have
        # not begun end at once.
        self._closed = True
        if self._running:
            self._threads.close()  # or the next pass would wait for these reads
        if self._prefetch is not None:
            self._prefetch.close()
        self._end()

    def _end(self) -> None:
        """Return the bytes in flight; note the reads that are still running, until they end."""
        self._account.end(id(self), len(self._running) * self._nbytes)
        if not self._running:  # also if the last one ended meanwhile
            self._account.end(id(self))


class _Workers:
    """Worker processes that read runs; their pool bounds the memory in flight."""

    def __init__(self, reader: Reader, pass_: Pass) -> None:
        self._reader, self._pass = reader, pass_
        self._pool: WorkerPool | None = None

    def take(self, ahead: int) -> bool:
        if self._pool is None:
            self._pool = self._reader.acquire(self._pass.together)
        return ahead < self._pool.most

    def give(self) -> None: ...

    def begin(self, number: int) -> Callable[[], list[Batch]]:
        assert self._pool is not None
        return self._pool.begin(self._pass.run(number), self._pass, number)

    def close(self, ahead: Sequence[Any]) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            self._reader.release(pool, ahead)
