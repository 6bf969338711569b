"""The chunked engine: boxes of an array that is stored in chunks, each decoded as a whole.

A format gives this engine a `ChunkReader`: the grid of chunks, and a way to decode some of them.
The engine turns boxes into the chunks that they cover, decodes the missing ones once, into the
process's one cache (`cache`), and gathers the boxes out of it. There are three ways to gather:

- *rows*: the boxes are alike on the inner axes, and single places (or few) along the outer ones.
  Each column of chunks is one `numpy.take`, however many chunks and boxes there are.
- *pieces*: one copy for each chunk that each box covers: patches, long windows.
- *items*: where such pieces are many and small, number by number.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import product
from math import prod
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent, covered, cut_apart
from oocdata.engines.cache import Hold, cache
from oocdata.engines.gather import (
    BoxItems,
    RowPlan,
    c_strides,
    chunk_parts,
    plan_rows,
    suits_items,
    take_rows,
)
from oocdata.engines.parts import JoinedParts
from oocdata.engines.places import copy_across
from oocdata.engines.ragged import as_items, copy_runs, cut_runs, read_points, soon_points
from oocdata.engines.soon import Soon
from oocdata.engines.source import Storage
from oocdata.errors import SourceError, UnknownFormatError

__all__ = ["ChunkReader", "Chunked"]

_MOST_CHUNKS = 1 << 62

_ITEMS = 1 << 14
"""Gathered at a time: their places stay in the processor's cache."""


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

    __slots__ = (*("_chunk", "_cut", "_grid", "_slots", "_strides", "dtype", "reader", "shape"),)

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
        self._strides = c_strides(self._grid)
        nbytes = prod(self._cut) * self.dtype.itemsize
        piece = getattr(reader, "piece_bytes", nbytes)
        self._slots = cache.slots(reader, nbytes, prod(self._grid), piece)

    def __reduce__(self) -> tuple[type[Chunked], tuple[ChunkReader]]:
        return (Chunked, (self.reader,))

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
            plan = self._plan(origins, extent)
            if plan is not None:
                self._gather(plan, origins, out, places)
            elif suits_items(extent, self._cut, self._numbering(extent)):
                self._take(origins, extent, out, places)
            else:
                self._copy(origins, extent, out, places)
            self.reader.check()
        except SourceError as error:
            if error.rows is None:
                parts: JoinedParts | None = getattr(self.reader, "parts", None)
                differ = (origins != origins[0]).any(axis=0)
                axis = int(np.argmax(differ)) if parts is None else parts.axis
                error.concern(covered(origins, extent, axis))
                if parts is not None:
                    parts.concern(error)
            raise

    read_to = read

    def check(self) -> None:
        """Raise if the file has changed."""
        self.reader.check()

    def read_runs(
        self, starts: NDArray[np.int64], lengths: NDArray[np.int64], out: NDArray[Any]
    ) -> None:
        """Write runs of places along axis 0 one after the other; see `ragged.read_ragged`."""
        cut = self._cut[0]
        if self._cut[1:] != self.shape[1:]:
            read_points(self, starts, lengths, out)
            return
        self.reader.check()
        items = as_items(out)
        numbers, within, taken = cut_runs(starts, lengths, cut)
        targets = np.cumsum(taken) - taken
        for some, here, which in _few_at_a_time(numbers, self._slots.most):
            with self._hold(some) as hold:
                count = len(hold.memory) // items.itemsize
                memory = np.ndarray(count, items.dtype, hold.memory)
                places = hold.slots[which] * cut + within[here]
                copy_runs(memory, places, items, targets[here], taken[here])
        self.reader.check()

    def soon(self, origins: NDArray[np.int64], extent: Extent) -> list[Soon]:
        """Return what reading boxes will take out of a store; see `oocdata.engines.soon`."""
        origins, extent = cut_apart(origins, extent, self._cut)
        first = origins // self._chunk
        last = (origins + np.array(extent.spans) - 1) // self._chunk
        numbers = [
            ((first + step) @ self._strides)[(first + step <= last).all(axis=1)]
            for step in np.ndindex(*((last - first).max(axis=0) + 1).tolist())
        ]
        return self._soon(np.concatenate(numbers))

    def soon_runs(self, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> list[Soon]:
        """Return what `read_runs` will take out of a store; see `ragged.soon_ragged`."""
        if self._cut[1:] != self.shape[1:]:
            return soon_points(self, starts, lengths)
        return self._soon(cut_runs(starts, lengths, self._cut[0])[0])

    def _soon(self, numbers: NDArray[np.int64]) -> list[Soon]:
        """Return what chunks that are not in memory will take out of a store."""
        ask = getattr(self.reader, "soon", None)
        if ask is None:
            return []
        missing = self._slots.missing(np.unique(numbers))
        found = ask(self._places(missing)) if len(missing) else []
        return [one._replace(cached=True) for one in found]

    # How boxes are gathered.

    def _plan(self, origins: NDArray[np.int64], extent: Extent) -> RowPlan | None:
        """Return how boxes are gathered by rows; None where they are better copied by pieces."""
        lengths, axes = extent.lengths, len(self.shape)
        while axes > 1 and lengths[axes - 1] == self.shape[axes - 1]:
            axes -= 1  # taken whole
        if lengths[1:axes] != (1,) * (axes - 1):
            alike = (origins[:, 1:axes] == origins[0, 1:axes]).all(axis=0)
            axes = 1 + max(np.flatnonzero(~alike).tolist(), default=-1) + 1
        inner = tuple(origins[0, axes:].tolist())
        return plan_rows(self.shape, self._cut, self.dtype, axes, inner, extent)

    # By rows.

    def _gather(
        self,
        plan: RowPlan,
        origins: NDArray[np.int64],
        out: NDArray[Any],
        boxes: NDArray[np.int64] | None,
    ) -> None:
        axes = len(plan.chunk)
        points = origins[:, :axes]
        if plan.steps is not None:
            points = (points[:, None] + plan.steps).reshape(-1, axes)
        targets = None  # where each point goes, unless they go one after the other
        if boxes is not None:
            each = len(points) // len(origins)
            targets = (boxes[:, None] * each + np.arange(each)).ravel()
        numbers, rows = plan.located(points)
        if len(plan.columns) == 1:
            wanted = numbers + plan.numbers
            hold = self._slots.find(wanted)
            if hold is None:
                threads = self.reader.own_threads
                hold = self._slots.find_or_load(wanted, self._decode, threads)
            if hold is not None:
                with hold:
                    slots = hold.slots[None]
                    take_rows(plan, plan.columns, hold.memory, slots, None, rows, out, targets)
                return
        self._gather_columns(plan, numbers, rows, out, targets)

    def _gather_columns(
        self,
        plan: RowPlan,
        numbers: NDArray[np.int64],
        rows: NDArray[np.int64],
        out: NDArray[Any],
        targets: NDArray[np.int64] | None,
    ) -> None:
        """Gather rows of several columns of chunks, or whose chunks may not all be in memory."""
        most = self._slots.most
        few = min(len(plan.columns), most)
        for some, here, which in _few_at_a_time(numbers, most // few):
            places = None if isinstance(here, slice) else here
            if targets is not None:
                places = targets[here]
            # Always from end to end: threads that read at the same time share what they decode.
            for first in range(0, len(plan.columns), few):
                columns = plan.columns[first : first + few]
                chunks = (plan.numbers[first : first + few, None] + some).ravel()
                with self._hold(chunks) as hold:
                    slots = hold.slots.reshape(-1, len(some))
                    take_rows(plan, columns, hold.memory, slots, which, rows[here], out, places)

    # By items.

    def _numbering(self, extent: Extent) -> int:
        """Return how many axes number the items of boxes: the others are taken and stored whole."""
        axes = len(self.shape)
        while axes > 1 and extent.lengths[axes - 1] == self.shape[axes - 1] == self._cut[axes - 1]:
            axes -= 1
        return axes

    def _take(
        self,
        origins: NDArray[np.int64],
        extent: Extent,
        out: NDArray[Any],
        places: NDArray[np.int64] | None,
    ) -> None:
        """Gather boxes item by item, as many boxes at a time as their chunks fit."""
        axes = self._numbering(extent)
        lengths, cut = extent.lengths[:axes], self._cut[:axes]
        found = BoxItems(origins, lengths, extent.strides[:axes], cut, self._strides[:axes])
        chunks, which = np.unique(found.chunks, return_inverse=True)
        if len(chunks) > self._slots.most:
            if len(origins) == 1:
                self._copy(origins, extent, out, places)
                return
            order = found.chunks[:, 0].argsort(kind="stable")
            for half in np.array_split(order, 2):
                own = half if places is None else places[half]
                self._take(origins[half], extent, out, own)
            return
        each, nbytes = prod(cut), prod(self._cut[axes:]) * self.dtype.itemsize
        few = max(1, _ITEMS // prod(lengths))
        with self._hold(chunks) as hold:
            items = np.ndarray(len(hold.memory) // nbytes, f"V{nbytes}", hold.memory)
            firsts = (hold.slots * each)[which.reshape(len(origins), -1)]
            for start in range(0, len(origins), few):
                some = slice(start, start + few)
                taken = items.take(found.places(firsts[some], some), mode="clip")
                boxes = taken.view(self.dtype).reshape(-1, *extent.lengths)
                out[some if places is None else places[some]] = boxes

    # By pieces.

    def _copy(
        self,
        origins: NDArray[np.int64],
        extent: Extent,
        out: NDArray[Any],
        places: NDArray[np.int64] | None,
    ) -> None:
        """Copy each piece that a box and a chunk share, as many chunks at a time as fit."""
        most = self._slots.most
        first = (origins // self._chunk) @ self._strides
        waiting: dict[int, list[Any]] = {}
        boxes = range(len(origins)) if places is None else places.tolist()
        for box in np.argsort(first, kind="stable").tolist():
            for number, within, target in self._pieces(origins[box].tolist(), extent):
                if number not in waiting:
                    if len(waiting) == most:
                        self._copy_pieces(waiting, out)
                        waiting = {}
                    waiting[number] = []
                waiting[number].append((within, (boxes[box], *target)))
        self._copy_pieces(waiting, out)

    def _pieces(
        self, origin: list[int], extent: Extent
    ) -> Iterator[tuple[int, tuple[slice, ...], tuple[slice, ...]]]:
        """Yield each chunk that a box covers: its number, what is taken of it, where that goes."""
        strides = self._strides.tolist()
        axes = zip(origin, extent.lengths, extent.strides, self._cut, strict=True)
        parts = [list(chunk_parts(*axis)) for axis in axes]
        for some in product(*parts):
            number = sum(part[0] * step for part, step in zip(some, strides, strict=True))
            yield number, tuple([part[1] for part in some]), tuple([part[2] for part in some])

    def _copy_pieces(self, pieces: dict[int, list[Any]], out: NDArray[Any]) -> None:
        with self._hold(np.array(list(pieces), np.int64)) as hold:
            count = len(hold.memory) // self._slots.nbytes
            chunks = np.ndarray((count, *self._cut), self.dtype, hold.memory)
            for slot, some in zip(hold.slots.tolist(), pieces.values(), strict=True):
                chunk = chunks[slot]
                for within, target in some:
                    copy_across(chunk[within], out[target])

    # Chunks.

    def _hold(self, numbers: NDArray[np.int64]) -> Hold:
        """Hold chunks that differ from one another."""
        hold = self._slots.find(numbers)
        if hold is None:
            hold = self._slots.load(numbers.tolist(), self._decode, self.reader.own_threads)
        return hold

    # Without what reaches over the edge of the array.
    def _decode(self, numbers: list[int], slots: list[int], memory: NDArray[np.uint8]) -> None:
        nbytes = self._slots.nbytes
        chunks = np.ndarray((len(memory) // nbytes, *self._cut), self.dtype, memory)
        places = self._places(numbers)
        inside = np.minimum(self._chunk, np.array(self.shape) - places * self._chunk).tolist()
        outs = [
            chunks[slot][tuple(map(slice, lengths))]
            for slot, lengths in zip(slots, inside, strict=True)
        ]
        self.reader.read_chunks(places, outs)

    def _places(self, numbers: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the places of chunks in their grid."""
        return np.stack(np.unravel_index(numbers, self._grid), axis=1)


def _few_at_a_time(
    numbers: NDArray[np.int64], most: int
) -> Iterator[tuple[NDArray[np.int64], Any, NDArray[np.int64]]]:
    """Yield some chunks of those of points, the points in them, and which chunk each lies in.

    Examples
    --------
    >>> for chunks, here, which in _few_at_a_time(np.array([7, 3, 5, 3]), 2):
    ...     print(chunks, here, which)
    [3 5] [1 2 3] [0 1 0]
    [7] [0] [0]
    """
    chunks, which = np.unique(numbers, return_inverse=True)
    if len(chunks) <= most:
        yield chunks, slice(None), which
        return
    for start in range(0, len(chunks), most):
        here = ((which >= start) & (which < start + most)).nonzero()[0]
        yield chunks[start : start + most], here, which[here] - start
