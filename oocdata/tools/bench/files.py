"""The files behind a dataset, dropped from the page cache for a cold measurement."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

from oocdata.datasets.dataset import Dataset

__all__ = ["Files", "files_of"]

_MOST_FILES = 20_000
_LOOKED_AT = 8
"""Files that are asked whether they are in the page cache."""


@dataclass(frozen=True, slots=True)
class Files:
    """Local files, and the bytes of each."""

    paths: tuple[str, ...]
    sizes: tuple[int, ...]

    def drop(self) -> None:
        """Ask the system to drop the files from the page cache."""
        for path in self.paths:
            with open(path, "rb") as file:
                with suppress(OSError):  # pages that are yet to be written can't be dropped
                    os.fsync(file.fileno())
                if hasattr(os, "posix_fadvise"):
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def are_gone(self) -> bool:
        """Return whether they are gone from the page cache, as a few of the largest tell.

        A file that another process has mapped stays, and so does one that lies in memory.
        """
        largest = sorted(zip(self.sizes, self.paths, strict=True), reverse=True)[:_LOOKED_AT]
        for size, path in largest:
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
