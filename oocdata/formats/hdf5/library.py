"""Datasets read through HDF5 itself: what it decodes, puts together or is being written by.

HDF5 has one lock for all its calls, so one thread reads at a time. Whole chunks are cached by the
chunked engine, so HDF5's own chunk cache is switched off: memory stays flat.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NoReturn
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent
from oocdata.engines.files import FileVersion
from oocdata.engines.source import Storage
from oocdata.errors import ArgumentError, DamagedChunkError, MissingFileError, SourceError, place
from oocdata.formats.hdf5.description import delivered
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

__all__ = ["OpenObject", "ThroughLibrary"]

_SPARE_FILES = 8

_MOST_OPEN = 64
"""Files kept open through HDF5; the one opened first is closed for another, and opens again."""

_MOST_BYTES = 4 << 20
"""Read in one call, unless a box is larger."""


@dataclass(frozen=True, eq=False, slots=True)
class _Library:
    """A dataset that HDF5 reads: by boxes, as a `Source`, or by whole chunks, as a `ChunkReader`.

    Attributes
    ----------
    chunk_shape : tuple of int
        What HDF5 decodes together.
    kind : str
        See `oocdata.formats.hdf5.storage.Stored`.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunk_shape: tuple[int, ...]
    rules: Rules
    kind: str
    described: Storage = field(compare=False, repr=False)

    own_threads = True
    """Several would wait for one another."""

    def _opened(self) -> _Opened | OpenObject:
        """Return what has the dataset, and a check of its files."""
        raise NotImplementedError

    def storage(self) -> Storage:
        """Return how the array is stored."""
        return self.described

    def read_chunks(self, places: NDArray[np.int64], outs: Sequence[NDArray[Any]]) -> None:
        """Read chunks, one after the other."""
        for start, out in zip((places * self.chunk_shape).tolist(), outs, strict=True):
            out[...] = self._box(start, out.shape)

    def read(self, origins: NDArray[np.int64], extent: Extent, out: NDArray[Any]) -> None:
        """Write ``out[i] = the box at origins[i]``; neighbours along the row axis in one call."""
        if not out.size:
            return
        axis, span = self.rules.axis, extent.spans[self.rules.axis]
        most = _MOST_BYTES // max(1, prod(extent.spans) // span * self.dtype.itemsize)
        places = origins.tolist()
        within = [slice(None, None, stride) for stride in extent.strides]
        for run in _runs(places, axis, span, most):
            first, counts = places[run[0]], list(extent.spans)
            counts[axis] += places[run[-1]][axis] - first[axis]
            read = self._box(first, counts)
            for box in run:
                start = places[box][axis] - first[axis]
                within[axis] = slice(start, start + span, extent.strides[axis])
                out[box] = read[tuple(within)]

    def _box(self, start: Sequence[int], counts: Sequence[int]) -> NDArray[Any]:
        axis = self.rules.axis
        rows = range(start[axis], start[axis] + counts[axis])
        with hdf5_lock():
            opened = self._opened()
            try:
                numbers = _read(opened.dataset, start, counts, self.dtype, self.rules.fill)
            except (OSError, RuntimeError, ValueError) as error:
                opened.check(rows)
                words, about = said(error), self.rules.about
                if self.kind == "chunked" or "filter" in words:
                    raise DamagedChunkError(
                        f"a chunk must decode; HDF5 says: {words}. Its bytes are damaged: restore "
                        "the file.",
                        rows=rows,
                        **about,
                    ) from error
                raise SourceError(
                    f"the rows must be readable; HDF5 says: {words}.", rows=rows, **about
                ) from error
            opened.check(rows)
            return numbers


class _Handle:
    """Stands for one source in the table of open files, by identity; pickled, it is another."""


@dataclass(frozen=True, slots=True)
class ThroughLibrary(_Library):
    """A dataset described by path and name; each process opens it when it first reads.

    Attributes
    ----------
    filters : tuple of int
        Filters that the process must have.
    changing : bool
        This process has the file open for writing: open it anew for each read, so that the
        writer's own handle decides when the file closes.
    outside : tuple of FileVersion
        Other files that hold bytes of it.
    """

    version: FileVersion
    filters: tuple[int, ...]
    changing: bool
    outside: tuple[FileVersion, ...]
    handle: _Handle = field(default_factory=_Handle, compare=False, repr=False)

    def check(self) -> None:
        """Raise if a file is not what it was."""
        if not self.changing:
            with hdf5_lock():
                self._opened().check()

    def _opened(self) -> _Opened:
        found = None if self.changing else _open.get(self.handle)
        if found is None:
            found = _Opened(self)
            if not self.changing:
                while len(_open) >= _MOST_OPEN:
                    del _open[next(iter(_open))]
                _open[self.handle] = found
        return found


_open: WeakKeyDictionary[_Handle, _Opened] = WeakKeyDictionary()
"""What this process has open; it closes with the source."""

_inherited: list[_Opened] = []


def _leave_to_parent() -> None:
    """After a fork: closing a file here would change what the parent has open."""
    _inherited.extend(_open.values())
    _open.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)


