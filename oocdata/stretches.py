"""Number, count, look up and sort many values a stretch at a time.

NumPy's `unique` and `argsort` take 16 to 50 bytes for each value besides what they return; for
10**8 labels, gigabytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Ints
from oocdata.index import distinct

STRETCH = 1 << 20
"""Values processed at a time."""

_BORDERS, _SAMPLED = 16, 4096
"""Borders of the buckets of a sort, and the keys among which they are chosen."""


def stretches(count: int, least: int = 0) -> list[slice]:
    """Return slices that divide ``range(count)``, of at least so many positions."""
    length = max(STRETCH, least)
    return [slice(start, min(start + length, count)) for start in range(0, count, length)]


def numbered(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.unsignedinteger]]:
    """Return the distinct values, ascending, and the number of each value among them."""
    found, more = values[:0], [values[:0]]
    for part in stretches(len(values)):
        more.append(distinct(values[part]))
        if part.stop == len(values) or sum(map(len, more)) > len(found):
            found, more = distinct(np.concatenate((found, *more))), []
    numbers = np.empty(len(values), np.min_scalar_type(len(found)))
    for part in stretches(len(values)):
        numbers[part] = np.searchsorted(found, values[part])
    return found, numbers


def counted(numbers: NDArray[np.unsignedinteger], length: int) -> Ints:
    """Return how often each number below `length` occurs."""
    counts = np.zeros(length, np.int64)
    for part in stretches(len(numbers), length):
        counts += np.bincount(numbers[part], minlength=length)
    return counts


def first_places(numbers: NDArray[np.unsignedinteger], length: int) -> Ints:
    """Return the first place of each number below `length`, which all occur."""
    first = np.empty(length, np.int64)
    for part in stretches(len(numbers))[::-1]:
        places = np.arange(part.stop - 1, part.start - 1, -1)
        first[numbers[places]] = places  # of equal numbers, the last assignment counts
    return first


def looked_up(table: NDArray[Any], numbers: NDArray[np.integer]) -> NDArray[Any]:
    """Return ``table[numbers]``; NumPy would convert all numbers to int64 first."""
    found = np.empty(len(numbers), table.dtype)
    for part in stretches(len(numbers)):
        found[part] = table[numbers[part]]
    return found


def sorted_positions(count: int, keys_of: Callable[[Ints], NDArray[Any]]) -> Iterator[Ints]:
    """Yield the positions below `count` in ascending order of their keys, equal keys by position.

    That is a stable sort, in some tens of parts. `keys_of` returns the keys of positions.
    """
    if count <= STRETCH:
        yield np.argsort(keys_of(np.arange(count)), kind="stable")
        return
    sample = np.sort(keys_of(np.linspace(0, count - 1, _SAMPLED).astype(np.int64)))
    borders, buckets = distinct(sample[:: _SAMPLED // _BORDERS]), np.empty(count, np.uint8)
    for part in stretches(count):
        keys = keys_of(np.arange(part.start, part.stop))
        # Keys that equal a border have a bucket of their own, an odd one, which is sorted.
        buckets[part] = sum(np.searchsorted(borders, keys, side) for side in ("left", "right"))
    for bucket in np.flatnonzero(counted(buckets, 2 * len(borders) + 1)).tolist():
        positions = np.flatnonzero(buckets == bucket)
        if not bucket % 2:
            positions = positions[np.argsort(keys_of(positions), kind="stable")]
        yield positions
