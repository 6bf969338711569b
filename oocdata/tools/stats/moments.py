"""Count, range, mean and squared deviations of each channel, merged from parts without loss.

Parts make a whole by the count, the mean and the sum of squared deviations of each: T. F. Chan, G.
H. Golub and R. J. LeVeque, "Algorithms for computing the sample variance: analysis and
recommendations", The American Statistician 37 (1983), 242-247. What rounding takes off a mean is
kept beside it, so that a mean of 10⁹ costs a deviation of 10⁻³ none of its digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Moments", "range_dtype"]

PIECE = 2**16
"""Values that are worked on at a time: as float64 half a MiB, which a core's cache holds."""

_LEAST_OF_A_CHANNEL = 1024
"""Values of one channel in a piece, if there are as many: fewer cost more to merge than to sum."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """What is known of the values of each channel; arrays of one shape, ``(channels,)``.

    Attributes
    ----------
    count : ndarray of int64
        Values, finite or not.
    nan, inf : ndarray of int64
        NaN among them, and infinities of either sign.
    low, high : ndarray of float64, int64 or uint64
        The least and the greatest finite value; integers exactly. Where there is none, the
        neutral values of minimum and maximum.
    mean, rest : ndarray of float64
        The mean of the finite values, and what its rounding took off; 0 where there is none.
    squares : ndarray of float64
        The sum of their squared deviations from the mean.
    """

    count: Ints
    nan: Ints
    inf: Ints
    low: NDArray[Any]
    high: NDArray[Any]
    mean: Floats
    rest: Floats
    squares: Floats

    @classmethod
    def of_nothing(cls, channels: int, dtype: np.dtype[Any]) -> Moments:
        """Return the moments of no values, of arrays of a dtype."""
        kind = range_dtype(dtype)
        edges = (np.inf, -np.inf) if kind.kind == "f" else np.iinfo(kind)
        least, most = edges if isinstance(edges, tuple) else (edges.max, edges.min)
        low, high = (np.full(channels, edge, kind) for edge in (least, most))
        count, nan, inf = (np.zeros(channels, np.int64) for _ in range(3))
        mean, rest, squares = (np.zeros(channels) for _ in range(3))
        return cls(count, nan, inf, low, high, mean, rest, squares)

    @classmethod
    def of_block(cls, block: NDArray[Any], axis: int | None) -> Moments:
        """Return the moments of each channel of a block of bool, integers or floats.

        Parameters
        ----------
        block : ndarray, shape (rows, *element)
            C-contiguous.
        axis : int or None
            Of the channels, from 1; None: one channel.

        Examples
        --------
        >>> found = Moments.of_block(np.array([[1.0, 4.0], [3.0, np.nan]]), axis=1)
        >>> found.mean, found.squares, found.nan
        (array([2., 4.]), array([2., 0.]), array([0, 1]))
        """
        shape = block.shape if axis is None else (*block.shape[:axis], -1, *block.shape[axis + 1 :])
        channels = 1 if axis is None else block.shape[axis]
        if not block.size:
            return cls.of_nothing(channels, block.dtype)
        outer = int(np.prod(shape[:axis])) if axis is not None else 1
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
        return found[0] if len(found) == 1 else cls._joined(found, np.concatenate)

    @classmethod
    def merged(cls, parts: Sequence[Moments]) -> Moments:
        """Return the moments of the values of all parts (Chan, Golub and LeVeque, section 2).

        Examples
        --------
        >>> one, three = (Moments.of_block(np.full(2, value), None) for value in (1.0, 3.0))
        >>> both = Moments.merged([one, three])
        >>> both.mean, both.squares
        (array([2.]), array([4.]))
        """
        return parts[0] if len(parts) == 1 else cls._joined(parts, np.stack).together()

    @classmethod
    def _joined(cls, parts: Sequence[Moments], join: Any) -> Moments:
        arrays = ([getattr(part, field.name) for part in parts] for field in fields(cls))
        return cls(*map(join, arrays))

    @property
    def finite(self) -> Ints:
        """How many values are finite."""
        return self.count - self.nan - self.inf

    def together(self) -> Moments:
        """Return the moments of all values along the first axis."""
        finite = self.finite
        total = np.maximum(finite.sum(0), 1)
        base = np.take_along_axis(self.mean, finite.argmax(0)[None], 0)[0]
        with np.errstate(over="ignore", invalid="ignore"):
            apart = np.where(finite > 0, (self.mean - base) + self.rest, 0.0)
            shift = (apart * (finite / total)).sum(0)
            mean = base + shift
            between = np.where(finite > 0, finite * (apart - shift) ** 2, 0.0)
            squares = (self.squares + between).sum(0)
            rest = shift - (mean - base)
        return Moments(
            self.count.sum(0), self.nan.sum(0), self.inf.sum(0), self.low.min(0), self.high.max(0),
            mean, rest, squares,
        )  # fmt: skip


def range_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype that holds the least and greatest value of any of its kind exactly.

    Examples
    --------
    >>> range_dtype(np.dtype("f2")), range_dtype(np.dtype("u1")), range_dtype(np.dtype("?"))
    (dtype('float64'), dtype('uint64'), dtype('int64'))
    """
    return np.dtype({"f": "f8", "u": "u8"}.get(dtype.kind, "i8"))


def _of_piece(piece: NDArray[Any]) -> Moments:
    """Return the moments of a piece, shape (rows, channels, behind)."""
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
    kind = range_dtype(piece.dtype)
    return Moments(count, nan, inf, low.astype(kind), high.astype(kind), mean, rest, squares)
