"""One pass over a dataset's rows that goes on after whatever can't be read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent
from oocdata.engines.source import Source
from oocdata.errors import (
    DamagedChunkError,
    MissingChunkError,
    MissingFileError,
    SourceError,
    TruncatedFileError,
)
from oocdata.formats.checksums import checksums_of, unit_rows
from oocdata.threads import in_order_by_few
from oocdata.tools.ranges import Ranges, outside, ranges_of

__all__ = ["Rows", "RowsSeen", "kind_of", "read_rows"]

_BLOCK_BYTES = 8 << 20
"""Of rows that are read at a time, unless one chunk is larger."""

_PIECE_BYTES = 1 << 20
"""Looked through at a time: stays in the processor's cache."""


@dataclass(frozen=True, slots=True)
class Rows:
    """An array as rows along one axis.

    Attributes
    ----------
    source : Source
    axis : int
        Counted from the front.

    Examples
    --------
    >>> from oocdata.formats.memory import open_array
    >>> rows = Rows(open_array(np.arange(6).reshape(2, 3)), 1)
    >>> out = np.empty((2, 2), np.int64)
    >>> rows.read(range(1, 3), out)
    >>> rows.shape, out.tolist()
    ((3, 2), [[1, 4], [2, 5]])
    """

    source: Source
    axis: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """``(rows, *element)``."""
        shape = self.source.shape
        return (shape[self.axis], *shape[: self.axis], *shape[self.axis + 1 :])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Native byte order."""
        return self.source.dtype

    @property
    def together(self) -> int:
        """Rows that are decoded together."""
        chunks = self.source.storage().chunks
        return 1 if chunks is None else chunks[self.axis]

    def read(self, rows: range, out: NDArray[Any]) -> None:
        """Read rows that follow one another, as one box; `out` has their shape."""
        origin = np.zeros((1, len(self.source.shape)), np.int64)
        origin[0, self.axis] = rows.start
        extent = Extent.of(self.source.shape).with_axis(self.axis, len(rows))
        self.source.read(origin, extent, np.moveaxis(out, 0, self.axis)[None])


@dataclass(slots=True)
class RowsSeen:
    """What a pass over the rows found.

    Attributes
    ----------
    failed : dict of str to (Ranges, str)
        By kind: the rows that could not be read, and the first reason.
    nan, inf : Ranges
        Rows that hold such numbers.
    nans, infs : int
        Such numbers.
    changed : Ranges
        Rows that differ from their checksums.
    """

    failed: dict[str, tuple[Ranges, str]] = field(default_factory=dict)
    nan: Ranges = field(default_factory=Ranges)
    inf: Ranges = field(default_factory=Ranges)
    nans: int = 0
    infs: int = 0
    changed: Ranges = field(default_factory=Ranges)


@dataclass(frozen=True, slots=True)
class _Block:
    """What one block of rows is found to be."""

    rows: range
    failed: list[tuple[range, SourceError]]
    nan: list[range]
    inf: list[range]
    nans: int
    infs: int
    checksums: NDArray[np.uint64]


def read_rows(
    source: Rows,
    *,
    lost: tuple[range, ...] = (),
    zeros: tuple[range, ...] = (),
    expected: Rows | None = None,
    note: Callable[[NDArray[np.uint64]], None] | None = None,
    advance: Callable[[int], None],
) -> RowsSeen:
    """Read every row once, and say what is wrong with which.

    Parameters
    ----------
    source : Rows
    lost : tuple of range
        Rows known not to be there, ascending: they are not read.
    zeros : tuple of range
        Rows known to read as zero, ascending: they are not read either.
    expected : Rows, optional
        The checksum of each unit of rows, shape ``(units,)``, to compare them with.
    note : callable, optional
        Called with the checksums of all units, block by block in order.
    advance : callable
        Called with the bytes of the rows that were read.

    Returns
    -------
    RowsSeen
    """
    unit = unit_rows(source.shape, source.dtype)
    wanted = expected is not None or note is not None
    row_bytes = prod(source.shape[1:]) * source.dtype.itemsize
    seen = RowsSeen()
    scratch = threading.local()
    skipped = tuple(sorted((*lost, *zeros), key=lambda rows: rows.start))

    def look(rows: range) -> _Block:
        if not wanted and next(outside(rows, skipped), None) is None:
            return _Block(rows, [], [], [], 0, 0, np.zeros(0, np.uint64))
        memory = getattr(scratch, "memory", None)
        if memory is None or len(memory) < len(rows):
            memory = scratch.memory = np.empty((len(rows), *source.shape[1:]), source.dtype)
        return _look(source, rows, skipped, memory[: len(rows)], unit if wanted else 0)

    for block in in_order_by_few("oocdata-check", look, _blocks(source, unit)):
        for rows, error in block.failed:
            kind = kind_of(error)
            seen.failed.setdefault(kind, (Ranges(), error.message))[0].add(rows)
        for rows in block.nan:
            seen.nan.add(rows)
        for rows in block.inf:
            seen.inf.add(rows)
        seen.nans += block.nans
        seen.infs += block.infs
        if note is not None:
            note(block.checksums)
        if expected is not None:
            bad = [*lost, *(rows for rows, _ in block.failed)]
            for rows in _changed(block, expected, unit, source.shape[0]):
                for part in outside(rows, sorted(bad, key=lambda one: one.start)):
                    seen.changed.add(part)
        advance(len(block.rows) * row_bytes)
    return seen


def kind_of(error: SourceError) -> str:
    """Return what kind of finding an error is.

    Examples
    --------
    >>> kind_of(TruncatedFileError("must hold 80 bytes; got 64."))
    'truncated'
    """
    if isinstance(error, TruncatedFileError):
        return "truncated"
    if isinstance(error, DamagedChunkError):
        return "damaged"
    return "missing" if isinstance(error, MissingChunkError | MissingFileError) else "unreadable"


def _blocks(source: Rows, unit: int) -> Iterator[range]:
    """Yield all rows in blocks of whole chunks and whole units, where one block can hold those."""
    total = source.shape[0]
    row_bytes = max(1, prod(source.shape[1:]) * source.dtype.itemsize)
    most = max(1, _BLOCK_BYTES // row_bytes, source.together)
    together = int(np.lcm(source.together, unit))
    step = together if together > most else most - most % together
    if together > 4 * most:
        step = -(-most // unit) * unit
    for start in range(0, total, step):
        yield range(start, min(start + step, total))


def _look(
    source: Rows, rows: range, skipped: tuple[range, ...], memory: NDArray[Any], unit: int
) -> _Block:
    memory[...] = 0  # what can't be read is no number of an earlier block
    failed: list[tuple[range, SourceError]] = []
    for part in outside(rows, skipped):
        into = memory[part.start - rows.start : part.stop - rows.start]
        failed += _read(source, part, into)
    checksums = checksums_of(memory, unit) if unit else np.zeros(0, np.uint64)
    nan, nans, inf, infs = _not_finite(memory, rows.start)
    return _Block(rows, failed, nan, inf, nans, infs, checksums)


def _read(source: Rows, rows: range, memory: NDArray[Any]) -> Iterator[tuple[range, SourceError]]:
    """Read rows into memory; yield those that can't be, as few as lie in one chunk, and why."""
    try:
        source.read(rows, memory)
        return
    except SourceError as error:
        failure = error.with_traceback(None)  # whose frames would keep the memory
    except OSError as error:
        failure = SourceError(f"the rows must be readable; {error}.")
    memory[...] = 0
    step = source.together
    first, last = rows.start // step, (rows.stop - 1) // step
    if first == last:
        yield rows, failure
        return
    middle = (first + last + 1) // 2 * step
    yield from _read(source, range(rows.start, middle), memory[: middle - rows.start])
    yield from _read(source, range(middle, rows.stop), memory[middle - rows.start :])


