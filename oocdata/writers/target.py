"""Describe an array to be written: format, key, shape, dtype, chunks and codec."""

from __future__ import annotations

import os
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from oocdata.errors import ArgumentError
from oocdata.writers.codec import NONE, Codec, Format

__all__ = ["Target", "format_by_suffix", "target_key"]

_SUFFIXES: dict[str, Format] = {".npy": "npy", ".h5": "hdf5", ".hdf5": "hdf5", ".zarr": "zarr"}


def format_by_suffix(path: str) -> Format:
    """Return the format that the suffix of a new file's name chooses.

    Examples
    --------
    >>> format_by_suffix("run/ds.h5")
    'hdf5'
    """
    suffix = os.path.splitext(path.rstrip("/"))[1].lower()
    if suffix not in _SUFFIXES:
        raise ArgumentError(f"the output's name must end in {', '.join(_SUFFIXES)}; got {path!r}.")
    return _SUFFIXES[suffix]


def target_key(target: Format, key: str | None, default: str | None = None) -> str | None:
    """Return the key of a new array, or None if the file itself is the array.

    HDF5 needs a key: if none is given, it is `default`, or ``"/data"``.

    Examples
    --------
    >>> target_key("hdf5", None), target_key("zarr", None), target_key("hdf5", "flow/u")
    ('/data', None, '/flow/u')
    """
    if key is not None and not isinstance(key, str):
        raise ArgumentError(f"a key must be a text; got {key!r}.")
    if key is None:
        return f"/{(default or 'data').strip('/')}" if target == "hdf5" else None
    parts = key.strip("/").split("/")
    if target == "npy":
        raise ArgumentError(f"a key must be left out for .npy, which holds one array; got {key!r}.")
    is_text = key.encode(errors="replace").decode() == key  # not bytes that are no UTF-8
    if not is_text or any(
        part in ("", ".", "..") or part.startswith("__") or "\0" in part for part in parts
    ):
        raise ArgumentError(f"a key must be names joined by '/'; got {key!r}.")
    # Lists of datasets leave out hidden files, and zarr-python takes "\\" for "/".
    if target == "zarr" and any(
        part in ("c", "zarr.json") or part[0] == "." or "\\" in part for part in parts
    ):
        raise ArgumentError(
            "a key in Zarr must not hold 'c', 'zarr.json', a backslash, or a name that begins "
            f"with '.'; got {key!r}."
        )
    return ("/" if target == "hdf5" else "") + "/".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """An array to be written.

    Examples
    --------
    >>> target = Target(format="npy", key=None, shape=(100, 8), dtype=np.dtype("f4"))
    >>> target.unit, target.row_bytes
    ((1, 8), 32)
    """

    format: Format
    key: str | None  #: inside the file; None if the file is the array
    shape: tuple[int, ...]  #: ``(rows, *element)``; 0 rows while their number is unknown
    dtype: np.dtype[Any]  #: native byte order
    chunks: tuple[int, ...] | None = None  #: shape of a chunk; None if rows are contiguous
    shards: tuple[int, ...] | None = None  #: shape of a Zarr shard, in whole chunks
    codec: Codec = NONE
    fill_value: Any = None  #: of elements that were never written; None means 0
    attributes: tuple[tuple[str, Any], ...] = ()  #: encoded, see `attributes.encode_attribute`
    dimension_names: tuple[str | None, ...] | None = None  #: one for each axis
    lost: tuple[str, ...] = ()  #: names of metadata that are not written
    growing: bool = False  #: whether the number of rows is unknown until the array is closed

    @property
    def element(self) -> tuple[int, ...]:
        """The shape of a row."""
        return self.shape[1:]

    @property
    def row_bytes(self) -> int:
        """The bytes of a row in memory."""
        return prod(self.element) * self.dtype.itemsize

    @property
    def unit(self) -> tuple[int, ...]:
        """The shape of the smallest box that can be written: a shard, a chunk, or a row."""
        return self.shards or self.chunks or (1, *self.element)

    @property
    def storage(self) -> str:
        """A short description of chunks and shards."""
        if self.shards is not None:
            return f"shards of {self.shards} holding chunks of {self.chunks}"
        return "contiguous, C order" if self.chunks is None else f"chunks of {self.chunks}"
