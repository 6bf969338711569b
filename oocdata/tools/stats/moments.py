"""Compute count, range, mean and squared deviations of each channel, merged from parts.

Parts are merged by the count, the mean and the sum of squared deviations of each: T. F. Chan, G. H.
Golub and R. J. LeVeque, "Algorithms for computing the sample variance: analysis and
recommendations", The American Statistician 37 (1983), 242-247. The rounding error of a mean is
stored beside it, so a deviation of 10⁻³ around a mean of 10⁹ loses no digits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Ints
from oocdata.tools.report import Report, plain

PIECE = 2**16
"""Values processed at a time: half a MiB as float64, which fits into a core's cache."""

_LEAST_OF_A_CHANNEL = 1024
"""Values of a channel in a piece, if there are as many: fewer cost more to merge than to sum."""

_JSON_KEYS = ("count", "nan", "inf", "min", "max", "mean", "variance", "std")

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Summary(Report):
    """Statistics of an array or of each channel; all arrays of shape ``()`` or ``(channels,)``."""

    count: Ints  # of all values
    nan: Ints  # count of NaN
    inf: Ints  # count of infinities of either sign; the fields below are of finite values
    low: NDArray[Any]  # the minimum, exact for integers; without values, the greatest of its dtype
    high: NDArray[Any]  # the maximum
    rounded_mean: Floats  # 0 without values
    mean_error: Floats  # what rounding removed from the mean
    squares: Floats  # the sum of squared deviations from the mean

    @classmethod
    def empty(cls, channels: int, dtype: np.dtype[Any]) -> Summary:
        """Return the statistics of an empty array of a dtype."""
        kind = _range_dtype(dtype)
        low: Any = np.inf if kind.kind == "f" else np.iinfo(kind).max
        high: Any = -np.inf if kind.kind == "f" else np.iinfo(kind).min
        counts, sums = np.zeros(channels, np.int64), np.zeros(channels)
        limits = np.full(channels, low, kind), np.full(channels, high, kind)
        return cls(counts, counts, counts, *limits, sums, sums, sums)

    @classmethod
    def of(cls, block: NDArray[Any], axis: int | None) -> Summary:
        """Return the statistics of each channel of a C-contiguous array of real numbers."""
        outer = 1 if axis is None else prod(block.shape[:axis])
        channels = 1 if axis is None else block.shape[axis]
        if not block.size:
            return cls.empty(channels, block.dtype)
        by_channel = block.reshape(outer, channels, -1)
        inner = by_channel.shape[2]
        # The array is cut into pieces along all three axes: rows, channels, inner axes.
        width = min(inner, PIECE)
        rows = min(outer, max(1, PIECE // (channels * width), _LEAST_OF_A_CHANNEL // width))
        group = max(1, min(channels, PIECE // (rows * width)))
        summaries = []
        for first in range(0, channels, group):
            pieces = (
                by_channel[row : row + rows, first : first + group, place : place + width]
                for row, place in product(range(0, outer, rows), range(0, inner, width))
            )
            summaries.append(cls.merged([_of_piece(piece) for piece in pieces]))
        return _joined(summaries, np.concatenate)

    @classmethod
    def merged(cls, parts: Sequence[Summary]) -> Summary:
        """Return the statistics of the values of all parts (Chan, Golub, LeVeque, section 2)."""
        return parts[0] if len(parts) == 1 else _joined(parts, np.stack).pooled()

    def pooled(self) -> Summary:
        """Return the statistics of all values along the first axis."""
        finite = self.finite
        total = np.maximum(finite.sum(0), 1)
        base = np.take_along_axis(self.rounded_mean, finite.argmax(0)[None], 0)[0]
        with np.errstate(over="ignore", invalid="ignore"):
            apart = np.where(finite > 0, (self.rounded_mean - base) + self.mean_error, 0.0)
            shift = (apart * (finite / total)).sum(0)
            rounded_mean = base + shift
            between = np.where(finite > 0, finite * (apart - shift) ** 2, 0.0)
            squares = (self.squares + between).sum(0)
            mean_error = shift - (rounded_mean - base)
        return Summary(
            self.count.sum(0), self.nan.sum(0), self.inf.sum(0), self.low.min(0), self.high.max(0),
            rounded_mean, mean_error, squares,
        )  # fmt: skip

    @property
    def finite(self) -> Ints:
        """Count of finite values."""
        return self.count - self.nan - self.inf

    @property
    def min(self) -> NDArray[Any]:
        """The minimum, exact for integers; without finite values NaN, or 0 for integers."""
        return self._if_finite(self.low, np.nan if self.low.dtype.kind == "f" else 0)

    @property
    def max(self) -> NDArray[Any]:
        """The maximum; without finite values as for `min`."""
        return self._if_finite(self.high, np.nan if self.low.dtype.kind == "f" else 0)

    @property
    def mean(self) -> Floats:
        """The mean; NaN without finite values."""
        mean = np.where(self.low == self.high, self.low, self.rounded_mean)
        return self._if_finite(mean, np.nan)

    @property
    def variance(self) -> Floats:
        """The population variance (divided by the count of finite values); NaN without any."""
        # Equal values must not get a deviation from rounding that a scaling then divides by.
        is_constant = self.low == self.high
        variance = np.where(is_constant, 0.0, self.squares / np.maximum(self.finite, 1))
        return self._if_finite(variance, np.nan)

    @property
    def std(self) -> Floats:
        """The square root of the variance."""
        return np.sqrt(self.variance)

    def _if_finite(self, values: NDArray[Any], otherwise: Any) -> NDArray[Any]:
        return np.where(self.finite == 0, otherwise, values).astype(values.dtype)[()]

    def __getitem__(self, key: Any) -> Summary:
        """Return the statistics of selected channels."""
        return Summary(*(getattr(self, field.name)[key] for field in fields(self)))

    def to_json(self) -> dict[str, Any]:
        """Return numbers, or lists of numbers, for ``json.dumps``; None if not finite."""
        return {name: plain(np.asarray(getattr(self, name))) for name in _JSON_KEYS}

    def cells(self, name: str, damaged: bool) -> list[str]:
        """Return the statistics of a single channel as cells of a table."""
        texts = ["-"] * 4
        if self.finite:
            numbers: tuple[Any, ...] = (self.mean, self.std, self.min, self.max)
            texts = [str(n) if n.dtype.kind in "iu" else f"{n:.6g}" for n in numbers]
        return [name, *texts, *([f"{self.count - self.finite:,}"] if damaged else [])]


def _joined(parts: Sequence[Summary], join: Callable[..., Any]) -> Summary:
    if len(parts) == 1 and join is np.concatenate:
        return parts[0]
    arrays = ([getattr(part, field.name) for part in parts] for field in fields(Summary))
    return Summary(*map(join, arrays))


def _range_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype that holds the minimum and maximum of any dtype of this kind exactly."""
    return np.dtype({"f": "f8", "u": "u8"}.get(dtype.kind, "i8"))


def _of_piece(piece: NDArray[Any]) -> Summary:
    """Return the statistics of a piece, shape (rows, channels, inner)."""
    channels = piece.shape[1]
    stored = np.ascontiguousarray(piece.swapaxes(0, 1)).reshape(channels, -1)
    with np.errstate(invalid="ignore"):  # of signalling NaN
        values = stored.astype(np.float64)
    nan = inf = np.zeros(channels, np.int64)
    count = nan + values.shape[1]
    low, high = stored.min(axis=1), stored.max(axis=1)
    finite = None
    if stored.dtype.kind == "f" and not (np.isfinite(low).all() and np.isfinite(high).all()):
        finite = np.isfinite(values)
        nan = np.isnan(values).sum(axis=1)
        inf = count - finite.sum(axis=1) - nan
        low = values.min(axis=1, where=finite, initial=np.inf)
        high = values.max(axis=1, where=finite, initial=-np.inf)
        values[~finite] = 0.0
    number = np.maximum(count - nan - inf, 1)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = values.sum(axis=1) / number  # NumPy sums pairwise, so long sums lose no digits
        values -= mean[:, None]
        if finite is not None:
            values[~finite] = 0.0
        error = values.sum(axis=1) / number
        values *= values
        squares = np.maximum(values.sum(axis=1) - number * error**2, 0.0)
    kind = _range_dtype(piece.dtype)
    return Summary(count, nan, inf, low.astype(kind), high.astype(kind), mean, error, squares)
