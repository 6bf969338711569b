"""Apply HDF5's filters outside HDF5, whose global lock would let only one thread encode at a time.

A chunk passes through the filters in order (HDF5 File Format Specification, III.C and IV.A.2.l).
The codecs used here release the GIL. If compression gains nothing, the chunk is stored uncompressed
and the filter is marked as skipped.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.formats.codecs import codecs
from oocdata.formats.hdf5.decode import BLOSC, DEFLATE, LZ4, LZF, SHUFFLE, ZSTD
from oocdata.writers.codec import Codec
from oocdata.writers.target import Target

__all__ = ["compress", "encode_chunk", "filters_of"]

_BLOSC_SHUFFLES = {"none": 0, "byte": 1, "bit": 2}
_BLOSC_COMPRESSORS = {"blosc-lz4": 1, "blosc-zstd": 5}


def filters_of(target: Target) -> list[tuple[int, tuple[int, ...]]]:
    """Return the id and the options of each filter, in the order in which they are applied.

    The options are those that the filters would set themselves (HDF5's filter registry and the
    plugins' sources), so that a file can be written without the plugin.

    Examples
    --------
    >>> target = Target(format="hdf5", key="/u", shape=(10, 8), dtype=np.dtype("f4"),
    ...                 chunks=(5, 8), codec=Codec("gzip", 1, "byte"))
    >>> filters_of(target)
    [(2, (4,)), (1, (1,))]
    """
    codec, itemsize = target.codec, target.dtype.itemsize
    nbytes = prod(target.chunks or (0,)) * itemsize
    if codec.name in _BLOSC_COMPRESSORS:
        shuffled, compressor = _BLOSC_SHUFFLES[codec.shuffled], _BLOSC_COMPRESSORS[codec.name]
        return [(BLOSC, (2, 2, itemsize, nbytes, codec.level, shuffled, compressor))]
    found: list[tuple[int, tuple[int, ...]]] = []
    if codec.shuffled == "byte" and itemsize > 1:
        found.append((SHUFFLE, (itemsize,)))
    if codec.name == "gzip":
        found.append((DEFLATE, (codec.level,)))
    elif codec.name == "zstd":
        found.append((ZSTD, (codec.level,)))
    elif codec.name == "lz4":
        found.append((LZ4, (0,)))
    elif codec.name == "lzf":
        found.append((LZF, (4, 0x0105, nbytes)))  # versions of h5py's filter and of LZF
    return found


def encode_chunk(codec: Codec, chunk: NDArray[Any]) -> tuple[Any, int]:
    """Return a chunk's bytes as HDF5 stores them, and a mask of skipped filters (bit i: filter i).

    Examples
    --------
    >>> data, skipped = encode_chunk(Codec("gzip", 1, "byte"), np.zeros(1000, "f4"))
    >>> len(data) < 100, skipped
    (True, 0)
    """
    raw = chunk.reshape(-1).view(np.uint8)
    compression_filter = 0
    if codec.shuffled == "byte" and chunk.itemsize > 1 and codec.name not in _BLOSC_COMPRESSORS:
        raw = np.ascontiguousarray(raw.reshape(-1, chunk.itemsize).T).reshape(-1)
        compression_filter = 1
    if codec.name == "none":
        return raw, 0
    encoded = compress(codec, raw, chunk.itemsize)
    return (encoded, 0) if len(encoded) < len(raw) else (raw, 1 << compression_filter)


def compress(codec: Codec, raw: NDArray[np.uint8], itemsize: int) -> Any:
    """Return compressed bytes; Blosc also shuffles elements of `itemsize` bytes.

    Examples
    --------
    >>> import zlib
    >>> zlib.decompress(compress(Codec("gzip", 1), np.full(3, 65, np.uint8), 1))
    b'AAA'
    """
    library = codecs()
    if codec.name in _BLOSC_COMPRESSORS:
        # For an array, Blosc uses the size of its elements, and ignores `typesize`.
        return library.blosc_encode(
            raw.view(f"V{itemsize}"),
            level=codec.level,
            compressor=codec.name.removeprefix("blosc-"),
            shuffle=_BLOSC_SHUFFLES[codec.shuffled],
            typesize=itemsize,
            numthreads=1,
        )
    if codec.name == "gzip":
        return library.deflate_encode(raw, level=codec.level)
    if codec.name == "zstd":
        return library.zstd_encode(raw, level=codec.level)
    return library.lz4h5_encode(raw) if codec.name == "lz4" else library.lzf_encode(raw)
