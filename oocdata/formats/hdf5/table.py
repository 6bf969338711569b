"""Read HDF5's chunk index into a table of offsets, so that chunks are found without HDF5."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from io import BytesIO
from math import prod
from typing import Any, ClassVar

import numpy as np
from h5py import h5d, h5s
from numpy.typing import NDArray

from oocdata.box import Ints
from oocdata.engines.files import Version
from oocdata.engines.parts import JoinedParts
from oocdata.errors import MissingChunkError
from oocdata.formats.codecs import chunk_grid
from oocdata.formats.hdf5.file import (
    check_open_file,
    hdf5_lock,
    open_file,
    small_metadata_cache,
    translate_errors,
)
from oocdata.formats.paths import file_of
from oocdata.memory import return_freed_memory

__all__ = ["ChunkTable", "PresentChunks", "present_chunks"]

_BEYOND = 1 << 62
"""An offset beyond the end of any file; adding a length to it does not overflow."""

_MANY = 1 << 16
"""Chunks of which listing takes several MiB of memory."""


@dataclass(frozen=True, slots=True, eq=False)
class PresentChunks:
    """The n chunks that are stored, in ascending order of their numbers; arrays of shape (n,)."""

    steps: Ints  #: difference in number of neighbours along each axis, shape (N,)
    numbers: Ints  #: in C order of the grid
    offsets: Ints  #: in bytes from the beginning of the file
    sizes: NDArray[np.uint32]  #: in bytes, as stored
    skipped: NDArray[np.uint32]  #: bit i is set where filter i was not applied


def present_chunks(dataset: Any) -> PresentChunks:
    """List the stored chunks of an open ``h5py.Dataset``, in one pass over HDF5's index."""
    return _listed([dataset.id], chunk_grid(dataset.shape, dataset.chunks), dataset.chunks, None)


