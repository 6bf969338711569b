"""HDF5: datasets by name, contiguous and unfiltered ones by byte offset, all others by chunks.

A contiguous dataset without filters is a run of bytes in the file (``H5Dget_offset``), and so is
each unfiltered chunk: the strided engine reads them without HDF5 and its one lock. Filtered chunks
are decoded outside of HDF5 where their filters are known here. Everything else (compact and virtual
storage, external files, datasets that somebody writes to) is read through h5py. The format: HDF5
File Format Specification, version 3.0.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, Literal, TypeAlias

import numpy as np

from oocdata.engines.axes import sample_axes
from oocdata.engines.chunked import Chunked
from oocdata.engines.files import FileVersion, OpenFile
from oocdata.engines.source import Annotations, Source, Storage
from oocdata.engines.strided import Strided, contiguous_strides
from oocdata.errors import ArgumentError, TruncatedFileError, place
from oocdata.formats.anndata import Group, is_one_array, open_group
from oocdata.formats.dimensions import as_stored
from oocdata.formats.hdf5.decode import ChunkDecoder, can_decode
from oocdata.formats.hdf5.description import (
    DECODED,
    READING,
    annotations_of,
    bare,
    delivered,
    describe,
    dimension_names,
    is_plain,
    stored_dtype,
)
from oocdata.formats.hdf5.file import hdf5_library, little_metadata, open_file, readable
from oocdata.formats.hdf5.filtered import FilteredChunks
from oocdata.formats.hdf5.library import OpenObject, ThroughLibrary
from oocdata.formats.hdf5.links import (
    choose_dataset,
    find_dataset,
    group_attributes,
    list_names,
    values_of,
)
from oocdata.formats.hdf5.names import Names
from oocdata.formats.hdf5.parts import Datasets
from oocdata.formats.hdf5.storage import Rules, Stored
from oocdata.formats.hdf5.table import ChunkTable
from oocdata.formats.hdf5.texts import is_text, read_texts
from oocdata.formats.hdf5.virtual import inspect_storage
from oocdata.formats.patterns import Key, is_pattern, keys_of, matching, said, unmatched

__all__ = ["from_dataset", "list_hdf5", "open_hdf5"]

Missing: TypeAlias = Literal["error", "fill"]
Axis: TypeAlias = int | str | Sequence[int | str]


def list_hdf5(path: str) -> list[str]:
    """Return the absolute name of every dataset in a file, of any dtype; see `links.list_names`.

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


def _read_annotations(path: str, key: str) -> Annotations:
    """Return what the file where a dataset lies says of it."""
    with ExitStack() as opened, readable(path, key):
        file = opened.enter_context(open_file(path))
        return annotations_of(find_dataset(file, key, False, opened)[0])


def _values(path: str, group: str, part: str) -> Any:
    """Return all values of a dataset in a group, text too."""
    key = f"{group}/{part}"
    with open_file(path) as file, readable(path, key):
        return values_of(file, key)


def open_hdf5(
    path: str,
    key: Key | None = None,
    *,
    axis: Axis = 0,
    missing: Missing | None = None,
    external: bool = False,
) -> Source:
    """Open a dataset of an HDF5 file, or several of them as one array; reads metadata only.

    Arguments and errors are those of `oocdata.open`. Of `axis` only the first counts: errors call
    places along it rows.

    Parameters
    ----------
    external : bool
        Whether the bytes may lie in other files (external links, external raw files, sources of a
        virtual dataset). Such a file can name any path on the machine.

    Returns
    -------
    Source
        `Strided` for contiguous storage and unfiltered chunks, else `Chunked`; `ThroughLibrary`
        where only HDF5 knows what lies where, or somebody writes.

    Examples
    --------
    >>> import h5py, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with h5py.File(f"{folder}/a.h5", "w") as file:
    ...         _ = file.create_dataset("u", data=np.zeros((10, 3), ">f4"), compression="lzf")
    ...     source = open_hdf5(f"{folder}/a.h5")
    >>> source.shape, source.dtype, source.storage().chunks
    ((10, 3), dtype('float32'), (10, 3))
    """
    with open_file(path) as file, readable(path, key if isinstance(key, str) else None):
        names = Names(file, os.path.abspath(path))
        several = key is not None and not isinstance(key, str)
        if isinstance(key, str) and is_pattern(key):
            several = not names.is_here(f"/{key.strip('/')}")  # a name may look like a pattern
        if several and key is not None:
            with little_metadata(file):
                return _open_several(names, key, axis, missing, external)
        name = choose_dataset(file) if key is None else f"/{str(key).strip('/')}"
        return _open_one(file, name, axis, missing, external)


