"""NumPy iteration: batches handed out while the next ones are read."""

from __future__ import annotations

import itertools
import operator
import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from oocdata.datasets.spec import Batch, leaves, map_tree
from oocdata.errors import DatasetGoneError
from oocdata.runs import Pass, Run

if TYPE_CHECKING:
    from concurrent.futures import Future

    from oocdata.loader import Loader
    from oocdata.workers.pool import Call

__all__ = ["READ_AHEAD", "read_ahead"]

READ_AHEAD = 2
"""Runs of steps read before they are asked for."""


def read_ahead(loader: Loader, epoch: int, start: int) -> Iterator[Batch]:
    """Yield the batches of an epoch from step `start`; see `oocdata.Loader.epoch`."""
    steps, share = len(loader), loader.batch_size // loader.num_shards
    over = Pass(epoch * steps + start, steps - start, steps, loader.steps_together)
    runs = (over.run(number) for number in range(len(over)))
    ahead: deque[Future[Batch] | Call] = deque()
    process = os.getpid()
    with _readers(loader) as (begin, most):
        for run in itertools.islice(runs, most):
            ahead.append(begin(run))
        while ahead:
            if os.getpid() != process:
                raise DatasetGoneError(
                    "batches must be read in the process that began to read them; this one is a "
                    "fork of it. Begin anew: `.epoch(epoch, start=step)`."
                )
            batches = ahead.popleft().result()
            for run in itertools.islice(runs, 1):
                ahead.append(begin(run))
            length = len(next(leaves(batches)))
            for first in range(0, length, share):
                part = slice(first, first + share)
                yield map_tree(operator.itemgetter(part), batches)
            del batches  # or its memory would be held while the next one is waited for


@contextmanager
def _readers(loader: Loader) -> Iterator[tuple[Callable[[Run], Future[Batch] | Call], int]]:
    """Start what reads ahead; yield what begins to read a run, and how many to begin."""
    # Neither is for `import oocdata`: they are slow to load.
    if loader.workers:
        from oocdata.workers.pool import WorkerPool

        with closing(WorkerPool(loader, held=READ_AHEAD)) as workers:
            yield workers.begin, workers.most
        return
    from concurrent.futures import ThreadPoolExecutor

    pool = ThreadPoolExecutor(READ_AHEAD, "oocdata-read-ahead")
    try:
        yield lambda run: pool.submit(loader.run, run), READ_AHEAD
    finally:
        # Without waiting: what is dropped in a cycle is closed by whatever thread the collector
        # happens to run in, and that may be the one that is waited for, or hold what it needs.
        pool.shutdown(wait=False, cancel_futures=True)
