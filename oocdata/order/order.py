"""Define orders, which map the places of an epoch to positions of a dataset.

An order knows a count and other integers, never storage or a dataset. It is a pure function of its
arguments, so resuming, ranks and worker processes need none of its state: the same places of the
same epoch always give the same positions, however the places are split into calls.

Places may form lanes, stretches of an epoch that are read side by side. A batch takes the same
number of places from each lane, and a rank reads whole lanes. So a rank needs only the chunks of
its own lanes, and global batches are the same for any number of ranks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from oocdata.box import Ints
from oocdata.errors import ArgumentError
from oocdata.index import as_count, as_whole
from oocdata.order.permutation import epoch_key, forward

_MOST = 2**61
"""Sums of a count and two blocks fit in 64 bits, and bases of `permutation` in 32."""


EpochOrder: TypeAlias = Callable[[Ints], Ints]
"""Positions at places of one epoch, both int64 of shape (n,), n > 0."""


class Order(ABC):
    """The order in which the positions of an epoch are visited: the base class of all orders.

    An order of your own is a frozen dataclass that defines `epoch_order`.

    Examples
    --------
    >>> import numpy as np, oocdata as ooc
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Backwards(ooc.Order):
    ...     def epoch_order(self, count, seed, epoch):
    ...         return lambda places: count - 1 - places
    >>> ooc.open(np.arange(6)).batches(3, shuffle=Backwards()).batch(0)
    array([5, 4, 3])
    """

    __slots__ = ()

    @property
    def lanes(self) -> int | None:
        """Number of lanes, or None. Lane l of n begins at place ``l * places // n``."""
        return None

    @property
    def nbytes(self) -> int:
        """Bytes of the order's tables."""
        return 0

    @abstractmethod
    def epoch_order(self, count: int, seed: int, epoch: int) -> EpochOrder:
        """Return the order of one epoch, a pure function of the arguments.

        Parameters
        ----------
        count : int
            Number of positions of the dataset.
        seed : int
            Any integer, also negative or beyond 64 bits.
        epoch : int
            Number of the epoch, from 0.

        Returns
        -------
        callable
            Function of places, int64 of shape (n,) with n > 0 and in any order, that returns their
            positions: over all places, every position in ``range(count)`` exactly once.
        """

    def epoch_length(self, count: int) -> int:
        """Return the number of places of an epoch over `count` positions; by default as many."""
        return count

    def elements_mixed(self, count: int) -> int:
        """Return how many elements are mixed at a time, on average."""
        return count

    def words(self, count: int) -> str:
        """Describe the order in words, for `Loader.explain`."""
        return repr(self)

    @staticmethod
    def _check_count(count: int, known: int, those: str) -> None:
        """Raise ArgumentError if an order made for `known` positions gets another number."""
        if count != known:
            raise ArgumentError(
                f"`count` must be the {known} {those}; got {count}. Make the order for this "
                "dataset."
            )

    def positions(self, count: int, start: int, stop: int, *, seed: int, epoch: int) -> Ints:
        """Return the positions visited at places ``start`` to ``stop - 1`` of an epoch.

        Places go through the lanes, if any, one after the other: lane l has places
        ``l * count // lanes`` to ``(l + 1) * count // lanes - 1``. A loader reads all in parallel.

        Returns
        -------
        ndarray of int64, shape (stop - start,)

        Raises
        ------
        oocdata.errors.ArgumentError
            If the range is not within the epoch, or the order was made for another count.
        """
        count = as_count("count", count, at_least=0)
        length = self.epoch_length(count)
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
        return order(np.arange(start, stop)) if stop > start else np.empty(0, np.int64)


def checked_epoch(order: Order, count: int, seed: int, epoch: int) -> EpochOrder:
    """Return the order of an epoch, which raises if a user's gives no valid positions."""
    made = order.epoch_order(count, seed, epoch)

    def at(places: Ints) -> Ints:
        positions = np.asarray(made(places))
        if positions.shape != places.shape or positions.dtype.kind not in "iu":
            got = f"{positions.dtype} of shape {positions.shape}"
        elif not (positions.min() >= 0 and positions.max() < count):
            got = f"positions from {positions.min()} to {positions.max()}"
        else:
            return positions.astype(np.int64, copy=False)
        raise ArgumentError(
            f"an order must give a whole number in [0, {count}) for each of {len(places)} places; "
            f"{order!r} gave {got}."
        )

    return at


@dataclass(frozen=True, slots=True)
class Sequential(Order):
    """Positions in ascending order, in every epoch.

    Examples
    --------
    >>> Sequential().positions(10, 3, 7, seed=0, epoch=0)
    array([3, 4, 5, 6])
    """

    def epoch_order(self, count: int, seed: int, epoch: int) -> EpochOrder:
        return lambda places: places

    def words(self, count: int) -> str:
        return "in order"


@dataclass(frozen=True, slots=True)
class Shuffle(Order):
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
        key = epoch_key(seed, epoch, "shuffle")
        return lambda places: forward(places.view(np.uint64), count, key).view(np.int64)

    def words(self, count: int) -> str:
        return "full shuffle"
