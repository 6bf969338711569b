"""Rows in holes: a file that was given its length before it was filled reads as zeros there.

Where a file has no bytes on the disk is asked with ``lseek`` (``SEEK_HOLE``, ``SEEK_DATA``); a file
system that doesn't know says that there are none.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from oocdata.datasets.view import View
from oocdata.engines.files import OpenFile
from oocdata.explain import size
from oocdata.tools.check.rows import Fault

__all__ = ["holes", "sparse_rows"]

_PAGE = 4096
"""Holes begin and end with pages: what was written last may share one with what was not."""


def holes(number: int, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield where a file has no bytes on the disk, between two offsets.

    Parameters
    ----------
    number : int
        Of an open descriptor.
    start, stop : int
        Byte offsets.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryFile() as file:
    ...     _ = file.truncate(1 << 20)
    ...     list(holes(file.fileno(), 0, 1 << 20))
    [(0, 1048576)]
    """
    at = start
    while at < stop and hasattr(os, "SEEK_HOLE"):
        try:
            hole = os.lseek(number, at, os.SEEK_HOLE)
        except OSError:  # beyond the end
            return
        if hole >= stop:
            return
        try:
            at = min(os.lseek(number, hole, os.SEEK_DATA), stop)
        except OSError:  # no data follows
            at = stop
        yield hole, at


def sparse_rows(view: View) -> tuple[Fault, ...]:
    """Return the rows of an array in one run of bytes that lie in holes of its file.

    Holes shorter than a row are not told: a copy that leaves out zeros makes them, too.
    """
    storage, shape, axis = view.storage, view.source.shape, view.axes[0]
    strides, offset = storage.strides, storage.offset
    if strides is None or len(storage.files) != 1 or 0 in shape or min(strides) <= 0:
        return ()
    step, count = strides[axis], shape[axis]
    row = [1 if at == axis else length for at, length in enumerate(shape)]
    span = sum((n - 1) * by for n, by in zip(row, strides, strict=True)) + view.dtype.itemsize
    edge = _PAGE if span > 2 * _PAGE else 0
    # Beyond the end of a file that was cut short there are no holes, but no bytes at all.
    end = min(storage.files[0].nbytes, offset + (count - 1) * step + span)
    found, nbytes = Fault("sparse", ""), 0
    with OpenFile(storage.files[0]).opened() as number:
        for hole, data in list(holes(number, offset, end)):
            # All of a row but a page at each end is in the hole: it was not written.
            first = -(-(hole - edge - offset) // step)
            stop = (data + edge - span - offset) // step + 1
            if first < stop:
                found.rows.add(range(max(0, first), min(count, stop)))
                nbytes += data - hole
    found.reason = (
        f"{size(nbytes)} of the file are holes, without bytes on the disk. They read as zero: the "
        "file was copied without its zeros, or was given its length and never filled there."
    )
    return (found,) if found.rows.count else ()
