"""Find and open the arrays of a Zarr hierarchy, without importing zarr-python."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.axes import axis_numbers
from oocdata.engines.chunked import Chunked
from oocdata.engines.source import Source, Storage
from oocdata.errors import (
    MissingKeyError,
    UnknownFormatError,
    UnsupportedDtypeError,
    error_location,
)
from oocdata.formats.anndata import Group, merge_groups
from oocdata.formats.codecs import chunk_grid
from oocdata.formats.patterns import Missing
from oocdata.formats.tree import Array, Tree
from oocdata.formats.zarr.attributes import level_names
from oocdata.formats.zarr.chunk_files import chunk_files
from oocdata.formats.zarr.metadata import ArrayMetadata, load_json, parse_array, unreadable
from oocdata.formats.zarr.objects import Objects
from oocdata.formats.zarr.readers import ZarrReader
from oocdata.formats.zarr.shards import reader_of
from oocdata.formats.zarr.store import Folder, Store, join, store_of

if TYPE_CHECKING:
    import zarr


class ZarrTree(Tree):
    """The arrays of a Zarr hierarchy at a path or URL; `missing` as in `oocdata.open`."""

    def __init__(self, path: str, missing: Missing | None = None) -> None:
        self.store, self._missing = store_of(path), missing
        super().__init__(self.store.path, missing=missing)
        self._last: tuple[str, _Node | Group | None] | None = None

    def names(self) -> list[str]:
        """Return the keys of the arrays, e.g. ``["a", "b/c"]``; ``[""]`` if there is only one.

        A folder is walked; at a URL the group's consolidated metadata is read.
        """
        root = self._found("")
        if isinstance(root, _Node):
            return [""]
        if root is None:
            raise UnknownFormatError(
                "a Zarr hierarchy must hold zarr.json, .zarray or .zgroup; there is none of them.",
                path=self.path,
            )
        is_folder = isinstance(self.store, Folder)
        arrays = self._walk("", set()) if is_folder else self._listed()
        return merge_groups(arrays, self.attributes)

    def below(self, group: str) -> list[str]:
        """Return the names of a group's children; see `Tree`."""
        if isinstance(self.store, Folder):
            return self.store.folders(group.strip("/")) or []
        return super().below(group)

    def look(self, name: str) -> Any:
        """Return a `Group`, None, or the metadata file of an array; see `Tree`."""
        key = name.strip("/")
        if key and {".", "..", ""} & set(key.split("/")):
            return None
        self.store.prefetch(metadata_names(key))
        return self._found(key)

    def _found(self, key: str) -> _Node | Group | None:
        if self._last is None or self._last[0] != key:  # opening an array asks three times
            self._last = key, self._node(key)
        return self._last[1]

    def array(self, name: str) -> Array | None:
        """Return the metadata of an array; see `Tree`."""
        found = self.metadata(name)
        if found is None:
            return None
        return Array(found.shape, found.dtype, found.dimensions, found.annotations.attributes)

    def open_array(self, name: str, axis: int | str) -> Source:
        """Open an array; see `Tree`."""
        key, metadata = name.strip("/"), self.metadata(name)
        assert metadata is not None
        units = self.units_of_bounds(name, metadata.shape, metadata.dimensions)
        if units:
            found = metadata.annotations
            found = replace(found, attributes={**units, **found.attributes})
            metadata = replace(metadata, annotations=found)
        return open_array(self.store, key, metadata, axis, self._missing, self.arguments(key))

    def metadata(self, name: str) -> ArrayMetadata | None:
        """Return the parsed metadata of an array; None if there is none.

        Axes without names have those that the group gives to its levels.
        """
        key, node = name.strip("/"), self.look(name)
        if not isinstance(node, _Node):
            return None
        attributes = self.store.read(join(key, ".zattrs")) if node.version == 2 else None
        with error_location(self.path, key or None):
            metadata = parse_array(node.metadata, node.version, attributes)
        if metadata.dimensions or not key:
            return metadata
        group, _, level = key.rpartition("/")
        found = None
        with suppress(UnknownFormatError):  # the array is read without its group
            found = self._found(group)
        levels = found.attributes if isinstance(found, Group) else {}
        return replace(metadata, dimensions=level_names(levels, level, len(metadata.shape)))

    def _walk(self, key: str, seen: set[object]) -> Iterator[str]:
        if isinstance(self.store, Folder):
            status = os.stat(os.path.join(self.store.path, key))
            if (status.st_dev, status.st_ino) in seen:  # a symbolic link to a parent
                return
            seen.add((status.st_dev, status.st_ino))
        names = [join(key, name) for name in self.store.folders(key) or ()]
        self.store.prefetch([join(name, file) for name in names for file in _METADATA_FILES])
        for below in names:
            node = self._node(below)
            if isinstance(node, _Node):
                yield below
            elif node is not None:
                yield from self._walk(below, seen)

    def _listed(self) -> Iterator[str]:
        version_3 = self.store.read("zarr.json")
        text = version_3 if version_3 is not None else self.store.read(".zmetadata")
        with error_location(self.path):
            group = {} if text is None else load_json(text)
        nodes = (group.get("consolidated_metadata") or group).get("metadata")
        if not nodes or not isinstance(nodes, dict):
            if self.store.folders("") is not None:
                yield from self._walk("", set())
                return
            raise MissingKeyError(
                "`key` must be given for a group at a URL that has no consolidated metadata, "
                "because its arrays can't be listed there.",
                path=self.path,
            )
        for name, node in nodes.items():
            if version_3 is None and name.endswith(".zarray"):
                yield name.rpartition("/")[0]
            elif isinstance(node, dict) and node.get("node_type") == "array":
                yield name

    def _node(self, key: str) -> _Node | Group | None:
        """Return the array, or the group with its attributes, at a key; None if there is none."""
        self.store.prefetch([join(key, name) for name in _METADATA_FILES])
        with error_location(self.path, key or None):
            node = self._json(key, "zarr.json")
            if node is None:
                array = self._json(key, ".zarray")
                if array is not None:
                    return _Node(2, array)
                files = [self.store.read(join(key, name)) for name in (".zgroup", ".zmetadata")]
                if files == [None, None]:
                    return None
                node = {"attributes": self._json(key, ".zattrs")}
            else:
                version, kind = node.get("zarr_format"), node.get("node_type")
                if version != 3 or kind not in ("array", "group"):
                    raise unreadable(
                        "must have zarr_format 3 and node_type array or group; got "
                        f"{version!r} and {kind!r}"
                    )
                if kind == "array":
                    return _Node(3, node)
        attributes = node.get("attributes")
        return Group(attributes if isinstance(attributes, dict) else {})

    def _json(self, key: str, name: str) -> dict[str, Any] | None:
        text = self.store.read(join(key, name))
        return None if text is None else load_json(text)


