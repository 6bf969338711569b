"""Boxes of a view, read so that every chunk that lies in a box is decoded once, straight into it.

A loader keeps decoded chunks for the batches that come; a conversion needs each once, in an order
that it chooses. So it asks the readers for whole chunks, and nothing is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.datasets.view import View
from oocdata.index import take
from oocdata.sources.adapt import Converted, cut_source, through_scratch
from oocdata.sources.chunk_layout import Box
from oocdata.sources.chunks import Chunks
from oocdata.sources.concat import Concat
from oocdata.sources.extents import Extents
from oocdata.sources.readers import BoxReader, ChunkReader
from oocdata.sources.source import Source
from oocdata.sources.strided import StridedReader, neighbours
from oocdata.sources.zarr.chunk_files import ChunkFiles
from oocdata.threads import cores, in_threads
from oocdata.tools.convert.casting import cast_into

__all__ = ["BoxSource"]

_PART_BYTES = 4 << 20
"""Rows that are copied or read by one thread at a time."""


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
        What is decoded together, rows first; one row where each is addressable.
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
        self.chunk = tuple(
            max(1, min(step, length))
            for step, length in zip(_chunk_of(view.source), view.shape, strict=True)
        )
        rows = view.rows
        self._regular = isinstance(rows, range) and rows.step == 1
        first = rows.start if isinstance(rows, range) and self._regular else 0
        self.lead = -first % self.chunk[0]
        self.strides = _strides_of(view.source) if self._regular else None

    def read(self, box: Box, out: NDArray[Any]) -> None:
        """Fill `out`, which has the box's shape.

        Raises
        ------
        oocdata.errors.SourceError
            With file, dataset and rows, when storage can't deliver them, or their numbers don't fit
            the view's dtype.
        """
        view = self._view
        cuts = tuple(range(part.start, part.stop) for part in box[1:])
        if isinstance(view.rows, range) and self._regular:
            self._read(self._source, view.rows.start + box[0].start, cuts, out)
        else:
            rows = take(view.rows, np.arange(box[0].start, box[0].stop, dtype=np.int64))
            self._read_rows(self._source, rows, cuts, out)

    def _read(self, source: Source, first: int, cuts: tuple[range, ...], out: NDArray[Any]) -> None:
        if isinstance(source, ChunkFiles):
            self._read(source.whole, first, cuts, out)
        elif isinstance(source, Concat):
            last = first + len(out)
            for start, part in zip(source.part_starts, source.parts, strict=True):
                begin, end = max(first, start), min(last, start + part.shape[0])
                if begin < end:
                    self._read(part, begin - start, cuts, out[begin - first : end - first])
        elif (strided := _strided(source)) is not None:
            self._read_strided(strided, first, cuts, out)
        elif isinstance(source, Chunks) and _is_whole(source):
            self._read_chunks(source, first, cuts, out)
        else:
            rows = np.arange(first, first + len(out), dtype=np.int64)
            self._read_rows(source, rows, cuts, out)

    def _read_rows(
        self,
        source: Source,
        rows: NDArray[np.int64],
        cuts: tuple[range, ...],
        out: NDArray[Any],
    ) -> None:
        """Read rows as a loader does, some of them in each thread."""
        cut = cut_source(source, cuts)
        if isinstance(cut, Extents):
            cut = replace(cut, kept=None)
        whole = cut  # bound once: for the threads

        def some(part: slice) -> None:
            if whole.dtype == out.dtype:
                whole.read_into(rows[part], out[part])
                return
            for place, values in through_scratch(whole, rows[part]):
                cast_into(out[part][place], values, rows[part][place], source)

        in_threads(self._threads, some, _parts(out))

    def _read_strided(
        self, source: Extents, first: int, cuts: tuple[range, ...], out: NDArray[Any]
    ) -> None:
        """Read many rows whose bytes lie far apart: one long run at each place of an element."""
        cut = source.cut(cuts)
        if not isinstance(cut, Extents) or not neighbours(cut):
            self._read_rows(source, np.arange(first, first + len(out), dtype=np.int64), cuts, out)
            return
        whole = tuple(slice(0, length) for length in cut.shape[1:])
        read = StridedReader(cut, len(out)).read_box((slice(first, first + len(out)), *whole))

        def copy(part: slice) -> None:
            cast_into(out[part], read[part], range(first, first + len(out))[part], source)

        in_threads(self._threads, copy, _parts(out))

    def _read_chunks(
        self, source: Chunks, first: int, cuts: tuple[range, ...], out: NDArray[Any]
    ) -> None:
        """Decode each chunk into its place; one that reaches over the box, beside it."""
        reader, axis = source.reader, source.axis
        wanted = [slice(cut.start, cut.stop) for cut in cuts]
        wanted.insert(axis, slice(first, first + len(out)))
        stored = np.moveaxis(out, 0, axis)
        boxes, places = [], []
        for box in _cells(reader.chunk_shape, reader.shape, wanted):
            boxes.append(box)
            places.append(
                tuple(
                    (max(one.start, want.start), min(one.stop, want.stop))
                    for one, want in zip(box, wanted, strict=True)
                )
            )

        def decode(some: Sequence[int]) -> None:
            targets, aside = [], []
            for number in some:
                box, place = boxes[number], places[number]
                part = stored[
                    tuple(
                        slice(a - want.start, b - want.start)
                        for (a, b), want in zip(place, wanted, strict=True)
                    )
                ]
                inside = all(
                    (one.start, one.stop) == bounds for one, bounds in zip(box, place, strict=True)
                )
                if inside and part.dtype == reader.dtype:
                    targets.append(part)
                    continue
                whole = np.empty([one.stop - one.start for one in box], reader.dtype)
                targets.append(whole)
                within = tuple(
                    slice(a - one.start, b - one.start)
                    for one, (a, b) in zip(box, place, strict=True)
                )
                aside.append((range(*place[axis]), part, whole[within]))
            _fill(reader, [boxes[number] for number in some], targets)
            for rows, part, values in aside:
                cast_into(np.moveaxis(part, axis, 0), np.moveaxis(values, axis, 0), rows, source)

        alone = isinstance(reader, ChunkReader) and reader.own_threads
        step = len(boxes) if alone else max(1, -(-len(boxes) // (4 * cores())))
        groups = [range(at, min(at + step, len(boxes))) for at in range(0, len(boxes), step)]
        in_threads(self._threads, decode, groups)


def _fill(reader: BoxReader, boxes: Sequence[Box], outs: Sequence[NDArray[Any]]) -> None:
    if isinstance(reader, ChunkReader) and max(reader.chunk_shape) > 1:
        reader.read_boxes(boxes, outs)
    else:
        for box, out in zip(boxes, outs, strict=True):
            out[...] = reader.read_box(box)


def _parts(out: NDArray[Any]) -> list[slice]:
    rows = max(1, _PART_BYTES // max(1, prod(out.shape[1:]) * out.itemsize))
    return [slice(start, start + rows) for start in range(0, len(out), rows)]


def _cells(chunk: Sequence[int], shape: Sequence[int], wanted: Sequence[slice]) -> Iterable[Box]:
    """Yield the chunks that a box touches, each without what reaches over the array's edge."""
    if max(chunk) == 1:  # any box costs what it holds
        yield tuple(wanted)
        return
    axes = [
        [
            slice(at, min(at + step, length))
            for at in range(part.start // step * step, part.stop, step)
        ]
        for step, length, part in zip(chunk, shape, wanted, strict=True)
    ]
    yield from product(*axes)


def _is_whole(source: Source) -> bool:
    """Return whether a source is a chunked array of which nothing is cut off."""
    if not isinstance(source, Chunks):
        return False
    element = [n for axis, n in enumerate(source.reader.shape) if axis != source.axis]
    return source.cuts == tuple(range(length) for length in element)


def _chunk_of(source: Source) -> tuple[int, ...]:
    """Return what is decoded together, rows first."""
    if isinstance(source, Converted):
        return _chunk_of(source.source)
    if isinstance(source, ChunkFiles):
        return _chunk_of(source.whole)
    if isinstance(source, Concat):
        return tuple(max(steps) for steps in zip(*map(_chunk_of, source.parts), strict=True))
    if isinstance(source, Chunks) and isinstance(source.reader, StridedReader):
        return (1, *source.shape[1:])
    if isinstance(source, Chunks) and _is_whole(source) and max(source.reader.chunk_shape) > 1:
        chunk = source.reader.chunk_shape
        return (chunk[source.axis], *(n for axis, n in enumerate(chunk) if axis != source.axis))
    return (max(1, source.chunk_rows), *source.shape[1:])


def _strided(source: Source) -> Extents | None:
    """Return rows whose bytes lie far apart, as cut; None where they don't."""
    if not isinstance(source, Chunks) or not isinstance(source.reader, StridedReader):
        return None
    cut = source.reader.rows.cut(source.cuts)
    return cut if isinstance(cut, Extents) else None


def _strides_of(source: Source) -> tuple[int, ...] | None:
    """Return the strides of rows whose bytes lie far apart."""
    if isinstance(source, Converted):
        return _strides_of(source.source)
    if isinstance(source, Concat):
        return _strides_of(source.parts[0])
    strided = _strided(source)
    return None if strided is None else strided.strides
