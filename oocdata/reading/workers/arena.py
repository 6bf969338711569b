"""Memory that processes share and that has no name, so that nothing of it can be left behind."""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile
from collections import deque
from collections.abc import Container
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.buffers import lease

__all__ = ["Arena", "nameless"]

_MAP_FIXED = 0x10  # Linux and macOS, <sys/mman.h>


def nameless(nbytes: int) -> int:
    """Return a descriptor of new shared memory, for the caller to close.

    It takes room when it is written to, and is gone with the last descriptor and mapping of it.
    """
    try:
        descriptor = os.memfd_create("oocdata", os.MFD_CLOEXEC)
    except (AttributeError, OSError):  # not Linux: a file that has lost its name already
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, nbytes)
    return descriptor


class Arena:
    """Slots of shared memory that workers lay runs of batches in.

    `slot_bytes` is a multiple of the page size. `descriptor` is to be handed to the workers and
    closed; `free` are the slots that nobody refers to, the one used last at the end.

    Examples
    --------
    >>> arena = Arena(slots=2, slot_bytes=mmap.PAGESIZE)
    >>> slot = arena.free.pop()
    >>> part = arena.lend(slot)[64:128]
    >>> len(arena.free)
    1
    >>> del part
    >>> len(arena.free)
    2
    >>> os.close(arena.descriptor)
    """

    def __init__(self, slots: int, slot_bytes: int) -> None:
        self.slots = slots
        self.slot_bytes = slot_bytes
        self.descriptor = nameless(slots * slot_bytes)
        self._memory = np.frombuffer(mmap.mmap(self.descriptor, slots * slot_bytes), np.uint8)
        self.address = self._memory.ctypes.data
        # Appended to by finalisers, in any thread: of all that could be locked, nothing is.
        self.free = deque(range(slots))

    def view(self, slot: int) -> NDArray[np.uint8]:
        """Return a slot's memory, for as long as the slot is not free."""
        return self._memory[slot * self.slot_bytes : (slot + 1) * self.slot_bytes]

    def lend(self, slot: int) -> NDArray[np.uint8]:
        """Return a slot's memory; the slot is free again when nothing refers to it any more."""
        address = self.address + slot * self.slot_bytes
        return lease(self, slot, address, (self.slot_bytes,), np.uint8)

    def give_back(self, block: Any) -> None:
        """Take back a slot."""
        self.free.append(block)

    def detach(self, at_work: Container[int]) -> None:
        """Make the slots that are lent this process's own, where they are; used after a fork.

        Nobody here refers to those `at_work`, which a worker writes to.
        """
        free = set(self.free)
        for slot in range(self.slots):
            if slot not in free and slot not in at_work:
                _make_private(self.address + slot * self.slot_bytes, self.slot_bytes)


def _make_private(address: int, nbytes: int) -> None:
    """Put a private copy in the place of shared pages, at the same addresses."""
    content = ctypes.string_at(address, nbytes)
    system = ctypes.CDLL(None, use_errno=True)
    system.mmap.restype = ctypes.c_void_p
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED
    made = system.mmap(
        ctypes.c_void_p(address), ctypes.c_size_t(nbytes),
        mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, ctypes.c_long(0),
    )  # fmt: skip
    if made != address:  # better to end than to deliver numbers that change
        os.abort()
    ctypes.memmove(address, content, nbytes)
