"""Sources made of another source, and a reader of its blocks as chunks."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent, Ints
from oocdata.engines.copying import read_to
from oocdata.engines.prefetch import Fetch, fetches
from oocdata.engines.source import Boxes, Keyed, Source, Storage, WithStorage
from oocdata.threads import cached_property


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


@dataclass(frozen=True, eq=False)
class Transposed(WithStorage):
    """A source with its axes in another order.

    `order` has the axis of `source` for each axis of the view, as in `numpy.transpose`. The view
    has the storage description of `like`.

    >>> from oocdata.engines.memory_array import MemoryArray
    >>> frames = MemoryArray(np.arange(12).reshape(2, 2, 3))
    >>> rows, out = Transposed(frames, (2, 0, 1), frames), np.zeros((1, 1, 2, 2), int)
    >>> rows.read(np.array([[1, 0, 0]]), Extent.of((1, 2, 2)), out)
    >>> rows.shape, out[0, 0].tolist()
    ((3, 2, 2), [[1, 4], [7, 10]])
    """

    source: Source
    order: tuple[int, ...]
    like: Source

    @property
    def below(self) -> tuple[Source]:
        return (self.source,)

    @property
    def shape(self) -> tuple[int, ...]:
        return reordered(self.source.shape, self.order)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.source.dtype

    @cached_property
    def _storage(self) -> Storage:
        return self.like.storage()

    @cached_property
    def _inverse(self) -> list[int]:
        return list(map(self.order.index, range(len(self.order))))

    def check(self) -> None:
        check = getattr(self.source, "check", None)
        if check is not None:
            check()

    def read(
        self, origins: Ints, extent: Extent, out: NDArray[Any], places: Ints | None = None
    ) -> None:
        target = out.transpose(0, *(axis + 1 for axis in self._inverse))
        read_to(*self.read_boxes(origins, extent)[0], target, places)

    read_to = read

    def read_boxes(self, origins: Ints, extent: Extent) -> list[Boxes]:
        lengths = reordered(extent.lengths, self._inverse)
        strides = reordered(extent.strides, self._inverse)
        return [(self.source, origins[:, self._inverse], Extent(lengths, strides))]


def reordered(lengths: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    """Return the lengths of axes in another order.

    >>> reordered((20, 384, 384, 49), (0, 3, 1, 2))
    (20, 49, 384, 384)
    """
    return tuple(lengths[axis] for axis in order)
