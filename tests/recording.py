"""A source that records what is read, to prove that composing datasets reads nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent
from oocdata.engines.source import Storage
from oocdata.testing import boxes_of

__all__ = ["RecordingSource"]


@dataclass(frozen=True, eq=False)
class RecordingSource:
    """An array in memory that records what is read, to prove that composing datasets reads nothing.

    Attributes
    ----------
    array : ndarray
    chunks : int, tuple of int or None
        Shape of the chunks that its storage reports; an int is a number of whole rows along axis 0.
    reads : list
        Origins of each read.
    extents : list of Extent
        Extent of each read.
    """

    array: NDArray[Any]
    chunks: int | tuple[int, ...] | None = None
    reads: list[list[list[int]]] = field(default_factory=list)
    extents: list[Extent] = field(default_factory=list)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return self.array.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the array, in native byte order."""
        return self.array.dtype

    def read(self, origins: NDArray[np.int64], extent: Extent, out: NDArray[Any]) -> None:
        """Write the box at ``origins[i]`` to ``out[i]``, and record origins and extent."""
        self.reads.append(origins.tolist())
        self.extents.append(extent)
        out[...] = boxes_of(self.array, origins, extent)

    def storage(self) -> Storage:
        """Return a storage with the chunks of this source."""
        chunks = self.chunks
        if isinstance(chunks, int):
            chunks = (chunks, *self.shape[1:]) if chunks > 1 else None
        return Storage("array that records what is read", chunks=chunks)

    def forget(self) -> None:
        """Clear the record."""
        self.reads.clear()
        self.extents.clear()

    @property
    def rows(self) -> list[list[int]]:
        """Positions along axis 0 of each read."""
        return [
            [
                origin[0] + number * extent.strides[0]
                for origin in origins
                for number in range(extent.lengths[0])
            ]
            for origins, extent in zip(self.reads, self.extents, strict=True)
        ]
