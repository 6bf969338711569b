"""What was asked for, while it is under way and until it is taken."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from oocdata.stores.answer import Answer
from oocdata.stores.failures import ChangedError
from oocdata.stores.link import link
from oocdata.stores.pieces import Pieces, joined
from oocdata.stores.room import AHEAD, AT_ONCE, Turn
from oocdata.stores.versions import ObjectVersion

if TYPE_CHECKING:
    from oocdata.stores.files import StoredFile

__all__ = ["Asked", "Held", "Shared"]

Ints = NDArray[np.int64]

Made = TypeVar("Made")


class Held(Generic[Made]):
    """Answers to several requests, each held until it is dropped, within the link's bound.

    They are asked for when a block begins, and given up when it ends.

    `sizes` are about the bytes of each, `wanted` how many will be read of it, `order` says in which
    order they are; `at_once` if that is now.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        fetch: Callable[[int], Coroutine[Any, Any, Made]],
        *,
        wanted: Sequence[int] | None = None,
        order: Sequence[int] | None = None,
        at_once: bool = False,
    ) -> None:
        self._fetch, self._at_once = fetch, at_once
        self._futures: list[Future[Made]] = [Future() for _ in sizes]
        each = zip(sizes, sizes if wanted is None else wanted, strict=True)
        turns = {number: Turn(self, number, *one) for number, one in enumerate(each)}
        self._order = list(turns) if order is None else order
        self._turns = {number: turns[number] for number in self._order}
        self._tasks: dict[int, asyncio.Task[Made]] = {}
        self._closed = threading.Event()
        self.nbytes = sum(sizes)
        self.is_read = False

    def __enter__(self) -> Self:
        try:
            self.begin()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def begin(self) -> None:
        """Ask for all."""
        link().check()
        link().count(self.nbytes)
        link().call(self._begin)

    def take(self, number: int) -> Made:
        """Return an answer; wait for it. `CancelledError` if it is not held any more."""
        self.is_read, done = True, self._futures[number]
        if not done.done():
            link().check()  # in a fork it would never come
            link().call(partial(self._hurry, number))
        try:
            return done.result()
        except Exception:
            self.read(number, 0)  # nobody will, and others need not wait for it
            raise

    def read(self, number: int, nbytes: int) -> None:
        """Say that bytes of an answer were read, so that others may have its room."""
        turn = self._turns.get(number)
        if turn is not None and link().note_read(turn, nbytes):
            link().call(link().serve)

    def drop(self, number: int) -> None:
        """Hold an answer no more."""
        link().call(partial(self.give_up, number))

    def close(self) -> None:
        """Hold nothing any more, and ask for nothing; what is under way is given up."""
        if not self._closed.is_set():
            self._closed.set()
            link().call(self._give_up_all)

    # In the loop.

    def _begin(self) -> None:
        if self._closed.is_set():
            link().count(-self.nbytes)
            self._turns.clear()
        else:
            link().enter(self._turns.values(), AT_ONCE if self._at_once else AHEAD)

    def _hurry(self, number: int) -> None:
        if number in self._turns:
            link().hurry(self._turns[number])

    def fetch(self, number: int) -> None:
        """Begin to fetch an answer: it has room."""
        self._tasks[number] = link().task(self._fetch(number), self._futures[number])

    def give_up(self, number: int) -> None:
        """Hold an answer no more."""
        turn = self._turns.pop(number, None)
        if turn is not None:
            # Ended, it would hold the answer for as long as this, which lies in a cycle, is there.
            task = self._tasks.pop(number, None)
            if task is not None:
                task.cancel()
            link().count(-turn.nbytes)
            link().leave(turn)
        self._futures[number].cancel()  # where it was never begun
        gone: Future[Made] = Future()
        self._futures[number] = gone
        gone.cancel()

    def _give_up_all(self) -> None:
        # The last first: else what is given up makes room for what will be.
        for number in reversed(self._order):
            self.give_up(number)


class Asked(Held[Answer]):
    """The bytes of runs of one object, as ranges that ascend, apart from one another.

    `turns` ascend in the order in which runs are read. `at_once` if they are read in this block, by
    nobody else.
    """

    def __init__(
        self,
        file: StoredFile,
        offsets: Ints,
        lengths: Ints,
        turns: Ints | None = None,
        *,
        at_once: bool = False,
    ) -> None:
        self.file, self.at_once = file, at_once
        self.starts, self.stops = joined(offsets, lengths)
        numbers = np.zeros_like(offsets) if turns is None else turns
        pieces, found = Pieces(numbers, offsets, offsets, lengths).within(self.starts, self.stops)
        wanted = np.bincount(found, pieces.counts, len(self.starts)).astype(np.int64)
        first = np.full(len(self.starts), np.iinfo(np.int64).max)
        np.minimum.at(first, found, pieces.runs)
        super().__init__(
            (self.stops - self.starts).tolist(),
            self._range,
            wanted=wanted.tolist(),
            order=np.argsort(first, kind="stable").tolist(),
            at_once=at_once,
        )

    def begin(self) -> None:
        """Ask for all; see `Held.begin`."""
        super().begin()
        if not self.at_once:  # else for whoever waits alone: another would take what it still needs
            self.file.shared.asked.append(self)

    async def _range(self, number: int) -> Answer:
        file, start, stop = self.file, int(self.starts[number]), int(self.stops[number])
        answer = await link().get(file.address, start, stop, tag=file.version.tag)
        assert answer is not None
        if ObjectVersion.of(file.address, answer) != file.version:
            raise ChangedError(
                "the object must be as it was when it was opened; it has changed. Open it again.",
                path=file.version.path,
            )
        return answer

    def close(self) -> None:
        """Hold nothing any more; see `Held.close`."""
        with suppress(ValueError):  # without the lock: the collector may call this in any thread
            self.file.shared.asked.remove(self)
        super().close()


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


def _new_locks_after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    for shared in list(_shared.values()):
        shared.lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_locks_after_fork)
