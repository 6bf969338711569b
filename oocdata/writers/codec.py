"""Define what each format holds: codecs, with their levels, and attributes.

The codecs release the GIL, and do not take HDF5's lock: chunks are compressed in several threads.
"""

from __future__ import annotations

import base64
import io
import json
import struct
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from oocdata.errors import ArgumentError
from oocdata.formats.codecs import codecs

Format: TypeAlias = Literal["npy", "hdf5", "zarr"]

_LEVELS = {
    "none": (0, 0, 0),
    "lz4": (0, 0, 0),
    "gzip": (0, 1, 9),
    "zstd": (1, 3, 22),
    "blosc-lz4": (0, 5, 9),
    "blosc-zstd": (0, 3, 9),
}
"""Lowest level, default level, highest level."""

_KNOWN: dict[Format, tuple[str, ...]] = {
    "npy": ("none",),
    "hdf5": ("none", "gzip", "lz4", "zstd"),
    "zarr": ("none", "gzip", "zstd", "blosc-lz4", "blosc-zstd"),
}
"""The codecs of each format."""

NAMES: dict[Format, str] = {"npy": ".npy", "hdf5": "HDF5", "zarr": "Zarr"}


@dataclass(frozen=True, slots=True)
class Codec:
    """How a chunk is compressed."""

    name: str  #: one of `_LEVELS`
    level: int = 0  #: 0 for codecs without levels
    #: Whether bytes are grouped before: the first bytes of all elements, then the second, ….
    shuffled: bool = False

    def __str__(self) -> str:
        if self.name == "none":
            return "none"
        level = f" {self.level}" if self.level else ""
        return f"{'shuffle, ' * self.shuffled}{self.name}{level}"


NONE = Codec("none")

_DEFAULT: dict[Format, Codec] = {
    "npy": NONE,
    # Any HDF5, that of h5py and of netCDF too, has gzip without plugins. Measured on frames of
    # float32, int16 and uint8: level 1 is read as fast as level 4 (0.9 to 1.1 of its speed), is
    # written up to 1.7 times as fast and takes at most 4 % more.
    "hdf5": Codec("gzip", 1, True),
    # Every Zarr v3 library has Blosc, which shuffles bytes; Zarr has no separate shuffle filter.
    # On the same frames Blosc is read as fast as zstd (1.0 to 1.2 of its speed), and is up to 13 %
    # smaller for floats. blosc-lz4 is read 1.1 to 1.8 times as fast, and takes 6 to 66 % more.
    "zarr": Codec("blosc-zstd", 3, True),
}


def as_codec(text: str | None, target: Format) -> Codec:
    """Return the codec named by a text such as ``"zstd:3"``, by default that of the format.

    A level may follow after a colon. Bytes are shuffled if the format has a filter for it. The
    error for an unknown codec or level lists the valid ones.

    Examples
    --------
    >>> as_codec("gzip:6", "hdf5")
    Codec(name='gzip', level=6, shuffled=True)
    >>> as_codec("lz4", "zarr")
    Traceback (most recent call last):
    oocdata.errors.ArgumentError: `codec` must be one of Zarr's: none, gzip, zstd, blosc-lz4,
    blosc-zstd; got 'lz4'.
    """
    if text is None:
        return _DEFAULT[target]
    name, colon, level_text = str(text).partition(":")
    known = _KNOWN[target]
    if name not in known:
        raise ArgumentError(
            f"`codec` must be one of {NAMES[target]}'s: {', '.join(known)}; got {text!r}."
        )
    low, default, high = _LEVELS[name]
    if colon and not (level_text.isdecimal() and low <= int(level_text) <= high and high > 0):
        levels = f"from {low} to {high}" if high else "left out"
        raise ArgumentError(f"the level of {name} must be {levels}; got {text!r}.")
    level = int(level_text) if colon else default
    shuffled = name.startswith("blosc") or (target == "hdf5" and name != "none")
    return Codec(name, level, shuffled)


def compress(codec: Codec, raw: NDArray[np.uint8], itemsize: int) -> Any:
    """Return compressed bytes; Blosc also shuffles elements of `itemsize` bytes.

    Examples
    --------
    >>> import zlib
    >>> zlib.decompress(compress(Codec("gzip", 1), np.full(3, 65, np.uint8), 1))
    b'AAA'
    """
    library = codecs()
    if codec.name.startswith("blosc"):
        # For an array, Blosc uses the size of its elements, and ignores `typesize`.
        return library.blosc_encode(
            raw.view(f"V{itemsize}"),
            level=codec.level,
            compressor=codec.name.removeprefix("blosc-"),
            shuffle=int(codec.shuffled),
            typesize=itemsize,
            numthreads=1,
        )
    if codec.name == "gzip":
        return library.deflate_encode(raw, level=codec.level)
    if codec.name == "zstd":
        return library.zstd_encode(raw, level=codec.level)
    return library.lz4h5_encode(raw)


_RESERVED = ("DIMENSION_LABELS", "DIMENSION_LIST", "REFERENCE_LIST")
"""Attributes of HDF5's dimension scales; HDF5 crashes if they hold any other values."""


def encode_attribute(name: str, value: Any, target: Format) -> Any:
    """Return the value of an attribute as a format holds it; None if it can't.

    In Zarr, NaN and infinities are text.

    Examples
    --------
    >>> encode_attribute("range", np.arange(3), "zarr"), encode_attribute("units", "K", "npy")
    ([0, 1, 2], None)
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
