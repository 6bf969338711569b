"""Open handles, one per process and description: opened on first use, never pickled, never forked.

Sources are descriptions; what they need open (a descriptor, an HDF5 file, a store) is kept here, in
a bounded least-recently-used table. A handle that is pushed out stays usable for whoever holds
it and closes when the last holder drops it.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from oocdata.errors import MissingFileError, SourceError

__all__ = ["Descriptor", "descriptor", "handle"]

Handle = TypeVar("Handle")

_MOST_OPEN = 128
_lock = threading.RLock()
_open: OrderedDict[Hashable, Any] = OrderedDict()
_inherited: list[object] = []


def handle(key: Hashable, opener: Callable[[], Handle]) -> Handle:
    """Return this process's handle for `key`, opening it on first use.

    Parameters
    ----------
    key : hashable
        What the handle is of; must tell apart everything that `opener` depends on.
    opener : callable
        Makes the handle; called under the table's lock, so only once.

    Examples
    --------
    >>> handle("example", list) is handle("example", list)
    True
    """
    with _lock:
        try:
            _open.move_to_end(key)
            found: Handle = _open[key]
            return found
        except KeyError:
            pass
        opened = opener()
        _open[key] = opened
        while len(_open) > _MOST_OPEN:
            _open.popitem(last=False)
        return opened


class Descriptor:
    """A file descriptor open for reading that closes with its last reference."""

    __slots__ = ("__weakref__", "number", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.number = -1
        try:
            self.number = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        except FileNotFoundError as error:
            raise MissingFileError(
                "the file must exist when it is read; it is gone. Was it moved after `open`?",
                path=path,
            ) from error
        except OSError as error:
            raise SourceError(f"the file must be readable; {error}.", path=path) from error

    def close(self) -> None:
        """Close it now; nobody may be reading from it."""
        number, self.number = self.number, -1
        if number >= 0:
            os.close(number)

    def __del__(self) -> None:
        self.close()


def descriptor(path: str) -> Descriptor:
    """Return this process's descriptor of the file at `path`."""
    return handle((Descriptor, path), lambda: Descriptor(path))


def _forget_after_fork() -> None:
    global _lock
    # Kept alive, unused: closing an inherited HDF5 or store handle in the child may touch the
    # parent's state, and its locks may be held by threads that do not exist here.
    _inherited.append(dict(_open))
    _open.clear()
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
