"""What an order is: places of an epoch in, positions of a dataset out.

An order never sees storage, nor a dataset: it knows a count and integers. Because it is a pure
function of its arguments, resuming, sharding and worker processes need no state from it: whoever
asks for the same places of the same epoch gets the same positions, however the places are cut
into calls.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from oocdata.errors import ArgumentError

__all__ = ["Order", "visited"]


@runtime_checkable
class Order(Protocol):
    """In which order the positions of one epoch are visited.

    Any frozen, picklable object with this one method is an order; those of this package are
    `Sequential`, `Shuffle` and `BlockShuffle`.
    """

    def positions(
        self, count: int, start: int, stop: int, *, seed: int, epoch: int
    ) -> NDArray[np.int64]:
        """Positions visited at places ``start`` to ``stop - 1`` of an epoch.

        Parameters
        ----------
        count : int
            Number of positions in the epoch.
        start, stop : int
            The range of places, ``0 <= start <= stop <= count``.
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
            When the range does not lie in the epoch, or the epoch is negative.
        """
        ...


def visited(
    order: Order, count: int, start: int, stop: int, *, seed: int, epoch: int
) -> NDArray[np.int64]:
    """Return what any order says, if it is as `Order.positions` promises.

    Raises
    ------
    oocdata.errors.ArgumentError
        If it gives other than ``stop - start`` whole numbers in ``range(count)``: rows that are not
        in the dataset would be read, of another split for one.

    Examples
    --------
    >>> from oocdata.order import Sequential
    >>> visited(Sequential(), 10, 4, 7, seed=0, epoch=0)
    array([4, 5, 6])
    """
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
