"""Codecs that undo compression outside the library that wrote it: they release the GIL."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from io import BytesIO
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.buffers import empty

__all__ = ["StoredBytes", "codecs", "decompress", "grid_of", "write_chunk"]

_BLOSC_HEADER_BYTES = 16


def codecs() -> Any:
    """Return imagecodecs, whose decoders write where they are told; it takes long to import."""
    import imagecodecs

    return imagecodecs


def decompress(codec: str, data: Any, out: NDArray[np.uint8] | None) -> Any:
    """Return the bytes that a codec made `data` of; in `out`, if it is known how many they are.

    Codecs have the names of imagecodecs: ``"deflate"`` (zlib's format), ``"gzip"``, ``"zstd"``, …;
    or ``"crc32c"``, a checksum behind the bytes; empty for bytes that are as they were. Bytes that
    don't decode, or not to as many as `out` has, are a `ValueError` or `RuntimeError`.

    Examples
    --------
    >>> import zlib
    >>> decompress("deflate", zlib.compress(b"abc"), np.empty(3, np.uint8)).tobytes()
    b'abc'
    """
    if codec == "blosc":
        _check_blosc(data)
    if codec == "crc32c":
        data = _checked(data)
    if codec in ("", "crc32c"):
        return _copied(data, out)
    decode = getattr(codecs(), f"{codec}_decode")
    if out is None:
        try:
            return decode(data)
        except MemoryError as error:
            raise ValueError("it says that it decodes to more than memory holds") from error
    result = decode(data, out=out)
    length = len(result) if result is not None else len(out)
    if codec == "gzip" and length < len(out):  # libdeflate reads the first member alone
        length = _gunzip(data, out)
    if length != len(out):
        raise ValueError(f"it decodes to {length} bytes, not {len(out)}")
    return out


def _checked(data: Any) -> memoryview:
    """Return bytes without the CRC-32C behind them, which they must have."""
    from google_crc32c import value  # not for `import oocdata`

    whole = memoryview(data)
    if len(whole) < 4 or value(bytes(whole[:-4])) != int.from_bytes(whole[-4:], "little"):
        raise ValueError("it is not what its checksum says")
    return whole[:-4]


def _copied(data: Any, out: NDArray[np.uint8] | None) -> Any:
    if out is None:
        return data
    if len(data) != len(out):
        raise ValueError(f"it has {len(data)} bytes, not {len(out)}")
    out[:] = np.frombuffer(data, np.uint8)
    return out


def _gunzip(data: Any, out: NDArray[np.uint8]) -> int:
    """Decode all members of a gzip stream (RFC 1952), as bgzip writes; return how many bytes.

    What is beyond `out` is counted up to one byte, not kept.
    """
    with gzip.GzipFile(fileobj=BytesIO(data)) as members:
        try:
            found = members.read(len(out) + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(str(error)) from error
    out[: len(found)] = np.frombuffer(found, np.uint8)[: len(out)]
    return len(found)


def _check_blosc(data: Any) -> None:
    """Check what Blosc's decoder believes: the length in the header (Blosc 1 format).

    It would read on beyond the end of a chunk that was cut short, and take the process with it.
    """
    size = len(memoryview(data))
    said = int.from_bytes(data[12:16], "little") if size >= _BLOSC_HEADER_BYTES else 0
    if said != size:
        raise ValueError(f"its Blosc header says {said} bytes, but it has {size}")


def grid_of(shape: tuple[int, ...], chunk_shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return how many chunks there are along each axis.

    Examples
    --------
    >>> grid_of((10, 3), (4, 3))
    (3, 1)
    """
    return tuple(-(-length // step) for length, step in zip(shape, chunk_shape, strict=True))


class StoredBytes:
    """Memory for the stored bytes of one chunk at a time: each call reuses it.

    With a block of the pool for each chunk, an epoch of zstd chunks of 128 KiB took 1.06 times the
    CPU time.

    Examples
    --------
    >>> memory = StoredBytes()
    >>> len(memory(100)), len(memory(7))
    (100, 7)
    """

    def __init__(self) -> None:
        self._block = memoryview(b"")

    def __call__(self, nbytes: int) -> memoryview:
        """Return memory of so many bytes, not cleared."""
        if len(self._block) < nbytes:
            self._block = memoryview(b"")  # first: there is one block at a time
            # Chunks differ in length; powers of two let the pool use the same blocks again.
            self._block = empty((1 << (nbytes - 1).bit_length(),), np.uint8).data
        return self._block[:nbytes]


def write_chunk(
    out: NDArray[Any],
    stored: np.dtype[Any],
    chunk_shape: tuple[int, ...],
    decode: Callable[[NDArray[np.uint8]], None],
) -> None:
    """Decode a chunk straight into its place where that is one run of bytes as stored.

    `out` is the part of the chunk that lies in the array, of any strides, in native byte order;
    `stored` has the byte order that is stored. `decode` fills the bytes of a whole chunk.

    Examples
    --------
    >>> out = np.empty(3, "i2")
    >>> write_chunk(out, np.dtype(">i2"), (4,), lambda target: target.__setitem__(..., [0, 1] * 4))
    >>> out
    array([1, 1, 1], dtype=int16)
    """
    nbytes = prod(chunk_shape) * stored.itemsize
    if out.flags.c_contiguous and out.nbytes == nbytes and out.dtype == stored:
        decode(out.reshape(-1).view(np.uint8))
        return
    whole = empty((nbytes,), np.uint8)
    decode(whole)
    elements = whole.view(stored).reshape(chunk_shape)
    out[...] = elements[tuple(slice(0, length) for length in out.shape)]
