"""Datasets read through HDF5 itself: what it decodes or puts together, and objects of the user.

HDF5 has one lock for all its calls, so one thread reads at a time. Whole chunks are cached by the
chunked engine, so HDF5's own chunk cache is switched off: memory stays flat.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias
from weakref import WeakKeyDictionary

import h5py
import numpy as np
from h5py import h5d, h5p, h5s
from numpy.typing import NDArray

from oocdata.engines.files import FileVersion, Version
from oocdata.engines.objects import Sliced
from oocdata.engines.source import Storage
from oocdata.errors import (
    ArgumentError,
    DamagedChunkError,
    MissingFileError,
    SourceError,
    concerning,
    place,
)
from oocdata.formats.hdf5.description import stored_dtype
from oocdata.formats.hdf5.file import (
    compare_open,
    hdf5_lock,
    open_file,
    readable,
    require_filters,
    said,
)
from oocdata.formats.hdf5.storage import Rules
from oocdata.formats.hdf5.virtual import inspect_storage

__all__ = ["OnDisk", "ThroughLibrary", "UsersObject", "reading"]

Rows: TypeAlias = Sequence[int] | NDArray[np.int64]

_SPARE_FILES = 8

_MOST_OPEN = 64
"""Files kept open through HDF5; the one opened first is closed for another, and opens again."""


class ThroughLibrary(Sliced):
    """A dataset that HDF5 reads: by boxes, as a `Source`, or by whole chunks, as a `ChunkReader`.

    `chunk_shape` is what HDF5 decodes together.
    """

    own_threads = True
    """Several would wait for one another."""

    def __init__(
        self, target: OnDisk | UsersObject, chunk_shape: tuple[int, ...], storage: Storage
    ) -> None:
        super().__init__(target, storage, axis=target.rules.axis)
        self.chunk_shape = chunk_shape

    def __reduce__(self) -> Any:
        return ThroughLibrary, (self.target, self.chunk_shape, self._storage)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ThroughLibrary) and self.target == other.target

    def __hash__(self) -> int:
        return hash(self.target)

    def check(self) -> None:
        """Raise if a file is not what it was."""
        rules = self.target.rules
        with hdf5_lock(rules.path), concerning(rules.path, rules.key):
            self.target.opened().check()

    def read_chunks(self, places: NDArray[np.int64], outs: Sequence[NDArray[Any]]) -> None:
        """Read chunks, one after the other."""
        for start, out in zip((places * self.chunk_shape).tolist(), outs, strict=True):
            ends = zip(start, out.shape, strict=True)
            out[...] = self.found(tuple(slice(first, first + n) for first, n in ends))

    def found(self, box: tuple[slice, ...]) -> NDArray[Any]:
        """Return the numbers of a box; errors have its rows."""
        with reading(self.target, range(box[self.axis].start, box[self.axis].stop)) as dataset:
            return _read(dataset, box, self.dtype, self.target.rules.fill)


@contextmanager
def reading(target: OnDisk | UsersObject, rows: Rows) -> Iterator[Any]:
    """Provide the open dataset for a read of some rows, under HDF5's lock; errors have the rows."""
    rules = target.rules
    with hdf5_lock(rules.path), concerning(rules.path, rules.key):
        opened = target.opened()
        try:
            yield opened.dataset
        except SourceError as error:  # of a store: it says nothing of the bytes
            error.concern(rows)
            raise
        except (OSError, RuntimeError, ValueError) as error:
            opened.check(rows)
            words = said(error)
            if target.kind == "chunked" or "filter" in words:
                raise DamagedChunkError(
                    f"a chunk must decode; HDF5 says: {words}. Its bytes are damaged: restore "
                    "the file.",
                    rows=rows,
                ) from error
            raise SourceError(
                f"the rows must be readable; HDF5 says: {words}.", rows=rows
            ) from error
        opened.check(rows)


@dataclass(frozen=True, slots=True, weakref_slot=True)
class OnDisk:
    """A dataset by path and name; each process opens it when it first reads."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    rules: Rules
    kind: str  #: see `oocdata.formats.hdf5.storage.Stored`
    version: Version
    filters: tuple[int, ...]  #: that the process must have
    outside: tuple[FileVersion, ...]  #: other files that hold bytes of it

    def opened(self) -> _Opened:
        """Return the open dataset; HDF5's lock must be held."""
        found = _open.get(self)
        if found is None:
            found = _Opened(self)
            while len(_open) >= _MOST_OPEN:
                del _open[next(iter(_open))]
            _open[self] = found
        return found


