"""Opening what is damaged: as much of an array as is there, and which rows are not.

`oocdata.open` refuses a file that is not whole. A check wants to know the rest as well, so what is
lost is told here, and a View is made of what is left.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.datasets.view import View
from oocdata.engines.axes import sample_axes
from oocdata.engines.chunked import Chunked
from oocdata.engines.source import Storage
from oocdata.errors import MissingKeyError, SourceError, TrailingBytesError, TruncatedFileError
from oocdata.formats.npy import open_npy, open_raw
from oocdata.formats.opening import Missing, format_of
from oocdata.formats.stored import opened as file_opened
from oocdata.formats.zarr.hierarchy import find_array
from oocdata.formats.zarr.objects import Objects
from oocdata.formats.zarr.shards import reader_of
from oocdata.formats.zarr.store import Store, join, store_of
from oocdata.tools.check.ranges import Ranges, ranges_of
from oocdata.tools.check.rows import Fault, kind_of
from oocdata.tools.opening import Opening

__all__ = ["Opened", "opened"]

_PARTS = ("data", "indices", "indptr", "codes", "categories")
"""Arrays of groups that are one array: of a sparse matrix, of a column of categories."""

_MEMBER_STEP = 8 << 20
"""Bytes of a member that are asked for at a time, where it lies in a store."""


@dataclass(frozen=True, slots=True)
class Opened:
    """An array as far as it is there, and what is known to be wrong without reading it."""

    view: View  # all rows, along one axis
    faults: tuple[Fault, ...] = ()
    whole_rows: int | None = None  # the first ones, where the file was cut short behind them


def opened(opening: Opening) -> Opened:
    """Open an array of a file; raise if nothing can be read."""
    kind = None if opening.shape is not None else format_of(opening.target)
    if kind == "hdf5":
        from oocdata.tools.check.hdf5 import opened_hdf5

        return opened_hdf5(opening)
    if kind == "zarr":
        return _opened_zarr(opening)
    if kind == "npz":
        return _opened_npz(opening)
    return _opened_plain(opening) if kind in (None, "npy") else Opened(opening.view())


def _opened_plain(opening: Opening) -> Opened:
    """Open ``.npy`` or raw binary, cut short or too long as it may be."""
    try:
        return Opened(opening.view())
    except (TruncatedFileError, TrailingBytesError) as error:
        fault = Fault("trailing", error.message)
        if isinstance(error, TruncatedFileError):
            fault.kind = kind_of(error)
    path, axis, field = opening.target, opening.axis, opening.field
    if opening.shape is not None and opening.dtype is not None:
        given: Any = {"dtype": opening.dtype, "shape": opening.shape, "offset": opening.offset}
        view = View.of(open_raw(path, **given, whole=False), axis)
    else:
        view = View.of(open_npy(path, whole=False, dtype=opening.dtype), axis)
    storage, shape = view.storage, view.source.shape
    nbytes = storage.files[0].nbytes - storage.offset
    strides = storage.strides or ()
    beyond = _rows_beyond(shape, strides, view.dtype.itemsize, view.axes[0], nbytes)
    fault.rows.add(beyond)
    for name in [field] if isinstance(field, str) else field:
        view = view[name]
    return Opened(view, (fault,), beyond.start)


def _rows_beyond(
    shape: Sequence[int], strides: Sequence[int], itemsize: int, axis: int, nbytes: int
) -> range:
    """Return the rows that reach beyond the end of an array of which only some bytes are there.

    A row's last byte lies farther the farther the row is, because strides are positive.
    """
    count, step = shape[axis], strides[axis]
    row = [1 if at == axis else length for at, length in enumerate(shape)]
    reach = sum((length - 1) * stride for length, stride in zip(row, strides, strict=True))
    room = nbytes - reach - itemsize
    whole = room // step + 1 if room >= 0 and step else 0
    return range(min(whole, count), count)


def _opened_npz(opening: Opening) -> Opened:
    """Open a member of an ``.npz``, which has a CRC-32 (APPNOTE 4.4.7)."""
    view = opening.view()
    with (
        file_opened(opening.target, _MEMBER_STEP) as (stream, _),
        zipfile.ZipFile(stream) as archive,
    ):
        try:
            with archive.open(f"{view.storage.key}.npy") as file:
                while file.read(1 << 20):
                    pass
        except SourceError:  # a store does not answer: that says nothing of the member
            raise
        except (zipfile.BadZipFile, zlib.error, OSError) as error:
            reason = f"a member must match its CRC-32; {error}."
            return Opened(view, (Fault("damaged", reason, Ranges([range(len(view))])),))
    return Opened(view)


def _opened_zarr(opening: Opening) -> Opened:
    """Open an array whatever is the matter with its chunks: absent ones read as the fill value.

    At a URL, where asking for each object would take as long as reading it, an absent chunk is
    found when it is read.
    """
    assert opening.key is None or isinstance(opening.key, str)
    store = store_of(opening.target)
    missing: Missing = "fill" if store.listable else "error"
    name, metadata = find_array(store, opening.key)
    if metadata is None:  # a group that is one array
        view = replace(opening, missing=missing).view()
        return Opened(view, tuple(_absent_below(store, name)))
    named = Storage("Zarr", store.path, name or None, dimensions=metadata.dimensions)
    (axis,) = sample_axes(opening.axis, len(metadata.shape), named)
    objects = Objects(store, name, metadata, axis)
    # `oocdata.open` looks at chunks, and refuses the array where one is damaged.
    source = Chunked(reader_of(objects, missing))
    view = replace(opening, target=source, key=None, axis=axis).view()
    if not store.listable:
        return Opened(view)
    absent = _absent(objects)
    return Opened(view, (absent,) if absent.reason else ())


def _absent_below(store: Store, group: str) -> Iterator[Fault]:
    """Yield what is not stored of each array of a group; which rows that concerns is not told."""
    for part in _PARTS if store.listable else ():
        with suppress(MissingKeyError):
            name, metadata = find_array(store, join(group, part))
            if metadata is not None:
                absent = _absent(Objects(store, name, metadata, 0))
                if absent.reason:
                    yield Fault(absent.kind, absent.reason)


def _absent(objects: Objects) -> Fault:
    """Look whether each stored object, a chunk or a shard, is there."""
    metadata, axis = objects.metadata, objects.axis
    total, count, example = metadata.shape[axis], 0, ""
    absent = Fault("unwritten", "")
    missing = np.zeros(metadata.grid[axis] * metadata.chunks_per_object[axis], np.bool_)
    for place in np.ndindex(*metadata.grid):
        chunks = _absent_chunks(objects, place)
        if len(chunks):
            missing[chunks[:, axis]] = True
            count, example = count + 1, example or objects.name(place)
    absent.rows = Ranges(ranges_of(missing, 0, metadata.chunk_shape[axis], total))
    if count:
        unit = "shards, or chunks in them" if metadata.sharded else "chunks"
        absent.reason = (
            f"every chunk must be stored; {unit} that are not: {count}, the first {example!r}. "
            "They were never written or have been lost, and read as the fill value "
            f"{metadata.fill_value}."
        )
    return absent


def _absent_chunks(objects: Objects, place: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the places of an object's chunks that are not stored, as far as that can be told."""
    chunks = objects.chunks(place)
    try:
        return chunks[objects.absent(chunks)]
    except SourceError:  # reading it says why
        return chunks[:0]
