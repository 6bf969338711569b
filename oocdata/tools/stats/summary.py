"""Statistics of the values of each channel."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.tools.stats.moments import Moments, range_dtype

__all__ = ["Summary"]


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
        Of the population: divided by the number of finite values.
    """

    count: NDArray[np.int64]
    nan: NDArray[np.int64]
    inf: NDArray[np.int64]
    min: NDArray[Any]
    max: NDArray[Any]
    mean: NDArray[np.float64]
    variance: NDArray[np.float64]

    @classmethod
    def of(cls, found: Moments) -> Summary:
        """Return the statistics of values by their moments."""
        none = found.finite == 0
        # Where all are equal, rounding must not make a deviation that somebody would divide by.
        same = found.low == found.high
        variance = np.where(same, 0.0, found.squares / np.maximum(found.finite, 1))
        mean = np.where(same, found.low, found.mean)
        undefined = np.nan if found.low.dtype.kind == "f" else 0
        low, high = (
            np.where(none, undefined, edge).astype(edge.dtype) for edge in (found.low, found.high)
        )
        mean, variance = (np.where(none, np.nan, array) for array in (mean, variance))
        return cls(found.count, found.nan, found.inf, low, high, mean, variance)

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

    def to_json(self) -> dict[str, Any]:
        """Return numbers and lists of them, for ``json.dumps``; None for what is not finite."""
        names = (*self.__slots__, "std")
        return {name: _plain(np.asarray(getattr(self, name)).tolist()) for name in names}

    @classmethod
    def from_json(cls, told: Mapping[str, Any], dtype: np.dtype[Any]) -> Summary:
        """Return what `to_json` made of the statistics of values of a dtype."""
        whole, edge = np.dtype(np.int64), range_dtype(dtype)
        kinds = (whole, whole, whole, edge, edge, np.dtype(np.float64), np.dtype(np.float64))
        arrays: list[Any] = [
            np.array(told[name], object).astype(kind)[()]  # None becomes NaN
            for name, kind in zip(cls.__slots__, kinds, strict=True)
        ]
        return cls(*arrays)

    def cells(self, name: str, damaged: bool) -> list[str]:
        """Return the statistics of a single channel as cells of a table."""
        numbers = (self.mean, self.std, self.min, self.max)
        said = [_said(number) if self.finite else "-" for number in numbers]
        return [name, *said, *([f"{self.count - self.finite:,}"] if damaged else [])]


def _said(value: Any) -> str:
    return str(value) if isinstance(value, np.integer) else f"{value:.6g}"


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value if isinstance(value, int) or math.isfinite(value) else None
