"""HDF5's filters, undone outside HDF5: its lock lets one thread decode at a time, for all files.

A chunk lies in the file as one run of bytes that went through the filters in order (HDF5 File
Format Specification, III.C and IV.A.2.l); here they are undone in reverse by codecs that release
the GIL. What is not here (szip, nbit, scaleoffset, bitshuffle, Blosc2's frames) is decoded by HDF5
itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.buffers import empty
from oocdata.formats.codecs import codecs, decompress, write_chunk

__all__ = ["ChunkDecoder", "can_decode"]

DEFLATE, SHUFFLE, FLETCHER32 = 1, 2, 3
LZF, BLOSC, LZ4, ZSTD = 32000, 32001, 32004, 32015

_CODECS = {DEFLATE: "deflate", LZF: "lzf", BLOSC: "blosc", LZ4: "lz4h5", ZSTD: "zstd"}
_CHECKSUM_BYTES = 4


def can_decode(filters: tuple[int, ...], edges: bool) -> bool:
    """Return whether every filter can be undone here; `edges`: some chunks reach over the edge."""
    if edges and set(filters) == {SHUFFLE}:  # see `ChunkDecoder.decode`: their size tells nothing
        return False
    return set(filters) <= {*_CODECS, SHUFFLE, FLETCHER32}


@dataclass(frozen=True, slots=True)
class ChunkDecoder:
    """Undoes a dataset's filters, one chunk at a time; safe to use from several threads.

    Attributes
    ----------
    filters : tuple of int
        In the order in which they were applied.
    stored : numpy.dtype
        With its byte order.
    """

    filters: tuple[int, ...]
    stored: np.dtype[Any]
    chunk_shape: tuple[int, ...]

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
        undo = partial(self._undo, data, applied)
        try:
            write_chunk(out, self.stored, self.chunk_shape, undo)
        except (ValueError, RuntimeError):
            # Chunks that reach over the edge may be stored as they are (H5Pset_chunk_opts), which
            # nothing but their size tells.
            whole = prod(self.chunk_shape) * self.stored.itemsize
            if out.shape == self.chunk_shape or len(memoryview(data)) != whole:
                raise
            write_chunk(out, self.stored, self.chunk_shape, partial(self._undo, data, []))

    def _undo(self, data: Any, filters: list[int], target: NDArray[np.uint8]) -> None:
        left, applied = data, list(filters)
        while applied:
            number = applied.pop()
            if number == FLETCHER32:
                left = _checked(left)
            elif number == SHUFFLE:
                shuffled, left = left, target if not applied else _memory(len(memoryview(left)))
                _unshuffle(shuffled, self.stored.itemsize, left)
            elif not applied:
                left = decompress(_CODECS[number], left, target)
            elif set(applied) <= {SHUFFLE, FLETCHER32}:  # they tell how long it is
                length = len(target) + _CHECKSUM_BYTES * applied.count(FLETCHER32)
                left = decompress(_CODECS[number], left, _memory(length))
            else:
                left = decompress(_CODECS[number], left, None)
        if left is not target:
            stored = np.frombuffer(left, np.uint8)
            _same_length(len(stored), len(target))
            target[...] = stored


def _same_length(found: int, expected: int) -> None:
    if found != expected:
        raise ValueError(f"it decodes to {found} bytes, not {expected}")


def _memory(nbytes: int) -> NDArray[np.uint8]:
    return empty((nbytes,), np.uint8)


def _unshuffle(data: Any, itemsize: int, out: NDArray[np.uint8]) -> None:
    """Put byte i of every number back beside its others; a rest at the end was not shuffled.

    Blosc's vector code, given these bytes as those of a chunk that its compressor left as they are,
    is five times as fast, and the whole program 1.14 times (gzip and LZF of noise in chunks of
    128 KiB, the processor's time of NumPy iteration; less where they compress).

    Examples
    --------
    >>> out = np.empty(7, np.uint8)
    >>> _unshuffle(bytes([1, 3, 5, 2, 4, 6, 7]), 2, out)
    >>> out.tolist()
    [1, 2, 3, 4, 5, 6, 7]
    """
    shuffled = np.frombuffer(data, np.uint8)
    _same_length(len(shuffled), len(out))
    count = len(out) // itemsize
    whole = count * itemsize
    planes, numbers = shuffled[:whole].reshape(itemsize, count), out[:whole].reshape(-1, itemsize)
    if itemsize > count:
        numbers[...] = planes.T
    else:  # a third of the time of both axes at once
        for place, plane in enumerate(planes):
            numbers[:, place] = plane
    out[whole:] = shuffled[whole:]


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
