"""Follow which chunks will be cached when a later run is read, before it is read.

What a run must fetch is planned long before its chunks are needed. Chunks that are cached now may
be evicted by then, and a chunk that is requested only when it is missed takes a round trip. So
plans follow the least recently used chunks through the runs before; `explain` counts requests by
the same plan.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from oocdata.box import Ints

if TYPE_CHECKING:
    from oocdata.engines.cache import ArrayCache


class PlannedCache:
    """The chunks that will be cached, within a budget in bytes: least recently used go first.

    `cached` has the bytes of the chunks that are cached at the beginning, the oldest first, as
    `Cache.listed` gives them. `loaded` are the bytes of the chunks that were not cached when
    needed.

    >>> planned = PlannedCache(200)
    >>> [planned.load({number: 100 for number in numbers}) for numbers in ([1, 2], [2, 3], [1])]
    [[1, 2], [3], [1]]
    >>> planned.loaded
    400
    """

    def __init__(self, budget: float, cached: Mapping[Any, int] = MappingProxyType({})) -> None:
        self._budget, self.loaded = budget, 0
        self._cached = OrderedDict(cached)
        self._nbytes = sum(cached.values())
        self._lock = threading.Lock()

    def load(self, chunks: Mapping[Any, int]) -> list[Any]:
        """Use chunks, given with their bytes; return those that were not cached.

        Those that are cached are pinned by a read before it decodes the others.
        """
        with self._lock:
            missing = []
            for chunk in chunks:
                if chunk in self._cached:
                    self._cached.move_to_end(chunk)
                else:
                    missing.append(chunk)
            for chunk in missing:
                self._cached[chunk] = nbytes = chunks[chunk]
                self._nbytes += nbytes
                self.loaded += nbytes
            while self._nbytes > self._budget and len(self._cached) > 1:
                self._nbytes -= self._cached.popitem(last=False)[1]
        return missing

    @contextmanager
    def used(self) -> Iterator[None]:
        """Let plans in this thread ask for these chunks, not for the cache's, during a block."""
        token = _plan.set(self)
        try:
            yield
        finally:
            _plan.reset(token)


_plan: ContextVar[PlannedCache | None] = ContextVar("plan", default=None)


def current_plan() -> PlannedCache | None:
    """Return the chunks that plans in this thread ask for."""
    return _plan.get()


def missing_chunks(array: ArrayCache, chunks: Ints) -> Ints:
    """Return those chunks of an array that a plan must fetch."""
    planned = _plan.get()
    if planned is None:
        return array.missing(chunks)
    numbers, slots = array.numbers_of(chunks).tolist(), id(array.slots)
    missing = planned.load({(slots, number): array.nbytes for number in numbers})
    return array.chunks_of(np.array([number for _, number in missing], np.int64))
