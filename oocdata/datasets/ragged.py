"""Define ragged rows, i.e. rows of different lengths, and their batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Ints
from oocdata.datasets.dataset import fields_of
from oocdata.datasets.multi_array import MultiArrayBatch, MultiArrayView, aligned_length, allocate
from oocdata.datasets.offsets import is_listed
from oocdata.datasets.request import Request
from oocdata.datasets.spec import ArraySpec
from oocdata.datasets.view import View
from oocdata.engines.buffers import Read
from oocdata.engines.byte_rows import largest_rows, size_counts
from oocdata.engines.padded import PaddedRows, RowLengths, RowMask, padding_value
from oocdata.engines.ragged_rows import LocatedRows, inner_shape, join_located, locate
from oocdata.engines.source import Source
from oocdata.errors import ArgumentError
from oocdata.index import as_bounds, as_count, as_flag
from oocdata.threads import cached_property

__all__ = ["Bounded", "Ragged", "RaggedBatch"]

_BLOCK = 1 << 20
"""Number of rows whose lengths are read at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class RaggedBatch(MultiArrayBatch):
    """Ragged rows as values and row splits, the arguments of ``tf.RaggedTensor.from_row_splits``.

    Attributes
    ----------
    values : ndarray, shape (n, …)
        Values of all rows, one row after the other.
    row_splits : ndarray of int64, shape (rows + 1,)
        Start of each row in `values`, and the end of the last row.

    Examples
    --------
    >>> batch = RaggedBatch(np.array([5, 7, 9]), np.array([0, 2, 2, 3]))
    >>> len(batch), batch[0], batch.row_lengths
    (3, array([5, 7]), array([2, 0, 1]))
    >>> [row.tolist() for row in batch]
    [[5, 7], [], [9]]
    """

    values: NDArray[Any]
    row_splits: Ints

    @property
    def row_lengths(self) -> Ints:
        """Length of each row, shape (rows,)."""
        return np.diff(self.row_splits)

    @property
    def arrays(self) -> tuple[tuple[NDArray[Any], ...], Ints]:
        """The values, and the row splits."""
        return (self.values,), self.row_splits

    def __len__(self) -> int:
        return len(self.row_splits) - 1

    def __getitem__(self, row: int) -> NDArray[Any]:
        """Return one row, shape (length, …)."""
        at = range(len(self))[row]
        return self.values[self.row_splits[at] : self.row_splits[at + 1]]

    def rows(self, start: int, stop: int) -> RaggedBatch:
        """Return a range of rows, copied."""
        splits = self.row_splits[start : stop + 1]
        return RaggedBatch(self.values[splits[0] : splits[-1]].copy(), splits - splits[0])


