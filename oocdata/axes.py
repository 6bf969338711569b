"""Recognise the axes of an element (channels, depth, y, x, time).

Every axis of an element has a letter: C (channel, or column of a table), D (depth), H (y,
downwards), W (x, or the axis along which a curve runs), T (time), or ``?`` if it is unknown. The
names in the file decide (dimension scales of HDF5 and netCDF, ``dimension_names`` and
``_ARRAY_DIMENSIONS`` of Zarr, the dimensions of xarray). Axes without a known name get their letter
by the lengths:

====  ==============================================================  =================
axes  rule                                                            example
====  ==============================================================  =================
0     one number a row
1     up to 64 numbers are columns of a table, more are a signal      (7,): C
                                                                      (1000,): W
2     curves if one axis is much shorter: length at most 7, and half  (1000, 3): WC
      of the other; or at most 16, and a quarter of the other.        (12, 1000): CW
      Otherwise an image                                              (50, 50): HW
3     the first or last axis is channels if its length is at most 4   (3, 50, 50): CHW
      and less than both others; at most 32 and a quarter of both;    (50, 50, 3): HWC
      or at most 128 and less than an eighth of both. Otherwise       (73, 721, 1440): CHW
      depth: the last axis if it is shorter than the others, which    (384, 384, 49): HWD
      are equal, or else the first                                    (64, 64, 64): DHW
4     time, then three axes as above; but a short first axis before   (8, 3, 50, 50): TCHW
      a volume is channels                                            (3, 64, 64, 64): CDHW
5     time and depth, then three axes as above                        (5, 8, 3, 50, 50): TDCHW
====  ==============================================================  =================

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
_CURVES = ((7, 2), (16, 4))
"""Most curves of an element, and the minimum ratio of their length to that number."""

_SURE_CHANNELS = 4
_CHANNELS = ((_SURE_CHANNELS, 1.0), (32, 4.0), (128, 8.0))
"""Most channels, and the minimum ratio of the image's sides to that number; only the first is
certain."""


@dataclass(frozen=True, slots=True)
class Axes:
    """The axes of an element.

    Attributes
    ----------
    letters : str
        One of C, D, H, W, T or ``?`` for each axis. Of time, depth, y and x, the last two are an
        image's H and W, and a single one is W: ``("time", "channel")`` are ``"WC"``.
    sizes : tuple of int
    names : tuple of str
        The file's names; else y, x, channel, column, depth and time.
    certain : bool
        Whether names or lengths allow no other reading.
    reason : str
        A few words on why these letters were chosen.
    """

    letters: str
    sizes: tuple[int, ...]
    names: tuple[str, ...]
    certain: bool = True
    reason: str = "by their lengths"

    def __str__(self) -> str:
        return ", ".join(
            f"{name} {length}" for name, length in zip(self.names, self.sizes, strict=True)
        )

    @property
    def kind(self) -> str:
        """``"number"``, ``"table"`` (a row of columns), ``"curve"`` (one a channel) or ``"image"``.

        Examples
        --------
        >>> [axes_of(element).kind for element in [(), (7,), (500,), (500, 3), (50, 50)]]
        ['number', 'table', 'curve', 'curve', 'image']
        """
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
    """Assign a letter to each axis of an element.

    Parameters
    ----------
    element : sequence of int
        The shape of one row.
    layout : str
        A letter for each axis, e.g. ``"CHW"``; ``"auto"`` decides by names, then by lengths (see
        the module).
    names : sequence of str or None, optional
        The file's names of the axes; ignored unless there is one for each axis.

    Raises
    ------
    oocdata.errors.ArgumentError
        If the layout doesn't suit the element.

    Examples
    --------
    >>> for element in [(50, 50), (3, 50, 50), (50, 50, 3), (64, 64, 64), (12, 50, 50)]:
    ...     axes = axes_of(element)
    ...     axes.letters, axes.channel, axes.certain
    ('HW', None, True)
    ('CHW', 0, True)
    ('HWC', 2, True)
    ('DHW', None, True)
    ('CHW', 0, False)
    >>> print(axes_of((37, 721, 1440), names=["level", "lat", "lon"]))
    level 37, lat 721, lon 1440
    """
    sizes = tuple(element)
    file_names = tuple(names or ())
    if len(file_names) != len(sizes):
        file_names = (None,) * len(sizes)
    file_names = tuple(None if name and _NO_NAME.fullmatch(name) else name for name in file_names)
    if layout != "auto":
        letters, certain, reason = _checked(layout, sizes), True, "as asked"
    else:
        letters, certain, reason = _guess(sizes, file_names)
    letters = _as_image(letters)
    words = {**_WORDS, "?": "axis", **({"C": "column"} if letters == "C" else {})}
    labels = tuple(name or words[letter] for name, letter in zip(file_names, letters, strict=True))
    return Axes(letters, sizes, labels, certain, reason)


def row_axes(view: View) -> Axes:
    """Assign a letter to each axis of a view's rows, by the names in its file."""
    return axes_of(view.element, names=view.names[len(view.axes) :])


