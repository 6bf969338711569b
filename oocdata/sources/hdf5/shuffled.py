"""Shuffled bytes and bits put back: what HDF5's filters `shuffle` and `bitshuffle` did.

Bytes are put back by Blosc's own vector code, which is three to four times as fast as strided
copies: shuffled bytes are what a Blosc chunk holds whose compressor left them as they are, so
sixteen bytes of header and eight of addresses before them make one of them (Blosc 1 chunk format,
README_CHUNK_FORMAT.rst).
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.sources import buffers
from oocdata.sources.codecs import codecs, decompress

__all__ = ["Planes", "bitunshuffle", "fits_one_tile", "unshuffle"]

_HEADER_BYTES = 24
_FORMAT_VERSION, _CODEC_VERSION = 2, 1
_SHUFFLED, _ONE_STREAM, _LZ4 = 0x01, 0x10, 1 << 5
_TILE_BYTES = 1 << 18
"""A longer chunk is put back in parts that fit into the processor's cache."""

_BITSHUFFLE_CODECS = {2: "lz4", 3: "zstd"}
_BITSHUFFLE_HEADER_BYTES = 12
_BITSHUFFLE_GROUP = 8
"""Elements whose bits are exchanged; what is left over stays as it is."""


class Planes:
    """Memory for shuffled bytes with room for a Blosc header before it.

    Parameters
    ----------
    nbytes : int

    Attributes
    ----------
    body : ndarray of uint8, shape (nbytes,)
    """

    __slots__ = ("_whole", "body")

    def __init__(self, nbytes: int) -> None:
        self._whole = buffers.empty((_HEADER_BYTES + nbytes,), np.uint8)
        self.body: NDArray[np.uint8] = self._whole[_HEADER_BYTES:]

    def unshuffle(self, itemsize: int, out: NDArray[np.uint8]) -> None:
        """Write the elements to `out`; bytes left over at the end come last as they are."""
        self._whole[:_HEADER_BYTES] = _header(len(self.body), itemsize)
        codecs().blosc_decode(self._whole, out=out)


@lru_cache(maxsize=64)
def _header(nbytes: int, itemsize: int) -> NDArray[np.uint8]:
    flags = _SHUFFLED | _ONE_STREAM | _LZ4
    sizes = nbytes, nbytes, _HEADER_BYTES + nbytes  # decoded, of the one block, encoded
    block = 20, nbytes  # where it begins and how long it is: as long as decoded, so as it is
    packed = struct.pack(
        "<BBBBIIIII", _FORMAT_VERSION, _CODEC_VERSION, flags, itemsize, *sizes, *block
    )
    return np.frombuffer(packed, np.uint8)


