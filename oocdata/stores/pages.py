"""Arithmetic of pages, of which 64 are the bits of a word, and of runs that cross segments."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

__all__ = ["BITS", "cut", "groups", "pages_of", "parts_of", "ranges_of", "set_bits", "words_of"]

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

BITS = 64

_ALL = np.uint64(2**64 - 1)
_FROM = np.left_shift(_ALL, np.arange(BITS, dtype=np.uint64))
_TO = np.right_shift(_ALL, np.arange(BITS - 1, -1, -1, dtype=np.uint64))
_ONE = np.left_shift(np.uint64(1), np.arange(BITS, dtype=np.uint64))


def words_of(first: Ints, last: Ints) -> tuple[Ints, Words]:
    """Return the words that hold pages, from each of `first` to that of `last`, and their bits.

    Examples
    --------
    >>> words, bits = words_of(np.array([62, 3]), np.array([64, 4]))
    >>> words.tolist(), [hex(one) for one in bits.tolist()]
    ([0, 1, 0], ['0xc000000000000000', '0x1', '0x18'])
    """
    low, high = first // BITS, last // BITS
    if not (low != high).any():
        return low, np.bitwise_and(_FROM[first % BITS], _TO[last % BITS])
    words, begins, past = _spread(low, high)
    bits = np.full(words.size, _ALL)
    bits[begins] = _FROM[first % BITS]
    bits[past - 1] &= _TO[last % BITS]
    return words, bits


def pages_of(words: Ints, bits: Words) -> Ints:
    """Return the pages whose bits are set in some words, each once, ascending.

    Examples
    --------
    >>> pages_of(*words_of(np.array([62, 63]), np.array([64, 65]))).tolist()
    [62, 63, 64, 65]
    """
    each = bits.astype("<u8", copy=False).view(np.uint8).reshape(-1, 8)
    rows, places = np.unpackbits(each, axis=1, bitorder="little").nonzero()
    pages = words[rows] * BITS + places
    # Of one range they ascend as they are.
    return pages if (words[1:] > words[:-1]).all() else np.unique(pages)


def set_bits(table: Words, pages: Ints) -> None:
    """Set the bits of pages.

    Examples
    --------
    >>> table = np.zeros(2, np.uint64)
    >>> set_bits(table, np.array([1, 2, 64]))
    >>> table.tolist()
    [6, 1]
    """
    np.bitwise_or.at(table, pages // BITS, _ONE[pages % BITS])


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
    numbers, _, _ = _spread(first, last)
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


def _spread(low: Ints, high: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the integers from each of `low` to that of `high`, and where each begins and ends.

    Examples
    --------
    >>> [part.tolist() for part in _spread(np.array([3, 9]), np.array([5, 9]))]
    [[3, 4, 5, 9], [0, 3], [3, 4]]
    """
    counts = high - low + 1
    past = counts.cumsum()
    begins = past - counts
    return np.arange(counts.sum()) + np.repeat(low - begins, counts), begins, past
