"""The files that cases are measured on: written block by block, made warm or cold."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.case import Case

__all__ = ["KEY", "array_path", "blocks", "can_evict", "evict", "warm", "write"]

KEY = "data"
"""Name of the array in an HDF5 file or a Zarr group."""

_BLOCK_BYTES = 32 << 20


def array_path(case: Case, path: Path) -> Path:
    """Return where the array itself lies: in Zarr, a folder of its group."""
    return path / KEY if case.format == "zarr" else path


def write(case: Case, folder: Path) -> Path:
    """Write the case's file, unless it is there, and return its path."""
    path = folder / case.file_name
    if not path.exists():
        _WRITERS[case.format](case, path)
    return path


def blocks(case: Case) -> Iterator[tuple[int, np.ndarray]]:
    """Return the rows in runs of whole chunks and shards, each with its first row's number."""
    together = case.shard_rows or case.chunk_rows or 1
    length = together * max(1, _BLOCK_BYTES // (case.row_bytes * together))
    for first in range(0, case.rows, length):
        yield first, case.values(first, min(length, case.rows - first))


def _write_npy(case: Case, path: Path) -> None:
    shape = (case.rows, *case.element)
    with open(path, "wb") as file:
        header = np.lib.format.header_data_from_array_1_0(np.empty(0, case.dtype)) | {
            "shape": shape
        }
        np.lib.format.write_array_header_1_0(file, header)
        if not case.stamped:
            file.truncate(file.tell() + case.rows * case.row_bytes)
            return
        for _, rows in blocks(case):
            rows.tofile(file)


def _write_hdf5(case: Case, path: Path) -> None:
    import h5py

    filters = {"compression": "gzip", "shuffle": True} if case.codec == "gzip+shuffle" else {}
    chunks = (case.chunk_rows, *case.element) if case.chunk_rows else None
    with h5py.File(path, "w") as file:
        data = file.create_dataset(
            KEY, (case.rows, *case.element), case.dtype, chunks=chunks, **filters
        )
        for first, rows in blocks(case):
            data[first : first + len(rows)] = rows


def _write_zarr(case: Case, path: Path) -> None:
    import zarr

    group = zarr.create_group(path, zarr_format=3)
    array = group.create_array(
        KEY,
        shape=(case.rows, *case.element),
        dtype=case.dtype,
        chunks=(case.chunk_rows, *case.element),
        shards=(case.shard_rows, *case.element) if case.shard_rows else None,
        compressors=zarr.codecs.ZstdCodec() if case.codec == "zstd" else None,
        dimension_names=["row", *(f"axis{number}" for number in range(len(case.element)))],
    )
    for first, rows in blocks(case):
        array[first : first + len(rows)] = rows


_WRITERS = {
    "npy": _write_npy,
    "npy sparse": _write_npy,
    "hdf5": _write_hdf5,
    "zarr": _write_zarr,
}


def _parts(path: Path) -> list[Path]:
    return [part for part in sorted(path.rglob("*")) if part.is_file()] if path.is_dir() else [path]


def warm(path: Path) -> None:
    """Read a file, or all files of a folder, from the disk: everyone finds the same pages.

    From the disk, because pages that were read ahead lie together in large folios, as those of
    anybody's files do; what was just written here through a mapping lies in single pages.
    """
    if can_evict():
        evict(path)
    for part in _parts(path):
        with open(part, "rb", buffering=0) as file:
            buffer = bytearray(16 << 20)
            while file.readinto(buffer):
                pass


def can_evict() -> bool:
    """Return whether files can be dropped from the page cache here."""
    return hasattr(os, "posix_fadvise")


def evict(path: Path) -> float:
    """Drop a file, or all files of a folder, from the page cache.

    Returns
    -------
    float
        The share of its pages that stayed all the same: those that some process has mapped.
    """
    for part in _parts(path):
        number = os.open(part, os.O_RDONLY)
        try:
            os.fsync(number)  # pages that are yet to be written can't be dropped
            os.posix_fadvise(number, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(number)
    return max(_resident_share(part) for part in _parts(path))


def _resident_share(path: Path) -> float:
    import ctypes

    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapping:
        pages = -(-len(mapping) // mmap.PAGESIZE)
        resident = (ctypes.c_ubyte * pages)()
        view = np.frombuffer(mapping, np.uint8)
        failed = ctypes.CDLL(None).mincore(
            ctypes.c_void_p(view.ctypes.data), ctypes.c_size_t(len(mapping)), resident
        )
        del view
        share = float((np.frombuffer(bytes(resident), np.uint8) & 1).mean())
        return 1.0 if failed else share
