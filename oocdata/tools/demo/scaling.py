"""What makes rows of a user's array fit for a model, found from a sample of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.axes import row_axes
from oocdata.datasets.view import View
from oocdata.datasets.windows import Windows
from oocdata.errors import ArgumentError
from oocdata.tools.stats import stats

__all__ = ["Scaling", "scaling_of"]

_SAMPLE_BYTES = 4 << 20
_SAMPLE_ROWS = 512


@dataclass(frozen=True, slots=True)
class Scaling:
    """How rows are scaled, and how much they then change.

    Attributes
    ----------
    scale : callable
        Of a batch ``(x, y)``: to mean 0 and deviation 1, with 0 for what is no number.
    change : ndarray
        How much a scaled row differs from the one before, usually; broadcasts against a row.
    note : str
    """

    scale: Callable[..., Any]
    change: NDArray[np.floating[Any]]
    note: str


def scaling_of(frames: View, part: Windows) -> Scaling:
    """Return the scaling by a sample of the training part, each channel or column by its own."""
    most = min(_SAMPLE_ROWS, len(part), max(1, _SAMPLE_BYTES // frames.spec.nbytes))
    places = np.unique(np.linspace(0, len(part) - 1, most).astype(np.int64))
    rows = part.view[part.starts(np.asarray(part.chosen)[places])]
    found = stats(rows, duplicates=False)
    wrong = int(found.overall.count - found.overall.finite)
    if wrong == found.overall.count:
        raise ArgumentError(f"rows must hold numbers; in {len(places):,} of them none is finite.")
    scale = partial(_finite, found.standardize)
    batch: Any = part.take(places)
    x, y = scale(*batch)
    others = tuple(axis for axis in range(y.ndim - 1) if axis != found.axis)
    change = np.sqrt(np.mean((y[:, 0] - x[:, -1]) ** 2, axis=others, keepdims=True))[0]
    each = f", each {row_axes(frames).name('C')} by its own" if found.axis else ""
    note = (
        f"Losses are of values scaled by the mean and deviation of {len(places):,} rows for "
        f"training{each}."
    )
    if wrong:
        note += f" {wrong:,} of their values are NaN or infinite; such are taken as the mean."
    return Scaling(scale, np.where(change > 0, change, 1.0), note)


def _finite(scale: Callable[..., Any], x: NDArray[Any], y: NDArray[Any]) -> tuple[Any, ...]:
    """Return scaled arrays with 0 for what is no number."""
    numbers = {"nan": 0.0, "posinf": 0.0, "neginf": 0.0}
    return tuple(np.nan_to_num(array, copy=False, **numbers) for array in scale(x, y))
