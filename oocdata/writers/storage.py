"""Define `Storage`, the interface of the formats: an array that is written row by row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from oocdata.writers.disk import write_errors
from oocdata.writers.target import Target

__all__ = ["Place", "Storage", "open_storage", "pad_chunk", "units_of"]

Place: TypeAlias = tuple[int, ...]
"""The position of a chunk or a shard in the grid of them."""


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


def open_storage(target: Target, path: str, *, done: int = 0) -> Storage:
    """Create an array at a path, or resume one of which `done` rows were saved there.

    Raises `SourceError` if it can't be resumed.
    """
    with write_errors(path, target.key):
        if target.format == "zarr":
            from oocdata.writers.zarr import ZarrStorage

            return ZarrStorage(target, path, done=done)
        if target.format == "hdf5":
            from oocdata.writers.hdf5 import open_hdf5_storage

            return open_hdf5_storage(target, path, done=done)
        from oocdata.writers.flat import open_npy_storage

        return open_npy_storage(target, path, done=done)


def units_of(
    first: int, values: NDArray[Any], unit: Sequence[int]
) -> Iterator[tuple[Place, NDArray[Any]]]:
    """Yield the grid position of each chunk or shard of shape `unit` that rows fill, and its part.

    Row `first` begins a unit; the last units may be incomplete.

    Examples
    --------
    >>> [(place, part.tolist()) for place, part in units_of(8, np.arange(6), (4,))]
    [((2,), [0, 1, 2, 3]), ((3,), [4, 5])]
    """
    starts = [range(0, length, step) for length, step in zip(values.shape, unit, strict=True)]
    before = first // unit[0]
    places = product(range(before, before + len(starts[0])), *(range(len(at)) for at in starts[1:]))
    boxes = product(*([slice(n, n + at.step) for n in at] for at in starts))
    for place, box in zip(places, boxes, strict=True):
        yield place, values[box]


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
