"""Concatenate several sources along one axis into one array."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent, Ints, groups_of, slice_boxes
from oocdata.engines.alike import (
    check_same_columns,
    check_same_meaning,
    check_same_shape,
    common_annotations,
    common_names,
    joined_changes,
)
from oocdata.engines.chunked import Chunked
from oocdata.engines.copying import read_to
from oocdata.engines.decoded import Decoded
from oocdata.engines.many_files import readers_of_several
from oocdata.engines.ragged import Runs, affected_rows, run_positions, scatter_runs
from oocdata.engines.source import Annotations, Boxes, Source, Storage, WithStorage
from oocdata.errors import SourceError
from oocdata.index import distinct
from oocdata.threads import cached_property

_FEW_CROSSING = 8
"""Boxes that cross parts are few if there are at most one in this many others. To leave out their
places, all others are copied once more: 1.4 times the time for windows of 8 rows of 40 files."""


@dataclass(frozen=True, eq=False)
class PartTable:
    """Parts of an array, in order, and the sources that hold them.

    For each part its length along the axis, the number of the source that holds it and where it
    begins there, all int64 of shape (parts,); and the names of its file and dataset.
    """

    lengths: Ints
    owners: Ints
    within: Ints
    names: tuple[tuple[str | None, str | None], ...]

    BYTES: ClassVar[int] = 40
    """Bytes per part: one number in each array, and where the part begins and ends."""


class Concat(WithStorage):
    """Sources of equal shape, except for their length along one axis, concatenated along it.

    `table` is the order of the parts; by default each source as a whole, one after another, and
    parts of concatenations in place of these. `changes` replace fields of `Storage` derived from
    the sources. `readers` read several parts as one, each with the numbers of its parts.
    """

    def __init__(
        self,
        parts: tuple[Source, ...],
        axis: int,
        table: PartTable | None = None,
        changes: Mapping[str, Any] | None = None,
    ) -> None:
        if table is None:
            parts, table = flatten(parts, axis)
        self.readers = readers_of_several(parts)
        self._reader_of, self._members = np.full((2, len(parts)), -1)
        same_slots: list[Source] = list(parts)
        for reader_number, (reader, numbers) in enumerate(self.readers):
            self._reader_of[numbers], self._members[numbers] = reader_number, range(len(numbers))
            own: Sequence[Source] = reader.parts
            for number, part in zip(numbers, own, strict=True):
                same_slots[number] = part
        self._one_reader = bool((self._reader_of == 0).all())
        self.parts = tuple(same_slots)
        self.axis, self._changes = axis, dict(changes or {})
        self.table = table
        self._ends = self.table.lengths.cumsum()
        self._starts = self._ends - self.table.lengths
        self._shift = self.table.within - self._starts
        shape = list(parts[0].shape)
        shape[axis] = int(self._ends[-1])
        self.shape, self.dtype = tuple(shape), np.result_type(*{part.dtype for part in parts})

    def _part_of(self, places: Ints) -> Ints:
        """Return the part number at positions along the axis."""
        return self._ends.searchsorted(places, side="right")

    def __reduce__(self) -> Any:
        return type(self), (self.parts, self.axis, self.table, self._changes)

    @property
    def chunk_shape(self) -> tuple[int, ...] | None:
        """Lengths of chunks, if all sources have some.

        Of chunks that differ, the longest along the axis of the parts, else the shortest.
        """
        shapes = [part.chunk_shape for part in self.parts if isinstance(part, Chunked)]
        if len(shapes) < len(self.parts):
            return None
        lengths = zip(*shapes, strict=True)
        return tuple((max if axis == self.axis else min)(n) for axis, n in enumerate(lengths))

    def kept(self, origins: Ints, extent: Extent) -> NDArray[np.bool_]:
        """Return whether chunks may stay, of sources that are all in chunks; see `Chunked.kept`."""
        kept = np.empty(len(origins), np.bool_)
        parts: Any = self.shares(origins)
        for part, boxes, begins in parts:
            kept[boxes] = part.kept(begins, extent)
        return kept

    def with_parts(self, parts: Sequence[Source], **changes: Any) -> Concat:
        """Return the array with each source replaced, and its storage description changed."""
        return Concat(tuple(parts), self.axis, self.table, {**self._changes, **changes})

    @cached_property
    def _storage(self) -> Storage:
        stored = [part.storage() for part in self.parts]
        sizes = [part.stored_bytes for part in stored]
        chunks = [part.chunks for part in stored if part.chunks is not None]
        files = len(dict.fromkeys(path for path, _ in self.table.names))
        files = len(stored) if files == 1 else files
        tables = PartTable.BYTES * len(self.table.lengths) if len(stored) < len(self._ends) else 0
        combined = replace(
            stored[0],
            path=f"{self.table.names[0][0] or 'memory'} and {files - 1} more",
            stored_bytes=None if None in sizes else sum(size or 0 for size in sizes),
            chunks=tuple(map(max, zip(*chunks, strict=True))) if chunks else None,
            chunk_bytes=max((part.chunk_bytes or 0 for part in stored), default=0) or None,
            strides=None,
            parts=tuple(self._starts.tolist()),
            parts_axis=self.axis,
            part_names=self.table.names,
            dimensions=common_names([part.dimensions for part in stored]),
            categorical=any(part.categorical for part in stored),
            columns=None if self.axis == 1 else stored[0].columns,
            files=tuple(dict.fromkeys(file for part in stored for file in part.files)),
            version="".join(part.version for part in stored),
            chunk_scratch=max(part.chunk_scratch for part in stored),
            row_files=(),
            table_bytes=tables + sum(part.table_bytes for part in stored),
            row_sizes=tuple(map(sum, zip(*(part.row_sizes for part in stored), strict=True))),
            cached_whole=tuple(nbytes for part in stored for nbytes in part.cached_whole),
            scratch_bytes=max(part.scratch_bytes for part in stored),
            annotations=partial(_annotations, stored),
        )
        return replace(combined, **self._changes)

    def read(self, origins: Ints, extent: Extent, out: NDArray[Any]) -> None:
        self.read_to(origins, extent, out)

    def read_to(
        self, origins: Ints, extent: Extent, out: NDArray[Any], places: Ints | None = None
    ) -> None:
        if out.size == 0:
            return
        for boxes, start, stop in self._pieces(origins, extent):
            others, cut, target = len(origins) - len(boxes), extent, out
            begins = origins[boxes] if others else origins
            if stop - start < extent.lengths[self.axis]:
                begins, cut, region = slice_boxes(begins, extent, self.axis, start, stop)
                target = out[region]
            elif 0 < others <= len(boxes) // _FEW_CROSSING:
                begins = origins.copy()  # another box is read to the places of those that cross
                begins[np.delete(np.arange(len(origins)), boxes)] = origins[boxes[0]]
                boxes, others = np.arange(len(origins)), 0
            if places is not None:
                boxes = places[boxes]
            self._read_within_parts(begins, cut, target, boxes, places is None and not others)

    def read_boxes(self, origins: Ints, extent: Extent) -> Iterator[Boxes]:
        for boxes, start, stop in self._pieces(origins, extent):
            begins, cut, _ = slice_boxes(origins[boxes], extent, self.axis, start, stop)
            for part, _, within in self.shares(begins):
                yield part, within, cut

    def _pieces(self, origins: Ints, extent: Extent) -> Iterator[tuple[Ints, int, int]]:
        """Yield boxes with a range of their places along the axis that is in one part.

        Boxes of which this is the same range are together; whole boxes come first.
        """
        length, stride = extent.lengths[self.axis], extent.strides[self.axis]
        if length == 1:
            yield np.arange(len(origins)), 0, 1
            return
        pending = [(np.arange(len(origins)), 0)]
        while pending:
            boxes, start = pending.pop()
            begins = origins[boxes, self.axis] + start * stride
            remaining = self._ends[self._part_of(begins)] - begins
            counts = np.minimum(-(-remaining // stride), length - start)
            for count in np.unique(counts)[::-1].tolist():
                same, stop = boxes[counts == count], start + count
                yield same, start, stop
                if stop < length:
                    pending.append((same, stop))

    def shares(self, origins: Ints) -> Iterator[tuple[Source, Ints, Ints]]:
        """Yield each part with the numbers of the boxes that begin in it and their origins."""
        return self._shares(*self._located(origins))

    def _located(self, origins: Ints) -> tuple[Ints, Ints]:
        """Return the source in which each box begins, and the box's origin there."""
        numbers = self._part_of(origins[:, self.axis])
        within = origins.copy()
        within[:, self.axis] += self._shift[numbers]
        return self.table.owners[numbers], within

    def _read_within_parts(
        self, origins: Ints, extent: Extent, out: NDArray[Any], places: Ints, in_order: bool
    ) -> None:
        """Write boxes to ``out[places[i]]``; those `in_order` are all boxes, at their places."""
        owners, begins = self._located(origins)
        for reader, which in self._by_reader(owners):
            part_owners, part_begins, part_places = owners[which], begins[which], places[which]
            some = None if in_order and isinstance(which, slice) else part_places
            members = self._members[part_owners]
            if reader is None or not reader.read(members, part_begins, extent, out, some):
                for part, selected, share_begins in self._shares(part_owners, part_begins):
                    read_to(part, share_begins, extent, out, part_places[selected])

    def _by_reader(self, owners: Ints) -> Iterator[tuple[Any, Ints | slice]]:
        """Yield each reader of several parts, or None for others, with the numbers of its boxes."""
        # Without this case, rows of 256 bytes of 40 gzip files take 1.25 times the processor time.
        if self._one_reader and len(owners):
            yield self.readers[0][0], slice(None)
            return
        for number, boxes in groups_of(self._reader_of[owners]):
            yield None if number < 0 else self.readers[number][0], boxes

    def _shares(self, owners: Ints, within: Ints) -> Iterator[tuple[Source, Ints, Ints]]:
        for owner, boxes in groups_of(owners):
            yield self.parts[owner], boxes, within[boxes]

    def check_at(self, starts: Ints, lengths: Ints | int) -> None:
        """Raise if a file that holds runs of positions along the axis has changed."""
        ends = starts + lengths
        first, last = (self._part_of(at[ends > starts]) for at in (starts, ends - 1))
        parts = run_positions(first, last - first + 1)
        for owner in distinct(self.table.owners[parts]).tolist():
            part: Any = self.parts[owner]
            part.check()

    @property
    def has_runs(self) -> bool:
        """Whether parts follow one another along axis 0; see `oocdata.engines.ragged`."""
        return self.axis == 0

    def read_runs(self, starts: Ints, lengths: Ints, out: NDArray[Any]) -> None:
        for part, begins, part_starts, counts, targets in self._runs(starts, lengths):
            try:
                scatter_runs(part, part_starts, counts, out, targets)
            except SourceError as error:
                runs, stops = np.arange(len(counts)), part_starts + counts
                run = affected_rows(error, runs, part_starts, stops)[0]
                error.set_rows(range(begins[run], begins[run] + counts[run]))
                raise

    def runs_below(self, starts: Ints, lengths: Ints) -> Iterator[Runs]:
        for part, _, part_starts, counts, _ in self._runs(starts, lengths):
            yield part, part_starts, counts

    def _runs(self, starts: Ints, lengths: Ints) -> Iterator[tuple[Source, Ints, Ints, Ints, Ints]]:
        """Yield for each source its share of runs, which are cut where parts end.

        A share is the source, where its runs begin in the whole and in the source, their lengths,
        and where they go in the output.
        """
        first = self._part_of(np.minimum(starts, self.shape[0] - 1))
        last = self._part_of(np.maximum(starts + lengths - 1, starts).clip(0, self.shape[0] - 1))
        counts = np.where(lengths > 0, last - first + 1, 0)
        parts = run_positions(first, counts)
        begins = np.maximum(np.repeat(starts, counts), self._starts[parts])
        cut = np.minimum(np.repeat(starts + lengths, counts), self._ends[parts]) - begins
        owners, targets = self.table.owners[parts], np.cumsum(cut) - cut
        for owner, which in groups_of(owners):
            part_starts = begins[which] + self._shift[parts[which]]
            yield self.parts[owner], begins[which], part_starts, cut[which], targets[which]


