"""Which rows of which stored array an element is made of, so that parts of a split share none.

One array can be read in several ways at once: by itself and in a stack, as one of several files, by
two of its fields. It is known by where it is stored, however it was opened.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from oocdata.datasets.splits import farthest
from oocdata.engines.source import Source
from oocdata.index import Selection, as_run, compose_ranges, is_same, select, take

if TYPE_CHECKING:
    from oocdata.datasets.view import View

__all__ = ["Stack", "StoredRows", "apart", "arrays_of", "stored_rows"]

_NONE = -(2**63)
"""No position of an element."""

_LAYOUT = ("dtype", "shape", "offset")
"""Arguments of `open` that say which rows a file of bare numbers has."""


@runtime_checkable
class Stack(Protocol):
    """A source made of views; `oocdata.datasets.stacked.Stacked` is, which imports views."""

    @property
    def views(self) -> Sequence[View]:
        """That it is made of."""
        ...

    def parts_at(self, places: Sequence[Selection]) -> Iterator[tuple[View, Selection]]:
        """Yield each of `views`, with its row at each place along the sample axes."""
        ...


@dataclass(frozen=True, eq=False)
class StoredRows:
    """The rows of each element, in an array or in several that lie end to end.

    Attributes
    ----------
    view : View
    numbers : range or ndarray of int64, shape (elements,) or (elements, rows)
        Of rows in the view's grid.
    places : range or ndarray of int64, shape (elements,)
        Positions of the elements, ascending.
    """

    view: View
    numbers: Selection
    places: Selection

    def differ(self, other: StoredRows) -> bool:
        """Return whether both read one array, but other rows of it, or in another order."""
        alike = self._alike(other)
        return alike is not None and not is_same(*alike)

    def apart(self, other: StoredRows) -> int:
        """Return how far from each other two positions lie, at most, that share a row."""
        alike = self._alike(other)
        if alike is None or (is_same(self.places, other.places) and is_same(*alike)):
            return 0
        return farthest(*alike, self.places, other.places)

    def leaks_from(self, other: StoredRows) -> bool:
        """Return whether a row of other elements is one of these, but not of its own element."""
        alike = self._alike(other)
        if alike is None:
            return False
        mine, theirs = (np.asarray(rows, np.int64).reshape(len(rows), -1) for rows in alike)
        whose = np.append(np.asarray(self.places, np.int64), _NONE)
        at = np.searchsorted(whose[:-1], np.asarray(other.places, np.int64))
        own = whose[at] == other.places
        same = (mine[at * own][:, None] == theirs[..., None]).any(axis=2) & own[:, None]
        return bool(np.isin(theirs[~same], mine).any())

    @property
    def first(self) -> StoredRows:
        """The first row of each element alone."""
        numbers = self.numbers
        if isinstance(numbers, range) or numbers.ndim == 1:
            return self
        return replace(self, numbers=numbers[:, 0])

    def at(self, elements: NDArray[np.int64]) -> StoredRows:
        """Return the rows of elements that were chosen by their positions; others have none."""
        places = np.asarray(self.places, np.int64)
        at = np.searchsorted(places, elements)
        mine = np.flatnonzero(np.append(places, _NONE)[at] == elements)
        return replace(self, numbers=take(self.numbers, at[mine]), places=as_run(mine))

    def _alike(self, other: StoredRows) -> tuple[Selection, Selection] | None:
        """Return the rows of both, numbered alike; None where they have no array in common."""
        one, two = self.view, other.view
        if self.arrays == other.arrays and (one.axes, one.grid) == (two.axes, two.grid):
            return self.numbers, other.numbers
        rows = other._numbered_as(self)
        return None if rows is None else (self.rows, rows)

    @cached_property
    def arrays(self) -> tuple[Hashable, ...]:
        """What tells each array from others; its axes that number rows are part of it."""
        return tuple((array, self._axes) for array in _arrays(self.view.source))

    @property
    def _axes(self) -> tuple[int, ...]:
        """The axes that number rows, in the order of storage: (1, 0) has the rows of (0, 1)."""
        return tuple(sorted(self.view.axes))

    @cached_property
    def rows(self) -> Selection:
        """Numbers of rows in the array, of which the view's grid has some."""
        view, numbers = self.view, self.numbers
        if len(view.axes) == 1 and isinstance(numbers, range):
            return compose_ranges(view.grid[0], numbers)
        places = dict(zip(view.axes, view.places(np.asarray(numbers, np.int64)), strict=True))
        along = tuple(places[axis] for axis in self._axes)
        found: NDArray[np.int64] = np.ravel_multi_index(along, self._lengths)
        return found

    @property
    def _lengths(self) -> list[int]:
        return [self.view.source.shape[axis] for axis in self._axes]

    @property
    def _starts(self) -> NDArray[np.int64]:
        """The number of the first row of each array."""
        return np.asarray(self.view.storage.parts, np.int64) * prod(self._lengths[1:])

    def _numbered_as(self, other: StoredRows) -> Selection | None:
        """Return the rows by another one's numbers, negative without one; None if all are."""
        if self.arrays == other.arrays:
            return self.rows
        numbers = dict(zip(other.arrays, other._starts.tolist(), strict=True))
        known = np.array([numbers.get(array, -1) for array in self.arrays])
        if (known < 0).all():
            return None
        rows, starts = np.asarray(self.rows, np.int64), self._starts
        owners = np.searchsorted(starts, rows, side="right") - 1
        # Negative numbers that differ: what is not there is no row twice.
        return np.where(known[owners] < 0, -1 - rows, known[owners] + rows - starts[owners])


def apart(found: Sequence[StoredRows]) -> int:
    """Return how far from each other two elements lie, at most, that share a row of an array."""
    return max((one.apart(other) for one, other in combinations(found, 2)), default=0)


def stored_rows(view: View, numbers: Selection, places: Selection) -> list[StoredRows]:
    """Return rows of a view as rows of what is stored: of each part of a stack.

    Parameters
    ----------
    view : View
    numbers : range or ndarray of int64
        Of rows in the view's grid.
    places : range or ndarray of int64
        Positions of the elements.
    """
    source = view.source
    if not isinstance(source, Stack):
        return [StoredRows(view, numbers, places)]
    if len(view.axes) == 1:
        along: Sequence[Selection] = [select(view.grid[0], numbers)]
    else:
        along = view.places(np.asarray(numbers, np.int64))
    return [one for part, own in source.parts_at(along) for one in stored_rows(part, own, places)]


def arrays_of(sources: Iterable[Source]) -> set[Hashable]:
    """Return what tells the arrays that sources read from others."""
    found: set[Hashable] = set()
    for source in sources:
        if isinstance(source, Stack):
            found |= arrays_of(view.source for view in source.views)
        else:
            found |= set(_arrays(source))
    return found


def _arrays(source: Source) -> tuple[Hashable, ...]:
    """Return what tells each array that a source is put together from, in their order."""
    same = getattr(source, "row_source", None)
    if same is not None:
        return _arrays(same)
    storage = source.storage()
    names = storage.part_names or ((storage.path, storage.key),)
    if storage.opened is None or len(names) != len(storage.parts):
        return (id(getattr(source, "array", source)),)
    layout = tuple(repr(storage.opened.get(name)) for name in _LAYOUT)
    return tuple((_place(path, key), layout) for path, key in names)


def _place(path: str | None, key: str | None) -> str:
    """Return a file and a dataset in it as one: an array in a Zarr group is one by itself too."""
    place = path or ""
    if "://" not in place:
        place = os.path.realpath(place)
    return f"{place}/{(key or '').strip('/')}".rstrip("/")
