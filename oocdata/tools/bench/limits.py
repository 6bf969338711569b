"""What the disk, the decoder and memory allow: each does nothing but that.

In a thread for each core, and two at least. A round of the disk must find the page cache emptied
for the files; below a virtual machine or a file server there may be other caches, which can't be
emptied from here.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, count
from math import prod
from time import perf_counter

import numpy as np

from oocdata.box import Extent
from oocdata.datasets.dataset import Dataset
from oocdata.engines.buffers import empty
from oocdata.engines.cache import cache
from oocdata.engines.source import Source
from oocdata.order import Shuffle
from oocdata.threads import cores
from oocdata.tools.bench.files import Files

__all__ = ["THREADS", "Measure", "copying", "decoding", "disk_at_random", "disk_in_sequence"]

THREADS = max(2, cores())

_DECODED_BYTES = 32 << 20
_CHUNKS = 64
_MOST_ROWS = 4096
_COPIED_BYTES = 128 << 20
"""Memory that rows are copied from: larger than the processor's cache, however small the file."""

_IN_FLIGHT = 8
_BLOCK = 512 << 10
"""Larger ones come slower: the system reads ahead less for them than for several at a time."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A limit that can be measured, again and again.

    Attributes
    ----------
    once : callable
        Gets seconds, does it for about so long, and returns the bytes a second.
    nbytes : int
        Of memory that it takes.
    """

    once: Callable[[float], float]
    nbytes: int


def copying(dataset: Dataset, batch_size: int) -> Measure:
    """Return the measuring of rows copied from memory, at random, into buffers that are reused."""
    row = max(1, max(_row_bytes(source) for source in dataset.sources()))
    row = min(row, _COPIED_BYTES // 8)
    held = _COPIED_BYTES // row
    at_once = max(1, min(batch_size, _MOST_ROWS, _DECODED_BYTES // row))
    rows = empty((held * row,), np.uint8)
    rows[:] = 1
    items = rows.view(f"V{row}")
    buffers = [empty((at_once * row,), np.uint8).view(f"V{row}") for _ in range(THREADS)]
    seeds = np.random.default_rng(3).spawn(THREADS)

    def once(seconds: float) -> float:
        def work(number: int, end: float) -> int:
            done = 0
            while True:
                for some in seeds[number].integers(held, size=(64, at_once)):
                    np.take(items, some, out=buffers[number], mode="clip")
                    done += at_once * row
                    if perf_counter() >= end:  # after one, at least: a limit is never 0
                        return done

        return _together(work, THREADS, seconds)

    return Measure(once, rows.nbytes + at_once * row * THREADS)


def _row_bytes(source: Source) -> int:
    return prod(source.shape[1:]) * source.dtype.itemsize


def decoding(dataset: Dataset) -> Measure | None:
    """Return the measuring of reading whole chunks, none of them cached; None without chunks."""
    chunked = [source for source in dataset.sources() if source.storage().chunks is not None]
    if not chunked or not all(prod(source.shape) for source in chunked):
        return None
    source = max(chunked, key=lambda one: prod(one.storage().chunks or ()) * one.dtype.itemsize)
    chunk = tuple(map(min, source.storage().chunks or (), source.shape))
    nbytes = prod(chunk) * source.dtype.itemsize
    whole = [length // step for length, step in zip(source.shape, chunk, strict=True)]
    some = max(1, min(_CHUNKS, _DECODED_BYTES // nbytes, prod(whole)))
    numbers = np.random.default_rng(2).choice(prod(whole), some, replace=False)
    origins = np.stack(np.unravel_index(numbers, whole), axis=1) * np.array(chunk)
    out = empty((some, *chunk), source.dtype)

    def once(seconds: float) -> float:
        done, began = 0, perf_counter()
        while True:
            cache.forget()
            source.read(origins, Extent.of(chunk), out)
            done += out.nbytes
            spent = perf_counter() - began
            if spent >= seconds:
                return done / max(spent, 1e-9)

    return Measure(once, out.nbytes)


def disk_in_sequence(files: Files) -> Measure:
    """Return the measuring of reads one after the other, several in flight."""
    places = np.random.default_rng(0)
    ends = np.cumsum([-(-size // _BLOCK) for size in files.sizes])
    total = int(ends[-1])

    def once(seconds: float) -> float:
        buffers = [bytearray(_BLOCK) for _ in range(_IN_FLIGHT)]
        first = int(places.integers(total))
        blocks = chain(range(first, total), range(first))

        def read(number: int, block: int) -> int:
            which = int(np.searchsorted(ends, block, side="right"))
            within = block - (int(ends[which - 1]) if which else 0)
            return _read(files.paths[which], buffers[number], within * _BLOCK)

        return _each_once(blocks, read, _IN_FLIGHT, seconds)

    return Measure(once, _BLOCK * _IN_FLIGHT)


def disk_at_random(files: Files, unit: int) -> Measure:
    """Return the measuring of reads of `unit` bytes all over the files; none is read twice."""
    rounds = count()
    step = max(unit, mmap.PAGESIZE)
    ends = np.cumsum([-(-size // step) for size in files.sizes])
    total = int(ends[-1])

    def once(seconds: float) -> float:
        buffers = [bytearray(unit) for _ in range(2 * _IN_FLIGHT)]
        epoch = next(rounds)

        def read(number: int, place: int) -> int:
            at = Shuffle().positions(total, place, place + 1, seed=0, epoch=epoch)[0]
            which = int(np.searchsorted(ends, at, side="right"))
            within = int(at) - (int(ends[which - 1]) if which else 0)
            return _read(files.paths[which], buffers[number], within * step, at_random=True)

        return _each_once(iter(range(total)), read, len(buffers), seconds)

    return Measure(once, 2 * _IN_FLIGHT * unit)


def _read(path: str, buffer: bytearray, offset: int, *, at_random: bool = False) -> int:
    file = os.open(path, os.O_RDONLY)
    try:
        if at_random and hasattr(os, "posix_fadvise"):
            # Or the system would fetch the neighbours too.
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
        return os.preadv(file, [buffer], offset)
    finally:
        os.close(file)


def _each_once(
    items: Iterator[int], read: Callable[[int, int], int], threads: int, seconds: float
) -> float:
    """Read items in threads, each once, until time is over; return the bytes a second."""
    lock = threading.Lock()

    def work(number: int, end: float) -> int:
        done = 0
        while not done or perf_counter() < end:  # one, at least: a limit is never 0
            with lock:
                item = next(items, None)
            if item is None:
                break
            done += read(number, item)
        return done

    return _together(work, threads, seconds)


def _together(work: Callable[[int, float], int], threads: int, seconds: float) -> float:
    """Call ``work(number, end)`` in threads; return what they did together, a second."""
    began = perf_counter()
    with ThreadPoolExecutor(threads, "oocdata-limit") as pool:
        done = list(pool.map(work, range(threads), [began + seconds] * threads))
    return sum(done) / max(perf_counter() - began, 1e-9)
