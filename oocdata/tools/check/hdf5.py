"""HDF5 for a check: a file that was cut short opens all the same, as far as it goes.

HDF5 refuses a file that is shorter than its superblock says. Seen through an object that reads
zeros beyond the end, its groups and tables of chunks are mostly still there (they are written early
or in between), and say which chunks are not.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import IO, Any

import numpy as np

from oocdata.datasets.view import View
from oocdata.engines.axes import sample_axes
from oocdata.engines.blocked import blocked
from oocdata.engines.source import Storage
from oocdata.engines.strided import contiguous_strides
from oocdata.errors import MissingChunkError, MissingFileError, SourceError, TruncatedFileError
from oocdata.formats.anndata import is_one_array
from oocdata.formats.hdf5 import from_dataset, open_hdf5
from oocdata.formats.hdf5.description import dimension_names, stored_dtype
from oocdata.formats.hdf5.file import fill_value, hdf5_library, open_file, readable
from oocdata.formats.hdf5.links import choose_dataset, find_dataset, group_attributes, list_names
from oocdata.formats.hdf5.storage import offset_of
from oocdata.formats.hdf5.table import grid_of, present_chunks
from oocdata.formats.stored import opened as file_opened
from oocdata.tools.check.opening import Opened, rows_beyond
from oocdata.tools.check.rows import Fault
from oocdata.tools.opening import Opening
from oocdata.tools.ranges import Ranges, ranges_of

__all__ = ["names_in", "opened_hdf5"]

_MOST_BYTES = 1 << 20
"""That HDF5 may ask for at a time of a file that is shorter, where it was cut short."""


def names_in(path: str) -> list[str]:
    """Return the names of all datasets, even of a file that was cut short."""
    with ExitStack() as stack:
        file, _ = _open(path, stack)
        with readable(path):
            return list_names(file)


@contextmanager
def opened_hdf5(opening: Opening) -> Iterator[Opened]:
    """Open a dataset whatever is the matter with its chunks."""
    path, key, external = opening.target, opening.key, opening.external
    assert key is None or isinstance(key, str)
    with ExitStack() as stack:
        file, end = _open(path, stack)
        with readable(path, key):
            name = choose_dataset(file) if key is None else f"/{key.strip('/')}"
            if is_one_array(group_attributes(file, name)):
                yield Opened(replace(opening, key=name).view())
                return
            dataset, name = find_dataset(file, name, external, stack)
            stored_dtype(dataset, path, name)
            named = Storage("HDF5", path, name, dimensions=dimension_names(dataset))
            (axis,) = sample_axes(opening.axis, len(dataset.shape or ()), named)
            unwritten, beyond = _rows(dataset, axis, end)
        faults = [] if dataset.chunks else _missing_elsewhere(path, name, axis, external)
        if unwritten.count:
            reason = (
                f"every chunk must have been written; {unwritten.count:,} rows lie in chunks that "
                f"never were. They read as the fill value {fill_value(dataset, undefined=0)}."
            )
            faults = [Fault("unwritten", reason, unwritten)]
        if end is None:
            stack.close()  # so that the source's own handle is the only one
            yield Opened(replace(opening, key=name, axis=axis, missing="fill").view(), (*faults,))
            return
        if beyond.count:
            reason = f"the file must hold the bytes of every chunk; it was cut short at {end}."
            faults.append(Fault("truncated", reason, beyond))
        source = from_dataset(dataset, axis=axis, missing="fill", external=external)
        view = View.of(blocked(source, (axis,)), axis)
        yield Opened(view, (*faults,), tuple(beyond.kept))


def _open(path: str, stack: ExitStack) -> tuple[Any, int | None]:
    """Open a file; return where it was cut short, if it was."""
    try:
        return stack.enter_context(open_file(path)), None
    except TruncatedFileError as error:
        promised = re.search(r"base_addr = (\d+), stored_eof = (\d+)", error.message)
        if promised is None:
            raise
        raw, version = stack.enter_context(file_opened(path))
        padded = _Padded(raw, version.nbytes, sum(map(int, promised.groups())))
        try:
            file = hdf5_library().File(padded, "r")
        except (OSError, ValueError, RuntimeError, KeyError):
            raise error from None
        return stack.enter_context(file), version.nbytes


class _Padded(io.RawIOBase):
    """A file that reads zeros beyond its end, up to a length."""

    def __init__(self, file: IO[bytes], held: int, length: int) -> None:
        self._file, self._held, self._length, self._at = file, held, length, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._length}[whence]
        self._at = base + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        memory = memoryview(buffer).cast("B")
        memory = memory[: max(0, self._length - self._at)]
        if len(memory) > max(self._held, _MOST_BYTES):  # as much memory again, for nothing
            raise OSError(f"damaged metadata ask for {len(memory)} bytes")
        data = b""
        if self._at < self._held:  # an offset beyond 2⁶³ is none for the system
            self._file.seek(self._at)
            data = self._file.read(len(memory))
        memory[: len(data)] = data
        memory[len(data) :] = bytes(len(memory) - len(data))
        self._at += len(memory)
        return len(memory)


def _rows(dataset: Any, axis: int, end: int | None) -> tuple[Ranges, Ranges]:
    """Return the rows that were never written, and those that reach beyond the end of the file."""
    h5d = hdf5_library().h5d
    plist, shape, steps = dataset.id.get_create_plist(), dataset.shape, dataset.chunks
    unwritten, beyond = Ranges(), Ranges()
    if plist.get_layout() == h5d.CHUNKED:
        grid = grid_of(shape, steps)
        written, cut = np.zeros(grid, np.bool_), np.zeros(grid, np.bool_)
        if dataset.size:
            found = present_chunks(dataset)
            written.flat[found.numbers] = True
            cut.flat[found.numbers] = end is not None and found.offsets + found.sizes > end
        others = tuple(place for place in range(len(grid)) if place != axis)
        for rows, chosen in ((unwritten, ~written), (beyond, cut)):
            along = np.asarray(chosen.any(axis=others))
            rows.add_all(ranges_of(along, 0, steps[axis], shape[axis]))
    elif plist.get_layout() == h5d.CONTIGUOUS and not plist.get_external_count() and dataset.size:
        offset = offset_of(dataset.id)
        if offset is None:
            unwritten.add(range(shape[axis]))
        elif end is not None:
            itemsize = dataset.id.get_type().get_size()
            strides = contiguous_strides(shape, itemsize)
            beyond.add(rows_beyond(shape, strides, itemsize, axis, end - offset))
    return unwritten, beyond


def _missing_elsewhere(path: str, name: str, axis: int, external: bool) -> list[Fault]:
    """Return what is missing of the files that a dataset is made of, or of its chunks."""
    try:
        open_hdf5(path, name, axis=axis, external=external)
    except (MissingChunkError, MissingFileError) as error:
        rows = sorted(set(error.rows or ()))
        return [Fault("missing", error.message, Ranges(range(row, row + 1) for row in rows))]
    except SourceError:
        pass  # opening it says why
    return []
