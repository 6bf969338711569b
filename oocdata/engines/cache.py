"""Decoded chunks of all arrays: one least-recently-used cache with one byte budget.

A batch takes rows from many chunks. Cached one by one, that would be a copy for each chunk. So the
chunks of an array lie side by side, as *slots* of one mapping, and a batch is one gather by row
numbers, outside the GIL, however many chunks its rows come from. The budget is shared: a chunk
makes room for one of another array by giving its pages back to the system, and for one of its own
array by leaving its slot to it.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import count, repeat
from operator import itemgetter
from queue import SimpleQueue
from typing import TypeAlias
from weakref import WeakValueDictionary, finalize, ref

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.buffers import trim
from oocdata.engines.decoding import decodes_already, in_decoding_thread, in_turns, scratch
from oocdata.memory import account, cache_share, scratch_share
from oocdata.threads import holds_hdf5

__all__ = ["Cache", "Decode", "Hold", "Slots", "cache"]

Decode: TypeAlias = Callable[[list[int], list[int], NDArray[np.uint8]], None]
"""Decodes chunks of some numbers into slots of some memory."""

_SCRATCH = 2
"""Decoding takes the stored bytes and one intermediate form, each about as long as a chunk."""

_GROUPS, _LEAST, _MOST = 4, 1 << 16, 1 << 20
"""Missing chunks are decoded in about so many groups, of at least and at most so many bytes."""

_SMALL_PAGES = 16 << 20
"""Bytes of an array's chunks from which on the rest lies in huge pages, of which the last may be
wasted. A first epoch of gzip chunks of 128 KiB takes 1 / 1.2 of the processor's time so, all told,
and of zstd 1 / 1.1; later epochs, which only gather, 1 / 1.1 to 1 / 1.2."""

_TABLE = 1 << 16
"""Chunk numbers are looked up by their remainder by this, or by a smaller power of two."""


class Hold:
    """Chunks that stay in memory until they are released, or the object is gone.

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
        self.slots, self.memory, self._of = slots, memory, of
        if of is not None:
            of.held[id(self)] = slots

    def __enter__(self) -> Hold:
        return self

    def release(self, *_: object) -> None:
        """Let the chunks go; a second call does nothing.

        Without a lock: the collector may call it in any thread, in the midst of anything.
        """
        if self._of is not None:
            self._of.held.pop(id(self), None)
            for waiting in list(self._of.cache.waiting):
                waiting.put(None)
            self._of = None  # last: what an interrupt cuts short is done by the second call

    __exit__ = __del__ = release  # an interrupt may come between any two instructions of the holder


class _Flight:
    """Chunks that one thread is decoding."""

    __slots__ = ("ended", "failed", "numbers", "slots")

    def __init__(self, numbers: list[int], slots: list[int]) -> None:
        self.numbers, self.slots = numbers, slots
        self.failed = False
        self.ended = threading.Event()


