"""Chunk readers made of something else: of boxes of a source, or of the chunks of another one."""

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
from oocdata.engines.decoding import in_turns
from oocdata.engines.parts import JoinedParts
from oocdata.engines.soon import Soon, soon
from oocdata.engines.source import Storage
from oocdata.engines.wrapped import Relabelled
from oocdata.threads import cached_property, cores

__all__ = ["SourceChunks", "WholeRows"]

_TASK_BYTES = 1 << 18
"""Decoded by one thread at a time."""


@dataclass(frozen=True, eq=False)
class SourceChunks(Relabelled):
    """Blocks of another source, as a `ChunkReader`: each is read as one box, and cached.

    Attributes
    ----------
    chunk_shape : tuple of int
    own_threads : bool
        One thread at a time reads from the source.
    key : hashable
        Of the source's bytes: blocks of one key are the same; by default, no others are.
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

    def soon(self, places: NDArray[np.int64]) -> list[Soon]:
        """Return what reading blocks will take out of stores."""
        origins, lengths = places * np.array(self.chunk_shape), np.array(self.shape)
        lengths = np.minimum(origins + self.chunk_shape, lengths) - origins
        kinds, which = np.unique(lengths, axis=0, return_inverse=True)
        return [
            one
            for number, kind in enumerate(kinds.tolist())
            for one in soon(self.source, origins[which.ravel() == number], Extent.of(kind))
        ]


@dataclass(frozen=True)
class WholeRows:
    """Chunks of a reader put together along some axes; a `ChunkReader`.

    So rows that chunks cut lie whole in the cache. Each chunk is decoded to where it goes in a row.

    Attributes
    ----------
    reader : ChunkReader
    chunk_shape : tuple of int
        Along each axis as long as the reader's, or as the array.
    """

    reader: ChunkReader
    chunk_shape: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array as stored."""
        return self.reader.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Native byte order."""
        return self.reader.dtype

    @property
    def own_threads(self) -> bool:
        """Whether the reader decodes in threads of its own."""
        return self.reader.own_threads

    @property
    def parts(self) -> JoinedParts | None:
        """Datasets that the array is made of, if they are several."""
        parts: JoinedParts | None = getattr(self.reader, "parts", None)
        return parts

    @property
    def piece_bytes(self) -> int:
        """Bytes that are decoded at a time, of all that one is made of."""
        each = prod(self.reader.chunk_shape) * self.dtype.itemsize
        return each * min(len(self._stored), cores())

    @cached_property
    def _stored(self) -> NDArray[np.int64]:
        """The places of the stored chunks, from that of the first one, shape (chunks, N)."""
        counts = [
            -(-n // cut) for n, cut in zip(self.chunk_shape, self.reader.chunk_shape, strict=True)
        ]
        return np.indices(counts).reshape(len(counts), -1).T

    def check(self) -> None:
        """Raise if the stored bytes have changed since the opening."""
        self.reader.check()

    def storage(self) -> Storage:
        """Return how the array is stored."""
        return self.reader.storage()

    def read_chunks(self, places: NDArray[np.int64], outs: Sequence[NDArray[Any]]) -> None:
        """Decode the chunks that each is made of, here and in threads that are free."""
        cut = self.reader.chunk_shape
        begins = (self._stored * cut).tolist()
        each = prod(cut) * self.dtype.itemsize
        few = len(begins) if self.own_threads else max(1, _TASK_BYTES // each)
        tasks = []
        for place, out in zip(places, outs, strict=True):
            pieces = [
                out[tuple(slice(at, at + length) for at, length in zip(begin, cut, strict=True))]
                for begin in begins
            ]
            for first in range(0, len(begins), few):
                some = slice(first, first + few)
                tasks.append(
                    partial(self.reader.read_chunks, place + self._stored[some], pieces[some])
                )
        in_turns(tasks)

    def soon(self, places: NDArray[np.int64]) -> list[Soon]:
        """Return what decoding them will take out of a store."""
        ask = getattr(self.reader, "soon", None)
        stored = (places[:, None] + self._stored).reshape(-1, places.shape[1])
        return [] if ask is None else list(ask(stored))
