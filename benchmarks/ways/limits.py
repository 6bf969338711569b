"""The limits, measured in the same run: copying rows, decoding chunks, reading the disk.

Each does nothing but that, into memory that is there already, and yields numbers of elements.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.case import Case
from benchmarks.files import KEY
from benchmarks.ways.way import way

__all__: list[str] = []

THREADS = 2
_DISK_BLOCK = 16 << 20
_IN_FLIGHT = 4
_CODECS = ("imagecodecs", "numcodecs", "h5py")


def together(work: Callable[[int], None], threads: int) -> None:
    """Call ``work(number)`` in threads; raise what one of them raised."""
    failed: list[BaseException] = []

    def safely(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            failed.append(error)

    team = [threading.Thread(target=safely, args=(number,)) for number in range(threads)]
    for thread in team:
        thread.start()
    for thread in team:
        thread.join()
    if failed:
        raise failed[0]


class Epochs:
    """An epoch is one call, in threads, which does `elements` elements."""

    def __init__(self, elements: int, work: Callable[[int], None], threads: int) -> None:
        self.elements = elements
        self.work = work
        self.threads = threads

    def __iter__(self) -> Iterator[int]:
        together(self.work, self.threads)
        yield self.elements


def _in_rows(case: Case) -> bool:
    return case.format == "npy" and case.cache == "warm"


def _copy(case: Case, path: Path, threads: int) -> Iterable[Any]:
    array = np.load(path, mmap_mode="r")
    # A row as one value, so that `take` copies it in one piece.
    rows = np.ndarray((case.rows,), f"V{case.row_bytes}", array)
    order = np.random.default_rng(1).permutation(case.elements)
    starts = range(0, case.elements, case.batch)
    buffers = [
        [np.zeros(case.batch, rows.dtype) for _ in range(1 + case.pairs)] for _ in range(threads)
    ]

    def work(number: int) -> None:
        for start in starts[number::threads]:
            some = order[start : start + case.batch]
            for shift, buffer in enumerate(buffers[number]):
                np.take(rows, some + shift, out=buffer[: len(some)], mode="clip")

    return Epochs(case.elements, work, threads)


@way("limit: copy, 1 thread", kind="limit", applies=_in_rows)
def copy_in_one_thread(case: Case, path: Path) -> Iterable[Any]:
    return _copy(case, path, 1)


@way("limit: copy, 2 threads", kind="limit", applies=_in_rows)
def copy_in_two_threads(case: Case, path: Path) -> Iterable[Any]:
    return _copy(case, path, THREADS)


def _decode(case: Case, path: Path, inflate: Callable[..., Any]) -> Iterable[Any]:
    import h5py
    from numcodecs import Shuffle

    unshuffle = Shuffle(np.dtype(case.dtype).itemsize)  # the fastest of those measured
    places: list[tuple[int, int]] = []
    with h5py.File(path) as file:
        file[KEY].id.chunk_iter(lambda chunk: places.append((chunk.byte_offset, chunk.size)))
    with open(path, "rb") as opened:
        mapping = memoryview(mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ))
    values = case.chunk_rows * prod(case.element)
    buffers = [[np.zeros(values, case.dtype) for _ in range(2)] for _ in range(THREADS)]

    def work(number: int) -> None:
        planes, rows = buffers[number]
        for offset, size in places[number::THREADS]:
            inflate(mapping[offset : offset + size], out=planes.view(np.uint8))
            unshuffle.decode(planes, rows)

    return Epochs(case.elements, work, THREADS)


def _gzipped(case: Case) -> bool:
    return case.format == "hdf5" and case.codec == "gzip+shuffle"


@way("limit: decode, zlib", *_CODECS, kind="limit", applies=_gzipped)
def decode_zlib(case: Case, path: Path) -> Iterable[Any]:
    import imagecodecs

    return _decode(case, path, imagecodecs.zlib_decode)


@way("limit: decode, libdeflate", *_CODECS, kind="limit", applies=_gzipped)
def decode_libdeflate(case: Case, path: Path) -> Iterable[Any]:
    import imagecodecs

    return _decode(case, path, imagecodecs.deflate_decode)


@way("limit: decode, zlib-ng", *_CODECS, kind="limit", applies=_gzipped)
def decode_zlib_ng(case: Case, path: Path) -> Iterable[Any]:
    import imagecodecs

    return _decode(case, path, imagecodecs.zlibng_decode)


@way("limit: decode, isal", "isal", *_CODECS[1:], kind="limit", applies=_gzipped)
def decode_isal(case: Case, path: Path) -> Iterable[Any]:
    from isal import isal_zlib

    def inflate(stored: Any, out: np.ndarray) -> None:
        out[...] = np.frombuffer(isal_zlib.decompress(stored, bufsize=out.nbytes), np.uint8)

    return _decode(case, path, inflate)


def _cold(case: Case) -> bool:
    return case.cache == "cold"


@way("limit: disk, buffered", kind="limit", applies=_cold)
def disk_buffered(case: Case, path: Path) -> Iterable[Any]:
    buffer = bytearray(_DISK_BLOCK)

    def work(_: int) -> None:
        with open(path, "rb", buffering=0) as file:
            while file.readinto(buffer):
                pass

    return Epochs(case.elements, work, 1)


@way(
    "limit: disk, O_DIRECT",
    kind="limit",
    applies=lambda case: _cold(case) and hasattr(os, "O_DIRECT"),
)
def disk_direct(case: Case, path: Path) -> Iterable[Any]:
    size = path.stat().st_size
    buffers = [mmap.mmap(-1, _DISK_BLOCK) for _ in range(_IN_FLIGHT)]  # aligned, as it must be

    def work(number: int) -> None:
        file = os.open(path, os.O_RDONLY | os.O_DIRECT)
        try:
            for offset in range(number * _DISK_BLOCK, size, _IN_FLIGHT * _DISK_BLOCK):
                os.preadv(file, [buffers[number]], offset)
        finally:
            os.close(file)

    return Epochs(case.elements, work, _IN_FLIGHT)
