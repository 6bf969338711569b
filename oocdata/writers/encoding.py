"""HDF5's filters, applied outside HDF5: its lock lets one thread encode at a time, for all files.

A chunk goes through the filters in order (HDF5 File Format Specification, III.C and IV.A.2.l), here
by codecs that release the GIL. Where compression gains nothing, the chunk is stored as it is, and
the filter marked as not applied.
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
    """Return the number and the options of each filter, in the order in which they are applied.

    The options are those that the filters give themselves (HDF5's filter registry and the plugins'
    sources), so that a file can be written where a plugin is not installed.

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
        found.append((LZF, (4, 0x0105, nbytes)))  # of h5py's filter, and of LZF itself
    return found


def encode_chunk(codec: Codec, chunk: NDArray[Any]) -> tuple[Any, int]:
    """Return a whole chunk's bytes as HDF5 stores them, and bit i where filter i was not applied.

    Examples
    --------
    >>> data, skipped = encode_chunk(Codec("gzip", 1, "byte"), np.zeros(1000, "f4"))
    >>> len(data) < 100, skipped
    (True, 0)
    """
    raw = chunk.reshape(-1).view(np.uint8)
    place = 0
    if codec.shuffled == "byte" and chunk.itemsize > 1 and codec.name not in _BLOSC_COMPRESSORS:
        raw = np.ascontiguousarray(raw.reshape(-1, chunk.itemsize).T).reshape(-1)
        place = 1
    if codec.name == "none":
        return raw, 0
    encoded = compress(codec, raw, chunk.itemsize)
    return (encoded, 0) if len(encoded) < len(raw) else (raw, 1 << place)


def compress(codec: Codec, raw: NDArray[np.uint8], itemsize: int) -> Any:
    """Return compressed bytes; only Blosc shuffles here, elements of `itemsize` bytes.

    Examples
    --------
    >>> import zlib
    >>> zlib.decompress(compress(Codec("gzip", 1), np.full(3, 65, np.uint8), 1))
    b'AAA'
    """
    library = codecs()
    if codec.name in _BLOSC_COMPRESSORS:
        # Of an array, its elements' size counts, and the argument does not.
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
