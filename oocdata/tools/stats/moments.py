"""Count, range, mean and squared deviations of each channel, merged from parts without loss.

Two parts make a whole by the count, the mean and the sum of squared deviations of each, and many
parts two by two, as in a tree, so that errors grow with the logarithm of their number: T. F. Chan,
G. H. Golub and R. J. LeVeque, "Algorithms for computing the sample variance: analysis and
recommendations", The American Statistician 37 (1983), 242-247.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Moments", "Tree", "merge", "merge_all", "range_dtype"]


@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """What is known of the values of each channel; arrays of one shape, channels last.

    Attributes
    ----------
    count : ndarray of int64
        Values, finite or not.
    nan, inf : ndarray of int64
        NaN among them, and infinities of either sign.
    low, high : ndarray of float64, int64 or uint64
        The least and the greatest finite value; integers exactly. Where there is none, the
        neutral values of minimum and maximum.
    mean : ndarray of float64
        Of the finite values' differences from the shift; 0 where there is none.
    squares : ndarray of float64
        The sum of their squared deviations from that mean.
    """

    count: NDArray[np.int64]
    nan: NDArray[np.int64]
    inf: NDArray[np.int64]
    low: NDArray[Any]
    high: NDArray[Any]
    mean: NDArray[np.float64]
    squares: NDArray[np.float64]

    @classmethod
    def of_nothing(cls, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Moments:
        """Return the moments of no values, of arrays of a dtype."""
        kind = range_dtype(dtype)
        if kind.kind == "f":
            low, high = np.array([np.inf, -np.inf], kind)
        else:
            low, high = np.array([np.iinfo(kind).max, np.iinfo(kind).min], kind)
        count, nan, inf = (np.zeros(shape, np.int64) for _ in range(3))
        return cls(
            count,
            nan,
            inf,
            np.full(shape, low),
            np.full(shape, high),
            np.zeros(shape),
            np.zeros(shape),
        )

    @property
    def finite(self) -> NDArray[np.int64]:
        """How many values are finite."""
        return self.count - self.nan - self.inf

    def __getitem__(self, key: Any) -> Moments:
        parts: list[Any] = [getattr(self, name)[key] for name in self.__slots__]
        return Moments(*parts)

    def put(self, key: Any, part: Moments) -> None:
        """Write the moments of a part in its place; only while a block is being summed up."""
        for name in self.__slots__:
            getattr(self, name)[key] = getattr(part, name)


def range_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype that holds the least and greatest value of any of its kind exactly.

    Examples
    --------
    >>> range_dtype(np.dtype("f2")), range_dtype(np.dtype("u1")), range_dtype(np.dtype("?"))
    (dtype('float64'), dtype('uint64'), dtype('int64'))
    """
    return np.dtype({"f": "f8", "u": "u8"}.get(dtype.kind, "i8"))


def merge(one: Moments, other: Moments) -> Moments:
    """Return the moments of the values of both (equation 1.5 of Chan, Golub and LeVeque).

    Examples
    --------
    >>> from oocdata.tools.stats.pieces import layers, moments
    >>> ones, threes = (moments(layers(np.full((2, 1), v), None), np.zeros(1)) for v in (1.0, 3.0))
    >>> both = merge(ones, threes)
    >>> both.mean, both.squares
    (array([2.]), array([4.]))
    """
    left, right = one.finite, other.finite
    total = np.maximum(left + right, 1)
    weight = left * (right / total)
    with np.errstate(over="ignore"):
        apart = other.mean - one.mean
        mean = one.mean + apart * (right / total)
        if not np.isfinite(apart).all():  # between numbers near the largest, of either sign
            mean = one.mean * (left / total) + other.mean * (right / total)
        # Not 0 × inf, where one is empty and the other's mean beyond the root of all numbers.
        between = np.where(weight > 0, apart * apart, 0.0) * weight
    return Moments(
        one.count + other.count,
        one.nan + other.nan,
        one.inf + other.inf,
        np.minimum(one.low, other.low),
        np.maximum(one.high, other.high),
        mean,
        one.squares + other.squares + between,
    )


def merge_all(stack: Moments) -> Moments:
    """Merge along the first axis, two by two."""
    while (number := len(stack.count)) > 1:
        even = number // 2 * 2
        merged = merge(stack[0:even:2], stack[1:even:2])
        if number > even:
            whole = Moments.of_nothing((even // 2 + 1, *stack.count.shape[1:]), stack.low.dtype)
            whole.put(slice(-1), merged)
            whole.put(-1, stack[-1])
            merged = whole
        stack = merged
    return stack[0]


class Tree:
    """Merges moments that come one after the other, two by two: memory for log₂ of them.

    Examples
    --------
    >>> from oocdata.tools.stats.pieces import layers, moments
    >>> tree = Tree()
    >>> for value in (1.0, 2.0, 6.0):
    ...     tree.add(moments(layers(np.full((1, 1), value), None), np.zeros(1)))
    >>> tree.merged(Moments.of_nothing((1,), np.dtype("f8"))).mean
    array([3.])
    """

    def __init__(self) -> None:
        self._parts: list[tuple[int, Moments]] = []

    def add(self, part: Moments) -> None:
        """Take the next part."""
        level = 0
        while self._parts and self._parts[-1][0] == level:
            part = merge(self._parts.pop()[1], part)
            level += 1
        self._parts.append((level, part))

    def merged(self, nothing: Moments) -> Moments:
        """Return the moments of all parts; `nothing` if there is none."""
        whole = nothing
        for _, part in reversed(self._parts):
            whole = merge(part, whole)
        return whole
