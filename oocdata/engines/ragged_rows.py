"""Rows of unequal length: a source that says how long each row is, and reads whole rows.

Its array has one axis, of the rows; what a box of it would hold has no one shape, so it is located
(`locate`) and then read, once the caller has memory for as many places as there are. Rows that lie
one after the other in an array (`RaggedRows`) are located by offsets; a format may have its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent
from oocdata.engines.concat import Concat
from oocdata.engines.memory_array import MemoryArray
from oocdata.engines.ragged import (
    concerned_rows,
    read_apart,
    read_bounds,
    read_ragged,
    soon_ragged,
)
from oocdata.engines.soon import Soon
from oocdata.engines.source import Source, Storage
from oocdata.errors import ArgumentError, SourceError
from oocdata.memory import scratch_share
from oocdata.threads import cached_property

__all__ = [
    "Located", "Locating", "RaggedRows", "inner_shape", "is_ragged", "joined", "locate", "read_to",
]  # fmt: skip

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Located:
    """Rows whose lengths are known.

    Attributes
    ----------
    lengths : ndarray of int64, shape (rows,)
        How long each row is.
    dtype : numpy.dtype
        That of the source.
    read : callable
        ``read(firsts, counts, out)`` writes a run of each row, one after the other: the run begins
        at a place of its row, and has so many. `out` has shape (counts.sum(), …), is C-contiguous
        and of `dtype`. It raises `SourceError` when storage can't deliver them.
    soon : callable
        ``soon(firsts, counts)`` returns what `read` will take out of stores.
    shares : sequence of (Located, places)
        Where they are rows of several sources: those of each, and their places among all.
    """

    lengths: Ints
    dtype: np.dtype[Any]
    read: Callable[[Ints, Ints, NDArray[Any]], None]
    soon: Callable[[Ints, Ints], list[Soon]] = lambda _firsts, _counts: []
    shares: Sequence[tuple[Located, Ints]] = ()


class Locating(ABC):
    """A source of rows of unequal length."""

    @property
    @abstractmethod
    def inner(self) -> tuple[int, ...]:
        """Shape of one place of a row."""

    @abstractmethod
    def locate(self, rows: Ints) -> Located:
        """Return rows whose lengths are known; any order, repeats allowed."""

    def read(self, origins: Ints, extent: Extent, out: NDArray[Any]) -> NoReturn:
        """Raise: rows have no one shape."""
        raise ArgumentError("rows of unequal length must be padded to be read as boxes.")


def is_ragged(source: Source) -> bool:
    """Return whether rows of a source are of unequal length, so that `locate` takes it."""
    if isinstance(source, Concat):
        return source.axis == 0 and all(map(is_ragged, source.parts))
    return isinstance(source, Locating)


def inner_shape(source: Source) -> tuple[int, ...]:
    """Return the shape of one place of a row."""
    while isinstance(source, Concat):
        source = source.parts[0]
    assert isinstance(source, Locating)
    return source.inner


def locate(source: Source, rows: Ints) -> Located:
    """Return rows of a source for which `is_ragged` holds.

    Examples
    --------
    >>> from oocdata.engines.memory_array import MemoryArray
    >>> values, offsets = MemoryArray(np.arange(9)), MemoryArray(np.array([0, 3, 3, 9]))
    >>> found = locate(RaggedRows(values, offsets), np.array([2, 1]))
    >>> out = np.empty(2, np.int64)
    >>> found.read(np.array([1, 0]), np.array([2, 0]), out)
    >>> found.lengths, out
    (array([6, 0]), array([4, 5]))
    """
    if isinstance(source, Locating):
        return source.locate(rows)
    assert isinstance(source, Concat)
    shares = [
        (locate(part, within[:, 0]), places)
        for part, places, within in source.shares(rows[:, None])
    ]
    return shares[0][0] if len(shares) == 1 else joined(len(rows), shares)


def read_to(found: Located, firsts: Ints, counts: Ints, out: NDArray[Any], targets: Ints) -> None:
    """Write a run of each row where it goes, converted to the dtype of the memory.

    Parameters
    ----------
    found : Located
    firsts, counts : ndarray of int64, shape (rows,)
        Where the run begins in its row, and its places.
    out : ndarray, shape (n, …)
        C-contiguous.
    targets : ndarray of int64, shape (rows,)
        Where the run begins in `out`.
    """
    for share, places in found.shares:
        read_to(share, firsts[places], counts[places], out, targets[places])
    if found.shares:
        return
    read_apart(partial(found.read, firsts, counts), counts, found.dtype, out, targets)


def joined(count: int, shares: Sequence[tuple[Located, Ints]]) -> Located:
    """Return rows of several sources as one: those of each, and their places among all."""
    lengths = np.zeros(count, np.int64)
    for found, places in shares:
        lengths[places] = found.lengths

    def read(firsts: Ints, counts: Ints, out: NDArray[Any]) -> None:
        targets = np.cumsum(counts) - counts
        for found, at in shares:
            read_to(found, firsts[at], counts[at], out, targets[at])

    def soon(firsts: Ints, counts: Ints) -> list[Soon]:
        return [one for found, at in shares for one in found.soon(firsts[at], counts[at])]

    return Located(lengths, shares[0][0].dtype, read, soon, shares)


@dataclass(frozen=True, eq=False)
class RaggedRows(Locating):
    """Rows that lie one after the other in an array; a `Source`.

    Attributes
    ----------
    values : Source
        Shape (n, …): what all rows hold.
    offsets : Source
        int64, of one axis: where each row begins in `values`, and where the last one ends.
    """

    values: Source
    offsets: Source

    def __reduce__(self) -> tuple[type[RaggedRows], tuple[Source, Source]]:
        return RaggedRows, (self.values, self.offsets)

    @property
    def row_source(self) -> Source:
        """Whose rows these are, however they are read: no two parts of a split share one."""
        return self.offsets

    @property
    def _kept_bytes(self) -> int:
        """Bytes of offsets in a store that are kept; 0 where they don't fit, or are not far."""
        nbytes = self.offsets.shape[0] * self.offsets.dtype.itemsize
        fits = nbytes <= scratch_share() // 4
        return nbytes if fits and self.offsets.storage().is_remote else 0

    @cached_property
    def _begins(self) -> Source:
        """The offsets; those in a store are read once, where they fit into memory for tables.

        Before values can be asked for, they must be there: a round trip for each run of batches.
        """
        if not self._kept_bytes:
            return self.offsets
        found = np.empty(self.offsets.shape, self.offsets.dtype)
        read_ragged(self.offsets, np.zeros(1, np.int64), np.array(self.offsets.shape), found)
        return MemoryArray(found)

    @property
    def shape(self) -> tuple[int, ...]:
        """``(rows,)``."""
        return (self.offsets.shape[0] - 1,)

    @property
    def inner(self) -> tuple[int, ...]:
        """Shape of one place of a row."""
        return self.values.shape[1:]

    @property
    def dtype(self) -> np.dtype[Any]:
        """That of the values."""
        return self.values.dtype

    def storage(self) -> Storage:
        """Return how the values are stored; chunks are as many rows as one holds on average."""
        return self._storage

    @cached_property
    def _storage(self) -> Storage:
        values, offsets = self.values.storage(), self.offsets.storage()
        found = replace(
            values,
            layout=f"rows of unequal length in {values.layout}",
            strides=None,
            parts=(0,),
            part_names=(),
            episodes=False,
            dimensions=(),
            files=tuple(dict.fromkeys((*values.files, *offsets.files))),
            opened=None,
            table_bytes=values.table_bytes + offsets.table_bytes + self._kept_bytes,
            cached_whole=values.cached_whole + offsets.cached_whole,
        )
        rows, stored = self.shape[0], self.values.shape[0]
        if values.chunks is None or not rows or not stored:
            return replace(found, chunks=None)
        # Rows are of unlike lengths, so this is so on average.
        together = min(rows, max(1, round(values.chunks[0] * rows / stored)))
        nbytes = values.chunk_bytes
        if nbytes is None:
            lengths = map(min, values.chunks, self.values.shape)
            nbytes = int(np.prod(list(lengths))) * self.dtype.itemsize
        return replace(found, chunks=(together,), chunk_bytes=nbytes)

    def soon(self, origins: Ints, extent: Extent) -> list[Soon]:
        """Return what reading rows will take out of stores; reads where they begin."""
        found = self.locate(origins[:, 0])
        return found.soon(np.zeros_like(found.lengths), found.lengths)

    def locate(self, rows: Ints) -> Located:
        """Return rows whose lengths are known; see `Locating`."""
        starts, stops = rows, rows
        try:
            if len(rows):
                starts, stops = read_bounds(self._begins, rows, self.values.shape[0])
        except SourceError as error:
            storage = self.values.storage()
            error.path, error.key = storage.path, storage.key
            raise

        def read(firsts: Ints, counts: Ints, out: NDArray[Any]) -> None:
            try:
                read_ragged(self.values, starts + firsts, counts, out)
            except SourceError as error:
                error.concern(concerned_rows(error, rows, starts, stops))
                raise

        def soon(firsts: Ints, counts: Ints) -> list[Soon]:
            return soon_ragged(self.values, starts + firsts, counts)

        return Located(stops - starts, self.dtype, read, soon)
