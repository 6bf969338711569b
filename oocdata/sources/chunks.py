"""The chunks engine: rows packed in chunks that are decoded together.

A format gives this engine an array as it lies in storage and a way to decode its chunks. The engine
turns a batch of rows into the chunks they lie in, decodes those that are not kept (each once,
straight into its slot), and gathers the rows out of the slots in one call, however many chunks they
come from.

Chunks may split the element axes too; then each column of chunks fills its own part of the batch.
An array that is not chunked (an object that slices, a virtual dataset) is read by runs of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, pairwise, product
from math import prod
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from oocdata.index import Cut, compose_ranges, cut_shape
from oocdata.sources.slots import Slots, slots_of
from oocdata.sources.source import Layout, Source

__all__ = ["BoxReader", "ChunkReader", "Chunks"]

Box = tuple[slice, ...]


class BoxReader(Protocol):
    """An array as it lies in storage, read by boxes. A frozen, hashable, picklable description.

    Attributes
    ----------
    shape : tuple of int
        As stored, before the row axis is moved to the front.
    dtype : numpy.dtype
        Native byte order.
    chunk_shape : tuple of int
        The storage chunk; ones where any box costs only what it holds.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """As stored."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """Native byte order."""
        ...

    @property
    def chunk_shape(self) -> tuple[int, ...]:
        """The storage chunk."""
        ...

    def read_box(self, box: Box) -> NDArray[Any]:
        """Return the elements of a box (one slice with start < stop, step 1, for each stored axis).

        Raises
        ------
        oocdata.errors.SourceError
            With file, dataset and the rows of the box.
        """
        ...

    def layout(self) -> Layout:
        """Return where and how the array is stored."""
        ...


@runtime_checkable
class ChunkReader(BoxReader, Protocol):
    """A reader that decodes several chunks at a time straight into their places."""

    def read_boxes(self, boxes: Sequence[Box], outs: Sequence[NDArray[Any]]) -> None:
        """Fill ``outs[i]`` with ``boxes[i]``, each the part of one chunk that lies in the array.

        Raises
        ------
        oocdata.errors.SourceError
            With file, dataset and the rows of the box that can't be read.
        """
        ...


@dataclass(frozen=True, slots=True)
class _Column:
    """Chunks at one place on the element axes, and the part of an element that they fill.

    Attributes
    ----------
    places : tuple of int
        Of the chunks, on the element axes.
    within : tuple of int or slice
        What is taken of a chunk's element.
    target : tuple of slice
        Where it goes in the batch's element.
    whole : bool
        Both are everything.
    """

    places: tuple[int, ...]
    within: tuple[int | slice, ...]
    target: tuple[slice, ...]
    whole: bool
    first_key: int
    """Of the column's first chunk; the others follow by their numbers along the row axis."""


@dataclass(frozen=True, slots=True)
class _ChunkLayout:
    """What reading needs of a `Chunks`, worked out once.

    Attributes
    ----------
    rows : int
        Of one chunk.
    element : tuple of int
        A chunk's shape without the row axis.
    item : str
        One row of a chunk as an opaque dtype.
    nbytes : int
        Of one chunk.
    axis : int
    shape, chunk_shape : tuple of int
        As stored.
    columns : tuple of _Column
    in_place : bool
        The reader is a `ChunkReader`.
    """

    rows: int
    element: tuple[int, ...]
    item: str
    nbytes: int
    axis: int
    shape: tuple[int, ...]
    chunk_shape: tuple[int, ...]
    columns: tuple[_Column, ...]
    in_place: bool

    def box(self, number: int, column: _Column) -> Box:
        """Return where a chunk lies in the array, without what reaches over its edge."""
        index = [*column.places[: self.axis], number, *column.places[self.axis :]]
        return tuple(
            slice(place * step, min((place + 1) * step, length))
            for place, step, length in zip(index, self.chunk_shape, self.shape, strict=True)
        )


_KEY_BITS = 44
"""Chunks of one array are numbered within 2⁴⁴: an int is a key that is cheap to look up."""

_numbers = count()


