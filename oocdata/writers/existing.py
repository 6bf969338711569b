"""Inspect an existing file at the output path, and decide whether it may be replaced."""

from __future__ import annotations

import json
import os
from typing import Any

from oocdata.errors import ArgumentError, SourceError
from oocdata.formats.hdf5.file import hdf5_library, open_file
from oocdata.formats.opening import format_of, list_datasets
from oocdata.writers.codec import Format

__all__ = [
    "arrays_in",
    "check_group",
    "check_node",
    "holds_other_data",
]


def arrays_in(path: str, kind: Format) -> list[str] | None:
    """Return the keys of the arrays in a file, or None if it is not of this format.

    Raises `SourceError` for an HDF5 file that can't be read.
    """
    try:
        if format_of(path) != kind:
            return None
    except (SourceError, ValueError):
        return None
    try:
        return [(key or "").strip("/") for key in list_datasets(path)]
    except (SourceError, ValueError) as error:
        if kind != "hdf5":
            return None
        raise SourceError(
            "the existing file must be readable, because it may hold other arrays; it is damaged, "
            "or another program is writing it. Choose another name, or delete it yourself.",
            path=path,
        ) from error


def holds_other_data(path: str, key: str) -> bool:
    """Return whether an HDF5 file holds anything besides one dataset and the groups around it."""
    with open_file(path) as file:
        group: Any = file
        for part in key.strip("/").split("/"):
            is_own = isinstance(group.get(part, getlink=True), hdf5_library().HardLink)
            if len(group.attrs) or set(group) != {part} or not is_own:
                return True
            group = group[part]
            if not isinstance(group, hdf5_library().Group):
                return False
    return True


def check_group(path: str, key: str) -> bool:
    """Return whether a Zarr group has an array of that name; raise if none can be written there."""
    parts = key.split("/")
    for count in range(len(parts)):
        folder = os.path.join(path, *parts[:count])
        if not os.path.isdir(folder):
            return False
        check_node(_node(folder), folder)
    folder = os.path.join(path, *parts)
    if _node(folder).get("node_type") == "group":
        raise ArgumentError(
            f"a key must not be the name of a group, which is never replaced; '{path}' has a group "
            f"{key!r}."
        )
    exists = os.path.lexists(folder)
    if exists and _node(folder).get("node_type") != "array":
        raise ArgumentError(f"'{folder}' is no Zarr array, and is never replaced.")
    return exists


def check_node(node: dict[str, Any], place: str) -> None:
    """Raise unless metadata describe a group to which an array may be added."""
    if node.get("node_type") != "group":
        raise ArgumentError(
            "an array can only be added to a group of Zarr version 3, not inside another array; "
            f"'{place}' is none. Choose another name."
        )
    if "consolidated_metadata" in node:
        raise ArgumentError(
            "a group to which an array is added must have no consolidated metadata, which would "
            f"lack the array; '{place}' has. Write a separate store; or remove "
            "'consolidated_metadata' from the group's zarr.json first, and call "
            "zarr.consolidate_metadata afterwards."
        )


def _node(folder: str) -> dict[str, Any]:
    """Return the Zarr v3 metadata in a folder; empty if there is none."""
    try:
        with open(os.path.join(folder, "zarr.json"), encoding="utf-8") as file:
            node = json.load(file)
    except (OSError, ValueError):
        return {}
    return node if isinstance(node, dict) else {}
