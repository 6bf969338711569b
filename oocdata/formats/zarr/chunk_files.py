"""Read rows of an uncompressed Zarr array by their offsets in the files of its chunks.

A full shuffle of large rows would decode a whole chunk for each of them.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent
from oocdata.engines.concat import Concat
from oocdata.engines.files import FileVersion, OpenFile
from oocdata.engines.runs import UnfinishedError, read_runs
from oocdata.engines.source import Source, Storage
from oocdata.engines.strided import Strided
from oocdata.formats.zarr.objects import Objects
from oocdata.formats.zarr.store import Folder

__all__ = ["ChunkFiles", "chunk_files"]

_LARGE = 16 << 10
"""Bytes of a row from which on reading it alone costs less than its share of a whole chunk."""

_ROWS_TO_JOIN = 2
"""Rows of a file from which on joining neighbours is worth a call for each file."""

_FILES_AT_ONCE = 64
"""That a read holds open."""

_MOST_FILES = 4096
"""Each takes about 2 KiB of description."""


class ChunkFiles(Concat):
    """Chunks that are files of nothing but elements, end to end; described as one array.

    Parameters
    ----------
    parts : tuple of Strided
    axis : int
    described : Storage
    """

    def __init__(self, parts: tuple[Strided, ...], axis: int, described: Storage) -> None:
        super().__init__(parts, axis)
        self._files = [part.file for part in parts]
        self._described = described
        self._row = Extent.of(self.shape).with_axis(axis, 1)
        self._stored = parts[0].stored

    def __reduce__(self) -> tuple[Any, ...]:
        return ChunkFiles, (self.parts, self.axis, self._described)

    def read(self, origins: NDArray[np.int64], extent: Extent, out: NDArray[Any]) -> None:
        """Write ``out[i] = the box at origins[i]``; see `oocdata.engines.source.Source.read`."""
        owners, within = np.divmod(origins[:, self.axis], self.parts[0].shape[self.axis])
        whole = extent == self._row and out.dtype == self._stored and out.flags.c_contiguous
        if not (out.size and whole and self._read_scattered(owners, within, out)):
            super().read(origins, extent, out)  # which also raises what is wrong

    def _read_scattered(
        self, owners: NDArray[np.int64], within: NDArray[np.int64], out: NDArray[Any]
    ) -> bool:
        """Read rows of many files in one call; return whether it was done."""
        numbers = np.unique(owners)
        if len(owners) > _ROWS_TO_JOIN * len(numbers):
            return False
        nbytes = out.nbytes // len(out)
        addresses = out.ctypes.data + np.arange(len(out)) * nbytes
        for start in range(0, len(out), _FILES_AT_ONCE):
            some = slice(start, start + _FILES_AT_ONCE)
            which, inverse = np.unique(owners[some], return_inverse=True)
            files = [self._files[number] for number in which.tolist()]
            opened = [file.opened() for file in files]
            descriptors = np.array([one.number for one in opened])
            try:
                read_runs(descriptors[inverse], within[some] * nbytes, addresses[some], nbytes, out)
            except UnfinishedError:
                return False
            # Asked after the read, a version tells of what was written before and meanwhile.
            pairs = zip(files, opened, strict=True)
            if not all(file.version.matches(os.fstat(one.number)) for file, one in pairs):
                return False
        return True

    def storage(self) -> Storage:
        """Return how the array is stored."""
        return self._described


def chunk_files(objects: Objects, whole: Storage) -> Source | None:
    """Return the source that reads rows alone; None where whole chunks are better read.

    Parameters
    ----------
    objects : Objects
    whole : Storage
        Of the array read by whole chunks.
    """
    metadata, store, survey = objects.metadata, objects.store, objects.surveyed
    strides = metadata.plain_strides
    if strides is None or not isinstance(store, Folder) or 0 in metadata.shape:
        return None
    if survey is None or survey.absent or survey.total > _MOST_FILES:
        return None
    cut = [axis for axis, count in enumerate(metadata.grid) if count > 1] or [0]
    axis, step = cut[0], metadata.object_shape[cut[0]]
    # Chunks cut one axis, and what lies at one place of it is a run of bytes.
    if len(cut) > 1 or not _LARGE <= strides[axis] == max(strides):
        return None
    described = replace(
        whole, chunks=None, reading="each row by its offset in its chunk's file, into the batch"
    )
    parts = []
    for number in range(survey.total):
        version = FileVersion.of(f"{store.path}/{objects.name(objects.place(number))}")
        length = min(step, metadata.shape[axis] - number * step)
        shape = (*metadata.shape[:axis], length, *metadata.shape[axis + 1 :])
        stored = OpenFile(version), metadata.stored_dtype, shape, strides, 0, described
        parts.append(Strided(*stored, axis=objects.axis))
    return ChunkFiles(tuple(parts), axis, described)
