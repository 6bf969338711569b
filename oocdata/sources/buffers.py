"""Memory for batches: 64-byte aligned, recycled when the last reference goes.

Fresh memory is the largest cost of a batch: the allocator gives megabytes back to the kernel, and
every page of the next batch faults again. Here a batch is an array whose base object returns
its block to a pool in its finaliser, so a block is reused only when no array, tensor or list can
see it any more. TensorFlow aliases a NumPy array without a copy when its data is 64-byte aligned
(``EIGEN_MAX_ALIGN_BYTES``) and holds a reference for as long as it does.

A worker process reads a batch straight into memory that it shares: a `Place`, from which
`empty_batch` takes what it returns.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import prod
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

__all__ = [
    "ALIGNMENT",
    "Lender",
    "Place",
    "Pool",
    "empty",
    "empty_batch",
    "is_leased",
    "lease",
    "placing",
]

ALIGNMENT = 64
"""Bytes: what TensorFlow asks of memory that it uses without a copy."""

_HUGE_PAGE = 2 << 20

_LARGER = 16
"""An idle block may be so many times as large as what it is used for."""


class _Block:
    """One anonymous mapping (page aligned, so 64-byte aligned), with its address."""

    __slots__ = ("address", "mapping", "nbytes")

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        # Private: Python's default is shared, and after a fork a child would write into our
        # batches.
        self.mapping = mmap.mmap(-1, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if nbytes >= _HUGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE"):
            with suppress(OSError):  # a kernel built without huge pages: small ones serve
                self.mapping.madvise(mmap.MADV_HUGEPAGE)
        self.address = np.frombuffer(self.mapping, np.uint8).ctypes.data


class Lender(Protocol):
    """Whose memory a leased array is."""

    def give_back(self, block: Any) -> None:
        """Take a block back that nobody sees any more; called wherever its last reference goes."""
        ...


class _Lease:
    """The base object of one handed-out array: returns the block when the array is gone."""

    __slots__ = ("__array_interface__", "_block", "_lender")

    def __init__(
        self, lender: Lender, block: Any, address: int, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> None:
        self._lender = lender
        self._block = block
        self.__array_interface__ = {
            "version": 3,
            "shape": shape,
            "typestr": dtype.str,
            "data": (address, False),
        }

    def __del__(self) -> None:
        self._lender.give_back(self._block)


def lease(
    lender: Lender, block: Any, address: int, shape: tuple[int, ...], dtype: DTypeLike
) -> NDArray[Any]:
    """Return an array over a lender's memory, which gets `block` back when nothing sees it.

    Parameters
    ----------
    lender : Lender
        Kept alive by the array; owns the memory.
    block : object
        What the lender knows the memory by.
    address : int
        Of its first byte, a multiple of `ALIGNMENT`.
    shape : tuple of int
    dtype : dtype_like

    Examples
    --------
    >>> memory = empty((3,), "i4")
    >>> class Printing:
    ...     def give_back(self, block):
    ...         print("back:", block)
    >>> array = lease(Printing(), "block 7", memory.ctypes.data, (3,), "i4")
    >>> part = array[1:]
    >>> del array
    >>> del part
    back: block 7
    """
    return np.asarray(_Lease(lender, block, address, shape, np.dtype(dtype)))


class Pool:
    """Blocks of batch memory, kept for reuse up to a number of idle bytes.

    Parameters
    ----------
    idle_bytes : int
        What the pool may keep while nobody uses it.

    Examples
    --------
    >>> pool = Pool(1 << 20)
    >>> first = pool.empty((4, 3), np.float32)
    >>> address = first.ctypes.data
    >>> address % ALIGNMENT
    0
    >>> del first
    >>> pool.empty((4, 3), np.float32).ctypes.data == address
    True
    """

    def __init__(self, idle_bytes: int) -> None:
        self.idle_bytes = idle_bytes
        # Re-entrant: the garbage collector may run a lease's finaliser while this thread holds it.
        self._lock = threading.RLock()
        # By size, the size asked for last at the end; no key is ever removed, for the same reason.
        self._idle: OrderedDict[int, list[_Block]] = OrderedDict()
        self._idle_now = 0

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """Return an uninitialised C-contiguous array whose memory nobody else can see.

        Parameters
        ----------
        shape : tuple of int
        dtype : dtype_like
            Numeric or bool.

        Returns
        -------
        ndarray
            64-byte aligned, writable.
        """
        kind = np.dtype(dtype)
        nbytes = prod(shape) * kind.itemsize
        if nbytes == 0:
            return np.empty(shape, kind)
        # Whole pages, as the kernel gives them.
        size = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        with self._lock:
            block = self._taken(size)
        block = block or _Block(size)
        return lease(self, block, block.address, shape, kind)

    def _taken(self, size: int) -> _Block | None:
        """Take an idle block: of the size asked for, or one not much larger.

        The last read of an epoch is a shorter one; with blocks of its own, as many as are in flight
        would be held twice.
        """
        blocks = self._idle.setdefault(size, [])
        self._idle.move_to_end(size)
        if not blocks:
            larger = [n for n, some in self._idle.items() if some and size < n <= size * _LARGER]
            if not larger:
                return None
            blocks = self._idle[min(larger)]
        block = blocks.pop()
        self._idle_now -= block.nbytes
        return block

    def give_back(self, block: _Block) -> None:
        """Keep a block for reuse, or let it go where too much is idle."""
        if block.nbytes > self.idle_bytes:
            return
        with self._lock:
            self._idle.setdefault(block.nbytes, []).append(block)
            self._idle_now += block.nbytes
            # Sizes that went out of use make room for those in use.
            for blocks in list(self._idle.values()):
                while blocks and self._idle_now > self.idle_bytes:
                    self._idle_now -= blocks.pop().nbytes


def is_leased(array: NDArray[Any]) -> bool:
    """Return whether an array is the whole of a pool's block: aligned, and no user's memory.

    Examples
    --------
    >>> is_leased(empty((3,), "f4")), is_leased(np.empty(3))
    (True, False)
    """
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base, _Lease) and array.ctypes.data % ALIGNMENT == 0


_pool = Pool(512 << 20)
empty = _pool.empty
"""The process's own pool: see `Pool.empty`."""


