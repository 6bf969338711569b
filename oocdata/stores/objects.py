"""Read whole objects: the chunks of a Zarr array, an object each."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from oocdata.engines.planned import PlannedCache, current_plan
from oocdata.engines.prefetch import Cost, Fetch, Planned
from oocdata.errors import MissingFileError
from oocdata.stores.address import Address
from oocdata.stores.answers import Answer
from oocdata.stores.budget import Request
from oocdata.stores.cache_files import Blob
from oocdata.stores.folder import CacheFolder
from oocdata.stores.link import Link, link
from oocdata.stores.versions import VersionTable, version_number

__all__ = ["StoredObjects"]


@dataclass(frozen=True, slots=True, eq=False)
class ObjectRequests:
    """Requests for objects, by number."""

    each: dict[int, Request[Answer | None]]
    plan: PlannedCache | None


class StoredObjects:
    """Numbered objects, each of which must stay the version that was read first.

    `nbytes` is the expected length of an object, corrected as objects are read; `cache` is the path
    of the cache folder, if there is one.
    """

    def __init__(
        self, address: Callable[[int], Address], count: int, nbytes: int, cache: str = ""
    ) -> None:
        self._address = address
        self._folder = CacheFolder.at(cache) if cache else None
        self._mean_length = float(nbytes)
        self._lock = threading.Lock()
        self._versions = VersionTable(count)
        self._requests: list[ObjectRequests] = []

    @property
    def nbytes(self) -> int:
        """Bytes of the table of versions, once all objects were read."""
        return self._versions.nbytes

    @contextmanager
    def prefetch(self, wanted: Sequence[Fetch]) -> Iterator[Link]:
        """Keep requests for objects in flight during a block; see `oocdata.engines.prefetch`."""
        with ExitStack() as stack:
            with self._lock:
                # Objects that were taken stay listed: their chunks are being decoded, or cached.
                # A run of the same plan that needs one again finds its chunk evicted.
                others = [
                    other.each
                    for other in list(self._requests)
                    if self._folder or other.plan is None or other.plan is not current_plan()
                ]
                numbers = self._to_fetch(wanted)
                new = self._new_requests(
                    [one for one in numbers if not any(one in other for other in others)]
                )
                if new:
                    stack.enter_context(link().requested([*new.values()]))
                    found = ObjectRequests(new, current_plan())
                    stack.callback(self._forget, found)
                    self._requests.append(found)
            yield link()

    def _forget(self, requests: ObjectRequests) -> None:
        with suppress(ValueError):  # no lock: the garbage collector may call this in any thread
            self._requests.remove(requests)

    def _new_requests(self, numbers: Sequence[int]) -> dict[int, Request[Answer | None]]:
        size, to_folder = int(self._mean_length), self._folder is not None
        return {
            one: Request(partial(self._fetch, one), size, size, to_folder=to_folder)
            for one in numbers
        }

    def cost(self, wanted: Sequence[Fetch], planned: Planned) -> Cost:
        """Return the cost of fetching objects; cached objects cost nothing.

        A cached object that must be revalidated costs a request and no bytes.
        """
        numbers = self._to_fetch(wanted)
        missing = [one for one in numbers if not self._is_cached(one)]
        return Cost(len(numbers), len(missing) * int(self._mean_length), not numbers)

    def fetch_all(self, wanted: Sequence[Fetch]) -> int:
        """Fetch objects, drop them, and return their bytes; see `RemoteFile`."""
        numbers = self._to_fetch(wanted)
        with self.prefetch(wanted):
            return sum(len(data) for data in self.take(numbers) if data is not None)

    def _to_fetch(self, wanted: Sequence[Fetch]) -> list[int]:
        """Return the wanted objects that are not in the cache folder, or not validated yet."""
        each = dict.fromkeys(number for one in wanted for number in one.ranges)
        return [one for one in each if not (self._versions.get(one) and self._is_cached(one))]

    def take(self, numbers: Sequence[int]) -> list[Any]:
        """Return the bytes of objects, requested before or not; None for an absent one."""
        found: dict[int, Any] = {}
        for number in numbers:
            with self._lock:  # a thread may be making the request
                listed = [one.each[number] for one in self._requests if number in one.each]
            for request in listed:
                if number not in found:
                    with suppress(CancelledError):
                        found[number] = _take(request)
        # Cached objects are read in this thread: through the link, each would take 0.3 ms more.
        for number in numbers:
            if number not in found and self._folder and (version := self._versions.get(number)):
                cached = self._cached(number)
                if version_number(cached) == version and cached is not None:
                    found[number] = cached.data
        left = [number for number in dict.fromkeys(numbers) if number not in found]
        if left:
            requests = self._new_requests(left)  # not listed for other readers
            with link().requested([*requests.values()], at_once=True):
                found.update((number, _take(requests[number])) for number in left)
        return [found[number] for number in numbers]

    async def _fetch(self, number: int, request: Request[Answer | None]) -> Answer | None:
        """Return an object of the store; from the folder if its version is the current one."""
        version, address, answer = self._versions.get(number), self._address(number), None
        cached = await asyncio.to_thread(self._cached, number) if self._folder else None
        if cached is not None and version == version_number(cached):  # validated before
            return cached
        with suppress(MissingFileError):
            unless = "" if cached is None or version else cached.tag
            answer = await link().get(address, unless=unless) or cached
        self._versions.check(number, address, answer)
        if answer is not None:
            self._mean_length += (len(answer.data) - self._mean_length) / 8
            in_folder = answer is cached
            if not in_folder and self._folder and answer.tag:
                blob = self._blob(number)
                blob.about = [answer.tag, answer.modified]
                in_folder = await asyncio.to_thread(blob.write, bytes(answer.data))
            if in_folder:
                link().read(request, request.left)  # so that others get its room
        return answer

    def _blob(self, number: int) -> Blob:
        assert self._folder is not None
        # The name has no version: the blob's metadata has it.
        return Blob(self._folder, self._address(number).url, "", 0, "object")

    def _is_cached(self, number: int) -> bool:
        return self._folder is not None and self._blob(number).is_there

    def _cached(self, number: int) -> Answer | None:
        """Return an object from the cache folder; None if it is not there."""
        blob = self._blob(number)
        data = blob.read()
        return None if data is None else Answer(data, len(data), *blob.about)


def _take(request: Request[Answer | None]) -> Any:
    """Take an answer, drop it, and return its bytes; None for an absent object."""
    answer = link().take(request)
    link().drop(request)
    return None if answer is None else answer.data