_open: WeakKeyDictionary[OnDisk, _Opened] = WeakKeyDictionary()
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

    def __init__(self, disk: OnDisk) -> None:
        # Not `disk` itself, which keeps this open for as long as it is used.
        rules, self._version = disk.rules, disk.version
        self._key = rules.key
        self._outside: tuple[FileVersion, ...] = ()
        self.file = open_file(rules.path, disk.version)
        self.check()
        require_filters(disk.filters, rules.path, rules.key)
        with readable(rules.path, rules.key):
            self.dataset = self._open(disk.kind)
        if disk.kind == "virtual":
            self._hold_sources(disk)

    def _open(self, kind: str) -> Any:
        access = h5p.create(h5p.DATASET_ACCESS)
        if kind != "virtual":  # there it would be the sources' cache
            access.set_chunk_cache(1, 0, 1.0)
        name = (self._key or "").encode("utf-8", "surrogateescape")
        return h5py.Dataset(h5d.open(self.file.id, name, access))

    def _hold_sources(self, disk: OnDisk) -> None:
        """Make sure that other files are there now, and open for as long as this is."""
        stored = inspect_storage(self.dataset, disk.rules)
        self._outside = tuple(FileVersion.of(path) for path in stored.outside)
        if self._outside != disk.outside:
            raise SourceError(
                "the other files that hold bytes of the dataset must be as they were when it was "
                "opened; they have changed. Open it again."
            )
        if not self._outside:
            return
        # HDF5 reads the fill value where it can't open a source. Held here, sources need no new
        # descriptors but one at a time; once read from, they stay open in HDF5 too.
        self.sources = [open_file(version.path) for version in self._outside]
        descriptor = self.file.id.get_vfd_handle()
        for number in [os.dup(descriptor) for _ in range(_SPARE_FILES)]:
            os.close(number)
        for mapping in self.dataset.virtual_sources():  # a place of each makes HDF5 open it
            start = mapping.vspace.get_select_bounds()[0]
            box = tuple(slice(place, place + 1) for place in start)
            _read(self.dataset, box, disk.dtype, disk.rules.fill)

    def check(self, rows: Rows | None = None) -> None:
        """Raise if a file is not what it was; HDF5 reads zeros beyond the end of one cut short."""
        compare_open(self._version, self.file, self._key, rows)
        for other in self._outside:
            what = f"{other.path!r}, which holds bytes of the dataset, must"
            try:
                same = other.matches(os.stat(other.path))
            except FileNotFoundError as error:
                raise MissingFileError(f"{what} be there; it is gone.", rows=rows) from error
            if not same:
                raise SourceError(f"{what} not change while it is read; it did.", rows=rows)


@dataclass(frozen=True, eq=False, slots=True)
class UsersObject:
    """The user's own open ``h5py.Dataset``; it can't leave the process."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    rules: Rules
    kind: str  #: see `oocdata.formats.hdf5.storage.Stored`
    dataset: Any
    process: int

    def opened(self) -> UsersObject:
        """Return the object itself."""
        if os.getpid() != self.process:
            raise SourceError(
                "an open HDF5 object must be read in the process that opened it; this is a fork of "
                "it. Open the array by its path."
            )
        if not self.dataset:
            raise SourceError("the h5py.Dataset must stay open while it is read; it was closed.")
        return self

    def check(self, rows: Rows | None = None) -> None:
        """Do nothing: the user may write to it."""

    def __reduce__(self) -> NoReturn:
        """Refuse: an open object can't travel."""
        raise ArgumentError(
            "a source must be described by path and name to be pickled; this one reads through an "
            "open h5py.Dataset. Close its writer and open it by path. "
            f"[{place(**self.rules.about)}]"
        )


def _read(dataset: Any, box: tuple[slice, ...], dtype: np.dtype[Any], fill: bool) -> NDArray[Any]:
    start = tuple(part.start for part in box)
    counts = tuple(part.stop - part.start for part in box)
    # Where the file defines no fill value, HDF5 leaves the memory of missing chunks as it is. As
    # stored, like h5py: HDF5 converts neither dates, nor text of another character set; and where
    # it turns the bytes of integers of fewer bits, it takes what lies beside these for theirs.
    numbers = (np.zeros if fill else np.empty)(counts, dataset.dtype)
    space = dataset.id.get_space()
    space.select_hyperslab(start, counts)
    dataset.id.read(h5s.create_simple(counts), space, numbers)
    if numbers.dtype == dtype or numbers.dtype.hasobject:
        return numbers
    return numbers.view(stored_dtype(dataset)[0])
