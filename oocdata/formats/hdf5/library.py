"""Datasets read through HDF5 itself: what it decodes, puts together or is being written by.

HDF5 has one lock for all its calls, so one thread reads at a time. Whole chunks are cached by the
chunked engine, so HDF5's own chunk cache is switched off: memory stays flat.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NoReturn
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent
from oocdata.engines.files import FileVersion
from oocdata.engines.source import Storage
from oocdata.errors import ArgumentError, DamagedChunkError, MissingFileError, SourceError, place
from oocdata.formats.hdf5.file import (
    hdf5_library,
    hdf5_lock,
    open_file,
    readable,
    require_filters,
    said,
)
from oocdata.formats.hdf5.storage import Rules, raw_folder
from oocdata.formats.hdf5.virtual import first_places, inspect_storage

__all__ = ["Boxes", "LibraryChunks", "OpenObject", "ThroughLibrary", "delivered"]

_SPARE_FILES = 8

_MOST_OPEN = 64
"""Files kept open through HDF5; the one opened first is closed for another, and opens again."""

_MOST_BYTES = 4 << 20
"""Read in one call, unless a box is larger."""


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
class ThroughLibrary:
    """A dataset described by path and name; each process opens it when it first reads.

    Parameters
    ----------
    version : FileVersion
    key : str
    shape : tuple of int
    dtype : numpy.dtype
        Native byte order.
    rules : Rules
    kind : str
        See `oocdata.formats.hdf5.storage.Stored`.
    filters : tuple of int
        Filters that the process must have.
    changing : bool
        This process has the file open for writing: open it anew for each read, so that the
        writer's own handle decides when the file closes.
    outside : tuple of FileVersion
        Other files that hold bytes of it.
    """

    version: FileVersion
    key: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    rules: Rules
    kind: str
    filters: tuple[int, ...]
    changing: bool
    outside: tuple[FileVersion, ...]
    _kept: _Kept = field(default_factory=lambda: _Kept(), compare=False, repr=False)

    def read(self, start: Sequence[int], counts: Sequence[int], rows: range) -> NDArray[Any]:
        """Return a box of the dataset.

        Raises
        ------
        oocdata.errors.SourceError
            With file, dataset and rows.
        """
        with hdf5_lock():
            opened = self._opened()
            try:
                numbers = _read(opened.dataset, start, counts, self.dtype, self.rules.fill)
            except (OSError, RuntimeError, ValueError) as error:
                opened.check(rows)
                _refuse(error, rows, self.rules, self.kind)
            opened.check(rows)
            return numbers

    def check(self) -> None:
        """Raise if a file is not what it was."""
        if not self.changing:
            with hdf5_lock():
                self._opened().check(None)

    def _opened(self) -> _Opened:
        if self.changing:
            return _Opened(self)
        return self._kept.get() or self._kept.keep(_Opened(self))


class _Kept:
    """The dataset as this process has it open; another process must not take it from this one."""

    __slots__ = ("__weakref__", "_opened", "_process")

    def __init__(self) -> None:
        self._opened: _Opened | None = None
        self._process = 0

    def __reduce__(self) -> tuple[type[_Kept], tuple[()]]:
        return (_Kept, ())

    def get(self) -> _Opened | None:
        """Return it; None where it is not open in this process."""
        return self._opened if self._process == os.getpid() else None

    def keep(self, opened: _Opened) -> _Opened:
        """Keep it open for the next read; under HDF5's lock."""
        if self._opened is not None and self._process != os.getpid():
            _inherited.append(self._opened)  # closing it would change what the parent has open
        self._opened, self._process = opened, os.getpid()
        _recent.append(ref(self))
        if len(_recent) > _MOST_OPEN:
            oldest = _recent.popleft()()
            if oldest is not None and oldest.get() is not None:
                oldest._opened = None
        return opened


_recent: deque[ref[_Kept]] = deque()
_inherited: list[object] = []


