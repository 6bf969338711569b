"""Rows of unequal length in one array: where each begins is said by offsets."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from oocdata.datasets.open import open as open_view
from oocdata.datasets.ragged import Ragged
from oocdata.datasets.view import View
from oocdata.engines.ragged_rows import RaggedRows
from oocdata.errors import ArgumentError
from oocdata.index import as_array

__all__ = ["ragged"]


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

    Returns
    -------
    Ragged

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
        given = as_array("lengths", lengths)
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
    return Ragged.of(RaggedRows(view.source, found.source))


def _whole(name: str, given: Any) -> View:
    """Return the view of a whole array: where rows lie is said by places in it."""
    if isinstance(given, list | tuple) and not any(isinstance(one, str) for one in given):
        try:
            given = np.asarray(given)
        except ValueError as error:  # rows, or Views, of unequal length
            raise ArgumentError(
                f"`{name}` must be one array; got a {type(given).__name__} of arrays of unequal "
                "length. Put rows end to end: np.concatenate(rows), with lengths=[len(row) for row "
                "in rows]."
            ) from error
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
