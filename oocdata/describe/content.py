"""Digests of a source: of some of its numbers, or of every change.

The first tells other data from the same, wherever they lie; the second knows files by versions.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from hashlib import blake2b
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from oocdata.box import Extent
from oocdata.engines.ragged_rows import inner_shape, is_ragged, locate
from oocdata.errors import MissingChunkError

if TYPE_CHECKING:
    from oocdata.engines.source import Source

__all__ = ["content", "digest", "exact_content"]

_BOXES = 16
"""Boxes looked at, the first and the last among them, all over the array."""

_BOX_BYTES = 4096
_DECODED_BYTES = 64 << 20
"""Of large chunks that are decoded for it, at most, but for two."""

_PIECE = 4 << 20
"""Bytes that are read at a time of what lies in no file."""

_VERSION = ("nbytes", "modified", "changed", "inode", "tag")
"""What tells versions of a file or an object apart, also for machines that share the folder."""


def digest(*parts: str | bytes) -> str:
    """Return a short digest, e.g. ``"#1f0c6a3b9d27"``, another for ``"a", "b"`` than ``"ab"``."""
    made = blake2b(digest_size=6)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        made.update(len(data).to_bytes(8, "little") + data)
    return f"#{made.hexdigest()}"


def content(source: Source) -> str:
    """Return a digest of numbers from a few places of an array; an absent chunk is one, too."""
    shape, storage = source.shape, source.storage()
    parts: list[bytes] = []
    if storage.episodes:  # which datasets there are, and how long: windows depend on it
        names = (key or "" for _, key in storage.part_names)
        told = (f"{start} {key}" for start, key in zip(storage.parts, names, strict=True))
        parts.append("\n".join(told).encode("utf-8", "surrogateescape"))
    if storage.opened and "pad" in storage.opened:  # boxes may all lie where nothing was filled
        parts.append(repr(storage.opened["pad"]).encode())
    if not all(shape):
        return digest(*parts)
    if is_ragged(source):
        return digest(*parts, *_of_rows(source))
    # Of the shape alone, so that the same data in other chunks have the same digest: boxes of few
    # bytes, long on the last axes.
    unequal = source.dtype.hasobject  # each of any length
    lengths, left = [1] * len(shape), 1 if unequal else max(1, _BOX_BYTES // source.dtype.itemsize)
    for axis in reversed(range(len(shape))):
        lengths[axis] = min(shape[axis], left)
        left //= lengths[axis]
    counts = [-(-whole // each) for whole, each in zip(shape, lengths, strict=True)]
    chunk_bytes = prod(storage.chunks or ()) * source.dtype.itemsize
    most = max(2, min(_BOXES, _DECODED_BYTES // chunk_bytes))
    out = np.empty((1, *lengths), source.dtype)
    numbers = sorted({at * (prod(counts) - 1) // (most - 1) for at in range(most)})
    places = np.stack(np.unravel_index(numbers, counts), axis=1)
    for origin in np.minimum(places * lengths, np.array(shape) - lengths):
        try:
            source.read(origin[None], Extent.of(lengths), out)
        except MissingChunkError:
            parts.append(b"missing")
        else:
            if unequal:
                parts += out.ravel().tolist()
                continue
            parts.append(out.astype(source.dtype.newbyteorder("<")).tobytes())
    return digest(*parts)


def _of_rows(source: Source) -> tuple[bytes, bytes]:
    """Return the lengths of a few rows of unequal length, and what each begins with."""
    rows = np.unique(np.linspace(0, source.shape[0] - 1, _BOXES).astype(np.int64))
    found = locate(source, rows)
    counts = np.minimum(found.lengths, max(1, _BOX_BYTES // source.dtype.itemsize))
    values = np.empty((int(counts.sum()), *inner_shape(source)), source.dtype)
    found.read(np.zeros_like(counts), counts, values)
    little = values.astype(source.dtype.newbyteorder("<"))
    return found.lengths.astype("<i8").tobytes(), little.tobytes()


def exact_content(source: Source) -> str:
    """Return a digest that is another one wherever a number may have changed.

    Files are known by their versions. What lies in none is read whole.
    """
    storage = source.storage()
    # Which array of a file it is; where the file lies makes no difference.
    opened = [pair for pair in sorted((storage.opened or {}).items()) if pair[0] != "target"]
    keys = [key for _, key in storage.part_names]
    which = repr((storage.key, storage.offset, storage.strides, opened, keys))
    known = [tuple(getattr(file, name, "") for name in _VERSION) for file in storage.files]
    for path in storage.row_files:
        status = os.stat(path)
        known.append((status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino))
    # A file that whoever opened it may write to, and parts in memory, have no version.
    unknown = any(file.modified is None for file in storage.files)
    unknown |= not known or any(path is None for path, _ in storage.part_names)
    whole = unknown and all(source.shape) and not is_ragged(source)
    all_of_it = _all_of(source) if whole else ()
    return digest(content(source), storage.version, which, repr(known), *all_of_it)


def _all_of(source: Source) -> Iterator[str]:
    """Yield digests of all numbers of an array, of some rows each."""
    count, *row = source.shape
    step = max(1, _PIECE // max(1, prod(row) * source.dtype.itemsize))
    for start in range(0, count, step):
        box = (min(step, count - start), *row)
        out = np.empty((1, *box), source.dtype)
        source.read(np.array([[start, *[0] * len(row)]]), Extent.of(box), out)
        yield digest(*out.ravel().tolist() if source.dtype.hasobject else [out.tobytes()])
