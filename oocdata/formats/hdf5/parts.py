"""Concatenate many datasets of a file, reading those of equal layout through one source.

Datasets of equal dtype, shape, chunks and filters share a table of offsets. Any other (virtual,
external, incomplete, packed, or with dimension names) is opened on its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import groupby
from math import prod
from operator import attrgetter, mod
from typing import Any, NamedTuple, TypeAlias

import h5py
import numpy as np
from h5py import h5a, h5d

from oocdata.box import Ints
from oocdata.engines.alike import (
    check_same_columns,
    check_same_meaning,
    check_same_shape,
    common_annotations,
)
from oocdata.engines.axes import axis_numbers
from oocdata.engines.chunked import Chunked
from oocdata.engines.concat import Concat, PartTable
from oocdata.engines.parts import JoinedParts, RowOffsets
from oocdata.engines.source import Annotations, Source, Storage
from oocdata.engines.strided import Strided, contiguous_strides
from oocdata.formats.anndata import column_names
from oocdata.formats.codecs import chunk_grid
from oocdata.formats.dimensions import PACKING, TIME, as_text
from oocdata.formats.hdf5.decode import can_decode
from oocdata.formats.hdf5.description import EMPTY, attributes_of
from oocdata.formats.hdf5.file import translate_errors
from oocdata.formats.hdf5.filtered import FilteredChunks
from oocdata.formats.hdf5.links import Hdf5Names, annotated
from oocdata.formats.hdf5.storage import filters_of, offset_of
from oocdata.formats.hdf5.table import ChunkTable
from oocdata.formats.patterns import Key, key_label

Kind: TypeAlias = tuple[Any, ...]
"""Properties that datasets must share to be read through one source."""

_SPECIAL = [
    name.encode()
    for name in (*PACKING, *EMPTY, "DIMENSION_LIST", "DIMENSION_LABELS", "CLASS")
]  # fmt: skip
"""Attributes of datasets that are opened on their own: packed, empty, or with named axes."""

_PART_BYTES, _CHUNK_BYTES, _MOST_RETAINED = 4 << 10, 80, 32 << 20
"""Memory that HDF5 and malloc retain per dataset and per chunk after opening many datasets: 19 MiB
for 10,000 contiguous ones, 16 for 4,000 with 10 chunks each, 12 for 314 with 500. At most the size
of HDF5's metadata cache."""


class _Part(NamedTuple):
    """A dataset that may share a source with others of its kind."""

    kind: Kind
    number: int
    """Position among all parts."""
    shape: tuple[int, ...]
    length: int
    """Length along the axis."""
    step: int
    """Length of a stored chunk along the axis; 1 for a contiguous dataset."""
    offset: int
    """Byte offset of a contiguous dataset in the file; 0 for a chunked one."""
    chunks: int
    """Number of stored chunks."""
    nbytes: int
    """Size as stored."""


