"""Rows of unequal length as elements: in a batch their values, and where each row begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from oocdata.datasets.composed import Composed, ComposedRequest, ComposedView, room_for, rooms
from oocdata.datasets.dataset import fields_of
from oocdata.datasets.request import Request
from oocdata.datasets.spec import ArraySpec
from oocdata.datasets.view import View
from oocdata.engines.buffers import Read
from oocdata.engines.byte_rows import largest_rows, size_counts
from oocdata.engines.padded import PaddedRows, RowLengths, RowMask, held_value
from oocdata.engines.ragged_rows import Located, inner_shape, joined, locate, read_to
from oocdata.engines.source import Source
from oocdata.errors import ArgumentError
from oocdata.index import as_bounds, as_count, as_flag
from oocdata.threads import cached_property

__all__ = ["Bounded", "Ragged", "RaggedBatch"]

_BLOCK = 1 << 20
"""Rows whose lengths are looked at together."""


@dataclass(frozen=True, slots=True, eq=False)
class RaggedBatch(Composed):
    """Rows of unequal length: the arguments of ``tf.RaggedTensor.from_row_splits``.

    Attributes
    ----------
    values : ndarray, shape (n, …)
        Those of all rows, one row after the other.
    row_splits : ndarray of int64, shape (rows + 1,)
        Where each row begins in `values`, and where the last one ends.

    Examples
    --------
    >>> batch = RaggedBatch(np.array([5, 7, 9]), np.array([0, 2, 2, 3]))
    >>> len(batch), batch[0], batch.row_lengths
    (3, array([5, 7]), array([2, 0, 1]))
    >>> [row.tolist() for row in batch]
    [[5, 7], [], [9]]
    """

    values: NDArray[Any]
    row_splits: NDArray[np.int64]

    @property
    def row_lengths(self) -> NDArray[np.int64]:
        """How long each row is, shape (rows,)."""
        return np.diff(self.row_splits)

    @property
    def long(self) -> tuple[NDArray[Any], ...]:
        """The values."""
        return (self.values,)

    @property
    def fixed(self) -> NDArray[np.int64]:
        """The row splits."""
        return self.row_splits

    def __len__(self) -> int:
        return len(self.row_splits) - 1

    def __getitem__(self, row: int) -> NDArray[Any]:
        """Return one row, shape (its length, …)."""
        at = range(len(self))[row]
        return self.values[self.row_splits[at] : self.row_splits[at + 1]]

    def rows(self, start: int, stop: int) -> RaggedBatch:
        """Return the rows of a range, copied."""
        splits = self.row_splits[start : stop + 1]
        return RaggedBatch(self.values[splits[0] : splits[-1]].copy(), splits - splits[0])


@dataclass(frozen=True)
class _RaggedRequest(ComposedRequest, Request):
    """Rows wanted of a source of rows of unequal length, delivered as they are."""

    def found(self) -> Located:
        return locate(self.source, self.origins[:, 0])

    def joined(self, shares: Sequence[tuple[Located, NDArray[np.int64]]], rows: int) -> Located:
        return joined(rows, shares)

    def batches(self, found: Located, lengths: list[int], read: Read) -> list[Any]:
        each = found.lengths
        ends, borders = np.concatenate(([0], np.cumsum(each))), np.cumsum([0, *lengths])
        firsts = ends[borders]  # the place of each batch's first value among all
        whole, parts = rooms(np.diff(firsts).tolist(), inner_shape(self.source), self.dtype, read)
        begins = np.arange(len(parts)) * (len(whole) // len(parts))
        # All rows of all batches at once.
        targets = ends[:-1] + np.repeat(begins - firsts[:-1], lengths)
        read_to(found, np.zeros_like(each), each, whole, targets)
        splits = [
            ends[start : stop + 1] - ends[start] for start, stop in pairwise(borders.tolist())
        ]
        return list(map(RaggedBatch, parts, splits))


@dataclass(frozen=True, eq=False, repr=False)
class Ragged(ComposedView):
    """Rows of unequal length; made by `oocdata.ragged`, and by `oocdata.open` of such an array.

    A View whose batches are each a `RaggedBatch`, and ``tf.RaggedTensor`` in `Loader.to_tf`. `pad`
    makes a View of one length of it.
    """

    _public: ClassVar[Sequence[str]] = ("lengths", "longest", "mask", "pad")
    _request: ClassVar[type[Request]] = _RaggedRequest

    def __repr__(self) -> str:
        shape = "".join(f", {length}" for length in self.spec.shape[1:])
        return f"<Ragged: {len(self)} rows of (any{shape}) {self.dtype}>"

    @cached_property
    def spec(self) -> ArraySpec:
        """Shape and dtype of a row: None for its length."""
        return ArraySpec((None, *inner_shape(self.source)), self.dtype, "ragged")

    @cached_property
    def _sizes(self) -> tuple[int, int, NDArray[np.int64]]:
        """The longest row, the places of all, and how many rows are about how long."""
        longest, total, counts, lengths = 0, 0, size_counts(np.zeros(0, np.int64)), self.lengths
        for start in range(0, len(self), _BLOCK):
            some = lengths.take(np.arange(start, min(start + _BLOCK, len(self))))
            longest, total = max(longest, int(some.max())), total + int(some.sum())
            counts = counts + size_counts(some)
        return longest, total, counts

    @property
    def longest(self) -> int:
        """The length of the longest row; all lengths are read once, in blocks."""
        return self._sizes[0]

    @property
    def nbytes(self) -> int:
        """Bytes of the values of all rows."""
        return self._sizes[1] * self.spec.nbytes

    def array_bytes(self, elements: int) -> list[int]:
        """Return the bytes of the values of so many of the longest rows, at most 1.2 times."""
        return [room_for(self._most(elements)) * self.spec.nbytes, 8 * (elements + 1)]

    def input_bytes(self, elements: int) -> int:
        """Return the bytes that the values of several batches are read into first."""
        return (
            self._most(elements)
            * (self.spec.nbytes // self.dtype.itemsize)
            * (self.source.dtype.itemsize)
        )

    def _most(self, elements: int) -> int:
        return min(largest_rows(self._sizes[2], elements), elements * self.longest)

    @property
    def lengths(self) -> View:
        """How long each row is, int64."""
        return self._beside(RowLengths(self.source))

    def row_lengths(self) -> NDArray[np.int64]:
        """Return how long each row is; all lengths are read."""
        return np.asarray(self.lengths)

    def _beside(self, source: Source) -> View:
        """Return the view of a source of the same rows, of which the same are chosen."""
        view = View.of(source)
        return replace(view, cuts=(*self.cuts, *view.cuts[1:]), rows=self.rows)

    def pad(
        self, to: int | Sequence[int] | None = None, *, value: float = 0, cut: bool = False
    ) -> View:
        """Return the rows at one length, filled at their ends.

        Parameters
        ----------
        to : int or sequence of int, optional
            The length; by default that of the longest row. Of several, ascending, each batch gets
            the least one that holds its rows: see `bucket` of `batches`.
        value : number
            What is missing reads as; the dtype must hold it.
        cut : bool
            Leave out what longer rows hold beyond. Otherwise there must be none.

        Returns
        -------
        View
            ``(rows, to, …)``, of the values' dtype. `mask` says where it holds values. With several
            lengths, a batch is ``(batch, one of them, …)``, and no worker process reads it.

        Raises
        ------
        oocdata.errors.ArgumentError
            If rows are longer, or the dtype can't hold the value.

        Examples
        --------
        >>> import oocdata as ooc
        >>> rows = ooc.ragged(np.arange(1, 7), lengths=[3, 1, 2])
        >>> np.asarray(rows.pad(4, value=-1)).tolist()
        [[1, 2, 3, -1], [4, -1, -1, -1], [5, 6, -1, -1]]
        >>> [batch.shape for batch in rows.pad((2, 4)).batches(2, bucket=(2, 4))]
        [(2, 2), (1, 4)]
        """
        length = self._length(to, cut)
        held = held_value("value", value, self.source.dtype)
        if isinstance(length, tuple):
            return Bounded(**fields_of(self), bounds=length, value=held, is_mask=False)
        padded = self._beside(PaddedRows(self.source, length, held))
        return padded.astype(self.dtype)

    def mask(self, to: int | Sequence[int] | None = None, *, cut: bool = False) -> View:
        """Return where the rows that `pad` gives hold values: bool, ``(rows, to)``.

        Examples
        --------
        >>> import oocdata as ooc
        >>> ooc.ragged(np.arange(3), lengths=[1, 2]).mask()[0]
        array([ True, False])
        """
        length = self._length(to, cut)
        if isinstance(length, tuple):
            own = {**fields_of(self), "dtype": np.dtype(np.bool_)}
            return Bounded(**own, bounds=length, value=False, is_mask=True)
        return self._beside(RowMask(self.source, length))

    def _length(self, to: Any, cut: bool) -> int | tuple[int, ...]:
        """Return the length to pad to, or the lengths."""
        if to is None:
            return self.longest
        several = as_bounds("to", to) if isinstance(to, Sequence) else ()
        length = several[-1] if several else as_count("to", to)
        if not as_flag("cut", cut) and self.longest > length:
            raise ArgumentError(
                f"`to` must be at least the length of the longest row, {self.longest}, unless "
                f"longer ones are cut; got {to}. Write cut=True to leave out what is beyond."
            )
        return several or length


@dataclass(frozen=True)
class _BoundedRequest(_RaggedRequest):
    """Rows wanted of a source of rows of unequal length; fields as those of `Bounded`."""

    bounds: tuple[int, ...]
    value: Any
    is_mask: bool

    @property
    def filling(self) -> str:
        """The lengths, and what is missing; or the lengths of a mask."""
        to = ", ".join(map(str, self.bounds))
        value = np.array(self.value).astype(self.dtype)
        return f"a mask up to {to}" if self.is_mask else f"{value} up to {to}"

    def batches(self, found: Located, lengths: list[int], read: Read) -> list[Any]:
        """Return each batch, filled up to the least length that holds its rows."""
        counts = np.minimum(found.lengths, self.bounds[-1])
        borders = list(pairwise(np.cumsum([0, *lengths]).tolist()))
        most = [counts[start:stop].max(initial=0) for start, stop in borders]
        widths = [self.bounds[at] for at in np.searchsorted(self.bounds, most).tolist()]
        inner = () if self.is_mask else inner_shape(self.source)
        sizes = [rows * width for rows, width in zip(lengths, widths, strict=True)]
        whole, parts = rooms(sizes, inner, self.dtype, read)
        room = len(whole) // len(parts)
        batches: list[NDArray[Any]] = []
        targets = []
        for part, (start, stop), width in zip(parts, borders, widths, strict=True):
            batch = part.reshape(stop - start, width, *inner)
            if self.is_mask:
                np.less(np.arange(width), counts[start:stop, None], out=batch)
            else:
                batch[...] = self.value
            targets.append(np.arange(stop - start) * width + len(batches) * room)
            batches.append(batch)
        if not self.is_mask:  # all rows of all batches at once
            read_to(found, np.zeros_like(counts), counts, whole, np.concatenate(targets))
        return batches


@dataclass(frozen=True, eq=False, repr=False)
class Bounded(Ragged):
    """Rows of unequal length, of one length in each batch; made by `Ragged.pad` and `Ragged.mask`.

    Attributes
    ----------
    bounds : tuple of int
        The lengths that batches may have, ascending. What is beyond the last is left out.
    value : number
        What is missing reads as.
    is_mask : bool
        Whether a batch says where it would hold values, instead of holding them.
    """

    bounds: tuple[int, ...]
    value: Any
    is_mask: bool

    _request: ClassVar[type[Request]] = _BoundedRequest

    def __repr__(self) -> str:
        return (
            f"<Bounded: {len(self)} rows of {self.spec} up to {', '.join(map(str, self.bounds))}>"
        )

    @cached_property
    def spec(self) -> ArraySpec:
        """Shape and dtype of a row: None for its length, that of the batch."""
        inner = () if self.is_mask else inner_shape(self.source)
        return ArraySpec((None, *inner), self.dtype, "padded")

    def array_bytes(self, elements: int) -> list[int]:
        """Return the bytes of a batch of the last length."""
        return [room_for(elements * self.bounds[-1]) * self.spec.nbytes, 16]

    def input_bytes(self, elements: int) -> int:
        """Return the bytes that the values of several batches are read into first, at most."""
        read = 0 if self.is_mask else self.source.dtype.itemsize
        return elements * self.bounds[-1] * read * (self.spec.nbytes // self.dtype.itemsize)
