"""Read boxes of an array that is stored in chunks, each decoded as a whole.

A format supplies a `ChunkReader`: the grid of chunks, and a method that decodes some of them.
`Chunked` finds the chunks that the boxes cover, decodes those that are not in the process's one
`cache`, each once, and gathers the boxes. There are three ways to gather:

- *rows*: the boxes are single positions (or few) along the outer axes, and equal on the inner ones.
  Each column of chunks takes one `numpy.take`, however many chunks and boxes there are.
- *pieces*: one copy for each chunk that each box covers, as for patches and long windows.
- *items*: where such pieces are many and small, number by number.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from functools import partial
from itertools import product
from math import prod
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent, covered_positions, split_at_gaps
from oocdata.engines.cache import ArrayCache, cache
from oocdata.engines.copying import copy_reordered
from oocdata.engines.decoding import in_decoding_thread, is_decoding, run_tasks, scratch
from oocdata.engines.gather import (
    BoxItems,
    RowPlan,
    c_strides,
    chunk_parts,
    plan_rows,
    suits_items,
    take_boxes,
    take_rows,
)
from oocdata.engines.parts import JoinedParts
from oocdata.engines.planned import missing_chunks
from oocdata.engines.prefetch import Fetch
from oocdata.engines.ragged import as_items, copy_runs, cut_runs
from oocdata.engines.slots import Pin, decode_groups
from oocdata.engines.source import Storage
from oocdata.errors import SourceError, UnknownFormatError
from oocdata.threads import cores, holds_hdf5

__all__ = ["ChunkReader", "Chunked"]

_MOST_CHUNKS = 1 << 52

_TASK_BYTES = 1 << 18
"""Bytes of a block that one thread decodes at a time."""

_FEW_CUT = 8
"""Boxes of small rows are located as a whole if at most one in this many is cut by chunks."""

_ITEMS = 1 << 14
"""Items gathered at a time: few enough that their places stay in the processor's cache."""


class ChunkReader(Hashable, Protocol):
    """An array as stored, decoded by chunks.

    Hashable: equal readers read the same bytes, so they share their cached chunks. Picklable where
    the file has a path.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array as stored."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the array, in native byte order."""
        ...

    @property
    def chunk_shape(self) -> tuple[int, ...]:
        """Shape of a whole chunk: at least 1 along each axis, and at most the array."""
        ...

    @property
    def own_threads(self) -> bool:
        """Whether the reader decodes in threads of its own.

        If so, each call is given many chunks; else a few, in several threads.
        """
        ...

    def read_chunks(self, places: NDArray[np.int64], outs: Sequence[NDArray[Any]]) -> None:
        """Decode chunks.

        Parameters
        ----------
        places : ndarray of int64, shape (k, N)
            Places of the chunks in the grid, distinct.
        outs : sequence of ndarray
            ``outs[i]`` receives the part of chunk ``i`` inside the array: axes as stored, any
            strides. Nothing may write to it after this returned or raised.

        Raises
        ------
        oocdata.errors.SourceError
            With file, dataset and rows.
        """
        ...

    def check(self) -> None:
        """Raise `oocdata.errors.SourceError` if the file has changed since it was opened."""
        ...

    def storage(self) -> Storage:
        """Return how the array is stored."""
        ...


