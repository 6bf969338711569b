"""Write HDF5 datasets: encode chunks in threads, and write them directly to the file.

A process that is killed while HDF5 writes its own metadata leaves an unreadable file. So the
metadata stays in memory (``H5Fset_mdc_config``, evictions disabled) until a save, which closes the
file; a marker file exists meanwhile. Between saves only chunks are written, after all bytes that
the file refers to. HDF5's filters are applied here, without its lock, which would let only one
thread encode at a time, in order (HDF5 File Format Specification, III.C and IV.A.2.l).
"""

from __future__ import annotations

import os
from contextlib import closing, suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.atomic import write_errors
from oocdata.errors import SourceError
from oocdata.formats.codecs import codecs
from oocdata.formats.hdf5.file import hdf5_library
from oocdata.threads import Threads, cores, in_order
from oocdata.writers.storage import Place, pad_chunk, units_of
from oocdata.writers.target import NONE, Codec, Target

_MOST_UNSAVED = 1 << 14
"""Most chunks between two saves; until then each takes about 350 bytes of metadata in memory."""


def _create(file: Any, target: Target) -> None:
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


def _marker(path: str) -> str:
    """Return the path of the file that exists while the HDF5 file is saved."""
    return f"{path}.saving"


class Hdf5Storage:
    """A chunked dataset of a file, created or resumed, and written chunk by chunk."""

    def __init__(self, target: Target, path: str, *, done: int = 0) -> None:
        self._target, self._path = target, path
        self._file: Any = None
        self._dataset: Any = None
        self._unsaved = 0
        if not done:
            with write_errors(path, target.key), hdf5_library().File(path, "w") as file:
                _create(file, target)
        elif os.path.exists(_marker(path)):
            raise SourceError("the file was stopped while it was being saved.", path=path)
        else:
            self._open()
        self._threads = Threads(cores(), "oocdata-encode")

    def write(self, first: int, values: NDArray[Any]) -> None:
        """Encode the chunks of rows in threads, and write each as soon as it is encoded."""
        unit, stop = self._target.unit, first + len(values)
        if self._target.growing and stop > self._open().shape[0]:
            self._open().resize(stop, axis=0)

        def encode(cell: tuple[Place, NDArray[Any]]) -> tuple[Place, Any, int]:
            origin = tuple(n * step for n, step in zip(cell[0], unit, strict=True))
            return origin, *encode_chunk(self._target.codec, pad_chunk(self._target, cell[1]))

        with closing(in_order(self._threads, encode, units_of(first, values, unit))) as encoded:
            for origin, data, skipped in encoded:
                dataset = self._open()
                with write_errors(self._path, self._target.key):
                    dataset.id.write_direct_chunk(origin, data, skipped)
                self._unsaved += 1
                if self._unsaved >= _MOST_UNSAVED:
                    del dataset  # otherwise the file would stay open
                    self.save()

    def _open(self) -> Any:
        if self._dataset is None:
            with write_errors(self._path, self._target.key):
                self._file = hdf5_library().File(self._path, "r+")
            config = self._file.id.get_mdc_config()
            config.evictions_enabled = 0
            # Evictions can be disabled only if the cache is never resized.
            config.incr_mode = config.decr_mode = config.flash_incr_mode = 0
            self._file.id.set_mdc_config(config)
            self._dataset = self._file[self._target.key]
        return self._dataset

    def save(self) -> None:
        """Write HDF5's metadata to the file, and flush everything to the disk."""
        if self._file is None:
            return
        with open(self._path, "rb") as file:
            os.fsync(file.fileno())  # the chunks, before the metadata refers to them
            with open(_marker(self._path), "wb") as marker:
                os.fsync(marker.fileno())
            with write_errors(self._path, self._target.key):
                self._close_file()
            os.fsync(file.fileno())
        os.unlink(_marker(self._path))

    def close(self, rows: int) -> None:
        """Finish the dataset."""
        try:
            if self._target.growing:
                self._open().resize(rows, axis=0)
            self.save()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close the file, and end the threads."""
        self._threads.close()
        if self._file is None:
            return
        with suppress(OSError):  # the folder may be gone
            open(_marker(self._path), "wb").close()
        with suppress(OSError, RuntimeError):  # on a full disk HDF5 can't close the file either
            self._close_file()
            os.unlink(_marker(self._path))

    def _close_file(self) -> None:
        file, self._file, self._dataset, self._unsaved = self._file, None, None, 0
        if file is not None:
            file.close()