class Place:
    """Memory given beforehand, in which batch arrays are laid one after the other.

    Parameters
    ----------
    memory : ndarray of uint8, shape (nbytes,)
        Aligned; it must stay as it is for as long as the arrays are used.

    Examples
    --------
    >>> place = Place(empty((256,), "u1"))
    >>> first, second = place.empty((3,), "f8"), place.empty((5,), "i4")
    >>> place.offset_of(first), place.offset_of(second), place.offset_of(np.empty(3))
    (0, 64, None)
    """

    __slots__ = ("_memory", "_used")

    def __init__(self, memory: NDArray[np.uint8]) -> None:
        self._memory = memory
        self._used = 0

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """Return an uninitialised array in the place; from the process's pool where it is full."""
        kind = np.dtype(dtype)
        nbytes = prod(shape) * kind.itemsize
        end = self._used + nbytes
        if nbytes == 0 or end > len(self._memory):
            return _pool.empty(shape, kind)
        array = self._memory[self._used : end].view(kind).reshape(shape)
        self._used = -(-end // ALIGNMENT) * ALIGNMENT
        return array

    def offset_of(self, array: NDArray[Any]) -> int | None:
        """Return where an array begins in the place; None if it isn't one that lies there whole."""
        offset = array.ctypes.data - self._memory.ctypes.data
        inside = offset >= 0 and offset + array.nbytes <= len(self._memory)
        whole = array.flags.c_contiguous and array.dtype.isnative and offset % ALIGNMENT == 0
        return offset if inside and whole and array.nbytes else None


_local = threading.local()


@contextmanager
def placing(place: Place) -> Iterator[None]:
    """Take this thread's batch arrays from a place.

    Examples
    --------
    >>> place = Place(empty((256,), "u1"))
    >>> with placing(place):
    ...     array = empty_batch((3,), "f8")
    >>> place.offset_of(array)
    0
    """
    _local.place = place
    try:
        yield
    finally:
        _local.place = None


def empty_batch(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Return memory for an array of a batch: see `Pool.empty`; in a worker, memory that it shares.

    Only for what is returned as a batch, and never for what outlives it.
    """
    place: Place | None = getattr(_local, "place", None)
    return empty(shape, dtype) if place is None else place.empty(shape, dtype)


def _forget_after_fork() -> None:
    # A block that the parent lent out stays the parent's; the child starts with a pool of its own.
    _pool._lock = threading.RLock()
    _pool._idle.clear()
    _pool._idle_now = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
