"""What the disk, the link, the decoder and memory allow: each does nothing but that.

In a thread for each core, and two at least. Before the disk is measured, the files must be dropped
from the page cache; below a virtual machine or a file server there may be other caches, which can't
be emptied from here.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import chain, islice
from math import prod
from operator import itemgetter
from pathlib import Path
from time import perf_counter
from typing import TypeAlias

import numpy as np

from oocdata.box import Extent
from oocdata.datasets.dataset import Dataset, Draw
from oocdata.datasets.request import of_sources
from oocdata.datasets.spec import leaves
from oocdata.engines.cache import cache
from oocdata.engines.soon import by_file, soon
from oocdata.threads import cores
from oocdata.tools.profile.pacing import Measure

__all__ = [
    "MEMORY", "THREADS", "Files", "copying", "decoding", "disk_reading", "files_of", "link_reading",
]  # fmt: skip

_MOST_FILES = 20_000
_LOOKED_AT = 8
"""Files that are asked whether they are in the page cache."""


class Files(dict[str, int]):
    """Local files by their paths, and the bytes of each."""

    def drop(self) -> None:
        """Ask the system to drop the files from the page cache."""
        for path in self:
            with open(path, "rb") as file:
                with suppress(OSError):  # pages that are yet to be written can't be dropped
                    os.fsync(file.fileno())
                if hasattr(os, "posix_fadvise"):
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def are_gone(self) -> bool:
        """Return whether they are gone from the page cache, as a few of the largest tell.

        A file that another process has mapped stays, and so does one that lies in memory.
        """
        largest = sorted(self.items(), key=itemgetter(1), reverse=True)[:_LOOKED_AT]
        for path, size in largest:
            with open(path, "rb") as file:
                try:  # preadv2(2): an error if the system would have to wait for the disk
                    flags = getattr(os, "RWF_NOWAIT", 0)
                    if os.preadv(file.fileno(), [bytearray(1)], size // 2, flags):
                        return False
                except BlockingIOError:
                    continue
                except OSError:  # of no use with this file system
                    return False
        return True


def files_of(dataset: Dataset) -> Files:
    """Return the local files that a dataset is read from; none for memory and for URLs."""
    found = Files()
    for source in dataset.sources() if len(dataset) else []:
        storage = source.storage()
        named = [file.path for file in storage.files] or [*storage.row_files]
        named = named or [storage.path or ""]
        if storage.path and os.path.isdir(storage.path):  # Zarr: a folder of chunks
            keys = [key for _, key in storage.part_names] or [storage.key]
            folders = [Path(storage.path, (key or "").strip("/")) for key in keys]
            below = chain.from_iterable(folder.rglob("*") for folder in folders)
            named = [str(file) for file in islice(below, _MOST_FILES) if file.is_file()]
        for path in named:
            with suppress(OSError):
                found[path] = os.stat(path).st_size
    return found


THREADS = max(2, cores())

MEMORY = 256 << 20
"""Bytes that measuring a limit takes, at most, unless a single chunk is larger."""

_DECODED_BYTES = 32 << 20
_RUNS = 16
_MOST_ROWS = 4096
_COPIED_BYTES = 128 << 20
"""Memory that rows are copied from: larger than the processor's cache, however small the file."""

_FETCHED_BYTES, _FETCHES = 8 << 20, 4
"""Of elements, so much is asked of stores at a time, by so many threads."""

_IN_FLIGHT = 8
_BLOCK = 512 << 10
"""Larger reads are slower: the system reads ahead less for them than for several at a time."""


Limited: TypeAlias = tuple[Measure, float]
"""What measures bytes a second, and the bytes that an epoch needs for each element, each once."""


