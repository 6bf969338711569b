"""Parts whose rows differ in shape, end to end: filled up to one shape, or of unequal length.

A part is one array, so all of its rows have one shape. What it holds of a box is therefore a
smaller box, and the rest is filled (`Filled`); and where the first axis of the rows alone differs,
they are rows of unequal length (`PartRows`), as `oocdata.engines.ragged_rows` has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent
from oocdata.engines.concat import (
    Concat,
    are_keyed,
    check_alike,
    check_packed,
    concatenate,
    flattened,
    opened_together,
)
from oocdata.engines.padded import OfRows, PaddedRows, described, held_value
from oocdata.engines.places import read_to
from oocdata.engines.ragged import spread
from oocdata.engines.ragged_rows import Located, Locating
from oocdata.engines.source import Boxes, Source, Storage
from oocdata.engines.wrapped import Wrapped
from oocdata.errors import ArgumentError
from oocdata.threads import cached_property

__all__ = ["Filled", "PaddingMask", "PartRows", "filled_axes", "joined"]

Ints = NDArray[np.int64]


def joined(
    sources: Sequence[Source],
    axis: int,
    pad: float | None,
    changes: Mapping[str, Any] | None = None,
) -> Source:
    """Return sources end to end, also where their rows differ in shape.

    Parameters
    ----------
    sources : sequence of Source
    axis : int
        Of the arrays as stored.
    pad : number or None
        What rows are filled up with, to the longest of each axis. None: rows that differ in their
        first axis alone, along axis 0, become rows of unequal length.
    changes : mapping, optional
        As `oocdata.engines.concat.concatenate` takes them.

    Raises
    ------
    oocdata.errors.MismatchedPartsError
        If the rows differ otherwise.
    oocdata.errors.ArgumentError
        If the dtype can't hold the number.
    """
    parts, table = flattened([_plain(source) for source in sources], axis)
    beside = [part.shape[:axis] + part.shape[axis + 1 :] for part in parts]
    lengths = list(zip(*beside, strict=False))
    unlike = [at for at, each in enumerate(lengths) if len(set(each)) > 1]
    alone = axis == 0 and unlike == [0]
    if len(set(map(len, beside))) > 1 or not unlike or (pad is None and not alone):
        return concatenate(sources, axis, changes)
    check_packed(parts)
    make: Callable[[Source], Source] = PartRows
    if pad is not None:
        make = partial(_filled, axis=axis, lengths=list(map(max, lengths)), value=pad)
    # Those of one shape are one array, so that they are read together.
    groups: dict[tuple[int, ...], list[int]] = {}
    for number, shape in enumerate(beside):
        groups.setdefault(shape, []).append(number)
    owners, starts = np.zeros((2, len(parts)), np.int64)
    for owner, numbers in enumerate(groups.values()):
        ends = np.cumsum([parts[number].shape[axis] for number in numbers])
        owners[numbers], starts[numbers[1:]] = owner, ends[:-1]
    each = [
        make(concatenate([parts[number] for number in numbers], axis))
        for numbers in groups.values()
    ]
    check_alike([(one.shape, one.dtype, *_named(one)) for one in each], axis)
    table = replace(table, owners=owners[table.owners], within=table.within + starts[table.owners])
    said = {} if pad is None else {"pad": pad}
    storages = [source.storage() for source in sources]
    opened = opened_together([one.opened and {**one.opened, **said} for one in storages])
    told: dict[str, Any] = {
        "opened": opened,
        "episodes": are_keyed(opened) or any(one.episodes for one in storages),
        **(changes or {}),
    }
    told["opened"] = told["opened"] and {**told["opened"], **said}
    return Concat(tuple(each), axis, table, told)


def _plain(source: Source) -> Source:
    """Return the source of parts as they are stored; of these, shapes may differ."""
    if type(source) is Concat and any(isinstance(one, Filled | PartRows) for one in source.parts):
        return source.with_parts([_plain(part) for part in source.parts])
    return source.source if isinstance(source, Filled | PartRows) else source


def _named(source: Source) -> tuple[str | None, str | None]:
    storage = source.storage()
    return storage.path, storage.key


def _filled(source: Source, axis: int, lengths: Sequence[int], value: float) -> Filled:
    shape = (*lengths[:axis], source.shape[axis], *lengths[axis:])
    return Filled(source, shape, held_value("pad", value, source.dtype))


@dataclass(frozen=True, eq=False)
class Filled(Wrapped):
    """An array that is filled up to a larger shape; a `Source`.

    Attributes
    ----------
    lengths : tuple of int
        The shape as delivered; the array lies at its beginning.
    value : number
        What is missing reads as.
    """

    lengths: tuple[int, ...]
    value: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """As delivered."""
        return self.lengths

    def storage(self) -> Storage:
        """Return how the array is stored."""
        found = self.source.storage()
        return replace(
            found,
            reading=f"{found.reading}; filled up with {self.value}",
            strides=None,
            opened=found.opened and {**found.opened, "pad": self.value},
        )

    def read(self, origins: Ints, extent: Extent, out: NDArray[Any]) -> None:
        """Write ``out[i] = the box at origins[i]``; see `oocdata.engines.source.Source.read`."""
        if out.size == 0:
            return
        for boxes, held in self._held(origins, extent):
            if held != extent:
                out[boxes] = np.array(self.value, self.dtype)
            where = (slice(None), *map(slice, held.lengths))
            read_to(self.source, origins[boxes], held, out[where], boxes)

    def read_boxes(self, origins: Ints, extent: Extent) -> Iterator[Boxes]:
        """Yield the boxes that are read; see `oocdata.engines.soon.soon`."""
        for boxes, held in self._held(origins, extent):
            yield self.source, origins[boxes], held

    def _held(self, origins: Ints, extent: Extent) -> Iterator[tuple[Ints, Extent]]:
        """Yield boxes of which the array holds as much, and the extent of that."""
        steps, lengths = np.array(extent.strides), np.array(extent.lengths)
        counts = np.clip(-(-(np.array(self.source.shape) - origins) // steps), 0, lengths)
        left = np.arange(len(origins))
        while len(left):
            first = counts[left[0]]
            alike = (counts[left] == first).all(axis=1)
            yield left[alike], Extent(tuple(first.tolist()), extent.strides)
            left = left[~alike]


def filled_axes(source: Source) -> set[int]:
    """Return the axes along which parts are filled up."""
    if isinstance(source, Concat):
        return {axis for part in source.parts for axis in filled_axes(part)}
    if not isinstance(source, Filled):
        return set()
    pairs = zip(source.shape, source.source.shape, strict=True)
    return {axis for axis, (length, stored) in enumerate(pairs) if length > stored}


@dataclass(frozen=True)
class _Ones:
    """True at every place; a `Source`."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any] = np.dtype(np.bool_)  # noqa: RUF009  # immutable

    def storage(self) -> Storage:
        """Return that nothing is stored."""
        return Storage("computed", layout="computed", codec="none", reading="computed")

    def read(self, origins: Ints, extent: Extent, out: NDArray[Any]) -> None:
        """Write ones."""
        out[...] = True


