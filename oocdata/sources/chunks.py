"""The chunks engine: rows packed in chunks that are read or decoded together.

A format gives this engine one thing: an array as it lies in storage that can be read by boxes (an
h5py dataset, a Zarr array, any object that slices). The engine turns a batch of rows into the
fewest boxes, one for each run of rows in a chunk, reads each box once for the batch and copies the
rows to their places. Decoded chunks stay in a cache with a byte budget, because the next frame, the
next batch of a block shuffle and the target of a window lie in the same chunk.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from oocdata.index import Cut, compose_ranges, cut_shape
from oocdata.sources.cache import chunk_cache
from oocdata.sources.handles import handle
from oocdata.sources.source import Layout, Source

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

__all__ = ["BoxReader", "Chunks"]

_Task: TypeAlias = tuple[tuple[slice, ...], bool, NDArray[np.int64], NDArray[np.int64]]
"""(box, whole chunk?, rows within the box, places in the batch)"""


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
    threads : int
        Boxes worth reading at a time; 1 where the library holds a lock.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def chunk_shape(self) -> tuple[int, ...]: ...
    @property
    def threads(self) -> int: ...

    def read_box(self, box: tuple[slice, ...]) -> NDArray[Any]:
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


@dataclass(frozen=True, slots=True)
class Chunks:
    """Rows of an array that is read by boxes.

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

    converts = True

    @classmethod
    def of(cls, reader: BoxReader, axis: int) -> Chunks:
        """Return the source of whole rows."""
        lengths = [n for place, n in enumerate(reader.shape) if place != axis]
        return cls(reader, axis, tuple(range(n) for n in lengths))

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

    def layout(self) -> Layout:
        """Return where and how the array is stored."""
        return self.reader.layout()

    def cut(self, cuts: tuple[Cut, ...]) -> Source:
        """Return the source of ``row[cuts]``: smaller boxes are read."""
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
        order = np.argsort(rows, kind="stable")
        tasks = list(self._tasks(rows[order], order))

        def work(task: _Task) -> None:
            box, whole, inside, places = task
            out[places] = self._rows(box, whole)[inside]

        if self.reader.threads > 1 and len(tasks) > 1:
            pool = handle(("read boxes", self.reader.threads), self._pool)
            for _ in pool.map(work, tasks):  # re-raises the first error
                pass
        else:
            for task in tasks:
                work(task)

    def _pool(self) -> ThreadPoolExecutor:
        from concurrent.futures import ThreadPoolExecutor  # not for `import oocdata`: it is slow

        return ThreadPoolExecutor(self.reader.threads, "oocdata-boxes")

    def _tasks(self, rows: NDArray[np.int64], places: NDArray[np.int64]) -> Iterator[_Task]:
        """Yield (box, whole chunk?, rows within the box, places in the batch) for sorted rows."""
        step = self.chunk_rows
        total = self.reader.shape[self.axis]
        if step > 1:
            breaks = np.flatnonzero(np.diff(rows // step)) + 1
        else:
            breaks = np.flatnonzero(np.diff(rows) > 1) + 1
        for first, last in pairwise([0, *breaks.tolist(), len(rows)]):
            some = rows[first:last]
            if step > 1:
                start = int(some[0]) // step * step
                stop = min(start + step, total)
            else:
                start, stop = int(some[0]), int(some[-1]) + 1
            yield self._box(start, stop), step > 1, some - start, places[first:last]

    def _box(self, start: int, stop: int) -> tuple[slice, ...]:
        box = [_bounds(cut) for cut in self.cuts]
        box.insert(self.axis, slice(start, stop))
        return tuple(box)

    def _rows(self, box: tuple[slice, ...], whole: bool) -> NDArray[Any]:
        """Return the rows of a box, the row axis first and the cuts made."""
        if whole:
            nbytes = prod(part.stop - part.start for part in box) * self.dtype.itemsize
            key = (self.reader, tuple((part.start, part.stop) for part in box))
            read = chunk_cache().get(key, nbytes, lambda: self.reader.read_box(box))
        else:
            read = self.reader.read_box(box)
        within = (slice(None), *map(_within, self.cuts))
        rows: NDArray[Any] = np.moveaxis(read, self.axis, 0)[within]
        return rows


def _bounds(cut: Cut) -> slice:
    """Return the smallest slice of step 1 that holds a cut."""
    if isinstance(cut, int):
        return slice(cut, cut + 1)
    return slice(min(cut[0], cut[-1]), max(cut[0], cut[-1]) + 1)


def _within(cut: Cut) -> int | slice:
    """Return a cut relative to its bounds."""
    if isinstance(cut, int):
        return 0
    return slice(None, None, cut.step)
