"""Send all requests to stores: byte ranges, within one bound, with retries.

A thread runs an event loop. However many arrays and threads read, the requests and bytes in flight
stay within one bound. The client retries what may be temporary (`oocdata.stores.address`), and the
link an answer that breaks off without an ETag; what is not temporary (no such object, no
permission, another version) fails at once.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import random
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

from oocdata.errors import MissingFileError, SourceError
from oocdata.stores.address import client, obstore
from oocdata.stores.answers import (
    Answer,
    IncompleteAnswerError,
    has_status,
    is_wrong,
    may_pass,
    to_source_error,
)
from oocdata.stores.budget import AnswerBudget, Request
from oocdata.stores.interrupts import Interrupts
from oocdata.stores.user_stores import FsspecClient
from oocdata.threads import fork_safe

if TYPE_CHECKING:
    from oocdata.stores.address import Address

Result = TypeVar("Result")

REQUESTS = 64
"""Requests in flight, at most."""

_TRIES, _PAUSE, _OUTAGE = 6, 0.5, 120.0
"""Requests for an answer that breaks off, or of a server that answered before; seconds before the
second one, times 0.5 to 1.5, which double each time; and seconds after which there is no other one.
The client itself repeats each twice for all other failures that may be temporary."""

_SECONDS, _LEAST_RATE = 60.0, 10_000
"""Seconds for the body of an answer, and bytes of it that may take a second more each: it may share
a slow link with 63 others. One of fsspec has the seconds alone."""


@dataclass(slots=True)
class Traffic:
    """Counts of what went over the link since the process began."""

    requests: int = 0  #: those that the client repeats count once
    nbytes: int = 0  #: of answers
    #: seconds with a request in flight, up to when one last began or ended
    busy: float = 0.0


_EXIT_SECONDS = 2.0
"""Seconds that cancelled requests of the client may take to end when the interpreter exits; it
takes some milliseconds."""

_INTERRUPT_SECONDS = 0.5
"""Seconds after Ctrl-C in which requests are given up."""


class Link(AnswerBudget):
    """The requests of this process, and the thread that makes them."""

    def __init__(self) -> None:
        super().__init__()
        self.traffic = Traffic()
        self._process = os.getpid()
        self._ending_until = 0.0
        self._loop = asyncio.new_event_loop()
        # For the cache folder and file systems of fsspec, which need two threads a request.
        self._loop.set_default_executor(ThreadPoolExecutor(2 * REQUESTS, "oocdata-link"))
        self.interrupts = Interrupts(self._loop, self._interrupt)
        self._may_begin, self._line = asyncio.Semaphore(REQUESTS), asyncio.Lock()
        self._in_flight = 0
        self._since = 0.0
        self._answers = 0
        self._reached = set[str]()  # stores
        self._client_calls: WeakSet[Any] = WeakSet()
        # A daemon, so that it does not keep the process from exiting.
        threading.Thread(target=self._loop.run_forever, name="oocdata-link", daemon=True).start()
        # Runs before the interpreter joins threads, which may wait for answers: its hook was
        # registered when the executor was imported.
        getattr(threading, "_register_atexit", atexit.register)(self.end)

    def end(self) -> None:
        """Give up all requests, present and future: the interpreter exits."""
        self._ending_until = inf
        self.call(self._cancel_all)
        until = time.monotonic() + _EXIT_SECONDS
        while self._client_calls and os.getpid() == self._process and time.monotonic() < until:
            time.sleep(0.001)
            # Objects that its threads released without the GIL are freed at the next call.
            obstore().store.MemoryStore()

    def _cancel_all(self) -> None:
        for task in asyncio.all_tasks(self._loop):
            task.cancel()

    def _interrupt(self) -> None:
        """Give up all requests, and those that threads make before they notice it: Ctrl-C."""
        self._ending_until = max(self._ending_until, time.monotonic() + _INTERRUPT_SECONDS)
        self._cancel_all()

    @property
    def _is_ending(self) -> bool:
        return time.monotonic() < self._ending_until

    def check(self) -> None:
        """Raise `SourceError` in a fork of the link's process, and when all is given up."""
        if self._is_ending:
            raise _end_error()
        if os.getpid() != self._process:
            raise SourceError(
                "stores can't be read in a process that was forked after one was read from: the "
                "threads of the client are gone. Start workers with 'spawn' or 'forkserver' "
                "(multiprocessing.get_context('spawn')), or fork before the first read."
            )

    def start(self, work: Callable[[], Coroutine[Any, Any, Result]]) -> Future[Result]:
        """Start a coroutine in the loop."""
        self.check()
        return asyncio.run_coroutine_threadsafe(self._until_end(work), self._loop)

    def wait(self, done: Future[Result]) -> Result:
        """Wait for the result of a coroutine that `start` started, and return it."""
        if not done.done():
            self.check()  # in a fork it would never come
        return done.result()

    async def _until_end(self, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Await a result; raise `SourceError` if it is cancelled because all is given up."""
        task = asyncio.current_task()
        assert task is not None
        task.add_done_callback(_read_exception)
        try:
            return await work()
        except asyncio.CancelledError:
            if self._is_ending:
                raise _end_error() from None
            raise

    def call(self, work: Callable[[], None]) -> None:
        """Call a function in the loop, soon."""
        if os.getpid() == self._process:
            with suppress(RuntimeError):  # the interpreter exits
                self._loop.call_soon_threadsafe(work)

    def begin(self, request: Request[Any]) -> None:
        """Start fetching an answer, for which room was granted."""
        done = request.done

        def pass_on(task: asyncio.Task[Any]) -> None:
            error = None if task.cancelled() else task.exception()
            if task.cancelled():
                done.cancel()
            elif not done.done():
                done.set_result(task.result()) if error is None else done.set_exception(error)
            self.serve()  # an answer may be given up for a request that a reader waits for

        request.task = self._loop.create_task(self._until_end(request.fetch))
        request.task.add_done_callback(pass_on)
        if self._is_ending:
            request.task.cancel()

    # Requests.

    def is_cold(self) -> bool:
        """Return whether fewer answers have come than there are connections."""
        return self._answers < REQUESTS

    async def get(
        self,
        address: Address,
        start: int = 0,
        stop: int | None = None,
        *,
        tag: str = "",
        unless: str = "",
        missing_ok: bool = False,
        is_first: bool = False,
    ) -> Answer | None:
        """Return a range of an object, or all of it, with retries.

        Requests begin in order, but one that `is_first` does not wait for those in the line.

        `start` may be negative, without `stop`, for the last bytes. `tag` is the version that the
        object must have, if any. None is returned where its version is `unless`, and with
        `missing_ok` where there is no such object. For the errors see
        `oocdata.stores.answers.to_source_error`.
        """
        options: dict[str, Any] = {}
        if tag and not tag.startswith("W/"):  # a weak tag matches nothing (RFC 9110, 13.1.1)
            options["if_match"] = tag
        if unless:
            options["if_none_match"] = unless
        began = time.monotonic()
        for left in reversed(range(_TRIES)):
            try:
                # Of the line, only its head waits for a place among those in flight.
                async with nullcontext() if is_first else self._line:
                    await self._may_begin.acquire()
                self._count(1)
                try:
                    self.interrupts.watch(asyncio.current_task())
                    self.traffic.requests += 1
                    answer = await self._ask(address, start, stop, options)
                finally:
                    self._count(-1)
                    self._may_begin.release()
                self._answers += 1
                self._reached.add(address.root)
                self.traffic.nbytes += len(answer.data)
                expected = len(range(answer.nbytes)[start:stop])
                if len(answer.data) != expected:
                    raise IncompleteAnswerError(f"{len(answer.data)} bytes came of {expected}")
                return answer
            except SourceError:
                raise
            except Exception as error:
                if type(error).__name__ == "NotModifiedError" and unless:
                    return None
                if has_status(error):
                    self._reached.add(address.root)
                is_over = not left or time.monotonic() > began + _OUTAGE
                if is_over or not may_pass(error, was_reached=address.root in self._reached):
                    final = to_source_error(error, address.url, tag)
                    if not isinstance(final, MissingFileError):
                        client.cache_clear()  # the next one takes the credentials of that time
                    elif missing_ok:
                        return None
                    raise final from None
                # A wrong answer is no sign that the server has too much to do.
                pause = 0 if is_wrong(error) else _PAUSE * 2 ** (_TRIES - 1 - left)
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))  # no cryptography
        raise AssertionError

    def _count(self, change: int) -> None:
        """Count the requests in flight, and the time during which there are any."""
        now = time.monotonic()
        self.traffic.busy += now - self._since if self._in_flight else 0.0
        self._since = now
        self._in_flight += change

    def _tracked(self, awaitable: Any) -> Any:
        """Remember an awaitable of the client, for as long as the client's threads refer to it.

        They do until they have reported its end to Python, even if it was cancelled. If the
        interpreter is gone by then, they end the process by a signal.
        """
        self._client_calls.add(awaitable)
        return awaitable

    async def _ask(
        self, address: Address, start: int, stop: int | None, options: dict[str, Any]
    ) -> Answer:
        """Make one request."""
        store = address.store
        if isinstance(store, FsspecClient):
            async with asyncio.timeout(_SECONDS):
                return await store.ask(address.name, start, stop)
        if start < 0 and address.root.startswith(("az", "abfs")):  # Azure knows no suffix
            whole = await self._tracked(obstore().head_async(store, address.name))
            options = {"if_match": whole["e_tag"], **options}
            start, stop = max(0, whole["size"] + start), whole["size"]
        if start < 0:
            options = {**options, "range": {"suffix": -start}}
        elif stop is not None:
            options = {**options, "range": (start, stop)}
        found = await self._tracked(
            obstore().get_async(store, address.name, options=options or None)
        )
        start, stop = found.range
        async with asyncio.timeout(_SECONDS + (stop - start) / _LEAST_RATE):
            data = await self._tracked(found.bytes_async())
        meta = found.meta
        modified: datetime = meta["last_modified"]
        return Answer(
            data, meta["size"], meta["e_tag"] or "", int(modified.timestamp()) * 1_000_000_000
        )


def _read_exception(task: asyncio.Task[Any]) -> None:
    """Read an exception that maybe nobody waits for any more, or asyncio logs that nobody did."""
    if not task.cancelled():
        task.exception()


def _end_error() -> SourceError:
    return SourceError(
        "reading from a store must not be stopped; it was, by Ctrl-C or at the end of the program."
    )


_link: Link | None = None
_creation_lock = fork_safe(threading.Lock())


def link() -> Link:
    """Return the link of the process, made on first use."""
    global _link
    if _link is None:
        with _creation_lock:
            _link = _link or Link()
    return _link


def _stop_after_fork() -> None:
    # The link itself stays: the client's threads are gone, and `Link.check` raises.
    if _link is not None:
        _link.interrupts.stop()


os.register_at_fork(after_in_child=_stop_after_fork)
