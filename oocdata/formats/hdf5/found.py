"""Choose how an HDF5 dataset is read, or several of one kind as one.

Contiguous datasets and unfiltered chunks are runs of bytes in the file, which the strided engine
reads without HDF5 and its lock. Filtered chunks are decoded outside HDF5 if `decode` has their
filters. All else (compact, virtual, h5py objects of the user) is read through h5py.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from operator import mod
from typing import Any, NamedTuple, TypeAlias

import h5py
import numpy as np

from oocdata.box import Ints
from oocdata.engines.chunked import Chunked
from oocdata.engines.files import Version
from oocdata.engines.memory_array import MemoryArray
from oocdata.engines.parts import JoinedParts, RowOffsets
from oocdata.engines.source import Source, Storage
from oocdata.engines.strided import Strided, contiguous_strides
from oocdata.errors import TruncatedFileError, UnsupportedDtypeError
from oocdata.formats.codecs import chunk_grid
from oocdata.formats.dimensions import decoding_hint
from oocdata.formats.hdf5.decode import ChunkDecoder, can_decode
from oocdata.formats.hdf5.description import READING
from oocdata.formats.hdf5.file import fill_bytes
from oocdata.formats.hdf5.filtered import FilteredChunks
from oocdata.formats.hdf5.library import OnDisk, ThroughLibrary, UsersObject
from oocdata.formats.hdf5.storage import Rules, Stored, offset_of
from oocdata.formats.hdf5.table import ChunkTable
from oocdata.formats.hdf5.varying import (
    REFERENCE,
    text_blocks,
    texts_in_memory,
    varying_rows,
    varying_rows_error,
)
from oocdata.formats.paths import file_of

Kind: TypeAlias = tuple[Any, ...]
"""Properties that datasets must share to be read through one source."""

_FETCHED_WHOLE = 1 << 20
"""Largest unfiltered chunk, in bytes, that is fetched whole over a link and cached, if chunks cut
rows; h5py chooses no larger ones. Fetching parts of chunks brings most of each chunk with every
row: 3 MB of rows of 1 KiB took 315 MB."""

_LARGE = 4 << 10
"""Bytes of a run from which on reading it alone is cheaper than decoding whole chunks. Rows of 784
bytes in h5py's default chunks are 196 runs of 4 bytes, and took 1,400 times the CPU time of a first
epoch, by NumPy iteration."""


_PART_BYTES, _CHUNK_BYTES, _MOST_RETAINED = 4 << 10, 80, 32 << 20
"""Memory that HDF5 and malloc retain per dataset and per chunk after opening many datasets: 19 MiB
for 10,000 contiguous ones, 16 for 4,000 with 10 chunks each, 12 for 314 with 500. At most the size
of HDF5's metadata cache."""


class Part(NamedTuple):
    """A dataset that may share a source with others of its kind."""

    kind: Kind
    number: int
    """Position among all parts."""
    shape: tuple[int, ...]
    length: int
    """Length along the axis."""
    step: int
    """Length of a stored chunk along the axis; 1 for a contiguous dataset."""
    offset: int
    """Byte offset of a contiguous dataset in the file; 0 for a chunked one."""
    chunks: int
    """Number of stored chunks."""
    nbytes: int
    """Size as stored."""


