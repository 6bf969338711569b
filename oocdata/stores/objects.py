"""Objects that are read whole: the chunks of a Zarr array, an object each."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager
from typing import Any

from oocdata.engines.soon import Cost
from oocdata.errors import MissingFileError, SourceError
from oocdata.stores.address import Address
from oocdata.stores.answer import Answer
from oocdata.stores.blobs import Blob
from oocdata.stores.failures import ChangedError
from oocdata.stores.folder import CacheFolder
from oocdata.stores.held import Held
from oocdata.stores.link import link

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
        #: Of objects that are in the cache folder and of that version: which file it is.
        self._files: dict[str, int] = {}
        self._asked: dict[str, tuple[Held[Answer | None], int]] = {}

    def __reduce__(self) -> tuple[type[StoredObjects], tuple[Address, int, str]]:
        return StoredObjects, (self.address, int(self._usual), self.cache)

    @contextmanager
    def asking(self, wanted: Sequence[Sequence[str]]) -> Iterator[None]:
        """Have objects under way for as long as a block takes; see `oocdata.engines.soon`."""
        with ExitStack() as stack:
            with self._lock:
                # What was taken is being decoded, or is since it was looked for.
                names = [name for name in self._far(wanted) if name not in self._asked]
                if names:
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
        number = len(self._far(wanted))
        return Cost(number, number * int(self._usual), not number)

    def fetch_all(self, wanted: Sequence[Sequence[str]]) -> int:
        """Fetch objects for nobody; see `oocdata.engines.soon.Asks`."""
        names = self._far(wanted)
        with self.asking([names]):
            return sum(len(data) for data in self.take(names) if data is not None)

    def _far(self, wanted: Sequence[Sequence[str]]) -> list[str]:
        """Return the names of objects that are not known to be in the cache folder, each once."""
        each = dict.fromkeys(name for names in wanted for name in names)
        return [name for name in each if name not in self._files]

    def take(self, names: Sequence[str]) -> list[Any]:
        """Return the bytes of objects, whether they were asked for or not; None for an absent one.

        Raises
        ------
        oocdata.errors.SourceError
        """
        found: dict[str, Any] = {}
        for name in names:
            with self._lock:
                held, number = self._asked.get(name, (None, 0))
            if held is None:
                continue
            try:
                answer = held.take(number)
            except CancelledError:
                continue
            found[name] = None if answer is None else answer.data
            held.drop(number)
        found.update(self._near([name for name in names if name not in found]))
        left = [name for name in dict.fromkeys(names) if name not in found]
        if left:
            with self._held(left, at_once=True) as own:  # which nobody else takes of
                for number, name in enumerate(left):
                    answer = own.take(number)
                    found[name] = None if answer is None else answer.data
        return [found[name] for name in names]

    def _near(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the bytes of those objects that are in the cache folder, as they were before.

        They are read by whoever needs them: through the link, each would take 0.3 ms more.
        """
        found = {}
        for name in names:
            which = self._files.get(name, 0)
            kept = self._blob(name).read(which) if which else None
            if kept is not None and kept[1] == which:
                found[name] = _parted(kept[0])[1]
            else:
                self._files.pop(name, None)
        return found

    async def _fetch(self, name: str) -> Answer | None:
        address, known = self.address / name, self._versions.get(name)
        kept, which = await asyncio.to_thread(self._kept, name) if self.cache else (None, 0)
        if kept is None or known != _version(kept):  # else it was asked for since the opening
            answer = await self._asked_for(address, known, kept)
            if answer is None:
                return None
            if len(self._versions) >= _MOST_VERSIONS:
                self._versions.clear()
                self._files.clear()
            self._versions[name] = _version(answer)
            self._usual += (len(answer.data) - self._usual) / 8
            if answer is not kept:
                kept, which = answer, 0
                if self.cache and answer.tag:
                    which = await asyncio.to_thread(self._keep, name, answer)
        if which:
            self._files[name] = which
        return kept

    async def _asked_for(
        self, address: Address, known: tuple[int, str, int] | None, kept: Answer | None
    ) -> Answer | None:
        """Return an object as the store has it; that which is kept, where it is the same."""
        try:
            unless = kept.tag if kept is not None and not known else ""
            answer = await link().get(address, tag=known[1] if known else "", unless=unless)
            answer = kept if answer is None else answer
            assert answer is not None
            if known not in (None, _version(answer)):
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
        return answer

    def _blob(self, name: str) -> Blob:
        # Whatever version: which it is stands in what is kept.
        return Blob(CacheFolder.at(self.cache), (self.address / name).url, "", 0, "object")

    def _kept(self, name: str) -> tuple[Answer | None, int]:
        """Return an object as it is kept in the folder, and which file; None where it is not."""
        found = self._blob(name).read()
        if found is None:
            return None, 0
        about, data = _parted(found[0])
        return Answer(data, len(data), *json.loads(bytes(about))), found[1]

    def _keep(self, name: str, answer: Answer) -> int:
        about = json.dumps([answer.tag, answer.modified]).encode()
        length = len(about).to_bytes(_LENGTH, "little")
        return self._blob(name).keep(length + about + bytes(answer.data))


def _parted(kept: memoryview) -> tuple[memoryview, memoryview]:
    """Return what is kept of an object as its version and its bytes."""
    end = _LENGTH + int.from_bytes(kept[:_LENGTH], "little")
    return kept[_LENGTH:end], kept[end:]


def _version(answer: Answer) -> tuple[int, str, int]:
    return answer.nbytes, answer.tag, answer.modified
