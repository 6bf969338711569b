"""Allocate memory for batches: 64-byte aligned, and recycled when no array uses it any more.

Fresh memory is the largest cost of a batch: every page faults again. A batch is an array over a
block of a pool, which refers to the array weakly, so memory is reused only when no array, tensor or
list can see it. TensorFlow uses memory without a copy if it is 64-byte aligned
(``EIGEN_MAX_ALIGN_BYTES``).

The batches of several steps share one block, as separate arrays. Before more memory is mapped, the
pages of batches that were freed beside others go back to the kernel: a kept batch keeps its own.
"""

from __future__ import annotations

import itertools
import mmap
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from ctypes import addressof, c_char
from functools import partial
from math import prod
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from oocdata.memory import account, batch_share

ALIGNMENT = 64
"""Alignment in bytes that TensorFlow requires to use memory without a copy."""

_HUGE_PAGE = 2 << 20

_byte_of = c_char.from_buffer

_MAX_RATIO = 3
"""An idle block is reused if it is at most this many times as large as needed. Of a larger block,
the rest would be mapped anew for the next large batch."""

_MOST_SCRATCH = 4 << 20
"""Bytes of scratch memory up to which malloc may keep it, for each thread."""

_Map = TypeVar("_Map", bound=mmap.mmap)

_MAX_WASTE, _MIN_SHRINK_BYTES = 1.25, 1 << 20
"""A block that is reused is shrunk if it is larger than `_MAX_WASTE` times its arrays, and if that
frees more than `_MIN_SHRINK_BYTES`: all of a mapping counts as in use."""


class _Mapping(mmap.mmap):
    """Memory of a block and its `arrays`, in order.

    The type distinguishes them from arrays over a user's mapping.
    """

    arrays: list[weakref.ref[NDArray[Any]]]


class _Block:
    """One anonymous mapping (page aligned, so 64-byte aligned), and the arrays over it.

    `offsets` are where each array begins, and where the memory of the last one ends. `arrays` are
    weak references; views, tensors and lists keep the arrays alive.
    """

    __slots__ = ("arrays", "mapping", "nbytes", "offsets")

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.offsets: Sequence[int] = ()
        self.arrays: list[weakref.ref[NDArray[Any]]] = []
        self.mapping = reserve(_Mapping, nbytes)
        if nbytes >= _HUGE_PAGE:
            advise(self.mapping, "MADV_HUGEPAGE", 0, nbytes)

    def allocate(
        self,
        shapes: Sequence[tuple[int, ...]],
        dtype: np.dtype[Any],
        offsets: Sequence[int],
        on_free: Callable[[weakref.ref[NDArray[Any]]], None],
    ) -> list[NDArray[Any]]:
        """Return arrays over the block; `on_free` is called when one is freed."""
        self.offsets, self.arrays, arrays = offsets, [], []
        for shape, start in zip(shapes, offsets, strict=False):
            array = np.ndarray(shape, dtype, self.mapping, start)
            arrays.append(array)
            self.arrays.append(weakref.ref(array, on_free))
        self.mapping.arrays = self.arrays
        return arrays

    @property
    def used(self) -> list[int]:
        """Numbers of the arrays that are alive."""
        numbers = []
        for number, array in enumerate(self.arrays):  # a comprehension would be one more call
            if array() is not None:
                numbers.append(number)
        return numbers

    def shrink(self, nbytes: int) -> None:
        """Return the pages beyond `nbytes` to the kernel for good, if the kernel can do that."""
        with suppress(OSError, SystemError, BufferError):
            self.mapping.resize(nbytes)
            self.nbytes = nbytes

    def release_unused(self) -> None:
        """Return the pages of freed arrays to the kernel."""
        start = 0
        for part in (*self.used, len(self.arrays)):
            # Whole pages only; at the end of the block, up to its last one.
            last = part == len(self.arrays)
            first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
            end = self.nbytes if last else self.offsets[part] // mmap.PAGESIZE * mmap.PAGESIZE
            advise(self.mapping, "MADV_DONTNEED", first, end - first)
            start = self.nbytes if last else self.offsets[part + 1]


def reserve(kind: type[_Map], nbytes: int, flags: int = 0) -> _Map:
    """Map memory of this process."""
    # Private: Python's default is shared, so a forked child would write into our batches.
    try:
        return kind(-1, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | flags)
    except (OSError, OverflowError) as error:
        raise MemoryError(f"no memory for {nbytes:,} bytes. Read fewer at a time.") from error


def keep_freed_memory() -> None:
    """Let malloc keep up to 64 MiB of freed memory (``man mallopt``: M_TRIM_THRESHOLD).

    Else the pages of the next batch fault again: `to_tf` took twice the processor time for records
    of 60 KB, NumPy iteration 1.6 times for results of functions of 512 KiB, and 1.2 times for
    batches of 256 cached rows of 784 bytes.
    """
    np.empty((32 << 20) - (8 << 10), np.uint8)  # the largest block whose end raises the threshold


