"""Describe an array to be written: format, codec, and chunks from which rows can be read fast."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Literal, TypeAlias

import numpy as np

from oocdata.errors import ArgumentError
from oocdata.index import as_count

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


_SUFFIXES: dict[str, Format] = {".npy": "npy", ".h5": "hdf5", ".hdf5": "hdf5", ".zarr": "zarr"}


def format_by_suffix(path: str) -> Format:
    """Return the format that the suffix of a new file's name chooses."""
    suffix = os.path.splitext(path.rstrip("/"))[1].lower()
    if suffix not in _SUFFIXES:
        raise ArgumentError(f"the output's name must end in {', '.join(_SUFFIXES)}; got {path!r}.")
    return _SUFFIXES[suffix]


def target_key(target: Format, key: str | None, default: str | None = None) -> str | None:
    """Return the key of a new array, or None if the file itself is the array.

    HDF5 needs a key: if none is given, it is `default`, or ``"/data"``.
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
    """An array to be written."""

    format: Format
    key: str | None  #: inside the file; None if the file is the array
    shape: tuple[int, ...]  #: ``(rows, *element)``; 0 rows while their number is unknown
    dtype: np.dtype[Any]  #: native byte order
    chunks: tuple[int, ...] | None = None  #: shape of a chunk; None if rows are contiguous
    shards: tuple[int, ...] | None = None  #: shape of a Zarr shard, in whole chunks
    codec: Codec = NONE
    fill_value: Any = None  #: of elements that were never written; None means 0
    attributes: tuple[tuple[str, Any], ...] = ()  #: as the format holds them
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


CHUNK_BYTES = 256 << 10
"""Bytes of a chunk of several rows. Measured with rows of 16 KiB, gzip in HDF5 and blosc-zstd in
Zarr, in order and shuffled in blocks: chunks of 16 KiB are read at 0.3 to 0.5 of the speed, of 32
KiB at 0.4 to 0.6, of 1 and 4 MiB at 1.0 to 1.4. But a full shuffle decodes more unused rows of
large chunks, and blocks of large chunks mix less."""

SHARD_BYTES = 32 << 20
"""Bytes of a shard before compression: enough files to be written by several threads, few enough
for a file system."""

_MOST_CHUNKS = 4096
"""Most chunks in a shard: its index, 16 bytes per chunk, is read before any chunk."""

LARGEST = 1 << 30
"""Most bytes of a chunk: HDF5 allows 4 GiB and Blosc 2; a larger row is cut."""

_MANY_ROWS = 1 << 62
"""Rows of an array of which the number is not known yet, to choose its chunks."""


def with_chunks(
    target: Target,
    chunks: int | Sequence[int] | None,
    *,
    chunk_bytes: int = LARGEST,
    shard_bytes: int = SHARD_BYTES,
) -> Target:
    """Return the target with the requested chunks, or the best ones for whole rows, in shards."""
    kind, element, itemsize = target.format, target.element, target.dtype.itemsize
    if kind == "npy":
        if chunks is not None:
            raise ArgumentError("`chunks` must be left out for .npy, which has none.")
        return target
    if chunks is None:
        requested = default_chunks(target.shape, itemsize, largest=chunk_bytes)
    else:
        requested = _full_shape(chunks, element)
    longest = (_MANY_ROWS if target.growing else target.shape[0], *element)
    chunk = tuple(max(1, min(pair)) for pair in zip(requested, longest, strict=True))
    if prod(chunk) * itemsize >= 1 << 31:
        raise ArgumentError(
            f"a chunk must be smaller than 2 GiB; got {chunk} of {target.dtype}. Give fewer rows, "
            "or a length for each axis."
        )
    if kind == "hdf5":
        return replace(target, chunks=chunk)
    shard = _shards(chunk, longest, itemsize, shard_bytes)
    return replace(target, chunks=chunk, shards=shard if shard != chunk else None)


def default_chunks(
    shape: Sequence[int], itemsize: int, *, largest: int = LARGEST
) -> tuple[int, ...]:
    """Return the shape of chunks of whole rows: at least one row, and about 256 KiB of them.

    `shape` is ``(rows, *element)``; a row of more than `largest` bytes is cut.
    """
    element = [max(1, length) for length in shape[1:]]
    rows = max(1, min(CHUNK_BYTES, largest) // (prod(element) * itemsize))
    for axis in range(len(element)):
        if prod(element) * itemsize <= largest:
            break
        location_bytes = prod(element) // element[axis] * itemsize
        most = max(1, min(element[axis], largest // location_bytes))
        element[axis] = -(-element[axis] // -(-element[axis] // most))  # about equal parts
    return (rows, *element)


def _shards(
    chunks: Sequence[int], shape: Sequence[int], itemsize: int, nbytes: int = SHARD_BYTES
) -> tuple[int, ...]:
    """Return the shape of shards of whole chunks: as many whole rows as fit, or parts of rows."""
    shard, count = list(chunks), 1
    for axis in (*range(len(shard) - 1, 0, -1), 0):
        needed = -(-max(1, shape[axis]) // chunks[axis])
        most = min(needed, _MOST_CHUNKS // count, nbytes // (prod(shard) * itemsize))
        shard[axis] *= max(1, most)
        count *= max(1, most)
    return tuple(shard)


def _full_shape(lengths: int | Sequence[int], element: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of a chunk, given its rows or its length along each axis."""
    counts = lengths if isinstance(lengths, Sequence) else (lengths,)
    shape = tuple(as_count("chunks", length) for length in counts)
    if len(shape) == 1:
        return (*shape, *(max(1, length) for length in element))
    if len(shape) != 1 + len(element):
        raise ArgumentError(
            f"`chunks` must be a number of rows, or a length for each of the "
            f"{1 + len(element)} axes; got {tuple(counts)}."
        )
    return shape
