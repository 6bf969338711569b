"""Numbers written in another dtype: rounded where they must be, never turned into others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.errors import SourceError

__all__ = ["cast_into"]


def cast_into(
    out: NDArray[Any],
    values: NDArray[Any],
    named: Callable[[int], tuple[str | None, str | None, int]],
) -> None:
    """Copy numbers into an array of the same shape and any dtype, if that can hold them.

    NumPy's own conversion makes 44 of 300 in ``uint8``, 0 of NaN or 0.5, and infinity of 1e300 in
    ``float32``. A loader may do so, because it is asked again tomorrow; a file keeps it.

    Parameters
    ----------
    out, values : ndarray, shape (rows, *element)
    named : callable
        Gives, for the message, the file, the dataset and the row of one of the rows.

    Raises
    ------
    oocdata.errors.SourceError
        If a number is not one of an integer dtype, or is finite and too large for a floating one.

    Examples
    --------
    >>> values, out = np.array([1.0, 255.0]), np.zeros(2, "u1")
    >>> cast_into(out, values, lambda row: (None, None, row))
    >>> out
    array([  1, 255], dtype=uint8)
    """
    with np.errstate(invalid="ignore", over="ignore"):
        out[...] = values
    if np.can_cast(values.dtype, out.dtype, "safe"):
        return
    exact = out.dtype.kind in "biu"
    wrong = out != values if exact else np.isinf(out) & np.isfinite(values)
    if not wrong.any():
        return
    first = tuple(int(place) for place in np.argwhere(wrong)[0])
    hint = "Choose a dtype that holds them"
    if exact and out.dtype.kind != "b":
        hint += f", or scale and round them into {out.dtype} yourself: oocdata.create writes them"
    path, key, row = named(first[0])
    raise SourceError(
        f"numbers must fit the dtype that they are written in, {out.dtype}; got {values[first]}. "
        f"{hint}.",
        path=path,
        key=key,
        rows=(row,),
    )
