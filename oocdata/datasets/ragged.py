"""Define ragged rows, i.e. rows of different lengths, and their batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Ints
from oocdata.datasets.dataset import fields_of
from oocdata.datasets.multi_array import MultiArrayBatch, MultiArrayView, aligned_length, allocate
from oocdata.datasets.request import Request
from oocdata.datasets.spec import ArraySpec
from oocdata.datasets.view import View
from oocdata.engines.byte_rows import largest_rows, size_counts
from oocdata.engines.padded import PaddedRows, RowLengths, RowMask, padding_value
from oocdata.engines.ragged_rows import LocatedRows, inner_shape, locate
from oocdata.engines.source import Source
from oocdata.errors import ArgumentError
from oocdata.index import as_bounds, as_count, as_flag, is_iterable
from oocdata.stretches import stretches
from oocdata.threads import cached_property


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
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """The values, and the row splits."""
        return self.values, self.row_splits

    def __len__(self) -> int:
        return len(self.row_splits) - 1

    def __getitem__(self, row: int) -> NDArray[Any]:
        """Return one row, shape (length, …)."""
        at = range(len(self))[row]
        return self.values[self.row_splits[at] : self.row_splits[at + 1]]


@dataclass(frozen=True, eq=False, repr=False)
class Ragged(MultiArrayView):
    """A view of ragged rows; made by `oocdata.ragged`, and by `oocdata.open` for such arrays.

    A batch is a `RaggedBatch`, and a ``tf.RaggedTensor`` in `Loader.to_tf`. `pad` gives a dense
    View.
    """

    def __repr__(self) -> str:
        shape = "".join(f", {length}" for length in self.spec.shape[1:])
        return f"<Ragged: {len(self)} rows of (any{shape}) {self.dtype}>"

    @cached_property
    def spec(self) -> ArraySpec:
        return ArraySpec((None, *inner_shape(self.source)), self.dtype, "ragged")

    @cached_property
    def _length_statistics(self) -> tuple[int, int, Ints]:
        """Length of the longest row, number of values in all rows, and a histogram of lengths."""
        longest, total, counts, lengths = 0, 0, size_counts(np.zeros(0, np.int64)), self.lengths
        for part in stretches(len(self)):
            block = lengths.take(np.arange(part.start, part.stop))
            longest, total = max(longest, int(block.max())), total + int(block.sum())
            counts = counts + size_counts(block)
        return longest, total, counts

    @property
    def longest(self) -> int:
        """Length of the longest row; reads all lengths once, in blocks."""
        return self._length_statistics[0]

    @property
    def nbytes(self) -> int:
        return self._length_statistics[1] * self.spec.nbytes

    def array_bytes(self, elements: int) -> list[int]:
        """Return upper bounds of the bytes of values (up to 1.2 times too high) and row splits."""
        return [aligned_length(self._most_values(elements)) * self.spec.nbytes, 8 * (elements + 1)]

    def input_bytes(self, elements: int) -> int:
        values = self._most_values(elements) * (self.spec.nbytes // self.dtype.itemsize)
        return values * self.source.dtype.itemsize

    def _most_values(self, elements: int) -> int:
        return min(largest_rows(self._length_statistics[2], elements), elements * self.longest)

    @property
    def lengths(self) -> View:
        """Length of each row, a View of int64."""
        return _same_rows(self, RowLengths(self.source))

    def row_lengths(self) -> Ints:
        return np.asarray(self.lengths)

    def read_batches(
        self, members: Sequence[tuple[Request, Ints]], lengths: list[int]
    ) -> list[Any]:
        located = locate(*((row.source, row.origins[:, 0], at) for row, at in members))
        values = _read_rows(self, located, located.lengths, lengths)
        return list(map(RaggedBatch, *values))

    def pad(
        self,
        to: int | Sequence[int] | None = None,
        *,
        value: float | bytes | str = 0,
        cut: bool = False,
    ) -> View:
        """Pad rows at their ends to one length.

        Parameters
        ----------
        to : int or sequence of int, optional
            The length; by default that of the longest row. With several ascending lengths, each
            batch gets the smallest that holds its rows; see `bucket` of `batches`.
        value : number, bytes or str
            Padding value; the dtype must be able to represent it. By default 0, or empty text.
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
        length, bounds = self._lengths_of(to, cut)
        padding_value("value", value, self.dtype)
        padding = padding_value("value", value, self.source.dtype)
        padded = _same_rows(self, PaddedRows(self.source, length, padding))
        if padded.dtype != self.dtype:
            padded = padded.astype(self.dtype)
        return _in_bounds(padded, bounds)

    def mask(self, to: int | Sequence[int] | None = None, *, cut: bool = False) -> View:
        """Return the mask of values in the rows of `pad`, bool, shape ``(rows, to)``.

        Examples
        --------
        >>> import oocdata as ooc
        >>> ooc.ragged(np.arange(3), lengths=[1, 2]).mask()[0]
        array([ True, False])
        """
        length, bounds = self._lengths_of(to, cut)
        return _in_bounds(_same_rows(self, RowMask(self.source, length)), bounds)

    def _lengths_of(self, to: Any, cut: bool) -> tuple[int, tuple[int, ...]]:
        """Return the largest length to pad to, and the lengths if several are given."""
        if to is None:
            return self.longest, ()
        bounds = as_bounds("to", to) if is_iterable(to) and not isinstance(to, str) else ()
        length = bounds[-1] if bounds else as_count("to", to)
        if not as_flag("cut", cut) and self.longest > length:
            raise ArgumentError(
                f"`to` must be at least the length of the longest row, {self.longest}, unless "
                f"longer ones are cut; got {to}. Write cut=True to leave out what is beyond."
            )
        return length, bounds


