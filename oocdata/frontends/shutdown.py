"""Calls from TensorFlow's threads into Python, and an end to them when the interpreter exits."""

from __future__ import annotations

import os
import threading

from oocdata.errors import DatasetGoneError

__all__ = ["calls"]


class Calls:
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
        """Begin anew, with no call running."""
        self.changed = threading.Condition()
        self.running = 0
        self._begun = 0
        self._closed = False

    def __enter__(self) -> None:
        with self.changed:
            self._begun += 1
            if self._closed:
                self.changed.notify_all()
                raise DatasetGoneError("the interpreter is exiting; no more batches are read.")
            self.running += 1

    def __exit__(self, *_: object) -> None:
        with self.changed:
            self.running -= 1
            if self._closed or not self.running:
                self.changed.notify_all()

    def close(self) -> None:
        """Refuse new calls; return when none runs and none has come for a while, or in a minute."""
        with self.changed:
            self._closed = True
            begun = -1
            while begun != self._begun:
                begun = self._begun
                if not self.changed.wait_for(lambda: self.running == 0, self.LONGEST_SECONDS):
                    return
                self.changed.wait(self.QUIET_SECONDS)  # or until one more is refused


calls = Calls()
"""Those of the process; whoever gives TensorFlow a function closes them at exit."""

os.register_at_fork(after_in_child=calls.open)  # calls of the parent never end there