@dataclass(frozen=True, eq=False, repr=False)
class Ragged(MultiArrayView):
    """A view of ragged rows; made by `oocdata.ragged`, and by `oocdata.open` for such arrays.

    A batch is a `RaggedBatch`, and a ``tf.RaggedTensor`` in `Loader.to_tf`. `pad` gives a dense
    View.
    """

    _public: ClassVar[Sequence[str]] = ("lengths", "longest", "mask", "pad")

    def __repr__(self) -> str:
        shape = "".join(f", {length}" for length in self.spec.shape[1:])
        return f"<Ragged: {len(self)} rows of (any{shape}) {self.dtype}>"

    @cached_property
    def spec(self) -> ArraySpec:
        """Shape and dtype of a row, with None for its length."""
        return ArraySpec((None, *inner_shape(self.source)), self.dtype, "ragged")

    @cached_property
    def _length_statistics(self) -> tuple[int, int, Ints]:
        """Length of the longest row, number of values in all rows, and a histogram of lengths."""
        longest, total, counts, lengths = 0, 0, size_counts(np.zeros(0, np.int64)), self.lengths
        for start in range(0, len(self), _BLOCK):
            block = lengths.take(np.arange(start, min(start + _BLOCK, len(self))))
            longest, total = max(longest, int(block.max())), total + int(block.sum())
            counts = counts + size_counts(block)
        return longest, total, counts

    @property
    def longest(self) -> int:
        """Length of the longest row; reads all lengths once, in blocks."""
        return self._length_statistics[0]

    @property
    def nbytes(self) -> int:
        """Size of the values of all rows, in bytes."""
        return self._length_statistics[1] * self.spec.nbytes

    def array_bytes(self, elements: int) -> list[int]:
        """Return upper bounds of the bytes of values (up to 1.2 times too high) and row splits."""
        return [aligned_length(self._most_values(elements)) * self.spec.nbytes, 8 * (elements + 1)]

    def input_bytes(self, elements: int) -> int:
        """Return the bytes of the values as read, before they are converted."""
        values = self._most_values(elements) * (self.spec.nbytes // self.dtype.itemsize)
        return values * self.source.dtype.itemsize

    def _most_values(self, elements: int) -> int:
        return min(largest_rows(self._length_statistics[2], elements), elements * self.longest)

    @property
    def lengths(self) -> View:
        """Length of each row, a View of int64."""
        return self._view_of(RowLengths(self.source))

    def row_lengths(self) -> Ints:
        """Return the length of each row; reads all lengths."""
        return np.asarray(self.lengths)

    def locate(self, members: Sequence[tuple[Request, Ints]]) -> LocatedRows:
        """Locate the rows of requests; see `MultiArrayView.locate`."""
        return join_located([(locate(row.source, row.origins[:, 0]), at) for row, at in members])

    def make_batches(self, located: LocatedRows, lengths: list[int], read: Read) -> list[Any]:
        """Return batches of the given numbers of rows; see `MultiArrayView.make_batches`."""
        row_lengths = located.lengths
        ends, borders = np.concatenate(([0], np.cumsum(row_lengths))), np.cumsum([0, *lengths])
        firsts = ends[borders]  # the number of each batch's first value among all values
        whole, parts = allocate(
            np.diff(firsts).tolist(), inner_shape(self.source), self.dtype, read
        )
        begins = np.arange(len(parts)) * (len(whole) // len(parts))
        # Read all rows of all batches at once.
        targets = ends[:-1] + np.repeat(begins - firsts[:-1], lengths)
        located.read(np.zeros_like(row_lengths), row_lengths, whole, targets)
        splits = [
            ends[start : stop + 1] - ends[start] for start, stop in pairwise(borders.tolist())
        ]
        return list(map(RaggedBatch, parts, splits))

    def _view_of(self, source: Source) -> View:
        """Return the view of another source with the same rows, and the same selection."""
        view = View.of(source)
        return replace(view, cuts=(*self.cuts, *view.cuts[1:]), rows=self.rows)

    def pad(
        self, to: int | Sequence[int] | None = None, *, value: float = 0, cut: bool = False
    ) -> View:
        """Pad rows at their ends to one length.

        Parameters
        ----------
        to : int or sequence of int, optional
            The length; by default that of the longest row. With several ascending lengths, each
            batch gets the smallest that holds its rows; see `bucket` of `batches`.
        value : number
            Padding value; the dtype must be able to represent it.
        cut : bool
            Truncate longer rows. By default they are an error.

        Returns
        -------
        View
            Shape ``(rows, to, …)``, with the dtype of the values. See `mask` for the mask of
            values. With several lengths, batches have shape ``(batch, length, …)`` and can't be
            read by worker processes.

        Raises
        ------
        oocdata.errors.ArgumentError
            If a row is longer, or the dtype can't represent the value.

        Examples
        --------
        >>> import oocdata as ooc
        >>> rows = ooc.ragged(np.arange(1, 7), lengths=[3, 1, 2])
        >>> np.asarray(rows.pad(4, value=-1)).tolist()
        [[1, 2, 3, -1], [4, -1, -1, -1], [5, 6, -1, -1]]
        >>> [batch.shape for batch in rows.pad((2, 4)).batches(2, bucket=(2, 4))]
        [(2, 2), (1, 4)]
        """
        length = self._padded_length(to, cut)
        padding = padding_value("value", value, self.source.dtype)
        if isinstance(length, tuple):
            return Bounded(**fields_of(self), bounds=length, value=padding, is_mask=False)
        padded = self._view_of(PaddedRows(self.source, length, padding))
        return padded.astype(self.dtype)

    def mask(self, to: int | Sequence[int] | None = None, *, cut: bool = False) -> View:
        """Return the mask of values in the rows of `pad`, bool, shape ``(rows, to)``.

        Examples
        --------
        >>> import oocdata as ooc
        >>> ooc.ragged(np.arange(3), lengths=[1, 2]).mask()[0]
        array([ True, False])
        """
        length = self._padded_length(to, cut)
        if isinstance(length, tuple):
            fields = {**fields_of(self), "dtype": np.dtype(np.bool_)}
            return Bounded(**fields, bounds=length, value=False, is_mask=True)
        return self._view_of(RowMask(self.source, length))

    def _padded_length(self, to: Any, cut: bool) -> int | tuple[int, ...]:
        """Return the length, or the lengths, to pad to."""
        if to is None:
            return self.longest
        several = as_bounds("to", to) if is_listed(to) and not isinstance(to, str) else ()
        length = several[-1] if several else as_count("to", to)
        if not as_flag("cut", cut) and self.longest > length:
            raise ArgumentError(
                f"`to` must be at least the length of the longest row, {self.longest}, unless "
                f"longer ones are cut; got {to}. Write cut=True to leave out what is beyond."
            )
        return several or length


@dataclass(frozen=True, eq=False, repr=False)
class Bounded(Ragged):
    """Ragged rows, padded to one length in each batch; made by `Ragged.pad` and `Ragged.mask`.

    Attributes
    ----------
    bounds : tuple of int
        Ascending lengths that batches may have. Rows are truncated to the last.
    value : number
        Padding value.
    is_mask : bool
        Whether batches are the mask of values, instead of the values.
    """

    bounds: tuple[int, ...]
    value: Any
    is_mask: bool

    def __repr__(self) -> str:
        return f"<Bounded: {len(self)} rows of {self.spec}>"

    @cached_property
    def spec(self) -> ArraySpec:
        """Shape and dtype of a row, with None for the length in its batch."""
        inner = () if self.is_mask else inner_shape(self.source)
        value = "as a mask" if self.is_mask else f"with {np.array(self.value).astype(self.dtype)}"
        padding = f"{value} up to {', '.join(map(str, self.bounds))}"
        return ArraySpec((None, *inner), self.dtype, "padded", padding)

    def array_bytes(self, elements: int) -> list[int]:
        """Return the bytes of a batch of the largest length."""
        return [aligned_length(elements * self.bounds[-1]) * self.spec.nbytes, 16]

    def input_bytes(self, elements: int) -> int:
        """Return an upper bound of the bytes of the values as read."""
        read = 0 if self.is_mask else self.source.dtype.itemsize
        return elements * self.bounds[-1] * read * (self.spec.nbytes // self.dtype.itemsize)

    def make_batches(self, located: LocatedRows, lengths: list[int], read: Read) -> list[Any]:
        """Return each batch, padded to the smallest length that holds its rows."""
        counts = np.minimum(located.lengths, self.bounds[-1])
        borders = list(pairwise(np.cumsum([0, *lengths]).tolist()))
        most = [counts[start:stop].max(initial=0) for start, stop in borders]
        widths = [self.bounds[at] for at in np.searchsorted(self.bounds, most).tolist()]
        inner = () if self.is_mask else inner_shape(self.source)
        sizes = [rows * width for rows, width in zip(lengths, widths, strict=True)]
        whole, parts = allocate(sizes, inner, self.dtype, read)
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
        if not self.is_mask:  # read all rows of all batches at once
            located.read(np.zeros_like(counts), counts, whole, np.concatenate(targets))
        return batches
