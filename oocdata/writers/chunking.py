"""Which chunks to write, so that rows are read fast. Integer arithmetic alone."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from oocdata.errors import ArgumentError
from oocdata.index import as_count

__all__ = [
    "CHUNK_BYTES",
    "LARGEST",
    "SHARD_BYTES",
    "default_chunks",
    "default_shards",
    "full_shape",
]

CHUNK_BYTES = 256 << 10
"""Bytes of a chunk of several rows. Measured with rows of 16 KiB, gzip in HDF5 and blosc-zstd in
Zarr, in order and shuffled in blocks: chunks of 16 KiB are read at 0.3 to 0.5 of the speed, of 32
KiB at 0.4 to 0.6, of 1 and 4 MiB at 1.0 to 1.4. A full shuffle decodes more of a large one that it
doesn't use, and blocks of large ones mix less."""

SHARD_BYTES = 32 << 20
"""Bytes of a shard before compression: files enough to be written by several threads, few enough
for a file system."""

_MOST_CHUNKS = 4096
"""Chunks of a shard: its index, 16 bytes for each, is read before any of them."""

LARGEST = 1 << 30
"""Bytes of a chunk: HDF5 takes 4 GiB, Blosc 2; one row beyond is cut."""


def default_chunks(
    shape: Sequence[int], itemsize: int, *, largest: int = LARGEST
) -> tuple[int, ...]:
    """Return chunks of whole rows: as many as make 256 KiB, or one; or of a part of one.

    `shape` is ``(rows, *element)``; a row of more than `largest` bytes is cut.

    Examples
    --------
    >>> default_chunks((20_000, 3, 50, 50), 8)
    (4, 3, 50, 50)
    >>> default_chunks((100, 1024, 1024, 512), 4)  # a row of 2 GiB
    (1, 512, 1024, 512)
    """
    element = [max(1, length) for length in shape[1:]]
    rows = max(1, min(CHUNK_BYTES, largest) // (prod(element) * itemsize))
    for axis in range(len(element)):
        if prod(element) * itemsize <= largest:
            break
        rest = prod(element) // element[axis] * itemsize
        most = max(1, min(element[axis], largest // rest))
        element[axis] = -(-element[axis] // -(-element[axis] // most))  # parts of about one length
    return (rows, *element)


def default_shards(
    chunks: Sequence[int], shape: Sequence[int], itemsize: int, nbytes: int = SHARD_BYTES
) -> tuple[int, ...]:
    """Return shards of whole chunks: of whole rows where these fit, and of as many as do.

    Examples
    --------
    >>> default_shards((20_000, 16), (20_000, 4096), 4)
    (20000, 416)
    >>> default_shards((4, 3, 50, 50), (20_000, 3, 50, 50), 8)
    (556, 3, 50, 50)
    """
    shard, count = list(chunks), 1
    for axis in (*range(len(shard) - 1, 0, -1), 0):
        most = min(_MOST_CHUNKS // count, nbytes // (prod(shard) * itemsize))
        if axis:  # the rows may be as many as they like
            most = min(most, -(-max(1, shape[axis]) // chunks[axis]))
        shard[axis] *= max(1, most)
        count *= max(1, most)
    return tuple(shard)


def full_shape(name: str, given: int | Sequence[int], element: Sequence[int]) -> tuple[int, ...]:
    """Return a chunk's shape from its rows, or from a length for each axis.

    Examples
    --------
    >>> full_shape("chunks", 32, (3, 50, 50)), full_shape("chunks", (32, 1, 50, 50), (3, 50, 50))
    ((32, 3, 50, 50), (32, 1, 50, 50))
    """
    if not isinstance(given, Sequence):
        return (as_count(name, given), *(max(1, length) for length in element))
    lengths = tuple(as_count(name, length) for length in given)
    if len(lengths) == 1:
        return (lengths[0], *(max(1, length) for length in element))
    if len(lengths) != 1 + len(element):
        raise ArgumentError(
            f"`{name}` must be a number of rows, or a length for each of the "
            f"{1 + len(element)} axes; got {tuple(given)}."
        )
    return lengths
