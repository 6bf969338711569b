"""Several worker processes that read for one iterator or one ``tf.data`` dataset."""

from __future__ import annotations

import atexit
import mmap
import os
import threading
import weakref
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocdata.datasets.spec import Batch, batches_of
from oocdata.engines import buffers
from oocdata.errors import ArgumentError, DatasetGoneError, WorkerError
from oocdata.memory import account, memory_limit
from oocdata.reading.workers.process import Process
from oocdata.reading.workers.sent import nameless, sent
from oocdata.runs import Pass, Run, run_bytes
from oocdata.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from oocdata.loader import Loader
    from oocdata.reading.workers.child import Laid

__all__ = ["TASKS", "WorkerPool", "pools"]

TASKS = 2
"""Runs that a worker is sent at a time: one that it reads, and one so that it never waits."""

_LEAST_MEMORY = 1 << 20

_SECONDS = 600.0
"""A worker that is busy with one run for longer is taken to hang."""

pools: weakref.WeakSet[WorkerPool] = weakref.WeakSet()
"""Those of the process that may be open."""


class WorkerPool:
    """Processes that each read whole runs of a loader's steps.

    Safe to use from several threads. A worker lays the batches of a run into a slot of shared
    memory; they are copied from there, so the slot is free for the next run whoever keeps them.
    (Handing out the slots themselves saved 5 to 15 % of the processor's time for functions that do
    next to nothing, nothing for those that workers are for, and copied them at each fork.)

    Parameters
    ----------
    loader : Loader or Stream
        With `workers` of at least 1. The workers of a stream take turns, each with a generator.
    held : int
        Runs that the one who reads usually has in use at a time.
    together : int, optional
        Steps of a run, at most; those of the loader if not given.

    Attributes
    ----------
    changed : threading.Condition
        While it is held, no worker is sent anything.
    failure : WorkerError or None
        Of the first worker that died; nothing more is begun.

    Examples
    --------
    >>> import oocdata as ooc
    >>> loader = ooc.open(np.arange(10)).batches(4, workers=2)
    >>> pool = WorkerPool(loader, held=1)
    >>> pool.begin(Run(epoch=0, start=1, stop=3))()
    [array([4, 5, 6, 7]), array([8, 9])]
    >>> pool.close()
    """

    def __init__(self, loader: Loader | Stream, held: int, together: int | None = None) -> None:
        self.changed = threading.Condition(threading.RLock())
        self._closed = False
        self.failure: WorkerError | None = None
        self._workers: list[Process] = []
        self._spec = loader.spec
        self._in_turn = isinstance(loader, Stream)
        self._is_remote = not isinstance(loader, Stream) and loader.dataset.is_remote
        self._taken = 0
        self.together = together or loader.steps_together
        seconds = _limit()
        pages = -(-run_bytes(loader, self.together) // mmap.PAGESIZE)
        slot_bytes = max(1, pages) * mmap.PAGESIZE
        loader_memory, lengths = sent(loader)
        try:
            slots = self._take(loader.workers * TASKS + held, slot_bytes)
            slots -= min(held, slots - 1)
            self._free = list(range(slots))
            self.most = min(TASKS * loader.workers, slots)
            shared = nameless(slots * slot_bytes)
            try:
                whole = np.frombuffer(mmap.mmap(shared, slots * slot_bytes), np.uint8)
                self._slots = whole.reshape(slots, slot_bytes)
                share = max(_LEAST_MEMORY, memory_limit() // loader.workers)
                for _ in range(loader.workers):
                    worker = Process(shared, loader_memory, seconds)
                    worker.send((lengths, slot_bytes, share))
                    self._workers.append(worker)
            finally:
                os.close(shared)
        except BaseException:
            self.close()
            raise
        finally:
            os.close(loader_memory)
        pools.add(self)
        # Again each time, so that it comes before what was registered since: at exit, a front-end
        # waits for its calls to return, and they wait for the workers.
        atexit.unregister(_close_all)
        atexit.register(_close_all)

    def _take(self, wanted: int, slot_bytes: int) -> int:
        """Return for how many runs there is room: one to be read and one in use, more if they fit.

        All are in flight until the pool is closed: a slot that was written to keeps its memory.
        """
        for slot in range(wanted):
            if not account().take(slot_bytes, always=slot < 2):
                break
            self._taken += slot_bytes
        return self._taken // slot_bytes

    def begin(
        self, run: Run, over: Pass | None = None, number: int = -1
    ) -> Callable[[], list[Batch]]:
        """Send a run to the worker that has least to do; wait while all have enough.

        Returns what waits for the batches of the run, and is to be called once.
        Of streams, and of runs of a pass that take bytes out of stores, to the worker whose turn it
        is: it asks for the next ones of that pass by itself.

        Raises WorkerError if a worker has died, DatasetGoneError if the pool is closed.
        """
        with self.changed:
            self.changed.wait_for(lambda: self._closed or self.failure or self._has_room)
            self._check_open()
            if self.failure is not None:
                raise copy(self.failure)  # each with a traceback of its own
            worker = min(self._workers, key=lambda worker: len(worker.queue))
            every, turn = len(self._workers), None
            if self._in_turn:
                worker = self._workers[run.start % every]
            elif self._is_remote and over is not None:
                worker, turn = self._workers[number % every], (over, number, every)
            slot = self._free.pop()
            worker.queue.append(slot)
            worker.send((run, slot, turn))
            return partial(self._result, worker, run, slot)

    @property
    def _has_room(self) -> bool:
        return bool(self._free) and any(len(one.queue) < TASKS for one in self._workers)

    def _check_open(self) -> None:
        if self._closed:
            raise DatasetGoneError(
                "batches must be read before their iterator or dataset is closed; its worker "
                "processes have been ended."
            )

    def _result(self, worker: Process, run: Run, slot: int) -> list[Batch]:
        with self.changed:  # a worker answers in the order that it was asked
            self.changed.wait_for(lambda: worker.queue[0] == slot)
        try:
            kind, *answer = worker.receive(run)
        except WorkerError as error:
            with self.changed:
                self._done(worker)
                self._check_open()
                first = self.failure
                # A copy: the error's traceback refers to whoever reads, and so to this pool.
                self.failure = first or copy(error)
            # What it had yet to read can't tell what it died of.
            raise (copy(first) if first else error) from None
        except BaseException:  # Ctrl-C: the answer will come, and nobody waits for it any more
            self.close()
            raise
        try:
            if kind == "raised":
                raise worker.original(run, *answer)
            return self._batches(self._slots[slot], answer[0])
        finally:
            with self.changed:
                self._free.append(slot)
                self._done(worker)

    def _batches(self, slot: NDArray[np.uint8], laid: list[list[Laid]]) -> list[Batch]:
        """Return the batches of a slot; the arrays of one leaf side by side, as a loader reads."""
        read = buffers.Read()
        columns = (_copied(slot, column, read) for column in zip(*laid, strict=True))
        return batches_of(columns, self._spec)

    def _done(self, worker: Process) -> None:
        worker.queue.popleft()
        self.changed.notify_all()

    def close(self) -> None:
        """End the processes; whoever waits for a batch gets an error. May be called again."""
        with self.changed:
            self._closed = True
            workers, self._workers = self._workers, []
            taken, self._taken = self._taken, 0
            self.changed.notify_all()
        account().give(taken)
        for worker in workers:
            worker.kill()
        for worker in workers:
            worker.wait()
            worker.close()

    def __del__(self) -> None:
        if not self._closed:  # at exit it is, and the names that `close` needs may be gone
            self.close()

    def forget(self) -> None:
        """Leave the processes to the one that this is a fork of."""
        self.changed = threading.Condition(threading.RLock())
        self._closed = True
        self._taken = 0
        for worker in self._workers:
            worker.forget()
        self._workers = []


def _copied(
    slot: NDArray[np.uint8], laid: Sequence[Laid], read: buffers.Read
) -> list[NDArray[Any]]:
    """Return the arrays of one leaf; those of objects came with the answer."""
    places = [each for each in laid if isinstance(each, tuple)]
    if not places:
        return [each for each in laid if isinstance(each, np.ndarray)]
    _, made = buffers.empty_parts([shape for _, shape, _ in places], places[0][2], read)
    for array, (start, _, _) in zip(made, places, strict=True):
        np.copyto(array.reshape(-1).view(np.uint8), slot[start : start + array.nbytes])
    return made


def _limit() -> float:
    """Return for how long a worker may be busy with a run, in seconds."""
    given = os.environ.get("OOCDATA_WORKER_SECONDS", _SECONDS)
    try:
        seconds = float(given)
    except ValueError:
        seconds = 0
    if not seconds > 0:
        raise ArgumentError(
            f"OOCDATA_WORKER_SECONDS must be a number of seconds above 0; got {given!r}."
        )
    return seconds


def _close_all() -> None:
    for pool in list(pools):
        pool.close()


def _forget_all() -> None:
    for pool in list(pools):
        pool.forget()


os.register_at_fork(after_in_child=_forget_all)
