"""Opening what is damaged: as much of an array as is there, and which rows are not.

`oocdata.open` refuses a file that is not whole. A check wants to know the rest as well, so what is
lost is told here, and a View is made of what is left.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from typing import TypeAlias

import numpy as np

from oocdata.datasets.view import View
from oocdata.engines.axes import sample_axes
from oocdata.engines.chunked import Chunked
from oocdata.engines.source import Storage
from oocdata.errors import (
    MissingKeyError,
    SourceError,
    TrailingBytesError,
    TruncatedFileError,
)
from oocdata.formats.npy import open_npy, open_raw
from oocdata.formats.opening import Missing, format_of
from oocdata.formats.stored import opened as file_opened
from oocdata.formats.zarr.hierarchy import find_array
from oocdata.formats.zarr.objects import Objects
from oocdata.formats.zarr.shards import reader_of
from oocdata.formats.zarr.store import Store, join, store_of
from oocdata.tools.check.result import Finding
from oocdata.tools.check.rows import ranges_of
from oocdata.tools.opening import Opening

__all__ = ["opened"]

_PARTS = ("data", "indices", "indptr", "codes", "categories")
"""Arrays of groups that are one array: of a sparse matrix, of a column of categories."""

_MEMBER_STEP = 8 << 20
"""Bytes of a member that are asked for at a time, where it lies in a store."""

Opened: TypeAlias = tuple[View, list[Finding]]
"""All rows, along one axis; what is known to be wrong without reading them. Of a file that was cut
short, rows behind those of a finding "truncated" are not to be read."""


def opened(opening: Opening) -> Opened:
    """Open an array of a file as far as it is there; raise if nothing can be read."""
    kind = "npy" if "shape" in opening.arguments else format_of(opening.target)
    if kind == "hdf5":
        from oocdata.tools.check.hdf5 import opened_hdf5  # not for other files: h5py is slow

        return opened_hdf5(opening)
    ways = {"npy": _opened_plain, "npz": _opened_npz, "zarr": _opened_zarr}
    return ways[kind](opening) if kind in ways else (opening.view(), [])


def _opened_plain(opening: Opening) -> Opened:
    """Open ``.npy`` or raw binary, cut short or too long as it may be."""
    try:
        return opening.view(), []
    except (TruncatedFileError, TrailingBytesError) as error:
        short = isinstance(error, TruncatedFileError)
        found = Finding("truncated" if short else "trailing", error.message)
    path, axis, field = opening.target, opening.axis, opening.arguments.get("field", ())
    names = ("dtype", "shape", "offset")
    given = {name: value for name, value in opening.arguments.items() if name in names}
    open_cut = open_raw if "shape" in given else open_npy
    view = View.of(open_cut(path, **given, whole=False), axis)
    found.add([_rows_beyond(view)])
    for name in [field] if isinstance(field, str) else field:
        view = view[name]
    return view, [found]


def _rows_beyond(view: View) -> range:
    """Return the rows that reach beyond the end of an array of which only some bytes are there.

    A row's last byte lies farther the farther the row is, because strides are positive.
    """
    (axis,), storage, shape = view.axes, view.storage, view.source.shape
    strides = storage.strides or ()
    reach = sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    reach -= (shape[axis] - 1) * strides[axis]
    room = storage.files[0].nbytes - storage.offset - reach - view.dtype.itemsize
    whole = room // strides[axis] + 1 if room >= 0 and strides[axis] else 0
    return range(min(whole, shape[axis]), shape[axis])


def _opened_npz(opening: Opening) -> Opened:
    """Open a member of an ``.npz``, which has a CRC-32 (APPNOTE 4.4.7)."""
    view, found = opening.view(), list[Finding]()
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
            found = [Finding("damaged", f"a member must match its CRC-32; {error}.")]
            found[0].add([range(len(view))])
    return view, found


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
        return Opening.of(opening, missing=missing).view(), list(_absent_below(store, name))
    named = Storage("Zarr", store.path, name or None, dimensions=metadata.dimensions)
    (axis,) = sample_axes(opening.axis, len(metadata.shape), named)
    objects = Objects(store, name, metadata, axis)
    # `oocdata.open` looks at chunks, and refuses the array where one is damaged.
    source = Chunked(reader_of(objects, missing))
    view = Opening.of(Opening(source, None, opening.arguments), axis=axis).view()
    return view, _absent(objects) if store.listable else []


def _absent_below(store: Store, group: str) -> Iterator[Finding]:
    """Yield what is not stored of each array of a group; which rows that concerns is not told."""
    for part in _PARTS if store.listable else ():
        with suppress(MissingKeyError):
            name, metadata = find_array(store, join(group, part))
            if metadata is not None:
                for one in _absent(Objects(store, name, metadata, 0)):
                    yield Finding(one.kind, one.reason)


def _absent(objects: Objects) -> list[Finding]:
    """Look whether each stored object, a chunk or a shard, is there."""
    metadata, axis = objects.metadata, objects.axis
    count, example = 0, ""
    missing = np.zeros(metadata.grid[axis] * metadata.chunks_per_object[axis], np.bool_)
    for place in np.ndindex(*metadata.grid):
        chunks = objects.chunks(place)
        try:
            chunks = chunks[objects.absent(chunks)]
        except SourceError:  # reading it says why
            continue
        if len(chunks):
            missing[chunks[:, axis]] = True
            count, example = count + 1, example or objects.name(place)
    if not count:
        return []
    unit = "shards, or chunks in them" if metadata.sharded else "chunks"
    found = Finding(
        "unwritten",
        f"every chunk must be stored; {unit} that are not: {count}, the first {example!r}. "
        "They were never written or have been lost, and read as the fill value "
        f"{metadata.fill_value}.",
    )
    found.add(ranges_of(missing, 0, metadata.chunk_shape[axis], metadata.shape[axis]))
    return [found]
