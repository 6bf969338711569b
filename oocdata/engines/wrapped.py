"""Base classes for sources made of another source, and a reader of its blocks as chunks."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent, Ints
from oocdata.engines.prefetch import Fetch, fetches
from oocdata.engines.source import Boxes, Keyed, Source, Storage


@dataclass(frozen=True, eq=False)
class Wrapped:
    """A source that behaves like another one, except for its storage and overridden methods."""

    source: Source

    @property
    def row_source(self) -> Source:
        """The source that identifies the rows: no two parts of a split share a row of it."""
        return self.source

    @property
    def shape(self) -> tuple[int, ...]:
        return self.source.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.source.dtype

    def read(self, origins: Ints, extent: Extent, out: NDArray[Any]) -> None:
        self.source.read(origins, extent, out)

    def read_boxes(self, origins: Ints, extent: Extent) -> Iterable[Boxes]:
        return [(self.source, origins, extent)]


@dataclass(frozen=True, eq=False)
class Relabelled(Wrapped):
    """A source with another storage description, for example as a part of a larger array."""

    described: Storage

    @property
    def below(self) -> tuple[Source]:
        return (self.source,)

    def storage(self) -> Storage:
        return self.described


@dataclass(frozen=True, eq=False)
class SourceChunks(Keyed, Relabelled):
    """Blocks of another source as a `ChunkReader`: each is read as one box, and cached.

    `own_threads` says whether only one thread at a time reads from the source. Sources with equal
    `key` share cached blocks; by default it is unique.
    """

    chunk_shape: tuple[int, ...]
    own_threads: bool = False
    key: Hashable = field(default_factory=object)

    @property
    def _key(self) -> tuple[Hashable, ...]:
        return self.key, self.chunk_shape

    def read_chunks(self, places: Ints, outs: Sequence[NDArray[Any]]) -> None:
        for origin, out in zip(places * np.array(self.chunk_shape), outs, strict=True):
            self.source.read(origin[None], Extent.of(out.shape), out[None])

    def check(self) -> None:
        check = getattr(self.source, "check", None)
        if check is not None:
            check()

    def fetches(self, places: Ints) -> list[Fetch]:
        origins, lengths = places * np.array(self.chunk_shape), np.array(self.shape)
        lengths = np.minimum(origins + self.chunk_shape, lengths) - origins
        shapes, which = np.unique(lengths, axis=0, return_inverse=True)
        return [
            stored
            for number, shape in enumerate(shapes.tolist())
            for stored in fetches(self.source, origins[which.ravel() == number], Extent.of(shape))
        ]
