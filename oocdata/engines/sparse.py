"""Read rows of a sparse matrix in the CSR format, as boxes of a dense array.

Three 1-D arrays store the matrix: the numbers of row r and their columns are the runs
``indptr[r] : indptr[r + 1]`` of `data` and `indices`. These are ordinary sources of the other
engines, which cache, decode in threads and detect changed files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent, Ints, covered_rows
from oocdata.engines.buffers import empty
from oocdata.engines.ragged import (
    affected_rows,
    boxes_of_runs,
    read_ragged,
    row_batches,
)
from oocdata.engines.source import Boxes, Source, Storage, WithStorage
from oocdata.errors import SourceError
from oocdata.threads import cached_property

__all__ = ["Entries", "SparseRows"]

_ENTRIES = 1 << 18
"""Numbers that are read at a time: few, because of the memory for what is computed of them. With
half as many, sparse batches take 1.1 times the processor's time through `to_tf`."""

_ROWS_BYTES = 1 << 20
"""Bytes of dense rows that are written at a time: their zeros are still in the processor's cache
when the numbers are written. Through `to_tf`, batches of 20,000 genes take 1 / 1.2 of its time."""

_PLACE_BYTES = 16
"""Bytes per stored number for its position in the batch, and for a flag of its order."""


@dataclass(frozen=True, slots=True)
class Entries:
    """Stored numbers of rows, one row after the other; columns of a row ascend, without duplicates.

    Attributes
    ----------
    counts : ndarray of int64, shape (rows,)
        Number of stored numbers per row.
    columns : ndarray of int, shape (n,)
        Any dtype whose values int64 can hold.
    values : ndarray, shape (n,)
    """

    counts: Ints
    columns: NDArray[Any]
    values: NDArray[Any]

    def rows(self, first: int = 0) -> Ints:
        """Return the row of each number, counted from `first`."""
        return np.repeat(np.arange(first, first + len(self.counts)), self.counts)

    def select(self, mask: NDArray[np.bool_], columns: NDArray[Any]) -> Entries:
        """Return the selected numbers, with `columns` in place of theirs."""
        ends = np.cumsum(self.counts)
        before = np.concatenate(([0], np.cumsum(mask)))
        counts = before[ends] - before[ends - self.counts]
        return Entries(counts, columns[mask], self.values[mask])


