"""From the values of one array to panels: which values share a scale, and what is a colour.

All frames share the scale of a channel, so that they can be compared; the two frames of a pair do
too, and their difference has one of its own around 0. Channels have a scale each, because their
units may differ. Three channels are red, green and blue where they are uint8, or floats that all
lie from 0 to 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.errors import ArgumentError
from oocdata.tools.pictures.panel import Panel, averaged, remark_on
from oocdata.tools.pictures.scale import COLOUR, Scale, scale_of, widened
from oocdata.tools.preview.parts import Part

__all__ = ["Drawing", "Pictures", "as_range", "by_channel", "smaller"]

Frames = NDArray[np.float64]
"""Shape (n, slices, channels, height, width)."""

Values = NDArray[np.float64]
"""Of what shares a scale, in any shape; of several scales (channels, values)."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """How values become colours, where the user says so; see `preview`."""

    limits: tuple[float, float] | None = None
    percentile: tuple[float, float] = (1.0, 99.0)
    colormap: str | None = None


@dataclass(slots=True)
class Pictures:
    """Makes panels, and collects their scales and what is to be said of them."""

    drawing: Drawing
    scales: list[Scale] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def of(self, part: Part, array: Frames, shared: Values | None = None) -> list[Panel]:
        """Return the panels of an array, those of all elements for each place in turn.

        Parameters
        ----------
        part : Part
        array : ndarray of float64, shape (n, slices, channels, height, width)
        shared : ndarray of float64, shape (channels, values), optional
            What the scales are for, if more than this array.
        """
        values = by_channel(array) if shared is None else shared
        group = part.name if shared is None else ""
        if part.dtype.kind == "c":
            self.notes.append("complex numbers are shown as their magnitude")
        if part.axes.kind == "curve":
            scale = self._scale(part, group, values)
            places = part.of_letter("C")
            names = tuple(f"{part.axes.name('C')} {one}" for one in places)
            names = names if len(places) > 1 else ()
            return [
                replace(_panel(part, frame[:, 0], scale, "curve", index), names=names)
                for index in range(array.shape[1])
                for frame in array[:, index]
            ]
        if part.is_colour and self._is_colour(part, values):
            scale = self._colour_scale(part, group, values)
            self.notes.append(f"{part.axes.name('C')} 0, 1, 2 are shown as {COLOUR}")
            return [
                _panel(part, np.moveaxis(frame, 0, -1), scale, "colour", index)
                for index in range(array.shape[1])
                for frame in array[:, index]
            ]
        panels = []
        scales = [
            self._scale(part, _words(group, part, number), values[number])
            for number in range(array.shape[2])
        ]
        for index in range(array.shape[1]):
            for number, scale in enumerate(scales):
                panels += [
                    _panel(part, frame, scale, "image", index, number)
                    for frame in array[:, index, number]
                ]
        return panels

    def difference(self, part: Part, later: NDArray[Any], earlier: NDArray[Any]) -> list[Panel]:
        """Return the panels of a difference, with a scale of their own around 0.

        Parameters
        ----------
        part : Part
        later, earlier : ndarray, shape (n, slices, channels, height, width)
            As read, because float64 does not hold every integer.
        """
        change = _change(later, earlier)
        colour = part.is_colour and self._is_colour(part, by_channel(later, earlier))
        name = "|y| - |x|" if part.dtype.kind == "c" else "y - x"
        if colour:
            name += ", mean of channels"
            change = change.mean(axis=2, keepdims=True)
        own = Pictures(replace(self.drawing, limits=None, colormap=None))
        channels = part.of_letter("C")
        made = replace(part, name=name, dtype=np.dtype("f8" if colour else part.dtype.str))
        panels = []
        for number in range(change.shape[2]):
            label = name if colour or len(channels) == 1 else _words(name, part, number)
            kind = "curve" if part.axes.kind == "curve" else "image"
            scale = own._scale(made, label, change[:, :, number], signed=True)
            panels += [
                _panel(
                    made,
                    frame[None, 0] if kind == "curve" else frame,
                    scale,
                    kind,
                    index,
                    None if colour else number,
                )
                for index in range(change.shape[1])
                for frame in change[:, index, number]
            ]
        self.scales += own.scales
        return panels

    def _is_colour(self, part: Part, values: NDArray[Any]) -> bool:
        if self.drawing.colormap is not None:
            return False
        if part.dtype == np.uint8:
            return True
        finite = values[np.isfinite(values)]
        if part.dtype.kind != "f" or finite.size == 0:
            return False
        return bool(0 <= finite.min() < finite.max() <= 1)

    def _colour_scale(self, part: Part, label: str, values: Values) -> Scale:
        whole = part.dtype.kind != "f"
        limits = self.drawing.limits or (0.0, 255.0 if whole else 1.0)
        scale = scale_of(label, values.ravel(), whole=whole, limits=limits)
        scale = replace(scale, colormap=None, how=COLOUR)
        self.scales.append(scale)
        return scale

    def _scale(self, part: Part, label: str, values: Values, *, signed: bool = False) -> Scale:
        curve, limits = part.axes.kind == "curve", self.drawing.limits
        scale = scale_of(
            label,
            values.ravel(),
            whole=part.dtype.kind in "iub",
            limits=limits,
            percentile=(0.0, 100.0) if curve else self.drawing.percentile,
            colormap=self.drawing.colormap,
            signed=signed and not curve,
            sequential="gray" if part.dtype.itemsize == 1 else "viridis",
        )
        if curve:
            scale = _of_heights(scale, limits)
        self.scales.append(scale)
        return scale


def by_channel(*arrays: NDArray[Any]) -> NDArray[Any]:
    """Return all values of each channel, shape (channels, values).

    Examples
    --------
    >>> by_channel(np.zeros((2, 8, 3, 5, 4)), np.zeros((2, 1, 3, 6, 6))).shape
    (3, 392)
    """
    return np.concatenate(
        [np.moveaxis(array, 2, 0).reshape(array.shape[2], -1) for array in arrays], axis=1
    )


def _change(later: NDArray[Any], earlier: NDArray[Any]) -> Frames:
    """Return a difference, right to a rounding for integers of any size too.

    Examples
    --------
    >>> _change(np.array([10**18 + 1, -(2**63)]), np.array([10**18, 2**63 - 1]))
    array([ 1.00000000e+00, -1.84467441e+19])
    """
    if later.dtype.kind not in "iub":
        with np.errstate(invalid="ignore", over="ignore"):
            change: Frames = np.subtract(later, earlier, dtype=np.float64)
        return change
    # Modulo 2**64, in which the smaller number from the larger one is right.
    up = later.astype(np.uint64) - earlier.astype(np.uint64)
    return np.where(later >= earlier, up.astype(np.float64), -(-up).astype(np.float64))


def _of_heights(scale: Scale, limits: tuple[float, float] | None) -> Scale:
    """Return the scale of curves: they show all values, a little apart from the borders."""
    low, high = scale.values.minimum, scale.values.maximum
    if limits is not None or low is None or high is None or low == high:
        return replace(scale, colormap=None)
    low, high = widened(low, high, 0.03 * (high / 2 - low / 2))
    return replace(scale, low=low, high=high, colormap=None, how="minimum to maximum")


def _words(group: str, part: Part, number: int) -> str:
    channels = part.of_letter("C")
    if part.axes.size("C") == 1:
        return group
    return f"{group}, {part.axes.name('C')} {channels[number]}".strip(", ")


def _panel(
    part: Part, values: Any, scale: Scale, kind: str, index: int, number: int | None = None
) -> Panel:
    """Return a panel of one slice, and of one channel if there is a number of it."""
    words = [part.name]
    if number is not None and part.axes.size("C") > 1:
        words.append(f"{part.axes.name('C')} {part.of_letter('C')[number]}")
    depths = part.of_letter("D")
    for letter, place in (("T", index // len(depths)), ("D", index % len(depths))):
        if letter in part.axes.letters:
            words.append(f"{part.axes.name(letter)} {part.of_letter(letter)[place]}")
    return Panel(
        ", ".join(word for word in words if word),
        values,
        scale,
        kind,
        (part.axes.name("W"), part.of_letter("W")),
        (part.axes.name("H"), part.of_letter("H")),
        remark_on(values),
    )


def smaller(panel: Panel, side: int) -> Panel:
    """Return a panel of at most `side` lines and columns, by the mean over areas."""
    if panel.kind == "curve":
        return panel
    return replace(panel, values=averaged(panel.values, side, side))


def as_range(name: str, given: tuple[float, float] | None) -> Any:
    """Return a range of values, or of percentiles, checked.

    Raises
    ------
    oocdata.errors.ArgumentError
        If it isn't two finite numbers, the lower one first.

    Examples
    --------
    >>> as_range("limits", (0, 5))
    (0.0, 5.0)
    """
    if given is None:
        return None
    try:
        low, high = (float(one) for one in given)
    except (TypeError, ValueError):
        low, high = np.nan, np.nan
    most = (0.0, 100.0) if name == "percentile" else (-np.inf, np.inf)
    if not (np.isfinite([low, high]).all() and most[0] <= low < high <= most[1]):
        within = ", from 0 to 100" if name == "percentile" else ""
        raise ArgumentError(
            f"`{name}` must be two numbers{within}, the lower one first; got {given}."
        )
    return low, high
