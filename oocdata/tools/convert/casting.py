"""Numbers written in another dtype: rounded where they must be, never turned into others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.errors import SourceError
from oocdata.sources.adapt import layout_of
from oocdata.sources.concat import Concat
from oocdata.sources.source import Source

__all__ = ["cast_into"]


def cast_into(
    out: NDArray[Any],
    values: NDArray[Any],
    rows: Sequence[int] | NDArray[np.int64],
    source: Source,
) -> None:
    """Copy numbers into an array of the same shape and any dtype, if that can hold them.

    NumPy's own conversion makes 44 of 300 in ``uint8``, 0 of NaN or 0.5, and infinity of 1e300 in
    ``float32``. A loader may do so, because it is asked again tomorrow; a file keeps it.

    Parameters
    ----------
    out, values : ndarray, shape (rows, *element)
    rows : sequence of int
        Of the source, for the message.
    source : Source

    Raises
    ------
    oocdata.errors.SourceError
        If a number is not one of an integer dtype, or is finite and too large for a floating one.

    Examples
    --------
    >>> from oocdata.sources.memory import Memory
    >>> values, out = np.array([1.0, 255.0]), np.zeros(2, "u1")
    >>> cast_into(out, values, range(2), Memory(values))
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
    row = int(rows[first[0]])
    if isinstance(source, Concat):
        source, row = source.owner(row)
    layout = layout_of(source)
    raise SourceError(
        f"numbers must fit the dtype that they are written in, {out.dtype}; got {values[first]}. "
        f"{hint}.",
        path=layout.path,
        key=layout.key,
        rows=(row,),
    )