class SparseRows(WithStorage):
    """A matrix in the compressed sparse row format; a `oocdata.engines.source.Source`.

    Parameters
    ----------
    data, indices, indptr : Source
        Of one axis.
    shape : tuple of int
        ``(rows, columns)``.
    storage : Storage
        How the matrix is stored, without chunks and tables.
    columns : ndarray of int64, optional
        Columns to deliver, in this order and without duplicates; by default all.

    Raises
    ------
    oocdata.errors.SourceError
        If the three arrays can't be those of such a matrix.
    """

    def __init__(
        self,
        data: Source,
        indices: Source,
        indptr: Source,
        shape: tuple[int, int],
        storage: Storage,
        columns: Ints | None = None,
    ) -> None:
        self.data, self.indices, self._indptr = data, indices, indptr
        self._stored, self._described, self._columns = shape, storage, columns
        self.shape = shape if columns is None else (shape[0], len(columns))
        self.dtype = data.dtype
        lengths = [source.shape for source in (data, indices, indptr)]
        integers = [source.dtype.kind in "iu" for source in (indices, indptr)]
        if lengths[0] != lengths[1] or lengths[2] != (shape[0] + 1,) or not all(integers):
            raise self._error(
                f"must hold `data` and `indices` of one length, and {shape[0] + 1} `indptr`, with "
                f"integer `indices` and `indptr`; got shapes {', '.join(map(str, lengths))} and "
                f"dtypes {indices.dtype}, {indptr.dtype}"
            )

    def __reduce__(self) -> Any:
        arrays = self.data, self.indices, self._indptr
        return SparseRows, (*arrays, self._stored, self._described, self._columns)

    def with_columns(self, columns: Ints) -> SparseRows:
        """Return the matrix of the given columns, in this order; they have no duplicates."""
        arrays = self.data, self.indices, self._indptr
        return SparseRows(*arrays, self._stored, self._described, columns)

    @cached_property
    def _storage(self) -> Storage:
        """How the matrix is stored; a chunk is the average number of rows per chunk."""
        storages = [source.storage() for source in (self.data, self.indices, self._indptr)]
        chunks = [part.chunks[0] for part in storages[:2] if part.chunks is not None]
        tables = 8 * (self._stored[0] + 1) + sum(part.table_bytes for part in storages)
        rows, stored = self._stored[0], self.data.shape[0]
        # Numbers read at a time, with a last row that exceeds the limit, and their positions.
        scratch = (min(_ENTRIES, stored) + self._stored[1]) * (self.entry_bytes + _PLACE_BYTES)
        storage = replace(self._described, table_bytes=tables, scratch_bytes=scratch)
        if not chunks or not rows or not stored:
            return storage
        # Averages, because the lengths of rows differ.
        mean, entries = stored / rows, min(stored, max(chunks))
        nbytes = max(entries, mean) * self.entry_bytes
        chunk_rows = min(rows, max(1, round(entries / mean)))
        chunk = (chunk_rows, max(1, self.shape[1]))
        return replace(storage, chunks=chunk, chunk_bytes=round(nbytes))

    @cached_property
    def indptr(self) -> Ints:
        """Position in `data` at which each row begins, and the end of the last; read once.

        Raises
        ------
        oocdata.errors.SourceError
            If the numbers don't ascend from 0 to the length of `data`.
        """
        bounds = np.empty(self._stored[0] + 1, np.int64)
        self._indptr.read(np.zeros((1, 1), np.int64), Extent.of(bounds.shape), bounds[None])
        if bounds[0] != 0 or bounds[-1] != self.data.shape[0] or (bounds[1:] < bounds[:-1]).any():
            raise self._error(
                f"must have an `indptr` that ascends from 0 to {self.data.shape[0]}, the length of "
                f"`data`; got {bounds[0]} to {bounds[-1]}, "
                f"{np.count_nonzero(bounds[1:] < bounds[:-1])} of them less than the one before"
            )
        bounds.flags.writeable = False
        return bounds

    @property
    def longest(self) -> int:
        """Stored numbers of the longest row."""
        longest, rows = 0, self._stored[0]
        for start in range(0, rows, _ENTRIES):  # in parts, without a table of all lengths
            longest = max(longest, int(np.diff(self.indptr[start : start + _ENTRIES + 1]).max()))
        return longest

    @property
    def entry_bytes(self) -> int:
        """Bytes of a stored number and its column."""
        return self.data.dtype.itemsize + self.indices.dtype.itemsize

    def read(self, origins: Ints, extent: Extent, out: NDArray[Any]) -> None:
        """Write ``out[i] = the box at origins[i]``; see `oocdata.engines.source.Source.read`."""
        if out.size == 0:
            return
        rows = out.reshape(-1, extent.lengths[1]) if out.flags.c_contiguous else None
        if rows is None:
            out[...] = 0
        start = 0
        for entries in self.boxes(origins, extent):
            stop = start + len(entries.counts)
            if rows is not None:
                _write_rows(entries, rows[start:stop])
            else:
                places = np.divmod(entries.rows(start), extent.lengths[0])
                out[(*places, entries.columns)] = entries.values
            start = stop

    def read_boxes(self, origins: Ints, extent: Extent) -> Iterator[Boxes]:
        """Yield the boxes that are read of `indices` and `data`; reads `indptr`."""
        rows = covered_rows(origins, extent)
        starts = self.indptr[rows]
        for array in (self.indices, self.data):
            yield from boxes_of_runs(array, starts, self.indptr[rows + 1] - starts)

    def boxes(self, origins: Ints, extent: Extent) -> Iterator[Entries]:
        """Yield the entries of boxes; rows are those of all boxes, one box after the other."""
        (length, width), stride = extent.lengths, extent.strides[1]
        rows = covered_rows(origins, extent)
        first = np.repeat(origins[:, 1], length)
        start = 0
        for entries in self._entries_of(rows):
            stop = start + len(entries.counts)
            if width == self.shape[1]:
                yield entries
            else:
                columns = entries.columns - np.repeat(first[start:stop], entries.counts)
                inside = (columns >= 0) & (columns < extent.spans[1])
                if stride > 1:
                    inside &= columns % stride == 0
                    columns //= stride
                yield entries.select(inside, columns)
            start = stop

    def _entries_of(self, rows: Ints) -> Iterator[Entries]:
        """Yield the entries of rows, a limited number at a time."""
        starts = self.indptr[rows]
        lengths = self.indptr[rows + 1] - starts
        for batch in row_batches(lengths, _ENTRIES):
            try:
                yield self._entries(starts[batch], lengths[batch])
            except SourceError as error:
                stops = starts[batch] + lengths[batch]
                error.set_rows(affected_rows(error, rows[batch], starts[batch], stops))
                raise

    def _entries(self, starts: Ints, lengths: Ints) -> Entries:
        """Return the entries of rows, given by their runs."""
        count, width = int(lengths.sum()), self._stored[1]
        columns = empty((count,), self.indices.dtype)
        read_ragged(self.indices, starts, lengths, columns)
        values = empty((count,), self.data.dtype)
        read_ragged(self.data, starts, lengths, values)
        if count and not (columns.min() >= 0 and columns.max() < width):
            outside = columns[(columns < 0) | (columns >= width)]
            raise self._error(f"must have `indices` within [0, {width}); got {outside[0]}")
        if columns.dtype == np.uint64:  # NumPy adds uint64 and int64 as float64
            columns = columns.view(np.int64)
        entries = Entries(lengths, columns, values)
        if self._columns is not None:
            chosen = self._column_of[columns]
            entries = entries.select(chosen >= 0, chosen)
        return _in_order(entries, self.shape[1])

    @cached_property
    def _column_of(self) -> Ints:
        """Position of each stored column among those delivered; -1 for a column that is not."""
        assert self._columns is not None
        table = np.full(self._stored[1], -1, np.int64)
        table[self._columns] = np.arange(len(self._columns))
        return table

    def _error(self, problem: str) -> SourceError:
        storage = self._described
        return SourceError(
            f"a sparse matrix {problem}. Its writer was not done, or wrote another format.",
            path=storage.path,
            key=storage.key,
        )


