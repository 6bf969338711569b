"""Where the chunks of a dataset lie in its file: read once, and then HDF5 is not asked again."""

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

from oocdata.engines.files import Version
from oocdata.engines.parts import JoinedParts
from oocdata.errors import MissingChunkError
from oocdata.formats.codecs import grid_of
from oocdata.formats.hdf5.file import (
    compare_open,
    hdf5_lock,
    little_metadata,
    open_file,
    readable,
)
from oocdata.formats.stored import file_of

__all__ = ["ChunkTable", "PresentChunks", "present_chunks"]

_BEYOND = 1 << 62
"""An offset that no file has, and to which a length may be added."""


@dataclass(frozen=True, slots=True, eq=False)
class PresentChunks:
    """The chunks that were written, in ascending order; of n chunks, arrays of n numbers."""

    steps: NDArray[np.int64]  #: from one chunk to the next along each axis
    numbers: NDArray[np.int64]  #: in C order of the grid
    offsets: NDArray[np.int64]  #: in the file
    sizes: NDArray[np.uint32]  #: bytes as stored
    skipped: NDArray[np.uint32]  #: bit i is set where filter i was not applied


def present_chunks(dataset: Any) -> PresentChunks:
    """List the chunks of an open ``h5py.Dataset``; one pass over HDF5's own index."""
    return _listed([dataset.id], grid_of(dataset.shape, dataset.chunks), dataset.chunks, None)


