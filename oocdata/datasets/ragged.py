"""Rows of unequal length in one array: where each begins is said by offsets."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from oocdata.datasets.open import open as open_view
from oocdata.datasets.view import View
from oocdata.engines.padded import PaddedRows, RowLengths, RowMask
from oocdata.errors import ArgumentError
from oocdata.index import as_count

__all__ = ["Ragged", "ragged"]

_BLOCK = 1 << 20


@dataclass(frozen=True, eq=False, repr=False)
class Ragged:
    """Rows of unequal length; made by `oocdata.ragged`.

    Attributes
    ----------
    values : View
        What all rows hold, one after the other.
    offsets : View
        int64: where each row begins in `values`, and where the last one ends.
    """

    values: View
    offsets: View

    def __repr__(self) -> str:
        spec = self.values.spec
        shape = "".join(f", {length}" for length in spec.shape)
        return f"<Ragged: {len(self)} rows of (any{shape}) {spec.kind}>"

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> NDArray[Any]:
        """Read one row, shape (its length, …)."""
        place = range(len(self))[row]
        start, stop = self.offsets.take([place, place + 1]).tolist()
        return self.values.take(np.arange(start, stop))

    @property
    def lengths(self) -> View:
        """How long each row is, int64."""
        return View.of(RowLengths(self.offsets.source, len(self.values)))

    @cached_property
    def longest(self) -> int:
        """The length of the longest row; all offsets are read, in blocks."""
        found, lengths = 0, self.lengths
        for start in range(0, len(self), _BLOCK):
            rows = np.arange(start, min(start + _BLOCK, len(self)))
            found = max(found, int(lengths.take(rows).max()))
        return found

    def pad(self, to: int | None = None, *, value: float = 0, cut: bool = False) -> View:
        """Return the rows at one length, filled at their ends.

        Parameters
        ----------
        to : int, optional
            The length; by default that of the longest row.
        value : number
            What is missing reads as; the dtype must hold it.
        cut : bool
            Leave out what longer rows hold beyond. Otherwise there must be none.

        Returns
        -------
        View
            ``(rows, to, …)``, of the values' dtype. `mask` says where it holds values.

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
        """
        length = self._length(to, cut)
        dtype = self.values.dtype
        with np.errstate(all="ignore"):
            try:
                held = np.array(value).astype(dtype)
                same = bool(held == value) or (held != held and value != value)
            except (TypeError, ValueError, OverflowError):
                same = False
        if not same:
            raise ArgumentError(f"`value` must be a number that {dtype} holds; got {value!r}.")
        offsets = self.offsets.source
        return View.of(PaddedRows(self.values.source, offsets, length, held.item()))

    def mask(self, to: int | None = None, *, cut: bool = False) -> View:
        """Return where the rows that `pad` gives hold values: bool, ``(rows, to)``.

        Examples
        --------
        >>> import oocdata as ooc
        >>> ooc.ragged(np.arange(3), lengths=[1, 2]).mask()[0]
        array([ True, False])
        """
        lengths = RowLengths(self.offsets.source, len(self.values))
        return View.of(RowMask(lengths, self._length(to, cut)))

    def _length(self, to: int | None, cut: bool) -> int:
        if to is None:
            return self.longest
        length = as_count("to", to)
        if not cut and self.longest > length:
            raise ArgumentError(
                f"`to` must be at least the length of the longest row, {self.longest}, unless "
                f"longer ones are cut; got {length}. Write cut=True to leave out what is beyond."
            )
        return length


def ragged(
    values: View | str | os.PathLike[str] | Any,
    offsets: View | ArrayLike | str | os.PathLike[str] | None = None,
    *,
    lengths: ArrayLike | Sequence[int] | None = None,
) -> Ragged:
    """Open rows of unequal length that lie one after the other in an array.

    So Arrow's lists, CSR, token streams, event lists and the parts of several files are stored.

    Parameters
    ----------
    values : View, or what `oocdata.open` takes
        Of all rows, whole: shape (n, …).
    offsets : View, array, or path, optional
        Where each row begins in `values`, and where the last one ends: ascending whole numbers.
    lengths : array_like of int, shape (rows,), optional
        Instead: how long each row is; e.g. ``values.parts.lengths``, for a row a file.

    Raises
    ------
    oocdata.errors.ArgumentError
        If not one of both is given, they are no whole numbers, or the lengths do not add up.

    Examples
    --------
    >>> import oocdata as ooc
    >>> rows = ooc.ragged(np.arange(10, 16), [0, 3, 3, 6])
    >>> rows, rows[2], rows.lengths.take([0, 1, 2])
    (<Ragged: 3 rows of (any) int64>, array([13, 14, 15]), array([3, 0, 3]))
    """
    view = _whole("values", values)
    count = len(view)
    if (offsets is None) == (lengths is None):
        raise ArgumentError("`offsets` or `lengths` must be given, and not both.")
    if lengths is not None:
        given = np.asarray(lengths)
        if given.ndim != 1 or given.dtype.kind not in "iu" or (given < 0).any():
            raise ArgumentError(f"`lengths` must be whole numbers from 0; got {given!r}.")
        if int(given.sum()) != count:
            raise ArgumentError(
                f"`lengths` must add up to the {count} values; got a sum of {int(given.sum())}."
            )
        offsets = np.concatenate(([0], np.cumsum(given, dtype=np.int64)))
    found = _whole("offsets", offsets)
    if found.dtype.kind not in "iu" or found.element or len(found) < 1:
        raise ArgumentError(f"`offsets` must be whole numbers, one axis of them; got {found!r}.")
    return Ragged(view, found)


def _whole(name: str, given: Any) -> View:
    """Return the view of a whole array: where rows lie is said by places in it."""
    if isinstance(given, list | tuple) and not any(isinstance(one, str) for one in given):
        given = np.asarray(given)
    view = open_view(given)
    whole = View.of(view.source)
    if (view.axes, view.cuts, view.order) != (whole.axes, whole.cuts, whole.order) or (
        not isinstance(view.rows, range) or view.rows != whole.rows or view.dtype != whole.dtype
    ):
        raise ArgumentError(
            f"`{name}` must be a whole array, of which nothing was selected; got {view!r}. Select "
            "rows of what `pad` gives."
        )
    return view