def _write_rows(entries: Entries, out: NDArray[Any]) -> None:
    """Write entries to dense rows, C-contiguous; a few rows at a time, see `_ROWS_BYTES`."""
    few = max(1, _ROWS_BYTES // (out.shape[1] * out.itemsize))
    ends = np.cumsum(entries.counts)
    begin = 0
    for start in range(0, len(out), few):
        rows, counts = out[start : start + few], entries.counts[start : start + few]
        end = int(ends[start + len(counts) - 1])
        places = np.repeat(np.arange(0, rows.size, rows.shape[1]), counts)
        places += entries.columns[begin:end]
        rows[...] = 0
        rows.reshape(-1)[places] = entries.values[begin:end]
        begin = end


def _in_order(entries: Entries, width: int) -> Entries:
    """Return entries with ascending columns per row; duplicates are summed, as SciPy does."""
    ascends = entries.columns[1:] > entries.columns[:-1]
    starts = np.cumsum(entries.counts[:-1])
    ascends[starts[(starts > 0) & (starts <= len(ascends))] - 1] = True
    if ascends.all():
        return entries
    places = entries.rows() * width + entries.columns
    order = np.argsort(places, kind="stable")
    places, values = places[order], entries.values[order]
    first_of_place = np.flatnonzero(np.diff(places, prepend=-1))
    if len(first_of_place) < len(places):
        values = np.add.reduceat(values, first_of_place, dtype=values.dtype)
    rows, columns = np.divmod(places[first_of_place], width)
    return Entries(np.bincount(rows, minlength=len(entries.counts)), columns, values)
