"""What is shown of each array of an element: which channels, slices, lines and columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from operator import index
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.axes import Axes, axes_of
from oocdata.datasets.dataset import Dataset
from oocdata.datasets.view import View
from oocdata.datasets.windows import Windows
from oocdata.errors import ArgumentError, EmptyError

__all__ = ["Part", "alike", "canonical", "listed", "named_leaves", "parts_of", "view_of"]

_COLOURS = 3
_MOST_PANELS = 8
_MOST_COLUMNS = 12
_FAR_BYTES = 4096
"""Values less far apart cost as much as all that lies between them."""


@dataclass(frozen=True, slots=True)
class Part:
    """What is shown of one array of an element."""

    name: str  # its place in the element: "x", "y", a key, "" where there is one array
    axes: Axes
    dtype: np.dtype[Any]
    places: dict[str, Sequence[int]]  # what is shown of each axis, by its letter, in their order

    @property
    def is_colour(self) -> bool:
        """Whether its channels can be red, green and blue."""
        whole = self.axes.size("C") == _COLOURS and self.axes.kind == "image"
        return whole and list(self.of_letter("C")) == [0, 1, 2]

    @property
    def panels(self) -> int:
        """How many pictures an element makes, at most."""
        one = self.is_colour and self.dtype == np.uint8
        return prod(len(self.of_letter(letter)) for letter in ("TD" if one else "TDC"))

    @property
    def nbytes(self) -> int:
        """How many bytes of an element are read, what lies between those shown too."""
        count, together = self.dtype.itemsize, False
        for axis, places in enumerate(self.places.values()):
            apart = int(np.abs(np.diff(places[:2])).sum()) * self.dtype.itemsize
            apart *= prod(self.axes.sizes[axis + 1 :])
            near = together or 0 < apart < _FAR_BYTES
            count *= self.axes.sizes[axis] if near else len(places)
            together = near
        return count

    def of_letter(self, letter: str) -> Sequence[int]:
        """Return the places along an axis; ``(0,)`` where there is none of that letter."""
        return self.places.get(letter, (0,))

    def words(self, **places: int) -> str:
        """Return where something is in an element: ``words(C=0)`` is ``"x, channel 0"``."""
        said = [f"{self.axes.name(one)} {at}" for one, at in places.items()
                if self.axes.size(one) > 1]  # fmt: skip
        return ", ".join(word for word in (self.name, *said) if word)

    def framed(self, cut: Callable[[Sequence[int]], Sequence[int]]) -> Part:
        """Return the part with some of its lines and columns."""
        each = self.places.items()
        return replace(self, places={name: cut(one) if name in "HW" else one for name, one in each})

    def notes(self) -> list[str]:
        """Return in words what an element has and the picture does not, and what is a guess."""
        said = []
        for letter in "CTDHW":
            shown, number = self.of_letter(letter), self.axes.size(letter)
            if len(shown) < number:
                some = f"{len(shown):,} of {number:,} shown ({listed(shown)})"
                said.append(f"{self.axes.name(letter)}: {some}")
        if not self.axes.certain:
            letters = self.axes.letters
            said.append(f"the axes, {letters}, are a guess: `layout` says which they are")
        return [f"{self.name}: {one}" if self.name else one for one in said]


def view_of(dataset: Dataset) -> View | None:
    """Return the view that all rows come from, where the rows may be cut."""
    view = dataset.view if isinstance(dataset, Windows) else dataset
    return view if isinstance(view, View) else None


def named_leaves(tree: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a tree with their names: keys, numbers, and x and y for a pair.

    >>> list(named_leaves((1, {"a": 2, "b": (3,)})))
    [('x', 1), ('y a', 2), ('y b 0', 3)]
    """
    if isinstance(tree, tuple):
        tree = dict(zip("xy" if len(tree) == 2 else map(str, range(len(tree))), tree, strict=True))
    if not isinstance(tree, dict):
        yield name, tree
        return
    for word, part in tree.items():
        yield from named_leaves(part, f"{name} {word}".strip())


