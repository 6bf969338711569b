"""Choose the channels, slices, lines and columns to show of each array of an element."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.axes import Axes, axes_of
from oocdata.datasets.dataset import Dataset
from oocdata.datasets.view import View
from oocdata.datasets.windows import Windows
from oocdata.errors import ArgumentError, EmptyError

__all__ = ["Part", "canonical", "comparable", "listed", "named_leaves", "parts_of", "view_of"]

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
    def panels(self) -> int:
        """The most pictures that an element gives."""
        one = self.is_colour and self.dtype == np.uint8
        return prod(len(self.of_letter(letter)) for letter in ("TD" if one else "TDC"))

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

    def framed(self, cut: Callable[[range], range]) -> Part:
        """Return the part with `cut` applied to its lines and columns."""
        places = {
            letter: cut(shown) if letter in "HW" else shown for letter, shown in self.places.items()
        }
        return replace(self, places=places)

    def notes(self) -> list[str]:
        """Return notes on axes that are not shown in full, and on axes that are a guess."""
        notes = []
        for letter in "CTDHW":
            shown, length = self.of_letter(letter), self.axes.size(letter)
            if len(shown) < length:
                text = f"{len(shown):,} of {length:,} shown ({listed(shown)})"
                notes.append(f"{self.axes.name(letter)}: {text}")
        if not self.axes.certain:
            letters = self.axes.letters
            notes.append(f"the axes, {letters}, are a guess: set them with `layout`")
        return [f"{self.name}: {note}" if self.name else note for note in notes]


def view_of(dataset: Dataset) -> View | None:
    """Return the view whose rows make up the dataset; None if there is no single view."""
    view = dataset.view if isinstance(dataset, Windows) else dataset
    return view if isinstance(view, View) else None


def named_leaves(tree: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a tree with their names: keys, numbers, and x and y of a pair.

    >>> list(named_leaves((1, {"a": 2, "b": (3,)})))
    [('x', 1), ('y a', 2), ('y b 0', 3)]
    """
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
        arrays.append((name, leaf, axes.in_time(leaf.shape[0]) if has_time else axes))
    pictures = sum(axes.kind in ("image", "curve") for _, _, axes in arrays)
    most = max(1, _MOST_PANELS // max(1, pictures))
    parts = []
    for name, leaf, axes in arrays:
        if pictures and axes.kind == "table":  # beside pictures, a row is a curve
            axes = replace(axes, letters="W")
        parts.append(_part(name, axes, leaf.dtype, most))
    return tuple(parts)


def _part(name: str, axes: Axes, dtype: np.dtype[Any], most: int) -> Part:
    """Choose the first channels and evenly spread slices, for at most about `most` pictures."""
    number = axes.size("C")
    chosen = range(number)
    if number != _COLOURS:
        chosen = chosen[: _MOST_COLUMNS if axes.kind == "table" else most]
    is_colour = axes.kind == "image" and number == _COLOURS and dtype == np.uint8
    left = most if is_colour and len(chosen) == number else max(1, most // len(chosen))
    places = {"C": chosen}
    for letter in "TD":
        places[letter] = _spread(axes.size(letter), left)
        left = max(1, left // len(places[letter]))
    shown = {
        letter: places.get(letter, range(length))
        for letter, length in zip(axes.letters, axes.sizes, strict=True)
    }
    return Part(name, axes, dtype, shown)


def _spread(length: int, count: int) -> range:
    """Return at most `count` positions of an axis, evenly spread around its middle.

    >>> list(_spread(64, 4)), list(_spread(3, 5))
    ([8, 24, 40, 56], [0, 1, 2])
    """
    if count >= length:
        return range(length)
    step = length // count
    return range((length - step * count + step) // 2, length, step)[:count]


def listed(places: Sequence[int]) -> str:
    """Return positions as text: all of a few, or the first and last of many.

    >>> listed(range(4)), listed([3, 9]), listed(range(0, 100, 5))
    ('0 to 3', '3, 9', '0, 5, 10, … 95')
    """
    if len(places) > 2 and list(places) == list(range(places[0], places[0] + len(places))):
        return f"{places[0]:,} to {places[-1]:,}"
    if len(places) > 6:
        return ", ".join(f"{place:,}" for place in places[:3]) + f", … {places[-1]:,}"
    return ", ".join(f"{place:,}" for place in places)


def comparable(parts: Sequence[Part]) -> bool:
    """Return whether an element is a pair of arrays of the same shape, axes and dtype."""
    return len(parts) == 2 and replace(parts[0], name="") == replace(parts[1], name="")


def canonical(array: NDArray[Any], letters: str) -> NDArray[Any]:
    """Return elements with axes in the order (n, time × depth, channels, height, width).

    >>> canonical(np.zeros((2, 50, 40, 3)), "HWC").shape
    (2, 1, 3, 50, 40)
    """
    sizes = dict(zip(letters, array.shape[1:], strict=True))
    order = [letters.index(letter) + 1 for letter in "TDCHW" if letter in letters]
    moved = array.transpose(0, *order)
    t, d, c, h, w = (sizes.get(letter, 1) for letter in "TDCHW")
    return moved.reshape(len(array), t * d, c, h, w)
