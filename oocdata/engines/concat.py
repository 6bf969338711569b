"""Several sources end to end along one axis, as one array."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent, cut_boxes
from oocdata.engines.places import read_to
from oocdata.engines.ragged import (
    concerned_rows,
    read_apart,
    read_points,
    read_ragged,
    soon_points,
    soon_ragged,
    spread,
)
from oocdata.engines.soon import Soon
from oocdata.engines.source import Annotations, Boxes, Source, Storage
from oocdata.engines.together import Together
from oocdata.errors import MismatchedPartsError, SourceError
from oocdata.threads import cached_property

__all__ = [
    "Concat", "PartTable", "are_keyed", "check_alike", "check_packed", "common", "concatenate",
    "flattened", "opened_together",
]  # fmt: skip

Ints = NDArray[np.int64]

Share: TypeAlias = tuple[Source, Ints, Extent, tuple[slice, ...]]
"""A part, the boxes of it that are taken, and where these go in each box of all parts."""


@dataclass(frozen=True, eq=False)
class PartTable:
    """Parts that several sources hold, in their order.

    Attributes
    ----------
    lengths : ndarray of int64, shape (parts,)
        Places along the axis.
    owners : ndarray of int64, shape (parts,)
        Which source holds the part.
    within : ndarray of int64, shape (parts,)
        Where it begins in its source.
    names : tuple of (str or None, str or None)
        File and dataset of each.
    """

    lengths: Ints
    owners: Ints
    within: Ints
    names: tuple[tuple[str | None, str | None], ...]

    BYTES: ClassVar[int] = 40
    """For each part: a number of each kind, and where it begins and ends."""

    @classmethod
    def of(cls, sources: Sequence[Source], axis: int) -> PartTable:
        """Return the parts that whole sources are, one or several each."""
        parts: list[tuple[int, int, int]] = []
        names: list[tuple[str | None, str | None]] = []
        for owner, source in enumerate(sources):
            storage, stop = source.storage(), source.shape[axis]
            several = len(storage.parts) > 1 and storage.parts_axis == axis
            starts = storage.parts if several else (0,)
            ends = (*starts[1:], stop)
            parts += [(end - start, owner, start) for start, end in zip(starts, ends, strict=True)]
            names += storage.part_names if several else [(storage.path, storage.key)]
        lengths, owners, within = np.array(parts, np.int64).reshape(-1, 3).T
        return cls(lengths, owners, within, tuple(names))


class Concat:
    """Sources end to end.

    Parameters
    ----------
    parts : tuple of Source
        Alike but for their length along the axis, which is not 0.
    axis : int
        Of the array as stored.
    table : PartTable, optional
        Which place lies where in which source; by default the sources are whole, one after another.
    changes : mapping, optional
        What `Storage` says otherwise than the sources do.
    """

    def __init__(
        self,
        parts: tuple[Source, ...],
        axis: int,
        table: PartTable | None = None,
        changes: Mapping[str, Any] | None = None,
    ) -> None:
        self.parts, self.axis, self._changes = parts, axis, dict(changes or {})
        self.table = PartTable.of(parts, axis) if table is None else table
        self._ends = self.table.lengths.cumsum()
        self._starts = self._ends - self.table.lengths
        self._shift = self.table.within - self._starts
        shape = list(parts[0].shape)
        shape[axis] = int(self._ends[-1])
        self.shape, self.dtype = tuple(shape), np.result_type(*{part.dtype for part in parts})

    def _part_of(self, places: Ints) -> Ints:
        """Return the number of the part at places along the axis."""
        return self._ends.searchsorted(places, side="right")

    def __reduce__(self) -> Any:
        return Concat, (self.parts, self.axis, self.table, self._changes)

    def with_parts(self, parts: Sequence[Source], **changes: Any) -> Concat:
        """Return the same array of other sources, each in place of one, described otherwise."""
        return Concat(tuple(parts), self.axis, self.table, {**self._changes, **changes})

    def storage(self) -> Storage:
        """Return the first part's storage, with what all parts have together."""
        return self._storage

    @cached_property
    def _storage(self) -> Storage:
        each = [part.storage() for part in self.parts]
        sizes = [one.stored_bytes for one in each]
        chunks = [one.chunks for one in each if one.chunks is not None]
        files = len(dict.fromkeys(path for path, _ in self.table.names))
        files = len(each) if files == 1 else files
        tables = PartTable.BYTES * len(self.table.lengths) if len(each) < len(self._ends) else 0
        found = replace(
            each[0],
            path=f"{each[0].path or 'memory'} and {files - 1} more",
            stored_bytes=None if None in sizes else sum(size or 0 for size in sizes),
            chunks=tuple(map(max, zip(*chunks, strict=True))) if chunks else None,
            chunk_bytes=max((one.chunk_bytes or 0 for one in each), default=0) or None,
            strides=None,
            parts=tuple(self._starts.tolist()),
            parts_axis=self.axis,
            part_names=self.table.names,
            dimensions=_common_names([one.dimensions for one in each]),
            files=tuple(dict.fromkeys(file for one in each for file in one.files)),
            version="".join(one.version for one in each),
            chunk_scratch=max(one.chunk_scratch for one in each),
            row_files=(),
            table_bytes=tables + sum(one.table_bytes for one in each),
            row_sizes=tuple(map(sum, zip(*(one.row_sizes for one in each), strict=True))),
            cached_whole=tuple(nbytes for one in each for nbytes in one.cached_whole),
            scratch_bytes=max(one.scratch_bytes for one in each),
            annotations=partial(_annotations, each),
        )
        return replace(found, **self._changes)

    def read(self, origins: Ints, extent: Extent, out: NDArray[Any]) -> None:
        """Write ``out[i] = the box at origins[i]``; see `oocdata.engines.source.Source.read`."""
        if out.size == 0:
            return
        inside, across = self._crossing(origins, extent)
        for boxes in across:
            self._read_across(origins[boxes], extent, out, boxes)
        owners, within = self._located(origins[inside])
        together = self._together if len(owners) > 1 and (owners != owners[0]).any() else None
        if together is None or not together.read(owners, within, extent, out, inside):
            for part, places, own in self._shares(owners, within):
                read_to(part, own, extent, out, inside[places])

    def read_boxes(self, origins: Ints, extent: Extent) -> Iterator[Boxes]:
        """Yield the boxes of each part that are read for boxes of all parts."""
        inside, across = self._crossing(origins, extent)
        for some in across:
            for part, within, own, _ in self._cut(origins[some], extent):
                yield part, within, own
        for part, _, within in self.shares(origins[inside]):
            yield part, within, extent

    @cached_property
    def _together(self) -> Together | None:
        return Together.of(self.parts)

    def shares(self, origins: Ints) -> Iterator[tuple[Source, Ints, Ints]]:
        """Yield parts, which of the boxes begin in each, and their origins there."""
        return self._shares(*self._located(origins))

    def _located(self, origins: Ints) -> tuple[Ints, Ints]:
        """Return in which part boxes begin, and their origins there."""
        numbers = self._part_of(origins[:, self.axis])
        within = origins.copy()
        within[:, self.axis] += self._shift[numbers]
        return self.table.owners[numbers], within

    def _shares(self, owners: Ints, within: Ints) -> Iterator[tuple[Source, Ints, Ints]]:
        if len(self.parts) == 1 or len(owners) == 1:
            owner = int(owners[0]) if len(owners) else 0
            yield self.parts[owner], np.arange(len(owners)), within
            return
        order = owners.argsort(kind="stable")
        ordered = owners[order]
        borders = (ordered[1:] != ordered[:-1]).nonzero()[0] + 1
        for places in np.split(order, borders.tolist()):
            if len(places):
                yield self.parts[int(owners[places[0]])], places, within[places]

    def read_runs(self, starts: Ints, lengths: Ints, out: NDArray[Any]) -> None:
        """Write runs of places along axis 0 one after the other; see `ragged.read_ragged`."""
        if self.axis:
            read_points(self, starts, lengths, out)
            return
        for part, begins, within, counts, targets in self._runs(starts, lengths):
            try:
                read = partial(read_ragged, part, within, counts)
                read_apart(read, counts, part.dtype, out, targets)
            except SourceError as error:
                run = concerned_rows(error, np.arange(len(within)), within, within + counts)[0]
                error.concern(range(begins[run], begins[run] + counts[run]))
                raise

    def soon_runs(self, starts: Ints, lengths: Ints) -> list[Soon]:
        """Return what `read_runs` will take out of stores; see `ragged.soon_ragged`."""
        if self.axis:
            return soon_points(self, starts, lengths)
        return [
            one
            for part, _, within, counts, _ in self._runs(starts, lengths)
            for one in soon_ragged(part, within, counts)
        ]

    def _runs(self, starts: Ints, lengths: Ints) -> Iterator[tuple[Source, Ints, Ints, Ints, Ints]]:
        """Yield what each part holds of runs, which are cut where parts end.

        Where they begin in the whole and in the part, their lengths, and where they go.
        """
        first = self._part_of(np.minimum(starts, self.shape[0] - 1))
        last = self._part_of(np.maximum(starts + lengths - 1, starts).clip(0, self.shape[0] - 1))
        counts = np.where(lengths > 0, last - first + 1, 0)
        parts = spread(first, counts)
        begins = np.maximum(np.repeat(starts, counts), self._starts[parts])
        pieces = np.minimum(np.repeat(starts + lengths, counts), self._ends[parts]) - begins
        owners, targets = self.table.owners[parts], np.cumsum(pieces) - pieces
        for owner in np.unique(owners[pieces > 0]).tolist():
            own = np.flatnonzero(owners == owner)
            within = begins[own] + self._shift[parts[own]]
            yield self.parts[owner], begins[own], within, pieces[own], targets[own]

    def _crossing(self, origins: Ints, extent: Extent) -> tuple[Ints, list[Ints]]:
        """Return which boxes lie in one part; and in several, those that begin at one place."""
        first, span = origins[:, self.axis], extent.spans[self.axis]
        if span == 1:
            return np.arange(len(origins)), []
        across = first + span > self._ends[self._part_of(first)]
        # Those that begin at one place go together: all of a batch, where parts are channels.
        places = np.unique(first[across]).tolist()
        groups = [(across & (first == place)).nonzero()[0] for place in places]
        return (~across).nonzero()[0], groups

    def _read_across(
        self,
        origins: Ints,
        extent: Extent,
        out: NDArray[Any],
        boxes: Ints,
    ) -> None:
        """Read boxes that begin at one place and lie in several parts, from each what it holds."""
        for part, within, own, where in self._cut(origins, extent):
            read_to(part, within, own, out[where], boxes)

    def _cut(self, origins: Ints, extent: Extent) -> Iterator[Share]:
        """Yield what each part holds of boxes that begin at one place along the axis."""
        length, stride = extent.lengths[self.axis], extent.strides[self.axis]
        done = 0
        while done < length:
            place = int(origins[0, self.axis]) + done * stride
            number = int(self._ends.searchsorted(place, side="right"))
            left = -(-(int(self._ends[number]) - place) // stride)
            stop = min(length, done + left)
            within, own, where = cut_boxes(origins, extent, self.axis, done, stop)
            within[:, self.axis] += self._shift[number]
            yield self.parts[int(self.table.owners[number])], within, own, where
            done = stop


def opened_together(each: list[Mapping[str, Any] | None]) -> Mapping[str, Any] | None:
    """Return how to open the parts again as one: a list of files, or of datasets of one file."""
    known: list[Mapping[str, Any]] = []
    for one in each:
        if one is None or not isinstance(one.get("target"), str | list):
            return None
        targets = [one["target"]] if isinstance(one["target"], str) else one["target"]
        known += [{**one, "target": target} for target in targets]
    first = known[0]
    for name in ("target", "key"):
        rest = {other: value for other, value in first.items() if other != name}
        if all({o: v for o, v in one.items() if o != name} == rest for one in known):
            return {**first, name: [one.get(name) for one in known]}
    return None


def _common_names(each: list[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the names that axes have in all parts; empty for an axis that has none such."""
    if not all(each):
        return ()
    names = tuple("" if len(set(same)) > 1 else same[0] for same in zip(*each, strict=True))
    return names if any(names) else ()


def _annotations(each: list[Storage]) -> Annotations:
    return common([one.annotations() for one in each])


def common(said: Sequence[Annotations]) -> Annotations:
    """Return what is said of all parts; None for what is not said of each, or not the same."""
    first = said[0]
    names = dict.fromkeys(name for one in said for name in one.attributes)
    return Annotations(
        {name: _agreed([one.attributes.get(name) for one in said]) for name in names},
        _agreed([one.fill_value for one in said]) if first.fill_value is not None else None,
    )


def _agreed(values: list[Any]) -> Any:
    """Return the value that all are; None where they differ."""
    return values[0] if all(_same(one, values[0]) for one in values) else None


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray | np.generic) or isinstance(other, np.ndarray | np.generic):
        first, second = np.asarray(one), np.asarray(other)
        numbers = first.dtype.kind in "fc" and second.dtype.kind in "fc"
        return bool(np.array_equal(first, second, equal_nan=numbers))
    return bool(one == other or (one != one and other != other))


def concatenate(
    sources: Sequence[Source], axis: int, changes: Mapping[str, Any] | None = None
) -> Source:
    """Return sources end to end as one.

    Parameters
    ----------
    sources : sequence of Source
        At least one.
    axis : int
        Of the arrays as stored.
    changes : mapping, optional
        What `Storage` says otherwise than the sources do.

    Raises
    ------
    oocdata.errors.MismatchedPartsError
        If shapes besides the axis or dtypes differ, or how the numbers are packed; the message
        lists the shapes, with the number of parts that have each.
    """
    first = sources[0]
    if len(sources) == 1 and not changes:
        return first
    storages = [part.storage() for part in sources]
    wheres = zip(sources, storages, strict=True)
    check_alike([(part.shape, part.dtype, one.path, one.key) for part, one in wheres], axis)
    check_packed(sources)
    # A part without rows owns nothing, and would share its start with the next; but where parts
    # are datasets of several keys, each is known by its name.
    opened = {"opened": opened_together([one.opened for one in storages])}
    keyed = bool(changes) or are_keyed(opened["opened"]) or any(one.episodes for one in storages)
    filled = list(sources) if keyed else [part for part in sources if part.shape[axis]]
    if len(filled) < 2 and not keyed:
        return (filled or sources)[0]
    parts, table = flattened(filled, axis)
    return Concat(parts, axis, table, {**opened, "episodes": keyed, **(changes or {})})


def are_keyed(opened: Mapping[str, Any] | None) -> bool:
    """Return whether what is opened together are datasets of several keys."""
    return isinstance((opened or {}).get("key"), list)


def flattened(sources: Sequence[Source], axis: int) -> tuple[tuple[Source, ...], PartTable]:
    """Return sources, those of others that lie end to end taken by themselves, and their parts."""
    flat: list[Source] = []
    tables: list[PartTable] = []
    for part in sources:
        joined = part if type(part) is Concat and part.axis == axis else None
        table = joined.table if joined else PartTable.of([part], axis)
        tables.append(replace(table, owners=table.owners + len(flat)))
        flat += joined.parts if joined else [part]
    table = PartTable(
        np.concatenate([one.lengths for one in tables]),
        np.concatenate([one.owners for one in tables]),
        np.concatenate([one.within for one in tables]),
        tuple(name for one in tables for name in one.names),
    )
    return tuple(flat), table


def check_packed(sources: Sequence[Source]) -> None:
    """Raise if the numbers of sources are not packed alike, or are dates of unlike units."""

    def said(storage: Storage) -> str:
        return storage.packed or storage.unit or "none packed"

    first = sources[0].storage()
    for number, part in enumerate(sources):
        where = part.storage()
        if (where.packed, where.unit) != (first.packed, first.unit):
            hint = "decode=True decodes each part by its own attributes."
            if first.unit or where.unit:
                hint = "Open each by itself, and bring its dates to one unit."
            raise MismatchedPartsError(
                "parts must hold numbers that are packed alike, because they are delivered as "
                f"stored; part 0 has {said(first)}, part {number} has {said(where)}. {hint}",
                path=where.path,
                key=where.key,
            )


def check_alike(
    parts: Sequence[tuple[tuple[int, ...], np.dtype[Any], str | None, str | None]], axis: int
) -> None:
    """Raise if parts of these shapes and dtypes don't make one array.

    Examples
    --------
    >>> f4 = np.dtype("f4")
    >>> check_alike([((5, 3), f4, "a.h5", "u"), ((2, 3), f4, "a.h5", "v")], 0)
    >>> check_alike([((5, 3), f4, "a.h5", "u"), ((2, 4), f4, "a.h5", "v")], 0)
    Traceback (most recent call last):
    ...
    oocdata.errors.MismatchedPartsError: parts must have one dtype, and one shape besides axis 0;
    they have (*, 3) float32 (1 part) and (*, 4) float32 (1 part, the first 'v'). Leave some out; or
    fill rows up to one shape, ooc.open(…, pad=0); or open them one by one, cut them to one shape,
    such as view[:, :8], and join them by ooc.concat. [file 'a.h5', dataset 'v']
    """
    kinds: dict[tuple[Any, ...], list[int]] = {}
    for number, (shape, dtype, _, _) in enumerate(parts):
        kind = dtype.kind if dtype.kind in "SU" else dtype  # text is as long as the longest
        kinds.setdefault((_beside(shape, axis), kind), []).append(number)
    if len(kinds) < 2:
        return
    said = []
    for numbers in kinds.values():
        shape, dtype, path, key = parts[numbers[0]]
        lengths = ", ".join("*" if at == axis else str(n) for at, n in enumerate(shape))
        count = f"{len(numbers)} part{'s' if len(numbers) > 1 else ''}"
        named = f", the first {(key or path)!r}" if numbers[0] and (key or path) else ""
        said.append(f"({lengths}{',' if len(shape) == 1 else ''}) {dtype} ({count}{named})")
    _, _, path, key = parts[list(kinds.values())[1][0]]
    shapes, fill = {shape for shape, _ in kinds}, ""
    if len(shapes) == 1:
        hint = "give them one dtype by `.astype`, and join them by ooc.concat"
    elif len({len(shape) for shape in shapes}) == 1:
        hint = "cut them to one shape, such as view[:, :8], and join them by ooc.concat"
        fill = "fill rows up to one shape, ooc.open(…, pad=0); or "
    else:
        hint = "and pair rows that belong together by ooc.zip"
    raise MismatchedPartsError(
        f"parts must have one dtype, and one shape besides axis {axis}; they have "
        f"{', '.join(said[:-1])} and {said[-1]}. Leave some out; or {fill}open them one by one, "
        f"{hint}.",
        path=path,
        key=key,
    )


def _beside(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :] if axis < len(shape) else (len(shape),)
