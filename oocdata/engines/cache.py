"""Cache decoded chunks of all arrays: least recently used, within one byte budget.

A batch takes rows from many chunks. If each chunk had memory of its own, a batch would take one
copy per chunk. So the cached chunks of an array are *slots* of one mapping, side by side, and a
batch is one gather by row number, outside the GIL, however many chunks its rows come from. The
arrays share the budget: to make room for another array, a slot's pages are returned to the system;
to make room for a chunk of the same array, its slot is reused.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from itertools import count, repeat
from operator import itemgetter
from queue import SimpleQueue
from typing import TypeAlias
from weakref import WeakKeyDictionary, WeakValueDictionary, finalize, ref

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.buffers import advise, trim
from oocdata.engines.decoding import in_decoding_thread, is_decoding, run_tasks, scratch
from oocdata.memory import account, cache_share, scratch_share
from oocdata.threads import holds_hdf5

__all__ = ["ArrayCache", "Cache", "Decode", "Pin", "cache"]

Decode: TypeAlias = Callable[[list[int], list[int], NDArray[np.uint8]], None]
"""Function that decodes chunks, given their numbers, into slots of a memory."""

_SCRATCH_FACTOR = 2
"""Decoding takes the stored bytes and one intermediate form, each about as long as a chunk."""

_GROUPS, _MIN_GROUP_BYTES, _MAX_GROUP_BYTES = 4, 1 << 16, 1 << 20
"""Missing chunks are decoded in about `_GROUPS` groups, of a size between these bounds."""

_SMALL_PAGES = 16 << 20
"""Bytes of an array's slots in small pages; the rest is in huge pages, the last of which may be
partly wasted. A first epoch of gzip chunks of 128 KiB takes 1 / 1.2 of the processor's time with
them, of zstd 1 / 1.1; later epochs, which only gather, 1 / 1.1 to 1 / 1.2."""

_TABLE = 1 << 16
"""Maximum size of the table that maps remainders of chunk numbers to slots."""


class Pin:
    """Chunks that stay in memory until they are released, or the object is garbage-collected.

    Attributes
    ----------
    slots : ndarray of int64, shape (n,)
        Slot of each chunk, in the order of the request.
    memory : ndarray of uint8
        Slot `i` begins at byte ``i * nbytes``.
    """

    __slots__ = ("_array", "memory", "slots")

    def __init__(
        self, slots: NDArray[np.int64], memory: NDArray[np.uint8], array: ArrayCache | None = None
    ) -> None:
        self.slots, self.memory, self._array = slots, memory, array
        if array is not None:
            array.pins[id(self)] = slots

    def __enter__(self) -> Pin:
        return self

    def release(self, *_: object) -> None:
        """Unpin the chunks; a second call does nothing.

        Takes no lock: the garbage collector may call it in any thread, at any point.
        """
        if self._array is not None:
            self._array.pins.pop(id(self), None)
            for waiting in list(self._array.cache.waiting):
                waiting.put(None)
            self._array = None  # last: a second call completes a first one that was interrupted

    __exit__ = __del__ = release  # an interrupt may come between any two instructions of the reader


class _DecodeTask:
    """Chunks that one thread is decoding."""

    __slots__ = ("ended", "failed", "numbers", "slots")

    def __init__(self, numbers: list[int], slots: list[int]) -> None:
        self.numbers, self.slots = numbers, slots
        self.failed = False
        self.ended = threading.Event()


class Cache:
    """Decoded chunks of several arrays within one budget.

    Parameters
    ----------
    budget : callable
        Returns the bytes that may be cached; called whenever room is made.

    Examples
    --------
    >>> cache = Cache(lambda: 16)
    >>> array = cache.array("an array", nbytes=8, chunks=100)
    >>> array.load([7], lambda numbers, slots, memory: print("decode", numbers)).release()
    decode [7]
    >>> array.find(np.array([7, 7])) is None, array.find(np.array([9])) is None, cache.nbytes
    (False, True, 8)
    """

    def __init__(self, budget: Callable[[], int] = cache_share) -> None:
        self.budget = budget
        self._arrays: WeakValueDictionary[Hashable, ArrayCache] = WeakValueDictionary()
        self._collected: deque[list[int]] = deque()
        #: Arrays that are cached whole, and whether they stay so beside others' chunks.
        self._whole: WeakKeyDictionary[ArrayCache, bool] = WeakKeyDictionary()
        self.reset()

    def reset(self) -> None:
        """Start empty, with new locks; also in a forked child."""
        # Re-entrant, because the garbage collector may end an iteration at any point.
        self.lock = threading.RLock()
        #: One queue per thread that waits for room; each gets an item when a pin is released.
        self.waiting: list[SimpleQueue[None]] = []
        self.used_bytes = 0
        self.clock = count(1)
        self._collected.clear()
        self._by_age: list[tuple[int, int, ref[ArrayCache]]] = []  # the oldest at the end
        for array in list(self._arrays.values()):
            array.empty()

    def array(self, key: Hashable, nbytes: int, chunks: int, piece_bytes: int = 0) -> ArrayCache:
        """Return the cache of an array, which all its readers share.

        Parameters
        ----------
        key : hashable
            Identifies the array, and the version of its file.
        nbytes : int
            Bytes of a decoded chunk.
        chunks : int
            Number of chunks of the array.
        piece_bytes : int
            Bytes that are decoded at a time, where a chunk is decoded in several pieces.
        """
        with self.lock:
            array = self._arrays.get(key)
            if array is None:
                array = ArrayCache(self, nbytes, chunks, piece_bytes or nbytes)
                self._arrays[key] = array
                # Only noted: the collector may call it while a thread is changing `used_bytes`.
                finalize(array, self._collected.append, array.used_bytes).atexit = False
            return array

    @property
    def nbytes(self) -> int:
        """Bytes of the chunks in memory, including those being decoded."""
        with self.lock:
            while self._collected:
                freed = self._collected.popleft()[0]
                self.used_bytes -= freed  # one step: the collector may come here again before it
            return self.used_bytes

    @property
    def available(self) -> int:
        """Bytes that may be cached: the budget without the part that batches have borrowed."""
        return self.budget() - account().borrowed

    def keeps(self, array: ArrayCache) -> bool:
        """Return whether all chunks of an array may stay, beside the arrays for which they do.

        Otherwise such arrays would evict one another. Together they take up to half of the budget,
        which leaves room for a shuffle of other chunks, or as much as others leave: 50,000 pictures
        of 3 KiB, 146 of 256 MiB, are read 2.1 times as fast by NumPy iteration as without the
        cache, 1.5 times through `to_tf`.

        Examples
        --------
        >>> cache = Cache(lambda: 32)
        >>> whole = cache.array("three chunks", nbytes=8, chunks=3)
        >>> cache.keeps(whole)
        True
        >>> other = cache.array("another", nbytes=8, chunks=9)
        >>> other.load([0], lambda *_: None).release()
        >>> cache.keeps(whole)
        False
        """
        if self._whole.get(array):
            return True
        with self.lock:
            whole = {array, *self._whole}
            total = sum(each.nbytes * each.chunks for each in whole)
            others = self.nbytes - sum(each.used_bytes[0] for each in whole)
            stays = array not in self._whole and total <= self.budget() // 2
            # Others that fill the last eighth need more.
            keeps = stays or total + others <= self.available // 8 * 7
            self._whole.pop(array, None)
            if keeps:
                self._whole[array] = stays
            return keeps

    def make_room(self, array: ArrayCache, chunks: int, keep: set[int]) -> bool:
        """Evict the least recently used chunks until more fit; return whether they do.

        The budget may be exceeded if no chunks are pinned.

        Parameters
        ----------
        array : ArrayCache
            Cache that needs room.
        chunks : int
            Number of chunks it needs room for.
        keep : set of int
            Slot numbers of `array` that must not be evicted.
        """
        need, budget = chunks * array.nbytes, self.available
        pinned: dict[int, set[int]] = {}
        skipped: list[tuple[int, int, ref[ArrayCache]]] = []
        listed = False
        while self.nbytes + need > budget or array.used_bytes[0] + need > array.room:
            if not self._by_age and listed:
                break
            if not self._by_age:
                skipped.clear()  # the new list has them again
                self._by_age, listed = self._listed_by_age(), True
                continue
            entry = self._by_age.pop()
            last_used, slot, reference = entry
            victim = reference()
            # Skip chunks used since the list was made: they are the most recent, so order holds.
            if (
                victim is None
                or slot >= len(victim.last_used)
                or victim.last_used[slot] != last_used
            ):
                continue
            if id(victim) not in pinned:
                pinned[id(victim)] = victim.pinned() | (keep if victim is array else set())
            if slot in pinned[id(victim)]:
                skipped.append(entry)
            else:
                victim.evict(slot, give_back=victim is not array)
        self._by_age += reversed(skipped)
        if array.used_bytes[0] + need > array.room:
            return False
        if self.nbytes + need <= budget:
            return True
        return not any(other.pins for other in list(self._arrays.values()))

    def forget(self) -> None:
        """Evict all chunks that are not pinned, so that later reads decode anew."""
        with self.lock:
            for array in list(self._arrays.values()):
                if array.drop():
                    continue
                for slot in set(np.flatnonzero(array.last_used).tolist()) - array.pinned():
                    array.evict(slot, give_back=True)

    def listed(self) -> dict[tuple[int, int], int]:
        """Return the bytes of each decoded chunk by the array's id and number, the oldest first."""
        with self.lock:
            entries = [(slot, array()) for _, slot, array in reversed(self._listed_by_age())]
            return {
                (id(array), array.number(slot)): array.nbytes
                for slot, array in entries
                if array is not None
            }

    def _listed_by_age(self) -> list[tuple[int, int, ref[ArrayCache]]]:
        """Return the time of last use, the slot and the array of each chunk, the oldest last."""
        entries: list[tuple[int, int, ref[ArrayCache]]] = []
        for array in list(self._arrays.values()):
            slots = np.flatnonzero(array.last_used)
            times = array.last_used[slots].tolist()
            entries += zip(times, slots.tolist(), repeat(ref(array)), strict=False)
        entries.sort(key=itemgetter(0), reverse=True)
        return entries


