"""Read runs of unequal length along axis 0, which store rows of sparse matrices, text and the like.

`Source.read` takes boxes of one extent, but a row of a sparse matrix is a run as long as it has
stored numbers. A source that can read runs of any lengths has a property `has_runs`, which is True,
and a method `read_runs`. For other sources, each position of a run is read as a box.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent, Ints
from oocdata.engines.buffers import empty_rows
from oocdata.engines.source import Boxes, Source
from oocdata.errors import SourceError

Runs: TypeAlias = tuple[Source, Ints, Ints]
"""A source, and the starts and lengths of runs along its axis 0."""

_ITEM = 32
"""Numbers that are copied as one item."""


def read_ragged(source: Source, starts: Ints, lengths: Ints, out: NDArray[Any]) -> None:
    """Read runs along axis 0, and write them one after the other.

    Runs may be in any order, overlap or be empty. `out` has shape ``(lengths.sum(), …)``, is
    C-contiguous and of the source's dtype.
    """
    if not out.size:
        return
    if getattr(source, "has_runs", False):
        cast(Any, source).read_runs(starts, lengths, out)
    else:
        source.read(*run_boxes(source, run_positions(starts, lengths), 1), out[:, None])


def boxes_of_runs(source: Source, starts: Ints, lengths: Ints) -> Iterator[Boxes]:
    """Yield the boxes that `read_ragged` reads, to plan what must be fetched or decoded.

    A source that reads runs of other sources has a method `runs_below`, which returns those. Else
    each run is covered by two boxes, which overlap: one begins and one ends with it, and both are
    as long as the largest power of two within it. So few boxes differ in extent.
    """
    if below := getattr(source, "runs_below", None):
        for runs in below(starts, lengths):
            yield from boxes_of_runs(*runs)
        return
    for length in (1 << np.arange(int(lengths.max(initial=0)).bit_length())).tolist():
        of_length = (lengths >= length) & (lengths < 2 * length)
        first, last = starts[of_length], (starts + lengths)[of_length] - length
        if len(first):
            yield source, *run_boxes(source, np.concatenate((first, last)), length)


def run_boxes(source: Source, starts: Ints, length: int) -> tuple[Ints, Extent]:
    """Return boxes of a length along axis 0, and whole along the other axes."""
    origins = np.zeros((len(starts), len(source.shape)), np.int64)
    origins[:, 0] = starts
    return origins, Extent.of((length, *source.shape[1:]))


def read_bounds(
    offsets: Source, rows: Ints, most: int, path: str | None = None, key: str | None = None
) -> tuple[Ints, Ints]:
    """Return where rows begin and end; offsets of consecutive rows are read together.

    `offsets` are integers of one axis: where each row begins, and where the last one ends. Raises
    `SourceError`, with `path` and `key`, if a row ends before it begins or beyond `most`.

    >>> from oocdata.engines.memory_array import MemoryArray
    >>> read_bounds(MemoryArray(np.array([0, 3, 3, 9])), np.array([2, 0, 1]), 9)
    (array([3, 0, 3]), array([9, 3, 3]))
    """
    if not len(rows):
        return rows, rows
    firsts = np.flatnonzero(np.diff(rows, prepend=-2) != 1)
    counts = np.diff(firsts, append=len(rows)) + 1
    stored = np.empty(int(counts.sum()), offsets.dtype)
    read_ragged(offsets, rows[firsts], counts, stored)
    bounds = stored.astype(np.int64, copy=False)
    last = np.zeros(len(bounds), np.bool_)
    last[np.cumsum(counts) - 1] = True
    starts, stops = bounds[~last], bounds[np.flatnonzero(~last) + 1]
    wrong = (starts < 0) | (stops < starts) | (stops > most)
    if wrong.any():
        raise SourceError(
            f"rows must lie within {most} places, one after the other; their offsets say places "
            f"{starts[wrong][0]} to {stops[wrong][0]}. They are damaged, or of other values.",
            path=path,
            key=key,
            rows=rows[wrong],
        )
    return starts, stops


def affected_rows(error: SourceError, rows: Ints, starts: Ints, stops: Ints) -> Ints:
    """Return the rows that an error about positions in a 1-D array concerns; all rows if unknown.

    Row i is at ``starts[i]:stops[i]`` of the array. The error's count of positions is reset.
    """
    if not error.rows:
        return rows
    first, count = min(error.rows), max(len(error.rows), error.count or 0)
    error.count = None
    return rows[(starts < first + count) & (stops > first)]


def copy_runs(
    memory: NDArray[Any], starts: Ints, out: NDArray[Any], targets: Ints, lengths: Ints
) -> None:
    """Copy runs between two arrays of one axis and the same dtype, both C-contiguous.

    Long runs are copied as opaque items of many numbers; the last item of each is shifted back to
    end with the run. Batches of rows of 20 to 600 numbers take 1 / 2.6 of the processor time.
    """
    short = lengths < _ITEM
    if short.any():
        counts = lengths[short]
        out[run_positions(targets[short], counts)] = memory[run_positions(starts[short], counts)]
        starts, targets, lengths = starts[~short], targets[~short], lengths[~short]
    if not len(lengths):
        return
    counts = -(-lengths // _ITEM)
    within = run_positions(np.zeros_like(counts), counts) * _ITEM
    np.minimum(within, np.repeat(lengths - _ITEM, counts), out=within)
    items = _items(memory)[np.repeat(starts, counts) + within]
    _items(out)[np.repeat(targets, counts) + within] = items


def scatter_runs(
    source: Source, starts: Ints, counts: Ints, out: NDArray[Any], targets: Ints
) -> None:
    """Read runs along axis 0, and write run i from ``out[targets[i]]`` on, converted.

    `out` has shape ``(positions, …)`` and is C-contiguous.
    """
    ends = np.cumsum(counts)
    if not len(ends) or not ends[-1]:
        return
    first = int(targets[0])
    if source.dtype == out.dtype and (targets - first == ends - counts).all():  # without a copy
        read_ragged(source, starts, counts, out[first : first + int(ends[-1])])
        return
    memory = empty_rows((int(ends[-1]), *out.shape[1:]), source.dtype)
    read_ragged(source, starts, counts, memory)
    values = as_items(memory.astype(out.dtype, copy=False))
    copy_runs(values, ends - counts, as_items(out), targets, counts)


def as_items(array: NDArray[Any]) -> NDArray[Any]:
    """Return a C-contiguous array as a 1-D array of opaque items, one per position along axis 0."""
    nbytes = array.itemsize * prod(array.shape[1:])
    return array if array.ndim == 1 else np.ndarray((len(array),), f"V{nbytes}", array)


def _items(array: NDArray[Any]) -> NDArray[Any]:
    """Return overlapping items of `_ITEM` numbers, one from each position of an array on."""
    count, item = len(array) - _ITEM + 1, f"V{_ITEM * array.itemsize}"
    return np.ndarray((count,), item, array, strides=(array.itemsize,))


def row_batches(lengths: Ints, most: int) -> Iterator[slice]:
    """Yield slices of rows that together hold at most `most` numbers, or a single longer row.

    >>> [(batch.start, batch.stop) for batch in row_batches(np.array([3, 4, 9, 1, 0]), 8)]
    [(0, 2), (2, 3), (3, 5)]
    """
    ends = np.cumsum(lengths)
    start = 0
    while start < len(lengths):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(ends.searchsorted(before + most, side="right")))
        yield slice(start, stop)
        start = stop


def run_positions(starts: Ints, lengths: Ints) -> Ints:
    """Return the positions of runs, one run after the other.

    >>> run_positions(np.array([7, 2, 4]), np.array([3, 0, 2]))
    array([7, 8, 9, 4, 5])
    """
    ends = np.cumsum(lengths)
    positions = np.repeat(starts - (ends - lengths), lengths)
    positions += np.arange(len(positions))
    return positions


def cut_runs(starts: Ints, lengths: Ints, chunk: int) -> tuple[Ints, Ints, Ints]:
    """Cut runs at the borders of chunks; the pieces of each run stay in order.

    Returns the chunk number of each piece, its position in the chunk, and its length.

    >>> cut_runs(np.array([8, 3]), np.array([5, 2]), 10)
    (array([0, 1, 0]), array([8, 0, 3]), array([2, 3, 2]))
    """
    first, stops = starts // chunk, starts + lengths
    counts = np.where(lengths > 0, (stops - 1) // chunk - first + 1, 0)
    chunks = run_positions(first, counts)
    begins = np.maximum(np.repeat(starts, counts), chunks * chunk)
    ends = np.minimum(np.repeat(stops, counts), (chunks + 1) * chunk)
    return chunks, begins - chunks * chunk, ends - begins
