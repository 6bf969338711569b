"""HDF5: datasets by name, contiguous ones by byte offset, all others by chunks through h5py.

A contiguous dataset without filters is a run of bytes in the file (``H5Dget_offset``), so the
extents engine reads it without HDF5 and its one lock. Everything else (chunks, compact and virtual
storage, external files, datasets that somebody writes to) is read by boxes. The format: HDF5 File
Format Specification, version 3.0.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace
from math import prod
from typing import Any, Literal

import numpy as np

from oocdata.errors import ArgumentError, TruncatedFileError, place
from oocdata.sources.chunks import Chunks
from oocdata.sources.dimensions import as_stored
from oocdata.sources.extents import Extents, FileStamp, contiguous_strides
from oocdata.sources.hdf5.chunked import ChunkedReader, UnfilteredChunks
from oocdata.sources.hdf5.decode import ChunkDecoder, can_decode
from oocdata.sources.hdf5.description import (
    DECODED,
    READING,
    dimension_names,
    is_plain,
    layout_of_dataset,
    stored_dtype,
)
from oocdata.sources.hdf5.file import hdf5_library, open_file, readable
from oocdata.sources.hdf5.links import choose_dataset, find_dataset, list_names
from oocdata.sources.hdf5.reader import Hdf5Reader, ObjectReader, delivered
from oocdata.sources.hdf5.storage import Rules
from oocdata.sources.hdf5.virtual import inspect_storage
from oocdata.sources.source import Source, check_axis
from oocdata.sources.strided import row_source

__all__ = ["from_dataset", "list_hdf5", "open_hdf5"]


def list_hdf5(path: str) -> list[str]:
    """Return the absolute name of every dataset in a file, of any dtype.

    Soft links to datasets are listed; external links are listed and not followed.

    Parameters
    ----------
    path : str

    Raises
    ------
    oocdata.errors.MissingFileError, oocdata.errors.TruncatedFileError
    oocdata.errors.UnknownFormatError
        If it is no HDF5 file, or its groups can't be read.

    Examples
    --------
    >>> import h5py, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with h5py.File(f"{folder}/a.h5", "w") as file:
    ...         file["flow/u"] = np.zeros((10, 3))
    ...         file["note"] = "text"
    ...     list_hdf5(f"{folder}/a.h5")
    ['/flow/u', '/note']
    """
    with open_file(path) as file, readable(path):
        return list_names(file)


def open_hdf5(
    path: str,
    key: str | None = None,
    *,
    axis: int | str = 0,
    missing: Literal["error", "fill"] = "error",
    external: bool = False,
) -> Source:
    """Open a dataset of an HDF5 file; reads metadata only.

    Parameters
    ----------
    path : str
    key : str, optional
        The dataset's name, with or without its leading slash; not needed when there is one array.
    axis : int or str
        The row axis: its number, or the name of a dimension (a label or dimension scale).
    missing : {"error", "fill"}
        Whether what was never written is an error or reads as the fill value.
    external : bool
        Whether the bytes may lie in other files (external links, external raw files, sources of a
        virtual dataset). Such a file can name any path on the machine.

    Returns
    -------
    Source
        `Extents` for contiguous storage, else `Chunks`.

    Raises
    ------
    oocdata.errors.MissingKeyError, oocdata.errors.SeveralDatasetsError
        The message lists what is there.
    oocdata.errors.UnsupportedDtypeError
        For text, references, structured rows, variable lengths.
    oocdata.errors.MissingChunkError
        If some of it was never written, with the rows.
    oocdata.errors.ExternalDataError
        If bytes lie in other files.
    oocdata.errors.TruncatedFileError, oocdata.errors.UnknownFormatError
    oocdata.errors.MissingDependencyError
        If a filter is needed that is not installed.
    oocdata.errors.SourceError
        If another process has the file open for writing.

    Examples
    --------
    >>> import h5py, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with h5py.File(f"{folder}/a.h5", "w") as file:
    ...         _ = file.create_dataset("u", data=np.zeros((10, 3), ">f4"), compression="lzf")
    ...     source = open_hdf5(f"{folder}/a.h5")
    >>> source.shape, source.dtype, source.chunk_rows
    ((10, 3), dtype('float32'), 10)
    """
    fill = _accepts_fill(missing)
    with ExitStack() as opened, readable(path, key):
        file = opened.enter_context(open_file(path))
        name = choose_dataset(file) if key is None else f"/{key.strip('/')}"
        dataset, name = find_dataset(file, name, external, opened)
        # A name that leads through an external link is described by the file where it ends.
        return _describe(dataset, FileStamp.of(dataset.file.filename), name, axis, fill, external)


def from_dataset(
    dataset: Any,
    *,
    axis: int | str = 0,
    missing: Literal["error", "fill"] = "error",
    external: bool = False,
) -> Source:
    """Open an ``h5py.Dataset``.

    A dataset of a file on disk that is open for reading is described by path and name: it can be
    pickled, and is read as `open_hdf5` reads it. Any other (in memory, in a file-like object, open
    for writing) is read through the object, which must stay open.

    Parameters
    ----------
    dataset : h5py.Dataset
    axis, missing, external
        As for `open_hdf5`.

    Returns
    -------
    Source

    Raises
    ------
    oocdata.errors.ArgumentError
        If it is no open dataset.
    oocdata.errors.SourceError
        As for `open_hdf5`.

    Examples
    --------
    >>> import h5py
    >>> file = h5py.File("a.h5", "w", driver="core", backing_store=False)
    >>> file["u"] = np.zeros((10, 3))
    >>> from_dataset(file["u"]).shape
    (10, 3)
    """
    h5py = hdf5_library()
    if not isinstance(dataset, h5py.Dataset) or not dataset:
        raise ArgumentError(f"`dataset` must be an open h5py.Dataset; got {dataset!r}.")
    fill = _accepts_fill(missing)
    path, key = dataset.file.filename, dataset.name
    if _can_be_reopened(dataset):
        return open_hdf5(path, key, axis=axis, missing=missing, external=external)
    with readable(path, key):
        return _describe(dataset, None, key, axis, fill, external)


def _accepts_fill(missing: object) -> bool:
    if missing not in ("error", "fill"):
        raise ArgumentError(f'`missing` must be "error" or "fill"; got {missing!r}.')
    return missing == "fill"


def _can_be_reopened(dataset: Any) -> bool:
    """Return whether path and name lead to what the object shows."""
    file, name = dataset.file, dataset.name
    if file.driver != "sec2" or file.mode != "r" or file.swmr_mode or name is None:
        return False
    access = dataset.id.get_access_plist()
    # External files are looked for in one folder by all who have the dataset open in a process.
    if dataset.external or access.get_efile_prefix() or access.get_virtual_prefix():
        return False
    try:
        # The path may be relative to a folder that is no longer the current one.
        if not os.path.samestat(os.stat(file.filename), os.fstat(file.id.get_vfd_handle())):
            return False
        with open_file(file.filename) as again:
            return bool(again[name].id == dataset.id)
    except (OSError, KeyError):  # e.g. the user's file is open without locking
        return False


def _describe(
    dataset: Any,
    stamp: FileStamp | None,
    key: str | None,
    axis: int | str,
    fill: bool,
    external: bool,
) -> Source:
    """Return the source of an open dataset; through the object itself where `stamp` is None."""
    path = stamp.path if stamp else dataset.file.filename
    stored = stored_dtype(dataset, path, key)
    if dataset.shape is None:
        raise ArgumentError(
            f"an array must have a row axis; got an empty dataspace. [{place(path, key)}]"
        )
    shape = dataset.shape
    names = dimension_names(dataset) if isinstance(axis, str) else ()
    rules = Rules(path, key, check_axis(axis, len(shape), path, key, names), fill, external)
    storage = inspect_storage(dataset, rules)
    layout = layout_of_dataset(dataset, path, key, storage)
    # What somebody writes to is read anew each time, never kept.
    changing = dataset.file.mode != "r"
    offset = dataset.id.get_offset() if storage.kind == "contiguous" else None
    if stamp and key and not changing and offset is not None and is_plain(dataset, stored):
        end = offset + prod(shape) * stored.itemsize
        if end > stamp.nbytes:
            raise TruncatedFileError(
                f"the file must hold {end} bytes; got {stamp.nbytes}. It was cut short.",
                path=path,
                key=key,
            )
        stored = np.dtype(stored.str)  # without the names that h5py keeps of an enum
        strides = contiguous_strides(shape, stored.itemsize)
        plain = Extents(stamp, stored, shape, strides, offset, layout)
        return row_source(plain, rules.axis)
    boxes = (1,) * len(shape)
    if not changing and storage.kind in ("chunked", "compact"):
        chunk = dataset.chunks or shape
        boxes = tuple(max(1, min(step, n)) for step, n in zip(chunk, shape, strict=True))
    whole_rows = all(
        step >= length
        for place, (step, length) in enumerate(zip(dataset.chunks or (), shape, strict=False))
        if place != rules.axis
    )
    unfiltered = storage.kind == "chunked" and not storage.filters and whole_rows and not fill
    if stamp and key and not changing and unfiltered and is_plain(dataset, stored):
        plain_dtype = np.dtype(stored.str)
        rows_apart = Extents(
            stamp,
            plain_dtype,
            shape,
            contiguous_strides(dataset.chunks, plain_dtype.itemsize),
            0,
            replace(layout, reading=READING["contiguous"] + as_stored(layout.packed)),
            UnfilteredChunks(stamp, key, dataset.chunks, rules.axis),
        )
        return rows_apart.with_row_axis(rules.axis)
    dtype = delivered(stored)
    decodes = storage.kind == "chunked" and can_decode(storage.filters)
    if stamp and key and not changing and decodes and max(boxes) > 1 and is_plain(dataset, stored):
        decoder = ChunkDecoder(storage.filters, np.dtype(stored.str), dataset.chunks)
        chunked = ChunkedReader(
            file=stamp,
            key=key,
            shape=shape,
            dtype=dtype,
            chunk_shape=boxes,
            axis=rules.axis,
            fill=fill,
            decoder=decoder,
            described=replace(layout, reading=DECODED + as_stored(layout.packed)),
        )
        return Chunks.of(chunked, rules.axis)
    if stamp and key:
        reader = Hdf5Reader(
            file=replace(stamp, modified=None) if changing else stamp,
            key=key,
            shape=shape,
            dtype=dtype,
            chunk_shape=boxes,
            rules=rules,
            kind=storage.kind,
            filters=storage.filters,
            changing=changing,
            outside=tuple(FileStamp.of(path) for path in storage.outside),
            described=layout,
        )
        return Chunks.of(reader, rules.axis)
    through = ObjectReader(dataset, shape, dtype, boxes, rules, storage.kind, layout)
    return Chunks.of(through, rules.axis)
