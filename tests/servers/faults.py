"""What can go wrong with a request, and plans of it for ``servers.proxy.FaultProxy``.

A plan is a function of a request's number and record that returns a fault or None. A fault is a
function that answers in the server's place, with or without asking it.

>>> def plan(number: int, record: Record) -> Fault | None:
...     return Drop() if number == 3 else None
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from servers.counted import Record
from servers.http import Answer, Body, DropError, Request, refusal, whole

__all__ = [
    "Changed",
    "Drop",
    "Exchange",
    "Fault",
    "Half",
    "Headers",
    "Plan",
    "RandomFaults",
    "Refuse",
    "Reply",
    "Slow",
    "Stall",
    "Whole",
    "WrongLength",
    "WrongRange",
]


@dataclass(frozen=True)
class Reply:
    """A server's answer with all of its body."""

    status: int
    headers: dict[str, str]
    data: bytes

    def answer(self, body: Body | None = None) -> Answer:
        """Return the answer as it came, or with another body."""
        return Answer(self.status, self.headers, whole(self.data) if body is None else body)


@dataclass(frozen=True)
class Exchange:
    """A request, the way to the server behind the proxy, and the event of ``let_go``."""

    request: Request
    forward: Callable[[Request], Awaitable[Reply]]
    released: asyncio.Event


Fault: TypeAlias = Callable[[Exchange], Awaitable[Answer]]
Plan: TypeAlias = Callable[[int, Record], Fault | None]


@dataclass(frozen=True)
class Drop:
    """End the connection before an answer, with a reset or without."""

    reset: bool = True

    async def __call__(self, exchange: Exchange) -> Answer:
        raise DropError(self.reset)


@dataclass(frozen=True)
class Refuse:
    """Answer with an error: 503, 429 and 500 may pass, 403 and 404 stay."""

    status: int
    retry_after: int | None = None  # seconds

    async def __call__(self, exchange: Exchange) -> Answer:
        wait = {} if self.retry_after is None else {"Retry_After": str(self.retry_after)}
        return refusal(self.status, **wait)


@dataclass(frozen=True)
class Half:
    """Send all headers and a share of the body, then end the connection."""

    share: float = 0.5
    reset: bool = False

    async def __call__(self, exchange: Exchange) -> Answer:
        reply = await exchange.forward(exchange.request)

        async def body() -> Body:
            yield reply.data[: int(len(reply.data) * self.share)]
            raise DropError(self.reset)

        return reply.answer(body())


@dataclass(frozen=True)
class Headers:
    """Answer with other headers; None takes one away."""

    other: tuple[tuple[str, str | None], ...]

    async def __call__(self, exchange: Exchange) -> Answer:
        reply = await exchange.forward(exchange.request)
        found = {**reply.headers, **dict(self.other)}
        kept = {name: text for name, text in found.items() if text is not None}
        return replace(reply, headers=kept).answer()


@dataclass(frozen=True)
class WrongLength:
    """Answer with fewer or more bytes than the range has, in a message that HTTP finds right.

    ``Content-Length`` is that of the body, ``Content-Range`` what was asked for: the client alone
    can notice.
    """

    by: int = -1

    async def __call__(self, exchange: Exchange) -> Answer:
        reply = await exchange.forward(exchange.request)
        length = max(0, len(reply.data) + self.by)
        data = reply.data[:length].ljust(length, b"\0")
        return replace(
            reply, headers={**reply.headers, "Content-Length": str(length)}, data=data
        ).answer()


@dataclass(frozen=True)
class Slow:
    """Send the body byte by byte, with a pause after each, until ``FaultProxy.let_go``."""

    pause: float = 0.01  # seconds

    async def __call__(self, exchange: Exchange) -> Answer:
        reply = await exchange.forward(exchange.request)

        async def body() -> Body:
            sent = 0
            while sent < len(reply.data) and not exchange.released.is_set():
                yield reply.data[sent : sent + 1]
                sent += 1
                await asyncio.sleep(self.pause)
            if sent < len(reply.data):
                yield reply.data[sent:]

        return reply.answer(body())


@dataclass(frozen=True)
class Stall:
    """Send nothing, or the headers and some bytes of the body, and then wait for ever.

    It ends when the client or the proxy does.
    """

    after: int | None = None  # bytes

    async def __call__(self, exchange: Exchange) -> Answer:
        for_ever = asyncio.Event()
        if self.after is None:
            await for_ever.wait()
        reply = await exchange.forward(exchange.request)

        async def body() -> Body:
            yield reply.data[: self.after]
            await for_ever.wait()

        return reply.answer(body())


@dataclass(frozen=True)
class Whole:
    """Answer 200 with the whole file, as a server does that knows no ranges."""

    async def __call__(self, exchange: Exchange) -> Answer:
        headers = {name: text for name, text in exchange.request.headers.items() if name != "range"}
        return (await exchange.forward(replace(exchange.request, headers=headers))).answer()


@dataclass(frozen=True)
class WrongRange:
    """Say of the bytes that were asked for that they are others, ``by`` bytes on."""

    by: int = 1

    async def __call__(self, exchange: Exchange) -> Answer:
        reply = await exchange.forward(exchange.request)
        headers = {
            name: self._moved(text) if name == "Content-Range" else text
            for name, text in reply.headers.items()
        }
        return replace(reply, headers=headers).answer()

    def _moved(self, text: str) -> str:
        return re.sub(
            r"(\d+)-(\d+)", lambda m: f"{int(m[1]) + self.by}-{int(m[2]) + self.by}", text
        )


@dataclass(frozen=True)
class Changed:
    """Call a function, as one that writes the file anew, and then ask the server."""

    change: Callable[[], object]

    async def __call__(self, exchange: Exchange) -> Answer:
        self.change()
        return (await exchange.forward(exchange.request)).answer()


class RandomFaults:
    """A plan of random faults, the same for a seed in whatever order requests come.

    Of requests with the same method, path and stop, at most ``in_a_row`` have faults one after the
    other, so that a client that tries once more succeeds. The start does not count: a client may
    ask again for the rest that it has not got.

    Parameters
    ----------
    seed
        Of the random numbers.
    share
        Of requests that have a fault, where ``in_a_row`` allows.
    kinds
        The faults, each as likely as any other.
    in_a_row
        See above.
    most
        Faults in all; by default any number.

    Attributes
    ----------
    injected
        How many requests had a fault.
    """

    def __init__(
        self,
        seed: int,
        share: float,
        kinds: Sequence[Fault],
        in_a_row: int = 2,
        most: int | None = None,
    ) -> None:
        self._seed, self._share, self._kinds = seed, share, kinds
        self._in_a_row, self._most = in_a_row, most
        self._came: Counter[str] = Counter()
        self._row: Counter[str] = Counter()
        self.injected = 0

    def __call__(self, number: int, record: Record) -> Fault | None:
        key = f"{record.method} {record.path} {record.stop}"
        self._came[key] += 1
        chance = random.Random(f"{self._seed} {key} {self._came[key]}")
        if (
            chance.random() >= self._share
            or self._row[key] >= self._in_a_row
            or self.injected == self._most
        ):
            self._row[key] = 0
            return None
        self._row[key] += 1
        self.injected += 1
        return chance.choice(self._kinds)
