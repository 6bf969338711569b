"""Many datasets of a file as one array: each looked at once, and those alike read as one.

Datasets alike in type, shape, chunks and filters share one source, with a table of where each part
lies. A dataset of which a few calls of HDF5 don't tell that (it is virtual or external, was never
written whole, is a link, is packed or has dimension names) is opened like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from typing import Any

import numpy as np

from oocdata.engines.axes import axis_numbers
from oocdata.engines.chunked import Chunked
from oocdata.engines.concat import Concat, PartTable, check_alike, check_packed, common
from oocdata.engines.parts import JoinedParts, RowOffsets
from oocdata.engines.source import Annotations, Source
from oocdata.engines.strided import Strided, contiguous_strides
from oocdata.formats.dimensions import PACKING
from oocdata.formats.hdf5.decode import ChunkDecoder
from oocdata.formats.hdf5.description import annotations_of
from oocdata.formats.hdf5.file import open_file, readable
from oocdata.formats.hdf5.filtered import FilteredChunks
from oocdata.formats.hdf5.links import find_dataset
from oocdata.formats.hdf5.names import Names
from oocdata.formats.hdf5.storage import filters_of
from oocdata.formats.hdf5.table import ChunkTable

__all__ = ["Datasets"]

_SPECIAL = [
    name.encode() for name in (*PACKING, "DIMENSION_LIST", "DIMENSION_LABELS", "CLASS")
]  # fmt: skip
"""Attributes of a dataset to look at closely: it is packed, or its axes have names."""


@dataclass(slots=True)
class _Kind:
    """Datasets that are alike; `source` reads the first of them alone."""

    source: Any
    type: Any
    plist: Any
    stored: tuple[Any, ...]
    beside: tuple[int, ...]
    keys: list[str] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    """Of each the places in a stored chunk along the axis."""
    stored_bytes: int = 0
    chunks: int = 0

    def shared(self, axis: int) -> object:
        """Return what other kinds have too whose chunks can be read as if they were as long.

        Compressed datasets that are short are one chunk each, as long as they are (h5py's choice,
        if the user makes none). Slots for the longest of them hold any.
        """
        source: Any = self.source
        if not isinstance(source, Chunked) or max(self.lengths) > self.stored[1][axis]:
            return id(self)
        decoder: ChunkDecoder = source.reader.decoder  # type: ignore[attr-defined]
        _, chunk, filters = self.stored
        return decoder.stored.str, self.beside, _beside(chunk, axis), filters

    def absorb(self, other: _Kind) -> None:
        """Add the datasets of another kind that shares its slots with this one."""
        for name in ("keys", "lengths", "offsets", "steps"):
            getattr(self, name).extend(getattr(other, name))
        self.stored_bytes += other.stored_bytes
        self.chunks += other.chunks


class Datasets:
    """Datasets of an open file, added one by one, as one source.

    Parameters
    ----------
    names : Names
        Of the open file.
    axis : int, str or sequence of them
        Along whose first the datasets are put end to end.
    fill : bool
        What was never written may read as the fill value.
    alone : callable
        Opens one dataset by its name, or raises.
    """

    def __init__(
        self, names: Names, axis: Any, *, fill: bool, alone: Callable[[str], Source]
    ) -> None:
        self._names, self._axis, self._fill, self._alone = names, axis, fill, alone
        self._along = 0
        self._kinds: list[_Kind] = []
        self._others: list[Source] = []
        self._groups: dict[str, Callable[[], Annotations]] = {}
        """What is said of each group that is one array."""
        self._keys: list[str] = []
        self._rows: list[tuple[int, int, int]] = []
        """Of each part the length, its kind, and its place there; kind -1: place of `_others`."""

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, name: str, dataset: Any) -> None:
        """Look at one dataset; raises what opening it alone does.

        Parameters
        ----------
        name : str
        dataset : h5py.h5d.DatasetID or None
            Or the identifier of a group that is one array.
        """
        h5py = self._names.library
        is_group = isinstance(dataset, h5py.h5g.GroupID)
        plain = isinstance(dataset, h5py.h5d.DatasetID) and self._names.way(name) == "hard"
        if not plain or _is_special(dataset, h5py.h5a):
            dataset = None
        number: int | None = None
        shape: tuple[int, ...] = ()
        if dataset is not None:
            shape, kind = dataset.shape, dataset.get_type()
            stored, plist = _stored(dataset, h5py.h5d)
            number = self._kind_of(shape, kind, stored, plist)
            if number is not None and self._joins(number, name, dataset, shape):
                return
        source = self._alone(name)
        if is_group:
            self._groups[name] = source.storage().annotations
        if not self._keys:
            (self._along,) = axis_numbers(self._axis, len(source.shape), source.storage())
        if number is None and dataset is not None and _can_join(source, self._along):
            beside = _beside(shape, self._along)
            self._kinds.append(_Kind(source, kind, plist, stored, beside))
            if self._joins(len(self._kinds) - 1, name, dataset, shape):
                return
        shape = source.shape
        length = shape[self._along] if self._along < len(shape) else 0
        self._rows.append((length, -1, len(self._others)))
        self._others.append(source)
        self._keys.append(name)

    def _kind_of(
        self, shape: tuple[int, ...], type_: Any, stored: tuple[Any, ...], plist: Any
    ) -> int | None:
        """Return the number of the kind that a dataset is of."""
        last = max(0, self._rows[-1][1]) if self._rows else 0
        beside = _beside(shape, self._along)
        number: int
        for number in (last, *range(len(self._kinds))) if self._kinds else ():
            kind = self._kinds[number]
            alike = stored == kind.stored and beside == kind.beside and type_ == kind.type
            # Chunks that were never written must have one fill value.
            if alike and (not self._fill or plist is None or plist == kind.plist):
                return number
        return None

    def _joins(self, number: int, name: str, dataset: Any, shape: tuple[int, ...]) -> bool:
        """Add a dataset to its kind; return False where not all of it is in the file."""
        kind, source = self._kinds[number], self._kinds[number].source
        offset = 0
        if prod(shape) and isinstance(source, Strided) and source.chunk_offsets is None:
            found = dataset.get_offset()
            nbytes = prod(shape) * source.stored.itemsize
            if found is None or found + nbytes > source.file.version.nbytes:
                return False
            offset = found
        elif prod(shape):
            steps = zip(shape, kind.stored[1], strict=True)
            chunks = dataset.get_num_chunks()
            if not self._fill and chunks != prod(-(-n // step) for n, step in steps):
                return False
            kind.chunks += chunks
        kind.stored_bytes += dataset.get_storage_size()
        self._rows.append((shape[self._along], number, len(kind.keys)))
        self._keys.append(name)
        kind.keys.append(name)
        kind.lengths.append(shape[self._along])
        kind.offsets.append(offset)
        kind.steps.append(kind.stored[1][self._along] if len(kind.stored) == 3 else 1)
        return True

    def _merge(self) -> None:
        """Put kinds together that can share their slots."""
        if self._fill:  # chunks that were never written may read as different numbers
            return
        found: dict[object, int] = {}
        kinds: list[_Kind] = []
        moved: list[tuple[int, int]] = []
        alike: dict[object, list[int]] = {}
        for kind in self._kinds:
            alike.setdefault(kind.shared(self._along), []).extend(kind.lengths)
        for kind in self._kinds:
            key, longest = kind.shared(self._along), max(kind.lengths)
            lengths = alike[key]
            if max(lengths) * len(lengths) > 2 * sum(lengths):  # most of each slot would be empty
                key = key, longest.bit_length()
            number = found.setdefault(key, len(kinds))
            if number == len(kinds):
                kinds.append(kind)
                moved.append((number, 0))
            else:
                moved.append((number, len(kinds[number].keys)))
                kinds[number].absorb(kind)
        for at, (length, number, place) in enumerate(self._rows):
            if number >= 0:
                self._rows[at] = length, moved[number][0], moved[number][1] + place
        self._kinds = kinds

    def source(self, key: str, opened: dict[str, Any]) -> Source:
        """Return the datasets end to end, called `key`, and opened again by these arguments."""
        axis, path = self._along, self._names.path
        self._merge()
        shapes = []
        for (length, number, place), name in zip(self._rows, self._keys, strict=True):
            one = self._others[place] if number < 0 else self._kinds[number].source
            shape = one.shape if number < 0 else _with(one.shape, axis, length)
            shapes.append((shape, one.dtype, path, name))
        check_alike(shapes, axis)
        each: list[tuple[Source, JoinedParts | None]]
        each = [_joined(kind, axis, key) for kind in self._kinds]
        each += [(other, None) for other in self._others]
        check_packed([source for source, _ in each])
        # A dataset without rows needs no source, if there is any other.
        kept = [at for at, (source, _) in enumerate(each) if source.shape[axis]] or [0]
        sources = tuple(each[at][0] for at in kept)
        layouts = list(dict.fromkeys(one.storage().layout for one in sources))
        kinds = (
            layouts[0] if len(layouts) == 1 else f"stored in {len(layouts)} ways: {layouts[0]}, …"
        )
        names = tuple((path, name) for name in self._keys)
        changes = {
            "path": path,
            "key": key,
            "layout": f"{len(names):,} datasets, {kinds}",
            "opened": opened,
            "part_names": names,
            "episodes": True,
            "annotations": partial(
                _annotations,
                path,
                tuple(one for one in self._keys if one not in self._groups),
                tuple(self._groups.values()),
            ),
        }
        rows = np.array(self._rows, np.int64)
        lengths = rows[:, 0]
        (first, parts), alone = each[kept[0]], len(sources) == 1
        if alone and isinstance(first, Strided) and parts is not None and parts.unit == 1:
            starts = tuple((np.cumsum(lengths) - lengths).tolist())
            return first.described(**changes, parts=starts, parts_axis=axis)
        within = np.zeros(len(rows), np.int64)
        for number, (_, parts) in enumerate(each):
            if parts is not None:
                of = rows[:, 1] == number
                within[of] = parts.starts[rows[of, 2]]
        owners = np.where(rows[:, 1] < 0, len(self._kinds) + rows[:, 2], rows[:, 1])
        owners = np.searchsorted(kept, owners)  # of what has no rows: any
        return Concat(sources, axis, PartTable(lengths, owners, within, names), changes)


def _beside(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :]


def _with(shape: tuple[int, ...], axis: int, length: int) -> tuple[int, ...]:
    return (*shape[:axis], length, *shape[axis + 1 :])


def _stored(dataset: Any, h5d: Any) -> tuple[tuple[Any, ...], Any]:
    """Return layout, chunk shape and filters, and the property list that they were read from.

    HDF5's own comparison of such lists leaves out the last axis of a chunk.
    """
    if dataset.get_offset() is not None:  # in one run, in the file itself
        return (h5d.CONTIGUOUS,), None
    plist = dataset.get_create_plist()
    layout = plist.get_layout()
    if layout == h5d.CHUNKED:
        return (layout, plist.get_chunk(), filters_of(plist)), plist
    return (layout, plist.get_external_count()), plist


def _is_special(dataset: Any, h5a: Any) -> bool:
    return bool(h5a.get_num_attrs(dataset)) and any(h5a.exists(dataset, name) for name in _SPECIAL)


def _can_join(source: Source, axis: int) -> bool:
    """Return whether several datasets like this one can be one source."""
    if isinstance(source, Strided):
        return source.chunk_offsets is not None or prod(source.shape[:axis]) == 1
    return isinstance(source, Chunked) and isinstance(source.reader, FilteredChunks)


def _joined(kind: _Kind, axis: int, key: str) -> tuple[Source, JoinedParts]:
    """Return one source of datasets that are alike, and where each lies in it."""
    source, keys = kind.source, tuple(kind.keys)
    lengths = np.array(kind.lengths, np.int64)
    storage = replace(source.storage(), strides=None, stored_bytes=kind.stored_bytes, key=key)
    if isinstance(source, Strided) and source.chunk_offsets is None:
        parts = JoinedParts(keys, lengths, axis, 1)
        shape = _with(source.shape, axis, parts.stop)
        strides = contiguous_strides(shape, source.stored.itemsize)
        offsets = np.array(kind.offsets, np.int64)
        rows = RowOffsets(parts, offsets, _with(shape, axis, 1), strides[axis])
        storage = replace(storage, table_bytes=RowOffsets.BYTES * len(keys))
        array = source.file, source.stored, shape
        return Strided(*array, strides, 0, storage, rows, axis=axis), parts
    reader = None if isinstance(source, Strided) else source.reader
    table: ChunkTable = source.chunk_offsets if reader is None else reader.table
    chunk = list(table.chunk_shape)
    if reader is not None:
        chunk = list(reader.chunk_shape)
        chunk[axis] = min(max(kind.steps), max(kind.lengths))
    steps = np.array(kind.steps, np.int64) if len(set(kind.steps)) > 1 else None
    parts = JoinedParts(keys, lengths, axis, chunk[axis], steps)
    shape = _with(source.shape, axis, parts.stop)
    nbytes = ChunkTable.BYTES * kind.chunks + RowOffsets.BYTES * len(keys)
    storage = replace(storage, table_bytes=nbytes)
    joined = ChunkTable(table.version, key, table.chunk_shape, axis, parts)
    if reader is None:
        array = source.file, source.stored, shape
        return Strided(*array, source.strides, 0, storage, joined, axis=axis), parts
    cut = tuple(chunk)
    layout = storage.layout if steps is None else f"chunks of up to {cut}"
    described = replace(storage, chunks=cut, layout=layout)
    again = {"key": key, "shape": shape, "chunk_shape": cut, "parts": parts, "table": joined}
    return Chunked(replace(reader, **again, described=described)), parts


def _annotations(
    path: str, keys: Sequence[str], groups: Sequence[Callable[[], Annotations]]
) -> Annotations:
    """Return what the file says of all datasets alike, and of groups that are one array."""
    said = [read() for read in groups]
    with open_file(path) as file, readable(path):
        for key in keys:
            with ExitStack() as opened:  # a link that leads elsewhere was allowed at the opening
                said.append(annotations_of(find_dataset(file, key, True, opened)[0]))
    return common(said)
