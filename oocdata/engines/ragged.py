"""Runs of unequal length along axis 0: what rows of sparse matrices and of text are stored as.

`Source.read` takes boxes of one extent. A row of a sparse matrix is a run of as many numbers as it
has, so an engine that can read runs of any lengths does, by a method `read_runs`; for all others,
each place of a run is a box.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent
from oocdata.engines.buffers import empty
from oocdata.engines.soon import Soon, soon
from oocdata.engines.source import Source
from oocdata.errors import SourceError

__all__ = [
    "as_items", "concerned_rows", "copy_runs", "cut_runs", "pieces", "read_apart", "read_bounds",
    "read_points", "read_ragged", "soon_points", "soon_ragged", "spread",
]  # fmt: skip

Ints = NDArray[np.int64]

_ITEM = 32
"""Numbers that are copied as one."""


def read_ragged(source: Source, starts: Ints, lengths: Ints, out: NDArray[Any]) -> None:
    """Write runs of places along axis 0 one after the other.

    Parameters
    ----------
    source : Source
    starts, lengths : ndarray of int64, shape (n,)
        Runs within the array; any order, overlapping or empty as they may be.
    out : ndarray, shape (lengths.sum(), …)
        C-contiguous, of the source's dtype.

    Raises
    ------
    oocdata.errors.SourceError
        When storage can't deliver them.

    Examples
    --------
    >>> from oocdata.engines.memory_array import MemoryArray
    >>> out = np.empty(5, np.int64)
    >>> runs = np.array([7, 2]), np.array([3, 2])
    >>> read_ragged(MemoryArray(np.arange(10)), *runs, out)
    >>> out
    array([7, 8, 9, 2, 3])
    """
    if not out.size:
        return
    getattr(source, "read_runs", partial(read_points, source))(starts, lengths, out)


def soon_ragged(source: Source, starts: Ints, lengths: Ints) -> list[Soon]:
    """Return what `read_ragged` will take out of stores."""
    if not lengths.any():
        return []
    return list(getattr(source, "soon_runs", partial(soon_points, source))(starts, lengths))


def read_points(source: Source, starts: Ints, lengths: Ints, out: NDArray[Any]) -> None:
    """Write runs, each place of which is read as a box; see `read_ragged`."""
    source.read(*_points(source, starts, lengths), out[:, None])


def soon_points(source: Source, starts: Ints, lengths: Ints) -> list[Soon]:
    """Return what `read_points` will take out of stores."""
    return soon(source, *_points(source, starts, lengths))


def _points(source: Source, starts: Ints, lengths: Ints) -> tuple[Ints, Extent]:
    """Return each place of runs as a box."""
    origins = np.zeros((int(lengths.sum()), len(source.shape)), np.int64)
    origins[:, 0] = spread(starts, lengths)
    return origins, Extent.of((1, *source.shape[1:]))


def read_bounds(offsets: Source, rows: Ints, most: int) -> tuple[Ints, Ints]:
    """Return where rows begin and end; those that follow on one another are asked for at once.

    Parameters
    ----------
    offsets : Source
        Whole numbers, of one axis: where each row begins, and where the last one ends.
    rows : ndarray of int64, shape (n,), n > 0
    most : int
        Where the last row may end.

    Raises
    ------
    oocdata.errors.SourceError
        If they end before they begin, or beyond `most`; and when storage can't deliver them.

    Examples
    --------
    >>> from oocdata.engines.memory_array import MemoryArray
    >>> read_bounds(MemoryArray(np.array([0, 3, 3, 9])), np.array([2, 0, 1]), 9)
    (array([3, 0, 3]), array([9, 3, 3]))
    """
    firsts = np.flatnonzero(np.diff(rows, prepend=-2) != 1)
    counts = np.diff(firsts, append=len(rows)) + 1
    read = np.empty(int(counts.sum()), offsets.dtype)
    read_ragged(offsets, rows[firsts], counts, read)
    found = read.astype(np.int64, copy=False)
    last = np.zeros(len(found), np.bool_)
    last[np.cumsum(counts) - 1] = True
    starts, stops = found[~last], found[np.flatnonzero(~last) + 1]
    wrong = (starts < 0) | (stops < starts) | (stops > most)
    if wrong.any():
        raise SourceError(
            f"rows must lie within {most} places, one after the other; their offsets say places "
            f"{starts[wrong][0]} to {stops[wrong][0]}. They are damaged, or of other values.",
            rows=rows[wrong],
        )
    return starts, stops


def concerned_rows(error: SourceError, rows: Ints, starts: Ints, stops: Ints) -> Ints:
    """Return which of some rows an error about places in a 1-D array concerns; all, if unknown.

    Parameters
    ----------
    error : SourceError
        Its count is forgotten: it is one of places.
    rows : ndarray of int64, shape (n,)
    starts, stops : ndarray of int64, shape (n,)
        Where each row begins and ends in the array.
    """
    if not error.rows:
        return rows
    first, count = min(error.rows), max(len(error.rows), error.count or 0)
    error.count = None
    return rows[(starts < first + count) & (stops > first)]


def copy_runs(
    memory: NDArray[Any], starts: Ints, out: NDArray[Any], targets: Ints, lengths: Ints
) -> None:
    """Copy runs of one array to places in another; both of one axis and dtype, C-contiguous.

    Long runs are copied as opaque items of many numbers, the last one of each moved back to where
    the run ends: an eighth of the time of copying number by number, and of batches of rows of 20 to
    600 numbers 1 / 2.6 by NumPy iteration, 1 / 1.5 through `to_tf`.

    Examples
    --------
    >>> out = np.zeros(6, np.int64)
    >>> copy_runs(np.arange(10), np.array([7, 2]), out, np.array([4, 0]), np.array([2, 3]))
    >>> out
    array([2, 3, 4, 0, 7, 8])
    """
    short = lengths < _ITEM
    if short.any():
        some = lengths[short]
        out[spread(targets[short], some)] = memory[spread(starts[short], some)]
        starts, targets, lengths = starts[~short], targets[~short], lengths[~short]
    if not len(lengths):
        return
    counts = -(-lengths // _ITEM)
    within = spread(np.zeros_like(counts), counts) * _ITEM
    np.minimum(within, np.repeat(lengths - _ITEM, counts), out=within)
    items = _items(memory)[np.repeat(starts, counts) + within]
    _items(out)[np.repeat(targets, counts) + within] = items


def read_apart(
    read: Callable[[NDArray[Any]], None],
    counts: Ints,
    dtype: np.dtype[Any],
    out: NDArray[Any],
    targets: Ints,
) -> None:
    """Read runs, which come one after the other in a dtype, to where each goes, converted.

    Parameters
    ----------
    read : callable
        Writes all of them to C-contiguous memory.
    counts, targets : ndarray of int64, shape (n,)
        How long each is, and where it begins in `out`.
    dtype : numpy.dtype
    out : ndarray, shape (places, …)
        C-contiguous.
    """
    ends = np.cumsum(counts)
    if not len(ends) or not ends[-1]:
        return
    first = int(targets[0])
    if dtype == out.dtype and (targets - first == ends - counts).all():
        read(out[first : first + int(ends[-1])])
        return
    memory = empty((int(ends[-1]), *out.shape[1:]), dtype)
    read(memory)
    values = as_items(memory.astype(out.dtype, copy=False))
    copy_runs(values, ends - counts, as_items(out), targets, counts)


def as_items(array: NDArray[Any]) -> NDArray[Any]:
    """Return a C-contiguous array as one axis of opaque items, one for each place along axis 0.

    Examples
    --------
    >>> as_items(np.zeros((3, 2), "f4")).dtype
    dtype('V8')
    """
    nbytes = array.itemsize * prod(array.shape[1:])
    return array if array.ndim == 1 else np.ndarray((len(array),), f"V{nbytes}", array)


def _items(array: NDArray[Any]) -> NDArray[Any]:
    """Return an item of many numbers from each place of an array on; they overlap."""
    count, item = len(array) - _ITEM + 1, f"V{_ITEM * array.itemsize}"
    return np.ndarray((count,), item, array, strides=(array.itemsize,))


def pieces(lengths: Ints, most: int) -> Iterator[slice]:
    """Yield rows, a few at a time: they hold at most so much together, unless one holds more.

    Examples
    --------
    >>> [(some.start, some.stop) for some in pieces(np.array([3, 4, 9, 1, 0]), 8)]
    [(0, 2), (2, 3), (3, 5)]
    """
    ends = np.cumsum(lengths)
    start = 0
    while start < len(lengths):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(ends.searchsorted(before + most, side="right")))
        yield slice(start, stop)
        start = stop


def spread(starts: Ints, lengths: Ints) -> Ints:
    """Return the places of runs, one run after the other.

    Examples
    --------
    >>> spread(np.array([7, 2, 4]), np.array([3, 0, 2]))
    array([7, 8, 9, 4, 5])
    """
    ends = np.cumsum(lengths)
    places = np.repeat(starts - (ends - lengths), lengths)
    places += np.arange(len(places))
    return places


def cut_runs(starts: Ints, lengths: Ints, chunk: int) -> tuple[Ints, Ints, Ints]:
    """Cut runs at the borders of chunks; the pieces of each follow one another.

    Returns
    -------
    chunks, within, lengths : ndarray of int64, shape (pieces,)
        The chunk that each piece lies in, where it begins there, and its length.

    Examples
    --------
    >>> cut_runs(np.array([8, 3]), np.array([5, 2]), 10)
    (array([0, 1, 0]), array([8, 0, 3]), array([2, 3, 2]))
    """
    first, stops = starts // chunk, starts + lengths
    counts = np.where(lengths > 0, (stops - 1) // chunk - first + 1, 0)
    chunks = spread(first, counts)
    begins = np.maximum(np.repeat(starts, counts), chunks * chunk)
    ends = np.minimum(np.repeat(stops, counts), (chunks + 1) * chunk)
    return chunks, begins - chunks * chunk, ends - begins
