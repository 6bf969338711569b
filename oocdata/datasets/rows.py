"""Which rows of which stored array elements hold, so that parts of a split share none.

One rule makes all splits: two elements that hold one row of an array are in one part, or one of
them in none. `apart` says how far from each other such elements lie, so how many a split by range
drops; `shared`, whether parts that were chosen in another way have a row in common.

One array can be read in several ways at once: by itself and in a stack, as one of several files, by
two of its fields. It is known by where it is stored, however it was opened.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, combinations_with_replacement, product
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.source import Source
from oocdata.errors import ArgumentError
from oocdata.index import Selection, as_run, is_all, repeated, select, take
from oocdata.threads import cached_property

if TYPE_CHECKING:
    from oocdata.datasets.view import View

__all__ = ["StoredRows", "apart", "arrays_of", "shared", "stored_rows"]

Ints: TypeAlias = NDArray[np.int64]

_NONE = -(2**63)
"""No position of an element."""

_LAYOUT = ("dtype", "shape", "offset")
"""Arguments of `open` that say which rows a file of bare numbers has."""


@dataclass(frozen=True, eq=False)
class StoredRows:
    """Rows that elements hold, of an array or of several that lie end to end.

    Attributes
    ----------
    view : View
        Of no stack.
    numbers : range or ndarray of int64, shape (n,) or (n, rows)
        Of rows along the sample axes as stored, whatever is kept of them.
    places : range or ndarray of int64, shape (n,)
        Positions of the elements; ascending where datasets give them.
    offsets : tuple of int
        An element holds the rows at all of these from its numbers on.
    """

    view: View
    numbers: Selection
    places: Selection
    offsets: tuple[int, ...] = (0,)

    @cached_property
    def arrays(self) -> tuple[Hashable, ...]:
        """What tells each array from others."""
        return _arrays(self.view.source)

    def at(self, elements: Ints) -> StoredRows:
        """Return the rows of elements that were chosen by their positions; others have none."""
        places = np.asarray(self.places, np.int64)
        at = np.searchsorted(places, elements)
        mine = np.flatnonzero(np.append(places, _NONE)[at] == elements)
        return replace(self, numbers=take(self.numbers, at[mine]), places=as_run(mine))

    def apart(self, other: StoredRows) -> int:
        """Return how far from each other two places lie, at most, of elements that share a row."""
        if not self._alike(other) or not (len(self.numbers) and len(other.numbers)):
            return 0
        return _farthest(self, other)

    @property
    def repeats(self) -> bool:
        """Whether a row is held by several elements, unless they are windows that overlap."""
        if self._several:
            return True
        rows = self.numbers
        window = len(self.offsets) > 1 or (not isinstance(rows, range) and rows.ndim > 1)
        return not window and repeated(rows) is not None

    @property
    def _several(self) -> bool:
        """Whether an array lies there several times: a file that is named twice."""
        return len(set(self.arrays)) < len(self.arrays)

    def _alike(self, other: StoredRows) -> bool:
        """Return whether both read the same arrays; raise if not in the same way."""
        if set(self.arrays).isdisjoint(other.arrays):
            return False
        one, two, same = self.view, other.view, self.arrays == other.arrays and not self._several
        if same and one.axes == two.axes:
            return True
        raise ArgumentError(
            "an array that elements hold twice must be read in the same way each time, of the same "
            "files and along the same axes, to be split without sharing a row; "
            f"{one.storage.path or 'an array in memory'} is not. Split first, then put the parts "
            "together."
        )


def apart(found: Sequence[StoredRows]) -> int:
    """Return how far from each other two elements lie, at most, that share a row of an array.

    But for rows that windows of one view share, which they do all along.
    """
    pairs = combinations_with_replacement(found, 2)
    return max((a.apart(b) for a, b in pairs if a is not b or a.repeats), default=0)


def shared(parts: Iterable[Sequence[StoredRows]]) -> bool:
    """Return whether two parts have a row of an array in common."""
    numbered = [
        [replace(one, places=np.full(len(one.places), part)) for one in found]
        for part, found in enumerate(parts)
    ]
    pairs = combinations(numbered, 2)
    return any(one.apart(other) for part, rest in pairs for one, other in product(part, rest))


def _farthest(one: StoredRows, other: StoredRows) -> int:
    """Return the largest distance between a place of one and one of the other of the same row."""
    steps = np.unique(np.subtract.outer(one.offsets, other.offsets))
    own, theirs = one.numbers, other.numbers
    in_order = is_all(one.places, len(own)) and is_all(other.places, len(theirs))
    if (
        in_order
        and isinstance(own, range)
        and isinstance(theirs, range)
        and own.step == theirs.step
    ):
        found, beside = np.divmod(theirs.start - own.start - steps, own.step)
        met = (beside == 0) & (found < len(own)) & (-found < len(theirs))
        return int(np.abs(found[met]).max(initial=0))
    (rows, low, high), (others, least, most) = _ends(one), _ends(other)
    farthest = 0
    for run in np.split(steps, np.flatnonzero(np.diff(steps) > 1) + 1):
        begin = np.searchsorted(others, rows + run[0])
        end = np.searchsorted(others, rows + run[-1], side="right")
        met = begin < end
        if met.any():
            # Of others[begin:end] each time; what lies between two of these is left out.
            borders = np.stack((begin, end), axis=1)[met].ravel()
            before = high[met] - np.minimum.reduceat(np.append(least, 0), borders)[::2]
            after = np.maximum.reduceat(np.append(most, 0), borders)[::2] - low[met]
            farthest = max(farthest, int(before.max()), int(after.max()))
    return farthest


def _ends(one: StoredRows) -> tuple[Ints, Ints, Ints]:
    """Return the numbers, each once and ascending, and the first and last place of each."""
    numbers, places = np.asarray(one.numbers, np.int64), np.asarray(one.places, np.int64)
    places = np.repeat(places, numbers.size // max(1, len(numbers)))
    order = np.argsort(numbers, axis=None, kind="stable")
    rows, places = numbers.ravel()[order], places[order]
    begins = np.flatnonzero(np.diff(rows, prepend=rows[:1] - 1))
    if not len(rows):
        return rows, places, places
    return rows[begins], np.minimum.reduceat(places, begins), np.maximum.reduceat(places, begins)


def stored_rows(
    view: View, numbers: Selection, places: Selection, offsets: tuple[int, ...] = (0,)
) -> list[StoredRows]:
    """Return rows of a view's grid as rows of what is stored: of each part of a stack."""
    parts_at = getattr(view.source, "parts_at", None)  # of what `oocdata.stack` made
    lengths = [view.source.shape[axis] for axis in view.axes]
    cut = len(lengths) > 1 and [*map(range, lengths)] != [*view.grid]
    if len(offsets) > 1 and (cut or parts_at is not None):
        numbers, offsets = np.add.outer(np.asarray(numbers, np.int64), offsets), (0,)
    if len(lengths) == 1:
        along: Sequence[Selection] = [select(view.grid[0], numbers)]
        numbers, offsets = along[0], tuple(view.grid[0].step * at for at in offsets)
    elif cut or parts_at is not None:
        along = view.places(np.asarray(numbers, np.int64))
        numbers = np.ravel_multi_index(tuple(along), lengths)
    if parts_at is None:
        return [StoredRows(view, numbers, places, offsets)]
    return [one for part, own in parts_at(along) for one in stored_rows(part, own, places)]


def arrays_of(source: Source) -> list[Hashable]:
    """Return what tells the arrays that a source reads from others, as often as they are read."""
    views = getattr(source, "views", None)  # of what `oocdata.stack` made
    if views is None:
        return list(_arrays(source))
    return [array for view in views for array in arrays_of(view.source)]


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
