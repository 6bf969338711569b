"""Files in stores, with what engines ask of a file: which version it is, and runs of its bytes.

Bytes that will be read soon are *asked for* together, so that their requests are under way at the
same time; a read takes what was asked for, and asks for the rest itself.
"""

from __future__ import annotations

import io
import os
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.runs import UnfinishedError, write_memory
from oocdata.engines.soon import Soon
from oocdata.errors import ArgumentError, MissingFileError, SourceError
from oocdata.stores.address import Address
from oocdata.stores.folder import CacheFolder
from oocdata.stores.given import is_given, refused
from oocdata.stores.held import Held
from oocdata.stores.link import Answer, ChangedError, link

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oocdata.stores.entry import Entry

__all__ = [
    "BLOCK", "Asked", "ObjectVersion", "StoredFile", "ask", "blocks_of_metadata", "cache_folder",
    "fetch", "joined", "one_look", "probe", "small",
]  # fmt: skip

Ints = NDArray[np.int64]

GAP = 32 << 10
"""Bytes between two ranges that cost less to fetch than a request of their own does."""

PART = 8 << 20
"""Longer ranges are fetched in parts, side by side."""

BLOCK = 256 << 10
"""Of metadata, so much is fetched at a time; it is sent in less than a round trip takes."""

_BLOCKS_KEPT = 64

_COUNTED = 4096
"""Objects of which it is known how many blocks were fetched."""


@dataclass(frozen=True, slots=True)
class ObjectVersion:
    """What tells one version of an object from another.

    Attributes
    ----------
    path : str
        Its URL.
    nbytes : int
    tag : str
        The store's name of the version (ETag); empty where it gives none.
    modified : int
        Nanoseconds since the epoch, to the second.
    cache : str
        The folder in which what is fetched is kept; empty without one.
    """

    path: str
    nbytes: int
    tag: str
    modified: int
    cache: str = field(default="", compare=False)

    @classmethod
    def of(cls, address: Address, answer: Answer, cache: str | None = None) -> ObjectVersion:
        """Return the version of which an answer is a part."""
        kept = cache_folder() if cache is None else cache
        return cls(address.url, answer.nbytes, answer.tag, answer.modified, kept)

    def compare(self, key: str | None = None, rows: Iterable[int] | None = None) -> None:
        """Do nothing: each answer says of which version it is, and is compared when it comes."""


class Asked(Held[Answer]):
    """Ranges of one object that are asked for; each is held until all of it was taken.

    Parameters
    ----------
    file : StoredFile
    starts, stops : ndarray of int64, shape (n,)
        Ascending, apart from one another. They are asked for in this order.
    wanted : ndarray of int64, shape (n,), or None
        Bytes that will be taken of each, counted as often as they are; None where that is not
        known, and all are held until the end.
    at_once : bool
        As of `Held`.
    """

    def __init__(
        self, file: StoredFile, starts: Ints, stops: Ints, wanted: Ints | None, *, at_once: bool
    ) -> None:
        self.file, self.starts, self.stops = file, starts, stops
        self._left: list[float] = [_FOR_EVER] * len(starts) if wanted is None else wanted.tolist()
        self._lock = threading.Lock()
        super().__init__((stops - starts).tolist(), self._range, at_once=at_once)

    def begin(self) -> None:
        """Ask for all; see `Held.begin`."""
        super().begin()
        with self.file.lock:
            self.file.asked.append(self)

    async def _range(self, number: int) -> Answer:
        return await fetch(self.file, int(self.starts[number]), int(self.stops[number]))

    def find(self, wanted: Pieces, *, taken: bool = False) -> tuple[Pieces, Ints]:
        """Return pieces, and the range in which each lies; -1 for one that lies in none.

        Of ranges that are held; with `taken`, also of those that were taken.
        """
        pieces, found = wanted.within(self.starts, self.stops)
        held = np.array([taken or left > 0 for left in self._left], np.bool_)
        return pieces, np.where((found >= 0) & held[found], found, -1)

    def taken(self, number: int, nbytes: int) -> None:
        """Count bytes as taken; when all are, the range is held no more."""
        with self._lock:
            self._left[number] -= nbytes
            done = self._left[number] <= 0
        if done:
            self.drop(number)

    def close(self) -> None:
        """Hold nothing any more; see `Held.close`."""
        with self.file.lock:
            if self in self.file.asked:
                self.file.asked.remove(self)
        super().close()


_FOR_EVER = float("inf")


