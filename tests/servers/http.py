"""HTTP/1.1 as our servers speak it: requests, answers, and a client's connection.

An answer's body is an asynchronous generator, so that a fault is only another body: one that waits,
or that raises ``DropError`` half-way.
"""

from __future__ import annotations

import asyncio
import re
import socket
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TypeAlias

__all__ = ["Answer", "Connection", "DropError", "Request", "refusal", "whole"]

BLOCK = 1 << 18

Body: TypeAlias = AsyncGenerator[bytes, None]


class DropError(Exception):
    """Raised by a server or by a body to have the connection end at that point.

    ``reset`` says how: with a reset (RST) as of a machine that died, or with what was written being
    sent and then the end (FIN) as of a server that closed too early.
    """

    def __init__(self, reset: bool = False) -> None:
        super().__init__(reset)
        self.reset = reset


@dataclass(frozen=True)
class Request:
    """A request as it came: the target as quoted by the client, header names in lower case."""

    method: str
    target: str
    version: str
    headers: dict[str, str]
    body: bytes = b""

    @property
    def keeps_alive(self) -> bool:
        """Whether the client may send another request on the same connection."""
        wish = self.headers.get("connection", "").lower()
        return wish != "close" if self.version == "HTTP/1.1" else wish == "keep-alive"

    @property
    def range(self) -> tuple[int | None, int | None]:
        """The range that is asked for, in bytes, the stop exclusive.

        ``bytes=2-5`` is (2, 6), ``bytes=2-`` (2, None), ``bytes=-4`` (-4, None), no range
        (None, None). Several ranges in one request count as none, as a server may ignore them.
        """
        match = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("range", ""))
        if match is None or match.groups() == ("", ""):
            return None, None
        first, last = match.groups()
        if not first:
            return (-int(last), None) if int(last) else (0, 0)
        return int(first), int(last) + 1 if last else None


@dataclass(frozen=True)
class Answer:
    """A status, headers and a body; ``Content-Length`` must be among the headers."""

    status: int
    headers: dict[str, str]
    body: Body = field(repr=False)

    def head(self, keeps_alive: bool) -> bytes:
        """Return the answer up to its body, as it is sent."""
        lines = [f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        lines += [f"Connection: {'keep-alive' if keeps_alive else 'close'}", "", ""]
        return "\r\n".join(lines).encode("latin-1")


async def whole(data: bytes) -> Body:
    """Give a body that is in memory, in blocks that a slow client holds up."""
    for start in range(0, len(data), BLOCK):
        yield data[start : start + BLOCK]


def refusal(status: int, **headers: str) -> Answer:
    """Return an answer without a body; ``_`` in the names of headers stands for ``-``."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status, {**named, "Content-Length": "0"}, whole(b""))


class Connection(asyncio.Protocol):
    """A client's connection: its requests one after the other, each in a task.

    A client that goes away ends the task of its request at once, also while it waits.

    Parameters
    ----------
    serve
        Answers one request by calls of ``write``. It may raise ``DropError``.
    opened
        The connections that are open: this one is there while it is.
    """

    def __init__(
        self,
        serve: Callable[[Request, Connection], Awaitable[None]],
        opened: set[Connection],
    ) -> None:
        self._serve = serve
        self._opened = opened
        self._received = bytearray()
        self._task: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        # asyncio does so for sockets that name their protocol alone. Without it a body waits 40 ms
        # for the client to acknowledge the head.
        peer = transport.get_extra_info("socket")
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._opened.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._opened.discard(self)
        if self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._task is None:
            self._next()

    async def write(self, data: bytes) -> None:
        """Send bytes; return when there is room for more."""
        self._transport.write(data)
        await self._writable.wait()

    def drop(self, reset: bool) -> None:
        """End the connection, as ``DropError`` says."""
        if not reset:
            self._transport.close()
            return
        peer = self._transport.get_extra_info("socket")
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    def _next(self) -> None:
        """Begin with the next request, if all of it has come."""
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return
        first, *lines = self._received[:end].decode("latin-1").split("\r\n")
        method, target, version = first.split(" ")
        pairs = (line.partition(":") for line in lines)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        stop = end + 4 + int(headers.get("content-length", "0"))
        if len(self._received) < stop:
            return
        request = Request(method, target, version, headers, bytes(self._received[end + 4 : stop]))
        del self._received[:stop]
        self._task = asyncio.get_running_loop().create_task(self._one(request))

    async def _one(self, request: Request) -> None:
        try:
            await self._serve(request, self)
        except DropError as error:
            self.drop(error.reset)
            return
        self._task = None
        if request.keeps_alive:
            self._next()
        else:
            self._transport.close()
