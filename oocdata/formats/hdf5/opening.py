"""Open HDF5 datasets, and choose how each is read.

A contiguous dataset is one run of bytes in the file (``H5Dget_offset``), and so is each unfiltered
chunk: the strided engine reads them without HDF5 and its global lock. Filtered chunks are decoded
outside HDF5 if `decode` implements their filters. Everything else (compact and virtual storage,
h5py objects of the user) is read through h5py. The format: HDF5 File Format Specification,
version 3.0.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

import h5py
import numpy as np
from h5py import h5g

from oocdata.engines.axes import axis_numbers
from oocdata.engines.chunked import Chunked
from oocdata.engines.files import FileVersion, Version
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
from oocdata.formats.anndata import Group, column_names, is_one_array, open_group
from oocdata.formats.dimensions import decoding_hint
from oocdata.formats.hdf5.decode import ChunkDecoder, can_decode
from oocdata.formats.hdf5.description import (
    READING,
    annotations_of,
    describe,
    dimension_names,
    is_plain,
    stored_dtype,
)
from oocdata.formats.hdf5.file import (
    fill_bytes,
    open_file,
    small_metadata_cache,
    translate_errors,
    version_of_open,
)
from oocdata.formats.hdf5.filtered import FilteredChunks
from oocdata.formats.hdf5.library import OnDisk, ThroughLibrary, UsersObject
from oocdata.formats.hdf5.links import (
    NameResolver,
    choose_dataset,
    find_dataset,
    group_attributes,
    list_names,
)
from oocdata.formats.hdf5.parts import join_datasets, read_annotations
from oocdata.formats.hdf5.storage import Rules, Stored, offset_of
from oocdata.formats.hdf5.table import ChunkTable
from oocdata.formats.hdf5.varying import (
    HEAP_BYTES,
    PIECE_BYTES,
    REFERENCE,
    VaryingNumbers,
    VaryingRows,
    text_blocks,
    texts_in_memory,
    varying_rows_error,
)
from oocdata.formats.hdf5.virtual import inspect_storage
from oocdata.formats.paths import absolute, file_of, is_url
from oocdata.formats.patterns import GROUP, Axis, Key, Missing, find_datasets, is_pattern, key_label

__all__ = ["from_dataset", "list_hdf5", "open_hdf5"]

_FETCHED_WHOLE = 1 << 20
"""Largest unfiltered chunk, in bytes, that is fetched whole over a link and cached, if chunks cut
rows; h5py chooses no larger ones. Fetching parts of chunks brings most of each chunk with every
row: 3 MB of rows of 1 KiB took 315 MB."""

_LARGE = 4 << 10
"""Bytes of a run from which on reading it alone is cheaper than decoding whole chunks. Rows of 784
bytes in h5py's default chunks are 196 runs of 4 bytes, and took 1,400 times the CPU time of a first
epoch, by NumPy iteration."""


@dataclass(frozen=True, slots=True)
class _Arguments:
    """Arguments of `oocdata.open` for HDF5."""

    axis: Axis
    missing: Missing | None
    external: bool

    def opened(self, path: str, key: Key) -> dict[str, Any]:
        """Return the arguments of `oocdata.open` that open the datasets again."""
        opened: dict[str, Any] = {"target": path, "key": key if isinstance(key, str) else list(key)}
        opened |= {"missing": self.missing} if self.missing is not None else {}
        return opened | ({"external": True} if self.external else {})


def list_hdf5(path: str) -> list[str]:
    """Return the absolute name of every dataset in a file; see `links.list_names`."""
    with open_file(path) as file, translate_errors(path):
        return list_names(file)


def open_hdf5(
    path: str,
    key: Key | None = None,
    *,
    axis: Axis = 0,
    missing: Missing | None = None,
    external: bool = False,
) -> Source:
    """Open a dataset of an HDF5 file, or several as one array; reads metadata only.

    Arguments and errors are those of `oocdata.open`. Rows in errors are positions along the first
    of `axis`. The source is a `Strided` for contiguous storage and unfiltered chunks, a `Chunked`
    for other chunks and compact storage, and else a `ThroughLibrary`.
    """
    arguments = _Arguments(axis, missing, external)
    if external and is_url(path):
        raise ArgumentError(
            "`external` must be left out for a file at a URL: others beside it are not looked for."
        )
    with open_file(path) as file, translate_errors(path, key if isinstance(key, str) else None):
        if key is None:
            return _open_one(file, choose_dataset(file), arguments)
        # A name may look like a pattern.
        if isinstance(key, str) and not (
            is_pattern(key) and NameResolver(file).opened(key) is None
        ):
            return _open_one(file, f"/{key.strip('/')}", arguments)
        with small_metadata_cache(file):
            return _open_several(NameResolver(file), key, arguments)


def _open_one(file: Any, name: str, arguments: _Arguments) -> Source:
    """Open a dataset of an open file, or a group that is one array (see `formats.anndata`)."""
    attributes = group_attributes(file, name)
    if attributes is not None and is_one_array(attributes):
        path, named = absolute(file.filename), name.rstrip("/")

        def member(part: str) -> Source:
            return _open_one(file, f"{named}/{part}", replace(arguments, axis=0))

        return open_group(Group(path, name, attributes, member), arguments.axis)
    with ExitStack() as opened:
        dataset, name = find_dataset(file, name, arguments.external, opened)
        # After an external link this is the file that holds the dataset.
        version = version_of_open(dataset.file)
        with error_location(version.path, name):
            return _source(dataset, version, name, arguments)


def _open_several(names: NameResolver, key: Key, arguments: _Arguments) -> Source:
    """Open the datasets that a pattern matches, or several keys name, as one array."""
    path = absolute(names.file.filename)

    def look(name: str) -> Any:
        """Return a tuple of a dataset's identifier, empty if it is in another file."""
        opened = names.opened(name)
        if names.address(name) is None:
            return None
        is_group = isinstance(opened, h5g.GroupID)
        if is_group and not is_one_array(group_attributes(names.file, name)):
            return GROUP
        return () if opened is None else (opened,)

    def datasets() -> Iterator[tuple[str, Any]]:
        seen: set[object] = set()
        for name, matched in find_datasets(key, names.below, look, path):
            address = names.address(name)
            # Of the names of one dataset that patterns match, only the first is used.
            if matched is None or address not in seen:
                seen.add(address)
                yield name, *(matched or (names.opened(name),))

    return join_datasets(
        datasets(), path, arguments.axis,
        fill=arguments.missing == "fill",
        alone=partial(_open_one, names.file, arguments=arguments),
        key=key_label(key),
        opened=arguments.opened(path, key),
    )  # fmt: skip


