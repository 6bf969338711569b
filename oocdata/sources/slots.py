"""Decoded chunks, side by side in one buffer, within a byte budget.

A batch takes rows from many chunks. Kept one by one, that is a copy for each chunk; kept side by
side as *slots* of one buffer, it is one gather by row numbers, outside the GIL, however many chunks
the rows come from. A slot is pinned while somebody decodes into it or gathers from it; of the
others, the least recently used makes room. Each chunk is decoded once even when two threads want
it.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.errors import SourceError
from oocdata.index import as_count

__all__ = [
    "DEFAULT_BUDGET",
    "Lease",
    "Slots",
    "chunk_budget",
    "most_kept",
    "set_chunk_budget",
    "slots_of",
    "wait_until_ended",
]

DEFAULT_BUDGET = 256 << 20
"""Bytes of decoded chunks that a process keeps."""

_FEWEST = 8
"""Slots at least, for chunks too large for the budget."""

_BOOKKEEPING_BYTES = 256
"""What knowing of a chunk takes, beside its slot."""

_budget = int(os.environ.get("OOCDATA_CHUNK_BYTES", DEFAULT_BUDGET))


@dataclass(slots=True, eq=False)
class _Chunk:
    """What is known of one chunk that has a slot."""

    slot: int
    pins: int = 0
    error: BaseException | None = None
    ready: threading.Event | None = None
    """Set when it is decoded; None once nobody needs to wait."""


@dataclass(slots=True, eq=False)
class Lease:
    """Pinned slots of some chunks, in the order they were asked for.

    Attributes
    ----------
    slots : ndarray of int64, shape (n,)
    mine : list of int
        Places in `slots` that the holder must decode, then report by `Slots.decoded`.
    """

    keys: Sequence[Hashable]
    slots: NDArray[np.int64]
    mine: list[int]
    chunks: list[_Chunk] = field(repr=False)


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
    >>> lease = slots.acquire(["a", "b"])
    >>> lease.mine  # both must be decoded
    [0, 1]
    >>> slots.decoded(lease)
    >>> slots.release(lease)
    >>> slots.acquire(["b", "c"]).mine
    [1]
    """

    def __init__(self, nbytes: int, capacity: int) -> None:
        self.nbytes = nbytes
        self.buffer, self.capacity = _reserve(nbytes, capacity)
        self._changed = threading.Condition()
        self._chunks: dict[Hashable, _Chunk] = {}  # least recently used first
        # Those given back, and how many were never used: of tiny chunks there may be a million.
        self._free: list[int] = []
        self._unused = self.capacity

    @property
    def largest_lease(self) -> int:
        """Chunks that one lease may hold, so that several threads can hold one each."""
        return max(1, self.capacity // 4)

    def rows(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return the buffer as an array of slots, shape ``(capacity, *shape)``."""
        return np.ndarray((self.capacity, *shape), dtype, self.buffer)

    def acquire(self, keys: Sequence[Hashable]) -> Lease:
        """Pin the slots of chunks, making room for those that have none.

        All or nothing, so that threads that each hold some can't wait for one another.

        Parameters
        ----------
        keys : sequence of hashable
            Different from one another, at most `largest_lease`.
        """
        if len(keys) > self.capacity:
            raise ValueError(f"a lease must fit {self.capacity} slots; got {len(keys)} chunks.")
        with self._changed:
            while True:
                chunks, wanted = self._chunks, self._missing(keys)
                if self._make_room(len(wanted), set(keys)):
                    break
                self._changed.wait()
            mine = []
            for place, key in enumerate(keys):
                chunk = chunks.pop(key, None)
                if chunk is None:
                    chunk = _Chunk(self._free_slot(), ready=threading.Event())
                    mine.append(place)
                chunks[key] = chunk  # at the end: most recently used
                chunk.pins += 1
            found = [chunks[key] for key in keys]
        slots = np.fromiter((chunk.slot for chunk in found), np.int64, len(found))
        return Lease(keys, slots, mine, found)

    def _missing(self, keys: Sequence[Hashable]) -> list[Hashable]:
        return [key for key in keys if key not in self._chunks]

    def _make_room(self, count: int, keep: set[Hashable]) -> bool:
        """Free slots until `count` are; return whether that was possible."""
        need = count - len(self._free) - self._unused
        if need <= 0:
            return True
        victims = []
        for key, chunk in self._chunks.items():
            if chunk.pins == 0 and key not in keep:
                victims.append(key)
                if len(victims) == need:
                    break
        if len(victims) < need:
            return False
        for key in victims:
            self._free.append(self._chunks.pop(key).slot)
        return True

    def _free_slot(self) -> int:
        if self._free:
            return self._free.pop()
        self._unused -= 1
        return self.capacity - 1 - self._unused

    def decoded(self, lease: Lease, error: BaseException | None = None) -> None:
        """Say that the holder's own chunks are decoded, or can't be: nobody keeps those.

        What was said first holds.
        """
        with self._changed:
            for place in lease.mine:
                chunk = lease.chunks[place]
                if chunk.ready is None:
                    continue
                chunk.error = error
                if error is not None and self._chunks.get(lease.keys[place]) is chunk:
                    del self._chunks[lease.keys[place]]
                chunk.ready.set()
                chunk.ready = None

    def wait(self, lease: Lease) -> None:
        """Wait for the chunks that other threads decode.

        Raises
        ------
        Exception
            What the other thread's decoding raised.
        """
        for chunk in lease.chunks:
            ready = chunk.ready
            if ready is not None:
                ready.wait()
            if isinstance(chunk.error, Exception):
                raise chunk.error
            if chunk.error is not None:  # an interrupt, which is that thread's own
                raise SourceError(
                    "a chunk must be decoded to the end; the thread that did was interrupted. "
                    "Read the rows again."
                ) from chunk.error

    def release(self, lease: Lease) -> None:
        """Unpin a lease's slots."""
        with self._changed:
            for key, chunk in zip(lease.keys, lease.chunks, strict=True):
                chunk.pins -= 1
                if chunk.pins == 0 and self._chunks.get(key) is not chunk:
                    self._free.append(chunk.slot)  # its decoding failed; the last holder lets go
                    chunk.error = None  # its traceback holds the batch, and leads back here
            self._changed.notify_all()


def _reserve(nbytes: int, capacity: int) -> tuple[mmap.mmap, int]:
    """Return address space for slots, and for how many: the system may grant fewer."""
    # Private: Python's own default would share the slots with a forked child.
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    while True:
        try:
            return mmap.mmap(-1, max(1, nbytes * capacity), flags=flags), capacity
        except (OSError, OverflowError) as error:
            if capacity == 1:
                raise MemoryError(f"no memory for a decoded chunk of {nbytes} bytes") from error
            capacity //= 2


def wait_until_ended(tasks: Iterable[Any]) -> None:
    """Return when no task runs that writes into slots: until then nobody may have them.

    An interrupt doesn't end the waiting: the one that brought us here is on its way already.

    Parameters
    ----------
    tasks : iterable of Future
        Of ``concurrent.futures``, or of TensorStore.
    """
    for task in tasks:
        while not task.done():
            with suppress(KeyboardInterrupt):
                task.exception()


_lock = threading.Lock()
_by_size: dict[int, Slots] = {}


def slots_of(nbytes: int) -> Slots:
    """Return this process's slots of a size."""
    with _lock:
        found = _by_size.get(nbytes)
        if found is None:
            found = _by_size[nbytes] = Slots(nbytes, _capacity(nbytes))
        return found


def most_kept(nbytes: int, chunks: int) -> int:
    """Return the bytes that decoded chunks of one size take at most, of so many that there are.

    Examples
    --------
    >>> most_kept(1 << 30, chunks=100) >> 30  # larger than the budget: eight all the same
    8
    """
    return min(chunks, _capacity(nbytes)) * (nbytes + _BOOKKEEPING_BYTES)


def _capacity(nbytes: int) -> int:
    return max(_FEWEST, _budget // (nbytes + _BOOKKEEPING_BYTES))


def chunk_budget() -> int:
    """Return the bytes of decoded chunks that this process keeps, for each size of chunk."""
    return _budget


def set_chunk_budget(nbytes: int) -> None:
    """Set how many bytes of decoded chunks this process keeps; those kept so far are forgotten.

    Parameters
    ----------
    nbytes : int
        For each size of chunk in use. At least eight chunks are kept, however large they are.
        Worker processes take it from the environment variable ``OOCDATA_CHUNK_BYTES``.

    Examples
    --------
    >>> set_chunk_budget(64 << 20)
    >>> chunk_budget()
    67108864
    >>> set_chunk_budget(DEFAULT_BUDGET)
    """
    global _budget
    budget = as_count("nbytes", nbytes)
    with _lock:
        _budget = budget
        # Whoever gathers at this moment holds the old slots and lets them go with its batch.
        _by_size.clear()


def _fresh_after_fork() -> None:
    global _lock
    # Chunks that a thread of the parent was decoding would never arrive here.
    _lock = threading.Lock()
    _by_size.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_fresh_after_fork)
