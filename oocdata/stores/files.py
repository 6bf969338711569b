"""Read objects in stores through the interface that engines use for files.

Ranges that will be read soon are requested together, so that their requests are in flight at the
same time. A read takes the ranges that are already requested, and requests the others itself.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.planned import PlannedCache, current_plan
from oocdata.engines.prefetch import Cost, Fetch, Planned
from oocdata.engines.runs import UnfinishedError, write_memory
from oocdata.errors import SourceError
from oocdata.stores.address import Address
from oocdata.stores.answers import CHANGED, Answer, ChangedError
from oocdata.stores.blocks import BEGINNING, BLOCK, cache_piece, cached_piece, forget
from oocdata.stores.budget import Request
from oocdata.stores.folder import CacheFolder
from oocdata.stores.link import ANSWERED, Link, link
from oocdata.stores.pieces import Pieces, merge_runs
from oocdata.stores.user_stores import check_sendable
from oocdata.stores.versions import ObjectVersion, request_once

if TYPE_CHECKING:
    from oocdata.stores.entry import Entry

__all__ = ["StoredFile", "file_of_version"]

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class RangeRequests:
    """Requests for ascending ranges of an object."""

    starts: Ints
    stops: Ints
    each: list[Request[Answer]]  #: by range
    plan: PlannedCache | None


class StoredFile:
    """One version of an object in a store; picklable, and shared by all its readers.

    It has the methods of `oocdata.engines.files.OpenFile`, and is its own descriptor, since nothing
    is open.
    """

    number, is_remote = -1, True
    """There is no descriptor of the kernel."""

    def __init__(self, version: ObjectVersion, entry: Entry | None) -> None:
        self.version, self.entry = version, entry
        self.address = Address.of(version.path)
        ANSWERED.add(self.address.root)
        #: Held while a reader looks up the requested ranges and requests the others.
        self.lock = threading.Lock()
        self.requests: list[RangeRequests] = []

    def __reduce__(self) -> tuple[Callable[..., StoredFile], tuple[ObjectVersion]]:
        check_sendable(self.version.path)
        return file_of_version, (self.version,)

    @staticmethod
    def request_at(url: str) -> Future[StoredFile]:
        """Request the beginning of an object's current version; once within `shared_lookups`."""
        address = Address.of(url)
        return request_once((StoredFile, address), partial(_beginning, address))

    @staticmethod
    def at(url: str) -> StoredFile:
        """Return the current version of the object at a URL."""
        return StoredFile.request_at(url).result()

    # The interface of an open file.

    def opened(self) -> StoredFile:
        """Return itself."""
        return self

    def unchanged(self) -> bool:
        """Return True: the version of each answer is compared on arrival."""
        return True

    def compare(self, key: str | None = None, rows: Iterable[int] | None = None) -> None:
        """Do nothing; see `unchanged`."""

    @property
    def current_size(self) -> int:
        """Length of the object in bytes."""
        return self.version.nbytes

    def read_runs(self, offsets: Ints, addresses: Ints, lengths: Ints | int, target: Any) -> None:
        """Read runs of bytes into memory; see `oocdata.engines.runs.read_runs`."""
        counts = np.broadcast_to(np.asarray(lengths, np.int64), offsets.shape)
        beyond = np.flatnonzero(offsets + counts > self.version.nbytes)
        if len(beyond):
            raise UnfinishedError(int(beyond[0]), None)
        left, entry = Pieces(np.arange(len(offsets)), offsets, addresses, counts), self.entry
        if not counts.all():
            left = left.take(np.flatnonzero(counts))
        if entry is not None and entry.read_runs(left):
            return
        with self.lock:
            requests = list(self.requests)
        for request in requests:
            left = self._take(request, left)
        # The second attempt bypasses the cache folder, whose files others may delete meanwhile.
        for folder in (entry, None):
            in_file_order = left._replace(runs=np.zeros_like(left.runs))
            with self._requested(in_file_order, folder, at_once=True) as request:
                left = self._take(request, left)
            if not len(left.runs) or (folder is not None and folder.read_runs(left)):
                return

    def _take(self, requests: RangeRequests, runs: Pieces) -> Pieces:
        """Copy the runs in requested ranges; return those elsewhere or in ranges given up."""
        if not len(requests.starts) or not len(runs.runs):
            return runs
        pieces, ranges = runs.cut(requests.starts, requests.stops)
        order = np.argsort(ranges, kind="stable")
        borders = [*np.flatnonzero(np.diff(ranges[order], prepend=-2)).tolist(), len(order)]
        left = []
        for first, stop in pairwise(borders):
            number, positions = int(ranges[order[first]]), order[first:stop]
            try:
                if number < 0:
                    raise CancelledError
                data = memoryview(link().take(requests.each[number]).data)
            except CancelledError:
                left.append(positions)
                continue
            except SourceError as error:
                raise UnfinishedError(int(pieces.runs[positions[0]]), error) from error
            in_range = pieces.take(positions)
            _copy(data, in_range.offsets - int(requests.starts[number]), in_range)
            link().read(requests.each[number], int(in_range.counts.sum()))
        return pieces.take(np.concatenate([np.zeros(0, np.int64), *left]))

    def read_into(self, memory: memoryview, offset: int) -> None:
        """Fill memory with the bytes from `offset` on."""
        if self.entry is not None and self.entry.read_into(memory, offset):
            return
        target = np.frombuffer(memory, np.uint8)
        address = np.array([target.ctypes.data])
        self.read_runs(np.array([offset]), address, len(memory), target)

    # Prefetching.

    def fetches(self, offsets: Ints, lengths: Ints | int) -> list[Fetch]:
        """Describe runs of bytes that will be read; see `oocdata.engines.files.File`."""
        counts = np.broadcast_to(np.asarray(lengths, np.int64), offsets.shape)
        return [Fetch(self, (offsets, counts))]

    @contextmanager
    def prefetch(self, wanted: Sequence[Fetch]) -> Iterator[Link]:
        """Keep requests for runs in flight during a block; see `oocdata.engines.prefetch`."""
        runs, entry, plan = self._runs(wanted), self.entry, current_plan()
        if entry is not None and not len(_to_fetch(runs, entry)[0]):
            yield link()
            return
        # Cached runs, once read, are in the chunk cache or in the folder, for all readers.
        is_cached = np.array([one.cached or entry is not None for one in wanted])[runs.runs]
        cached, uncached = runs.take(is_cached), runs.take(~is_cached)
        if plan is None:  # one chunk may be wanted twice, and is read once
            cached = _unique(cached)
        with ExitStack() as stack:
            with self.lock:  # of two threads that need a range, only one requests it
                # Ranges stay listed after they were read until no thread looks: see `Prefetcher`.
                for other in list(self.requests):
                    # A run of the same plan that needs a chunk again finds it evicted.
                    if entry is not None or other.plan is None or other.plan is not plan:
                        cached, ranges = cached.cut(other.starts, other.stops)
                        cached = cached.take(ranges < 0)
                stack.enter_context(self._requested(cached.concat(uncached), entry))
            yield link()

    def cost(self, wanted: Sequence[Fetch], planned: Planned) -> Cost:
        """Return the cost of fetching runs of bytes; cached runs cost nothing."""
        starts, stops = _to_fetch(self._runs(wanted), self.entry, planned)
        if self.entry is not None:
            self.entry.plan(starts, stops, planned)
        return Cost(len(starts), int((stops - starts).sum()))

    def fetch_all(self, wanted: Sequence[Fetch]) -> int:
        """Fetch runs, drop them, and return their bytes; see `RemoteFile`."""
        nbytes = 0
        with self._requested(_unique(self._runs(wanted)), None) as requests:
            for request in requests.each:
                nbytes += len(link().take(request).data)
                link().drop(request)
        return nbytes

    @contextmanager
    def _requested(
        self, runs: Pieces, folder: Entry | None, *, at_once: bool = False
    ) -> Iterator[RangeRequests]:
        """Request runs, merged into ranges, for a block; see `AnswerBudget.requested`.

        Runs that are in the cache folder are not requested; answers are written to it. The requests
        are listed for other readers unless they are `at_once`: another reader could use up bytes
        that this block still needs.
        """
        starts, stops = _to_fetch(runs, folder)
        pieces, ranges = runs.cut(starts, stops)
        is_needed = ranges >= 0  # the other pieces are in the folder
        pieces, ranges = pieces.take(is_needed), ranges[is_needed]
        used = np.bincount(ranges, pieces.counts, len(starts)).astype(np.int64).tolist()
        first_run = np.full(len(starts), np.iinfo(np.int64).max)
        np.minimum.at(first_run, ranges, pieces.runs)
        each = [
            Request(
                partial(self._fetch, start, stop, folder), stop - start, left,
                to_folder=folder is not None,
            )
            for start, stop, left in zip(starts.tolist(), stops.tolist(), used, strict=True)
        ]  # fmt: skip
        order = np.argsort(first_run, kind="stable").tolist()
        found = RangeRequests(starts, stops, each, current_plan())
        with link().requested([each[number] for number in order], at_once=at_once):
            try:
                if not at_once:
                    self.requests.append(found)
                yield found
            finally:
                with suppress(ValueError):  # no lock: the garbage collector may come here any time
                    self.requests.remove(found)

    async def _fetch(
        self, start: int, stop: int, folder: Entry | None, _: Request[Answer]
    ) -> Answer:
        answer = await link().get(self.address, start, stop, tag=self.version.tag)
        assert answer is not None
        if ObjectVersion.of(self.address, answer) != self.version:
            raise ChangedError(CHANGED, path=self.version.path)
        if folder is not None:
            await asyncio.to_thread(folder.write, start, answer.data)
        return answer

    def _runs(self, wanted: Sequence[Fetch]) -> Pieces:
        """Return the wanted runs as pieces without a destination, numbered by fetch.

        Runs beyond the end of the object are left out, since reading them raises an error.
        """
        each = zip(*(one.ranges for one in wanted), strict=True)
        offsets, counts = map(np.concatenate, each)
        numbers = np.repeat(np.arange(len(wanted)), [len(one.ranges[0]) for one in wanted])
        runs = Pieces(numbers, offsets, offsets, counts)
        return runs.take(offsets + counts <= self.version.nbytes)

    # Headers and metadata.

    def fill(self, memory: memoryview, start: int) -> None:
        """Fill memory as `read_into` does; raise the store's error if that fails."""
        try:
            self.read_into(memory, start)
        except UnfinishedError as error:
            raise error.cause or error from None

    def part(self, start: int, nbytes: int) -> bytes:
        """Return bytes of metadata, cached or fetched."""
        piece = cached_piece(self.version, start)
        if len(piece) >= nbytes:
            return piece[:nbytes]
        begin, stop = start - start % BLOCK, start + nbytes
        blocks = (self._block(at, min(BLOCK, stop - at)) for at in range(begin, stop, BLOCK))
        return b"".join(blocks)[start - begin :]

    def has_part(self, start: int, nbytes: int) -> bool:
        """Return whether `part` finds all bytes in the cache."""
        stop = start + nbytes
        return len(cached_piece(self.version, start)) >= nbytes or all(
            len(cached_piece(self.version, block)) >= min(BLOCK, stop - block)
            for block in range(start - start % BLOCK, stop, BLOCK)
        )

    def _block(self, start: int, nbytes: int) -> bytes:
        """Return the first bytes of a block of metadata, cached or fetched."""
        block = cached_piece(self.version, start)
        if len(block) < nbytes:
            fetched = bytearray(min(BLOCK, self.version.nbytes - start))
            self.fill(memoryview(fetched), start)
            block = bytes(fetched)
            cache_piece(self.version, start, block)
        return block[:nbytes]


