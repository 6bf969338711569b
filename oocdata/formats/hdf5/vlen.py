"""Numbers in rows of varying length, which HDF5 keeps in a heap; a dataset says where and how many.

The rows are read through HDF5, which alone finds them. How long they are needs no heap: what the
dataset holds for a row begins with its length (HDF5 File Format Specification, version 3.0, "Data
Type - Variable-Length", "Global Heap ID").
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent
from oocdata.engines.ragged import pieces
from oocdata.engines.source import Source, Storage
from oocdata.errors import ArgumentError, SourceError
from oocdata.formats.hdf5.library import OnDisk, UsersObject
from oocdata.formats.hdf5.varying import lengths_of, read_heap

__all__ = ["VaryingNumbers"]

Ints = NDArray[np.int64]

_PIECE = 4 << 20
"""Bytes of rows that are read at a time, unless a row is larger."""

_ROWS = 1 << 16
"""Rows whose lengths are looked at together."""


class VaryingNumbers:
    """Rows of varying length of one dataset; a `Source` that is located.

    Parameters
    ----------
    target : OnDisk or UsersObject
        Of one axis.
    stored : Source, optional
        The dataset as `REFERENCE`. Without it, lengths are found by reading all rows.
    storage : Storage
    """

    inner: tuple[int, ...] = ()
    """A place of a row is a number."""

    def __init__(
        self, target: OnDisk | UsersObject, stored: Source | None, storage: Storage
    ) -> None:
        self.target, self._stored, self._storage = target, stored, storage
        self.shape, self.dtype = target.shape, target.dtype
        self._lengths: NDArray[np.uint32] | None = None

    def __reduce__(self) -> Any:
        return VaryingNumbers, (self.target, self._stored, self._storage)

    def storage(self) -> Storage:
        """Return how the dataset is stored."""
        return self._storage

    def read(self, origins: Ints, extent: Extent, out: NDArray[Any]) -> NoReturn:
        """Raise: rows have no one shape."""
        raise ArgumentError("rows of unequal length must be padded to be read as boxes.")

    def locate(self, rows: Ints) -> _Rows:
        """Return rows whose lengths are known; all lengths are read the first time."""
        # Not a cached property, whose lock a thread may hold when the process is forked.
        if isinstance(self.target, UsersObject):  # anybody may write to it
            return _Rows(self, rows, np.array(list(map(len, self._arrays(rows))), np.int64))
        if self._lengths is None:
            self._lengths = self._read_lengths()
        return _Rows(self, rows, self._lengths[rows].astype(np.int64))

    def _read_lengths(self) -> NDArray[np.uint32]:
        (count,) = self.shape
        if self._stored is not None:
            some = list(lengths_of(self._stored))
        else:
            rows = (np.arange(start, min(start + _ROWS, count)) for start in range(0, count, _ROWS))
            some = [np.array(list(map(len, self._arrays(few))), np.uint32) for few in rows]
        return np.concatenate(some) if some else np.empty(0, np.uint32)

    def _arrays(self, rows: Ints) -> list[NDArray[Any]]:
        """Return the arrays that HDF5 makes of rows."""
        return read_heap(self.target, rows[:, None])


class _Rows:
    """Some of the rows, whose lengths are known."""

    def __init__(self, source: VaryingNumbers, rows: Ints, lengths: Ints) -> None:
        self._source, self._rows, self.lengths = source, rows, lengths
        self.dtype = source.dtype

    def read(self, firsts: Ints, counts: Ints, out: NDArray[Any]) -> None:
        """Write a run of each row, one after the other."""
        own = np.flatnonzero(counts)
        if not len(own):
            return
        rows, firsts, lengths, counts = (
            each[own] for each in (self._rows, firsts, self.lengths, counts)
        )
        done = 0
        for some in pieces(lengths * out.itemsize, _PIECE):
            arrays = self._source._arrays(rows[some])
            wrong = np.array([len(array) for array in arrays]) != lengths[some]
            if wrong.any():
                storage = self._source.storage()
                raise SourceError(
                    "rows must be as long as the dataset says; some are not. They are damaged, or "
                    "were written over.",
                    path=storage.path,
                    key=storage.key,
                    rows=rows[some][wrong],
                )
            runs = zip(arrays, firsts[some].tolist(), counts[some].tolist(), strict=True)
            parts = [array[first : first + count] for array, first, count in runs]
            before, done = done, done + int(counts[some].sum())
            np.concatenate(parts, out=out[before:done])
