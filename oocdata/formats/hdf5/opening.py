"""Open HDF5 datasets, and choose how each is read.

Contiguous datasets and unfiltered chunks are runs of bytes in the file, which the strided engine
reads without HDF5 and its lock. Filtered chunks are decoded outside HDF5 if `decode` has their
filters. All else (compact, virtual, h5py objects of the user) is read through h5py.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from operator import mod
from typing import Any

import h5py
import numpy as np

from oocdata.engines.axes import axis_numbers
from oocdata.engines.chunked import Chunked
from oocdata.engines.files import Version
from oocdata.engines.memory_array import MemoryArray
from oocdata.engines.source import Source, Storage
from oocdata.engines.strided import Strided, contiguous_strides
from oocdata.errors import (
    ArgumentError,
    TruncatedFileError,
    UnsupportedDtypeError,
    error_location,
    location_text,
)
from oocdata.formats.anndata import column_names
from oocdata.formats.codecs import chunk_grid
from oocdata.formats.dimensions import decoding_hint
from oocdata.formats.hdf5.decode import ChunkDecoder, can_decode
from oocdata.formats.hdf5.description import (
    READING,
    describe,
    directions,
    is_plain,
    scales_of,
    stored_dtype,
)
from oocdata.formats.hdf5.file import (
    fill_bytes,
    limit_metadata_cache,
    open_file,
    translate_errors,
    version_of_open,
)
from oocdata.formats.hdf5.filtered import FilteredChunks
from oocdata.formats.hdf5.library import OnDisk, ThroughLibrary, UsersObject
from oocdata.formats.hdf5.links import Hdf5Names, annotated, units_of
from oocdata.formats.hdf5.parts import join_datasets, read_annotations
from oocdata.formats.hdf5.storage import Rules, Stored, offset_of
from oocdata.formats.hdf5.table import ChunkTable
from oocdata.formats.hdf5.varying import (
    REFERENCE,
    text_blocks,
    texts_in_memory,
    varying_rows,
    varying_rows_error,
)
from oocdata.formats.hdf5.virtual import inspect_storage
from oocdata.formats.paths import file_of, is_url
from oocdata.formats.patterns import Key, Missing

_FETCHED_WHOLE = 1 << 20
"""Largest unfiltered chunk, in bytes, that is fetched whole over a link and cached, if chunks cut
rows; h5py chooses no larger ones. Fetching parts of chunks brings most of each chunk with every
row: 3 MB of rows of 1 KiB took 315 MB."""

_LARGE = 4 << 10
"""Bytes of a run from which on reading it alone is cheaper than decoding whole chunks. Rows of 784
bytes in h5py's default chunks are 196 runs of 4 bytes, and took 1,400 times the CPU time of a first
epoch, by NumPy iteration."""


class Hdf5Tree(Hdf5Names):
    """The datasets of an HDF5 file; `missing` and `external` as in `oocdata.open`.

    Rows in errors are positions along the first sample axis.
    """

    def __init__(
        self, path: str, *, missing: Missing | None = None, external: bool = False
    ) -> None:
        if external and is_url(path):
            raise ArgumentError(
                "`external` must be left out for a file at a URL: others beside it are not looked "
                "for."
            )
        super().__init__(path, external=external)
        self.options |= {} if missing is None else {"missing": missing}

    def open_array(self, name: str, axis: int | str) -> Source:
        """Open a dataset; see `Tree`."""
        with translate_errors(self.path, name), ExitStack() as opened_files:
            dataset, key = self.dataset(name, opened_files)
            # After an external link this is the file that holds the dataset.
            version = version_of_open(dataset.file)
            with error_location(version.path, key):
                rules = Rules(
                    version.path, key, 0, self.options.get("missing") == "fill", self.external
                )
                opened = {**self.arguments(key), "target": version.path}
                return _source(dataset, version, rules, axis, opened)

    def join(self, key: Key, axis: int | str) -> Source:
        """Open several datasets as one array; see `Tree`."""
        limit_metadata_cache(self.file, walks=True)
        return join_datasets(self, key, axis)


def from_dataset(
    dataset: Any, *, axis: int | str = 0, missing: Missing | None = None, external: bool = False
) -> Source:
    """Open an ``h5py.Dataset``; arguments and errors are those of `oocdata.open`.

    A dataset of a file on disk that is open for reading is described by path and name: it can be
    pickled, and is read as one opened by path. Any other (in memory, in a file-like object, open
    for writing) is read through the object, which must stay open.
    """
    if not isinstance(dataset, h5py.Dataset) or not dataset:
        raise ArgumentError(f"`target` must be an open h5py.Dataset; got {dataset!r}.")
    path, key = dataset.file.filename, dataset.name
    if _can_be_reopened(dataset):
        with Hdf5Tree(path, missing=missing, external=external) as tree:
            return tree.open(key, axis)
    with translate_errors(path, key):
        rules = Rules(path, key, 0, missing == "fill", external)
        return _source(dataset, None, rules, axis, None)


def _can_be_reopened(dataset: Any) -> bool:
    """Return whether the dataset can be opened again by its path and name."""
    file, name = dataset.file, dataset.name
    if file.driver != "sec2" or file.mode != "r" or file.swmr_mode or name is None:
        return False
    access = dataset.id.get_access_plist()
    if access.get_virtual_prefix():
        return False
    try:
        # The path may be relative to a folder that is no longer the current one.
        if not os.path.samestat(os.stat(file.filename), os.fstat(file.id.get_vfd_handle())):
            return False
        with open_file(file.filename) as again:
            return bool(again[name].id == dataset.id)
    except (OSError, KeyError):  # e.g. the user's file is open without locking
        return False


def _source(
    dataset: Any, version: Version | None, rules: Rules, axis: int | str, opened: Any
) -> Source:
    """Return the source of an open dataset; through the object itself where `version` is None.

    `opened` are the arguments of `oocdata.open` that open it again, or None.
    """
    path, key = rules.path, rules.key
    dtype, is_varying = stored_dtype(dataset)
    if dataset.shape is None:
        raise ArgumentError(
            f"an array must have a row axis; got an empty dataspace. [{location_text(path, key)}]"
        )
    scales = scales_of(dataset)
    storage = describe(dataset, path, key, scales, units_of(dataset))
    (rows,) = axis_numbers(axis, dataset.ndim, storage)
    rules = replace(rules, axis=rows)
    stored = inspect_storage(dataset, rules)
    if version is None:
        storage = replace(storage, annotations=partial(annotated, dataset))
    else:
        storage = replace(
            storage,
            files=(version, *stored.outside),
            columns=column_names(path, key or ""),
            opened=opened,
            annotations=partial(read_annotations, path, (key or "",)),
        )
        if not storage.is_remote:  # it would take more requests
            by_name = directions(storage.dimensions, scales, None if axis is None else rows)
            storage = replace(storage, directions=by_name)
    found = _Found(dataset, version, dtype, rules, stored, storage)
    if is_varying:
        return found.varying()
    direct = found.direct(dtype) if is_plain(dataset) else None
    return found.through_library() if direct is None else direct


@dataclass(frozen=True)
class _Found:
    """An open dataset, and what is known of it."""

    dataset: Any
    version: Version | None  #: of its file; None for an object of the user
    dtype: np.dtype[Any]
    rules: Rules
    stored: Stored
    storage: Storage

    @property
    def _chunk_shape(self) -> tuple[int, ...]:
        """Shape of a chunk, clipped to the array; the array's shape if it has no chunks."""
        shape, steps = self.dataset.shape, self.stored.chunks or self.dataset.shape
        return tuple(max(1, min(step, n)) for step, n in zip(steps, shape, strict=True))

    def _read_by(self, how: str, **changes: Any) -> Storage:
        reading = READING[how] + decoding_hint(self.storage.packed)
        return replace(self.storage, reading=reading, **changes)

    def through_library(self) -> Source:
        """Return a source that reads the dataset through HDF5."""
        fields = self.dataset.shape, self.dtype.newbyteorder("="), self.rules, self.stored
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
        shape, rules, version = self.dataset.shape, self.rules, self.version
        if version is None:
            return None
        if self.stored.kind == "contiguous" and (offset := offset_of(self.dataset.id)) is not None:
            end = offset + prod(shape) * dtype.itemsize
            if end > version.nbytes:
                raise TruncatedFileError(
                    f"the file must hold {end} bytes; got {version.nbytes}. It was cut short."
                )
            strides = contiguous_strides(shape, dtype.itemsize)
            storage = self._read_by("contiguous", strides=strides)
            file = file_of(version)
            return Strided(file, dtype, shape, strides, offset, storage, axis=rules.axis)
        if self.stored.kind != "chunked" or not prod(shape):
            return None
        filters, chunk = self.stored.filters, self.dataset.chunks
        if not can_decode(filters, edges=any(map(mod, shape, chunk))):
            return None
        table = ChunkTable(version, rules.key or "", chunk, chunk_grid(shape, chunk), rules.axis)
        table_bytes = ChunkTable.BYTES * self.dataset.id.get_num_chunks()
        clipped = self._chunk_shape
        storage = self._read_by("decoded", chunks=clipped, table_bytes=table_bytes)
        if not filters and not rules.fill and self._cuts_in_long_runs(dtype):
            strides = contiguous_strides(chunk, dtype.itemsize)
            in_place = self._read_by("contiguous", table_bytes=table_bytes)
            cuts = self._cuts_rows
            if not (cuts and storage.is_remote and prod(chunk) * dtype.itemsize <= _FETCHED_WHOLE):
                file = file_of(version)
                return Strided(file, dtype, shape, strides, 0, in_place, table, axis=rules.axis)
            # Described as the local file is, so that the order of rows is the same.
            whole = (prod(shape) * dtype.itemsize,)
            storage = replace(in_place, reading=storage.reading, cached_whole=whole)
        decoder = ChunkDecoder(filters, dtype, chunk)
        fill = fill_bytes(self.dataset) if rules.fill else None
        reader = FilteredChunks(file_of(version), table, decoder, shape, clipped, fill, storage)
        return Chunked(reader)

    @property
    def _cuts_rows(self) -> bool:
        pairs = enumerate(zip(self._chunk_shape, self.dataset.shape, strict=True))
        return any(step < n for axis, (step, n) in pairs if axis != self.rules.axis)

    def _cuts_in_long_runs(self, dtype: np.dtype[Any]) -> bool:
        """Return whether what chunks hold of a row is whole, or in long contiguous runs."""
        run, rows = dtype.itemsize, self.rules.axis
        for step, length in zip(
            self._chunk_shape[:rows:-1], self.dataset.shape[:rows:-1], strict=True
        ):
            run *= step
            if step < length:
                break
        return not self._cuts_rows or run >= _LARGE

    def varying(self) -> Source:
        """Return a source of rows of varying length: numbers, or texts or bytes for object."""
        dataset, dtype, storage = self.dataset, self.dtype, self.storage
        shape, version = dataset.shape, self.version
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
