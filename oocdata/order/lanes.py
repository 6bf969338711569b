"""Orders that are walked: asked at any places of an epoch, which may go through lanes.

Lanes are stretches of an epoch that are walked side by side. A batch takes the same number of
places from each lane and a rank reads whole lanes, so a rank needs only the chunks of its own
stretches, and global batches are the same for any number of ranks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from oocdata.index import as_count
from oocdata.order.order import (
    Order,
    Shuffle,
    check_epoch,
    check_places,
    length_of,
    visited,
)

__all__ = ["Walk", "Walked", "laned", "walk_of"]


class Walk(Protocol):
    """One epoch of an order."""

    @property
    def borders(self) -> NDArray[np.int64]:
        """Where each lane begins among the places, and their number, shape (lanes + 1,)."""
        ...

    def at(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions at places, at least one, in any order of them, shape (n,)."""
        ...


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
        _, start, stop = check_places(length_of(self, count), start, stop)
        seed, epoch = check_epoch(seed, epoch)
        if not count:
            return np.empty(0, np.int64)
        walk = self.walk(count, seed, epoch)  # which raises where the order is of another count
        return walk.at(np.arange(start, stop)) if stop > start else np.empty(0, np.int64)


class _Ranges:
    """One epoch of an order without lanes; most know ranges of places alone."""

    def __init__(self, order: Order, count: int, seed: int, epoch: int) -> None:
        self._order, self._count, self._of = order, count, {"seed": seed, "epoch": epoch}
        self.borders = np.array([0, length_of(order, count)])

    def at(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions at places, shape (n,)."""
        if isinstance(self._order, Shuffle):
            return self._order.at(self._count, places, **self._of)
        first, stop = int(places.min()), int(places.max()) + 1
        return visited(self._order, self._count, first, stop, **self._of)[places - first]


def walk_of(order: Order, count: int, seed: int, epoch: int) -> Walk:
    """Return one epoch of any order."""
    if isinstance(order, Walked):
        return order.walk(count, seed, epoch)
    return _Ranges(order, count, seed, epoch)


def laned(order: Order) -> Walked | None:
    """Return the order if its epochs are walked in lanes."""
    return order if isinstance(order, Walked) and order.lanes is not None else None
