"""Memory for batches: 64-byte aligned, recycled when the last reference goes.

Fresh memory is the largest cost of a batch: the allocator gives megabytes back to the kernel, and
every page of the next batch faults again. Here a batch is an array over memory of a pool, which
refers to it weakly: so memory is reused only when no array, tensor or list can see it any more.
TensorFlow aliases a NumPy array without a copy when its data is 64-byte aligned
(``EIGEN_MAX_ALIGN_BYTES``) and holds a reference for as long as it does.

The batches of several steps are read into one block, as arrays that live each for itself. Where a
few of them are kept for long, the pages of the others go back to the kernel.
"""

from __future__ import annotations

import itertools
import mmap
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from oocdata.memory import account, batch_share

__all__ = [
    "ALIGNMENT",
    "Pool",
    "Read",
    "empty",
    "empty_parts",
    "side_by_side",
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


class Read:
    """One read of some steps: what was lent for it is used together.

    Attributes
    ----------
    begun : int
        Counts the reads in the order in which they are used; 0 until the first array of it was seen
        to be gone.
    """

    __slots__ = ("begun",)

    def __init__(self) -> None:
        self.begun = 0


class _Mapping(mmap.mmap):
    """Memory of a block: what tells its arrays from those over a user's own mapping.

    Attributes
    ----------
    lent : list of weakref
        The arrays over it, each from its border on.
    """

    lent: list[weakref.ref[NDArray[Any]]]


class _Block:
    """One anonymous mapping (page aligned, so 64-byte aligned), and the arrays that are lent of it.

    Attributes
    ----------
    borders : sequence of int
        Where each array begins, and where the last one's memory ends.
    lent : list of weakref
        To each array, which an array over it, a tensor or a list keeps alive.
    used : list of int
        The arrays that were alive when they were last looked at.
    read : Read or None
        For which they were lent.
    """

    __slots__ = ("borders", "lent", "mapping", "nbytes", "read", "used")

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.borders: Sequence[int] = ()
        self.lent: list[weakref.ref[NDArray[Any]]] = []
        self.used: list[int] = []
        self.read: Read | None = None
        # Private: Python's default is shared, and after a fork a child would write into our
        # batches.
        self.mapping = _Mapping(-1, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if nbytes >= _HUGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE"):
            with suppress(OSError):  # a kernel built without huge pages: small ones serve
                self.mapping.madvise(mmap.MADV_HUGEPAGE)

    def lend(
        self,
        shapes: Sequence[tuple[int, ...]],
        kind: np.dtype[Any],
        borders: Sequence[int],
        gone: Callable[[weakref.ref[NDArray[Any]]], None],
    ) -> list[NDArray[Any]]:
        """Return arrays over it, each from its border on; `gone` is called when one is."""
        self.borders, self.lent, arrays = borders, [], []
        for shape, start in zip(shapes, borders, strict=False):
            array = np.ndarray(shape, kind, self.mapping, start)
            arrays.append(array)
            self.lent.append(weakref.ref(array, gone))
        self.mapping.lent = self.lent
        return arrays

    def shrink(self, nbytes: int) -> None:
        """Give the pages beyond so many bytes back to the kernel for good."""
        with suppress(OSError, SystemError, BufferError):  # a kernel that can't: it stays as it is
            self.mapping.resize(nbytes)
            self.nbytes = nbytes

    def release_unused(self) -> None:
        """Give the pages of arrays that nobody sees back to the kernel."""
        if not hasattr(mmap, "MADV_DONTNEED"):
            return
        start = 0
        for part in (*self.used, len(self.lent)):
            # Whole pages alone; at the end of the block, to its last one.
            last = part == len(self.lent)
            first, end = -(-start // mmap.PAGESIZE), self.borders[part] // mmap.PAGESIZE
            end = self.nbytes // mmap.PAGESIZE if last else end
            if end > first:
                self.mapping.madvise(
                    mmap.MADV_DONTNEED, first * mmap.PAGESIZE, (end - first) * mmap.PAGESIZE
                )
            start = self.nbytes if last else self.borders[part + 1]


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
        # Re-entrant: the garbage collector may run anything, while this thread holds it.
        self._lock = threading.RLock()
        # By size, the size taken back last at the end.
        self._idle: dict[int, list[_Block]] = {}
        self._idle_now = 0
        # Blocks of which arrays may be in use, and those of which some went since the last look.
        self._lent: set[_Block] = set()
        self._changed: dict[_Block, Any] = {}
        # Those of which some are gone, that are not known to be kept for long.
        self._partly: dict[_Block, None] = {}
        # Counts reads that begin to be used, and the latest one of which half was seen to be gone.
        self._begun = self._half = 0

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
        return self._lend(nbytes, [shape], kind, (0, nbytes), None)[1][0]

    def empty_parts(
        self,
        shapes: Sequence[tuple[int, ...]],
        dtype: DTypeLike,
        read: Read | None = None,
        room: int = 0,
    ) -> tuple[NDArray[Any] | None, list[NDArray[Any]]]:
        """Return uninitialised arrays side by side in one block, which live each for itself.

        Parameters
        ----------
        shapes : sequence of tuple of int
            Alike but for the first axis, or there is no whole.
        dtype : dtype_like
        read : Read, optional
            For which it is, with other blocks or alone. Parts that are kept are those of reads that
            were used before one of which half is gone; so the order in which the parts of one read
            go does not matter.
        room : int
            Bytes of the block at least: those of a whole read, of which the last one of an epoch
            is a part. With blocks of its own, memory would be mapped anew in each epoch.

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
        sizes = [shape[0] * prod(shape[1:]) * kind.itemsize for shape in shapes]
        places = (-(-nbytes // ALIGNMENT) * ALIGNMENT for nbytes in sizes)
        borders = list(itertools.accumulate(places, initial=0))
        if not borders[-1] or kind.hasobject:
            return None, [np.empty(shape, kind) for shape in shapes]
        block, parts = self._lend(max(borders[-1], room), shapes, kind, borders, read or Read())
        whole = None
        together = (sum([shape[0] for shape in shapes]), *shapes[0][1:])
        # If they are alike, and nothing lies between them.
        if prod(together) * kind.itemsize == sum(sizes) == borders[-2] + sizes[-1]:
            # Over the parts' memory, not known to their block: whoever reads drops it before them.
            whole = np.ndarray(together, kind, block.mapping)
        return whole, parts

    def _lend(
        self,
        nbytes: int,
        shapes: Sequence[tuple[int, ...]],
        kind: np.dtype[Any],
        borders: Sequence[int],
        read: Read | None,
    ) -> tuple[_Block, list[NDArray[Any]]]:
        """Return arrays over a block of so many bytes."""
        # Whole pages, as the kernel gives them.
        size = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        with self._lock:
            if not self._idle.get(size):
                self._collect()
            blocks = self._idle.get(size) or self._larger(size)
            if not blocks:
                block = _Block(size)
            else:
                block = blocks.pop()
                self._idle_now -= block.nbytes
                if block.nbytes > max(_WASTED * size, size + _LITTLE):
                    block.shrink(size)
        # Called by whatever thread drops an array, and by the collector: in C, without a lock.
        gone = partial(self._changed.__setitem__, block)
        arrays = block.lend(shapes, kind, borders, gone)
        block.read = read
        self._lent.add(block)  # last: what another thread noted late is not of these arrays
        return block, arrays

    def _larger(self, size: int) -> list[_Block] | None:
        """Return idle blocks not much larger, or make room for one more.

        Where sizes vary, as those of sparse batches do, as many as are in flight would be held
        twice; or as many would be idle, of other sizes, as are in use.
        """
        larger = [n for n, some in self._idle.items() if some and size < n <= size * _LARGER]
        if larger:
            return self._idle[min(larger)]
        if size > _LITTLE:
            self._drop(size, [n for n in self._idle if n < size])
        return None

    def _drop(self, nbytes: int, sizes: list[int]) -> None:
        """Let idle blocks of some sizes go, until so many bytes are free or none is left."""
        for size in sizes:
            blocks = self._idle[size]
            while blocks and nbytes > 0:
                nbytes -= blocks.pop().nbytes
                self._idle_now -= size

    def _collect(self) -> None:
        """Take back blocks that nobody sees any more, and pages around what is kept for long.

        Batches are used in turn. So what is left of a read, when half of one that was used after it
        is gone, is kept by the user; and who keeps a batch of each read gives none back whole.
        """
        looked = []
        for block in list(self._changed):
            del self._changed[block]  # first: what goes from now on is noted again
            if block in self._lent:
                block.used = [part for part, array in enumerate(block.lent) if array() is not None]
                if len(block.used) < len(block.lent):
                    looked.append(block)
        if len(looked) > 1:  # of reads that begin between two looks, more is gone of the first one
            looked.sort(key=lambda block: len(block.used) / len(block.lent))
        for block in looked:
            if read := block.read:
                self._begun += 1
                read.begun = read.begun or self._begun
                self._partly[block] = None
                if 2 * len(block.used) <= len(block.lent):
                    self._half = max(self._half, read.begun)
            if not block.used:
                self._lent.discard(block)
                self._partly.pop(block, None)
                self._keep(block)
        for block in list(self._partly):
            if block.read and block.read.begun < self._half:
                del self._partly[block]  # until more of it is gone
                block.release_unused()

    def _keep(self, block: _Block) -> None:
        """Keep a block that nobody uses, if there is room."""
        most = batch_share() if self._idle_bytes is None else self._idle_bytes
        if self._idle_now + block.nbytes > most and self._idle_bytes is None:
            # While no chunk is cached, as much may be in flight: fresh memory for each batch of 96
            # MiB took through `to_tf` 2.4 times as long, of the processor 1.6 times.
            most = batch_share(cached=account().cached() > 0)
        if block.nbytes > most:
            return
        blocks = self._idle.pop(block.nbytes, [])
        self._idle[block.nbytes] = blocks
        blocks.append(block)
        self._idle_now += block.nbytes
        if self._idle_now > most:  # sizes that went out of use make room for those in use
            self._drop(self._idle_now - most, list(self._idle))

    def trim(self) -> None:
        """Let idle blocks go for which there is no room beside cached chunks."""
        with self._lock:
            self._collect()
            most = batch_share() if self._idle_bytes is None else self._idle_bytes
            if self._idle_now > most:
                self._drop(self._idle_now - most, list(self._idle))


def side_by_side(arrays: Sequence[NDArray[Any]]) -> NDArray[Any] | None:
    """Return arrays of one shape, lent side by side, as one, without a copy; None of others.

    It is aligned, and nobody else's to change. Of one array, it may be a view of all of it.

    Parameters
    ----------
    arrays : sequence of ndarray, shape (…), at least one

    Examples
    --------
    >>> _, parts = empty_parts([(4, 16), (4, 16), (2, 16)], "f4")
    >>> together = side_by_side(parts[:2])
    >>> together.shape, np.shares_memory(together, parts[1])
    ((2, 4, 16), True)
    >>> side_by_side([np.zeros(16)])
    """
    first: Any = arrays[0]
    mapping = first
    while type(mapping) is np.ndarray:
        mapping = mapping.base
    if type(mapping) is not _Mapping or not first.flags.c_contiguous:
        return None
    if len(arrays) == 1:
        return first[None] if first.ctypes.data % ALIGNMENT == 0 else None
    lent = iter(mapping.lent)
    together = (
        first.nbytes % ALIGNMENT == 0
        and any(array() is first for array in lent)  # up to it
        and all(array is following() for array, following in zip(arrays[1:], lent, strict=False))
        and arrays[-1].shape == first.shape
    )
    return np.asarray(_Neighbours(arrays)) if together else None


class _Neighbours:
    """The base object of an array over others that lie side by side: keeps all of them."""

    __slots__ = ("__array_interface__", "_arrays")

    def __init__(self, arrays: Sequence[NDArray[Any]]) -> None:
        self._arrays, first = arrays, arrays[0]
        shape = (len(arrays), *first.shape)
        self.__array_interface__ = {**first.__array_interface__, "shape": shape}


_pool = Pool()
empty = _pool.empty
"""The process's own pool: see `Pool.empty`."""
empty_parts = _pool.empty_parts
"""See `Pool.empty_parts`."""
trim = _pool.trim
"""See `Pool.trim`."""


if hasattr(os, "register_at_fork"):
    # A block that the parent lent out stays the parent's; the child starts with a pool of its own.
    os.register_at_fork(after_in_child=_pool._forget)