def join_datasets(tree: Hdf5Names, key: Key, axis: int | str) -> Source:
    """Concatenate the datasets that a key means along the first of `axis`.

    Raises the errors of opening each on its own.
    """
    path, along = tree.path, 0
    described: list[tuple[tuple[int, ...], np.dtype[Any], str, str]] = []
    kinds: dict[Kind, tuple[Any, list[_Part]]] = {}
    """Of each kind, the source of its first dataset, and the parts that share a source."""
    others: dict[int, Source] = {}
    for number, (name, found) in enumerate(tree.matches(key)):
        source = None
        if not number:
            source = tree.open(name, axis)
            (along,) = axis_numbers(axis, len(source.shape), source.storage())
        part = _inspect(found, along, number)
        if part is not None:
            if part.kind not in kinds and 0 not in part.shape:
                source = source or tree.open(name, axis)
                kinds[part.kind] = source, []
            first, parts = kinds.get(part.kind, (None, []))
            if _can_share(first, part, along):
                parts.append(part)
                described.append((part.shape, first.dtype, path, name))
                continue
        others[number] = source = source or tree.open(name, axis)
        described.append((source.shape, source.dtype, path, name))
    check_same_shape(described, along)
    names = tuple((path, name) for *_, name in described)
    sources: list[Source] = []
    owners, within = np.zeros((2, len(names)), np.int64)  # parts without rows stay at 0
    lengths = np.array([shape[along] for shape, *_ in described], np.int64)
    for first, parts in kinds.values():
        # Chunks of one grid have one length: short compressed datasets have one of their own each.
        for _, group in groupby(sorted(parts, key=attrgetter("step")), attrgetter("step")):
            members = list(group)
            numbers = [part.number for part in members]
            group_keys = tuple(names[number][1] for number in numbers)
            source, starts = _shared_source(first, members, along, group_keys, key_label(key))
            if source.shape[along]:
                owners[numbers], within[numbers] = len(sources), starts
                sources.append(source)
    for number, source in others.items():
        if lengths[number] or not (lengths.any() or sources):
            owners[number] = len(sources)
            sources.append(source)
    check_same_meaning(source.storage() for source in (*sources, *others.values()))
    each = (Storage("HDF5", path, name, columns=column_names(path, name)) for _, name in names)
    check_same_columns(each, along)
    layouts = list(dict.fromkeys(source.storage().layout for source in sources))
    layout = layouts[0] if len(layouts) == 1 else f"stored in {len(layouts)} ways: {layouts[0]}, …"
    joined = tuple(name for number, (_, name) in enumerate(names) if number not in others)
    alone = tuple(source.storage().annotations for source in others.values())
    changes = {
        "path": path,
        "key": key_label(key),
        "layout": f"{len(names):,} datasets, {layout}",
        "opened": tree.arguments(key),
        "part_names": names,
        "episodes": True,
        "annotations": partial(read_annotations, path, joined, alone),
    }
    only: Any = sources[0] if len(sources) == 1 else None
    if isinstance(only, Strided) and isinstance(only.chunk_offsets, RowOffsets):
        # For rows of 28 bytes 1.4 (batch 32) to 2.1 times (256) as fast as through a `Concat`.
        begin = tuple((np.cumsum(lengths) - lengths).tolist())
        return only.with_storage(**changes, parts=begin, parts_axis=along)
    table = PartTable(lengths, owners, within, names)
    return Concat(tuple(sources), along, table, changes)


def _inspect(dataset: Any, along: int, number: int) -> _Part | None:
    """Return a dataset as a part; None if it must be opened on its own."""
    if not isinstance(dataset, h5d.DatasetID):
        return None
    if h5a.get_num_attrs(dataset) and any(h5a.exists(dataset, name) for name in _SPECIAL):
        return None
    shape, offset = dataset.shape, offset_of(dataset)
    if len(shape) <= along:
        return None
    chunk: tuple[int, ...] = ()
    filters: tuple[int, ...] = ()
    step, chunks = 1, 0
    if offset is None:  # not contiguous
        plist = dataset.get_create_plist()
        layout = plist.get_layout()
        if layout == h5d.CHUNKED:
            chunk, filters, chunks = plist.get_chunk(), filters_of(plist), dataset.get_num_chunks()
            step = chunk[along]
            complete = chunks == prod(chunk_grid(shape, chunk))
            if not complete or not can_decode(filters, any(map(mod, shape, chunk))):
                return None
        elif layout != h5d.CONTIGUOUS or plist.get_external_count() or prod(shape):
            return None
    # The length of chunks along the axis may differ if they are decoded.
    same_step = step if chunk and not filters else 0
    shapes = _with(shape, along), _with(chunk, along), same_step
    kind = dataset.get_type().encode(), *shapes, filters, _units(dataset)
    nbytes = dataset.get_storage_size()
    return _Part(kind, number, shape, shape[along], step, offset or 0, chunks, nbytes)


