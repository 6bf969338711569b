"""Read HDF5's chunk index into a table of offsets, so that chunks are found without HDF5."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from math import prod
from typing import Any, ClassVar

import numpy as np
from h5py import h5d, h5s

from oocdata.box import Ints
from oocdata.engines.files import Version
from oocdata.engines.gather.grid import c_strides
from oocdata.engines.parts import JoinedParts
from oocdata.errors import MissingChunkError
from oocdata.formats.codecs import chunk_grid
from oocdata.formats.hdf5.file import (
    check_open_file,
    hdf5_lock,
    limit_metadata_cache,
    open_file,
    translate_errors,
)
from oocdata.formats.paths import file_of
from oocdata.memory import return_freed_memory

_BEYOND = 1 << 62
"""An offset beyond the end of any file; adding a length to it does not overflow."""

_MANY = 1 << 16
"""Chunks of which listing takes several MiB of memory."""


def stored_chunks(
    datasets: Iterable[Any],
    grid: tuple[int, ...],
    chunk_shape: tuple[int, ...],
    parts: JoinedParts | None = None,
) -> Ints:
    """List the stored chunks of a dataset, or of several in one grid (`parts`), in one pass.

    Returns an array of shape (4, chunks): number in C order of the grid, which ascends; byte offset
    in the file; bytes as stored; and filters that were left out, bit i for filter i.
    """
    axes, width = len(grid), len(grid) + 3
    entries, ends = array("Q"), []

    def note(info: Any) -> None:
        entries.extend((*info.chunk_offset, info.byte_offset, info.size, info.filter_mask))

    for dataset in datasets:
        begin = len(entries)
        dataset.chunk_iter(note)
        ends.append(len(entries))
        if begin < ends[-1] and any(entries[-width:-3]) and not entries[-width]:
            _correct_origins(dataset, entries, begin, axes)
    unsigned = np.frombuffer(entries, np.uint64).reshape(-1, width)
    np.minimum(unsigned, _BEYOND, out=unsigned)  # a damaged offset may not fit into int64
    found = unsigned.view(np.int64)
    places = found[:, :axes]
    places //= np.array(chunk_shape)
    # A dataset that shrank may have chunks beyond its end.
    inside = (places < np.array(grid)).all(axis=1)
    if parts is not None:
        part_of = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0) // width)
        along = places[:, parts.axis]
        inside &= along < -(-parts.lengths // parts.unit)[part_of]
        along += (parts.starts // parts.unit)[part_of]
    # In place of the last coordinate, because there may be millions of chunks.
    found[:, axes - 1] = places @ c_strides(grid)
    chunks: Ints = np.ascontiguousarray(found[:, axes - 1 :].T)
    if not inside.all() or (chunks[0, 1:] < chunks[0, :-1]).any():
        selected = np.flatnonzero(inside)
        chunks = chunks[:, selected[chunks[0, selected].argsort()]]
    return chunks


def _correct_origins(dataset: Any, entries: array[int], begin: int, axes: int) -> None:
    """Correct the origins of a dataset's chunks where ``H5Dchunk_iter`` of HDF5 1.14 is wrong.

    The index for one unlimited axis (the "extensible array" of libver="latest") numbers chunks with
    the unlimited axis slowest, but ``H5Dchunk_iter`` takes the first axis for the slowest. Wrong
    origins are 0 along all axes before the unlimited one, and the last has no chunk.
    """
    chunk = dataset.get_create_plist().get_chunk()
    most = dataset.get_space().get_simple_extent_dims(True)
    unlimited = [axis for axis, length in enumerate(most) if length == h5s.UNLIMITED]
    if len(unlimited) != 1:
        return
    (axis,) = unlimited
    listed = np.array(entries[begin:], np.uint64).reshape(-1, axes + 3)
    places, counts = listed[:, :axes].astype(np.int64) // chunk, list(chunk_grid(most, chunk))
    others = (*counts[:axis], *counts[axis + 1 :])
    if prod(others) == prod(counts[axis + 1 :]) or places[:, :axis].any() or not places[-1, axis]:
        return
    with suppress(OSError, RuntimeError, ValueError):
        dataset.read_direct_chunk(tuple(listed[-1, :axes].tolist()))
        return
    counts[axis] = int(places[-1, axis]) + 1
    numbers = np.ravel_multi_index(tuple(places[:, axis:].T), counts[axis:])
    slow, rest = np.divmod(numbers, prod(others))
    corrected = list(np.unravel_index(rest, others))
    corrected.insert(axis, slow)
    listed[:, :axes] = np.stack(corrected, axis=1) * np.array(chunk)
    entries[begin:] = array("Q", listed.tobytes())


@dataclass(frozen=True, slots=True)
class ChunkTable:
    """Offsets of a dataset's chunks, read from the file on first use.

    It is also the `oocdata.engines.strided.ChunkOffsets` of a dataset without filters.
    """

    version: Version
    key: str
    chunk_shape: tuple[int, ...]
    grid: tuple[int, ...]  #: number of chunks along each axis
    axis: int  #: along which errors count rows
    parts: JoinedParts | None = None
    """Several datasets in one grid of chunks; then `key` does not name a dataset."""
    _read: list[Ints] = field(default_factory=list, compare=False, repr=False)
    """The `stored_chunks` once they have been read, else empty."""

    BYTES: ClassVar[int] = 32
    """Memory per chunk."""

    def __reduce__(self) -> Any:
        fields = self.version, self.key, self.chunk_shape, self.grid, self.axis, self.parts
        return ChunkTable, fields

    def locate(self, places: Ints) -> Ints:
        """Return offsets, sizes and skipped filters of the chunks at places of the grid.

        `places` has shape (k, N), the result (3, k); see `stored_chunks`. The offset of a chunk
        that was never written is -1. Raises `SourceError` if the file has changed.
        """
        chunks, numbers = self._loaded(), places @ c_strides(self.grid)
        if not chunks.size:
            return np.full((3, len(numbers)), -1)
        last = chunks.shape[1] - 1
        located = chunks[:, np.minimum(numbers, last)]  # where none before it is absent
        if (located[0] != numbers).any():
            located = chunks[:, np.minimum(np.searchsorted(chunks[0], numbers), last)]
            located[1, located[0] != numbers] = -1
        return located[1:]

    def offsets(self, places: Ints) -> Ints:
        """Return the byte offsets of chunks, all of which must have been written."""
        offsets: Ints = self.locate(places)[0]
        if (offsets < 0).any():
            raise MissingChunkError(
                "every chunk must have been written; some are gone since the file was opened.",
                path=self.version.path,
                key=self.key,
            )
        return offsets

    def _loaded(self) -> Ints:
        if not self._read:
            # HDF5's lock also guards `_read`: with a second lock, two threads could deadlock.
            with hdf5_lock(self.version.path):
                if not self._read:
                    self._read.append(self._cached_or_listed())
        return self._read[0]

    def _cached_or_listed(self) -> Ints:
        parts, path = self.parts, self.version.path
        entry = _cache_entry(self)
        cached = None if entry is None else entry.read()
        if cached is not None:
            return np.frombuffer(cached, np.int64).reshape(4, -1)
        keys = parts.keys if parts else (self.key,)
        with (
            open_file(path, self.version) as file,
            translate_errors(path, None if parts else self.key),
        ):
            limit_metadata_cache(file, walks=True)
            check_open_file(self.version, file)  # the path may lead to another file now
            names = (key.encode("utf-8", "surrogateescape") for key in keys)
            datasets = (h5d.open(file.id, name) for name in names)
            chunks = stored_chunks(datasets, self.grid, self.chunk_shape, parts)
        if chunks.shape[1] >= _MANY:
            return_freed_memory()
        if entry is not None:
            entry.write(chunks.tobytes())
        return chunks


def _cache_entry(table: ChunkTable) -> Any:
    """Return the entry of a table in the cache folder; None for a local file or without folder."""
    file_entry = getattr(file_of(table.version), "folder", None)
    if file_entry is None:
        return None
    parts = table.parts
    description: list[Any] = [table.key, table.chunk_shape, table.grid, table.axis]
    if parts is not None:
        description += [parts.keys, parts.lengths.tolist(), parts.axis, parts.unit]
    digest = blake2b(repr(description).encode(errors="surrogateescape"), digest_size=16)
    return file_entry.blob(f"table_{digest.hexdigest()}")
