"""Concatenate many datasets of a file, reading those of equal layout through one source.

Datasets of equal dtype, shape, chunks and filters share one source with a table of offsets, which
takes a few calls of HDF5 per dataset. Any other dataset (virtual, external, incomplete, packed, or
with dimension names) is opened on its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from math import prod
from operator import mod
from typing import Any, NamedTuple, TypeAlias

import h5py
import numpy as np
from h5py import h5a, h5d

from oocdata.box import Ints
from oocdata.engines.alike import (
    check_same_columns,
    check_same_packing,
    check_same_shape,
    common_annotations,
)
from oocdata.engines.axes import axis_numbers
from oocdata.engines.chunked import Chunked
from oocdata.engines.concat import Concat, PartTable
from oocdata.engines.many_files import similar
from oocdata.engines.parts import JoinedParts, RowOffsets
from oocdata.engines.source import Annotations, Source, Storage
from oocdata.engines.strided import Strided, contiguous_strides
from oocdata.formats.anndata import Group, column_names
from oocdata.formats.codecs import chunk_grid
from oocdata.formats.dimensions import PACKING, TIME, as_text, is_time
from oocdata.formats.hdf5.decode import can_decode
from oocdata.formats.hdf5.description import EMPTY, annotations_of, attributes_of
from oocdata.formats.hdf5.file import fill_bytes, translate_errors
from oocdata.formats.hdf5.filtered import FilteredChunks
from oocdata.formats.hdf5.links import Hdf5Names
from oocdata.formats.hdf5.storage import filters_of, offset_of
from oocdata.formats.hdf5.table import ChunkTable
from oocdata.formats.patterns import Key, key_label

__all__ = ["join_datasets", "read_annotations"]

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
    """A dataset that shares a source with others of its kind."""

    number: int
    """Position among all parts."""
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


def join_datasets(tree: Hdf5Names, key: Key, axis: int | str, *, fill: bool) -> Source:
    """Concatenate the datasets that a key means along the first of `axis`.

    With `fill`, missing chunks read as the fill value. Raises the errors of opening each on its
    own.
    """
    path = tree.path
    along = 0
    described: list[tuple[tuple[int, ...], np.dtype[Any], str, str]] = []
    kinds: dict[Kind, tuple[Any, list[_Part]]] = {}
    """Of each kind, the source of its first dataset, and the parts that share a source."""
    others: dict[int, Source] = {}
    groups: list[Callable[[], Annotations]] = []
    keys: list[str] = []
    for number, (name, found) in enumerate(tree.matches(key)):
        source = None
        if not number:
            source = tree.open(name, axis)
            (along,) = axis_numbers(axis, len(source.shape), source.storage())
        inspected = _inspect(found, along, fill, number)
        if inspected is not None:
            kind, part, shape = inspected
            if kind not in kinds and 0 not in shape:
                kinds[kind] = source or tree.open(name, axis), []
            first, parts = kinds.get(kind, (None, []))
            if _can_share(first, part, along):
                parts.append(part)
                keys.append(name)
                described.append((shape, first.dtype, path, name))
                continue
        others[number] = source = source or tree.open(name, axis)
        described.append((source.shape, source.dtype, path, name))
        if isinstance(found, Group):
            groups.append(source.storage().annotations)
        else:
            keys.append(name)
    check_same_shape(described, along)
    names = tuple((path, name) for *_, name in described)
    shared: list[tuple[Source, Any, Any]] = []
    """Sources, the origins of the parts in each, and the numbers of these parts."""
    for first, parts in kinds.values():
        for group in _group_by_grid(parts):
            numbers = [part.number for part in group]
            group_keys = [names[number][1] for number in numbers]
            shared.append(
                (*_shared_source(first, group, along, group_keys, key_label(key)), numbers)
            )
    shared += [(other, 0, number) for number, other in others.items()]
    check_same_packing([source for source, *_ in shared])
    each = (Storage("HDF5", path, name, columns=column_names(path, name)) for _, name in names)
    check_same_columns(each, along)
    # Sources without rows are dropped, unless no source has any.
    shared = [entry for entry in shared if entry[0].shape[along]] or shared[:1]
    layouts = list(dict.fromkeys(source.storage().layout for source, *_ in shared))
    layout = layouts[0] if len(layouts) == 1 else f"stored in {len(layouts)} ways: {layouts[0]}, …"
    changes = {
        "path": path,
        "key": key_label(key),
        "layout": f"{len(names):,} datasets, {layout}",
        "opened": tree.arguments(key),
        "part_names": names,
        "episodes": True,
        "annotations": partial(read_annotations, path, tuple(keys), tuple(groups)),
    }
    lengths = np.array([shape[along] for shape, *_ in described], np.int64)
    only = shared[0][0] if len(shared) == 1 else None
    if isinstance(only, Strided) and isinstance(only.chunk_offsets, RowOffsets):
        # For rows of 28 bytes 1.4 (batch 32) to 2.1 times (256) as fast as through a `Concat`.
        begin = tuple((np.cumsum(lengths) - lengths).tolist())
        return only.with_storage(**changes, parts=begin, parts_axis=along)
    owners, within = np.zeros((2, len(names)), np.int64)  # parts without rows stay at 0
    for owner, (_, starts, numbers) in enumerate(shared):
        owners[numbers], within[numbers] = owner, starts
    table = PartTable(lengths, owners, within, names)
    return Concat(tuple(source for source, *_ in shared), along, table, changes)


def _inspect(
    dataset: Any, along: int, fill: bool, number: int
) -> tuple[Kind, _Part, tuple[int, ...]] | None:
    """Return kind, part and shape of a dataset; None if it must be opened on its own."""
    if not isinstance(dataset, h5d.DatasetID) or _is_special(dataset):
        return None
    shape, offset = dataset.shape, offset_of(dataset)
    if len(shape) <= along:
        return None
    chunk: tuple[int, ...] = ()
    filters: tuple[int, ...] = ()
    step, chunks, filled = 1, 0, b""
    if offset is None:  # not contiguous
        plist = dataset.get_create_plist()
        layout = plist.get_layout()
        if layout == h5d.CHUNKED:
            chunk, filters, chunks = plist.get_chunk(), filters_of(plist), dataset.get_num_chunks()
            step = chunk[along]
            if fill:  # datasets of a kind share one fill value
                try:
                    filled = fill_bytes(h5py.Dataset(dataset))
                except TypeError:  # a dtype that NumPy lacks; opening the dataset alone raises
                    return None
            elif chunks != prod(chunk_grid(shape, chunk)):
                return None
            if not can_decode(filters, any(map(mod, shape, chunk))):
                return None
        elif layout != h5d.CONTIGUOUS or plist.get_external_count() or prod(shape):
            return None
    # The length of chunks along the axis may differ if they are decoded; see `_group_by_grid`.
    same_step = step if chunk and not filters else 0
    shapes = _without(shape, along), _without(chunk, along), same_step
    kind = dataset.get_type().encode(), *shapes, filters, filled, _time(dataset)
    nbytes = dataset.get_storage_size()
    return kind, _Part(number, shape[along], step, offset or 0, chunks, nbytes), shape


def _can_share(first: Source | None, part: _Part, axis: int) -> bool:
    """Return whether a dataset can be read through one source with the first of its kind."""
    if isinstance(first, Strided) and first.chunk_offsets is None:
        end = part.offset + part.nbytes
        return prod(first.shape[:axis]) == 1 and end <= first.file.version.nbytes
    return isinstance(first, Strided) or (
        isinstance(first, Chunked) and isinstance(first.reader, FilteredChunks)
    )


def _group_by_grid(parts: list[_Part]) -> list[list[_Part]]:
    """Group datasets of a kind whose chunks can share one grid.

    Datasets in several chunks are grouped by the length of these. Short compressed datasets are
    one chunk each, of their own length (h5py's default), and are grouped with similar ones: chunks
    of a grid that are longer than the datasets take room in the cache.
    """
    steps = {part.step for part in parts if part.length > part.step}
    groups: dict[int, list[_Part]] = {}
    for part in parts:
        groups.setdefault(part.step if part.step in steps else 0, []).append(part)
    short = groups.pop(0, [])
    lengths = np.array([part.length for part in short], np.int64)
    alike = similar(lengths, np.ones_like(lengths))
    return [*groups.values(), *([short[number] for number in group] for group in alike)]


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :]


def _with(shape: tuple[int, ...], axis: int, length: int) -> tuple[int, ...]:
    return (*shape[:axis], length, *shape[axis + 1 :])


def _is_special(dataset: Any) -> bool:
    return bool(h5a.get_num_attrs(dataset)) and any(h5a.exists(dataset, name) for name in _SPECIAL)


def _time(dataset: Any) -> tuple[str, ...]:
    """Return the units and the calendar of times; an empty tuple for other numbers."""
    if not h5a.get_num_attrs(dataset) or not h5a.exists(dataset, b"units"):
        return ()
    attributes = attributes_of(h5py.Dataset(dataset), TIME)
    return tuple(as_text(attributes.get(name)) for name in TIME) if is_time(attributes) else ()


def _shared_source(
    first: Any, group: Sequence[_Part], axis: int, keys: Sequence[str], key: str
) -> tuple[Source, Ints]:
    """Return the source of a group of datasets, and the origin of each along the axis.

    `first` is the source of a single dataset of the kind.
    """
    lengths, offsets, steps = (
        np.array([getattr(part, name) for part in group], np.int64)
        for name in ("length", "offset", "step")
    )
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
    if reader is None and first.chunk_offsets is None:
        parts = JoinedParts(tuple(keys), lengths, axis, 1)
        shape = _with(first.shape, axis, parts.stop)
        strides = contiguous_strides(shape, first.stored.itemsize)
        rows = RowOffsets(parts, offsets, _with(shape, axis, 1), strides[axis])
        array = first.file, first.stored, shape
        return Strided(*array, strides, 0, storage, rows, axis=axis), parts.starts
    table: ChunkTable = first.chunk_offsets if reader is None else reader.table
    step = unit = int(steps.max())
    if reader is not None:
        unit = max(1, min(step, int(lengths.max())))
    steps_differ = bool((steps != step).any())
    parts = JoinedParts(tuple(keys), lengths, axis, unit, steps if steps_differ else None)
    shape, stored = _with(first.shape, axis, parts.stop), _with(table.chunk_shape, axis, step)
    joined = ChunkTable(table.version, key, stored, axis, parts)
    if reader is None:
        array = first.file, first.stored, shape
        return Strided(*array, first.strides, 0, storage, joined, axis=axis), parts.starts
    clipped = _with(reader.chunk_shape, axis, unit)
    if steps_differ or step != table.chunk_shape[axis]:
        storage = replace(storage, layout=f"chunks of {'up to ' * steps_differ}{clipped}")
    decoder = replace(reader.decoder, chunk_shape=stored)
    if storage.chunks is None:
        described = replace(storage, cached_whole=(prod(shape) * first.dtype.itemsize,))
    else:
        described = replace(storage, chunks=clipped)
    reader = replace(
        reader, table=joined, decoder=decoder, shape=shape, chunk_shape=clipped, described=described
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
                annotations.append(annotations_of(tree.dataset(key, opened)[0]))
    return common_annotations(annotations)
