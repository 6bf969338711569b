"""The chunked engine: boxes of an array that is stored in chunks, each decoded as a whole.

A format gives this engine a `ChunkReader`: the grid of chunks, and a way to decode some of them.
The engine turns boxes into the chunks that they cover, decodes the missing ones once, into the
process's one cache (`cache`), and gathers the boxes out of it. There are two ways to gather:

- *rows*: the boxes are alike on the inner axes, and single places (or few) along the outer ones.
  Each column of chunks is one `numpy.take`, however many chunks and boxes there are.
- *pieces*: one copy for each chunk that each box covers: patches, long windows.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent
from oocdata.engines.cache import Hold, cache
from oocdata.engines.source import Storage
from oocdata.errors import SourceError, UnknownFormatError
from oocdata.threads import holds_hdf5

__all__ = ["ChunkReader", "Chunked"]

_SCRATCH_BYTES = 1 << 18
"""What goes through NumPy's own copy stays small, and in the processor's cache."""

_POINTS_FOR_A_PIECE = 32
"""A copy of a piece takes about as long as so many items of a take."""

_MOST_PLANS = 64
_MOST_CHUNKS = 1 << 62
_MOST_ROWS_NAMED = 100_000


class ChunkReader(Hashable, Protocol):
    """An array as it lies in storage, decoded by chunks.

    Picklable where its file has a path, and hashable: equal readers read the same bytes, so their
    chunks are cached once.

    Attributes
    ----------
    shape : tuple of int
    dtype : numpy.dtype
        Native byte order.
    chunk_shape : tuple of int
        At least 1 along each axis, and at most the array.
    own_threads : bool
        It decodes in threads of its own, so it is given many chunks at once; else a few, in each of
        several threads.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array as stored."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """Native byte order."""
        ...

    @property
    def chunk_shape(self) -> tuple[int, ...]:
        """Of a whole chunk."""
        ...

    @property
    def own_threads(self) -> bool:
        """Whether it decodes in threads of its own."""
        ...

    def read_chunks(self, places: NDArray[np.int64], outs: Sequence[NDArray[Any]]) -> None:
        """Decode chunks.

        Parameters
        ----------
        places : ndarray of int64, shape (k, N)
            Of the chunks in their grid; different from one another.
        outs : sequence of ndarray
            ``outs[i]`` gets the part of chunk ``i`` that lies in the array: axes as stored, any
            strides. Nothing writes to it once this returned or raised.

        Raises
        ------
        oocdata.errors.SourceError
            With file, dataset and rows.
        """
        ...

    def check(self) -> None:
        """Raise `oocdata.errors.SourceError` if the stored bytes have changed since the opening."""
        ...

    def storage(self) -> Storage:
        """Return how the array is stored."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class _Column:
    """Chunks at one place along the inner axes, and the part of a row that they fill.

    Attributes
    ----------
    number : int
        Of the chunk at place 0 along the outer axes.
    within, target : tuple of slice
        What is taken of a chunk's inner axes, and where it goes in the box's.
    most : bool
        At least half of a chunk's row is taken: then `numpy.take` of whole rows, as opaque items,
        is several times as fast as an index with slices.
    """

    number: int
    within: tuple[slice, ...]
    target: tuple[slice, ...]
    most: bool


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """How boxes are gathered by rows.

    Attributes
    ----------
    chunk : ndarray of int64, shape (axes,)
        Lengths of a chunk along the outer axes, along which boxes are cut into points.
    steps : ndarray of int64, shape (points, axes) or None
        From the origin of a box to the points that it is cut into; None where it is one.
    chunk_steps, row_steps : ndarray of int64, shape (axes,)
        From one chunk to the next in the grid, from one row to the next in a chunk.
    rows : int
        Of a chunk.
    inner : tuple of int
        Shape of a chunk's row.
    item : numpy.dtype
        A chunk's row as an opaque item.
    columns : tuple of _Column
    numbers : ndarray of int64, shape (columns,)
        Those of the columns.
    whole : bool
        A row is one run of bytes, in its chunk and in the box.
    """

    chunk: NDArray[np.int64]
    steps: NDArray[np.int64] | None
    chunk_steps: NDArray[np.int64]
    row_steps: NDArray[np.int64]
    rows: int
    inner: tuple[int, ...]
    item: np.dtype[Any]
    columns: tuple[_Column, ...]
    numbers: NDArray[np.int64]
    whole: bool