def parts_of(
    dataset: Dataset, layout: str, channel: int | Sequence[int] | None
) -> tuple[Part, ...]:
    """Return what is shown of each array of an element."""
    channels = None
    if channel is not None:
        try:
            channels = [index(one) for one in np.atleast_1d(np.asarray(channel))]
        except (TypeError, ValueError) as error:
            raise ArgumentError(
                f"`channel` must be a whole number, or some of them; got {channel!r}."
            ) from error
    view = view_of(dataset)
    names = view.names[len(view.axes) :] if view else None
    found = list(named_leaves(dataset.spec))
    in_time = dataset.time_axes if isinstance(dataset, Windows) else (False,) * len(found)
    made = []
    for (name, leaf), timed in zip(found, in_time, strict=True):
        element = leaf.shape[1:] if timed else leaf.shape
        if 0 in element:
            raise EmptyError(f"a row must hold a value to be shown; got rows of {element}.")
        axes = axes_of(element, layout if element else "auto", names)
        if "?" in axes.letters:
            raise ArgumentError(
                f"`layout` must say which axis is which of rows of {element}, e.g. 'TDCHW', at "
                "most 5. Or take a part of them, in Python: ooc.preview(view[:, 0])."
            )
        made.append((name, leaf, axes.in_time(leaf.shape[0]) if timed else axes))
    pictures = sum(axes.kind in ("image", "curve") for _, _, axes in made)
    most = max(1, _MOST_PANELS // max(1, pictures))
    parts = []
    for name, leaf, axes in made:
        if pictures and axes.kind == "table":  # beside pictures: a curve over its columns
            axes = replace(axes, letters="W")
        wanted = channels if "C" in axes.letters or len(made) == 1 else None
        parts.append(_part(name, axes, leaf.dtype, wanted, most))
    return tuple(parts)


def _part(
    name: str, axes: Axes, dtype: np.dtype[Any], channels: Sequence[int] | None, most: int
) -> Part:
    """Choose the first channels, and slices evenly spread, of which `most` pictures are made."""
    number = axes.size("C")
    chosen: Sequence[int] = range(min(number, _MOST_COLUMNS if axes.kind == "table" else most))
    if channels is not None:
        if axes.channel is None:
            raise ArgumentError(
                f"`channel` must be left out where there is no channel axis; got {list(channels)} "
                f"for axes {axes}. Name the axes by `layout`."
            )
        if not channels or not all(-number <= one < number for one in channels):
            raise ArgumentError(f"`channel` must be below {number}; got {list(channels)}.")
        chosen = tuple(one % number for one in channels)
    elif number == _COLOURS:
        chosen = range(number)
    colour = axes.kind == "image" and number == _COLOURS and dtype == np.uint8
    left = most if colour and len(chosen) == number else max(1, most // len(chosen))
    places = {"C": chosen}
    for letter in "TD":
        places[letter] = _spread(axes.size(letter), left)
        left = max(1, left // len(places[letter]))
    sizes = zip(axes.letters, axes.sizes, strict=True)
    return Part(name, axes, dtype, {one: places.get(one, range(length)) for one, length in sizes})


def _spread(length: int, count: int) -> range:
    """Return at most `count` places of an axis at equal steps, in the middle of it.

    >>> list(_spread(64, 4)), list(_spread(3, 5))
    ([8, 24, 40, 56], [0, 1, 2])
    """
    if count >= length:
        return range(length)
    step = length // count
    return range((length - step * count + step) // 2, length, step)[:count]


def listed(places: Sequence[int]) -> str:
    """Return places in words: all of a few, the ends of many.

    >>> listed(range(4)), listed([3, 9]), listed(range(0, 100, 5))
    ('0 to 3', '3, 9', '0, 5, 10, … 95')
    """
    if len(places) > 2 and list(places) == list(range(places[0], places[0] + len(places))):
        return f"{places[0]:,} to {places[-1]:,}"
    if len(places) > 6:
        return ", ".join(f"{one:,}" for one in places[:3]) + f", … {places[-1]:,}"
    return ", ".join(f"{one:,}" for one in places)


def alike(parts: Sequence[Part]) -> bool:
    """Return whether an element is a pair of arrays that can be compared."""
    return len(parts) == 2 and replace(parts[0], name="") == replace(parts[1], name="")


def canonical(array: NDArray[Any], letters: str) -> NDArray[Any]:
    """Return elements in the shape (n, time × depth, channels, height, width).

    >>> canonical(np.zeros((2, 50, 40, 3)), "HWC").shape
    (2, 1, 3, 50, 40)
    """
    sizes = dict(zip(letters, array.shape[1:], strict=True))
    moved = array.transpose(0, *(letters.index(one) + 1 for one in "TDCHW" if one in letters))
    t, d, c, h, w = (sizes.get(letter, 1) for letter in "TDCHW")
    return moved.reshape(len(array), t * d, c, h, w)
