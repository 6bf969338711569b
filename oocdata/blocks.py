"""Which positions of a dataset are stored together: all that an order knows of storage."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

__all__ = ["ADDRESSABLE", "BlockIds", "Blocks"]


@dataclass(frozen=True, slots=True)
class Blocks:
    """Runs of positions that are stored, and decoded, together.

    Attributes
    ----------
    length : int
        Positions in a block; 1 where every element has an address of its own.
    first : int
        Positions in the first block of a stretch, which may be cut: 1 ≤ first ≤ length.
    period : int or None
        Positions in a stretch, e.g. the rows of one trajectory: each begins with a block of `first`
        positions and may end with a short one. None: all positions are one stretch.

    Examples
    --------
    >>> Blocks(4, 2, 9).starts(18).tolist()
    [0, 2, 6, 9, 11, 15]
    """

    length: int
    first: int
    period: int | None = None

    def starts(self, count: int) -> NDArray[np.int64]:
        """Return the first position of every block, shape (blocks,); for tests and small counts."""
        period = count if self.period is None else self.period
        if count == 0:
            return np.zeros(0, np.int64)
        stretch = np.concatenate(([0], np.arange(self.first, period, self.length)))
        stretches = np.arange(0, count, period)
        starts = (stretches[:, None] + stretch).ravel()
        return starts[starts < count]


@dataclass(frozen=True, slots=True, eq=False)
class BlockIds:
    """The block that each position of an irregular selection lies in.

    Attributes
    ----------
    ids : ndarray of int64, shape (positions,)
        Any numbers; positions of one number are stored together.
    """

    ids: NDArray[np.int64] = field(repr=False)


ADDRESSABLE = Blocks(1, 1)
"""Every element is read by itself."""
