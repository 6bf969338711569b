"""Zarr v2 and v3: arrays in chunks, one object each or many in a shard.

Opening reads metadata and looks whether the stored objects are there; it imports neither
zarr-python nor TensorStore, which take longer to import than all the rest. Reading is by
TensorStore (`readers.TensorStoreReader`), or by zarr-python where only that can decode the
array.
"""

from __future__ import annotations

import uuid
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, Literal

from oocdata.errors import (
    ArgumentError,
)
from oocdata.sources.chunks import Chunks
from oocdata.sources.dimensions import packing
from oocdata.sources.source import Source, check_axis
from oocdata.sources.zarr.attributes import attributes_of
from oocdata.sources.zarr.chunk_files import plain_rows
from oocdata.sources.zarr.hierarchy import find_array, list_arrays
from oocdata.sources.zarr.metadata import ArrayMetadata, parse_array
from oocdata.sources.zarr.readers import TensorStoreReader, ZarrReader
from oocdata.sources.zarr.store import Archive, Folder, Store, store_of
from oocdata.sources.zarr.stored import StoredArray, metadata_written
from oocdata.sources.zarr.survey import survey

if TYPE_CHECKING:
    import zarr

__all__ = ["from_array", "list_zarr", "open_zarr"]

Missing = Literal["error", "fill"]


def open_zarr(
    path: str, key: str | None = None, *, axis: int | str = 0, missing: Missing = "error"
) -> Source:
    """Open a Zarr v2 or v3 array, or one of a group.

    Parameters
    ----------
    path : str
        A folder, a ZIP archive, or a URL: ``file://``, ``http(s)://``, ``s3://``, ``gs://``.
    key : str, optional
        The array below `path`, e.g. ``"a/b"``; not needed when there is one.
    axis : int or str
        The row axis: its number, or the name of a dimension.
    missing : {"error", "fill"}
        What a chunk that is not stored means: an error, or rows of the fill value. Missing chunks
        are found here where that is cheap (up to 32,768 objects on disk), else when they are read.
        Where they were looked at, one that is written later is an error when it is read.

    Returns
    -------
    Chunks, or ChunkFiles where nothing is compressed and rows are large

    Raises
    ------
    oocdata.errors.MissingFileError, oocdata.errors.UnknownFormatError
        If there is no Zarr hierarchy, or its metadata can't be read.
    oocdata.errors.MissingKeyError, oocdata.errors.SeveralDatasetsError
        The message lists what is there.
    oocdata.errors.UnsupportedDtypeError
        For strings, dates, structured rows and objects.
    oocdata.errors.MissingChunkError, oocdata.errors.DamagedChunkError
        With the rows concerned.

    Examples
    --------
    >>> import tempfile, zarr
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     array = zarr.create_array(folder, shape=(10, 3), chunks=(4, 3), dtype=">f4")
    ...     array[:] = 1
    ...     source = open_zarr(folder)
    >>> source.shape, source.dtype, source.chunk_rows
    ((10, 3), dtype('float32'), 4)
    """
    _check_missing(missing)
    store = store_of(path)
    name, found = find_array(store, key, path)
    return _open(store, name, found, axis, missing)


def from_array(
    array: zarr.Array[Any], *, axis: int | str = 0, missing: Missing = "error"
) -> Source:
    """Read an open ``zarr.Array``, whatever its store.

    A plain ``LocalStore`` is only where the array lies: it is opened again by its path. Any other
    store is read through zarr-python; the source can be pickled if the store can.

    Parameters
    ----------
    array : zarr.Array
    axis : int or str
        The row axis: its number, or the name of a dimension.
    missing : {"error", "fill"}
        As in `open_zarr`.

    Examples
    --------
    >>> import zarr
    >>> array = zarr.create_array({}, shape=(10, 3), chunks=(4, 3), dtype="i2")
    >>> array[:] = 7
    >>> from_array(array).shape
    (10, 3)
    """
    import zarr
    from zarr.storage import LocalStore

    from oocdata.sources.zarr.held import Held, metadata_of

    _check_missing(missing)
    if not isinstance(array, zarr.Array):
        raise ArgumentError(f"`array` must be a zarr.Array; got {type(array).__name__}.")
    if type(array.store) is LocalStore:
        return open_zarr(str(array.store.root), array.path or None, axis=axis, missing=missing)
    held = Held(array)
    version = array.metadata.zarr_format
    metadata = parse_array(metadata_of(array), version, held.path, array.path or None)
    return _open(held, array.path, metadata, axis, missing)


def list_zarr(path: str) -> list[str]:
    """Return the arrays below a path, e.g. ``["a", "b/c"]``; ``[""]`` where the path is an array.

    Folders and archives are walked; at a URL the group's consolidated metadata are read.

    Raises
    ------
    oocdata.errors.MissingFileError, oocdata.errors.UnknownFormatError

    Examples
    --------
    >>> import tempfile, zarr
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     group = zarr.create_group(folder)
    ...     names = [group.create_array(name, shape=(2,), dtype="i4").path for name in ("b/c", "a")]
    ...     list_zarr(folder)
    ['a', 'b/c']
    """
    return list_arrays(store_of(path), path)


def _open(
    store: Store, key: str, metadata: ArrayMetadata, axis: int | str, missing: Missing
) -> Source:
    said = attributes_of(store, key, metadata)
    row_axis = check_axis(axis, len(metadata.shape), store.path, key or None, said.dimensions)
    found = survey(store, key, metadata, row_axis, fill=missing == "fill")
    stored = StoredArray(
        store=store,
        key=key,
        metadata=metadata,
        axis=row_axis,
        missing=missing,
        # Where the objects were not looked at, a number of this description's own keeps its cached
        # chunks apart from those of an earlier content.
        version=_version(found),
        stored_bytes=None if found is None else found.stored_bytes,
        written=metadata_written(store, key, metadata.version),
        # An archive's objects are as old as it is; those elsewhere tell no time.
        newest=found.newest if found is not None and isinstance(store, Folder) else None,
        dimensions=said.dimensions,
        packed=packing(said.attributes),
    )
    reason = _why_zarr(store, metadata)
    reader = ZarrReader(stored, reason) if reason else TensorStoreReader(stored)
    whole = Chunks.of(reader, row_axis)
    if reason:
        return whole
    complete = missing == "error" or (found is not None and not found.missing)
    return plain_rows(whole, stored, complete=complete)


def _version(found: Any) -> Hashable:
    return uuid.uuid4().hex if found is None else (found.version, found.stored_bytes)


def _why_zarr(store: Store, metadata: ArrayMetadata) -> str:
    """Return why zarr-python must read the array; empty where TensorStore can."""
    if not isinstance(store, Folder | Archive) and hasattr(store, "array"):
        return "a store that is a Python object"
    return metadata.zarr_only


def _check_missing(missing: str) -> None:
    if missing not in ("error", "fill"):
        raise ArgumentError(f'`missing` must be "error" or "fill"; got {missing!r}.')
