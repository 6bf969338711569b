"""From what was read to panels: what shares a scale, and what is a colour.

Channels, and the columns of a table, have a scale each, because their units may differ. The two
frames of a pair share theirs, and their difference has one of its own around 0. Three channels are
red, green and blue where they are uint8, or floats that all lie from 0 to 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from oocdata.datasets.dataset import Dataset
from oocdata.datasets.view import View
from oocdata.datasets.windows import Windows
from oocdata.index import take
from oocdata.tools.preview.parts import Part, alike
from oocdata.tools.preview.scale import COLOUR, Panel, Scale, scale_of

__all__ = ["panels_of"]

Array = NDArray[np.float64]
"""Of a part: shape (n, slices, channels, height, width)."""


Limits: TypeAlias = tuple[float, float] | None


def panels_of(
    dataset: Dataset,
    parts: Sequence[Part],
    positions: NDArray[np.int64],
    arrays: Sequence[Array],
    limits: Limits = None,
    colormap: str | None = None,
) -> tuple[
    tuple[tuple[int, ...], ...], tuple[str, ...], tuple[tuple[Panel, ...], ...], tuple[Scale, ...]
]:
    """Return rows, labels, panels and scales of what `read` returned; see `Preview`."""
    rows = positions[:, None]  # of each element, in storage where they are known there
    if isinstance(dataset, View):
        rows = take(dataset.rows, positions)[:, None]
    elif isinstance(dataset, Windows) and dataset.view is not None:
        rows = take(dataset.view.rows, dataset.rows(positions))
    word = "row" if isinstance(dataset, View | Windows) else "element"
    if all(part.axes.kind in ("number", "table") for part in parts):
        panels = _over_rows(parts, word, rows[:, 0], arrays)
        scales = tuple(panel.scale for panel in panels)
        return tuple(map(tuple, rows.tolist())), (_label(word, np.unique(rows)),), (panels,), scales
    labels = [_label(word, some) for some in rows]
    shared: list[Scale] = []
    pair = isinstance(dataset, Windows) and dataset.view is not None
    if alike(parts) or (pair and len(parts) == len(dataset.anchors.parts) == 2):
        shared = _scales(replace(parts[0], name=""), _by_channel(*arrays), limits, colormap)
    drawn: list[tuple[Part, Array, list[Scale]]] = []
    for part, array in zip(parts, arrays, strict=True):
        if part.axes.kind == "number":
            values = array.ravel().tolist()
            labels = [f"{label}, {part.name} {value:.6g}"
                      for label, value in zip(labels, values, strict=True)]  # fmt: skip
        else:
            own = shared or _scales(part, _by_channel(array), limits, colormap)
            drawn.append((part, array, own))
    if alike(parts):
        with np.errstate(invalid="ignore", over="ignore"):
            change = arrays[1] - arrays[0]
        part = replace(parts[0], name="|y| - |x|" if parts[0].dtype.kind == "c" else "y - x")
        drawn.append((part, change, _scales(part, _by_channel(change), signed=True)))
    elements = [
        tuple(panel for part, array, own in drawn for panel in _panels(part, array[number], own))
        for number in range(len(labels))
    ]
    made = dict.fromkeys(scale for _, _, own in drawn for scale in own)
    return tuple(map(tuple, rows.tolist())), tuple(labels), tuple(elements), tuple(made)


def _by_channel(*arrays: Array) -> Array:
    """Return all values of each channel, shape (channels, values)."""
    return np.concatenate(
        [np.moveaxis(array, 2, 0).reshape(array.shape[2], -1) for array in arrays], axis=1
    )


def _scales(
    part: Part,
    values: Array,
    limits: Limits = None,
    colormap: str | None = None,
    *,
    signed: bool = False,
) -> list[Scale]:
    """Return the scale of each channel; or the one of colour images."""
    if part.is_colour and colormap is None and not signed:
        finite = values[np.isfinite(values)]
        unit = part.dtype.kind == "f" and finite.size > 0
        if part.dtype == np.uint8 or (unit and 0 <= finite.min() < finite.max() <= 1):
            limits = limits or (0.0, 1.0 if unit else 255.0)
            return [scale_of(part.name, values, limits, kind="colour")]
    return [
        scale_of(
            part.words(C=place),
            some,
            limits,
            colormap,
            kind="image" if part.axes.kind == "image" else "curve",
            signed=signed,
            sequential="gray" if part.dtype.itemsize == 1 else "viridis",
        )
        for place, some in zip(part.of_letter("C"), values, strict=True)
    ]


def _panels(part: Part, frames: Array, scales: Sequence[Scale]) -> list[Panel]:
    """Return the panels of one element, shape (slices, channels, height, width)."""
    across = part.axes.name("W"), part.of_letter("W")
    down = part.axes.name("H"), part.of_letter("H")
    kind = "image" if part.axes.kind == "image" else "curve"
    slices = product(part.of_letter("T"), part.of_letter("D"))
    panels = []
    for (time, depth), frame in zip(slices, frames, strict=True):
        at = {"T": time, "D": depth}
        if scales[0].how == COLOUR:
            colour = np.moveaxis(frame, 0, -1)
            panels.append(Panel(part.words(**at), colour, scales[0], "colour", across, down))
            continue
        for place, values, scale in zip(part.of_letter("C"), frame, scales, strict=True):
            panels.append(Panel(part.words(C=place, **at), values, scale, kind, across, down))
    return panels


def _over_rows(
    parts: Sequence[Part],
    word: str,
    rows: NDArray[np.int64],
    arrays: Sequence[Array],
) -> tuple[Panel, ...]:
    """Return a panel of each column, over the rows.

    Each number stands at the first row of its element, because rows need not be evenly spread.
    """
    order = np.argsort(rows, kind="stable")
    across = word, rows[order].tolist()
    tables = [array[order].reshape(len(order), -1) for array in arrays]
    panels = []
    for part, table in zip(parts, tables, strict=True):
        panels += [
            Panel(part.words(C=place), column[None], scale, "curve", across)
            for place, column, scale in zip(
                part.of_letter("C"), table.T, _scales(part, table.T), strict=True
            )
        ]
    return tuple(panels)


def _label(word: str, rows: NDArray[Any]) -> str:
    """Return rows in words."""
    rows = np.array(list(dict.fromkeys(rows.tolist())))  # of a padded window each once
    if len(rows) == 1:
        return f"{word} {rows[0]:,}"
    return f"{word}s {rows[0]:,} {'and' if len(rows) == 2 else 'to'} {rows[-1]:,}"
