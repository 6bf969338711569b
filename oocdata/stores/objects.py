"""Objects that are read whole: the chunks of a Zarr array, an object each."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from oocdata.engines.soon import Cost
from oocdata.errors import MissingFileError, SourceError
from oocdata.stores.address import Address
from oocdata.stores.answer import Answer
from oocdata.stores.failures import ChangedError
from oocdata.stores.folder import CacheFolder
from oocdata.stores.held import Held
from oocdata.stores.link import link

if TYPE_CHECKING:
    from oocdata.stores.entry import Entry

__all__ = ["StoredObjects"]

_LENGTH = 4
"""Bytes that say how long the version of a kept object is written."""

_MOST_VERSIONS = 1 << 20
"""Objects whose versions are remembered, some hundred bytes each."""


class StoredObjects:
    """Objects below an address; each must stay the version that it was when it was first read.

    Parameters
    ----------
    address : Address
    nbytes : int
        About how long each is, until some were read.
    cache : str
        The folder in which they are kept; empty without one.
    """

    def __init__(self, address: Address, nbytes: int, cache: str = "") -> None:
        self.address, self.cache = address, cache
        self._usual = float(nbytes)
        # Re-entrant: the collector may close a pass that was dropped while this thread holds it.
        self._lock = threading.RLock()
        self._versions: dict[str, tuple[int, str, int]] = {}
        self._asked: dict[str, tuple[Held[Answer | None], int]] = {}

    def __reduce__(self) -> tuple[type[StoredObjects], tuple[Address, int, str]]:
        return StoredObjects, (self.address, int(self._usual), self.cache)

    def _is_kept(self, name: str) -> bool:
        """Return whether an object is in the cache folder, and known to be of today's version."""
        known = self._versions.get(name) if self.cache else None
        kept = self._kept(self.address / name) if known is not None else None
        return kept is not None and _version(kept) == known

    @contextmanager
    def asking(self, wanted: Sequence[Sequence[str]]) -> Iterator[None]:
        """Have objects under way for as long as a block takes; see `oocdata.engines.soon`."""
        with ExitStack() as stack:
            with self._lock:
                # What was taken is being decoded, or is since it was looked for.
                names = [name for name in _names(wanted) if name not in self._asked]
                held = stack.enter_context(self._held(names, at_once=False))
                stack.callback(self._forget, names)
                self._asked.update({name: (held, number) for number, name in enumerate(names)})
            yield

    def _forget(self, names: Sequence[str]) -> None:
        with self._lock:
            for name in names:
                self._asked.pop(name, None)

    @contextmanager
    def _held(self, names: Sequence[str], *, at_once: bool) -> Iterator[Held[Answer | None]]:
        sizes = [int(self._usual)] * len(names)
        held = Held(sizes, lambda number: self._fetch(names[number]), at_once=at_once)
        try:
            held.begin()
            yield held
        finally:
            held.close()

    def has_room(self) -> bool:
        """Return whether the link takes more; see `oocdata.engines.soon.Asks`."""
        return link().has_room

    def cost(self, wanted: Sequence[Sequence[str]]) -> Cost:
        """Return what it takes to ask for objects; nothing for those that are kept."""
        number = sum(not self._is_kept(name) for name in _names(wanted))
        return Cost(number, number * int(self._usual), not number)

    def fetch_all(self, wanted: Sequence[Sequence[str]]) -> int:
        """Fetch objects for nobody; see `oocdata.engines.soon.Asks`."""
        names = _names(wanted)
        with self.asking([names]):
            return sum(len(data) for data in self.take(names) if data is not None)

    def take(self, names: Sequence[str]) -> list[Any]:
        """Return the bytes of objects, whether they were asked for or not; None for an absent one.

        Raises
        ------
        oocdata.errors.SourceError
        """
        found: dict[str, Answer | None] = {}
        for name in names:
            with self._lock:
                held, number = self._asked.get(name, (None, 0))
            if held is None:
                continue
            try:
                answer = held.take(number)
            except CancelledError:
                continue
            found[name] = answer
            held.drop(number)
        left = [name for name in dict.fromkeys(names) if name not in found]
        if left:
            with self._held(left, at_once=True) as own:  # which nobody else takes of
                found.update({name: own.take(number) for number, name in enumerate(left)})
        answers = [found[name] for name in names]
        return [None if answer is None else answer.data for answer in answers]

    async def _fetch(self, name: str) -> Answer | None:
        address, known = self.address / name, self._versions.get(name)
        kept = await asyncio.to_thread(self._kept, address) if self.cache else None
        if kept is not None and known == _version(kept):  # it was asked for since the opening
            return kept
        try:
            unless = kept.tag if kept is not None and not known else ""
            answer = await link().get(address, tag=known[1] if known else "", unless=unless)
            answer = kept if answer is None else answer
            assert answer is not None
            version = _version(answer)
            if known not in (None, version):
                raise ChangedError("it has changed")
        except MissingFileError:
            if not known:
                return None
            raise SourceError(
                "the object must be there while the array is read; it was deleted.",
                path=address.url,
            ) from None
        except ChangedError:
            raise ChangedError(
                "the object must be as it was when it was first read; it was written anew. Open "
                "the array again.",
                path=address.url,
            ) from None
        if len(self._versions) >= _MOST_VERSIONS:
            self._versions.clear()
        self._versions[name] = version
        self._usual += (len(answer.data) - self._usual) / 8
        if self.cache and answer is not kept and answer.tag:
            await asyncio.to_thread(self._keep, address, answer)
        return answer

    def _entry(self, address: Address) -> Entry:
        # Whatever version: which it is stands in what is kept.
        return CacheFolder.at(self.cache).entry(address.url, "", 0)

    def _kept(self, address: Address) -> Answer | None:
        """Return an object as it is kept in the folder; None where it is not."""
        found = self._entry(address).blob("object")
        if found is None:
            return None
        length = int.from_bytes(found[:_LENGTH], "little")
        tag, modified = json.loads(found[_LENGTH : _LENGTH + length])
        data = memoryview(found)[_LENGTH + length :]
        return Answer(data, len(data), tag, modified)

    def _keep(self, address: Address, answer: Answer) -> None:
        about = json.dumps([answer.tag, answer.modified]).encode()
        length = len(about).to_bytes(_LENGTH, "little")
        self._entry(address).keep_blob("object", length + about + bytes(answer.data))


def _names(wanted: Sequence[Sequence[str]]) -> list[str]:
    """Return names, each once."""
    return list(dict.fromkeys(name for names in wanted for name in names))


def _version(answer: Answer) -> tuple[int, str, int]:
    return answer.nbytes, answer.tag, answer.modified
