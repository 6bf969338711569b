"""Read runs of bytes from files into memory, with adjacent runs joined and many in one system call.

The kernel copies the bytes; files are not mapped. So resident memory stays flat, the GIL is
released, and a truncated file gives a short read instead of SIGBUS.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any, cast

import numpy as np

from oocdata.box import Ints
from oocdata.engines.ring import read_many

_MANY = 8
"""Number of runs from which one io_uring call is faster than single reads."""

_LONGEST = 1 << 30
"""Bytes that the kernel reads in one call, at most."""

_SHORT, _FEW, _SCRATCH_BYTES = 4096, 4, 256 << 10
"""Runs of up to so many bytes are read with their neighbours, if that takes 1 / `_FEW` of the
requests, through scratch memory in the processor's cache: a request costs more than a copy."""

_CACHED_ONLY = getattr(os, "RWF_NOWAIT", 0)

_MEMORY = memoryview((ctypes.c_ubyte * sys.maxsize).from_address(0)).cast("B")
"""The address space of the process; slicing it makes a buffer at an address cheaply."""


class UnfinishedError(Exception):
    """Raised when a run can't be read to its end; the caller turns it into a message.

    `run` is its number among those passed; `cause` is None if the file ends early.
    """

    def __init__(self, run: int, cause: OSError | None) -> None:
        super().__init__(run, cause)
        self.run, self.cause = run, cause


def join(offsets: Ints, addresses: Ints, lengths: Ints, file: int | Ints = 0) -> tuple[Ints, Ints]:
    """Join runs that are adjacent both in the file and in memory.

    `file` is the descriptor of all runs, or of each run. Returns the first run of each joined run,
    and the bytes of each joined run.

    >>> join(np.array([30, 40, 50, 90, 0]), np.arange(0, 50, 10), np.full(5, 10))
    (array([0, 3, 4]), array([30, 10, 10]))
    """
    separate = np.empty(offsets.size, np.bool_)
    separate[:1] = True
    separate[1:] = offsets[1:] - offsets[:-1] != lengths[:-1]
    separate[1:] |= addresses[1:] - addresses[:-1] != lengths[:-1]
    if not isinstance(file, int):
        separate[1:] |= file[1:] != file[:-1]
    firsts = separate.nonzero()[0]
    joined: Ints = np.add.reduceat(lengths, firsts)
    return firsts, joined


def read_runs(
    file: int | Ints, offsets: Ints, addresses: Ints, lengths: Ints | int, target: Any
) -> None:
    """Read runs of bytes at `offsets` in a file into memory at `addresses`, which `target` owns.

    `file` is the descriptor of all runs, or of each run. Raises `UnfinishedError` at the first run
    that ends beyond the file, or that can't be read.

    >>> import tempfile
    >>> out = np.zeros(5, np.uint8)
    >>> with tempfile.TemporaryFile() as file:
    ...     _ = file.write(bytes(range(100)))
    ...     file.flush()
    ...     runs = (np.array(part) for part in ([40, 10], out.ctypes.data + np.array([0, 2])))
    ...     read_runs(file.fileno(), *runs, np.array([2, 3]), out)
    >>> out.tolist()
    [40, 41, 10, 11, 12]
    """
    if isinstance(lengths, int):
        many = isinstance(file, int) and lengths <= _SHORT and offsets.size >= _MANY**2
        if many and _read_neighbours(cast(int, file), offsets, addresses, lengths):
            return
        lengths = np.zeros(offsets.size, np.int64) + lengths
    firsts, nbytes = join(offsets, addresses, lengths, file)
    offsets, addresses = offsets[firsts], addresses[firsts]
    file = file if isinstance(file, int) else file[firsts]
    if offsets.size >= _MANY and np.maximum.reduce(nbytes) <= _LONGEST:
        counts = read_many(file, offsets, addresses, nbytes, target)
        if counts is not None:
            unfinished = (counts != nbytes).nonzero()[0]
            if not unfinished.size:
                return
            # Short or failed runs are read again one by one, which raises the error.
            offsets, addresses = offsets[unfinished], addresses[unfinished]
            nbytes, firsts = nbytes[unfinished], firsts[unfinished]
            file = file if isinstance(file, int) else file[unfinished]
    try:
        _read_each(file, offsets, addresses, nbytes)
    except UnfinishedError as error:
        raise UnfinishedError(int(firsts[error.run]), error.cause) from error.cause


def _read_neighbours(file: int, offsets: Ints, addresses: Ints, length: int) -> bool:
    """Read runs that are adjacent in the file alone through scratch memory, if most are.

    Return whether all were read; if not, the caller reads each, which raises the error, if any. A
    grid of patches of 64 x 64 of frames of 1024 x 1024 bytes takes 1 / 8 of the processor time.
    """
    if offsets[1] - offsets[0] == length or np.ptp(offsets) > _FEW * offsets.size * length:
        return False
    order = offsets.argsort()
    if _FEW * np.count_nonzero(np.diff(offsets[order]) > length) > offsets.size:
        return False
    items = np.ndarray(1 << 48, f"V{length}", _MEMORY[1:], strides=(1,))
    for some in np.array_split(order, -(-offsets.size * length // _SCRATCH_BYTES)):
        wanted = offsets[some]
        gaps = (np.diff(wanted) > length).nonzero()[0]
        starts, stops = wanted[np.append(0, gaps + 1)], wanted[np.append(gaps, -1)] + length
        nbytes = stops - starts
        scratch = np.empty(nbytes.sum(), np.uint8)
        places = np.cumsum(nbytes) - nbytes + scratch.ctypes.data
        try:
            read_runs(file, starts, places, nbytes, scratch)
        except UnfinishedError:
            return False  # each is read again, which raises the error
        moves = (places - starts)[starts.searchsorted(wanted, "right") - 1]
        items[addresses[some] - 1] = items[wanted + moves - 1]
    return True


def _read_each(file: int | Ints, offsets: Ints, addresses: Ints, lengths: Ints) -> None:
    counts = lengths.tolist()
    files = [file] * offsets.size if isinstance(file, int) else file.tolist()
    # Pages in the kernel's cache are read at once. From the first run that is not cached, announce
    # all remaining runs, so that the kernel reads many at a time instead of one after the other: 4
    # rows of 60 KB that are not cached take 1 / 1.3 of the processor time, and less of the time.
    flags = _CACHED_ONLY if len(counts) > 1 else 0
    for run, (offset, address, length) in enumerate(
        zip(offsets.tolist(), addresses.tolist(), counts, strict=True)
    ):
        done = 0
        while done < length:
            memory = _MEMORY[address + done : address + length]
            try:
                got = os.preadv(files[run], [memory], offset + done, flags)
            except OSError as error:
                if error.errno is None:  # of a signal handler, e.g. TimeoutError
                    raise
                if not flags:
                    raise UnfinishedError(run, error) from error
                got = 0
            if not flags and not got:
                raise UnfinishedError(run, None)
            if flags and got < length - done:
                flags = 0
                announce(files[run:], offsets[run:].tolist(), counts[run:])
            done += got


def write_memory(address: int, data: memoryview) -> None:
    """Copy bytes to an address of this process; the caller keeps its owner referenced meanwhile."""
    _MEMORY[address : address + len(data)] = data


def announce(files: list[int], offsets: list[int], lengths: list[int]) -> None:
    """Advise the kernel that ranges of open files, by their descriptors, will be read soon."""
    if hasattr(os, "posix_fadvise"):
        for file, offset, length in zip(files, offsets, lengths, strict=True):
            os.posix_fadvise(file, offset, length, os.POSIX_FADV_WILLNEED)
