"""Rows in holes: a file that was given its length before it was filled reads as zeros there.

Where a file has no bytes on the disk is asked with ``lseek`` (``SEEK_HOLE``, ``SEEK_DATA``); a file
system that doesn't know says that there are none.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from oocdata.engines.files import OpenFile
from oocdata.explain import size
from oocdata.tools.check.opening import Fault
from oocdata.tools.check.rows import Rows
from oocdata.tools.ranges import Ranges

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


def sparse_rows(rows: Rows) -> tuple[Fault, ...]:
    """Return the rows of an array in one run of bytes that lie in holes of its file.

    Holes shorter than a row are not told: a copy that leaves out zeros makes them, too.
    """
    storage, shape = rows.source.storage(), rows.source.shape
    strides, offset = storage.strides, storage.offset
    if strides is None or len(storage.files) != 1 or 0 in shape:
        return ()
    step, count = strides[rows.axis], shape[rows.axis]
    reach = sum((n - 1) * other for n, other in zip(shape, strides, strict=True))
    span = reach - (count - 1) * step + rows.dtype.itemsize
    if step <= 0 or min(strides) < 0:
        return ()
    least = min(span, _PAGE)
    found, zeros, nbytes = Ranges(), Ranges(), 0
    # Beyond the end of a file that was cut short there are no holes, but no bytes at all.
    end = min(storage.files[0].nbytes, offset + (count - 1) * step + span)
    with OpenFile(storage.files[0]).opened() as number:
        there = list(holes(number, offset, end))
    for hole, data in there:
        before, behind = hole - offset, data - offset
        # All of a row but a page at each end is in the hole: it was not written.
        whole = range(-((_PAGE - before) // step), (behind + _PAGE - span) // step + 1)
        if not whole:
            continue
        nbytes += data - hole
        touched = range(-((span - least - before) // step), (behind - least) // step + 1)
        found.add(range(max(0, touched.start), min(count, touched.stop)))
        # Others may hold data before this hole, or behind it.
        zeros.add(range(max(0, -(-before // step)), min(count, (behind - span) // step + 1)))
    if not found.count:
        return ()
    reason = (
        f"{size(nbytes)} of the file are holes, without bytes on the disk. They read as zero: the "
        "file was copied without its zeros, or was given its length and never filled there."
    )
    return (Fault("sparse", found, reason, tuple(zeros.kept)),)
