"""Scales and panels: which colour, or which height, a value has; and a single picture.

All frames share the scale of a channel, so that they can be compared. Its range is that from the
1st to the 99th percentile of the values that are shown, or is given. Where values of both signs
matter (the smaller side reaches a tenth of the larger) it is symmetric, and the colours diverge
around 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.errors import ArgumentError
from oocdata.tools.libraries import matplotlib
from oocdata.tools.stats.moments import Summary

__all__ = ["BAD", "COLOUR", "Panel", "Scale", "colormap_of", "colours", "scale_of"]

BAD = (255, 0, 255)
"""The colour of what is not finite: magenta, which no map here holds."""

COLOUR = "red, green and blue"
"""Where the range of a colour image comes from."""

_PERCENTILES = (1, 99)
_SIGNED = 0.1


@dataclass(frozen=True, slots=True)
class Scale:
    """How values become colours or heights, and the values in numbers."""

    label: str  # what it is for: a channel, a part of the element, or "" for all
    low: float  # the range that is shown; what lies outside has the colour of its end
    high: float
    colormap: str | None  # of matplotlib; None for colour images and for curves
    how: str  # where the range comes from, in words
    values: Summary  # of all values shown


@dataclass(frozen=True, slots=True, eq=False)
class Panel:
    """One picture: an image, a colour image, or curves."""

    place: str  # what it shows of the element: "x, channel 0"; empty where it is all of it
    values: NDArray[np.float64]  # (height, width), (height, width, 3) or (curves, length)
    scale: Scale
    kind: str  # "image", "colour" or "curve"
    x: tuple[str, Sequence[int]]  # name of the axis, and the places on it, ascending
    y: tuple[str, Sequence[int]] = ("", (0,))

    @property
    def aspect(self) -> float:
        """Height by width at which it is drawn."""
        if self.kind == "curve":
            return 0.4
        return float(np.clip(self.values.shape[0] / self.values.shape[1], 0.1, 4.0))

    @property
    def remark(self) -> str:
        """What is to be known of the values: constant ones, and those that are not finite."""
        finite = self.values[np.isfinite(self.values)]
        wrong = 100 * (1 - finite.size / self.values.size)
        if finite.size == 0:
            return "nothing finite"
        if wrong:
            # Neither 0.0% nor 100.0%, which would say "none" and "all".
            share = "<0.1" if wrong < 0.1 else ">99.9" if wrong > 99.9 else f"{wrong:.1f}"
            return f"{share}% not finite"
        return f"constant {finite[0]:.4g}" if finite.min() == finite.max() else ""


def scale_of(
    label: str,
    array: NDArray[np.float64],
    limits: tuple[float, float] | None = None,
    colormap: str | None = None,
    *,
    kind: str = "image",
    signed: bool = False,
    sequential: str = "viridis",
) -> Scale:
    """Return the scale of an array's values.

    Curves show all values; colour images need `limits`. The values of a difference are `signed`;
    `sequential` is the map of values of one sign.

    >>> scale = scale_of("", np.arange(101.0))
    >>> scale.low, scale.high, scale.how, float(scale.values.mean)
    (1.0, 99.0, 'percentiles 1 to 99', 50.0)
    >>> scale_of("", np.arange(-50.0, 51.0)).colormap
    'RdBu_r'
    """
    finite = array[np.isfinite(array)]
    values = Summary.of(np.ascontiguousarray(array), None)[0]
    low, high, how = 0.0, 1.0, "no finite value"
    if finite.size:
        least, most = float(values.min), float(values.max)
        low, high = (float(one) for one in np.percentile(finite, _PERCENTILES))
        how = "percentiles {} to {}".format(*_PERCENTILES)
        if kind == "curve" or low == high:  # nearly all one: the others are what there is to see
            room = 0.015 * (most - least) if kind == "curve" else 0.0
            low, high, how = least - room, most + room, "minimum to maximum"
        how = "constant" if least == most else how
    if limits is not None:
        low, high, how = *limits, "as given"
    diverging = signed or (low < 0 < high and min(-low, high) >= _SIGNED * max(-low, high))
    if kind == "image":
        if diverging and limits is None and finite.size:
            low, high = -max(-low, high), max(-low, high)
            how += ", symmetric around 0"
        colormap = colormap or ("RdBu_r" if diverging else sequential)
    elif kind == "colour":
        how = COLOUR
    if low == high:
        low, high = low - (abs(low) / 2 or 0.5), high + (abs(low) / 2 or 0.5)
    return Scale(
        label=label,
        low=low,
        high=high,
        colormap=colormap if kind == "image" else None,
        how=how,
        values=values,
    )


def colours(scale: Scale, image: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Return an image, or a colour image, as (height, width, 3) bytes: magenta if not finite."""
    finite: NDArray[Any] = np.isfinite(image)
    share = (np.where(finite, image, scale.low) - scale.low) / (scale.high - scale.low)
    share = np.clip(share, 0, 1)
    if scale.colormap is None:
        drawn = np.round(share * 255).astype(np.uint8)
        finite = np.asarray(finite.all(axis=-1))
    else:
        drawn = colormap_of(scale.colormap)(share, bytes=True)[..., :3]
    return np.where(finite[..., None], drawn, np.array(BAD, np.uint8))


def colormap_of(name: str) -> Any:
    """Return a colormap of matplotlib, or say which names are near."""
    colormaps = matplotlib().colormaps
    if name not in colormaps:
        import difflib

        near = ", ".join(difflib.get_close_matches(name, list(colormaps), n=3))
        raise ArgumentError(
            f"`colormap` must be a name of matplotlib's, such as viridis, gray or RdBu_r; got "
            f"{name!r}.{f' Near: {near}.' if near else ''}"
        )
    return colormaps[name]
