"""Compute digests of a source: of a sample of its numbers, or of its files' versions."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from hashlib import blake2b
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from oocdata.box import Extent, Ints
from oocdata.engines.prefetch import fetches, prefetched
from oocdata.engines.ragged_rows import inner_shape, is_ragged, locate
from oocdata.errors import (
    ChecksumError,
    DamagedChunkError,
    MismatchedPartsError,
    MissingChunkError,
    MissingFileError,
    TruncatedFileError,
    UnknownFormatError,
    UnsupportedDtypeError,
)

if TYPE_CHECKING:
    from oocdata.engines.source import Source

_DAMAGED = (
    ChecksumError, DamagedChunkError, MismatchedPartsError, MissingChunkError, MissingFileError,
    TruncatedFileError, UnknownFormatError, UnsupportedDtypeError,
)  # fmt: skip
"""Errors of rows that can't be read now or later, which a dataset may have left out."""

_BOXES = 16
"""Number of boxes that are sampled, spread over the array, including the first and the last."""

_BOX_BYTES = 4096
_DECODED_BYTES = 64 << 20
"""Bytes of chunks that are decoded for a digest, at most; but always two chunks."""

_PIECE = 4 << 20
"""Bytes that are read at a time of data without a file."""

_VERSION = ("nbytes", "modified", "changed", "inode", "tag")
"""Attributes that identify the version of a file or object, also across machines that share a
folder."""


def digest(*parts: str | bytes) -> str:
    """Return a short digest, such as ``"#1f0c6a3b9d27"``; ``"a", "b"`` and ``"ab"`` differ."""
    state = blake2b(digest_size=6)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return f"#{state.hexdigest()}"


def content(source: Source) -> str:
    """Return a digest of a sample of an array's numbers; all damage counts as one number."""
    shape, storage = source.shape, source.storage()
    parts: list[bytes] = []
    if storage.episodes:  # names and lengths of the datasets, on which windows depend
        names = (key or "" for _, key in storage.part_names)
        lines = (f"{start} {key}" for start, key in zip(storage.parts, names, strict=True))
        parts.append("\n".join(lines).encode("utf-8", "surrogateescape"))
    if storage.opened and "pad" in storage.opened:  # the sample may contain no padding
        parts.append(repr(storage.opened["pad"]).encode())
    if not all(shape):
        return digest(*parts)
    if is_ragged(source):
        return digest(*parts, *_of_rows(source))
    # Boxes of few bytes, long on the last axes. They depend on the shape only, so that the same
    # data in other chunks have the same digest.
    lengths = [1] * len(shape)
    # Objects are of any length.
    remaining = 1 if source.dtype.hasobject else max(1, _BOX_BYTES // source.dtype.itemsize)
    for axis in reversed(range(len(shape))):
        lengths[axis] = min(shape[axis], remaining)
        remaining //= lengths[axis]
    counts = [-(-length // box) for length, box in zip(shape, lengths, strict=True)]
    chunk_bytes = prod(storage.chunks or ()) * source.dtype.itemsize
    most = max(2, min(_BOXES, _DECODED_BYTES // chunk_bytes))
    numbers = sorted({number * (prod(counts) - 1) // (most - 1) for number in range(most)})
    places = np.stack(np.unravel_index(numbers, counts), axis=1)
    origins = np.minimum(places * lengths, np.array(shape) - lengths)
    with ExitStack() as stack:
        with suppress(*_DAMAGED):  # a read that needs what is damaged raises again
            stack.enter_context(prefetched(fetches(source, origins, Extent.of(lengths))))
        for origin in origins:
            try:
                parts += _read(source, origin, lengths)
            except _DAMAGED:
                parts.append(b"missing")
    return digest(*parts)


def _read(source: Source, origin: Ints, lengths: Sequence[int]) -> list[bytes]:
    """Return the numbers of a box, in little-endian order, or the objects in it."""
    out = np.empty((1, *lengths), source.dtype)
    source.read(origin[None], Extent.of(lengths), out)
    if source.dtype.hasobject:
        objects: list[bytes] = out.ravel().tolist()
        return objects
    return [out.astype(source.dtype.newbyteorder("<"), copy=False).tobytes()]


def _of_rows(source: Source) -> tuple[bytes, bytes]:
    """Return the lengths of a sample of rows of unequal length, and the beginning of each."""
    rows = np.unique(np.linspace(0, source.shape[0] - 1, _BOXES).astype(np.int64))
    located = locate((source, rows, np.arange(len(rows))))
    counts = np.minimum(located.lengths, max(1, _BOX_BYTES // source.dtype.itemsize))
    values = np.empty((int(counts.sum()), *inner_shape(source)), source.dtype)
    try:
        located.read(np.zeros_like(counts), counts, values, np.cumsum(counts) - counts)
    except _DAMAGED:
        values = values[:0]
    little_endian = values.astype(source.dtype.newbyteorder("<"))
    return located.lengths.astype("<i8").tobytes(), little_endian.tobytes()


def exact_content(source: Source) -> str:
    """Return a digest that changes whenever a number may have changed.

    Files are identified by their versions; data without a file are read whole.
    """
    storage = source.storage()
    # Identifies the array in its file; the file's path makes no difference.
    opened = [pair for pair in sorted((storage.opened or {}).items()) if pair[0] != "target"]
    keys = [key for _, key in storage.part_names]
    array = repr((storage.key, storage.offset, storage.strides, opened, keys))
    versions = [tuple(getattr(file, name, "") for name in _VERSION) for file in storage.files]
    for path in storage.row_files:
        status = os.stat(path)
        versions.append((status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino))
    # Files that this process may write to, and parts in memory, have no version.
    unversioned = any(file.modified is None for file in storage.files)
    unversioned |= not versions or any(path is None for path, _ in storage.part_names)
    read_all = unversioned and all(source.shape) and not is_ragged(source)
    digests = _all_of(source) if read_all else ()
    return digest(content(source), storage.version, array, repr(versions), *digests)


def _all_of(source: Source) -> Iterator[str]:
    """Yield digests of all numbers of an array, a few rows at a time."""
    count, *row = source.shape
    step = max(1, _PIECE // max(1, prod(row) * source.dtype.itemsize))
    for start in range(0, count, step):
        origin = np.array([start, *[0] * len(row)])
        yield digest(*_read(source, origin, (min(step, count - start), *row)))
