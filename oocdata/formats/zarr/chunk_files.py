"""Read rows of an uncompressed Zarr array by their offsets in the files of its chunks.

A full shuffle of large rows would decode a whole chunk for each of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from oocdata.engines.concat import Concat
from oocdata.engines.files import FileVersion, OpenFile
from oocdata.engines.source import Source, Storage
from oocdata.engines.strided import Strided
from oocdata.formats.zarr.objects import Objects
from oocdata.formats.zarr.store import Folder

__all__ = ["ChunkFiles", "chunk_files"]

_LARGE = 16 << 10
"""Bytes of a row from which on reading it alone costs less than its share of a whole chunk."""

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

    def __init__(self, parts: tuple[Source, ...], axis: int, described: Storage) -> None:
        super().__init__(parts, axis)
        self._described = described

    def __reduce__(self) -> tuple[Any, ...]:
        return ChunkFiles, (self.parts, self.axis, self._described)

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
    if survey is None or survey.absent or survey.count > _MOST_FILES:
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
    for number in range(survey.count):
        version = FileVersion.of(f"{store.path}/{objects.name(objects.place(number))}")
        length = min(step, metadata.shape[axis] - number * step)
        shape = (*metadata.shape[:axis], length, *metadata.shape[axis + 1 :])
        stored = OpenFile(version), metadata.stored_dtype, shape, strides, 0, described
        parts.append(Strided(*stored, axis=objects.axis))
    return ChunkFiles(tuple(parts), axis, described)
