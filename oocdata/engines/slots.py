"""Keep decoded chunks of one size side by side, so that a batch is one gather from all of them.

A chunk has a number in its array, in C order of the grid (`chunks` of an `ArrayCache`); a number
that no other chunk of its size ever had (`numbers` here); and, while it is in memory or being
decoded, a slot.
"""

from __future__ import annotations

import mmap
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Ints
from oocdata.engines.buffers import advise, reserve, trim
from oocdata.engines.decoding import in_decoding_thread, run_tasks
from oocdata.index import distinct
from oocdata.memory import scratch_share
from oocdata.threads import cores

if TYPE_CHECKING:
    from oocdata.engines.cache import Cache

Decode: TypeAlias = Callable[[list[int], list[int], NDArray[np.uint8]], None]
"""Function that decodes chunks, given their numbers, into slots of a memory."""

SCRATCH_FACTOR = 2
"""Decoding takes the stored bytes and one intermediate form, each about as long as a chunk."""

_TASK_BYTES = 1 << 18, 4 << 20
"""Least and most bytes of chunks that one thread decodes at a time. Threads that take few chunks
hinder one another: two of 128 KiB at a time, chunks of gzip take 1.35 times as long."""

_SMALL_PAGES = 16 << 20
"""Bytes of slots in small pages; the rest is in huge pages, the last of which may be partly wasted.
With these, a first epoch of gzip chunks of 128 KiB takes 1 / 1.2 of the processor time."""

_TABLE = 1 << 16
"""Maximum size of the table that maps remainders of chunk numbers to slots."""


class Pin:
    """Chunks that stay in memory until they are released, or the object is garbage-collected.

    `slots` (int64) has the slot of each chunk, in the order of the request; slot `i` of `memory`
    (uint8) begins at byte ``i * nbytes``.
    """

    __slots__ = ("_owner", "memory", "slots")

    def __init__(self, slots: Ints, memory: NDArray[np.uint8], owner: Slots | None = None) -> None:
        self.slots, self.memory, self._owner = slots, memory, owner
        if owner is not None:
            owner.pins[id(self)] = slots

    def __enter__(self) -> Pin:
        return self

    def release(self, *_: object) -> None:
        """Unpin the chunks; a second call does nothing.

        Takes no lock: the garbage collector may call it in any thread, at any point.
        """
        if self._owner is not None:
            self._owner.pins.pop(id(self), None)
            for waiting in list(self._owner.cache.waiting):
                waiting.put(None)
            self._owner = None  # last: a second call completes a first one that was interrupted

    __exit__ = __del__ = release  # an interrupt may come between any two instructions of the reader


class _DecodeTask:
    """Chunks that one thread is decoding."""

    __slots__ = ("ended", "failed", "numbers", "slots")

    def __init__(self, numbers: list[int], slots: list[int]) -> None:
        self.numbers, self.slots = numbers, slots
        self.failed = False
        self.ended = threading.Event()


