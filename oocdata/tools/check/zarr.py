"""Zarr for a check: opened from its metadata alone, each stored object looked at for itself."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from typing import Any

import numpy as np

from oocdata.errors import SourceError
from oocdata.sources.chunks import Chunks
from oocdata.sources.source import check_axis
from oocdata.sources.zarr.attributes import attributes_of
from oocdata.sources.zarr.hierarchy import find_array
from oocdata.sources.zarr.metadata import ArrayMetadata
from oocdata.sources.zarr.readers import TensorStoreReader, ZarrReader
from oocdata.sources.zarr.store import Store, join, store_of
from oocdata.sources.zarr.stored import StoredArray, metadata_written
from oocdata.sources.zarr.survey import absent_rows
from oocdata.tools.check.opening import Fault, Opened
from oocdata.tools.check.ranges import Ranges, ranges_of
from oocdata.tools.info import Opening

__all__ = ["opened_zarr"]


def opened_zarr(path: str, key: str | None, opening: Opening) -> Opened:
    """Open an array whatever is the matter with its chunks: absent ones read as the fill value.

    At a URL, where asking for each object would take as long as reading it, an absent chunk is
    found when it is read.

    Raises
    ------
    oocdata.errors.SourceError
        If its metadata can't be read.
    """
    store = store_of(path)
    name, metadata = find_array(store, key, path)
    names = attributes_of(store, name, metadata).dimensions
    axis = check_axis(opening.axis, len(metadata.shape), store.path, name or None, names)
    stored = StoredArray(
        store=store,
        key=name,
        metadata=metadata,
        axis=axis,
        missing="fill" if store.listable else "error",
        version=uuid.uuid4().hex,  # chunks that were kept before may have changed since
        stored_bytes=None,
        written=metadata_written(store, name, metadata.version),
    )
    reason = metadata.zarr_only
    reader = ZarrReader(stored, reason) if reason else TensorStoreReader(stored)
    faults = _Objects(store, name, metadata, axis).faults() if store.listable else ()
    lost = [rows for fault in faults if fault.kind == "truncated" for rows in fault.rows.kept]
    return Opened(Chunks.of(reader, axis), axis, tuple(lost), faults)


class _Objects:
    """The stored objects of an array: chunks, or shards of several."""

    def __init__(self, store: Store, key: str, metadata: ArrayMetadata, axis: int) -> None:
        self.store, self.key, self.metadata, self.axis = store, key, metadata, axis
        self.absent, self.short = Ranges(), Ranges()
        self.example = self.reason = ""
        self.count = 0

    def faults(self) -> tuple[Fault, ...]:
        """Look whether each is there, and as long as it must be."""
        metadata, axis = self.metadata, self.axis
        total, step = metadata.shape[axis], metadata.object_shape[axis]
        for number in range(metadata.grid[axis]):
            first = number * step
            absent, short = np.zeros((2, min(step, total - first)), np.bool_)
            for place in self._places(number):
                self._look(place, first, absent, short)
            for found, rows in ((self.absent, absent), (self.short, short)):
                for part in ranges_of(rows, first):
                    found.add(part)
        faults = []
        if self.count:
            unit = "shards, or chunks in them" if metadata.sharded else "chunks"
            reason = (
                f"every chunk must be stored; {unit} that are not: {self.count}, the first "
                f"{self.example!r}. They were never written or have been lost, and read as the "
                f"fill value {metadata.fill_value}."
            )
            faults.append(Fault("unwritten", self.absent, reason))
        if self.short.count:
            faults.append(Fault("truncated", self.short, self.reason))
        return tuple(faults)

    def _places(self, number: int) -> Iterator[tuple[int, ...]]:
        """Yield the places of the grid that hold the same rows."""
        grid = [range(length) for length in self.metadata.grid]
        grid[self.axis] = range(number, number + 1)
        return itertools.product(*grid)

    def _look(self, place: tuple[int, ...], first: int, absent: Any, short: Any) -> None:
        metadata = self.metadata
        name = join(self.key, metadata.name(place))
        status = self.store.status(name)
        if status is None:
            absent[:] = True
        else:
            need, index = metadata.raw_bytes, metadata.shard_index
            least = index.nbytes if index is not None else 1
            if status.nbytes < (need or least):  # too many bytes are found when it is decoded
                short[:] = True
                self.reason = self.reason or (
                    f"a stored object must hold {need or f'at least {least}'} bytes; {name!r} "
                    f"holds {status.nbytes}. It was cut short, or its writer was."
                )
                return
            rows = self._absent_in_shard(place)
            if not rows:
                return
            absent[np.array(rows) - first] = True
        self.count += 1
        self.example = self.example or name

    def _absent_in_shard(self, place: tuple[int, ...]) -> list[int]:
        metadata = self.metadata
        if metadata.shard_index is None:
            return []  # no shards, or an index that only its reader can decode
        box = tuple(
            slice(at * step, min((at + 1) * step, length))
            for at, step, length in zip(place, metadata.object_shape, metadata.shape, strict=True)
        )
        try:
            return absent_rows(self.store, self.key, metadata, box, self.axis)
        except SourceError:
            return []  # reading it says why
