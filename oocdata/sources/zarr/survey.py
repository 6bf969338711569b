"""Which stored objects of a Zarr array are there, found when it is opened.

A chunk that is absent reads as the fill value, whether its writer left it out on purpose or it was
lost in a copy; a loader that delivers such rows trains a model on numbers nobody measured. Asking
the file system for every chunk costs about 4 µs each, so where that is cheap it is done at open.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.errors import DamagedChunkError, MissingChunkError, SourceError
from oocdata.sources.zarr.metadata import ArrayMetadata
from oocdata.sources.zarr.store import Store, join

__all__ = ["Survey", "absent_rows", "missing_error", "survey"]

_MOST_OBJECTS = 32_768
"""Beyond this many stored objects, missing ones are found when they are read."""

_EMPTY = np.uint64(2**64 - 1)


@dataclass(frozen=True, slots=True)
class Survey:
    """What a look at every stored object told.

    Attributes
    ----------
    stored_bytes : int
    version : int
        Changes when any object is written again.
    newest : int
        When the newest was written, in nanoseconds since the epoch; 0 where that is not known.
    missing : int
        Objects or chunks that are not there.
    """

    stored_bytes: int
    version: int
    newest: int
    missing: int


def survey(
    store: Store, key: str, metadata: ArrayMetadata, axis: int, *, fill: bool
) -> Survey | None:
    """Look at every stored object of an array, where that is cheap; None where it is not.

    Parameters
    ----------
    store, key, metadata
        The array.
    axis : int
        The row axis.
    fill : bool
        Missing objects are accepted.

    Raises
    ------
    oocdata.errors.MissingChunkError, oocdata.errors.DamagedChunkError
        With the rows concerned.
    """
    count = math.prod(metadata.grid)
    if not store.listable or count > _MOST_OBJECTS:
        return None
    total = version = newest = 0
    missing: list[tuple[str, range]] = []
    for place in itertools.product(*map(range, metadata.grid)):
        name = join(key, metadata.name(place))
        found = store.status(name)
        if found is None:
            missing.append((name, _rows(metadata, place, axis)))
            continue
        total += found.nbytes
        version = hash((version, found.version))
        newest = max(newest, found.modified)
        wrong = _wrong_size(metadata, found.nbytes)
        if wrong:
            raise DamagedChunkError(
                f"the stored object {name!r} must {wrong}; got {found.nbytes}. It was cut short, "
                "or its writer is not done.",
                path=store.path,
                key=key or None,
                rows=_rows(metadata, place, axis),
            )
        if metadata.shard_index is not None and not fill:
            missing += [
                (name, rows) for rows in _absent_in_shard(store, key, metadata, place, axis, name)
            ]
    if missing and not fill:
        unit = "chunk" if metadata.shard_index is not None or not metadata.sharded else "shard"
        raise missing_error(
            f"{len(missing)} of the array's {unit}s are missing, the first in {missing[0][0]!r}",
            store,
            key,
            metadata,
            _union(rows for _, rows in missing),
        )
    return Survey(total, version, newest, len(missing))


def absent_rows(
    store: Store, key: str, metadata: ArrayMetadata, box: tuple[slice, ...], axis: int
) -> list[int]:
    """Return the rows of a box whose chunks are not all stored."""
    found: list[range] = []
    for place in metadata.objects(box):
        name = join(key, metadata.name(place))
        if metadata.sharded:
            found += _absent_in_shard(store, key, metadata, place, axis, name, box)
        elif store.status(name) is None:
            found.append(_rows(metadata, place, axis))
    return [row for row in _union(found) if box[axis].start <= row < box[axis].stop]


def missing_error(
    what: str, store: Store, key: str, metadata: ArrayMetadata, rows: Iterable[int]
) -> SourceError:
    """Return the error for chunks that are not there."""
    return MissingChunkError(
        f"every chunk must be stored; {what}. They were never written or have been lost. If their "
        f"writer leaves out chunks that hold only the fill value {metadata.fill_value} "
        '(write_empty_chunks=False, zarr\'s default), give missing="fill".',
        path=store.path,
        key=key or None,
        rows=rows,
    )


def _wrong_size(metadata: ArrayMetadata, nbytes: int) -> str:
    """Return what the size of a stored object must be, if it is not."""
    if metadata.raw_bytes is not None and nbytes != metadata.raw_bytes:
        return f"hold {metadata.raw_bytes} bytes (nothing is compressed)"
    least = metadata.shard_index.nbytes if metadata.shard_index is not None else 1
    return f"hold at least {least} bytes" if nbytes < least else ""


def _absent_in_shard(
    store: Store,
    key: str,
    metadata: ArrayMetadata,
    place: tuple[int, ...],
    axis: int,
    name: str,
    box: tuple[slice, ...] | None = None,
) -> list[range]:
    """Return the rows of the chunks that a shard does not hold."""
    index = metadata.shard_index
    if index is None:
        raise SourceError(
            "a missing chunk can't be told from a stored one in these shards, whose index is "
            'encoded. Give missing="fill" if every absent chunk holds the fill value.',
            path=store.path,
            key=key or None,
        )
    stored = store.read_part(name, None if index.at_end else 0, index.nbytes)
    if stored is None:
        return [_rows(metadata, place, axis)]
    if len(stored) < index.nbytes:
        return []  # cut short: the reader's error says so
    # All ones in either byte order.
    addresses = np.frombuffer(stored, np.uint64, 2 * math.prod(index.grid)).reshape(*index.grid, 2)
    absent = (addresses == _EMPTY).all(axis=-1)
    if not absent.any():
        return []
    rows = []
    for inner in np.argwhere(absent):
        bounds = _bounds(metadata, place, inner)
        inside = all(
            part.start < part.stop and (limit is None or _overlap(part, limit))
            for part, limit in zip(bounds, box or (None,) * len(bounds), strict=True)
        )
        if inside:
            rows.append(bounds[axis])
    return rows


def _bounds(
    metadata: ArrayMetadata, place: tuple[int, ...], inner: NDArray[Any]
) -> tuple[range, ...]:
    """Return what one chunk of a shard covers, cut at the end of the array."""
    index = metadata.shard_index
    bounds = [range(0)] * len(place)
    if index is not None:
        for stored, axis in enumerate(index.axes):
            step = index.chunk_shape[stored]
            start = place[axis] * metadata.object_shape[axis] + int(inner[stored]) * step
            bounds[axis] = range(start, min(start + step, metadata.shape[axis]))
    return tuple(bounds)


def _rows(metadata: ArrayMetadata, place: tuple[int, ...], axis: int) -> range:
    step = metadata.object_shape[axis]
    return range(place[axis] * step, min((place[axis] + 1) * step, metadata.shape[axis]))


def _overlap(part: range, limit: slice) -> bool:
    return part.start < int(limit.stop) and int(limit.start) < part.stop


def _union(ranges: Iterable[range]) -> list[int]:
    """Return the rows of ranges, each once, in order."""
    rows: list[int] = []
    for part in sorted(set(ranges), key=lambda part: part.start):
        start = max(part.start, rows[-1] + 1) if rows else part.start
        rows.extend(range(start, part.stop))
    return rows