def _open_one(file: Any, name: str, axis: Axis, missing: Missing | None, external: bool) -> Source:
    """Open the dataset of a name in an open file, or the group that is one array."""
    attributes = group_attributes(file, name)
    if attributes is not None and is_one_array(attributes):
        path, named = file.filename, name.rstrip("/")

        def member(part: str) -> Source:
            return _open_one(file, f"{named}/{part}", 0, missing, external)

        values = partial(_values, os.path.abspath(path), named)
        return open_group(Group(path, name, attributes, member, values), axis)
    with ExitStack() as opened:
        dataset, name = find_dataset(file, name, external, opened)
        # A name that leads through an external link is described by the file where it ends.
        return _source(dataset, _version(dataset.file), name, axis, missing, external)


def _open_several(
    names: Names, key: Key, axis: Axis, missing: Missing | None, external: bool
) -> Source:
    """Open the datasets that a pattern matches, or several keys name, as one array."""
    alone = partial(_open_one, names.file, axis=axis, missing=missing, external=external)
    found = Datasets(names, axis, fill=missing == "fill", alone=alone)
    h5g = names.library.h5g
    seen: set[object] = set()
    for one in keys_of(key):
        name = f"/{one.strip('/')}"
        if not is_pattern(one) or names.is_here(name):
            dataset = names.opened(name) if names.is_here(name) else None
            seen.add(name if dataset is None else h5g.get_objinfo(dataset).objno)
            found.add(name, dataset)
            continue
        before, groups = len(found), []
        for name in matching(one, names.below):
            dataset, where = None, name
            if names.is_here(name):
                dataset = names.opened(name)
                if isinstance(dataset, h5g.GroupID) and not is_one_array(
                    group_attributes(names.file, name)
                ):
                    groups.append(name)
                    continue
                where = name if dataset is None else h5g.get_objinfo(dataset).objno
            # Of several names that lead to one dataset, the first counts.
            if names.way(name) and where not in seen:
                seen.add(where)
                found.add(name, dataset)
        if len(found) == before:
            raise unmatched(one, names.below, names.path, groups)
    opened: dict[str, Any] = {"target": names.path}
    opened["key"] = key if isinstance(key, str) else list(key)
    opened |= {"missing": missing} if missing is not None else {}
    opened |= {"external": True} if external else {}
    return found.source(said(key), opened)


