"""Which axis of an array its channels are, and why."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Literal

from oocdata.errors import ArgumentError

__all__ = ["Channels", "channels_of"]

_MOST_FEATURES = 4096
"""Columns of a 2-D array that are taken for features; more are taken for a signal."""


@dataclass(frozen=True, slots=True)
class Channels:
    """The axis of the channels.

    Attributes
    ----------
    axis : int or None
        Of the array with its rows, so 1 or greater; None if all values are one channel.
    reason : str
        Why this one.
    """

    axis: int | None
    reason: str


def channels_of(shape: tuple[int, ...], axis: int | Literal["auto"] | None = "auto") -> Channels:
    """Return the axis asked for, or the one that the shape suggests.

    ==============================  =====================================================
    shape                           channels
    ==============================  =====================================================
    ``(rows,)``                     none
    ``(rows, columns)``             axis 1: the columns are features (up to 4,096 of them)
    ``(rows, height, width)``       none: a picture, or a field
    ``(rows, a, …, z)``, 3 or more  the shortest axis of a row, if it stands first (NCHW)
                                    or last (NHWC); else none
    ==============================  =====================================================

    Parameters
    ----------
    shape : tuple of int
        ``(rows, *element)``.
    axis : int or None or "auto"
        Negative ones count from the end.

    Raises
    ------
    oocdata.errors.ArgumentError
        If there is no such axis, or it is that of the rows.

    Examples
    --------
    >>> [channels_of((9, *element)).axis for element in [(3, 50, 60), (50, 60, 3), (50, 60)]]
    [1, 3, None]
    >>> channels_of((9, 64, 64, 64)).reason
    'neither the first nor the last axis of a row is the shortest'
    """
    ndim = len(shape)
    if axis is None:
        return Channels(None, "as asked")
    if axis != "auto":
        return Channels(_checked(axis, shape), "as asked")
    element = shape[1:]
    if len(element) < 2:
        if not element:
            return Channels(None, "a row is one number")
        if element[0] > _MOST_FEATURES:
            return Channels(
                None, f"rows of more than {_MOST_FEATURES:,} numbers are taken for signals"
            )
        return Channels(1, "the columns of a 2-D array are taken for features")
    if len(element) == 2:
        return Channels(None, "a row of two axes is taken for a picture, or a field")
    if element[0] < min(element[1:]):
        return Channels(1, "the shortest axis of a row stands first (as in NCHW)")
    if element[-1] < min(element[:-1]):
        return Channels(ndim - 1, "the shortest axis of a row stands last (as in NHWC)")
    return Channels(None, "neither the first nor the last axis of a row is the shortest")


def _checked(axis: int, shape: tuple[int, ...]) -> int:
    ndim = len(shape)
    try:
        number = operator.index(axis)
    except TypeError:
        number = ndim
    if isinstance(axis, bool) or not -ndim <= number < ndim or number % ndim == 0:
        there = f"1 to {ndim - 1}" if ndim > 1 else "none, because a row is one number"
        raise ArgumentError(
            f"the axis of the channels must be one of a row's ({there}), None or 'auto'; got "
            f"{axis!r} for the shape {shape}. Axis 0 is that of the rows."
        )
    return number % ndim
