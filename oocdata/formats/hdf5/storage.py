"""Inspect how an HDF5 dataset is stored, and check that none of it is missing.

HDF5 silently reads the fill value for chunks that were never written and for lost source files of a
virtual dataset. Here they are an error at ``open``, found from metadata alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from h5py import h5d

from oocdata.errors import ExternalDataError, MissingChunkError
from oocdata.formats.codecs import chunk_grid
from oocdata.formats.hdf5.file import FILTERS, fill_value, require_filters
from oocdata.formats.hdf5.table import present_chunks

__all__ = [
    "Rules",
    "Stored",
    "codec_name",
    "filters_of",
    "inspect_stored",
    "missing_error",
    "offset_of",
]

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

    kind: str  #: ``"contiguous"``, ``"chunked"``, ``"compact"`` or ``"virtual"``
    filters: tuple[int, ...] = ()  #: of the dataset, or of the sources of a virtual dataset
    outside: tuple[str, ...] = ()  #: absolute paths of other files with bytes of the dataset


def inspect_stored(dataset: Any, rules: Rules) -> Stored:
    """Return how a dataset that is not virtual is stored; see `virtual.inspect_storage`."""
    plist = dataset.id.get_create_plist()
    kind = plist.get_layout()
    if kind == h5d.COMPACT:
        return Stored("compact")
    if kind == h5d.CHUNKED:
        filters = filters_of(plist)
        require_filters(filters, rules.path, rules.key)
        if not rules.fill:
            _check_chunks(dataset, rules)
        return Stored("chunked", filters)
    if plist.get_external_count():
        name, offset, _ = plist.get_external(0)
        raise ExternalDataError(
            f"the bytes must lie in an HDF5 file; they begin in {os.fsdecode(name)!r}, at byte "
            f"{offset}. Open that file as raw binary: `dtype`, `shape` and `offset` of `ooc.open`."
        )
    if not rules.fill and dataset.size and offset_of(dataset.id) is None:
        rows = range(dataset.shape[rules.axis] if dataset.shape else 1)
        raise missing_error("all of it was", rows, dataset)
    return Stored("contiguous")


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


def _check_chunks(dataset: Any, rules: Rules) -> None:
    """Raise if a chunk was never written; chunks are listed only if too few are stored."""
    step, total = dataset.chunks[rules.axis], dataset.shape[rules.axis]
    counts = chunk_grid(dataset.shape, dataset.chunks)
    if dataset.id.get_num_chunks() == prod(counts):
        return
    present = present_chunks(dataset)
    along = present.numbers // present.steps[rules.axis] % counts[rules.axis]
    missing = prod(counts) - len(along)
    if not missing:  # the other chunks are beyond the end, left when the dataset shrank
        return
    positions, written = np.unique(along, return_counts=True)
    complete = positions[written == prod(counts) // counts[rules.axis]]
    # Enough positions from the front to find `few` incomplete ones, if there are so many.
    few = -(-_MOST_ROWS_NAMED // step)
    front = np.arange(min(counts[rules.axis], len(complete) + few))
    holes = np.setdiff1d(front, complete, assume_unique=True)[:few]
    rows = (holes[:, None] * step + np.arange(step)).ravel()
    count = (counts[rules.axis] - len(complete)) * step
    if counts[rules.axis] - 1 not in complete[-1:]:
        count -= counts[rules.axis] * step - total  # the last chunk extends beyond the array
    what = f"{missing} of {prod(counts)} chunks were"
    raise missing_error(what, rows[rows < total], dataset, count)


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