class _Known:
    """What a process works out about an array, once: the number of its chunks' keys, and layouts.

    Here and not in a table of all arrays, which would keep what the reader holds open; and not in
    the description, which another process must not take it from.
    """

    __slots__ = ("first_key", "layouts")

    def __init__(self) -> None:
        self.first_key = next(_numbers) << _KEY_BITS
        self.layouts: dict[tuple[Cut, ...], _ChunkLayout] = {}

    def __reduce__(self) -> tuple[type[_Known], tuple[()]]:
        return (_Known, ())

    def layout(self, chunks: Chunks) -> _ChunkLayout:
        """Return the layout of chunks with these cuts."""
        try:
            return self.layouts[chunks.cuts]
        except KeyError:
            return self.layouts.setdefault(chunks.cuts, _chunk_layout(chunks, self.first_key))


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
        return cls(reader, axis, tuple(range(n) for n in _without(reader.shape, axis)))

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
        """Bytes of one decoded chunk."""
        return prod(self.reader.chunk_shape) * self.dtype.itemsize

    def layout(self) -> Layout:
        """Return where and how the array is stored."""
        return self.reader.layout()

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
        # As many chunks at a time as may be pinned; almost always all of them.
        most = max(1, slots.largest_lease // len(columns))
        if len(numbers) <= most and len(columns) <= slots.largest_lease:
            self._gather(layout, slots, columns, numbers, which, within, out, slice(None))
            return
        for start in range(0, len(numbers), most):
            places = np.flatnonzero((which >= start) & (which < start + most))
            some = numbers[start : start + most]
            here, inside = which[places] - start, within[places]
            for first in range(0, len(columns), slots.largest_lease):
                few = columns[first : first + slots.largest_lease]
                self._gather(layout, slots, few, some, here, inside, out, places)

    def _gather(
        self,
        layout: _ChunkLayout,
        slots: Slots,
        columns: Sequence[_Column],
        numbers: NDArray[np.int64],
        which: NDArray[np.int64],
        within: NDArray[np.int64],
        out: NDArray[Any],
        places: slice | NDArray[np.int64],
    ) -> None:
        """Fill ``out[places]`` from chunks ``numbers[which]``, rows `within` them, by columns."""
        keys = [key for column in columns for key in (numbers + column.first_key).tolist()]
        lease = slots.acquire(keys)
        try:
            kept = slots.rows((layout.rows, *layout.element), self.dtype)
            if lease.mine:
                chunks = [divmod(place, len(numbers)) for place in lease.mine]
                self._decode(
                    layout,
                    [layout.box(int(numbers[row]), columns[column]) for column, row in chunks],
                    [kept[slot] for slot in lease.slots[lease.mine]],
                    lambda error=None: slots.decoded(lease, error),
                )
            slots.wait(lease)
            flat = kept.reshape(-1, *layout.element)
            for column, held in zip(columns, lease.slots.reshape(len(columns), -1), strict=True):
                taken = held[which] * layout.rows + within
                direct = column.whole and out.dtype == self.dtype and isinstance(places, slice)
                if direct and out.flags.c_contiguous:
                    # Rows as opaque items; mode="clip" writes to `out` without a buffer.
                    items = np.ndarray((len(flat),), layout.item, flat)
                    target = np.ndarray((len(taken),), layout.item, out)
                    np.take(items, taken, out=target, mode="clip")
                else:
                    out[(places, *column.target)] = flat[(taken, *column.within)]
        finally:
            slots.release(lease)

    def _decode(
        self,
        layout: _ChunkLayout,
        boxes: Sequence[Box],
        slots: Sequence[NDArray[Any]],
        decoded: Callable[..., None],
    ) -> None:
        """Decode chunks into their slots, in which the row axis comes first."""
        outs = []
        for box, slot in zip(boxes, slots, strict=True):
            inside = tuple(slice(0, part.stop - part.start) for part in box)
            outs.append(np.moveaxis(slot, 0, self.axis)[inside])
        try:
            if layout.in_place:
                self.reader.read_boxes(boxes, outs)  # type: ignore[attr-defined]
            else:
                for box, out in zip(boxes, outs, strict=True):
                    out[...] = self.reader.read_box(box)
        except BaseException as error:
            decoded(error)
            raise
        decoded()

    def _read_runs(self, rows: NDArray[np.int64], out: NDArray[Any]) -> None:
        order = np.argsort(rows, kind="stable")
        ascending = rows[order]
        for run, places in _runs(ascending, order):
            box = [_bounds(cut) for cut in self.cuts]
            box.insert(self.axis, slice(int(run[0]), int(run[-1]) + 1))
            read = np.moveaxis(self.reader.read_box(tuple(box)), self.axis, 0)
            read = read[(slice(None), *map(_within_bounds, self.cuts))]
            out[places] = read[run - run[0]]


def _runs(
    rows: NDArray[np.int64], places: NDArray[np.int64]
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield runs of ascending rows that follow one another, with their places in the batch."""
    breaks = np.flatnonzero(np.diff(rows) > 1) + 1
    for first, last in pairwise([0, *breaks.tolist(), len(rows)]):
        yield rows[first:last], places[first:last]


def _without(lengths: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return lengths[:axis] + lengths[axis + 1 :]


def _chunk_layout(chunks: Chunks, first: int) -> _ChunkLayout:
    reader, axis = chunks.reader, chunks.axis
    shape, chunk_shape = reader.shape, reader.chunk_shape
    element = _without(chunk_shape, axis)
    row_bytes = prod(element) * reader.dtype.itemsize
    axes = [_touched(cut, step) for cut, step in zip(chunks.cuts, element, strict=True)]
    whole = all(cut == range(step) for cut, step in zip(chunks.cuts, element, strict=True))
    grid = [-(-n // step) for n, step in zip(_without(shape, axis), element, strict=True)]
    down = -(-shape[axis] // chunk_shape[axis])
    columns = []
    for parts in product(*axes):
        places = tuple(place for place, _, _ in parts)
        number = 0
        for place, length in zip(places, grid, strict=True):
            number = number * length + place
        within = tuple(inside for _, inside, _ in parts)
        target = tuple(outside for _, _, outside in parts if outside is not None)
        columns.append(_Column(places, within, target, whole, first + number * down))
    return _ChunkLayout(
        rows=chunk_shape[axis],
        element=element,
        item=f"V{row_bytes}",
        nbytes=row_bytes * chunk_shape[axis],
        axis=axis,
        shape=shape,
        chunk_shape=chunk_shape,
        columns=tuple(columns),
        in_place=isinstance(reader, ChunkReader),
    )


def _touched(cut: Cut, step: int) -> list[tuple[int, int | slice, slice | None]]:
    """Return (chunk, what is taken of it, where that goes) for each chunk on one axis."""
    if isinstance(cut, int):
        return [(cut // step, cut % step, None)]
    kept = np.arange(cut.start, cut.stop, cut.step, dtype=np.int64)
    numbers = kept // step
    breaks = np.flatnonzero(np.diff(numbers)) + 1
    touched: list[tuple[int, int | slice, slice | None]] = []
    for first, last in pairwise([0, *breaks.tolist(), len(kept)]):
        number = int(numbers[first])
        start = int(kept[first]) - number * step
        stop = start + (last - first) * cut.step
        touched.append(
            (number, slice(start, stop if stop >= 0 else None, cut.step), slice(first, last))
        )
    return touched


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
