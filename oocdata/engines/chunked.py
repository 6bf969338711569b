"""Read boxes of an array that is stored in chunks, each decoded as a whole.

A format supplies a `ChunkReader`: the grid of chunks, and a method that decodes some of them.
`Chunked` finds the chunks that the boxes cover, decodes those that are not in the process's one
`cache`, each once, and gathers the boxes (`oocdata.engines.gather`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from functools import partial
from math import prod
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent, Ints, covered_positions
from oocdata.engines.cache import ArrayCache, cache
from oocdata.engines.decoding import run_tasks
from oocdata.engines.gather.boxes import gather
from oocdata.engines.gather.grid import c_strides, chunk_grid, chunk_groups, covered_chunks
from oocdata.engines.gather.uncached import read_uncached
from oocdata.engines.parts import JoinedParts
from oocdata.engines.planned import missing_chunks
from oocdata.engines.prefetch import Fetch
from oocdata.engines.ragged import as_items, copy_runs, cut_runs
from oocdata.engines.slots import Pin, decode_groups
from oocdata.engines.source import Storage
from oocdata.errors import SourceError, UnknownFormatError
from oocdata.threads import cores

_MOST_CHUNKS = 1 << 52


class ChunkReader(Hashable, Protocol):
    """An array as stored, decoded by chunks.

    Hashable: equal readers read the same bytes, so they share their cached chunks. Picklable where
    the file has a path.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array as stored."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the array, in native byte order."""

    @property
    def chunk_shape(self) -> tuple[int, ...]:
        """Shape of a whole chunk: at least 1 along each axis, and at most the array."""

    @property
    def own_threads(self) -> bool:
        """Whether the reader has threads of its own: each call then has many chunks, not a few."""

    def read_chunks(self, places: Ints, outs: Sequence[NDArray[Any]]) -> None:
        """Decode distinct chunks, given their places in the grid, shape (k, N).

        ``outs[i]`` receives the part of chunk ``i`` inside the array: axes as stored, any strides.
        Nothing may write to it after this returned or raised `SourceError`, which has file, dataset
        and rows.
        """

    def check(self) -> None:
        """Raise `oocdata.errors.SourceError` if the file has changed since it was opened."""

    def storage(self) -> Storage:
        """Return how the array is stored."""


