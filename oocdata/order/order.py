"""Define orders, which map the places of an epoch to positions of a dataset.

An order knows a count and other integers, never storage or a dataset. It is a pure function of its
arguments, so resuming, ranks and worker processes need none of its state: the same places of the
same epoch always give the same positions, however the places are split into calls.

The orders of this package are *indexed*: they give the positions at any places of an epoch. Their
places may form lanes, stretches of an epoch that are read side by side. A batch takes the same
number of places from each lane, and a rank reads whole lanes. So a rank needs only the chunks of
its own lanes, and global batches are the same for any number of ranks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from oocdata.box import Ints
from oocdata.errors import ArgumentError
from oocdata.index import as_count, as_whole
from oocdata.order.permutation import epoch_key, forward

_MOST = 2**61
"""Sums of a count and two blocks fit in 64 bits, and bases of `permutation` in 32."""


@runtime_checkable
class Order(Protocol):
    """The order in which the positions of an epoch are visited.

    Any frozen, picklable object with this one method is an order; this package has `Sequential`,
    `Shuffle` and `BlockShuffle`. If the places of an epoch are not as many as the positions (as in
    a mixture), the order has an int attribute ``epoch_length``, used instead of `count`.
    """

    def positions(self, count: int, start: int, stop: int, *, seed: int, epoch: int) -> Ints:
        """Return the positions visited at places ``start`` to ``stop - 1`` of an epoch.

        Parameters
        ----------
        count : int
            Number of positions of the dataset.
        start, stop : int
            Range of places, ``0 <= start <= stop <= count``.
        seed : int
            Any integer, also negative or beyond 64 bits.
        epoch : int
            Number of the epoch, from 0.

        Returns
        -------
        ndarray of int64, shape (stop - start,)
            Over all places of an epoch, every position in ``range(count)`` exactly once.

        Raises
        ------
        ArgumentError
            If the range is not within the epoch, or the epoch is negative.
        """


@dataclass(frozen=True, slots=True, eq=False)
class EpochOrder:
    """The order of one epoch.

    Attributes
    ----------
    borders : ndarray of int64, shape (lanes + 1,)
        First place of each lane, and the number of places; ``[0, places]`` without lanes.
    at : callable
        Returns the positions at places, both of shape (n,), n > 0; places may be in any order.
    """

    borders: Ints
    at: Callable[[Ints], Ints]


class IndexedOrder(ABC):
    """An order that gives the positions at any places of an epoch."""

    __slots__ = ()

    @property
    def lanes(self) -> int | None:
        """Number of lanes, or None if the order has none."""
        return None

    @abstractmethod
    def epoch_order(self, count: int, seed: int, epoch: int) -> EpochOrder:
        """Return the order of one epoch over `count` positions."""

    def elements_mixed(self, count: int) -> int:
        """Return how many elements are mixed at a time, on average."""
        return count

    @staticmethod
    def _check_count(count: int, known: int, those: str) -> None:
        """Raise ArgumentError if an order made for `known` positions gets another number."""
        if count != known:
            raise ArgumentError(
                f"`count` must be the {known} {those}; got {count}. Make the order for this "
                "dataset."
            )

    def positions(self, count: int, start: int, stop: int, *, seed: int, epoch: int) -> Ints:
        """Return the positions at a range of places; see `Order.positions`.

        Places go through the lanes, if any, one after the other: lane l has places
        ``l * count // lanes`` to ``(l + 1) * count // lanes - 1``. A loader reads all in parallel.
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
        order = self.epoch_order(count, seed, epoch)  # raises if made for another count
        return order.at(np.arange(start, stop)) if stop > start else np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Sequential(IndexedOrder):
    """Positions in ascending order, in every epoch.

    Examples
    --------
    >>> Sequential().positions(10, 3, 7, seed=0, epoch=0)
    array([3, 4, 5, 6])
    """

    def epoch_order(self, count: int, seed: int, epoch: int) -> EpochOrder:
        """Return the order of one epoch, which depends on neither the seed nor the epoch."""
        return EpochOrder(np.array([0, count]), lambda places: places)


@dataclass(frozen=True, slots=True)
class Shuffle(IndexedOrder):
    """A permutation of all positions, different in each epoch.

    Unlike a shuffle buffer it mixes the whole dataset, and unlike an array of shuffled positions it
    takes no memory and no time to start: each place is computed separately, so an epoch over 10**9
    positions starts at once and resumes anywhere.

    Examples
    --------
    >>> Shuffle().positions(10, 0, 10, seed=7, epoch=0)
    array([8, 7, 0, 1, 6, 3, 4, 2, 9, 5])
    >>> Shuffle().positions(10**18, 10**17, 10**17 + 2, seed=7, epoch=0)
    array([761529566059838582, 298824838005696338])
    """

    def epoch_order(self, count: int, seed: int, epoch: int) -> EpochOrder:
        """Return the order of one epoch."""
        key = epoch_key(seed, epoch, "shuffle")
        return EpochOrder(
            np.array([0, count]),
            lambda places: forward(places.view(np.uint64), count, key).view(np.int64),
        )


def epoch_order_of(order: Order, count: int, seed: int, epoch: int) -> EpochOrder:
    """Return one epoch of any order; if it is not indexed, a range of places is computed."""
    if isinstance(order, IndexedOrder):
        return order.epoch_order(count, seed, epoch)

    def at(places: Ints) -> Ints:
        first, stop = int(places.min()), int(places.max()) + 1
        return _checked(order, count, first, stop, seed=seed, epoch=epoch)[places - first]

    return EpochOrder(np.array([0, length_of(order, count)]), at)


def order_with_lanes(order: Order) -> IndexedOrder | None:
    """Return the order if it has lanes."""
    return order if isinstance(order, IndexedOrder) and order.lanes is not None else None


def length_of(order: Order, count: int) -> int:
    """Return the number of places of an epoch: `epoch_length`, or by default one per position."""
    return int(getattr(order, "epoch_length", count))


def _checked(order: Order, count: int, start: int, stop: int, *, seed: int, epoch: int) -> Ints:
    """Return the positions of a user's order; raise if they are not positions of the dataset."""
    positions = np.asarray(order.positions(count, start, stop, seed=seed, epoch=epoch))
    if positions.shape != (stop - start,) or positions.dtype.kind not in "iu":
        got = f"{positions.dtype} of shape {positions.shape}"
    elif len(positions) and not (positions.min() >= 0 and positions.max() < count):
        got = f"positions from {positions.min()} to {positions.max()}"
    else:
        return positions.astype(np.int64, copy=False)
    raise ArgumentError(
        f"an order must give {stop - start} whole numbers in [0, {count}) for places {start} to "
        f"{stop - 1} of epoch {epoch}; {order!r} gave {got}."
    )
