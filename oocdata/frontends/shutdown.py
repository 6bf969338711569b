"""Count calls from TensorFlow's threads into Python, and end them when the interpreter exits."""

from __future__ import annotations

import os
import threading

from oocdata.errors import DatasetGoneError


class Calls:
    """Counter of calls into Python, which refuses new ones once the interpreter is exiting.

    TensorFlow hangs at exit if a function is in flight while an iterator exists: its threads wait
    for the GIL of an interpreter that waits for these threads.
    """

    QUIET_SECONDS = 0.1
    LONGEST_SECONDS = 60.0
    """Time limit, because a call may never return: if the garbage collector deletes an iterator in
    one of TensorFlow's threads, that thread waits for itself."""

    def __init__(self) -> None:
        self.open()

    def open(self) -> None:
        """Start with no call running."""
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
        """Refuse new calls; wait, at most a minute, until none runs and no more come."""
        with self.changed:
            self._closed = True
            begun = -1
            while begun != self._begun:
                begun = self._begun
                if not self.changed.wait_for(lambda: self.running == 0, self.LONGEST_SECONDS):
                    return
                self.changed.wait(self.QUIET_SECONDS)  # or until another call is refused


calls = Calls()
"""The calls of this process. A module that gives TensorFlow a function closes them at exit."""

os.register_at_fork(after_in_child=calls.open)  # the parent's calls never end in the child
