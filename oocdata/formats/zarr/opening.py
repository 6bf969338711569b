"""Open Zarr v2 and v3 arrays as sources.

Opening reads metadata and surveys the stored objects; it does not import zarr-python, which takes
longer to import than all the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.axes import axis_numbers
from oocdata.engines.chunked import Chunked
from oocdata.engines.source import Source, Storage
from oocdata.errors import error_location
from oocdata.formats.anndata import Group, open_group
from oocdata.formats.codecs import chunk_grid
from oocdata.formats.patterns import Key, Missing, concatenate_datasets, is_pattern
from oocdata.formats.zarr.chunk_files import chunk_files
from oocdata.formats.zarr.hierarchy import find_array, find_arrays, group_attributes, list_arrays
from oocdata.formats.zarr.metadata import ArrayMetadata, load_json, parse_array
from oocdata.formats.zarr.objects import Objects
from oocdata.formats.zarr.readers import ZarrReader
from oocdata.formats.zarr.shards import reader_of
from oocdata.formats.zarr.store import Store, join, store_of

if TYPE_CHECKING:
    import zarr

__all__ = ["from_array", "list_zarr", "open_zarr"]


def open_zarr(
    path: str, key: Key | None = None, *, axis: int | str = 0, missing: Missing | None = None
) -> Source:
    """Open a Zarr v2 or v3 array, or one or several of a group, as `oocdata.open` does.

    Errors call positions along `axis` rows. A chunk that is not stored reads as the fill value,
    with one `MissingChunkWarning`. With ``missing="fill"`` there is no warning; with ``"error"`` it
    is an error, at open where a survey is cheap (up to 32,768 stored objects on disk), else when it
    is read.

    Examples
    --------
    >>> import tempfile, zarr
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     array = zarr.create_array(folder, shape=(10, 3), chunks=(4, 3), dtype=">f4")
    ...     array[:] = 1
    ...     source = open_zarr(folder)
    >>> source.shape, source.dtype, source.storage().chunks
    ((10, 3), dtype('float32'), (4, 3))
    """
    store = store_of(path)
    opened: dict[str, Any] = {"target": store.path}
    if missing is not None:
        opened["missing"] = missing
    if key is not None and (not isinstance(key, str) or is_pattern(key)):
        sources = [
            _found(store, name, metadata, axis, missing, opened)
            for name, metadata in find_arrays(store, key)
        ]
        # A name may look like a pattern.
        if not isinstance(key, str) or (sources[0].storage().key or "") != key.strip("/"):
            return concatenate_datasets(sources, axis, key, opened)
        return sources[0]
    name, metadata = find_array(store, key)
    return _found(store, name, metadata, axis, missing, opened)


def _found(
    store: Store,
    name: str,
    metadata: ArrayMetadata | None,
    axis: Any,
    missing: Missing | None,
    opened: dict[str, Any],
) -> Source:
    """Open an array, or a group that encodes one, as found by `find_array`."""
    if metadata is not None:
        return _open(store, name, metadata, axis, missing, {**opened, "key": name or None})

    def member(part: str) -> Source:
        return _found(store, *find_array(store, join(name, part)), 0, missing, opened)

    attributes = group_attributes(store, name) or {}
    return open_group(Group(store.path, name, attributes, member), axis)


def from_array(
    array: zarr.Array[Any], *, axis: int | str = 0, missing: Missing | None = None
) -> Source:
    """Read an open ``zarr.Array``, whatever its store; `axis` and `missing` as in `open_zarr`.

    An array in a ``LocalStore`` is opened again by its path. Any other store is read through
    zarr-python; the source can be pickled if the store can.

    Examples
    --------
    >>> import zarr
    >>> array = zarr.create_array({}, shape=(10, 3), chunks=(4, 3), dtype="i2")
    >>> array[:] = 7
    >>> from_array(array).shape
    (10, 3)
    """
    from zarr.storage import LocalStore

    from oocdata.formats.zarr.user_store import UserStore

    if type(array.store) is LocalStore:
        return open_zarr(str(array.store.root), array.path or None, axis=axis, missing=missing)
    store = UserStore(array)
    text, attributes = store.metadata()
    with error_location(store.path, array.path or None):
        metadata = parse_array(load_json(text), array.metadata.zarr_format, attributes)
    return _open(store, array.path, metadata, axis, missing, None)


def list_zarr(path: str) -> list[str]:
    """Return the keys of the arrays at a path, e.g. ``["a", "b/c"]``; ``[""]`` if it is an array.

    Folders and archives are walked; at a URL the group's consolidated metadata is read.
    """
    return list_arrays(store_of(path))


def _open(
    store: Store,
    key: str,
    metadata: ArrayMetadata,
    axis: int | str,
    missing: Missing | None,
    opened: dict[str, Any] | None,
) -> Source:
    described = Storage("Zarr", store.path, key or None, dimensions=metadata.dimensions)
    objects = Objects(store, key, metadata, axis_numbers(axis, len(metadata.shape), described)[0])
    objects.survey(refuse=missing == "error")
    reader = reader_of(objects, missing, opened)
    if metadata.dtype.kind == "O":
        from oocdata.formats.hdf5.varying import texts_in_memory, varying_rows_error

        texts = texts_in_memory(_texts(reader), reader.shape, reader.storage())
        if texts is None:
            raise varying_rows_error(reader.storage(), reader.shape)
        return texts
    return chunk_files(reader) or Chunked(reader)


def _texts(reader: ZarrReader) -> Iterator[NDArray[Any]]:
    """Yield texts of varying length as UTF-8, the form of HDF5, a row of chunks at a time."""
    (length, *others), steps = reader.shape, reader.chunk_shape
    for start in range(0, length, steps[0]):
        texts = np.empty((min(steps[0], length - start), *others), object)
        places = np.indices(chunk_grid(texts.shape, steps)).reshape(len(steps), -1).T
        outs = [
            texts[tuple(slice(at, at + n) for at, n in zip(origin, steps, strict=True))]
            for origin in (places * steps).tolist()
        ]
        places[:, 0] = start // steps[0]
        reader.read_chunks(places, outs)
        texts.reshape(-1)[:] = [str(text).encode() for text in texts.flat]
        yield texts
