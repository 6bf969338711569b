"""The order of storage: what validation and inference want, and what reads fastest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oocdata.order.checks import check_epoch, check_places

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
        """Positions visited at places ``start`` to ``stop - 1``; see `Order.positions`.

        Parameters
        ----------
        count, start, stop : int
            Number of positions, and the range of places.
        seed, epoch : int
            Accepted for the interface; they change nothing.

        Returns
        -------
        ndarray of int64, shape (stop - start,)
            ``start, start + 1, ..., stop - 1``.

        Raises
        ------
        ArgumentError
            When the range does not lie in the epoch, or the epoch is negative.
        """
        _, start, stop = check_places(count, start, stop)
        check_epoch(seed, epoch)
        return np.arange(start, stop, dtype=np.int64)
