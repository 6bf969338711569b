"""Ids, labels and coordinates: one number, date or text for each row, as callers have them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.errors import ArgumentError
from oocdata.index import as_array

__all__ = ["as_ids", "read_values"]


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

    Bytes become texts (UTF-8), as HDF5 stores them; a dataset is read.

    Parameters
    ----------
    name : str
        Of the argument, for messages.
    kinds : str
        NumPy's letters for the kinds of dtype that are accepted.

    Raises
    ------
    oocdata.errors.ArgumentError
        For anything else, and where one is NaN or NaT.
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
