"""Flush files to the disk, and rename files and folders into place."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from oocdata.engines.atomic import EXCHANGE, atomic_file, rename_flagged, sync_file
from oocdata.errors import SourceError
from oocdata.formats.hdf5.file import error_text

__all__ = [
    "move",
    "sync_folders",
    "write_errors",
    "write_json",
]


_OF_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, None)
"""Error numbers of a full disk; errors of HDF5 may have none."""


@contextmanager
def write_errors(path: str, key: str | None = None) -> Iterator[None]:
    """Raise write errors, such as those of a full disk, as `SourceError`; also those of HDF5."""
    try:
        yield
    except SourceError:
        raise
    except (OSError, RuntimeError) as error:
        hint = " Is the disk full?" if getattr(error, "errno", None) in _OF_SPACE else ""
        raise SourceError(
            f"the file must be writable; the system says: {error_text(error)}.{hint}",
            path=path,
            key=key,
        ) from error


def sync_folders(path: str) -> None:
    """Flush all folders below a folder to the disk, and the metadata files of Zarr in them."""
    for folder, _, names in os.walk(path):
        for name in names:
            if name.startswith(("zarr.json", ".z")):
                sync_file(os.path.join(folder, name))
        sync_file(folder)


def write_json(path: str, node: dict[str, Any]) -> None:
    """Write a small JSON file atomically, and flush it to the disk."""
    with write_errors(path), atomic_file(path, f"{path}.new") as file:
        file.write(json.dumps(node, allow_nan=False).encode())


def move(source: str, target: str) -> None:
    """Rename a file or folder, replacing a file, or exchanging it with a folder of that name."""
    if not os.path.isdir(target) or os.path.islink(target):
        os.replace(source, target)
    elif not rename_flagged(source, target, EXCHANGE):
        raise SourceError(
            "a folder can be replaced only where the system exchanges two folders in one step, "
            "which NFS and macOS do not. Delete the old array, or choose another name.",
            path=target,
        )
