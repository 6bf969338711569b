"""Bound the bytes of answers in memory: those in flight, and those not yet read to the end.

Room is granted in the order of the requests, first to those that a reader waits for. For these,
answers that no reader waits for are given up, the last one first: they are read from the cache
folder, or fetched again. So the bound holds, except for a single answer that is larger. Requests in
flight are not given up, as their answers are not in the folder yet.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from oocdata.memory import scratch_share
from oocdata.threads import fork_safe

Result = TypeVar("Result")

_OBJECT_BYTES = 4 << 10
"""Bytes of a request and its answer besides the bytes that were asked for."""


@dataclass(slots=True, eq=False)
class Request(Generic[Result]):
    """A request and its answer, until the answer is dropped."""

    fetch: Callable[[], Coroutine[Any, Any, Result]]
    nbytes: int  #: about how long the answer is
    left: int  #: how many of its bytes will be read
    done: Future[Result] = field(default_factory=Future)
    task: asyncio.Task[Result] | None = None
    is_awaited: bool = False  #: whether a reader waits for the answer

    def end(self) -> None:
        """Drop the answer, or give up the request; called in the loop."""
        if self.task is not None:
            self.task.cancel()
            self.task = None  # it refers to the answer
        self.done.cancel()  # in case the task never began
        self.done = Future()
        self.done.cancel()


class AnswerBudget:
    """The byte budget for answers, and the requests that wait for room in it.

    `held` counts the bytes of answers that are in flight or were not dropped yet, and `most_held`
    is its largest value so far. Methods must be called in the loop of the link, except `requested`,
    `take`, `read` and `has_room`.
    """

    #: Start fetching an answer, for which room was granted.
    begin: Callable[[Request[Any]], None]
    #: Call a function in the loop, soon.
    call: Callable[[Callable[[], None]], None]
    #: Raise `SourceError` if no answer can come any more.
    check: Callable[[], None]

    def __init__(self) -> None:
        self.held = self.most_held = 0
        #: All requests, also those that did not come to the loop yet.
        self._requested: dict[Request[Any], None] = {}
        self._granted: dict[Request[Any], None] = {}
        #: Requests that a reader waits for, or reads next, and those read later.
        self._waiting: tuple[dict[Request[Any], None], ...] = {}, {}
        #: Answers that were read to the end, the first one first.
        self._read: dict[Request[Any], None] = {}
        self._lock = fork_safe(threading.Lock())

    def enter(self, requests: Iterable[Request[Any]], *, at_once: bool) -> None:
        """Queue requests until there is room; `at_once` if their answers are read next."""
        for request in requests:
            request.is_awaited = at_once
            self._waiting[0 if at_once else 1][request] = None
        self.serve()

    def hurry(self, request: Request[Any]) -> None:
        """Move a request before those that no reader waits for."""
        request.is_awaited |= not request.done.done()
        if request in self._waiting[1]:
            del self._waiting[1][request]
            self._waiting[0][request] = None
            self.serve()

    def leave(self, *requests: Request[Any]) -> None:
        """Drop answers, and give up requests that are in flight or wait."""
        self._drop(*requests)
        self.serve()

    def _drop(self, *requests: Request[Any]) -> None:
        for request in requests:
            for queue in self._waiting:
                queue.pop(request, None)
            with self._lock:
                if request in self._granted:
                    del self._granted[request]
                    self.held -= request.nbytes
                self._read.pop(request, None)
            self._requested.pop(request, None)
            request.end()

    def serve(self) -> None:
        """Start the requests that wait, as far as there is room."""
        for queue in self._waiting:
            while queue:
                request = next(iter(queue))
                if not self._make_room(request, has_reader=queue is self._waiting[0]):
                    return
                del queue[request]
                self._granted[request] = None
                self.held += request.nbytes
                self.most_held = max(self.most_held, self.held)
                self.begin(request)

    def _make_room(self, request: Request[Any], *, has_reader: bool) -> bool:
        """Return whether there is room for a request, after giving up answers where allowed."""
        over = self.held + request.nbytes - scratch_share()
        if over <= 0:
            return True
        with self._lock:
            may_go = [one for one in self._read if one.done.done() and not one.is_awaited]
        # A reader that waits for a granted request reads its answer soon, which makes room.
        if has_reader and not any(one.is_awaited for one in self._granted):
            came = [one for one in reversed(self._granted) if one.done.done()]
            may_go += [one for one in came if one not in may_go]
        given_up = []
        for one in may_go:
            if over <= 0:
                break
            given_up.append(one)
            over -= one.nbytes
        if over > 0 and len(given_up) < len(self._granted):
            return False
        self._drop(*given_up)
        return True

    # Callable in any thread.

    @contextmanager
    def requested(
        self, requests: Sequence[Request[Any]], *, at_once: bool = False
    ) -> Iterator[None]:
        """Make requests for a block, in the order in which they will be read, then give them up.

        An answer stays in memory until it is dropped. `at_once` if this block reads the answers,
        and only it.
        """
        if not requests:
            yield
            return
        self.check()
        try:
            self._requested.update(dict.fromkeys(requests))
            self.call(partial(self.enter, requests, at_once=at_once))
            yield
        finally:
            # The last first, or the room of one that is given up would go to the next.
            self.call(partial(self.leave, *reversed(requests)))

    def take(self, request: Request[Result]) -> Result:
        """Wait for an answer and return it; `CancelledError` if it was dropped."""
        done = request.done
        if not done.done():
            self.check()  # in a fork the answer would never come
            self.call(partial(self.hurry, request))
        try:
            return done.result()
        except Exception:
            self.read(request, request.left)  # so that others get its room
            raise

    def read(self, request: Request[Any], nbytes: int) -> None:
        """Note that bytes of an answer were read, so that others may get its room."""
        with self._lock:
            request.left -= nbytes
            request.is_awaited = False
            if request.left <= 0 and request in self._granted:
                self._read[request] = None
        if any(self._waiting):
            self.call(self.serve)

    def has_room(self) -> bool:
        """Return whether a request that is made now need not wait for an answer to be read."""
        each = list(self._requested)
        unread = sum(one.nbytes for one in each if one.left > 0)
        return unread + _OBJECT_BYTES * len(each) < scratch_share()
