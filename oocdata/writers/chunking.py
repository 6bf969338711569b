"""Choose the shapes of chunks and shards from which rows can be read fast."""

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
KiB at 0.4 to 0.6, of 1 and 4 MiB at 1.0 to 1.4. But a full shuffle decodes more unused rows of
large chunks, and blocks of large chunks mix less."""

SHARD_BYTES = 32 << 20
"""Bytes of a shard before compression: enough files to be written by several threads, few enough
for a file system."""

_MOST_CHUNKS = 4096
"""Most chunks in a shard: its index, 16 bytes per chunk, is read before any chunk."""

LARGEST = 1 << 30
"""Most bytes of a chunk: HDF5 allows 4 GiB and Blosc 2; a larger row is cut."""


def default_chunks(
    shape: Sequence[int], itemsize: int, *, largest: int = LARGEST
) -> tuple[int, ...]:
    """Return the shape of chunks of whole rows: at least one row, and about 256 KiB of them.

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
        location_bytes = prod(element) // element[axis] * itemsize
        most = max(1, min(element[axis], largest // location_bytes))
        element[axis] = -(-element[axis] // -(-element[axis] // most))  # about equal parts
    return (rows, *element)


def default_shards(
    chunks: Sequence[int], shape: Sequence[int], itemsize: int, nbytes: int = SHARD_BYTES
) -> tuple[int, ...]:
    """Return the shape of shards of whole chunks: as many whole rows as fit, or parts of rows.

    Examples
    --------
    >>> default_shards((20_000, 16), (20_000, 4096), 4)
    (20000, 416)
    >>> default_shards((4, 3, 50, 50), (20_000, 3, 50, 50), 8)
    (556, 3, 50, 50)
    """
    shard, count = list(chunks), 1
    for axis in (*range(len(shard) - 1, 0, -1), 0):
        needed = -(-max(1, shape[axis]) // chunks[axis])
        most = min(needed, _MOST_CHUNKS // count, nbytes // (prod(shard) * itemsize))
        shard[axis] *= max(1, most)
        count *= max(1, most)
    return tuple(shard)


def full_shape(name: str, lengths: int | Sequence[int], element: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of a chunk, given its rows or its length along each axis.

    Examples
    --------
    >>> full_shape("chunks", 32, (3, 50, 50)), full_shape("chunks", (32, 1, 50, 50), (3, 50, 50))
    ((32, 3, 50, 50), (32, 1, 50, 50))
    """
    counts = lengths if isinstance(lengths, Sequence) else (lengths,)
    shape = tuple(as_count(name, length) for length in counts)
    if len(shape) == 1:
        return (*shape, *(max(1, length) for length in element))
    if len(shape) != 1 + len(element):
        raise ArgumentError(
            f"`{name}` must be a number of rows, or a length for each of the "
            f"{1 + len(element)} axes; got {tuple(counts)}."
        )
    return shape
