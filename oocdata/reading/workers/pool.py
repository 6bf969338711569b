"""Several worker processes that read for one iterator or one ``tf.data`` dataset."""

from __future__ import annotations

import mmap
import os
import threading
from copy import copy
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocdata.datasets.spec import Batch, map_tree
from oocdata.engines.buffers import empty
from oocdata.errors import ArgumentError, DatasetGoneError, WorkerError
from oocdata.memory import account, memory_limit
from oocdata.reading.inflight import run_bytes
from oocdata.reading.workers import forks
from oocdata.reading.workers.arena import Arena
from oocdata.reading.workers.process import Process
from oocdata.reading.workers.sent import Sent
from oocdata.runs import Pass, Run
from oocdata.stream import Stream

if TYPE_CHECKING:
    from oocdata.loader import Loader
    from oocdata.reading.workers.child import Laid

__all__ = ["TASKS", "Call", "WorkerPool"]

TASKS = 2
"""Runs that a worker is sent at a time: one that it reads, and one so that it never waits."""

_LEAST_MEMORY = 1 << 20

_SECONDS = 600.0
"""A worker that is busy with one run for longer is taken to hang."""


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A run that a worker was asked for."""

    pool: WorkerPool
    worker: Process
    run: Run
    slot: int

    def result(self) -> list[Batch]:
        """Wait for the batches of the run; to be called once."""
        return self.pool._result(self, self.worker)


class WorkerPool:
    """Processes that each read whole runs of a loader's steps.

    Safe to use from several threads. The batches are memory that is shared with the workers, for as
    long as anything refers to them. So many runs are lent as are usually in use; those beyond are
    copied to memory of this process, so whoever keeps all batches stops no one. (Copies alone took
    1.1 to 1.25 times as long for cheap functions over frames of 60 KB.)

    Parameters
    ----------
    loader : Loader or Stream
        With `workers` of at least 1. The workers of a stream take turns, each with a generator.
    held : int
        Runs that the one who reads usually has in use at a time, and that are lent.
    together : int, optional
        Steps of a run, at most; those of the loader if not given.

    Attributes
    ----------
    changed : threading.Condition
        While it is held, no worker is sent anything.

    Examples
    --------
    >>> import oocdata as ooc
    >>> loader = ooc.open(np.arange(10)).batches(4, workers=2)
    >>> pool = WorkerPool(loader, held=1)
    >>> pool.begin(Run(epoch=0, start=1, stop=3)).result()
    [array([4, 5, 6, 7]), array([8, 9])]
    >>> pool.close()
    """

    def __init__(self, loader: Loader | Stream, held: int, together: int | None = None) -> None:
        self.changed = threading.Condition(threading.RLock())
        self._closed = False
        self._failure: WorkerError | None = None
        self._workers: list[Process] = []
        self._spec = loader.spec
        self._in_turn = isinstance(loader, Stream)
        self._is_remote = not isinstance(loader, Stream) and loader.dataset.is_remote
        self._taken = 0
        self.together = together or loader.steps_together
        seconds = _limit()
        slot_bytes = _whole_pages(run_bytes(loader, self.together))
        sent = Sent.of(loader)
        try:
            slots = self._take(loader.workers * TASKS + held, slot_bytes)
            self.held = min(held, slots - 1)
            self._arena = Arena(slots, slot_bytes)
            share = max(_LEAST_MEMORY, memory_limit() // loader.workers)
            try:
                for _ in range(loader.workers):
                    self._workers.append(Process(sent, self._arena, share, seconds))
            finally:
                os.close(self._arena.descriptor)
        except BaseException:
            self.close()
            raise
        finally:
            os.close(sent.descriptor)
        forks.note(self)

    def _take(self, wanted: int, slot_bytes: int) -> int:
        """Return how many slots there may be: one to be read and one in use, and more if they fit.

        Those of a pool are in flight until it is closed: what was written to keeps its memory.
        """
        for slot in range(wanted):
            if not account().take(slot_bytes, always=slot < 2):
                break
            self._taken += slot_bytes
        return self._taken // slot_bytes

    @property
    def most(self) -> int:
        """Runs begun at a time that keep all workers busy, or for which there is memory."""
        return min(TASKS * len(self._workers), self._arena.slots - self.held)

    @property
    def failed(self) -> bool:
        """Whether a worker is dead, so that nothing more is begun."""
        return self._failure is not None

    def begin(self, run: Run, over: Pass | None = None, number: int = -1) -> Call:
        """Send a run to the worker that has least to do; wait while all have enough.

        Of streams, and of runs of a pass that take bytes out of stores, to the worker whose turn it
        is: it asks for the next ones of that pass by itself.

        Raises WorkerError if a worker has died, DatasetGoneError if the pool is closed.
        """
        with self.changed:
            self.changed.wait_for(lambda: self._closed or self._failure or self._can_begin)
            self._check_open()
            if self._failure is not None:
                raise copy(self._failure)  # each with a traceback of its own
            worker = self._idlest
            every, turn = len(self._workers), None
            if self._in_turn:
                worker = self._workers[run.start % every]
            elif self._is_remote and over is not None:
                worker, turn = self._workers[number % every], (over, number, every)
            call = Call(self, worker, run, self._arena.free.pop())
            worker.queue.append(call)
            worker.send((run, call.slot, turn))
            return call

    @property
    def _idlest(self) -> Process:
        return min(self._workers, key=lambda worker: len(worker.queue))

    @property
    def _can_begin(self) -> bool:
        return len(self._idlest.queue) < TASKS and self._at_work < self._arena.slots - self.held

    @property
    def _at_work(self) -> int:
        return sum(len(worker.queue) for worker in self._workers)

    def _check_open(self) -> None:
        if self._closed:
            raise DatasetGoneError(
                "batches must be read before their iterator or dataset is closed; its worker "
                "processes have been ended."
            )

    def _result(self, call: Call, worker: Process) -> list[Batch]:
        with self.changed:  # a worker answers in the order that it was asked
            self.changed.wait_for(lambda: worker.queue[0] is call)
        try:
            kind, *answer = worker.receive(call.run)
        except WorkerError as error:
            with self.changed:
                self._done(worker)
                self._check_open()
                first = self._failure
                # A copy: the error's traceback refers to whoever reads, and so to this pool.
                self._failure = first or copy(error)
            # What it had yet to read can't tell what it died of.
            raise (copy(first) if first else error) from None
        except BaseException:  # Ctrl-C: the answer will come, and nobody waits for it any more
            self.close()
            raise
        with self.changed:
            lent = self._arena.slots - len(self._arena.free) - self._at_work
            if kind == "read" and lent < self.held:
                slot = self._arena.lend(call.slot)
                self._done(worker)
                return [self._batch(slot, laid) for laid in answer[0]]
        try:
            if kind == "raised":
                raise worker.original(call.run, *answer)
            slot = self._arena.view(call.slot)
            return [map_tree(_copied, self._batch(slot, laid)) for laid in answer[0]]
        finally:
            with self.changed:
                self._arena.give_back(call.slot)
                self._done(worker)

    def _batch(self, slot: NDArray[np.uint8], laid: list[Laid]) -> Batch:
        """Return a batch whose arrays lie in a slot; those of objects came with the answer."""
        arrays = iter([_array(slot, each) for each in laid])
        batch: Batch = map_tree(lambda _: next(arrays), self._spec)
        return batch

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
        """Leave the processes to the one that this is a fork of; keep what they have lent."""
        self.changed = threading.Condition(threading.RLock())
        self._closed = True
        self._taken = 0
        self._arena.detach({call.slot for worker in self._workers for call in worker.queue})
        for worker in self._workers:
            worker.forget()
        self._workers = []


def _array(slot: NDArray[np.uint8], laid: Laid) -> NDArray[Any]:
    if isinstance(laid, np.ndarray):
        return laid
    start, shape, dtype = laid
    return slot[start : start + prod(shape) * dtype.itemsize].view(dtype).reshape(shape)


def _copied(array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.hasobject:
        return array
    copy = empty(array.shape, array.dtype)
    np.copyto(copy, array)
    return copy


def _whole_pages(nbytes: int) -> int:
    return max(1, -(-nbytes // mmap.PAGESIZE)) * mmap.PAGESIZE


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
