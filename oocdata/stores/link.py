"""The one way out of the process: requests of byte ranges, within one bound, asked again.

A thread of its own runs an event loop. However many arrays and threads read, so many requests and
bytes are under way at a time and no more. What may pass (a dropped connection, half an answer, a
server that is busy or gives none) is asked again after a while that grows and is drawn at random;
what may not (no such object, no permission, another version) fails at once.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures.thread  # noqa: F401  # it must register its end before ours
import os
import random
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

from oocdata.errors import MissingFileError, SourceError
from oocdata.stores import failures
from oocdata.stores.address import obstore
from oocdata.stores.answer import Answer
from oocdata.stores.failures import ChangedError, TornError, is_silent, may_pass, told
from oocdata.stores.given import FileSystem
from oocdata.stores.room import Request, Room

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from oocdata.stores.address import Address

__all__ = ["ANSWERED", "Link", "Traffic", "link"]

Made = TypeVar("Made")

REQUESTS = 64
"""Under way at a time."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
"""Seconds before a request is made again, doubled each time; drawn from half to one and a half."""

_PATIENCE = 5.0
"""Seconds that may pass at least until an answer begins, and then until it, or its next piece, has
come; doubled for each further try, so a slow link is not taken for a dead one for ever."""

_TIMES_USUAL = 10
"""An answer may begin so many times as late as those before it."""

_PIECE = 64 << 10
"""Bytes of an answer that show that it goes on, once one had not come in time. When 64 ranges share
a link of 50 Mbit/s, all take longer: 128 of 1 MB took 45 s with a limit for the whole of each, and
27 with one for each piece. To look at pieces takes 0.7 ms more of the processor for a MB."""

ANSWERED: set[str] = set()
"""Stores that have answered, in this process or in the one that opened what lies there."""


@dataclass(slots=True)
class Traffic:
    """What went over the link since the process began."""

    requests: int = 0  #: those made again among them
    nbytes: int = 0  #: of answers
    again: int = 0  #: requests made again
    most: int = 0  #: requests under way at a time, at most
    #: seconds in which some request was under way, up to when one last began or ended
    busy: float = 0.0


_PARTING = 2.0
"""Seconds in which the client lets go of what was given up, when the interpreter ends; it takes
some milliseconds."""


