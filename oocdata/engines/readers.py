"""Read chunks from boxes of a source."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent
from oocdata.engines.prefetch import Fetch, fetches
from oocdata.engines.source import Keyed
from oocdata.engines.wrapped import Relabelled

__all__ = ["SourceChunks"]


@dataclass(frozen=True, eq=False)
class SourceChunks(Keyed, Relabelled):
    """Blocks of another source as a `ChunkReader`: each is read as one box, and cached.

    Attributes
    ----------
    chunk_shape : tuple of int
    own_threads : bool
        Whether only one thread at a time reads from the source.
    key : hashable
        Identifies the bytes of the source; equal keys share cached blocks. Unique by default.
    """

    chunk_shape: tuple[int, ...]
    own_threads: bool = False
    key: Hashable = field(default_factory=object)

    @property
    def _key(self) -> tuple[Hashable, ...]:
        return self.key, self.chunk_shape

    def read_chunks(self, places: NDArray[np.int64], outs: Sequence[NDArray[Any]]) -> None:
        """Read each block."""
        for origin, out in zip(places * np.array(self.chunk_shape), outs, strict=True):
            self.source.read(origin[None], Extent.of(out.shape), out[None])

    def check(self) -> None:
        """Raise if the source's file has changed."""
        check = getattr(self.source, "check", None)
        if check is not None:
            check()

    def fetches(self, places: NDArray[np.int64]) -> list[Fetch]:
        """Return the byte ranges that reading blocks needs from stores."""
        origins, lengths = places * np.array(self.chunk_shape), np.array(self.shape)
        lengths = np.minimum(origins + self.chunk_shape, lengths) - origins
        shapes, which = np.unique(lengths, axis=0, return_inverse=True)
        return [
            stored
            for number, shape in enumerate(shapes.tolist())
            for stored in fetches(self.source, origins[which.ravel() == number], Extent.of(shape))
        ]
