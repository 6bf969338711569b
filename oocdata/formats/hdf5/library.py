"""Read datasets through HDF5: virtual and compact ones, other filters, and objects of the user.

HDF5 has a global lock, so one thread reads at a time. HDF5's own chunk cache is off: whole chunks
are cached by the chunked engine, within the budget.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias
from weakref import WeakKeyDictionary

import h5py
import numpy as np
from h5py import h5d, h5p, h5s
from numpy.typing import NDArray

from oocdata.box import Ints
from oocdata.engines.files import FileVersion, Version
from oocdata.engines.objects import Sliced
from oocdata.engines.source import Keyed, Storage
from oocdata.errors import (
    ArgumentError,
    DamagedChunkError,
    MissingFileError,
    SourceError,
    error_location,
    error_text,
    location_text,
)
from oocdata.formats.hdf5.description import stored_dtype
from oocdata.formats.hdf5.file import (
    check_open_file,
    hdf5_lock,
    limit_metadata_cache,
    open_file,
    require_filters,
    translate_errors,
)
from oocdata.formats.hdf5.storage import Rules, Stored
from oocdata.formats.hdf5.virtual import inspect_storage

Rows: TypeAlias = Sequence[int] | Ints

_SPARE_FILES = 8

_MOST_OPEN = 64
"""Most datasets that a process keeps open; the one opened first is closed to open another."""


class ThroughLibrary(Keyed, Sliced):
    """A dataset that HDF5 reads: by boxes, as a `Source`, or by whole chunks, as a `ChunkReader`.

    `chunk_shape` is that of the chunks that HDF5 decodes.
    """

    own_threads = True
    """One thread reads all chunks, since several would wait for HDF5's lock."""

    def __init__(
        self, target: OnDisk | UsersObject, chunk_shape: tuple[int, ...], storage: Storage
    ) -> None:
        super().__init__(target, storage, axis=target.rules.axis)
        self.chunk_shape, self._key = chunk_shape, target

    def __reduce__(self) -> Any:
        return ThroughLibrary, (self.target, self.chunk_shape, self._storage)

    def check(self) -> None:
        """Raise if a file has changed since the dataset was opened."""
        rules = self.target.rules
        with hdf5_lock(rules.path), error_location(rules.path, rules.key):
            self.target.opened().check()

    def read_chunks(self, places: Ints, outs: Sequence[NDArray[Any]]) -> None:
        """Read chunks, one after the other."""
        for start, out in zip((places * self.chunk_shape).tolist(), outs, strict=True):
            ends = zip(start, out.shape, strict=True)
            out[...] = self.read_slice(tuple(slice(first, first + n) for first, n in ends))

    def read_slice(self, box: tuple[slice, ...]) -> NDArray[Any]:
        """Return the numbers of a box; errors name its rows."""
        rows = range(box[self.axis].start, box[self.axis].stop) if box else range(1)
        with reading(self.target, rows) as dataset:
            return _read(dataset, box, self.dtype, self.target.rules.fill)


@contextmanager
def reading(target: OnDisk | UsersObject, rows: Rows) -> Iterator[Any]:
    """Provide the open dataset under HDF5's lock; errors in the block name the rows."""
    rules = target.rules
    with hdf5_lock(rules.path), error_location(rules.path, rules.key):
        opened = target.opened()
        try:
            yield opened.dataset
        except SourceError as error:  # raised by a store; the bytes are not damaged
            error.set_rows(rows)
            raise
        except (OSError, RuntimeError, ValueError) as error:
            opened.check(rows)
            message = error_text(error)
            if target.stored.kind == "chunked" or "filter" in message:
                raise DamagedChunkError(
                    f"a chunk must decode; HDF5 says: {message}. Its bytes are damaged: restore "
                    "the file.",
                    rows=rows,
                ) from error
            raise SourceError(
                f"the rows must be readable; HDF5 says: {message}.", rows=rows
            ) from error
        opened.check(rows)


@dataclass(frozen=True, slots=True, weakref_slot=True)
class OnDisk:
    """A dataset given by path and name; each process opens it on its first read."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    rules: Rules
    stored: Stored
    version: Version

    def opened(self) -> _Opened:
        """Return the open dataset; HDF5's lock must be held."""
        opened = _open.get(self)
        if opened is None:
            opened = _Opened(self)
            while len(_open) >= _MOST_OPEN:
                del _open[next(iter(_open))]
            _open[self] = opened
        return opened


_open: WeakKeyDictionary[OnDisk, _Opened] = WeakKeyDictionary()
"""Datasets that this process has open; each is closed when its source is gone."""

