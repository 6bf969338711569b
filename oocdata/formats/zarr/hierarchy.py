"""Which arrays a Zarr hierarchy holds: groups in a folder, an archive, or at a URL."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from oocdata.errors import MissingKeyError, UnknownFormatError, UnsupportedDtypeError
from oocdata.formats.dimensions import Named, choose_key, data_variables
from oocdata.formats.zarr.metadata import ArrayMetadata, load_json, parse_array, unreadable
from oocdata.formats.zarr.store import Archive, Folder, Store, join

__all__ = ["find_array", "list_arrays"]


def list_arrays(store: Store, path: str) -> list[str]:
    """Return the keys of the arrays of a store; ``[""]`` where it is one array.

    Raises
    ------
    oocdata.errors.UnknownFormatError
    """
    kind = _kind(store, "")
    if kind == "array":
        return [""]
    if isinstance(store, Archive):
        names = store.names
        ends = ("zarr.json", ".zarray")
        folders = {name.rpartition("/")[0] for name in names if name.rpartition("/")[2] in ends}
        return sorted(folder for folder in folders if _kind(store, folder) == "array")
    if kind is None:
        raise UnknownFormatError(
            "a Zarr hierarchy must hold zarr.json, .zarray or .zgroup; there is none of them.",
            path=path,
        )
    if isinstance(store, Folder):
        return sorted(_walk(store, "", set()))
    return sorted(_listed(store, path))


def _walk(store: Folder, key: str, seen: set[tuple[int, int]]) -> Iterator[str]:
    """Yield the arrays below a group."""
    folder = os.path.join(store.path, key)
    status = os.stat(folder)
    if (status.st_dev, status.st_ino) in seen:  # a link that leads back up
        return
    seen.add((status.st_dev, status.st_ino))
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if entry.is_dir() and entry.name[0] != "."]
    for name in names:
        below = join(key, name)
        kind = _kind(store, below)
        if kind == "array":
            yield below
        elif kind == "group":
            yield from _walk(store, below, seen)


def _listed(store: Store, path: str) -> Iterator[str]:
    """Yield the arrays that a group's consolidated metadata name."""
    version_3 = store.read("zarr.json")
    text = version_3 if version_3 is not None else store.read(".zmetadata")
    nodes = _consolidated(load_json(text, path, None)) if text is not None else {}
    if not nodes:
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


def find_array(store: Store, key: str | None, path: str) -> tuple[str, ArrayMetadata]:
    """Return the key and metadata of the array that is meant.

    Raises
    ------
    oocdata.errors.MissingKeyError, oocdata.errors.SeveralDatasetsError
        The message lists what is there.
    """
    asked = None if key is None else key.strip("/")
    plain = asked is None or not {".", "..", ""} & set(asked.split("/")) or asked == ""
    found = _metadata(store, asked or "", path) if plain else None
    if found is not None:
        return asked or "", found
    keys = list_arrays(store, path)
    if keys == [""]:
        raise MissingKeyError(
            f"`key` must be left out, because the path is an array itself; got {key!r}.", path=path
        )
    if not asked and len(keys) > 1:
        keys = _data(store, keys, path)
    name = choose_key(keys, asked or None, path)
    found = _metadata(store, name, path)
    if found is None:
        raise MissingKeyError("the array must have metadata; it has none.", path=path, key=name)
    return name, found


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
        if metadata is not None and metadata.shape:
            attributes = metadata.annotations.attributes
            arrays.append(Named.of(key, metadata.dimensions, attributes))
    return data_variables(arrays) or keys


def _metadata(store: Store, key: str, path: str) -> ArrayMetadata | None:
    """Return the metadata of the array at a key; None where there is no array."""
    text = store.read(join(key, "zarr.json"))
    if text is not None:
        if _node_kind(text, path, key or None) == "group":
            return None
        return parse_array(text, 3, path, key or None)
    text = store.read(join(key, ".zarray"))
    if text is None:
        return None
    return parse_array(text, 2, path, key or None, store.read(join(key, ".zattrs")))


def _kind(store: Store, key: str) -> str | None:
    """Return what lies at a key: an array, a group, or nothing."""
    text = store.read(join(key, "zarr.json"))
    if text is not None:
        return _node_kind(text, store.path, key or None)
    if store.read(join(key, ".zarray")) is not None:
        return "array"
    group = any(store.read(join(key, name)) is not None for name in (".zgroup", ".zmetadata"))
    return "group" if group else None


def _node_kind(text: bytes, path: str, key: str | None) -> str:
    """Return ``"array"`` or ``"group"``: what a ``zarr.json`` describes.

    Raises
    ------
    oocdata.errors.UnknownFormatError

    Examples
    --------
    >>> _node_kind(b'{"zarr_format": 3, "node_type": "group"}', "a.zarr", None)
    'group'
    """
    node = load_json(text, path, key)
    kind = node.get("node_type")
    if node.get("zarr_format") != 3 or kind not in ("array", "group"):
        raise unreadable(
            "must have zarr_format 3 and node_type array or group; got "
            f"{node.get('zarr_format')!r} and {kind!r}",
            path,
            key,
        )
    return str(kind)


def _consolidated(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return the nodes that a group lists (v2 ``.zmetadata``, v3 inline), by their names.

    Examples
    --------
    >>> _consolidated({"metadata": {"a/.zarray": {}}})
    {'a/.zarray': {}}
    """
    inner = node.get("consolidated_metadata") or node
    metadata = inner.get("metadata")
    return metadata if isinstance(metadata, dict) else {}
