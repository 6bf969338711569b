"""Read rows of unequal length: a source reports the length of rows, and then reads them whole.

Its array has one axis, the rows. A box of it has no single shape, so rows are first located
(`locate`), which gives their lengths, and then read into memory of that size. Rows that are
consecutive in an array (`RaggedRows`) are located by offsets; a format may have another way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent, Ints
from oocdata.engines.concat import Concat
from oocdata.engines.ragged import (
    affected_rows,
    boxes_of_runs,
    read_bounds,
    read_ragged,
    scatter_runs,
)
from oocdata.engines.source import Boxes, Source, Storage, WithStorage
from oocdata.errors import ArgumentError, SourceError
from oocdata.threads import cached_property

__all__ = [
    "LocatedRows", "RaggedRows", "RaggedSource", "inner_shape", "is_ragged", "join_located",
    "locate",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class LocatedRows:
    """Rows of known lengths, ready to be read.

    Attributes
    ----------
    lengths : ndarray of int64, shape (rows,)
        Length of each row.
    read : callable
        ``read(firsts, counts, out, targets)`` reads a run of each row, from position ``firsts[i]``
        of row i on and of length ``counts[i]``, and writes it to ``out[targets[i]]`` and after,
        converted to the dtype of `out`, which is C-contiguous. Raises `SourceError` if storage
        can't deliver the rows.
    boxes : callable
        ``boxes(firsts, counts)`` returns the boxes that `read` reads, to fetch them before.
    """

    lengths: Ints
    read: Callable[[Ints, Ints, NDArray[Any], Ints], None]
    boxes: Callable[[Ints, Ints], Iterable[Boxes]] = lambda _firsts, _counts: []


class RaggedSource(ABC):
    """A source of rows of unequal length."""

    @property
    @abstractmethod
    def inner(self) -> tuple[int, ...]:
        """Shape of one position of a row."""

    @abstractmethod
    def locate(self, rows: Ints) -> LocatedRows:
        """Return rows with their lengths; any order, repeats allowed."""

    def read_boxes(self, origins: Ints, extent: Extent) -> Iterable[Boxes]:
        """Return the boxes that are read for rows; reads where they are."""
        located = self.locate(origins[:, 0])
        return located.boxes(np.zeros_like(located.lengths), located.lengths)

    def read(self, origins: Ints, extent: Extent, out: NDArray[Any]) -> NoReturn:
        """Raise, because rows have no single shape."""
        raise ArgumentError("rows of unequal length must be padded to be read as boxes.")


def is_ragged(source: Source) -> bool:
    """Return whether rows of a source are of unequal length, so that `locate` accepts it."""
    if isinstance(source, Concat):
        return source.axis == 0 and all(map(is_ragged, source.parts))
    return isinstance(source, RaggedSource)


def inner_shape(source: Source) -> tuple[int, ...]:
    """Return the shape of one position of a row."""
    while isinstance(source, Concat):
        source = source.parts[0]
    assert isinstance(source, RaggedSource)
    return source.inner


def locate(source: Source, rows: Ints) -> LocatedRows:
    """Locate rows of a source for which `is_ragged` holds.

    Examples
    --------
    >>> from oocdata.engines.memory_array import MemoryArray
    >>> values, offsets = MemoryArray(np.arange(9)), MemoryArray(np.array([0, 3, 3, 9]))
    >>> located = locate(RaggedRows(values, offsets), np.array([2, 1]))
    >>> out = np.empty(2, np.int64)
    >>> located.read(np.array([1, 0]), np.array([2, 0]), out, np.array([0, 2]))
    >>> located.lengths, out
    (array([6, 0]), array([4, 5]))
    """
    if isinstance(source, RaggedSource):
        return source.locate(rows)
    assert isinstance(source, Concat)
    shares = source.shares(rows[:, None])
    return join_located([(locate(part, within[:, 0]), places) for part, places, within in shares])


def join_located(shares: Sequence[tuple[LocatedRows, Ints]]) -> LocatedRows:
    """Return rows of several sources as one; `shares` has the rows of each and their positions."""
    if len(shares) == 1:
        return shares[0][0]
    lengths = np.zeros(sum(len(places) for _, places in shares), np.int64)
    for located, places in shares:
        lengths[places] = located.lengths

    def read(firsts: Ints, counts: Ints, out: NDArray[Any], targets: Ints) -> None:
        for located, places in shares:
            located.read(firsts[places], counts[places], out, targets[places])

    def boxes(firsts: Ints, counts: Ints) -> Iterator[Boxes]:
        for located, places in shares:
            yield from located.boxes(firsts[places], counts[places])

    return LocatedRows(lengths, read, boxes)


@dataclass(frozen=True, eq=False)
class RaggedRows(WithStorage, RaggedSource):
    """Rows that are consecutive in an array; a `Source`.

    Attributes
    ----------
    values : Source
        Shape (n, …): all rows, one after the other.
    offsets : Source
        int64, of one axis: position in `values` at which each row begins, and the end of the last
        row.
    """

    values: Source
    offsets: Source

    @property
    def row_source(self) -> Source:
        """The source that identifies the rows: no two parts of a split share a row of it."""
        return self.offsets

    @property
    def shape(self) -> tuple[int, ...]:
        """``(rows,)``."""
        return (self.offsets.shape[0] - 1,)

    @property
    def inner(self) -> tuple[int, ...]:
        """Shape of one position of a row."""
        return self.values.shape[1:]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the values."""
        return self.values.dtype

    @cached_property
    def _storage(self) -> Storage:
        """How the values are stored; a chunk is the average number of rows per chunk."""
        values, offsets = self.values.storage(), self.offsets.storage()
        combined = replace(
            values,
            layout=f"rows of unequal length in {values.layout}",
            strides=None,
            parts=(0,),
            part_names=(),
            episodes=False,
            dimensions=(),
            files=tuple(dict.fromkeys((*values.files, *offsets.files))),
            opened=None,
            table_bytes=values.table_bytes + offsets.table_bytes,
            cached_whole=values.cached_whole + offsets.cached_whole,
        )
        rows, stored = self.shape[0], self.values.shape[0]
        if values.chunks is None or not rows or not stored:
            return replace(combined, chunks=None)
        # Averages, because the lengths of rows differ.
        chunk_rows = min(rows, max(1, round(values.chunks[0] * rows / stored)))
        nbytes = values.chunk_bytes
        if nbytes is None:
            lengths = map(min, values.chunks, self.values.shape)
            nbytes = int(np.prod(list(lengths))) * self.dtype.itemsize
        return replace(combined, chunks=(chunk_rows,), chunk_bytes=nbytes)

    def locate(self, rows: Ints) -> LocatedRows:
        """Return rows with their lengths; see `RaggedSource`."""
        starts, stops = rows, rows
        try:
            if len(rows):
                starts, stops = read_bounds(self.offsets, rows, self.values.shape[0])
        except SourceError as error:
            storage = self.values.storage()
            error.path, error.key = storage.path, storage.key
            raise

        def read(firsts: Ints, counts: Ints, out: NDArray[Any], targets: Ints) -> None:
            try:
                runs = partial(read_ragged, self.values, starts + firsts, counts)
                scatter_runs(runs, counts, self.dtype, out, targets)
            except SourceError as error:
                error.set_rows(affected_rows(error, rows, starts, stops))
                raise

        def boxes(firsts: Ints, counts: Ints) -> Iterator[Boxes]:
            return boxes_of_runs(self.values, starts + firsts, counts)

        return LocatedRows(stops - starts, read, boxes)
