"""Select columns of sparse rows, and read sparse rows as stored, from one file or several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent, Ints
from oocdata.engines.buffers import empty
from oocdata.engines.concat import Concat
from oocdata.engines.ragged import copy_runs
from oocdata.engines.source import Source, Storage
from oocdata.engines.sparse import Entries, SparseRows
from oocdata.engines.wrapped import Wrapped
from oocdata.errors import ArgumentError
from oocdata.threads import cached_property

__all__ = [
    "Columns", "entry_bytes", "is_sparse", "joined_names", "most_entries", "read_entries",
    "reorder_entries", "select_columns",
]  # fmt: skip

ColumnNames: TypeAlias = Callable[[], NDArray[Any] | None]


@dataclass(frozen=True, eq=False)
class Columns(Wrapped):
    """Selected columns of sparse rows, of one file or of several end to end.

    Attributes
    ----------
    places : ndarray of int64, shape (columns,)
        Columns of the source, distinct, in order.
    """

    places: Ints

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape, ``(rows, columns)``."""
        return self.inner.shape

    def storage(self) -> Storage:
        """Return how the array is stored."""
        storage = self.inner.storage()
        return replace(storage, opened=None, columns=joined_names([(storage, self.places)]))

    def read(self, origins: Ints, extent: Extent, out: NDArray[Any]) -> None:
        """Write ``out[i] = the box at origins[i]``; see `oocdata.engines.source.Source.read`."""
        self.inner.read(origins, extent, out)

    @cached_property
    def inner(self) -> Source:
        """The source reduced to these columns."""
        return _with_columns(self.source, self.places)


def is_sparse(source: Source) -> bool:
    """Return whether `read_entries` can read a source."""
    if isinstance(source, Concat):
        return source.axis == 0 and all(map(is_sparse, source.parts))
    return isinstance(source, SparseRows | Columns)


def joined_names(parts: Sequence[tuple[Storage, Iterable[int]]]) -> ColumnNames | None:
    """Return a function that reads the names of columns of arrays, one array after the other.

    None if an array has none. `parts` are arrays and the places of their columns.
    """
    named = [(storage.columns, places) for storage, places in parts if storage.columns is not None]
    return partial(_names, named) if len(named) == len(parts) else None


def _names(parts: Sequence[tuple[ColumnNames, Iterable[int]]]) -> NDArray[Any] | None:
    arrays = {columns for columns, _ in parts}  # an array of which several runs are selected: once
    read = {columns: columns() for columns in arrays}
    names = []
    for columns, places in parts:
        known, chosen = read[columns], np.fromiter(places, np.int64)
        if known is None or chosen.max(initial=-1) >= len(known):
            return None
        names.append(known[chosen])
    return np.concatenate(names)


def _with_columns(source: Source, places: Ints) -> Source:
    """Return a source of selected columns."""
    if isinstance(source, SparseRows):
        return source.with_columns(places)
    assert isinstance(source, Concat)
    return source.with_parts([_with_columns(part, places) for part in source.parts])


def _matrices(source: Source) -> Iterator[SparseRows]:
    """Yield the matrices of a sparse source."""
    if isinstance(source, SparseRows):
        yield source
    elif isinstance(source, Columns):
        yield from _matrices(source.source)
    elif isinstance(source, Concat):
        for part in source.parts:
            yield from _matrices(part)


def most_entries(source: Source) -> int:
    """Return the maximum number of stored values of a row, before columns are selected."""
    return max(matrix.longest for matrix in _matrices(source))


def entry_bytes(source: Source) -> int:
    """Return the bytes of a stored value and its column index, as they are read."""
    return max(matrix.entry_bytes for matrix in _matrices(source))


def read_entries(source: Source, origins: Ints, extent: Extent) -> list[Entries]:
    """Return the stored values of rows or parts of rows, in order, in one or several pieces.

    Parameters
    ----------
    source : Source
        A sparse source; see `is_sparse`.
    origins : ndarray of int64, shape (n, 2)
    extent : Extent
        With length 1 along axis 0.

    Raises
    ------
    oocdata.errors.SourceError
        If storage can't deliver them.
    """
    if isinstance(source, Columns):
        return read_entries(source.inner, origins, extent)
    if isinstance(source, SparseRows):
        return list(source.boxes(origins, extent))
    assert isinstance(source, Concat)
    parts, rows = [], []
    for part, boxes, moved in source.shares(origins):
        parts += read_entries(part, moved, extent)
        rows.append(boxes)
    return reorder_entries(parts, rows, source.dtype)


def reorder_entries(
    parts: list[Entries], places: Sequence[Ints], dtype: np.dtype[Any]
) -> list[Entries]:
    """Return entries reordered, with row i of all parts at row i of all places."""
    rows = np.concatenate(places) if places else np.empty(0, np.int64)
    if (rows[1:] > rows[:-1]).all():
        return parts
    counts = np.empty_like(rows)
    counts[rows] = np.concatenate([part.counts for part in parts])
    targets, total = (np.cumsum(counts) - counts)[rows], int(counts.sum())
    column_dtype = np.result_type(*(part.columns.dtype for part in parts))
    entries = Entries(counts, empty((total,), column_dtype), empty((total,), dtype))
    first = 0
    for part in parts:
        starts, at = np.cumsum(part.counts) - part.counts, targets[first:][: len(part.counts)]
        for read, out in ((part.columns, entries.columns), (part.values, entries.values)):
            copy_runs(read.astype(out.dtype, copy=False), starts, out, at, part.counts)
        first += len(part.counts)
    return [entries]


def select_columns(source: Source, axis: int, places: Ints) -> Source | None:
    """Return a source of selected columns; None if `source` is not sparse or `axis` is not 1.

    Raises
    ------
    oocdata.errors.ArgumentError
        If a column is selected twice.
    """
    if axis != 1 or not is_sparse(source):
        return None
    if len(np.unique(places)) < len(places):
        raise ArgumentError(
            "columns of sparse rows must be chosen once each; got some more often. Repeat them in "
            "`.map`."
        )
    if isinstance(source, Columns):
        return Columns(source.source, source.places[places])
    return Columns(source, places)