def _annotations(parts: list[Storage]) -> Annotations:
    return common_annotations([part.annotations() for part in parts])


def concatenate(
    sources: Sequence[Source], axis: int, changes: Mapping[str, Any] | None = None
) -> Source:
    """Concatenate sources, at least one, along an axis; `changes` replace fields of `Storage`.

    Raises MismatchedPartsError if dtypes, shapes besides the axis (the message lists them, with the
    number of parts that have each), the packing of numbers, or the names of columns differ.
    """
    first = sources[0]
    if len(sources) == 1 and not changes:
        return first
    storages = [part.storage() for part in sources]
    pairs = zip(sources, storages, strict=True)
    check_same_shape(
        [(part.shape, part.dtype, stored.path, stored.key) for part, stored in pairs], axis
    )
    check_same_meaning(storages)
    check_same_columns(storages, axis)
    # Parts packed alike are decoded together: four gzip files take 1 / 2.1 of the processor's time.
    # Not dates, because their errors name the file.
    packed = [part for part in sources if isinstance(part, Decoded)]
    packings = {(part.packing, part.described, *part.attributes) for part in packed}
    if len(packed) == len(sources) and len(packings) == 1 and not packed[0].packing.date_unit:
        return replace(
            packed[0], source=concatenate([part.source for part in packed], axis, changes)
        )
    # Empty parts are dropped, because their start would be that of the next part; unless parts are
    # datasets of several keys, which are selected by name.
    described = joined_changes(storages, changes)
    keyed = described["episodes"]
    nonempty = list(sources) if keyed else [part for part in sources if part.shape[axis]]
    if len(nonempty) < 2 and not keyed:
        return (nonempty or sources)[0]
    return Concat(tuple(nonempty), axis, changes=described)


def flatten(sources: Sequence[Source], axis: int) -> tuple[tuple[Source, ...], PartTable]:
    """Return sources with concatenations along the axis replaced by their parts, and the table."""
    flat: list[Source] = []
    parts: list[tuple[int, int, int]] = []
    names: list[tuple[str | None, str | None]] = []
    for source in sources:
        if type(source) is Concat and source.axis == axis:
            table = source.table
            columns = table.lengths, table.owners + len(flat), table.within
            parts += zip(*(column.tolist() for column in columns), strict=True)
            names += table.names
            flat += source.parts
            continue
        storage = source.storage()
        several = len(storage.parts) > 1 and storage.parts_axis == axis
        starts = storage.parts if several else (0,)
        ends = (*starts[1:], source.shape[axis])
        parts += [(end - start, len(flat), start) for start, end in zip(starts, ends, strict=True)]
        names += storage.part_names if several else [(storage.path, storage.key)]
        flat.append(source)
    lengths, owners, within = np.array(parts, np.int64).reshape(-1, 3).T
    return tuple(flat), PartTable(lengths, owners, within, tuple(names))