_METADATA_FILES = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")
"""Names of the metadata files of a node."""


def metadata_names(key: str) -> list[str]:
    """Return the names of the metadata files of an array, and of the group that it is in."""
    nodes = [key, key.rpartition("/")[0]] if key else [key]
    return [join(node, file) for node in nodes for file in _METADATA_FILES]


class _Node(NamedTuple):
    """An array, with its metadata file."""

    version: int
    metadata: dict[str, Any]


def from_array(
    array: zarr.Array[Any], *, axis: int | str = 0, missing: Missing | None = None
) -> Source:
    """Read an open ``zarr.Array``, whatever its store; `axis` and `missing` as in `oocdata.open`.

    An array in a ``LocalStore`` is opened again by its path. Any other store is read through
    zarr-python; the source can be pickled if the store can.
    """
    from zarr.storage import LocalStore

    from oocdata.formats.zarr.user_store import UserStore

    if type(array.store) is LocalStore:
        return ZarrTree(str(array.store.root), missing).open(array.path, axis)
    store = UserStore(array)
    text, attributes = store.metadata()
    with error_location(store.path, array.path or None):
        metadata = parse_array(load_json(text), array.metadata.zarr_format, attributes)
    return open_array(store, array.path, metadata, axis, missing, None)


def open_array(
    store: Store,
    key: str,
    metadata: ArrayMetadata,
    axis: int | str,
    missing: Missing | None,
    opened: dict[str, Any] | None,
) -> Source:
    """Open an array in a store, from its metadata.

    Errors call positions along the first of `axis` rows. `opened` are the arguments of
    `oocdata.open` for the storage, or None.
    """
    if metadata.dtype.kind == "O" and not metadata.shape:
        raise UnsupportedDtypeError(
            "elements must be numbers of a fixed size; got text of varying length."
        )
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
        reader.check()
        texts.reshape(-1)[:] = [str(text).encode() for text in texts.flat]
        yield texts