def _listed(
    datasets: Iterable[Any],
    grid: tuple[int, ...],
    chunk_shape: tuple[int, ...],
    parts: JoinedParts | None,
) -> PresentChunks:
    """List the stored chunks of a dataset, or of several in one grid (`parts`)."""
    places, offsets, sizes, skipped, number = _read_indices(datasets, len(grid))
    # In place: there may be millions of chunks.
    if parts is not None and parts.steps is not None:
        places[:, parts.axis] //= parts.steps[number]
        chunk_shape = (*chunk_shape[: parts.axis], 1, *chunk_shape[parts.axis + 1 :])
    places //= np.array(chunk_shape)
    # A dataset that shrank may have chunks beyond its end.
    inside = (places < np.array(grid)).all(axis=1)
    if parts is not None:
        along = places[:, parts.axis]
        inside &= along < -(-parts.lengths // parts.unit)[number]
        along += (parts.starts // parts.unit)[number]
    steps = np.array([prod(grid[axis + 1 :]) for axis in range(len(grid))], np.int64)
    numbers = places @ steps
    del places
    if not inside.all() or (numbers[1:] < numbers[:-1]).any():
        selected = np.flatnonzero(inside)
        selected = selected[numbers[selected].argsort()]
        numbers, offsets = numbers[selected], offsets[selected]
        sizes, skipped = sizes[selected], skipped[selected]
    return PresentChunks(steps, numbers, offsets, sizes, skipped)


def _read_indices(
    datasets: Iterable[Any], axes: int
) -> tuple[Ints, Ints, NDArray[np.uint32], NDArray[np.uint32], Ints]:
    """Return origin, offset, size and skipped filters of all chunks, and the dataset of each."""
    starts, offsets, sizes, skipped = array("Q"), array("Q"), array("I"), array("I")

    def note(info: Any) -> None:
        starts.extend(info.chunk_offset)
        offsets.append(info.byte_offset)
        sizes.append(info.size)
        skipped.append(info.filter_mask)

    ends = []
    for dataset in datasets:
        begin = len(starts)
        dataset.chunk_iter(note)
        ends.append(len(offsets))
        last = starts[max(begin, len(starts) - axes) :]
        if any(last) and not last[0]:  # the only case in which HDF5 can be wrong
            starts[begin:] = _in_order(dataset, starts[begin:], last)
    found = np.frombuffer(offsets, np.uint64)
    np.minimum(found, _BEYOND, out=found)  # a damaged offset may not fit into int64
    return (
        np.frombuffer(starts, np.int64).reshape(-1, axes),
        found.view(np.int64),
        np.frombuffer(sizes, np.uint32),
        np.frombuffer(skipped, np.uint32),
        np.repeat(np.arange(len(ends), dtype=np.int32), np.diff(ends, prepend=0)),
    )


def _in_order(dataset: Any, listed: array[int], last: array[int]) -> array[int]:
    """Correct the origins of listed chunks where ``H5Dchunk_iter`` of HDF5 1.14 gives wrong ones.

    The index for one unlimited axis (the "extensible array" of libver="latest") numbers chunks with
    the unlimited axis slowest, but ``H5Dchunk_iter`` takes the first axis for the slowest. Wrong
    origins are 0 along all axes before the unlimited one, and the last has no chunk.
    """
    chunk = dataset.get_create_plist().get_chunk()
    most = dataset.get_space().get_simple_extent_dims(True)
    unlimited = [axis for axis, length in enumerate(most) if length == h5s.UNLIMITED]
    if len(unlimited) != 1:
        return listed
    (axis,) = unlimited
    places = np.frombuffer(listed, np.uint64).astype(np.int64).reshape(-1, len(chunk))
    places, counts = places // np.array(chunk), list(chunk_grid(most, chunk))
    after = prod(counts[axis + 1 :])
    others = (*counts[:axis], *counts[axis + 1 :])
    if prod(others) == after or places[:, :axis].any() or not places[-1, axis]:
        return listed
    with suppress(OSError, RuntimeError, ValueError):
        dataset.read_direct_chunk(tuple(last))
        return listed
    counts[axis] = int(places[-1, axis]) + 1
    numbers = np.ravel_multi_index(tuple(places[:, axis:].T), counts[axis:])
    slow, rest = np.divmod(numbers, prod(others))
    corrected = list(np.unravel_index(rest, others))
    corrected.insert(axis, slow)
    return array("Q", (np.stack(corrected, axis=1) * np.array(chunk)).astype(np.uint64).tobytes())


@dataclass(frozen=True, slots=True)
class ChunkTable:
    """Offsets of a dataset's chunks, read from the file on first use.

    It is also the `oocdata.engines.strided.ChunkOffsets` of a dataset without filters.
    """

    version: Version
    key: str
    chunk_shape: tuple[int, ...]
    axis: int  #: along which errors count rows
    parts: JoinedParts | None = None
    """Several datasets in one grid of chunks; then `key` does not name a dataset."""
    _read: list[PresentChunks] = field(default_factory=list, compare=False, repr=False)
    """The chunks once they have been read, else empty."""

    BYTES: ClassVar[int] = 24
    """Memory per chunk."""

    def __reduce__(self) -> Any:
        return ChunkTable, (self.version, self.key, self.chunk_shape, self.axis, self.parts)

    def locate(self, places: Ints) -> tuple[Ints, NDArray[np.uint32], NDArray[np.uint32]]:
        """Return offsets, sizes and skipped filters of the chunks at places of the grid.

        `places` has shape (k, N), each result shape (k,); see `PresentChunks`. The offset of a
        chunk that was never written is -1. Raises `SourceError` if the file has changed.
        """
        chunks = self._loaded()
        numbers = places @ chunks.steps
        if not len(chunks.numbers):
            return np.full_like(numbers, -1), *np.zeros((2, len(numbers)), np.uint32)
        found = np.minimum(np.searchsorted(chunks.numbers, numbers), len(chunks.numbers) - 1)
        offsets = np.where(chunks.numbers[found] == numbers, chunks.offsets[found], -1)
        return offsets, chunks.sizes[found], chunks.skipped[found]

    def offsets(self, places: Ints) -> Ints:
        """Return the byte offsets of chunks, all of which must have been written."""
        offsets, _, _ = self.locate(places)
        if (offsets < 0).any():
            step = self.chunk_shape[self.axis]
            first = int(places[np.argmax(offsets < 0), self.axis]) * step
            error = MissingChunkError(
                "every chunk must have been written; some are gone since the file was opened.",
                path=self.version.path,
                key=self.key,
                rows=range(first, first + step),
            )
            raise error if self.parts is None else self.parts.assign_part(error)
        return offsets

    def _loaded(self) -> PresentChunks:
        if self._read:
            return self._read[0]
        parts, path = self.parts, self.version.path
        key = None if parts else self.key
        entry = _cache_entry(self)
        cached = None if entry is None else entry.read()
        if cached is not None:
            with np.load(BytesIO(cached)) as arrays:
                fields = (arrays[name] for name in PresentChunks.__slots__)
                self._read.append(PresentChunks(*fields))
            return self._read[0]
        # HDF5's lock also guards `_read`: with a second lock, two threads could deadlock.
        with hdf5_lock(path):
            if not self._read:
                with (
                    open_file(path, self.version) as file,
                    translate_errors(path, key),
                    small_metadata_cache(file),
                ):
                    check_open_file(
                        self.version, file, key
                    )  # the path may lead to another file now
                    keys = parts.keys if parts else (self.key,)
                    first = file[keys[0]]
                    grid = list(chunk_grid(first.shape, self.chunk_shape))
                    if parts:
                        grid[parts.axis] = parts.stop // parts.unit
                    names = (name.encode("utf-8", "surrogateescape") for name in keys)
                    datasets = (h5d.open(file.id, name) for name in names)
                    self._read.append(_listed(datasets, tuple(grid), self.chunk_shape, parts))
                    if len(self._read[0].numbers) >= _MANY:
                        return_freed_memory()
                    if entry is not None:
                        memory, chunks = BytesIO(), self._read[0]
                        arrays = {name: getattr(chunks, name) for name in PresentChunks.__slots__}
                        np.savez(memory, allow_pickle=False, **arrays)
                        entry.write(memory.getvalue())
            return self._read[0]


def _cache_entry(table: ChunkTable) -> Any:
    """Return the entry of a table in the cache folder; None for a local file or without folder."""
    file_entry = getattr(file_of(table.version), "folder", None)
    if file_entry is None:
        return None
    parts = table.parts
    description: list[Any] = [table.key, table.chunk_shape, table.axis]
    if parts is not None:
        steps = None if parts.steps is None else parts.steps.tolist()
        description += [parts.keys, parts.lengths.tolist(), parts.axis, parts.unit, steps]
    digest = blake2b(repr(description).encode(errors="surrogateescape"), digest_size=16)
    return file_entry.blob(f"chunks_{digest.hexdigest()}")
