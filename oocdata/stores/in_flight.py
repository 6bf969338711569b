"""Requests in flight, and answers that no reader has taken yet."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from oocdata.stores.answer import Answer
from oocdata.stores.budget import Request
from oocdata.stores.failures import ChangedError
from oocdata.stores.link import link
from oocdata.stores.pieces import Pieces, merge_runs
from oocdata.stores.versions import ObjectVersion

if TYPE_CHECKING:
    from oocdata.stores.entry import Entry
    from oocdata.stores.files import StoredFile

__all__ = ["RangeRequests", "RequestGroup", "to_fetch"]

Ints = NDArray[np.int64]

Result = TypeVar("Result")


def to_fetch(runs: Pieces, folder: Entry | None) -> tuple[Ints, Ints]:
    """Return starts and stops of the ranges to fetch for runs that are not in the folder."""
    each = runs.offsets, runs.counts
    return merge_runs(*(each if folder is None else folder.missing(*each)))


class RequestGroup(Generic[Result]):
    """Several requests made together, within the link's budget; a context manager.

    They are made on entry, in the order in which they will be read, and given up on exit. An answer
    stays in memory until it is dropped. `at_once` if this block reads the answers, and only it.
    """

    def __init__(self, requests: dict[int, Request[Result]], *, at_once: bool = False) -> None:
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
        """Make all requests."""
        each = self.requests.values()
        link().announce(each)
        link().call(partial(link().enter, each, at_once=self.at_once))

    def close(self) -> None:
        """Drop all answers and give up requests in flight. May be called again."""
        if self.requests:
            # The last first, or the room of one that is given up would go to the next.
            link().call(partial(link().leave, *reversed(self.requests.values())))

    def take(self, number: int) -> Result:
        """Wait for an answer and return it; `CancelledError` if it was dropped."""
        request = self.requests[number]
        done = request.done
        if not done.done():
            link().check()  # in a fork the answer would never come
            link().call(partial(link().hurry, request))
        try:
            return done.result()
        except Exception:
            self.read(number, request.left)  # so that others get its room
            raise

    def read(self, number: int, nbytes: int) -> None:
        """Note that bytes of an answer were read, so that others may get its room."""
        if link().note_read(self.requests[number], nbytes):
            link().call(link().serve)

    def drop(self, number: int) -> None:
        """Drop an answer."""
        link().call(partial(link().leave, self.requests[number]))


class RangeRequests(RequestGroup[Answer]):
    """Requests for runs of one object, merged into ascending ranges.

    Runs that are in the cache folder are not requested; answers are written to it.
    """

    def __init__(
        self, file: StoredFile, runs: Pieces, folder: Entry | None, *, at_once: bool = False
    ) -> None:
        self.file, self.folder = file, folder
        self.starts, self.stops = starts, stops = to_fetch(runs, folder)
        pieces, ranges = runs.cut(starts, stops)
        is_needed = ranges >= 0  # the other pieces are in the folder
        pieces, ranges = pieces.take(is_needed), ranges[is_needed]
        used = np.bincount(ranges, pieces.counts, len(starts)).astype(np.int64).tolist()
        first_run = np.full(len(starts), np.iinfo(np.int64).max)
        np.minimum.at(first_run, ranges, pieces.runs)
        sizes, order = (stops - starts).tolist(), np.argsort(first_run, kind="stable").tolist()
        to_folder = folder is not None
        requests = {
            number: Request(
                partial(self._fetch, number), sizes[number], used[number], to_folder=to_folder
            )
            for number in order
        }
        super().__init__(requests, at_once=at_once)

    def begin(self) -> None:
        """Make all requests, and list them for other readers unless they are `at_once`."""
        super().begin()
        if not self.at_once:  # else another reader could use up what this block still needs
            self.file.requests.append(self)

    async def _fetch(self, number: int, _: Request[Answer]) -> Answer:
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
        """Drop all answers; see `RequestGroup.close`."""
        with suppress(ValueError):  # no lock: the garbage collector may call this in any thread
            self.file.requests.remove(self)
        super().close()
