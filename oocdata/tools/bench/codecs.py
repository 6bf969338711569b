"""Other codecs, tried on the data themselves: how fast they decode, and how well they compress.

Some chunks are encoded as `oocdata convert` would, and decoded as they would be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.sources.adapt import layout_of
from oocdata.sources.chunks import Chunks
from oocdata.sources.hdf5.decode import ChunkDecoder
from oocdata.tools.bench.limits import THREADS, together
from oocdata.writers.codec import Format, as_codec
from oocdata.writers.encoding import encode_chunk, filters_of
from oocdata.writers.target import Target

__all__ = ["Tried", "faster_codec"]

_CODECS: dict[Format, tuple[str, ...]] = {
    "hdf5": ("zstd", "lz4"),
    "zarr": ("zstd", "blosc-lz4"),
    "npy": (),
}

_CHUNKS = 4
_MOST_BYTES = 16 << 20
_SECONDS = 0.15


@dataclass(frozen=True, slots=True)
class Tried:
    """How a codec did on some chunks.

    Attributes
    ----------
    codec : str
        As `oocdata convert` takes it.
    gain : float
        Times as fast as what the file has.
    ratio : float
        Bytes stored for each byte that the file stores now.
    nbytes : int
        Bytes that it was tried on, decoded.
    """

    codec: str
    gain: float
    ratio: float
    nbytes: int


def faster_codec(part: Chunks, rate: float) -> Tried | None:
    """Return the codec that decodes some chunks of an array the fastest; None if none is tried.

    Parameters
    ----------
    part : Chunks
    rate : float
        Bytes a second that are decoded now.
    """
    layout = part.known.layout(part)
    described = layout_of(part)
    whole = prod(part.reader.shape) * part.dtype.itemsize
    if described.stored_bytes is None or not 0 < layout.nbytes <= _MOST_BYTES or not whole:
        return None
    chunks = _some(part)
    nbytes = sum(chunk.nbytes for chunk in chunks)
    kind: Format = "zarr" if described.format.startswith("Zarr") else "hdf5"
    found = []
    for name in _CODECS[kind]:
        codec = as_codec(name, None, kind)
        shape = part.reader.chunk_shape
        target = Target(
            format="hdf5", key="/u", shape=shape, dtype=part.dtype, chunks=shape, codec=codec
        )
        decoder = ChunkDecoder(
            tuple(number for number, _ in filters_of(target)), part.dtype, chunks[0].shape
        )
        encoded = [encode_chunk(codec, chunk) for chunk in chunks]
        stored = sum(memoryview(data).nbytes for data, _ in encoded)
        speed = _speed(decoder, encoded, chunks)
        found.append(
            Tried(name, speed / rate, stored / nbytes * whole / described.stored_bytes, nbytes)
        )
    return max(found, key=lambda one: one.gain, default=None)


def _some(part: Chunks) -> list[NDArray[Any]]:
    """Read some chunks of one size from all over the array."""
    layout = part.known.layout(part)
    down = max(1, layout.shape[layout.axis] // layout.rows)
    most = max(1, min(_CHUNKS, _MOST_BYTES // layout.nbytes))
    numbers = np.unique(np.linspace(0, down - 1, most).astype(np.int64))
    boxes = [layout.box(int(number), layout.columns[0]) for number in numbers]
    return [np.ascontiguousarray(part.reader.read_box(box)) for box in boxes]


def _speed(
    decoder: ChunkDecoder, encoded: Sequence[tuple[Any, int]], chunks: Sequence[NDArray[Any]]
) -> float:
    """Return the bytes a second that threads decode to."""
    outs = [[np.empty_like(chunk) for chunk in chunks] for _ in range(THREADS)]

    def work(number: int, end: float) -> int:
        done = 0
        while True:
            for (data, skipped), out in zip(encoded, outs[number], strict=True):
                decoder.decode(data, skipped, out)
                done += out.nbytes
            if perf_counter() >= end:
                return done

    return together(work, THREADS, _SECONDS)
