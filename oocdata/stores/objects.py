"""Read whole objects: the chunks of a Zarr array, an object each."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager, ExitStack, suppress
from itertools import chain
from typing import Any

import numpy as np

from oocdata.engines.prefetch import Cost, Fetch
from oocdata.errors import MissingFileError
from oocdata.stores.address import Address
from oocdata.stores.answers import Answer
from oocdata.stores.budget import Request
from oocdata.stores.folder import Blob, CacheFolder
from oocdata.stores.link import link
from oocdata.stores.pieces import Pieces
from oocdata.stores.requests import RangeRequests, Ranges, SharedRequests, runs_of
from oocdata.stores.versions import version_number


class StoredObjects(SharedRequests):
    """Numbered objects, each of which must stay the version that was read first.

    `known` returns the `version_number` of an object, 0 if unknown; `expect` records it, or raises
    if it is another one. `nbytes` is the expected length of an object, corrected as objects are
    read; `cache` is the path of the cache folder, if any. In runs and ranges, an object is one
    number.
    """

    folder: CacheFolder | None

    def __init__(
        self,
        address: Callable[[int], Address],
        known: Callable[[int], int],
        expect: Callable[[int, int], None],
        nbytes: int,
        cache: str = "",
    ) -> None:
        super().__init__(CacheFolder.at(cache) if cache else None, shares_all=True, unit=nbytes)
        self._address, self._known, self._expect = address, known, expect

    def fetches(self, numbers: Sequence[int]) -> list[Fetch]:
        """Describe objects that will be read."""
        return [Fetch(self, (np.array(numbers, np.int64), np.ones(len(numbers), np.int64)))]

    def cost(self, wanted: Sequence[Fetch], *, cold: bool) -> Cost:
        """Return the cost of fetching objects; cached objects cost nothing.

        A cached object that must be revalidated costs a request and no bytes.
        """
        numbers = self._to_fetch(runs_of(wanted), self.folder, cold=cold)[0].tolist()
        missing = len(numbers) - sum(map(self._is_cached, numbers))
        return Cost(len(numbers), missing * int(self.unit), not numbers)

    def take(self, numbers: Sequence[int]) -> Generator[Any, None, None]:
        """Yield the bytes of objects, requested before or not; None for an absent one.

        Each is awaited when it is its turn, so that those before it are decoded meanwhile: behind
        100 ms, an epoch of chunks of 260 KB by `to_tf` takes 1 / 1.09 of the time.
        """
        left = [one for one in numbers if not (self.folder and self._known(one))]
        left = [one for one in left if all(one not in some.each for some in self.listed())]
        with ExitStack() as stack:
            own = stack.enter_context(self._requested_now(left, self.folder)).each if left else {}
            for number in numbers:
                yield self._object(number, own)

    def _requested_now(
        self, numbers: Sequence[int], cached: CacheFolder | None
    ) -> AbstractContextManager[RangeRequests]:
        """Request objects that are not in a folder."""
        runs = runs_of(self.fetches(numbers))
        ranges = self._to_fetch(runs, cached, cold=False)
        return self._requested(runs, ranges, self.folder, at_once=True)

    def _object(self, number: int, own: dict[int, Request[Any]]) -> Any:
        for each in chain([own], (some.each for some in self.listed())):
            if request := each.get(number):
                with suppress(CancelledError):
                    return _take(request)
        # Cached objects are read in this thread: through the link, each would take 0.3 ms more.
        if self.folder and (version := self._known(number)):
            cached = self._cached(number)
            if version_number(cached) == version and cached is not None:
                return cached.data
        with self._requested_now([number], None) as again:  # the file was deleted, or is damaged
            return _take(again.each[number])

    def _to_fetch(self, runs: Pieces, folder: CacheFolder | None, *, cold: bool) -> Ranges:
        """Return the objects that are not in the cache folder, or not validated yet."""
        numbers = np.unique(runs.offsets)
        if folder is not None:
            is_ready = (self._known(one) and self._is_cached(one) for one in numbers.tolist())
            numbers = numbers[~np.fromiter(is_ready, np.bool_)]
        return numbers, numbers + 1

    async def _fetch(self, start: int, stop: int, folder: CacheFolder | None) -> Answer | None:
        """Return an object of the store; from the folder if its version is the current one."""
        address, answer, cached = self._address(start), None, None
        if folder is not None and not self._known(start):
            cached = await asyncio.to_thread(self._cached, start)
        with suppress(MissingFileError):
            answer = await link().get(address, unless=cached.tag if cached else "") or cached
        self._expect(start, version_number(answer))
        if answer is not None:
            self.unit += (len(answer.data) - self.unit) / 8
            if answer is not cached and folder is not None and answer.tag:
                blob = self._blob(start)
                blob.about = f"{answer.modified} {answer.tag}"
                await asyncio.to_thread(blob.write, bytes(answer.data))
        return answer

    def _is_cached(self, number: int) -> bool:
        return self.folder is not None and os.path.exists(self._blob(number).path)

    def _blob(self, number: int) -> Blob:
        assert self.folder is not None
        # The name has no version: the blob's metadata has it.
        return self.folder.blob(self._address(number).url, "object")

    def _cached(self, number: int) -> Answer | None:
        """Return an object from the cache folder; None if it is not there."""
        blob = self._blob(number)
        data = blob.read()
        modified, _, tag = blob.about.partition(" ")
        return None if data is None else Answer(data, len(data), tag, int(modified))


def _take(request: Request[Answer | None]) -> Any:
    """Take an answer and return its bytes; None for an absent object."""
    answer = link().take(request)
    link().read(request, request.left)
    return None if answer is None else answer.data
