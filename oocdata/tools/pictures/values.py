"""What the values that are shown are like: counts, a summary and a histogram."""

from __future__ import annotations

from dataclasses import dataclass
from math import frexp

import numpy as np
from numpy.typing import NDArray

__all__ = ["Values", "values_of"]

_BINS = 64
_HALVES = 2.0**52
"""Below it a float64 can be half-way between integers."""


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
    # In units of a power of two, so that no square overflows and nothing is rounded.
    unit = 2.0 ** (frexp(max(abs(low), abs(high)) or 1.0)[1] - 1)
    scaled = finite / unit
    mean = float(scaled.mean())
    std = float(np.sqrt(np.mean((scaled - mean) ** 2)))
    edges = _edges(low, high, unit, whole)
    counts, _ = np.histogram(scaled, edges / unit)
    return Values(
        array.size,
        nan,
        infinite,
        low,
        high,
        mean * unit,
        std * unit,
        tuple(edges.tolist()),
        tuple(counts.tolist()),
    )


def _edges(low: float, high: float, unit: float, whole: bool) -> NDArray[np.float64]:
    if whole and max(-low, high, high - low) < _HALVES:
        span = int(high) - int(low)
        width = span // _BINS + 1
        # Between integers, where no rounding can move a value into the next bin.
        return np.asarray(int(low) - 0.5 + width * np.arange(span // width + 2), np.float64)
    room = 0.5 if low == high else 0.0
    with np.errstate(over="ignore"):  # next to the largest number there is
        places = np.linspace(low / unit - room, high / unit + room, _BINS + 1) * unit
    # There may be fewer floats than bins from one to the other.
    return np.unique(np.nan_to_num(places))
