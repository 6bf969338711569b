"""Write HDF5 datasets: encode chunks in threads, and write them directly to the file.

HDF5's filters are applied here, without its lock, which would let only one thread encode at a time,
in order (HDF5 File Format Specification, III.C and IV.A.2.l). A process that is killed while HDF5
writes its own metadata leaves an unreadable file, so an array in HDF5 is never resumed.
"""

from __future__ import annotations

from contextlib import closing, suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.atomic import write_errors
from oocdata.formats.codecs import codecs
from oocdata.formats.hdf5.file import hdf5_library
from oocdata.threads import Threads, cores, in_order
from oocdata.writers.storage import Place, pad_chunk, units_of
from oocdata.writers.target import NONE, Codec, Target


class Hdf5Storage:
    """A chunked dataset of a new file."""

    def __init__(self, target: Target, path: str) -> None:
        self._target, self._path = target, path
        with write_errors(path, target.key):
            self._file = hdf5_library().File(path, "w")
            self._dataset = _created(self._file, target)
        self._threads = Threads(cores(), "oocdata-encode")

    def write(self, first: int, values: NDArray[Any]) -> None:
        """Encode the chunks of rows in threads, and write each as soon as it is encoded."""
        unit, stop = self._target.unit, first + len(values)

        def encode(cell: tuple[Place, NDArray[Any]]) -> tuple[Place, Any, int]:
            origin = tuple(n * step for n, step in zip(cell[0], unit, strict=True))
            return origin, *encode_chunk(self._target.codec, pad_chunk(self._target, cell[1]))

        with (
            write_errors(self._path, self._target.key),
            closing(in_order(self._threads, encode, units_of(first, values, unit))) as encoded,
        ):
            if self._target.growing and stop > len(self._dataset):
                self._dataset.resize(stop, axis=0)
            for origin, data, skipped in encoded:
                self._dataset.id.write_direct_chunk(origin, data, skipped)

    def save(self) -> None:
        """Write HDF5's metadata to the file."""
        with write_errors(self._path, self._target.key):
            self._file.flush()

    def close(self, rows: int) -> None:
        """Finish the dataset."""
        try:
            with write_errors(self._path, self._target.key):
                if self._target.growing:
                    self._dataset.resize(rows, axis=0)
                self._file.close()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close the file, and end the threads."""
        self._threads.close()
        with suppress(OSError, RuntimeError):  # on a full disk HDF5 can't close the file either
            self._file.close()


def _created(file: Any, target: Target) -> Any:
    """Return a new dataset."""
    codec = target.codec
    filters: dict[str, Any] = {}
    if codec != NONE:
        shuffle = codec.shuffled and target.dtype.itemsize > 1
        filters = {"compression": codec.name, "compression_opts": codec.level, "shuffle": shuffle}
    dataset = file.create_dataset(
        target.key,
        target.shape,
        target.dtype,
        chunks=target.chunks,
        maxshape=tuple(length or None for length in target.shape),  # None: unlimited
        fillvalue=np.array(target.fill_value or np.zeros((), target.dtype), target.dtype),
        fill_time="never",
        **filters,
    )
    dataset.attrs.update(target.attributes)
    for axis, dimension in enumerate(target.dimension_names or ()):
        if dimension:
            dataset.dims[axis].label = dimension
    return dataset


def encode_chunk(codec: Codec, chunk: NDArray[Any]) -> tuple[Any, int]:
    """Return a chunk's bytes as HDF5 stores them, and a mask of skipped filters (bit i: filter i).

    Compression that gains nothing is skipped.
    """
    raw = chunk.reshape(-1).view(np.uint8)
    if codec == NONE:
        return raw, 0
    is_shuffled = codec.shuffled and chunk.itemsize > 1
    if is_shuffled:
        raw = np.ascontiguousarray(raw.reshape(-1, chunk.itemsize).T).reshape(-1)
    encoded = codecs().deflate_encode(raw, level=codec.level)
    return (encoded, 0) if len(encoded) < len(raw) else (raw, 1 << is_shuffled)
