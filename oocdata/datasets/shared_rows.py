"""Find rows of stored arrays that several elements share, so that parts of a split share none.

Two elements with a common row must be in the same part, or one of them is dropped. One array may be
read in several ways at once: alone and in a stack, as one of several files, by two of its fields.
Arrays are therefore identified by where they are stored.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, combinations_with_replacement, product
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from oocdata.box import Ints
from oocdata.engines.source import Source
from oocdata.errors import ArgumentError
from oocdata.index import Selection, as_numbers, as_range, ascends, is_all, select, take
from oocdata.threads import cached_property

if TYPE_CHECKING:
    from oocdata.datasets.array_rows import ArrayRows

_NONE = -(2**63)
"""Marks the absence of a position."""

_LAYOUT = ("dtype", "shape", "offset")
"""Arguments of `open` that define the rows of a raw binary file."""


@dataclass(frozen=True, eq=False)
class StoredRows:
    """Rows of one or several concatenated arrays, with the elements that they are in.

    `view` is of stored arrays, not of a stack. `numbers`, shape (n,) or (n, rows), are row numbers
    of each element along the sample axes as stored, before any selection; an element has the rows
    at all `offsets` from them. `places`, shape (n,), are the positions of the elements, ascending
    as datasets return them.
    """

    view: ArrayRows
    numbers: Selection
    places: Selection
    offsets: tuple[int, ...] = (0,)

    @cached_property
    def arrays(self) -> tuple[Hashable, ...]:
        """Keys that identify the arrays."""
        return arrays_of(self.view.source)

    @cached_property
    def axes(self) -> tuple[int, ...] | None:
        """The axes along which rows are numbered; None if each file is one row."""
        return None if self.view.storage.single_rows else self.view.axes

    @cached_property
    def occurrences(self) -> tuple[Ints, Ints, Ints]:
        """The distinct row numbers, ascending, and the first and last place of each."""
        numbers, places = as_numbers(self.numbers), as_numbers(self.places)
        places = np.repeat(places, numbers.size // max(1, len(numbers)))
        order = np.argsort(numbers, axis=None, kind="stable")
        rows, places = numbers.ravel()[order], places[order]
        begins = np.flatnonzero(np.diff(rows, prepend=rows[0] - 1))
        first, last = (reduce.reduceat(places, begins) for reduce in (np.minimum, np.maximum))
        return rows[begins], first, last

    def of_elements(self, elements: Ints) -> StoredRows:
        """Return the rows of selected elements; elements at other positions are dropped."""
        places = as_numbers(self.places)
        indices = np.searchsorted(places, elements)
        found = np.flatnonzero(np.append(places, _NONE)[indices] == elements)
        return replace(self, numbers=take(self.numbers, indices[found]), places=as_range(found))

    def distance_to(self, other: StoredRows) -> int:
        """Return the largest distance of two elements, one of each, that share a row."""
        distinct, values = set(self.arrays), values_of(self.view.source)
        if distinct.isdisjoint(other.arrays) and values.isdisjoint(values_of(other.view.source)):
            return 0
        if (
            self.arrays != other.arrays
            or self.axes != other.axes
            or len(distinct) < len(self.arrays)  # e.g. a file that is listed twice
        ):
            raise ArgumentError(
                "an array that elements hold twice must be read in the same way each time, of the "
                "same files and along the same axes, to be split without sharing a row; "
                f"{self.view.storage.path or 'an array in memory'} is not. Split first, then put "
                "the parts together, and list each file once."
            )
        both = len(self.numbers) and len(other.numbers)
        return _largest_distance(*_numbered_by_file(self, other)) if both else 0


def check_direction(elements: str, chosen: Selection) -> None:
    """Raise ArgumentError if chosen elements neither ascend nor descend, so that none lie apart."""
    if not ascends(chosen) and not ascends(chosen[::-1]):
        raise ArgumentError(
            f"{elements} must be in ascending or descending order to be split without sharing a "
            "row; these were selected in another order. Split first, then select."
        )


def sharing_distance(all_rows: Sequence[StoredRows]) -> int:
    """Return the largest distance of two elements that share a row of an array."""
    pairs = combinations_with_replacement(all_rows, 2)
    return max((one.distance_to(other) for one, other in pairs), default=0)


def parts_share_rows(parts: Iterable[Sequence[StoredRows]]) -> bool:
    """Return whether two parts have a common row of an array."""
    # With the number of the part as position of each element, shared rows are a distance apart.
    numbered = [
        [replace(rows, places=np.full(len(rows.places), part)) for rows in all_rows]
        for part, all_rows in enumerate(parts)
    ]
    pairs = combinations(numbered, 2)
    return any(one.distance_to(other) for part, rest in pairs for one, other in product(part, rest))


def _numbered_by_file(*both: StoredRows) -> list[StoredRows]:
    """Return rows that are files, such as pictures, with one number for each path in any list."""
    known: dict[str, int] = {}
    numbered = []
    for rows in both:
        files, axes, shape = rows.view.storage.row_files, rows.view.axes, rows.view.source.shape
        if files and axes[0] == 0:
            ids = np.array([known.setdefault(path, len(known)) for path in files])
            each = prod(shape[axis] for axis in axes[1:])
            place, within = np.divmod(as_numbers(rows.numbers), each)
            rows = replace(rows, numbers=ids[place] * each + within)
        numbered.append(rows)
    return numbered


def _largest_distance(one: StoredRows, other: StoredRows) -> int:
    """Return the largest distance between places, one of each, with the same row."""
    steps = np.unique(np.subtract.outer(one.offsets, other.offsets))
    numbers, others = one.numbers, other.numbers
    in_order = is_all(one.places, len(numbers)) and is_all(other.places, len(others))
    if (
        in_order
        and isinstance(numbers, range)
        and isinstance(others, range)
        and numbers.step == others.step
    ):
        distances, remainders = np.divmod(others.start - numbers.start - steps, numbers.step)
        met = (remainders == 0) & (distances < len(numbers)) & (-distances < len(others))
        return int(np.abs(distances[met]).max(initial=0))
    rows, first, last = one.occurrences
    other_rows, other_first, other_last = other.occurrences
    farthest = 0
    for run in np.split(steps, np.flatnonzero(np.diff(steps) > 1) + 1):
        begin = np.searchsorted(other_rows, rows + run[0])
        end = np.searchsorted(other_rows, rows + run[-1], side="right")
        met = begin < end
        if met.any():
            # Reduce over each begin:end; `[::2]` skips the ranges between an end and a begin.
            borders = np.stack((begin, end), axis=1)[met].ravel()
            before = last[met] - np.minimum.reduceat(np.append(other_first, 0), borders)[::2]
            after = np.maximum.reduceat(np.append(other_last, 0), borders)[::2] - first[met]
            farthest = max(farthest, int(before.max()), int(after.max()))
    return farthest


def stored_rows(
    view: ArrayRows, positions: Selection, places: Selection, offsets: tuple[int, ...] = (0,)
) -> list[StoredRows]:
    """Return rows of a view, given by their positions in it, as rows of stored arrays.

    A view of a stack gives the rows of each of its parts.
    """
    rows_of_parts = getattr(view.source, "rows_of_parts", None)  # only of `Stacked`
    lengths = [view.source.shape[axis] for axis in view.axes]
    cut = len(lengths) > 1 and [*map(range, lengths)] != [*view.grid]
    files = bool(view.storage.row_files)  # in any order, so rows at an offset are no neighbours
    regular = isinstance(view.rows, range) and not cut and not files
    if (len(offsets) > 1 or files) and not regular:
        positions, offsets = np.add.outer(as_numbers(positions), offsets), (0,)
    numbers = select(view.rows, positions)
    if isinstance(view.rows, range):
        offsets = tuple(view.rows.step * offset for offset in offsets)
    if len(lengths) == 1:
        numbers = select(view.grid[0], numbers)
        offsets = tuple(view.grid[0].step * offset for offset in offsets)
    elif cut:
        numbers = np.ravel_multi_index(tuple(view.places(as_numbers(numbers))), lengths)
    if rows_of_parts is None:
        return [StoredRows(view, numbers, places, offsets)]
    return [
        rows
        for part, own, steps in rows_of_parts(numbers, offsets)
        for rows in stored_rows(part, own, places, steps)
    ]


def arrays_of(source: Source) -> tuple[Hashable, ...]:
    """Return keys of the arrays that a source reads, in order, once per use of an array."""
    views = getattr(source, "views", None)  # only of `Stacked`
    if views is not None:
        return tuple(array for view in views for array in view._arrays())
    row_source = getattr(source, "row_source", None)
    if row_source is not None:
        return arrays_of(row_source)
    storage = source.storage()
    if storage.row_files:
        return ("files",)  # which are compared path by path
    names = storage.part_names or ((storage.path, storage.key),)
    if storage.opened is None or len(names) != len(storage.parts):
        return (id(getattr(source, "array", source)),)
    layout = tuple(repr(storage.opened.get(name)) for name in _LAYOUT)
    return tuple((_location(path, key), layout) for path, key in names)


def values_of(source: Source) -> set[Hashable]:
    """Return keys of the arrays with the numbers of rows: of ragged rows, not their offsets."""
    values, row_source = getattr(source, "values", None), getattr(source, "row_source", None)
    if values is None and row_source is not None:
        return values_of(row_source)
    return set(arrays_of(source if values is None else values))


def _location(path: str | None, key: str | None) -> str:
    """Return a file and a key as one path, because an array in a Zarr group can be opened alone."""
    file = path or ""
    if "://" not in file:
        file = os.path.realpath(file)
    return f"{file}/{(key or '').strip('/')}".rstrip("/")
