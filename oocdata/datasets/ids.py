"""Ids, labels, coordinates and weights: a value for each row, as callers have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from oocdata.errors import ArgumentError
from oocdata.index import as_array

if TYPE_CHECKING:
    from oocdata.datasets.dataset import Dataset

__all__ = ["as_ids", "as_weights", "balanced", "read_values"]


def read_values(name: str, values: Any) -> NDArray[Any]:
    """Return an argument as an array; a dataset is read, its dates as dates."""
    if not hasattr(values, "requests"):
        return as_array(name, values)
    found = values.take(np.arange(len(values)))
    if not isinstance(found, np.ndarray):
        raise ArgumentError(f"`{name}` must be an array or a View of one value each; got {values}.")
    unit = getattr(values, "unit", "")
    return found.view(unit) if unit and found.dtype == np.int64 else found


def as_ids(name: str, values: Any, kinds: str = "biumMU") -> NDArray[Any]:
    """Return an argument's values in one dimension: numbers, dates or texts, none missing.

    Bytes become texts (UTF-8), as HDF5 stores them; a dataset is read. `kinds` are NumPy's letters
    for the kinds of dtype that are accepted.
    """
    found = read_values(name, values)
    if found.dtype.kind == "T":  # NumPy's text of any length
        found = found.astype(str)
    if found.dtype.kind == "O" and found.size:
        types = {type(one) for one in found.flat}
        if all(issubclass(one, str) for one in types):
            found = found.astype(str)
        elif all(issubclass(one, bytes) for one in types):
            found = found.astype(bytes)
    if found.dtype.kind == "S":
        found = np.char.decode(found, "utf-8")
    if found.ndim != 1 or found.dtype.kind not in kinds:
        accepted = {"i": "numbers", "M": "dates (datetime64)", "U": "texts"}
        *others, last = [what for kind, what in accepted.items() if kind in kinds]
        what = f"{', '.join(others)} or {last}"
        raise ArgumentError(
            f"`{name}` must be {what} in one dimension; got {found.dtype} of shape {found.shape}."
        )
    if found.dtype.kind in "fmM" and np.isnan(found).any():
        first = int(np.isnan(found).argmax())
        raise ArgumentError(
            f"`{name}` must have a value everywhere; that at {first} is {found[first]}. Leave such "
            "rows out first."
        )
    return found


def balanced(labels: ArrayLike | Dataset) -> NDArray[np.float64]:
    """Return weights with which each class is drawn equally often.

    Parameters
    ----------
    labels : array_like of int, bool or str, shape (elements,), or View
        The class of each element. A negative number is none: that of the categoricals of pandas and
        AnnData for a missing value.

    Returns
    -------
    ndarray of float64, shape (elements,)
        ``1 / (classes * elements of the class)``, of sum 1; 0 for an element without a class, which
        is never drawn.

    Raises
    ------
    oocdata.errors.ArgumentError
        If the labels are no labels (floats, several axes), or there is none.

    Examples
    --------
    >>> import oocdata as ooc
    >>> ooc.balanced(["cat", "dog", "dog", "dog"])
    array([0.5       , 0.16666667, 0.16666667, 0.16666667])
    >>> x = ooc.open(np.arange(4))
    >>> loader = x.batches(4, shuffle=True, weights=ooc.balanced([7, 8, 8, 8]))
    >>> int((loader.batch(0) == 0).sum())
    2
    """
    given = as_ids("labels", labels, "biuU")
    known = given >= 0 if given.dtype.kind == "i" else np.ones(len(given), np.bool_)
    if not known.any():
        raise ArgumentError("`labels` must name a class for at least one element; got none.")
    _, classes, counts = np.unique(given[known], return_inverse=True, return_counts=True)
    weights = np.zeros(len(given))
    weights[known] = (1 / (len(counts) * counts))[classes]
    return weights


def as_weights(weights: ArrayLike | Dataset, count: int) -> NDArray[np.float64]:
    """Return the weights of elements, checked."""
    given = read_values("weights", weights)
    if given.shape != (count,) or given.dtype.kind not in "biuf":
        raise ArgumentError(
            f"`weights` must be one number for each of the {count} elements; got "
            f"{given.dtype} of shape {given.shape}."
        )
    found = given.astype(np.float64, copy=False)
    bad = np.flatnonzero(~(np.isfinite(found) & (found >= 0)))
    if len(bad):
        raise ArgumentError(
            f"`weights` must be finite and not negative; got {found[bad[0]]} for element {bad[0]}, "
            f"and {len(bad) - 1} more like it. Give 0 to what should never be drawn."
        )
    if not found.any():
        raise ArgumentError("`weights` must not all be 0: nothing could be drawn.")
    if found.max() > np.finfo(np.float64).max / count:
        raise ArgumentError(
            f"`weights` must have a sum below 2**1024; the largest of {count} is {found.max()}. "
            "Their ratios count alone: divide them by the largest."
        )
    return found
