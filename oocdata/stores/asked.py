"""Ranges of objects that were asked for, so that their requests are under way at the same time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from oocdata.stores.answer import Answer
from oocdata.stores.failures import ChangedError
from oocdata.stores.held import Held
from oocdata.stores.link import link
from oocdata.stores.pieces import joined
from oocdata.stores.versions import ObjectVersion

if TYPE_CHECKING:
    from oocdata.stores.files import StoredFile

__all__ = ["Asked", "Shared", "ask", "fetch"]

Ints = NDArray[np.int64]


class Asked(Held[Answer]):
    """Ranges of one object that are asked for in order; they ascend, apart from one another."""

    def __init__(self, file: StoredFile, starts: Ints, stops: Ints, *, at_once: bool) -> None:
        self.file, self.starts, self.stops, self.at_once = file, starts, stops, at_once
        super().__init__((stops - starts).tolist(), self._range, at_once=at_once)

    def begin(self) -> None:
        """Ask for all; see `Held.begin`."""
        super().begin()
        if not self.at_once:  # else for whoever waits alone: another would take what it still needs
            self.file.shared.asked.append(self)

    async def _range(self, number: int) -> Answer:
        return await fetch(self.file, int(self.starts[number]), int(self.stops[number]))

    def close(self) -> None:
        """Hold nothing any more; see `Held.close`."""
        with suppress(ValueError):  # without the lock: the collector may call this in any thread
            self.file.shared.asked.remove(self)
        super().close()


async def fetch(file: StoredFile, start: int, stop: int) -> Answer:
    """Return a range of a file, of the version that it was when it was opened."""
    answer = await link().get(file.address, start, stop, tag=file.version.tag)
    assert answer is not None
    version = ObjectVersion.of(file.address, answer)
    if version != file.version:
        raise ChangedError(
            "the object must be as it was when it was opened; it has changed. Open it again.",
            path=file.version.path,
        )
    return answer


@contextmanager
def ask(
    file: StoredFile, offsets: Ints, lengths: Ints, *, at_once: bool = False
) -> Iterator[Asked]:
    """Ask for the bytes of runs, for as long as a block takes.

    `at_once` if they are read in this block, by nobody else.
    """
    asked = Asked(file, *joined(offsets, lengths), at_once=at_once)
    try:
        asked.begin()
        yield asked
    finally:
        asked.close()


class Shared:
    """What all who read one version of an object share.

    Attributes
    ----------
    lock : Lock
        Whoever looks for what was asked for holds it until it has asked for the rest.
    asked : list of Asked
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.asked: list[Asked] = []

    @staticmethod
    def of(version: ObjectVersion) -> Shared:
        """Return what is shared by those who read a version, for as long as somebody does."""
        with _lock:
            return _shared.setdefault(version, Shared())


_lock = threading.Lock()
_shared: WeakValueDictionary[ObjectVersion, Shared] = WeakValueDictionary()