class Slots:
    """Memory for chunks of `nbytes` each, side by side in `memory` (uint8).

    `pins` has the slots of each `Pin`. For each slot, `last_used` is the time at which it was used
    last, 0 if it is free, and `number` that of its chunk, 0 until it is decoded. `table` has the
    slot of the chunk decoded last for each remainder of numbers; `mask` gives remainders.
    """

    def __init__(self, cache: Cache, nbytes: int) -> None:
        self.cache, self.nbytes = cache, nbytes
        self._arrays: dict[int, range] = {}  # the numbers of their chunks, by the first
        self._next_number = 1  # 0 is no chunk
        self.empty()

    def empty(self) -> None:
        """Forget all chunks; a reader that gathers from them keeps their memory."""
        self.used_bytes = 0
        self.pins: dict[int, Ints] = {}
        self._slot_of: dict[int, int] = {}  # of chunks in memory or being decoded
        self._tasks: dict[int, _DecodeTask] = {}  # of chunks being decoded
        self._map(0)

    def _map(self, capacity: int) -> None:
        """Reserve address space for slots; it becomes memory when it is first written."""
        self._mapping = _reserve(capacity * self.nbytes) if capacity else None
        self.memory = np.frombuffer(self._mapping or b"", np.uint8)
        self._capacity, self.room = capacity, capacity * self.nbytes
        self.last_used = np.zeros(capacity, np.int64)
        self.number = np.zeros(max(1, capacity), np.int64)  # of the chunk, once it is decoded
        self._free: list[int] = []
        self._fresh = 0  # slots from here on were never used
        self._has_holes = False  # pages of evicted slots were returned
        self._make_table()

    def _make_table(self) -> None:
        """Make the table of the slot of the chunk decoded last, for each remainder of numbers."""
        self.table = np.zeros(min(_TABLE, 1 << self._next_number.bit_length()), np.int64)
        self.mask = len(self.table) - 1
        decoded = np.flatnonzero(self.number[: self._fresh])
        self.table[self.number[decoded] & self.mask] = decoded

    def in_use(self) -> Ints:
        """Return the slots that are in use."""
        return np.flatnonzero(self.last_used[: self._fresh])

    def new_numbers(self, chunks: int) -> range:
        """Return numbers for the chunks of another array, which no other chunk ever had."""
        first = self._next_number
        if self._arrays:
            # In the table they follow those of the last array, though others came and went.
            last = self._arrays[next(reversed(self._arrays))]
            first += (last.stop - first) % _TABLE
        numbers = self._arrays[first] = range(first, first + chunks)
        self._next_number = first + max(1, chunks)
        if len(self.table) < min(_TABLE, 1 << self._next_number.bit_length()):
            self._make_table()
        return numbers

    def drop_numbers(self, numbers: range) -> bool:
        """Evict the chunks of an array that is gone; return whether no array is left."""
        del self._arrays[numbers.start]
        if not self._arrays:
            return self.drop()
        for slot in set(self.filled(numbers).tolist()) - self.pinned():
            self.evict(slot, give_back=True)
        return False

    def filled(self, numbers: range) -> Ints:
        """Return the slots of decoded chunks."""
        held = self.number[: self._fresh]
        return np.flatnonzero((held >= numbers.start) & (held < numbers.stop))

    def absent(self, numbers: Ints) -> Ints:
        """Return the distinct numbers that `find` does not find; others are evicted last."""
        with self.cache.lock:
            slots = self.table[numbers & self.mask]
            cached = self.number[slots] == numbers
            self.last_used[slots[cached]] = next(self.cache.clock)
            return distinct(numbers[~cached])

    def missing(self, numbers: Ints) -> list[bool]:
        """Return whether each chunk is neither cached nor being decoded."""
        with self.cache.lock:
            return [number not in self._slot_of for number in numbers.tolist()]

    def load(self, numbers: Sequence[int], decode: Decode, own_threads: bool) -> Pin:
        """Pin chunks, after decoding those not cached; see `ArrayCache.load`."""
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
        """Pin chunks and decode the missing ones; return tasks of other readers to wait for.

        Waits until there is room for all of them: threads that each claim some, and wait for more,
        could wait for one another.
        """
        trim()
        woken: SimpleQueue[None] = SimpleQueue()
        self.cache.waiting.append(woken)  # before the first try, so that no release is missed
        try:
            while (claimed := self._claim(numbers, own_threads)) is None:
                woken.get()
        finally:
            self.cache.waiting.remove(woken)
        (pin, own, others), memory = claimed, self.memory
        try:
            run_tasks([partial(self._run, task, decode, memory) for task in own])
        except BaseException:
            pin.release()
            raise
        return pin, others

    def _claim(
        self, numbers: Sequence[int], own_threads: bool
    ) -> tuple[Pin, list[_DecodeTask], set[_DecodeTask]] | None:
        """Pin the slots of chunks; return also tasks for missing ones, and tasks of other threads.

        None if there is no room now.
        """
        cache = self.cache
        with cache.changing():
            capacity = max(1, cache.budget() // self.nbytes)
            if self._capacity < capacity and self.drop():  # no slot is in use
                self._map(capacity)
            # Each once: an array may be joined twice.
            missing = [number for number in dict.fromkeys(numbers) if number not in self._slot_of]
            keep = {self._slot_of[number] for number in numbers if number in self._slot_of}
            if not cache.make_room(self, len(missing), keep):
                return None
            others = {self._tasks[number] for number in numbers if number in self._tasks}
            own = []
            for group in decode_groups(missing, self.nbytes, own_threads):
                own.append(task := _DecodeTask(group, [self._free_slot() for _ in group]))
                self._tasks.update(dict.fromkeys(group, task))
                self._slot_of.update(zip(group, task.slots, strict=True))
            self._count(len(missing))
            slots = np.array([self._slot_of[number] for number in numbers], np.int64)
            self.last_used[slots] = next(cache.clock)
            return Pin(slots, self.memory, self), own, others

    def drop(self) -> bool:
        """Forget all chunks and their memory; return False if some are pinned or being decoded."""
        if self.pins or self._tasks:
            return False
        self.cache.used_bytes -= self.used_bytes
        self.empty()
        return True

    def _count(self, chunks: int) -> None:
        """Count the bytes of more chunks, or of fewer."""
        self.used_bytes += chunks * self.nbytes
        self.cache.used_bytes += chunks * self.nbytes

    def _free_slot(self) -> int:
        if self._free:
            return self._free.pop()
        self._fresh += 1
        return self._fresh - 1

    def _run(self, task: _DecodeTask, decode: Decode, memory: NDArray[np.uint8]) -> None:
        """Run a task; readers find its chunks from then on, or those are evicted if it fails."""
        task.failed = True
        try:
            decode(task.numbers, task.slots, memory)
            task.failed = False
        finally:
            with self.cache.lock:
                for number, slot in zip(task.numbers, task.slots, strict=True):
                    if self._tasks.get(number) is task:  # `empty` was not called meanwhile
                        del self._tasks[number]
                        self.number[slot] = number
                        self.table[number & self.mask] = slot
                        if task.failed:
                            self.evict(slot, give_back=True)
            task.ended.set()

    def pinned(self) -> set[int]:
        """Return the slots that are pinned."""
        return {slot for slots in list(self.pins.values()) for slot in slots.tolist()}

    def evict(self, slot: int, *, give_back: bool) -> None:
        """Forget the chunk in a slot; return its pages to the system if `give_back`."""
        del self._slot_of[int(self.number[slot])]
        self.number[slot] = self.last_used[slot] = 0
        self._count(-1)
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
        while end * self.nbytes < stop and end < self._capacity and not self.last_used[end]:
            end += 1
        start = max(start, -(-first * self.nbytes // page) * page)
        stop = min(stop, end * self.nbytes // page * page)
        advise(self._mapping, "MADV_DONTNEED", start, stop - start)


def decode_groups(chunks: list[int], nbytes: int, own_threads: bool) -> Iterator[list[int]]:
    """Divide chunks of `nbytes` each into the groups that are decoded by one thread."""
    threads = 1 if own_threads else cores()
    most = scratch_share() // SCRATCH_FACTOR // threads
    step = -(-len(chunks) // threads)
    if not own_threads:
        least, most = _TASK_BYTES[0], min(_TASK_BYTES[1], most)
        step = max(step, least // nbytes)
    step = max(1, min(step, most // nbytes))
    for start in range(0, len(chunks), step):
        yield chunks[start : start + step]


def _reserve(nbytes: int) -> mmap.mmap:
    mapping = reserve(mmap.mmap, nbytes, getattr(mmap, "MAP_NORESERVE", 0))
    small = min(nbytes, _SMALL_PAGES)
    advise(mapping, "MADV_NOHUGEPAGE", 0, small)
    advise(mapping, "MADV_HUGEPAGE", small, nbytes - small)
    return mapping
