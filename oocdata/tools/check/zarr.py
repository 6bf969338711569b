"""Zarr for a check: opened from its metadata alone, each stored object looked at for itself."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from oocdata.datasets.view import View
from oocdata.engines.axes import sample_axes
from oocdata.engines.chunked import Chunked
from oocdata.engines.source import Storage
from oocdata.errors import SourceError
from oocdata.formats.zarr.hierarchy import find_array
from oocdata.formats.zarr.objects import Objects
from oocdata.formats.zarr.readers import reader_of
from oocdata.formats.zarr.store import store_of
from oocdata.tools.check.opening import Opened
from oocdata.tools.check.rows import Fault
from oocdata.tools.opening import Opening
from oocdata.tools.ranges import ranges_of

__all__ = ["opened_zarr"]


def opened_zarr(opening: Opening) -> Opened:
    """Open an array whatever is the matter with its chunks: absent ones read as the fill value.

    At a URL, where asking for each object would take as long as reading it, an absent chunk is
    found when it is read.
    """
    store = store_of(opening.target)
    name, metadata = find_array(store, opening.key, opening.target)
    if metadata is None:  # a group that is one array
        return Opened(opening.view())
    named = Storage("Zarr", store.path, name or None, dimensions=metadata.dimensions)
    (axis,) = sample_axes(opening.axis, len(metadata.shape), named)
    objects = Objects(store, name, metadata, axis)
    view = View.of(Chunked(reader_of(objects, "fill" if store.listable else "error")), axis)
    if not store.listable:
        return Opened(view)
    absent, short = _faults(objects)
    faults = tuple(fault for fault in (absent, short) if fault.reason)
    return Opened(view, faults, tuple(short.rows.kept))


def _faults(objects: Objects) -> tuple[Fault, Fault]:
    """Look whether each stored object, a chunk or a shard, is there and as long as it must be."""
    metadata, axis = objects.metadata, objects.axis
    total, step, least = metadata.shape[axis], metadata.object_shape[axis], metadata.least_bytes
    absent, short = Fault("unwritten", ""), Fault("truncated", "")
    count, example = 0, ""
    for number in range(metadata.grid[axis]):
        rows = range(number * step, min((number + 1) * step, total))
        missing, cut = np.zeros(len(rows), np.bool_), False
        for place in _places(objects, number):
            name = objects.name(place)
            status = objects.store.status(name)
            if status is not None and status.nbytes < least:  # more is found when it is decoded
                cut = True
                need = f"{'' if metadata.raw_bytes else 'at least '}{least}"
                short.reason = short.reason or (
                    f"a stored object must hold {need} bytes; {name!r} holds {status.nbytes}. It "
                    "was cut short, or its writer was."
                )
                continue
            parts = [rows] if status is None else _absent_in_shard(objects, place)
            for part in parts:
                missing[part.start - rows.start : part.stop - rows.start] = True
            count += bool(parts)
            example = example or (name if parts else "")
        for part in ranges_of(missing, rows.start):
            absent.rows.add(part)
        if cut:
            short.rows.add(rows)
    if count:
        unit = "shards, or chunks in them" if metadata.sharded else "chunks"
        absent.reason = (
            f"every chunk must be stored; {unit} that are not: {count}, the first {example!r}. "
            "They were never written or have been lost, and read as the fill value "
            f"{metadata.fill_value}."
        )
    return absent, short


def _places(objects: Objects, number: int) -> Iterator[tuple[int, ...]]:
    """Yield the places of the grid that hold the same rows."""
    grid = [range(length) for length in objects.metadata.grid]
    grid[objects.axis] = range(number, number + 1)
    return itertools.product(*grid)


def _absent_in_shard(objects: Objects, place: tuple[int, ...]) -> list[range]:
    """Return the rows of chunks that a shard does not hold."""
    metadata, axis = objects.metadata, objects.axis
    if metadata.codecs.shard_index is None:
        return []  # no shards, or an index that only its reader can decode
    chunks = objects.chunks(place)
    try:
        missing = chunks[objects.absent(chunks), axis]
    except SourceError:
        return []  # reading it says why
    step, total = metadata.chunk_shape[axis], metadata.shape[axis]
    return [range(at * step, min((at + 1) * step, total)) for at in np.unique(missing).tolist()]
