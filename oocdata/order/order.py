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

__all__ = ["Order"]


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
