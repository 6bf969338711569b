"""HDF5's filters, undone outside HDF5: its lock lets one thread decode at a time, for all files.

A chunk lies in the file as one run of bytes that went through the filters in order (HDF5 File
Format Specification, III.C and IV.A.2.l); here they are undone in reverse by codecs that release
the GIL. What is not here is decoded by HDF5 itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.errors import MissingDependencyError

__all__ = ["ChunkDecoder", "can_decode"]

DEFLATE, SHUFFLE, FLETCHER32, LZF, BLOSC, LZ4, ZSTD = 1, 2, 3, 32000, 32001, 32004, 32015

_CHECKSUM_BYTES = 4
_BLOSC_HEADER_BYTES = 16


def can_decode(filters: tuple[int, ...]) -> bool:
    """Return whether every filter can be undone here."""
    return set(filters) <= {DEFLATE, SHUFFLE, FLETCHER32, LZF, BLOSC, LZ4, ZSTD}


def _codecs() -> Any:
    try:
        import imagecodecs
    except ImportError as error:
        raise MissingDependencyError(
            "chunks are decoded by imagecodecs, which can't be imported here. Install it: "
            "pip install imagecodecs."
        ) from error
    return imagecodecs


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

    def decode(self, data: bytes, skipped: int, out: NDArray[Any]) -> None:
        """Write a chunk's elements.

        Parameters
        ----------
        data : bytes
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
        applied = [number for place, number in enumerate(self.filters) if not skipped >> place & 1]
        # Straight into its place where that is one run of bytes as stored.
        direct = out.flags.c_contiguous and out.nbytes == self.nbytes and self.stored.isnative
        target = out.reshape(-1).view(np.uint8) if direct else np.empty(self.nbytes, np.uint8)
        self._undo(data, applied, target)
        if not direct:
            whole = target.view(self.stored).reshape(self.chunk_shape)
            out[...] = whole[tuple(slice(0, length) for length in out.shape)]

    def _undo(self, data: bytes, applied: list[int], target: NDArray[np.uint8]) -> None:
        left: Any = data
        while applied:
            number = applied.pop()
            if number == FLETCHER32:
                left = _checked(left)
            elif number == SHUFFLE:
                planes = np.frombuffer(left, np.uint8)
                left = target if not applied else np.empty(len(planes), np.uint8)
                _unshuffle(planes, self.stored.itemsize, left)
            else:
                into = target if not applied else self._expected(applied)
                left = _decompressed(number, left, into)
        if left is not target:
            stored = np.frombuffer(left, np.uint8)
            if len(stored) != len(target):
                raise ValueError(f"it decodes to {len(stored)} bytes, not {len(target)}")
            target[...] = stored

    def _expected(self, applied: list[int]) -> NDArray[np.uint8] | None:
        """Return memory for what went through filters, if they tell how long that is."""
        if set(applied) <= {SHUFFLE, FLETCHER32}:
            return np.empty(self.nbytes + _CHECKSUM_BYTES * applied.count(FLETCHER32), np.uint8)
        return None


def _decompressed(number: int, data: Any, out: NDArray[np.uint8] | None) -> Any:
    codecs = _codecs()
    decode = {
        DEFLATE: codecs.deflate_decode,
        LZF: codecs.lzf_decode,
        BLOSC: codecs.blosc_decode,
        LZ4: codecs.lz4h5_decode,
        ZSTD: codecs.zstd_decode,
    }[number]
    if number == BLOSC:
        _check_blosc(data)
    if out is None:
        try:
            return decode(data)
        except MemoryError as error:
            raise ValueError("it says that it decodes to more than memory holds") from error
    result = decode(data, out=out)
    length = len(result) if result is not None else len(out)
    if length != len(out):
        raise ValueError(f"it decodes to {length} bytes, not {len(out)}")
    return out


def _check_blosc(data: Any) -> None:
    """Check what Blosc's decoder believes: the length in the header (Blosc 1 format).

    It would read on beyond the end of a chunk that was cut short, and take the process with it.
    """
    size = len(memoryview(data))
    said = int.from_bytes(data[12:16], "little") if size >= _BLOSC_HEADER_BYTES else 0
    if said != size:
        raise ValueError(f"its Blosc header says {said} bytes, but it has {size}")


def _unshuffle(planes: NDArray[np.uint8], itemsize: int, out: NDArray[np.uint8]) -> None:
    """Put byte i of every element back beside its others (HDF5's shuffle filter)."""
    if len(planes) != len(out):
        raise ValueError(f"it decodes to {len(planes)} bytes, not {len(out)}")
    count = len(planes) // itemsize
    elements = out[: count * itemsize].reshape(count, itemsize)
    for place in range(itemsize):
        elements[:, place] = planes[place * count : (place + 1) * count]
    out[count * itemsize :] = planes[count * itemsize :]


def _checked(data: Any) -> Any:
    """Return bytes without their Fletcher-32 checksum, which must fit."""
    held = memoryview(data)
    if len(held) < _CHECKSUM_BYTES:
        raise ValueError("it is too short for its Fletcher-32 checksum")
    body, checksum = held[:-_CHECKSUM_BYTES], bytes(held[-_CHECKSUM_BYTES:])
    wanted = int.from_bytes(checksum, "little")
    found = _codecs().h5checksum_fletcher32(body)
    # HDF5 before 1.6.3 wrote the bytes of each half the other way round on little-endian machines.
    swapped = int.from_bytes(bytes([checksum[1], checksum[0], checksum[3], checksum[2]]), "little")
    if found not in (wanted, swapped):
        raise ValueError("its Fletcher-32 checksum does not fit")
    return body
