"""Define sparse batches: rows of sparse matrices as indices and values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from oocdata.box import Ints
from oocdata.datasets.multi_array import MultiArrayBatch, MultiArrayView, aligned_length, allocate
from oocdata.datasets.request import Request
from oocdata.datasets.spec import ArraySpec
from oocdata.engines.columns import join_entries, matrices_of, read_entries
from oocdata.errors import ArgumentError
from oocdata.threads import cached_property


@dataclass(frozen=True, slots=True, eq=False)
class SparseBatch(MultiArrayBatch):
    """Rows of a sparse matrix, as the arguments of ``tf.sparse.SparseTensor``.

    Attributes
    ----------
    indices : ndarray of int64, shape (n, 2)
        Row in the batch and column of each value, in ascending order, without duplicates.
    values : ndarray, shape (n,)
    shape : tuple of int
        Shape of the dense array, ``(rows, columns)``.

    Examples
    --------
    >>> batch = SparseBatch(np.array([[0, 2], [1, 0]]), np.array([5, 7]), (2, 3))
    >>> len(batch), batch.dense().tolist()
    (2, [[0, 0, 5], [7, 0, 0]])
    >>> batch[1].dense().tolist()
    [[7, 0, 0]]
    """

    indices: Ints
    values: NDArray[Any]
    shape: tuple[int, int]

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """Indices, values and shape."""
        return self.indices, self.values, np.array(self.shape)

    def __getitem__(self, row: int) -> SparseBatch:
        """Return one row, as a batch of one."""
        at = range(len(self))[row]
        first, last = np.searchsorted(self.indices[:, 0], (at, at + 1))
        indices = self.indices[first:last] - (at, 0)
        return SparseBatch(indices, self.values[first:last].copy(), (1, self.shape[1]))

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """Return the dense array; ``np.asarray(batch)``."""
        return np.asarray(self.dense(), dtype)

    def dense(self) -> NDArray[Any]:
        """Return the dense array, shape (rows, columns)."""
        dense = np.zeros(self.shape, self.values.dtype)
        dense[tuple(self.indices.T)] = self.values
        return dense


@dataclass(frozen=True, eq=False, repr=False)
class Sparse(MultiArrayView):
    """A view of a sparse matrix whose batches are `SparseBatch`; made by `Dataset.sparse`."""

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
        return ArraySpec(self.element, self.dtype, "sparse")

    def array_bytes(self, elements: int) -> list[int]:
        room = aligned_length(elements * self._longest)
        return [room * 2 * np.dtype(np.int64).itemsize, room * self.dtype.itemsize]

    def input_bytes(self, elements: int) -> int:
        entry_bytes = max(matrix.entry_bytes for matrix in matrices_of(self.source))
        return elements * self._longest * entry_bytes

    def read_batches(
        self, members: Sequence[tuple[Request, Ints]], lengths: list[int]
    ) -> list[SparseBatch]:
        each = [(read_entries(row.source, row.origins, row.extent), at) for row, at in members]
        entries, rows = join_entries(each, self.dtype), np.cumsum([0, *lengths])
        firsts = np.concatenate(([0], np.cumsum(entries.counts)))[rows]
        sizes = np.diff(firsts).tolist()
        _, indices = allocate(sizes, (2,), np.int64)
        _, values = allocate(sizes, (), self.dtype)
        for batch, length in enumerate(lengths):
            part = slice(firsts[batch], firsts[batch + 1])
            counts = entries.counts[rows[batch] : rows[batch + 1]]
            indices[batch][:, 0] = np.repeat(np.arange(length, dtype=np.int32), counts)
            indices[batch][:, 1] = entries.columns[part]
            values[batch][...] = entries.values[part]
        (width,) = self.element
        return [
            SparseBatch(batch_indices, batch_values, (length, width))
            for batch_indices, batch_values, length in zip(indices, values, lengths, strict=True)
        ]

    @cached_property
    def _longest(self) -> int:
        """Upper bound of the stored values in a row; reads the row pointers."""
        return min(max(one.longest for one in matrices_of(self.source)), self.element[0])
