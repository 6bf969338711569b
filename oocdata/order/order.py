"""Orders: places of an epoch in, positions of a dataset out.

An order never sees storage, nor a dataset: it knows a count and integers. Because it is a pure
function of its arguments, resuming, ranks and worker processes need no state from it: whoever asks
for the same places of the same epoch gets the same positions, however the places are cut into
calls.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from oocdata.errors import ArgumentError
from oocdata.index import as_count
from oocdata.order.permutation import epoch_key, forward

__all__ = [
    "Order", "Sequential", "Shuffle", "check_epoch", "check_places", "length_of", "visited",
]  # fmt: skip

_MOST = 2**61
"""Sums of a count and two blocks stay within 64 bits; bases of `permutation` stay within 32."""


@runtime_checkable
class Order(Protocol):
    """In which order the positions of one epoch are visited.

    Any frozen, picklable object with this one method is an order; those of this package are
    `Sequential`, `Shuffle` and `BlockShuffle`. An order whose epoch has not one place for each
    position (a mixture) has an int attribute ``epoch_length``: its places, instead of `count`.
    """

    def positions(
        self, count: int, start: int, stop: int, *, seed: int, epoch: int
    ) -> NDArray[np.int64]:
        """Return the positions visited at places ``start`` to ``stop - 1`` of an epoch.

        Parameters
        ----------
        count, start, stop : int
            Positions in the epoch, and the range of places, ``0 <= start <= stop <= count``.
        seed, epoch : int
            Any integer, also negative or beyond 64 bits; the number of the epoch, from 0.

        Returns
        -------
        ndarray of int64, shape (stop - start,)
            Over all places of an epoch, every position in ``range(count)`` exactly once.

        Raises
        ------
        ArgumentError
            When the range does not lie in the epoch, or the epoch is negative.
        """
        ...


@dataclass(frozen=True, slots=True)
class Sequential:
    """Every position in its own place, in every epoch.

    Examples
    --------
    >>> Sequential().positions(10, 3, 7, seed=0, epoch=0)
    array([3, 4, 5, 6])
    """

    def positions(
        self, count: int, start: int, stop: int, *, seed: int, epoch: int
    ) -> NDArray[np.int64]:
        """Return ``start, start + 1, …``; see `Order.positions`. The seed changes nothing."""
        _, start, stop = check_places(count, start, stop)
        check_epoch(seed, epoch)
        return np.arange(start, stop, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Shuffle:
    """A permutation of all positions, drawn anew each epoch.

    Unlike a shuffle buffer it mixes over the whole dataset, and unlike an array of shuffled
    positions it takes no memory and no time to start: each place is computed by itself, so that
    an epoch over 10**9 positions starts at once and resumes anywhere.

    Examples
    --------
    >>> Shuffle().positions(10, 0, 10, seed=7, epoch=0)
    array([8, 7, 0, 1, 6, 3, 4, 2, 9, 5])
    >>> Shuffle().positions(10**18, 10**17, 10**17 + 2, seed=7, epoch=0)
    array([761529566059838582, 298824838005696338])
    """

    def positions(
        self, count: int, start: int, stop: int, *, seed: int, epoch: int
    ) -> NDArray[np.int64]:
        """Return the positions at a range of places; see `Order.positions`."""
        count, start, stop = check_places(count, start, stop)
        seed, epoch = check_epoch(seed, epoch)
        return self.at(count, np.arange(start, stop), seed, epoch)

    def at(self, count: int, places: NDArray[np.int64], seed: int, epoch: int) -> NDArray[np.int64]:
        """Return the positions at places, in any order of them, shape (n,); nothing is checked."""
        if not len(places):
            return np.empty(0, np.int64)
        key = epoch_key(seed, epoch, "shuffle")
        return forward(places.view(np.uint64), count, key).view(np.int64)


def length_of(order: Order, count: int) -> int:
    """Return the places of an epoch over so many positions.

    One for each, unless the order has another `epoch_length`.
    """
    return int(getattr(order, "epoch_length", count))


def visited(
    order: Order, count: int, start: int, stop: int, *, seed: int, epoch: int
) -> NDArray[np.int64]:
    """Return the positions of any order, checked: others may be rows of another split."""
    found = np.asarray(order.positions(count, start, stop, seed=seed, epoch=epoch))
    if found.shape != (stop - start,) or found.dtype.kind not in "iu":
        got = f"{found.dtype} of shape {found.shape}"
    elif len(found) and not (found.min() >= 0 and found.max() < count):
        got = f"positions from {found.min()} to {found.max()}"
    else:
        return found.astype(np.int64, copy=False)
    raise ArgumentError(
        f"an order must give {stop - start} whole numbers in [0, {count}) for places {start} to "
        f"{stop - 1} of epoch {epoch}; {order!r} gave {got}."
    )


def check_places(count: int, start: int, stop: int) -> tuple[int, int, int]:
    """Return a range of places as Python integers, checked to lie in an epoch of `count`."""
    count = as_count("count", count, at_least=0)
    start = as_count("start", start, at_least=0)
    stop = as_count("stop", stop, at_least=0)
    if count > _MOST:
        raise ArgumentError(
            f"`count` must be at most 2**61; got {count}. Split the dataset into parts."
        )
    if not start <= stop <= count:
        raise ArgumentError(
            f"places must lie in an epoch, 0 <= start <= stop <= {count}; got {start} and {stop}."
        )
    return count, start, stop


def check_epoch(seed: int, epoch: int) -> tuple[int, int]:
    """Return a seed and an epoch as Python integers, checked: equal values, equal orders."""
    try:
        seed = int(operator.index(seed))
    except TypeError:
        raise ArgumentError(
            f"`seed` must be an integer; got {seed!r}. A negative or a huge one will do."
        ) from None
    return seed, as_count("epoch", epoch, at_least=0)
