"""A server that is a program of its own: it starts with a context, and ends with it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from servers.link import Link

__all__ = ["Program", "UnavailableError"]

PATIENCE = 60.0  # seconds for a program to end by itself


class UnavailableError(Exception):
    """What a server needs is not on this machine; a test skips with the reason."""


class Program:
    """Run a command, inside of a link or not; subclasses say which and wait until it serves.

    Its standard input is a pipe that ends with this process, also when that is killed.
    """

    def __init__(self, link: Link | None) -> None:
        self.link = link
        # In a namespace of its own a program is alone with its ports.
        self.address = "127.0.0.1" if link is None else link.address
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the command and wait until it serves; to be defined by each program."""
        raise NotImplementedError

    @property
    def number(self) -> int:
        """The process's number (pid) while it runs."""
        assert self._process is not None
        return self._process.pid

    def run(
        self,
        command: Sequence[str],
        pass_fds: Sequence[int] = (),
    ) -> subprocess.Popen[bytes]:
        """Start a command, to be ended with the context."""
        inside = () if self.link is None else self.link.command
        self._process = subprocess.Popen(
            [*inside, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=pass_fds,
        )
        return self._process

    def stop(self) -> None:
        """End the program, and what it started."""
        process = self._process
        if process is None:
            return
        self._process = None
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        finally:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
