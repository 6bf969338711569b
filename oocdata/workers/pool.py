"""Several worker processes that read for one iterator or one ``tf.data`` dataset."""

from __future__ import annotations

import mmap
import os
import threading
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from oocdata.datasets.spec import Batch, leaves, map_tree
from oocdata.errors import ArgumentError, DatasetGoneError, WorkerError
from oocdata.runs import Run
from oocdata.sources.buffers import ALIGNMENT, empty
from oocdata.workers.description import Description
from oocdata.workers.lifetime import note
from oocdata.workers.worker import Worker

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from oocdata.loader import Loader

__all__ = ["TASKS", "WorkerPool", "shared_bytes", "slots"]

TASKS = 2
"""Runs that a worker is sent at a time: one that it reads, and one so that it never waits."""

_SECONDS = 600.0
"""A worker that is busy with one run for longer is taken to hang."""


class Call:
    """A run that a worker was asked for."""

    __slots__ = ("_pool", "_worker", "run", "slot")

    def __init__(self, pool: WorkerPool, worker: Worker, run: Run, slot: int) -> None:
        self._pool = pool
        self._worker = worker
        self.run = run
        self.slot = slot

    def result(self) -> Batch:
        """Wait for the run; to be called once."""
        return self._pool._result(self, self._worker)


class WorkerPool:
    """Processes that each read whole runs of a loader's steps.

    Safe to use from several threads. What comes back is memory that is shared with a worker, for
    as long as anything sees it. A worker lends a bounded number of runs; more than those are
    copied to memory of this process, so whoever keeps all batches stops no one.

    Parameters
    ----------
    loader : Loader
        With `workers` of at least 1.
    held : int
        Runs that the one who reads usually holds at a time.
    together : int, optional
        Steps of a run, at most; those of the loader if not given.

    Raises
    ------
    oocdata.errors.ArgumentError
        If the loader can't be pickled.

    Examples
    --------
    >>> import oocdata as ooc
    >>> loader = ooc.open(np.arange(10)).batches(4, workers=2)
    >>> pool = WorkerPool(loader, held=2)
    >>> pool.begin(Run(epoch=0, start=1, stop=2)).result()
    array([4, 5, 6, 7])
    >>> pool.close()
    """

    def __init__(self, loader: Loader, held: int, together: int | None = None) -> None:
        self._changed = threading.Condition()
        self._closed = False
        self._failure: WorkerError | None = None
        self._workers: list[Worker] = []
        self._spec = loader.spec
        self.together = together or loader.steps_together
        seconds = _limit()
        description = Description.of(loader)
        try:
            for _ in range(loader.workers):
                number, nbytes = slots(loader, held), slot_bytes(loader, self.together)
                self._workers.append(Worker(description, number, nbytes, seconds))
        except BaseException:
            self.close()
            raise
        finally:
            os.close(description.descriptor)
        note(self)

    @property
    def most(self) -> int:
        """Runs begun at a time that keep all workers busy."""
        return TASKS * len(self._workers)

    @property
    def failed(self) -> bool:
        """Whether a worker is dead, so that nothing more is begun."""
        return self._failure is not None

    def begin(self, run: Run) -> Call:
        """Send a run to the worker that has least to do; wait while all have enough.

        Raises
        ------
        oocdata.errors.WorkerError
            If a worker has died.
        oocdata.errors.DatasetGoneError
            If the pool is closed.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._failure or self._idlest_waits)
            self._check_open()
            if self._failure is not None:
                raise copy(self._failure)  # each with a traceback of its own
            worker = self._idlest
            call = Call(self, worker, run, worker.arena.free.pop())
            worker.queue.append(call)
            worker.send(run, call.slot)
            return call

    @property
    def _idlest(self) -> Worker:
        return min(self._workers, key=lambda worker: len(worker.queue))

    @property
    def _idlest_waits(self) -> bool:
        return len(self._idlest.queue) < TASKS

    def _check_open(self) -> None:
        if self._closed:
            raise DatasetGoneError(
                "batches must be read before their iterator or dataset is closed; its worker "
                "processes have been ended."
            )

    def _result(self, call: Call, worker: Worker) -> Batch:
        with self._changed:  # a worker answers in the order that it was asked
            self._changed.wait_for(lambda: worker.queue[0] is call)
        try:
            kind, *answer = worker.receive(call.run)
        except WorkerError as error:
            with self._changed:
                self._done(worker)
                self._check_open()
                first = self._failure = self._failure or error
            # What it had yet to read can't tell what it died of.
            raise (error if first is error else copy(first)) from None
        except BaseException:  # Ctrl-C: the answer will come, and nobody waits for it any more
            self.close()
            raise
        if kind == "raised":
            worker.arena.give_back(call.slot)
            self._done(worker)
            raise worker.original(call.run, *answer)
        arrays = worker.arrays(call.slot, *answer)
        # Lent besides those that are at work, which so never lack a slot.
        if worker.lent >= worker.arena.slots - TASKS:
            arrays = [_copied(array) for array in arrays]
        self._done(worker)
        rest = iter(arrays)
        batch: Batch = map_tree(lambda _: next(rest), self._spec)
        return batch

    def _done(self, worker: Worker) -> None:
        with self._changed:
            worker.queue.popleft()
            self._changed.notify_all()

    def close(self) -> None:
        """End the processes; whoever waits for a batch gets an error. May be called again."""
        with self._changed:
            self._closed = True
            workers, self._workers = self._workers, []
            self._changed.notify_all()
        for worker in workers:
            worker.kill()
        for worker in workers:
            worker.wait()
            worker.close()

    def __del__(self) -> None:
        self.close()

    def hold(self) -> None:
        """Send no worker anything until `go_on`, from the same thread."""
        self._changed.acquire()

    def go_on(self) -> None:
        """Undo `hold`."""
        self._changed.release()

    def forget(self) -> None:
        """Leave the processes to the one that this is a fork of; keep what they have lent."""
        self._changed = threading.Condition()
        self._closed = True
        for worker in self._workers:
            worker.forget({call.slot for call in worker.queue})
        self._workers = []


def slot_bytes(loader: Loader, together: int) -> int:
    """Return the bytes of shared memory that a run of so many steps takes, in whole pages."""
    elements = together * loader.batch_size // loader.num_shards
    arrays = [leaf.nbytes * elements for leaf in leaves(loader.dataset.spec)]
    aligned: int = sum(-(-nbytes // ALIGNMENT) * ALIGNMENT for nbytes in arrays)
    return max(1, -(-aligned // mmap.PAGESIZE)) * mmap.PAGESIZE


def slots(loader: Loader, held: int) -> int:
    """Return how many runs each worker has shared memory for."""
    return TASKS + -(-held // loader.workers)


def shared_bytes(loader: Loader, held: int) -> int:
    """Return the bytes of memory that are shared with workers, at most.

    Examples
    --------
    >>> import oocdata as ooc
    >>> loader = ooc.open(np.zeros((64, 1024), "f4")).batches(8, workers=2)
    >>> shared_bytes(loader, held=2)  # 2 workers × 3 runs × 32 KiB
    196608
    """
    return loader.workers * slots(loader, held) * slot_bytes(loader, loader.steps_together)


def _copied(array: NDArray[Any]) -> NDArray[Any]:
    copy = empty(array.shape, array.dtype)
    np.copyto(copy, array)
    return copy


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
