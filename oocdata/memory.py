"""Set the memory limit of the process, and divide it into shares.

``set_memory(nbytes)`` (or ``OOCDATA_MEMORY``) bounds the memory of reading: batches in flight,
decoded chunks, tables and scratch, whatever the number of files and loaders. At least one batch
being read and one in use are always allowed.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from oocdata.errors import ArgumentError
from oocdata.index import as_count

DEFAULT_MEMORY = 512 << 20
"""Bytes."""

_LEAST = 1 << 20


def _from_environment() -> int:
    text = os.environ.get("OOCDATA_MEMORY", str(DEFAULT_MEMORY))
    if not text.strip().isdecimal() or int(text) < _LEAST:
        raise ArgumentError(
            "the environment variable OOCDATA_MEMORY must be a whole number of bytes of at least "
            f"{_LEAST}; got {text!r}. Without it {DEFAULT_MEMORY} are used."
        )
    return int(text)


_memory = _from_environment()


def memory_limit() -> int:
    """Return the bytes that reading may use in this process.

    Examples
    --------
    >>> memory_limit() == DEFAULT_MEMORY
    True
    """
    return _memory


@contextmanager
def lowered_limit(nbytes: int) -> Iterator[None]:
    """Set the memory limit within a block, unless it is lower already."""
    before = memory_limit()
    set_memory(min(before, nbytes))
    try:
        yield
    finally:
        set_memory(before)


def set_memory(nbytes: int) -> None:
    """Set the bytes that reading may use in this process, from the next read on.

    Parameters
    ----------
    nbytes : int
        At least 1 MiB. A quarter is for batches in flight, a half for decoded chunks, the rest for
        tables and scratch. The tables of what you select and draw (index arrays, masks, weights,
        episodes) come on top; `Loader.explain` counts them. Batches may use the share of chunks
        while no chunk is cached. Loaders alive at the same time share it; each may always read one
        batch while another is in use. The worker processes of a loader divide the limit equally
        once more.

    Examples
    --------
    >>> set_memory(64 << 20)
    >>> memory_limit(), cache_share(), batch_share()
    (67108864, 33554432, 16777216)
    >>> set_memory(DEFAULT_MEMORY)
    """
    global _memory
    _memory = as_count("nbytes", nbytes, at_least=_LEAST)


def cache_share() -> int:
    """Return the bytes of decoded chunks that may be cached, of all arrays together."""
    return _memory // 2


def batch_share(*, cached: bool = True) -> int:
    """Return the bytes of batches in flight, of all loaders together.

    A loader that caches no chunks (not `cached`) may use the chunks' share too, while no other
    loader caches any: batches of 100 MB are then read two at a time, 1.7 times as fast (1.3 times
    through `to_tf`).
    """
    return _memory // 4 * (1 if cached else 3)


def scratch_share() -> int:
    """Return the bytes for tables, stored chunks being decoded, and scratch."""
    return _memory // 4


def return_freed_memory() -> None:
    """Return freed memory to the system; malloc would keep it, for each thread."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of the GNU library
    if trim is not None:
        trim(0)


class Account:
    """Bytes of batches in flight, of all iterations; thread-safe.

    The total stays within `batch_share`, except that each iteration may always read one run of
    steps while another is in use. A run takes at most a quarter of the `room` that is left when its
    iteration begins, or is one step long. `cached` returns the bytes of the cached chunks.
    """

    def __init__(self, cached: Callable[[], int] = lambda: 0) -> None:
        # Re-entrant: the garbage collector may run anything while this thread holds it.
        self._lock = threading.RLock()
        # By owner. Each entry is replaced in one step, so that `end` returns all bytes even after
        # an interrupt.
        self._taken: dict[int, tuple[int, bool]] = {}
        self._ending: dict[int, int] = {}
        self.cached = cached

    @property
    def nbytes(self) -> int:
        """Bytes in flight."""
        return sum(nbytes for nbytes, _ in list(self._taken.values()))

    @property
    def ending(self) -> int:
        """Bytes of reads that are still running although their iteration has ended."""
        return sum(list(self._ending.values()))

    @property
    def borrowed(self) -> int:
        """Bytes of the chunks' share that batches use."""
        uncached = sum(nbytes for nbytes, cached in list(self._taken.values()) if not cached)
        return max(0, uncached - batch_share())

    def room(self, *, cached: bool) -> int:
        """Return the bytes that iterations may still take; see `take`."""
        return batch_share(cached=cached or self.cached() > 0) - self.nbytes - self.ending

    def take(self, owner: int, nbytes: int, *, always: bool = False, cached: bool = True) -> bool:
        """Add bytes to an owner if they fit, or if `always`; return whether they were added.

        `owner` is the `id` of an iteration; `cached` says whether its chunks are cached.
        """
        most = batch_share(cached=cached or self.cached() > 0)
        with self._lock:
            fits = always or self.nbytes + self.ending + nbytes <= most
            if fits:
                self._taken[owner] = self._taken.get(owner, (0, cached))[0] + nbytes, cached
            return fits

    def give(self, owner: int, nbytes: int) -> None:
        """Return some of an owner's bytes."""
        with self._lock:
            has, cached = self._taken[owner]
            self._taken[owner] = has - nbytes, cached

    def end(self, owner: int, running: int = 0) -> None:
        """Return all of an owner's bytes; note those of its reads that are still running.

        Takes no lock; may be called again, also after a fork.
        """
        self._taken.pop(owner, None)
        if running:
            self._ending[owner] = running
        else:
            self._ending.pop(owner, None)


_account = Account()


def account() -> Account:
    """Return the account of this process."""
    return _account


def _reset_after_fork() -> None:
    global _account
    _account = Account(_account.cached)  # the iterations belong to the parent


os.register_at_fork(after_in_child=_reset_after_fork)