async def fetch(file: StoredFile, start: int, stop: int) -> Answer:
    """Return a range of a file, of the version that it was when it was opened."""
    answer = await link().get(file.address, start, stop, tag=file.version.tag)
    assert answer is not None
    version = ObjectVersion.of(file.address, answer)
    if version != file.version:
        raise ChangedError(
            "the object must be as it was when it was opened; it has changed. Open it again.",
            path=file.version.path,
        )
    return answer


class Pieces(NamedTuple):
    """Runs of bytes, or parts of them: the run of each, where it begins, where it goes."""

    runs: Ints
    offsets: Ints
    addresses: Ints
    counts: Ints

    def of(self, some: Ints) -> Pieces:
        """Return some of them."""
        return Pieces(*(column[some] for column in self))

    def within(self, starts: Ints, stops: Ints) -> tuple[Pieces, Ints]:
        """Return them cut at the borders of ranges, and the range in which each lies; -1 for none.

        Examples
        --------
        >>> runs = Pieces(*(np.array([number]) for number in (0, 8, 1000, 10)))
        >>> pieces, ranges = runs.within(np.array([5, 12]), np.array([10, 20]))
        >>> pieces.offsets.tolist(), pieces.counts.tolist(), ranges.tolist()
        ([8, 10, 12], [2, 2, 6], [0, -1, 1])
        """
        borders = np.stack((starts, stops), axis=1).ravel()
        first = np.searchsorted(borders, self.offsets, side="right") - 1
        last = np.searchsorted(borders, self.offsets + self.counts - 1, side="right") - 1
        whole, parts = self, first
        if (first != last).any():
            numbers = last - first + 1
            steps = np.arange(numbers.sum()) - np.repeat(np.cumsum(numbers) - numbers, numbers)
            parts = np.repeat(first, numbers) + steps
            whole = self.of(np.repeat(np.arange(len(numbers)), numbers))
            ends = np.append(borders, np.iinfo(np.int64).max)[parts + 1]
            begins = np.where(steps > 0, borders[parts], whole.offsets)
            counts = np.minimum(whole.offsets + whole.counts, ends) - begins
            moved = whole.addresses + begins - whole.offsets
            some = counts > 0
            whole = Pieces(whole.runs, begins, moved, counts).of(some)
            parts = parts[some]
        return whole, np.where(parts % 2, -1, parts // 2)


def joined(offsets: Ints, lengths: Ints) -> tuple[Ints, Ints, Ints]:
    """Return runs as ranges to fetch, and how many bytes of each range are wanted.

    Ranges ascend and don't overlap; neighbours are joined, long ones cut.

    Examples
    --------
    >>> starts, stops, wanted = joined(np.array([90_000, 0, 5, 5]), np.array([10, 8, 8, 8]))
    >>> starts.tolist(), stops.tolist(), wanted.tolist()
    ([0, 90000], [13, 90010], [24, 10])
    """
    order = np.argsort(offsets, kind="stable")
    starts, counts = offsets[order], lengths[order]
    ends = np.maximum.accumulate(starts + counts)
    firsts = np.flatnonzero(np.append(True, starts[1:] > ends[:-1] + GAP))
    starts, stops = starts[firsts], ends[np.append(firsts[1:], len(ends)) - 1]
    parts = np.maximum(1, -(-(stops - starts) // PART))
    if (parts > 1).any():
        within = np.arange(parts.sum()) - np.repeat(np.cumsum(parts) - parts, parts)
        starts = np.repeat(starts, parts) + within * PART
        stops = np.minimum(np.repeat(stops, parts), starts + PART)
    pieces, ranges = Pieces(order, offsets, offsets, lengths).within(starts, stops)
    wanted = np.zeros(len(starts), np.int64)
    np.add.at(wanted, ranges, pieces.counts)
    return starts, stops, wanted


class StoredFile:
    """One version of an object in a store; picklable.

    What engines ask of `oocdata.engines.files.OpenFile`: it is its own descriptor, since nothing
    is open.

    Parameters
    ----------
    version : ObjectVersion

    Attributes
    ----------
    number : int
        -1: the kernel knows no such file.
    """

    number = -1

    def __init__(self, version: ObjectVersion) -> None:
        self.version = version
        self.address = Address.of(version.path)
        self.lock, self.asked = _shared(version)
        self.entry = _entry(version)

    def __reduce__(self) -> tuple[type[StoredFile], tuple[ObjectVersion]]:
        if is_given(self.version.path):
            raise ArgumentError(refused(self.version.path))
        return StoredFile, (self.version,)

    @classmethod
    def at(cls, url: str) -> StoredFile:
        """Return the object at a URL as it is now; fetches its beginning.

        Raises
        ------
        oocdata.errors.MissingFileError, oocdata.errors.SourceError
        """
        address = Address.of(url)
        known = (_looked.get() or {}).get(address)
        if isinstance(known, cls):
            return known
        answer = link().start(lambda: link().get(address, 0, BLOCK)).result()
        assert answer is not None
        _note(address, found := cls.of(address, answer))
        return found

    @classmethod
    def of(cls, address: Address, answer: Answer) -> StoredFile:
        """Return the object of which an answer is the beginning."""
        version = ObjectVersion.of(address, answer)
        _keep_block((version, 0), bytes(answer.data))
        return cls(version)

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
        if self.entry is None or not self._read_kept(self.entry, offsets, addresses, counts):
            self._read_fetched(offsets, addresses, counts)

    def _read_kept(self, entry: Entry, offsets: Ints, addresses: Ints, counts: Ints) -> bool:
        """Read runs out of the cache folder, into which what it lacks is fetched.

        Returns
        -------
        bool
            False where the folder can't keep it.
        """
        if entry.read_runs(offsets, addresses, counts, None):
            return True
        starts, lengths = entry.missing(offsets, counts)
        if len(starts):
            # What lies between two ranges and is fetched with them is kept too.
            starts, stops, _ = joined(starts, lengths)
            lengths = stops - starts
            fetched = np.empty(lengths.sum(), np.uint8)
            begins = np.cumsum(lengths) - lengths
            try:
                self._read_fetched(starts, fetched.ctypes.data + begins, lengths)
            except UnfinishedError as error:
                first = np.flatnonzero(offsets + counts > starts[error.run])[0]
                raise UnfinishedError(int(first), error.cause) from error.cause
            each = zip(starts.tolist(), begins.tolist(), lengths.tolist(), strict=True)
            for start, begin, length in each:
                entry.write(start, fetched[begin : begin + length])
        return entry.read_runs(offsets, addresses, counts, None)

    def _read_fetched(self, offsets: Ints, addresses: Ints, counts: Ints) -> None:
        """Read runs out of what was asked for, and ask for the rest."""
        left = Pieces(np.arange(len(offsets)), offsets, addresses, counts)
        with self.lock:
            asked = list(self.asked)
        for one in asked:
            left = self._take(one, left)
            if not len(left.runs):
                return
        with ask(self, left.offsets, left.counts, at_once=True) as own:
            self._take(own, left)

    def _take(self, asked: Asked, wanted: Pieces) -> Pieces:
        """Copy what lies in ranges that were asked for; return what does not, or not any more."""
        pieces, found = asked.find(wanted)
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
            begins = (pieces.offsets[some] - int(asked.starts[number])).tolist()
            counts = pieces.counts[some].tolist()
            each = zip(begins, pieces.addresses[some].tolist(), counts, strict=True)
            for begin, address, count in each:
                write_memory(address, data[begin : begin + count])
            asked.taken(number, sum(counts))
        return pieces.of(np.concatenate([np.zeros(0, np.int64), *left]))

    def read_into(self, memory: memoryview, offset: int) -> None:
        """Fill memory with the bytes from an offset on."""
        target = np.frombuffer(memory, np.uint8)
        place = np.array([target.ctypes.data])
        self.read_runs(np.array([offset]), place, len(memory), target)

    # Said to be read soon.

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StoredFile) and self.version == other.version

    def __hash__(self) -> int:
        return hash(self.version)

    def soon(self, offsets: Ints, lengths: Ints | int, *, once: bool = False) -> list[Soon]:
        """Return what says that runs of bytes will be read; see `oocdata.engines.files.File`."""
        counts = np.broadcast_to(np.asarray(lengths, np.int64), offsets.shape)
        return [Soon(self, (offsets, counts, once))]

    @contextmanager
    def asking(self, wanted: Sequence[tuple[Ints, Ints, bool]]) -> Iterator[None]:
        """Have runs under way for as long as a block takes; see `oocdata.engines.soon`."""
        once = all(one[2] for one in wanted)
        runs = np.concatenate([np.stack(one[:2], axis=1) for one in wanted])
        inside = runs.sum(axis=1) <= self.version.nbytes  # reading them says that they are not
        offsets, counts = np.unique(runs[inside], axis=0).T
        with ExitStack() as stack:
            with self.lock:  # or two who need the same both find that nobody has asked for it
                if self.entry is not None and len(offsets):
                    offsets, counts = self.entry.missing(offsets, counts)
                # What is decoded by whoever asked first is in the cache for all, and what is kept
                # is in the folder. What was taken is being decoded, or is since it was looked for.
                if once or self.entry is not None:
                    offsets, counts = self._not_asked(offsets, counts)
                if len(offsets):
                    # What is kept may be taken by others, before it is written.
                    alone = once and self.entry is None
                    stack.enter_context(ask(self, offsets, counts, once=alone))
            yield

    def _not_asked(self, offsets: Ints, counts: Ints) -> tuple[Ints, Ints]:
        """Return the runs that nobody has asked for yet."""
        for other in list(self.asked):
            pieces, found = other.find(Pieces(offsets, offsets, offsets, counts), taken=True)
            offsets, counts = pieces.offsets[found < 0], pieces.counts[found < 0]
        return offsets, counts

    # As of a stream, for headers and metadata.

    def stream(self, step: int = 1024) -> io.BufferedIOBase:
        """Return the bytes as a stream, of which so many are read at a time."""
        return io.BufferedReader(_Stream(self), step)

    def part(self, start: int, nbytes: int) -> bytes:
        """Return bytes of metadata, out of blocks that are kept a while."""
        parts = []
        while nbytes > 0:
            number, within = divmod(start, BLOCK)
            parts.append(self.block(number)[within : within + nbytes])
            start, nbytes = start + len(parts[-1]), nbytes - len(parts[-1])
        return b"".join(parts)

    def has_part(self, start: int, nbytes: int) -> bool:
        """Return whether `part` need not fetch anything."""
        numbers = range(start // BLOCK, (start + max(1, nbytes) - 1) // BLOCK + 1)
        return all(_kept_block((self.version, number)) is not None for number in numbers)

    def block(self, number: int) -> bytes:
        """Return a block of metadata, fetched or kept."""
        kept = _kept_block((self.version, number))
        if kept is None:
            start = number * BLOCK
            fetched = bytearray(min(BLOCK, self.version.nbytes - start))
            try:
                self.read_into(memoryview(fetched), start)
            except UnfinishedError as error:
                raise error.cause or error from None
            kept = bytes(fetched)
            _count_block(self.version)
            _keep_block((self.version, number), kept)
        return kept


def probe(url: str, names: Iterable[str]) -> tuple[list[str], SourceError | None]:
    """Ask at once for an object, and for objects below it.

    Returns
    -------
    there : list of str
        Those of the names that lead to an object.
    error : SourceError or None
        Why the object itself can't be read; none where it can, by `StoredFile.at`.
    """
    address, each = Address.of(url), list(names)
    if isinstance((_looked.get() or {}).get(address), StoredFile):  # as `look` found it
        return [], None
    beginning = link().start(lambda: link().get(address, 0, BLOCK))
    below = small([address / name for name in each])
    error = beginning.exception()
    if error is None:
        answer = beginning.result()
        assert answer is not None
        _note(address, StoredFile.of(address, answer))
    elif not isinstance(error, SourceError):
        raise error
    found = zip(each, below, strict=True)
    there = [name for name, answer in found if isinstance(answer, Answer)]
    refused = next((one for one in below if isinstance(one, SourceError)), None)
    if isinstance(error, MissingFileError) and not there and refused is not None:
        raise refused  # it may be there all the same
    return there, error


def look(urls: Iterable[str]) -> None:
    """Ask at once for the beginnings of objects; what can't be read is asked for again by its user.

    Within `one_look`, in which they are opened.
    """
    each = [Address.of(url) for url in urls]
    begun = [link().start(partial(link().get, one, 0, BLOCK)) for one in each]
    for one, done in zip(each, begun, strict=True):
        answer = None if done.exception() is not None else done.result()
        if answer is not None:
            _note(one, StoredFile.of(one, answer))


def small(addresses: Sequence[Address]) -> list[Answer | SourceError | None]:
    """Return small objects, asked for at once; None where there is none, or why it can't be read.

    Within `one_look`, each is asked for once.
    """
    looked = _looked.get()
    known: dict[Address, Any] = {} if looked is None else looked
    wanted = {one: known[one] for one in addresses if one in known}
    begun = {one: link().start(partial(link().get, one)) for one in addresses if one not in wanted}
    for one, done in begun.items():
        error = done.exception()
        if isinstance(error, MissingFileError):
            wanted[one] = None
        elif error is None or isinstance(error, SourceError):
            wanted[one] = error or done.result()
        else:
            raise error
        _note(one, wanted[one])
    return [wanted[one] for one in addresses]


_looked: ContextVar[dict[Address, Any] | None] = ContextVar("looked", default=None)
_cache: ContextVar[str | None] = ContextVar("cache", default=None)


@contextmanager
def one_look(cache: str | os.PathLike[str] | None = None) -> Iterator[None]:
    """Ask once for what several look at, for as long as a block takes: one version of each.

    Parameters
    ----------
    cache : path, optional
        The folder in which is kept what is fetched of the files that are opened in this block, then
        and later; by default the environment says which.
    """
    folder = _cache.get()
    if cache is not None:
        folder = os.path.abspath(os.path.expanduser(os.fspath(cache)))
        CacheFolder.at(folder)  # or an error, here
    looked = _looked.get()
    asked, kept = _looked.set({} if looked is None else looked), _cache.set(folder)
    try:
        yield
    finally:
        _cache.reset(kept)
        _looked.reset(asked)


def cache_folder() -> str:
    """Return the folder in which what is fetched is kept; empty without one."""
    chosen = _cache.get()
    return os.environ.get("OOCDATA_CACHE", "") if chosen is None else chosen


def _entry(version: ObjectVersion) -> Entry | None:
    """Return where an object is kept; None where nothing tells its versions apart, or where."""
    if not version.cache or not (version.tag or version.modified):
        return None
    which = f"{version.tag} {version.modified}"
    return CacheFolder.at(version.cache).entry(version.path, which, version.nbytes)


def _note(address: Address, found: Any) -> None:
    looked = _looked.get()
    if looked is not None:
        looked[address] = found


@contextmanager
def ask(
    file: StoredFile, offsets: Ints, lengths: Ints, *, at_once: bool = False, once: bool = False
) -> Iterator[Asked]:
    """Ask for the bytes of runs, for as long as a block takes.

    Parameters
    ----------
    at_once : bool
        They are read in this block by nobody else, each as often as it is given.
    once : bool
        Each run is read once.
    """
    starts, stops, wanted = joined(offsets, lengths)
    asked = Asked(file, starts, stops, wanted if at_once or once else None, at_once=at_once)
    try:
        asked.begin()
        yield asked
    finally:
        asked.close()


class _Stream(io.RawIOBase):
    """The bytes of an object, for whoever reads headers."""

    def __init__(self, file: StoredFile) -> None:
        super().__init__()
        self.file, self._place = file, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        begin = (0, self._place, self.file.version.nbytes)[whence]
        self._place = max(0, begin + offset)
        return self._place

    def readinto(self, buffer: Any) -> int:
        out = memoryview(buffer).cast("B")[: max(0, self.file.version.nbytes - self._place)]
        if not out:
            return 0
        if len(out) > BLOCK:  # no metadata
            self.file.read_into(out, self._place)
            self._place += len(out)
            return len(out)
        out[:] = self.file.part(self._place, len(out))
        self._place += len(out)
        return len(out)


_lock = threading.Lock()
_blocks: OrderedDict[tuple[ObjectVersion, int], bytes] = OrderedDict()
_fetched: Counter[ObjectVersion] = Counter()
_files: OrderedDict[ObjectVersion, tuple[Any, list[Asked]]] = OrderedDict()


def _shared(version: ObjectVersion) -> tuple[Any, list[Asked]]:
    """Return what all who read an object share: a lock, and what was asked for."""
    with _lock:
        found = _files.get(version)
        if found is None:
            for old in [old for old, (_, asked) in _files.items() if not asked][:-1024]:
                del _files[old]
            found = _files[version] = threading.RLock(), []
        return found


def blocks_of_metadata(version: ObjectVersion) -> int:
    """Return how many blocks were fetched of an object one after the other, for its metadata.

    Its beginning, which comes when it is opened, is not counted.
    """
    return _fetched[version]


def _count_block(version: ObjectVersion) -> None:
    with _lock:
        _fetched[version] += 1
        if len(_fetched) > _COUNTED:
            _fetched.clear()


def _kept_block(key: tuple[ObjectVersion, int]) -> bytes | None:
    with _lock:
        found = _blocks.get(key)
        if found is not None:
            _blocks.move_to_end(key)
        return found


def _keep_block(key: tuple[ObjectVersion, int], block: bytes) -> None:
    with _lock:
        _blocks[key] = block
        while len(_blocks) > _BLOCKS_KEPT:
            _blocks.popitem(last=False)
