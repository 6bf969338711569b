"""Memory for batches: 64-byte aligned, recycled when the last reference goes.

Fresh memory is the largest cost of a batch: the allocator gives megabytes back to the kernel, and
every page of the next batch faults again. Here a batch is an array whose base object returns
its memory to a pool in its finaliser, so it is reused only when no array, tensor or list can see it
any more. TensorFlow aliases a NumPy array without a copy when its data is 64-byte aligned
(``EIGEN_MAX_ALIGN_BYTES``) and holds a reference for as long as it does.

The batches of several steps are read into one block, as arrays that live each for itself. Where a
few of them are kept for long, the pages of the others go back to the kernel.
"""

from __future__ import annotations

import itertools
import mmap
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from oocdata.memory import account, batch_share

__all__ = [
    "ALIGNMENT",
    "Pool",
    "count",
    "empty",
    "empty_parts",
    "is_leased",
    "trim",
]

ALIGNMENT = 64
"""Bytes: what TensorFlow asks of memory that it uses without a copy."""

_HUGE_PAGE = 2 << 20

_LARGER = 16
"""An idle block may be so many times as large as what it is used for."""

_WASTED, _LITTLE = 1.25, 1 << 20
"""One that is more than so many times as large is cut off, since all that is mapped is held; unless
what is won is less than so many bytes."""


