"""What the disk gives, with the page cache emptied for the very files that are read.

Reads in sequence, and reads of the size of a row or a chunk from all over. Below a virtual machine
or a file server there may be other caches, which can't be emptied from here.
"""

from __future__ import annotations

import mmap
import os
import threading
from itertools import chain, count
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from oocdata.datasets.dataset import Dataset
from oocdata.errors import SourceError
from oocdata.order import Shuffle
from oocdata.sources.adapt import layout_of
from oocdata.sources.buffers import empty
from oocdata.sources.chunks import Chunks
from oocdata.sources.requests import UnfinishedError, read_runs
from oocdata.tools.bench.files import Files
from oocdata.tools.bench.limits import THREADS, Measure, together
from oocdata.tools.profile.needed import parts_of, sources_of

__all__ = ["disk_at_random", "disk_in_sequence", "stored_unit"]

_IN_FLIGHT = 8
_BLOCK = 512 << 10
"""Larger ones come slower: the system reads ahead less for them than for several at a time."""

_MOST_AT_ONCE = 256
_MOST_BYTES = 32 << 20
"""Of the reads that a thread has in flight."""


def disk_in_sequence(files: Files) -> Measure:
    """Return the measuring of reads one after the other, several in flight.

    The page cache must have been emptied; each round begins somewhere else.
    """
    places = np.random.default_rng(0)
    ends = np.cumsum([-(-size // _BLOCK) for size in files.sizes])
    total = int(ends[-1])

    def once(seconds: float) -> float:
        buffers = [bytearray(_BLOCK) for _ in range(_IN_FLIGHT)]
        first = int(places.integers(total))
        blocks = chain(range(first, total), range(first))
        lock = threading.Lock()

        def work(number: int, end: float) -> int:
            done = 0
            while not done or perf_counter() < end:  # one, at least: a limit is never 0
                with lock:
                    block = next(blocks, None)
                if block is None:  # all of it: nothing is read twice, for it would be cached
                    break
                which = int(np.searchsorted(ends, block, side="right"))
                within = block - (int(ends[which - 1]) if which else 0)
                file = os.open(files.paths[which], os.O_RDONLY)
                try:
                    done += os.preadv(file, [buffers[number]], within * _BLOCK)
                finally:
                    os.close(file)
            return done

        return together(work, _IN_FLIGHT, seconds)

    return Measure(once, _BLOCK * _IN_FLIGHT)


def stored_unit(dataset: Dataset) -> int:
    """Return the bytes that the smallest useful read fetches: a stored row, or a stored chunk.

    Examples
    --------
    >>> import oocdata as ooc
    >>> stored_unit(ooc.open(np.zeros((10, 3))))
    24
    """
    units = []
    for source in sources_of(dataset):
        for part in parts_of(source):
            rows = max(1, part.shape[0])
            row = int(np.prod(part.shape[1:])) * part.dtype.itemsize
            stored = layout_of(part).stored_bytes
            chunk = part.chunk_rows * (row if stored is None else stored / rows)
            if isinstance(part, Chunks):
                _, number = part.kept_chunks
                chunk = chunk if stored is None or not number else stored / number
            units.append(int(chunk))
    return max(1, min(units, default=1))


def disk_at_random(files: Files, unit: int) -> Measure:
    """Return the measuring of reads of `unit` bytes all over the files, hundreds in flight.

    None is read twice, and no two of a page.
    """
    rounds = count()
    step = max(unit, mmap.PAGESIZE)
    ends = np.cumsum([-(-size // step) for size in files.sizes])
    sizes, total = np.array(files.sizes, np.int64), int(ends[-1])
    most = max(1, min(_MOST_AT_ONCE, _MOST_BYTES // unit))

    def once(seconds: float) -> float:
        buffers = [empty((most * unit,), np.uint8) for _ in range(THREADS)]
        epoch = next(rounds)
        starts = iter(range(0, total, most))
        lock = threading.Lock()

        def work(number: int, end: float) -> int:
            done = 0
            while not done or perf_counter() < end:
                with lock:
                    start = next(starts, None)
                if start is None:
                    break
                stop = min(start + most, total)
                slots = Shuffle().positions(total, start, stop, seed=0, epoch=epoch)
                done += _read_slots(slots, buffers[number])
            return done

        return together(work, THREADS, seconds)

    def _read_slots(slots: NDArray[np.int64], out: NDArray[np.uint8]) -> int:
        which = np.searchsorted(ends, slots, side="right")
        offsets = (slots - np.where(which, ends[which - 1], 0)) * step
        lengths = np.minimum(unit, sizes[which] - offsets)
        touched, place = np.unique(which, return_inverse=True)
        opened = [os.open(files.paths[file], os.O_RDONLY) for file in touched.tolist()]
        try:
            if hasattr(os, "posix_fadvise"):
                for file in opened:  # or the system would fetch what lies beside it, too
                    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
            read_runs(np.array(opened)[place], offsets, np.arange(len(slots)) * unit, lengths, out)
        except UnfinishedError as error:
            raise SourceError(
                "a file must be readable and stay as it is; it became shorter, or "
                f"{error.cause or 'ended early'}.",
                path=files.paths[int(which[error.run])],
            ) from error
        finally:
            for file in opened:
                os.close(file)
        return int(lengths.sum())

    return Measure(once, most * unit * THREADS)
