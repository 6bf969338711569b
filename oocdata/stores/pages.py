"""Arithmetic of pages, and of runs that cross segments."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

__all__ = ["cut", "groups", "pages_of", "parts_of", "ranges_of"]

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


def parts_of(apart: NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """Return where parts of a series begin, and their lengths, by which neighbours are apart.

    Examples
    --------
    >>> [part.tolist() for part in parts_of(np.array([False, True, False]))]
    [[0, 2], [2, 2]]
    """
    borders = np.empty(np.count_nonzero(apart) + 2, np.int64)
    borders[0], borders[1:-1], borders[-1] = 0, apart.nonzero()[0] + 1, apart.size + 1
    return borders[:-1], borders[1:] - borders[:-1]


def ranges_of(pages: Ints) -> tuple[Ints, Ints]:
    """Return where pages that ascend begin and end to follow on one another: first, past the last.

    Examples
    --------
    >>> [part.tolist() for part in ranges_of(np.array([3, 4, 5, 9]))]
    [[3, 9], [6, 10]]
    """
    firsts, counts = parts_of(pages[1:] - pages[:-1] != 1)
    return pages[firsts], pages[firsts] + counts


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


def groups(numbers: Ints, most: int) -> Iterator[slice]:
    """Cut numbers that ascend where there are `most` different ones.

    Examples
    --------
    >>> list(groups(np.array([2, 2, 5, 7]), 2))
    [slice(0, 3, None), slice(3, 4, None)]
    """
    firsts, _ = parts_of(numbers[1:] != numbers[:-1])
    for start, stop in pairwise([*firsts[::most].tolist(), numbers.size]):
        yield slice(start, stop)