def _listed(
    datasets: Iterable[Any],
    grid: tuple[int, ...],
    chunk_shape: tuple[int, ...],
    parts: JoinedParts | None,
) -> PresentChunks:
    """List the chunks of datasets, which share a grid if they are several."""
    starts, offsets, sizes, skipped = array("Q"), array("Q"), array("Q"), array("Q")

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
        last = starts[max(begin, len(starts) - len(grid)) :]
        if any(last) and not last[0]:  # else they are right
            starts[begin:] = _in_order(dataset, starts[begin:], last)
    steps = np.array([prod(grid[axis + 1 :]) for axis in range(len(grid))], np.int64)
    places = np.frombuffer(starts, np.uint64).astype(np.int64).reshape(len(offsets), len(grid))
    number = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))
    if parts is not None and parts.steps is not None:
        places[:, parts.axis] //= parts.steps[number]
        chunk_shape = (*chunk_shape[: parts.axis], 1, *chunk_shape[parts.axis + 1 :])
    places //= np.array(chunk_shape)
    # Chunks may be left beyond the end of a dataset that shrank.
    beyond = (places >= np.array(grid)).any(axis=1)
    if parts is not None:
        along = places[:, parts.axis]
        beyond |= along >= -(-parts.lengths // parts.unit)[number]
        along += (parts.starts // parts.unit)[number]
    inside = np.flatnonzero(~beyond)
    numbers = places[inside] @ steps
    order = numbers.argsort()
    kept = inside[order]
    return PresentChunks(
        steps,
        numbers[order],
        # A damaged offset may be anything; beyond the end of the file they are all alike.
        np.minimum(np.frombuffer(offsets, np.uint64)[kept], _BEYOND).astype(np.int64),
        np.frombuffer(sizes, np.uint64)[kept].astype(np.uint32),
        np.frombuffer(skipped, np.uint64)[kept].astype(np.uint32),
    )


def _in_order(dataset: Any, listed: array[int], last: array[int]) -> array[int]:
    """Return where the listed chunks of a dataset begin, for which HDF5 may give wrong places.

    The index for one unlimited axis (the "extensible array" of libver="latest") numbers chunks with
    that axis slowest, whichever it is; ``H5Dchunk_iter`` of HDF5 1.14 counts as if the first axis
    were, so that all places are 0 before the unlimited axis, and no chunk lies at the last one.
    """
    chunk = dataset.get_create_plist().get_chunk()
    most = dataset.get_space().get_simple_extent_dims(True)
    endless = [axis for axis, length in enumerate(most) if length == h5s.UNLIMITED]
    if len(endless) != 1:
        return listed
    (axis,) = endless
    places = np.frombuffer(listed, np.uint64).astype(np.int64).reshape(-1, len(chunk))
    places, counts = places // np.array(chunk), list(grid_of(most, chunk))
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
    found = list(np.unravel_index(rest, others))
    found.insert(axis, slow)
    return array("Q", (np.stack(found, axis=1) * np.array(chunk)).astype(np.uint64).tobytes())


@dataclass(frozen=True, slots=True)
class ChunkTable:
    """Where each chunk of a dataset lies; read from the file when it is first asked.

    Also the `oocdata.engines.strided.ChunkOffsets` of a dataset without filters.
    """

    version: Version
    key: str
    chunk_shape: tuple[int, ...]
    axis: int  #: whose places errors call rows
    parts: JoinedParts | None = None
    """Datasets whose chunks are numbered on from one to the next; `key` is then not used."""
    _read: list[PresentChunks] = field(default_factory=list, compare=False, repr=False)
    """The chunks, once they were read."""

    BYTES: ClassVar[int] = 24
    """For each chunk."""

    def __reduce__(self) -> Any:
        return ChunkTable, (self.version, self.key, self.chunk_shape, self.axis, self.parts)

    def locate(
        self, places: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.uint32]]:
        """Return where the chunks at places in the grid, shape (k, N), lie.

        Offsets, sizes and skipped filters, as in `PresentChunks`; the offset is -1 for a chunk that
        was never written. A file that is another one by now is a `SourceError`.
        """
        chunks = self._loaded()
        numbers = places @ chunks.steps
        if not len(chunks.numbers):
            return np.full_like(numbers, -1), *np.zeros((2, len(numbers)), np.uint32)
        found = np.minimum(np.searchsorted(chunks.numbers, numbers), len(chunks.numbers) - 1)
        offsets = np.where(chunks.numbers[found] == numbers, chunks.offsets[found], -1)
        return offsets, chunks.sizes[found], chunks.skipped[found]

    def offsets(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
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
            raise error if self.parts is None else self.parts.concern(error)
        return offsets

    def _loaded(self) -> PresentChunks:
        if self._read:
            return self._read[0]
        parts, path = self.parts, self.version.path
        key = None if parts else self.key
        beside = _beside(self)
        kept = None if beside is None else beside.read()
        if kept is not None:
            with np.load(BytesIO(kept)) as arrays:
                self._read.append(PresentChunks(*(arrays[one] for one in PresentChunks.__slots__)))
            return self._read[0]
        # HDF5's own lock, so that there is no second one to wait for while holding this one.
        with hdf5_lock(path):
            if not self._read:
                with (
                    open_file(path, self.version) as file,
                    readable(path, key),
                    little_metadata(file),
                ):
                    # At the path may lie another file by now.
                    compare_open(self.version, file, key)
                    keys = parts.keys if parts else (self.key,)
                    first = file[keys[0]]
                    grid = list(grid_of(first.shape, self.chunk_shape))
                    if parts:
                        grid[parts.axis] = parts.stop // parts.unit
                    names = (one.encode("utf-8", "surrogateescape") for one in keys)
                    each = (h5d.open(file.id, name) for name in names)
                    self._read.append(_listed(each, tuple(grid), self.chunk_shape, parts))
                    if beside is not None:
                        memory, found = BytesIO(), self._read[0]
                        arrays = {one: getattr(found, one) for one in PresentChunks.__slots__}
                        np.savez(memory, allow_pickle=False, **arrays)
                        beside.keep(memory.getvalue())
            return self._read[0]


def _beside(table: ChunkTable) -> Any:
    """Return where the table of a file in a store is kept; None without a cache folder."""
    entry = getattr(file_of(table.version), "entry", None)
    if entry is None:
        return None
    parts = table.parts
    about: list[Any] = [table.key, table.chunk_shape, table.axis]
    if parts is not None:
        steps = None if parts.steps is None else parts.steps.tolist()
        about += [parts.keys, parts.lengths.tolist(), parts.axis, parts.unit, steps]
    which = blake2b(repr(about).encode(errors="surrogateescape"), digest_size=16)
    return entry.blob(f"chunks_{which.hexdigest()}")
