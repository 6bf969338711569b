"""Find rows of stored arrays that several elements share, so that parts of a split share none.

Two elements with a common row must be in the same part, or one of them is dropped. One array may be
read in several ways at once: alone and in a stack, as one of several files, by two of its fields.
Arrays are therefore identified by where they are stored.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from oocdata.box import Ints
from oocdata.engines.source import Source
from oocdata.errors import ArgumentError
from oocdata.index import Selection, as_numbers, ascends, select, shifted
from oocdata.threads import cached_property

if TYPE_CHECKING:
    from oocdata.datasets.array_rows import ArrayRows

_MOST_LINES = 1 << 12
"""Most regular rows that are compared by their ends, which takes a second; more in a table."""

_LAYOUT = ("dtype", "shape", "offset")
"""Arguments of `open` that define the rows of a raw binary file."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a view, with the elements that they are in.

    An element has the rows at all `offsets` from its number; `numbers` are positions in the view,
    shape (n,). `places`, shape (n,), are those of the elements among the elements that were asked
    for, ascending. A row's position plus `shift` is its number among the rows that ids of a split
    refer to.
    """

    view: ArrayRows
    numbers: Selection
    places: Selection
    offsets: tuple[int, ...] = (0,)
    shift: Ints | int = 0

    def ids(self, offset: int) -> Selection:
        """Return the row at an offset in each element, among the rows that ids refer to."""
        if isinstance(self.numbers, range) and np.ndim(self.shift) == 0:
            return shifted(self.numbers, int(self.shift) + offset)
        return as_numbers(self.numbers) + (self.shift + offset)


class StoredRows(Rows):
    """Rows with their numbers along the sample axes as stored, before any selection.

    Their `view` is of one or several concatenated arrays, not of a stack.
    """

    @cached_property
    def arrays(self) -> tuple[Hashable, ...]:
        """Keys that identify the arrays."""
        return arrays_of(self.view.source)

    @cached_property
    def axes(self) -> tuple[int, ...] | None:
        """The axes along which rows are numbered; None if each file is one row."""
        return None if self.view.storage.single_rows else self.view.axes


def check_direction(elements: str, chosen: Selection) -> None:
    """Raise ArgumentError if chosen elements neither ascend nor descend, so that none lie apart."""
    if not ascends(chosen) and not ascends(chosen[::-1]):
        raise ArgumentError(
            f"{elements} must be in ascending or descending order to be split without sharing a "
            "row; these were selected in another order. Split first, then select."
        )


def sharing_distance(all_rows: Iterable[StoredRows]) -> int:
    """Return the largest distance of two elements that share a row of an array."""
    readers: dict[Hashable, list[StoredRows]] = {}
    for rows in all_rows:
        for array in {*rows.arrays, *arrays_of(rows.view.source, values=True)}:
            readers.setdefault(array, []).append(rows)
    groups = {tuple(map(id, group)): group for group in readers.values()}
    for group in groups.values():
        first = group[0]
        for rows in group:
            if (
                rows.arrays != first.arrays
                or rows.axes != first.axes
                or len(set(rows.arrays)) < len(rows.arrays)  # e.g. a file that is listed twice
            ):
                raise ArgumentError(
                    "an array that elements hold twice must be read in the same way each time, of "
                    "the same files and along the same axes, to be split without sharing a row; "
                    f"{rows.view.storage.path or 'an array in memory'} is not. Split first, then "
                    "put the parts together, and list each file once."
                )
    return max(map(_largest_distance, groups.values()), default=0)


def parts_share_rows(parts: Iterable[Sequence[StoredRows]]) -> bool:
    """Return whether two parts have a common row of an array."""
    # With the number of the part as position of each element, shared rows are a distance apart.
    numbered = (
        replace(rows, places=np.full(len(rows.places), part))
        for part, all_rows in enumerate(parts)
        for rows in all_rows
    )
    return sharing_distance(numbered) > 0


def _numbered_by_file(group: Sequence[StoredRows]) -> list[StoredRows]:
    """Return rows that are files, such as pictures, with one number for each path in any list."""
    known: dict[str, int] = {}
    numbered = []
    for rows in group:
        files, axes, shape = rows.view.storage.row_files, rows.view.axes, rows.view.source.shape
        if files and axes[0] == 0:
            ids = np.array([known.setdefault(path, len(known)) for path in files])
            each = prod(shape[axis] for axis in axes[1:])
            place, within = np.divmod(as_numbers(rows.numbers), each)
            rows = replace(rows, numbers=ids[place] * each + within)
        numbered.append(rows)
    return numbered


def _largest_distance(group: Sequence[StoredRows]) -> int:
    """Return the largest distance of two places with the same row."""
    group = [rows for rows in _numbered_by_file(group) if len(rows.numbers)]
    lines = _lines(group)
    if lines is not None:
        return _distance_of_lines(*lines)
    alike: dict[tuple[int, ...], list[StoredRows]] = {}
    for rows in group:
        alike.setdefault(rows.offsets, []).append(rows)
    tables = [(offsets, *_occurrences(some)) for offsets, some in alike.items()]
    pairs = combinations_with_replacement(tables, 2)
    return max((_distance_of_tables(*pair) for pair in pairs), default=0)


def _lines(group: Sequence[StoredRows]) -> tuple[int, Ints] | None:
    """Return rows whose numbers and places are ranges as lines, with their common step.

    A line has the first and last row, the place of the first, and the places from row to row. None
    if there are others, or too many.
    """
    steps, lines = set(), list[tuple[int, int, int, int]]()
    for numbers, places, offsets in ((each.numbers, each.places, each.offsets) for each in group):
        if not isinstance(numbers, range) or not isinstance(places, range):
            return None
        if numbers.step < 0:
            numbers, places = numbers[::-1], places[::-1]
        steps.update([numbers.step] if len(numbers) > 1 else [])
        if len(steps) > 1 or len(lines) + len(offsets) > _MOST_LINES:
            return None
        ends = numbers[0], numbers[-1]
        lines += [(ends[0] + at, ends[1] + at, places[0], places.step) for at in offsets]
    return max(steps, default=1), np.array(lines, np.int64).reshape(-1, 4).T


def _distance_of_lines(step: int, lines: Ints) -> int:
    """Return the largest distance of two places with the same row.

    Places advance evenly between the ends of lines, so the largest distance is at one of the ends.
    """
    firsts, lasts, starts, advances = lines
    farthest = 0
    for row in np.unique(lines[:2]).tolist():
        met = (firsts <= row) & (row <= lasts) & ((row - firsts) % step == 0)
        places = starts[met] + (row - firsts[met]) // step * advances[met]
        farthest = max(farthest, int(np.ptp(places)))
    return farthest


def _occurrences(alike: Sequence[StoredRows]) -> tuple[Ints, Ints, Ints]:
    """Return the distinct row numbers, ascending, and the first and last place of each."""
    rows = np.concatenate([as_numbers(each.numbers) for each in alike])
    places = np.concatenate([as_numbers(each.places) for each in alike])
    order = np.argsort(rows, kind="stable")
    rows, places = rows[order], places[order]
    begins = np.flatnonzero(np.diff(rows, prepend=rows[0] - 1))
    first, last = (reduce.reduceat(places, begins) for reduce in (np.minimum, np.maximum))
    return rows[begins], first, last


def _distance_of_tables(
    one: tuple[tuple[int, ...], Ints, Ints, Ints], other: tuple[tuple[int, ...], Ints, Ints, Ints]
) -> int:
    """Return the largest distance of two places, one of each, with the same row.

    Given are offsets, and the table of the rows from which they are counted.
    """
    (offsets, rows, first, last), (others, other_rows, other_first, other_last) = one, other
    steps, farthest = np.unique(np.subtract.outer(offsets, others)), 0
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


def stored_rows(rows: Rows) -> list[StoredRows]:
    """Return rows of a view as rows of stored arrays; of a stack, as rows of each of its parts."""
    view, places = rows.view, rows.places
    rows_of_parts = getattr(view.source, "rows_of_parts", None)  # only of `Stacked`
    lengths = [view.source.shape[axis] for axis in view.axes]
    cut = len(lengths) > 1 and [*map(range, lengths)] != [*view.grid]
    files = bool(view.storage.row_files)  # in any order, so rows at an offset are no neighbours
    regular = isinstance(view.rows, range) and not cut and not files
    if len(rows.offsets) > 1 and not regular:
        first = as_numbers(rows.numbers)
        each = (Rows(view, first + offset, places) for offset in rows.offsets)
        return [stored for one in each for stored in stored_rows(one)]
    numbers, offsets = select(view.rows, rows.numbers), rows.offsets
    if isinstance(view.rows, range):
        offsets = tuple(view.rows.step * offset for offset in offsets)
    if len(lengths) == 1:
        numbers = select(view.grid[0], numbers)
        offsets = tuple(view.grid[0].step * offset for offset in offsets)
    elif cut:
        numbers = np.ravel_multi_index(tuple(view.places(as_numbers(numbers))), lengths)
    found = StoredRows(view, numbers, places, offsets)
    if rows_of_parts is None:
        return [found]
    return [stored for part in rows_of_parts(found) for stored in stored_rows(part)]


def arrays_of(source: Source, *, values: bool = False) -> tuple[Hashable, ...]:
    """Return keys of the arrays that a source reads, in order, once per use of an array.

    Of ragged rows, those of their offsets, or with `values` those that hold the numbers.
    """
    views = getattr(source, "views", None)  # only of `Stacked`
    if views is not None:
        return tuple(array for view in views for array in view._arrays())
    inner = getattr(source, "values", None) if values else None
    inner = getattr(source, "row_source", None) if inner is None else inner
    if inner is not None:
        return arrays_of(inner, values=values)
    storage = source.storage()
    if storage.row_files:
        return ("files",)  # which are compared path by path
    names = storage.part_names or ((storage.path, storage.key),)
    if storage.opened is None or len(names) != len(storage.parts):
        return (id(getattr(source, "array", source)),)
    layout = tuple(repr(storage.opened.get(name)) for name in _LAYOUT)
    return tuple((_location(path, key), layout) for path, key in names)


def _location(path: str | None, key: str | None) -> str:
    """Return a file and a key as one path, because an array in a Zarr group can be opened alone."""
    file = path or ""
    if "://" not in file:
        file = os.path.realpath(file)
    return f"{file}/{(key or '').strip('/')}".rstrip("/")
