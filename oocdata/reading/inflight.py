"""How many bytes of batches are in flight: one account for the process.

An iteration has batches that are being read, that are ready, and that are in use. Those of all
running iterations together stay within `memory.batch_share`, except that each iteration may always
read one run of steps while one is in use.
"""

from __future__ import annotations

import os
import threading
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
        self._lock = threading.RLock()
        self.nbytes = 0

    def take(self, nbytes: int, *, always: bool = False) -> bool:
        """Return whether so many bytes more fit; if so, or `always`, they are in flight."""
        with self._lock:
            fits = always or self.nbytes + nbytes <= batch_share()
            self.nbytes += nbytes if fits else 0
            return fits

    def give(self, nbytes: int) -> None:
        """Give bytes back that were taken."""
        with self._lock:
            self.nbytes -= nbytes


_account = Account()


def account() -> Account:
    """Return the account of the process."""
    return _account


def _begin_anew_after_fork() -> None:
    global _account
    _account = Account()  # the iterations are the parent's


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew_after_fork)