async def _beginning(address: Address) -> StoredFile:
    answer = await link().get(address, 0, BEGINNING)
    assert answer is not None
    version = ObjectVersion.of(address, answer)
    if not version.tag:  # the object may have been rewritten within the same second
        forget(version)
    cache_piece(version, 0, bytes(answer.data))
    return file_of_version(version)


def file_of_version(version: ObjectVersion) -> StoredFile:
    """Return the file of a version; the same object for as long as it is in use."""
    entry = None
    if version.cache:
        tag = f"{version.tag} {version.modified}"
        entry = CacheFolder.at(version.cache).entry(version.path, tag, version.nbytes)
    with _lock:
        found = _files.get((version, version.cache))
        if found is None or found.entry is not entry:  # its folder could not be written
            found = _files[version, version.cache] = StoredFile(version, entry)
    return found


def _to_fetch(
    runs: Pieces, folder: Entry | None, planned: Planned | None = None
) -> tuple[Ints, Ints]:
    """Return starts and stops of the ranges to fetch for runs that are not in the folder."""
    each = runs.offsets, runs.counts
    return merge_runs(*(each if folder is None else folder.missing(*each, planned)))


def _copy(data: memoryview, begins: Ints, pieces: Pieces) -> None:
    """Copy pieces, which begin at these positions in `data`, to their destinations."""
    each = zip(begins.tolist(), pieces.addresses.tolist(), pieces.counts.tolist(), strict=True)
    for begin, address, count in each:
        write_memory(address, data[begin : begin + count])


def _unique(runs: Pieces) -> Pieces:
    """Return runs without duplicates."""
    each = np.stack((runs.offsets, runs.counts))
    return runs.take(np.unique(each, axis=1, return_index=True)[1])


_lock = threading.Lock()
_files: WeakValueDictionary[tuple[ObjectVersion, str], StoredFile] = WeakValueDictionary()


def _new_locks_after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    for file in list(_files.values()):
        file.lock = threading.Lock()


os.register_at_fork(after_in_child=_new_locks_after_fork)