def _in_bounds(view: View, bounds: tuple[int, ...]) -> View:
    """Return a view of padded rows, or of their mask; in batches of these lengths if there are."""
    return Bounded(**fields_of(view), bounds=bounds) if bounds else view


@dataclass(frozen=True, eq=False, repr=False)
class Bounded(MultiArrayView):
    """Padded rows, or their mask, cut to one length in each batch; see `Ragged.pad`.

    `bounds` are the ascending lengths that batches may have; rows of the source have the last.
    """

    source: PaddedRows | RowMask
    bounds: tuple[int, ...]

    def __post_init__(self) -> None:
        whole = View.of(self.source)
        is_whole = (self.cuts[1:], self.order) == (whole.cuts[1:], whole.order)
        if not (is_whole and hasattr(self.source, "value")):  # else of chosen positions
            raise ArgumentError(
                f"rows padded to several lengths, {self.bounds}, must be whole, with their axes in "
                "order. Pad them to one length, or select and transpose in the model."
            )

    def __repr__(self) -> str:
        return f"<Bounded: {len(self)} rows of {self.spec}>"

    @cached_property
    def spec(self) -> ArraySpec:
        value = self.source.value
        words = "as a mask" if value is None else f"with {np.array(value).astype(self.dtype)}"
        padding = f"{words} up to {', '.join(map(str, self.bounds))}"
        return ArraySpec((None, *self.element[1:]), self.dtype, "padded", padding)

    def array_bytes(self, elements: int) -> list[int]:
        return [aligned_length(elements * self.bounds[-1]) * self.spec.nbytes, 16]

    def input_bytes(self, elements: int) -> int:
        return elements * prod(self.element) * self.source.dtype.itemsize

    def row_lengths(self) -> Ints:
        return np.asarray(_same_rows(self, RowLengths(self.source.rows)))

    def read_batches(self, members: Sequence[tuple[Any, Ints]], lengths: list[int]) -> list[Any]:
        """Return each batch, padded to the smallest length that holds its rows."""
        located = locate(*((row.source.rows, row.origins[:, 0], at) for row, at in members))
        row_lengths = np.split(located.lengths, np.cumsum(lengths[:-1]))
        longest = [min(each.max(initial=0), self.bounds[-1]) for each in row_lengths]
        widths = [self.bounds[at] for at in np.searchsorted(self.bounds, longest).tolist()]
        if self.source.value is None:
            pairs = zip(row_lengths, widths, strict=True)
            masks = [np.arange(width) < each[:, None] for each, width in pairs]
            return [mask.astype(self.dtype, copy=False) for mask in masks]
        room = np.repeat(widths, lengths)
        parts, _ = _read_rows(self, located, room, lengths, self.source.value)
        shapes = zip(parts, lengths, widths, strict=True)
        return [part.reshape(rows, width, *part.shape[1:]) for part, rows, width in shapes]


def _read_rows(
    view: Ragged | Bounded,
    located: LocatedRows,
    room: Ints,
    lengths: list[int],
    value: Any = None,
) -> tuple[list[NDArray[Any]], list[Ints]]:
    """Read rows into batches; return the values and the row splits of each batch.

    Row i takes `room[i]` places: it is cut to them, or padded with a value.
    """
    ends, borders = np.concatenate(([0], np.cumsum(room))), np.cumsum([0, *lengths])
    firsts = ends[borders]  # the number of each batch's first value among all values
    inner: Any = view.spec.shape[1:]
    whole, parts = allocate(np.diff(firsts).tolist(), inner, view.dtype)
    if value is not None:
        whole[...] = value
    begins = np.arange(len(parts)) * (len(whole) // len(parts))
    # Read all rows of all batches at once.
    targets = ends[:-1] + np.repeat(begins - firsts[:-1], lengths)
    counts = np.minimum(located.lengths, room)
    located.read(np.zeros_like(counts), counts, whole, targets)
    splits = [ends[start : stop + 1] - ends[start] for start, stop in pairwise(borders.tolist())]
    return parts, splits


def _same_rows(view: View, source: Source) -> View:
    """Return the view of another source with the same rows, and the same selection of rows."""
    other = View.of(source)
    return replace(other, cuts=(view.cuts[0], *other.cuts[1:]), rows=view.rows)
