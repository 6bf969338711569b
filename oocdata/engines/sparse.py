"""Read rows of a sparse matrix in the CSR format, as stored or as boxes of a dense array.

Three 1-D arrays store the matrix: the numbers of row r and their columns are the runs
``indptr[r]:indptr[r + 1]`` of `data` and `indices`. These are ordinary sources of the other
engines, which cache, decode in threads and detect changed files.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent, Ints, covered_rows, split_into_points
from oocdata.engines.buffers import empty_rows
from oocdata.engines.copying import read_all
from oocdata.engines.ragged import affected_rows, boxes_of_runs, read_ragged, row_batches
from oocdata.engines.source import Boxes, Source, Storage, WithStorage
from oocdata.errors import SourceError
from oocdata.threads import cached_property

_ENTRIES = 1 << 18
"""Numbers that are read at a time to fill dense rows or to select columns: few, so that they, and
all that is computed of them, stay in the processor's cache. All at once, 500 of 5,000 columns take
1.6 times the processor time."""

_PLACE_BYTES = 16
"""Bytes per stored number for its position in the batch, and for a flag of its order."""


@dataclass(frozen=True, slots=True)
class Entries:
    """Stored numbers of rows, one row after the other, by ascending column without duplicates."""

    counts: Ints  # of each row
    columns: NDArray[Any]  # integers that int64 can hold
    values: NDArray[Any]

    def rows(self) -> Ints:
        """Return the row of each number, counted from the first of these."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    def select(self, mask: NDArray[np.bool_], columns: NDArray[Any]) -> Entries:
        """Return the selected numbers, with `columns` in place of theirs."""
        ends = np.cumsum(self.counts)
        before = np.concatenate(([0], np.cumsum(mask)))
        counts = before[ends] - before[ends - self.counts]
        return Entries(counts, columns[mask], self.values[mask])

    def cut(self, firsts: Ints, extent: Extent) -> Entries:
        """Return the numbers within boxes of one row each, which begin at the columns `firsts`."""
        columns = self.columns - np.repeat(firsts, self.counts)
        steps, rest = np.divmod(columns, extent.strides[1])
        return self.select((columns >= 0) & (rest == 0) & (steps < extent.lengths[1]), steps)


class SparseBoxes(ABC):
    """A source of dense boxes of a matrix of sparse rows."""

    shape: Any
    dtype: Any

    @property
    def column_of(self) -> Ints | None:
        """Position of each stored column among the delivered, -1 for others; None if all are."""
        return None

    @abstractmethod
    def matrices(self, rows: Ints) -> Iterator[tuple[SparseRows, Ints, Ints]]:
        """Yield the matrices that have rows; the places of these among all, and in the matrix."""

    def pieces(self, origins: Ints, extent: Extent) -> Iterator[tuple[Entries, Ints]]:
        """Yield entries of some of the boxes, of one row each, and the numbers of the boxes."""
        # By the length of each row: by that of the longest, batches of 20,000 genes take 1.3 to 1.6
        # times the processor time.
        for matrix, places, rows in self.matrices(origins[:, 0]):
            for part in row_batches(matrix.counts(rows), _ENTRIES):
                numbers = places[part]
                entries = matrix.entries(rows[part], self.column_of)
                if extent.lengths[1] < self.shape[1]:
                    entries = entries.cut(origins[numbers, 1], extent)
                yield entries, numbers

    def read(self, origins: Ints, extent: Extent, out: NDArray[Any]) -> None:
        if out.size == 0:
            return
        length, width = extent.lengths
        dense = out.reshape(-1, width) if out.flags.c_contiguous else None
        if dense is None:
            out[...] = 0
        for entries, numbers in self.pieces(*split_into_points(origins, extent, 0)):
            if dense is not None:
                _write_rows(entries, dense, numbers)
            else:
                boxes, rows = np.divmod(np.repeat(numbers, entries.counts), length)
                out[boxes, rows, entries.columns] = entries.values


