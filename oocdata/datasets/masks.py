"""Masks, weights and labels: one number an element, read a part at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.errors import ArgumentError
from oocdata.index import Selection

__all__ = ["in_parts", "places_where"]

_TOGETHER = 1 << 20
"""Numbers read at a time."""


def in_parts(count: int) -> Iterator[NDArray[np.int64]]:
    """Yield all positions in order, some at a time."""
    for start in range(0, count, _TOGETHER):
        yield np.arange(start, min(start + _TOGETHER, count))


def places_where(read: Callable[[NDArray[np.int64]], Any], count: int, elements: int) -> Selection:
    """Return the positions at which a mask is true: a range where they follow on one another.

    Examples
    --------
    >>> places_where(np.array([False, True, True, False]).__getitem__, 4, 4)
    range(1, 3)
    """
    if count != elements:
        raise ArgumentError(
            f"`mask` must have one bool for each of the {elements} elements; got {count}."
        )
    found = [np.flatnonzero(read(some)) + some[0] for some in in_parts(count)]
    places: NDArray[np.int64] = np.concatenate([np.empty(0, np.int64), *found])
    if len(places) == 0:
        return range(0)
    first, last = int(places[0]), int(places[-1])
    return range(first, last + 1) if last - first + 1 == len(places) else places
