"""Readers of HDF5 datasets by boxes: by path and name, or through an open object.

HDF5 has one lock for all its calls, so one thread reads at a time. Whole chunks are kept by the
chunks engine, so HDF5's own chunk cache is switched off: memory stays flat.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from oocdata.errors import (
    ArgumentError,
    DamagedChunkError,
    MissingFileError,
    SourceError,
    place,
)
from oocdata.sources.extents import FileStamp
from oocdata.sources.handles import handle
from oocdata.sources.hdf5.annotations import annotations_of
from oocdata.sources.hdf5.file import hdf5_library, open_file, readable, require_filters, said
from oocdata.sources.hdf5.storage import Rules, raw_folder
from oocdata.sources.hdf5.virtual import first_places, inspect_storage
from oocdata.sources.source import Annotations, Layout

__all__ = ["Hdf5Reader", "ObjectReader", "delivered"]

_SPARE_FILES = 8


def delivered(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a stored dtype as it is delivered: native byte order, enums as their integers.

    Examples
    --------
    >>> delivered(np.dtype(">i2"))
    dtype('int16')
    """
    # The string leaves behind the metadata in which h5py keeps the names of an enum.
    return np.dtype(dtype.newbyteorder("=").str)


@dataclass(frozen=True, slots=True)
class Hdf5Reader:
    """A dataset described by path and name; each process opens it on first use.

    Parameters
    ----------
    file : FileStamp
    key : str
    shape : tuple of int
        As stored.
    dtype : numpy.dtype
        Native byte order.
    chunk_shape : tuple of int
    rules : Rules
    kind : str
        See `oocdata.sources.hdf5.storage.Storage`.
    filters : tuple of int
        Filters that the process must have.
    changing : bool
        This process has the file open for writing: open it anew for each box, so that the
        writer's own handle decides when the file closes.
    outside : tuple of FileStamp
        Other files that hold bytes of it.
    described : Layout
    """

    file: FileStamp
    key: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunk_shape: tuple[int, ...]
    rules: Rules
    kind: str
    filters: tuple[int, ...]
    changing: bool
    outside: tuple[FileStamp, ...]
    described: Layout = field(compare=False)

    def layout(self) -> Layout:
        """Return where and how the array is stored."""
        return self.described

    def read_box(self, box: tuple[slice, ...]) -> NDArray[Any]:
        """Return the elements of a box."""
        opened = _Opened(self) if self.changing else handle((_Opened, self), lambda: _Opened(self))
        try:
            elements = _read(opened.dataset, box, self.dtype, self.rules.fill)
        except (OSError, RuntimeError, ValueError) as error:
            opened.check(box)
            _refuse(error, box, self.rules, self.kind)
        opened.check(box)
        return elements


class _Opened:
    """A dataset open in this process, with what shows that its files are still whole."""

    __slots__ = ("dataset", "descriptor", "file", "outside", "reader", "sources")

    def __init__(self, reader: Hdf5Reader) -> None:
        path, key = reader.file.path, reader.key
        self.reader = reader
        self.file = open_file(path)
        # Only the system's own driver has a descriptor, and a writer's file may yet grow.
        self.descriptor = None if self.file.mode != "r" else self.file.id.get_vfd_handle()
        if self.descriptor is not None:
            reader.file.compare(os.fstat(self.descriptor), key)
        require_filters(reader.filters, path, key)
        with readable(path, key):
            self.dataset = self._open()
        found = (self.dataset.shape, delivered(self.dataset.dtype))
        if found != (reader.shape, reader.dtype):
            raise SourceError(
                f"the dataset must be as it was when it was opened, {reader.shape} {reader.dtype}; "
                f"it is now {found[0]} {found[1]}. Open it again.",
                path=path,
                key=key,
            )
        self.outside: tuple[FileStamp, ...] = ()
        self.sources: list[Any] = []
        if reader.kind in ("external", "virtual"):
            self._hold()

    def _open(self) -> Any:
        h5py = hdf5_library()
        access = h5py.h5p.create(h5py.h5p.DATASET_ACCESS)
        if self.reader.kind != "virtual":  # there it would be the sources' cache
            access.set_chunk_cache(1, 0, 1.0)
        if self.reader.kind == "external":
            access.set_efile_prefix(os.fsencode(raw_folder(self.reader.file.path)))
        name = self.reader.key.encode("utf-8", "surrogateescape")
        return h5py.Dataset(h5py.h5d.open(self.file.id, name, access))

    def _hold(self) -> None:
        """Make sure that other files are there now, and open for as long as this is."""
        storage = inspect_storage(self.dataset, self.reader.rules)
        self.outside = tuple(FileStamp.of(path) for path in storage.outside)
        if not self.reader.changing and self.outside != self.reader.outside:
            raise SourceError(
                "the other files that hold bytes of the dataset must be as they were when it was "
                "opened; they have changed. Open it again.",
                path=self.reader.file.path,
                key=self.reader.key,
            )
        if self.reader.kind == "external" or not self.outside:
            return
        # HDF5 reads the fill value where it can't open a source. Held here, sources need no new
        # descriptors but one at a time; once read from, they stay open in HDF5 too.
        self.sources = [open_file(stamp.path) for stamp in self.outside]
        for number in [os.dup(self.file.id.get_vfd_handle()) for _ in range(_SPARE_FILES)]:
            os.close(number)
        for start in first_places(self.dataset):
            box = tuple(slice(at, at + 1) for at in start)
            _read(self.dataset, box, self.reader.dtype, self.reader.rules.fill)

    def check(self, box: tuple[slice, ...]) -> None:
        """Raise if a file is not what it was; HDF5 reads zeros beyond the end of one cut short."""
        reader = self.reader
        rows = _rows(box, reader.rules)
        if self.descriptor is not None:
            reader.file.compare(os.fstat(self.descriptor), reader.key, rows)
        for stamp in self.outside:
            try:
                same = FileStamp.of(stamp.path) == stamp
            except FileNotFoundError as error:
                raise MissingFileError(
                    f"{stamp.path!r}, which holds bytes of the dataset, must be there; it is gone.",
                    path=reader.file.path,
                    key=reader.key,
                    rows=rows,
                ) from error
            if not same:
                raise SourceError(
                    f"{stamp.path!r}, which holds bytes of the dataset, must not change while it "
                    "is read; it did.",
                    path=reader.file.path,
                    key=reader.key,
                    rows=rows,
                )


