"""Base class for sources made of another source."""

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
    """A source that behaves like another one, except for what its subclass overrides.

    Attributes
    ----------
    source : Source
    """

    source: Source

    @property
    def row_source(self) -> Source:
        """The source that identifies the rows: no two parts of a split share a row of it."""
        return self.source

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array as stored."""
        return self.source.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """In native byte order."""
        return self.source.dtype

    def storage(self) -> Storage:
        """Return how the array is stored."""
        return self.source.storage()

    def read(self, origins: NDArray[np.int64], extent: Extent, out: NDArray[Any]) -> None:
        """Write ``out[i] = the box at origins[i]``; see `oocdata.engines.source.Source.read`."""
        self.source.read(origins, extent, out)

    def read_boxes(self, origins: NDArray[np.int64], extent: Extent) -> Iterable[Boxes]:
        """Return the boxes that are read; see `oocdata.engines.prefetch.fetches`."""
        return [(self.source, origins, extent)]


@dataclass(frozen=True, eq=False)
class Relabelled(Wrapped):
    """A source with another storage description, for example as a part of a larger array.

    Attributes
    ----------
    described : Storage
    """

    described: Storage

    @property
    def below(self) -> tuple[Source]:
        """The wrapped source."""
        return (self.source,)

    def storage(self) -> Storage:
        """Return how the array is stored."""
        return self.described
