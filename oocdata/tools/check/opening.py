"""Open damaged files: as much of an array as can be read, and which rows are lost.

`oocdata.open` refuses a file that is not complete. A check goes on with the rest of it.
"""

from __future__ import annotations

import zipfile
import zlib
from contextlib import suppress
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from oocdata.datasets.view import View
from oocdata.engines.axes import axis_numbers
from oocdata.engines.chunked import Chunked
from oocdata.engines.source import Storage
from oocdata.errors import (
    ArgumentError,
    MissingChunkError,
    MissingFileError,
    SourceError,
    TrailingBytesError,
    TruncatedFileError,
)
from oocdata.formats.npy import open_npy, open_raw
from oocdata.formats.opening import Missing, format_of
from oocdata.formats.paths import open_stream as file_opened
from oocdata.formats.zarr.hierarchy import ZarrTree
from oocdata.formats.zarr.objects import Objects
from oocdata.formats.zarr.shards import reader_of
from oocdata.tools.check.result import Finding
from oocdata.tools.check.rows import ranges_of
from oocdata.tools.opening import Opening

_MEMBER_STEP = 8 << 20
"""Bytes of a member per request to a store."""

Opened: TypeAlias = tuple[View, list[Finding]]
"""A view of all rows, along one axis, and the findings that are known without reading rows. Rows
from the first row of a finding "truncated" on must not be read."""


def opened(opening: Opening) -> Opened:
    """Open an array that may be damaged; raise if nothing of it can be read."""
    kind = "npy" if "shape" in opening.arguments else format_of(opening.target)
    openers = {"npy": _opened_plain, "npz": _opened_npz, "hdf5": _opened_hdf5, "zarr": _opened_zarr}
    if opening.axis is None:
        with suppress(ArgumentError):
            return opened(Opening.of(opening, axis=0))
        del openers["npy"]  # a single number, which is there or not
    return openers[kind](opening) if kind in openers else (opening.view(), [])


def _opened_plain(opening: Opening) -> Opened:
    """Open ``.npy`` or raw binary, also if the file is too short or too long."""
    try:
        return opening.view(), []
    except (TruncatedFileError, TrailingBytesError) as error:
        is_short = isinstance(error, TruncatedFileError)
        finding = Finding("truncated" if is_short else "trailing", error.message)
    path, axis, field = opening.target, opening.axis, opening.arguments.get("field", ())
    names = ("dtype", "shape", "offset")
    arguments = {name: value for name, value in opening.arguments.items() if name in names}
    open_damaged = open_raw if "shape" in arguments else open_npy
    view = View.of(open_damaged(path, **arguments, whole=False), axis)
    finding.add([_rows_beyond(view)])
    for name in [field] if isinstance(field, str) else field:
        view = view[name]
    return view, [finding]


def _rows_beyond(view: View) -> range:
    """Return the rows that are not complete in a truncated file.

    Strides are positive, so the last byte of a row follows the last bytes of all earlier rows.
    """
    (axis,), storage, shape = view.axes, view.storage, view.source.shape
    strides = storage.strides or ()
    reach = sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    reach -= (shape[axis] - 1) * strides[axis]
    last = storage.files[0].nbytes - storage.offset - reach - view.dtype.itemsize
    complete = last // strides[axis] + 1 if last >= 0 and strides[axis] else 0
    return range(min(complete, shape[axis]), shape[axis])


def _opened_npz(opening: Opening) -> Opened:
    """Open a member of an ``.npz``, and verify its CRC-32 (APPNOTE 4.4.7)."""
    view, findings = opening.view(), list[Finding]()
    with (
        file_opened(opening.target, _MEMBER_STEP) as (stream, _),
        zipfile.ZipFile(stream) as archive,
    ):
        try:
            with archive.open(f"{view.storage.key}.npy") as file:
                while file.read(1 << 20):
                    pass
        except SourceError:  # a store does not answer; the member may be healthy
            raise
        except (zipfile.BadZipFile, zlib.error, OSError) as error:
            findings = [Finding("damaged", f"a member must match its CRC-32; {error}.")]
            findings[0].add([range(len(view))])
    return view, findings


