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
from oocdata.formats.hdf5.decode import BLOSC, LZ4, ZSTD
from oocdata.writers.codec import Codec
from oocdata.writers.target import Target

__all__ = ["compress", "encode_chunk", "filters_of"]

_BLOSC_COMPRESSORS = {"blosc-lz4": 1, "blosc-zstd": 5}


def filters_of(target: Target) -> dict[str, Any]:
    """Return the arguments of h5py's ``create_dataset`` that say which filters a dataset has.

    Options of plugins are those that they would set themselves (HDF5's filter registry and their
    sources), so that a file can be written without the plugin.

    Examples
    --------
    >>> target = Target(format="hdf5", key="/u", shape=(10, 8), dtype=np.dtype("f4"),
    ...                 chunks=(5, 8), codec=Codec("gzip", 1, True))
    >>> filters_of(target)
    {'compression': 'gzip', 'compression_opts': 1, 'shuffle': True}
    """
    codec, itemsize = target.codec, target.dtype.itemsize
    if codec.name == "none":
        return {}
    if codec.name in _BLOSC_COMPRESSORS:
        compressor = _BLOSC_COMPRESSORS[codec.name]
        nbytes = prod(target.chunks or (0,)) * itemsize
        blosc_options = (2, 2, itemsize, nbytes, codec.level, int(codec.shuffled), compressor)
        return {"compression": BLOSC, "compression_opts": blosc_options}
    number, options = {
        "gzip": ("gzip", codec.level),
        "lzf": ("lzf", None),
        "zstd": (ZSTD, (codec.level,)),
        "lz4": (LZ4, (0,)),
    }[codec.name]
    shuffle = codec.shuffled and itemsize > 1
    return {"compression": number, "compression_opts": options, "shuffle": shuffle}


def encode_chunk(codec: Codec, chunk: NDArray[Any]) -> tuple[Any, int]:
    """Return a chunk's bytes as HDF5 stores them, and a mask of skipped filters (bit i: filter i).

    Examples
    --------
    >>> data, skipped = encode_chunk(Codec("gzip", 1, True), np.zeros(1000, "f4"))
    >>> len(data) < 100, skipped
    (True, 0)
    """
    raw = chunk.reshape(-1).view(np.uint8)
    compression_filter = 0
    if codec.shuffled and chunk.itemsize > 1 and codec.name not in _BLOSC_COMPRESSORS:
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
            shuffle=int(codec.shuffled),
            typesize=itemsize,
            numthreads=1,
        )
    if codec.name == "gzip":
        return library.deflate_encode(raw, level=codec.level)
    if codec.name == "zstd":
        return library.zstd_encode(raw, level=codec.level)
    return library.lz4h5_encode(raw) if codec.name == "lz4" else library.lzf_encode(raw)
