"""Calls from TensorFlow's threads into Python, and an end to them when the interpreter exits."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from oocdata.errors import DatasetGoneError

__all__ = ["gate"]


class Gate:
    """Counts calls into Python, and refuses them once the interpreter is on its way out.

    TensorFlow hangs at exit when a function is in flight while an iterator lives: its threads wait
    for the GIL of an interpreter that waits for its threads.
    """

    QUIET_SECONDS = 0.1
    LONGEST_SECONDS = 60.0
    """Where Python's collector drops an iterator in one of TensorFlow's threads, that waits for
    itself: it never comes out."""

    def __init__(self) -> None:
        self.open()

    def open(self) -> None:
        """Begin anew, with no call inside."""
        self._changed = threading.Condition()
        self._inside = 0
        self._calls = 0
        self._closed = False

    def __enter__(self) -> None:
        with self._changed:
            self._calls += 1
            self._changed.notify_all()
            if self._closed:
                raise DatasetGoneError("the interpreter is exiting; no more batches are read.")
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._inside -= 1
            self._changed.notify_all()

    def close(self) -> None:
        """Refuse new calls; return when none is inside and none has come for a while.

        Not later than when one has been inside for a minute.
        """
        with self._changed:
            self._closed = True
            while True:
                calls = self._calls
                if not self._changed.wait_for(lambda: self._inside == 0, self.LONGEST_SECONDS):
                    return
                if not self._changed.wait_for(self._called_since(calls), self.QUIET_SECONDS):
                    return

    def _called_since(self, calls: int) -> Callable[[], bool]:
        return lambda: self._calls != calls


gate = Gate()
"""The process's own; whoever gives TensorFlow a function closes it at exit."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=gate.open)  # calls of the parent never end there
