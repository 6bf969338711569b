"""The moments of a block of rows, in pieces that fit the cache.

Of each piece come the count, the mean and the sum of squared deviations from that mean: two passes
over the cache, one over memory. All of it is done in float64 on differences from a value near the
mean of each channel, the *shift* (Chan, Golub and LeVeque 1983, section 3), so that a mean of 10⁹
costs a deviation of 10⁻³ none of its digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.tools.stats.moments import Moments, merge_all, range_dtype

__all__ = ["Layers", "layers", "moments", "shift_of"]

PIECE = 2**16
"""Values that are worked on at a time: as float64 half a MiB, which a core's cache holds."""

_LEAST_OF_A_CHANNEL = 1024
"""Values of one channel in a piece, if there are as many: fewer cost more to merge than to sum."""

_SAMPLE = 2**20
"""Values that the shift is taken from."""

_LARGE = 1e150
"""The square of a larger number may be none that a float64 holds."""

Layers = NDArray[Any]
"""A block as (rows, axes before the channels, channels, axes behind them); never a copy."""


def layers(block: NDArray[Any], axis: int | None) -> Layers:
    """Return a block with all axes before and behind the channels taken together.

    Parameters
    ----------
    block : ndarray, shape (rows, *element)
        C-contiguous.
    axis : int or None
        Of the channels, from 1; None: one channel.

    Examples
    --------
    >>> layers(np.zeros((10, 3, 8, 9)), axis=1).shape, layers(np.zeros((10, 8, 9)), None).shape
    ((10, 1, 3, 72), (10, 1, 1, 72))
    """
    rows, *element = block.shape
    if axis is None:
        return block.reshape(rows, 1, 1, prod(element))
    before, channels, behind = element[: axis - 1], element[axis - 1], element[axis:]
    return block.reshape(rows, prod(before), channels, prod(behind))


def shift_of(block: Layers) -> NDArray[np.float64]:
    """Return for each channel a value near its mean: whole for integers, NaN if none is finite.

    That of a sample will do: the mean of all can't lie further from it than √(n / sample)
    deviations, because the sample is part of the data.
    """
    _, before, channels, behind = block.shape
    some = max(1, _SAMPLE // max(1, channels))
    sample = block[: max(1, some // max(1, before * behind)), : max(1, some // max(1, behind))]
    found = moments(sample[..., :some], np.zeros(channels))
    if not found.finite.all():
        found = moments(block, np.zeros(channels))
    near = found.mean if block.dtype.kind == "f" else np.rint(found.mean)
    # Beyond that, squares are not finite, and differences need not be.
    near = np.where(np.abs(near) < _LARGE, near, 0.0)
    return np.where(found.finite > 0, near, np.nan)


def moments(block: Layers, shift: NDArray[np.float64]) -> Moments:
    """Return the moments of each channel of a block.

    Parameters
    ----------
    block : ndarray, shape (rows, before, channels, behind)
        Of bool, integers or floats.
    shift : ndarray of float64, shape (channels,)
        Is taken off before anything is summed; whole numbers for integers.

    Returns
    -------
    Moments
        Of shape (channels,).
    """
    channels = block.shape[2]
    if block.size == 0:
        return Moments.of_nothing((channels,), block.dtype)
    lengths = _piece_lengths(block.shape)
    steps = [range(0, whole, part) for whole, part in zip(block.shape, lengths, strict=True)]
    pieces = len(steps[0]) * len(steps[1]) * len(steps[3])
    parts = Moments.of_nothing((pieces, channels), block.dtype)
    memory = np.empty(prod(lengths))
    with np.errstate(over="ignore", invalid="ignore"):
        for first in steps[2]:
            some = slice(first, first + lengths[2])
            places = product(steps[0], steps[1], steps[3])
            for number, (row, before, behind) in enumerate(places):
                piece = block[
                    row : row + lengths[0],
                    before : before + lengths[1],
                    some,
                    behind : behind + lengths[3],
                ]
                parts.put((number, some), _moments_of_piece(piece, shift[some, None], memory))
        return merge_all(parts)


def _piece_lengths(shape: Sequence[int]) -> tuple[int, int, int, int]:
    rows, before, channels, behind = shape
    of_a_channel = min(rows * before * behind, max(PIECE // channels, _LEAST_OF_A_CHANNEL))
    last = min(behind, of_a_channel)
    middle = min(before, max(1, of_a_channel // last))
    first = min(rows, max(1, of_a_channel // (last * middle)))
    return first, middle, min(channels, max(1, PIECE // (first * middle * last))), last


def _moments_of_piece(
    piece: Layers, shift: NDArray[np.float64], memory: NDArray[np.float64]
) -> Moments:
    by_channel = piece.transpose(2, 0, 1, 3)
    channels, number = by_channel.shape[0], prod(by_channel.shape[1:])
    values = memory[: piece.size].reshape(channels, number)
    nan = np.zeros(channels, np.int64)
    count, inf = nan + number, nan
    low: NDArray[Any]
    high: NDArray[Any]
    left_out = None
    if piece.dtype.kind in "iu" and piece.dtype.itemsize == 8:
        whole = by_channel.reshape(channels, number)
        low, high = whole.min(axis=1), whole.max(axis=1)
        # Unsigned, differences wrap around to what they are, however far apart the two.
        np.copyto(values, whole.view("u8") - low.view("u8")[:, None])
        values += [[float(int(least) - int(off))] for least, (off,) in zip(low, shift, strict=True)]
    else:
        np.copyto(values.reshape(by_channel.shape), by_channel)
        low, high = values.min(axis=1), values.max(axis=1)
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            left_out = ~np.isfinite(values)
            nan = np.isnan(values).sum(axis=1)
            inf = left_out.sum(axis=1) - nan
            low = values.min(axis=1, where=~left_out, initial=np.inf)
            high = values.max(axis=1, where=~left_out, initial=-np.inf)
        values -= shift
        kind = range_dtype(piece.dtype)
        low, high = low.astype(kind), high.astype(kind)
    number = np.maximum(count - nan - inf, 1)
    mean = _sums(values, left_out) / number
    if not np.isfinite(mean).all():  # the sum of numbers near the largest there is
        mean = (values / number[:, None]).sum(axis=1)
    values -= mean[:, None]
    np.multiply(values, values, out=values)
    return Moments(count, nan, inf, low, high, mean, _sums(values, left_out))


def _sums(values: NDArray[np.float64], left_out: NDArray[np.bool_] | None) -> NDArray[np.float64]:
    if left_out is not None:
        values[left_out] = 0.0
    sums: NDArray[np.float64] = values.sum(axis=1)  # pairwise, so n doesn't cost digits
    return sums
