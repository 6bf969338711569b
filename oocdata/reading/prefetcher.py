"""Prefetch from stores: request the bytes of the next runs while earlier runs are read.

A requested run occupies memory for its fetched bytes alone; a run that is being read also occupies
a thread, and memory for its batches. So more runs are requested than are read, for as long as the
stores accept requests. On new connections the first run is requested alone, since all requests
share the link: behind 100 ms, the first batch of 64 KiB rows comes after 7.4 round trips, not 9.7.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from oocdata.engines.cache import cache
from oocdata.engines.planned import PlannedCache
from oocdata.memory import cache_share

if TYPE_CHECKING:
    from oocdata.engines.prefetch import Link
    from oocdata.loader import Loader
    from oocdata.runs import Pass

_FARTHEST = 64
"""Most runs requested beyond the one being read; small runs alone would never fill a link."""


class Prefetcher:
    """Runs of a pass from `number` on, requested in order by the threads that read them.

    Worker processes take turns: each requests every `every`-th run.
    """

    def __init__(self, loader: Loader, pass_: Pass, number: int, every: int = 1) -> None:
        self._loader, self._pass, self._every = loader, pass_, every
        # Re-entrant: the garbage collector may call `close` in a thread that holds the lock.
        self._lock = threading.RLock()
        self._next = self._first = number
        self._may_run_ahead = threading.Event()
        self._requested: dict[int, Future[ExitStack]] = {}
        self._lookups, self._finished = 0, list[ExitStack]()
        self._links: Sequence[Link] = ()
        self._closed = False
        self._planned = PlannedCache(cache_share(), cache.listed())

    def continues(self, pass_: Pass, number: int) -> bool:
        """Return whether run `number` of a pass is one that is read next here."""
        return pass_ == self._pass and (number in self._requested or number == self._next)

    @contextmanager
    def reading(self, number: int) -> Iterator[None]:
        """Return a context manager that keeps a run's requests in flight; request later runs.

        Raises SourceError if they can't be requested, and CancelledError if the pass was closed.
        """
        try:
            if number != self._first:
                self._may_run_ahead.wait()
            self._request(number)
            with self._lock:
                request = self._requested.pop(number, None)
            if request is None:
                raise CancelledError
            stack = request.result()  # another thread may be about to send the request
            try:
                yield
            finally:
                self._close_finished(stack)
        finally:
            self._may_run_ahead.set()

    def _close_finished(self, *read: ExitStack) -> None:
        """Close the requests of runs that were read, unless a thread is looking up later requests.

        That thread may have found a chunk neither in the cache, because it was not decoded yet, nor
        among the requests, because they were closed meanwhile: it would fetch the chunk again.
        """
        with self._lock:
            self._finished += read
            if self._lookups:
                return
            closing, self._finished = self._finished, []
        for stack in closing:
            stack.close()

    def _request(self, upto: int) -> None:
        """Request runs up to `upto`, and later ones while there is room."""
        while True:
            with self._lock:
                number = self._next
                room = number <= upto or (
                    self._may_run_ahead.is_set() and all(link.has_room() for link in self._links)
                )
                farthest = min(len(self._pass), upto + _FARTHEST * self._every)
                if self._closed or not room or number >= farthest:
                    break
                self._next += self._every
                self._lookups += 1
                request = self._requested[number] = Future()
            stack = ExitStack()
            try:
                with self._planned.used():
                    requests = self._loader.prefetched(self._pass.run(number))
                    self._links = stack.enter_context(requests)
                if not any(link.is_cold() for link in self._links):
                    self._may_run_ahead.set()
                request.set_result(stack)
            except BaseException as error:  # is raised to the thread that reads that run
                request.set_exception(error)
            with self._lock:
                self._lookups -= 1
            self._close_finished()
        if self._closed:  # `close` may have missed the run that was just added
            self.close()

    def close(self) -> None:
        """Cancel requests whose runs have not been read. May be called again."""
        self._may_run_ahead.set()
        with self._lock:
            self._closed = True
            cancelled, self._requested = self._requested, {}
        # Last to first: otherwise each cancellation makes room for later requests, only to be
        # cancelled in turn.
        for number in sorted(cancelled, reverse=True):
            cancelled[number].add_done_callback(_cancel)


def _cancel(request: Future[ExitStack]) -> None:
    if request.exception() is None:
        request.result().close()
