"""How chunks are compressed: a name, a level and what is shuffled first; what each format knows."""

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
"""Lowest level, the usual one, highest."""

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
"""What each format can be told to do: its codecs, and what may be shuffled; the usual one first."""

NAMES: dict[Format, str] = {"npy": ".npy", "hdf5": "HDF5", "zarr": "Zarr"}


@dataclass(frozen=True, slots=True)
class Codec:
    """How a chunk is compressed."""

    name: str  #: one of `_LEVELS`, but for "blosc", which is "blosc-lz4"
    level: int = 0  #: 0 where there is none
    #: What is put together before: the first byte of all elements, then the second, …; or bits.
    shuffled: Shuffled = "none"

    def __str__(self) -> str:
        if self.name == "none":
            return "none"
        first = {"none": "", "byte": "shuffle, ", "bit": "bitshuffle, "}[self.shuffled]
        return f"{first}{self.name}{f' {self.level}' if self.level else ''}"


NONE = Codec("none")

_DEFAULT: dict[Format, Codec] = {
    "npy": NONE,
    # HDF5 without plugins, h5py's and netCDF's alike, knows gzip. Measured on frames of float32,
    # int16 and uint8: level 1 is read as fast as level 4 (0.9 to 1.1 of it), is written up to 1.7
    # times as fast and takes at most 4 % more. LZF, which h5py alone knows, is read no faster.
    "hdf5": Codec("gzip", 1, "byte"),
    # Every Zarr v3 library knows Blosc, which shuffles bytes; Zarr has no filter for that. On the
    # same frames: read as fast as zstd (1.0 to 1.2 of it), and up to 13 % smaller for floats.
    # blosc-lz4 is read 1.1 to 1.8 times as fast, and takes 6 to 66 % more.
    "zarr": Codec("blosc-zstd", 3, "byte"),
}


def as_codec(text: str | None, shuffled: Shuffled | None, target: Format) -> Codec:
    """Return the codec that a text such as ``"zstd:3"`` names; the format's usual one for None.

    After a colon follows a level; by default bytes are `shuffled` where the format can. The error
    where the format has no such codec or level lists what there is.

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
    name, colon, after = str(text or _DEFAULT[target].name).partition(":")
    known = _KNOWN[target]
    if name not in known:
        raise ArgumentError(
            f"`codec` must be one that {NAMES[target]} has: {', '.join(known)}; got {text!r}."
        )
    low, usual, high = _LEVELS[name]
    if colon and not (after.isdecimal() and low <= int(after) <= high and high > 0):
        levels = f"from {low} to {high}" if high else "left out"
        raise ArgumentError(f"the level of {name} must be {levels}; got {text!r}.")
    level = int(after) if colon else usual
    full = "blosc-lz4" if name == "blosc" else name
    ways = known[full]
    if shuffled is not None and shuffled not in ways:
        hint = " Blosc shuffles by itself: blosc-zstd, blosc-lz4."
        raise ArgumentError(
            f"`shuffle` must be {' or '.join(map(repr, ways))} for {full} in {NAMES[target]}; got "
            f"{shuffled!r}.{hint}"
        )
    return Codec(full, level, ways[0] if shuffled is None else shuffled)
