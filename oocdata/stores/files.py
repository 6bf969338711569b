"""Files in stores, with what engines ask of a file: which version it is, and runs of its bytes.

Bytes that will be read soon are *asked for* together, so that their requests are under way at the
same time; a read takes what was asked for, and asks for the rest itself.
"""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.runs import UnfinishedError, write_memory
from oocdata.engines.soon import Cost, Soon
from oocdata.errors import ArgumentError, SourceError
from oocdata.stores.address import Address
from oocdata.stores.blocks import BEGINNING, BLOCK, ObjectStream, forget, keep, kept
from oocdata.stores.folder import CacheFolder
from oocdata.stores.given import is_given, refused
from oocdata.stores.held import Asked, to_fetch
from oocdata.stores.link import ANSWERED, link
from oocdata.stores.pieces import Pieces
from oocdata.stores.versions import ObjectVersion, once

if TYPE_CHECKING:
    from oocdata.stores.entry import Entry

__all__ = ["StoredFile", "of_version"]

Ints = NDArray[np.int64]


class StoredFile:
    """One version of an object in a store; picklable, and one for all who read it.

    What engines ask of `oocdata.engines.files.OpenFile`: it is its own descriptor, since nothing
    is open.
    """

    number, is_remote = -1, True
    """The kernel knows no such file."""

    def __init__(self, version: ObjectVersion, entry: Entry | None) -> None:
        self.version, self.entry = version, entry
        self.address = Address.of(version.path)
        ANSWERED.add(self.address.root)
        #: Whoever looks for what was asked for holds it until it has asked for the rest.
        self.lock = threading.Lock()
        self.asked: list[Asked] = []

    def __reduce__(self) -> tuple[Callable[..., StoredFile], tuple[ObjectVersion]]:
        if is_given(self.version.path):
            raise ArgumentError(refused(self.version.path))
        return of_version, (self.version,)

    @staticmethod
    def asked_at(address: Address) -> Future[StoredFile]:
        """Ask for the beginning of an object as it is now: once within `one_look`."""
        return once((StoredFile, address), lambda: link().start(partial(_beginning, address)))

    @staticmethod
    def at(url: str) -> StoredFile:
        """Return the object at a URL as it is now."""
        return StoredFile.asked_at(Address.of(url)).result()

    # As of a file of the kernel's.

    def opened(self) -> StoredFile:
        """Return itself."""
        return self

    def unchanged(self) -> bool:
        """Return True: each answer is compared when it comes."""
        return True

    def check(self, key: str | None = None) -> None:
        """Do nothing; see `unchanged`."""

    def compare(self, key: str | None = None, rows: Iterable[int] | None = None) -> None:
        """Do nothing; see `unchanged`."""

    @property
    def held_bytes(self) -> int:
        """How long the object is."""
        return self.version.nbytes

    def read_runs(self, offsets: Ints, addresses: Ints, lengths: Ints | int, target: Any) -> None:
        """Read runs of bytes into memory; see `oocdata.engines.runs.read_runs`."""
        counts = np.broadcast_to(np.asarray(lengths, np.int64), offsets.shape)
        beyond = np.flatnonzero(offsets + counts > self.version.nbytes)
        if len(beyond):
            raise UnfinishedError(int(beyond[0]), None)
        left, entry = Pieces(np.arange(len(offsets)), offsets, addresses, counts), self.entry
        if not counts.all():
            left = left.of(np.flatnonzero(counts))
        if entry is not None and entry.read_runs(left):
            return
        with self.lock:
            asked = list(self.asked)
        for one in asked:
            left = self._take(one, left)
        # By the folder, and at last without it, where others delete what it holds meanwhile.
        for folder in (entry, None):
            at_once = left._replace(runs=np.zeros_like(left.runs))  # read as they lie
            with Asked(self, at_once, folder, at_once=True) as own:
                left = self._take(own, left)
            if not len(left.runs) or (folder is not None and folder.read_runs(left)):
                return

    def _take(self, asked: Asked, wanted: Pieces) -> Pieces:
        """Copy what lies in ranges that were asked for; return what does not, or not any more."""
        if not len(asked.starts) or not len(wanted.runs):
            return wanted
        pieces, found = wanted.within(asked.starts, asked.stops)
        order = np.argsort(found, kind="stable")
        borders = [*np.flatnonzero(np.diff(found[order], prepend=-2)).tolist(), len(order)]
        left = []
        for first, stop in pairwise(borders):
            number, some = int(found[order[first]]), order[first:stop]
            try:
                if number < 0:
                    raise CancelledError
                data = memoryview(asked.take(number).data)
            except CancelledError:
                left.append(some)
                continue
            except SourceError as error:
                raise UnfinishedError(int(pieces.runs[some[0]]), error) from error
            these = pieces.of(some)
            _copy(data, these.offsets - int(asked.starts[number]), these)
            asked.read(number, int(these.counts.sum()))
        return pieces.of(np.concatenate([np.zeros(0, np.int64), *left]))

    def read_into(self, memory: memoryview, offset: int) -> None:
        """Fill memory with the bytes from an offset on."""
        if self.entry is not None and self.entry.read_into(memory, offset):
            return
        target = np.frombuffer(memory, np.uint8)
        place = np.array([target.ctypes.data])
        self.read_runs(np.array([offset]), place, len(memory), target)

    # Said to be read soon.

    def soon(self, offsets: Ints, lengths: Ints | int) -> list[Soon]:
        """Return what says that runs of bytes will be read; see `oocdata.engines.files.File`."""
        counts = np.broadcast_to(np.asarray(lengths, np.int64), offsets.shape)
        return [Soon(self, (offsets, counts))]

    @contextmanager
    def asking(self, wanted: Sequence[Soon]) -> Iterator[None]:
        """Have runs under way for as long as a block takes; see `oocdata.engines.soon`."""
        entry = self.entry
        if entry is not None and not len(to_fetch(self._runs(wanted), entry)[0]):
            yield
            return
        # What whoever asked first reads is in the cache for all, or in the folder.
        of_all = [one.cached or entry is not None for one in wanted]
        others = self._runs(wanted, [not one for one in of_all])
        with ExitStack() as stack:
            # Or two who need the same both find that nobody has asked for it.
            with self.lock:
                # What is read stays listed until nobody looks: see `AskAhead`.
                runs = _once(self._runs(wanted, of_all))
                for other in list(self.asked):
                    runs, found = runs.within(other.starts, other.stops)
                    runs = runs.of(found < 0)
                stack.enter_context(Asked(self, runs.and_(others), entry))
            yield

    def has_room(self) -> bool:
        """Return whether the link takes more; see `oocdata.engines.soon.Asks`."""
        return link().has_room

    def is_cold(self) -> bool:
        """Return whether the link is new; see `oocdata.engines.soon.Asks`."""
        return link().is_cold

    def cost(self, wanted: Sequence[Soon]) -> Cost:
        """Return what it takes to ask for runs of bytes; nothing for those that are kept."""
        starts, stops = to_fetch(self._runs(wanted), self.entry)
        return Cost(len(starts), int((stops - starts).sum()))

    def fetch_all(self, wanted: Sequence[Soon]) -> int:
        """Fetch runs for nobody; see `oocdata.engines.soon.Asks`."""
        found = 0
        with Asked(self, _once(self._runs(wanted)), None) as asked:
            for number in range(len(asked.starts)):
                found += len(asked.take(number).data)
                asked.drop(number)
        return found

    def _runs(self, wanted: Sequence[Soon], some: Sequence[bool] | None = None) -> Pieces:
        """Return the runs of all that is wanted, or of `some`, as pieces that go nowhere.

        Those beyond the object are left out, since reading them says it.
        """
        runs = Pieces(*[np.zeros(0, np.int64)] * 4)
        for number, one in enumerate(wanted):
            if some is None or some[number]:
                offsets, counts = one.wanted
                runs = runs.and_(Pieces(np.full_like(offsets, number), offsets, offsets, counts))
        return runs.of(runs.offsets + runs.counts <= self.version.nbytes)

    # As of a stream, for headers and metadata.

    def stream(self, step: int = 1024) -> io.BufferedIOBase:
        """Return the bytes as a stream, of which so many are read at a time."""
        return io.BufferedReader(ObjectStream(self), step)

    def part(self, start: int, nbytes: int) -> bytes:
        """Return bytes of metadata, out of pieces that are kept a while."""
        piece = kept(self.version, start)
        if len(piece) >= nbytes:
            return piece[:nbytes]
        parts = []
        while nbytes > 0:
            within = start % BLOCK
            parts.append(self._block(start - within, within + nbytes)[within : within + nbytes])
            start, nbytes = start + len(parts[-1]), nbytes - len(parts[-1])
        return b"".join(parts)

    def has_part(self, start: int, nbytes: int) -> bool:
        """Return whether `part` need not fetch anything."""
        stop = start + nbytes
        return len(kept(self.version, start)) >= nbytes or all(
            len(kept(self.version, block)) >= min(BLOCK, stop - block)
            for block in range(start - start % BLOCK, stop, BLOCK)
        )

    def _block(self, start: int, nbytes: int) -> bytes:
        """Return a block of metadata, fetched or kept; so many bytes of it at least."""
        block = kept(self.version, start)
        whole = min(BLOCK, self.version.nbytes - start)
        if len(block) < min(nbytes, whole):
            fetched = bytearray(whole)
            try:
                self.read_into(memoryview(fetched), start)
            except UnfinishedError as error:
                raise error.cause or error from None
            block = bytes(fetched)
            keep(self.version, start, block)
        return block


