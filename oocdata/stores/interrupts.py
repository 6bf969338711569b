"""Notice Ctrl-C in the thread of an event loop, while the main thread waits outside Python.

Python acts on a signal once the main thread runs Python again; one that waits in TensorFlow for a
batch would do so when a silent store is given up. Another thread can neither see the signal nor set
a handler, but `faulthandler` writes a traceback to a pipe as soon as it comes, before Python's own
handler.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
from collections.abc import Callable
from typing import Any

_SECONDS = 1.0
"""Seconds that a task lasts before Ctrl-C is looked for: as long as stores answer, no handler of
the process is changed."""


class Interrupts:
    """Tasks of an event loop that last long; `call` is called in the loop at Ctrl-C.

    Not where the program handles Ctrl-C in its own way. Methods must be called in the loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
        self._loop, self._call = loop, call
        self._lasting: set[asyncio.Task[Any]] = set()
        self._pipe, self._is_registered = os.pipe(), False
        for end in self._pipe:
            os.set_blocking(end, False)
        loop.call_soon_threadsafe(loop.add_reader, self._pipe[0], self._noticed)

    def watch(self, task: asyncio.Task[Any] | None) -> None:
        """Look for Ctrl-C from a second on until a task ends."""
        assert task is not None
        timer = self._loop.call_later(_SECONDS, self._begin, task)
        task.add_done_callback(lambda _: timer.cancel())
        task.add_done_callback(self._end)

    def _begin(self, task: asyncio.Task[Any]) -> None:
        self._lasting.add(task)
        if not self._is_registered and _is_default():
            self._is_registered = True
            faulthandler.register(signal.SIGINT, self._pipe[1], all_threads=False, chain=True)

    def _end(self, task: asyncio.Task[Any]) -> None:
        self._lasting.discard(task)
        if not self._lasting:
            self.stop()

    def stop(self) -> None:
        """Look for Ctrl-C no more; also called in a fork, whose loop does not run."""
        if self._is_registered:
            self._is_registered = False
            faulthandler.unregister(signal.SIGINT)

    def _noticed(self) -> None:
        os.read(self._pipe[0], 1 << 16)
        if _is_default():
            self._call()


def _is_default() -> bool:
    return signal.getsignal(signal.SIGINT) is signal.default_int_handler
