"""What is asked of the disk: to have something for good, and to give something its name."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from oocdata.engines.whole import EXCHANGE, renamed, sync_file, whole_file
from oocdata.errors import SourceError
from oocdata.formats.hdf5.file import said

__all__ = [
    "move",
    "replaced",
    "sync_folders",
    "writable",
    "write_json",
    "write_text",
]


@contextmanager
def writable(path: str, key: str | None = None) -> Iterator[None]:
    """Turn what is raised where the disk is full, by HDF5 too, into a `SourceError`."""
    try:
        yield
    except SourceError:
        raise
    except (OSError, RuntimeError) as error:
        raise SourceError(
            f"the file must be writable; the system says: {said(error)}. Is the disk full?",
            path=path,
            key=key,
        ) from error


def sync_folders(path: str) -> None:
    """Make the names of all files below a folder safe on the disk, and small files' content."""
    for folder, _, names in os.walk(path):
        for name in names:
            if name.startswith(("zarr.json", ".z")):
                sync_file(os.path.join(folder, name))
        sync_file(folder)


def write_json(path: str, node: dict[str, Any]) -> None:
    """Write a small JSON file, at once and for good."""
    write_text(path, json.dumps(node, allow_nan=False))


def write_text(path: str, text: str) -> None:
    """Write a small file, at once and for good."""
    with writable(path), whole_file(path, f"{path}.new") as file:
        file.write(text.encode())


def move(source: str, target: str) -> None:
    """Give a file or a folder the name of another, which goes or changes places with it."""
    if not os.path.isdir(target) or os.path.islink(target):
        os.replace(source, target)
        return
    # A folder can't be replaced by a rename; where the system can, the two change places.
    if renamed(source, target, EXCHANGE):
        return
    os.rename(target, replaced(source))
    try:
        os.rename(source, target)
    except OSError:
        os.rename(replaced(source), target)
        raise


def replaced(source: str) -> str:
    """Return where a folder lies while another one takes its name, which needs two renames."""
    return f"{source}.replaced"
