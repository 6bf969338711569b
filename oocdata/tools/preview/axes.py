"""Which axis of an element is which: channel, depth, time, y and x.

Every axis has a letter: H (y, downwards), W (x), C (channel), D (depth) or T (time). The letters
come from the names of the dimensions, where the file has them, or from the lengths:

===========  ==========================================================  =================
axes         rule                                                        example
===========  ==========================================================  =================
0            one number a row                                            a curve over rows
1            W                                                           a curve
2            HW; WC or CW where one axis is at most 4 and the other at   (50, 50): HW
             least 16 times as long                                      (1000, 3): WC
3            a channel axis has at most 4 places, and both others have  (3, 50, 50): CHW
             more; else at most 32, and a quarter of either other one    (50, 50, 3): HWC
             (a guess); where there is none, DHW                         (64, 64, 64): DHW
4 and more   the last three as above; those before are D and T           (8, 3, 50, 50): TCHW
===========  ==========================================================  =================

What the lengths leave open, (3, 3, 3) for one, is marked as a guess.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oocdata.errors import ArgumentError

__all__ = ["Axes", "axes_of"]

_WORDS = {"H": "y", "W": "x", "C": "channel", "D": "depth", "T": "time"}
_SURE_CHANNELS = 4
_MOST_CHANNELS = 32
_CURVE_LENGTH = 16
_NAMES = {
    "H": {"h", "height", "lat", "latitude", "row", "rows", "y"},
    "W": {"column", "columns", "lon", "longitude", "w", "width", "x"},
    "C": {"band", "bands", "c", "channel", "channels", "rgb", "variable"},
    "D": {"d", "depth", "height_level", "isobaricinhpa", "lev", "level", "plev", "slice", "z"},
    "T": {"frame", "lead_time", "prediction_timedelta", "step", "t", "time"},
}


@dataclass(frozen=True, slots=True)
class Axes:
    """The axes of an element.

    Attributes
    ----------
    letters : str
        One of H, W, C, D and T for each axis.
    sizes : tuple of int
    names : tuple of str
        The file's names for them, else y, x, channel, depth and time.
    certain : bool
        Whether the lengths or names leave no other reading.

    Examples
    --------
    >>> print(axes_of((3, 50, 40)))
    channel 3, y 50, x 40
    """

    letters: str
    sizes: tuple[int, ...]
    names: tuple[str, ...]
    certain: bool = True

    def __str__(self) -> str:
        return ", ".join(
            f"{name} {length}" for name, length in zip(self.names, self.sizes, strict=True)
        )

    @property
    def kind(self) -> str:
        """``"image"``, ``"curve"``, or ``"number"`` for an element without axes."""
        return "image" if "H" in self.letters else "curve" if self.letters else "number"

    def size(self, letter: str) -> int:
        """Return the length of an axis; 1 where there is none of that letter."""
        return self.sizes[self.letters.index(letter)] if letter in self.letters else 1

    def in_time(self, moments: int) -> Axes:
        """Return the axes of a window: one of `moments` places before these.

        Examples
        --------
        >>> axes_of((50, 40)).in_time(8).letters
        'THW'
        """
        if not self.letters:
            return Axes("W", (moments,), ("time",))
        free = [letter for letter in "TD" if letter not in self.letters]
        if not free:
            raise ArgumentError(
                f"windows must be of rows with a free axis for time; got {self}. Cut a row first: "
                "view[:, 0]."
            )
        return Axes(
            free[0] + self.letters, (moments, *self.sizes), ("time", *self.names), self.certain
        )

    def name(self, letter: str) -> str:
        """Return the name of an axis; empty where there is none of that letter."""
        return self.names[self.letters.index(letter)] if letter in self.letters else ""


def axes_of(
    element: Sequence[int], layout: str = "auto", names: Sequence[str | None] | None = None
) -> Axes:
    """Return the axes of an element.

    Parameters
    ----------
    element : sequence of int
        The shape of one row.
    layout : str
        A letter for each axis, e.g. ``"CHW"``; ``"auto"``: by names and lengths, as the module
        says.
    names : sequence of str or None, optional
        The file's names of the axes.

    Raises
    ------
    oocdata.errors.ArgumentError
        If the layout doesn't suit the element.

    Examples
    --------
    >>> for element in [(50, 50), (3, 50, 50), (50, 50, 3), (64, 64, 64), (3, 3, 3)]:
    ...     axes = axes_of(element)
    ...     axes.letters, axes.certain
    ('HW', True)
    ('CHW', True)
    ('HWC', True)
    ('DHW', True)
    ('CHW', False)
    >>> axes_of((10, 20, 30), names=["level", "lat", "lon"]).letters
    'DHW'
    """
    sizes = tuple(element)
    given = tuple(names) if names is not None and len(names) == len(sizes) else (None,) * len(sizes)
    if layout != "auto":
        letters, certain = _checked(layout, sizes), True
    elif (known := _by_names(given)) is not None:
        letters, certain = known, True
    else:
        letters, certain = _by_lengths(sizes)
    words = tuple(name or _WORDS[letter] for name, letter in zip(given, letters, strict=True))
    return Axes(letters, sizes, words, certain)


def _checked(layout: str, sizes: tuple[int, ...]) -> str:
    letters = layout.upper() if isinstance(layout, str) else ""
    good = (
        len(letters) == len(sizes)
        and set(letters) <= set(_WORDS)
        and len(set(letters)) == len(letters)
        and ("W" in letters or not sizes)
    )
    if not good:
        raise ArgumentError(
            f"`layout` must be 'auto' or a letter for each axis of a row, {sizes}: W (x), and "
            f"H (y), C (channel), D (depth), T (time), each at most once; got {layout!r}."
        )
    return letters


def _by_names(names: tuple[str | None, ...]) -> str | None:
    """Return the letters where every name is known, and the element is then a frame."""
    letters = ""
    for name in names:
        found = [letter for letter, known in _NAMES.items() if (name or "").lower() in known]
        letters += found[0] if found else "?"
    once = len(set(letters)) == len(letters)
    return letters if letters and once and {"H", "W"} <= set(letters) <= set(_WORDS) else None


def _by_lengths(sizes: tuple[int, ...]) -> tuple[str, bool]:
    if len(sizes) < 2:
        return "W" * len(sizes), True
    if len(sizes) == 2:
        few, many = sorted(sizes)
        if few <= _SURE_CHANNELS and many >= _CURVE_LENGTH * few:
            return ("CW" if sizes[0] == few else "WC"), False
        return "HW", True
    last, certain = _last_three(sizes[-3:])
    before = len(sizes) - 3
    if before > 2:
        raise ArgumentError(
            f"a row must have at most 5 axes to be drawn; got {sizes}. Take a part of it, in "
            "Python: ooc.preview(view[:, 0])."
        )
    if before == 2 and "D" in last:
        raise ArgumentError(
            f"`layout` must say which axis is which of rows of {sizes}, e.g. 'TDCHW'."
        )
    # A volume in time, channels in time, or a volume with channels.
    return ("" if before == 0 else "T" if before == 1 else "TD") + last, certain


def _last_three(sizes: tuple[int, ...]) -> tuple[str, bool]:
    first, middle, last = sizes
    for most, certain in ((_SURE_CHANNELS, True), (_MOST_CHANNELS, False)):
        share = 1 if certain else 4
        leads = first <= most and share * first < min(middle, last) + (share > 1)
        trails = last <= most and share * last < min(first, middle) + (share > 1)
        if leads != trails:
            others = (middle, last) if leads else (first, middle)
            return ("CHW" if leads else "HWC"), certain and min(others) > _SURE_CHANNELS
        if leads and trails:
            break
    if min(sizes) <= _SURE_CHANNELS:
        return ("HWC" if last in (1, 3) and first not in (1, 3) else "CHW"), False
    return "DHW", True
