"""Asking ahead: what the next runs take out of stores is under way while earlier ones are read.

What was asked for takes room for its bytes alone; a run that is read takes a thread besides, and
room for its batches. So more runs are asked for than read, for as long as stores take more.

But over connections that are new the first run comes alone, since all that is under way shares the
link. Behind 100 ms, in turns, the first batch of 64 KiB rows came after 7.4 round trips in place of
9.7, of Zarr after 9.6 in place of 15; behind 50 Mbit/s the first 4 MB after 1.4 s and 27 s (two
runs an hour apart). Once a process, what follows is there up to a second later for it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oocdata.engines.soon import Asks
    from oocdata.loader import Loader
    from oocdata.runs import Pass

__all__ = ["AskAhead"]

_FARTHEST = 64
"""Runs that are asked for beyond the one that is read, at most: small ones never fill a link."""


class AskAhead:
    """The runs of a pass from `number` on, asked for in order by whoever reads one of them.

    In worker processes, which take turns, `every` so many runs.
    """

    def __init__(self, loader: Loader, over: Pass, number: int, every: int = 1) -> None:
        self._loader, self._over, self._every = loader, over, every
        # Re-entrant: the collector may close a pass that was dropped while this thread holds it.
        self._lock = threading.RLock()
        self._next = self._first = number
        self._may_ask_ahead = threading.Event()
        self._asked: dict[int, Future[ExitStack]] = {}
        self._looking, self._read = 0, list[ExitStack]()
        self._stores: Sequence[Asks] = ()
        self._closed = False

    def continues(self, over: Pass, number: int) -> bool:
        """Return whether a run is one that is read next here, as far as the pass tells."""
        return over == self._over and (number in self._asked or number == self._next)

    @contextmanager
    def reading(self, number: int) -> Iterator[None]:
        """Have what a run takes under way for as long as a block takes, and more runs after it.

        SourceError if it can't be asked for, CancelledError if nobody waits for it any more.
        """
        try:
            if number != self._first:
                self._may_ask_ahead.wait()
            self._ask(number)
            with self._lock:
                asked = self._asked.pop(number, None)
            if asked is None:
                raise CancelledError
            stack = asked.result()  # another thread may be about to ask for it
            try:
                yield
            finally:
                self._end_read(stack)
        finally:
            self._may_ask_ahead.set()

    def _end_read(self, *read: ExitStack) -> None:
        """End what was read, while no thread looks for what is neither in memory nor asked for.

        It would find a chunk in neither, where that was looked for before it was decoded, and is
        asked for after this: then its bytes would be fetched again.
        """
        with self._lock:
            self._read += read
            ended, self._read = ([], self._read) if self._looking else (self._read, [])
        for stack in ended:
            stack.close()

    def _ask(self, upto: int) -> None:
        """Ask for what is not asked for yet up to a run, and after it while there is room."""
        while True:
            with self._lock:
                number = self._next
                room = number <= upto or (
                    self._may_ask_ahead.is_set() and all(one.has_room() for one in self._stores)
                )
                farthest = min(len(self._over), upto + _FARTHEST * self._every)
                if self._closed or not room or number >= farthest:
                    break
                self._next += self._every
                self._looking += 1
                done = self._asked[number] = Future()
            stack = ExitStack()
            try:
                self._stores = stack.enter_context(self._loader.asked(self._over.run(number)))
                if not any(one.is_cold() for one in self._stores):
                    self._may_ask_ahead.set()
                done.set_result(stack)
            except BaseException as error:  # of whoever reads that run
                done.set_exception(error)
            with self._lock:
                self._looking -= 1
            self._end_read()
        if self._closed:  # perhaps since one more was noted
            self.close()

    def close(self) -> None:
        """Give up what was asked for and is not read yet. May be called again."""
        self._may_ask_ahead.set()
        with self._lock:
            self._closed = True
            given_up, self._asked = self._asked, {}
        # The last first: else what is given up makes room for requests of what will be.
        for number in sorted(given_up, reverse=True):
            given_up[number].add_done_callback(_give_up)


def _give_up(asked: Future[ExitStack]) -> None:
    if asked.exception() is None:
        asked.result().close()
