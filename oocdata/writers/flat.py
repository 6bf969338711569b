"""Write contiguous rows to a file: ``.npy``, and contiguous HDF5.

The ``.npy`` header is NumPy's (``numpy.lib.format``, NEP 1). NumPy leaves room in it for any number
of rows, so the header can be written before the rows are counted.
"""

from __future__ import annotations

import os
from io import BytesIO, FileIO
from typing import Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from oocdata.errors import SourceError
from oocdata.writers.disk import write_errors
from oocdata.writers.target import Target

__all__ = ["FlatStorage", "open_npy_storage"]


def open_npy_storage(target: Target, path: str, *, done: int = 0) -> FlatStorage:
    """Create a ``.npy`` file, or resume one; see `open_storage`.

    Examples
    --------
    >>> import tempfile
    >>> target = Target(format="npy", key=None, shape=(2, 3), dtype=np.dtype("i2"))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     storage = open_npy_storage(target, f"{folder}/a.npy")
    ...     storage.write(0, np.arange(6, dtype="i2").reshape(2, 3))
    ...     storage.close(2)
    ...     np.load(f"{folder}/a.npy")
    array([[0, 1, 2],
           [3, 4, 5]], dtype=int16)
    """
    header = BytesIO()
    offset = _write_header(header, target, target.shape[0])
    if not done:
        with open(path, "wb") as file:
            file.write(header.getvalue())
        return FlatStorage(target, path, offset)
    with open(path, "rb") as file:
        same = file.read(offset) == header.getvalue()
        length = os.fstat(file.fileno()).st_size
    if not same or length < offset + done * target.row_bytes:
        raise SourceError(f"a `.npy` file must hold the {done} rows that were written", path=path)
    return FlatStorage(target, path, offset)


def _write_header(file: Any, target: Target, rows: int) -> int:
    header = {
        "descr": npy_format.dtype_to_descr(target.dtype),
        "fortran_order": False,
        "shape": (rows, *target.element),
    }
    npy_format.write_array_header_1_0(file, header)
    return int(file.tell())


class FlatStorage:
    """A file of contiguous rows, of which the first is at byte `offset`."""

    def __init__(self, target: Target, path: str, offset: int) -> None:
        self._target = target
        self._offset, self._path = offset, path
        self._file = FileIO(path, "r+")

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
            if self._target.format == "npy":
                with write_errors(self._path):
                    self._file.truncate(self._offset + rows * self._target.row_bytes)
                    self._file.seek(0)
                    _write_header(self._file, self._target, rows)
            self.save()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close the file."""
        self._file.close()
