"""A source under another name: read as it is, described as part of something larger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent
from oocdata.engines.source import Source, Storage

__all__ = ["Relabelled"]


@dataclass(frozen=True, eq=False)
class Relabelled:
    """A source with another storage to tell of.

    Attributes
    ----------
    source : Source
    described : Storage
    """

    source: Source
    described: Storage

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array as stored."""
        return self.source.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Native byte order."""
        return self.source.dtype

    def storage(self) -> Storage:
        """Return how the array is stored."""
        return self.described

    def read(self, origins: NDArray[np.int64], extent: Extent, out: NDArray[Any]) -> None:
        """Write ``out[i] = the box at origins[i]``; see `oocdata.engines.source.Source.read`."""
        self.source.read(origins, extent, out)
