"""The files behind a dataset, and the page cache: emptied or filled for these files alone."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import numpy as np

from oocdata.datasets.dataset import Dataset

__all__ = ["Files", "available_memory", "files_of"]

_MOST_FILES = 20_000
_LOOKED_AT = 8
"""Files that are asked whether they are in the page cache."""

_BLOCK = 8 << 20


@dataclass(frozen=True, slots=True)
class Files:
    """Local files.

    Attributes
    ----------
    paths : tuple of str
    sizes : tuple of int
        Bytes of each.
    held : int
        Bytes that the file system has given them: less where a file has holes.
    """

    paths: tuple[str, ...]
    sizes: tuple[int, ...]
    held: int

    @property
    def nbytes(self) -> int:
        """Bytes of all together."""
        return sum(self.sizes)

    @property
    def holes(self) -> float:
        """The share of the bytes that was never written, so that no disk has them."""
        return max(0.0, 1 - self.held / self.nbytes) if self.nbytes else 0.0

    def evict(self) -> bool:
        """Drop the files from the page cache; return whether they are gone from it.

        A file that another process has mapped stays, and so does one that lies in memory.
        """
        if not hasattr(os, "posix_fadvise"):
            return False
        self.drop()
        largest = sorted(zip(self.sizes, self.paths, strict=True), reverse=True)[:_LOOKED_AT]
        return all(_resident_share(path) < 0.1 for _, path in largest)

    def drop(self) -> None:
        """Drop the files from the page cache, and don't look whether they are gone."""
        for path in self.paths:
            number = os.open(path, os.O_RDONLY)
            try:
                with suppress(OSError):  # pages that are yet to be written can't be dropped
                    os.fsync(number)
                os.posix_fadvise(number, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(number)

    def warm(self, seconds: float) -> bool:
        """Read the files into the page cache; return whether the time was enough for all."""
        buffer = bytearray(_BLOCK)
        end = perf_counter() + seconds
        for path in self.paths:
            with open(path, "rb", buffering=0) as file:
                while file.readinto(buffer):
                    if perf_counter() > end:
                        return False
        return True


def files_of(dataset: Dataset) -> Files:
    """Return the local files that a dataset is read from; none for memory and for URLs.

    Examples
    --------
    >>> import tempfile, oocdata as ooc
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/a.npy", np.zeros(100))
    ...     files_of(ooc.open(f"{folder}/a.npy")).nbytes
    928
    """
    paths: dict[str, os.stat_result] = {}
    for source in dataset.sources() if len(dataset) else []:
        storage = source.storage()
        folder = storage.path is not None and os.path.isdir(storage.path)  # of chunks: Zarr
        named: list[str | None] = [file.path for file in storage.files if not folder]
        named = named or [storage.path]
        for path in named:
            for below in _below(Path(path), storage.key) if path is not None else ():
                with suppress(OSError):
                    paths[below] = os.stat(below)
                if len(paths) >= _MOST_FILES:
                    break
    sizes = tuple(status.st_size for status in paths.values())
    held = sum(getattr(status, "st_blocks", -1) * 512 for status in paths.values())
    return Files(tuple(paths), sizes, held if held >= 0 else sum(sizes))


def _below(path: Path, key: str | None) -> Iterator[str]:
    """Yield a file, or all files of an array's folder."""
    if path.is_file():
        yield str(path)
    folder = path / key.strip("/") if key else path
    for parent, _, names in os.walk(folder if folder.is_dir() else path):
        yield from (os.path.join(parent, name) for name in sorted(names))


def available_memory() -> int:
    """Return the bytes of memory that can be had without swapping.

    Examples
    --------
    >>> available_memory() > 0
    True
    """
    with suppress(OSError, ValueError, StopIteration), open("/proc/meminfo") as file:
        line = next(line for line in file if line.startswith("MemAvailable"))
        return int(line.split()[1]) * 1024
    return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")) // 2


def _resident_share(path: str) -> float:
    """Return the share of a file that is in the page cache (mincore(2)); 0 if that is unknown."""
    import ctypes

    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return 0.0
        # Closed with its last view: after an interrupt there may still be one.
        mapping = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        resident = np.zeros(-(-len(mapping) // mmap.PAGESIZE), np.uint8)
        failed = ctypes.CDLL(None).mincore(
            ctypes.c_void_p(np.frombuffer(mapping, np.uint8).ctypes.data),
            ctypes.c_size_t(len(mapping)),
            ctypes.c_void_p(resident.ctypes.data),
        )
    return 0.0 if failed else float((resident & 1).mean())
