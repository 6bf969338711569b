"""Inspect an existing file at the output path, and decide whether it may be replaced."""

from __future__ import annotations

import json
import os
from typing import Any

from oocdata.engines.files import FileVersion
from oocdata.errors import ArgumentError, SourceError
from oocdata.formats.hdf5.file import hdf5_library, open_file
from oocdata.formats.opening import format_of, list_datasets
from oocdata.writers.codec import Format

__all__ = [
    "arrays_in",
    "check_file",
    "check_group",
    "check_node",
    "holds_other_data",
    "version_text",
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
            "the existing file must be readable, because its other contents would be kept; it is "
            "damaged, or another program is writing it. Choose another name, or delete it "
            "yourself.",
            path=path,
        ) from error


def version_text(path: str) -> str:
    """Return the version of a file as text; empty if there is no such file."""
    return str(FileVersion.of(path)) if os.path.isfile(path) else ""


def check_file(path: str, key: str) -> bool:
    """Return whether an HDF5 file has a dataset of that name; raise if another object is there."""
    library = hdf5_library()
    with open_file(path) as file:
        group: Any = file
        parts = key.split("/")
        for count, part in enumerate(parts, 1):
            link = group.get(part, getlink=True)
            if link is None:
                return False
            is_last = count == len(parts)
            try:
                found = group[part]
            except (KeyError, OSError, RuntimeError):  # a dangling link
                found = None
            if is_last and isinstance(found, library.Group):
                _refuse_group(path, key)
            # Writing through a link to a group of another file would change that file.
            is_foreign = isinstance(link, library.ExternalLink) and not is_last
            if is_foreign or not isinstance(found, library.Dataset if is_last else library.Group):
                raise ArgumentError(
                    "a key must name a dataset, in groups of the same file; "
                    f"{'/'.join(parts[:count])!r} in '{path}' is something else, which is never "
                    "replaced. Choose another key."
                )
            group = found
    return True


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
        _refuse_group(path, key)
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


def _refuse_group(path: str, key: str) -> None:
    raise ArgumentError(
        f"a key must not be the name of a group, which is never replaced; '{path}' has a group "
        f"{key!r}."
    )


def _node(folder: str) -> dict[str, Any]:
    """Return the Zarr v3 metadata in a folder; empty if there is none."""
    try:
        with open(os.path.join(folder, "zarr.json"), encoding="utf-8") as file:
            node = json.load(file)
    except (OSError, ValueError):
        return {}
    return node if isinstance(node, dict) else {}
