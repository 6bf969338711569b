"""What becomes of worker pools when the process that has them exits or forks.

At exit they are closed, before anything waits for their batches. A fork sees the memory that they
share, but nothing keeps a slot for it: the batches that it has would change. So it makes what is
lent its own, and until it has, no worker is sent anything. The processes stay the first one's.
"""

from __future__ import annotations

import atexit
import os
import weakref
from typing import Protocol

__all__ = ["Forkable", "note"]


class Forkable(Protocol):
    """A pool, as this module needs it."""

    def close(self) -> None:
        """End the processes."""
        ...

    def hold(self) -> None:
        """Send no worker anything until `go_on`, from the same thread."""
        ...

    def go_on(self) -> None:
        """Undo `hold`."""
        ...

    def forget(self) -> None:
        """Leave the processes to the one that this is a fork of; keep what they have lent."""
        ...


_pools: weakref.WeakSet[Forkable] = weakref.WeakSet()


def note(pool: Forkable) -> None:
    """Close a pool at exit, and keep it apart from forks."""
    _pools.add(pool)
    # Again each time, so that it comes before what was registered since: at exit, a front-end waits
    # for its calls to return, and they wait for the workers.
    atexit.unregister(_close_all)
    atexit.register(_close_all)


def _close_all() -> None:
    for pool in list(_pools):
        pool.close()


class _Fork:
    """The steps of one fork; the process has one thread that forks at a time."""

    def __init__(self) -> None:
        self._held: list[Forkable] = []
        self._pipe = (-1, -1)

    def before(self) -> None:
        self._held = list(_pools)
        if self._held:
            self._pipe = os.pipe()
        for pool in self._held:
            pool.hold()

    def in_parent(self) -> None:
        if self._held:
            reading, writing = self._pipe
            os.close(writing)
            os.read(reading, 1)  # the end of it: the fork has its copies, or is dead
            os.close(reading)
        for pool in self._held:
            pool.go_on()
        self._held = []

    def in_child(self) -> None:
        for pool in self._held:
            pool.forget()
        if self._held:
            for number in self._pipe:
                os.close(number)
        self._held = []


_fork = _Fork()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_fork.before, after_in_parent=_fork.in_parent, after_in_child=_fork.in_child
    )
