"""How a source lies in storage: what is decoded together, what is kept, how far bytes lie apart."""

from __future__ import annotations

from math import prod

from oocdata.sources.adapt import Converted
from oocdata.sources.chunk_layout import without
from oocdata.sources.chunks import Chunks
from oocdata.sources.concat import Concat
from oocdata.sources.extents import Extents
from oocdata.sources.memory import Memory
from oocdata.sources.slots import chunk_budget
from oocdata.sources.source import Source
from oocdata.sources.strided import StridedReader
from oocdata.sources.xarray.decoded import Decoded
from oocdata.sources.zarr.chunk_files import ChunkFiles
from oocdata.writers.chunking import default_chunks

__all__ = ["PIECE_BYTES", "chunk_of", "decoded_bytes", "kept_bytes", "strided_of", "strides_of"]

PIECE_BYTES = 1 << 20
"""Bytes of a row from which on it is as well read or written in pieces of as many."""


def chunk_of(source: Source) -> tuple[int, ...]:
    """Return what is decoded together, rows first; a row or a piece of it where nothing is.

    Examples
    --------
    >>> import numpy as np
    >>> chunk_of(Memory(np.zeros((10, 3)))), chunk_of(Memory(np.zeros((2, 16, 1 << 16))))
    ((1, 3), (1, 2, 65536))
    """
    if isinstance(source, Converted | Decoded):
        return chunk_of(source.source)
    if isinstance(source, ChunkFiles):
        return chunk_of(source.whole)
    if isinstance(source, Concat):
        return tuple(max(steps) for steps in zip(*map(chunk_of, source.parts), strict=True))
    if isinstance(source, Extents | Memory):
        pieces = default_chunks(source.shape, source.dtype.itemsize, largest=PIECE_BYTES)
        return (1, *pieces[1:])
    if isinstance(source, Chunks) and isinstance(source.reader, StridedReader):
        return (1, *source.shape[1:])
    if isinstance(source, Chunks) and max(source.reader.chunk_shape) > 1:
        chunk = source.reader.chunk_shape
        kept = [
            min(len(cut), -(-step // abs(cut.step)))
            for cut, step in zip(source.cuts, without(chunk, source.axis), strict=True)
            if isinstance(cut, range)
        ]
        return (chunk[source.axis], *kept)
    return (max(1, source.chunk_rows), *source.shape[1:])


def decoded_bytes(source: Source) -> int:
    """Return the bytes of the largest stored chunk, which is decoded as a whole; 0 for none."""
    if isinstance(source, Converted | Decoded):
        return decoded_bytes(source.source)
    if isinstance(source, ChunkFiles):
        return decoded_bytes(source.whole)
    if isinstance(source, Concat):
        return max(map(decoded_bytes, source.parts))
    if isinstance(source, Chunks) and max(source.reader.chunk_shape) > 1:
        return prod(source.reader.chunk_shape) * source.dtype.itemsize
    return 0


def kept_bytes(source: Source) -> int:
    """Return the bytes of decoded chunks that are kept, where a source reads rows by itself."""
    if isinstance(source, Converted | Decoded):
        return kept_bytes(source.source)
    if isinstance(source, Concat):
        return max(map(kept_bytes, source.parts))
    known = isinstance(source, Extents | Memory | Chunks | ChunkFiles)
    return 0 if known or source.chunk_rows == 1 else chunk_budget()


def strided_of(source: Source) -> Extents | None:
    """Return rows whose bytes lie far apart, as cut; None where they don't."""
    if not isinstance(source, Chunks) or not isinstance(source.reader, StridedReader):
        return None
    cut = source.reader.rows.cut(source.cuts)
    return cut if isinstance(cut, Extents) else None


def strides_of(source: Source) -> tuple[int, ...] | None:
    """Return the strides of rows whose bytes lie far apart."""
    if isinstance(source, Converted | Decoded):
        return strides_of(source.source)
    if isinstance(source, Concat):
        return strides_of(source.parts[0])
    strided = strided_of(source)
    return None if strided is None else strided.strides
