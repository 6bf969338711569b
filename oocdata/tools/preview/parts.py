"""Choose what to show of each array of an element, and read it within bounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import isqrt, prod, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.axes import BY_LENGTHS, Axes, axes_of
from oocdata.box import Ints
from oocdata.cost import chunks_of
from oocdata.datasets.dataset import Dataset, Draw
from oocdata.datasets.spec import leaves
from oocdata.datasets.view import View
from oocdata.datasets.windows import Windows
from oocdata.errors import ArgumentError, EmptyError

_COLOURS = 3
_MOST_PANELS = 8
_MOST_COLUMNS = 12
_FAR_BYTES = 4096
"""Values closer than this are read with everything between them."""


@dataclass(frozen=True, slots=True)
class Part:
    """The part of an element's array that is shown."""

    name: str  # of the array in the element: "x", "y", a key, "" for a single array
    axes: Axes
    dtype: np.dtype[Any]
    places: dict[str, range]  # positions shown along each axis, by letter, in axis order

    @property
    def is_colour(self) -> bool:
        """Whether the channels can be red, green and blue."""
        return self.axes.size("C") == _COLOURS and self.axes.kind == "image"

    @property
    def nbytes(self) -> int:
        """Bytes of an element that are read, including bytes between values that are shown."""
        count, is_run = self.dtype.itemsize, False
        for axis, places in enumerate(self.places.values()):
            distance = places.step * self.dtype.itemsize * (len(places) > 1)
            distance *= prod(self.axes.sizes[axis + 1 :])
            is_run = is_run or 0 < distance < _FAR_BYTES
            count *= self.axes.sizes[axis] if is_run else len(places)
        return count

    def of_letter(self, letter: str) -> range:
        """Return the positions shown along an axis; ``range(1)`` if there is no such axis."""
        return self.places.get(letter, range(1))

    def words(self, **places: int) -> str:
        """Describe a place in an element: ``words(C=0)`` is ``"x, channel 0"``."""
        texts = [f"{self.axes.name(letter)} {place}" for letter, place in places.items()
                 if self.axes.size(letter) > 1]  # fmt: skip
        return ", ".join(text for text in (self.name, *texts) if text)

    def notes(self) -> list[str]:
        """Return notes on axes that are not shown in full, and on axes that are a guess."""
        notes = []
        for letter in "CTDHW":
            shown, length = self.of_letter(letter), self.axes.size(letter)
            if len(shown) < length:
                text = f"{len(shown):,} of {length:,} shown ({listed(shown)})"
                notes.append(f"{self.axes.name(letter)}: {text}")
        letters = self.axes.letters
        if self.axes.reason == BY_LENGTHS and letters not in ("", "C", "W", "HW"):
            notes.append(f"the axes, {letters}, are a guess: set them with `layout`")
        return notes


def view_of(dataset: Dataset) -> View | None:
    """Return the view whose rows make up the dataset; None if there is no single view."""
    view = dataset.view if isinstance(dataset, Windows) else dataset
    return view if isinstance(view, View) else None


