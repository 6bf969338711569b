"""Recognise the axes of an element (channels, depth, y, x, time).

Every axis of an element has a letter: C (channel, or column of a table), D (depth), H (y,
downwards), W (x, or the axis along which a curve runs), T (time), or ``?`` if it is unknown. The
names in the file decide (dimension scales of HDF5 and netCDF, ``dimension_names`` and
``_ARRAY_DIMENSIONS`` of Zarr, the dimensions of xarray). Axes without a known name get their letter
by the lengths (`_by_lengths`).

This is the only module that guesses axes: statistics use its channels, previews its height
and width.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from oocdata.errors import ArgumentError

if TYPE_CHECKING:
    from oocdata.datasets.view import View

_WORDS = {"H": "y", "W": "x", "C": "channel", "D": "depth", "T": "time"}
_NAMES = {
    "H": "h height lat latitude nlat ny rlat south_north y yc",
    "W": "lon longitude nlon nx rlon w west_east width x xc",
    "C": "band bands c channel channels feature features rgb variable variables",
    "D": "altitude bottom_top d depth height_level isobaricinhpa lev level plev pressure "
    "pressure_level slice z",
    "T": "frame lead_time prediction_timedelta step t time times timestep",
}
_LETTERS = {name: letter for letter, names in _NAMES.items() for name in names.split()}
_NO_NAME = re.compile(r"(phony_)?dim_?\d+")
"""Names that libraries give to axes without a name."""

_MOST_COLUMNS = 64
_MOST_CURVES = 16  # at most a quarter of the other axis
_FEW_CHANNELS = 4
_CHANNELS = ((_FEW_CHANNELS, 1), (32, 4), (128, 8))
"""Most channels, and the least ratio of both sides of the image to that number."""

BY_LENGTHS = "by their lengths"
"""`Axes.reason` of axes whose names are unknown."""


@dataclass(frozen=True, slots=True)
class Axes:
    """The axes of an element: a letter, a length and a name for each.

    Of time, depth, y and x, the last two are an image's H and W, and a single one is W: ``("time",
    "channel")`` are ``"WC"``. Names are the file's, else words such as y, x and channel; `reason`
    says why these letters were chosen.
    """

    letters: str
    sizes: tuple[int, ...]
    names: tuple[str, ...]
    reason: str = BY_LENGTHS

    def __str__(self) -> str:
        return ", ".join(
            f"{name} {length}" for name, length in zip(self.names, self.sizes, strict=True)
        )

    @property
    def kind(self) -> str:
        """Return "number", "table" (a row of columns), "curve" (one a channel) or "image"."""
        if "H" in self.letters:
            return "image"
        return "curve" if "W" in self.letters else "table" if self.letters else "number"

    @property
    def channel(self) -> int | None:
        """The axis whose positions have different scales (channels or columns), or None."""
        return self.axis("C")

    def axis(self, letter: str) -> int | None:
        """Return the number of an axis of the element; None if no axis has that letter."""
        return self.letters.index(letter) if letter in self.letters else None

    def size(self, letter: str) -> int:
        """Return the length of an axis; 1 if no axis has that letter."""
        return self.sizes[self.letters.index(letter)] if letter in self.letters else 1

    def name(self, letter: str) -> str:
        """Return the name of an axis; empty if no axis has that letter."""
        return self.names[self.letters.index(letter)] if letter in self.letters else ""

    def in_time(self, moments: int) -> Axes:
        """Return the axes of a window: time, followed by the axes of its rows."""
        free = [letter for letter in "WTD" if letter not in self.letters]
        if not free:
            raise ArgumentError(
                f"windows must be of rows with a free axis for time; got {self}. Cut a row first: "
                "view[:, 0]."
            )
        return replace(
            self,
            letters=free[0] + self.letters,
            sizes=(moments, *self.sizes),
            names=("time", *self.names),
        )


def axes_of(
    element: Sequence[int], layout: str = "auto", names: Sequence[str | None] | None = None
) -> Axes:
    """Assign a letter to each axis of an element, given by its shape.

    `layout` is a letter for each axis, such as ``"CHW"``; a wrong one is an `ArgumentError`. With
    ``"auto"`` the file's `names` decide, one for each axis, and then the lengths.
    """
    sizes = tuple(element)
    file_names = tuple(names or ())
    if len(file_names) != len(sizes):
        file_names = (None,) * len(sizes)
    file_names = tuple(None if name and _NO_NAME.fullmatch(name) else name for name in file_names)
    if layout != "auto":
        letters, reason = _checked(layout, sizes), "as asked"
    else:
        letters, reason = _guess(sizes, file_names)
    letters = _as_image(letters)
    words = {**_WORDS, "?": "axis", **({"C": "column"} if letters == "C" else {})}
    labels = tuple(name or words[letter] for name, letter in zip(file_names, letters, strict=True))
    return Axes(letters, sizes, labels, reason)


def row_axes(view: View) -> Axes:
    """Assign a letter to each axis of a view's rows, by the names in its file."""
    return axes_of(view.element, names=view.names[len(view.axes) :])


