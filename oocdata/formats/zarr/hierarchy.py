"""Which arrays a Zarr hierarchy holds: groups in a folder, an archive, or at a URL."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from oocdata.errors import MissingKeyError, UnknownFormatError, UnsupportedDtypeError
from oocdata.formats.anndata import is_one_array, joined
from oocdata.formats.dimensions import Named, choose_key, data_variables
from oocdata.formats.patterns import Key, is_pattern, keys_of, matching, tree_of, unmatched
from oocdata.formats.zarr.metadata import ArrayMetadata, load_json, parse_array, unreadable
from oocdata.formats.zarr.store import Archive, Folder, Store, join

__all__ = ["find_array", "find_arrays", "group_attributes", "list_arrays"]


def list_arrays(store: Store, path: str) -> list[str]:
    """Return the keys of the arrays of a store; ``[""]`` where it is one array."""
    node = _node(store, "", path)
    if _is_array(node):
        return [""]
    if isinstance(store, Archive):
        files = [name.rpartition("/") for name in store.names]
        folders = {folder for folder, _, name in files if name in ("zarr.json", ".zarray")}
        arrays: Iterator[str] = (one for one in folders if _is_array(_node(store, one, path)))
        return joined(arrays, lambda group: group_attributes(store, group, path))
    if node is None:
        raise UnknownFormatError(
            "a Zarr hierarchy must hold zarr.json, .zarray or .zgroup; there is none of them.",
            path=path,
        )
    arrays = _walk(store, "", set()) if isinstance(store, Folder) else _listed(store, path)
    return joined(arrays, lambda group: group_attributes(store, group, path))


def group_attributes(store: Store, key: str, path: str) -> dict[str, Any] | None:
    """Return the attributes of a group; None where there is none."""
    node = _node(store, key, path)
    if node is None or node.kind != "group":
        return None
    text = node.text if node.version == 3 else store.read(join(key, ".zattrs"))
    found = load_json(text, path, key or None) if text else {}
    attributes = found.get("attributes") if node.version == 3 else found
    return attributes if isinstance(attributes, dict) else {}


def _walk(store: Store, key: str, seen: set[object]) -> Iterator[str]:
    """Yield the arrays below a group."""
    if isinstance(store, Folder):
        status = os.stat(os.path.join(store.path, key))
        if (status.st_dev, status.st_ino) in seen:  # a link that leads back up
            return
        seen.add((status.st_dev, status.st_ino))
    names = [join(key, name) for name in store.folders(key) or ()]
    store.prefetch([join(name, file) for name in names for file in _FILES])
    for below in names:
        node = _node(store, below, store.path)
        if _is_array(node):
            yield below
        elif node is not None:
            yield from _walk(store, below, seen)


def _listed(store: Store, path: str) -> Iterator[str]:
    """Yield the arrays that a group's consolidated metadata name."""
    version_3 = store.read("zarr.json")
    text = version_3 if version_3 is not None else store.read(".zmetadata")
    group = {} if text is None else load_json(text, path, None)
    nodes = (group.get("consolidated_metadata") or group).get("metadata")
    if not nodes or not isinstance(nodes, dict):
        if store.folders("") is not None:
            yield from _walk(store, "", set())
            return
        raise MissingKeyError(
            "`key` must be given for a group at a URL that has no consolidated metadata, because "
            "its arrays can't be listed there.",
            path=path,
        )
    for name, node in nodes.items():
        if version_3 is None and name.endswith(".zarray"):
            yield name.rpartition("/")[0]
        elif isinstance(node, dict) and node.get("node_type") == "array":
            yield name


