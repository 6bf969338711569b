"""Cache decoded chunks of all arrays: least recently used, within one byte budget.

All cached chunks of one size are *slots* of one mapping, side by side, so a batch is one gather by
row number, outside the GIL, however many chunks and arrays its rows come from. A chunk takes the
slot of an evicted one of its size; to make room for another size, a slot's pages are returned.

`Cache` decides which chunks stay, of all sizes. `slots.Slots` has the memory of one size, and has
missing chunks decoded into it. `ArrayCache` finds and loads the chunks of one array.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from queue import SimpleQueue
from weakref import WeakKeyDictionary, WeakValueDictionary, finalize

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Ints
from oocdata.engines.decoding import must_not_wait, scratch
from oocdata.engines.slots import SCRATCH_FACTOR, Decode, Pin, Slots
from oocdata.index import distinct
from oocdata.memory import account, cache_share

_UNCACHED_BYTES = 256 << 10
"""Bytes from which on a chunk may be decoded past the cache: copying it costs more than a call."""

MANY_TIMES = 4
"""The chunks of an array may be decoded past the cache if they have this many times its room. If
small rows do, the cache would hold too few of them to gain."""

_MOST_LISTED = 4096
"""Chunks that are listed by age at a time. A list of all chunks of 128 bytes takes more memory than
they do."""

_FEW_AGAIN = 8
"""Chunks come again seldom if at most one in this many did."""


class Cache:
    """Decoded chunks of several arrays within a budget: that many bytes as `budget` returns."""

    def __init__(self, budget: Callable[[], int] = cache_share) -> None:
        self.budget = budget
        self._arrays: WeakValueDictionary[Hashable, ArrayCache] = WeakValueDictionary()
        self._slots: dict[int, Slots] = {}  # by the bytes of a chunk
        self._collected: deque[tuple[Slots, range]] = deque()
        #: Arrays that are cached as far as there is room; the budget of which any others' chunks
        #: leave enough for the whole array, or 0.
        self._kept: WeakKeyDictionary[ArrayCache, int] = WeakKeyDictionary()
        self.reset()

    def reset(self) -> None:
        """Start empty, with new locks; also in a forked child."""
        # Re-entrant, because the garbage collector may end an iteration at any point.
        self.lock = threading.RLock()
        #: One queue per thread that waits for room; each gets an item when a pin is released.
        self.waiting: list[SimpleQueue[None]] = []
        self.used_bytes = 0
        self.clock = count(1)
        self._by_age: list[tuple[int, int, Slots]] = []  # the oldest at the end
        self._changing = False
        for slots in self._slots.values():
            slots.empty()

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Hold the lock; chunks of collected arrays go first, unless slots are changing already.

        The garbage collector may ask for `nbytes` at any point of a change.
        """
        with self.lock:
            if self._changing:
                yield
                return
            try:
                self._changing = True
                while self._collected:
                    slots, numbers = self._collected.popleft()
                    if slots.drop_numbers(numbers):
                        self._slots.pop(slots.nbytes, None)
                yield
            finally:
                self._changing = False

    def array(self, key: Hashable, nbytes: int, chunks: int, piece_bytes: int = 0) -> ArrayCache:
        """Return the cache of an array, which all its readers share.

        `key` identifies the array and the version of its file; it has `chunks` chunks of `nbytes`
        each, decoded in pieces of `piece_bytes` if that is not 0.
        """
        with self.changing():
            array = self._arrays.get(key)
            if array is None:
                slots = self._slots[nbytes] = self._slots.get(nbytes) or Slots(self, nbytes)
                numbers = slots.new_numbers(chunks)
                array = ArrayCache(slots, [numbers], piece_bytes or nbytes)
                self._arrays[key] = array
                # Only noted: the collector may call it while this thread changes the cache.
                finalize(array, self._collected.append, (slots, numbers)).atexit = False
            return array

    @property
    def nbytes(self) -> int:
        """Bytes of the chunks in memory, including those being decoded."""
        with self.changing():
            return self.used_bytes

    @property
    def available(self) -> int:
        """Bytes that may be cached: the budget without the part that batches have borrowed."""
        return self.budget() - account().borrowed

    def kept(self, array: ArrayCache) -> int:
        """Return how many chunks of an array may stay, of one that can be read past the cache too.

        Otherwise such arrays would evict one another. Together they take up to half of the budget,
        which leaves room for a shuffle of other chunks, or as much as others leave; the smallest
        come first. 50,000 pictures of 3 KiB are read 2.1 times as fast by NumPy iteration as
        without.
        """
        budget = self.budget()
        if self._kept.get(array) == budget:
            return array.chunks
        with self.changing():
            self._kept.pop(array, None)
            if self.used_bytes > self.available:  # the budget was lowered
                self.make_room(array.slots, 0, set())
            if array.outgrows_cache:
                return 0
            place, before = (array.size, id(array)), 0
            for each, stays in self._kept.items():
                before += each.size if stays or (each.size, id(each)) < place else 0
            stays = before + array.size <= budget // 2
            self._kept[array] = budget if stays else 0
            others = self.nbytes - sum(each.used_bytes for each in self._kept)
            # Others that fill the last eighth need more.
            left = self.available // 8 * 7 - others - before
            return array.chunks if stays else min(array.chunks, max(0, left // array.nbytes))

    def make_room(self, slots: Slots, chunks: int, keep: set[int]) -> bool:
        """Evict the least recently used chunks until more fit into `slots`; return whether they do.

        The slots numbered in `keep` stay. The budget may be exceeded if no chunks are pinned.
        """
        need, budget = chunks * slots.nbytes, self.available
        pinned: dict[int, set[int]] = {}
        skipped: list[tuple[int, int, Slots]] = []
        most, has_all = chunks + _MOST_LISTED, False
        while self.used_bytes + need > budget or slots.used_bytes + need > slots.room:
            if not self._by_age and has_all:
                break
            if not self._by_age:
                most += len(skipped)
                skipped.clear()  # the new list has them again
                self._by_age = self._oldest(most)
                has_all = len(self._by_age) < most
                continue
            entry = self._by_age.pop()
            last_used, slot, victim = entry
            # Skip chunks used since the list was made: they are the most recent, so order holds.
            if slot >= len(victim.last_used) or victim.last_used[slot] != last_used:
                continue
            if id(victim) not in pinned:
                pinned[id(victim)] = victim.pinned() | (keep if victim is slots else set())
            if slot in pinned[id(victim)]:
                skipped.append(entry)
            else:
                victim.evict(slot, give_back=victim is not slots)
        self._by_age += reversed(skipped)
        if slots.used_bytes + need > slots.room:
            return False
        fits = self.used_bytes + need <= budget
        return fits or not any(other.pins for other in self._slots.values())

    def forget(self) -> None:
        """Evict all chunks that are not pinned, so that later reads decode anew."""
        with self.changing():
            for slots in self._slots.values():
                if not slots.drop():
                    for slot in set(slots.in_use().tolist()) - slots.pinned():
                        slots.evict(slot, give_back=True)

    def listed(self) -> dict[tuple[int, int], int]:
        """Return the bytes of each decoded chunk by its slots' id and number, the oldest first."""
        with self.changing():
            return {
                (id(slots), int(slots.number[slot])): slots.nbytes
                for _, slot, slots in reversed(self._oldest())
            }

    def _oldest(self, most: int | None = None) -> list[tuple[int, int, Slots]]:
        """Return the time of last use, the slot and its memory of chunks, the oldest last.

        Of all chunks, or of the `most` oldest.
        """
        memories = list(self._slots.values())
        if not memories:
            return []
        used = [slots.in_use() for slots in memories]
        times = np.concatenate(
            [slots.last_used[own] for slots, own in zip(memories, used, strict=True)]
        )
        number, places = np.repeat(np.arange(len(used)), list(map(len, used))), np.concatenate(used)
        if most is not None and most < len(times):
            last = np.partition(times, most - 1)[most - 1]
            older, as_old = np.flatnonzero(times < last), np.flatnonzero(times == last)
            chosen = np.append(older, as_old[len(older) - most :])
            times, number, places = times[chosen], number[chosen], places[chosen]
        order = np.argsort(-times, kind="stable")
        columns = (column[order].tolist() for column in (times, places, number))
        return [(time, place, memories[which]) for time, place, which in zip(*columns, strict=True)]


class ArrayCache:
    """The cached chunks of one array, or of several as if they were one; made by `Cache.array`.

    `numbers` are those of the chunks of each array in the slots, and `piece_bytes` the bytes that
    are decoded at a time. `nbytes` is the size of a chunk, `size` that of all; `scratch_bytes` is
    the scratch memory for decoding a chunk, unless the format knows better. Copying a chunk that
    `is_large` costs more than a call of the decoder. `reading` is the first chunk of those that a
    thread began to read last; any number is valid.
    """

    def __init__(self, slots: Slots, numbers: Sequence[range], piece_bytes: int) -> None:
        self.slots, self.nbytes, self.reading = slots, slots.nbytes, 0
        self._numbers, self._piece_bytes = tuple(numbers), piece_bytes
        self.scratch_bytes = SCRATCH_FACTOR * piece_bytes
        self.is_large = slots.nbytes >= _UNCACHED_BYTES
        self._firsts = np.array([own.start for own in numbers], np.int64)
        lengths = [len(own) for own in numbers]
        self._ends = np.cumsum(lengths)
        self._shift: Ints = self._firsts - self._ends + lengths
        # The first number if one subtraction gives chunks (files opened one after another), else 0.
        self._first = int(self._firsts[0]) if (self._shift == self._shift[0]).all() else 0
        self._by_first = self._firsts.argsort()
        self.chunks = int(self._ends[-1])
        self.size = self.chunks * self.nbytes
        self._arrays: tuple[ArrayCache, ...] = ()
        #: Chunks read lately, by remainder, and how many were read before each.
        self._recent: Ints | None = None
        self._reads = self._again = 0

    @classmethod
    def joined(cls, arrays: Sequence[ArrayCache]) -> ArrayCache:
        """Return the cached chunks of arrays, of one size, numbered one array after another."""
        numbers = [own for array in arrays for own in array._numbers]
        joined = cls(arrays[0].slots, numbers, max(array._piece_bytes for array in arrays))
        joined._arrays = tuple(arrays)  # as long as they exist, their chunks may be cached
        return joined

    def numbers_of(self, chunks: Ints) -> Ints:
        """Return the numbers by which the slots know chunks of this array."""
        shift = self._first or self._shift[self._ends.searchsorted(chunks, side="right")]
        return chunks + shift

    def chunks_of(self, numbers: Ints) -> Ints:
        """Return the chunks of this array that the slots know by numbers."""
        if self._first:
            return numbers - self._first
        firsts = self._firsts[self._by_first]
        owners = self._by_first[firsts.searchsorted(numbers, side="right") - 1]
        chunks: Ints = numbers - self._shift[owners]
        return chunks

    @property
    def used_bytes(self) -> int:
        """Bytes of the decoded chunks in memory."""
        held = (len(self.slots.filled(own)) for own in set(self._numbers))
        return sum(held) * self.nbytes

    @property
    def most(self) -> int:
        """Chunks that one read may pin, so that several threads can read at once."""
        return max(1, self.slots.cache.available // 4 // self.nbytes)

    @property
    def _room(self) -> int:
        """Number of chunks that the cache has room for; at least one is cached."""
        return max(1, self.slots.cache.available // self.nbytes)

    @property
    def outgrows_cache(self) -> bool:
        """Whether the cache has room for few of all chunks."""
        return self.chunks > MANY_TIMES * self._room

    def seldom_read_again(self, chunks: Ints) -> bool:
        """Note that chunks are about to be read; return whether they are not worth caching.

        They are not if few of those read so far came again while they would have been cached: as in
        a shuffle of an array that outgrows the cache. Chunks of 4 MB that LZ4 packs are decoded
        into the batch then: weather fields in 1 / 1.24 of the processor's time by NumPy iteration,
        in 1 / 1.23 through `to_tf`.
        """
        room = self._room
        if self._recent is None:
            self._recent = np.full((2, MANY_TIMES * room), -1)
        recent, read_at = self._recent
        places, now = chunks % len(recent), self._reads + np.arange(len(chunks))
        again = (recent[places] == chunks) & (now - read_at[places] < room)
        recent[places], read_at[places] = chunks, now
        self._reads += len(chunks)
        self._again += int(np.count_nonzero(again))
        return self._again * _FEW_AGAIN <= self._reads

    def find(self, chunks: Ints) -> Pin | None:
        """Pin chunks (any order, repeats allowed) if all of them are cached; else return None.

        None may also be returned for cached chunks. No Python object is made per chunk, since
        batches of small rows request thousands.
        """
        numbers, held = self.numbers_of(chunks), self.slots
        with held.cache.lock:
            slots = held.table[numbers & held.mask]
            if (held.number[slots] != numbers).any():
                return None
            held.last_used[slots] = next(held.cache.clock)
            return Pin(slots, held.memory, held)

    def pin(self, chunks: Ints, decode: Decode, own_threads: bool = False) -> Pin | None:
        """Pin chunks, after decoding those not cached; None if they are too many to pin at once.

        Any order, repeats allowed; see `load`.
        """
        if pin := self.find(chunks):
            return pin
        # A thread that must not wait caches nothing; see `load`.
        absent = self.chunks_of(self.slots.absent(self.numbers_of(chunks)))
        if not must_not_wait() and 0 < len(absent) <= self.most // 2:
            # A block shuffle on lanes needs some new chunks with each read; this way all its rows
            # are gathered in one go. Gathering chunk by chunk takes 1.3 times as long (rows of 4
            # KB, 410 MB in chunks of gzip or Zstandard, NumPy).
            with self.load(absent.tolist(), decode, own_threads):
                if pin := self.find(chunks):
                    return pin
        numbers = distinct(chunks)
        if len(numbers) > self.most:
            return None
        pin = self.load(numbers.tolist(), decode, own_threads)
        pin.slots = pin.slots[np.searchsorted(numbers, chunks)]
        return pin

    def missing(self, chunks: Ints) -> Ints:
        """Return those chunks that are neither cached nor being decoded."""
        return chunks[self.slots.missing(self.numbers_of(chunks))]

    def load(self, chunks: Sequence[int], decode: Decode, own_threads: bool = False) -> Pin:
        """Pin distinct chunks, at most `most`, after decoding those not cached.

        `decode` is called in several threads, but once per chunk, even if several readers need it;
        if it has threads of its own (`own_threads`), it is given many chunks at once. Chunks
        decoded in one call with a chunk that failed are not cached.
        """
        if must_not_wait():  # so it decodes into memory of its own
            memory = np.empty(len(chunks) * self.nbytes, np.uint8)
            decode(list(chunks), list(range(len(chunks))), memory)
            return Pin(np.arange(len(chunks)), memory)

        def decode_numbers(numbers: list[int], slots: list[int], memory: NDArray[np.uint8]) -> None:
            with scratch(self.scratch_bytes * len(slots)):
                decode(self.chunks_of(np.array(numbers)).tolist(), slots, memory)

        numbers = self.numbers_of(np.array(chunks, np.int64)).tolist()
        return self.slots.load(numbers, decode_numbers, own_threads)


cache = Cache()
"""The cache of this process."""
account().cached = lambda: cache.nbytes

# Chunks that a thread of the parent was decoding would never be completed in the child.
os.register_at_fork(after_in_child=cache.reset)
