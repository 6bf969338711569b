"""What is shown of each array of an element: which channels, slices, lines and columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, prod, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.errors import ArgumentError
from oocdata.tools.preview.axes import Axes

__all__ = ["Part", "alike", "canonical", "listed", "spread", "step_for", "thinned", "with_window"]

Places = tuple[Sequence[int], ...]
_COLOURS = 3


@dataclass(frozen=True, slots=True)
class Part:
    """What is shown of one array of an element.

    Attributes
    ----------
    name : str
        Its place in the element: ``"x"``, ``"y"``, a key, ``""`` where there is one array.
    axes : Axes
    dtype : numpy.dtype
    places : tuple of sequence of int
        What is shown of each axis.
    """

    name: str
    axes: Axes
    dtype: np.dtype[np.generic]
    places: Places

    @classmethod
    def of(
        cls,
        name: str,
        axes: Axes,
        dtype: np.dtype[np.generic],
        channels: Sequence[int] | None,
        most: int,
    ) -> Part:
        """Choose the channels and slices, of which at most `most` pictures are made.

        Channels are the first ones, three of them in any case because they may be a colour;
        slices, and moments of a window, lie evenly spread.

        Raises
        ------
        oocdata.errors.ArgumentError
            If there is no such channel.
        """
        places: dict[str, Sequence[int]] = {}
        left = most
        number = axes.size("C")
        if channels is not None:
            if "C" not in axes.letters:
                raise ArgumentError(
                    f"`channel` must be left out where there is no channel axis; got {channels} "
                    f"for axes {axes}. Name the axes by `layout`."
                )
            wrong = [one for one in channels if not -number <= one < number]
            if wrong or not channels:
                raise ArgumentError(f"`channel` must be below {number}; got {list(channels)}.")
            places["C"] = tuple(one % number for one in channels)
        elif axes.kind == "image":
            places["C"] = range(number if number == _COLOURS else min(number, most))
        else:
            places["C"] = range(min(number, _MOST_SERIES))
        if axes.kind == "image" and not (number == _COLOURS and dtype == np.uint8):
            left = max(1, left // len(places["C"]))
        for letter in "TD":
            if letter in axes.letters:
                places[letter] = spread(axes.size(letter), left)
                left = max(1, left // len(places[letter]))
        return cls(
            name,
            axes,
            dtype,
            tuple(
                places.get(letter, range(length))
                for letter, length in zip(axes.letters, axes.sizes, strict=True)
            ),
        )

    @property
    def is_colour(self) -> bool:
        """Whether its channels can be red, green and blue."""
        return (
            self.axes.kind == "image"
            and list(self.of_letter("C")) == [0, 1, 2]
            and self.axes.size("C") == _COLOURS
        )

    @property
    def panels(self) -> int:
        """How many pictures an element makes, at most."""
        slices = len(self.of_letter("T")) * len(self.of_letter("D"))
        one = self.axes.kind == "curve" or (self.is_colour and self.dtype == np.uint8)
        return slices * (1 if one else len(self.of_letter("C")))

    @property
    def values(self) -> int:
        """How many values of an element are shown."""
        return prod(len(one) for one in self.places)

    @property
    def side(self) -> int:
        """The longer side of what is shown of a frame."""
        return max(len(self.of_letter("H")), len(self.of_letter("W")))

    def of_letter(self, letter: str) -> Sequence[int]:
        """Return the places along an axis; ``(0,)`` where there is none of that letter."""
        letters = self.axes.letters
        return self.places[letters.index(letter)] if letter in letters else (0,)

    def left_out(self) -> list[str]:
        """Return in words what an element has and the picture does not."""
        said = []
        for letter in "CTD":
            shown, number = self.of_letter(letter), self.axes.size(letter)
            if len(shown) < number:
                name = self.axes.name(letter)
                said.append(f"{name}: {len(shown)} of {number:,} shown ({listed(shown)})")
        for letter in "HW":
            shown, number = self.of_letter(letter), self.axes.size(letter)
            name = self.axes.name(letter)
            step = shown[1] - shown[0] if len(shown) > 1 else 1
            if len(shown) * step < number - 2 * step:
                said.append(f"{name}: {shown[0]:,} to {shown[-1]:,} of {number:,} shown")
            if step > 1:
                said.append(f"{name}: 1 in {step} shown")
        return said


_MOST_SERIES = 6
"""Lines in one curve panel."""


def listed(places: Sequence[int]) -> str:
    """Return places in words: all of a few, the ends of many.

    Examples
    --------
    >>> listed(range(4)), listed([3, 9]), listed(range(0, 100, 5))
    ('0 to 3', '3, 9', '0, 5, 10, … 95')
    """
    if len(places) > 2 and list(places) == list(range(places[0], places[0] + len(places))):
        return f"{places[0]:,} to {places[-1]:,}"
    if len(places) > 6:
        return ", ".join(f"{one:,}" for one in places[:3]) + f", … {places[-1]:,}"
    return ", ".join(f"{one:,}" for one in places)


def spread(length: int, count: int) -> range:
    """Return at most `count` places of an axis at equal steps, in the middle of it.

    Examples
    --------
    >>> list(spread(64, 4)), list(spread(3, 5))
    ([8, 24, 40, 56], [0, 1, 2])
    """
    if count >= length:
        return range(length)
    step = length // count
    return range((length - step * count + step) // 2, length, step)[:count]


def step_for(parts: Sequence[Part], most: int) -> int:
    """Return the step between lines at which each part shows at most `most` values.

    Examples
    --------
    >>> from oocdata.tools.preview.axes import axes_of
    >>> step_for([Part.of("", axes_of((100, 80)), np.dtype("f4"), None, 6)], 2000)
    2
    """
    return max(
        (
            max(1, ceil(sqrt(share) if part.axes.kind == "image" else share))
            for part in parts
            for share in [part.values / max(1, most)]
        ),
        default=1,
    )


def thinned(part: Part, step: int) -> Part:
    """Return the part with one in `step` of its lines and columns.

    Examples
    --------
    >>> from oocdata.tools.preview.axes import axes_of
    >>> thinned(Part.of("", axes_of((100, 80)), np.dtype("f4"), None, 6), 3).places
    (range(1, 100, 3), range(1, 80, 3))
    """
    if step == 1:
        return part
    return replace(
        part,
        places=tuple(
            one[(min(step, len(one)) - 1) // 2 :: step] if letter in "HW" else one
            for letter, one in zip(part.axes.letters, part.places, strict=True)
        ),
    )


def with_window(part: Part, share: int) -> Part:
    """Return the part with a window of each frame: one in `share` of its height and width.

    It begins in the middle, where a chunk may begin too: around the middle it would lie in four.

    Examples
    --------
    >>> from oocdata.tools.preview.axes import axes_of
    >>> part = Part.of("", axes_of((100, 80)), np.dtype("f4"), None, 6)
    >>> with_window(part, 4).places
    (range(50, 75), range(40, 60))
    """
    return replace(
        part,
        places=tuple(
            one[len(one) // 2 :][: max(1, len(one) // share)] if letter in "HW" else one
            for letter, one in zip(part.axes.letters, part.places, strict=True)
        ),
    )


def canonical(array: NDArray[Any], letters: str) -> NDArray[Any]:
    """Return elements with their axes in one order.

    Parameters
    ----------
    array : ndarray, shape (n, *axes)
    letters : str
        Of the axes after the first.

    Returns
    -------
    ndarray, shape (n, slices, channels, height, width)
        Slices are the places in time and depth, time first.

    Examples
    --------
    >>> canonical(np.zeros((2, 50, 40, 3)), "HWC").shape
    (2, 1, 3, 50, 40)
    """
    order = [letters.index(letter) + 1 for letter in "TDCHW" if letter in letters]
    moved = array.transpose(0, *order)
    lengths = {
        letter: moved.shape[place + 1]
        for place, letter in enumerate(one for one in "TDCHW" if one in letters)
    }
    t, d, c, h, w = (lengths.get(letter, 1) for letter in "TDCHW")
    return moved.reshape(len(array), t * d, c, h, w)


def alike(parts: Sequence[Part]) -> bool:
    """Return whether an element is a pair of frames that can be compared.

    Examples
    --------
    >>> from oocdata.tools.preview.axes import axes_of
    >>> frame = Part.of("x", axes_of((9, 8)), np.dtype("f4"), None, 6)
    >>> alike([frame, frame]), alike([frame])
    (True, False)
    """
    if len(parts) != 2 or parts[0].axes.kind == "number":
        return False
    x, y = parts
    return (x.axes, x.dtype, x.places) == (y.axes, y.dtype, y.places)
