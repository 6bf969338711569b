"""Rows of sparse matrices as they are stored: indices and values, never made dense."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.datasets.dataset import Draw, fields_of
from oocdata.datasets.request import Request
from oocdata.datasets.spec import ArraySpec
from oocdata.datasets.view import View
from oocdata.engines.columns import read_entries
from oocdata.engines.sparse import Entries
from oocdata.errors import ArgumentError

__all__ = ["Sparse", "SparseBatch", "sparse_rows"]


@dataclass(frozen=True, slots=True, eq=False)
class SparseBatch:
    """Rows of a sparse matrix: the arguments of ``tf.sparse.SparseTensor``.

    Attributes
    ----------
    indices : ndarray of int64, shape (n, 2)
        Row of the batch and column of each number: ascending, each place once.
    values : ndarray, shape (n,)
    shape : tuple of int
        Of the dense array: ``(rows, columns)``.

    Examples
    --------
    >>> batch = SparseBatch(np.array([[0, 2], [1, 0]]), np.array([5, 7]), (2, 3))
    >>> len(batch), batch.dense().tolist()
    (2, [[0, 0, 5], [7, 0, 0]])
    >>> batch[1].dense().tolist()
    [[7, 0, 0]]
    """

    indices: NDArray[np.int64]
    values: NDArray[Any]
    shape: tuple[int, int]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, row: int) -> SparseBatch:
        """Return one row, as a batch of one."""
        return self.rows(row, row + 1)

    def rows(self, start: int, stop: int) -> SparseBatch:
        """Return the rows of a range, copied."""
        first, last = np.searchsorted(self.indices[:, 0], (start, stop))
        indices = self.indices[first:last] - (start, 0)
        return SparseBatch(indices, self.values[first:last].copy(), (stop - start, self.shape[1]))

    def dense(self) -> NDArray[Any]:
        """Return the dense array, shape (rows, columns)."""
        found = np.zeros(self.shape, self.values.dtype)
        found[tuple(self.indices.T)] = self.values
        return found


@dataclass(frozen=True)
class _SparseRequest(Request):
    """Rows wanted of a sparse source, as it stores them."""

    def read(self) -> SparseBatch:
        return self._batch(0, len(self.origins), self._entries())

    def read_parts(self, lengths: list[int], number: int) -> list[Any]:
        found = self._entries()
        stops = np.cumsum(lengths).tolist()
        return [
            self._batch(stop - length, stop, found)
            for length, stop in zip(lengths, stops, strict=True)
        ]

    def _entries(self) -> Entries:
        return read_entries(self.source, self.origins, self.extent)

    def _batch(self, start: int, stop: int, found: Entries) -> SparseBatch:
        first, last = found.places.searchsorted(np.multiply((start, stop), found.width)).tolist()
        part = Entries(found.places[first:last], found.values[first:last], found.width)
        rows, columns = part.rows_and_columns()
        indices = np.empty((last - first, 2), np.int64)
        np.subtract(rows, start, out=indices[:, 0])
        indices[:, 1] = columns
        return SparseBatch(indices, part.values.astype(self.dtype), (stop - start, found.width))


@dataclass(frozen=True, eq=False, repr=False)
class Sparse(View):
    """A view of a sparse matrix, each batch a `SparseBatch`; made by `Dataset.sparse`."""

    def __post_init__(self) -> None:
        if len(self.element) != 1 or self.placement.flipped:
            raise ArgumentError(
                "sparse batches must be of several columns in ascending order; got columns "
                f"{self.cuts[1]}. Choose columns by v[:, a:b] or v[:, [3, 7]]."
            )

    def __repr__(self) -> str:
        return f"<Sparse: {len(self)} rows of {self.element} {self.dtype}>"

    @cached_property
    def spec(self) -> ArraySpec:
        """Shape and dtype of a dense row."""
        return ArraySpec(self.element, self.dtype, sparse=True)

    @property
    def is_sparse(self) -> bool:
        """True."""
        return True

    def __getitem__(self, key: Any) -> Any:
        """Read one row as a batch of one, or select and cut without reading."""
        return self.take([key])[0] if type(key) is int else super().__getitem__(key)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Raise: an array is dense."""
        raise ArgumentError(f"an array must be made of dense rows; got {self!r}.")

    def requests(self, positions: NDArray[np.int64], draw: Draw) -> tuple[Request, ...]:
        """Return the rows at positions."""
        (one,) = super().requests(positions, draw)
        return (_SparseRequest(**fields_of(one)),)


def sparse_rows(view: View) -> Sparse:
    """Return rows of a sparse matrix as they are stored; see `Dataset.sparse`.

    Raises
    ------
    oocdata.errors.ArgumentError
        If its columns are reversed or but one.
    """
    return Sparse(**fields_of(view))
