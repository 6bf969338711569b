"""Boxes of a view, read so that every chunk that lies in a box is decoded once, straight into it.

A loader keeps decoded chunks for the batches that come; a conversion needs each once, in an order
that it chooses. So it asks the readers for whole chunks, and nothing is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.datasets.view import View
from oocdata.index import Selection, as_slice, select
from oocdata.sources.adapt import Converted, cut_source, through_scratch
from oocdata.sources.chunk_layout import Box
from oocdata.sources.chunks import Chunks
from oocdata.sources.concat import Concat
from oocdata.sources.extents import Extents
from oocdata.sources.memory import Memory
from oocdata.sources.readers import BoxReader, ChunkReader
from oocdata.sources.source import Source
from oocdata.sources.strided import StridedReader, neighbours
from oocdata.sources.xarray.decoded import Decoded
from oocdata.sources.zarr.chunk_files import ChunkFiles
from oocdata.threads import cores, in_threads
from oocdata.tools.convert.casting import cast_into
from oocdata.tools.convert.lying import (
    chunk_of,
    decoded_bytes,
    kept_bytes,
    strided_of,
    strides_of,
)
from oocdata.tools.convert.pieces import is_run, pieces_of, shifted, split

__all__ = ["BoxSource"]

_PART_BYTES = 4 << 20
"""Of the rows that one thread copies at a time, or of the chunks that it decodes."""

_PART_ROWS = 1 << 18
"""The most of them at a time: each has a number of eight bytes."""


class BoxSource:
    """A view, read by boxes.

    Parameters
    ----------
    view : View
    threads : ThreadPoolExecutor

    Attributes
    ----------
    shape : tuple of int
    dtype : numpy.dtype
    chunk : tuple of int
        What is decoded together, rows first; one row, or a piece of it, where nothing is.
    lead : int
        Rows before the first border of chunks.
    strides : tuple of int or None
        Bytes from one place to the next on each axis, where the bytes of a row lie far apart.
    """

    def __init__(self, view: View, threads: ThreadPoolExecutor) -> None:
        self._view = view
        self._source = view.source.source if isinstance(view.source, Converted) else view.source
        self._threads = threads
        self.shape: tuple[int, ...] = view.shape
        self.dtype: np.dtype[Any] = view.dtype
        rows, chunk = view.rows, chunk_of(self._source)
        apart = abs(rows.step) if isinstance(rows, range) else 1
        self.chunk = tuple(
            max(1, min(long, length))
            for long, length in zip((-(-chunk[0] // apart), *chunk[1:]), view.shape, strict=True)
        )
        self.lead = -rows.start % self.chunk[0] if isinstance(rows, range) and is_run(rows) else 0
        self.strides = strides_of(self._source) if is_run(rows) else None

    @property
    def thread_bytes(self) -> int:
        """Bytes that a thread takes: of chunks, and of what they are decoded from."""
        chunk = max(decoded_bytes(self._source), prod(self.chunk) * self._source.dtype.itemsize)
        return 3 * chunk + max(chunk, _PART_BYTES)

    def extra_bytes(self, elements: int) -> int:
        """Return the bytes that reading a box of so many elements takes, beside it and the threads.

        Decoded chunks that a source of another kind keeps are counted too.
        """
        source, rows, itemsize = self._source, self._view.rows, 0
        if isinstance(source, Decoded):
            source = source.source
            itemsize = source.dtype.itemsize
        if self.strides is not None:
            itemsize += source.dtype.itemsize
        elif isinstance(source, Chunks) and max(source.reader.chunk_shape) == 1:
            itemsize += 2 * source.dtype.itemsize
        # Rows in no order are sorted by the chunks that they lie in.
        sorting = 0 if isinstance(rows, range) else 4 * rows.itemsize
        count = elements // max(1, prod(self.shape[1:]))
        return elements * itemsize + count * sorting + kept_bytes(source)

    def read(self, box: Box, out: NDArray[Any]) -> None:
        """Fill `out`, which has the box's shape.

        Raises
        ------
        oocdata.errors.SourceError
            With file, dataset and rows, when storage can't deliver them, or their numbers don't fit
            the view's dtype.
        """
        cuts = tuple(range(part.start, part.stop) for part in box[1:])
        rows = select(self._view.rows, range(box[0].start, box[0].stop))
        self._read(cut_source(self._source, cuts), rows, range(len(rows)), out)

    def _read(self, source: Source, rows: Selection, places: Selection, out: NDArray[Any]) -> None:
        """Bring rows of a source to these places of `out`."""
        run = is_run(rows)
        if isinstance(source, ChunkFiles) and run:
            self._read(source.whole, rows, places, out)
        elif isinstance(source, Concat):
            for number, where in split(rows, source.part_starts):
                inside = shifted(select(rows, where), -source.part_starts[number])
                self._read(source.parts[number], inside, select(places, where), out)
        elif isinstance(source, Decoded):
            stored = np.empty((len(rows), *source.shape[1:]), source.source.dtype)
            self._read(source.source, rows, range(len(rows)), stored)
            held = replace(source, source=Memory(stored))
            self._read_rows(source, rows, places, out, held)
        elif run and (strided := strided_of(source)) is not None:
            self._read_strided(strided, rows, places, out)
        elif isinstance(source, Chunks) and (run or max(source.reader.chunk_shape) > 1):
            self._read_chunks(source, rows, places, out)
        else:
            self._read_rows(source, rows, places, out)

    def _read_rows(
        self,
        source: Source,
        rows: Selection,
        places: Selection,
        out: NDArray[Any],
        held: Source | None = None,
    ) -> None:
        """Read rows as a loader does, some in each thread; `held` has just these, in memory."""
        given = source if held is None else held
        if isinstance(given, Extents):
            given = replace(given, kept=None)

        def some(part: range) -> None:
            wanted = _numbers(select(rows, part) if held is None else part)
            if given.dtype == out.dtype and is_run(places):
                given.read_into(wanted, out[_index(select(places, part))])
                return
            for place, values in through_scratch(given, wanted):
                _put(
                    out, select(places, part[place]), (), values, select(rows, part[place]), source
                )

        in_threads(self._threads, some, _parts(out, len(rows)))

    def _read_strided(
        self, source: Extents, rows: Selection, places: Selection, out: NDArray[Any]
    ) -> None:
        """Read many rows whose bytes lie far apart: one long run at each place of an element."""
        if not neighbours(source):
            self._read_rows(source, rows, places, out)
            return
        whole = tuple(slice(0, length) for length in source.shape[1:])
        run = slice(int(rows[0]), int(rows[0]) + len(rows))
        read = StridedReader(source, len(rows)).read_box((run, *whole))

        def copy(part: range) -> None:
            some, where = select(rows, part), select(places, part)
            _put(out, where, (), read[as_slice(part)], some, source)

        in_threads(self._threads, copy, _parts(out, len(rows)))

    def _read_chunks(
        self, source: Chunks, rows: Selection, places: Selection, out: NDArray[Any]
    ) -> None:
        """Decode each chunk into its place; one of which only a part is wanted, beside it."""
        reader, axis = source.reader, source.axis
        pieces = list(pieces_of(source, rows))

        def decode(some: slice) -> None:
            targets, aside = [], []
            for piece in pieces[some]:
                at = select(places, piece.where)
                if piece.whole and is_run(at) and reader.dtype == out.dtype:
                    targets.append(np.moveaxis(out[(_index(at), *piece.target)], 0, axis))
                    continue
                chunk = np.empty([part.stop - part.start for part in piece.box], reader.dtype)
                targets.append(chunk)
                aside.append((piece, at, np.moveaxis(chunk, axis, 0)))
            _fill(reader, [piece.box for piece in pieces[some]], targets)
            for piece, at, chunk in aside:
                taken = select(rows, piece.where)
                _put(out, at, piece.target, chunk[piece.within], taken, source)

        few = max(1, _PART_BYTES // max(1, decoded_bytes(source)))
        if isinstance(reader, ChunkReader) and reader.own_threads:
            few *= cores()
        else:
            few = min(few, -(-len(pieces) // (4 * cores())))
        groups = [slice(first, first + few) for first in range(0, len(pieces), few)]
        in_threads(self._threads, decode, groups)


def _fill(reader: BoxReader, boxes: Sequence[Box], outs: Sequence[NDArray[Any]]) -> None:
    if isinstance(reader, ChunkReader) and max(reader.chunk_shape) > 1:
        reader.read_boxes(boxes, outs)
    else:
        for box, out in zip(boxes, outs, strict=True):
            out[...] = reader.read_box(box)


def _put(
    out: NDArray[Any],
    places: Selection,
    target: tuple[slice, ...],
    values: NDArray[Any],
    rows: Selection,
    source: Source,
) -> None:
    """Copy rows to their places, converted if they must be."""
    key = (_index(places), *target)
    if values.dtype == out.dtype:
        out[key] = values
    elif isinstance(places, range):
        cast_into(out[key], values, rows, source)
    else:
        made = np.empty(values.shape, out.dtype)
        cast_into(made, values, rows, source)
        out[key] = made


def _index(places: Selection) -> slice | NDArray[np.int64]:
    return as_slice(places) if isinstance(places, range) else places


def _numbers(rows: Selection) -> NDArray[np.int64]:
    if isinstance(rows, range):
        return np.arange(rows.start, rows.stop, rows.step, dtype=np.int64)
    return rows


def _parts(out: NDArray[Any], count: int) -> list[range]:
    row_bytes = max(1, prod(out.shape[1:]) * out.itemsize)
    step = max(1, min(_PART_ROWS, _PART_BYTES // row_bytes))
    return [range(first, min(first + step, count)) for first in range(0, count, step)]
