"""Boxes of a view, read through its source in a bounded memory.

Boxes follow the grid of stored chunks, so that each chunk is decoded once and given up when the
next ones are read. Rows that follow one another are one box of the source, however many they are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.datasets.request import Placement
from oocdata.datasets.view import View
from oocdata.index import compose_ranges
from oocdata.memory import cache_share
from oocdata.threads import cores
from oocdata.tools.convert.casting import cast_into
from oocdata.writers.chunking import default_chunks
from oocdata.writers.target import Box

__all__ = ["PIECE_BYTES", "BoxSource"]

PIECE_BYTES = 1 << 20
"""Bytes of a row from which on it is as well read or written in pieces of as many."""

_PART_BYTES = 8 << 20
"""Read in one call, unless a chunk has more."""

_ROW_BYTES = 256
"""What a row of its own takes while it is read: its origin, its chunk, and where it goes."""


class BoxSource:
    """A view, read by boxes.

    Parameters
    ----------
    view : View

    Attributes
    ----------
    shape : tuple of int
    dtype : numpy.dtype
    chunk : tuple of int
        What is decoded together, rows first; one row, or a piece of it, where nothing is.
    lead : int
        Rows before the first border of chunks.

    Examples
    --------
    >>> import oocdata as ooc
    >>> source = BoxSource(ooc.open(np.arange(12).reshape(4, 3))[::-1, 1:])
    >>> source.shape, source.chunk
    ((4, 2), (1, 2))
    >>> out = np.empty((2, 1), "i8")
    >>> source.read((slice(1, 3), slice(0, 1)), out)
    >>> out.tolist()
    [[7], [4]]
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._stored = replace(view, dtype=view.source.dtype)
        regular = isinstance(view.rows, range) and (len(view.axes) == 1 or view.rows.step == 1)
        self._points = not regular
        self.shape: tuple[int, ...] = view.shape
        self.dtype: np.dtype[Any] = view.dtype
        self.chunk, self.lead = _chunk_of(view)

    @property
    def chunk_rows_bytes(self) -> int:
        """Bytes of the chunks that hold the same rows; 0 where there are no chunks."""
        storage, source = self._view.storage, self._view.source
        if storage.chunks is None:
            return 0
        axes = self._view.axes
        return source.dtype.itemsize * prod(
            storage.chunks[at] if at in axes else length for at, length in enumerate(source.shape)
        )

    def _part_rows(self, box_shape: tuple[int, ...]) -> int:
        """Return how many rows of a box are read in one call: whole chunks."""
        row_bytes = max(1, prod(box_shape[1:]) * self._stored.dtype.itemsize)
        rows = max(1, _PART_BYTES // row_bytes)
        return max(self.chunk[0], rows - rows % self.chunk[0])

    def extra_bytes(self, elements: int) -> int:
        """Return the bytes that reading boxes of so many elements takes at most, beside them."""
        storage, itemsize = self._view.storage, self._stored.dtype.itemsize
        total = prod(self._view.source.shape) * itemsize
        part = min(elements * itemsize, 2 * max(_PART_BYTES, prod(self.chunk) * itemsize))
        rows = elements // max(1, prod(self.shape[1:])) * _ROW_BYTES if self._points else 0
        if storage.chunks is None:
            return 2 * part + rows
        chunk = prod(storage.chunks) * itemsize
        # One chunk at least is kept, and each thread decodes one: stored, and half decoded.
        return 2 * part + rows + max(chunk, min(cache_share(), total)) + 2 * cores() * chunk

    def read(self, box: Box, out: NDArray[Any]) -> None:
        """Fill `out`, which is C-contiguous and has the box's shape.

        Raises
        ------
        oocdata.errors.SourceError
            With file, dataset and rows, when storage can't deliver them, or their numbers don't fit
            the view's dtype.
        """
        if out.size == 0:
            return
        view = self._stored[box]
        step = len(out) if self._points else self._part_rows(out.shape)
        converted = out.dtype != view.dtype
        scratch = np.empty((min(step, len(out)), *out.shape[1:]), view.dtype) if converted else out
        for first in range(0, len(out), step):
            part = out[first : first + step]
            some = view if step >= len(out) else view[first : first + len(part)]
            if not converted:
                _read(some, part)
                continue
            held = scratch[: len(part)]
            _read(some, held)
            cast_into(part, held, partial(_named, some))


def _read(view: View, out: NDArray[Any]) -> None:
    """Read all rows of a view, which is delivered in its source's dtype."""
    placement, extent, element = view.placement, view.extent, out.shape[1:]
    runs = list(_runs(view))
    if not runs:
        origins = view.origins(np.asarray(view.rows, np.int64))
        view.source.read(origins, extent, placement.stored(out, extent.lengths))
        return
    # A run is a box that is longer along the last sample axis, so its rows are one more axis.
    last, step = view.axes[-1], runs[0][2]
    axes = [None if axis is None else axis + 1 for axis in placement.axes]
    axes[last] = 0
    flipped = [axis + 1 for axis in placement.flipped] + ([0] if step < 0 else [])
    long = Placement(tuple(axes), tuple(flipped))
    done = 0
    for numbers, length, step in runs:
        boxes = extent.with_axis(last, length, abs(step))
        count = len(numbers) * length
        target = out[done : done + count].reshape(len(numbers), length, *element)
        origins = view.origins(numbers)
        view.source.read(origins, boxes, long.stored(target, boxes.lengths))
        done += count


def _runs(view: View) -> Iterator[tuple[NDArray[np.int64], int, int]]:
    """Yield runs of rows along the last sample axis; none where the rows follow no such rule.

    Yields
    ------
    numbers : ndarray of int64, shape (n,)
        For each run, the number in the grid of its row that lies first in storage.
    length, step : int
        Rows of each run, and from one to the next in storage.
    """
    rows, inner = view.rows, view.grid[-1]
    if not isinstance(rows, range):
        return
    if len(view.grid) == 1:
        step = rows.step * inner.step
        first = rows[0] if step > 0 else rows[-1]
        yield np.array([first], np.int64), len(rows), step
    elif rows.step == 1:
        at, stop, length = rows.start, rows.stop, len(inner)
        while at < stop:
            # To the end of an outer place; then all whole ones together; then what is left.
            whole = (stop - at) // length if at % length == 0 else 0
            count, long = (whole, length) if whole else (1, min(length - at % length, stop - at))
            numbers = at + length * np.arange(count, dtype=np.int64)
            yield (numbers if inner.step > 0 else numbers + long - 1), long, inner.step
            at += count * long


def _chunk_of(view: View) -> tuple[tuple[int, ...], int]:
    """Return what of a view is decoded together, and how many rows lie before the first border."""
    chunks = view.storage.chunks
    if chunks is None:
        pieces = default_chunks(view.shape, view.dtype.itemsize, largest=PIECE_BYTES)
        whole, lead = (1, *pieces[1:]), 0
    else:
        element = [1] * len(view.element)
        for at, axis in enumerate(view.placement.axes):
            if axis is not None:
                element[axis] = -(-chunks[at] // view.extent.strides[at])
        rows, lead = _chunk_rows(view, chunks)
        whole = (rows, *element)
    fitted = tuple(max(1, min(n, length)) for n, length in zip(whole, view.shape, strict=True))
    return fitted, lead % fitted[0]


def _chunk_rows(view: View, chunks: tuple[int, ...]) -> tuple[int, int]:
    """Return how many rows lie in a chunk, and how many before the first border of chunks."""
    last = chunks[view.axes[-1]]
    if len(view.grid) > 1:
        lengths = [len(places) for places in view.grid]
        for place, axis in enumerate(view.axes[:-1]):
            if chunks[axis] > 1:  # it holds several outer places, with all rows of each
                return chunks[axis] * prod(lengths[place + 1 :]), 0
        return min(last, lengths[-1]), 0
    if not isinstance(view.rows, range):
        return last, 0
    places = compose_ranges(view.grid[0], view.rows)
    return -(-last // abs(places.step)), -places.start % last if places.step == 1 else 0


def _named(view: View, row: int) -> tuple[str | None, str | None, int]:
    """Return the file, the dataset and the place in it of a row of a view."""
    storage = view.storage
    at = int(view.origins(np.asarray(view.rows[row : row + 1], np.int64))[0, view.axes[0]])
    if len(storage.parts) == 1 or storage.parts_axis != view.axes[0]:
        return storage.path, storage.key, at
    part = bisect_right(storage.parts, at) - 1
    files = storage.files
    path = files[part].path if len(files) == len(storage.parts) else storage.path
    return path, storage.key, at - storage.parts[part]
