"""Read chunks from boxes of a source, or from several chunks of another reader."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent
from oocdata.engines.chunked import ChunkReader
from oocdata.engines.decoding import run_tasks
from oocdata.engines.parts import JoinedParts
from oocdata.engines.prefetch import Fetch, fetches
from oocdata.engines.source import Storage
from oocdata.engines.wrapped import Relabelled
from oocdata.threads import cached_property, cores

__all__ = ["SourceChunks", "WholeRows"]

_TASK_BYTES = 1 << 18
"""Bytes decoded by one thread at a time."""


@dataclass(frozen=True, eq=False)
class SourceChunks(Relabelled):
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

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SourceChunks) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

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


@dataclass(frozen=True)
class WholeRows:
    """Chunks of a reader joined along some axes; a `ChunkReader`.

    Rows that chunks cut are thus whole in the cache. Each chunk is decoded into its place in a row.

    Attributes
    ----------
    reader : ChunkReader
    chunk_shape : tuple of int
        Along each axis the length of the reader's chunks, or of the array.
    """

    reader: ChunkReader
    chunk_shape: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array as stored."""
        return self.reader.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the array, in native byte order."""
        return self.reader.dtype

    @property
    def own_threads(self) -> bool:
        """Whether the reader decodes in threads of its own."""
        return self.reader.own_threads

    @property
    def parts(self) -> JoinedParts | None:
        """The datasets that the array is joined from, if several."""
        parts: JoinedParts | None = getattr(self.reader, "parts", None)
        return parts

    @property
    def piece_bytes(self) -> int:
        """Bytes of the stored chunks that are decoded at a time."""
        each = prod(self.reader.chunk_shape) * self.dtype.itemsize
        return each * min(len(self._stored), cores())

    @cached_property
    def _stored(self) -> NDArray[np.int64]:
        """Places of the stored chunks of a joined one, from its first, shape (chunks, N)."""
        axes = zip(self.chunk_shape, self.reader.chunk_shape, strict=True)
        counts = [-(-length // step) for length, step in axes]
        return np.indices(counts).reshape(len(counts), -1).T

    def check(self) -> None:
        """Raise if the file has changed since it was opened."""
        self.reader.check()

    def storage(self) -> Storage:
        """Return how the array is stored."""
        return self.reader.storage()

    def read_chunks(self, places: NDArray[np.int64], outs: Sequence[NDArray[Any]]) -> None:
        """Decode the stored chunks of each, in this thread and in idle decoding threads."""
        stored_shape = self.reader.chunk_shape
        begins = (self._stored * stored_shape).tolist()
        each = prod(stored_shape) * self.dtype.itemsize
        few = len(begins) if self.own_threads else max(1, _TASK_BYTES // each)
        tasks = []
        for place, out in zip(places, outs, strict=True):
            pieces = [
                out[tuple(slice(a, a + n) for a, n in zip(begin, stored_shape, strict=True))]
                for begin in begins
            ]
            for first in range(0, len(begins), few):
                part = slice(first, first + few)
                tasks.append(
                    partial(self.reader.read_chunks, place + self._stored[part], pieces[part])
                )
        run_tasks(tasks)

    def fetches(self, places: NDArray[np.int64]) -> list[Fetch]:
        """Return the byte ranges that decoding chunks needs from a store."""
        of_reader = getattr(self.reader, "fetches", None)
        stored = (places[:, None] + self._stored).reshape(-1, places.shape[1])
        return [] if of_reader is None else list(of_reader(stored))
