"""Decoded chunks of all arrays: one least-recently-used cache with one byte budget.

A batch takes rows from many chunks. Cached one by one, that would be a copy for each chunk. So the
chunks of an array lie side by side, as *slots* of one mapping, and a batch is one gather by row
numbers, outside the GIL, however many chunks its rows come from. The budget is shared: a chunk
makes room for one of another array by giving its pages back to the system, and for one of its own
array by leaving its slot to it.

Chunks are decoded by a few threads that all arrays share, never by the thread that asks: so Ctrl-C
ends the waiting, and no table or slot is left half written.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakValueDictionary, finalize, ref

import numpy as np
from numpy.typing import NDArray

from oocdata.memory import cache_share, scratch_share
from oocdata.threads import cores

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

__all__ = ["Cache", "Hold", "Slots", "cache"]

Made = TypeVar("Made")

_SCRATCH_PER_BYTE = 2
"""Decoding takes about the stored bytes and one intermediate form, each at most a chunk."""

_GROUPS, _LEAST, _MOST = 8, 1 << 16, 1 << 20
"""Missing chunks are decoded in about so many groups, of at least and at most so many bytes."""

_HUGE_FROM = 8 << 20
"""Bytes in small pages before the rest of a mapping asks for huge ones, which waste up to 2 MiB."""


class Hold:
    """Chunks that stay in memory until the object is released, or gone.

    Attributes
    ----------
    slots : ndarray of int64, shape (n,)
        Where each chunk lies, in the order in which they were asked for.
    memory : ndarray of uint8
        Slot `i` begins at byte ``i * nbytes``.
    """

    __slots__ = ("_of", "memory", "slots")

    def __init__(
        self, slots: NDArray[np.int64], memory: NDArray[np.uint8], of: Slots | None = None
    ) -> None:
        self.slots = slots
        self.memory = memory
        self._of = of
        if of is not None:
            of.held[id(self)] = slots

    def release(self) -> None:
        """Let the chunks go; a second call does nothing."""
        of = self._of
        if of is None:
            return
        if of.held.pop(id(self), None) is not None and of.cache.waiting:
            with of.cache.room:
                of.cache.room.notify_all()

    __del__ = release  # an interrupt may come between any two instructions of the holder


class _Flight:
    """Chunks that are being decoded together."""

    __slots__ = ("ended", "error", "failed", "numbers", "slots")

    def __init__(self, numbers: list[int], slots: list[int]) -> None:
        self.numbers = numbers
        self.slots = slots
        self.error: BaseException | None = None
        self.failed = False
        self.ended = threading.Event()


class Cache:
    """Chunks of several arrays within one budget.

    Parameters
    ----------
    budget : callable
        Returns the bytes that may be cached; asked whenever room is made.

    Attributes
    ----------
    nbytes : int
        Bytes of chunks in memory, and of those being decoded.

    Examples
    --------
    >>> cache = Cache(lambda: 16)
    >>> slots = cache.slots("an array", nbytes=8, chunks=100)
    >>> def decode(numbers, places, memory):
    ...     print("decode", numbers)
    >>> slots.load([7, 8], decode).release()
    decode [7]
    decode [8]
    >>> slots.find([8, 8]) is None, slots.find([9]) is None
    (False, True)
    """

    def __init__(self, budget: Callable[[], int] = cache_share) -> None:
        self.budget = budget
        self._gone: deque[list[int]] = deque()
        self._arrays: WeakValueDictionary[Hashable, Slots] = WeakValueDictionary()
        self.begin()

    def begin(self) -> None:
        """Start empty, with locks that nobody holds; in a forked child too."""
        # Re-entrant, because a hold may be let go by the collector in the midst of anything.
        self.lock = threading.RLock()
        self.room = threading.Condition(self.lock)
        self.waiting = 0
        self.nbytes = 0
        self.clock = count(1)
        self._gone.clear()
        self._oldest: list[tuple[int, int, ref[Slots]]] = []
        for slots in list(self._arrays.values()):
            slots.empty()

    def slots(self, key: Hashable, nbytes: int, chunks: int) -> Slots:
        """Return the slots of an array, which all who read it share.

        Parameters
        ----------
        key : hashable
            Tells the array, in the version that is read, from all others.
        nbytes : int
            Bytes of a decoded chunk.
        chunks : int
            How many the array has.
        """
        with self.lock:
            slots = self._arrays.get(key)
            if slots is None:
                slots = self._arrays[key] = Slots(self, nbytes, chunks)
                # Only noted there: the collector may call it while a thread is changing `nbytes`.
                finalize(slots, self._gone.append, slots.taken).atexit = False
            return slots

    def make_room(self, slots: Slots, chunks: int, mine: set[int], forced: bool) -> bool:
        """Evict the chunks used longest ago until so many more fit; return whether they do.

        Where nobody else holds chunks, or it is forced, they may exceed the budget.

        Parameters
        ----------
        slots : Slots
            Of the array whose chunks need room.
        chunks : int
            How many.
        mine : set of int
            Slots of the array that must stay.
        forced : bool
        """
        while self._gone:
            self.nbytes -= self._gone.popleft()[0]
        need, budget = chunks * slots.nbytes, self.budget()
        pinned: dict[int, set[int]] = {}
        passed: list[tuple[int, int, ref[Slots]]] = []
        listed = False
        while self.nbytes + need > budget or slots.taken[0] + need > slots.room:
            if not self._oldest:
                if listed:
                    break
                passed.clear()  # they are listed again
                self._oldest, listed = self._by_age(), True
                continue
            entry = self._oldest.pop()
            used, slot, reference = entry
            victim = reference()
            # Skip chunks used since the list was made: they are the most recent, so order holds.
            if victim is None or victim.used[slot] != used:
                continue
            if id(victim) not in pinned:
                pinned[id(victim)] = victim.pinned() | (mine if victim is slots else set())
            if slot in pinned[id(victim)]:
                passed.append(entry)
            else:
                victim.evict(slot, give_back=victim is not slots)
        else:
            self._oldest += reversed(passed)
            return True
        self._oldest += reversed(passed)
        alone = forced or not any(other.held for other in list(self._arrays.values()))
        return alone and slots.taken[0] + need <= slots.room

    def _by_age(self) -> list[tuple[int, int, ref[Slots]]]:
        """Return when each chunk was used last and where it is, the oldest at the end."""
        entries: list[tuple[int, int, ref[Slots]]] = []
        for slots in list(self._arrays.values()):
            places = np.flatnonzero(slots.used)
            stamps = slots.used[places].tolist()
            entries += zip(stamps, places.tolist(), repeat(ref(slots)), strict=False)
        entries.sort(key=itemgetter(0), reverse=True)
        return entries


class Slots:
    """The chunks of one array that are in memory, side by side; made by `Cache.slots`.

    Attributes
    ----------
    nbytes : int
        Of a chunk.
    memory : ndarray of uint8
    taken : list of int
        One number: bytes of the slots in use. A list, because it outlives this object.
    """

    def __init__(self, cache: Cache, nbytes: int, chunks: int) -> None:
        self.cache = cache
        self.nbytes = nbytes
        self.chunks = chunks
        self.taken = [0]
        self.empty()

    def empty(self) -> None:
        """Forget all chunks; whoever gathers from them keeps their memory until it is done."""
        self.taken[0] = 0
        self.held: dict[int, NDArray[np.int64]] = {}
        self._slot_of: dict[int, int] = {}
        self._in_flight: dict[int, tuple[_Flight, int]] = {}
        self._map(0)

    def _map(self, capacity: int) -> None:
        """Take address space for so many slots; it becomes memory when it is first written."""
        self._mapping = _reserve(capacity * self.nbytes) if capacity else None
        self.memory = np.frombuffer(self._mapping or b"", np.uint8)
        self.room = capacity * self.nbytes
        self.used = np.zeros(capacity, np.int64)  # when each was asked for; 0 where free
        self._number = np.zeros(capacity, np.int64)
        self._free: list[int] = []
        self._fresh = 0  # slots from here on were never used

    @property
    def most(self) -> int:
        """Chunks that one read may hold, so that several threads can read at once."""
        return max(1, self.cache.budget() // 4 // self.nbytes)

    def find(self, numbers: Sequence[int]) -> Hold | None:
        """Hold chunks that are all in memory; None where one is not.

        Parameters
        ----------
        numbers : sequence of int
            Any order, repeats allowed.
        """
        with self.cache.lock:
            try:
                found = map(self._slot_of.__getitem__, numbers)
                slots = np.fromiter(found, np.int64, len(numbers))
            except KeyError:
                return None
            self.used[slots] = next(self.cache.clock)
            return Hold(slots, self.memory, self)

    def load(
        self,
        numbers: Sequence[int],
        decode: Callable[[list[int], list[int], NDArray[np.uint8]], None],
        together: bool = False,
    ) -> Hold:
        """Hold chunks, and decode those that are not in memory.

        Parameters
        ----------
        numbers : sequence of int
            Different from one another, at most `most`.
        decode : callable
            Given numbers of chunks, their slots and the memory; called in several threads, but
            once for a chunk, also where several readers want it.
        together : bool
            It decodes in threads of its own, so it is called with many chunks.

        Raises
        ------
        Exception
            As `decode` raises. Chunks that were decoded together with one that failed are not kept.
        """
        return _in_pool(lambda: self._load(numbers, decode, together))

    def load_alone(
        self,
        numbers: Sequence[int],
        decode: Callable[[list[int], list[int], NDArray[np.uint8]], None],
    ) -> Hold:
        """Decode chunks in this thread, into memory of their own; waits for no other thread."""
        memory = np.empty(len(numbers) * self.nbytes, np.uint8)
        decode(list(numbers), list(range(len(numbers))), memory)
        return Hold(np.arange(len(numbers)), memory)

    def _load(
        self,
        numbers: Sequence[int],
        decode: Callable[[list[int], list[int], NDArray[np.uint8]], None],
        together: bool,
    ) -> Hold:
        while True:
            hold, own, others = self._claim(numbers, together)
            try:
                self._decode(own, decode, together)
                for flight in others:
                    flight.ended.wait()
            except BaseException:
                hold.release()
                raise
            if not any(flight.failed for flight in others):
                return hold
            # Another reader failed, perhaps over a chunk that is not wanted here: decode ourselves.
            hold.release()

    def _claim(
        self, numbers: Sequence[int], together: bool
    ) -> tuple[Hold, list[_Flight], set[_Flight]]:
        """Hold the slots of chunks, all or none of them; missing ones get a slot and a flight."""
        cache = self.cache
        with cache.lock:
            while True:
                self._grow()
                missing = [
                    number
                    for number in numbers
                    if number not in self._slot_of and number not in self._in_flight
                ]
                mine = set(self._places(numbers))
                if cache.make_room(self, len(missing), mine, forced=_decoding()):
                    break
                cache.waiting += 1
                try:
                    cache.room.wait()
                finally:
                    cache.waiting -= 1
            others = {self._in_flight[number][0] for number in numbers if number in self._in_flight}
            own = [self._begin(some) for some in self._groups(missing, together)]
            slots = np.fromiter(self._places(numbers), np.int64, len(numbers))
            self.used[slots] = next(cache.clock)
            return Hold(slots, self.memory, self), own, others

    def _places(self, numbers: Sequence[int]) -> Iterator[int]:
        """Yield the slot of each chunk that has one."""
        for number in numbers:
            if number in self._slot_of:
                yield self._slot_of[number]
            elif number in self._in_flight:
                yield self._in_flight[number][1]

    def _grow(self) -> None:
        """Map as many slots as may be needed, if nobody is using those that there are."""
        capacity = min(self.chunks, max(1, self.cache.budget() // self.nbytes))
        if len(self.used) < capacity and not self.held and not self._in_flight:
            self.cache.nbytes -= self.taken[0]
            self.empty()
            self._map(capacity)

    def _groups(self, missing: list[int], together: bool) -> Iterator[list[int]]:
        """Cut chunks into the groups that are decoded by one thread."""
        if together:
            step = max(1, scratch_share() // 2 // self.nbytes)
        else:
            least, most = max(1, _LEAST // self.nbytes), max(1, _MOST // self.nbytes)
            step = min(most, max(least, -(-len(missing) // _GROUPS)))
        for start in range(0, len(missing), step):
            yield missing[start : start + step]

    def _begin(self, numbers: list[int]) -> _Flight:
        """Give missing chunks slots."""
        flight = _Flight(numbers, [self._free_slot() for _ in numbers])
        for number, slot in zip(numbers, flight.slots, strict=True):
            self._in_flight[number] = flight, slot
            self._number[slot] = number
        self.taken[0] += len(numbers) * self.nbytes
        self.cache.nbytes += len(numbers) * self.nbytes
        return flight

    def _free_slot(self) -> int:
        if self._free:
            return self._free.pop()
        before, self._fresh = self._fresh * self.nbytes, self._fresh + 1
        if before < _HUGE_FROM <= self._fresh * self.nbytes < self.room:
            # Rows are taken from all over it: in small pages each costs a walk of page tables.
            rest = -(-self._fresh * self.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
            _advise(self._mapping, "MADV_HUGEPAGE", rest, self.room - rest)
        return self._fresh - 1

    def _decode(
        self,
        flights: Sequence[_Flight],
        decode: Callable[[list[int], list[int], NDArray[np.uint8]], None],
        together: bool,
    ) -> None:
        """Decode flights here, with the help of pool threads that have nothing else to do."""
        todo = deque(flights)
        memory = self.memory

        def work() -> None:
            while todo:
                with suppress(IndexError):  # another thread took the last one
                    self._run(todo.popleft(), decode, memory, together)

        _with_help(work, 0 if together else len(flights) - 1)
        for flight in flights:
            flight.ended.wait()
        errors = [flight.error for flight in flights if flight.error is not None]
        for flight in flights:
            flight.error = None  # its traceback leads back to the flight
        if errors:
            try:
                raise errors[0]
            finally:
                del errors

    def _run(
        self,
        flight: _Flight,
        decode: Callable[[list[int], list[int], NDArray[np.uint8]], None],
        memory: NDArray[np.uint8],
        together: bool,
    ) -> None:
        try:
            at_once = len(flight.numbers) if together else 1
            with _scratch(_SCRATCH_PER_BYTE * self.nbytes * at_once):
                decode(flight.numbers, flight.slots, memory)
        except BaseException as error:  # it is for those who asked
            flight.error, flight.failed = error, True
        with self.cache.lock:
            for number, slot in zip(flight.numbers, flight.slots, strict=True):
                # After a fork, or when all was forgotten, they are known no longer.
                if self._in_flight.pop(number, None) is None:
                    continue
                self._slot_of[number] = slot
                if flight.failed:
                    self.evict(slot, give_back=True)
        flight.ended.set()

    def pinned(self) -> set[int]:
        """Return the slots that somebody holds."""
        return {slot for held in list(self.held.values()) for slot in held.tolist()}

    def evict(self, slot: int, *, give_back: bool) -> None:
        """Forget the chunk in a slot; give its memory back, or leave it to the next chunk."""
        del self._slot_of[int(self._number[slot])]
        self.used[slot] = 0
        self.taken[0] -= self.nbytes
        self.cache.nbytes -= self.nbytes
        self._free.append(slot)
        if give_back:
            self._give_back(slot)

    def _give_back(self, slot: int) -> None:
        """Give the system the pages of a slot, with those that it shares with other free ones."""
        first, last, page = slot, slot, mmap.PAGESIZE
        while first and not self.used[first - 1] and first * self.nbytes % page:
            if first * self.nbytes // page < slot * self.nbytes // page:
                break
            first -= 1
        end = (slot + 1) * self.nbytes
        while last + 1 < len(self.used) and not self.used[last + 1]:
            if (last + 1) * self.nbytes >= -(-end // page) * page:
                break
            last += 1
        start = -(-first * self.nbytes // page) * page
        stop = (last + 1) * self.nbytes // page * page
        if start < stop:
            _advise(self._mapping, "MADV_DONTNEED", start, stop - start)


def _reserve(nbytes: int) -> mmap.mmap:
    # Private: Python's own default would share the slots with a forked child.
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    try:
        mapping = mmap.mmap(-1, nbytes, flags=flags)
    except (OSError, OverflowError) as error:
        raise MemoryError(f"no address space for {nbytes} bytes of decoded chunks") from error
    _advise(mapping, "MADV_NOHUGEPAGE", 0, nbytes)
    return mapping


def _advise(mapping: mmap.mmap | None, name: str, start: int, nbytes: int) -> None:
    """Tell the system how memory is used; it is only advice, and not every system takes it."""
    advice = getattr(mmap, name, None)
    if mapping is not None and advice is not None and nbytes > 0:
        with suppress(OSError):
            mapping.madvise(advice, start, nbytes)


_local = threading.local()
_gate = threading.Condition()
_in_use = 0
_threads: ThreadPoolExecutor | None = None


def _decoding() -> bool:
    """Return whether this thread is decoding a chunk, of an array that is made of another."""
    return bool(getattr(_local, "decoding", False))


@contextmanager
def _scratch(nbytes: int) -> Iterator[None]:
    """Count the scratch of a thread that decodes, and wait while others take too much."""
    global _in_use
    if _decoding():  # what it waited for would wait for it
        yield
        return
    with _gate:
        while _in_use and _in_use + nbytes > scratch_share():
            _gate.wait()
        _in_use += nbytes
    _local.decoding = True
    try:
        yield
    finally:
        _local.decoding = False
        with _gate:
            _in_use -= nbytes
            _gate.notify_all()


def _pool() -> ThreadPoolExecutor:
    global _threads
    if _threads is None:
        from concurrent.futures import ThreadPoolExecutor  # not for `import oocdata`: it is slow

        _threads = ThreadPoolExecutor(cores(), "oocdata-decode")
    return _threads


def _in_pool(work: Callable[[], Made]) -> Made:
    """Do work in a thread of the pool: no interrupt reaches it, and few decode at a time."""
    if getattr(_local, "in_pool", False):
        return work()

    def inside() -> Made:
        _local.in_pool = True
        return work()

    try:
        future = _pool().submit(inside)
    except RuntimeError:  # no more threads, or the interpreter is ending: then in this one
        return work()
    try:
        return future.result()
    finally:
        del future  # an error's traceback would hold it, and it holds the error


def _with_help(work: Callable[[], Any], helpers: int) -> None:
    """Do work here, and at the same time in threads of the pool where some are free."""
    started: list[Any] = []
    with suppress(RuntimeError):
        while len(started) < min(helpers, cores() - 1):
            started.append(_pool().submit(_in_pool_only, work))
    work()
    for one in started:
        one.cancel()


def _in_pool_only(work: Callable[[], Any]) -> None:
    _local.in_pool = True
    work()


cache = Cache()
"""The process's own."""


def _fresh_after_fork() -> None:
    # Chunks that a thread of the parent was decoding would never arrive in the child.
    global _gate, _in_use, _threads, _local
    _gate, _in_use, _threads, _local = threading.Condition(), 0, None, threading.local()
    cache.begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_fresh_after_fork)
