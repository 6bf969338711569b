"""Notice that a Zarr array in a store is rewritten while it is read.

An object that is read for the first time has no version to be compared with: it may belong to a
newer array of the same name. So the array's metadata is compared again, with one request for each
run of batches that reads such objects, after the last of them has come. Whoever replaces an array
replaces its metadata.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from functools import partial

from oocdata.engines.prefetch import Cost, Fetch, Link
from oocdata.errors import SourceError
from oocdata.formats.zarr.objects import Objects
from oocdata.stores.address import Address
from oocdata.stores.answers import CHANGED
from oocdata.stores.link import link
from oocdata.stores.versions import ObjectVersion


class MetadataFile:
    """The metadata file of an array, which must keep its version and content; a `RemoteFile`."""

    def __init__(self, objects: Objects, version: ObjectVersion, content: bytes) -> None:
        self._objects, self._version, self._content = objects, version, content
        self._address = Address.of(version.path)
        #: Objects that were read for the first time, since when no comparison has begun.
        self._unconfirmed: set[int] = set()
        #: Those of them that were decoded, or are being decoded.
        self._decoded: set[int] = set()
        #: Comparisons: for which objects, which of them must come before it begins, and its result.
        self._comparisons: list[tuple[set[int], set[int], Future[None]]] = []
        self._waiting: list[asyncio.Event] = []  # changed in the loop alone

    def expect(self, number: int, version: int) -> None:
        """Compare or record the version of an object that has come; called in the link's loop."""
        if self._is_new(number):  # before it is known: a reader looks at both
            self._unconfirmed.add(number)
        self._objects.expect(number, version)
        for arrival in self._waiting:
            arrival.set()

    def _is_new(self, number: int) -> bool:
        return not self._objects.known(number)

    def fetches(self, numbers: Sequence[int]) -> list[Fetch]:
        """Describe the comparison for objects that will be read, if it is necessary."""
        new = self._not_confirmed(numbers)
        return [Fetch(self, new)] if new else []

    def decoding(self, numbers: Sequence[int]) -> None:
        """Note objects that `check` is to confirm."""
        self._decoded |= self._not_confirmed(numbers)

    def _not_confirmed(self, numbers: Sequence[int]) -> set[int]:
        return {one for one in numbers if self._is_new(one) or one in self._unconfirmed}

    def cost(self, wanted: Sequence[Fetch], *, cold: bool) -> Cost:
        """Return no cost: `explain` counts the requests for data, which can be told exactly."""
        return Cost()

    @contextmanager
    def prefetch(self, wanted: Sequence[Fetch]) -> Iterator[Link]:
        """Compare during a block, once the objects have come; see `check`.

        Over new connections the first one does not wait for them, so that the first batch comes no
        later: what changes while it comes is noticed with the second.
        """
        is_first = link().is_cold() and not self._unconfirmed
        at_once = is_first or self._objects.versions is None
        numbers = set[int]().union(*(one.ranges for one in wanted))
        coming = set[int]() if at_once else numbers
        # Outside the budget for answers: while one waits there, an answer larger than the budget,
        # which must be alone in it, would wait for ever.
        result = link().start(partial(self._compare, coming))
        comparison = numbers | self._unconfirmed, coming, result
        self._comparisons.append(comparison)
        try:
            yield link()
        finally:
            self._comparisons.remove(comparison)
            result.cancel()

    async def _compare(self, coming: Iterable[int] = ()) -> None:
        arrival = asyncio.Event()
        self._waiting.append(arrival)
        try:
            for number in coming:
                while self._is_new(number):
                    arrival.clear()
                    await arrival.wait()
        finally:
            self._waiting.remove(arrival)
        confirmed = set(self._unconfirmed)
        answer = await link().get(self._address, is_first=True)
        assert answer is not None
        is_same = ObjectVersion.of(self._address, answer) == self._version
        if not is_same or bytes(answer.data) != self._content:
            raise SourceError(CHANGED, path=self._address.url)
        self._unconfirmed -= confirmed
        self._decoded -= confirmed

    def check(self) -> None:
        """Raise `SourceError` if the array was rewritten before the objects decoded so far came."""
        left = self._decoded & self._unconfirmed
        for numbers, coming, result in list(self._comparisons):
            if not left & numbers:
                continue
            if not any(map(self._is_new, coming)):  # else it is of a later run
                try:
                    self._wait(result)
                except CancelledError:  # another thread was done with it
                    continue
            left -= numbers
        if left:
            self.compare()

    def compare(self) -> None:
        """Raise `SourceError` if the array was rewritten before now."""
        self._wait(link().start(self._compare))

    def _wait(self, comparison: Future[None]) -> None:
        try:
            link().wait(comparison)
        except SourceError as error:
            key = self._objects.where["key"]
            raise type(error)(error.message, path=error.path, key=key) from error