def unshuffle(planes: NDArray[np.uint8], itemsize: int, out: NDArray[np.uint8]) -> None:
    """Put byte i of every element back beside its others (HDF5's shuffle filter).

    Parameters
    ----------
    planes, out : ndarray of uint8, shape (nbytes,)
        `planes` holds the first byte of every element, then the second of every one, ….
    itemsize : int
        Bytes of an element. What is left over at the end was not shuffled.

    Raises
    ------
    ValueError
        If the lengths differ.

    Examples
    --------
    >>> out = np.empty(7, np.uint8)
    >>> unshuffle(np.array([1, 3, 5, 2, 4, 6, 7], np.uint8), 2, out)
    >>> out.tolist()
    [1, 2, 3, 4, 5, 6, 7]
    """
    if len(planes) != len(out):
        raise ValueError(f"it decodes to {len(planes)} bytes, not {len(out)}")
    count = len(planes) // itemsize
    rows = planes[: count * itemsize].reshape(itemsize, count)
    step = max(1, _TILE_BYTES // itemsize)
    for start in range(0, count, step):
        stop = min(start + step, count)
        tile = Planes((stop - start) * itemsize)
        tile.body.reshape(itemsize, -1)[...] = rows[:, start:stop]
        tile.unshuffle(itemsize, out[start * itemsize : stop * itemsize])
    out[count * itemsize :] = planes[count * itemsize :]


def fits_one_tile(nbytes: int) -> bool:
    """Return whether shuffled bytes are best decoded into `Planes` to be put back from there."""
    return nbytes <= _TILE_BYTES


def bitunshuffle(
    data: Any, options: tuple[int, ...], out: NDArray[np.uint8] | None
) -> NDArray[np.uint8]:
    """Undo the bitshuffle filter (number 32008), with its compression if it has one.

    A compressed chunk begins with its decoded length as uint64 and the length of its blocks as
    uint32, both big-endian; each block with its compressed length as uint32. Elements that make no
    group of eight follow the last block as they are (bitshuffle's bshuf_h5filter.c).

    Parameters
    ----------
    data : bytes_like
    options : tuple of int
        As the file gives them: two of version, bytes of an element, elements of a block (0: by
        default), and 0, 2 for LZ4 or 3 for Zstandard.
    out : ndarray of uint8 or None
        Where the bytes go, if it is known how many they are.

    Returns
    -------
    ndarray of uint8
        The bytes; `out` if it was given.

    Raises
    ------
    ValueError, RuntimeError
        If the bytes don't decode, or not to as many as `out` has.
    """
    _, _, itemsize, elements, compression, *_ = (*options, 0, 0, 0, 0, 0)
    if not itemsize:
        raise ValueError(f"its bitshuffle filter has the options {options}, which say too little")
    held = memoryview(data).cast("B")
    bits, block = np.frombuffer(held, np.uint8), elements * itemsize
    if compression:
        bits, block = _decompress_blocks(held, compression, itemsize * _BITSHUFFLE_GROUP, out)
    if out is None:
        out = np.empty(len(bits), np.uint8)
    elif len(bits) != len(out):
        raise ValueError(f"it decodes to {len(bits)} bytes, not {len(out)}")
    whole = len(out) - len(out) % (itemsize * _BITSHUFFLE_GROUP)
    if whole:
        # Of an array, the elements' size counts and the argument does not.
        one = f"V{itemsize}"
        codecs().bitshuffle_decode(
            bits[:whole].view(one), blocksize=block // itemsize, out=out[:whole].view(one)
        )
    out[whole:] = bits[whole:]
    return out


def _decompress_blocks(
    held: memoryview, compression: int, group: int, out: NDArray[np.uint8] | None
) -> tuple[NDArray[np.uint8], int]:
    """Return the bytes of all blocks, and the bytes of one."""
    if compression not in _BITSHUFFLE_CODECS:
        raise ValueError(f"its bitshuffle filter has the unknown compression {compression}")
    if len(held) < _BITSHUFFLE_HEADER_BYTES:
        raise ValueError("it is too short for its bitshuffle header")
    length, block = (int(number) for number in struct.unpack_from(">QI", held))
    if block == 0 or block % group or (out is not None and length != len(out)):
        raise ValueError(f"its bitshuffle header says {length} bytes in blocks of {block}")
    try:
        bits = buffers.empty((length,), np.uint8) if out is not None else np.empty(length, np.uint8)
    except (MemoryError, OverflowError, ValueError) as error:
        raise ValueError("it says that it decodes to more than memory holds") from error
    whole, at = length - length % group, _BITSHUFFLE_HEADER_BYTES
    for start in range(0, whole, block):
        size = int.from_bytes(held[at : at + 4], "big")
        at += 4
        if size == 0 or at + size > len(held):
            raise ValueError("it ends before its last block does")
        decompress(
            _BITSHUFFLE_CODECS[compression],
            held[at : at + size],
            bits[start : min(start + block, whole)],
        )
        at += size
    if len(held) - at != length - whole:
        raise ValueError(f"{len(held) - at} bytes follow its last block")
    bits[whole:] = np.frombuffer(held[at:], np.uint8)
    return bits, block
