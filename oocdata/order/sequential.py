"""The order of storage: what validation and inference want, and what reads fastest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oocdata.order.order import check_epoch, check_places

__all__ = ["Sequential"]


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
