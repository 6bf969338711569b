"""Which rows are shown, and reading them with a bound on what is read and kept.

At most `VALUES` values are kept, and lines of `READ_BYTES` read, so large frames are thinned:
lines are left out where they are read, and columns afterwards, because single values far apart
cost as much as what lies between them. Of chunks that are decoded whole, at most `DECODED_BYTES`
are, or those of three elements: rows then come from fewer chunks, and of frames in many chunks a
window is shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.blocks import ADDRESSABLE, Blocks
from oocdata.cost import chunks_of
from oocdata.datasets.dataset import Dataset, Draw
from oocdata.datasets.spec import leaves
from oocdata.datasets.view import View
from oocdata.datasets.windows import Windows
from oocdata.errors import ArgumentError
from oocdata.index import as_positions, slice_range
from oocdata.tools.preview.parts import Part, alike, canonical, step_for, thinned, with_window

__all__ = [
    "DECODED_BYTES",
    "MOST_ELEMENTS",
    "READ_BYTES",
    "VALUES",
    "Rows",
    "choose_positions",
    "fitted",
    "read",
    "usual_count",
]

VALUES = 8 * 2**20
READ_BYTES = 128 * 2**20
DECODED_BYTES = 128 * 2**20
MOST_ELEMENTS = 256
_NUMBERS = 2048
_PICTURES = 24
_COARSE, _FEWEST = 16, 3
_LEAST_BYTES, _FAR_BYTES = 512, 4096
_AT_ONCE = 64 * 2**20
_SMALLEST_WINDOW = 256
Rows = slice | Sequence[int] | None


def _view_of(dataset: Dataset) -> View | None:
    """Return the view that all rows come from, where the rows may be cut."""
    if isinstance(dataset, View):
        return dataset
    if isinstance(dataset, Windows):
        return dataset.view
    return None


def _over(dataset: Dataset, view: View) -> Dataset:
    """Return the dataset over a cut view."""
    return replace(dataset, view=view) if isinstance(dataset, Windows) else view


def usual_count(dataset: Dataset, parts: Sequence[Part]) -> int:
    """Return how many elements are shown where nobody says: about 24 pictures, at most 12.

    Fewer of frames so large that little of them would be seen.
    """
    if all(part.axes.kind == "number" for part in parts):
        return _NUMBERS
    pictures = sum(part.panels for part in parts if part.axes.kind != "number")
    if alike(parts):
        pictures += parts[0].panels  # of their difference
    count = min(12, max(_FEWEST, _PICTURES // max(1, pictures)))
    while count > _FEWEST and _step(dataset, parts, count) > _COARSE:
        count -= 1
    cost = _cost(dataset, parts)
    if cost and dataset.blocks == ADDRESSABLE:
        count = min(count, max(_FEWEST, DECODED_BYTES // cost))
    return count


def _step(dataset: Dataset, parts: Sequence[Part], count: int) -> int:
    """Return the step between lines at which `count` elements are within the bounds."""
    view = _view_of(dataset)
    nbytes = count * sum(
        part.dtype.itemsize
        * (part.values if view is None else _values_read(part, len(view.element)))
        for part in parts
    )
    return max(step_for(parts, VALUES // (count * len(parts))), -(-nbytes // READ_BYTES))


def fitted(dataset: Dataset, parts: Sequence[Part], count: int) -> tuple[Part, ...]:
    """Return the parts with what can be kept and decoded of `count` elements."""

    def window(share: int) -> tuple[Part, ...]:
        chosen = [with_window(part, share) for part in parts] if share > 1 else parts
        step = _step(dataset, chosen, count)
        return tuple(thinned(part, step) for part in chosen)

    best, share = window(1), 1
    if _view_of(dataset) is None:
        return best
    least = _cost(dataset, best)
    while least > DECODED_BYTES and parts[0].side // (share * 2) >= _SMALLEST_WINDOW:
        share *= 2
        cost = _cost(dataset, window(share))
        if cost < least:  # else the chunks hold whole frames, and no window helps
            best, least = window(share), cost
    return best


def _cost(dataset: Dataset, parts: Sequence[Part]) -> int:
    """Return the bytes of the chunks that are decoded for one element; 0 if none is."""
    first = np.zeros(1, np.int64)
    return sum(chunks_of(_reading(dataset, parts).requests(first, Draw())).values())


def _reading(dataset: Dataset, parts: Sequence[Part]) -> Dataset:
    """Return the dataset with its rows cut to what is shown, as far as storage is good at that."""
    view = _view_of(dataset)
    if view is None:
        return dataset
    covers = _covers(parts[0], len(view.element))
    return _over(dataset, view[(slice(None), *(slice(c.start, c.stop, c.step) for c in covers))])


def _covers(part: Part, axes: int) -> list[range]:
    """Return what is read of each of the last `axes` axes (a window's time is no axis of rows)."""
    covers = []
    for axis in range(len(part.places) - axes, len(part.places)):
        places = part.places[axis]
        step = int(np.gcd.reduce(np.diff(places))) or 1
        run = prod(part.axes.sizes[axis + 1 :]) * part.dtype.itemsize
        apart = run >= _LEAST_BYTES and step * run >= _FAR_BYTES
        covers.append(range(min(places), max(places) + 1, step if apart else 1))
    return covers


def _values_read(part: Part, axes: int) -> int:
    """Return how many values are read of an element: what lies between those shown, too."""
    sizes = part.axes.sizes
    count = prod(sizes[: len(sizes) - axes])  # the moments of a window
    for axis, cover in enumerate(_covers(part, axes), start=len(sizes) - axes):
        whole = prod(sizes[axis:]) * part.dtype.itemsize
        count *= len(cover) if whole >= _FAR_BYTES else sizes[axis]
    return count


def choose_positions(
    dataset: Dataset,
    parts: Sequence[Part],
    count: int,
    rows: Rows = None,
    *,
    consecutive: bool = False,
) -> NDArray[np.int64]:
    """Return the positions that are shown.

    Parameters
    ----------
    dataset : Dataset
    parts : sequence of Part
    count : int
        How many, where `rows` doesn't name each.
    rows : slice or sequence of int, optional
        A range to choose from, or the positions themselves.
    consecutive : bool
        Take the first ones instead of spreading them evenly.

    Raises
    ------
    oocdata.errors.ArgumentError, oocdata.errors.PositionError
        If there are no such positions, or too many are named.

    Examples
    --------
    >>> import oocdata as ooc
    >>> choose_positions(ooc.open(np.zeros(100)), (), 3)
    array([ 0, 50, 99])
    """
    if rows is not None and not isinstance(rows, slice):
        chosen = as_positions(rows, len(dataset))
        if not 1 <= len(chosen) <= max(count, MOST_ELEMENTS):
            raise ArgumentError(
                f"`rows` must name 1 to {MOST_ELEMENTS} positions; got {len(chosen)}. "
                "Give a range, of which some are chosen: 0:1000."
            )
        return chosen
    among = range(len(dataset)) if rows is None else slice_range(range(len(dataset)), rows)
    if len(among) == 0:
        raise ArgumentError(f"`rows` must hold a position below {len(dataset):,}; got {rows}.")
    number = min(count, len(among))
    if consecutive:
        return np.asarray(among[:number], np.int64)
    places = _even(len(among), number)
    cost = _cost(dataset, parts) if parts else 0
    blocks = dataset.blocks
    together = blocks.length if isinstance(blocks, Blocks) else 1
    length = max(1, together // abs(among.step))
    if length > 1 and cost and (fit := max(1, DECODED_BYTES // cost)) < number:
        # So many rows from each of a few blocks, which are spread evenly themselves.
        starts = _even(-(-len(among) // length), fit) * length
        each = -(-number // len(starts))
        lists = [
            start + _even(min(length, len(among) - start), min(each, len(among) - start))
            for start in starts
        ]
        held = np.unique(np.concatenate(lists))
        places = held[_even(len(held), number)]
    return among.start + among.step * places


def _even(length: int, count: int) -> NDArray[np.int64]:
    """Return `count` places from the first to the last."""
    return np.unique(np.round(np.linspace(0, length - 1, count)).astype(np.int64))


def read(
    dataset: Dataset, parts: Sequence[Part], positions: NDArray[np.int64]
) -> list[NDArray[Any]]:
    """Read what is shown.

    Returns
    -------
    list of ndarray, shape (n, slices, channels, height, width)
        One for each part, in its dtype; numbers have shape (n, 1, 1, 1, 1). Complex ones as their
        magnitude.
    """
    reading = _reading(dataset, parts)
    view = _view_of(dataset)
    nbytes = sum(leaf.nbytes for leaf in leaves(reading.spec))
    together = max(1, _AT_ONCE // max(1, nbytes))
    found: list[list[NDArray[Any]]] = [[] for _ in parts]
    for first in range(0, len(positions), together):
        batch = reading.take(positions[first : first + together])
        for place, (part, array) in enumerate(zip(parts, leaves(batch), strict=True)):
            cut = None if view is None else len(view.element)
            found[place].append(canonical(_real(_picked(array, part, cut)), part.axes.letters))
    return [np.concatenate(pieces) for pieces in found]


def _picked(array: NDArray[Any], part: Part, cut: int | None) -> NDArray[Any]:
    """Return the places that are shown of what was read; `cut`: of how many axes, if at all."""
    covers: list[range] = [range(length) for length in part.axes.sizes]
    if cut:
        covers[len(covers) - cut :] = _covers(part, cut)
    for axis, (places, cover) in enumerate(zip(part.places, covers, strict=True), start=1):
        if list(places) != list(cover):
            array = array.take([cover.index(one) for one in places], axis=axis)
    return array


def _real(array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.kind != "c":
        return array
    with np.errstate(over="ignore", invalid="ignore"):
        magnitude: NDArray[Any] = np.abs(array)
    return magnitude