_inherited: list[_Opened] = []
"""Datasets that the parent process had open when it forked; never closed here."""


def _leave_to_parent() -> None:
    """Forget the parent's open files after a fork: closing them here would affect the parent."""
    _inherited.extend(_open.values())
    _open.clear()


os.register_at_fork(after_in_child=_leave_to_parent)


class _Opened:
    """A dataset open in this process, which can check that its files have not changed."""

    def __init__(self, disk: OnDisk) -> None:
        # No reference to `disk`, the key of the weak dictionary that holds this object.
        rules, self._version = disk.rules, disk.version
        self._key = rules.key
        self._outside: tuple[FileVersion, ...] = ()
        self.file = open_file(rules.path, disk.version)
        limit_metadata_cache(self.file)
        self.check()
        require_filters(disk.stored.filters, rules.path, rules.key)
        with translate_errors(rules.path, rules.key):
            self.dataset = self._open(disk.stored.kind)
        if disk.stored.kind == "virtual":
            self._hold_sources(disk)

    def _open(self, kind: str) -> Any:
        access = h5p.create(h5p.DATASET_ACCESS)
        if kind != "virtual":  # there it would be the sources' cache
            access.set_chunk_cache(1, 0, 1.0)
        name = (self._key or "").encode("utf-8", "surrogateescape")
        return h5py.Dataset(h5d.open(self.file.id, name, access))

    def _hold_sources(self, disk: OnDisk) -> None:
        """Open the files of a virtual dataset's sources, so that HDF5 can always read them."""
        self._outside = inspect_storage(self.dataset, disk.rules).outside
        if self._outside != disk.stored.outside:
            raise SourceError(
                "the other files that hold bytes of the dataset must be as they were when it was "
                "opened; they have changed. Open it again."
            )
        if not self._outside:
            return
        # HDF5 reads the fill value where it can't open a source, e.g. for lack of descriptors. As
        # they are open here, it needs few new ones; these are shown to be available.
        self.sources = [open_file(version.path) for version in self._outside]
        descriptor = self.file.id.get_vfd_handle()
        for number in [os.dup(descriptor) for _ in range(_SPARE_FILES)]:
            os.close(number)
        # Reading one element of each source makes HDF5 open it and keep it open.
        for mapping in self.dataset.virtual_sources():
            start = mapping.vspace.get_select_bounds()[0]
            box = tuple(slice(first, first + 1) for first in start)
            with suppress(OSError):  # a damaged chunk is an error of the rows in it
                _read(self.dataset, box, disk.dtype, disk.rules.fill)

    def check(self, rows: Rows | None = None) -> None:
        """Raise if a file has changed: HDF5 reads zeros beyond the end of a truncated file."""
        check_open_file(self._version, self.file, self._key, rows)
        for other in self._outside:
            if not os.path.exists(other.path):
                raise MissingFileError(
                    "the file, which holds bytes of the dataset, must be there; it is gone.",
                    path=other.path,
                    rows=rows,
                )
            other.compare(os.stat(other.path), rows=rows)


@dataclass(frozen=True, eq=False, slots=True)
class UsersObject:
    """The user's open ``h5py.Dataset``, which can be read in this process only."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    rules: Rules
    stored: Stored
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
        """Do nothing: the user may write to the dataset."""

    def __reduce__(self) -> NoReturn:
        """Raise: an open object can't be pickled."""
        raise ArgumentError(
            "a source must be described by path and name to be pickled; this one reads through an "
            "open h5py.Dataset. Close its writer and open it by path. "
            f"[{location_text(self.rules.path, self.rules.key)}]"
        )


def _read(dataset: Any, box: tuple[slice, ...], dtype: np.dtype[Any], fill: bool) -> NDArray[Any]:
    """Read a box of an open dataset; missing chunks read as the fill value if `fill` is set."""
    start = tuple(part.start for part in box)
    counts = tuple(part.stop - part.start for part in box)
    # Zeros, because HDF5 leaves the memory of missing chunks unchanged if the file defines no fill
    # value. In the stored dtype, like h5py: HDF5 can convert neither dates nor character sets, and
    # a byte swap of integers with padding bits would take the padding for their bits.
    numbers = (np.zeros if fill else np.empty)(counts, dataset.dtype)
    space = dataset.id.get_space()
    if box:  # a single number has no hyperslab
        space.select_hyperslab(start, counts)
    dataset.id.read(h5s.create_simple(counts), space, numbers)
    if numbers.dtype == dtype or numbers.dtype.hasobject:
        return numbers
    return numbers.view(stored_dtype(dataset)[0])