def _can_share(first: Source | None, part: _Part, axis: int) -> bool:
    """Return whether a dataset can be read through one source with the first of its kind."""
    if isinstance(first, Strided) and first.chunk_offsets is None:
        end = part.offset + part.nbytes
        return prod(first.shape[:axis]) == 1 and end <= first.file.version.nbytes
    return isinstance(first, Strided) or (
        isinstance(first, Chunked) and isinstance(first.reader, FilteredChunks)
    )


def _with(shape: tuple[int, ...], axis: int, *length: int) -> tuple[int, ...]:
    """Return a shape with another length along an axis, or without the axis."""
    return (*shape[:axis], *length, *shape[axis + 1 :])


def _units(dataset: Any) -> tuple[str, ...]:
    if not h5a.get_num_attrs(dataset) or not h5a.exists(dataset, b"units"):
        return ()
    attributes = attributes_of(h5py.Dataset(dataset), TIME)
    return tuple(as_text(attributes.get(name)) for name in TIME)


def _shared_source(
    first: Any, group: Sequence[_Part], axis: int, keys: tuple[str, ...], key: str
) -> tuple[Source, Ints]:
    """Return the source of a group of datasets, and the origin of each along the axis.

    `first` is the source of a single dataset of the kind.
    """
    lengths = np.array([part.length for part in group], np.int64)
    storage = replace(
        first.storage(),
        strides=None,
        stored_bytes=sum(part.nbytes for part in group),
        table_bytes=ChunkTable.BYTES * sum(part.chunks for part in group)
        + RowOffsets.BYTES * len(group)
        + min(_MOST_RETAINED, sum(_PART_BYTES + _CHUNK_BYTES * part.chunks for part in group)),
        key=key,
    )
    reader = None if isinstance(first, Strided) else first.reader
    step = unit = group[0].step
    if reader is not None:
        unit = max(1, min(step, int(lengths.max())))
    parts = JoinedParts(keys, lengths, axis, unit)
    shape = _with(first.shape, axis, parts.stop)
    if reader is None and first.chunk_offsets is None:
        strides = contiguous_strides(shape, first.stored.itemsize)
        offsets = np.array([part.offset for part in group], np.int64)
        rows = RowOffsets(parts, offsets, _with(shape, axis, 1), strides[axis])
        array = first.file, first.stored, shape, strides
        return Strided(*array, 0, storage, rows, axis=axis), parts.starts
    single: ChunkTable = first.chunk_offsets if reader is None else reader.table
    table = ChunkTable(
        single.version,
        key,
        _with(single.chunk_shape, axis, step),
        _with(single.grid, axis, parts.stop // unit),
        axis,
        parts,
    )
    if reader is None:
        array = first.file, first.stored, shape, first.strides
        return Strided(*array, 0, storage, table, axis=axis), parts.starts
    clipped = _with(reader.chunk_shape, axis, unit)
    if step != single.chunk_shape[axis]:
        storage = replace(storage, layout=f"chunks of {clipped}")
    if storage.chunks is None:
        storage = replace(storage, cached_whole=(prod(shape) * first.dtype.itemsize,))
    else:
        storage = replace(storage, chunks=clipped)
    reader = replace(
        reader,
        table=table,
        decoder=replace(reader.decoder, chunk_shape=table.chunk_shape),
        shape=shape,
        chunk_shape=clipped,
        described=storage,
    )
    return Chunked(reader), parts.starts


def read_annotations(
    path: str, keys: Sequence[str], groups: Sequence[Callable[[], Annotations]] = ()
) -> Annotations:
    """Return the annotations that all datasets, and groups that are one array, share."""
    annotations = [read() for read in groups]
    with Hdf5Names(path, external=True) as tree:  # external links were checked on opening
        for key in keys:
            with translate_errors(path, key), ExitStack() as opened:
                annotations.append(annotated(tree.dataset(key, opened)[0]))
    return common_annotations(annotations)
