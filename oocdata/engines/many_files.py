"""Read many files of one layout as one array, so that a row of each of a thousand files is cheap.

The runs of all rows of a batch are computed together, and submitted to the kernel together. Chunks
of one size are cached side by side, whatever their files: decoded and gathered together.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent, Ints, groups_of, split_into_points
from oocdata.engines.cache import ArrayCache
from oocdata.engines.chunked import Chunked, ChunkReader
from oocdata.engines.files import OpenFile
from oocdata.engines.prefetch import Fetch
from oocdata.engines.runs import UnfinishedError, read_runs
from oocdata.engines.source import Storage
from oocdata.engines.strided import Strided
from oocdata.errors import SourceError
from oocdata.index import distinct
from oocdata.threads import cached_property

_MOST_PADDED = 1.25
"""Chunks of different lengths share slots that are at most this many times as long on average."""

_FILES_AT_ONCE = 64
"""Files that are open while their runs are read."""


def read_files(
    files: Sequence[OpenFile] | Mapping[int, OpenFile],
    which: Ints,
    offsets: Ints,
    addresses: Ints,
    lengths: Ints | int,
    target: NDArray[Any],
) -> None:
    """Read runs of several files into memory, a few files at a time; see `runs.read_runs`.

    `which` (int64) is the file of each run; fastest if runs of one file are consecutive. Raises
    UnfinishedError at a run that ends beyond its file, that can't be read, or whose file has
    changed; and SourceError if a file can't be opened, or has another version.
    """
    firsts = np.flatnonzero(np.diff(which, prepend=-1))
    for start in range(0, len(firsts), _FILES_AT_ONCE):
        batch_firsts = firsts[start : start + _FILES_AT_ONCE]
        after = start + len(batch_firsts)
        batch = slice(
            int(batch_firsts[0]), int(firsts[after]) if after < len(firsts) else len(which)
        )
        numbers = which[batch_firsts].tolist()
        opened = [files[number].opened() for number in numbers]
        counts = np.diff(batch_firsts, append=batch.stop)
        descriptors = np.repeat(np.array([file.number for file in opened]), counts)
        nbytes = lengths if isinstance(lengths, int) else lengths[batch]
        try:
            read_runs(descriptors, offsets[batch], addresses[batch], nbytes, target)
        except UnfinishedError as error:
            raise UnfinishedError(batch.start + error.run, error.cause) from error.cause
        # One comparison after the read detects changes both before and during it.
        for first, number, file in zip(batch_firsts.tolist(), numbers, opened, strict=True):
            if not files[number].version.matches(os.fstat(file.number)):
                raise UnfinishedError(first, None)


class UniformFiles:
    """Arrays in several files that differ only in file, offset and length.

    A shuffled batch of 64 rows of 64 KB out of a thousand files takes 1 / 2.0 of the processor time
    by NumPy iteration, 1 / 1.8 through `to_tf`.
    """

    def __init__(self, parts: Sequence[Strided]) -> None:
        self.parts = tuple(parts)
        self._files: list[OpenFile] = [part.file for part in parts]  # type: ignore[misc]
        self._offsets = np.array([part.offset for part in parts], np.int64)

    def read(
        self, owners: Ints, origins: Ints, extent: Extent, out: NDArray[Any], places: Ints | None
    ) -> bool:
        """Write ``out[places[i]]``, or ``out[i]``, = the box at origins[i] of array owners[i].

        Return False if this is impossible, in this way or at all. The caller then reads one array
        after the other, which raises the error, if any.
        """
        array = self.parts[0]
        if (owners == owners[0]).all():
            return False
        plan = array.plan(extent, out)
        if plan.slabs is not None or not plan.direct:
            return False
        order = owners.argsort(kind="stable")
        owners, origins = owners[order], origins[order]
        places = order if places is None else places[order]
        addresses = places * out.strides[0] + out.__array_interface__["data"][0]
        for start in range(0, len(owners), plan.boxes):
            batch = slice(start, start + plan.boxes)
            starts, targets, lengths, _ = plan.runs(
                origins[batch], extent, array.steps, addresses[batch]
            )
            which = np.repeat(owners[batch], len(plan.file_offsets))
            starts += self._offsets[which]
            try:
                read_files(self._files, which, starts, targets, lengths, out)
            except (UnfinishedError, SourceError):
                return False
        return True


class UniformChunks:
    """Chunked arrays that differ only in their reader, and in lengths along axis 0.

    Chunks too may differ in length, as h5py chooses it for arrays of different lengths; they are
    cached in slots of `chunk_shape`, that of the longest. `parts` are the arrays with such slots.
    Epochs of 40 gzip files take 1 / 2.4 of the processor's time by NumPy iteration.
    """

    def __init__(self, parts: Sequence[Chunked]) -> None:
        units, counts = _grids(parts)
        self.chunk_shape = (int(units.max()), *parts[0].chunk_shape[1:])
        # A single chunk, as of a short last file, may be shorter: no box crosses its end.
        self._units = np.where(counts == 1, units.max(), units)
        self.parts = tuple(part.with_slots(self.chunk_shape) for part in parts)
        readers = _Readers.of(self.parts)
        self._starts = readers.starts
        cached = ArrayCache.joined([part.cached for part in self.parts])
        self._whole = Chunked(readers, cached=cached)
        self._equal = bool((self._units == self._units[0]).all())

    def read(
        self, owners: Ints, origins: Ints, extent: Extent, out: NDArray[Any], places: Ints | None
    ) -> bool:
        """Write ``out[places[i]]``, or ``out[i]``, = the box at origins[i] of array owners[i].

        Return False if this is impossible; see `UniformFiles.read`.
        """
        read_from = [self.parts[owner] for owner in distinct(owners).tolist()]
        length = extent.lengths[0]
        if not self._equal and length > 1:
            # Between chunks, slots have unused rows, so boxes are read row by row.
            if out.strides[0] != length * out.strides[1]:
                return False
            owners = np.repeat(owners, length)
            origins, extent = split_into_points(origins, extent, 0)
            out = out.reshape(-1, 1, *out.shape[2:])
            if places is not None:
                places = (places[:, None] * length + np.arange(length)).ravel()
        try:
            self._whole.read(self._moved(owners, origins), extent, out, places)
            for part in read_from:
                part.check()
        except SourceError:
            return False
        return True

    def _moved(self, owners: Ints, origins: Ints) -> Ints:
        """Return the origins of boxes along all arrays, one after another."""
        moved = origins.copy()
        padding = self.chunk_shape[0] - self._units[owners]
        moved[:, 0] += self._starts[owners] + origins[:, 0] // self._units[owners] * padding
        return moved


@dataclass(frozen=True)
class _Readers:
    """A `oocdata.engines.chunked.ChunkReader` of several arrays, one after another along axis 0.

    Each array begins with a new chunk.
    """

    chunk_shape: tuple[int, ...]
    shape: tuple[int, ...]
    arrays: tuple[ChunkReader, ...]
    dtype: np.dtype[Any]
    own_threads: bool

    @classmethod
    def of(cls, parts: Sequence[ChunkReader]) -> _Readers:
        units, counts = _grids(parts)
        chunk_shape = int(units.max()), *parts[0].chunk_shape[1:]
        shape = chunk_shape[0] * int(counts.sum()), *parts[0].shape[1:]
        return cls(chunk_shape, shape, tuple(parts), parts[0].dtype, parts[0].own_threads)

    def storage(self) -> Storage:
        return self.arrays[0].storage()

    def check(self) -> None:
        """Check nothing: who reads checks only the arrays that are read."""

    @cached_property
    def _ends(self) -> Ints:
        """Place along axis 0 of the grid where each array ends."""
        ends: Ints = np.cumsum(_grids(self.arrays)[1])
        return ends

    @property
    def starts(self) -> Ints:
        return self.chunk_shape[0] * np.concatenate(([0], self._ends[:-1]))

    def _shares(self, places: Ints) -> Iterator[tuple[ChunkReader, Ints, Ints]]:
        """Yield each array with the numbers of its chunks, and their places in it."""
        for owner, which in groups_of(self._ends.searchsorted(places[:, 0], side="right")):
            within = places[which]
            within[:, 0] -= self._ends[owner - 1] if owner else 0
            yield self.arrays[owner], which, within

    def fetches(self, places: Ints) -> list[Fetch]:
        shares: Any = self._shares(places)
        return [fetch for part, _, within in shares for fetch in part.fetches(within)]

    def read_chunks(self, places: Ints, outs: Sequence[NDArray[Any]]) -> None:
        for part, which, within in self._shares(places):
            unit = part.chunk_shape[0]
            lengths = np.minimum(unit, part.shape[0] - within[:, 0] * unit)
            clipped = zip(which.tolist(), lengths.tolist(), strict=True)
            part.read_chunks(within, [outs[chunk][:length] for chunk, length in clipped])


def joined_chunks(readers: Sequence[ChunkReader]) -> tuple[list[Chunked], Ints, Ints]:
    """Return arrays as a few longer ones, and the number of each one's and its position there.

    Chunks are equally long, but for that of an array with a single one.
    """
    owners, starts = np.zeros((2, len(readers)), np.int64)
    joined: list[Chunked] = []
    for numbers in similar(*_grids(readers)):
        longer = _Readers.of([readers[number] for number in numbers])
        owners[numbers], starts[numbers] = len(joined), longer.starts
        joined.append(Chunked(longer))
    return joined, owners, starts


def readers_of_several(
    parts: Sequence[object],
) -> list[tuple[UniformChunks | UniformFiles, list[int]]]:
    """Return readers of arrays of one layout, each with the numbers of its arrays, at least two."""
    files: dict[Any, list[int]] = {}
    chunked: dict[Any, list[int]] = {}
    several: list[Any] = list(parts)
    for number, part in enumerate(several):
        if isinstance(part, Chunked):
            layout = part.dtype, part.chunk_shape[1:], part.shape[1:], part.own_threads
            chunked.setdefault(layout, []).append(number)
            continue
        plain = type(part) is Strided and part.chunk_offsets is None
        if plain and isinstance(part.file, OpenFile):
            files.setdefault((part.stored, part.strides), []).append(number)
    groups = [
        [numbers[place] for place in group]
        for numbers in chunked.values()
        for group in similar(*_grids([several[number] for number in numbers]))
    ]
    return [
        (kind([several[number] for number in numbers]), numbers)
        for kind, found in ((UniformFiles, files.values()), (UniformChunks, groups))
        for numbers in found
        if len(numbers) > 1
    ]


def similar(lengths: Ints, counts: Ints) -> Iterator[list[int]]:
    """Yield groups of arrays whose longest chunk is not much longer than the average.

    `lengths` are those of the chunks of each array along axis 0, and `counts` their numbers.
    """
    left = np.argsort(-lengths, kind="stable")
    while len(left):
        slots = lengths[left[0]] * counts[left].cumsum()
        fits = int((slots <= _MOST_PADDED * (lengths * counts)[left].cumsum()).sum())
        yield sorted(left[:fits].tolist())
        left = left[fits:]


def _grids(parts: Sequence[ChunkReader]) -> tuple[Ints, Ints]:
    """Return the length of each array's chunks along axis 0, and their number."""
    units = np.array([part.chunk_shape[0] for part in parts])
    return units, np.array([-(-part.shape[0] // part.chunk_shape[0]) for part in parts])