def copying(dataset: Dataset, batch_size: int) -> Limited:
    """Return the measuring of rows copied from memory, at random, into buffers that are reused."""
    sources = dataset.sources()
    row = max(prod(source.shape[1:]) * source.dtype.itemsize for source in sources)
    row = min(max(1, row), _COPIED_BYTES // 8)
    at_once = max(1, min(batch_size, _MOST_ROWS, _DECODED_BYTES // row))
    items = np.ones(_COPIED_BYTES // row * row, np.uint8).view(f"V{row}")
    buffers = np.empty((THREADS, at_once), items.dtype)
    draws = np.random.default_rng(3).spawn(THREADS)

    def work(number: int) -> int:
        for some in draws[number].integers(len(items), size=(64, at_once)):
            np.take(items, some, out=buffers[number], mode="clip")
        return 64 * at_once * row

    nbytes = sum(leaf.nbytes for leaf in leaves(dataset.spec))
    return (lambda seconds, _: _together(work, THREADS, seconds)), nbytes


def decoding(dataset: Dataset) -> Limited | None:
    """Return the measuring of reading whole chunks, none of them cached; None without chunks."""
    chunked = [source for source in dataset.sources() if source.storage().chunks is not None]
    if not chunked or not all(prod(source.shape) for source in chunked):
        return None
    source = max(chunked, key=lambda one: prod(one.storage().chunks or ()) * one.dtype.itemsize)
    chunk = tuple(map(min, source.storage().chunks or (), source.shape))
    whole = [length // step for length, step in zip(source.shape, chunk, strict=True)]
    fitting = _DECODED_BYTES // (prod(chunk) * source.dtype.itemsize)
    numbers = np.random.default_rng(2).choice(
        prod(whole), max(1, min(fitting, prod(whole))), replace=False
    )
    origins = np.stack(np.unravel_index(numbers, whole), axis=1) * np.array(chunk)
    out = np.empty((len(origins), *chunk), source.dtype)

    def work(_: int) -> int:
        cache.forget()
        source.read(origins, Extent.of(chunk), out)
        return out.nbytes

    nbytes = sum(prod(source.shape) * source.dtype.itemsize for source in dataset.sources())
    return (lambda seconds, _: _together(work, 1, seconds)), nbytes / len(dataset)


def link_reading(dataset: Dataset) -> Limited | None:
    """Return the measuring of elements fetched from stores, and the bytes of one; None without.

    Those of a few random runs are asked for together; chunks come whole, and nothing is decoded.
    """
    if not dataset.is_remote or not len(dataset):
        return None
    nbytes = sum(leaf.nbytes for leaf in leaves(dataset.spec))
    count = max(1, min(len(dataset), _FETCHED_BYTES // max(1, nbytes)))
    run = max(1, count // _RUNS)
    draws = np.random.default_rng(4).spawn(_FETCHES)

    def fetch(thread: int) -> int:
        starts = draws[thread].integers(0, len(dataset) - run + 1, max(1, count // run))
        positions = (starts[:, None] + np.arange(run)).ravel()
        requests = of_sources(dataset.requests(positions, Draw(positions=positions)))
        cache.forget()
        wanted = (one for own in requests for one in soon(own.source, own.origins, own.extent))
        return sum(file.fetch_all(each) for file, each in by_file(wanted).items())

    each = fetch(0) / (count // run * run)
    return (lambda seconds, _: _together(fetch, _FETCHES, seconds)), each


def disk_reading(files: Files, dataset: Dataset) -> Limited:
    """Return the measuring of large reads from the files, one after the other, several in flight.

    Each place is read once in a round.
    """
    buffers = [bytearray(_BLOCK) for _ in range(_IN_FLIGHT)]

    def measure(seconds: float, number: int) -> float:
        files.drop()
        places = ((path, at) for path, size in files.items() for at in range(0, size, _BLOCK))
        lock = threading.Lock()

        def work(thread: int) -> int | None:
            with lock:
                place = next(places, None)
            return None if place is None else _read(*place, buffers[thread])

        return _together(work, _IN_FLIGHT, seconds)

    stored = 0
    for source in dataset.sources():
        nbytes = source.storage().stored_bytes
        stored += prod(source.shape) * source.dtype.itemsize if nbytes is None else nbytes
    return measure, max(1, stored) / len(dataset)


def _read(path: str, offset: int, buffer: bytearray) -> int:
    with open(path, "rb", buffering=0) as file:
        file.seek(offset)
        return file.readinto(buffer)


def _together(work: Callable[[int], int | None], threads: int, seconds: float) -> float:
    """Call ``work(thread)`` in threads until time is over or one has no more; return bytes/s."""
    began, until = perf_counter(), [perf_counter() + seconds]

    def repeat(thread: int) -> int:
        done = 0
        while not done or perf_counter() < until[0]:  # once, at least: no limit is 0
            more = work(thread)
            if more is None:
                break
            done += more
        return done

    with ThreadPoolExecutor(threads, "oocdata-limit") as pool:
        try:
            done = sum(pool.map(repeat, range(threads)))
        except BaseException:  # Ctrl-C: the threads, which are waited for, go no further
            until[0] = began
            raise
    return done / max(perf_counter() - began, 1e-9)
