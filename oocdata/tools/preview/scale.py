"""Make the panels of a preview, and the scales that map values to colours or heights.

Each channel, or column of a table, has a scale, because units may differ; all frames share it, so
that they can be compared. Its range is given, or from the 1st to the 99th percentile of the values
shown. If values of both signs matter (the smaller side reaches a tenth of the larger), the range is
symmetric, and the colours diverge around 0. The frames of a pair share a scale, and their
difference has another. Three channels are red, green and blue if they are uint8, or floats from 0
to 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Ints
from oocdata.datasets.dataset import Dataset
from oocdata.datasets.view import View
from oocdata.datasets.windows import Windows
from oocdata.index import take
from oocdata.tools.preview.parts import Part, comparable, listed

COLOUR = "red, green and blue"
"""`Scale.how` of a colour image."""

_PERCENTILES = (1, 99)
_SIGNED = 0.1


@dataclass(frozen=True, slots=True)
class Scale:
    """A map from values to colours or heights."""

    label: str  # a channel, an array of the element, or "" for all values
    low: float  # the range; values outside have the colour of its end
    high: float
    colormap: str | None  # of matplotlib; None for colour images and for curves
    how: str  # how the range was found, in words


@dataclass(frozen=True, slots=True, eq=False)
class Panel:
    """One picture: an image, a colour image, or curves."""

    place: str  # the part of the element: "x, channel 0"; empty for all of it
    values: NDArray[np.float64]  # (height, width), (height, width, 3) or (curves, length)
    scale: Scale
    kind: str  # "image", "colour" or "curve"
    x: tuple[str, Sequence[int]]  # name of the axis, and its positions shown, ascending
    y: tuple[str, Sequence[int]] = ("", (0,))

    @property
    def aspect(self) -> float:
        """Height of the drawn panel, divided by its width."""
        if self.kind == "curve":
            return 0.4
        return float(np.clip(self.values.shape[0] / self.values.shape[1], 0.1, 4.0))


def scale_of(
    label: str,
    array: NDArray[np.float64],
    *,
    kind: str = "image",
    signed: bool = False,
    sequential: str = "viridis",
) -> Scale:
    """Return the scale of an array.

    The range of curves holds all values. `signed` asks for diverging
    colours, as for a difference; `sequential` is the colormap of values of one sign.
    """
    finite = array[np.isfinite(array)]
    low, high, how = 0.0, 1.0, "no finite value"
    if finite.size:
        least, most = float(finite.min()), float(finite.max())
        low, high = np.percentile(finite, _PERCENTILES).tolist()
        how = "percentiles {} to {}".format(*_PERCENTILES)
        if kind == "curve" or low == high:  # nearly all values are equal: show the others
            low, high, how = least, most, "minimum to maximum"
        how = "constant" if least == most else how
    diverging = signed or (low < 0 < high and min(-low, high) >= _SIGNED * max(-low, high))
    colormap = None
    if kind == "image":
        if diverging and finite.size:
            low, high = -max(-low, high), max(-low, high)
            how += ", symmetric around 0"
        colormap = "RdBu_r" if diverging else sequential
    if low == high:
        low, high = low - (abs(low) / 2 or 0.5), high + (abs(low) / 2 or 0.5)
    return Scale(label, low, high, colormap, how)


_Positions: TypeAlias = tuple[str, Sequence[int]]
"""The name of an axis, and its positions shown, ascending."""

Array = NDArray[np.float64]
"""The values of a part, shape (n, slices, channels, height, width)."""


def panels_of(
    dataset: Dataset, parts: Sequence[Part], positions: Ints, arrays: Sequence[Array]
) -> dict[str, tuple[Any, ...]]:
    """Return the rows, labels, elements and scales of a `Preview`; `arrays` are from `read`."""
    rows = positions[:, None]  # stored rows of each element, if known; otherwise its position
    windows = dataset if isinstance(dataset, Windows) and dataset.view is not None else None
    if isinstance(dataset, View):
        rows = take(dataset.rows, positions)[:, None]
    elif windows is not None:
        rows = take(windows.view.rows, windows.rows(positions))
    word = "row" if isinstance(dataset, View | Windows) else "element"
    row_numbers = tuple(map(tuple, rows.tolist()))
    labels = [_label(word, element_rows) for element_rows in rows]
    across: _Positions | None = None
    pair, of_one_view = comparable(parts), windows and len(parts) == len(windows.anchored) == 2
    if all(part.axes.kind in ("number", "table") for part in parts):
        # A single element, of which x is along the rows.
        order = np.argsort(rows[:, 0], kind="stable")
        arrays = [array[order].transpose(3, 1, 2, 4, 0) for array in arrays]
        across, labels = (word, rows[order, 0].tolist()), [_label(word, np.unique(rows))]
        pair = of_one_view = False
    shared: list[Scale] = []
    if pair or of_one_view:
        shared = _scales(replace(parts[0], name=""), _by_channel(*arrays))
    drawn: list[tuple[Part, Array, list[Scale]]] = []
    for part, array in zip(parts, arrays, strict=True):
        if part.axes.kind == "number" and across is None:
            values = [f"{part.name} {value:.6g}" for value in array.ravel().tolist()]
            labels = list(map(", ".join, zip(labels, values, strict=True)))
        else:
            drawn.append((part, array, shared or _scales(part, _by_channel(array))))
    if pair:
        with np.errstate(invalid="ignore", over="ignore"):
            change = arrays[1] - arrays[0]
        part = replace(parts[0], name="|y| - |x|" if parts[0].dtype.kind == "c" else "y - x")
        drawn.append((part, change, _scales(part, _by_channel(change), signed=True)))
    elements = (
        tuple(chain(*(_panels(part, array[at], scales, across) for part, array, scales in drawn)))
        for at in range(len(labels))
    )
    return {
        "rows": row_numbers,
        "labels": tuple(labels),
        "elements": tuple(elements),
        "scales": tuple(dict.fromkeys(scale for _, _, scales in drawn for scale in scales)),
    }


def _by_channel(*arrays: Array) -> Array:
    """Return all values of each channel, shape (channels, values)."""
    return np.concatenate(
        [np.moveaxis(array, 2, 0).reshape(array.shape[2], -1) for array in arrays], axis=1
    )


def _scales(part: Part, values: Array, *, signed: bool = False) -> list[Scale]:
    """Return the scale of each channel, or a single scale for colour images."""
    if part.is_colour and not signed:
        finite = values[np.isfinite(values)]
        is_float = part.dtype.kind == "f" and finite.size > 0
        if part.dtype == np.uint8 or (is_float and 0 <= finite.min() < finite.max() <= 1):
            return [Scale(part.name, 0.0, 1.0 if is_float else 255.0, None, COLOUR)]
    kind = "image" if part.axes.kind == "image" else "curve"
    colormap = "gray" if part.dtype.itemsize == 1 else "viridis"
    return [
        scale_of(part.words(C=channel), values, kind=kind, signed=signed, sequential=colormap)
        for channel, values in zip(part.of_letter("C"), values, strict=True)
    ]


def _panels(
    part: Part, frames: Array, scales: Sequence[Scale], across: _Positions | None
) -> Iterator[Panel]:
    """Yield the panels of one element; frames have shape (slices, channels, height, width)."""
    x = across or (part.axes.name("W"), part.of_letter("W"))
    y = part.axes.name("H"), part.of_letter("H")
    kind = "image" if part.axes.kind == "image" else "curve"
    slices = product(part.of_letter("T"), part.of_letter("D"))
    for (time, depth), frame in zip(slices, frames, strict=True):
        if scales[0].how == COLOUR:
            image = np.moveaxis(frame, 0, -1)
            yield Panel(part.words(T=time, D=depth), image, scales[0], "colour", x, y)
            continue
        for channel, values, scale in zip(part.of_letter("C"), frame, scales, strict=True):
            place = part.words(C=channel, T=time, D=depth)
            yield Panel(place, values, scale, kind, x, y)


def _label(word: str, rows: NDArray[Any]) -> str:
    """Return rows as text, without the repeated rows of a padded window."""
    distinct = list(dict.fromkeys(rows.tolist()))
    return f"{word}{'s' * (len(distinct) > 1)} {listed(distinct)}"
