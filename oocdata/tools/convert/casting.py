"""Convert the numbers of a view to the dtype that is written, exactly or rounded to floats."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.datasets.view import View
from oocdata.errors import SourceError

__all__ = ["cast"]


def cast(values: NDArray[Any], dtype: np.dtype[Any], view: View) -> NDArray[Any]:
    """Return numbers in a dtype; they may be rounded to floats, but not change otherwise.

    `view` has the rows that were read. A number that does not fit is a `SourceError`, with file,
    dataset and row. NumPy's conversion turns 300 into 44 in ``uint8``, NaN and 0.5 into 0, and
    1e300 into infinity in ``float32``. In a loader that can be corrected later; in a file it is
    permanent.
    """
    if values.dtype == dtype:
        return values
    with np.errstate(invalid="ignore", over="ignore"):
        out = values.astype(dtype)
    if np.can_cast(values.dtype, out.dtype, "safe"):
        return out
    is_exact = out.dtype.kind in "biu"
    changed = out != values if is_exact else np.isinf(out) & np.isfinite(values)
    if not changed.any():
        return out
    first = tuple(int(place) for place in np.argwhere(changed)[0])
    hint = "Choose a dtype that holds them"
    if is_exact and out.dtype.kind != "b":
        hint += f", or scale and round them into {out.dtype} yourself: oocdata.create writes them"
    path, key, row = _stored_row(view, first[0])
    raise SourceError(
        f"numbers must fit the dtype that they are written in, {out.dtype}; got {values[first]}. "
        f"{hint}.",
        path=path,
        key=key,
        rows=(row,),
    )


def _stored_row(view: View, row: int) -> tuple[str | None, str | None, int]:
    """Return the file and dataset of a row of a view, and the row's number in the dataset."""
    storage = view.storage
    at = int(view.origins(np.asarray(view.rows[row : row + 1], np.int64))[0, view.axes[0]])
    if len(storage.parts) == 1 or storage.parts_axis != view.axes[0]:
        return storage.path, storage.key, at
    part = bisect_right(storage.parts, at) - 1
    path, key = storage.part_names[part]
    return path, key, at - storage.parts[part]