def _opened_hdf5(opening: Opening) -> Opened:
    """Open a dataset; report its unwritten chunks, or the missing files that it refers to."""
    path, key, external = opening.target, opening.key, bool(opening.arguments.get("external"))
    assert key is None or isinstance(key, str)
    from oocdata.formats.hdf5.file import fill_value  # slow
    from oocdata.formats.hdf5.links import Hdf5Names
    from oocdata.formats.hdf5.storage import unwritten_rows

    with Hdf5Names(path, external=external) as names:
        name = names.only_name() if key is None else key
        opening = replace(opening, key=name)
        try:
            return opening.view(), []
        except (MissingChunkError, MissingFileError) as error:
            if names.is_group(name):  # one that is one array
                raise
            missing = Finding("missing", error.message)
            missing.add(range(row, row + 1) for row in sorted(set(error.rows or ())))
        view = Opening.of(opening, missing="fill").view()
        (axis,) = view.axes
        dataset, _ = names.dataset(name)
        unwritten = Finding("unwritten", "")
        unwritten.add(unwritten_rows(dataset, axis)[1])
        unwritten.reason = (
            f"every chunk must have been written; {unwritten.row_count:,} rows are in chunks that "
            f"were not. They read as the fill value {fill_value(dataset, undefined=0)}."
        )
    return view, [unwritten if unwritten.row_count else missing]


def _opened_zarr(opening: Opening) -> Opened:
    """Open an array with any chunks absent; absent chunks read as the fill value.

    At a URL, a request for each object would take as long as reading it, so an absent chunk is
    found when its rows are read. A group that is read as one array is not read if a chunk of a
    member is absent.
    """
    assert opening.key is None or isinstance(opening.key, str)
    tree = ZarrTree(opening.target)
    store, name = tree.store, tree.only_name() if opening.key is None else opening.key.strip("/")
    missing: Missing = "fill" if store.listable else "error"
    metadata = tree.metadata(name)
    if metadata is None or not metadata.shape:  # a group that is read as one array, or a number
        return Opening.of(opening, missing="error").view(), []
    named = Storage("Zarr", store.path, name or None, dimensions=metadata.dimensions)
    (axis,) = axis_numbers(opening.axis, len(metadata.shape), named)
    objects = Objects(store, name, metadata, axis)
    if store.listable:  # an object that is lost from now on does not read as the fill value
        objects.note(range(objects.count))
    # Not with `oocdata.open`, which refuses the array if a chunk is damaged.
    source = Chunked(reader_of(objects, missing))
    view = Opening.of(Opening(source, None, opening.arguments), axis=axis).view()
    return view, _absent(objects) if store.listable else []


def _absent(objects: Objects) -> list[Finding]:
    """Return a finding if a chunk, or a chunk of a shard, is not stored."""
    metadata, axis = objects.metadata, objects.axis
    count, example = 0, ""
    missing = np.zeros(metadata.grid[axis] * metadata.chunks_per_object[axis], np.bool_)
    for position in np.ndindex(*metadata.grid):
        try:
            chunks = objects.absent_chunks(position)
        except SourceError:  # reported when the rows are read
            continue
        if len(chunks):
            missing[chunks[:, axis]] = True
            count, example = count + 1, example or objects.name(position)
    if not count:
        return []
    unit = "shards, or chunks in them" if metadata.sharded else "chunks"
    finding = Finding(
        "unwritten",
        f"every chunk must be stored; {unit} that are not: {count}, the first {example!r}. "
        "They were never written or have been lost, and read as the fill value "
        f"{metadata.fill_value}.",
    )
    finding.add(ranges_of(missing, 0, metadata.chunk_shape[axis], metadata.shape[axis]))
    return [finding]
