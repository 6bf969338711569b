"""From values to colours: the range that is shown, and the map from it.

The range is shared by all frames of one scale, so that these can be compared. It lies between two
percentiles of the values that are shown, or is given. Where values of both signs matter (the
smaller side reaches a tenth of the larger) it is made symmetric, and the colours diverge around 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.errors import ArgumentError, MissingDependencyError
from oocdata.tools.pictures.values import Values, values_of

__all__ = [
    "BAD",
    "COLOUR",
    "DRAWABLE",
    "Scale",
    "check_colormap",
    "colours",
    "drawable",
    "scale_of",
    "shares",
    "widened",
]

BAD = (255, 0, 255)
"""The colour of what is not finite: magenta, which no map here holds."""

COLOUR = "red, green and blue"
"""Where the range of a colour image comes from."""

DRAWABLE = 1e300
"""What matplotlib reckons with must stay below the largest number, with margins and ticks."""

_LARGEST = float(np.finfo(np.float64).max)
_SIGNED = 0.1


@dataclass(frozen=True, slots=True)
class Scale:
    """How values become colours.

    Attributes
    ----------
    label : str
        What it is for: a channel, a part of the element, or ``""`` for all.
    low, high : float
        The range that is shown; what lies outside has the colour of its end.
    colormap : str or None
        A name of matplotlib's; None for colour images, whose values are the colours, and for
        curves, whose values are heights.
    how : str
        Where the range comes from, in words.
    values : Values
        Of what is shown.
    """

    label: str
    low: float
    high: float
    colormap: str | None
    how: str
    values: Values


def scale_of(
    label: str,
    array: NDArray[np.float64],
    *,
    whole: bool = False,
    limits: tuple[float, float] | None = None,
    percentile: tuple[float, float] = (1.0, 99.0),
    colormap: str | None = None,
    signed: bool = False,
    sequential: str = "viridis",
) -> Scale:
    """Return the scale of an array's values.

    Parameters
    ----------
    label : str
    array : ndarray of float64
    whole : bool
        Whether the values stand for integers.
    limits : (float, float), optional
        The range, instead of the percentiles.
    percentile : (float, float)
        Of the finite values.
    colormap : str, optional
        Instead of `sequential`, or of the diverging one.
    signed : bool
        Diverge around 0 in any case: what is shown is a difference.
    sequential : str
        The map of values of one sign.

    Examples
    --------
    >>> import numpy as np
    >>> scale = scale_of("", np.arange(101.0))
    >>> scale.low, scale.high, scale.how
    (1.0, 99.0, 'percentiles 1 to 99')
    >>> scale_of("", np.arange(-50.0, 51.0)).colormap
    'RdBu_r'
    """
    values = values_of(array, whole=whole)
    if limits is not None:
        low, high, how = *limits, "as given"
    elif values.minimum is None or values.maximum is None:
        low, high, how = 0.0, 1.0, "no finite value"
    elif values.minimum == values.maximum:
        low, high, how = values.minimum, values.maximum, "constant"
    else:
        low, high = (float(one) for one in np.percentile(array[np.isfinite(array)], percentile))
        how = f"percentiles {percentile[0]:g} to {percentile[1]:g}"
        if low == high:  # nearly all values are one: the others are what there is to see
            low, high, how = values.minimum, values.maximum, "minimum to maximum"
    diverging = signed or (low < 0 < high and min(-low, high) >= _SIGNED * max(-low, high))
    if diverging and limits is None and values.minimum is not None:
        high = max(abs(low), abs(high))
        low = -high
        how += ", symmetric around 0"
    if low == high:
        low, high = widened(low, high, abs(low) / 2 or 0.5)
    return Scale(label, low, high, colormap or ("RdBu_r" if diverging else sequential), how, values)


def colours(scale: Scale, image: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Return the colours of an image.

    Parameters
    ----------
    scale : Scale
    image : ndarray of float64, shape (height, width) or (height, width, 3)
        The latter where the scale is for colour images.

    Returns
    -------
    ndarray of uint8, shape (height, width, 3)
        What is not finite is magenta.
    """
    finite: NDArray[np.bool_] = np.isfinite(image)
    share = np.where(finite, shares(scale, image), 0.0)
    if scale.colormap is None:
        drawn = np.round(share * 255).astype(np.uint8)
        finite = np.all(finite, axis=-1, keepdims=False)
    else:
        drawn = _colormap(scale.colormap)(share, bytes=True)[..., :3]
    return np.where(finite[..., None], drawn, np.array(BAD, np.uint8))


def shares(scale: Scale, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return where values lie in a scale's range, from 0 to 1.

    Examples
    --------
    >>> scale = scale_of("", np.arange(3.0), limits=(0, 2))
    >>> shares(scale, np.array([-5.0, 0.5, np.inf]))
    array([0.  , 0.25, 1.  ])
    """
    # In units of the larger end, so that no difference overflows.
    unit = max(abs(scale.low), abs(scale.high))
    with np.errstate(invalid="ignore", over="ignore"):
        part = (values / unit - scale.low / unit) / (scale.high / unit - scale.low / unit)
    return np.clip(part, 0.0, 1.0)


def widened(low: float, high: float, room: float) -> tuple[float, float]:
    """Return a range with some room on either side, of finite numbers.

    Examples
    --------
    >>> widened(1.0, 1.7e308, 1e308)
    (-1e+308, 1.7976931348623157e+308)
    """
    return max(low - room, -_LARGEST), min(high + room, _LARGEST)


def drawable(low: float, high: float) -> tuple[float, float]:
    """Return a range, or as much of it as matplotlib can draw.

    Examples
    --------
    >>> drawable(-1.0, 1.7e308), drawable(1.6e308, 1.7e308)
    ((-1.0, 1e+300), (0.0, 1e+300))
    """
    low, high = (min(max(one, -DRAWABLE), DRAWABLE) for one in (low, high))
    return (low, high) if low < high else (min(high, 0.0), max(low, 0.0))


def check_colormap(name: str) -> None:
    """Refuse a colormap that matplotlib doesn't have.

    Raises
    ------
    oocdata.errors.ArgumentError
    """
    _colormap(name)


def _colormap(name: str) -> Any:
    try:
        from matplotlib import colormaps
    except ImportError as error:
        raise MissingDependencyError(
            f"pictures are drawn with matplotlib; {error}. Install it: "
            "pip install 'oocdata[pictures]'."
        ) from error
    if name not in colormaps:
        import difflib

        near = ", ".join(difflib.get_close_matches(name, list(colormaps), n=3))
        raise ArgumentError(
            f"`colormap` must be a name of matplotlib's, such as viridis, gray or RdBu_r; got "
            f"{name!r}.{f' Near: {near}.' if near else ''}"
        )
    return colormaps[name]