class Link(Room):
    """Requests under way, of this process."""

    def __init__(self) -> None:
        super().__init__()
        self.traffic = Traffic()
        self._process = os.getpid()
        self._ending = False
        self._loop = asyncio.new_event_loop()
        self._slots = asyncio.Semaphore(REQUESTS)
        self._under_way = 0
        self._since = 0.0
        self._usual, self._is_slow = 0.1, False
        self._answers = 0
        self._of_client: WeakSet[Any] = WeakSet()
        # It must not keep the process from ending: nothing that it does outlives its answer.
        threading.Thread(target=self._run, name="oocdata-link", daemon=True).start()
        # Before threads are waited for, which may wait for answers.
        getattr(threading, "_register_atexit", atexit.register)(self.end)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def end(self) -> None:
        """Give up what is under way, and what is asked for from now on: the interpreter ends."""
        self._ending = True
        self.call(self._cancel_all)
        until = time.monotonic() + _PARTING
        while self._of_client and os.getpid() == self._process and time.monotonic() < until:
            time.sleep(0.001)
            # What its threads let go of, without the interpreter's lock, goes at the next call.
            obstore().store.MemoryStore()

    def _cancel_all(self) -> None:
        for task in asyncio.all_tasks(self._loop):
            task.cancel()

    def check(self) -> None:
        """Raise in a fork of the process that the link belongs to, and when that ends."""
        if self._ending:
            raise _ended()
        if os.getpid() != self._process:
            raise SourceError(
                "stores can't be read in a process that was forked after one was read from: the "
                "threads of the client are gone. Start workers with 'spawn' or 'forkserver' "
                "(multiprocessing.get_context('spawn')), or fork before the first read."
            )

    def start(self, work: Callable[[], Coroutine[Any, Any, Made]]) -> Future[Made]:
        """Begin work in the loop."""
        self.check()
        done: Future[Made] = Future()
        self._loop.call_soon_threadsafe(lambda: self.task(work(), done))
        return done

    def call(self, work: Callable[[], None]) -> None:
        """Have something done in the loop, soon."""
        if os.getpid() == self._process:
            with suppress(RuntimeError):  # the interpreter is ending
                self._loop.call_soon_threadsafe(work)

    def task(self, work: Coroutine[Any, Any, Made], done: Future[Made]) -> asyncio.Task[Made]:
        """Begin work, in the loop; what comes of it goes to `done`."""

        def pass_on(task: asyncio.Task[Made]) -> None:
            # Of what was given up too, or asyncio says that nobody has asked for it.
            error = _ended() if task.cancelled() else task.exception()
            if task.cancelled() and not self._ending:
                done.cancel()
            elif error is None and not done.done():
                done.set_result(task.result())
            elif not done.done():
                done.set_exception(error)

        task = self._loop.create_task(work)
        task.add_done_callback(pass_on)
        if self._ending:
            task.cancel()
        return task

    def begin(self, request: Request[Any]) -> None:
        """Begin to fetch an answer: it has room."""
        request.task = self.task(request.fetch(request), request.done)
        if request.to_folder:  # from now on its room may go to others
            request.task.add_done_callback(lambda _: self.serve())

    # Requests.

    @property
    def is_cold(self) -> bool:
        """Whether fewer answers have come than there are connections."""
        return self._answers < REQUESTS

    async def get(
        self,
        address: Address,
        start: int = 0,
        stop: int | None = None,
        *,
        tag: str = "",
        unless: str = "",
    ) -> Answer | None:
        """Return a range of an object, or all of it; make the request again where that may help.

        `start` may be negative, for so many bytes from the end, without `stop`. `tag` is the
        version that it must be, if any; of a version `unless`, which need not be sent, None is
        returned. It raises as `oocdata.stores.failures.told` has it.
        """
        options: dict[str, Any] = {}
        if start < 0:
            options["range"] = {"suffix": -start}
        elif stop is not None:
            options["range"] = (start, stop)
        elif start:
            options["range"] = {"offset": start}
        if tag and not tag.startswith("W/"):  # a weak one matches nothing (RFC 9110, 13.1.1)
            options["if_match"] = tag
        if unless:
            options["if_none_match"] = unless
        pause, patience = _FIRST_PAUSE, max(_PATIENCE, _TIMES_USUAL * self._usual)
        for made in count(1):
            try:
                async with self._slot():
                    answer = await self._ask(address, options, patience)
                ANSWERED.add(address.root)
                self._answers += 1
                self.traffic.nbytes += len(answer.data)
                wanted = range(answer.nbytes)[start:stop]
                if len(answer.data) != len(wanted):
                    raise TornError(f"{len(answer.data)} bytes came of {len(wanted)}")
                if tag and answer.tag and answer.tag != tag:
                    raise ChangedError("it has changed", path=address.url)
                return answer
            except Exception as error:
                name = type(error).__name__
                if name == "NotModifiedError" and unless:
                    return None
                if isinstance(error, SourceError):
                    raise
                self._is_slow |= isinstance(error, TimeoutError)
                if not is_silent(error):
                    ANSWERED.add(address.root)
                most = failures.TRIES if address.root in ANSWERED else failures.FIRST_TRIES
                if made >= most or not may_pass(error):
                    raise told(error, address.url) from None
            self.traffic.again += 1
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))  # no secret
            pause, patience = min(2 * pause, _LONGEST_PAUSE), 2 * patience
        raise AssertionError

    async def get_if_there(
        self, address: Address, start: int = 0, stop: int | None = None
    ) -> Answer | None:
        """Return a range of an object, as `get` does; None where there is no such object."""
        try:
            return await self.get(address, start, stop)
        except MissingFileError:
            return None

    @asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        async with self._slots:
            self._tick()
            self._under_way += 1
            self.traffic.requests += 1
            self.traffic.most = max(self.traffic.most, self._under_way)
            try:
                yield
            finally:
                self._tick()
                self._under_way -= 1

    def _tick(self) -> None:
        now = time.monotonic()
        self.traffic.busy += now - self._since if self._under_way else 0.0
        self._since = now

    def _noted(self, asked: Any) -> Any:
        """Note what the client has under way, for as long as its threads refer to it.

        They do until they have told Python how it ended, also of what was given up. When the
        interpreter is gone by then, they end the process by a signal.
        """
        self._of_client.add(asked)
        return asked

    async def _ask(self, address: Address, options: dict[str, Any], patience: float) -> Answer:
        client, began = address.store, time.monotonic()
        async with asyncio.timeout(patience) as silence:
            if isinstance(client, FileSystem):
                answer = await client.ask(address.name, options)
                self._usual += (time.monotonic() - began - self._usual) / 8
                return answer
            suffix = options.get("range", ())
            if "suffix" in suffix and address.root.startswith(("az", "abfs")):  # it knows none
                whole = await self._noted(obstore().head_async(client, address.name))
                bounds = max(0, whole["size"] - suffix["suffix"]), whole["size"]
                options = {"if_match": whole["e_tag"], **options, "range": bounds}
            found = await self._noted(
                obstore().get_async(client, address.name, options=options or None)
            )
            self._usual += (time.monotonic() - began - self._usual) / 8
            silence.reschedule(self._loop.time() + patience)
            start, stop = found.range
            if stop - start <= _PIECE or not self._is_slow:
                data = await self._noted(found.bytes_async())
            else:
                pieces, parts = found.stream(min_chunk_size=_PIECE), []
                with suppress(StopAsyncIteration):  # whoever asked finds that it is too short
                    while start < stop:
                        parts.append(await self._noted(anext(pieces)))
                        start += len(parts[-1])
                        silence.reschedule(self._loop.time() + patience)
                data = b"".join(parts)
        meta = found.meta
        modified: datetime = meta["last_modified"]
        return Answer(
            data, meta["size"], meta["e_tag"] or "", int(modified.timestamp()) * 1_000_000_000
        )


def _ended() -> SourceError:
    return SourceError("the interpreter must not be ending when stores are read from; it is.")


_link: Link | None = None
_making = threading.Lock()


def link() -> Link:
    """Return the link of the process, made when it is first asked for.

    Examples
    --------
    >>> link().traffic.nbytes >= 0
    True
    """
    global _link
    if _link is None:
        with _making:
            _link = _link or Link()
    return _link


def _new_lock_after_fork() -> None:
    # The link itself stays: the client's threads are gone, and `Link.check` says so.
    global _making
    _making = threading.Lock()
    if _link is not None:
        _link._lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_lock_after_fork)
