"""Ranges of objects that were asked for, so that their requests are under way at the same time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from oocdata.stores.answer import Answer
from oocdata.stores.failures import ChangedError
from oocdata.stores.held import Held
from oocdata.stores.link import link
from oocdata.stores.pieces import Pieces, joined
from oocdata.stores.versions import ObjectVersion

if TYPE_CHECKING:
    from oocdata.stores.files import StoredFile

__all__ = ["Asked", "Shared", "ask", "fetch"]

Ints = NDArray[np.int64]


class Asked(Held[Answer]):
    """Ranges of one object that are asked for; each is held until all of it was taken.

    Parameters
    ----------
    file : StoredFile
    starts, stops : ndarray of int64, shape (n,)
        Ascending, apart from one another. They are asked for in this order.
    wanted : ndarray of int64, shape (n,), or None
        Bytes that will be taken of each, counted as often as they are; None where that is not
        known, and all are held until the end.
    at_once : bool
        As of `Held`.
    """

    def __init__(
        self, file: StoredFile, starts: Ints, stops: Ints, wanted: Ints | None, *, at_once: bool
    ) -> None:
        self.file, self.starts, self.stops = file, starts, stops
        self._left: list[float] = [_FOR_EVER] * len(starts) if wanted is None else wanted.tolist()
        self._lock = threading.Lock()
        super().__init__((stops - starts).tolist(), self._range, at_once=at_once)

    def begin(self) -> None:
        """Ask for all; see `Held.begin`."""
        super().begin()
        if self._at_once:  # for whoever waits alone: another would take what it still needs
            return
        with self.file.shared.lock:
            self.file.shared.asked.append(self)

    async def _range(self, number: int) -> Answer:
        return await fetch(self.file, int(self.starts[number]), int(self.stops[number]))

    def find(self, wanted: Pieces, *, taken: bool = False) -> tuple[Pieces, Ints]:
        """Return pieces, and the range in which each lies; -1 for one that lies in none.

        Of ranges that are held; with `taken`, also of those that were taken.
        """
        pieces, found = wanted.within(self.starts, self.stops)
        held = np.array([taken or left > 0 for left in self._left], np.bool_)
        return pieces, np.where((found >= 0) & held[found], found, -1)

    def taken(self, number: int, nbytes: int) -> None:
        """Count bytes as taken; when all are, the range is held no more."""
        with self._lock:
            self._left[number] -= nbytes
            done = self._left[number] <= 0
        if done:
            self.drop(number)

    def close(self) -> None:
        """Hold nothing any more; see `Held.close`."""
        with self.file.shared.lock:
            if self in self.file.shared.asked:
                self.file.shared.asked.remove(self)
        super().close()


_FOR_EVER = float("inf")


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
    file: StoredFile, offsets: Ints, lengths: Ints, *, at_once: bool = False, once: bool = False
) -> Iterator[Asked]:
    """Ask for the bytes of runs, for as long as a block takes.

    Parameters
    ----------
    at_once : bool
        They are read in this block by nobody else, each as often as it is given.
    once : bool
        Each run is read once.
    """
    starts, stops, wanted = joined(offsets, lengths)
    asked = Asked(file, starts, stops, wanted if at_once or once else None, at_once=at_once)
    try:
        asked.begin()
        yield asked
    finally:
        asked.close()


class Shared:
    """What all who read one version of an object share.

    Attributes
    ----------
    lock : RLock
        Whoever looks for what was asked for holds it until it has asked for the rest.
    asked : list of Asked
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.asked: list[Asked] = []

    @staticmethod
    def of(version: ObjectVersion) -> Shared:
        """Return what is shared by those who read a version, for as long as somebody does."""
        with _lock:
            return _shared.setdefault(version, Shared())


_lock = threading.Lock()
_shared: WeakValueDictionary[ObjectVersion, Shared] = WeakValueDictionary()
