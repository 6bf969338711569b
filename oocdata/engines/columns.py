"""Select columns of sparse rows, and read sparse rows as stored, from one file or several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent, Ints
from oocdata.engines.buffers import empty_rows
from oocdata.engines.concat import Concat
from oocdata.engines.ragged import copy_runs
from oocdata.engines.source import Source, Storage
from oocdata.engines.sparse import Entries, SparseBoxes, SparseRows
from oocdata.engines.wrapped import Wrapped
from oocdata.errors import ArgumentError
from oocdata.threads import cached_property

ColumnNames: TypeAlias = Callable[[], NDArray[Any] | None]


@dataclass(frozen=True, eq=False)
class Columns(SparseBoxes, Wrapped):
    """Selected columns of sparse rows, of one file or of several end to end.

    `places` (int64) are distinct columns of the source, in order.
    """

    places: Ints

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.source.shape[0], len(self.places))

    def storage(self) -> Storage:
        stored = self.source.storage()
        chunks = stored.chunks and (stored.chunks[0], max(1, len(self.places)))
        names = chosen_names(stored.columns, self.places)
        return replace(stored, chunks=chunks, opened=None, columns=names)

    def matrices(self, rows: Ints) -> Iterator[tuple[SparseRows, Ints, Ints]]:
        if isinstance(self.source, SparseRows):
            yield from self.source.matrices(rows)
            return
        for part, places, within in cast(Concat, self.source).shares(rows[:, None]):
            yield cast(SparseRows, part), places, within[:, 0]

    @cached_property
    def column_of(self) -> Ints:
        table = np.full(self.source.shape[1], -1, np.int64)
        table[self.places] = np.arange(len(self.places))
        return table


def is_sparse(source: Source) -> bool:
    """Return whether `read_entries` can read a source."""
    if isinstance(source, Concat):
        return source.axis == 0 and all(map(is_sparse, source.parts))
    return isinstance(source, SparseBoxes)


def chosen_names(names: ColumnNames | None, places: Iterable[int]) -> ColumnNames | None:
    """Return a function that reads the names of chosen columns, from one that reads all."""
    return names and partial(_chosen_names, names, places)


def _chosen_names(names: ColumnNames, places: Iterable[int]) -> NDArray[Any] | None:
    known, chosen = names(), np.fromiter(places, np.int64)
    return None if known is None or chosen.max(initial=-1) >= len(known) else known[chosen]


def matrices_of(source: Source) -> Iterator[SparseRows]:
    """Yield the matrices of a sparse source."""
    if isinstance(source, SparseRows):
        yield source
    elif isinstance(source, Columns):
        yield from matrices_of(source.source)
    elif isinstance(source, Concat):
        for part in source.parts:
            yield from matrices_of(part)


def read_entries(source: Source, origins: Ints, extent: Extent) -> Entries:
    """Return the stored values of rows or parts of rows, in order, of a source that `is_sparse`.

    `extent` has length 1 along axis 0.
    """
    if isinstance(source, Concat):
        shares = source.shares(origins)
        parts = [(read_entries(part, within, extent), places) for part, places, within in shares]
        return join_entries(parts, source.dtype)
    if isinstance(source, SparseRows) and extent.lengths[1] == source.shape[1]:
        return source.entries(origins[:, 0])  # at once: nothing is computed of them
    assert isinstance(source, SparseBoxes)
    return join_entries(list(source.pieces(origins, extent)), source.dtype)


def join_entries(parts: Sequence[tuple[Entries, Ints]], dtype: np.dtype[Any]) -> Entries:
    """Return the rows of several parts, each with the places of its rows among all, as one."""
    if len(parts) == 1:
        return parts[0][0]
    counts = np.empty(sum(len(places) for _, places in parts), np.int64)
    for part, places in parts:
        counts[places] = part.counts
    targets, total = np.cumsum(counts) - counts, int(counts.sum())
    column_dtype = np.result_type(np.int32, *(part.columns.dtype for part, _ in parts))
    entries = Entries(counts, empty_rows((total,), column_dtype), empty_rows((total,), dtype))
    for part, places in parts:
        starts = np.cumsum(part.counts) - part.counts
        for read, out in ((part.columns, entries.columns), (part.values, entries.values)):
            copy_runs(read.astype(out.dtype, copy=False), starts, out, targets[places], part.counts)
    return entries


def select_columns(source: Source, places: Ints) -> Source:
    """Return selected columns of a sparse source; raise `ArgumentError` if one is repeated."""
    if len(np.unique(places)) < len(places):
        raise ArgumentError(
            "columns of sparse rows must be chosen once each; got some more often. Repeat them in "
            "`.map`."
        )
    if isinstance(source, Columns):
        return Columns(source.source, source.places[places])
    return Columns(source, places)
