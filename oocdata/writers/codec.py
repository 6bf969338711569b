"""Describe how chunks are compressed: codec, level and shuffle, and the codecs of each format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from oocdata.errors import ArgumentError

__all__ = ["NAMES", "NONE", "Codec", "Format", "Shuffled", "as_codec"]

Format: TypeAlias = Literal["npy", "hdf5", "zarr"]
Shuffled: TypeAlias = Literal["none", "byte", "bit"]

_LEVELS = {
    "none": (0, 0, 0),
    "lzf": (0, 0, 0),
    "lz4": (0, 0, 0),
    "gzip": (0, 1, 9),
    "zstd": (1, 3, 22),
    "blosc": (0, 5, 9),
    "blosc-lz4": (0, 5, 9),
    "blosc-zstd": (0, 3, 9),
}
"""Lowest level, default level, highest level."""

_KNOWN: dict[Format, dict[str, tuple[Shuffled, ...]]] = {
    "npy": {"none": ("none",)},
    "hdf5": {
        "none": ("none",),
        **dict.fromkeys(("gzip", "lzf", "lz4", "zstd"), ("byte", "none")),
        **dict.fromkeys(("blosc", "blosc-lz4", "blosc-zstd"), ("byte", "bit", "none")),
    },
    "zarr": {
        "none": ("none",),
        "gzip": ("none",),
        "zstd": ("none",),
        **dict.fromkeys(("blosc", "blosc-lz4", "blosc-zstd"), ("byte", "bit", "none")),
    },
}
"""The codecs of each format, and the shuffles that each codec allows, the default first."""

NAMES: dict[Format, str] = {"npy": ".npy", "hdf5": "HDF5", "zarr": "Zarr"}


@dataclass(frozen=True, slots=True)
class Codec:
    """How a chunk is compressed."""

    name: str  #: one of `_LEVELS`, except "blosc", which stands for "blosc-lz4"
    level: int = 0  #: 0 for codecs without levels
    #: Shuffle before compression: the first bytes of all elements, then the second, …; or bits.
    shuffled: Shuffled = "none"

    def __str__(self) -> str:
        if self.name == "none":
            return "none"
        first = {"none": "", "byte": "shuffle, ", "bit": "bitshuffle, "}[self.shuffled]
        return f"{first}{self.name}{f' {self.level}' if self.level else ''}"


NONE = Codec("none")

_DEFAULT: dict[Format, Codec] = {
    "npy": NONE,
    # Any HDF5, that of h5py and of netCDF too, has gzip without plugins. Measured on frames of
    # float32, int16 and uint8: level 1 is read as fast as level 4 (0.9 to 1.1 of its speed), is
    # written up to 1.7 times as fast and takes at most 4 % more. LZF, which only h5py has, is read
    # no faster.
    "hdf5": Codec("gzip", 1, "byte"),
    # Every Zarr v3 library has Blosc, which shuffles bytes; Zarr has no separate shuffle filter.
    # On the same frames Blosc is read as fast as zstd (1.0 to 1.2 of its speed), and is up to 13 %
    # smaller for floats. blosc-lz4 is read 1.1 to 1.8 times as fast, and takes 6 to 66 % more.
    "zarr": Codec("blosc-zstd", 3, "byte"),
}


def as_codec(text: str | None, shuffled: Shuffled | None, target: Format) -> Codec:
    """Return the codec named by a text such as ``"zstd:3"``, by default that of the format.

    A level may follow after a colon. By default bytes are shuffled if the codec allows it. The
    error for an unknown codec or level lists the valid ones.

    Examples
    --------
    >>> as_codec("gzip:6", None, "hdf5")
    Codec(name='gzip', level=6, shuffled='byte')
    >>> as_codec("lzf", None, "zarr")
    Traceback (most recent call last):
    oocdata.errors.ArgumentError: `codec` must be one that Zarr has: none, gzip, zstd, blosc,
    blosc-lz4, blosc-zstd; got 'lzf'.
    """
    if text is None and shuffled is None:
        return _DEFAULT[target]
    name, colon, level_text = str(text or _DEFAULT[target].name).partition(":")
    codecs = _KNOWN[target]
    if name not in codecs:
        raise ArgumentError(
            f"`codec` must be one that {NAMES[target]} has: {', '.join(codecs)}; got {text!r}."
        )
    low, default, high = _LEVELS[name]
    if colon and not (level_text.isdecimal() and low <= int(level_text) <= high and high > 0):
        levels = f"from {low} to {high}" if high else "left out"
        raise ArgumentError(f"the level of {name} must be {levels}; got {text!r}.")
    level = int(level_text) if colon else default
    full_name = "blosc-lz4" if name == "blosc" else name
    shuffles = codecs[full_name]
    if shuffled is not None and shuffled not in shuffles:
        raise ArgumentError(
            f"`shuffle` must be {' or '.join(map(repr, shuffles))} for {full_name} in "
            f"{NAMES[target]}; got {shuffled!r}. Blosc shuffles by itself: blosc-zstd, blosc-lz4."
        )
    return Codec(full_name, level, shuffles[0] if shuffled is None else shuffled)