def advise(mapping: mmap.mmap | None, name: str, start: int, nbytes: int) -> None:
    """Advise the system how memory is used; systems may ignore it."""
    advice = getattr(mmap, name, None)
    if mapping is not None and advice is not None and nbytes > 0:
        with suppress(OSError):
            mapping.madvise(advice, start, nbytes)


def rounded_size(number: int) -> int:
    """Round up to one of four sizes per power of two.

    Memory of such sizes is recycled, although the sizes that are needed vary from read to read, as
    those of sparse batches do: with values of float64, they take 1 / 1.4 of the processor time by
    NumPy iteration, 1 / 1.2 through `to_tf`.

    >>> [rounded_size(number) for number in (1, 8, 9, 100, 129)]
    [1, 8, 10, 112, 160]
    """
    step = 1 << max(0, number.bit_length() - 3)
    return -(-number // step) * step


def scratch_memory(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Allocate memory that is freed before a read ends.

    Little of it comes from malloc, which recycles it. A block of the pool that is used for less is
    cut, so the next batch took fresh memory: with it, PDEBench's stacked fields took 1.25 times the
    processor time by NumPy iteration, 1.2 times through `to_tf`; ARCO-ERA5's 1.6 times by NumPy.
    """
    kind = np.dtype(dtype)
    large = prod(shape) * kind.itemsize > _MOST_SCRATCH
    return _pool.empty(shape, kind) if large else np.empty(shape, kind)


class Pool:
    """Blocks of batch memory, recycled within a limit of idle bytes.

    `share` returns the bytes that the pool may keep idle; with ``cached=False``, while no chunk is
    cached.
    """

    def __init__(self, share: Callable[..., int] = batch_share) -> None:
        self._share = share
        self._reset()

    def _reset(self) -> None:
        # Re-entrant: the garbage collector may run anything while this thread holds the lock.
        self._lock = threading.RLock()
        # By size, the size freed most recently at the end.
        self._idle: dict[int, list[_Block]] = {}
        self._idle_bytes = 0
        # Blocks in use, and those of which arrays were freed since the last collection.
        self._in_use: set[_Block] = set()
        self._changed: dict[_Block, Any] = {}
        # Blocks in use of which arrays were freed whose pages are still theirs.
        self._partly: set[_Block] = set()

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """Return an uninitialised C-contiguous array over memory that no other array uses.

        It is 64-byte aligned and writable; for objects, memory is NumPy's own.
        """
        kind = np.dtype(dtype)
        nbytes = prod(shape) * kind.itemsize
        if nbytes == 0 or kind.hasobject:
            return np.empty(shape, kind)
        if nbytes < mmap.PAGESIZE:  # malloc recycles it in half the time; a block takes a page
            memory: Any = np.empty(nbytes + ALIGNMENT, np.uint8)
            return np.ndarray(shape, kind, memory, -addressof(_byte_of(memory)) % ALIGNMENT)
        return self._allocate(nbytes, [shape], kind, (0, nbytes))[1][0]

    def empty_parts(
        self,
        shapes: Sequence[tuple[int, ...]],
        dtype: DTypeLike,
        room: int = 0,
    ) -> tuple[NDArray[Any] | None, list[NDArray[Any]]]:
        """Return uninitialised arrays side by side in one block, which are freed independently.

        Each is 64-byte aligned; memory is reused when all are free. The first result is all parts
        as one array, to read into at once and drop, or None if there is padding between them or
        shapes differ in more than the first axis. `room` is the least size of the block in bytes:
        that of a whole read, of which the last read of an epoch is a part. With smaller blocks for
        it, memory would be mapped anew in each epoch.
        """
        kind = np.dtype(dtype)
        sizes = [shape[0] * prod(shape[1:]) * kind.itemsize for shape in shapes]
        places = (-(-nbytes // ALIGNMENT) * ALIGNMENT for nbytes in sizes)
        offsets = list(itertools.accumulate(places, initial=0))
        if not offsets[-1] or kind.hasobject:
            return None, [np.empty(shape, kind) for shape in shapes]
        nbytes = max(offsets[-1], room)
        block, parts = self._allocate(nbytes, shapes, kind, offsets)
        whole = None
        shape = (sum([shape[0] for shape in shapes]), *shapes[0][1:])
        # Shapes match, and there is no padding.
        if prod(shape) * kind.itemsize == sum(sizes) == offsets[-2] + sizes[-1]:
            # Not known to the block: the reader drops it before the parts.
            whole = np.ndarray(shape, kind, block.mapping)
        return whole, parts

    def _allocate(
        self,
        nbytes: int,
        shapes: Sequence[tuple[int, ...]],
        dtype: np.dtype[Any],
        offsets: Sequence[int],
    ) -> tuple[_Block, list[NDArray[Any]]]:
        """Return a block of at least `nbytes`, and arrays over it."""
        size = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        with self._lock:
            if not self._idle.get(size):
                self._collect()
            if blocks := self._idle.get(size) or self._larger(size):
                block = blocks.pop()
                self._idle_bytes -= block.nbytes
                if block.nbytes > max(_MAX_WASTE * size, size + _MIN_SHRINK_BYTES):
                    block.shrink(size)
            else:
                self._make_room(size)
                block = _Block(size)
        # Called by any thread that frees an array, and by the collector: in C, without a lock.
        on_free = partial(self._changed.__setitem__, block)
        arrays = block.allocate(shapes, dtype, offsets, on_free)
        self._in_use.add(block)  # last: late notes of other threads are not about these arrays
        return block, arrays

    def _larger(self, size: int) -> list[_Block] | None:
        """Return idle blocks that are not much larger.

        Where sizes vary, as those of sparse batches do, few blocks fit exactly; see `rounded_size`.
        """
        larger = [n for n, blocks in self._idle.items() if blocks and size < n <= size * _MAX_RATIO]
        return self._idle[min(larger)] if larger else None

    def _make_room(self, size: int) -> None:
        """Return memory to the kernel before a block is mapped."""
        while self._partly:
            self._partly.pop().release_unused()
        # Without this, blocks that are too small would take as much memory as those in use.
        if size > _MIN_SHRINK_BYTES:
            self._free(size, [n for n in self._idle if n < size])
        # Blocks of any size, also much larger ones of a loader that is no longer in use.
        mapped = self._idle_bytes + sum(block.nbytes for block in list(self._in_use))
        self._free(mapped + size - self._most_bytes(), list(self._idle))

    def _most_bytes(self) -> int:
        """Return the bytes that may be idle, and those that may be mapped before idle ones go."""
        # While no chunk is cached, batches may use that share too: with fresh memory for each batch
        # of 96 MiB, `to_tf` took 2.4 times as long, and 1.6 times the processor time.
        return self._share(cached=account().cached() > 0)

    def _free(self, nbytes: int, sizes: list[int]) -> None:
        """Free idle blocks of the given sizes, until `nbytes` are free or none is left."""
        for size in sizes:
            blocks = self._idle[size]
            while blocks and nbytes > 0:
                nbytes -= blocks.pop().nbytes
                self._idle_bytes -= size

    def _collect(self) -> None:
        """Recycle the blocks of which all arrays were freed; note those of which some were."""
        for block in list(self._changed):
            del self._changed[block]  # first: arrays freed from now on are noted again
            if block in self._in_use:
                if block.used:
                    self._partly.add(block)
                else:
                    self._in_use.discard(block)
                    self._partly.discard(block)
                    self._recycle(block)

    def _recycle(self, block: _Block) -> None:
        """Keep a free block for reuse, if there is room."""
        most = self._share()
        if self._idle_bytes + block.nbytes > most:
            most = self._most_bytes()
        if block.nbytes > most:
            return
        blocks = self._idle.pop(block.nbytes, [])
        self._idle[block.nbytes] = blocks
        blocks.append(block)
        self._idle_bytes += block.nbytes
        if self._idle_bytes > most:  # sizes no longer in use make room for those in use
            self._free(self._idle_bytes - most, list(self._idle))

    def trim(self) -> None:
        """Free idle blocks that exceed the share of batches, to make room for cached chunks."""
        with self._lock:
            self._collect()
            self._free(self._idle_bytes - self._share(), list(self._idle))


def side_by_side(arrays: Sequence[NDArray[Any]]) -> NDArray[Any] | None:
    """Return arrays that are side by side in one block as one array, without a copy; else None.

    They have one shape; a single one may be a view of a whole array. The result is aligned, and no
    other array may change it.
    """
    first: Any = arrays[0]
    mapping = first
    while type(mapping) is np.ndarray:
        mapping = mapping.base
    if type(mapping) is not _Mapping or not first.flags.c_contiguous:
        return None
    if len(arrays) == 1:
        return first[None] if first.ctypes.data % ALIGNMENT == 0 else None
    following = iter(mapping.arrays)
    adjacent = (
        first.nbytes % ALIGNMENT == 0
        and any(array() is first for array in following)  # advances to the array after `first`
        and all(array is next(following, lambda: None)() for array in arrays[1:])
        and arrays[-1].shape == first.shape
    )
    return np.asarray(_Neighbours(arrays)) if adjacent else None


class _Neighbours:
    """The base object of an array over several adjacent arrays; keeps all of them alive."""

    __slots__ = ("__array_interface__", "_arrays")

    def __init__(self, arrays: Sequence[NDArray[Any]]) -> None:
        self._arrays, first = arrays, arrays[0]
        shape = (len(arrays), *first.shape)
        self.__array_interface__ = {**first.__array_interface__, "shape": shape}


_pool = Pool()
empty = _pool.empty
"""Allocate from the pool of this process; see `Pool.empty`."""
empty_parts = _pool.empty_parts
"""Allocate arrays side by side in one block; see `Pool.empty_parts`."""


def empty_rows(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Allocate an array from the pool whose length varies from read to read; not for batches."""
    return empty((rounded_size(shape[0]), *shape[1:]), dtype)[: shape[0]]


trim = _pool.trim
"""Free idle blocks; see `Pool.trim`."""


# The parent's blocks stay the parent's; the child starts with an empty pool.
os.register_at_fork(after_in_child=_pool._reset)
