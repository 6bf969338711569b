"""Arrays of small rows that fit the budget: each block is read from the file once, and kept.

A request to the kernel costs as much as copying some kilobytes, so rows much smaller than that are
not read one by one where there is a choice. Their file is read in blocks instead, when a row of
theirs is first asked for, into memory of this process; a batch is then one gather out of it. That
memory is not a mapping of the file: a file that is cut short can't end the process, and one that
changes can't change a batch. Whether the file is still as it was is looked at for every batch.

What is kept lives as long as a source that reads from it.
"""

from __future__ import annotations

import mmap
import os
import threading
from contextlib import suppress
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from oocdata.errors import SourceError
from oocdata.sources.requests import UnfinishedError, join, read_runs
from oocdata.sources.slots import chunk_budget
from oocdata.sources.stamp import FileStamp

__all__ = ["SMALL", "Kept", "KeptBlocks"]

SMALL = 4096
"""Bytes of a run: up to here, asking the kernel for it costs more than copying it once more."""

_BLOCK = 32768
"""Bytes read at a time: long enough to cost little, and few beside the rows of a first batch."""

_HUGE_PAGE = 2 << 20


class KeptBlocks:
    """Bytes of a file, as far as they were asked for.

    Two threads may read the same block at the same time: they write the same bytes, and waiting for
    one another would take as long.

    Parameters
    ----------
    file : FileStamp
    first, nbytes : int
        The part of the file.

    Attributes
    ----------
    complete : bool
        Everything is there.
    bytes : ndarray of uint8, shape (nbytes,)
    """

    def __init__(self, file: FileStamp, first: int, nbytes: int) -> None:
        self.file, self.first = file, first
        # Private: Python's default is shared, and a forked child would write into ours.
        mapping = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if nbytes >= _HUGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE"):
            with suppress(OSError):  # a kernel built without huge pages: small ones serve
                mapping.madvise(mmap.MADV_HUGEPAGE)
        self.bytes = np.frombuffer(mapping, np.uint8)
        self._present = np.zeros(-(-nbytes // _BLOCK), np.bool_)
        self.complete = False

    def fill(self, starts: NDArray[np.int64], nbytes: int) -> bool:
        """Read the blocks that hold some runs and are not there yet; see `unchanged`.

        Parameters
        ----------
        starts : ndarray of int64, shape (n,)
            Byte offsets in the file.
        nbytes : int
            Of each run; at most `SMALL`, so that it lies in two blocks at most.

        Returns
        -------
        bool
            False where that failed: reading the runs themselves tells why, if it concerns them.
        """
        asked = np.zeros(len(self._present), np.bool_)
        for part in (0, nbytes - 1):
            asked[(starts + (part - self.first)) // _BLOCK] = True
        blocks = np.flatnonzero(asked & ~self._present)
        if not len(blocks):
            return True
        firsts, lengths = join(blocks * _BLOCK, _BLOCK)
        places = blocks[firsts] * _BLOCK
        np.minimum(lengths, len(self.bytes) - places, out=lengths)
        try:
            opened = self.file.descriptor()  # held: closed, its number would be another file's
            read_runs(opened.number, self.first + places, places, lengths, self.bytes)
        except (SourceError, UnfinishedError):
            return False
        self._present[blocks] = True
        self.complete = bool(self._present.all())
        return True

    def unchanged(self) -> bool:
        """Return whether the file is still as it was; forget what was read of it if not.

        To be asked after bytes were taken: then those are of the file as it was opened, and so is
        what they were filled with.
        """
        try:
            self.file.check(self.file.descriptor())
        except SourceError:
            self.complete = False
            self._present[:] = False
            return False
        return True


class Kept:
    """The part of a file that a source may keep in memory; a description, until it is read.

    Parameters
    ----------
    file : FileStamp
    first, nbytes : int
        The part of the file.

    Examples
    --------
    >>> Kept(FileStamp("a.npy", 1128, 0), 128, 1000).nbytes
    1000
    """

    __slots__ = ("_budget", "_memory", "file", "first", "nbytes")

    def __init__(self, file: FileStamp, first: int, nbytes: int) -> None:
        self.file, self.first, self.nbytes = file, first, nbytes
        self._memory: KeptBlocks | None = None
        self._budget = -1

    def __reduce__(self) -> tuple[type[Kept], tuple[FileStamp, int, int]]:
        return (Kept, (self.file, self.first, self.nbytes))

    @property
    def most_bytes(self) -> int:
        """Bytes that may come to be kept: all or nothing."""
        return self.nbytes if self.nbytes <= chunk_budget() else 0

    def memory(self) -> KeptBlocks | None:
        """Return the memory; None while all that is kept would take more than the budget."""
        budget = chunk_budget()
        if budget != self._budget:
            self._memory, self._budget = None, budget
        if self._memory is None and self.nbytes <= budget:
            self._memory = _memory_of(self, budget)
        return self._memory


_lock = threading.Lock()
_memories: WeakValueDictionary[tuple[FileStamp, int, int], KeptBlocks] = WeakValueDictionary()
"""One for each part of a file in this process, however often it was opened."""


def _memory_of(kept: Kept, budget: int) -> KeptBlocks | None:
    key = (kept.file, kept.first, kept.nbytes)
    with _lock:
        found = _memories.get(key)
        if found is not None:
            return found
        others = sum(len(memory.bytes) for memory in _memories.values())
        if others + kept.nbytes > budget:
            return None
        try:
            memory = _memories[key] = KeptBlocks(*key)
        except (OSError, OverflowError):  # the system grants no more memory
            return None
        return memory


def _fresh_after_fork() -> None:
    global _lock
    _lock = threading.Lock()  # a thread that is not here may have held it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_fresh_after_fork)
