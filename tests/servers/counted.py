"""A server in a thread, which counts what it is asked for and can hold its answers."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from servers.http import Answer, Connection, DropError, Request

__all__ = ["CountedServer", "Record"]

# A test that waits for requests which never come ends with this, long before pytest's own limit.
PATIENCE = 60.0  # seconds


@dataclass
class Record:
    """A request in the log: what was asked for, and what was sent so far.

    ``path`` is the target as the client quoted it; ``start`` and ``stop`` as of ``Request.range``.
    ``status`` is 0 until an answer begins, and stays 0 if none does. ``nbytes`` counts the body's
    bytes given to the socket. ``fault`` names what a proxy did to the answer.
    """

    number: int
    method: str
    path: str
    start: int | None
    stop: int | None
    status: int = 0
    nbytes: int = 0
    fault: str | None = None


class CountedServer:
    """Serve HTTP/1.1 from a thread with an event loop; a context manager.

    Parameters
    ----------
    latency
        Seconds before each answer. For benchmarks: a test asserts nothing about time.
    address
        The address to listen at.
    port
        The port; by default one that is free. ``url`` has both.
    tls
        The certificate, for HTTPS.

    Raises
    ------
    Exception
        At the end of the context: the first error of ``answer``, whose client was cut off.
    """

    url: str

    def __init__(
        self,
        *,
        latency: float = 0.0,
        address: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._latency = latency
        self._port = port
        self._tls = tls
        self._address = address
        self._changed = threading.Condition()
        self._log: list[Record] = []
        self._errors: list[Exception] = []
        self._at_once = 0
        self._most_at_once = 0
        self._held = False
        self._waiting: list[asyncio.Future[None]] = []
        self._opened: set[Connection] = set()

    async def answer(self, request: Request, record: Record) -> Answer:
        """Return what a request gets; to be defined by each server."""
        raise NotImplementedError

    # Life

    def __enter__(self) -> Self:
        is_v6 = ":" in self._address
        listening = socket.create_server(
            (self._address, self._port),
            family=socket.AF_INET6 if is_v6 else socket.AF_INET,
            backlog=1024,
        )
        port = listening.getsockname()[1]
        host = f"[{self._address}]" if is_v6 else self._address
        self.url = f"{'https' if self._tls else 'http'}://{host}:{port}"
        ready = threading.Event()
        name = f"test-server-{port}"
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._run(listening, ready)), name=name, daemon=True
        )
        self._thread.start()
        if not ready.wait(PATIENCE):
            raise TimeoutError(f"{name} did not start")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        if self._errors and error is None:
            raise self._errors[0]

    async def _run(self, listening: socket.socket, ready: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        server = await self._loop.create_server(
            lambda: Connection(self._serve, self._opened), sock=listening, ssl=self._tls
        )
        ready.set()
        await self._stop.wait()
        # A connection that was just accepted takes some turns of the loop to be opened; by then the
        # server must not be closed, or nothing closes the connection.
        self._loop.remove_reader(listening)
        for _ in range(4):
            await asyncio.sleep(0)
        server.close()
        for connection in list(self._opened):
            connection.drop(reset=True)
        while self._opened:
            await asyncio.sleep(0)

    # Counts

    @property
    def log(self) -> list[Record]:
        """The requests since the last ``reset``, in the order in which they came."""
        with self._changed:
            return list(self._log)

    @property
    def requests(self) -> int:
        """How many requests came since the last ``reset``."""
        with self._changed:
            return len(self._log)

    @property
    def nbytes(self) -> int:
        """How many bytes of bodies were sent since the last ``reset``."""
        with self._changed:
            return sum(record.nbytes for record in self._log)

    @property
    def at_once(self) -> int:
        """How many requests have no complete answer now."""
        with self._changed:
            return self._at_once

    @property
    def most_at_once(self) -> int:
        """The most requests without a complete answer at any time since the last ``reset``."""
        with self._changed:
            return self._most_at_once

    @property
    def connections(self) -> int:
        """How many connections are open now."""
        return len(self._opened)

    def reset(self) -> None:
        """Forget the log, and count from nothing; requests in flight stay in flight."""
        with self._changed:
            self._log.clear()
            self._most_at_once = self._at_once

    # The gate

    def hold(self) -> None:
        """Let requests come, but answer none until ``release``."""
        with self._changed:
            self._held = True

    def release(self, number: int | None = None) -> None:
        """Answer the oldest ``number`` of the held requests; by default all, and those to come."""
        with self._changed:
            if number is None:
                self._held = False
            for future in self._waiting[:number]:
                self._loop.call_soon_threadsafe(_let_go, future)
            del self._waiting[:number]

    def wait_for(self, at_once: int) -> None:
        """Wait until so many requests, or more, have come and have no complete answer."""
        self._wait(lambda: self._at_once >= at_once, f"{at_once} requests at once")

    def wait_idle(self) -> None:
        """Wait until no request is in flight: each was answered, or its client went away."""
        self._wait(lambda: self._at_once == 0, "no request in flight")

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        with self._changed:
            if not self._changed.wait_for(condition, PATIENCE):
                raise TimeoutError(
                    f"waited {PATIENCE:.0f} s for {what}; {self._at_once} are in flight, "
                    f"{len(self._log)} came"
                )

    async def _gate(self) -> None:
        with self._changed:
            if not self._held:
                return
            future = self._loop.create_future()
            self._waiting.append(future)
        try:
            await future
        finally:
            with self._changed, suppress(ValueError):  # it is not there once it was let go
                self._waiting.remove(future)

    # One request

    async def _serve(self, request: Request, connection: Connection) -> None:
        start, stop = request.range
        with self._changed:
            record = Record(len(self._log), request.method, request.target, start, stop)
            self._log.append(record)
            self._at_once += 1
            self._most_at_once = max(self._most_at_once, self._at_once)
            self._changed.notify_all()
        flight = [record]
        try:
            await self._gate()
            if self._latency:
                await asyncio.sleep(self._latency)
            answer = await self.answer(request, record)
            await self._send(answer, request, record, flight, connection)
        except DropError:
            raise
        except Exception as error:
            self._errors.append(error)
            raise DropError from error
        finally:
            self._landed(flight)

    async def _send(
        self,
        answer: Answer,
        request: Request,
        record: Record,
        flight: list[Record],
        connection: Connection,
    ) -> None:
        """Send an answer; count before the bytes leave.

        So whoever has read an answer finds it in the counts, and a client that reads one answer
        after the other is never two at once.
        """
        left = int(answer.headers["Content-Length"]) if request.method != "HEAD" else 0
        record.status = answer.status
        if not left:
            self._landed(flight)
        await connection.write(answer.head(request.keeps_alive))
        async with aclosing(answer.body) as body:
            async for block in body:
                if not left:
                    break
                left -= len(block)
                with self._changed:
                    record.nbytes += len(block)
                if left <= 0:
                    self._landed(flight)
                await connection.write(block)

    def _landed(self, flight: list[Record]) -> None:
        """Count a request as answered, once."""
        with self._changed:
            if flight:
                flight.pop()
                self._at_once -= 1
                self._changed.notify_all()


def _let_go(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