def find_array(store: Store, key: str | None, path: str) -> tuple[str, ArrayMetadata | None]:
    """Return the key and metadata of the array that is meant; None for a group that is one.

    The error where there is none, or more than one, lists what is there.
    """
    asked = (key or "").strip("/")
    plain = not asked or not {".", "..", ""} & set(asked.split("/"))
    found = _found(store, asked, path) if plain else None
    if found is not None:
        return found
    keys = list_arrays(store, path)
    if keys == [""]:
        raise MissingKeyError(
            f"`key` must be left out, because the path is an array itself; got {key!r}.", path=path
        )
    if not asked and len(keys) > 1:
        keys = _data(store, keys, path)
    name = choose_key(keys, asked or None, path)
    found = _found(store, name, path)
    if found is None:
        raise MissingKeyError("the array must have metadata; it has none.", path=path, key=name)
    return found


def find_arrays(store: Store, key: Key, path: str) -> Iterator[tuple[str, ArrayMetadata | None]]:
    """Yield key and metadata of the arrays that a pattern matches, or several keys name."""
    known: dict[str, list[str]] = {}

    def below(group: str) -> list[str]:
        if isinstance(store, Folder):
            return store.folders(group.strip("/")) or []
        if not known:
            known.update(tree_of(list_arrays(store, path)))
        return known.get(group, [])

    seen: set[str] = set()
    for one in keys_of(key):
        if not is_pattern(one) or _node(store, one.strip("/"), path):
            seen.add(one.strip("/"))
            yield find_array(store, one, path)
            continue
        count, groups = len(seen), []
        for name in matching(one, below):
            place = name.strip("/")
            if place in seen or _node(store, place, path) is None:
                continue
            found = _found(store, place, path)
            if found is None:
                groups.append(name)
                continue
            seen.add(place)
            yield found
        if len(seen) == count:
            raise unmatched(one, below, path, groups)


def _found(store: Store, key: str, path: str) -> tuple[str, ArrayMetadata | None] | None:
    """Return the key and metadata of an array, or of a group that is one; None for neither."""
    metadata = _metadata(store, key, path)
    if metadata is None and not is_one_array(group_attributes(store, key, path)):
        return None
    return key, metadata


def _data(store: Store, keys: list[str], path: str) -> list[str]:
    """Return the keys of the arrays that are data: no coordinates, single numbers or text."""
    arrays = []
    for key in keys:
        try:
            metadata = _metadata(store, key, path)
        except UnsupportedDtypeError:
            continue
        except UnknownFormatError:  # opening it says what is wrong with it
            arrays.append(Named(key, ()))
            continue
        if metadata is None:  # a group that is one array
            arrays.append(Named(key, ()))
        elif metadata.shape and metadata.dtype.kind != "O":
            attributes = metadata.annotations.attributes
            arrays.append(Named.of(key, metadata.dimensions, attributes))
    return data_variables(arrays) or keys


def _metadata(store: Store, key: str, path: str) -> ArrayMetadata | None:
    """Return the metadata of the array at a key; None where there is no array."""
    node = _node(store, key, path)
    if node is None or not _is_array(node):
        return None
    attributes = store.read(join(key, ".zattrs")) if node.version == 2 else None
    return parse_array(node.text, node.version, path, key or None, attributes)


_FILES = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")
"""Metadata files that a node may have."""


class _Node(NamedTuple):
    """An array or a group: what it is, in which version, and what its metadata file holds."""

    kind: str
    version: int
    text: bytes


def _node(store: Store, key: str, path: str) -> _Node | None:
    """Return what lies at a key; None for nothing."""
    store.prefetch([join(key, name) for name in _FILES])
    text = store.read(join(key, "zarr.json"))
    if text is not None:
        node = load_json(text, path, key or None)
        version, kind = node.get("zarr_format"), node.get("node_type")
        if version != 3 or kind not in ("array", "group"):
            raise unreadable(
                "must have zarr_format 3 and node_type array or group; got "
                f"{version!r} and {kind!r}",
                path,
                key or None,
            )
        return _Node(str(kind), 3, text)
    text = store.read(join(key, ".zarray"))
    if text is not None:
        return _Node("array", 2, text)
    group = any(store.read(join(key, name)) is not None for name in (".zgroup", ".zmetadata"))
    return _Node("group", 2, b"") if group else None


def _is_array(node: _Node | None) -> bool:
    return node is not None and node.kind == "array"