class _Block:
    """One anonymous mapping (page aligned, so 64-byte aligned), and who still uses it."""

    __slots__ = (
        "begun", "borders", "gone", "mapping", "nbytes", "number", "overtaken", "used",
    )  # fmt: skip

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        # Private: Python's default is shared, and after a fork a child would write into our
        # batches.
        self.mapping = mmap.mmap(-1, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if nbytes >= _HUGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE"):
            with suppress(OSError):  # a kernel built without huge pages: small ones serve
                self.mapping.madvise(mmap.MADV_HUGEPAGE)
        self.borders: Sequence[int] = ()
        self.used: set[int] = set()
        self.gone: Iterator[int] = iter(())
        self.number = 0
        self.begun = False
        self.overtaken = False

    def shrink(self, nbytes: int) -> None:
        """Give the pages beyond so many bytes back to the kernel for good."""
        with suppress(OSError, SystemError, BufferError):  # a kernel that can't: it stays as it is
            self.mapping.resize(nbytes)
            self.nbytes = nbytes

    def release_unused(self) -> None:
        """Give the pages of parts that nobody uses back to the kernel."""
        if not hasattr(mmap, "MADV_DONTNEED"):
            return
        start = 0
        for part in (*sorted(self.used), len(self.borders) - 1):
            # Whole pages alone; at the end of the block, to its last one.
            last = part == len(self.borders) - 1
            first, end = -(-start // mmap.PAGESIZE), self.borders[part] // mmap.PAGESIZE
            end = self.nbytes // mmap.PAGESIZE if last else end
            if end > first:
                self.mapping.madvise(
                    mmap.MADV_DONTNEED, first * mmap.PAGESIZE, (end - first) * mmap.PAGESIZE
                )
            start = self.nbytes if last else self.borders[part + 1]


class _Lease(np.ndarray[Any, np.dtype[Any]]):
    """The base of one handed-out array: gives the block, or its part, back when that is gone."""

    __slots__ = ("block", "part", "pool")

    pool: Pool
    block: _Block
    part: int

    def __del__(self) -> None:
        self.pool.give_back(self.block, self.part)


class Pool:
    """Blocks of batch memory, kept for reuse up to a number of idle bytes.

    Parameters
    ----------
    idle_bytes : int, optional
        What the pool may keep while nobody uses it; by default `oocdata.memory.batch_share`, with
        the chunks' share too as long as none is cached.

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

    def __init__(self, idle_bytes: int | None = None) -> None:
        self._idle_bytes = idle_bytes
        self._forget()

    def _forget(self) -> None:
        # Re-entrant: the garbage collector may run a lease's finaliser while this thread holds it.
        self._lock = threading.RLock()
        # By size, the size given back last at the end.
        self._idle: dict[int, list[_Block]] = {}
        self._idle_now = 0
        self._counter = itertools.count(1)
        # Blocks of several parts, some of which are in use; the one lent first at the beginning.
        self._partly: dict[_Block, None] = {}

    def count(self) -> int:
        """Return the number of the next read; see `empty_parts`."""
        return next(self._counter)

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """Return an uninitialised C-contiguous array whose memory nobody else can see.

        Parameters
        ----------
        shape : tuple of int
        dtype : dtype_like
            Of objects, NumPy's own memory.

        Returns
        -------
        ndarray
            64-byte aligned, writable.
        """
        kind = np.dtype(dtype)
        nbytes = prod(shape) * kind.itemsize
        if nbytes == 0 or kind.hasobject:
            return np.empty(shape, kind)
        return self._lend(self._block(nbytes), 0, 0, shape, kind)

    def empty_parts(
        self, shapes: Sequence[tuple[int, ...]], dtype: DTypeLike, number: int = 0
    ) -> tuple[NDArray[Any] | None, list[NDArray[Any]]]:
        """Return uninitialised arrays side by side in one block, which live each for itself.

        Parameters
        ----------
        shapes : sequence of tuple of int
            All alike but for the first axis.
        dtype : dtype_like
        number : int
            The same for blocks that are lent for one read, from `count`. Parts that are kept are
            those of reads that were used before one of which half has come back; so the order in
            which the parts of one read go does not matter. By default one of its own.

        Returns
        -------
        whole : ndarray or None
            All parts as one array, to read into at once and drop; None where padding lies between
            them.
        parts : list of ndarray
            Each 64-byte aligned. The memory of those that are gone is reused when all are, or goes
            back to the kernel when some are kept for long.

        Examples
        --------
        >>> whole, (first, second) = empty_parts([(4, 16), (2, 16)], "f4")
        >>> whole[:] = np.arange(6)[:, None]
        >>> first[3, 0], second[1, 0]
        (np.float32(3.0), np.float32(5.0))
        >>> empty_parts([(3,), (3,)], "u1")[0] is None
        True
        """
        kind = np.dtype(dtype)
        sizes = [prod(shape) * kind.itemsize for shape in shapes]
        borders = [0]
        for nbytes in sizes:
            borders.append(borders[-1] + -(-nbytes // ALIGNMENT) * ALIGNMENT)
        if not borders[-1] or kind.hasobject:
            return None, [np.empty(shape, kind) for shape in shapes]
        block = self._block(borders[-1])
        with self._lock:
            block.borders, block.used = borders, set(range(len(shapes)))
            block.gone = itertools.count(1)
            block.number, block.begun, block.overtaken = number or self.count(), False, False
            self._partly[block] = None
        parts = [
            self._lend(block, part, start, shape, kind)
            for part, (shape, start) in enumerate(zip(shapes, borders, strict=False))
        ]
        whole = None
        if sum(sizes) == borders[-2] + sizes[-1]:  # nothing lies between them
            # Over the parts' memory, not of their block: whoever reads drops it before the parts.
            rows = sum([shape[0] for shape in shapes])
            whole = np.ndarray((rows, *shapes[0][1:]), kind, block.mapping)
        return whole, parts

    def _lend(
        self, block: _Block, part: int, start: int, shape: tuple[int, ...], kind: np.dtype[Any]
    ) -> NDArray[Any]:
        """Return an array over a block from byte `start` on, which comes back when it is gone."""
        array = _Lease(shape, kind, block.mapping, start)
        array.pool, array.block, array.part = self, block, part
        return array.view(np.ndarray)

    def _block(self, nbytes: int) -> _Block:
        # Whole pages, as the kernel gives them.
        size = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        with self._lock:
            blocks = self._idle.get(size)
            if not blocks:
                # Or one not much larger. The last read of an epoch is a shorter one; with blocks of
                # its own, as many as are in flight would be held twice.
                idle = self._idle.items()
                larger = [n for n, some in idle if some and size < n <= size * _LARGER]
                blocks = self._idle[min(larger)] if larger else None
            block = blocks.pop() if blocks else None
            if block is not None:
                self._idle_now -= block.nbytes
            elif size > _LITTLE:
                # In place of smaller ones: where sizes vary, as those of sparse batches do, there
                # would be as many idle ones of other sizes as are in use.
                self._drop(size, [n for n in self._idle if n < size])
        if block is not None and block.nbytes > max(_WASTED * size, size + _LITTLE):
            block.shrink(size)
        return block or _Block(size)

    def _drop(self, nbytes: int, sizes: list[int]) -> None:
        """Let idle blocks of some sizes go, until so many bytes are free or none is left."""
        for size in sizes:
            blocks = self._idle[size]
            while blocks and nbytes > 0:
                nbytes -= blocks.pop().nbytes
                self._idle_now -= size

    def give_back(self, block: _Block, part: int) -> None:
        """Take back a block, or a part of one, that nobody sees any more."""
        if block.borders:
            # Without the lock for most batches; each gets a number of its own also then.
            block.used.discard(part)
            gone, parts = next(block.gone), len(block.borders) - 1
            half = gone == parts - parts // 2
            if gone < parts and block.begun and not half and not block.overtaken:
                return
            with self._lock:
                if not block.begun:
                    self._begin(block.number)
                if half or gone == parts:
                    self._overtake(block.number)
                if gone < parts:
                    if block.overtaken and block.borders:  # it has not come back meanwhile
                        block.release_unused()
                    return
                self._partly.pop(block, None)
                block.borders = ()
        most = batch_share() if self._idle_bytes is None else self._idle_bytes
        if self._idle_now + block.nbytes > most and self._idle_bytes is None:
            # While no chunk is cached, as much may be in flight: fresh memory for each batch of 96
            # MiB took through `to_tf` 2.4 times as long, of the processor 1.6 times.
            most = batch_share(cached=account().cached() > 0)
        if block.nbytes > most:
            return
        with self._lock:
            blocks = self._idle.pop(block.nbytes, [])
            self._idle[block.nbytes] = blocks
            blocks.append(block)
            self._idle_now += block.nbytes
            if self._idle_now > most:  # sizes that went out of use make room for those in use
                self._drop(self._idle_now - most, list(self._idle))

    def trim(self) -> None:
        """Let idle blocks go for which there is no room beside cached chunks."""
        most = batch_share() if self._idle_bytes is None else self._idle_bytes
        if self._idle_now > most:
            with self._lock:
                self._drop(self._idle_now - most, list(self._idle))

    def _begin(self, number: int) -> None:
        """Give a read another number when its first part comes back: threads begin in any order."""
        now = self.count()
        for block in list(self._partly):  # the collector may change it meanwhile
            if block.number == number:
                block.number, block.begun = now, True

    def _overtake(self, number: int) -> None:
        """Give pages back of blocks that were lent before one of which half has come back.

        Batches are used in turn, so what is left of them is kept by the user; and who keeps a batch
        of each read gives none back whole.
        """
        for block in list(self._partly):
            if block.begun and block.number < number and not block.overtaken:
                block.overtaken = True
                block.release_unused()


def is_leased(array: NDArray[Any]) -> bool:
    """Return whether an array is the whole of a pool's block: aligned, and no user's memory.

    Examples
    --------
    >>> is_leased(empty((3,), "f4")), is_leased(np.empty(3))
    (True, False)
    """
    base: Any = array
    while type(base) is np.ndarray:
        base = base.base
    return isinstance(base, _Lease) and array.ctypes.data % ALIGNMENT == 0


_pool = Pool()
empty = _pool.empty
"""The process's own pool: see `Pool.empty`."""
empty_parts = _pool.empty_parts
"""See `Pool.empty_parts`."""
count = _pool.count
"""See `Pool.count`."""
trim = _pool.trim
"""See `Pool.trim`."""


if hasattr(os, "register_at_fork"):
    # A block that the parent lent out stays the parent's; the child starts with a pool of its own.
    os.register_at_fork(after_in_child=_pool._forget)
