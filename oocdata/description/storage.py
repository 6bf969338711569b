"""What is described of files and stores, and looked at anew by whoever reads the description.

When a file was last written is no part of it: a copy of a file is the same data. What tells other
data from the same is their size, and their first and last bytes, where formats keep their headers.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from oocdata.errors import MissingFileError
from oocdata.sources.stamp import FileStamp

__all__ = ["ANEW", "facts", "look_again"]

ANEW = {
    "oocdata.sources.stamp:FileStamp": ("path", "nbytes", "ends"),
    "oocdata.sources.zarr.stored:StoredArray": (
        *("store", "path", "key", "axis", "missing", "metadata", "stored_bytes"),
    ),
}
"""Classes of which facts are described instead of fields, by import path."""

_END_BYTES = 4096
"""Of each end of a file: headers lie there, and so do bytes of the data."""


def facts(value: Any) -> dict[str, Any]:
    """Return what is described of an object of these classes."""
    if isinstance(value, FileStamp):
        ends = None if value.modified is None else _ends(value)
        return {"path": value.path, "nbytes": value.nbytes, "ends": ends}
    store = type(value.store).__name__
    if store == "Held":
        raise ValueError("it lies in a store that is a Python object. Open it by its path or URL")
    return {
        "store": store,
        "path": value.store.path,
        "key": value.key,
        "axis": value.axis,
        "missing": value.missing,
        "metadata": value.metadata,
        "stored_bytes": value.stored_bytes,
    }


def look_again(path: str, described: Mapping[str, Any]) -> Any:
    """Return the object of what lies in storage now.

    Raises
    ------
    oocdata.errors.SourceError
        If it can't be opened.
    """
    if path.endswith(":FileStamp"):
        return _stamp(described)
    from oocdata.sources.zarr.opening import open_zarr

    source: Any = open_zarr(
        described["path"],
        described["key"] or None,
        axis=described["axis"],
        missing=described["missing"],
    )
    return getattr(source, "reader", source).stored


def _stamp(described: Mapping[str, Any]) -> FileStamp:
    try:
        stamp = FileStamp.of(described["path"])
    except FileNotFoundError as error:
        raise MissingFileError(
            "the file must be there for whoever reads its description; it is not. Do they see the "
            "same folder?",
            path=described["path"],
        ) from error
    return stamp if described["ends"] is not None else replace(stamp, modified=None)


def _ends(stamp: FileStamp) -> str:
    """Return a digest of a file's first and last bytes."""
    opened = stamp.descriptor()
    stamp.check(opened)
    last = max(0, stamp.nbytes - _END_BYTES)
    parts = [os.pread(opened.number, _END_BYTES, start) for start in (0, last)]
    return hashlib.sha256(b"".join(parts)).hexdigest()[:32]
