"""Define what each format holds: codecs and attributes."""

from __future__ import annotations

import base64
import io
import json
import struct
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from oocdata.errors import ArgumentError

Format: TypeAlias = Literal["npy", "hdf5", "zarr"]

NAMES: dict[Format, str] = {"npy": ".npy", "hdf5": "HDF5", "zarr": "Zarr"}


@dataclass(frozen=True, slots=True)
class Codec:
    """How a chunk is compressed."""

    name: str
    level: int = 0  #: 0 for codecs without levels
    #: Whether bytes are grouped before: the first bytes of all elements, then the second, ….
    shuffled: bool = False

    def __str__(self) -> str:
        if self.name == "none":
            return "none"
        level = f" {self.level}" if self.level else ""
        return f"{'shuffle, ' * self.shuffled}{self.name}{level}"


NONE = Codec("none")

_CODECS: dict[Format, tuple[Codec, ...]] = {
    "npy": (NONE,),
    # Any HDF5, that of h5py and of netCDF too, has gzip without plugins. Measured on frames of
    # float32, int16 and uint8: level 1 is read as fast as level 4 (0.9 to 1.1 of its speed), is
    # written up to 1.7 times as fast and takes at most 4 % more.
    "hdf5": (Codec("gzip", 1, True), NONE),
    # Every Zarr v3 library has Blosc, which shuffles bytes; Zarr has no separate shuffle filter.
    # On the same frames Blosc is read as fast as zstd (1.0 to 1.2 of its speed), and is up to 13 %
    # smaller for floats. blosc-lz4 is read 1.1 to 1.8 times as fast, and takes 6 to 66 % more.
    "zarr": (
        Codec("blosc-zstd", 3, True), Codec("blosc-lz4", 5, True), Codec("zstd", 3),
        Codec("gzip", 1), NONE,
    ),
}  # fmt: skip
"""The codecs of each format, its default first."""


def as_codec(name: str | None, target: Format) -> Codec:
    """Return a format's codec of this name, or its default; raise if the format has none such."""
    known = {codec.name: codec for codec in _CODECS[target]}
    if name is None:
        return _CODECS[target][0]
    if name not in known:
        raise ArgumentError(
            f"`codec` must be one of {NAMES[target]}'s: {', '.join(known)}; got {name!r}."
        )
    return known[name]


_RESERVED = ("DIMENSION_LABELS", "DIMENSION_LIST", "REFERENCE_LIST")
"""Attributes of HDF5's dimension scales; HDF5 crashes if they hold any other values."""


def encode_attribute(name: str, value: Any, target: Format) -> Any:
    """Return the value of an attribute as a format holds it; None if it can't.

    In Zarr, NaN and infinities are text.
    """
    if value is None or target == "npy":
        return None
    return _as_json(name, value) if target == "zarr" else _as_hdf5(name, value)


def _as_json(name: str, value: Any) -> Any:
    if name == "_FillValue" and isinstance(value, np.inexact):
        # The encoding of xarray (xarray.backends.zarr.FillValueCoder).
        parts = (value.real, value.imag) if isinstance(value, np.complexfloating) else (value,)
        texts = [base64.standard_b64encode(struct.pack("<d", part)).decode() for part in parts]
        return texts if len(texts) > 1 else texts[0]
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.item()  # netCDF writes single numbers as arrays of length 1
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    with suppress(TypeError, ValueError, AttributeError):
        text = json.dumps(value, default=lambda array: array.tolist())
        return json.loads(text, parse_constant=str)
    return None


def _as_hdf5(name: str, value: Any) -> Any:
    from oocdata.formats.hdf5.file import hdf5_library

    if name in _RESERVED:
        return None
    if isinstance(value, dict):
        return json.dumps(value)
    with suppress(TypeError, ValueError, OSError, RuntimeError):
        array = np.asarray(value)
        if array.dtype.kind in "OSU":
            texts = np.ravel(np.array(value, object)).tolist()
            if not texts or not all(isinstance(text, str | bytes) for text in texts):
                return None
        converted = array.astype(object) if array.dtype.kind == "U" and array.ndim else value
        with hdf5_library().File(io.BytesIO(), "w") as file:  # raises if HDF5 can't hold it
            file.attrs["it"] = converted
        return converted
    return None