class Chunked:
    """An array that is stored in chunks; a `oocdata.engines.source.Source`, and a `ChunkReader`.

    With `chunk_shape`, blocks of that shape are cached in place of the reader's chunks, so that
    rows that chunks cut are whole: along each axis as long as a chunk, or the array. Each chunk is
    decoded into its place in a block. `slot_shape` is the shape of the memory for a chunk or block,
    perhaps longer along axis 0; `cached` is where chunks are cached, if not by reader.

    `chunk_lengths` is the shape of what is cached, and `steps` how many of these it is along each
    axis from one to the next, which are numbered in C order. Raises UnknownFormatError if the grid
    has more chunks than can be numbered.
    """

    __slots__ = (
        "_grid", "_joined", "cached", "chunk_lengths", "chunk_shape", "dtype", "own_threads",
        "reader", "shape", "slot_shape", "steps",
    )  # fmt: skip

    def __init__(
        self,
        reader: ChunkReader,
        chunk_shape: tuple[int, ...] | None = None,
        slot_shape: tuple[int, ...] | None = None,
        cached: ArrayCache | None = None,
    ) -> None:
        self.reader, self.own_threads = reader, reader.own_threads
        self.shape = tuple(reader.shape)
        self.dtype = reader.dtype
        self.chunk_shape = tuple(chunk_shape or reader.chunk_shape)
        self.chunk_lengths = np.array(self.chunk_shape, np.int64)
        self._grid = chunk_grid(self.shape, self.chunk_shape)
        if prod(self._grid) > _MOST_CHUNKS:
            storage = reader.storage()
            raise UnknownFormatError(
                f"an array must have at most {_MOST_CHUNKS} chunks; got {prod(self._grid)}.",
                path=storage.path,
                key=storage.key,
            )
        self.steps = c_strides(self._grid)
        # Places of the reader's chunks in a block, counted from its first, shape (chunks, N).
        counts = chunk_grid(self.chunk_shape, reader.chunk_shape)
        self._joined = np.indices(counts).reshape(len(counts), -1).T if chunk_shape else None
        self.slot_shape = slot_shape or self.chunk_shape
        piece = prod(reader.chunk_shape) * self.dtype.itemsize
        self.cached = cached or cache.array(
            (reader, self.chunk_shape, self.slot_shape),
            prod(self.slot_shape) * self.dtype.itemsize,
            prod(self._grid),
            piece * min(prod(counts), cores()),
        )

    def __reduce__(self) -> Any:
        blocks = None if self._joined is None else self.chunk_shape
        return Chunked, (self.reader, blocks, self.slot_shape)

    def kept(self, origins: Ints, extent: Extent) -> NDArray[np.bool_]:
        """Return whether all chunks up to the last one of each box may stay; see `Cache.kept`."""
        kept = cache.kept(self.cached)
        if not 0 < kept < self.cached.chunks:
            return np.full(len(origins), kept > 0)
        return self.number_at(origins + (np.array(extent.spans) - 1)) < kept

    def number_at(self, places: Ints) -> Ints:
        """Return the number of the chunk at each place in the array, shape (n, N)."""
        numbers = np.zeros(len(places), np.int64)
        axes = zip(self.shape, self.chunk_shape, self.steps.tolist(), strict=True)
        for axis, (length, chunk, step) in enumerate(axes):
            if chunk < length:  # by a scalar: 1 / 8 of the time of all axes by an array
                numbers += places[:, axis] // chunk * step
        return numbers

    def with_slots(self, shape: tuple[int, ...]) -> Chunked:
        """Return the same array, with chunks in slots of a shape that is longer along axis 0."""
        blocks = None if self._joined is None else self.chunk_shape
        return self if shape == self.slot_shape else Chunked(self.reader, blocks, shape)

    def storage(self) -> Storage:
        return self.reader.storage()

    def read(
        self, origins: Ints, extent: Extent, out: NDArray[Any], places: Ints | None = None
    ) -> None:
        if not out.size:
            return
        try:
            self.reader.check()
            if not (self.cached.is_large and read_uncached(self, origins, extent, out, places)):
                gather(self, origins, extent, out, places)
            self.reader.check()
        except SourceError as error:
            if error.rows is None:
                parts: JoinedParts | None = getattr(self.reader, "parts", None)
                differ = (origins != origins[0]).any(axis=0)
                axis = int(np.argmax(differ)) if parts is None else parts.axis
                error.set_rows(covered_positions(origins, extent, axis))
                if parts is not None:
                    parts.assign_part(error)
            raise

    read_to = read

    def check(self) -> None:
        self.reader.check()

    @property
    def has_runs(self) -> bool:
        """Whether a chunk holds whole places of axis 0; see `oocdata.engines.ragged`."""
        return self.chunk_shape[1:] == self.shape[1:]

    def read_runs(self, starts: Ints, lengths: Ints, out: NDArray[Any]) -> None:
        self.reader.check()
        items, chunk_rows = as_items(out), self.chunk_shape[0]
        numbers, within, counts = cut_runs(starts, lengths, chunk_rows)
        targets = np.cumsum(counts) - counts
        for pin, runs in self.pinned(numbers):
            count = len(pin.memory) // items.itemsize
            memory = np.ndarray(count, items.dtype, pin.memory)
            places = pin.slots * self.slot_shape[0] + within[runs]
            copy_runs(memory, places, items, targets[runs], counts[runs])
        self.reader.check()

    def fetches(self, origins: Ints, extent: Extent) -> list[Fetch]:
        """Return the byte ranges that reading boxes needs from a store: of chunks not cached."""
        fetches = getattr(self.reader, "fetches", None)
        if fetches is None:
            return []
        numbers = covered_chunks(self.shape, self.chunk_shape, origins, extent)
        missing = missing_chunks(self.cached, numbers)
        places = self.places_of(missing)
        if self._joined is not None:
            places = (places[:, None] + self._joined).reshape(-1, len(self.shape))
        ranges = fetches(places) if len(missing) else []
        return [stored._replace(cached=True) for stored in ranges]

    # Pin and decode chunks.

    def pin(self, numbers: Ints) -> Pin | None:
        """Pin chunks, after decoding those not cached; see `ArrayCache.pin`."""
        return self.cached.pin(numbers, self.decode, self.own_threads)

    def pinned(self, numbers: Ints) -> Iterator[tuple[Pin, Ints]]:
        """Pin chunks, some at a time if they are too many; yield also the places of some.

        It begins where another thread reads now, to share the chunks that it decodes. If two
        threads each read all chunks of a long array, an epoch takes 1 / 1.3 of the time.
        """
        pending = [np.arange(len(numbers))]
        while pending:
            some = pending.pop()
            if len(some) < len(numbers):  # while they are decoded, not only once they are
                self.cached.reading = int(numbers[some].min())
            pin = self.pin(numbers[some])
            if pin is None:
                groups = chunk_groups(numbers[some], self.cached.most, self.cached.reading)
                pending += [some[group] for group in groups][::-1]
                continue
            with pin:
                yield pin, some

    def slots_of(self, memory: NDArray[np.uint8]) -> NDArray[Any]:
        """Return the chunks in a memory, shape ``(slots, *slot_shape)``."""
        count = len(memory) // self.cached.nbytes
        return np.ndarray((count, *self.slot_shape), self.dtype, memory)

    def decode(self, numbers: list[int], slots: list[int], memory: NDArray[np.uint8]) -> None:
        """Decode chunks into slots, without the parts beyond the edge of the array."""
        chunks = self.slots_of(memory)
        places = self.places_of(np.array(numbers))
        inside = np.minimum(
            self.chunk_lengths, np.array(self.shape) - places * self.chunk_lengths
        ).tolist()
        # The ellipsis makes a view of a single number too.
        parts: list[tuple[Any, ...]] = [
            (slot, *map(slice, lengths), ...) for slot, lengths in zip(slots, inside, strict=True)
        ]
        self.read_chunks(places, [chunks[part] for part in parts])

    def read_chunks(self, places: Ints, outs: Sequence[NDArray[Any]]) -> None:
        """Decode chunks or blocks, the latter in this thread and in idle decoding threads.

        See `ChunkReader.read_chunks`.
        """
        joined, shape = self._joined, self.reader.chunk_shape
        if joined is None:
            self.reader.read_chunks(places, outs)
            return
        regions = [
            tuple(slice(a, a + n) for a, n in zip(begin, shape, strict=True))
            for begin in (joined * shape).tolist()
        ]
        nbytes = prod(shape) * self.dtype.itemsize
        groups = list(decode_groups(list(range(len(joined))), nbytes, self.own_threads))
        run_tasks(
            [
                partial(
                    self.reader.read_chunks,
                    place + joined[group],
                    [out[regions[piece]] for piece in group],
                )
                for place, out in zip(places, outs, strict=True)
                for group in groups
            ]
        )

    def places_of(self, numbers: Ints) -> Ints:
        """Return the places of chunks in the grid."""
        return numbers[:, None] // self.steps % np.array(self._grid, np.int64)