def from_dataset(
    dataset: Any, *, axis: Axis = 0, missing: Missing | None = None, external: bool = False
) -> Source:
    """Open an ``h5py.Dataset``; arguments and errors as for `open_hdf5`.

    A dataset of a file on disk that is open for reading is described by path and name: it can be
    pickled, and is read as `open_hdf5` reads it. Any other (in memory, in a file-like object, open
    for writing) is read through the object, which must stay open.
    """
    if not isinstance(dataset, h5py.Dataset) or not dataset:
        raise ArgumentError(f"`dataset` must be an open h5py.Dataset; got {dataset!r}.")
    path, key = dataset.file.filename, dataset.name
    if _can_be_reopened(dataset):
        return open_hdf5(path, key, axis=axis, missing=missing, external=external)
    with translate_errors(path, key):
        return _source(dataset, None, key, _Arguments(axis, missing, external))


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


def _source(dataset: Any, version: Version | None, key: str, arguments: _Arguments) -> Source:
    """Return the source of an open dataset; through the object itself where `version` is None."""
    path = version.path if version else dataset.file.filename
    dtype, is_varying = stored_dtype(dataset)
    if dataset.shape is None:
        raise ArgumentError(
            f"an array must have a row axis; got an empty dataspace. [{location_text(path, key)}]"
        )
    named = Storage("HDF5", path, key, dimensions=dimension_names(dataset))
    axes = axis_numbers(arguments.axis, dataset.ndim, named)
    rules = Rules(path, key, axes[0], arguments.missing == "fill", arguments.external)
    stored = inspect_storage(dataset, rules)
    outside = tuple(FileVersion.of(other) for other in stored.outside)
    storage = replace(
        describe(dataset, path, key, stored),
        files=() if version is None else (version, *outside),
        columns=None if version is None else column_names(path, key),
        opened=None if version is None else arguments.opened(path, key),
        annotations=partial(annotations_of, dataset)
        if version is None
        else partial(read_annotations, path, (key,)),
    )
    if is_varying:
        return _varying(dataset, version, dtype, rules, stored, storage)
    if version is not None and is_plain(dataset):
        direct = _direct(dataset, version, dtype, axes, rules, stored, storage)
        if direct is not None:
            return direct
    fields = dataset.shape, dtype.newbyteorder("="), rules, stored.kind
    target: OnDisk | UsersObject
    if version is None:
        target = UsersObject(*fields, dataset, os.getpid())
    else:
        target = OnDisk(*fields, version, stored.filters, outside)
    # A file that is open for writing may change, so its chunks are not cached.
    chunked = stored.kind in ("chunked", "compact") and dataset.file.mode == "r"
    chunk_shape = _chunk_shape(dataset)
    storage = _read_by(storage, stored.kind, chunks=chunk_shape if chunked else None)
    through = ThroughLibrary(target, chunk_shape, storage)
    return Chunked(through) if chunked else through