@dataclass(frozen=True, eq=False)
class SparseRows(WithStorage, SparseBoxes):
    """A matrix in the compressed sparse row format, of shape ``(rows, columns)``; a `Source`.

    `described` is how it is stored, without chunks and tables. Raises `SourceError` if the three
    arrays can't be those of such a matrix.
    """

    data: Source
    indices: Source
    pointers: Source  # `indptr`
    shape: tuple[int, int]
    described: Storage

    def __post_init__(self) -> None:
        arrays = self.data, self.indices, self.pointers
        count = self.shape[0] + 1
        shapes = [source.shape for source in arrays]
        integers = all(source.dtype.kind in "iu" for source in arrays[1:])
        if shapes[0] != shapes[1] or shapes[2] != (count,) or not integers:
            raise self._error(
                f"must hold `data` and `indices` of one length, and {count} `indptr`, with integer "
                f"`indices` and `indptr`; got shapes {', '.join(map(str, shapes))} and dtypes "
                f"{self.indices.dtype}, {self.pointers.dtype}"
            )

    def __reduce__(self) -> Any:  # without `indptr`
        arrays = self.data, self.indices, self.pointers
        return SparseRows, (*arrays, self.shape, self.described)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.data.dtype

    @property
    def entry_bytes(self) -> int:
        """Bytes of a stored number and its column."""
        return self.data.dtype.itemsize + self.indices.dtype.itemsize

    @cached_property
    def _storage(self) -> Storage:
        """How the matrix is stored; a chunk is the average number of rows per chunk."""
        (rows, columns), stored = self.shape, self.data.shape[0]
        storages = [source.storage() for source in (self.data, self.indices, self.pointers)]
        # Numbers read at a time, with a last row that exceeds the limit, and their positions.
        scratch = (min(_ENTRIES, stored) + columns) * (self.entry_bytes + _PLACE_BYTES)
        tables = 8 * (rows + 1) + sum(part.table_bytes for part in storages)
        storage = replace(self.described, table_bytes=tables, scratch_bytes=scratch)
        chunks = [part.chunks[0] for part in storages[:2] if part.chunks is not None]
        if not chunks or not rows or not stored:
            return storage
        # Averages, because the lengths of rows differ.
        mean, entries = stored / rows, min(stored, max(chunks))
        chunk = (min(rows, max(1, round(entries / mean))), max(1, columns))
        nbytes = round(max(entries, mean) * self.entry_bytes)
        return replace(storage, chunks=chunk, chunk_bytes=nbytes)

    @cached_property
    def indptr(self) -> Ints:
        """Position in `data` at which each row begins, and the end of the last; read once.

        Raises `SourceError` if the numbers don't ascend from 0 to the length of `data`.
        """
        bounds: Ints = read_all(self.pointers).astype(np.int64, copy=False)
        if bounds[0] != 0 or bounds[-1] != self.data.shape[0] or (bounds[1:] < bounds[:-1]).any():
            raise self._error(
                f"must have an `indptr` that ascends from 0 to {self.data.shape[0]}, the length of "
                f"`data`; got {bounds[0]} to {bounds[-1]}, "
                f"{np.count_nonzero(bounds[1:] < bounds[:-1])} of them less than the one before"
            )
        bounds.flags.writeable = False
        return bounds

    @cached_property
    def longest(self) -> int:
        """Stored numbers of the longest row."""
        starts = range(0, self.shape[0], _ENTRIES)  # in parts, without a table of all lengths
        parts = (self.indptr[start : start + _ENTRIES + 1] for start in starts)
        return max((int(np.diff(part).max()) for part in parts), default=0)

    def read_boxes(self, origins: Ints, extent: Extent) -> Iterator[Boxes]:
        """Yield the boxes that are read of `indices` and `data`; reads `indptr`."""
        rows = covered_rows(origins, extent)
        starts = self.indptr[rows]
        for array in (self.indices, self.data):
            yield from boxes_of_runs(array, starts, self.indptr[rows + 1] - starts)

    def matrices(self, rows: Ints) -> Iterator[tuple[SparseRows, Ints, Ints]]:
        yield self, np.arange(len(rows)), rows

    def counts(self, rows: Ints) -> Ints:
        """Return how many numbers of each row are stored, of all columns."""
        return self.indptr[rows + 1] - self.indptr[rows]

    def entries(self, rows: Ints, column_of: Ints | None = None) -> Entries:
        """Read rows as stored; `column_of` maps stored to delivered columns, -1 for others."""
        starts, stops = self.indptr[rows], self.indptr[rows + 1]
        count = int((stops - starts).sum())
        columns, values = (empty_rows((count,), array.dtype) for array in (self.indices, self.data))
        try:
            read_ragged(self.indices, starts, stops - starts, columns)
            read_ragged(self.data, starts, stops - starts, values)
            if count and not (columns.min() >= 0 and columns.max() < self.shape[1]):
                outside = columns[(columns < 0) | (columns >= self.shape[1])]
                raise self._error(
                    f"must have `indices` within [0, {self.shape[1]}); got {outside[0]}"
                )
        except SourceError as error:
            error.set_rows(affected_rows(error, rows, starts, stops))
            raise
        if columns.dtype == np.uint64:  # NumPy adds uint64 and int64 as float64
            columns = columns.view(np.int64)
        entries = Entries(stops - starts, columns, values)
        if column_of is not None:
            chosen = column_of[columns]
            entries = entries.select(chosen >= 0, chosen)
        return _in_order(entries, self.shape[1])

    def _error(self, problem: str) -> SourceError:
        return SourceError(
            f"a sparse matrix {problem}. Its writer was not done, or wrote another format.",
            path=self.described.path,
            key=self.described.key,
        )


def _write_rows(entries: Entries, out: NDArray[Any], numbers: Ints) -> None:
    """Write entries to dense rows of these numbers, which ascend, of a C-contiguous array."""
    adjacent = numbers[-1] - numbers[0] == len(numbers) - 1
    out[slice(numbers[0], numbers[-1] + 1) if adjacent else numbers] = 0
    places = np.repeat(numbers * out.shape[1], entries.counts)
    places += entries.columns
    out.reshape(-1)[places] = entries.values


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
