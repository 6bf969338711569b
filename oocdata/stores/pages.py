"""Arithmetic of pages, and of runs that cross segments."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["cut", "pages_of", "ranges_of"]

Ints = NDArray[np.int64]


def pages_of(first: Ints, last: Ints) -> Ints:
    """Return the integers from each of `first` to that of `last`.

    Examples
    --------
    >>> pages_of(np.array([3, 9]), np.array([5, 9])).tolist()
    [3, 4, 5, 9]
    """
    counts = last - first + 1
    past = counts.cumsum()
    found: Ints = np.arange(counts.sum()) + np.repeat(first - past + counts, counts)
    return found


def ranges_of(pages: Ints) -> tuple[Ints, Ints]:
    """Return where pages that ascend begin and end to follow on one another: first, past the last.

    Examples
    --------
    >>> [part.tolist() for part in ranges_of(np.array([3, 4, 5, 9]))]
    [[3, 9], [6, 10]]
    """
    apart = np.diff(pages) != 1
    return pages[np.append(True, apart)], pages[np.append(apart, True)] + 1


def cut(offsets: Ints, addresses: Ints, lengths: Ints, size: int) -> tuple[Ints, Ints, Ints, Ints]:
    """Cut runs of bytes where a segment ends; return them and the number of each one's segment.

    Examples
    --------
    >>> runs = cut(np.array([90, 10]), np.array([1000, 2000]), np.array([20, 5]), 100)
    >>> [part.tolist() for part in runs]
    [[90, 100, 10], [1000, 1010, 2000], [10, 10, 5], [0, 1, 0]]
    """
    ends = offsets + lengths
    first, last = offsets // size, (ends - 1) // size
    numbers = pages_of(first, last)
    owner = np.repeat(np.arange(offsets.size), last - first + 1)
    starts = np.maximum(offsets[owner], numbers * size)
    stops = np.minimum(ends[owner], (numbers + 1) * size)
    return starts, addresses[owner] + starts - offsets[owner], stops - starts, numbers