class _Opened:
    """A dataset open in this process, with what shows that its files are still whole."""

    __slots__ = ("_through", "dataset", "descriptor", "file", "outside", "sources")

    def __init__(self, through: ThroughLibrary) -> None:
        path, key = through.version.path, through.key
        self._through = (through.version, key, through.rules, through.kind)
        self.file = open_file(path)
        # Only the system's own driver has a descriptor, and a writer's file may yet grow.
        self.descriptor = None if self.file.mode != "r" else self.file.id.get_vfd_handle()
        if self.descriptor is not None:
            through.version.compare(os.fstat(self.descriptor), key)
        require_filters(through.filters, path, key)
        with readable(path, key):
            self.dataset = self._open()
        found = (self.dataset.shape, delivered(self.dataset.dtype))
        if found != (through.shape, through.dtype):
            raise SourceError(
                f"the dataset must be as it was when it was opened, {through.shape} "
                f"{through.dtype}; it is now {found[0]} {found[1]}. Open it again.",
                path=path,
                key=key,
            )
        self.outside: tuple[FileVersion, ...] = ()
        self.sources: list[Any] = []
        if through.kind in ("external", "virtual"):
            self._hold(through)

    def _open(self) -> Any:
        h5py = hdf5_library()
        version, key, _, kind = self._through
        access = h5py.h5p.create(h5py.h5p.DATASET_ACCESS)
        if kind != "virtual":  # there it would be the sources' cache
            access.set_chunk_cache(1, 0, 1.0)
        if kind == "external":
            access.set_efile_prefix(os.fsencode(raw_folder(version.path)))
        name = key.encode("utf-8", "surrogateescape")
        return h5py.Dataset(h5py.h5d.open(self.file.id, name, access))

    def _hold(self, through: ThroughLibrary) -> None:
        """Make sure that other files are there now, and open for as long as this is."""
        stored = inspect_storage(self.dataset, through.rules)
        self.outside = tuple(FileVersion.of(path) for path in stored.outside)
        if not through.changing and self.outside != through.outside:
            raise SourceError(
                "the other files that hold bytes of the dataset must be as they were when it was "
                "opened; they have changed. Open it again.",
                path=through.version.path,
                key=through.key,
            )
        if through.kind == "external" or not self.outside:
            return
        # HDF5 reads the fill value where it can't open a source. Held here, sources need no new
        # descriptors but one at a time; once read from, they stay open in HDF5 too.
        self.sources = [open_file(version.path) for version in self.outside]
        for number in [os.dup(self.file.id.get_vfd_handle()) for _ in range(_SPARE_FILES)]:
            os.close(number)
        for start in first_places(self.dataset):
            _read(self.dataset, start, [1] * len(start), through.dtype, through.rules.fill)

    def check(self, rows: range | None) -> None:
        """Raise if a file is not what it was; HDF5 reads zeros beyond the end of one cut short."""
        version, key, *_ = self._through
        if self.descriptor is not None:
            version.compare(os.fstat(self.descriptor), key, rows)
        for other in self.outside:
            try:
                same = other.matches(os.stat(other.path))
            except FileNotFoundError as error:
                raise MissingFileError(
                    f"{other.path!r}, which holds bytes of the dataset, must be there; it is gone.",
                    path=version.path,
                    key=key,
                    rows=rows,
                ) from error
            if not same:
                raise SourceError(
                    f"{other.path!r}, which holds bytes of the dataset, must not change while it "
                    "is read; it did.",
                    path=version.path,
                    key=key,
                    rows=rows,
                )


@dataclass(frozen=True, eq=False, slots=True)
class OpenObject:
    """A dataset read through the user's own open object; it can't leave the process.

    Parameters
    ----------
    dataset : h5py.Dataset
    shape, dtype, rules, kind
        As in `ThroughLibrary`.
    process : int
        The process that opened it.
    """

    dataset: Any
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    rules: Rules
    kind: str
    process: int = field(default_factory=os.getpid)

    def read(self, start: Sequence[int], counts: Sequence[int], rows: range) -> NDArray[Any]:
        """Return a box of the dataset."""
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
            return _read(self.dataset, start, counts, self.dtype, self.rules.fill)
        except (OSError, RuntimeError, ValueError) as error:
            _refuse(error, rows, self.rules, self.kind)

    def check(self) -> None:
        """Do nothing: the user may write to it."""

    def __reduce__(self) -> NoReturn:
        """Refuse: an open object can't travel."""
        raise ArgumentError(
            "a source must be described by path and name to be pickled; this one reads through an "
            "open h5py.Dataset. Close its writer and open it by path. "
            f"[{place(self.rules.path, self.rules.key)}]"
        )


