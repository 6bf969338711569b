"""What the values that are shown are like: counts, a summary and a histogram."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Values", "values_of"]

_BINS = 64


@dataclass(frozen=True, slots=True)
class Values:
    """Values in numbers.

    Attributes
    ----------
    count : int
        All of them, with those that are not finite.
    nan, infinite : int
    minimum, maximum, mean, std : float or None
        Of the finite ones; None where there is none. `std` divides by their number.
    edges : tuple of float
        Borders of the histogram's bins, one more than `counts`; whole bins of integers.
    counts : tuple of int
        Finite values in each bin.
    """

    count: int
    nan: int
    infinite: int
    minimum: float | None
    maximum: float | None
    mean: float | None
    std: float | None
    edges: tuple[float, ...]
    counts: tuple[int, ...]


def values_of(array: NDArray[np.float64], *, whole: bool = False) -> Values:
    """Return what the values of an array are like.

    Parameters
    ----------
    array : ndarray of float64
    whole : bool
        Whether they stand for integers, so that no bin holds more of these than another.

    Examples
    --------
    >>> found = values_of(np.array([1.0, 2.0, 3.0, np.nan]))
    >>> found.mean, found.nan, sum(found.counts)
    (2.0, 1, 3)
    """
    nan = int(np.isnan(array).sum())
    finite = array[np.isfinite(array)]
    infinite = array.size - nan - finite.size
    if finite.size == 0:
        return Values(array.size, nan, infinite, None, None, None, None, (0.0, 1.0), (0,))
    low, high = float(finite.min()), float(finite.max())
    # In units of the largest, so that no square and no sum overflows.
    unit = max(abs(low), abs(high)) or 1.0
    scaled = finite / unit
    mean = float(scaled.mean())
    with np.errstate(over="ignore"):  # of numbers close to the largest there are
        std = float(np.sqrt(np.mean((scaled - mean) ** 2)) * unit)
    edges = _edges(low / unit, high / unit, unit, whole)
    counts, _ = np.histogram(scaled, edges)
    return Values(
        array.size,
        nan,
        infinite,
        low,
        high,
        mean * unit,
        std,
        tuple(float(edge * unit) for edge in edges),
        tuple(int(count) for count in counts),
    )


def _edges(low: float, high: float, unit: float, whole: bool) -> NDArray[Any]:
    if not whole or high * unit - low * unit > 2**52:
        # numpy.histogram widens a range of one value by a half on either side.
        return np.histogram_bin_edges(np.array([low, high]), _BINS)
    width = int((high - low) * unit) // _BINS + 1
    bins = int((high - low) * unit) // width + 1
    # Between integers, where no rounding can move a value into the next bin.
    return (round(low * unit) - 0.5 + width * np.arange(bins + 1)) / unit
