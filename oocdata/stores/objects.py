"""Objects that are read whole: the chunks of a Zarr array, an object each."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any

from oocdata.engines.soon import Cost, Soon
from oocdata.errors import MissingFileError
from oocdata.stores.address import Address
from oocdata.stores.answer import Answer
from oocdata.stores.failures import ChangedError
from oocdata.stores.folder import CacheFolder
from oocdata.stores.held import Held
from oocdata.stores.kept import Blob
from oocdata.stores.link import link
from oocdata.stores.room import Request
from oocdata.stores.versions import Noted

__all__ = ["StoredObjects"]


class StoredObjects:
    """Numbered objects; each must stay the version that it was when it was first read.

    `nbytes` is about how long each is, until some were read; `cache` is the folder in which they
    are kept, if there is one.
    """

    def __init__(
        self, address: Callable[[int], Address], count: int, nbytes: int, cache: str = ""
    ) -> None:
        self._address = address
        self._folder = CacheFolder.at(cache) if cache else None
        self._usual = float(nbytes)
        self._lock = threading.Lock()
        self._versions = Noted(count)
        self._asked: dict[int, Held[Answer | None]] = {}

    @property
    def nbytes(self) -> int:
        """Bytes that are taken by what is noted of objects, once all were read."""
        return self._versions.nbytes

    @contextmanager
    def asking(self, wanted: Sequence[Soon]) -> Iterator[None]:
        """Have objects under way for as long as a block takes; see `oocdata.engines.soon`."""
        with ExitStack() as stack:
            with self._lock:
                # What was taken is being decoded, or is since it was looked for.
                numbers = [number for number in self._far(wanted) if number not in self._asked]
                if numbers:
                    held = stack.enter_context(self._held(numbers, at_once=False))
                    stack.callback(self._forget, numbers)
                    self._asked.update(dict.fromkeys(numbers, held))
            yield

    def _forget(self, numbers: Sequence[int]) -> None:
        for number in numbers:  # without the lock: the collector may call this in any thread
            self._asked.pop(number, None)

    def _held(self, numbers: Sequence[int], *, at_once: bool) -> Held[Answer | None]:
        size = int(self._usual)
        kept = self._folder is not None
        requests = {
            one: Request(partial(self._fetch, one), size, size, to_folder=kept) for one in numbers
        }
        return Held(requests, at_once=at_once)

    def has_room(self) -> bool:
        """Return whether the link takes more; see `oocdata.engines.soon.Asks`."""
        return link().has_room

    def is_cold(self) -> bool:
        """Return whether the link is new; see `oocdata.engines.soon.Asks`."""
        return link().is_cold

    def cost(self, wanted: Sequence[Soon]) -> Cost:
        """Return what it takes to ask for objects; nothing for those that are kept.

        No bytes for those of which the store is only asked whether they are still the same.
        """
        far = self._far(wanted)
        new = [one for one in far if not self._is_kept(one)]
        return Cost(len(far), len(new) * int(self._usual), not far)

    def fetch_all(self, wanted: Sequence[Soon]) -> int:
        """Fetch objects for nobody; see `oocdata.engines.soon.Asks`."""
        numbers = self._far(wanted)
        with self.asking(wanted):
            return sum(len(data) for data in self.take(numbers) if data is not None)

    def _far(self, wanted: Sequence[Soon]) -> list[int]:
        """Return those objects that are not in the cache folder, or may be another, each once."""
        each = dict.fromkeys(number for one in wanted for number in one.wanted)
        return [one for one in each if not (self._versions.get(one) and self._is_kept(one))]

    def take(self, numbers: Sequence[int]) -> list[Any]:
        """Return the bytes of objects, asked for or not; None for an absent one."""
        found: dict[int, Any] = {}
        for number in numbers:
            with self._lock:
                held = self._asked.get(number)
            if held is not None:
                with suppress(CancelledError):
                    found[number] = _taken(held, number)
        # By whoever needs them: through the link, each would take 0.3 ms more.
        for number in numbers:
            if number not in found and self._folder and (known := self._versions.get(number)):
                kept = self._kept(number)
                if _sign(kept) == known and kept is not None:
                    found[number] = kept.data
        left = [number for number in dict.fromkeys(numbers) if number not in found]
        if left:
            with self._held(left, at_once=True) as own:  # which nobody else takes of
                found.update((number, _taken(own, number)) for number in left)
        return [found[number] for number in numbers]

    async def _fetch(self, number: int, request: Request[Answer | None]) -> Answer | None:
        """Return an object as the store has it; that which is kept, where it is the same."""
        known, address, answer = self._versions.get(number), self._address(number), None
        kept = await asyncio.to_thread(self._kept, number) if self._folder else None
        if kept is not None and known == _sign(kept):  # it was asked for since the opening
            return kept
        with suppress(MissingFileError):
            unless = "" if kept is None or known else kept.tag
            answer = await link().get(address, unless=unless) or kept
        if not self._versions.first(number, _sign(answer)):
            how = "it was written anew" if answer is not None else "it was deleted"
            raise ChangedError(
                f"the object must be as it was when it was first read; {how}. Open the array "
                "again.",
                path=address.url,
            )
        if answer is not None:
            self._usual += (len(answer.data) - self._usual) / 8
            is_kept = answer is kept
            if not is_kept and self._folder and answer.tag:
                is_kept = await asyncio.to_thread(self._keep, number, answer)
            if is_kept:
                link().keep_elsewhere(request)
        return answer

    def _blob(self, number: int) -> Blob:
        assert self._folder is not None
        # Whatever version: which it is stands in what is kept.
        return Blob(self._folder, self._address(number).url, "", 0, "object")

    def _is_kept(self, number: int) -> bool:
        return self._folder is not None and self._blob(number).is_there

    def _kept(self, number: int) -> Answer | None:
        """Return an object as it is kept in the folder; None where it is not."""
        blob = self._blob(number)
        data = blob.read()
        return None if data is None else Answer(data, len(data), *blob.about)

    def _keep(self, number: int, answer: Answer) -> bool:
        blob = self._blob(number)
        blob.about = [answer.tag, answer.modified]
        return blob.keep(bytes(answer.data))


def _taken(held: Held[Answer | None], number: int) -> Any:
    """Return the bytes of an object, which is not held any more; None for an absent one."""
    answer = held.take(number)
    held.drop(number)
    return None if answer is None else answer.data


def _sign(answer: Answer | None) -> int:
    """Return what tells the version of an object, in this process; of one that is absent, too."""
    return hash(answer and (answer.nbytes, answer.tag, answer.modified)) or 1
