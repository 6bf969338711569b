"""HDF5: chunks encoded in threads and handed to HDF5 as they are; contiguous rows beside it.

A process that is killed while HDF5 changes its own structures leaves a file that nobody can read.
So these stay in memory (``H5Fset_mdc_config``, evictions disabled) until a save: it closes the
file, after noting that it does, so that whoever goes on knows whether it was interrupted. Between
saves only chunks come to the file, behind all that it refers to. What stays in memory grows with
the number of chunks, so there is a save whenever they are many.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.errors import ArgumentError, SourceError
from oocdata.formats.hdf5.file import hdf5_library, said
from oocdata.threads import cores, in_order
from oocdata.writers.disk import writable
from oocdata.writers.encoding import encode_chunk, filters_of
from oocdata.writers.flat import FlatStorage
from oocdata.writers.storage import Storage, cells, padded, relative
from oocdata.writers.target import Box, Target

__all__ = ["Hdf5Storage", "open_hdf5_storage"]

_MOST_UNSAVED = 1 << 14
"""Chunks between two saves: each takes about 350 bytes of HDF5's structures in memory until then.
"""

_DIMENSIONS_OWN = ("DIMENSION_LABELS", "DIMENSION_LIST", "REFERENCE_LIST")
"""Attributes of HDF5's dimension scales, which end the process where they find others there."""


def open_hdf5_storage(target: Target, path: str, *, resume: bool = False) -> Storage:
    """Create a dataset in a file, which may be there, or go on with one; see `open_storage`."""
    if resume:
        if os.path.exists(_mark(path)):
            raise SourceError("the file was stopped while it was being saved.", path=path)
    else:
        library = hdf5_library()
        mode = "r+" if library.is_hdf5(path) else "w"  # an empty file may be there, for its mode
        with writable(path, target.key), library.File(path, mode) as file:
            _create(file, target)
    if target.chunks is not None:
        return Hdf5Storage(target, path, resume=resume)
    with hdf5_library().File(path, "r") as file:
        offset = file[target.key].id.get_offset()
    # An array without elements has no place.
    return FlatStorage(target, path, offset or 0)


def _create(file: Any, target: Target) -> None:
    library = hdf5_library()
    key = target.key or "/data"
    if key in file:
        del file[key]
    group, _, name = key.strip("/").rpartition("/")
    parent = file.require_group(group) if group else file
    made = library.h5p.create(library.h5p.DATASET_CREATE)
    made.set_fill_value(np.array(target.fill_value or 0, target.dtype))
    made.set_fill_time(library.h5d.FILL_TIME_NEVER)
    most: tuple[Any, ...] = target.shape
    if target.chunks is None:
        made.set_layout(library.h5d.CONTIGUOUS)
        made.set_alloc_time(library.h5d.ALLOC_TIME_EARLY)
    else:
        made.set_chunk(target.chunks)
        for number, options in filters_of(target):
            made.set_filter(number, library.h5z.FLAG_OPTIONAL, options)
        if target.growing:
            most = (library.h5s.UNLIMITED, *target.element)
    space = library.h5s.create_simple(target.shape, most)
    kind = library.h5t.py_create(target.dtype, logical=True)
    created = library.h5d.create(parent.id, name.encode(), kind, space, made)
    dataset = library.Dataset(created)
    for attribute, value in target.attributes:
        if attribute in _DIMENSIONS_OWN:
            raise ArgumentError(
                f"an attribute in HDF5 must not be named {attribute!r}, by which dimensions are "
                "told; give `dimension_names`."
            )
        try:
            dataset.attrs[attribute] = value
        except (TypeError, ValueError, OSError) as error:
            raise ArgumentError(
                f"`attributes` must be what HDF5 can hold; {attribute!r} is not: {said(error)}."
            ) from error
    for axis, dimension in enumerate(target.dimension_names or ()):
        if dimension:
            dataset.dims[axis].label = dimension


def _mark(path: str) -> str:
    return f"{path}.saving"


class Hdf5Storage:
    """A chunked dataset of a file, written chunk by chunk."""

    def __init__(self, target: Target, path: str, *, resume: bool = False) -> None:
        self._target, self._path = target, path
        self._file: Any = None
        self._dataset: Any = None
        self._unsaved = 0
        if resume:
            self._open()
        self._threads = ThreadPoolExecutor(cores(), "oocdata-encode")

    def write(self, box: Box, values: NDArray[Any]) -> None:
        """Encode the chunks of a box in threads, and write each as soon as it is."""
        if self._target.growing and box[0].stop > self._open().shape[0]:
            self._open().resize(box[0].stop, axis=0)

        chunks = self._target.chunks or ()

        def encode(cell: Box) -> tuple[tuple[int, ...], Any, int]:
            whole = padded(self._target, chunks, values[relative(cell, box)])
            place = tuple(part.start for part in cell)
            return place, *encode_chunk(self._target.codec, whole)

        with closing(in_order(self._threads, encode, cells(box, chunks))) as encoded:
            for place, data, skipped in encoded:
                dataset = self._open()
                with writable(self._path, self._target.key):
                    dataset.id.write_direct_chunk(place, data, skipped)
                self._unsaved += 1
                if self._unsaved >= _MOST_UNSAVED:
                    del dataset  # or the file would stay open
                    self.save()

    def _open(self) -> Any:
        if self._dataset is None:
            with writable(self._path, self._target.key):
                self._file = hdf5_library().File(self._path, "r+")
            kept = self._file.id.get_mdc_config()
            # Evictions can be disabled only where nothing resizes the cache.
            kept.evictions_enabled = kept.incr_mode = kept.decr_mode = kept.flash_incr_mode = 0
            self._file.id.set_mdc_config(kept)
            self._dataset = self._file[self._target.key]
        return self._dataset

    def save(self) -> None:
        """Bring HDF5's structures to the file, and wait until the disk has it all."""
        if self._file is None:
            return
        with open(self._path, "rb") as file:
            os.fsync(file.fileno())  # the chunks, before anything refers to them
            with open(_mark(self._path), "wb") as mark:
                os.fsync(mark.fileno())
            with writable(self._path, self._target.key):
                self._close_file()
            os.fsync(file.fileno())
        os.unlink(_mark(self._path))

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
        self._threads.shutdown(wait=True, cancel_futures=True)
        if self._file is None:
            return
        with suppress(OSError):  # its folder may be gone
            open(_mark(self._path), "wb").close()
        with suppress(OSError, RuntimeError):  # on a full disk HDF5 can't close it either
            self._close_file()
            os.unlink(_mark(self._path))

    def _close_file(self) -> None:
        file, self._file, self._dataset, self._unsaved = self._file, None, None, 0
        if file is not None:
            file.close()
