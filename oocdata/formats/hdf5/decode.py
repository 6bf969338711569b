"""HDF5's filters, undone outside HDF5: its lock lets one thread decode at a time, for all files.

A chunk lies in the file as one run of bytes that went through the filters in order (HDF5 File
Format Specification, III.C and IV.A.2.l); here they are undone in reverse by codecs that release
the GIL. What is not here (szip, nbit, scaleoffset, bitshuffle, Blosc2's frames) is decoded by HDF5
itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.buffers import empty
from oocdata.engines.codecs import codecs, decompress, write_chunk
from oocdata.formats.hdf5.shuffled import planes, unshuffle

__all__ = ["ChunkDecoder", "can_decode"]

DEFLATE, SHUFFLE, FLETCHER32 = 1, 2, 3
LZF, BLOSC, LZ4, ZSTD = 32000, 32001, 32004, 32015

_CODECS = {DEFLATE: "deflate", LZF: "lzf", BLOSC: "blosc", LZ4: "lz4h5", ZSTD: "zstd"}
_CHECKSUM_BYTES = 4


def can_decode(filters: tuple[int, ...]) -> bool:
    """Return whether every filter can be undone here."""
    return set(filters) <= {*_CODECS, SHUFFLE, FLETCHER32}


@dataclass(frozen=True, slots=True)
class ChunkDecoder:
    """Undoes a dataset's filters, one chunk at a time; safe to use from several threads.

    Parameters
    ----------
    filters : tuple of int
        In the order in which they were applied.
    stored : numpy.dtype
        With its byte order.
    chunk_shape : tuple of int
    """

    filters: tuple[int, ...]
    stored: np.dtype[Any]
    chunk_shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of a decoded chunk."""
        return prod(self.chunk_shape) * self.stored.itemsize

    def decode(self, data: Any, skipped: int, out: NDArray[Any]) -> None:
        """Write a chunk's numbers.

        Parameters
        ----------
        data : bytes_like
            As stored.
        skipped : int
            Bit i is set where filter i was not applied to this chunk.
        out : ndarray
            The part of the chunk that lies in the array, of any strides, in native byte order.

        Raises
        ------
        ValueError, RuntimeError
            If the bytes don't decode, or fail their checksum.
        """
        applied = [n for place, n in enumerate(self.filters) if not skipped >> place & 1]
        write_chunk(
            out, self.stored, self.chunk_shape, lambda target: self._undo(data, applied, target)
        )

    def _undo(self, data: Any, applied: list[int], target: NDArray[np.uint8]) -> None:
        left: Any = data
        while applied:
            number = applied.pop()
            if number == FLETCHER32:
                left = _checked(left)
                continue
            if number == SHUFFLE:
                into = target if not applied else empty((len(memoryview(left)),), np.uint8)
                unshuffle(left, self.stored.itemsize, into)
                left = into
                continue
            memory: NDArray[np.uint8] | None = target
            if applied:
                length = self._length(applied)
                memory = None if length is None else planes(length)
            left = decompress(_CODECS[number], left, memory)
        if left is not target:
            stored = np.frombuffer(left, np.uint8)
            if len(stored) != len(target):
                raise ValueError(f"it decodes to {len(stored)} bytes, not {len(target)}")
            target[...] = stored

    def _length(self, before: list[int]) -> int | None:
        """Return the bytes that some filters make of a chunk, if they tell."""
        if set(before) <= {SHUFFLE, FLETCHER32}:
            return self.nbytes + _CHECKSUM_BYTES * before.count(FLETCHER32)
        return None


def _checked(data: Any) -> Any:
    """Return bytes without their Fletcher-32 checksum, which must fit."""
    held = memoryview(data)
    if len(held) < _CHECKSUM_BYTES:
        raise ValueError("it is too short for its Fletcher-32 checksum")
    body, checksum = held[:-_CHECKSUM_BYTES], bytes(held[-_CHECKSUM_BYTES:])
    wanted = int.from_bytes(checksum, "little")
    found = codecs().h5checksum_fletcher32(body)
    # HDF5 before 1.6.3 wrote the bytes of each half the other way round on little-endian machines.
    swapped = int.from_bytes(bytes([checksum[1], checksum[0], checksum[3], checksum[2]]), "little")
    if found not in (wanted, swapped):
        raise ValueError("its Fletcher-32 checksum does not fit")
    return body
