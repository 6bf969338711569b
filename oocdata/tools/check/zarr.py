"""Zarr for a check: opened from its metadata alone, each stored object looked at for itself."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.chunked import Chunked
from oocdata.engines.source import Storage
from oocdata.errors import SourceError
from oocdata.formats.zarr.hierarchy import find_array
from oocdata.formats.zarr.objects import Objects
from oocdata.formats.zarr.readers import reader_of
from oocdata.formats.zarr.store import store_of
from oocdata.tools.check.opening import Fault, Opened, row_axis
from oocdata.tools.check.rows import Rows
from oocdata.tools.info import Opening
from oocdata.tools.ranges import Ranges, ranges_of

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
    named = Storage("Zarr", store.path, name or None, dimensions=metadata.dimensions)
    axis = row_axis(opening.axis, len(metadata.shape), named)
    objects = Objects(store, name, metadata, axis)
    reader = reader_of(objects, "fill" if store.listable else "error")
    faults = _Look(objects).faults() if store.listable else ()
    lost = [rows for fault in faults if fault.kind == "truncated" for rows in fault.rows.kept]
    return Opened(Rows(Chunked(reader), axis), tuple(lost), faults)


class _Look:
    """What is found of the stored objects of an array: chunks, or shards of several."""

    def __init__(self, objects: Objects) -> None:
        self.objects, self.metadata, self.axis = objects, objects.metadata, objects.axis
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

    def _look(
        self,
        place: tuple[int, ...],
        first: int,
        absent: NDArray[np.bool_],
        short: NDArray[np.bool_],
    ) -> None:
        metadata, name = self.metadata, self.objects.name(place)
        status = self.objects.store.status(name)
        if status is None:
            absent[:] = True
        else:
            least = metadata.least_bytes
            if status.nbytes < least:  # too many bytes are found when it is decoded
                short[:] = True
                need = f"{'' if metadata.raw_bytes else 'at least '}{least}"
                self.reason = self.reason or (
                    f"a stored object must hold {need} bytes; {name!r} "
                    f"holds {status.nbytes}. It was cut short, or its writer was."
                )
                return
            rows = self._absent_in_shard(place)
            if not rows:
                return
            for part in rows:
                absent[part.start - first : part.stop - first] = True
        self.count += 1
        self.example = self.example or name

    def _absent_in_shard(self, place: tuple[int, ...]) -> list[range]:
        """Return the rows of chunks that a shard does not hold."""
        metadata = self.metadata
        if metadata.codecs.shard_index is None:
            return []  # no shards, or an index that only its reader can decode
        chunks = self.objects.chunks(place)
        try:
            missing = chunks[self.objects.absent(chunks), self.axis]
        except SourceError:
            return []  # reading it says why
        step, total = metadata.chunk_shape[self.axis], metadata.shape[self.axis]
        return [range(at * step, min((at + 1) * step, total)) for at in np.unique(missing).tolist()]
