"""The chunks engine: rows packed in chunks that are decoded together.

A format gives this engine an array as it lies in storage and a way to decode its chunks. The engine
turns a batch of rows into the chunks they lie in, decodes those that are not kept (each once,
straight into its slot), and gathers the rows out of the slots in one call, however many chunks they
come from.

Chunks may split the element axes too; then each column of chunks fills its own part of the batch.
An array that is not chunked (an object that slices, a virtual dataset) is read by runs of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.index import Cut, compose_ranges, cut_shape
from oocdata.sources.chunk_layout import Box, ChunkLayout, Column, without
from oocdata.sources.leases import Slots
from oocdata.sources.readers import BoxReader, ChunkReader
from oocdata.sources.slots import slots_of
from oocdata.sources.source import Layout, Source
from oocdata.threads import uninterrupted

__all__ = ["BoxReader", "ChunkReader", "Chunks"]


_KEY_BITS = 40
"""Chunks of one array are numbered within 2⁴⁰: an int is a key that is cheap to look up."""

_SCRATCH_BYTES = 1 << 20

_numbers = count()


class _Known:
    """What a process works out about an array, once: the number of its chunks' keys, and layouts.

    Here and not in a table of all arrays, which would keep what the reader holds open; and not in
    the description, which another process must not take it from.
    """

    __slots__ = ("decoder", "first_key", "layouts")

    def __init__(self) -> None:
        self.first_key = next(_numbers) << _KEY_BITS
        self.layouts: dict[tuple[Cut, ...], ChunkLayout] = {}
        self.decoder: ChunkReader | None = None

    def __reduce__(self) -> tuple[type[_Known], tuple[()]]:
        return (_Known, ())

    def layout(self, chunks: Chunks) -> ChunkLayout:
        """Return the layout of chunks with these cuts."""
        found = self.layouts.get(chunks.cuts)
        if found is None:
            reader = chunks.reader
            # Asked once: to look through a class for what a protocol has takes long.
            self.decoder = reader if isinstance(reader, ChunkReader) else None
            found = self.layouts[chunks.cuts] = ChunkLayout.of(
                reader.shape,
                reader.chunk_shape,
                chunks.axis,
                chunks.cuts,
                reader.dtype.itemsize,
                self.first_key,
            )
        return found


@dataclass(frozen=True, slots=True)
class Chunks:
    """Rows of an array that is stored in chunks, or read by boxes.

    Parameters
    ----------
    reader : BoxReader
    axis : int
        The row axis in storage, counted from the front.
    cuts : tuple of Cut
        What is kept of each element axis (the stored axes without `axis`).
    """

    reader: BoxReader
    axis: int
    cuts: tuple[Cut, ...]
    known: _Known = field(default_factory=lambda: _Known(), compare=False, repr=False)
    """What this process has worked out; shared with the sources cut from this one."""

    converts = True

    @classmethod
    def of(cls, reader: BoxReader, axis: int) -> Chunks:
        """Return the source of whole rows."""
        return cls(reader, axis, tuple(range(n) for n in without(reader.shape, axis)))

    @property
    def shape(self) -> tuple[int, ...]:
        """``(rows, *element)``."""
        return (self.reader.shape[self.axis], *cut_shape(self.cuts))

    @property
    def dtype(self) -> np.dtype[Any]:
        """Native byte order."""
        return self.reader.dtype

    @property
    def chunk_rows(self) -> int:
        """Rows of one chunk."""
        return self.reader.chunk_shape[self.axis]

    @property
    def chunk_bytes(self) -> int:
        """Bytes of the decoded chunks at one place along the rows that the cuts touch."""
        layout = self.known.layout(self)
        return layout.nbytes * len(layout.columns)

    @property
    def kept_chunks(self) -> tuple[int, int]:
        """Bytes of one decoded chunk, and how many the cuts touch; none where runs are read."""
        if max(self.reader.chunk_shape) == 1:
            return 0, 0
        layout = self.known.layout(self)
        return layout.nbytes, len(layout.columns) * -(-self.shape[0] // layout.rows)

    def layout(self) -> Layout:
        """Return where and how the array is stored."""
        return self.reader.layout().with_row_axis(self.axis).cut(self.cuts)

    def cut(self, cuts: tuple[Cut, ...]) -> Source:
        """Return the source of ``row[cuts]``: chunks outside of it are not read."""
        kept = iter(cuts)
        composed: list[Cut] = []
        for old in self.cuts:
            if isinstance(old, int):
                composed.append(old)
                continue
            new = next(kept)
            composed.append(old[new] if isinstance(new, int) else compose_ranges(old, new))
        return replace(self, cuts=tuple(composed))

    def read_into(self, rows: NDArray[np.int64], out: NDArray[Any]) -> None:
        """Write ``out[i] = row rows[i]``; `out` may have any numeric dtype."""
        if out.size == 0:
            return
        if max(self.reader.chunk_shape) == 1:
            self._read_runs(rows, out)
        else:
            self._read_chunks(rows, out)

    def _read_chunks(self, rows: NDArray[np.int64], out: NDArray[Any]) -> None:
        layout = self.known.layout(self)
        slots = slots_of(layout.nbytes)
        numbers, which = np.unique(rows // layout.rows, return_inverse=True)
        within = rows % layout.rows
        columns = layout.columns
        parts = list(_parts(len(numbers), columns, slots.largest_lease))
        if len(parts) == 1:  # almost always
            given = layout, slots, columns, numbers, which, within, out, slice(None)
            uninterrupted(partial(self._gather, *given))
            return
        # Always from end to end: two threads that read at the same time share what they decode.
        for some, few in parts:
            places = np.flatnonzero((which >= some.start) & (which < some.stop))
            here, inside = which[places] - some.start, within[places]
            uninterrupted(
                partial(self._gather, layout, slots, few, numbers[some], here, inside, out, places)
            )

    def _gather(
        self,
        layout: ChunkLayout,
        slots: Slots,
        columns: Sequence[Column],
        numbers: NDArray[np.int64],
        which: NDArray[np.int64],
        within: NDArray[np.int64],
        out: NDArray[Any],
        places: slice | NDArray[np.int64],
    ) -> None:
        """Fill ``out[places]`` from chunks ``numbers[which]``, rows `within` them, by columns."""
        keys = _keys(numbers, columns)
        decoder = self.known.decoder
        lease = slots.acquire(keys, len(keys) if decoder and decoder.own_threads else None)
        try:
            kept = slots.rows((layout.rows, *layout.element), self.dtype)
            if lease.wanted:
                stored = np.moveaxis(kept, 1, 1 + self.axis)  # the axes as they are in storage

                def work(places: list[int]) -> None:
                    chunks = [divmod(place, len(numbers)) for place in places]
                    self._decode(
                        [layout.box(int(numbers[row]), columns[column]) for column, row in chunks],
                        [stored[slot] for slot in lease.slots[places]],
                    )

                slots.decode(lease, work)
            flat = kept.reshape(-1, *layout.element)
            some = max(1, _SCRATCH_BYTES // (layout.nbytes // layout.rows))
            for column, held in zip(columns, lease.slots.reshape(len(columns), -1), strict=True):
                taken = held[which] * layout.rows + within
                direct = column.whole and out.dtype == self.dtype and isinstance(places, slice)
                if direct and out.flags.c_contiguous:
                    # Rows as opaque items; mode="clip" writes to `out` without a buffer.
                    items = np.ndarray((len(flat),), layout.item, flat)
                    target = np.ndarray((len(taken),), layout.item, out)
                    np.take(items, taken, out=target, mode="clip")
                    continue
                # What goes through NumPy's own copy stays small, and in the processor's cache.
                for start in range(0, len(taken), some):
                    part = slice(start, start + some)
                    where = part if isinstance(places, slice) else places[part]
                    out[(where, *column.target)] = flat[(taken[part], *column.within)]
        finally:
            slots.release(lease)

    def _decode(self, boxes: Sequence[Box], slots: Sequence[NDArray[Any]]) -> None:
        """Decode chunks into their slots, whose axes are those of storage."""
        outs = [
            slot[tuple(slice(0, part.stop - part.start) for part in box)]
            for box, slot in zip(boxes, slots, strict=True)
        ]
        if self.known.decoder is not None:
            self.known.decoder.read_boxes(boxes, outs)
        else:
            for box, out in zip(boxes, outs, strict=True):
                out[...] = self.reader.read_box(box)

    def _read_runs(self, rows: NDArray[np.int64], out: NDArray[Any]) -> None:
        order = np.argsort(rows, kind="stable")
        ascending = rows[order]
        for run, places in _runs(ascending, order):
            box = [_bounds(cut) for cut in self.cuts]
            box.insert(self.axis, slice(int(run[0]), int(run[-1]) + 1))
            read = np.moveaxis(self.reader.read_box(tuple(box)), self.axis, 0)
            read = read[(slice(None), *map(_within_bounds, self.cuts))]
            out[places] = read[run - run[0]]


def _parts(
    count: int, columns: Sequence[Column], most: int
) -> Iterator[tuple[slice, Sequence[Column]]]:
    """Yield as many chunks at a time as may be pinned: some along the rows, of a few columns."""
    step = max(1, most // len(columns))
    for start in range(0, count, step):
        for first in range(0, len(columns), most):
            yield slice(start, start + step), columns[first : first + most]


def _keys(numbers: NDArray[np.int64], columns: Sequence[Column]) -> NDArray[np.int64]:
    return np.concatenate([numbers + column.first_key for column in columns])


def _runs(
    rows: NDArray[np.int64], places: NDArray[np.int64]
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield runs of ascending rows that follow one another, with their places in the batch."""
    breaks = np.flatnonzero(np.diff(rows) > 1) + 1
    for first, last in pairwise([0, *breaks.tolist(), len(rows)]):
        yield rows[first:last], places[first:last]


def _bounds(cut: Cut) -> slice:
    """Return the smallest slice of step 1 that holds a cut."""
    if isinstance(cut, int):
        return slice(cut, cut + 1)
    return slice(min(cut[0], cut[-1]), max(cut[0], cut[-1]) + 1)


def _within_bounds(cut: Cut) -> int | slice:
    """Return a cut relative to its bounds."""
    if isinstance(cut, int):
        return 0
    return slice(None, None, cut.step)
