"""Rows in holes: a file that was given its length before it was filled reads as zeros there.

Where a file has no bytes on the disk is asked with ``lseek`` (``SEEK_HOLE``, ``SEEK_DATA``); a file
system that doesn't know says that there are none.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from oocdata.explain import size
from oocdata.sources.chunks import Chunks
from oocdata.sources.extents import Extents
from oocdata.sources.source import Source
from oocdata.sources.strided import StridedReader
from oocdata.tools.check.opening import Fault
from oocdata.tools.check.ranges import Ranges

__all__ = ["holes", "unwritten_rows"]

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


def unwritten_rows(source: Source) -> tuple[Fault, ...]:
    """Return the rows of an array in one run of bytes that lie in holes of its file.

    Holes shorter than a row are no finding: a copy that leaves out zeros makes them, too.
    """
    rows = source.reader if isinstance(source, Chunks) else source
    rows = rows.rows if isinstance(rows, StridedReader) else rows
    if not isinstance(rows, Extents) or rows.chunks is not None or 0 in rows.shape:
        return ()
    step = rows.strides[0]
    reach = sum((n - 1) * other for n, other in zip(rows.shape[1:], rows.strides[1:], strict=True))
    span = reach + rows.stored.itemsize
    if step <= 0 or min(rows.strides) < 0:
        return ()
    least = min(span, _PAGE)
    found, zeros, nbytes = Ranges(), Ranges(), 0
    # Beyond the end of a file that was cut short there are no holes, but no bytes at all.
    end = min(rows.file.nbytes, rows.offset + (rows.shape[0] - 1) * step + span)
    opened = rows.file.descriptor()
    for hole, data in holes(opened.number, rows.offset, end):
        before, behind = hole - rows.offset, data - rows.offset
        # All of a row but a page at each end is in the hole: it was not written.
        whole = range(-((_PAGE - before) // step), (behind + _PAGE - span) // step + 1)
        if not whole:
            continue
        nbytes += data - hole
        touched = range(-((span - least - before) // step), (behind - least) // step + 1)
        found.add(range(max(0, touched.start), min(rows.shape[0], touched.stop)))
        # Others may hold data before this hole, or behind it.
        zeros.add(
            range(max(0, -(-before // step)), min(rows.shape[0], (behind - span) // step + 1))
        )
    if not found.count:
        return ()
    reason = (
        f"every row must have been written; {size(nbytes)} of the file are holes, without bytes on "
        "the disk. They read as zero: the file was given its length and never filled there, or "
        "copied without its zeros."
    )
    return (Fault("unwritten", found, reason, tuple(zeros.kept)),)
