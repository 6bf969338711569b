"""Choose how much to show, and read it within bounds on memory and bytes read.

At most `VALUES` values are kept, and about `READ_BYTES` read, so lines and columns of large frames
are skipped. Chunks of at most `DECODED_BYTES` are decoded, or those of three elements: by default
fewer elements are shown then, and of frames in many chunks a window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Ints
from oocdata.cost import chunks_of
from oocdata.datasets.dataset import Dataset, Draw
from oocdata.datasets.spec import leaves
from oocdata.datasets.view import View
from oocdata.datasets.windows import Windows
from oocdata.tools.preview.parts import Part, canonical, comparable, view_of

__all__ = ["MOST_ELEMENTS", "default_count", "fitted", "read"]

VALUES = 8 * 2**20
READ_BYTES = 128 * 2**20
DECODED_BYTES = 128 * 2**20
MOST_ELEMENTS = 256
_NUMBERS = 2048
_PICTURES = 24
_FEWEST = 3
_BATCH_BYTES = 64 * 2**20
_LARGEST = 1e150
"""The largest number to draw; its square is finite."""


def default_count(dataset: Dataset, parts: Sequence[Part]) -> int:
    """Return the default number of elements: about 24 pictures, at most 12 elements.

    Fewer if their chunks are too many to decode.
    """
    count = _NUMBERS
    if not all(part.axes.kind in ("number", "table") for part in parts):
        pictures = sum(part.panels for part in parts if part.axes.kind != "number")
        pictures += parts[0].panels if comparable(parts) else 0  # the difference of the pair
        count = min(12, max(_FEWEST, _PICTURES // pictures))
    stored = sum(prod(source.shape) * source.dtype.itemsize for source in dataset.sources())
    cost = _cost(dataset, parts) if stored > DECODED_BYTES else 0
    return min(count, max(_FEWEST, DECODED_BYTES // cost)) if cost else count


def fitted(dataset: Dataset, parts: Sequence[Part], count: int) -> tuple[Part, ...]:
    """Return the parts, cut so that `count` elements can be decoded, read and kept."""
    parts = tuple(parts)
    cost = _cost(dataset, parts)
    if cost > DECODED_BYTES:
        share = sqrt(DECODED_BYTES / cost)
        # From the middle on, where a chunk often begins; a window around it would cut four chunks.
        window = tuple(
            part.framed(lambda places: places[len(places) // 2 :][: int(len(places) * share) or 1])
            for part in parts
        )
        # A window does not help if chunks hold whole frames.
        parts = window if _cost(dataset, window) < cost else parts
    for step in range(1, max(len(part.of_letter(axis)) for part in parts for axis in "HW") + 1):
        thinned = tuple(
            part.framed(lambda places: places[(min(step, len(places)) - 1) // 2 :: step])  # noqa: B023
            for part in parts
        )
        values = sum(prod(map(len, part.places.values())) for part in thinned)
        cut_bytes = sum(leaf.nbytes for leaf in leaves(_cut(dataset, thinned).spec))
        nbytes = max(cut_bytes, sum(part.nbytes for part in thinned))
        if count * values <= VALUES and count * nbytes <= READ_BYTES:
            break
    return thinned


def _cost(dataset: Dataset, parts: Sequence[Part]) -> int:
    """Return the bytes of the chunks that are decoded for one element; 0 without chunks."""
    first = np.zeros(1, np.int64)
    return sum(chunks_of(_cut(dataset, parts).requests(first, Draw())).values())


def _cut(dataset: Dataset, parts: Sequence[Part]) -> Dataset:
    """Return the dataset with its rows cut to the parts, if it has rows of a single view."""
    view = view_of(dataset)
    if view is None or not view.element:
        return dataset
    axes = [*parts[0].places.values()][-len(view.element) :]  # without the time axis of windows
    cut = view[:, *(slice(at.start, at.stop, at.step) for at in axes)]
    return replace(dataset, views=(cut,)) if isinstance(dataset, Windows) else cut


def read(dataset: Dataset, parts: Sequence[Part], positions: Ints) -> list[NDArray[np.float64]]:
    """Read the values of each part, shape (n, slices, channels, height, width).

    Complex numbers become their magnitude. Numbers beyond 1e150, which often mark missing values,
    become infinite. Dates become their integers, and NaT becomes NaN.
    """
    cut, unit = _cut(dataset, parts), dataset.unit if isinstance(dataset, View) else ""
    nbytes = sum(leaf.nbytes for leaf in leaves(cut.spec))
    batch_size = max(1, _BATCH_BYTES // max(1, nbytes))
    by_part: list[list[NDArray[Any]]] = [[] for _ in parts]
    for first in range(0, len(positions), batch_size):
        batch = cut.take(positions[first : first + batch_size])
        for pieces, part, array in zip(by_part, parts, leaves(batch), strict=True):
            for axis, places in enumerate(part.places.values(), 1):
                if array.shape[axis] != len(places):  # the dataset could not be cut
                    array = array.take(list(places), axis=axis)
            real = np.abs(array) if array.dtype.kind == "c" else array
            if unit:
                real = np.where(np.isnat(array.view(unit)), np.nan, array)
            pieces.append(canonical(real, part.axes.letters))
    arrays = [np.concatenate(pieces).astype(np.float64, copy=False) for pieces in by_part]
    return [
        np.where(np.abs(array) > _LARGEST, np.copysign(np.inf, array), array) for array in arrays
    ]
