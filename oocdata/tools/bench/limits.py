"""Measure the limits of the machine: the decoder and the disk, each alone.

The files are dropped from the page cache before the disk is measured. A virtual machine or a file
server may have other caches, which can't be emptied from here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from itertools import chain, islice
from math import prod
from pathlib import Path
from time import perf_counter
from typing import TypeAlias

import numpy as np

from oocdata.box import Extent
from oocdata.datasets.dataset import Dataset
from oocdata.engines.cache import cache
from oocdata.threads import Threads, in_order
from oocdata.tools.profile.pacing import Measure

_MOST_FILES = 20_000


class Files(dict[str, int]):
    """Paths of local files, and the size of each in bytes."""

    def drop(self) -> None:
        """Ask the system to drop the files from the page cache."""
        for path in self:
            with open(path, "rb") as file:
                with suppress(OSError):  # dirty pages can't be dropped
                    os.fsync(file.fileno())
                if hasattr(os, "posix_fadvise"):
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def files_of(dataset: Dataset) -> Files:
    """Return the local files that a dataset is read from; none for arrays in memory and URLs."""
    files = Files()
    for source in dataset.sources() if len(dataset) else []:
        storage = source.storage()
        paths = [file.path for file in storage.files] or [*storage.row_files]
        paths = paths or [storage.path or ""]
        if storage.path and os.path.isdir(storage.path):  # Zarr: a folder of chunks
            keys = [key for _, key in storage.part_names] or [storage.key]
            folders = [Path(storage.path, (key or "").strip("/")) for key in keys]
            below = chain.from_iterable(folder.rglob("*") for folder in folders)
            paths = [str(file) for file in islice(below, _MOST_FILES) if file.is_file()]
        for path in paths:
            with suppress(OSError):
                files[path] = os.stat(path).st_size
    return files


MEMORY = 128 << 20
"""The most bytes that measuring a limit takes, unless a single chunk is larger."""

_DECODED_BYTES = 32 << 20
_IN_FLIGHT = 8
_BLOCK = 512 << 10
"""Bytes of a read. Larger reads are slower: the system reads ahead more for several reads."""


Limited: TypeAlias = tuple[Measure, float]
"""A measure in bytes a second, and the bytes that an epoch reads once, divided by its elements."""


def decoding(dataset: Dataset) -> Limited | None:
    """Return a measure that reads whole chunks with an empty cache; None without chunks."""
    chunked = [source for source in dataset.sources() if source.storage().chunks is not None]
    if not chunked or not all(prod(source.shape) for source in chunked):
        return None
    source = max(
        chunked, key=lambda source: prod(source.storage().chunks or ()) * source.dtype.itemsize
    )
    chunk = tuple(map(min, source.storage().chunks or (), source.shape))
    grid = [length // step for length, step in zip(source.shape, chunk, strict=True)]
    fitting = _DECODED_BYTES // (prod(chunk) * source.dtype.itemsize)
    numbers = np.random.default_rng(2).choice(
        prod(grid), max(1, min(fitting, prod(grid))), replace=False
    )
    origins = np.stack(np.unravel_index(numbers, grid), axis=1) * np.array(chunk)
    out = np.empty((len(origins), *chunk), source.dtype)

    def decoded() -> Iterator[int]:
        while True:
            cache.forget()
            source.read(origins, Extent.of(chunk), out)
            yield out.nbytes

    nbytes = sum(prod(source.shape) * source.dtype.itemsize for source in dataset.sources())
    return (lambda seconds, _: _rate(decoded(), seconds)), nbytes / len(dataset)


def disk_reading(files: Files, dataset: Dataset) -> Limited:
    """Return a measure that reads the files in order, in large reads, several in flight.

    Every block is read at most once in a round.
    """

    def measure(seconds: float, number: int) -> float:
        files.drop()
        blocks = ((path, at) for path, size in files.items() for at in range(0, size, _BLOCK))
        threads = Threads(_IN_FLIGHT, "oocdata-limit")
        with closing(in_order(threads, _read, blocks, _IN_FLIGHT + 1)) as reads:
            return _rate(reads, seconds)

    stored = 0
    for source in dataset.sources():
        nbytes = source.storage().stored_bytes
        stored += prod(source.shape) * source.dtype.itemsize if nbytes is None else nbytes
    return measure, max(1, stored) / len(dataset)


def _read(block: tuple[str, int]) -> int:
    path, offset = block
    with open(path, "rb", buffering=0) as file:
        file.seek(offset)
        return len(file.read(_BLOCK))


def _rate(works: Iterable[int], seconds: float) -> float:
    """Work until time is over, at least once, so that no limit is 0; return bytes a second."""
    began, done = perf_counter(), 0
    for nbytes in works:
        done += nbytes
        if perf_counter() >= began + seconds:
            break
    return done / max(perf_counter() - began, 1e-9)