class Chunked:
    """Boxes of an array that is stored in chunks; a `oocdata.engines.source.Source`.

    Parameters
    ----------
    reader : ChunkReader

    Raises
    ------
    oocdata.errors.UnknownFormatError
        If the grid has more chunks than can be numbered.
    """

    __slots__ = (
        *("_chunk", "_cut", "_grid", "_plans", "_slots", "_strides", "dtype", "reader", "shape"),
    )

    def __init__(self, reader: ChunkReader) -> None:
        self.reader = reader
        self.shape = tuple(reader.shape)
        self.dtype = reader.dtype
        self._cut = tuple(reader.chunk_shape)
        self._chunk = np.array(self._cut, np.int64)
        self._grid = tuple(-(-n // step) for n, step in zip(self.shape, self._cut, strict=True))
        if prod(self._grid) > _MOST_CHUNKS:
            storage = reader.storage()
            raise UnknownFormatError(
                f"an array must have at most {_MOST_CHUNKS} chunks; got {prod(self._grid)}.",
                path=storage.path,
                key=storage.key,
            )
        self._strides = _c_strides(self._grid)
        self._slots = cache.slots(reader, prod(self._cut) * self.dtype.itemsize, prod(self._grid))
        self._plans: dict[Any, tuple[_Rows | None]] = {}

    def __reduce__(self) -> tuple[type[Chunked], tuple[ChunkReader]]:
        return (Chunked, (self.reader,))

    def storage(self) -> Storage:
        """Return how the array is stored."""
        return self.reader.storage()

    def read(self, origins: NDArray[np.int64], extent: Extent, out: NDArray[Any]) -> None:
        """Write ``out[i] = the box at origins[i]``; see `Source.read`."""
        if not out.size:
            return
        try:
            self.reader.check()
            plan = self._plan(origins, extent)
            if plan is None:
                self._copy(origins, extent, out)
            else:
                self._gather(plan, origins, out)
            self.reader.check()
        except SourceError as error:
            if error.rows is None:
                error.rows = _rows_of(origins)
            raise

    # How boxes are gathered.

    def _plan(self, origins: NDArray[np.int64], extent: Extent) -> _Rows | None:
        """Return how boxes are gathered by rows; None where they are better copied by pieces."""
        known = self._plans.get(extent)
        if known is not None:
            return known[0]
        inner = _outer_axes(self.shape, extent)
        if prod(extent.lengths[1:inner]) == 1:
            key: Any = extent  # all other axes are taken whole, so every origin is 0 there
            axes = inner
        else:
            alike = (origins[:, 1:inner] == origins[0, 1:inner]).all(axis=0)
            axes = 1 + max(np.flatnonzero(~alike).tolist(), default=-1) + 1
            key = (extent, axes, tuple(origins[0, axes:].tolist()))
            known = self._plans.get(key)
            if known is not None:
                return known[0]
        if len(self._plans) >= _MOST_PLANS:
            self._plans.clear()
        plan = self._plan_rows(axes, origins[0].tolist(), extent)
        self._plans[key] = (plan,)
        return plan

    def _plan_rows(self, axes: int, origin: list[int], extent: Extent) -> _Rows | None:
        points = prod(extent.lengths[:axes])
        outer = zip(extent.spans[:axes], self._cut[:axes], strict=True)
        if points > _POINTS_FOR_A_PIECE * prod((span - 1) // step + 1 for span, step in outer):
            return None
        parts = [
            list(_parts(origin[axis], extent.lengths[axis], extent.strides[axis], self._cut[axis]))
            for axis in range(axes, len(self.shape))
        ]
        columns = []
        for some in product(*parts):
            places = np.array([place for place, _, _ in some], np.int64)
            number = int(places @ self._strides[axes:])
            within, target = tuple(w for _, w, _ in some), tuple(t for *_, t in some)
            taken = prod(t.stop - t.start for t in target)
            columns.append(_Column(number, within, target, 2 * taken >= prod(self._cut[axes:])))
        steps = np.indices(extent.lengths[:axes]).reshape(axes, -1).T * extent.strides[:axes]
        inner = self._cut[axes:]
        return _Rows(
            chunk=self._chunk[:axes],
            steps=steps if points > 1 else None,
            chunk_steps=self._strides[:axes],
            row_steps=_c_strides(self._cut[:axes]),
            rows=prod(self._cut[:axes]),
            inner=inner,
            item=np.dtype(f"V{prod(inner) * self.dtype.itemsize}"),
            columns=tuple(columns),
            numbers=np.array([column.number for column in columns], np.int64),
            whole=extent.lengths[axes:] == inner and len(columns) == 1,
        )

    # By rows.

    def _gather(self, plan: _Rows, origins: NDArray[np.int64], out: NDArray[Any]) -> None:
        axes = len(plan.chunk)
        points = origins[:, :axes]
        if plan.steps is not None:
            points = (points[:, None] + plan.steps).reshape(-1, axes)
        places, within = np.divmod(points, plan.chunk)
        numbers, rows = places @ plan.chunk_steps, within @ plan.row_steps
        if len(plan.columns) == 1:
            hold = self._slots.find((numbers + plan.numbers).tolist())
            if hold is not None:
                self._take(plan, plan.columns, hold, hold.slots[None], rows, out)
                return
        self._gather_columns(plan, numbers, rows, out)

    def _gather_columns(
        self,
        plan: _Rows,
        numbers: NDArray[np.int64],
        rows: NDArray[np.int64],
        out: NDArray[Any],
    ) -> None:
        """Gather rows of several columns of chunks, or whose chunks are not all in memory."""
        unique, which = np.unique(numbers, return_inverse=True)
        most = self._slots.most
        few = min(len(plan.columns), most)
        step = most // few
        for start in range(0, len(unique), step):
            # Always from end to end: threads that read at the same time share what they decode.
            some = unique[start : start + step]
            places = None
            if len(some) < len(unique):
                places = np.flatnonzero((which >= start) & (which < start + step))
            for first in range(0, len(plan.columns), few):
                asked = (plan.numbers[first : first + few, None] + some).ravel().tolist()
                hold = self._hold(asked)
                slots = hold.slots.reshape(-1, len(some))
                columns = plan.columns[first : first + few]
                if places is None:
                    self._take(plan, columns, hold, slots[:, which], rows, out)
                else:
                    here = slots[:, which[places] - start]
                    self._take(plan, columns, hold, here, rows[places], out, places)

    def _take(
        self,
        plan: _Rows,
        columns: Sequence[_Column],
        hold: Hold,
        slots: NDArray[np.int64],
        rows: NDArray[np.int64],
        out: NDArray[Any],
        places: NDArray[np.int64] | None = None,
    ) -> None:
        """Fill points of `out` (all, or some places) from rows of slots, one line a column."""
        try:
            count = len(hold.memory) // plan.item.itemsize
            items = np.ndarray(count, plan.item, hold.memory)
            direct = plan.whole and places is None and out.dtype == self.dtype
            if direct and out.flags.c_contiguous:
                # Rows as opaque items; mode="clip" writes to `out` without a buffer.
                target = np.ndarray(len(rows), plan.item, out)
                items.take(slots[0] * plan.rows + rows, out=target, mode="clip")
                return
            flat = np.ndarray((count, *plan.inner), self.dtype, hold.memory)
            axes, points = len(plan.chunk), len(rows) // len(out) if places is None else 1
            lengths = out.shape[1 : 1 + axes]
            each = max(plan.item.itemsize * points, out[:1].nbytes)
            boxes = max(1, _SCRATCH_BYTES // each)
            rows_of = [held * plan.rows + rows for held in slots]
            for start in range(0, len(rows), boxes * points):
                some = slice(start, start + boxes * points)
                where: tuple[Any, ...] = (slice(start // points, start // points + boxes),)
                where += (slice(None),) * axes
                if places is not None:
                    where = np.unravel_index(places[some], out.shape[: 1 + axes])
                for column, taken in zip(columns, rows_of, strict=True):
                    if column.most:
                        part = items.take(taken[some]).view(self.dtype).reshape(-1, *plan.inner)
                        part = part[(slice(None), *column.within)]
                    else:
                        part = flat[(taken[some], *column.within)]
                    if places is None:
                        part = part.reshape(-1, *lengths, *part.shape[1:])
                    out[(*where, *column.target)] = part
        finally:
            hold.release()

    # By pieces.

    def _copy(self, origins: NDArray[np.int64], extent: Extent, out: NDArray[Any]) -> None:
        """Copy each piece that a box and a chunk share, as many chunks at a time as fit."""
        most = self._slots.most
        first = (origins // self._chunk) @ self._strides
        waiting: dict[int, list[Any]] = {}
        for box in np.argsort(first, kind="stable").tolist():
            for number, within, target in self._pieces(origins[box].tolist(), extent):
                if number not in waiting:
                    if len(waiting) == most:
                        self._copy_pieces(waiting, out)
                        waiting = {}
                    waiting[number] = []
                waiting[number].append((within, (box, *target)))
        self._copy_pieces(waiting, out)

    def _pieces(
        self, origin: list[int], extent: Extent
    ) -> Iterator[tuple[int, tuple[slice, ...], tuple[slice, ...]]]:
        """Yield each chunk that a box covers: its number, what is taken of it, where that goes."""
        strides = self._strides.tolist()
        axes = zip(origin, extent.lengths, extent.strides, self._cut, strict=True)
        parts = [list(_parts(*axis)) for axis in axes]
        for some in product(*parts):
            number = sum(part[0] * step for part, step in zip(some, strides, strict=True))
            yield number, tuple([part[1] for part in some]), tuple([part[2] for part in some])

    def _copy_pieces(self, pieces: dict[int, list[Any]], out: NDArray[Any]) -> None:
        hold = self._hold(list(pieces))
        try:
            count = len(hold.memory) // self._slots.nbytes
            chunks = np.ndarray((count, *self._cut), self.dtype, hold.memory)
            for slot, some in zip(hold.slots.tolist(), pieces.values(), strict=True):
                chunk = chunks[slot]
                for within, target in some:
                    out[target] = chunk[within]
        finally:
            hold.release()

    # Chunks.

    def _hold(self, numbers: list[int]) -> Hold:
        """Hold chunks that differ from one another."""
        hold = self._slots.find(numbers)
        if hold is None:
            if holds_hdf5():  # another thread may wait for this one
                return self._slots.load_alone(numbers, self._decode)
            hold = self._slots.load(numbers, self._decode, self.reader.own_threads)
        return hold

    # Without what reaches over the edge of the array.
    def _decode(self, numbers: list[int], slots: list[int], memory: NDArray[np.uint8]) -> None:
        nbytes = self._slots.nbytes
        chunks = np.ndarray((len(memory) // nbytes, *self._cut), self.dtype, memory)
        places = np.stack(np.unravel_index(numbers, self._grid), axis=1)
        inside = np.minimum(self._chunk, np.array(self.shape) - places * self._chunk).tolist()
        outs = [
            chunks[slot][tuple(map(slice, lengths))]
            for slot, lengths in zip(slots, inside, strict=True)
        ]
        self.reader.read_chunks(places, outs)


def _c_strides(shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Return how much further in C order the next place along each axis is."""
    return np.array([prod(shape[axis + 1 :]) for axis in range(len(shape))], np.int64)


def _outer_axes(shape: tuple[int, ...], extent: Extent) -> int:
    """Return how many axes there are up to the last one that is not taken whole; at least 1."""
    cut = [axis for axis, n in enumerate(shape) if extent.lengths[axis] != n]
    return max(cut, default=0) + 1


def _parts(origin: int, length: int, stride: int, step: int) -> Iterator[tuple[int, slice, slice]]:
    """Yield the chunks that a box covers along one axis.

    Parameters
    ----------
    origin, length, stride : int
        Of the box.
    step : int
        Of the grid.

    Yields
    ------
    place : int
        Of the chunk.
    within, target : slice
        What is taken of it, and where that goes in the box.

    Examples
    --------
    >>> list(_parts(3, 4, 2, 5))
    [(0, slice(3, 4, 2), slice(0, 1, None)), (1, slice(0, 5, 2), slice(1, 4, None))]
    """
    taken = 0
    while taken < length:
        place, start = divmod(origin + taken * stride, step)
        count = min(length - taken, (step - 1 - start) // stride + 1)
        within = slice(start, start + (count - 1) * stride + 1, stride)
        yield place, within, slice(taken, taken + count)
        taken += count


def _rows_of(origins: NDArray[np.int64]) -> tuple[int, ...]:
    """Return the places of boxes along the first axis on which they differ."""
    differ = (origins != origins[0]).any(axis=0)
    axis = int(np.argmax(differ))
    return tuple(origins[:_MOST_ROWS_NAMED, axis].tolist())