def from_dataset(
    dataset: Any, *, axis: Axis = 0, missing: Missing | None = None, external: bool = False
) -> Source:
    """Open an ``h5py.Dataset``; arguments and errors as for `open_hdf5`.

    A dataset of a file on disk that is open for reading is described by path and name: it can be
    pickled, and is read as `open_hdf5` reads it. Any other (in memory, in a file-like object, open
    for writing) is read through the object, which must stay open.

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
    path, key = dataset.file.filename, dataset.name
    if _can_be_reopened(dataset):
        return open_hdf5(path, key, axis=axis, missing=missing, external=external)
    with readable(path, key):
        return _source(dataset, None, key, axis, missing, external)


def _version(file: Any) -> FileVersion:
    """Return the version of an open file: not of what may have replaced it at its path since."""
    try:
        status = os.fstat(file.id.get_vfd_handle())
    except (NotImplementedError, RuntimeError):  # a driver without a descriptor
        status = None
    return FileVersion.of(file.filename, status)


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


def _source(
    dataset: Any,
    version: FileVersion | None,
    key: str,
    axis: Axis,
    missing: Missing | None,
    external: bool,
) -> Source:
    """Return the source of an open dataset; through the object itself where `version` is None."""
    path = version.path if version else dataset.file.filename
    text = is_text(dataset)
    stored = np.dtype("S1") if text else stored_dtype(dataset, path, key)
    if dataset.shape is None:
        raise ArgumentError(
            f"an array must have a row axis; got an empty dataspace. [{place(path, key)}]"
        )
    named = Storage("HDF5", path, key, dimensions=dimension_names(dataset))
    rows = sample_axes(axis, dataset.ndim, named)[0]
    rules = Rules(path, key, rows, missing == "fill", external)
    found = inspect_storage(dataset, rules)
    storage = describe(dataset, path, key, found)
    # What somebody writes to is read anew each time, never cached.
    changing = dataset.file.mode != "r"
    outside = tuple(FileVersion.of(other) for other in found.outside)
    if version is None:
        storage = replace(storage, annotations=partial(annotations_of, dataset))
    else:
        opened = {"target": path, "key": key}
        opened |= {"missing": missing} if missing is not None else {}
        opened |= {"external": True} if external else {}
        storage = replace(
            storage,
            files=(version, *outside),
            opened=opened,
            annotations=partial(_read_annotations, path, key),
        )
        if not (changing or text) and is_plain(dataset, stored):
            direct = _direct(dataset, version, key, bare(stored), rules, found, storage)
            if direct is not None:
                return direct
    if text:
        return read_texts(dataset, storage, None if changing else version)
    chunked = not changing and found.kind in ("chunked", "compact")
    chunk_shape = _chunk_shape(dataset)
    storage = replace(
        storage,
        reading=storage.reading + as_stored(storage.packed),
        chunks=chunk_shape if chunked else None,
    )
    about = dataset.shape, delivered(stored), chunk_shape, rules, found.kind, storage
    reader: OpenObject | ThroughLibrary
    if version is None:
        reader = OpenObject(*about, dataset)
    else:
        version = version.writable() if changing else version
        reader = ThroughLibrary(*about, version, found.filters, changing, outside)
    return Chunked(reader) if chunked else reader


def _direct(
    dataset: Any,
    version: FileVersion,
    key: str,
    stored: np.dtype[Any],
    rules: Rules,
    found: Stored,
    storage: Storage,
) -> Source | None:
    """Return a source that reads the file without HDF5; None where only HDF5 can."""
    shape, file, axis = dataset.shape, OpenFile(version), rules.axis
    in_place = replace(storage, reading=READING["contiguous"] + as_stored(storage.packed))
    offset = dataset.id.get_offset() if found.kind == "contiguous" else None
    if offset is not None:
        end = offset + prod(shape) * stored.itemsize
        if end > version.nbytes:
            raise TruncatedFileError(
                f"the file must hold {end} bytes; got {version.nbytes}. It was cut short.",
                **rules.about,
            )
        strides = contiguous_strides(shape, stored.itemsize)
        in_place = replace(in_place, strides=strides)
        return Strided(file, stored, shape, strides, offset, in_place, axis=axis)
    if found.kind != "chunked" or not can_decode(found.filters) or not prod(shape):
        return None
    table = ChunkTable(version, key, dataset.chunks, axis)
    table_bytes = ChunkTable.BYTES * dataset.id.get_num_chunks()
    if not found.filters and not rules.fill:
        strides = contiguous_strides(dataset.chunks, stored.itemsize)
        in_place = replace(in_place, table_bytes=table_bytes)
        return Strided(file, stored, shape, strides, 0, in_place, table, axis=axis)
    chunk_shape = _chunk_shape(dataset)
    reading = DECODED + as_stored(storage.packed)
    return Chunked(
        FilteredChunks(
            version=version,
            key=key,
            shape=shape,
            dtype=delivered(stored),
            chunk_shape=chunk_shape,
            axis=axis,
            fill=rules.fill,
            decoder=ChunkDecoder(found.filters, stored, dataset.chunks),
            parts=None,
            described=replace(
                storage, reading=reading, chunks=chunk_shape, table_bytes=table_bytes
            ),
            file=file,
            table=table,
        )
    )


def _chunk_shape(dataset: Any) -> tuple[int, ...]:
    """Return what is decoded together, at most the array."""
    steps = dataset.chunks or dataset.shape
    return tuple(max(1, min(step, n)) for step, n in zip(steps, dataset.shape, strict=True))