class Cache:
    """Chunks of several arrays within one budget.

    Parameters
    ----------
    budget : callable
        Returns the bytes that may be cached; asked whenever room is made.

    Examples
    --------
    >>> cache = Cache(lambda: 16)
    >>> slots = cache.slots("an array", nbytes=8, chunks=100)
    >>> slots.load([7], lambda numbers, slots, memory: print("decode", numbers)).release()
    decode [7]
    >>> slots.find(np.array([7, 7])) is None, slots.find(np.array([9])) is None, cache.nbytes
    (False, True, 8)
    """

    def __init__(self, budget: Callable[[], int] = cache_share) -> None:
        self.budget = budget
        self._arrays: WeakValueDictionary[Hashable, Slots] = WeakValueDictionary()
        self._gone: deque[list[int]] = deque()
        self.begin()

    def begin(self) -> None:
        """Start empty, with locks that nobody holds; in a forked child too."""
        # Re-entrant, because the collector may end an iteration in the midst of anything.
        self.lock = threading.RLock()
        #: Of those who wait for room: something is put into each when a hold is let go.
        self.waiting: list[SimpleQueue[None]] = []
        self.taken = 0
        self.clock = count(1)
        self._gone.clear()
        self._oldest: list[tuple[int, int, ref[Slots]]] = []
        for slots in list(self._arrays.values()):
            slots.empty()

    def slots(self, key: Hashable, nbytes: int, chunks: int, piece: int = 0) -> Slots:
        """Return the slots of an array, which all who read it share.

        Parameters
        ----------
        key : hashable
            Tells the array, in the version that is read, from all others.
        nbytes : int
            Bytes of a decoded chunk.
        chunks : int
            How many the array has.
        piece : int
            Bytes that are decoded at a time, where a chunk is made of several pieces.
        """
        with self.lock:
            slots = self._arrays.get(key)
            if slots is None:
                slots = self._arrays[key] = Slots(self, nbytes, chunks, piece or nbytes)
                # Only noted there: the collector may call it while a thread is changing `taken`.
                finalize(slots, self._gone.append, slots.taken).atexit = False
            return slots

    @property
    def nbytes(self) -> int:
        """Bytes of the chunks in memory, and of those that are being decoded."""
        with self.lock:
            while self._gone:
                gone = self._gone.popleft()[0]
                self.taken -= gone  # one step: the collector may come here again before it
            return self.taken

    @property
    def left(self) -> int:
        """Bytes that may be cached: the budget without what batches have of it."""
        return self.budget() - account().borrowed

    def make_room(self, slots: Slots, chunks: int, mine: set[int]) -> bool:
        """Evict the chunks used longest ago until so many more fit; return whether they do.

        Where nobody else holds chunks, the budget may be exceeded.

        Parameters
        ----------
        slots : Slots
            Of the array whose chunks need room.
        chunks : int
            How many.
        mine : set of int
            Slots of the array that must stay.
        """
        need, budget = chunks * slots.nbytes, self.left
        pinned: dict[int, set[int]] = {}
        passed: list[tuple[int, int, ref[Slots]]] = []
        listed = False
        while self.nbytes + need > budget or slots.taken[0] + need > slots.room:
            if not self._oldest and listed:
                break
            if not self._oldest:
                passed.clear()  # they are listed again
                self._oldest, listed = self._by_age(), True
                continue
            entry = self._oldest.pop()
            used, slot, reference = entry
            victim = reference()
            # Skip chunks used since the list was made: they are the most recent, so order holds.
            if victim is None or slot >= len(victim.used) or victim.used[slot] != used:
                continue
            if id(victim) not in pinned:
                pinned[id(victim)] = victim.pinned() | (mine if victim is slots else set())
            if slot in pinned[id(victim)]:
                passed.append(entry)
            else:
                victim.evict(slot, give_back=victim is not slots)
        self._oldest += reversed(passed)
        if slots.taken[0] + need > slots.room:
            return False
        if self.nbytes + need <= budget:
            return True
        return not any(other.held for other in list(self._arrays.values()))

    def forget(self) -> None:
        """Evict all chunks that nobody holds, so that whatever is read next is decoded anew."""
        with self.lock:
            for slots in list(self._arrays.values()):
                if slots.drop():
                    continue
                for slot in set(np.flatnonzero(slots.used).tolist()) - slots.pinned():
                    slots.evict(slot, give_back=True)

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
    held : dict of ndarray of int64
        The slots of each `Hold`.
    taken : list of int
        One number: bytes of the slots in use. A list, because it outlives this object.
    """

    def __init__(self, cache: Cache, nbytes: int, chunks: int, piece: int) -> None:
        self.cache, self.nbytes, self.chunks, self._piece = cache, nbytes, chunks, piece
        self.taken = [0]
        self.empty()

    def empty(self) -> None:
        """Forget all chunks; whoever gathers from them keeps their memory until it is done."""
        self.taken[0] = 0
        self.held: dict[int, NDArray[np.int64]] = {}
        self._slot_of: dict[int, int] = {}  # of chunks in memory and of those in flight
        self._in_flight: dict[int, _Flight] = {}
        self._map(0)

    def _map(self, capacity: int) -> None:
        """Take address space for so many slots; it becomes memory when it is first written."""
        self._mapping = _reserve(capacity * self.nbytes) if capacity else None
        self.memory = np.frombuffer(self._mapping or b"", np.uint8)
        self.room = capacity * self.nbytes
        self.used = np.zeros(capacity, np.int64)  # when each was asked for; 0 where free
        self._number = np.full(max(1, capacity), -1)  # of the chunk; -1 until it is decoded
        # The slot of the chunk decoded last, for each remainder of chunk numbers.
        self._table = np.zeros(min(_TABLE, 1 << self.chunks.bit_length()), np.int64)
        self._mask = len(self._table) - 1
        self._free: list[int] = []
        self._fresh = 0  # slots from here on were never used
        self._holey = False  # memory of some was given back

    @property
    def most(self) -> int:
        """Chunks that one read may hold, so that several threads can read at once."""
        return max(1, self.cache.left // 4 // self.nbytes)

    def find(self, numbers: NDArray[np.int64]) -> Hold | None:
        """Hold chunks that are all in memory; None where one may not be.

        Without a Python object for each number, since batches of small rows ask for thousands.

        Parameters
        ----------
        numbers : ndarray of int64, shape (n,)
            Any order, repeats allowed.
        """
        with self.cache.lock:
            slots = self._table[numbers & self._mask]
            if (self._number[slots] != numbers).any():
                return None
            self.used[slots] = next(self.cache.clock)
            return Hold(slots, self.memory, self)

    def find_or_load(
        self, numbers: NDArray[np.int64], decode: Decode, together: bool = False
    ) -> Hold | None:
        """Hold chunks as `find` does, of which a few may not be in memory: these are decoded first.

        None where they are many, or others were evicted meanwhile. A block shuffle on lanes brings
        some new chunks with each read; rows of the rest are still gathered in one go. It takes 1.3
        times as long to gather all of them chunk by chunk (gzip, rows of 4 KB, NumPy).
        """
        with self.cache.lock:
            slots = self._table[numbers & self._mask]
            here = self._number[slots] == numbers
            self.used[slots[here]] = next(self.cache.clock)  # the last to be evicted meanwhile
            absent = np.unique(numbers[~here])
        alone = decodes_already() or holds_hdf5()  # then what is loaded is not cached
        if alone or not 0 < len(absent) <= self.most // 2:
            return None
        with self.load(absent.tolist(), decode, together):
            return self.find(numbers)

    def missing(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return which of these chunks are not in memory, nor being decoded."""
        with self.cache.lock:
            found = [number for number in numbers.tolist() if number not in self._slot_of]
        return np.array(found, np.int64)

    def load(self, numbers: Sequence[int], decode: Decode, together: bool = False) -> Hold:
        """Hold chunks, and decode those that are not in memory.

        Parameters
        ----------
        numbers : sequence of int
            Different from one another, at most `most`.
        decode : callable
            Called in several threads, but once for a chunk, also where several readers want it.
        together : bool
            It decodes in threads of its own, so it is given many chunks at once.

        Raises
        ------
        Exception
            As `decode` raises. Chunks that were decoded together with one that failed are not kept.
        """
        if decodes_already() or holds_hdf5():
            # Another thread may wait for what this one has: so this one waits for no other, and
            # decodes into memory of its own.
            memory = np.empty(len(numbers) * self.nbytes, np.uint8)
            decode(list(numbers), list(range(len(numbers))), memory)
            return Hold(np.arange(len(numbers)), memory)
        while True:
            hold, others = in_decoding_thread(lambda: self._load(numbers, decode, together))
            try:
                # Not in a decoding thread, which decodes other chunks meanwhile.
                for flight in others:
                    flight.ended.wait()
            except BaseException:
                hold.release()
                raise
            if not any(flight.failed for flight in others):
                return hold
            # Another reader failed, perhaps over a chunk that is not wanted here: decode ourselves.
            hold.release()

    def _load(
        self, numbers: Sequence[int], decode: Decode, together: bool
    ) -> tuple[Hold, set[_Flight]]:
        """Hold chunks, decode the missing ones, and return the flights of other readers."""
        trim()
        hold, own, others = self._claim(numbers, together)
        try:
            self._decode(own, decode)
        except BaseException:
            hold.release()
            raise
        return hold, others

    def _claim(
        self, numbers: Sequence[int], together: bool
    ) -> tuple[Hold, list[_Flight], set[_Flight]]:
        """Hold the slots of chunks, all of them or none; missing ones get a slot and a flight.

        None while there is no room for all: so threads that each hold some never wait for one
        another.
        """
        woken: SimpleQueue[None] = SimpleQueue()
        self.cache.waiting.append(woken)  # before it looks: what is let go meanwhile is not missed
        try:
            while (claimed := self._claimed(numbers, together)) is None:
                woken.get()
            return claimed
        finally:
            self.cache.waiting.remove(woken)

    def _claimed(
        self, numbers: Sequence[int], together: bool
    ) -> tuple[Hold, list[_Flight], set[_Flight]] | None:
        """Return what `_claim` does; None where there is no room now."""
        cache = self.cache
        with cache.lock:
            self._grow()
            missing = [number for number in numbers if number not in self._slot_of]
            mine = {self._slot_of[number] for number in numbers if number in self._slot_of}
            if not cache.make_room(self, len(missing), mine):
                return None
            others = {self._in_flight[number] for number in numbers if number in self._in_flight}
            own = [self._begin(some) for some in self._groups(missing, together)]
            slots = np.array([self._slot_of[number] for number in numbers], np.int64)
            self.used[slots] = next(cache.clock)
            return Hold(slots, self.memory, self), own, others

    def _grow(self) -> None:
        """Map as many slots as may be needed, if nobody is using those that there are."""
        capacity = min(self.chunks, max(1, self.cache.budget() // self.nbytes))
        if len(self.used) < capacity and self.drop():
            self._map(capacity)

    def drop(self) -> bool:
        """Forget all chunks and their memory; return False where somebody uses some."""
        if self.held or self._in_flight:
            return False
        self.cache.taken -= self.taken[0]
        self.empty()
        return True

    def _groups(self, missing: list[int], together: bool) -> Iterator[list[int]]:
        """Cut chunks into the groups that are decoded by one thread."""
        if together:
            step = max(1, scratch_share() // _SCRATCH // self.nbytes)
        else:
            least, most = max(1, _LEAST // self.nbytes), max(1, _MOST // self.nbytes)
            step = min(most, max(least, -(-len(missing) // _GROUPS)))
        for start in range(0, len(missing), step):
            yield missing[start : start + step]

    def _begin(self, numbers: list[int]) -> _Flight:
        """Give missing chunks slots."""
        flight = _Flight(numbers, [self._free_slot() for _ in numbers])
        for number, slot in zip(numbers, flight.slots, strict=True):
            self._in_flight[number], self._slot_of[number] = flight, slot
        nbytes = len(numbers) * self.nbytes
        self.taken[0] += nbytes
        self.cache.taken += nbytes
        return flight

    def _free_slot(self) -> int:
        if self._free:
            return self._free.pop()
        self._fresh += 1
        return self._fresh - 1

    def _decode(self, flights: list[_Flight], decode: Decode) -> None:
        """Decode flights, here and in threads that have nothing else to do."""
        memory = self.memory
        in_turns([partial(self._run, flight, decode, memory) for flight in flights])

    def _run(self, flight: _Flight, decode: Decode, memory: NDArray[np.uint8]) -> None:
        flight.failed = True
        try:
            with scratch(_SCRATCH * self._piece * len(flight.slots)):
                decode(flight.numbers, flight.slots, memory)
            flight.failed = False
        finally:
            self._land(flight)

    def _land(self, flight: _Flight) -> None:
        """Have decoded chunks found from now on, and forget those that failed."""
        with self.cache.lock:
            for number, slot in zip(flight.numbers, flight.slots, strict=True):
                if self._in_flight.get(number) is flight:  # nothing was forgotten
                    del self._in_flight[number]
                    self._number[slot] = number
                    self._table[number & self._mask] = slot
                    if flight.failed:
                        self.evict(slot, give_back=True)
        flight.ended.set()

    def pinned(self) -> set[int]:
        """Return the slots that somebody holds."""
        return {slot for held in list(self.held.values()) for slot in held.tolist()}

    def evict(self, slot: int, *, give_back: bool) -> None:
        """Forget the chunk in a slot; give its memory back, or leave it to the next chunk."""
        del self._slot_of[int(self._number[slot])]
        self._number[slot] = -1
        self.used[slot] = 0
        self.taken[0] -= self.nbytes
        self.cache.taken -= self.nbytes
        self._free.append(slot)
        if give_back:
            self._give_back(slot)

    def _give_back(self, slot: int) -> None:
        """Give the system the pages of a slot, with those that it shares with free neighbours."""
        if not self._holey:  # or the system would fill holes in huge pages when it has time
            self._holey = True
            _advise(self._mapping, "MADV_NOHUGEPAGE", 0, self.room)
        page, first, end = mmap.PAGESIZE, slot, slot + 1
        start, stop = slot * self.nbytes // page * page, -(-end * self.nbytes // page) * page
        while first * self.nbytes > start and not self.used[first - 1]:
            first -= 1
        while end * self.nbytes < stop and end < len(self.used) and not self.used[end]:
            end += 1
        start = max(start, -(-first * self.nbytes // page) * page)
        stop = min(stop, end * self.nbytes // page * page)
        _advise(self._mapping, "MADV_DONTNEED", start, stop - start)


def _reserve(nbytes: int) -> mmap.mmap:
    # Private: Python's own default would share the slots with a forked child.
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    try:
        mapping = mmap.mmap(-1, nbytes, flags=flags)
    except (OSError, OverflowError) as error:
        raise MemoryError(f"no address space for {nbytes} bytes of decoded chunks") from error
    small = min(nbytes, _SMALL_PAGES)
    _advise(mapping, "MADV_NOHUGEPAGE", 0, small)
    _advise(mapping, "MADV_HUGEPAGE", small, nbytes - small)
    return mapping


def _advise(mapping: mmap.mmap | None, name: str, start: int, nbytes: int) -> None:
    """Tell the system how memory is used; it is only advice, and not every system takes it."""
    advice = getattr(mmap, name, None)
    if mapping is not None and advice is not None and nbytes > 0:
        with suppress(OSError):
            mapping.madvise(advice, start, nbytes)


cache = Cache()
"""The process's own."""
account().cached = lambda: cache.nbytes

if hasattr(os, "register_at_fork"):
    # Chunks that a thread of the parent was decoding would never arrive in the child.
    os.register_at_fork(after_in_child=cache.begin)
