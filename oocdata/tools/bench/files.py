"""The local files behind a dataset, and whether the page cache holds them."""

from __future__ import annotations

import ctypes
import mmap
import os
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np

from oocdata.datasets.dataset import Dataset

__all__ = ["Files", "files_of"]

_MOST_FILES = 20_000
_LOOKED_AT = 8
"""Files that are asked whether they are in the page cache."""


@dataclass(frozen=True, slots=True)
class Files:
    """Local files.

    Attributes
    ----------
    paths : tuple of str
    sizes : tuple of int
        Bytes of each.
    """

    paths: tuple[str, ...]
    sizes: tuple[int, ...]

    def drop(self) -> None:
        """Ask the system to drop the files from the page cache."""
        for path in self.paths:
            number = os.open(path, os.O_RDONLY)
            try:
                with suppress(OSError):  # pages that are yet to be written can't be dropped
                    os.fsync(number)
                if hasattr(os, "posix_fadvise"):
                    os.posix_fadvise(number, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(number)

    def are_gone(self) -> bool:
        """Return whether they are gone from the page cache.

        A file that another process has mapped stays, and so does one that lies in memory.
        """
        largest = sorted(zip(self.sizes, self.paths, strict=True), reverse=True)[:_LOOKED_AT]
        return all(_cached_share(path) < 0.1 for _, path in largest)


def files_of(dataset: Dataset) -> Files:
    """Return the local files that a dataset is read from; none for memory and for URLs.

    Examples
    --------
    >>> import tempfile, oocdata as ooc
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/a.npy", np.zeros(100))
    ...     files_of(ooc.open(f"{folder}/a.npy")).sizes
    (928,)
    """
    sizes: dict[str, int] = {}
    for source in dataset.sources() if len(dataset) else []:
        storage = source.storage()
        named = [file.path for file in storage.files] or [storage.path or ""]
        if storage.path and os.path.isdir(storage.path):  # Zarr: a folder of chunks
            keys = [key for _, key in storage.part_names] or [storage.key]
            folders = [Path(storage.path, (key or "").strip("/")) for key in keys]
            below = chain.from_iterable(folder.rglob("*") for folder in folders)
            named = [str(file) for file in islice(below, _MOST_FILES) if file.is_file()]
        for path in named:
            with suppress(OSError):
                sizes[path] = os.stat(path).st_size
    return Files(tuple(sizes), tuple(sizes.values()))


def _cached_share(path: str) -> float:
    """Return the share of a file that is in the page cache (mincore(2)); 1 if that is unknown."""
    if os.path.getsize(path) == 0:
        return 0.0
    with open(path, "rb") as file:
        # Closed with its last view: after an interrupt there may still be one.
        mapping = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    pages = np.frombuffer(mapping, np.uint8)
    resident = np.zeros(-(-len(pages) // mmap.PAGESIZE), np.uint8)
    first, length = ctypes.c_void_p(pages.ctypes.data), ctypes.c_size_t(len(pages))
    failed = ctypes.CDLL(None).mincore(first, length, ctypes.c_void_p(resident.ctypes.data))
    return 1.0 if failed else float((resident & 1).mean())
