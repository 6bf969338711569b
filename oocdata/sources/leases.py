"""Decoded chunks, side by side in one buffer, pinned while they are used.

A batch takes rows from many chunks. Kept one by one, that is a copy for each chunk; kept side by
side as *slots* of one buffer, it is one gather by row numbers, outside the GIL, however many chunks
the rows come from. A slot is pinned while somebody decodes into it or gathers from it; of the
others, the least recently used makes room. Each chunk is decoded once even when two threads want
it.
"""

from __future__ import annotations

import mmap
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.sources.portions import Portion, complete

__all__ = ["Lease", "Slots"]

_PORTIONS, _LEAST, _MOST = 8, 1 << 16, 1 << 20
"""Missing chunks are decoded in about so many portions, of at least and at most so many bytes."""

_HUGE_PAGE = 2 << 20


@dataclass(slots=True, eq=False)
class Lease:
    """Pinned slots of some chunks, in the order they were asked for.

    Attributes
    ----------
    keys, slots : ndarray of int64, shape (n,)
    mine : list of int
        Places in `slots` that the holder must decode, by `Slots.decode`.
    """

    keys: NDArray[np.int64]
    slots: NDArray[np.int64]
    mine: list[int]
    own: dict[Portion, list[int]] = field(repr=False)
    """Places of `mine` that are decoded together."""
    wanted: set[Portion] = field(repr=False)
    """Those of other threads too."""


