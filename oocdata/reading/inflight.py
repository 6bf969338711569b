"""How many bytes of batches are in flight: one account for the process.

An iteration has batches that are being read, that are ready, and that are in use. Those of all
running iterations together stay within `memory.batch_share`, except that each iteration may always
read one run of steps while one is in use.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from oocdata.datasets.dataset import Draw
from oocdata.datasets.spec import leaves
from oocdata.engines.buffers import ALIGNMENT
from oocdata.memory import batch_share

if TYPE_CHECKING:
    from oocdata.loader import Loader

__all__ = ["Account", "account", "input_bytes", "run_bytes"]


def run_bytes(loader: Loader, steps: int) -> int:
    """Return the bytes of the batches of a run of steps, with the padding between arrays.

    Examples
    --------
    >>> import oocdata as ooc
    >>> run_bytes(ooc.open(np.zeros((8, 3), "f4")).batches(4), steps=2)
    128
    """
    elements = loader.batch_size // loader.num_shards
    arrays: list[int] = [leaf.nbytes * elements for leaf in leaves(loader.dataset.spec)]
    return steps * sum(-(-nbytes // ALIGNMENT) * ALIGNMENT for nbytes in arrays)


def input_bytes(loader: Loader) -> int:
    """Return the bytes that a mapped function gets for a batch; 0 where there is no function."""
    if not loader.dataset.is_mapped:
        return 0
    first = np.zeros(1, np.int64)
    requests = loader.dataset.requests(first, Draw(positions=first))
    return loader.batch_size // loader.num_shards * sum(each.nbytes for each in requests)


class Account:
    """Bytes of batches in flight, of all iterations; safe to use from several threads."""

    def __init__(self) -> None:
        # Re-entrant: the garbage collector may end an iteration while this thread holds the lock.
        self._changed = threading.Condition(threading.RLock())
        self._reading: Counter[int] = Counter()
        self.nbytes = 0

    def take(self, nbytes: int, *, always: bool = False) -> bool:
        """Return whether so many bytes more fit; if so, or `always`, they are in flight."""
        with self._changed:
            fits = always or self.nbytes + nbytes <= batch_share()
            self.nbytes += nbytes if fits else 0
            return fits

    def give(self, nbytes: int) -> None:
        """Give bytes back that were taken."""
        with self._changed:
            self.nbytes -= nbytes
            self._changed.notify_all()

    @contextmanager
    def reading(self, reader: object, nbytes: int) -> Iterator[None]:
        """Have bytes in flight for a while; wait until they fit, or the reader reads no others."""
        number = id(reader)
        with self._changed:
            self._changed.wait_for(lambda: self.take(nbytes, always=not self._reading[number]))
            self._reading[number] += 1
        try:
            yield
        finally:
            with self._changed:
                self._reading[number] -= 1
                self._reading += Counter()  # drops those that are zero
                self.give(nbytes)


_account = Account()


def account() -> Account:
    """Return the account of the process."""
    return _account


def _begin_anew_after_fork() -> None:
    global _account
    _account = Account()  # the iterations are the parent's


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew_after_fork)
