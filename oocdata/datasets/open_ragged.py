"""Define `ragged`, which opens ragged rows stored as values and offsets."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from oocdata.datasets.dataset import fields_of
from oocdata.datasets.open import open as open_view
from oocdata.datasets.ragged import Ragged
from oocdata.datasets.view import View
from oocdata.engines.ragged_rows import RaggedRows
from oocdata.errors import ArgumentError
from oocdata.index import as_array, as_lengths


def ragged(
    values: View | str | os.PathLike[str] | Any,
    offsets: View | ArrayLike | str | os.PathLike[str] | None = None,
    *,
    lengths: ArrayLike | Sequence[int] | None = None,
) -> Ragged:
    """Open ragged rows that are stored one after the other in an array.

    Arrow lists, CSR matrices, token streams, event lists, and the parts of several files are stored
    in this way.

    Parameters
    ----------
    values : View, or any target of `oocdata.open`
        Values of all rows, shape (n, …), without a selection.
    offsets : View, array_like or path, optional
        Start of each row in `values`, then the end of the last: ascending integers, shape (rows +
        1,).
    lengths : array_like of int, shape (rows,), optional
        Length of each row, instead of `offsets`. ``values.parts.lengths`` makes each file a row.

    Returns
    -------
    Ragged

    Raises
    ------
    oocdata.errors.ArgumentError
        If both or neither of `offsets` and `lengths` are given, they are not integers, the lengths
        do not sum to n, or offsets in memory do not ascend within n. (Offsets in a file are checked
        when rows are read.)

    Examples
    --------
    >>> import oocdata as ooc
    >>> rows = ooc.ragged(np.arange(10, 16), [0, 3, 3, 6])
    >>> rows, rows[2], rows.lengths.take([0, 1, 2])
    (<Ragged: 3 rows of (any) int64>, array([13, 14, 15]), array([3, 0, 3]))
    """
    view = _open_whole("values", values)
    count = len(view)
    if isinstance(view, Ragged):
        raise ArgumentError(f"`values` must be rows of one shape; got {view!r}.")
    if (offsets is None) == (lengths is None):
        raise ArgumentError("`offsets` or `lengths` must be given, and not both.")
    if lengths is not None:
        offsets = np.append(0, as_lengths("lengths", lengths, count, of="values")).cumsum()
    borders = _open_whole("offsets", offsets)
    if borders.dtype.kind not in "iu" or borders.element or len(borders) < 1:
        raise ArgumentError(f"`offsets` must be whole numbers, one axis of them; got {borders!r}.")
    if isinstance(offsets, list | tuple | np.ndarray) and not borders.storage.files:
        starts = np.asarray(borders, np.int64)  # those in files are checked by row, when read
        if (np.diff(starts, prepend=0, append=count) < 0).any():
            raise ArgumentError(
                f"`offsets` must ascend from 0 to at most the {count} values; got {starts}. If "
                "these are the lengths of rows, pass lengths=…."
            )
    return Ragged.of(RaggedRows(view.source, borders.source))


def _open_whole(name: str, target: Any) -> View:
    """Open an argument; raise ArgumentError for a selection, because offsets refer to all rows."""
    if isinstance(target, list | tuple) and not any(isinstance(part, str) for part in target):
        target = as_array(name, target)
    view = target if isinstance(target, View) else open_view(target)
    if isinstance(view.rows, np.ndarray) or fields_of(view) != fields_of(View.of(view.source)):
        raise ArgumentError(
            f"`{name}` must be a whole array, its first axis as the rows, of which nothing was "
            f"selected; got {view!r}. Select and transpose what `pad` gives."
        )
    return view
