"""Check arguments with a value per row: ids, labels, coordinates and weights."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from oocdata.datasets.spec import is_column
from oocdata.errors import ArgumentError
from oocdata.index import as_array
from oocdata.stretches import counted, looked_up, numbered

if TYPE_CHECKING:
    from oocdata.datasets.dataset import Dataset

_ONE_HOT = " Of one-hot labels, the classes are np.argmax(array, axis=1)."


def as_ids(name: str, values: Any, kinds: str = "biumMU", count: int | None = None) -> NDArray[Any]:
    """Return an argument as a 1-d array of numbers, dates or strings without missing values.

    Bytes are decoded as UTF-8, as HDF5 stores strings; a dataset is read. `kinds` are the accepted
    kinds of dtype, as NumPy's letters; `count` is the number of elements that have a value each.
    """
    ids = _read(name, values)
    for text in (str, bytes):  # in an array of objects, or of NumPy's StringDType
        if ids.dtype.kind in "TO" and all(isinstance(value, text) for value in ids.flat):
            ids = ids.astype(text)
    if ids.dtype.kind == "S":
        try:
            ids = np.char.decode(ids, "utf-8")
        except UnicodeDecodeError as error:
            at = ids.ravel().tolist().index(error.object)
            raise ArgumentError(
                f"`{name}` must be text in UTF-8; that at {at} is {error.object!r}. Decode it "
                "first: np.char.decode(array, 'latin-1')."
            ) from error
    if ids.ndim != 1 or ids.dtype.kind not in kinds or count not in (None, len(ids)):
        numbers = "numbers" if "f" in kinds else "whole numbers"
        accepted = {"i": numbers, "M": "dates (datetime64)", "U": "texts"}
        nouns = " or ".join(noun for kind, noun in accepted.items() if kind in kinds)
        number = "" if count is None else f", one for each of the {count} elements"
        hint = _ONE_HOT if ids.ndim > 1 else ""
        if ids.dtype.kind == "f" and "i" in kinds and "f" not in kinds:
            hint = f"{hint} Convert floats: array.astype(int)."
        raise ArgumentError(
            f"`{name}` must be {nouns or 'bools, e.g. np.asarray(labels) == 3,'} in one dimension"
            f"{number}; got {ids.dtype} of shape {ids.shape}.{hint}"
        )
    if ids.dtype.kind in "fmM" and np.isnan(ids).any():
        first = int(np.isnan(ids).argmax())
        raise ArgumentError(
            f"`{name}` must have a value everywhere; that at {first} is {ids[first]}. Leave such "
            "rows out first."
        )
    return ids


def _read(name: str, values: Any) -> NDArray[Any]:
    """Return an argument as an array; read it if it is a dataset, with dates as dates."""
    if not hasattr(values, "read_all"):  # as a Dataset has, which can't be imported here
        return as_array(name, values)
    if not is_column(values.spec):
        raise ArgumentError(f"`{name}` must have one value for each row; got {values!r}.{_ONE_HOT}")
    array: NDArray[Any] = values.read_all().reshape(-1)
    unit = getattr(values, "unit", "")
    return array.view(unit) if unit and array.dtype == np.int64 else array


def as_ticks(name: str, difference: Any, dates: np.dtype[Any]) -> int:
    """Return a time difference as a whole number of the units of dates."""
    unit, count = np.datetime_data(dates)
    if isinstance(difference, np.timedelta64 | timedelta):
        try:
            exact = np.timedelta64(difference)
            ticks = exact.astype(f"m8[{count}{unit}]")
            if np.datetime_data(exact.dtype)[0] != "generic" and ticks == exact:
                return int(ticks.astype(np.int64))
        except TypeError:  # months have no length in days
            pass
    raise ArgumentError(
        f"`{name}` must be a timedelta64 or timedelta of whole units of the dates, which are "
        f"{dates}; got {difference!r}."
    )


def balanced(labels: ArrayLike | Dataset) -> NDArray[np.float64]:
    """Return weights for `batches` that make all classes equally frequent.

    Parameters
    ----------
    labels : array_like of int, bool or str, shape (elements,), or View
        Class of each element. Negative numbers mean no class, as in categoricals of pandas and
        AnnData.

    Returns
    -------
    ndarray of float64, shape (elements,)
        ``1 / (number of classes * elements of the class)``, with sum 1. Elements without a class
        have weight 0, and are never drawn.

    Raises
    ------
    oocdata.errors.ArgumentError
        If the labels have another dtype or several axes, or no element has a class.

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
    checked = as_ids("labels", labels, "biuU")
    found, classes = numbered(checked)
    named = found >= 0 if found.dtype.kind == "i" else np.ones(len(found), np.bool_)
    if not named.any():
        raise ArgumentError("`labels` must name a class for at least one element; got none.")
    weights = named / (named.sum() * counted(classes, len(found)))
    return looked_up(weights, classes)


def as_weights(weights: ArrayLike | Dataset, count: int) -> NDArray[Any]:
    """Return checked weights of elements, numbers of any kind."""
    array = as_ids("weights", weights, "biuf", count)
    least, largest = float(array.min()), float(array.max())
    if not (least >= 0 and 0 < largest <= np.finfo(np.float64).max / count):
        array = array.astype(np.float64)
        good = np.isfinite(array) & (array >= 0)
        at = int(good.argmin() if not good.all() else array.argmax())
        raise ArgumentError(
            "`weights` must be finite, not negative, not all 0, and have a finite sum; got "
            f"{array[at]} for element {at}. Give 0 to what should never be drawn."
        )
    return array
