"""Define `Storage`, an array that is written row by row, and that of ``.npy``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from io import BytesIO, FileIO
from itertools import product
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from oocdata.engines.atomic import write_errors
from oocdata.errors import SourceError
from oocdata.writers.target import Target

Place: TypeAlias = tuple[int, ...]
"""The position of a chunk or a shard in the grid of them."""


class Storage(Protocol):
    """An array under construction. Rows come in any order, and may be written twice."""

    def write(self, first: int, values: NDArray[Any]) -> None:
        """Write rows from row `first` on.

        They are whole units of the target but for the last rows, have the target's dtype, and are
        not used after the call returns.
        """

    def save(self) -> None:
        """Flush everything written so far to the disk."""

    def close(self, rows: int) -> None:
        """Finish the array, with its final number of rows."""

    def abandon(self) -> None:
        """Close all files and end all threads; a saved array can be resumed."""


def open_storage(target: Target, path: str, *, done: int = 0) -> Storage:
    """Create an array at a path, or resume one of which `done` rows were saved there.

    Raises `SourceError` if it can't be resumed.
    """
    with write_errors(path, target.key):
        if target.format == "zarr":
            from oocdata.writers.zarr import ZarrStorage

            return ZarrStorage(target, path, done=done)
        if target.format == "hdf5":
            from oocdata.writers.hdf5 import Hdf5Storage

            return Hdf5Storage(target, path, done=done)
        return NpyStorage(target, path, done=done)


def units_of(
    first: int, values: NDArray[Any], unit: Sequence[int]
) -> Iterator[tuple[Place, NDArray[Any]]]:
    """Yield the grid position of each chunk or shard of shape `unit` that rows fill, and its part.

    Row `first` begins a unit; the last units may be incomplete.
    """
    starts = [range(0, length, step) for length, step in zip(values.shape, unit, strict=True)]
    before = first // unit[0]
    places = product(range(before, before + len(starts[0])), *(range(len(at)) for at in starts[1:]))
    boxes = product(*([slice(n, n + at.step) for n in at] for at in starts))
    for place, box in zip(places, boxes, strict=True):
        yield place, values[box]


def pad_chunk(target: Target, values: NDArray[Any]) -> NDArray[Any]:
    """Return a whole C-contiguous chunk, with fill values beyond the end of the array."""
    if values.shape == target.chunks:
        return np.ascontiguousarray(values)
    chunk = np.full(target.chunks or (), target.fill_value or 0, target.dtype)
    chunk[tuple(slice(0, length) for length in values.shape)] = values
    return chunk


def npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """Return the header of a ``.npy`` file; raise `ValueError` if it can't describe the dtype."""
    file, descr = BytesIO(), npy_format.dtype_to_descr(dtype)
    header = {"descr": descr, "fortran_order": False, "shape": shape}
    npy_format.write_array_header_1_0(file, header)
    return file.getvalue()


class NpyStorage:
    """A ``.npy`` file.

    The header is NumPy's (``numpy.lib.format``, NEP 1). NumPy leaves room in it for any
    number of rows, so it can be written before the rows are counted.
    """

    def __init__(self, target: Target, path: str, *, done: int = 0) -> None:
        self._target, self._path = target, path
        header = npy_header(target.dtype, target.shape)
        self._offset = len(header)
        if not done:
            with open(path, "wb") as file:
                file.write(header)
        self._file = FileIO(path, "r+")
        short = os.fstat(self._file.fileno()).st_size < self._offset + done * target.row_bytes
        if short or self._file.read(len(header)) != header:
            self.abandon()
            raise SourceError(f"a file must hold the {done} rows that were written", path=path)

    def write(self, first: int, values: NDArray[Any]) -> None:
        """Write rows from row `first` on."""
        data = np.ascontiguousarray(values).reshape(-1).view(np.uint8).data
        offset, done = self._offset + first * self._target.row_bytes, 0
        with write_errors(self._path):
            while done < len(data):  # a system call writes at most 2 GiB
                done += os.pwrite(self._file.fileno(), data[done:], offset + done)

    def save(self) -> None:
        """Flush the file to the disk."""
        with write_errors(self._path):
            os.fsync(self._file.fileno())

    def close(self, rows: int) -> None:
        """Set the length of the file to so many rows, and write their number to its header."""
        try:
            with write_errors(self._path):
                self._file.truncate(self._offset + rows * self._target.row_bytes)
                header = npy_header(self._target.dtype, (rows, *self._target.element))
                os.pwrite(self._file.fileno(), header, 0)
            self.save()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close the file."""
        self._file.close()