@dataclass(frozen=True, slots=True)
class LibraryChunks:
    """Chunks that HDF5 itself decodes; a `oocdata.engines.chunked.ChunkReader`.

    Parameters
    ----------
    through : ThroughLibrary or OpenObject
    chunk_shape : tuple of int
    described : Storage
    """

    through: ThroughLibrary | OpenObject
    chunk_shape: tuple[int, ...]
    described: Storage = field(compare=False, repr=False)

    own_threads = True
    """Several would wait for one another."""

    @property
    def shape(self) -> tuple[int, ...]:
        """As stored."""
        return self.through.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Native byte order."""
        return self.through.dtype

    def storage(self) -> Storage:
        """Return how the array is stored."""
        return self.described

    def check(self) -> None:
        """Raise if a file is not what it was."""
        self.through.check()

    def read_chunks(self, places: NDArray[np.int64], outs: Sequence[NDArray[Any]]) -> None:
        """Read chunks, one after the other."""
        axis = self.through.rules.axis
        for start, out in zip((places * self.chunk_shape).tolist(), outs, strict=True):
            rows = range(start[axis], start[axis] + out.shape[axis])
            out[...] = self.through.read(start, out.shape, rows)


@dataclass(frozen=True, slots=True)
class Boxes:
    """Boxes read one by one, neighbours in one call: what has no chunks, or may change.

    A `oocdata.engines.source.Source`.

    Parameters
    ----------
    through : ThroughLibrary or OpenObject
    described : Storage
    """

    through: ThroughLibrary | OpenObject
    described: Storage = field(compare=False, repr=False)

    @property
    def shape(self) -> tuple[int, ...]:
        """As stored."""
        return self.through.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Native byte order."""
        return self.through.dtype

    def storage(self) -> Storage:
        """Return how the array is stored."""
        return self.described

    def read(self, origins: NDArray[np.int64], extent: Extent, out: NDArray[Any]) -> None:
        """Write ``out[i] = the box at origins[i]``; see `Source.read`."""
        if not out.size:
            return
        axis, span = self.through.rules.axis, extent.spans[self.through.rules.axis]
        most = _MOST_BYTES // max(1, prod(extent.spans) // span * self.dtype.itemsize)
        places = origins.tolist()
        for run in _runs(places, axis, span, most):
            first, counts = places[run[0]], list(extent.spans)
            counts[axis] += places[run[-1]][axis] - first[axis]
            rows = range(first[axis], first[axis] + counts[axis])
            read = self.through.read(first, counts, rows)
            for box in run:
                within = [slice(None, None, stride) for stride in extent.strides]
                start = places[box][axis] - first[axis]
                within[axis] = slice(start, start + span, extent.strides[axis])
                out[box] = read[tuple(within)]


def _runs(places: list[list[int]], axis: int, span: int, most: int) -> Iterator[list[int]]:
    """Yield boxes that lie side by side along an axis, at most so many places long together.

    Examples
    --------
    >>> list(_runs([[7, 0], [2, 0], [3, 0], [3, 5]], axis=0, span=1, most=9))
    [[1, 2], [0], [3]]
    """

    def others(box: int) -> list[int]:
        return places[box][:axis] + places[box][axis + 1 :]

    run: list[int] = []
    for box in sorted(range(len(places)), key=lambda box: (others(box), places[box][axis])):
        if run and not (
            others(box) == others(run[0])
            and places[box][axis] <= places[run[-1]][axis] + span
            and places[box][axis] + span - places[run[0]][axis] <= most
        ):
            yield run
            run = []
        run.append(box)
    if run:
        yield run


def _read(
    dataset: Any,
    start: Sequence[int],
    counts: Sequence[int],
    dtype: np.dtype[Any],
    fill: bool,
) -> NDArray[Any]:
    h5s = hdf5_library().h5s
    # Where the file defines no fill value, HDF5 leaves the memory of missing chunks as it is.
    numbers = np.zeros(counts, dtype) if fill else np.empty(counts, dtype)
    space = dataset.id.get_space()
    space.select_hyperslab(tuple(start), tuple(counts))
    dataset.id.read(h5s.create_simple(tuple(counts)), space, numbers)
    return numbers


def _refuse(error: Exception, rows: range, rules: Rules, kind: str) -> NoReturn:
    words = said(error)
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
