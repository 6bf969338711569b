"""Count, range, mean and squared deviations of each channel, merged from parts without loss.

Parts make a whole by the count, the mean and the sum of squared deviations of each: T. F. Chan, G.
H. Golub and R. J. LeVeque, "Algorithms for computing the sample variance: analysis and
recommendations", The American Statistician 37 (1983), 242-247. What rounding takes off a mean is
kept beside it, so that a mean of 10⁹ costs a deviation of 10⁻³ none of its digits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.tools.lines import Report, plain

__all__ = ["Summary"]

PIECE = 2**16
"""Values that are worked on at a time: as float64 half a MiB, which a core's cache holds."""

_LEAST_OF_A_CHANNEL = 1024
"""Values of one channel in a piece, if there are as many: fewer cost more to merge than to sum."""

_TOLD = ("count", "nan", "inf", "min", "max", "mean", "variance", "std")

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Summary(Report):
    """Statistics of some values; arrays of one shape, ``()`` or ``(channels,)``.

    Examples
    --------
    >>> found = Summary.of(np.array([[1.0, 4.0], [3.0, np.nan]]), axis=1)
    >>> found.mean, found.variance, found.nan
    (array([2., 4.]), array([1., 0.]), array([0, 1]))
    """

    count: Ints  # of values, finite or not
    nan: Ints  # of NaN among them
    inf: Ints  # of infinities of either sign; all that follows is of the other values
    low: NDArray[Any]  # the least one, integers exactly; if none, minimum's neutral value
    high: NDArray[Any]  # the greatest one
    middle: Floats  # their mean; 0 where there is none
    rest: Floats  # what the rounding of the mean took off
    squares: Floats  # the sum of their squared deviations from the mean

    @classmethod
    def of_nothing(cls, channels: int, dtype: np.dtype[Any]) -> Summary:
        """Return the statistics of no values, of arrays of a dtype."""
        kind = _range_dtype(dtype)
        low: Any = np.inf if kind.kind == "f" else np.iinfo(kind).max
        high: Any = -np.inf if kind.kind == "f" else np.iinfo(kind).min
        zero, nothing = np.zeros(channels, np.int64), np.zeros(channels)
        edges = np.full(channels, low, kind), np.full(channels, high, kind)
        return cls(zero, zero, zero, *edges, nothing, nothing, nothing)

    @classmethod
    def of(cls, block: NDArray[Any], axis: int | None) -> Summary:
        """Return the statistics of each channel of C-contiguous bool, integers or floats."""
        outer = 1 if axis is None else prod(block.shape[:axis])
        channels = 1 if axis is None else block.shape[axis]
        if not block.size:
            return cls.of_nothing(channels, block.dtype)
        by_channel = block.reshape(outer, channels, -1)
        inner = by_channel.shape[2]
        # A piece is of some channels, some rows, and of what lies behind the channels.
        behind = min(inner, PIECE)
        rows = min(outer, max(1, PIECE // (channels * behind), _LEAST_OF_A_CHANNEL // behind))
        some = max(1, min(channels, PIECE // (rows * behind)))
        found = []
        for first in range(0, channels, some):
            places = product(range(0, outer, rows), range(0, inner, behind))
            pieces = (
                by_channel[row : row + rows, first : first + some, place : place + behind]
                for row, place in places
            )
            found.append(cls.merged([_of_piece(piece) for piece in pieces]))
        return _joined(found, np.concatenate)

    @classmethod
    def merged(cls, parts: Sequence[Summary]) -> Summary:
        """Return the statistics of the values of all parts (Chan, Golub, LeVeque, section 2)."""
        return parts[0] if len(parts) == 1 else _joined(parts, np.stack).together()

    def together(self) -> Summary:
        """Return the statistics of all values along the first axis."""
        finite = self.finite
        total = np.maximum(finite.sum(0), 1)
        base = np.take_along_axis(self.middle, finite.argmax(0)[None], 0)[0]
        with np.errstate(over="ignore", invalid="ignore"):
            apart = np.where(finite > 0, (self.middle - base) + self.rest, 0.0)
            shift = (apart * (finite / total)).sum(0)
            middle = base + shift
            between = np.where(finite > 0, finite * (apart - shift) ** 2, 0.0)
            squares = (self.squares + between).sum(0)
            rest = shift - (middle - base)
        return Summary(
            self.count.sum(0), self.nan.sum(0), self.inf.sum(0), self.low.min(0), self.high.max(0),
            middle, rest, squares,
        )  # fmt: skip

    @property
    def finite(self) -> Ints:
        """How many values are finite."""
        return self.count - self.nan - self.inf

    @property
    def min(self) -> NDArray[Any]:
        """The least one, whole numbers exactly; NaN where none is finite, 0 of no integers."""
        return self._if_finite(self.low, np.nan if self.low.dtype.kind == "f" else 0)

    @property
    def max(self) -> NDArray[Any]:
        """The greatest one, as `min`."""
        return self._if_finite(self.high, np.nan if self.low.dtype.kind == "f" else 0)

    @property
    def mean(self) -> Floats:
        """NaN where no value is finite, as the variance is."""
        return self._if_finite(np.where(self.low == self.high, self.low, self.middle), np.nan)

    @property
    def variance(self) -> Floats:
        """Of the population: divided by the number of finite values."""
        # Where all are equal, rounding must not make a deviation that somebody would divide by.
        same = self.low == self.high
        found = np.where(same, 0.0, self.squares / np.maximum(self.finite, 1))
        return self._if_finite(found, np.nan)

    @property
    def std(self) -> Floats:
        """The root of the variance."""
        return np.sqrt(self.variance)

    def _if_finite(self, values: NDArray[Any], otherwise: Any) -> NDArray[Any]:
        return np.where(self.finite == 0, otherwise, values).astype(values.dtype)[()]

    def __getitem__(self, key: Any) -> Summary:
        """Return the statistics of some channels."""
        return Summary(*(getattr(self, one.name)[key] for one in fields(self)))

    def to_json(self) -> dict[str, Any]:
        """Return numbers and lists of them, for ``json.dumps``; None for what is not finite."""
        return {name: plain(np.asarray(getattr(self, name))) for name in _TOLD}

    def cells(self, name: str, damaged: bool) -> list[str]:
        """Return the statistics of a single channel as cells of a table."""
        numbers = (self.mean, self.std, self.min, self.max)
        said = [_said(number) if self.finite else "-" for number in numbers]
        return [name, *said, *([f"{self.count - self.finite:,}"] if damaged else [])]


def _joined(parts: Sequence[Summary], join: Callable[..., Any]) -> Summary:
    if len(parts) == 1 and join is np.concatenate:
        return parts[0]
    arrays = ([getattr(part, field.name) for part in parts] for field in fields(Summary))
    return Summary(*map(join, arrays))


def _range_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype that holds the least and greatest value of any of its kind exactly."""
    return np.dtype({"f": "f8", "u": "u8"}.get(dtype.kind, "i8"))


def _of_piece(piece: NDArray[Any]) -> Summary:
    """Return the statistics of a piece, shape (rows, channels, behind)."""
    channels = piece.shape[1]
    stored = np.ascontiguousarray(piece.swapaxes(0, 1)).reshape(channels, -1)
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
        mean = values.sum(axis=1) / number  # pairwise, so the number of values costs no digits
        values -= mean[:, None]
        if finite is not None:
            values[~finite] = 0.0
        rest = values.sum(axis=1) / number
        values *= values
        squares = np.maximum(values.sum(axis=1) - number * rest**2, 0.0)
    kind = _range_dtype(piece.dtype)
    return Summary(count, nan, inf, low.astype(kind), high.astype(kind), mean, rest, squares)


def _said(value: Any) -> str:
    return str(value) if isinstance(value, np.integer) else f"{value:.6g}"
