"""Measure the limits of the machine: the decoder and the disk, each alone.

The files are dropped from the page cache before the disk is measured. A virtual machine or a file
server may have other caches, which can't be emptied from here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from itertools import chain, islice
from math import prod
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent
from oocdata.datasets.dataset import Dataset
from oocdata.engines.cache import cache
from oocdata.threads import Threads, in_order
from oocdata.tools.profile.pacing import Epochs

_MOST_FILES = 20_000


def drop(paths: Iterable[str]) -> None:
    """Ask the system to drop files from the page cache."""
    for path in paths:
        with open(path, "rb") as file:
            with suppress(OSError):  # dirty pages can't be dropped
                os.fsync(file.fileno())
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def files_of(dataset: Dataset) -> list[str]:
    """Return the local files that a dataset is read from; none for arrays in memory and URLs."""
    found: dict[str, None] = {}
    for source in dataset.sources() if len(dataset) else []:
        storage = source.storage()
        paths = [file.path for file in storage.files] or [*storage.row_files]
        paths = paths or [storage.path or ""]
        if storage.path and os.path.isdir(storage.path):  # Zarr: a folder of chunks
            keys = [key for _, key in storage.part_names] or [storage.key]
            folders = [Path(storage.path, (key or "").strip("/")) for key in keys]
            below = chain.from_iterable(folder.rglob("*") for folder in folders)
            paths = [str(file) for file in islice(below, _MOST_FILES)]
        found |= dict.fromkeys(filter(os.path.isfile, paths))
    return list(found)


MEMORY = 128 << 20
"""The most bytes that measuring a limit takes, unless a single chunk is larger."""

_DECODED_BYTES = 32 << 20
_IN_FLIGHT = 8
_BLOCK = 512 << 10
"""Bytes of a read. Larger reads are slower: the system reads ahead more for several reads."""


Limited: TypeAlias = tuple[Epochs, float]
"""Epochs of bytes that come as fast as the limit allows, and the bytes that an epoch of a dataset
reads once, divided by its elements."""


def decoding(dataset: Dataset) -> Limited | None:
    """Return epochs that read whole chunks with an empty cache; None without chunks."""
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

    def epochs(_: int) -> Iterator[NDArray[np.uint8]]:
        cache.forget()
        source.read(origins, Extent.of(chunk), out)
        yield out.reshape(-1).view(np.uint8)

    nbytes = sum(prod(source.shape) * source.dtype.itemsize for source in dataset.sources())
    return epochs, nbytes / len(dataset)


def disk_reading(files: Sequence[str], dataset: Dataset) -> Limited:
    """Return epochs that read the files in order, in large reads, several in flight."""
    threads = Threads(_IN_FLIGHT, "oocdata-limit")

    def epochs(_: int) -> Iterator[NDArray[np.uint8]]:
        drop(files)
        sizes = map(os.path.getsize, files)
        blocks = (
            (path, at)
            for path, nbytes in zip(files, sizes, strict=True)
            for at in range(0, nbytes, _BLOCK)
        )
        with closing(in_order(threads, _read, blocks, _IN_FLIGHT + 1)) as reads:
            yield from reads

    stored = 0
    for source in dataset.sources():
        nbytes = source.storage().stored_bytes
        stored += prod(source.shape) * source.dtype.itemsize if nbytes is None else nbytes
    return epochs, max(1, stored) / len(dataset)


def _read(block: tuple[str, int]) -> NDArray[np.uint8]:
    path, offset = block
    with open(path, "rb", buffering=0) as file:
        file.seek(offset)
        return np.frombuffer(file.read(_BLOCK), np.uint8)
