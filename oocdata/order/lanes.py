"""Orders in lanes: an epoch cut into stretches that are walked side by side.

A batch takes the same number of places from each lane and a rank reads whole lanes, so a rank
needs only the chunks of its own stretches, and global batches are the same for any number of ranks.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from oocdata.order.order import Order

__all__ = ["Laned", "Walk", "laned"]


class Walk(Protocol):
    """One epoch of an order in lanes."""

    @property
    def borders(self) -> NDArray[np.int64]:
        """Where each lane begins among the places, and their number, shape (lanes + 1,)."""
        ...

    def at(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions at places, in any order of them, shape (n,)."""
        ...


@runtime_checkable
class Laned(Protocol):
    """An order whose places go through lanes, one lane after the other."""

    @property
    def lanes(self) -> int | None:
        """How many; None where this order has none."""
        ...

    def walk(self, count: int, seed: int, epoch: int) -> Walk:
        """Return one epoch of `count` positions."""
        ...

    def elements_mixed(self, count: int) -> int:
        """Return how many elements are mixed at a time, on average."""
        ...


def laned(order: Order) -> Laned | None:
    """Return the order if its epochs are walked in lanes.

    Examples
    --------
    >>> from oocdata.order import BlockShuffle, Shuffle
    >>> laned(BlockShuffle(4, 2, lanes=2)) is None, laned(Shuffle()) is None
    (False, True)
    """
    return order if isinstance(order, Laned) and order.lanes is not None else None
