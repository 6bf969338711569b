"""Orders: places of an epoch in, positions of a dataset out.

An order never sees storage, nor a dataset: it knows a count and integers. Because it is a pure
function of its arguments, resuming, ranks and worker processes need no state from it: whoever asks
for the same places of the same epoch gets the same positions, however the places are cut into
calls.

The orders of this package are *walked*: asked at any places of an epoch, which may go through
lanes. Lanes are stretches of an epoch that are walked side by side. A batch takes the same number
of places from each lane and a rank reads whole lanes, so a rank needs only the chunks of its own
stretches, and global batches are the same for any number of ranks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from oocdata.errors import ArgumentError
from oocdata.index import as_count, as_whole
from oocdata.order.permutation import epoch_key, forward

__all__ = [
    "Order", "Sequential", "Shuffle", "Walk", "Walked", "laned", "length_of", "walk_of",
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


@dataclass(frozen=True, slots=True, eq=False)
class Walk:
    """One epoch of an order.

    Attributes
    ----------
    borders : ndarray of int64, shape (lanes + 1,)
        Where each lane begins among the places, and their number.
    at : callable
        Returns the positions at places, at least one, in any order of them, shape (n,).
    """

    borders: NDArray[np.int64]
    at: Callable[[NDArray[np.int64]], NDArray[np.int64]]

    @classmethod
    def whole(cls, length: int, at: Callable[[NDArray[np.int64]], NDArray[np.int64]]) -> Walk:
        """Return an epoch of so many places without lanes."""
        return cls(np.array([0, length]), at)


class Walked(ABC):
    """An order of which an epoch can be asked at any places, in any order of them."""

    __slots__ = ()

    @property
    def lanes(self) -> int | None:
        """How many lanes its places go through, one after the other; None where it has none."""
        return None

    @abstractmethod
    def walk(self, count: int, seed: int, epoch: int) -> Walk:
        """Return one epoch of `count` positions."""

    def elements_mixed(self, count: int) -> int:
        """Return how many elements are mixed at a time, on average."""
        return count

    def positions(
        self, count: int, start: int, stop: int, *, seed: int, epoch: int
    ) -> NDArray[np.int64]:
        """Return the positions at a range of places; see `Order.positions`.

        Places go through the lanes, if there are any, one after the other: lane l has places
        ``l * count // lanes`` to ``(l + 1) * count // lanes - 1``. A loader walks all side by side.
        """
        count = as_count("count", count, at_least=0)
        length = length_of(self, count)
        start, stop = as_count("start", start, at_least=0), as_count("stop", stop, at_least=0)
        if length > _MOST:
            raise ArgumentError(
                f"`count` must be at most 2**61; got {length}. Split the dataset into parts."
            )
        if not start <= stop <= length:
            raise ArgumentError(
                f"places must lie in an epoch, 0 <= start <= stop <= {length}; got {start} and "
                f"{stop}."
            )
        seed, epoch = as_whole("seed", seed), as_count("epoch", epoch, at_least=0)
        if not count:
            return np.empty(0, np.int64)
        walk = self.walk(count, seed, epoch)  # which raises where the order is of another count
        return walk.at(np.arange(start, stop)) if stop > start else np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Sequential(Walked):
    """Every position in its own place, in every epoch.

    Examples
    --------
    >>> Sequential().positions(10, 3, 7, seed=0, epoch=0)
    array([3, 4, 5, 6])
    """

    def walk(self, count: int, seed: int, epoch: int) -> Walk:
        """Return one epoch; neither the seed nor the epoch changes anything."""
        return Walk.whole(count, lambda places: places)


@dataclass(frozen=True, slots=True)
class Shuffle(Walked):
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

    def walk(self, count: int, seed: int, epoch: int) -> Walk:
        """Return one epoch."""
        key = epoch_key(seed, epoch, "shuffle")
        return Walk.whole(
            count, lambda places: forward(places.view(np.uint64), count, key).view(np.int64)
        )


def walk_of(order: Order, count: int, seed: int, epoch: int) -> Walk:
    """Return one epoch of any order; those of others know ranges of places alone."""
    if isinstance(order, Walked):
        return order.walk(count, seed, epoch)

    def at(places: NDArray[np.int64]) -> NDArray[np.int64]:
        first, stop = int(places.min()), int(places.max()) + 1
        return _visited(order, count, first, stop, seed=seed, epoch=epoch)[places - first]

    return Walk.whole(length_of(order, count), at)


def laned(order: Order) -> Walked | None:
    """Return the order if its epochs are walked in lanes."""
    return order if isinstance(order, Walked) and order.lanes is not None else None


def length_of(order: Order, count: int) -> int:
    """Return the places of an epoch over so many positions.

    One for each, unless the order has another `epoch_length`.
    """
    return int(getattr(order, "epoch_length", count))


def _visited(
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
