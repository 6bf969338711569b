"""Decode HDF5 chunks outside HDF5, whose global lock lets one thread decode at a time.

Filters are undone in reverse order (HDF5 File Format Specification, III.C and IV.A.2.l) by codecs
that release the GIL. Szip, nbit, scaleoffset, bitshuffle and Blosc2 are left to HDF5.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.buffers import scratch_memory
from oocdata.formats.codecs import codecs, copy_chunk, decompress, write_chunk

DEFLATE, SHUFFLE, FLETCHER32 = 1, 2, 3
LZF, BLOSC, LZ4, ZSTD = 32000, 32001, 32004, 32015

_CODECS = {DEFLATE: "deflate", LZF: "lzf", BLOSC: "blosc", LZ4: "lz4h5", ZSTD: "zstd"}
_CHECKSUM_BYTES = 4

_BLOSC_BYTES = 24
"""Bytes before the data of a Blosc chunk of one block: a header of 16 bytes, the offset of the
block, and its length."""

_BLOSC_FLAGS = 0x01 | 0x10 | 1 << 5
"""Shuffled, not split, LZ4."""

_BLOSC_ITEM = 255
"""Largest element in bytes that Blosc shuffles."""

_TILE_BYTES = 1 << 20
"""Most bytes that are unshuffled at a time: Blosc takes up to three times as much memory."""


def can_decode(filters: tuple[int, ...], edges: bool) -> bool:
    """Return whether all filters can be undone here; `edges`: some chunks extend beyond the array.

    Edge chunks may be unfiltered, which `ChunkDecoder.decode` detects by their size. Shuffling does
    not change the size.
    """
    if edges and set(filters) == {SHUFFLE}:
        return False
    return set(filters) <= {*_CODECS, SHUFFLE, FLETCHER32}


@dataclass(frozen=True, slots=True)
class ChunkDecoder:
    """Decoder of a dataset's chunks; thread-safe."""

    filters: tuple[int, ...]  #: in the order in which they were applied
    stored: np.dtype[Any]  #: with its byte order
    chunk_shape: tuple[int, ...]

    def decode(self, data: Any, skipped: int, out: NDArray[Any]) -> None:
        """Decode a chunk into `out`, which has the part of the chunk in the array and any strides.

        Bit i of `skipped` is set if filter i was not applied to this chunk. Bytes that don't
        decode, or fail their checksum, raise `ValueError` or `RuntimeError`.
        """
        applied = [n for place, n in enumerate(self.filters) if not skipped >> place & 1]
        try:
            if applied:
                undo = partial(self._undo, data, applied)
                write_chunk(out, self.stored, self.chunk_shape, undo)
                return
        except (ValueError, RuntimeError):
            # An edge chunk of full size may be stored without filters (H5Pset_chunk_opts).
            whole = prod(self.chunk_shape) * self.stored.itemsize
            if out.shape == self.chunk_shape or len(memoryview(data)) != whole:
                raise
        copy_chunk(out, self.stored, self.chunk_shape, data)

    def _undo(self, data: Any, filters: list[int], target: NDArray[np.uint8]) -> None:
        """Undo filters in reverse order, the last of them into `target` where that is possible."""
        frame = None
        for place, number in reversed(list(enumerate(filters))):
            before, out = set(filters[:place]), None if place else target
            if number == FLETCHER32:
                data = _checked(data)
            elif number == SHUFFLE:
                data, frame = _unshuffle(data, self.stored.itemsize, out, frame), None
            else:
                if before and before <= {SHUFFLE, FLETCHER32}:  # the length is known
                    sums = filters[:place].count(FLETCHER32)
                    nbytes = len(target) + _CHECKSUM_BYTES * sums
                    frame = scratch_memory((_BLOSC_BYTES + nbytes,), np.uint8)
                    out = frame[_BLOSC_BYTES:]
                data = decompress(_CODECS[number], data, out)
        if data is not target:
            copy_chunk(target, target.dtype, target.shape, data)


def _unshuffle(
    data: Any, itemsize: int, out: NDArray[np.uint8] | None, frame: NDArray[np.uint8] | None
) -> NDArray[np.uint8]:
    """Undo HDF5's shuffle filter: bring the bytes of each number together again.

    Bytes at the end that make no whole number were not shuffled. Blosc undoes it, given an
    uncompressed shuffled chunk (Blosc 1, README_CHUNK_FORMAT.rst): epochs of gzip chunks of 128 KiB
    take 1 / 1.4 of the CPU time of strided copies. `frame` is the memory of `data` with room for
    Blosc's header before them; may be None, then they are copied (decoding takes 1.4 to 1.9 times).
    """
    shuffled = np.frombuffer(data, np.uint8)
    out = scratch_memory((len(shuffled),), np.uint8) if out is None else out
    if len(shuffled) != len(out):
        raise ValueError(f"it decodes to {len(shuffled)} bytes, not {len(out)}")
    count = len(out) // itemsize
    whole, step = count * itemsize, max(1, _TILE_BYTES // itemsize)
    planes = shuffled[:whole].reshape(itemsize, count)
    if itemsize > _BLOSC_ITEM:
        out[:whole].reshape(count, itemsize)[...] = planes.T
    elif frame is not None and count <= step:
        _unshuffle_frame(frame[: _BLOSC_BYTES + whole], itemsize, out[:whole])
    else:
        for start in range(0, count, step):
            part = planes[:, start : start + step]
            tile = scratch_memory((_BLOSC_BYTES + part.size,), np.uint8)
            tile[_BLOSC_BYTES:].reshape(part.shape)[...] = part
            _unshuffle_frame(tile, itemsize, out[start * itemsize :][: part.size])
    out[whole:] = shuffled[whole:]
    return out


def _unshuffle_frame(frame: NDArray[np.uint8], itemsize: int, out: NDArray[np.uint8]) -> None:
    """Write Blosc's header before shuffled bytes, and unshuffle them."""
    sizes = len(out), len(out), len(frame)  # decoded, block, encoded
    header = (2, 1, _BLOSC_FLAGS, itemsize, *sizes, _BLOSC_BYTES - 4, len(out))
    struct.pack_into("<BBBB5I", frame.data, 0, *header)
    codecs().blosc_decode(frame, out=out)


def _checked(data: Any) -> Any:
    """Verify the Fletcher-32 checksum at the end of bytes, and return the bytes without it."""
    view = memoryview(data)
    if len(view) < _CHECKSUM_BYTES:
        raise ValueError("it is too short for its Fletcher-32 checksum")
    body, checksum = view[:-_CHECKSUM_BYTES], bytes(view[-_CHECKSUM_BYTES:])
    expected = int.from_bytes(checksum, "little")
    computed = codecs().h5checksum_fletcher32(body)
    # HDF5 before 1.6.3 swapped the bytes of each half on little-endian machines.
    swapped = int.from_bytes(bytes([checksum[1], checksum[0], checksum[3], checksum[2]]), "little")
    if computed not in (expected, swapped):
        raise ValueError("its Fletcher-32 checksum does not fit")
    return body
