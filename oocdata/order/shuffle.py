"""A true shuffle of all positions, without a table of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oocdata.order.order import check_epoch, check_places
from oocdata.order.permutation import epoch_key, forward

__all__ = ["Shuffle"]


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
        if start == stop:
            return np.empty(0, np.int64)
        places = np.arange(start, stop, dtype=np.uint64)
        return forward(places, count, epoch_key(seed, epoch, "shuffle")).view(np.int64)
