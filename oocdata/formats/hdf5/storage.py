"""Inspect how an HDF5 dataset is stored, and check that none of it is missing.

HDF5 silently reads the fill value for chunks that were never written and for lost source files of a
virtual dataset. Here they are an error at ``open``, found from metadata alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, islice
from math import prod
from typing import Any

import numpy as np
from h5py import h5d

from oocdata.engines.files import FileVersion
from oocdata.engines.gather.grid import c_strides
from oocdata.errors import ExternalDataError, MissingChunkError
from oocdata.formats.codecs import chunk_grid
from oocdata.formats.hdf5.file import FILTERS, fill_value, require_filters
from oocdata.formats.hdf5.table import stored_chunks

_MOST_ROWS_NAMED = 1000


@dataclass(frozen=True, slots=True)
class Rules:
    """What the user allows when a dataset is read, and the names for errors."""

    path: str
    key: str | None
    axis: int  #: along which errors count rows
    fill: bool  #: missing chunks may read as the fill value
    external: bool  #: the bytes may be in other files
    depth: int = 0  #: nesting depth of virtual datasets


@dataclass(frozen=True, slots=True)
class Stored:
    """How a dataset is stored."""

    kind: str  #: see `kind_of`
    filters: tuple[int, ...] = ()  #: of the dataset, or of the sources of a virtual dataset
    outside: tuple[FileVersion, ...] = ()  #: other files with bytes of the dataset
    chunks: tuple[int, ...] | None = None
    """Shape of the chunks that are decoded as a whole; of a virtual dataset, as its sources'."""


_KINDS = {
    h5d.CONTIGUOUS: "contiguous",
    h5d.CHUNKED: "chunked",
    h5d.COMPACT: "compact",
    h5d.VIRTUAL: "virtual",
}


def kind_of(dataset: Any) -> str:
    """Return ``"contiguous"``, ``"chunked"``, ``"compact"`` or ``"virtual"``."""
    return _KINDS[dataset.id.get_create_plist().get_layout()]


def inspect_stored(dataset: Any, rules: Rules) -> Stored:
    """Return how a dataset that is not virtual is stored; see `virtual.inspect_storage`."""
    plist, kind = dataset.id.get_create_plist(), kind_of(dataset)
    filters = filters_of(plist)
    require_filters(filters, rules.path, rules.key)
    if plist.get_external_count():
        name, offset, _ = plist.get_external(0)
        raise ExternalDataError(
            f"the bytes must lie in an HDF5 file; they begin in {os.fsdecode(name)!r}, at byte "
            f"{offset}. Open that file as raw binary: `dtype`, `shape` and `offset` of `ooc.open`."
        )
    what, ranges = ("", []) if rules.fill else unwritten_rows(dataset, rules.axis)
    if ranges:
        rows = islice(chain.from_iterable(ranges), _MOST_ROWS_NAMED)
        raise missing_error(what, rows, dataset, sum(map(len, ranges)))
    return Stored(kind, filters, chunks=dataset.chunks)


def unwritten_rows(dataset: Any, axis: int) -> tuple[str, list[range]]:
    """Return what of a dataset was never written, in words, and the rows that it belongs to.

    Chunks are listed only if too few are stored. The bytes of a dataset that is neither chunked nor
    contiguous are not in question, nor are those in files of other formats.
    """
    kind, shape, steps = kind_of(dataset), dataset.shape, dataset.chunks
    if kind == "contiguous" and dataset.size and offset_of(dataset.id) is None:
        is_external = dataset.id.get_create_plist().get_external_count()
        return "all of it was", [] if is_external else [range(shape[axis] if shape else 1)]
    if kind != "chunked" or not dataset.size:
        return "", []
    counts = chunk_grid(shape, steps)
    total, step = prod(counts), steps[axis]
    if dataset.id.get_num_chunks() == total:
        return "", []
    numbers = stored_chunks([dataset.id], counts, steps)[0]  # without those beyond the end
    along = numbers // c_strides(counts)[axis] % counts[axis]
    positions, written = np.unique(along, return_counts=True)
    complete = positions[written == total // counts[axis]]
    starts, stops = np.append(0, complete + 1), np.append(complete, counts[axis])
    pairs = np.stack([starts, stops], axis=1)[starts < stops] * step
    ranges = [range(start, min(stop, shape[axis])) for start, stop in pairs.tolist()]
    return f"{total - len(along)} of {total} chunks were", ranges


def filters_of(plist: Any) -> tuple[int, ...]:
    """Return the filters of a dataset, in the order in which they were applied."""
    return tuple(plist.get_filter(place)[0] for place in range(plist.get_nfilters()))


def offset_of(dataset: Any) -> int | None:
    """Return the byte offset of a contiguous dataset; None for other layouts, or if unallocated.

    The size is checked because HDF5 1.14 returns an offset for an unallocated dataset of a file
    with a user block.
    """
    offset: int | None = dataset.get_offset()
    return offset if offset is not None and dataset.get_storage_size() else None


def codec_name(dataset: Any) -> str:
    """Return the filters in the order in which they were applied, e.g. ``"shuffle, gzip 4"``."""
    words, plist = [], dataset.id.get_create_plist()
    for place in range(plist.get_nfilters()):
        number, _, values, _ = plist.get_filter(place)
        name = FILTERS.get(number, f"filter {number}")
        words.append(f"{name} {values[0]}" if number == 1 and values else name)
    return ", ".join(words) or "none"


def missing_error(
    what: str, rows: Iterable[int], dataset: Any, count: int | None = None
) -> MissingChunkError:
    """Return the error for rows that would read as the fill value.

    `what` begins the sentence "… never written" and ends with "was" or "were". `count` is the
    number of rows, if `rows` holds only the first of them.
    """
    return MissingChunkError(
        f"every row must have been written; {what} never written, or lost. "
        f'Pass missing="fill" to read the fill value {fill_value(dataset, undefined=0)} there.',
        rows=rows,
        count=count,
    )
