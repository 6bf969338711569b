"""What a dataset is, in words and dtypes: for `opening`, which makes a source of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from oocdata.errors import UnsupportedDtypeError
from oocdata.sources.hdf5.file import hdf5_library
from oocdata.sources.hdf5.storage import Storage, codec_name
from oocdata.sources.source import Layout, check_dtype

__all__ = ["DECODED", "READING", "is_plain", "layout_of_dataset", "packing", "stored_dtype"]

READING = {
    "contiguous": "each row by its byte offset, straight into the batch",
    "chunked": "whole chunks through h5py, kept while their rows are needed",
    "compact": "whole from the file's header through h5py",
    "external": "runs of rows from other files through h5py",
    "virtual": "runs of rows through h5py, which puts them together from their sources",
}
"""How each kind of storage is read."""

DECODED = (
    "whole chunks, decoded in threads without HDF5's lock and kept while their rows are needed"
)
"""How filtered chunks are read whose filters are undone here."""


def stored_dtype(dataset: Any, path: str, key: str | None) -> np.dtype[Any]:
    """Return the dtype as stored, checked.

    Raises
    ------
    oocdata.errors.UnsupportedDtypeError
        For text, references, structured rows, variable lengths.
    """
    try:
        stored: np.dtype[Any] = dataset.dtype
    except TypeError as error:
        raise UnsupportedDtypeError(
            f"elements must be bool, integer, float or complex numbers; h5py knows no dtype for "
            f"these: {error}.",
            path=path,
            key=key,
        ) from error
    if stored.kind == "O":
        reference = "ref" in (stored.metadata or {})
        what = "references" if reference else "text or rows of varying length"
        raise UnsupportedDtypeError(
            f"elements must be numbers of a fixed size; got {what}.", path=path, key=key
        )
    return check_dtype(stored, path, key)


def is_plain(dataset: Any, stored: np.dtype[Any]) -> bool:
    """Return whether the bytes are what the dtype says (not so for bfloat16 or 12-bit integers)."""
    h5t = hdf5_library().h5t
    return bool(h5t.py_create(stored, logical=True) == dataset.id.get_type())


def layout_of_dataset(dataset: Any, path: str, key: str | None, storage: Storage) -> Layout:
    """Return where and how a dataset is stored, for ``info`` and ``explain``."""
    words = {
        "chunked": f"chunks of {dataset.chunks}",
        "external": f"contiguous, in {len(storage.outside)} external files",
    }
    if storage.kind == "virtual":
        words["virtual"] = f"virtual, mappings: {len(dataset.virtual_sources())}"
    return Layout(
        format="HDF5",
        path=path,
        key=key,
        storage=words.get(storage.kind, storage.kind),
        codec=codec_name(dataset),
        stored_bytes=None if storage.kind == "virtual" else dataset.id.get_storage_size(),
        reading=READING[storage.kind] + packing(dataset),
    )


def packing(dataset: Any) -> str:
    """Say how the numbers are packed, by the CF conventions (8.1): they are delivered as stored."""
    names = ("scale_factor", "add_offset", "_FillValue", "missing_value")
    found = [
        f"{name} {np.ravel(dataset.attrs[name])[0]}" for name in names if name in dataset.attrs
    ]
    packed = any(name in dataset.attrs for name in names[:2])
    return f"; delivered as stored, packed ({', '.join(found)}): unpack in .map" if packed else ""
