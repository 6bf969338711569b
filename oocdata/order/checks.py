"""The rules that the arguments of orders obey."""

from __future__ import annotations

import operator

from oocdata.errors import ArgumentError
from oocdata.index import as_count

__all__ = ["MAX_COUNT", "as_first", "check_epoch", "check_places"]

# Sums of a count and two blocks stay within 64 bits; bases of `permutation` stay within 32.
MAX_COUNT = 2**62


def check_places(count: int, start: int, stop: int) -> tuple[int, int, int]:
    """Check that a range of places lies in an epoch.

    Parameters
    ----------
    count, start, stop : int
        As in `Order.positions`; NumPy integers count as integers, floats and bools do not.

    Returns
    -------
    count, start, stop : int
        The same as Python integers, whose sums and products never overflow.

    Raises
    ------
    ArgumentError
        Naming the argument that breaks its rule.

    Examples
    --------
    >>> check_places(10, 2, 10)
    (10, 2, 10)
    >>> check_places(10, 2, 11)
    Traceback (most recent call last):
    ...
    oocdata.errors.ArgumentError: `stop` must be at most `count` (10); got 11. An order has one \
place for each position.
    """
    count = as_count("count", count, at_least=0)
    start = as_count("start", start, at_least=0)
    stop = as_count("stop", stop, at_least=0)
    if count > MAX_COUNT:
        raise ArgumentError(
            f"`count` must be at most 2**62; got {count}. Split the dataset into parts."
        )
    if stop > count:
        raise ArgumentError(
            f"`stop` must be at most `count` ({count}); got {stop}. "
            "An order has one place for each position."
        )
    if start > stop:
        raise ArgumentError(
            f"`start` must be at most `stop` ({stop}); got {start}. "
            "A range of places never runs backwards."
        )
    return count, start, stop


def check_epoch(seed: int, epoch: int) -> tuple[int, int]:
    """Check what an order is drawn from.

    Parameters
    ----------
    seed, epoch : int
        As in `Order.positions`.

    Returns
    -------
    seed, epoch : int
        The same as Python integers: equal values, equal orders.

    Raises
    ------
    ArgumentError
        When ``seed`` is not an integer, or ``epoch`` not one of at least 0.

    Examples
    --------
    >>> check_epoch(-7, 0)
    (-7, 0)
    """
    try:
        seed = int(operator.index(seed))
    except TypeError:
        raise ArgumentError(
            f"`seed` must be an integer; got {seed!r}. A negative or a huge one will do."
        ) from None
    return seed, as_count("epoch", epoch, at_least=0)


def as_first(first: int, block: int) -> int:
    """Check the length of a first block.

    Parameters
    ----------
    first : int
        Positions in the first block.
    block : int
        Positions in the others.

    Returns
    -------
    int
        ``first`` as a Python integer.

    Raises
    ------
    ArgumentError
        When it is not from 1 to ``block``.

    Examples
    --------
    >>> as_first(5, 4)
    Traceback (most recent call last):
    ...
    oocdata.errors.ArgumentError: `first` must be at most `block` (4); got 5. It is the number of \
positions in the first block.
    """
    first = as_count("first", first)
    if first > block:
        raise ArgumentError(
            f"`first` must be at most `block` ({block}); got {first}. "
            "It is the number of positions in the first block."
        )
    return first
