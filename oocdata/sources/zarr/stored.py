"""One Zarr array, where it lies and what is known of it: what its two readers have in common."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from oocdata.errors import (
    DamagedChunkError,
    MissingFileError,
    SourceError,
    UnknownFormatError,
)
from oocdata.sources.dimensions import as_stored
from oocdata.sources.source import Annotations, Layout
from oocdata.sources.zarr.attributes import attributes_of, fill_value_of
from oocdata.sources.zarr.metadata import ArrayMetadata
from oocdata.sources.zarr.store import Archive, Folder, Store

__all__ = ["Described", "StoredArray", "metadata_written", "rows_that_fail"]


@dataclass(frozen=True, slots=True)
class StoredArray:
    """One array, where it lies and what is known of it: what both readers read.

    Attributes
    ----------
    store : Store
    key : str
        Below the store; empty for an array at its root.
    metadata : ArrayMetadata
    axis : int
        The row axis, to name rows in errors.
    missing : str
        ``"error"`` or ``"fill"``.
    version : hashable
        Tells this content from what is written there later.
    stored_bytes : int or None
    written : int or None
        Tells when the metadata, or the archive that holds all, were last written; None where
        asking each time would cost too much.
    newest : int or None
        When the newest of its files in a folder was written, in nanoseconds since the epoch; None
        where they were not all looked at.
    dimensions : tuple of str
        Names of the axes; empty where none has a name.
    packed : str
        How the numbers are packed (`oocdata.sources.dimensions.packing`).
    """

    store: Store
    key: str
    metadata: ArrayMetadata
    axis: int
    missing: Literal["error", "fill"]
    version: Hashable
    stored_bytes: int | None
    written: int | None = None
    newest: int | None = None
    dimensions: tuple[str, ...] = ()
    packed: str = ""

    def check_unchanged(self) -> None:
        """Raise if the array was written anew, or deleted: an epoch would mix old and new chunks.

        Raises
        ------
        oocdata.errors.SourceError, oocdata.errors.MissingFileError
        """
        if self.written is None:
            return
        now = metadata_written(self.store, self.key, self.metadata.version)
        if now is None:
            raise MissingFileError(
                "the array must be there while it is read; it was deleted.",
                path=self.store.path,
                key=self.key or None,
            )
        if now != self.written:
            raise self._written_anew()

    def check_objects(self, boxes: Iterable[tuple[slice, ...]]) -> None:
        """Raise if a stored object that boxes lie in was written after the array was opened.

        Raises
        ------
        oocdata.errors.SourceError
            With the rows of the box.
        """
        if self.newest is None:
            return
        folder = os.path.join(self.store.path, self.key)
        for box in boxes:
            for place in self.metadata.objects(box):
                try:
                    status = os.stat(f"{folder}/{self.metadata.name(place)}")
                except OSError:
                    continue  # whoever reads it tells
                if status.st_mtime_ns > self.newest:
                    raise self._written_anew(range(box[self.axis].start, box[self.axis].stop))

    def _written_anew(self, rows: range | None = None) -> SourceError:
        return SourceError(
            "the array must be as it was when it was opened; it was written anew. Open it again.",
            path=self.store.path,
            key=self.key or None,
            rows=rows,
        )

    def damaged(self, reason: str, rows: list[int]) -> SourceError:
        """Return the error for bytes that do not decode."""
        return DamagedChunkError(
            f"every chunk must decode; {reason}. Restore the file from a copy.",
            path=self.store.path,
            key=self.key or None,
            rows=rows,
        )

    def check_shape(self, shape: tuple[int, ...]) -> None:
        """Check that the array is still what it was at ``open``."""
        if tuple(shape) != self.metadata.shape:
            raise UnknownFormatError(
                f"the array must keep the shape {self.metadata.shape} it had at `open`; it is now "
                f"{tuple(shape)}. Open it again.",
                path=self.store.path,
                key=self.key or None,
            )

    def annotations(self) -> Annotations:
        """Return attributes and fill value."""
        said = attributes_of(self.store, self.key, self.metadata)
        return Annotations(said.attributes, fill_value_of(self.metadata))

    def layout(self, reading: str) -> Layout:
        """Return where and how the array is stored."""
        return Layout(
            format=f"Zarr v{self.metadata.version}",
            path=self.store.path,
            key=self.key or None,
            storage=self.metadata.storage,
            codec=self.metadata.codec,
            stored_bytes=self.stored_bytes,
            reading=reading + as_stored(self.packed),
            dimensions=self.dimensions,
            packed=self.packed,
        )


def metadata_written(store: Store, key: str, version: int) -> int | None:
    """Tell when an array's metadata, or the archive that holds them, were last written.

    None where they are gone, or neither in a folder nor in an archive.
    """
    name = "zarr.json" if version == 3 else ".zarray"
    try:
        if isinstance(store, Folder):
            return os.stat(os.path.join(store.path, key, name)).st_mtime_ns
        return store.written() if isinstance(store, Archive) else None
    except OSError:
        return None


class Described:
    """The attributes of a BoxReader that the description gives."""

    __slots__ = ()
    stored: StoredArray

    def annotations(self) -> Annotations:
        """Return attributes and fill value."""
        return self.stored.annotations()

    @property
    def shape(self) -> tuple[int, ...]:
        """As stored, before the row axis is moved to the front."""
        return self.stored.metadata.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Native byte order."""
        return self.stored.metadata.dtype

    @property
    def chunk_shape(self) -> tuple[int, ...]:
        """What is decoded together, at most the array."""
        metadata = self.stored.metadata
        return tuple(
            max(1, min(step, length))
            for step, length in zip(metadata.chunk_shape, metadata.shape, strict=True)
        )


def rows_that_fail(
    box: tuple[slice, ...], axis: int, step: int, fails: Callable[[tuple[slice, ...]], bool]
) -> list[int]:
    """Return the rows of a box that can't be read, asking one chunk after the other."""
    rows: list[int] = []
    start, stop = int(box[axis].start), int(box[axis].stop)
    while start < stop:
        end = min((start // step + 1) * step, stop)
        part = (*box[:axis], slice(start, end), *box[axis + 1 :])
        if (start, end) == (box[axis].start, box[axis].stop) or fails(part):
            rows.extend(range(start, end))
        start = end
    return rows or list(range(int(box[axis].start), stop))