def _varying(
    dataset: Any,
    version: Version | None,
    dtype: np.dtype[Any],
    rules: Rules,
    stored: Stored,
    storage: Storage,
) -> Source:
    """Return a source of rows of varying length: numbers, or texts or bytes for dtype object."""
    shape = dataset.shape
    if not dtype.hasobject:
        if dataset.ndim != 1:
            raise UnsupportedDtypeError(
                "rows of varying length must be numbered by one axis; got an array of shape "
                f"{shape} of them. Save it as one axis."
            )
        if not dtype.isnative:
            raise UnsupportedDtypeError(
                f"rows of varying length must be stored in native byte order; got {dtype}, of "
                "which h5py gives other numbers. Save it in native byte order."
            )
    elif h5py.check_string_dtype(dataset.dtype) is not None:
        texts = texts_in_memory(text_blocks(dataset), shape, storage)
        if texts is not None:
            return texts
    references: Source | None = None
    if not dataset.size:  # no space is allocated in the file
        references = MemoryArray(np.empty(shape, REFERENCE))
    elif version is not None and dataset.file.id.get_create_plist().get_sizes() == (8, 8):
        axes = tuple(range(dataset.ndim))
        references = _direct(dataset, version, REFERENCE, axes, rules, stored, storage)
    if version is None or references is None:
        raise varying_rows_error(storage, shape)
    target = OnDisk(shape, dtype, rules, stored.kind, version, stored.filters, ())
    whole = prod(shape) * REFERENCE.itemsize
    storage = replace(
        storage,
        table_bytes=HEAP_BYTES + references.storage().table_bytes,
        cached_whole=() if references.storage().chunks is None else (whole,),
    )
    if dtype.hasobject:
        return VaryingRows.of(target, references, storage)
    described = replace(
        storage,
        layout=f"rows of varying length, {storage.layout}",
        reading="whole rows through h5py; how long they are, by one scan that reads "
        f"{REFERENCE.itemsize} bytes a row",
        chunks=None,
        strides=None,
        table_bytes=storage.table_bytes + 4 * len(dataset),
        scratch_bytes=PIECE_BYTES,
    )
    return VaryingNumbers(target, references, described)


def _direct(
    dataset: Any,
    version: Version,
    dtype: np.dtype[Any],
    axes: tuple[int, ...],
    rules: Rules,
    stored: Stored,
    storage: Storage,
) -> Source | None:
    """Return a source that reads the file without HDF5; None if only HDF5 can read it.

    `axes` are the sample axes.
    """
    shape, file = dataset.shape, file_of(version)
    in_place = _read_by(storage, "contiguous")
    offset = offset_of(dataset.id) if stored.kind == "contiguous" else None
    if offset is not None:
        end = offset + prod(shape) * dtype.itemsize
        if end > version.nbytes:
            raise TruncatedFileError(
                f"the file must hold {end} bytes; got {version.nbytes}. It was cut short."
            )
        strides = contiguous_strides(shape, dtype.itemsize)
        described = replace(in_place, strides=strides)
        return Strided(file, dtype, shape, strides, offset, described, axis=rules.axis)
    if stored.kind != "chunked" or not prod(shape):
        return None
    edges = any(length % step for length, step in zip(shape, dataset.chunks, strict=True))
    if not can_decode(stored.filters, edges):
        return None
    table = ChunkTable(version, storage.key or "", dataset.chunks, rules.axis)
    table_bytes = ChunkTable.BYTES * dataset.id.get_num_chunks()
    chunk_shape = _chunk_shape(dataset)
    described = _read_by(storage, "decoded", chunks=chunk_shape, table_bytes=table_bytes)
    if not stored.filters and not rules.fill:
        strides = contiguous_strides(dataset.chunks, dtype.itemsize)
        in_place = replace(in_place, table_bytes=table_bytes)
        cuts = any(n < shape[axis] for axis, n in enumerate(chunk_shape) if axis not in axes)
        nbytes = prod(dataset.chunks) * dtype.itemsize
        if not cuts or _run_of_row(shape, chunk_shape, axes, dtype.itemsize) >= _LARGE:
            if not (cuts and storage.is_remote and nbytes <= _FETCHED_WHOLE):
                return Strided(file, dtype, shape, strides, 0, in_place, table, axis=rules.axis)
            # Described as the local file is, so that the order of rows is the same.
            whole = (prod(shape) * dtype.itemsize,)
            described = replace(in_place, reading=described.reading, cached_whole=whole)
    decoder = ChunkDecoder(stored.filters, dtype, dataset.chunks)
    fill = fill_bytes(dataset) if rules.fill else None
    return Chunked(FilteredChunks(file, table, decoder, shape, chunk_shape, fill, described))


def _run_of_row(
    shape: tuple[int, ...], chunk: tuple[int, ...], axes: tuple[int, ...], itemsize: int
) -> int:
    """Return the bytes of a row that are contiguous both in a chunk and in the row."""
    for axis in reversed(range(len(shape))):
        if axis in axes:
            break
        itemsize *= chunk[axis]
        if chunk[axis] < shape[axis]:
            break
    return itemsize


def _read_by(storage: Storage, how: str, **changes: Any) -> Storage:
    return replace(storage, reading=READING[how] + decoding_hint(storage.packed), **changes)


def _chunk_shape(dataset: Any) -> tuple[int, ...]:
    """Return the shape of a chunk, clipped to the array; the array's shape if it has no chunks."""
    steps = dataset.chunks or dataset.shape
    return tuple(max(1, min(step, n)) for step, n in zip(steps, dataset.shape, strict=True))
