"""A source made of another one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent
from oocdata.engines.source import Boxes, Source, Storage

__all__ = ["Relabelled", "Wrapped"]


@dataclass(frozen=True, eq=False)
class Wrapped:
    """A source that is as another one in all that its subclass does not say.

    Attributes
    ----------
    source : Source
    """

    source: Source

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
        return self.source.storage()

    def read(self, origins: NDArray[np.int64], extent: Extent, out: NDArray[Any]) -> None:
        """Write ``out[i] = the box at origins[i]``; see `oocdata.engines.source.Source.read`."""
        self.source.read(origins, extent, out)

    def read_boxes(self, origins: NDArray[np.int64], extent: Extent) -> Iterable[Boxes]:
        """Return the boxes that are read; see `oocdata.engines.soon.soon`."""
        return [(self.source, origins, extent)]


@dataclass(frozen=True, eq=False)
class Relabelled(Wrapped):
    """A source with another storage to tell of: it may be part of something larger.

    Attributes
    ----------
    described : Storage
    """

    described: Storage

    @property
    def below(self) -> tuple[Source]:
        """What is read."""
        return (self.source,)

    def storage(self) -> Storage:
        """Return how the array is stored."""
        return self.described