@dataclass(frozen=True, eq=False, slots=True)
class ObjectReader:
    """A dataset read through the user's own open object; it can't leave the process.

    Parameters
    ----------
    dataset : h5py.Dataset
    shape, dtype, chunk_shape, rules, kind
        As in `Hdf5Reader`.
    described : Layout
    process : int
        The process that opened it.
    """

    dataset: Any
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunk_shape: tuple[int, ...]
    rules: Rules
    kind: str
    described: Layout
    process: int = field(default_factory=os.getpid)

    def layout(self) -> Layout:
        """Return where and how the array is stored."""
        return self.described

    def annotations(self) -> Annotations:
        """Return attributes and fill value."""
        return annotations_of(self.dataset)

    def read_box(self, box: tuple[slice, ...]) -> NDArray[Any]:
        """Return the elements of a box."""
        if os.getpid() != self.process:
            raise SourceError(
                "an open HDF5 object must be read in the process that opened it; this is a fork of "
                "it. Open the array by its path.",
                path=self.rules.path,
                key=self.rules.key,
            )
        if not self.dataset:
            raise SourceError(
                "the h5py.Dataset must stay open while it is read; it was closed.",
                path=self.rules.path,
                key=self.rules.key,
            )
        try:
            return _read(self.dataset, box, self.dtype, self.rules.fill)
        except (OSError, RuntimeError, ValueError) as error:
            _refuse(error, box, self.rules, self.kind)

    def __reduce__(self) -> NoReturn:
        """Refuse: an open object can't travel."""
        raise ArgumentError(
            "a source must be described by path and name to be pickled; this one reads through an "
            "open h5py.Dataset. Close its writer and open it by path. "
            f"[{place(self.rules.path, self.rules.key)}]"
        )


def _read(dataset: Any, box: tuple[slice, ...], dtype: np.dtype[Any], fill: bool) -> NDArray[Any]:
    h5s = hdf5_library().h5s
    starts = tuple(part.start for part in box)
    counts = tuple(part.stop - part.start for part in box)
    # Where the file defines no fill value, HDF5 leaves the memory of missing chunks as it is.
    elements = np.zeros(counts, dtype) if fill else np.empty(counts, dtype)
    space = dataset.id.get_space()
    space.select_hyperslab(starts, counts)
    dataset.id.read(h5s.create_simple(counts), space, elements)
    return elements


def _rows(box: tuple[slice, ...], rules: Rules) -> range:
    return range(box[rules.axis].start, box[rules.axis].stop)


def _refuse(error: Exception, box: tuple[slice, ...], rules: Rules, kind: str) -> NoReturn:
    words = said(error)
    rows = _rows(box, rules)
    if kind == "chunked" or "filter" in words:
        raise DamagedChunkError(
            f"a chunk must decode; HDF5 says: {words}. Its bytes are damaged: restore the file.",
            path=rules.path,
            key=rules.key,
            rows=rows,
        ) from error
    raise SourceError(
        f"the rows must be readable; HDF5 says: {words}.",
        path=rules.path,
        key=rules.key,
        rows=rows,
    ) from error