def _letter(name: str | None) -> str | None:
    return _LETTERS.get((name or "").lower())


def _checked(layout: str, sizes: tuple[int, ...]) -> str:
    letters = layout.upper() if isinstance(layout, str) else ""
    known = len(letters) == len(sizes) and set(letters) <= set(_WORDS)
    if not known or len(set(letters)) < len(letters):
        raise ArgumentError(
            f"`layout` must be 'auto' or a letter for each axis of a row, {sizes}: W (x), "
            f"H (y), C (channel), D (depth) or T (time), each at most once; got {layout!r}."
        )
    return letters


def _guess(sizes: tuple[int, ...], names: tuple[str | None, ...]) -> tuple[str, bool, str]:
    """Return letters by the names that are known, and by lengths for the other axes."""
    guessed, certain = _by_lengths(sizes)
    known = [letter if (letter := _letter(name)) in _WORDS else None for name in names]
    named = [letter for letter in known if letter]
    if not named or len(set(named)) < len(named):
        return guessed, certain, "by their lengths"
    letters = list(known)
    for place, known_letter in enumerate(known):
        if known_letter is None:
            free = [letter for letter in (guessed[place], *"WHDTC") if letter not in letters]
            letters[place] = free[0] if free else "?"
    text = "".join(letter or "?" for letter in letters)
    return text, certain or None not in known, "by the file's names"


def _as_image(letters: str) -> str:
    """Replace the last two of time, depth, y and x by H and W.

    Examples
    --------
    >>> _as_image("TC"), _as_image("TW"), _as_image("DH")
    ('WC', 'HW', 'HW')
    """
    sides = [letter for letter in "TDHW" if letter in letters][-2:]
    return letters.translate(dict(zip(map(ord, sides), "HW"[2 - len(sides) :], strict=True)))


def _by_lengths(sizes: tuple[int, ...]) -> tuple[str, bool]:
    if len(sizes) < 2:
        table = bool(sizes) and sizes[0] <= _MOST_COLUMNS
        return ("C" if table else "W") * len(sizes), not sizes or not 16 < sizes[0] <= 4096
    if len(sizes) == 2:
        few, many = sorted(sizes)
        if any(few <= most and times * few <= many for most, times in _CURVES):
            return ("CW" if sizes[0] == few else "WC"), False
        return "HW", True
    if len(sizes) > 3 and max(sizes[-2:]) <= _SURE_CHANNELS < min(sizes[:-2]):
        # A tensor field: a small matrix at each point of an image.
        return _with_leading("HW", sizes[:-2])[0] + "?C", False
    last, certain = _last_three(sizes[-3:])
    letters, clear = _with_leading(last, sizes)
    return letters, certain and clear


def _with_leading(last: str, sizes: tuple[int, ...]) -> tuple[str, bool]:
    """Return the letters of all axes, given those of the last ones."""
    free = [letter for letter in "TD" if letter not in last]
    count = len(sizes) - len(last)
    if count > len(free):
        return "?" * count + last, False
    if count == 1 and "D" in last and sizes[0] <= _SURE_CHANNELS < min(sizes[1:]):
        return "C" + last, False
    return "".join(free[:count]) + last, True


def _last_three(sizes: tuple[int, ...]) -> tuple[str, bool]:
    first, middle, last = sizes
    for most, times in _CHANNELS:
        leads = first <= most and _much_less(first, min(middle, last), times)
        trails = last <= most and _much_less(last, min(first, middle), times)
        if leads != trails:
            others = min(middle, last) if leads else min(first, middle)
            certain = most == _SURE_CHANNELS < others
            return ("CHW" if leads else "HWC"), certain
        if leads:
            break
    # Both axes are short: grey and colour images have 1 and 3 channels.
    usual = last in (1, 3) and first not in (1, 3)
    if last <= _SURE_CHANNELS and (first > _SURE_CHANNELS or usual):
        return "HWC", False
    if first <= _SURE_CHANNELS:
        return "CHW", False
    return ("HWD", False) if first == middle > last else ("DHW", middle > _SURE_CHANNELS)


def _much_less(length: int, other: int, times: float) -> bool:
    return times * length <= other if 1 < times < 8 else times * length < other
