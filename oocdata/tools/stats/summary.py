"""Statistics of channels, from their moments."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.tools.stats.moments import Moments, merge_all, range_dtype

__all__ = ["Summary", "overall_of", "summary_of"]


@dataclass(frozen=True, slots=True, eq=False)
class Summary:
    """Statistics of some values; arrays of one shape, ``()`` or ``(channels,)``.

    Attributes
    ----------
    count : ndarray of int64
        Values, finite or not.
    nan, inf : ndarray of int64
        NaN among them, and infinities of either sign. All that follows is of the others.
    min, max : ndarray of float64, int64 or uint64
        Whole numbers exactly. NaN where no value is finite, and 0 where there is no integer.
    mean : ndarray of float64
        NaN where no value is finite, as `variance` is.
    variance : ndarray of float64
        Of the population: divided by the number of finite values. Infinite if a float64 can't hold
        it.
    """

    count: NDArray[np.int64]
    nan: NDArray[np.int64]
    inf: NDArray[np.int64]
    min: NDArray[Any]
    max: NDArray[Any]
    mean: NDArray[np.float64]
    variance: NDArray[np.float64]

    @property
    def finite(self) -> NDArray[np.int64]:
        """How many values are finite."""
        return self.count - self.nan - self.inf

    @property
    def std(self) -> NDArray[np.float64]:
        """The root of the variance."""
        return np.sqrt(self.variance)

    def __getitem__(self, key: Any) -> Summary:
        """Return the statistics of some channels."""
        parts: list[Any] = [getattr(self, name)[key] for name in self.__slots__]
        return Summary(*parts)

    def as_json(self) -> dict[str, Any]:
        """Return numbers and lists of them, for ``json.dumps``; None for what is not finite."""
        names = (*self.__slots__, "std")
        return {name: _plain(np.asarray(getattr(self, name)).tolist()) for name in names}

    @classmethod
    def from_json(cls, told: Mapping[str, Any], dtype: np.dtype[Any]) -> Summary:
        """Return what `as_json` made of the statistics of values of a dtype."""
        whole, edge = np.dtype(np.int64), range_dtype(dtype)
        kinds = (whole, whole, whole, edge, edge, np.dtype(np.float64), np.dtype(np.float64))
        arrays: list[Any] = [
            np.array(told[name], object).astype(kind)[()]  # None becomes NaN
            for name, kind in zip(cls.__slots__, kinds, strict=True)
        ]
        return cls(*arrays)


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value if isinstance(value, int) or math.isfinite(value) else None


def summary_of(found: Moments, shift: NDArray[np.float64]) -> Summary:
    """Return the statistics of values whose moments were taken with a shift."""
    number = found.finite
    none = number == 0
    with np.errstate(over="ignore"):
        mean = np.where(none, np.nan, found.mean + shift)
        variance = np.where(none, np.nan, found.squares / np.maximum(number, 1))
    # Where all are equal, rounding must not make a deviation that somebody would divide by.
    same = (found.low == found.high) & ~none
    mean, variance = np.where(same, found.low, mean), np.where(same, 0.0, variance)
    undefined = np.array(np.nan if found.low.dtype.kind == "f" else 0, found.low.dtype)
    low, high = (np.where(none, undefined, edge) for edge in (found.low, found.high))
    arrays = (found.count, found.nan, found.inf, low, high, mean, variance)
    scalars: list[Any] = [array[()] for array in arrays]  # where they have no axis
    return Summary(*scalars)


def overall_of(found: Moments, shift: NDArray[np.float64]) -> Summary:
    """Return the statistics of the values of all channels together."""
    if not len(shift):
        return summary_of(Moments.of_nothing((), found.low.dtype), np.zeros(()))
    # From one shift for all, as near to the means as those of the channels are.
    mean = np.where(found.finite > 0, found.mean + (shift - shift[0]), 0.0)
    return summary_of(merge_all(replace(found, mean=mean)), shift[0])
