"""Read whole objects: the chunks of a Zarr array, an object each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.prefetch import Cost, Fetch
from oocdata.errors import MissingFileError
from oocdata.stores.address import Address
from oocdata.stores.answers import Answer
from oocdata.stores.blob import Blob
from oocdata.stores.budget import Request
from oocdata.stores.folder import CacheFolder
from oocdata.stores.link import link
from oocdata.stores.pieces import Pieces
from oocdata.stores.requests import Ranges, SharedRequests, runs_of
from oocdata.stores.versions import VersionTable, version_number

__all__ = ["StoredObjects"]

Ints = NDArray[np.int64]


class StoredObjects(SharedRequests):
    """Numbered objects, each of which must stay the version that was read first.

    `nbytes` is the expected length of an object, corrected as objects are read; `cache` is the path
    of the cache folder, if there is one. In runs and ranges, an object is one number.
    """

    folder: CacheFolder | None

    def __init__(
        self, address: Callable[[int], Address], count: int, nbytes: int, cache: str = ""
    ) -> None:
        super().__init__(CacheFolder.at(cache) if cache else None, shares_all=True)
        self._address = address
        self._mean_length = float(nbytes)
        self._versions = VersionTable(count)

    @property
    def nbytes(self) -> int:
        """Bytes of the table of versions, once all objects were read."""
        return self._versions.nbytes

    def fetches(self, numbers: Sequence[int]) -> list[Fetch]:
        """Describe objects that will be read."""
        return [Fetch(self, (np.array(numbers, np.int64), np.ones(len(numbers), np.int64)))]

    def cost(self, wanted: Sequence[Fetch]) -> Cost:
        """Return the cost of fetching objects; cached objects cost nothing.

        A cached object that must be revalidated costs a request and no bytes.
        """
        numbers = self._to_fetch(runs_of(wanted), self.folder)[0].tolist()
        missing = [one for one in numbers if not self._is_cached(one)]
        return Cost(len(numbers), len(missing) * int(self._mean_length), not numbers)

    def take(self, numbers: Sequence[int]) -> list[Any]:
        """Return the bytes of objects, requested before or not; None for an absent one."""
        found: dict[int, Any] = {}
        for number in dict.fromkeys(numbers):
            with self.lock:  # a thread may be making the request
                listed = [one.each[number] for one in self.requests if number in one.each]
            for request in listed:
                with suppress(CancelledError):
                    found[number] = _take(request)
                    break
            # Cached objects are read in this thread: through the link, each would take 0.3 ms more.
            if number not in found and (version := self._versions.get(number)):
                cached = self._cached(number)
                if version_number(cached) == version and cached is not None:
                    found[number] = cached.data
        runs = runs_of(self.fetches([number for number in numbers if number not in found]))
        ranges = _ranges(runs.offsets)
        with self._requested(runs, ranges, self.folder, at_once=True) as requests:
            found.update((number, _take(one)) for number, one in requests.each.items())
        return [found[number] for number in numbers]

    def _to_fetch(self, runs: Pieces, folder: CacheFolder | None) -> Ranges:
        """Return the objects that are not in the cache folder, or not validated yet."""
        ranges = _ranges(runs.offsets)
        if folder is None:
            return ranges
        each = ranges[0].tolist()
        is_ready = [bool(self._versions.get(one)) and self._is_cached(one) for one in each]
        return _ranges(ranges[0][~np.array(is_ready, np.bool_)])

    def _sizes(self, starts: Ints, stops: Ints) -> Ints:
        return np.full_like(starts, int(self._mean_length))

    async def _fetch(
        self, start: int, stop: int, folder: CacheFolder | None, request: Request[Answer | None]
    ) -> Answer | None:
        """Return an object of the store; from the folder if its version is the current one."""
        version, address, answer = self._versions.get(start), self._address(start), None
        cached = None if folder is None else await asyncio.to_thread(self._cached, start)
        if cached is not None and version == version_number(cached):  # validated before
            return cached
        with suppress(MissingFileError):
            unless = "" if cached is None or version else cached.tag
            answer = await link().get(address, unless=unless) or cached
        self._versions.check(start, address, answer)
        if answer is not None:
            self._mean_length += (len(answer.data) - self._mean_length) / 8
            in_folder = answer is cached
            if not in_folder and folder is not None and answer.tag:
                blob = self._blob(folder, start)
                blob.about = [answer.tag, answer.modified]
                in_folder = await asyncio.to_thread(blob.write, bytes(answer.data))
            if in_folder:
                link().read(request, request.left)  # so that others get its room
        return answer

    def _blob(self, folder: CacheFolder, number: int) -> Blob:
        # The name has no version: the blob's metadata has it.
        return Blob(folder, folder.file(self._address(number).url, "object"))

    def _is_cached(self, number: int) -> bool:
        return self.folder is not None and self._blob(self.folder, number).is_there

    def _cached(self, number: int) -> Answer | None:
        """Return an object from the cache folder; None if it is not there."""
        if self.folder is None:
            return None
        blob = self._blob(self.folder, number)
        data = blob.read()
        return None if data is None else Answer(data, len(data), *blob.about)


def _ranges(numbers: Ints) -> Ranges:
    unique = np.unique(numbers)
    return unique, unique + 1


def _take(request: Request[Answer | None]) -> Any:
    """Take an answer, drop it, and return its bytes; None for an absent object."""
    answer = link().take(request)
    link().drop(request)
    return None if answer is None else answer.data
