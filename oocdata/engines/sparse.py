"""Rows of a sparse matrix that is stored by rows (CSR), read as boxes of a dense array.

Three 1-D arrays hold the matrix: the numbers of row r, and their columns, are the runs
``indptr[r] : indptr[r + 1]`` of `data` and `indices`. Both are ordinary sources of the other
engines, so caching, decoding in threads and noticing that a file has changed are theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent
from oocdata.engines.buffers import empty
from oocdata.engines.ragged import concerned_rows, pieces, read_ragged, soon_ragged
from oocdata.engines.soon import Soon
from oocdata.engines.source import Source, Storage
from oocdata.errors import SourceError
from oocdata.threads import cached_property

__all__ = ["Entries", "SparseRows"]

Ints = NDArray[np.int64]

_ENTRIES = 1 << 17
"""Numbers that are read at a time: what is computed of them stays small, and in the cache."""

_PLACE_BYTES = 16
"""Of the place in the batch that is computed for a stored number, and of what tells its order."""


@dataclass(frozen=True, slots=True)
class Entries:
    """Stored numbers of rows, one row after the other; its columns ascend, each once.

    Attributes
    ----------
    counts : ndarray of int64, shape (rows,)
        How many numbers each row has.
    columns : ndarray of int, shape (n,)
        Of any dtype that int64 holds.
    values : ndarray, shape (n,)
    """

    counts: Ints
    columns: NDArray[Any]
    values: NDArray[Any]

    def rows(self, first: int = 0) -> Ints:
        """Return the row of each number, counted from `first`."""
        return np.repeat(np.arange(first, first + len(self.counts)), self.counts)

    def kept(self, which: NDArray[np.bool_], columns: NDArray[Any]) -> Entries:
        """Return some of the numbers, in other columns."""
        ends = np.cumsum(self.counts)
        before = np.concatenate(([0], np.cumsum(which)))
        counts = before[ends] - before[ends - self.counts]
        return Entries(counts, columns[which], self.values[which])


class SparseRows:
    """A matrix in the compressed sparse row format; a `oocdata.engines.source.Source`.

    Parameters
    ----------
    data, indices, indptr : Source
        Of one axis.
    shape : tuple of int
        ``(rows, columns)``.
    storage : Storage
        How the matrix is stored, but for its blocks and tables.
    columns : ndarray of int64, optional
        Only these columns, each once, in this order; by default all.

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
        self.data, self.indices, self._ends = data, indices, indptr
        self._stored, self._described, self._columns = shape, storage, columns
        self._begins: Ints | None = None
        self.shape = shape if columns is None else (shape[0], len(columns))
        self.dtype = data.dtype
        lengths = [source.shape for source in (data, indices, indptr)]
        whole = [source.dtype.kind in "iu" for source in (indices, indptr)]
        if lengths[0] != lengths[1] or lengths[2] != (shape[0] + 1,) or not all(whole):
            raise self._wrong(
                f"must hold `data` and `indices` of one length, and {shape[0] + 1} `indptr`, whole "
                f"numbers the last two; got shapes {', '.join(map(str, lengths))} and dtypes "
                f"{indices.dtype}, {indptr.dtype}"
            )

    def __reduce__(self) -> Any:
        arrays = self.data, self.indices, self._ends
        return SparseRows, (*arrays, self._stored, self._described, self._columns)

    def with_columns(self, columns: Ints) -> SparseRows:
        """Return the matrix of some columns, each once, in this order."""
        arrays = self.data, self.indices, self._ends
        return SparseRows(*arrays, self._stored, self._described, columns)

    def storage(self) -> Storage:
        """Return how the matrix is stored: its chunks are as many rows as one of `data` holds."""
        return self._storage

    @cached_property
    def _storage(self) -> Storage:
        each = [source.storage() for source in (self.data, self.indices, self._ends)]
        chunks = [one.chunks[0] for one in each[:2] if one.chunks is not None]
        tables = 8 * (self._stored[0] + 1) + sum(one.table_bytes for one in each)
        rows, stored = self._stored[0], self.data.shape[0]
        # The numbers read at a time, with a last row that reaches beyond, and where they go.
        scratch = (min(_ENTRIES, stored) + self._stored[1]) * (self.entry_bytes + _PLACE_BYTES)
        storage = replace(self._described, table_bytes=tables, scratch_bytes=scratch)
        if not chunks or not rows or not stored:
            return storage
        # Rows are of unlike lengths, so this is so on average.
        mean, entries = stored / rows, min(stored, max(chunks))
        nbytes = max(entries, mean) * self.entry_bytes
        together = min(rows, max(1, round(entries / mean)))
        chunk = (together, max(1, self.shape[1]))
        return replace(storage, chunks=chunk, chunk_bytes=round(nbytes))

    @property
    def indptr(self) -> Ints:
        """Where each row begins in `data`, and the end; read once.

        Raises
        ------
        oocdata.errors.SourceError
            If they don't ascend from 0 to the length of `data`.
        """
        # Not a cached property, whose lock a thread may hold when the process is forked.
        if self._begins is not None:
            return self._begins
        found = np.empty(self._stored[0] + 1, np.int64)
        self._ends.read(np.zeros((1, 1), np.int64), Extent.of(found.shape), found[None])
        if found[0] != 0 or found[-1] != self.data.shape[0] or (found[1:] < found[:-1]).any():
            raise self._wrong(
                f"must have an `indptr` that ascends from 0 to {self.data.shape[0]}, the length of "
                f"`data`; got {found[0]} to {found[-1]}, "
                f"{np.count_nonzero(found[1:] < found[:-1])} of them less than the one before"
            )
        found.flags.writeable = False
        self._begins = found
        return found

    @property
    def longest(self) -> int:
        """Stored numbers of a row, at most."""
        found, last = 0, self._stored[0]
        for start in range(0, last, _ENTRIES):  # a part at a time: a table would be as long again
            found = max(found, int(np.diff(self.indptr[start : start + _ENTRIES + 1]).max()))
        return found

    @property
    def entry_bytes(self) -> int:
        """Of a stored number and its column."""
        return self.data.dtype.itemsize + self.indices.dtype.itemsize

    def read(self, origins: Ints, extent: Extent, out: NDArray[Any]) -> None:
        """Write ``out[i] = the box at origins[i]``; see `oocdata.engines.source.Source.read`."""
        if out.size == 0:
            return
        out[...] = 0
        start = 0
        for found in self.boxes(origins, extent):
            rows = found.rows(start)
            if out.flags.c_contiguous:
                rows *= extent.lengths[1]
                rows += found.columns
                out.reshape(-1)[rows] = found.values
            else:
                out[(*np.divmod(rows, extent.lengths[0]), found.columns)] = found.values
            start += len(found.counts)

    def soon(self, origins: Ints, extent: Extent) -> list[Soon]:
        """Return what reading boxes will take out of stores; reads where rows begin."""
        rows = _rows(origins, extent)
        starts = self.indptr[rows]
        runs = starts, self.indptr[rows + 1] - starts
        return [one for part in (self.indices, self.data) for one in soon_ragged(part, *runs)]

    def boxes(self, origins: Ints, extent: Extent) -> Iterator[Entries]:
        """Yield the entries of boxes: the rows are those of all boxes, one after the other."""
        (length, width), stride = extent.lengths, extent.strides[1]
        rows = _rows(origins, extent)
        first = np.repeat(origins[:, 1], length)
        start = 0
        for found in self._entries_of(rows):
            stop = start + len(found.counts)
            if width == self.shape[1]:
                yield found
            else:
                columns = found.columns - np.repeat(first[start:stop], found.counts)
                inside = (columns >= 0) & (columns < extent.spans[1])
                if stride > 1:
                    inside &= columns % stride == 0
                    columns //= stride
                yield found.kept(inside, columns)
            start = stop

    def _entries_of(self, rows: Ints) -> Iterator[Entries]:
        """Yield the entries of rows, some rows at a time."""
        starts = self.indptr[rows]
        lengths = self.indptr[rows + 1] - starts
        for some in pieces(lengths, _ENTRIES):
            try:
                yield self._entries(starts[some], lengths[some])
            except SourceError as error:
                stops = starts[some] + lengths[some]
                error.concern(concerned_rows(error, rows[some], starts[some], stops))
                raise

    def _entries(self, starts: Ints, lengths: Ints) -> Entries:
        """Return the entries of rows by their runs."""
        count, width = int(lengths.sum()), self._stored[1]
        columns = empty((count,), self.indices.dtype)
        read_ragged(self.indices, starts, lengths, columns)
        values = empty((count,), self.data.dtype)
        read_ragged(self.data, starts, lengths, values)
        if count and not (columns.min() >= 0 and columns.max() < width):
            wrong = columns[(columns < 0) | (columns >= width)]
            raise self._wrong(f"must have `indices` within [0, {width}); got {wrong[0]}")
        if columns.dtype == np.uint64:  # which NumPy adds to no int64
            columns = columns.view(np.int64)
        found = Entries(lengths, columns, values)
        if self._columns is not None:
            chosen = self._column_of[columns]
            found = found.kept(chosen >= 0, chosen)
        return _in_order(found, self.shape[1])

    @cached_property
    def _column_of(self) -> Ints:
        """The place of each stored column among those chosen; -1 for one that is not."""
        assert self._columns is not None
        table = np.full(self._stored[1], -1, np.int64)
        table[self._columns] = np.arange(len(self._columns))
        return table

    def _wrong(self, what: str) -> SourceError:
        where = self._described
        return SourceError(
            f"a sparse matrix {what}. Its writer was not done, or wrote another format.",
            path=where.path,
            key=where.key,
        )


def _rows(origins: Ints, extent: Extent) -> Ints:
    """Return the rows of boxes, those of one box after those of another."""
    rows: Ints = (origins[:, :1] + np.arange(extent.lengths[0]) * extent.strides[0]).ravel()
    return rows


def _in_order(found: Entries, width: int) -> Entries:
    """Return entries whose columns ascend in each row; those of one place summed, as SciPy does."""
    ascends = found.columns[1:] > found.columns[:-1]
    starts = np.cumsum(found.counts[:-1])
    ascends[starts[(starts > 0) & (starts <= len(ascends))] - 1] = True
    if ascends.all():
        return found
    places = found.rows() * width + found.columns
    order = np.argsort(places, kind="stable")
    places, values = places[order], found.values[order]
    firsts = np.flatnonzero(np.diff(places, prepend=-1))
    if len(firsts) < len(places):
        values = np.add.reduceat(values, firsts, dtype=values.dtype)
    rows, columns = np.divmod(places[firsts], width)
    return Entries(np.bincount(rows, minlength=len(found.counts)), columns, values)
