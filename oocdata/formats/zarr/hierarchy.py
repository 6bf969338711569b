"""Find the arrays of a Zarr hierarchy in a folder, in an archive, or at a URL."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from oocdata.errors import (
    MissingKeyError,
    UnknownFormatError,
    UnsupportedDtypeError,
    error_location,
)
from oocdata.formats.anndata import is_one_array, merge_groups
from oocdata.formats.dimensions import Named, choose_key, data_variables
from oocdata.formats.patterns import GROUP, Key, children_by_group, find_datasets
from oocdata.formats.zarr.attributes import level_names
from oocdata.formats.zarr.metadata import ArrayMetadata, load_json, parse_array, unreadable
from oocdata.formats.zarr.store import Archive, Folder, Store, join

__all__ = ["find_array", "find_arrays", "group_attributes", "list_arrays", "metadata_names"]

_Found: TypeAlias = tuple[str, ArrayMetadata | None]
"""Key and metadata of an array; metadata None for a group that encodes one (AnnData)."""


def list_arrays(store: Store) -> list[str]:
    """Return the keys of the arrays in a store; ``[""]`` if the store is one array."""
    if _is_array(store, ""):
        return [""]
    if isinstance(store, Archive):
        files = [name.rpartition("/") for name in store.names]
        folders = {folder for folder, _, name in files if name in ("zarr.json", ".zarray")}
        arrays: Iterator[str] = (one for one in folders if _is_array(store, one))
    elif _node(store, "") is None:
        raise UnknownFormatError(
            "a Zarr hierarchy must hold zarr.json, .zarray or .zgroup; there is none of them.",
            path=store.path,
        )
    else:
        arrays = _walk(store, "", set()) if isinstance(store, Folder) else _listed(store)
    return merge_groups(arrays, partial(group_attributes, store))


def group_attributes(store: Store, key: str) -> dict[str, Any] | None:
    """Return the attributes of a group; None if there is no group."""
    node = _node(store, key)
    if node is None or node.is_array:
        return None
    if node.version == 3:
        attributes = node.metadata.get("attributes")
        return attributes if isinstance(attributes, dict) else {}
    text = store.read(join(key, ".zattrs"))
    with error_location(store.path, key or None):
        return load_json(text) if text else {}


def _walk(store: Store, key: str, seen: set[object]) -> Iterator[str]:
    """Yield the arrays below a group."""
    if isinstance(store, Folder):
        status = os.stat(os.path.join(store.path, key))
        if (status.st_dev, status.st_ino) in seen:  # a symbolic link to a parent
            return
        seen.add((status.st_dev, status.st_ino))
    names = [join(key, name) for name in store.folders(key) or ()]
    store.prefetch([join(name, file) for name in names for file in _METADATA_FILES])
    for below in names:
        node = _node(store, below)
        if node is not None and node.is_array:
            yield below
        elif node is not None:
            yield from _walk(store, below, seen)


def _listed(store: Store) -> Iterator[str]:
    """Yield the arrays named in a group's consolidated metadata."""
    version_3 = store.read("zarr.json")
    text = version_3 if version_3 is not None else store.read(".zmetadata")
    with error_location(store.path):
        group = {} if text is None else load_json(text)
    nodes = (group.get("consolidated_metadata") or group).get("metadata")
    if not nodes or not isinstance(nodes, dict):
        if store.folders("") is not None:
            yield from _walk(store, "", set())
            return
        raise MissingKeyError(
            "`key` must be given for a group at a URL that has no consolidated metadata, because "
            "its arrays can't be listed there.",
            path=store.path,
        )
    for name, node in nodes.items():
        if version_3 is None and name.endswith(".zarray"):
            yield name.rpartition("/")[0]
        elif isinstance(node, dict) and node.get("node_type") == "array":
            yield name


def find_array(store: Store, key: str | None) -> _Found:
    """Return key and metadata of the array at a key, or of the only array without one.

    If there is none, or more than one, the error lists the arrays. Of a group that encodes an
    array, metadata is None.
    """
    requested = (key or "").strip("/")
    is_plain = not requested or not {".", "..", ""} & set(requested.split("/"))
    found = _array_at(store, requested) if is_plain else None
    if found is not None:
        return found
    keys = list_arrays(store)
    if keys == [""]:
        raise MissingKeyError(
            f"`key` must be left out, because the path is an array itself; got {key!r}.",
            path=store.path,
        )
    if not requested and len(keys) > 1:
        keys = _data_variables(store, keys)
    name = choose_key(keys, requested or None, store.path)
    found = _array_at(store, name)
    if found is None:
        raise MissingKeyError(
            "the array must have metadata; it has none.", path=store.path, key=name
        )
    return found


