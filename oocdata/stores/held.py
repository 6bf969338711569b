"""What was asked for, while it is under way and until it is taken."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from oocdata.stores.answer import Answer
from oocdata.stores.failures import ChangedError
from oocdata.stores.link import link
from oocdata.stores.pieces import Pieces, joined
from oocdata.stores.room import Request
from oocdata.stores.versions import ObjectVersion

if TYPE_CHECKING:
    from oocdata.stores.entry import Entry
    from oocdata.stores.files import StoredFile

__all__ = ["Asked", "Held", "to_fetch"]

Ints = NDArray[np.int64]

Made = TypeVar("Made")


def to_fetch(runs: Pieces, folder: Entry | None) -> tuple[Ints, Ints]:
    """Return where the ranges start and stop that are fetched for runs: what no folder holds."""
    each = runs.offsets, runs.counts
    return joined(*(each if folder is None else folder.missing(*each)))


class Held(Generic[Made]):
    """Answers to several requests, each held until it is dropped, within the link's bound.

    They are asked for when a block begins, in the order in which they will be read, and given up
    when it ends; `at_once` if they are read in this block, by nobody else.
    """

    def __init__(self, requests: dict[int, Request[Made]], *, at_once: bool = False) -> None:
        self.requests, self.at_once = requests, at_once

    def __enter__(self) -> Self:
        if self.requests:
            link().check()
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
        each = self.requests.values()
        link().ask(each)
        link().call(partial(link().enter, each, at_once=self.at_once))

    def close(self) -> None:
        """Hold nothing any more; what is under way is given up. May be called again."""
        if self.requests:
            # The last first: else what is given up makes room for what will be.
            link().call(partial(link().leave, *reversed(self.requests.values())))

    def take(self, number: int) -> Made:
        """Return an answer; wait for it. `CancelledError` if it is not held any more."""
        request = self.requests[number]
        done = request.done
        if not done.done():
            link().check()  # in a fork it would never come
            link().call(partial(link().hurry, request))
        try:
            return done.result()
        except Exception:
            self.read(number, request.left)  # nobody will, and others need not wait for it
            raise

    def read(self, number: int, nbytes: int) -> None:
        """Say that bytes of an answer were read, so that others may have its room."""
        if link().note_read(self.requests[number], nbytes):
            link().call(link().serve)

    def drop(self, number: int) -> None:
        """Hold an answer no more."""
        link().call(partial(link().leave, self.requests[number]))


class Asked(Held[Answer]):
    """Runs of one object that will be read, fetched as ranges that ascend.

    What is in a folder is not fetched, and what is fetched is kept there.
    """

    def __init__(
        self, file: StoredFile, runs: Pieces, folder: Entry | None, *, at_once: bool = False
    ) -> None:
        self.file, self.folder = file, folder
        self.starts, self.stops = starts, stops = to_fetch(runs, folder)
        pieces, found = runs.within(starts, stops)
        pieces, found = pieces.of(found >= 0), found[found >= 0]  # the others are in the folder
        wanted = np.bincount(found, pieces.counts, len(starts)).astype(np.int64).tolist()
        first = np.full(len(starts), np.iinfo(np.int64).max)
        np.minimum.at(first, found, pieces.runs)
        sizes, order = (stops - starts).tolist(), np.argsort(first, kind="stable").tolist()
        kept = folder is not None
        each = {
            one: Request(partial(self._range, one), sizes[one], wanted[one], to_folder=kept)
            for one in order
        }
        super().__init__(each, at_once=at_once)

    def begin(self) -> None:
        """Ask for all; see `Held.begin`."""
        super().begin()
        if not self.at_once:  # else for whoever waits alone: another would take what it still needs
            self.file.asked.append(self)

    async def _range(self, number: int, _: Request[Answer]) -> Answer:
        file, start, stop = self.file, int(self.starts[number]), int(self.stops[number])
        answer = await link().get(file.address, start, stop, tag=file.version.tag)
        assert answer is not None
        if ObjectVersion.of(file.address, answer) != file.version:
            raise ChangedError(
                "the object must be as it was when it was opened; it has changed. Open it again.",
                path=file.version.path,
            )
        if self.folder is not None:
            await asyncio.to_thread(self.folder.write, start, answer.data)
        return answer

    def close(self) -> None:
        """Hold nothing any more; see `Held.close`."""
        with suppress(ValueError):  # without the lock: the collector may call this in any thread
            self.file.asked.remove(self)
        super().close()