def _checked(layout: str, sizes: tuple[int, ...]) -> str:
    letters = layout.upper() if isinstance(layout, str) else ""
    known = len(letters) == len(sizes) and set(letters) <= set(_WORDS)
    if not known or len(set(letters)) < len(letters):
        raise ArgumentError(
            f"`layout` must be 'auto' or a letter for each axis of a row, {sizes}: W (x), "
            f"H (y), C (channel), D (depth) or T (time), each at most once; got {layout!r}."
        )
    return letters


def _guess(sizes: tuple[int, ...], names: tuple[str | None, ...]) -> tuple[str, str]:
    """Return letters by the names that are known, and by lengths for the other axes."""
    guessed = _by_lengths(sizes)
    known = [_LETTERS.get((name or "").lower()) for name in names]
    named = [letter for letter in known if letter]
    if not named or len(set(named)) < len(named):
        return guessed, BY_LENGTHS
    letters = list(known)
    for place, known_letter in enumerate(known):
        if known_letter is None:
            free = [letter for letter in (guessed[place], *"WHDTC") if letter not in letters]
            letters[place] = free[0] if free else "?"
    return "".join(letter or "?" for letter in letters), "by the file's names"


def _as_image(letters: str) -> str:
    """Replace the last two of time, depth, y and x by H and W: "TC" becomes "WC"."""
    sides = [letter for letter in "TDHW" if letter in letters][-2:]
    return letters.translate(dict(zip(map(ord, sides), "HW"[2 - len(sides) :], strict=True)))


def _by_lengths(sizes: tuple[int, ...]) -> str:
    """Return the letters that the lengths of axes suggest.

    Few numbers are columns of a table, many are a curve; a short axis beside a long one numbers
    curves. Of three axes, a short first or last one is channels, else the first is depth. Axes
    before these are time and depth, or channels if there are few beside a volume.
    """
    if len(sizes) < 2:
        return ("C" if sizes and sizes[0] <= _MOST_COLUMNS else "W") * len(sizes)
    if len(sizes) == 2:
        few, many = sorted(sizes)
        if few <= _MOST_CURVES and 4 * few <= many:
            return "CW" if sizes[0] == few else "WC"
        return "HW"
    first, middle, last = sizes[-3:]
    letters = "DHW"
    if _is_channels(first, min(middle, last)):
        letters = "CHW"
    elif _is_channels(last, min(first, middle)):
        letters = "HWC"
    leading = len(sizes) - 3
    if leading == 1 and letters == "DHW" and sizes[0] <= _FEW_CHANNELS < min(sizes[1:]):
        return "CDHW"
    free = "TD".replace("D", "" if "D" in letters else "D")
    return (free[:leading] if leading <= len(free) else "?" * leading) + letters


def _is_channels(length: int, sides: int) -> bool:
    """Return whether an axis is so short beside the sides of an image that it numbers channels."""
    return length < sides and any(
        length <= most and times * length <= sides for most, times in _CHANNELS
    )
