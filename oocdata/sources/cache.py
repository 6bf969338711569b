"""Decoded chunks, kept within a byte budget; each decoded once even when two threads want it."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

if TYPE_CHECKING:
    from concurrent.futures import Future

__all__ = ["ChunkCache", "chunk_cache"]


class ChunkCache:
    """A least-recently-used cache of arrays with a byte budget.

    Parameters
    ----------
    budget : int
        Bytes. An array larger than the budget is handed out and not kept.

    Examples
    --------
    >>> import numpy as np
    >>> cache = ChunkCache(budget=100)
    >>> cache.get("a", 80, lambda: np.zeros(10)).shape
    (10,)
    >>> cache.nbytes
    80
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.nbytes = 0
        self._lock = threading.Lock()
        self._chunks: OrderedDict[Hashable, tuple[int, Future[NDArray[Any]]]] = OrderedDict()

    def get(self, key: Hashable, nbytes: int, decode: Callable[[], NDArray[Any]]) -> NDArray[Any]:
        """Return the array of `key`, decoding it if no one has; the array must not be written.

        Parameters
        ----------
        key : hashable
        nbytes : int
            What the array will take.
        decode : callable
            Called without any lock held; an exception goes to everyone who waits for this chunk.
        """
        from concurrent.futures import Future  # not for `import oocdata`: it is slow

        with self._lock:
            found = self._chunks.get(key)
            if found is not None:
                self._chunks.move_to_end(key)
            else:
                future: Future[NDArray[Any]] = Future()
                self._chunks[key] = (nbytes, future)
                self.nbytes += nbytes
                # What can't be kept must not push out what can.
                while self.nbytes > self.budget:
                    _, (dropped, _) = self._chunks.popitem(last=nbytes > self.budget)
                    self.nbytes -= dropped
        if found is not None:
            return found[1].result()
        try:
            array = decode()
        except BaseException as error:
            with self._lock:
                kept = self._chunks.get(key)
                if kept is not None and kept[1] is future:
                    del self._chunks[key]
                    self.nbytes -= nbytes
            future.set_exception(error)
            raise
        future.set_result(array)
        return array

    def clear(self) -> None:
        """Forget every chunk."""
        with self._lock:
            self._chunks.clear()
            self.nbytes = 0


_cache = ChunkCache(256 << 20)


def chunk_cache() -> ChunkCache:
    """Return this process's cache."""
    return _cache


def _fresh_after_fork() -> None:
    global _cache
    # Chunks that were being decoded by a thread of the parent would never arrive here.
    _cache = ChunkCache(_cache.budget)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_fresh_after_fork)
