"""Which arrays a Zarr hierarchy holds: groups in a folder, an archive, or at a URL."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from oocdata.errors import (
    MissingKeyError,
    UnknownFormatError,
    UnsupportedDtypeError,
    concerning,
)
from oocdata.formats.anndata import is_one_array, joined
from oocdata.formats.dimensions import Named, choose_key, data_variables
from oocdata.formats.patterns import GROUP, Key, found_by, tree_of
from oocdata.formats.zarr.metadata import ArrayMetadata, load_json, parse_array, unreadable
from oocdata.formats.zarr.store import Archive, Folder, Store, join

__all__ = ["METADATA_FILES", "find_array", "find_arrays", "group_attributes", "list_arrays"]

_Found: TypeAlias = tuple[str, ArrayMetadata | None]
"""The key and metadata of an array; None for a group that is one."""


def list_arrays(store: Store) -> list[str]:
    """Return the keys of the arrays of a store; ``[""]`` where it is one array."""
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
    return joined(arrays, partial(group_attributes, store))


def group_attributes(store: Store, key: str) -> dict[str, Any] | None:
    """Return the attributes of a group; None where there is none."""
    node = _node(store, key)
    if node is None or node.is_array:
        return None
    if node.version == 3:
        attributes = node.said.get("attributes")
        return attributes if isinstance(attributes, dict) else {}
    text = store.read(join(key, ".zattrs"))
    with concerning(store.path, key or None):
        return load_json(text) if text else {}


def _walk(store: Store, key: str, seen: set[object]) -> Iterator[str]:
    """Yield the arrays below a group."""
    if isinstance(store, Folder):
        status = os.stat(os.path.join(store.path, key))
        if (status.st_dev, status.st_ino) in seen:  # a link that leads back up
            return
        seen.add((status.st_dev, status.st_ino))
    names = [join(key, name) for name in store.folders(key) or ()]
    store.prefetch([join(name, file) for name in names for file in METADATA_FILES])
    for below in names:
        node = _node(store, below)
        if node is not None and node.is_array:
            yield below
        elif node is not None:
            yield from _walk(store, below, seen)


def _listed(store: Store) -> Iterator[str]:
    """Yield the arrays that a group's consolidated metadata name."""
    version_3 = store.read("zarr.json")
    text = version_3 if version_3 is not None else store.read(".zmetadata")
    with concerning(store.path):
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
    """Return the key and metadata of the array that is meant; None for a group that is one.

    The error where there is none, or more than one, lists what is there.
    """
    asked = (key or "").strip("/")
    plain = not asked or not {".", "..", ""} & set(asked.split("/"))
    found = _found(store, asked) if plain else None
    if found is not None:
        return found
    keys = list_arrays(store)
    if keys == [""]:
        raise MissingKeyError(
            f"`key` must be left out, because the path is an array itself; got {key!r}.",
            path=store.path,
        )
    if not asked and len(keys) > 1:
        keys = _data(store, keys)
    name = choose_key(keys, asked or None, store.path)
    found = _found(store, name)
    if found is None:
        raise MissingKeyError(
            "the array must have metadata; it has none.", path=store.path, key=name
        )
    return found


def find_arrays(store: Store, key: Key) -> Iterator[_Found]:
    """Yield key and metadata of the arrays that a pattern matches, or several keys name."""
    known: dict[str, list[str]] = {}

    def below(group: str) -> list[str]:
        if isinstance(store, Folder):
            return store.folders(group.strip("/")) or []
        if not known:
            known.update(tree_of(list_arrays(store)))
        return known.get(group, [])

    def look(name: str) -> Any:
        place = name.strip("/")
        return None if _node(store, place) is None else _found(store, place) or GROUP

    for name, found in found_by(key, below, look, store.path):
        yield found or find_array(store, name)


def _found(store: Store, key: str) -> _Found | None:
    """Return an array, or a group that is one; None for neither."""
    metadata = _metadata(store, key)
    if metadata is None and not is_one_array(group_attributes(store, key)):
        return None
    return key, metadata


def _data(store: Store, keys: list[str]) -> list[str]:
    """Return the keys of the arrays that are data: no coordinates, single numbers or text."""
    arrays = []
    for key in keys:
        try:
            metadata = _metadata(store, key)
        except UnsupportedDtypeError:
            continue
        except UnknownFormatError:  # opening it says what is wrong with it
            metadata = None
        if metadata is None:  # or a group that is one array
            arrays.append(Named(key, ()))
        elif metadata.shape and metadata.dtype.kind != "O":
            attributes = metadata.annotations.attributes
            arrays.append(Named.of(key, metadata.dimensions, attributes))
    return data_variables(arrays) or keys


def _metadata(store: Store, key: str) -> ArrayMetadata | None:
    """Return the metadata of the array at a key; None where there is no array."""
    node = _node(store, key)
    if node is None or not node.is_array:
        return None
    attributes = store.read(join(key, ".zattrs")) if node.version == 2 else None
    with concerning(store.path, key or None):
        return parse_array(node.said, node.version, attributes)


METADATA_FILES = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")
"""Metadata files that a node may have."""


class _Node(NamedTuple):
    """An array or a group, and what its metadata file says; of a group of version 2, nothing."""

    is_array: bool
    version: int
    said: dict[str, Any]


def _node(store: Store, key: str) -> _Node | None:
    """Return what lies at a key; None for nothing."""
    store.prefetch([join(key, name) for name in METADATA_FILES])
    with concerning(store.path, key or None):
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
