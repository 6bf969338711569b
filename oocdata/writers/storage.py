"""Define `Storage`, the interface of the formats: an array that is written row by row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from oocdata.writers.disk import write_errors
from oocdata.writers.target import Box, Target

__all__ = ["Storage", "open_storage", "pad_chunk", "relative", "rows_box", "split_box"]


class Storage(Protocol):
    """An array under construction. Rows come in any order, and may be written twice."""

    def write(self, first: int, values: NDArray[Any]) -> None:
        """Write rows from row `first` on, in whole units of the target but for the last rows.

        The values have the target's dtype, and are not used after the call returns.
        """
        ...

    def save(self) -> None:
        """Flush everything written so far to the disk."""
        ...

    def close(self, rows: int) -> None:
        """Finish the array, with its final number of rows."""
        ...

    def abandon(self) -> None:
        """Close all files and end all threads; a saved array can be resumed."""
        ...


def open_storage(target: Target, path: str, *, resume: bool = False) -> Storage:
    """Create an array at a path, or resume one that was saved or abandoned there.

    Raises `SourceError` if it can't be resumed.
    """
    with write_errors(path, target.key):
        if target.format == "zarr":
            from oocdata.writers.zarr import ZarrStorage

            return ZarrStorage(target, path, resume=resume)
        if target.format == "hdf5":
            from oocdata.writers.hdf5 import open_hdf5_storage

            return open_hdf5_storage(target, path, resume=resume)
        from oocdata.writers.flat import open_npy_storage

        return open_npy_storage(target, path, resume=resume)


def rows_box(first: int, values: NDArray[Any]) -> Box:
    """Return the box of rows from row `first` on.

    Examples
    --------
    >>> rows_box(4, np.zeros((7, 3)))
    (slice(4, 11, None), slice(0, 3, None))
    """
    return (slice(first, first + len(values)), *(slice(0, n) for n in values.shape[1:]))


def split_box(box: Box, step: Sequence[int]) -> Iterator[Box]:
    """Yield the parts of a box that are in one chunk each, in C order.

    Examples
    --------
    >>> [(part.start, part.stop) for part, in split_box((slice(6, 11),), (4,))]
    [(6, 8), (8, 11)]
    """
    axes = []
    for part, length in zip(box, step, strict=True):
        starts = range(part.start // length * length, part.stop, length)
        axes.append([slice(max(at, part.start), min(at + length, part.stop)) for at in starts])
    return product(*axes)


def relative(cell: Box, box: Box) -> Box:
    """Return the position of a cell relative to the box that contains it.

    Examples
    --------
    >>> relative((slice(8, 11),), (slice(4, 11),))
    (slice(4, 7, None),)
    """
    return tuple(
        slice(part.start - whole.start, part.stop - whole.start)
        for part, whole in zip(cell, box, strict=True)
    )


def pad_chunk(target: Target, values: NDArray[Any]) -> NDArray[Any]:
    """Return a whole C-contiguous chunk, with fill values beyond the end of the array.

    Examples
    --------
    >>> target = Target(format="zarr", key=None, shape=(3,), dtype=np.dtype("i2"), chunks=(4,))
    >>> pad_chunk(target, np.array([1, 2], "i2"))
    array([1, 2, 0, 0], dtype=int16)
    """
    if values.shape == target.chunks:
        return np.ascontiguousarray(values)
    chunk = np.full(target.chunks or (), target.fill_value or 0, target.dtype)
    chunk[tuple(slice(0, length) for length in values.shape)] = values
    return chunk