class ArrayCache:
    """The cached chunks of one array, side by side in memory; made by `Cache.array`.

    Attributes
    ----------
    nbytes : int
        Bytes of a chunk.
    memory : ndarray of uint8
    pins : dict of ndarray of int64
        The slots of each `Pin`.
    used_bytes : list of int
        Bytes of the slots in use: one number, in a list because it outlives this object.
    reading : int
        First chunk of those that a thread began to read last; any number is valid.
    """

    def __init__(self, cache: Cache, nbytes: int, chunks: int, piece_bytes: int) -> None:
        self.cache, self.nbytes, self.chunks = cache, nbytes, chunks
        self._piece_bytes = piece_bytes
        self.used_bytes = [0]
        self.reading = 0
        self.empty()

    def empty(self) -> None:
        """Forget all chunks; a reader that gathers from them keeps their memory."""
        self.used_bytes[0] = 0
        self.pins: dict[int, NDArray[np.int64]] = {}
        self._slot_of: dict[int, int] = {}  # of chunks in memory or being decoded
        self._tasks: dict[int, _DecodeTask] = {}  # of chunks being decoded
        self._map(0)

    def _map(self, capacity: int) -> None:
        """Reserve address space for slots; it becomes memory when it is first written."""
        self._mapping = _reserve(capacity * self.nbytes) if capacity else None
        self.memory = np.frombuffer(self._mapping or b"", np.uint8)
        self.room = capacity * self.nbytes
        self.last_used = np.zeros(capacity, np.int64)  # 0 for free slots
        self._number = np.full(max(1, capacity), -1)  # of the chunk; -1 until it is decoded
        # The slot of the chunk decoded last, for each remainder of chunk numbers.
        self._table = np.zeros(min(_TABLE, 1 << self.chunks.bit_length()), np.int64)
        self._mask = len(self._table) - 1
        self._free: list[int] = []
        self._fresh = 0  # slots from here on were never used
        self._has_holes = False  # pages of evicted slots were returned

    @property
    def most(self) -> int:
        """Chunks that one read may pin, so that several threads can read at once."""
        return max(1, self.cache.available // 4 // self.nbytes)

    def find(self, numbers: NDArray[np.int64]) -> Pin | None:
        """Pin chunks if all of them are cached; else return None.

        None may also be returned for cached chunks. No Python object is made per number, since
        batches of small rows request thousands.

        Parameters
        ----------
        numbers : ndarray of int64, shape (n,)
            Any order, repeats allowed.
        """
        with self.cache.lock:
            slots = self._table[numbers & self._mask]
            if (self._number[slots] != numbers).any():
                return None
            self.last_used[slots] = next(self.cache.clock)
            return Pin(slots, self.memory, self)

    def find_or_load(
        self, numbers: NDArray[np.int64], decode: Decode, own_threads: bool = False
    ) -> Pin | None:
        """Pin chunks as `find` does, after decoding those not cached, if they are few.

        Returns None if they are many, or if others were evicted meanwhile. A block shuffle on lanes
        needs some new chunks with each read; this way all its rows are gathered in one go.
        Gathering chunk by chunk takes 1.3 times as long (rows of 4 KB, 410 MB in chunks of gzip or
        Zstandard, NumPy).
        """
        with self.cache.lock:
            slots = self._table[numbers & self._mask]
            cached = self._number[slots] == numbers
            self.last_used[slots[cached]] = next(self.cache.clock)  # evicted last
            absent = np.unique(numbers[~cached])
        uncached = is_decoding() or holds_hdf5()  # then `load` does not cache
        if uncached or not 0 < len(absent) <= self.most // 2:
            return None
        with self.load(absent.tolist(), decode, own_threads):
            return self.find(numbers)

    def number(self, slot: int) -> int:
        """Return the number of the chunk in a slot; -1 until it is decoded."""
        return int(self._number[slot])

    def missing(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of those chunks that are neither cached nor being decoded."""
        with self.cache.lock:
            found = [number for number in numbers.tolist() if number not in self._slot_of]
        return np.array(found, np.int64)

    def load(self, numbers: Sequence[int], decode: Decode, own_threads: bool = False) -> Pin:
        """Pin chunks, after decoding those not cached.

        Parameters
        ----------
        numbers : sequence of int
            Distinct, at most `most`.
        decode : callable
            Called in several threads, but once per chunk, even if several readers need it.
        own_threads : bool
            `decode` uses threads of its own, so it is given many chunks at once.

        Raises
        ------
        Exception
            From `decode`. Chunks decoded in one call with a chunk that failed are not cached.
        """
        if is_decoding() or holds_hdf5():
            # Other threads may wait for this one: it must not wait for them, so it decodes into
            # memory of its own.
            memory = np.empty(len(numbers) * self.nbytes, np.uint8)
            decode(list(numbers), list(range(len(numbers))), memory)
            return Pin(np.arange(len(numbers)), memory)
        while True:
            pin, others = in_decoding_thread(lambda: self._load(numbers, decode, own_threads))
            try:
                # In this thread: the decoding threads are free for other chunks meanwhile.
                for task in others:
                    task.ended.wait()
            except BaseException:
                pin.release()
                raise
            if not any(task.failed for task in others):
                return pin
            # Another reader failed, perhaps over a chunk that is not needed here: decode ourselves.
            pin.release()

    def _load(
        self, numbers: Sequence[int], decode: Decode, own_threads: bool
    ) -> tuple[Pin, set[_DecodeTask]]:
        """Pin chunks and decode the missing ones; return tasks of other readers to wait for."""
        trim()
        pin, own, others = self._claim(numbers, own_threads)
        try:
            self._decode(own, decode)
        except BaseException:
            pin.release()
            raise
        return pin, others

    def _claim(
        self, numbers: Sequence[int], own_threads: bool
    ) -> tuple[Pin, list[_DecodeTask], set[_DecodeTask]]:
        """Pin the slots of chunks, and start tasks for missing ones; wait until there is room.

        All slots are claimed at once, so threads that each pin some never wait for one another.

        Returns
        -------
        pin : Pin
        own, others : list and set of _DecodeTask
            Tasks that this thread must run, and tasks of other threads to wait for.
        """
        woken: SimpleQueue[None] = SimpleQueue()
        self.cache.waiting.append(woken)  # before the first try, so that no release is missed
        try:
            while (claimed := self._try_claim(numbers, own_threads)) is None:
                woken.get()
            return claimed
        finally:
            self.cache.waiting.remove(woken)

    def _try_claim(
        self, numbers: Sequence[int], own_threads: bool
    ) -> tuple[Pin, list[_DecodeTask], set[_DecodeTask]] | None:
        """Do what `_claim` does; return None if there is no room now."""
        cache = self.cache
        with cache.lock:
            self._grow()
            missing = [number for number in numbers if number not in self._slot_of]
            keep = {self._slot_of[number] for number in numbers if number in self._slot_of}
            if not cache.make_room(self, len(missing), keep):
                return None
            others = {self._tasks[number] for number in numbers if number in self._tasks}
            own = [self._begin(group) for group in self._groups(missing, own_threads)]
            slots = np.array([self._slot_of[number] for number in numbers], np.int64)
            self.last_used[slots] = next(cache.clock)
            return Pin(slots, self.memory, self), own, others

    def _grow(self) -> None:
        """Map as many slots as the budget allows, if none of the present ones is in use."""
        capacity = min(self.chunks, max(1, self.cache.budget() // self.nbytes))
        if len(self.last_used) < capacity and self.drop():
            self._map(capacity)

    def drop(self) -> bool:
        """Forget all chunks and their memory; return False if some are pinned or being decoded."""
        if self.pins or self._tasks:
            return False
        self.cache.used_bytes -= self.used_bytes[0]
        self.empty()
        return True

    def _groups(self, missing: list[int], own_threads: bool) -> Iterator[list[int]]:
        """Cut chunks into the groups that are decoded by one thread."""
        if own_threads:
            step = max(1, scratch_share() // _SCRATCH_FACTOR // self.nbytes)
        else:
            least = max(1, _MIN_GROUP_BYTES // self.nbytes)
            most = max(1, _MAX_GROUP_BYTES // self.nbytes)
            step = min(most, max(least, -(-len(missing) // _GROUPS)))
        for start in range(0, len(missing), step):
            yield missing[start : start + step]

    def _begin(self, numbers: list[int]) -> _DecodeTask:
        """Assign slots to missing chunks."""
        task = _DecodeTask(numbers, [self._free_slot() for _ in numbers])
        for number, slot in zip(numbers, task.slots, strict=True):
            self._tasks[number], self._slot_of[number] = task, slot
        nbytes = len(numbers) * self.nbytes
        self.used_bytes[0] += nbytes
        self.cache.used_bytes += nbytes
        return task

    def _free_slot(self) -> int:
        if self._free:
            return self._free.pop()
        self._fresh += 1
        return self._fresh - 1

    def _decode(self, tasks: list[_DecodeTask], decode: Decode) -> None:
        """Run decode tasks in this thread and in idle decoding threads."""
        memory = self.memory
        run_tasks([partial(self._run, task, decode, memory) for task in tasks])

    def _run(self, task: _DecodeTask, decode: Decode, memory: NDArray[np.uint8]) -> None:
        task.failed = True
        try:
            with scratch(_SCRATCH_FACTOR * self._piece_bytes * len(task.slots)):
                decode(task.numbers, task.slots, memory)
            task.failed = False
        finally:
            self._finish(task)

    def _finish(self, task: _DecodeTask) -> None:
        """Let readers find the chunks of a task from now on, or evict them if it failed."""
        with self.cache.lock:
            for number, slot in zip(task.numbers, task.slots, strict=True):
                if self._tasks.get(number) is task:  # `empty` was not called meanwhile
                    del self._tasks[number]
                    self._number[slot] = number
                    self._table[number & self._mask] = slot
                    if task.failed:
                        self.evict(slot, give_back=True)
        task.ended.set()

    def pinned(self) -> set[int]:
        """Return the slots that are pinned."""
        return {slot for slots in list(self.pins.values()) for slot in slots.tolist()}

    def evict(self, slot: int, *, give_back: bool) -> None:
        """Forget the chunk in a slot; return its pages to the system if `give_back`."""
        del self._slot_of[int(self._number[slot])]
        self._number[slot] = -1
        self.last_used[slot] = 0
        self.used_bytes[0] -= self.nbytes
        self.cache.used_bytes -= self.nbytes
        self._free.append(slot)
        if give_back:
            self._give_back(slot)

    def _give_back(self, slot: int) -> None:
        """Return the pages of a slot to the system, with those shared with free neighbours."""
        if not self._has_holes:  # else the system would fill holes in huge pages when idle
            self._has_holes = True
            advise(self._mapping, "MADV_NOHUGEPAGE", 0, self.room)
        page, first, end = mmap.PAGESIZE, slot, slot + 1
        start, stop = slot * self.nbytes // page * page, -(-end * self.nbytes // page) * page
        while first * self.nbytes > start and not self.last_used[first - 1]:
            first -= 1
        while end * self.nbytes < stop and end < len(self.last_used) and not self.last_used[end]:
            end += 1
        start = max(start, -(-first * self.nbytes // page) * page)
        stop = min(stop, end * self.nbytes // page * page)
        advise(self._mapping, "MADV_DONTNEED", start, stop - start)


def _reserve(nbytes: int) -> mmap.mmap:
    # Private: Python's default would share the slots with a forked child.
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    try:
        mapping = mmap.mmap(-1, nbytes, flags=flags)
    except (OSError, OverflowError) as error:
        raise MemoryError(f"no address space for {nbytes} bytes of decoded chunks") from error
    small = min(nbytes, _SMALL_PAGES)
    advise(mapping, "MADV_NOHUGEPAGE", 0, small)
    advise(mapping, "MADV_HUGEPAGE", small, nbytes - small)
    return mapping


cache = Cache()
"""The cache of this process."""
account().cached = lambda: cache.nbytes

# Chunks that a thread of the parent was decoding would never be completed in the child.
os.register_at_fork(after_in_child=cache.reset)
