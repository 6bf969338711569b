"""Runs of bytes from a file into memory: neighbours joined, many handed to the kernel at once.

Reading is by the kernel's copy, never from a mapping of the file: no page of it is mapped (resident
memory stays flat), the GIL is released, and a file that is cut short gives a short read, never
SIGBUS.
"""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray

from oocdata.sources.ring import read_many

__all__ = ["MANY", "UnfinishedError", "join", "read_runs"]

MANY = 8
"""Requests from which on handing them to the kernel together costs less than it gains."""


class UnfinishedError(Exception):
    """A run that could not be read to its end; whoever asked tells it in words.

    Attributes
    ----------
    run : int
        Its place among those asked for.
    done : int
        Bytes read of it.
    cause : OSError or None
        None where the file ends.
    """

    def __init__(self, run: int, done: int, cause: OSError | None) -> None:
        super().__init__(run, done, cause)
        self.run, self.done, self.cause = run, done, cause


def join(starts: NDArray[np.int64], nbytes: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Join runs of one size, each of which follows on the one before it.

    Parameters
    ----------
    starts : ndarray of int64, shape (n,), n > 0
        Byte offsets.
    nbytes : int
        Of each run.

    Returns
    -------
    firsts, lengths : ndarray of int64
        The places in `starts` where a joined run begins, and its bytes.

    Examples
    --------
    >>> firsts, lengths = join(np.array([30, 40, 50, 90, 0]), 10)
    >>> firsts.tolist(), lengths.tolist()
    ([0, 3, 4], [30, 10, 10])
    """
    breaks = np.flatnonzero(np.diff(starts) != nbytes) + 1
    firsts = np.concatenate(([0], breaks))
    return firsts, np.diff(np.append(firsts, len(starts))) * nbytes


def read_runs(
    file: int | NDArray[np.int64],
    offsets: NDArray[np.int64],
    places: NDArray[np.int64],
    lengths: NDArray[np.int64],
    out: NDArray[np.uint8],
) -> None:
    """Read runs of bytes into their places.

    Parameters
    ----------
    file : int or ndarray of int64, shape (n,)
        A descriptor, or that of each run.
    offsets, places, lengths : ndarray of int64, shape (n,)
        Where each run lies in the file, where it goes in `out`, its bytes.
    out : ndarray of uint8
        One-dimensional, contiguous.

    Raises
    ------
    UnfinishedError
        At the first run that the file does not hold, or that can't be read.
    ValueError
        If `out` is read-only.

    Examples
    --------
    >>> import tempfile
    >>> out = np.zeros(5, np.uint8)
    >>> with tempfile.TemporaryFile() as file:
    ...     _ = file.write(bytes(range(100)))
    ...     file.flush()
    ...     runs = (np.array(part) for part in ([40, 10], [0, 2], [2, 3]))
    ...     read_runs(file.fileno(), *runs, out)
    >>> out.tolist()
    [40, 41, 10, 11, 12]
    """
    if not out.flags.writeable:  # the kernel would not ask
        raise ValueError("`out` must be writable; it is read-only.")
    finished = np.zeros(len(offsets), np.int64)
    if len(offsets) >= MANY:
        # By offset: what lies together in the file lies together in the kernel's tables.
        order = np.argsort(offsets) if isinstance(file, int) else np.lexsort((offsets, file))
        sorted_runs = (part[order] for part in (offsets, out.ctypes.data + places, lengths))
        found = read_many(file if isinstance(file, int) else file[order], *sorted_runs)
        if found is not None:
            # What fell short or failed is read again below, where errors are told.
            finished[order] = np.maximum(found, 0)
    left = np.flatnonzero(finished < lengths)
    if not len(left):
        return
    memory = out.data
    requests = zip(
        left.tolist(),
        *(part[left].tolist() for part in (offsets, places, lengths, finished)),
        strict=True,
    )
    for run, offset, place, length, done in requests:
        number = file if isinstance(file, int) else int(file[run])
        while done < length:
            try:
                got = os.preadv(number, [memory[place + done : place + length]], offset + done)
            except OSError as error:
                raise UnfinishedError(run, done, error) from error
            if got == 0:
                raise UnfinishedError(run, done, None)
            done += got
