"""Share requests for parts of a remote file among its readers.

Parts that will be read soon are requested together, so that their requests are in flight at the
same time. A read takes what is already requested, and requests the rest itself.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from oocdata.box import Ints
from oocdata.engines.planned import PlannedCache, current_plan
from oocdata.engines.prefetch import Fetch
from oocdata.stores.budget import Request
from oocdata.stores.link import Link, link
from oocdata.stores.pieces import Pieces
from oocdata.threads import fork_safe

Ranges = tuple[Ints, Ints]
"""Starts and stops of ascending ranges."""


@dataclass(frozen=True, slots=True, eq=False)
class RangeRequests:
    """Requests for ascending ranges."""

    starts: Ints
    stops: Ints
    each: dict[int, Request[Any]]  #: by start
    plan: PlannedCache | None


class SharedRequests(ABC):
    """A remote file, of bytes or of numbered objects, with the requests for its ranges.

    `folder` caches what is fetched; with `shares_all`, a run of batches requests nothing that is
    requested for another one, also what its reader will not cache in memory. A number in a range
    stands for a `unit` of bytes, about.
    """

    def __init__(self, folder: Any, *, shares_all: bool, unit: float = 1) -> None:
        self.folder, self._shares_all, self.unit = folder, shares_all, unit
        #: Held while a reader looks up the requested ranges and requests the others.
        self.lock = fork_safe(threading.Lock())
        self.requests: list[RangeRequests] = []

    @abstractmethod
    def _to_fetch(self, runs: Pieces, folder: Any, *, cold: bool) -> Ranges:
        """Return the ranges to fetch for runs that are not in a folder, over a cold link or not."""

    @abstractmethod
    async def _fetch(self, start: int, stop: int, folder: Any) -> Any:
        """Return the answer for a range, and write it to the folder."""

    def listed(self) -> Iterator[RangeRequests]:
        """Yield the listed requests, and all again once another thread has listed what it makes."""
        yield from list(self.requests)
        with self.lock:
            requests = list(self.requests)
        yield from requests

    @contextmanager
    def prefetch(self, wanted: Sequence[Fetch]) -> Iterator[Link]:
        """Keep requests for runs in flight during a block; see `oocdata.engines.prefetch`."""
        runs, plan = runs_of(wanted), current_plan()
        # Cached runs, once read, are in the chunk cache or in the folder, for all readers.
        is_cached = np.array([one.cached or self._shares_all for one in wanted])[runs.runs]
        cached, uncached = runs.take(is_cached), runs.take(~is_cached)
        if plan is None:  # one chunk may be wanted twice, and is read once
            each = np.stack((cached.offsets, cached.counts))
            cached = cached.take(np.unique(each, axis=1, return_index=True)[1])
        with ExitStack() as stack:
            with self.lock:  # of two threads that need a range, only one requests it
                # Ranges stay listed after they were read until no thread looks: see `Prefetcher`.
                for other in list(self.requests):
                    # A run of the same plan that needs a chunk again finds it evicted.
                    if self.folder or other.plan is None or other.plan is not plan:
                        cached, ranges = cached.cut(other.starts, other.stops)
                        cached = cached.take(ranges < 0)
                runs = cached.concat(uncached)
                ranges_to_fetch = self._to_fetch(runs, self.folder, cold=link().is_cold())
                stack.enter_context(self._requested(runs, ranges_to_fetch, self.folder))
            yield link()

    @contextmanager
    def _requested(
        self, runs: Pieces, ranges_to_fetch: Ranges, folder: Any, *, at_once: bool = False
    ) -> Iterator[RangeRequests]:
        """Request ranges for runs during a block; see `AnswerBudget.requested`.

        The requests are listed for other readers unless they are `at_once`: another reader could
        use up bytes that this block still needs.
        """
        starts, stops = ranges_to_fetch
        pieces, ranges = runs.cut(starts, stops)
        is_needed = ranges >= 0  # the other pieces are in the folder
        pieces, ranges = pieces.take(is_needed), ranges[is_needed]
        used = np.bincount(ranges, pieces.counts, len(starts)).astype(np.int64).tolist()
        each, nbytes = dict[int, Request[Any]](), ((stops - starts) * self.unit).tolist()
        for number in dict.fromkeys(ranges[np.lexsort((ranges, pieces.runs))].tolist()):
            start, stop = int(starts[number]), int(stops[number])
            fetch = partial(self._fetch, start, stop, folder)
            each[start] = Request(fetch, int(nbytes[number]), used[number])
        found = RangeRequests(starts, stops, each, current_plan())
        with link().requested([*each.values()], at_once=at_once):
            try:
                if each and not at_once:
                    self.requests.append(found)
                yield found
            finally:
                with suppress(ValueError):  # no lock: the garbage collector may come here any time
                    self.requests.remove(found)


def runs_of(wanted: Sequence[Fetch]) -> Pieces:
    """Return the wanted runs as pieces without a destination, numbered by fetch."""
    offsets, counts = map(np.concatenate, zip(*(one.ranges for one in wanted), strict=True))
    numbers = np.repeat(np.arange(len(wanted)), [len(one.ranges[0]) for one in wanted])
    return Pieces(numbers, offsets, offsets, counts)
