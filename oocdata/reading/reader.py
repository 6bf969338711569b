"""Runs of one loader for a front-end, in this process or in workers started when first asked."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from oocdata.errors import DatasetGoneError
from oocdata.reading.inflight import account, input_bytes, run_bytes

if TYPE_CHECKING:
    from oocdata.datasets.spec import Batch
    from oocdata.loader import Loader
    from oocdata.reading.workers.pool import WorkerPool
    from oocdata.runs import Run

__all__ = ["Reader"]


class Reader:
    """Reads runs for a front-end that calls from several threads.

    Parameters
    ----------
    loader : Loader
    held : int
        Runs that the front-end usually holds at a time.

    Examples
    --------
    >>> import numpy as np, oocdata as ooc
    >>> from oocdata.runs import Run
    >>> reader = Reader(ooc.open(np.arange(10)).batches(4, workers=1), held=2)
    >>> reader.read(Run(epoch=0, start=1, stop=3))
    [array([4, 5, 6, 7]), array([8, 9])]
    >>> reader.close()
    """

    def __init__(self, loader: Loader, held: int) -> None:
        self._loader = loader
        self._held = held
        self._pool: WorkerPool | None = None
        self._closed = False
        # Re-entrant: the garbage collector may close this while this thread starts the workers.
        self._lock = threading.RLock()

    def read(self, run: Run) -> list[Batch]:
        """Return the batches of a run; the first call starts the workers.

        In threads, one run is always read, and more where memory for batches is left.

        Raises
        ------
        oocdata.errors.WorkerError
            If a worker has died since the last `renew`.
        oocdata.errors.DatasetGoneError
            If the reader is closed.
        """
        steps = run.stop - run.start
        pool = self._started(steps) if self._loader.workers else None
        # An iterator that is restored may have longer runs than others, for which there is no slot.
        if pool is not None and steps <= pool.together:
            return pool.begin(run).result()
        nbytes = run_bytes(self._loader, steps) + input_bytes(self._loader)
        with account().reading(self, nbytes):
            return self._loader.run(run)

    def _started(self, steps: int) -> WorkerPool:
        from oocdata.reading.workers.pool import WorkerPool  # only where there are workers

        with self._lock:
            if self._pool is None and not self._closed:
                together = max(steps, self._loader.steps_together)
                self._pool = WorkerPool(self._loader, self._held, together)
            if self._closed:
                self.close()
            if self._closed or self._pool is None:
                raise DatasetGoneError(
                    "the dataset that workers read for must not be closed; it is."
                )
            return self._pool

    def renew(self) -> None:
        """Let the next read start other workers if one of these has died."""
        with self._lock:
            if self._pool is not None and self._pool.failed:
                self._pool.close()
                self._pool = None

    def close(self) -> None:
        """End the workers. May be called again, and from a finaliser."""
        with self._lock:
            self._closed = True
            pool = self._pool
        if pool is not None:
            pool.close()