async def _beginning(address: Address) -> StoredFile:
    answer = await link().get(address, 0, BEGINNING)
    assert answer is not None
    version = ObjectVersion.of(address, answer)
    if not version.tag:  # it may be another one, which was written in the same second
        forget(version)
    keep(version, 0, bytes(answer.data))
    return of_version(version)


def of_version(version: ObjectVersion) -> StoredFile:
    """Return the file of a version, the same for as long as it is in use."""
    entry = None
    if version.cache:
        which = f"{version.tag} {version.modified}"
        entry = CacheFolder.at(version.cache).entry(version.path, which, version.nbytes)
    with _lock:
        found = _files.get((version, version.cache))
        if found is None or found.entry is not entry:  # that folder could not be written
            found = _files[version, version.cache] = StoredFile(version, entry)
    return found


def _copy(data: memoryview, begins: Ints, pieces: Pieces) -> None:
    """Write pieces, which begin at these places of what was fetched, to where they go."""
    each = zip(begins.tolist(), pieces.addresses.tolist(), pieces.counts.tolist(), strict=True)
    for begin, address, count in each:
        write_memory(address, data[begin : begin + count])


def _once(runs: Pieces) -> Pieces:
    """Return runs without those that stood there before."""
    each = np.stack((runs.offsets, runs.counts))
    return runs.of(np.unique(each, axis=1, return_index=True)[1])


_lock = threading.Lock()
_files: WeakValueDictionary[tuple[ObjectVersion, str], StoredFile] = WeakValueDictionary()


def _new_locks_after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    for file in list(_files.values()):
        file.lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_locks_after_fork)
