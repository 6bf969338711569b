"""Where the chunks of a dataset lie in its file: read once, and then HDF5 is not asked again."""

from __future__ import annotations

import os
from array import array
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.files import FileVersion
from oocdata.formats.hdf5.file import hdf5_lock, open_file, readable

__all__ = ["ChunkTable", "PresentChunks", "grid_of", "present_chunks"]

_BEYOND = 1 << 62
"""An offset that no file has, and to which a length may be added."""


def grid_of(shape: tuple[int, ...], chunk_shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return how many chunks there are along each axis.

    Examples
    --------
    >>> grid_of((10, 3), (4, 3))
    (3, 1)
    """
    return tuple(-(-length // step) for length, step in zip(shape, chunk_shape, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class PresentChunks:
    """The chunks that were written, in any order.

    Attributes
    ----------
    places : ndarray of int64, shape (n, N)
        In the grid.
    offsets : ndarray of int64, shape (n,)
        In the file.
    sizes, skipped : ndarray of uint32, shape (n,)
        Bytes as stored; bit i of `skipped` is set where filter i was not applied.
    """

    places: NDArray[np.int64]
    offsets: NDArray[np.int64]
    sizes: NDArray[np.uint32]
    skipped: NDArray[np.uint32]


def present_chunks(dataset: Any) -> PresentChunks:
    """List the chunks of an open dataset; one pass over HDF5's own index.

    Parameters
    ----------
    dataset : h5py.Dataset
    """
    starts, offsets, sizes, skipped = array("Q"), array("Q"), array("Q"), array("Q")

    def note(info: Any) -> None:
        starts.extend(info.chunk_offset)
        offsets.append(info.byte_offset)
        sizes.append(info.size)
        skipped.append(info.filter_mask)

    dataset.id.chunk_iter(note)
    places = np.frombuffer(starts, np.uint64).astype(np.int64).reshape(len(offsets), dataset.ndim)
    places //= np.array(dataset.chunks)
    # Chunks may be left beyond the end of a dataset that shrank.
    inside = (places < np.array(grid_of(dataset.shape, dataset.chunks))).all(axis=1)
    return PresentChunks(
        places[inside],
        # A damaged offset may be anything; beyond the end of the file they are all alike.
        np.minimum(np.frombuffer(offsets, np.uint64)[inside], _BEYOND).astype(np.int64),
        np.frombuffer(sizes, np.uint64)[inside].astype(np.uint32),
        np.frombuffer(skipped, np.uint64)[inside].astype(np.uint32),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Read:
    """What a table holds once it was read: of present chunks only, by ascending number.

    Attributes
    ----------
    numbers : ndarray of int64, shape (n,) or None
        None where all chunks are present.
    fill : generic
        What a chunk that was never written reads as.
    """

    numbers: NDArray[np.int64] | None
    offsets: NDArray[np.int64]
    sizes: NDArray[np.uint32]
    skipped: NDArray[np.uint32] | None
    fill: Any


class ChunkTable:
    """Where each chunk of a dataset lies; read from the file when it is first asked.

    Parameters
    ----------
    version : FileVersion
    key : str
    chunk_shape : tuple of int
        As stored.
    """

    BYTES = 24
    """For each chunk, at most."""

    __slots__ = ("_read", "chunk_shape", "key", "version")

    def __init__(self, version: FileVersion, key: str, chunk_shape: tuple[int, ...]) -> None:
        self.version, self.key, self.chunk_shape = version, key, chunk_shape
        self._read: tuple[_Read, NDArray[np.int64]] | None = None

    def __reduce__(self) -> Any:
        return ChunkTable, (self.version, self.key, self.chunk_shape)

    def locate(
        self, places: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return where chunks lie.

        Parameters
        ----------
        places : ndarray of int64, shape (k, N)
            In the grid.

        Returns
        -------
        offsets, sizes, skipped : ndarray of int64, shape (k,)
            The offset is -1 for a chunk that was never written.

        Raises
        ------
        oocdata.errors.SourceError
            If the file is another one by now, or its metadata can't be read.
        """
        table, steps = self._read or self._load()
        numbers = places @ steps
        if table.numbers is None:
            found, absent = numbers, None
        else:
            found = np.minimum(np.searchsorted(table.numbers, numbers), len(table.numbers) - 1)
            absent = table.numbers[found] != numbers if len(table.numbers) else None
            if absent is None:
                return np.full(len(places), -1), np.zeros_like(numbers), np.zeros_like(numbers)
        offsets, sizes = table.offsets[found], table.sizes[found].astype(np.int64)
        if absent is not None:
            offsets[absent] = -1
        if table.skipped is None:
            return offsets, sizes, np.zeros_like(numbers)
        return offsets, sizes, table.skipped[found].astype(np.int64)

    @property
    def fill(self) -> Any:
        """What a chunk that was never written reads as."""
        return (self._read or self._load())[0].fill

    def _load(self) -> tuple[_Read, NDArray[np.int64]]:
        # HDF5's own lock, so that there is no second one to wait for while holding this one.
        with hdf5_lock():
            if self._read is None:
                with open_file(self.version.path) as file, readable(self.version.path, self.key):
                    # At the path may lie another file by now.
                    self.version.compare(os.fstat(file.id.get_vfd_handle()), self.key)
                    self._read = self._of(file[self.key])
            return self._read

    def _of(self, dataset: Any) -> tuple[_Read, NDArray[np.int64]]:
        grid = grid_of(dataset.shape, self.chunk_shape)
        steps = np.array([prod(grid[axis + 1 :]) for axis in range(len(grid))], np.int64)
        present = present_chunks(dataset)
        numbers = present.places @ steps
        order = np.argsort(numbers)
        try:
            fill = dataset.fillvalue
        except RuntimeError:  # it was left undefined
            fill = 0
        table = _Read(
            None if len(numbers) == prod(grid) else numbers[order],
            present.offsets[order],
            present.sizes[order],
            present.skipped[order] if present.skipped.any() else None,
            fill,
        )
        return table, steps