def _not_finite(memory: NDArray[Any], first: int) -> tuple[list[range], int, list[range], int]:
    """Return the rows with NaN and their number, and those with infinities."""
    if memory.dtype.kind not in "fc" or not memory.size:
        return [], 0, [], 0
    flat = memory.reshape(len(memory), -1)
    nan: list[range] = []
    inf: list[range] = []
    nans = infs = 0
    step = max(1, _PIECE_BYTES // max(1, flat.shape[1] * flat.itemsize))
    for start in range(0, len(flat), step):
        piece = flat[start : start + step]
        if np.isfinite(piece).all():
            continue
        is_nan, is_inf = np.isnan(piece), np.isinf(piece)
        nan += ranges_of(is_nan.any(axis=1), first + start)
        inf += ranges_of(is_inf.any(axis=1), first + start)
        nans += int(is_nan.sum())
        infs += int(is_inf.sum())
    return nan, nans, inf, infs


def _changed(block: _Block, expected: Rows, unit: int, total: int) -> Iterator[range]:
    """Yield the rows of units that differ from their checksums."""
    first = block.rows.start // unit
    wanted = np.empty(len(block.checksums), np.uint64)
    expected.read(range(first, first + len(wanted)), wanted)
    for rows in ranges_of(wanted != block.checksums, block.rows.start, 1 if unit == 1 else unit):
        yield range(rows.start, min(rows.stop, total))
