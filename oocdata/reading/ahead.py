"""NumPy iteration: batches handed out while the next ones are read."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from oocdata.datasets.spec import Batch
from oocdata.errors import DatasetGoneError
from oocdata.reading.inflight import account, input_bytes, run_bytes
from oocdata.runs import Pass, Run

if TYPE_CHECKING:
    from concurrent.futures import Future

    from oocdata.loader import Loader
    from oocdata.reading.workers.pool import Call

__all__ = ["read_ahead"]


def read_ahead(
    loader: Loader, epoch: int, start: int, *, parallel: int = 2, prefetch: int = 2
) -> Iterator[Batch]:
    """Yield the batches of an epoch from step `start`; see `oocdata.Loader.epoch`.

    Parameters
    ----------
    loader : Loader
    epoch, start : int
        Checked.
    parallel : int
        Runs of steps read at a time; with worker processes at least two for each.
    prefetch : int
        Batches kept ready besides, in whole runs.
    """
    steps = len(loader)
    over = Pass(epoch * steps + start, steps - start, steps, loader.steps_together)
    runs = deque(range(len(over)))
    ahead: deque[Future[list[Batch]] | Call] = deque()
    process = os.getpid()
    readers: _Threads | _Workers
    readers = _Workers(loader) if loader.workers else _Threads(loader, parallel, prefetch)
    with closing(readers):
        while runs or ahead:
            while runs and readers.take(len(ahead)):
                ahead.append(readers.begin(over.run(runs.popleft())))
            if os.getpid() != process:
                raise DatasetGoneError(
                    "batches must be read in the process that began to read them; this one is a "
                    "fork of it. Begin anew: `.epoch(epoch, start=step)`."
                )
            batches = ahead.popleft().result()
            while runs and readers.take(len(ahead)):
                ahead.append(readers.begin(over.run(runs.popleft())))
            batches.reverse()
            while batches:
                yield batches.pop()
            readers.give()


class _Threads:
    """Threads that read runs, and what they have in flight."""

    def __init__(self, loader: Loader, parallel: int, prefetch: int) -> None:
        from concurrent.futures import ThreadPoolExecutor  # not for `import oocdata`: it is slow

        plan = loader.ahead(parallel, prefetch)
        self._most = plan.reading + plan.ready
        self._nbytes = run_bytes(loader, plan.together) + input_bytes(loader)
        self._account = account()
        self._runs = 0
        self._read = loader.run
        self._pool = ThreadPoolExecutor(plan.reading, "oocdata-read-ahead")

    def take(self, ahead: int) -> bool:
        """Return whether one more run may be begun; then it is in flight, until `give`."""
        if ahead >= self._most or not self._account.take(self._nbytes, always=ahead == 0):
            return False
        self._runs += 1
        return True

    def give(self) -> None:
        self._runs -= 1
        self._account.give(self._nbytes)

    def begin(self, run: Run) -> Future[list[Batch]]:
        return self._pool.submit(self._read, run)

    def close(self) -> None:
        # Without waiting: what is dropped in a cycle is closed by whatever thread the collector
        # happens to run in, and that may be the one that is waited for, or hold what it needs.
        self._pool.shutdown(wait=False, cancel_futures=True)
        runs, self._runs = self._runs, 0
        self._account.give(runs * self._nbytes)


class _Workers:
    """Worker processes that read runs; what they have in flight is bounded by their pool."""

    def __init__(self, loader: Loader) -> None:
        from oocdata.reading.workers.pool import WorkerPool  # not for `import oocdata`: it is slow

        self._pool = WorkerPool(loader, held=1)
        self.begin = self._pool.begin
        self.close = self._pool.close

    def take(self, ahead: int) -> bool:
        return ahead < self._pool.most

    def give(self) -> None: ...
