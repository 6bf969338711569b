"""A pool of worker processes that read for one iterator or one ``tf.data`` dataset."""

from __future__ import annotations

import atexit
import mmap
import os
import weakref
from contextlib import suppress
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
from oocdata.reading.workers.sharing import anonymous_memory, is_shared, share_loader
from oocdata.runs import Pass, Run, run_bytes
from oocdata.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from oocdata.loader import Loader
    from oocdata.reading.workers.child import SlotArray

TASKS = 2
"""Runs sent to a worker at a time: one that it reads, and a second one so that it never idles."""

_LEAST_MEMORY = 1 << 20

_SECONDS = 600.0
"""A worker that is busy with one run for longer is considered hung."""

pools: weakref.WeakSet[WorkerPool] = weakref.WeakSet()
"""Pools of this process that may be open."""


class WorkerPool:
    """Processes that each read whole runs of a loader's steps.

    One pass at a time reads through a pool: it begins at most `most` runs, and takes their results
    in order. Only `close` may be called in other threads, so no lock is needed.

    A worker copies the batches of a run into a slot of shared memory, and the parent copies them
    from there, so the slot is free for the next run however long the batches are kept. (Handing out
    the slots themselves saved 5 to 15 % of the processor's time for functions that do next to
    nothing, and nothing for functions that need workers; and a fork copied the slots.)

    The workers of a stream take turns, each with a generator. The caller usually has `runs_in_use`,
    of at most `together` steps, by default the loader's `steps_together`. `failure` is the error of
    the first worker that died, if one did; no more runs are begun after it.
    """

    def __init__(
        self, loader: Loader | Stream, runs_in_use: int, together: int | None = None
    ) -> None:
        self._closed = False
        self.failure: WorkerError | None = None
        self._workers: list[Process] = []
        self._spec, self._memory = loader.spec, memory_limit()
        self._takes_turns = isinstance(loader, Stream)
        self._prefetches = not isinstance(loader, Stream) and loader.dataset.is_remote
        self.together = together or loader.steps_together
        seconds = _time_limit()
        pages = -(-run_bytes(loader, self.together) // mmap.PAGESIZE)
        slot_bytes = max(1, pages) * mmap.PAGESIZE
        loader_memory, lengths = share_loader(loader)
        try:
            self._loader = mmap.mmap(loader_memory, 0, prot=mmap.PROT_READ), lengths
            slots = self._allocate(loader.workers * TASKS + runs_in_use, slot_bytes)
            slots -= min(runs_in_use, slots - 1)
            self._free = list(range(slots))
            self.most = min(TASKS * loader.workers, slots)
            shared = anonymous_memory(slots * slot_bytes)
            try:
                memory = np.frombuffer(mmap.mmap(shared, slots * slot_bytes), np.uint8)
                self._slots = memory.reshape(slots, slot_bytes)
                share = max(_LEAST_MEMORY, self._memory // loader.workers)
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
        # Registered again for each pool, so that it runs first at exit: front-ends wait at exit for
        # their calls to return, and those wait for the workers.
        atexit.unregister(_close_all)
        atexit.register(_close_all)

    def _allocate(self, most_slots: int, slot_bytes: int) -> int:
        """Return how many slots memory allows: at least two, at most `most_slots`.

        They count as in flight until the pool is closed, because a slot that was written to keeps
        its memory.
        """
        slots = 0
        while slots < most_slots and account().take(id(self), slot_bytes, always=slots < 2):
            slots += 1
        return slots

    def begin(
        self, run: Run, pass_: Pass | None = None, number: int = -1
    ) -> Callable[..., list[Batch]]:
        """Send a run to the worker with the fewest tasks.

        Runs of a stream, and runs of a pass that fetch from stores, go to the workers in turn: then
        each worker can request its following runs by itself.

        Returns a function that waits for the batches of the run, for some seconds if these are
        given, after which the worker is ended; it must be called once. Raises
        WorkerError if a worker has died, and DatasetGoneError if the pool is closed.
        """
        workers, turn = list(self._workers), None
        self._check_open()
        if self.failure is not None:
            raise copy(self.failure)  # each has its own traceback
        if self._takes_turns:
            worker = workers[run.start % len(workers)]
        elif self._prefetches and pass_ is not None:
            worker, turn = workers[number % len(workers)], (pass_, number, len(workers))
        else:
            worker = min(workers, key=lambda worker: worker.tasks)
        slot = self._free.pop()
        worker.tasks += 1
        worker.send((run, slot, turn))
        return partial(self._result, worker, run, slot)

    def can_read(self, loader: Loader | Stream) -> bool:
        """Return whether the workers live, and have the loader and the memory limit of now."""
        alive = not self._closed and all(worker.is_alive for worker in self._workers)
        usable = alive and self.failure is None and self._memory == memory_limit()
        return usable and is_shared(loader, *self._loader)

    def _check_open(self) -> None:
        if self._closed:
            raise DatasetGoneError(
                "batches must be read before their iterator or dataset is closed; its worker "
                "processes have been ended."
            ) from None

    def _result(
        self, worker: Process, run: Run, slot: int, seconds: float | None = None
    ) -> list[Batch]:
        try:
            kind, *answer = worker.receive(run, seconds)
        except WorkerError as error:
            self._check_open()
            first = self.failure
            # A copy, because the traceback refers to the caller's frames, and so to this pool.
            self.failure = first or copy(error)
            # Tasks that a dead worker had not begun raise the error of the first one.
            raise (copy(first) if first else error) from None
        except BaseException:  # Ctrl-C: the answer is still to come, and nobody will read it
            self.close()
            raise
        try:
            if kind == "raised":
                raise worker.exception(run, *answer)
            return self._batches(self._slots[slot], answer[0])
        finally:
            self._free.append(slot)
            worker.tasks -= 1

    def _batches(self, slot: NDArray[np.uint8], placed: list[list[SlotArray]]) -> list[Batch]:
        """Copy the batches from a slot; arrays of one leaf are adjacent, as a loader reads them."""
        columns = (_copies(slot, column) for column in zip(*placed, strict=True))
        return batches_of(columns, self._spec)

    def close(self) -> None:
        """End the processes; threads that wait for a batch get an error. May be called again."""
        self._closed = True
        account().end(id(self))
        for worker in list(self._workers):
            worker.kill()
        with suppress(IndexError):
            while True:
                worker = self._workers.pop()  # atomic: each is closed once
                worker.wait()
                worker.close()

    def __del__(self) -> None:
        if not self._closed:  # at exit it is closed, and globals that `close` needs may be gone
            self.close()

    def forget(self) -> None:
        """Leave the processes to the parent, in a fork of it."""
        self._closed = True
        for worker in self._workers:
            worker.forget()
        self._workers = []


def _copies(slot: NDArray[np.uint8], placed: Sequence[SlotArray]) -> list[NDArray[Any]]:
    """Return copies of the arrays of one leaf; arrays of objects came with the answer."""
    places = [place for place in placed if isinstance(place, tuple)]
    if not places:
        return [array for array in placed if isinstance(array, np.ndarray)]
    _, arrays = buffers.empty_parts([shape for _, shape, _ in places], places[0][2])
    for array, (start, _, _) in zip(arrays, places, strict=True):
        np.copyto(array.reshape(-1).view(np.uint8), slot[start : start + array.nbytes])
    return arrays


def _time_limit() -> float:
    """Return how long a worker may be busy with one run, in seconds."""
    setting = os.environ.get("OOCDATA_WORKER_SECONDS", _SECONDS)
    with suppress(ValueError):
        if (seconds := float(setting)) > 0:
            return seconds
    raise ArgumentError(
        f"OOCDATA_WORKER_SECONDS must be a number of seconds above 0; got {setting!r}."
    )


def _close_all() -> None:
    for pool in list(pools):
        pool.close()


def _forget_all() -> None:
    for pool in list(pools):
        pool.forget()


os.register_at_fork(after_in_child=_forget_all)