class _Opened:
    """A dataset open in this process, with what shows that its files are still whole."""

    __slots__ = ("_about", "_version", "dataset", "descriptor", "file", "outside", "sources")

    def __init__(self, through: ThroughLibrary) -> None:
        rules, self._version = through.rules, through.version
        self._about = rules.about
        self.file = open_file(rules.path)
        # Only the system's own driver has a descriptor, and a writer's file may yet grow.
        self.descriptor = None if self.file.mode != "r" else self.file.id.get_vfd_handle()
        self.outside: tuple[FileVersion, ...] = ()
        self.check()
        require_filters(through.filters, rules.path, rules.key)
        with readable(rules.path, rules.key):
            self.dataset = self._open(through.kind)
        found = (self.dataset.shape, delivered(self.dataset.dtype))
        if found != (through.shape, through.dtype):
            raise SourceError(
                f"the dataset must be as it was when it was opened, {through.shape} "
                f"{through.dtype}; it is now {found[0]} {found[1]}. Open it again.",
                **self._about,
            )
        if through.kind in ("external", "virtual"):
            self._hold_sources(through)

    def _open(self, kind: str) -> Any:
        h5py = hdf5_library()
        access = h5py.h5p.create(h5py.h5p.DATASET_ACCESS)
        if kind != "virtual":  # there it would be the sources' cache
            access.set_chunk_cache(1, 0, 1.0)
        if kind == "external":
            access.set_efile_prefix(os.fsencode(raw_folder(self._version.path)))
        name = self._about["key"].encode("utf-8", "surrogateescape")
        return h5py.Dataset(h5py.h5d.open(self.file.id, name, access))

    def _hold_sources(self, through: ThroughLibrary) -> None:
        """Make sure that other files are there now, and open for as long as this is."""
        stored = inspect_storage(self.dataset, through.rules)
        self.outside = tuple(FileVersion.of(path) for path in stored.outside)
        if not through.changing and self.outside != through.outside:
            raise SourceError(
                "the other files that hold bytes of the dataset must be as they were when it was "
                "opened; they have changed. Open it again.",
                **self._about,
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

    def check(self, rows: range | None = None) -> None:
        """Raise if a file is not what it was; HDF5 reads zeros beyond the end of one cut short."""
        if self.descriptor is not None:
            self._version.compare(os.fstat(self.descriptor), self._about["key"], rows)
        for other in self.outside:
            what = f"{other.path!r}, which holds bytes of the dataset, must"
            try:
                same = other.matches(os.stat(other.path))
            except FileNotFoundError as error:
                raise MissingFileError(
                    f"{what} be there; it is gone.", rows=rows, **self._about
                ) from error
            if not same:
                raise SourceError(
                    f"{what} not change while it is read; it did.", rows=rows, **self._about
                )


@dataclass(frozen=True, eq=False, slots=True)
class OpenObject(_Library):
    """A dataset read through the user's own open ``h5py.Dataset``; it can't leave the process."""

    dataset: Any
    process: int = field(default_factory=os.getpid)

    def _opened(self) -> OpenObject:
        if os.getpid() != self.process:
            raise SourceError(
                "an open HDF5 object must be read in the process that opened it; this is a fork of "
                "it. Open the array by its path.",
                **self.rules.about,
            )
        if not self.dataset:
            raise SourceError(
                "the h5py.Dataset must stay open while it is read; it was closed.",
                **self.rules.about,
            )
        return self

    def check(self, rows: range | None = None) -> None:
        """Do nothing: the user may write to it."""

    def __reduce__(self) -> NoReturn:
        """Refuse: an open object can't travel."""
        raise ArgumentError(
            "a source must be described by path and name to be pickled; this one reads through an "
            "open h5py.Dataset. Close its writer and open it by path. "
            f"[{place(**self.rules.about)}]"
        )


def _runs(places: list[list[int]], axis: int, span: int, most: int) -> Iterator[list[int]]:
    """Yield boxes that lie side by side along an axis, at most so many places long together.

    Examples
    --------
    >>> list(_runs([[7, 0], [2, 0], [3, 0], [3, 5]], axis=0, span=1, most=9))
    [[1, 2], [0], [3]]
    """

    def sorted_by(box: int) -> tuple[list[int], int]:
        return places[box][:axis] + places[box][axis + 1 :], places[box][axis]

    run: list[int] = []
    before: list[int] | None = None
    for box in sorted(range(len(places)), key=sorted_by):
        others, start = sorted_by(box)
        if run and not (
            others == before
            and start <= places[run[-1]][axis] + span
            and start + span - places[run[0]][axis] <= most
        ):
            yield run
            run = []
        run.append(box)
        before = others
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
    kind = None
    if dtype.kind == "S":  # of the file's character set, between which HDF5 doesn't convert
        kind = dataset.id.get_type().copy()
        kind.set_strpad(hdf5_library().h5t.STR_NULLPAD)
    dataset.id.read(h5s.create_simple(tuple(counts)), space, numbers, kind)
    return numbers