def find_arrays(store: Store, key: Key) -> Iterator[_Found]:
    """Yield key and metadata of each array that matches a pattern or a list of keys."""
    known: dict[str, list[str]] = {}

    def below(group: str) -> list[str]:
        if isinstance(store, Folder):
            return store.folders(group.strip("/")) or []
        if not known:
            known.update(children_by_group(list_arrays(store)))
        return known.get(group, [])

    def look(name: str) -> Any:
        path = name.strip("/")
        return None if _node(store, path) is None else _array_at(store, path) or GROUP

    for name, found in find_datasets(key, below, look, store.path):
        yield found or find_array(store, name)


def _array_at(store: Store, key: str) -> _Found | None:
    """Return the array, or the group that encodes one, at a key; None for neither."""
    metadata = _metadata(store, key)
    if metadata is None and not is_one_array(group_attributes(store, key)):
        return None
    return key, metadata


def _data_variables(store: Store, keys: list[str]) -> list[str]:
    """Return the keys of arrays of data, without coordinates, single numbers and text."""
    arrays = []
    for key in keys:
        try:
            metadata = _metadata(store, key)
        except UnsupportedDtypeError:
            continue
        except UnknownFormatError:  # opening the array reports the error
            metadata = None
        if metadata is None:  # unreadable, or a group that encodes an array
            arrays.append(Named(key, ()))
        elif metadata.shape and metadata.dtype.kind != "O":
            attributes = metadata.annotations.attributes
            arrays.append(Named.of(key, metadata.dimensions, attributes))
    return data_variables(arrays) or keys


def _metadata(store: Store, key: str) -> ArrayMetadata | None:
    """Return the metadata of the array at a key; None if there is no array.

    Axes without names have those that the group gives to its levels.
    """
    group, _, name = key.rpartition("/")
    store.prefetch(metadata_names(key))
    node = _node(store, key)
    if node is None or not node.is_array:
        return None
    attributes = store.read(join(key, ".zattrs")) if node.version == 2 else None
    with error_location(store.path, key or None):
        metadata = parse_array(node.metadata, node.version, attributes)
    if metadata.dimensions or not key:
        return metadata
    attributes_of_group = None
    with suppress(UnknownFormatError):  # the array is read without its group
        attributes_of_group = group_attributes(store, group)
    names = level_names(attributes_of_group or {}, name, len(metadata.shape))
    return replace(metadata, dimensions=names)


_METADATA_FILES = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")
"""Names of the metadata files of a node."""


def metadata_names(key: str) -> list[str]:
    """Return the names of the metadata files of an array, and of the group that it is in.

    Examples
    --------
    >>> metadata_names("a/x")[::4]
    ['a/x/zarr.json', 'a/x/.zmetadata', 'a/.zgroup']
    """
    nodes = [key, key.rpartition("/")[0]] if key else [key]
    return [join(node, file) for node in nodes for file in _METADATA_FILES]


class _Node(NamedTuple):
    """An array or a group, with its metadata file; of a group of version 2, an empty one."""

    is_array: bool
    version: int
    metadata: dict[str, Any]


def _node(store: Store, key: str) -> _Node | None:
    """Return the array or group at a key; None if there is none."""
    store.prefetch([join(key, name) for name in _METADATA_FILES])
    with error_location(store.path, key or None):
        text = store.read(join(key, "zarr.json"))
        if text is not None:
            node = load_json(text)
            version, kind = node.get("zarr_format"), node.get("node_type")
            if version != 3 or kind not in ("array", "group"):
                raise unreadable(
                    "must have zarr_format 3 and node_type array or group; got "
                    f"{version!r} and {kind!r}"
                )
            return _Node(kind == "array", 3, node)
        text = store.read(join(key, ".zarray"))
        if text is not None:
            return _Node(True, 2, load_json(text))
    group = any(store.read(join(key, name)) is not None for name in (".zgroup", ".zmetadata"))
    return _Node(False, 2, {}) if group else None


def _is_array(store: Store, key: str) -> bool:
    node = _node(store, key)
    return node is not None and node.is_array
