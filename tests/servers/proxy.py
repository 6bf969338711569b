"""A proxy before any server that speaks HTTP, which breaks answers by a plan."""

from __future__ import annotations

import asyncio
import http.client
import io
from urllib.parse import urlsplit

from servers.counted import CountedServer, Record
from servers.faults import Exchange, Plan, Reply
from servers.http import Answer, Request

__all__ = ["FaultProxy"]


class FaultProxy(CountedServer):
    """Forward requests to a server, and break answers by a plan; counted and held.

    Its log is what clients asked for, with the names of faults; the log of the server behind is
    what came through.

    Parameters
    ----------
    upstream
        URL of the server: scheme, address and port.
    plan
        Called in the order in which requests came, in one thread. By default no faults.
    """

    def __init__(self, upstream: str, plan: Plan | None = None) -> None:
        super().__init__()
        parts = urlsplit(upstream)
        assert parts.hostname is not None
        self._upstream = parts.hostname, parts.port or 80
        self.plan: Plan = plan or (lambda number, record: None)
        self._released = asyncio.Event()

    def let_go(self) -> None:
        """Send the rest of slow answers, and those to come, at once."""
        self._loop.call_soon_threadsafe(self._released.set)

    async def answer(self, request: Request, record: Record) -> Answer:
        """Return the server's answer, or what a fault makes of it."""
        fault = self.plan(record.number, record)
        if fault is None:
            return (await self._forward(request)).answer()
        record.fault = type(fault).__name__
        return await fault(Exchange(request, self._forward, self._released))

    async def _forward(self, request: Request) -> Reply:
        """Ask the server on a connection of its own: its end is the answer's."""
        headers = {**request.headers, "connection": "close"}
        lines = [f"{request.method} {request.target} HTTP/1.1"]
        lines += [f"{name}: {text}" for name, text in headers.items()]
        head = "\r\n".join([*lines, "", ""]).encode("latin-1")
        reader, writer = await asyncio.open_connection(*self._upstream)
        try:
            writer.write(head + request.body)
            raw = await reader.read()
        finally:
            writer.close()
        return _parsed(raw, request.method)


class _Received:
    """Bytes in the place of a socket, for ``http.client`` to parse."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    def makefile(self, mode: str) -> io.BytesIO:
        return io.BytesIO(self._raw)


def _parsed(raw: bytes, method: str) -> Reply:
    response = http.client.HTTPResponse(_Received(raw), method=method)  # type: ignore[arg-type]
    response.begin()
    data = response.read()
    headers = {
        name.title(): text
        for name, text in response.getheaders()
        if name.lower() not in ("connection", "keep-alive", "transfer-encoding")
    }
    if method != "HEAD" or "Content-Length" not in headers:
        headers["Content-Length"] = str(len(data))
    return Reply(response.status, headers, data)
