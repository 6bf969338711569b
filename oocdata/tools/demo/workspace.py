"""Where the demonstration's files lie, how they go away, and what it changes while it runs."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from oocdata.errors import ArgumentError
from oocdata.memory import memory_limit, set_memory

__all__ = ["Signals", "memory_of", "workspace"]


class Signals:
    """Leaves through every ``finally`` when the process is told to end.

    Python drops an exception that a signal raises inside a finaliser or a weak reference's
    callback, of which TensorFlow has many: what was received is kept, and `check` raises it again.
    """

    def __init__(self) -> None:
        self._received: int | None = None
        self._before: dict[int, Any] = {}
        self._report = sys.unraisablehook

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            names = ("SIGINT", "SIGTERM", "SIGHUP")
            numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
            self._before = {number: signal.signal(number, self._leave) for number in numbers}
            self._report, sys.unraisablehook = sys.unraisablehook, self._report_others
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        sys.unraisablehook = self._report
        # Keras turns an interruption of a layer into an error of that layer.
        self.check()

    def check(self) -> None:
        """Raise if the process was told to end.

        Raises
        ------
        KeyboardInterrupt, SystemExit
        """
        if self._received == signal.SIGINT:
            raise KeyboardInterrupt
        if self._received is not None:
            raise SystemExit(128 + self._received)

    def _report_others(self, dropped: sys.UnraisableHookArgs) -> None:
        if not issubclass(dropped.exc_type, KeyboardInterrupt | SystemExit):
            self._report(dropped)

    def _leave(self, number: int, frame: object) -> None:
        self._received = number
        self.check()


@contextmanager
def memory_of(nbytes: int) -> Iterator[None]:
    """Let reading take so many bytes while the block runs."""
    usual = memory_limit()
    set_memory(nbytes)
    try:
        yield
    finally:
        set_memory(usual)


@contextmanager
def workspace(keep: Path | None) -> Iterator[Path]:
    """Give a folder for files: removed in the end, however it ends, unless it is to be kept.

    Raises
    ------
    oocdata.errors.ArgumentError
        If `keep` is there and not an empty folder.
    """
    if keep is not None:
        if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
            raise ArgumentError(f"`--keep` must be a new or empty folder; '{keep}' is not.")
        keep.mkdir(parents=True, exist_ok=True)
        yield keep
        return
    folder = Path(tempfile.mkdtemp(prefix="oocdata-demo-"))
    try:
        yield folder
    finally:
        _remove(folder)


def _remove(folder: Path) -> None:
    """Remove a folder; a second Ctrl-C does not leave half of it."""
    if threading.current_thread() is not threading.main_thread():
        shutil.rmtree(folder, ignore_errors=True)
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        signal.signal(signal.SIGINT, before)