def named_leaves(tree: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a tree with their names: keys, numbers, and x and y of a pair."""
    if isinstance(tree, tuple):
        tree = dict(zip("xy" if len(tree) == 2 else map(str, range(len(tree))), tree, strict=True))
    if not isinstance(tree, dict):
        yield name, tree
        return
    for key, branch in tree.items():
        yield from named_leaves(branch, f"{name} {key}".strip())


def parts_of(dataset: Dataset, layout: str) -> tuple[Part, ...]:
    """Return the part to show of each array of an element."""
    view = view_of(dataset)
    names = view.names[len(view.axes) :] if view else None
    named = list(named_leaves(dataset.spec))
    in_time = dataset.time_axes if isinstance(dataset, Windows) else (False,) * len(named)
    arrays = []
    for (name, leaf), has_time in zip(named, in_time, strict=True):
        element = leaf.shape[1:] if has_time else leaf.shape
        if 0 in element:
            raise EmptyError(f"a row must hold a value to be shown; got rows of {element}.")
        axes = axes_of(element, layout if element else "auto", names)
        if "?" in axes.letters:
            raise ArgumentError(
                f"`layout` must name the axes of rows of {element}, at most 5, e.g. 'TDCHW'. Or "
                "take a part of the rows, in Python: ooc.preview(view[:, 0])."
            )
        arrays.append((name, axes.in_time(leaf.shape[0]) if has_time else axes, leaf.dtype))
    pictures = sum(axes.kind in ("image", "curve") for _, axes, _ in arrays)
    if pictures:  # beside these, the row of a table is a curve
        arrays = [(name, replace(axes, letters="W") if axes.kind == "table" else axes, dtype)
                  for name, axes, dtype in arrays]  # fmt: skip
    most = max(1, _MOST_PANELS // max(1, pictures))
    return tuple(
        Part(name, axes, dtype, _places(axes, dtype, most)) for name, axes, dtype in arrays
    )


def _places(axes: Axes, dtype: np.dtype[Any], most: int) -> dict[str, range]:
    """Choose the first channels and evenly spread slices, for at most about `most` pictures."""
    channels = range(axes.size("C"))
    is_colour = len(channels) == _COLOURS and axes.kind == "image" and dtype == np.uint8
    if len(channels) != _COLOURS:
        channels = channels[: _MOST_COLUMNS if axes.kind == "table" else most]
    left = most if is_colour else max(1, most // len(channels))
    chosen = {"C": channels, "T": _spread(axes.size("T"), left)}
    chosen["D"] = _spread(axes.size("D"), max(1, left // len(chosen["T"])))
    pairs = zip(axes.letters, axes.sizes, strict=True)
    return {letter: chosen.get(letter, range(length)) for letter, length in pairs}


def _spread(length: int, count: int) -> range:
    """Return at most `count` positions of an axis, evenly spread around its middle."""
    if count >= length:
        return range(length)
    step = length // count
    return range((length - step * count + step) // 2, length, step)[:count]


def listed(places: Sequence[int]) -> str:
    """Return positions as text: all of a few, or the first and last of many."""
    if len(places) > 2 and list(places) == list(range(places[0], places[0] + len(places))):
        return f"{places[0]:,} to {places[-1]:,}"
    if len(places) > 6:
        return ", ".join(f"{place:,}" for place in places[:3]) + f", … {places[-1]:,}"
    return ", ".join(f"{place:,}" for place in places)


def comparable(parts: Sequence[Part]) -> bool:
    """Return whether an element is a pair of arrays of the same shape, axes and dtype."""
    return len(parts) == 2 and replace(parts[0], name="") == replace(parts[1], name="")


def canonical(array: NDArray[Any], letters: str) -> NDArray[Any]:
    """Return elements with axes in the order (n, time × depth, channels, height, width)."""
    sizes = dict(zip(letters, array.shape[1:], strict=True))
    order = [letters.index(letter) + 1 for letter in "TDCHW" if letter in letters]
    moved = array.transpose(0, *order)
    t, d, c, h, w = (sizes.get(letter, 1) for letter in "TDCHW")
    return moved.reshape(len(array), t * d, c, h, w)


_VALUES = 8 * 2**20
READ_BYTES = 128 * 2**20
_BATCH_BYTES = 64 * 2**20
_LARGEST = 1e150
"""The largest number to draw; its square is finite."""


def fitted(
    dataset: Dataset, parts: tuple[Part, ...], count: int | None
) -> tuple[tuple[Part, ...], int]:
    """Return the parts, with lines and columns skipped in large frames, and the number of elements.

    Unless a `count` is given, about `READ_BYTES` are read, or decoded, or a single element.
    """
    pictures = [_pictures(part) for part in parts if part.axes.kind != "number"]
    pictures += pictures[:1] * comparable(parts)  # the difference of the pair
    is_table = all(part.axes.kind in ("number", "table") for part in parts)
    default = 2048 if is_table else 12 if sum(pictures) == 1 else 4
    side = min(512, isqrt(_VALUES // ((count or default) * max(1, sum(pictures)))))

    def framed(share: float = 1) -> tuple[Part, ...]:
        return tuple(_framed(part, side, share) for part in parts)

    stored = sum(prod(source.shape) * source.dtype.itemsize for source in dataset.sources())
    shown = framed()
    cost = _cost(dataset, shown) if stored > READ_BYTES else 1
    if cost > READ_BYTES:
        window = framed(sqrt(READ_BYTES / cost))
        # A window does not help if chunks hold whole frames.
        shown = window if _cost(dataset, window) < cost else shown
    return shown, min(count or min(default, max(1, READ_BYTES // cost)), len(dataset))


def _framed(part: Part, side: int, share: float) -> Part:
    """Return a part with at most `side` lines and columns (curves: `side²`), of this share."""
    # From the middle on, where a chunk often begins; a window around it would cut four chunks.
    cut = {
        letter: at[len(at) // 2 * (share < 1) :][: int(len(at) * share) or 1]
        for letter, at in part.places.items()
        if letter in "HW"
    }
    most = side if part.axes.kind == "image" else side**2
    step = -(-max(map(len, cut.values()), default=1) // most)
    return replace(part, places=part.places | {letter: at[::step] for letter, at in cut.items()})


def _pictures(part: Part) -> int:
    """Return the most pictures that a part of an element gives."""
    letters = "TD" if part.is_colour and part.dtype == np.uint8 else "TDC"
    return prod(len(part.of_letter(letter)) for letter in letters)


def _cost(dataset: Dataset, parts: Sequence[Part]) -> int:
    """Return the bytes that are read or decoded for one element."""
    cut = _cut(dataset, parts)
    decoded: int = sum(chunks_of(cut.requests(np.zeros(1, np.int64), Draw())).values())
    nbytes: int = sum(leaf.nbytes for leaf in leaves(cut.spec))
    return max(1, decoded, nbytes, sum(part.nbytes for part in parts))


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
    return [np.where(np.abs(array) > _LARGEST, np.inf, array) for array in arrays]
