"""What is to be written: where, of which shape, in which chunks. Pure description."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np

from oocdata.errors import ArgumentError
from oocdata.writers.codec import NONE, Codec, Format

__all__ = ["Box", "Target", "fitted", "format_by_suffix", "holds", "target_key"]

Box: TypeAlias = tuple[slice, ...]
"""A box of an array: the places that it has along each axis."""

_SUFFIXES: dict[str, Format] = {".npy": "npy", ".h5": "hdf5", ".hdf5": "hdf5", ".zarr": "zarr"}


def format_by_suffix(path: str) -> Format:
    """Return the format that a new file's name says.

    Examples
    --------
    >>> format_by_suffix("run/ds.h5")
    'hdf5'
    """
    suffix = os.path.splitext(path.rstrip("/"))[1].lower()
    if suffix not in _SUFFIXES:
        hint = (
            " netCDF has rules of its own: write .h5, or use xarray."
            if suffix in (".nc", ".nc4")
            else ""
        )
        raise ArgumentError(
            f"the name of what is written must end in {', '.join(_SUFFIXES)}; got {path!r}.{hint}"
        )
    return _SUFFIXES[suffix]


def target_key(target: Format, key: str | None, usual: str | None = None) -> str | None:
    """Return the key of a new array: None where the file is the array.

    `usual` is that in HDF5, which must have one, if none is given.

    Examples
    --------
    >>> target_key("hdf5", None), target_key("zarr", None), target_key("hdf5", "flow/u")
    ('/data', None, '/flow/u')
    """
    if key is not None and not isinstance(key, str):
        raise ArgumentError(f"a key must be a text; got {key!r}.")
    if key is None:
        return f"/{(usual or 'data').strip('/')}" if target == "hdf5" else None
    parts = key.strip("/").split("/")
    if target == "npy":
        raise ArgumentError(f"a key must be left out for .npy, which holds one array; got {key!r}.")
    if any(part in ("", ".", "..") or part.startswith("__") or "\0" in part for part in parts):
        raise ArgumentError(f"a key must be names joined by '/'; got {key!r}.")
    if target == "zarr" and any(part in ("c", "zarr.json") for part in parts):
        raise ArgumentError(f"a key in Zarr must not hold 'c' or 'zarr.json'; got {key!r}.")
    return ("/" if target == "hdf5" else "") + "/".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """An array that is to be written.

    Examples
    --------
    >>> target = Target(format="npy", key=None, shape=(100, 8), dtype=np.dtype("f4"))
    >>> target.unit, target.row_bytes
    ((1, 8), 32)
    """

    format: Format
    key: str | None  #: inside the file; None for one that is the array
    shape: tuple[int, ...]  #: ``(rows, *element)``; no rows as long as their number is unknown
    dtype: np.dtype[Any]  #: native byte order
    chunks: tuple[int, ...] | None = None  #: encoded together; None: rows one after the other
    shards: tuple[int, ...] | None = None  #: stored together in Zarr: whole chunks
    codec: Codec = NONE
    fill_value: Any = None  #: of an element that was never written; None: 0
    attributes: tuple[tuple[str, Any], ...] = ()
    dimension_names: tuple[str | None, ...] | None = None  #: one for each axis
    growing: bool = False  #: the number of rows is known when it is closed

    @property
    def element(self) -> tuple[int, ...]:
        """The shape of a row."""
        return self.shape[1:]

    @property
    def row_bytes(self) -> int:
        """Bytes of a row in memory."""
        return prod(self.element) * self.dtype.itemsize

    @property
    def unit(self) -> tuple[int, ...]:
        """The smallest box that can be written by itself: a shard, a chunk, or a row."""
        return self.shards or self.chunks or (1, *self.element)

    @property
    def storage(self) -> str:
        """How the array is divided, in a few words."""
        if self.shards is not None:
            return f"shards of {self.shards} holding chunks of {self.chunks}"
        return "contiguous, C order" if self.chunks is None else f"chunks of {self.chunks}"


def fitted(lengths: Sequence[int], shape: Sequence[int], growing: bool) -> tuple[int, ...]:
    """Return a chunk shape that is no longer than the array, but along rows that are not known."""
    return tuple(
        max(1, step if growing and axis == 0 else min(step, length))
        for axis, (step, length) in enumerate(zip(lengths, shape, strict=True))
    )


def holds(dtype: np.dtype[Any], fill: Any) -> bool:
    """Return whether a dtype has a fill value as it is, or as near as floats are.

    Examples
    --------
    >>> holds(np.dtype("u1"), 300), holds(np.dtype("f4"), 0.1)
    (False, True)
    """
    try:
        number = np.asarray(fill)
        if number.dtype.kind not in "biufc" or number.ndim:
            return False
        with np.errstate(all="ignore"):
            made = number.astype(dtype)
        if dtype.kind in "fc" and np.can_cast(number.dtype, dtype, "same_kind"):
            return bool(np.isfinite(made) == np.isfinite(number))
        return bool(np.array_equal(made, number, equal_nan=True))
    except (TypeError, ValueError, OverflowError):
        return False
