"""Panels: the single pictures that sheets, films and terminals are made of."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocdata.errors import ArgumentError, MissingDependencyError
from oocdata.tools.pictures.scale import BAD, Scale, colours, shares

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Panel", "averaged", "check_folder", "enlarged", "painted", "pillow", "remark_on"]

_LINE = (31, 119, 180)
_LINES = (_LINE, (214, 106, 16), (44, 140, 44), (190, 40, 50), (120, 80, 160), (120, 90, 60))


@dataclass(frozen=True, slots=True, eq=False)
class Panel:
    """One picture: an image, a colour image, or curves.

    Attributes
    ----------
    place : str
        What it shows of the element: ``"x, channel 0"``; empty where it is all of it.
    values : ndarray of float64
        ``(height, width)``; ``(height, width, 3)`` for colour images; ``(curves, length)``.
    scale : Scale
    kind : {"image", "colour", "curve"}
    x, y : (str, sequence of int)
        Name of the axis, and the places on it of the values that were read, ascending. There may be
        fewer values in `values`, where an image was averaged.
    remark : str
        What is to be known of the values that were read; see `remark_on`.
    names : tuple of str
        Of the curves, where there are several.
    """

    place: str
    values: NDArray[np.float64]
    scale: Scale
    kind: str
    x: tuple[str, Sequence[int]]
    y: tuple[str, Sequence[int]]
    remark: str = ""
    names: tuple[str, ...] = ()

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the image that was read."""
        return len(self.y[1]), len(self.x[1])


def remark_on(values: NDArray[np.float64]) -> str:
    """Return what is to be known of values: constant ones, and those that are not finite.

    Examples
    --------
    >>> remark_on(np.array([1.0, 2.0])), remark_on(np.ones(3)), remark_on(np.array([np.nan, 1.0]))
    ('', 'constant 1', '50.0% not finite')
    """
    finite = values[np.isfinite(values)]
    wrong = 100 * (values.size - finite.size) / values.size
    if finite.size == 0:
        return "nothing finite"
    if wrong:
        # Neither 0.0% nor 100.0%, which would say "none" and "all".
        share = "<0.1" if wrong < 0.1 else ">99.9" if wrong > 99.9 else f"{wrong:.1f}"
        return f"{share}% not finite"
    return f"constant {finite[0]:.4g}" if finite.min() == finite.max() else ""


def averaged(values: NDArray[np.float64], height: int, width: int) -> NDArray[np.float64]:
    """Return an image of at most `height` lines and `width` columns, by the mean over areas.

    The mean is that of the finite values, and NaN where they are less than half of an area.

    Examples
    --------
    >>> averaged(np.array([[0.0, 2.0, 4.0], [2.0, np.nan, np.nan]]), 1, 2)
    array([[1.33333333, 4.        ]])
    """
    steps = tuple(
        -(-length // max(1, most))
        for length, most in zip(values.shape[:2], (height, width), strict=True)
    )
    if steps == (1, 1):
        return values
    finite = np.isfinite(values)
    counts = _sums(finite.astype(np.float64), steps)
    area = prod(steps)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # Divided first, because the sum of large values may overflow.
        means = _sums(np.where(finite, values / area, 0.0), steps) / counts * area
    few = 2 * counts < _sums(np.ones(values.shape), steps)
    return np.where(few, np.nan, np.nan_to_num(means))


def _sums(values: NDArray[np.float64], steps: Sequence[int]) -> NDArray[np.float64]:
    """Return the sums over areas of so many lines and columns."""
    for axis, step in enumerate(steps):
        values = np.add.reduceat(values, np.arange(0, values.shape[axis], step), axis=axis)
    return values


def enlarged(image: NDArray[Any], height: int, width: int) -> NDArray[Any]:
    """Return an image at a size of its own, each value repeated or left out.

    Examples
    --------
    >>> enlarged(np.array([[1, 2]]), 2, 4)
    array([[1, 1, 2, 2],
           [1, 1, 2, 2]])
    """
    lines = np.arange(height) * image.shape[0] // height
    columns = np.arange(width) * image.shape[1] // width
    larger: NDArray[Any] = image[lines][:, columns]
    return larger


def painted(panel: Panel, height: int, width: int) -> NDArray[np.uint8]:
    """Return a panel as pixels.

    Returns
    -------
    ndarray of uint8, shape (height, width, 3)
    """
    if panel.kind == "curve":
        return _painted_curves(panel, height, width)
    return enlarged(colours(panel.scale, averaged(panel.values, height, width)), height, width)


def _painted_curves(panel: Panel, height: int, width: int) -> NDArray[np.uint8]:
    draw = pillow("ImageDraw")
    image = pillow("Image").new("RGB", (width, height), "white")
    pen = draw.Draw(image)
    places = np.asarray(panel.x[1], np.float64) - panel.x[1][0]
    across = places / (places[-1] or 1.0) * (width - 1)
    for number, curve in enumerate(panel.values):
        down = (1 - shares(panel.scale, curve)) * (height - 1)
        for start, stop in _runs(np.isfinite(curve)):
            points = np.stack([across[start:stop], down[start:stop]], axis=1)
            points = np.repeat(points, 2, axis=0) if len(points) == 1 else points
            pen.line([tuple(point) for point in points.tolist()], _LINES[number % len(_LINES)])
        for place in across[~np.isfinite(curve)]:
            pen.point((float(place), height - 1), BAD)
    return np.asarray(image, np.uint8)


def _runs(good: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return the runs of True as (start, stop)."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], good, [False]))))
    return [(int(a), int(b)) for a, b in edges.reshape(-1, 2)]


def pillow(module: str) -> Any:
    """Return a module of Pillow.

    Raises
    ------
    oocdata.errors.MissingDependencyError
        If it isn't installed.
    """
    import importlib

    try:
        return importlib.import_module(f"PIL.{module}")
    except ImportError as error:
        raise MissingDependencyError(
            f"pictures are written with Pillow; {error}. Install it: "
            "pip install 'oocdata[pictures]'."
        ) from error


def check_folder(path: Path, suffixes: tuple[str, ...]) -> None:
    """Refuse a picture's name before it is drawn.

    Raises
    ------
    oocdata.errors.ArgumentError
        If its folder doesn't exist or can't be written to, or it has another suffix.
    """
    if path.suffix.lower() not in suffixes:
        raise ArgumentError(
            f"the picture's name must end in {', '.join(suffixes)}; got {path.name!r}."
        )
    if not path.parent.is_dir():
        raise ArgumentError(f"the picture's folder must exist; got '{path.parent}'.")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ArgumentError(
            f"the picture's folder must be writable; got '{path.parent.absolute()}'. Name another "
            "place for it; on the command line by --output."
        )
