"""Which chunks are asked for soon, as far as that was told: they are kept rather than others.

What was used least recently makes room well where the same chunks are used again soon. In a full
shuffle all are used alike, and when one was used tells nothing; but the order is known ahead. To
throw out what is wanted last is then the best that can be done (L. A. Bélády, 1966): with room for
two fifths of the chunks, half as many are decoded.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

__all__ = ["Expected"]

_MOST, _LATEST = 64, 256
"""Requests told of in advance, at most, and after how many others one won't come any more."""


class Expected:
    """Requests that are to come, each of several keys, about in the order of telling.

    Examples
    --------
    >>> expected = Expected()
    >>> expected.tell(np.array([7, 8]))
    >>> expected.tell(np.array([8, 9]))
    >>> expected.when(np.array([9, 8, 3])).tolist()
    [1, 0, 64]
    >>> expected.came(np.array([7, 8]))
    >>> expected.when(np.array([9, 8, 3])).tolist()
    [0, 0, 64]
    """

    def __init__(self) -> None:
        self._now = 0
        self._told: deque[tuple[int, NDArray[np.int64]]] = deque(maxlen=_MOST)

    def __len__(self) -> int:
        """Return how many are still to come."""
        return len(self._told)

    def tell(self, keys: NDArray[np.int64]) -> None:
        """Say what a later request will ask for."""
        self._told.append((self._now, keys))

    def came(self, keys: NDArray[np.int64]) -> None:
        """Forget the request that is there now, and those that never came."""
        self._now += 1
        for place, (_, told) in enumerate(self._told):
            if np.array_equal(told, keys):
                del self._told[place]
                break
        while self._told and self._told[0][0] < self._now - _LATEST:
            self._told.popleft()

    def when(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many requests come before the first that asks for each key; many if none.

        Parameters
        ----------
        keys : ndarray of int64, shape (n,)
            Different from one another.

        Returns
        -------
        ndarray of int64, shape (n,)
        """
        wanted = np.full(len(keys), _MOST)
        if not self._told or not len(keys):
            return wanted
        by_key = np.argsort(keys)
        ascending = keys[by_key]
        for place, (_, told) in reversed(list(enumerate(self._told))):
            at = np.minimum(np.searchsorted(ascending, told), len(keys) - 1)
            wanted[by_key[at[ascending[at] == told]]] = place
        return wanted
