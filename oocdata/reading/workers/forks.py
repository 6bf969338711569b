"""What becomes of worker pools when their process exits or forks.

At exit they are closed, before anything waits for their batches. A fork sees the memory that they
share, but nothing reserves it for the fork: its batches would change. So the fork copies the slots
that are lent, and until it has, no worker is sent anything. The processes stay the parent's.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oocdata.reading.workers.pool import WorkerPool

__all__ = ["note", "pools"]

pools: weakref.WeakSet[WorkerPool] = weakref.WeakSet()
"""Those of the process that may be open."""


def note(pool: WorkerPool) -> None:
    """Close a pool at exit, and keep it apart from forks."""
    pools.add(pool)
    # Again each time, so that it comes before what was registered since: at exit, a front-end waits
    # for its calls to return, and they wait for the workers.
    atexit.unregister(_close_all)
    atexit.register(_close_all)


def _close_all() -> None:
    for pool in list(pools):
        pool.close()


class _Fork:
    """The fork that is under way; a second thread that forks waits for its turn."""

    def __init__(self) -> None:
        self.turn = threading.Lock()
        self.held: list[WorkerPool] = []
        self.pipe = (-1, -1)


_fork = _Fork()


def _before() -> None:
    _fork.turn.acquire()
    _fork.held = list(pools)
    for pool in _fork.held:
        pool.changed.acquire()
    if _fork.held:
        _fork.pipe = os.pipe()


def _in_parent() -> None:
    held, _fork.held = _fork.held, []
    if held:
        reading, writing = _fork.pipe
        os.close(writing)
        os.read(reading, 1)  # end of file: the fork has its copies, or is dead
        os.close(reading)
    for pool in held:
        pool.changed.release()
    _fork.turn.release()


def _in_child() -> None:
    global _fork
    held, pipe = _fork.held, _fork.pipe
    _fork = _Fork()
    for pool in held:
        pool.forget()
    if held:
        for number in pipe:
            os.close(number)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
