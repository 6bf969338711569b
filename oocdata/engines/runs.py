"""Runs of bytes from a file into memory: neighbours joined, many handed to the kernel at once.

Reading is by the kernel's copy, never from a mapping of the file: no page of it is mapped (resident
memory stays flat), the GIL is released, and a file that is cut short gives a short read, never
SIGBUS.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.ring import read_many

__all__ = ["UnfinishedError", "announce", "join", "read_runs", "write_memory"]

_MANY = 8
"""Runs from which on handing them to the kernel together costs less than it gains."""

_LONGEST = 1 << 30
"""Bytes that the kernel reads in one go."""

_CACHED_ONLY = getattr(os, "RWF_NOWAIT", 0)

_MEMORY = memoryview((ctypes.c_ubyte * sys.maxsize).from_address(0)).cast("B")
"""All of memory, by address: parts of it are made quickly, with no look for where they begin."""


class UnfinishedError(Exception):
    """A run that could not be read to its end; the caller tells it in words.

    Attributes
    ----------
    run : int
        Its place among the runs given.
    cause : OSError or None
        None where the file ends.
    """

    def __init__(self, run: int, cause: OSError | None) -> None:
        super().__init__(run, cause)
        self.run, self.cause = run, cause


def join(
    offsets: NDArray[np.int64],
    addresses: NDArray[np.int64],
    lengths: NDArray[np.int64] | int,
    file: int | NDArray[np.int64] = 0,
) -> tuple[NDArray[np.int64] | None, NDArray[np.int64] | int]:
    """Join runs that follow on one another in the file and in memory.

    Parameters
    ----------
    offsets, addresses : ndarray of int64, shape (n,), n > 0
    lengths : ndarray of int64, shape (n,), or int
    file : int or ndarray of int64, shape (n,)
        One number for all of them, or that of each run's file.

    Returns
    -------
    firsts : ndarray of int64 or None
        The run that each joined one begins with; None where there is nothing to join.
    lengths : ndarray of int64 or int
        Bytes of each joined run.

    Examples
    --------
    >>> firsts, lengths = join(np.array([30, 40, 50, 90, 0]), np.arange(0, 50, 10), 10)
    >>> firsts.tolist(), lengths.tolist()
    ([0, 3, 4], [30, 10, 10])
    """
    each = lengths if type(lengths) is int else np.asarray(lengths)[:-1]
    alone = (offsets[1:] - offsets[:-1] != each) | (addresses[1:] - addresses[:-1] != each)
    if type(file) is not int:
        alone |= file[1:] != file[:-1]  # type: ignore[index]
    breaks = alone.nonzero()[0]
    if breaks.size == alone.size:
        return None, lengths
    borders = np.empty(breaks.size + 2, np.int64)
    borders[0], borders[1:-1], borders[-1] = 0, breaks + 1, offsets.size
    firsts = borders[:-1]
    if isinstance(lengths, int):
        return firsts, (borders[1:] - firsts) * lengths
    joined: NDArray[np.int64] = np.add.reduceat(lengths, firsts)
    return firsts, joined


def read_runs(
    file: int | NDArray[np.int64],
    offsets: NDArray[np.int64],
    addresses: NDArray[np.int64],
    lengths: NDArray[np.int64] | int,
    target: Any,
) -> None:
    """Read runs of bytes into memory.

    Parameters
    ----------
    file : int or ndarray of int, shape (n,)
        A descriptor, or that of each run.
    offsets, addresses : ndarray of int64, shape (n,), n > 0
        Where each run lies in the file, and where it goes in memory.
    lengths : ndarray of int64, shape (n,), or int
        Bytes of each run.
    target : object
        Whose memory it is.

    Raises
    ------
    UnfinishedError
        At the first run that the file does not hold, or that can't be read.

    Examples
    --------
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
    firsts, lengths = join(offsets, addresses, lengths, file)
    if firsts is not None:
        offsets, addresses = offsets[firsts], addresses[firsts]
        file = file if isinstance(file, int) else file[firsts]
    longest = lengths if type(lengths) is int else int(np.maximum.reduce(lengths))
    if offsets.size >= _MANY and longest <= _LONGEST:
        found = read_many(file, offsets, addresses, lengths, target)
        if found is not None:
            left = (found != lengths).nonzero()[0]
            if not left.size:
                return
            # Runs that fell short or failed are read again one by one, where errors are told.
            offsets, addresses = offsets[left], addresses[left]
            lengths = lengths if isinstance(lengths, int) else lengths[left]
            file = file if isinstance(file, int) else file[left]
            firsts = left if firsts is None else firsts[left]
    try:
        _read_each(file, offsets, addresses, lengths)
    except UnfinishedError as error:
        run = error.run if firsts is None else int(firsts[error.run])
        raise UnfinishedError(run, error.cause) from error.cause


def _read_each(
    file: int | NDArray[np.int64],
    offsets: NDArray[np.int64],
    addresses: NDArray[np.int64],
    lengths: NDArray[np.int64] | int,
) -> None:
    """Read runs one after the other."""
    each = [lengths] * offsets.size if isinstance(lengths, int) else lengths.tolist()
    files = [file] * offsets.size if isinstance(file, int) else file.tolist()
    # What is cached is read at once. From the first run that is not, the kernel is told of all the
    # rest, so that it fetches many at a time; else each would wait for the disk in turn.
    flags = _CACHED_ONLY if len(each) > 1 else 0
    for run, (offset, place, length) in enumerate(
        zip(offsets.tolist(), addresses.tolist(), each, strict=True)
    ):
        done = 0
        while done < length:
            part = _MEMORY[place + done : place + length]
            try:
                got = os.preadv(files[run], [part], offset + done, flags)
            except OSError as error:
                if not flags:
                    raise UnfinishedError(run, error) from error
                flags = 0
                announce(files[run:], offsets[run:].tolist(), each[run:])
                continue
            if got == 0 and not flags:
                raise UnfinishedError(run, None)
            if got < length - done and flags:
                flags = 0
                announce(files[run:], offsets[run:].tolist(), each[run:])
            done += got


def write_memory(address: int, data: memoryview) -> None:
    """Copy bytes to an address of this process; whose memory it is must be held meanwhile.

    Examples
    --------
    >>> out = np.zeros(3, np.uint8)
    >>> write_memory(out.ctypes.data + 1, memoryview(b"ab"))
    >>> out.tolist()
    [0, 97, 98]
    """
    _MEMORY[address : address + len(data)] = data


def announce(files: list[int], offsets: list[int], lengths: list[int]) -> None:
    """Tell the kernel which bytes of files, given by their descriptors, will be read soon."""
    if hasattr(os, "posix_fadvise"):
        for file, offset, length in zip(files, offsets, lengths, strict=True):
            os.posix_fadvise(file, offset, length, os.POSIX_FADV_WILLNEED)
