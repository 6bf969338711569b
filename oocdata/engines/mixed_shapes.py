"""Concatenate parts whose rows differ in shape, by padding them or as ragged rows.

Each part is an array, so its own rows are of one shape. When padded (`PaddedArray`), a part holds a
smaller box of each requested box, and the rest is filled. If rows differ only in their first axis,
they can be rows of unequal length (`RaggedPart`); see `oocdata.engines.ragged_rows`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from oocdata.box import Extent, Ints, groups_of
from oocdata.engines.alike import (
    check_same_columns,
    check_same_meaning,
    check_same_shape,
    joined_changes,
)
from oocdata.engines.concat import Concat, concatenate, flatten
from oocdata.engines.copying import read_to
from oocdata.engines.memory_array import MemoryArray
from oocdata.engines.padded import DerivedRows, PaddedRows, padding_value
from oocdata.engines.ragged_rows import RaggedSource
from oocdata.engines.source import Boxes, Source, Storage
from oocdata.engines.wrapped import Wrapped
from oocdata.errors import ArgumentError
from oocdata.threads import cached_property


def join_parts(
    sources: Sequence[Source],
    axis: int,
    pad: float | None,
    changes: Mapping[str, Any] | None = None,
) -> Source:
    """Concatenate sources along an axis as stored; their rows may differ in shape.

    `pad` is the value that rows are padded with, to the longest of each axis. None: rows that
    differ only in their first axis become rows of unequal length, if `axis` is 0. For `changes`,
    see `oocdata.engines.concat.concatenate`.

    Raises `MismatchedPartsError` if the rows differ in another way, and `ArgumentError` if the
    dtype can't represent `pad`.
    """
    parts, table = flatten([_plain(source) for source in sources], axis)
    row_shapes = [part.shape[:axis] + part.shape[axis + 1 :] for part in parts]
    lengths = list(zip(*row_shapes, strict=False))
    differing = [number for number, each in enumerate(lengths) if len(set(each)) > 1]
    ragged = axis == 0 and differing == [0]
    if len(set(map(len, row_shapes))) > 1 or not differing or (pad is None and not ragged):
        return concatenate(sources, axis, changes)
    storages = [part.storage() for part in parts]
    check_same_meaning(storages)
    check_same_columns(storages, axis)
    # Parts of equal shape become one array, so that they are read together: rows of 10 KB of 300
    # files of 7 shapes take 1 / 3 of the processor time.
    groups: dict[tuple[int, ...], list[int]] = {}
    for number, shape in enumerate(row_shapes):
        groups.setdefault(shape, []).append(number)
    owners, starts = np.zeros((2, len(parts)), np.int64)
    stacks: list[Source] = []
    for numbers in groups.values():
        ends = np.cumsum([parts[number].shape[axis] for number in numbers])
        owners[numbers], starts[numbers[1:]] = len(stacks), ends[:-1]
        stack = concatenate([parts[number] for number in numbers], axis)
        if pad is None:
            stacks.append(RaggedPart(stack))
        else:
            longest = [*map(max, lengths)]
            longest.insert(axis, stack.shape[axis])
            stacks.append(
                PaddedArray(stack, tuple(longest), padding_value("pad", pad, stack.dtype))
            )
    pairs = [(stack, stack.storage()) for stack in stacks]
    check_same_shape([(one.shape, one.dtype, at.path, at.key) for one, at in pairs], axis)
    table = replace(table, owners=owners[table.owners], within=table.within + starts[table.owners])
    padding = {} if pad is None else {"pad": pad}
    described = joined_changes([source.storage() for source in sources], changes, **padding)
    return Concat(tuple(stacks), axis, table, described)


def _plain(source: Source) -> Source:
    """Return the source without padding and ragged rows; its parts may differ in shape."""
    if type(source) is Concat and any(
        isinstance(part, PaddedArray | RaggedPart) for part in source.parts
    ):
        return source.with_parts([_plain(part) for part in source.parts])
    return source.source if isinstance(source, PaddedArray | RaggedPart) else source


@dataclass(frozen=True, eq=False)
class PaddedArray(Wrapped):
    """An array at the beginning of a larger shape, `lengths`, which is filled with `value`."""

    lengths: tuple[int, ...]
    value: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return self.lengths

    def storage(self) -> Storage:
        stored = self.source.storage()
        return replace(
            stored,
            reading=f"{stored.reading}; filled up with {self.value}",
            strides=None,
            columns=None,
            opened=stored.opened and {**stored.opened, "pad": self.value},
        )

    def read(self, origins: Ints, extent: Extent, out: NDArray[Any]) -> None:
        if out.size == 0:
            return
        for boxes, stored in self._stored_parts(origins, extent):
            if stored != extent:
                out[boxes] = np.array(self.value, self.dtype)
            region = (slice(None), *map(slice, stored.lengths))
            read_to(self.source, origins[boxes], stored, out[region], boxes)

    def read_boxes(self, origins: Ints, extent: Extent) -> Iterator[Boxes]:
        for boxes, stored in self._stored_parts(origins, extent):
            yield self.source, origins[boxes], stored

    def _stored_parts(self, origins: Ints, extent: Extent) -> Iterator[tuple[Ints, Extent]]:
        """Group boxes by how much of them is stored; yield their numbers and the stored extent."""
        steps, lengths = np.array(extent.strides), np.array(extent.lengths)
        counts = np.clip(-(-(np.array(self.source.shape) - origins) // steps), 0, lengths)
        remaining = np.arange(len(origins))
        while len(remaining):
            first = counts[remaining[0]]
            same = (counts[remaining] == first).all(axis=1)
            yield remaining[same], Extent(tuple(first.tolist()), extent.strides)
            remaining = remaining[~same]


def padded_axes(source: Source) -> set[int]:
    """Return the axes along which parts are padded."""
    if isinstance(source, Concat):
        return {axis for part in source.parts for axis in padded_axes(part)}
    if not isinstance(source, PaddedArray):
        return set()
    pairs = zip(source.shape, source.source.shape, strict=True)
    return {axis for axis, (length, stored) in enumerate(pairs) if length > stored}


@dataclass(frozen=True, eq=False)
class PaddingMask(DerivedRows):
    """Mask of stored elements, False where rows are padded; a `Source` of bool."""

    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.bool_)

    _layout: ClassVar[str] = "where rows hold values"

    @cached_property
    def _mask(self) -> Source:
        return _mask(self.rows)

    def read(self, origins: Ints, extent: Extent, out: NDArray[Any]) -> None:
        self._mask.read(origins, extent, out)


def _mask(source: Source) -> Source:
    if isinstance(source, Concat):
        return source.with_parts([_mask(part) for part in source.parts])
    if isinstance(source, PaddedArray):
        return PaddedArray(_mask(source.source), source.shape, False)
    if hasattr(source, "axis_maps"):  # of an `AxisView`, which `import oocdata` does not need
        view: Any = source
        mask: Source = replace(view, source=_mask(view.source), dtype=np.dtype(np.bool_))
        return mask
    if hasattr(source, "views") or isinstance(source, PaddedRows):
        raise ArgumentError(
            "`mask` must be taken from an array as it was opened. Take it from the view that this "
            "one was made from, and select from it in the same way."
        )
    return MemoryArray(np.broadcast_to(np.True_, source.shape))


@dataclass(frozen=True, eq=False)
class RaggedPart(RaggedSource, Wrapped):
    """Rows of one part of rows of unequal length; its `source` has shape (rows, length, …)."""

    @property
    def shape(self) -> tuple[int, ...]:
        return self.source.shape[:1]

    @property
    def inner(self) -> tuple[int, ...]:
        return self.source.shape[2:]

    def storage(self) -> Storage:
        """Return how the rows are stored; a chunk is the rows that share one."""
        stored = self.source.storage()
        changes: dict[str, Any] = {"strides": None, "dimensions": stored.dimensions[:1]}
        if stored.chunks is not None:
            lengths = (stored.chunks[0], *self.source.shape[1:])
            changes["chunks"] = stored.chunks[:1]
            changes["chunk_bytes"] = int(np.prod(lengths)) * self.dtype.itemsize
        return replace(stored, **changes)

    def locate(self, rows: Ints) -> tuple[Ints, Ints]:
        return np.zeros_like(rows), np.full_like(rows, self.source.shape[1])

    def read_rows(
        self, rows: Ints, starts: Ints, counts: Ints, out: NDArray[Any], targets: Ints
    ) -> None:
        step = out.strides[0]
        for which, (_, origins, extent) in self._runs(rows, starts, counts):
            # A view with a run from each position of `out` on, so that runs are read in place.
            shape = (len(out) - extent.lengths[1] + 1, *extent.lengths)
            runs = as_strided(out, shape, (step, step, *out.strides))
            order = targets[which].argsort()
            read_to(self.source, origins[order], extent, runs, targets[which][order])

    def run_boxes(self, rows: Ints, starts: Ints, counts: Ints) -> list[Boxes]:
        return [boxes for _, boxes in self._runs(rows, starts, counts)]

    def _runs(self, rows: Ints, starts: Ints, counts: Ints) -> Iterator[tuple[Ints, Boxes]]:
        """Yield the numbers of the runs of each length but 0, and their boxes."""
        for count, which in groups_of(counts):
            origins = np.zeros((len(which), len(self.source.shape)), np.int64)
            origins[:, 0], origins[:, 1] = rows[which], starts[which]
            if count:
                yield which, (self.source, origins, Extent.of((1, count, *self.inner)))