class Chunked:
    """An array that is stored in chunks; a `oocdata.engines.source.Source`, and a `ChunkReader`.

    Parameters
    ----------
    reader : ChunkReader
    chunk_shape : tuple of int, optional
        Shape of blocks that are cached in place of the reader's chunks, so that rows that chunks
        cut are whole. Along each axis the length of a chunk, or of the array. Each chunk is decoded
        into its place in a block.
    slot_shape : tuple of int, optional
        Shape of the memory for a chunk or block, longer than these along axis 0.
    cached : ArrayCache, optional
        Where chunks are cached, if not by reader.

    Raises
    ------
    oocdata.errors.UnknownFormatError
        If the grid has more chunks than can be numbered.
    """

    __slots__ = (
        "_chunk", "_grid", "_joined", "_slot_shape", "_strides", "cached", "chunk_shape", "dtype",
        "own_threads", "reader", "shape",
    )  # fmt: skip

    def __init__(
        self,
        reader: ChunkReader,
        chunk_shape: tuple[int, ...] | None = None,
        slot_shape: tuple[int, ...] | None = None,
        cached: ArrayCache | None = None,
    ) -> None:
        self.reader, self.own_threads = reader, reader.own_threads
        self.shape = tuple(reader.shape)
        self.dtype = reader.dtype
        self.chunk_shape = tuple(chunk_shape or reader.chunk_shape)
        self._chunk = np.array(self.chunk_shape, np.int64)
        grid = zip(self.shape, self.chunk_shape, strict=True)
        self._grid = tuple(-(-length // step) for length, step in grid)
        if prod(self._grid) > _MOST_CHUNKS:
            storage = reader.storage()
            raise UnknownFormatError(
                f"an array must have at most {_MOST_CHUNKS} chunks; got {prod(self._grid)}.",
                path=storage.path,
                key=storage.key,
            )
        self._strides = c_strides(self._grid)
        # Places of the reader's chunks in a block, counted from its first, shape (chunks, N).
        axes = zip(self.chunk_shape, reader.chunk_shape, strict=True)
        counts = [-(-length // step) for length, step in axes]
        self._joined = np.indices(counts).reshape(len(counts), -1).T if chunk_shape else None
        self._slot_shape = slot_shape or self.chunk_shape
        piece = prod(reader.chunk_shape) * self.dtype.itemsize
        self.cached = cached or cache.array(
            (reader, self.chunk_shape, self._slot_shape),
            prod(self._slot_shape) * self.dtype.itemsize,
            prod(self._grid),
            piece * min(prod(counts), cores()),
        )

    def __reduce__(self) -> Any:
        blocks = None if self._joined is None else self.chunk_shape
        return Chunked, (self.reader, blocks, self._slot_shape)

    def fits_in_cache(self) -> bool:
        """Return whether all chunks may stay in memory; see `Cache.keeps`."""
        return cache.keeps(self.cached)

    def in_blocks(self, chunk_shape: tuple[int, ...]) -> Chunked:
        """Return the same array, which caches blocks of this shape in place of chunks."""
        return Chunked(self.reader, chunk_shape)

    def with_slots(self, shape: tuple[int, ...]) -> Chunked:
        """Return the same array, with chunks in slots of a shape that is longer along axis 0."""
        blocks = None if self._joined is None else self.chunk_shape
        return self if shape == self._slot_shape else Chunked(self.reader, blocks, shape)

    def storage(self) -> Storage:
        """Return how the array is stored."""
        return self.reader.storage()

    def read(
        self,
        origins: NDArray[np.int64],
        extent: Extent,
        out: NDArray[Any],
        places: NDArray[np.int64] | None = None,
    ) -> None:
        """Write ``out[i] = the box at origins[i]``, or to ``out[places[i]]``; see `Source.read`."""
        if not out.size:
            return
        try:
            self.reader.check()
            if self.cached.is_large and self._suits_uncached(origins, extent, out):
                self._read_uncached(origins, extent, out, places)
            elif (plan := self._row_plan(origins, extent)) is not None:
                self._read_rows(plan, origins, out, places)
            elif suits_items(extent, self.chunk_shape, self._item_axes(extent)):
                self._read_items(origins, extent, out, places)
            else:
                self._read_pieces(origins, extent, out, places)
            self.reader.check()
        except SourceError as error:
            if error.rows is None:
                parts: JoinedParts | None = getattr(self.reader, "parts", None)
                differ = (origins != origins[0]).any(axis=0)
                axis = int(np.argmax(differ)) if parts is None else parts.axis
                error.set_rows(covered_positions(origins, extent, axis))
                if parts is not None:
                    parts.assign_part(error)
            raise

    read_to = read

    def check(self) -> None:
        """Raise if the file has changed."""
        self.reader.check()

    @property
    def has_runs(self) -> bool:
        """Whether a chunk holds whole places of axis 0; see `oocdata.engines.ragged`."""
        return self.chunk_shape[1:] == self.shape[1:]

    def read_runs(
        self, starts: NDArray[np.int64], lengths: NDArray[np.int64], out: NDArray[Any]
    ) -> None:
        """Write runs of places along axis 0, end to end; see `ragged.read_ragged`."""
        self.reader.check()
        items, chunk_rows = as_items(out), self.chunk_shape[0]
        numbers, within, counts = cut_runs(starts, lengths, chunk_rows)
        targets = np.cumsum(counts) - counts
        for chunks, runs, which in _chunk_groups(numbers, self.cached.most):
            with self._pin(chunks) as pin:
                count = len(pin.memory) // items.itemsize
                memory = np.ndarray(count, items.dtype, pin.memory)
                places = pin.slots[which] * self._slot_shape[0] + within[runs]
                copy_runs(memory, places, items, targets[runs], counts[runs])
        self.reader.check()

    def fetches(self, origins: NDArray[np.int64], extent: Extent) -> list[Fetch]:
        """Return the byte ranges that reading boxes needs from a store."""
        origins, extent = split_at_gaps(origins, extent, self.chunk_shape)
        first = origins // self._chunk
        last = (origins + np.array(extent.spans) - 1) // self._chunk
        numbers = [
            ((first + step) @ self._strides)[(first + step <= last).all(axis=1)]
            for step in np.ndindex(*((last - first).max(axis=0) + 1).tolist())
        ]
        return self._soon(np.concatenate(numbers))

    def fetches_of_runs(self, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> list[Fetch]:
        """Return the byte ranges that `read_runs` needs from a store."""
        return self._soon(cut_runs(starts, lengths, self.chunk_shape[0])[0])

    def _soon(self, numbers: NDArray[np.int64]) -> list[Fetch]:
        """Return the byte ranges of those chunks that are not cached."""
        fetches = getattr(self.reader, "fetches", None)
        if fetches is None:
            return []
        missing = missing_chunks(self.cached, np.unique(numbers))
        places = self._places(missing)
        if self._joined is not None:
            places = (places[:, None] + self._joined).reshape(-1, len(self.shape))
        ranges = fetches(places) if len(missing) else []
        return [stored._replace(cached=True) for stored in ranges]

    # Decode into the output.

    def _suits_uncached(
        self, origins: NDArray[np.int64], extent: Extent, out: NDArray[Any]
    ) -> bool:
        """Return whether boxes consist of whole chunks that are not worth caching."""
        first = tuple(slice(0, n) for n in self.chunk_shape)
        return (
            self.cached.outgrows_cache
            and not (np.array(extent.lengths) % self._chunk).any()
            and not (origins % self._chunk).any()
            and extent.strides == (1,) * len(extent.strides)
            and out.dtype == self.dtype
            and out[0][first].flags.c_contiguous
            and not (is_decoding() or holds_hdf5() or self.storage().is_remote)
            and self.cached.passes(self._chunks_of(origins, extent) @ self._strides)
        )

    def _chunks_of(self, origins: NDArray[np.int64], extent: Extent) -> NDArray[np.int64]:
        """Return the places in the grid of all chunks of boxes that consist of whole chunks."""
        counts = (np.array(extent.lengths) // self._chunk).tolist()
        within = np.indices(counts).reshape(len(counts), -1).T
        return (origins[:, None] // self._chunk + within).reshape(-1, len(counts))

    def _read_uncached(
        self,
        origins: NDArray[np.int64],
        extent: Extent,
        out: NDArray[Any],
        places: NDArray[np.int64] | None,
    ) -> None:
        """Decode the chunks of boxes into the output, each once; copy those that come again."""
        grid = self._chunks_of(origins, extent)
        _, first, which = np.unique(grid @ self._strides, return_index=True, return_inverse=True)
        boxes = np.arange(len(origins)) if places is None else places
        each = len(grid) // len(origins)
        begins = ((grid[:each] - grid[0]) * self._chunk).tolist()
        regions = [tuple(map(slice, at, np.add(at, self._chunk).tolist())) for at in begins]
        targets = [out[box][region] for box in boxes.tolist() for region in regions]

        def decode(numbers: list[int]) -> None:
            with scratch(self.cached.scratch_bytes * len(numbers)):
                self.read_chunks(grid[numbers], [targets[number] for number in numbers])

        groups = decode_groups(first.tolist(), self.cached.nbytes, self.own_threads)
        in_decoding_thread(lambda: run_tasks([partial(decode, group) for group in groups]))
        for number in np.delete(np.arange(len(grid)), first).tolist():
            targets[number][...] = targets[first[which[number]]]

    # Gather by rows.

    def _row_plan(self, origins: NDArray[np.int64], extent: Extent) -> RowPlan | None:
        """Return a plan to gather boxes by rows; None if copying pieces is faster."""
        lengths, axes = extent.lengths, len(self.shape)
        while axes > 1 and lengths[axes - 1] == self.shape[axes - 1]:
            axes -= 1  # taken whole
        if lengths[1:axes] != (1,) * (axes - 1):
            equal = (origins[:, 1:axes] == origins[0, 1:axes]).all(axis=0)
            axes = 1 + max(np.flatnonzero(~equal).tolist(), default=-1) + 1
        inner = tuple(origins[0, axes:].tolist())
        shapes = self.shape, self.chunk_shape, self._slot_shape
        return plan_rows(*shapes, self.dtype, axes, inner, extent)

    def _read_rows(
        self,
        plan: RowPlan,
        origins: NDArray[np.int64],
        out: NDArray[Any],
        places: NDArray[np.int64] | None,
    ) -> None:
        points = origins[:, : len(plan.chunk)]
        targets = places  # place of each point in `out`; None if they are in order
        if plan.steps is not None:
            cut = self._read_boxes(plan, points, out, places)
            if not len(cut):
                return
            each, axes = plan.steps.shape
            if places is not None or len(cut) < len(points):
                boxes = cut if places is None else places[cut]
                targets = (boxes[:, None] * each + np.arange(each)).ravel()
            points = (points[cut, None] + plan.steps).reshape(-1, axes)
        numbers, rows = plan.located(points)
        if len(plan.columns) == 1:
            chunks = numbers + plan.numbers
            pin = self.cached.find(chunks) or self.cached.find_or_load(
                chunks, self._decode, self.own_threads
            )
            if pin is not None:
                with pin:
                    rows += pin.slots * plan.rows
                    take_rows(plan, plan.columns, pin.memory, rows[None], out, targets)
                return
        self._read_columns(plan, numbers, rows, out, targets)

    def _read_boxes(
        self,
        plan: RowPlan,
        points: NDArray[np.int64],
        out: NDArray[Any],
        places: NDArray[np.int64] | None,
    ) -> NDArray[np.int64]:
        """Fill boxes of small rows; return the numbers of those that must be read point by point.

        `points` holds the first point of each box. Boxes that chunks cut are filled too, with other
        rows, if they are few: it takes less time than leaving them out.
        """
        every = np.arange(len(points))
        if plan.steps is None or plan.offsets is None:
            return every
        numbers, rows = plan.located(points)
        cut = np.flatnonzero(plan.located(points + plan.steps[-1])[0] != numbers)
        if len(cut) > len(points) // _FEW_CUT:
            return every
        chunks = numbers + plan.numbers
        pin = self.cached.find(chunks) or self.cached.find_or_load(
            chunks, self._decode, self.own_threads
        )
        if pin is None:
            return every
        with pin:
            take_boxes(plan, pin.memory, pin.slots * plan.rows + rows, out, places)
        return cut

    def _read_columns(
        self,
        plan: RowPlan,
        numbers: NDArray[np.int64],
        rows: NDArray[np.int64],
        out: NDArray[Any],
        targets: NDArray[np.int64] | None,
    ) -> None:
        """Gather rows from several columns of chunks, some of which may not be cached."""
        most = self.cached.most
        few = min(len(plan.columns), most)
        # Begin where another thread reads now, to share the chunks that it decodes. If two threads
        # each read all chunks of a long array, an epoch takes 1 / 1.3 of the time.
        for group, points, which in _chunk_groups(numbers, most // few, self.cached.reading):
            self.cached.reading = int(group[0])
            places = None if isinstance(points, slice) else points
            if targets is not None:
                places = targets[points]
            # Always in ascending order: threads that read at the same time share decoded chunks.
            for first in range(0, len(plan.columns), few):
                columns = plan.columns[first : first + few]
                chunks = (plan.numbers[first : first + few, None] + group).ravel()
                with self._pin(chunks) as pin:
                    slots = pin.slots.reshape(-1, len(group))[:, which]
                    at = slots * plan.rows + rows[points]
                    take_rows(plan, columns, pin.memory, at, out, places)

    # Gather by items.

    def _item_axes(self, extent: Extent) -> int:
        """Return the number of axes that number items; the others are taken and stored whole."""
        axes, chunk = len(self.shape), self.chunk_shape
        while axes > 1 and extent.lengths[axes - 1] == self.shape[axes - 1] == chunk[axes - 1]:
            axes -= 1
        return axes

    def _read_items(
        self,
        origins: NDArray[np.int64],
        extent: Extent,
        out: NDArray[Any],
        places: NDArray[np.int64] | None,
    ) -> None:
        """Gather boxes item by item, in halves of the boxes if their chunks are too many to pin."""
        axes = self._item_axes(extent)
        lengths, chunk = extent.lengths[:axes], self.chunk_shape[:axes]
        items_of = BoxItems(origins, lengths, extent.strides[:axes], chunk, self._strides[:axes])
        chunks, which = np.unique(items_of.chunks, return_inverse=True)
        if len(chunks) > self.cached.most:
            if len(origins) == 1:
                self._read_pieces(origins, extent, out, places)
                return
            order = items_of.chunks[:, 0].argsort(kind="stable")
            for half in np.array_split(order, 2):
                targets = half if places is None else places[half]
                self._read_items(origins[half], extent, out, targets)
            return
        each = prod(self._slot_shape[:axes])
        nbytes = prod(self.chunk_shape[axes:]) * self.dtype.itemsize
        few = max(1, _ITEMS // prod(lengths))
        with self._pin(chunks) as pin:
            items = np.ndarray(len(pin.memory) // nbytes, f"V{nbytes}", pin.memory)
            firsts = (pin.slots * each)[which.reshape(len(origins), -1)]
            for start in range(0, len(origins), few):
                part = slice(start, start + few)
                taken = items.take(items_of.places(firsts[part], part), mode="clip")
                boxes = taken.view(self.dtype).reshape(-1, *extent.lengths)
                out[part if places is None else places[part]] = boxes

    # Gather by pieces.

    def _read_pieces(
        self,
        origins: NDArray[np.int64],
        extent: Extent,
        out: NDArray[Any],
        places: NDArray[np.int64] | None,
    ) -> None:
        """Copy the piece that each box and chunk share, for as many chunks at a time as fit."""
        most = self.cached.most
        first = (origins // self._chunk) @ self._strides
        pieces: dict[int, list[Any]] = {}  # by chunk
        targets = range(len(origins)) if places is None else places.tolist()
        for box in np.argsort(first, kind="stable").tolist():
            for number, within, target in self._pieces(origins[box].tolist(), extent):
                if number not in pieces:
                    if len(pieces) == most:
                        self._copy_pieces(pieces, out)
                        pieces = {}
                    pieces[number] = []
                pieces[number].append((within, (targets[box], *target)))
        self._copy_pieces(pieces, out)

    def _pieces(
        self, origin: list[int], extent: Extent
    ) -> Iterator[tuple[int, tuple[slice, ...], tuple[slice, ...]]]:
        """Yield the number of each chunk of a box, and slices of the chunk and of the box."""
        strides = self._strides.tolist()
        axes = zip(origin, extent.lengths, extent.strides, self.chunk_shape, strict=True)
        for parts in product(*[list(chunk_parts(*axis)) for axis in axes]):
            number = sum(part[0] * step for part, step in zip(parts, strides, strict=True))
            yield number, tuple([part[1] for part in parts]), tuple([part[2] for part in parts])

    def _copy_pieces(self, pieces: dict[int, list[Any]], out: NDArray[Any]) -> None:
        with self._pin(np.array(list(pieces), np.int64)) as pin:
            count = len(pin.memory) // self.cached.nbytes
            chunks = np.ndarray((count, *self._slot_shape), self.dtype, pin.memory)
            for slot, of_chunk in zip(pin.slots.tolist(), pieces.values(), strict=True):
                chunk = chunks[slot]
                for within, target in of_chunk:
                    copy_reordered(chunk[within], out[target])

    # Pin and decode chunks.

    def _pin(self, numbers: NDArray[np.int64]) -> Pin:
        """Pin distinct chunks, after decoding those not cached."""
        return self.cached.find(numbers) or self.cached.load(
            numbers.tolist(), self._decode, self.own_threads
        )

    def _decode(self, numbers: list[int], slots: list[int], memory: NDArray[np.uint8]) -> None:
        """Decode chunks into slots, without the parts beyond the edge of the array."""
        count = len(memory) // self.cached.nbytes
        chunks = np.ndarray((count, *self._slot_shape), self.dtype, memory)
        places = self._places(np.array(numbers))
        inside = np.minimum(self._chunk, np.array(self.shape) - places * self._chunk).tolist()
        outs = [
            chunks[slot][tuple(map(slice, lengths))]
            for slot, lengths in zip(slots, inside, strict=True)
        ]
        self.read_chunks(places, outs)

    def read_chunks(self, places: NDArray[np.int64], outs: Sequence[NDArray[Any]]) -> None:
        """Decode chunks or blocks, the latter in this thread and in idle decoding threads.

        See `ChunkReader.read_chunks`.
        """
        joined, shape = self._joined, self.reader.chunk_shape
        if joined is None:
            self.reader.read_chunks(places, outs)
            return
        regions = [
            tuple(slice(a, a + n) for a, n in zip(begin, shape, strict=True))
            for begin in (joined * shape).tolist()
        ]
        few = max(1, _TASK_BYTES // (prod(shape) * self.dtype.itemsize))
        few = len(joined) if self.own_threads else few
        run_tasks(
            [
                partial(
                    self.reader.read_chunks,
                    place + joined[first : first + few],
                    [out[region] for region in regions[first : first + few]],
                )
                for place, out in zip(places, outs, strict=True)
                for first in range(0, len(joined), few)
            ]
        )

    def _places(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the places of chunks in the grid."""
        return np.stack(np.unravel_index(numbers, self._grid), axis=1)


def _chunk_groups(
    numbers: NDArray[np.int64], most: int, first: int = 0
) -> Iterator[tuple[NDArray[np.int64], Any, NDArray[np.int64]]]:
    """Yield up to `most` distinct chunks, the points in them, and the chunk of each point.

    `numbers` holds the chunk number of each point. If there are several groups, chunks from number
    `first` on come first.

    Examples
    --------
    >>> for chunks, points, which in _chunk_groups(np.array([7, 3, 5, 3]), 2):
    ...     print(chunks, points, which)
    [3 5] [1 2 3] [0 1 0]
    [7] [0] [0]
    """
    chunks, which = np.unique(numbers, return_inverse=True)
    if len(chunks) <= most:
        yield chunks, slice(None), which
        return
    skipped = int(np.searchsorted(chunks, first))
    chunks, which = np.roll(chunks, -skipped), (which - skipped) % len(chunks)
    for start in range(0, len(chunks), most):
        points = ((which >= start) & (which < start + most)).nonzero()[0]
        yield chunks[start : start + most], points, which[points] - start