class Slots:
    """Slots of one size.

    Parameters
    ----------
    nbytes : int
        Of one slot.
    capacity : int
        How many slots; memory is taken only for those that are used.

    Examples
    --------
    >>> slots = Slots(nbytes=80, capacity=8)
    >>> lease = slots.acquire(np.array([7, 8]))
    >>> slots.decode(lease, lambda places: print("decode", places))
    decode [0, 1]
    >>> slots.release(lease)
    >>> slots.acquire(np.array([8, 9])).mine
    [1]
    """

    def __init__(self, nbytes: int, capacity: int) -> None:
        self.nbytes = nbytes
        self.buffer, self.capacity = _reserve(nbytes, capacity)
        self._changed = threading.Condition()
        self._slot_of: dict[int, int] = {}
        self._portion_of: dict[int, Portion] = {}  # of slots that are not decoded yet
        self._failed: set[int] = set()  # slots that never will be, pinned until all know
        # Of each slot. Arrays, because a batch asks for hundreds and all under the lock and the
        # GIL; zeros, which take no memory before they are used: of tiny chunks there may be a
        # million.
        self._key = np.zeros(self.capacity, np.int64)
        self._pins = np.zeros(self.capacity, np.int32)
        self._used = np.zeros(self.capacity, np.int64)  # when it was asked for; 0 where empty
        self._now = 0
        self._free: list[int] = []
        self._unused = self.capacity
        self._oldest: list[tuple[int, int]] = []

    @property
    def largest_lease(self) -> int:
        """Chunks that one lease may hold, so that several threads can hold one each."""
        return max(1, self.capacity // 4)

    def rows(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return the buffer as an array of slots, shape ``(capacity, *shape)``."""
        return np.ndarray((self.capacity, *shape), dtype, self.buffer)

    def acquire(self, keys: NDArray[np.int64], together: int | None = None) -> Lease:
        """Pin the slots of chunks, making room for those that have none.

        All or nothing, so that threads that each hold some can't wait for one another.

        Parameters
        ----------
        keys : ndarray of int64, shape (n,)
            Different from one another, at most `largest_lease`.
        together : int, optional
            Chunks that one thread decodes in one go; by default a few, by their size.
        """
        if len(keys) > self.capacity:
            raise ValueError(f"a lease must fit {self.capacity} slots; got {len(keys)} chunks.")
        asked = keys.tolist()
        with self._changed:
            while True:
                found = map(self._slot_of.get, asked, repeat(-1))
                slots = np.fromiter(found, np.int64, len(asked))
                there = slots[slots >= 0]
                self._pins[there] += 1
                if self._make_room(len(slots) - len(there)):
                    break
                self._pins[there] -= 1
                self._changed.wait()
            lease = Lease(keys, slots, [], {}, set())
            if len(there) < len(slots):
                self._promise(lease, together)
            self._now += 1
            self._used[slots] = self._now
            if self._portion_of:
                wanted = map(self._portion_of.get, slots.tolist())
                lease.wanted.update(portion for portion in wanted if portion is not None)
                for portion in lease.wanted:
                    portion.holders += 1
        return lease

    def _promise(self, lease: Lease, together: int | None) -> None:
        """Give the missing chunks of a lease slots, and cut them into portions."""
        places = np.flatnonzero(lease.slots < 0)
        lease.mine = places.tolist()
        step = together or self._together(len(places))
        for start in range(0, len(places), step):
            portion = Portion(partial(self._decoded, lease))
            lease.own[portion] = lease.mine[start : start + step]
            for place in lease.own[portion]:
                slot = self._free_slot()
                self._portion_of[slot] = portion
                lease.slots[place] = slot
        slots, keys = lease.slots[places], lease.keys[places]
        self._key[slots] = keys
        self._pins[slots] = 1
        self._slot_of.update(zip(keys.tolist(), slots.tolist(), strict=True))

    def _together(self, missing: int) -> int:
        """Return how many chunks make a portion: several for each thread, if not too small."""
        least, most = max(1, _LEAST // self.nbytes), max(1, _MOST // self.nbytes)
        return min(most, max(least, -(-missing // _PORTIONS)))

    def _make_room(self, count: int) -> bool:
        """Free slots until `count` are; return whether that was possible."""
        held: list[tuple[int, int]] = []
        while count > len(self._free) + self._unused:
            if not self._oldest:
                held.clear()  # they are listed again
                if not self._list_oldest():
                    return False
            slot, used = self._oldest.pop()
            if self._used[slot] != used:  # asked for since it was listed
                continue
            if self._pins[slot]:
                held.append((slot, used))
                continue
            del self._slot_of[int(self._key[slot])]
            self._give_up(slot)
        self._oldest += reversed(held)  # first to go once nobody holds them
        return True

    def _list_oldest(self) -> bool:
        """List the slots, the first to go last; return whether one of them may go now.

        Sorting all of them for each one that is needed would take too long. Those asked for after
        they were listed are passed over, and are newer than all that were not: so the order holds.
        """
        begun = slice(self.capacity - self._unused)
        some = np.flatnonzero(self._used[begun] > 0)
        used = self._used[some]
        order = np.argsort(-used)
        self._oldest = list(zip(some[order].tolist(), used[order].tolist(), strict=True))
        return bool((self._pins[some] == 0).any())

    def _give_up(self, slot: int) -> None:
        self._used[slot] = 0
        self._free.append(slot)

    def _free_slot(self) -> int:
        if self._free:
            return self._free.pop()
        self._unused -= 1
        return self.capacity - 1 - self._unused

    def decode(self, lease: Lease, work: Callable[[list[int]], None]) -> None:
        """Decode the chunks of a lease that are missing, and wait for those that others decode.

        Parameters
        ----------
        lease : Lease
        work : callable
            Decodes the chunks at some places of the lease into their slots; may be called by
            several threads, for other places.

        Raises
        ------
        Exception
            What the decoding of a chunk raised, in this thread or in another. Nobody keeps the
            chunks that were to be decoded with it.
        """
        for portion, places in lease.own.items():
            portion.work = partial(work, places)
        complete(list(lease.own), lease.wanted)
        for portion in lease.wanted:
            if portion.error is not None:
                raise portion.error

    def _decoded(self, lease: Lease, portion: Portion) -> None:
        """Let others use what was decoded, or forget what could not be."""
        with self._changed:
            for place in lease.own[portion]:
                key, slot = int(lease.keys[place]), int(lease.slots[place])
                self._portion_of.pop(slot, None)
                if portion.error is not None and self._slot_of.get(key) == slot:
                    del self._slot_of[key]
                    self._failed.add(slot)

    def release(self, lease: Lease) -> None:
        """Unpin a lease's slots; what was not decoded by then never will be."""
        for portion in lease.own:
            portion.cancel()
        with self._changed:
            self._pins[lease.slots] -= 1
            for slot in self._failed.intersection(lease.slots.tolist()) if self._failed else ():
                if not self._pins[slot]:  # the last holder lets go
                    self._failed.remove(slot)
                    self._give_up(slot)
            for portion in lease.wanted:
                portion.holders -= 1
                if portion.holders == 0:
                    portion.error = None  # its traceback holds the batch, and leads back here
            self._changed.notify_all()
        lease.own.clear()
        lease.wanted.clear()


def _reserve(nbytes: int, capacity: int) -> tuple[mmap.mmap, int]:
    """Return address space for slots, and for how many: the system may grant fewer."""
    # Private: Python's own default would share the slots with a forked child.
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    while True:
        try:
            buffer = mmap.mmap(-1, max(1, nbytes * capacity), flags=flags)
            break
        except (OSError, OverflowError) as error:
            if capacity == 1:
                raise MemoryError(f"no memory for a decoded chunk of {nbytes} bytes") from error
            capacity //= 2
    if len(buffer) >= _HUGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE"):
        # Rows are taken from all over it: with small pages, each costs a walk through page tables.
        with suppress(OSError):  # a kernel built without huge pages: small ones serve
            buffer.madvise(mmap.MADV_HUGEPAGE)
    return buffer, capacity