@dataclass(frozen=True)
class Found:
    """An open dataset, and what is known of it; or several of one kind, the first of them open."""

    dataset: Any
    version: Version | None  #: of its file; None for an object of the user
    dtype: np.dtype[Any]
    is_varying: bool
    is_plain: bool  #: see `description.is_plain`; False for rows of varying length
    rules: Rules
    stored: Stored
    storage: Storage
    shape: tuple[int, ...]
    parts: JoinedParts | None = None  #: the datasets, if they are several
    offsets: Ints | None = None  #: of contiguous ones

    def source(self) -> Source:
        """Return the source that reads the dataset."""
        if self.is_varying:
            return self.varying()
        direct = self.direct(self.dtype) if self.is_plain else None
        return self.through_library() if direct is None else direct

    def can_join(self, nbytes: int, offset: int) -> bool:
        """Return whether a dataset of this kind, so large and there, can be `joined` to others."""
        if not self.is_plain or self.version is None:
            return False
        is_slowest = prod(self.shape[: self.rules.axis]) == 1
        fits = is_slowest and offset + nbytes <= self.version.nbytes
        return fits or self.stored.kind == "chunked"

    def joined(self, group: Sequence[Part], keys: tuple[str, ...], key: str) -> Found:
        """Return datasets of this kind, whose chunks have one length along the axis, as one."""
        axis, chunks, layout = self.rules.axis, self.stored.chunks, self.storage.layout
        lengths = np.array([part.length for part in group], np.int64)
        step = unit = group[0].step
        if chunks is not None:
            if not self._have_offsets(self.dtype) or self._is_fetched_whole(self.dtype):
                unit = max(1, min(step, int(lengths.max())))
            chunks = with_length(chunks, axis, step)
            layout = f"chunks of {chunks}"
        parts, stored = JoinedParts(keys, lengths, axis, unit), sum(part.chunks for part in group)
        retained = _PART_BYTES * len(group) + _CHUNK_BYTES * stored
        storage = replace(
            self.storage,
            key=key,
            layout=layout,
            stored_bytes=sum(part.nbytes for part in group),
            table_bytes=ChunkTable.BYTES * stored
            + RowOffsets.BYTES * len(group)
            + min(_MOST_RETAINED, retained),
        )
        return replace(
            self,
            rules=replace(self.rules, key=key),
            stored=replace(self.stored, chunks=chunks),
            storage=storage,
            shape=with_length(self.shape, axis, parts.stop),
            parts=parts,
            offsets=np.array([part.offset for part in group], np.int64),
        )

    @property
    def _chunk_shape(self) -> tuple[int, ...]:
        """Shape of a chunk, clipped to the array; the array's shape if it has no chunks."""
        shape, steps = self.shape, self.stored.chunks or self.shape
        if self.parts is not None:
            shape = with_length(shape, self.parts.axis, self.parts.unit)
        return tuple(max(1, min(step, n)) for step, n in zip(steps, shape, strict=True))

    def _read_by(self, how: str, **changes: Any) -> Storage:
        reading = READING[how] + decoding_hint(self.storage.packed)
        return replace(self.storage, reading=reading, **changes)

    def through_library(self) -> Source:
        """Return a source that reads the dataset through HDF5."""
        fields = self.shape, self.dtype.newbyteorder("="), self.rules, self.stored
        target: OnDisk | UsersObject
        if self.version is None:
            target = UsersObject(*fields, self.dataset, os.getpid())
        else:
            target = OnDisk(*fields, self.version)
        # A file that is open for writing may change, so its chunks are not cached.
        kind = "chunked" if self.stored.chunks else self.stored.kind
        chunked = kind in ("chunked", "compact") and self.dataset.file.mode == "r"
        storage = self._read_by(kind, chunks=self._chunk_shape if chunked else None)
        through = ThroughLibrary(target, self._chunk_shape, storage)
        return Chunked(through) if chunked else through

    def direct(self, dtype: np.dtype[Any]) -> Source | None:
        """Return a source that reads the file without HDF5; None if only HDF5 can read it."""
        shape, rules, version, parts = self.shape, self.rules, self.version, self.parts
        if version is None:
            return None
        axis, file = rules.axis, file_of(version)
        if self.stored.kind == "contiguous" and (offset := offset_of(self.dataset.id)) is not None:
            strides = contiguous_strides(shape, dtype.itemsize)
            if parts is not None and self.offsets is not None:
                row = with_length(shape, axis, 1)
                rows = RowOffsets(parts, self.offsets, row, strides[axis])
                storage = self._read_by("contiguous")
                return Strided(file, dtype, shape, strides, 0, storage, rows, axis=axis)
            end = offset + prod(shape) * dtype.itemsize
            if end > version.nbytes:
                raise TruncatedFileError(
                    f"the file must hold {end} bytes; got {version.nbytes}. It was cut short."
                )
            storage = self._read_by("contiguous", strides=strides)
            return Strided(file, dtype, shape, strides, offset, storage, axis=axis)
        if self.stored.kind != "chunked" or not prod(shape):
            return None
        filters, chunk = self.stored.filters, self.stored.chunks
        assert chunk is not None
        if parts is None and not can_decode(filters, edges=any(map(mod, shape, chunk))):
            return None
        clipped = self._chunk_shape
        table = ChunkTable(version, rules.key or "", chunk, chunk_grid(shape, clipped), axis, parts)
        tables = self.storage.table_bytes or ChunkTable.BYTES * self.dataset.id.get_num_chunks()
        storage = self._read_by("decoded", chunks=clipped, table_bytes=tables)
        if self._have_offsets(dtype):
            in_place = self._read_by("contiguous", table_bytes=tables)
            if not self._is_fetched_whole(dtype):
                strides = contiguous_strides(chunk, dtype.itemsize)
                return Strided(file, dtype, shape, strides, 0, in_place, table, axis=axis)
            # Described as the local file is, so that the order of rows is the same.
            whole = (prod(shape) * dtype.itemsize,)
            storage = replace(in_place, reading=storage.reading, cached_whole=whole)
        decoder = ChunkDecoder(filters, dtype, chunk)
        fill = fill_bytes(self.dataset) if rules.fill else None
        reader = FilteredChunks(file, table, decoder, shape, clipped, fill, storage)
        return Chunked(reader)

    def _have_offsets(self, dtype: np.dtype[Any]) -> bool:
        """Return whether rows are better read by their offsets than by whole chunks.

        Of these, chunks must hold whole rows, or long contiguous runs of them.
        """
        run, rows = dtype.itemsize, self.rules.axis
        for step, n in zip(self._chunk_shape[:rows:-1], self.shape[:rows:-1], strict=True):
            run *= step
            if step < n:
                break
        is_raw = not self.stored.filters and not self.rules.fill
        return is_raw and (not self._cuts_rows or run >= _LARGE)

    def _is_fetched_whole(self, dtype: np.dtype[Any]) -> bool:
        """Return whether chunks whose rows have offsets are fetched as a whole all the same."""
        is_small = prod(self.stored.chunks or ()) * dtype.itemsize <= _FETCHED_WHOLE
        return self._cuts_rows and self.storage.is_remote and is_small

    @property
    def _cuts_rows(self) -> bool:
        pairs = enumerate(zip(self._chunk_shape, self.shape, strict=True))
        return any(step < n for axis, (step, n) in pairs if axis != self.rules.axis)

    def varying(self) -> Source:
        """Return a source of rows of varying length: numbers, or texts or bytes for object."""
        dataset, dtype, storage = self.dataset, self.dtype, self.storage
        shape, version = self.shape, self.version
        if not dtype.hasobject and dataset.ndim != 1:
            raise UnsupportedDtypeError(
                "rows of varying length must be numbered by one axis; got an array of shape "
                f"{shape} of them. Save it as one axis."
            )
        if not dtype.hasobject and not dtype.isnative:
            raise UnsupportedDtypeError(
                f"rows of varying length must be stored in native byte order; got {dtype}, of "
                "which h5py gives other numbers. Save it in native byte order."
            )
        if h5py.check_string_dtype(dataset.dtype) is not None:
            texts = texts_in_memory(text_blocks(dataset), shape, storage)
            if texts is not None:
                return texts
        is_direct = version is not None
        is_direct &= dataset.file.id.get_create_plist().get_sizes() == (8, 8)
        references: Source | None = None
        if not dataset.size:  # no space is allocated in the file
            references = MemoryArray(np.empty(shape, REFERENCE))
        elif is_direct:
            references = self.direct(REFERENCE)
            if references is None and self.stored.kind == "chunked":
                raise UnsupportedDtypeError(
                    "rows of varying length must be in chunks whose filters oocdata can undo, to "
                    f"know how long they are; got {storage.codec}, for {len(dataset)} rows in "
                    f"chunks of {dataset.chunks[0]} (of a last chunk that is not full, HDF5 does "
                    "not tell whether it is shuffled). Compress it: h5repack -f GZIP=4 old new.",
                    path=storage.path,
                    key=storage.key,
                )
        if version is None or references is None:
            raise varying_rows_error(storage, shape)
        target = OnDisk(shape, dtype, self.rules, self.stored, version)
        return varying_rows(target, references, storage)


def with_length(shape: tuple[int, ...], axis: int, *length: int) -> tuple[int, ...]:
    """Return a shape with another length along an axis, or without the axis."""
    return (*shape[:axis], *length, *shape[axis + 1 :])
