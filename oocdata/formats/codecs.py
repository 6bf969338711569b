"""Decompress chunks with codecs that release the GIL."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.buffers import scratch_memory
from oocdata.engines.gather.grid import chunk_grid
from oocdata.engines.runs import UnfinishedError
from oocdata.errors import DamagedChunkError, SourceError, TruncatedFileError

__all__ = [
    "chunk_error", "chunk_grid", "codecs", "copy_chunk", "decompress", "numbers_of",
    "numcodec", "write_chunk",
]  # fmt: skip

_BLOSC_HEADER_BYTES = 16

_LZF_RATIO = 88
"""Most bytes that a byte of LZF stands for, as 3 stand for 264; imagecodecs expects fewer."""


def chunk_error(error: Exception, **location: Any) -> SourceError:
    """Return the error for a stored chunk that can't be read or decoded.

    `location` has the arguments of a `SourceError` for the chunk.
    """
    reason = error.cause if isinstance(error, UnfinishedError) else error
    if reason is None:
        message = "the file must hold every byte of a chunk; it ends before. Was it cut short?"
        return TruncatedFileError(message, **location)
    if isinstance(reason, SourceError):  # lacks only dataset and rows
        return type(reason)(reason.message, **{**location, "path": reason.path or location["path"]})
    text = str(reason).rstrip(".")
    if isinstance(reason, ValueError | RuntimeError):
        return DamagedChunkError(
            f"a chunk must decode; {text}. Its bytes are damaged: restore the file.", **location
        )
    return SourceError(f"a chunk must be readable; {text}.", **location)


def codecs() -> Any:
    """Import and return imagecodecs, which is slow to import; its decoders write into a buffer."""
    import imagecodecs

    return imagecodecs


def decompress(codec: str, data: Any, out: NDArray[np.uint8] | None) -> Any:
    """Return the decoded bytes of `data`; in `out`, if their number is known.

    Codecs have the names of imagecodecs: ``"deflate"`` (zlib's format), ``"gzip"``, ``"zstd"``, …;
    ``"crc32c"`` is a checksum after the bytes. A JSON object is the configuration of a codec of
    numcodecs. Raises `ValueError` or `RuntimeError` for bytes that don't decode, or to another
    length than `out`'s.
    """
    if codec == "blosc":
        _check_blosc(data)
    if codec == "crc32c":
        data = _checked(data)
    if codec.startswith("{"):
        data = np.ascontiguousarray(numbers_of(codec, data)).reshape(-1).view(np.uint8)
    if codec == "crc32c" or codec.startswith("{"):
        if out is None:
            return data
        copy_chunk(out, out.dtype, out.shape, data)
        return out
    decode = getattr(codecs(), f"{codec}_decode")
    if out is None:
        try:
            return decode(data, out=_LZF_RATIO * len(data)) if codec == "lzf" else decode(data)
        except MemoryError as error:
            raise ValueError("it says that it decodes to more than memory holds") from error
    result = decode(data, out=out)
    length = len(result) if result is not None else len(out)
    if length != len(out):
        raise ValueError(f"it decodes to {length} bytes, not {len(out)}")
    return out


@lru_cache
def numcodec(configuration: str) -> Any:
    """Return the codec of numcodecs with a configuration (JSON); `ValueError` if unknown.

    ``pickle`` counts as unknown: decoding would run any code that a stranger's file holds.
    """
    import numcodecs  # not for `import oocdata`

    options = json.loads(configuration)
    if options["id"] == "pickle":
        raise ValueError("pickles are not decoded")
    return numcodecs.get_codec(options)


def numbers_of(configuration: str, data: Any) -> NDArray[Any]:
    """Decode bytes by a codec of numcodecs; return an array of its own shape and dtype."""
    codec = numcodec(configuration)
    try:
        decoded = codec.decode(data)
    except MemoryError:
        raise
    except Exception as error:  # each codec has its own: zlib.error, LZMAError, …
        raise ValueError(f"{type(error).__name__}: {error}") from error
    return decoded if isinstance(decoded, np.ndarray) else np.frombuffer(decoded, np.uint8)


def _checked(data: Any) -> memoryview:
    """Verify the CRC-32C at the end of bytes, and return the bytes without it."""
    from google_crc32c import value  # not for `import oocdata`

    view = memoryview(data)
    if len(view) < 4 or value(bytes(view[:-4])) != int.from_bytes(view[-4:], "little"):
        raise ValueError("its checksum does not fit")
    return view[:-4]


def _check_blosc(data: Any) -> None:
    """Raise if the length in a Blosc header (Blosc 1 format) is wrong.

    Blosc's decoder trusts it: it would read beyond the end of a truncated chunk, and may crash.
    """
    size = len(memoryview(data))
    length = int.from_bytes(data[12:16], "little") if size >= _BLOSC_HEADER_BYTES else 0
    if length != size:
        raise ValueError(f"its Blosc header says {length} bytes, but it has {size}")


def write_chunk(
    out: NDArray[Any],
    stored: np.dtype[Any],
    chunk_shape: tuple[int, ...],
    decode: Callable[[NDArray[np.uint8]], None],
) -> None:
    """Decode a chunk into `out`: directly if `out` has the chunk's memory layout, else by a copy.

    `out` is the part of the chunk that is inside the array, with any strides and in native byte
    order; `stored` is the stored dtype. `decode` fills the bytes of a whole chunk.
    """
    nbytes = prod(chunk_shape) * stored.itemsize
    if out.flags.c_contiguous and out.nbytes == nbytes and out.dtype == stored:
        decode(out.reshape(-1).view(np.uint8))
        return
    whole = scratch_memory((nbytes,), np.uint8)
    decode(whole)
    copy_chunk(out, stored, chunk_shape, whole)


def copy_chunk(
    out: NDArray[Any], stored: np.dtype[Any], chunk_shape: tuple[int, ...], data: Any
) -> None:
    """Copy the decoded bytes of a whole chunk into `out`; see `write_chunk`."""
    nbytes, found = prod(chunk_shape) * stored.itemsize, len(memoryview(data))
    if found != nbytes:
        raise ValueError(f"it has {found} bytes, not {nbytes}")
    elements = np.frombuffer(data, stored).reshape(chunk_shape)
    out[...] = elements[tuple(map(slice, out.shape))]
