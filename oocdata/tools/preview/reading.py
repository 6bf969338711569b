"""Which elements are shown, and reading them with a bound on what is read and kept.

At most `VALUES` values are kept, and about `READ_BYTES` read, so of large frames lines and columns
are left out. Of chunks that are decoded whole, at most `DECODED_BYTES` are, or those of three
elements: where nobody says how many, fewer are shown, and of frames in many chunks a window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.cost import chunks_of
from oocdata.datasets.dataset import Dataset, Draw
from oocdata.datasets.spec import leaves
from oocdata.datasets.windows import Windows
from oocdata.errors import ArgumentError
from oocdata.index import slice_range
from oocdata.tools.preview.parts import Part, alike, canonical, view_of

__all__ = ["MOST_ELEMENTS", "Rows", "choose_positions", "fitted", "read", "usual_count"]

VALUES = 8 * 2**20
READ_BYTES = 128 * 2**20
DECODED_BYTES = 128 * 2**20
MOST_ELEMENTS = 256
_NUMBERS = 2048
_PICTURES = 24
_FEWEST = 3
_AT_ONCE = 64 * 2**20
_LARGEST = 1e150
"""Of numbers that are drawn: their squares are finite."""

Rows = slice | Sequence[int] | None


def usual_count(dataset: Dataset, parts: Sequence[Part]) -> int:
    """Return how many elements are shown where nobody says: about 24 pictures, at most 12.

    Fewer if all their chunks were too much to decode.
    """
    count = _NUMBERS
    if not all(part.axes.kind in ("number", "table") for part in parts):
        pictures = sum(part.panels for part in parts if part.axes.kind != "number")
        pictures += parts[0].panels if alike(parts) else 0  # of their difference
        count = min(12, max(_FEWEST, _PICTURES // pictures))
    stored = sum(prod(source.shape) * source.dtype.itemsize for source in dataset.sources())
    cost = _cost(dataset, parts) if stored > DECODED_BYTES else 0
    return min(count, max(_FEWEST, DECODED_BYTES // cost)) if cost else count


def fitted(dataset: Dataset, parts: Sequence[Part], count: int) -> tuple[Part, ...]:
    """Return the parts with what can be kept and decoded of `count` elements."""
    parts = tuple(parts)
    cost = _cost(dataset, parts)
    if cost > DECODED_BYTES:
        share = sqrt(DECODED_BYTES / cost)
        # From the middle on, where a chunk may begin; around the middle it would be in four.
        window = tuple(
            part.framed(lambda one: one[len(one) // 2 :][: max(1, int(len(one) * share))])
            for part in parts
        )
        # Where chunks hold whole frames no window helps.
        parts = window if _cost(dataset, window) < cost else parts
    for step in range(1, max(len(part.of_letter(one)) for part in parts for one in "HW") + 1):
        thin = tuple(
            part.framed(lambda one: one[(min(step, len(one)) - 1) // 2 :: step])  # noqa: B023
            for part in parts
        )
        values = sum(prod(map(len, part.places.values())) for part in thin)
        cut = sum(leaf.nbytes for leaf in leaves(_cut(dataset, thin).spec))
        nbytes = max(cut, sum(part.nbytes for part in thin))
        if count * values <= VALUES and count * nbytes <= READ_BYTES:
            break
    return thin


def _cost(dataset: Dataset, parts: Sequence[Part]) -> int:
    """Return the bytes of the chunks that are decoded for one element; 0 if none is."""
    first = np.zeros(1, np.int64)
    return sum(chunks_of(_cut(dataset, parts).requests(first, Draw())).values())


def _cut(dataset: Dataset, parts: Sequence[Part]) -> Dataset:
    """Return the dataset with its rows cut to what is shown, as far as they can be."""
    view = view_of(dataset)
    if view is None or not view.element:
        return dataset
    places = [*parts[0].places.values()][-len(view.element) :]  # a window's time is none of a row's
    cut = view
    for axis, one in enumerate(places, 1):
        chosen = slice(one.start, one.stop, one.step) if isinstance(one, range) else list(one)
        cut = cut[(*[slice(None)] * axis, chosen)]
    return replace(dataset, views=(cut,)) if isinstance(dataset, Windows) else cut


def choose_positions(
    dataset: Dataset, count: int, rows: slice | None, *, consecutive: bool
) -> NDArray[np.int64]:
    """Return `count` positions of a range: the first ones, or from the first to the last."""
    among = range(len(dataset)) if rows is None else slice_range(range(len(dataset)), rows)
    if len(among) == 0:
        given = [] if rows is None else [rows.start, rows.stop, *filter(None, [rows.step])]
        said = ":".join("" if one is None else str(one) for one in given)
        raise ArgumentError(f"`rows` must hold a position below {len(dataset):,}; got {said}.")
    number = min(count, len(among))
    places = np.arange(number) if consecutive else np.linspace(0, len(among) - 1, number).round()
    return among.start + among.step * np.unique(places).astype(np.int64)


def read(
    dataset: Dataset, parts: Sequence[Part], positions: NDArray[np.int64]
) -> list[NDArray[np.float64]]:
    """Read what is shown: of each part an array (n, slices, channels, height, width).

    Complex numbers as their magnitude. Numbers beyond 1e150 (they stand for missing ones) are taken
    as infinite.
    """
    cut = _cut(dataset, parts)
    nbytes = sum(leaf.nbytes for leaf in leaves(cut.spec))
    together = max(1, _AT_ONCE // max(1, nbytes))
    found: list[list[NDArray[Any]]] = [[] for _ in parts]
    for first in range(0, len(positions), together):
        batch = cut.take(positions[first : first + together])
        for pieces, part, array in zip(found, parts, leaves(batch), strict=True):
            for axis, places in enumerate(part.places.values(), 1):
                if array.shape[axis] != len(places):  # what could not be cut
                    array = array.take(list(places), axis=axis)
            real = np.abs(array) if array.dtype.kind == "c" else array
            pieces.append(canonical(real, part.axes.letters))
    arrays = (np.concatenate(pieces).astype(np.float64, copy=False) for pieces in found)
    return [np.where(np.abs(one) > _LARGEST, np.copysign(np.inf, one), one) for one in arrays]
