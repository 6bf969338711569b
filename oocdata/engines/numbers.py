"""An array whose numbers are their own places: nothing is stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent
from oocdata.engines.source import Storage

__all__ = ["Numbers"]

_STORAGE = Storage(
    format="numbers of the elements",
    layout="computed",
    codec="none",
    stored_bytes=0,
    reading="computed",
)


@dataclass(frozen=True)
class Numbers:
    """The numbers 0, 1, 2, …, int64.

    Attributes
    ----------
    count : int

    Examples
    --------
    >>> out = np.empty((2, 3), np.int64)
    >>> Numbers(9).read(np.array([[4], [0]]), Extent((3,), (2,)), out)
    >>> out.tolist()
    [[4, 6, 8], [0, 2, 4]]
    """

    count: int

    @property
    def shape(self) -> tuple[int, ...]:
        """One axis."""
        return (self.count,)

    @property
    def dtype(self) -> np.dtype[Any]:
        """int64."""
        return np.dtype(np.int64)

    def read(self, origins: NDArray[np.int64], extent: Extent, out: NDArray[Any]) -> None:
        """Write ``out[i] = the box at origins[i]``; see `oocdata.engines.source.Source.read`."""
        out[...] = origins + np.arange(extent.lengths[0]) * extent.strides[0]

    def storage(self) -> Storage:
        """Return that nothing is stored."""
        return _STORAGE