@dataclass(frozen=True, eq=False)
class PaddingMask(OfRows):
    """Where rows hold what is stored, and not what they were filled up with; a `Source` of bool."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of bools."""
        return np.dtype(np.bool_)

    def storage(self) -> Storage:
        """Return that nothing is stored, but which parts there are."""
        return replace(described(self.rows, "where rows hold values"), packed="", unit="")

    @cached_property
    def _mask(self) -> Source:
        return _mask(self.rows)

    def read(self, origins: Ints, extent: Extent, out: NDArray[Any]) -> None:
        """Write ``out[i] = the box at origins[i]``; see `oocdata.engines.source.Source.read`."""
        self._mask.read(origins, extent, out)


def _mask(source: Source) -> Source:
    if isinstance(source, Concat):
        return source.with_parts([_mask(part) for part in source.parts])
    if isinstance(source, Filled):
        return Filled(_Ones(source.source.shape), source.shape, False)
    if hasattr(source, "views") or isinstance(source, PaddedRows):
        raise ArgumentError(
            "`mask` must be taken of an array as it was opened. Take it of what this view was made "
            "from, and make another view of that in the same way."
        )
    return _Ones(source.shape)


@dataclass(frozen=True, eq=False)
class PartRows(Locating, Wrapped):
    """The rows of a part, of which others are longer or shorter; a `Source`.

    Attributes
    ----------
    source : Source
        Shape (rows, length, …).
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """``(rows,)``."""
        return self.source.shape[:1]

    @property
    def inner(self) -> tuple[int, ...]:
        """Shape of one place of a row."""
        return self.source.shape[2:]

    def storage(self) -> Storage:
        """Return how the rows are stored; a chunk is as many whole rows as share one."""
        found = self.source.storage()
        changes: dict[str, Any] = {"strides": None, "dimensions": found.dimensions[:1]}
        if found.chunks is not None:
            lengths = (found.chunks[0], *self.source.shape[1:])
            changes["chunks"] = found.chunks[:1]
            changes["chunk_bytes"] = int(np.prod(lengths)) * self.dtype.itemsize
        return replace(found, **changes)

    def read_boxes(self, origins: Ints, extent: Extent) -> list[Boxes]:
        """Return the rows that are read; see `oocdata.engines.soon.soon`."""
        whole = np.zeros((len(origins), len(self.source.shape)), np.int64)
        whole[:, :1] = origins
        lengths, steps = self.source.shape[1:], (1,) * len(self.source.shape[1:])
        rows = Extent((*extent.lengths, *lengths), (*extent.strides, *steps))
        return [(self.source, whole, rows)]

    def locate(self, rows: Ints) -> Located:
        """Return rows whose lengths are known; see `oocdata.engines.ragged_rows.Locating`."""

        def read(firsts: Ints, counts: Ints, out: NDArray[Any]) -> None:
            if not out.size:
                return
            each, width = rows, int(counts[0])
            if (counts != width).any():  # place by place
                each, firsts, width = np.repeat(rows, counts), spread(firsts, counts), 1
            origins = np.zeros((len(each), out.ndim + 1), np.int64)
            origins[:, 0], origins[:, 1] = each, firsts
            lengths = (1, width, *out.shape[1:])
            self.source.read(origins, Extent.of(lengths), out.reshape(len(each), *lengths))

        return Located(np.full(len(rows), self.source.shape[1]), self.dtype, read)
