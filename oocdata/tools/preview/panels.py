"""From what was read to panels: which arrays an element has, what is shared, what is a colour."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.datasets.dataset import Dataset
from oocdata.datasets.view import View
from oocdata.datasets.windows import Windows
from oocdata.errors import EmptyError
from oocdata.index import take
from oocdata.tools.pictures.panel import Panel
from oocdata.tools.pictures.scale import Scale
from oocdata.tools.preview.axes import Axes, axes_of
from oocdata.tools.preview.names import Named
from oocdata.tools.preview.parts import Part, alike
from oocdata.tools.preview.pictures import Drawing, Pictures, by_channel, smaller

__all__ = ["Made", "named_leaves", "panels_of", "parts_of"]

_PANEL_VALUES = 4 * 2**20
_MOST_PANELS = 8


@dataclass(frozen=True, slots=True)
class Made:
    """What a preview is made of; see `Preview`."""

    rows: tuple[tuple[int, ...], ...]
    labels: tuple[str, ...]
    elements: tuple[tuple[Panel, ...], ...]
    scales: tuple[Scale, ...]
    notes: tuple[str, ...]


def named_leaves(tree: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a tree with their names: keys, numbers, and x and y for a pair.

    Examples
    --------
    >>> list(named_leaves((1, {"a": 2, "b": (3,)})))
    [('x', 1), ('y a', 2), ('y b 0', 3)]
    """
    if isinstance(tree, tuple):
        names = ("x", "y") if len(tree) == 2 else tuple(map(str, range(len(tree))))
        named = zip(names, tree, strict=True)
    elif isinstance(tree, dict):
        named = zip(tree.keys(), tree.values(), strict=True)
    else:
        yield name, tree
        return
    for word, part in named:
        yield from named_leaves(part, f"{name} {word}".strip())


def parts_of(
    dataset: Dataset, layout: str, channels: Sequence[int] | None, named: Named
) -> tuple[Part, ...]:
    """Return what is shown of each array of an element."""
    timed = isinstance(dataset, Windows) and dataset.time_axis
    found = list(named_leaves(dataset.spec))
    pictures = sum(leaf.shape != () for _, leaf in found)
    most = max(1, _MOST_PANELS // max(1, pictures))
    parts = []
    for name, leaf in found:
        element = leaf.shape[1:] if timed else leaf.shape
        if 0 in element:
            raise EmptyError(f"a row must hold a value to be shown; got rows of {element}.")
        axes = axes_of(element, layout if element else "auto", named.axes)
        if timed:
            axes = axes.in_time(leaf.shape[0])
        wanted = channels if "C" in axes.letters or len(found) == 1 else None
        parts.append(Part.of(name, axes, leaf.dtype, wanted, most))
    return tuple(parts)


def panels_of(
    dataset: Dataset,
    parts: Sequence[Part],
    positions: NDArray[np.int64],
    arrays: Sequence[NDArray[Any]],
    drawing: Drawing,
) -> Made:
    """Return the panels of what `read` returned, with the scales that they share."""
    frames = [array.astype(np.float64, copy=False) for array in arrays]
    rows, labels = _rows(dataset, positions)
    pictures = Pictures(drawing)
    pictures.notes = [note for part in parts for note in _notes(part)]
    columns: list[list[Panel]] = []
    if all(part.axes.kind == "number" for part in parts):
        word = "row" if isinstance(dataset, View | Windows) else "element"
        columns = [_over_rows(parts, word, rows, frames, pictures)]
        if len(labels) > 1:
            labels = [f"{word}s {min(map(min, rows)):,} to {max(map(max, rows)):,}"]
    else:
        pair = alike(parts)
        shared = None
        if pair or (isinstance(dataset, Windows) and len(parts) == 2):
            shared = by_channel(*frames)
        for part, array in zip(parts, frames, strict=True):
            if part.axes.kind == "number":
                labels = [
                    f"{label}, {part.name} {value:.6g}"
                    for label, value in zip(labels, array.ravel(), strict=True)
                ]
            else:
                columns.append(pictures.of(part, array, shared))
        if shared is not None:
            # The second array has the scales of the first.
            pictures.scales = pictures.scales[: len(pictures.scales) // 2]
        if pair:
            columns.append(pictures.difference(parts[0], arrays[1], arrays[0]))
    count = len(labels)
    each = sum(len(column) for column in columns) // count
    side = int(np.clip(np.sqrt(_PANEL_VALUES / (count * each)), 64, 512))
    elements = tuple(
        tuple(smaller(panel, side) for column in columns for panel in column[number::count])
        for number in range(count)
    )
    notes = tuple(dict.fromkeys(pictures.notes))
    return Made(rows, tuple(labels), elements, tuple(pictures.scales), notes)


def _over_rows(
    parts: Sequence[Part],
    word: str,
    rows: Sequence[tuple[int, ...]],
    arrays: Sequence[NDArray[np.float64]],
    pictures: Pictures,
) -> list[Panel]:
    """Return one panel of the numbers that rows are, a curve for each of an element's.

    Each number stands at the first row of its element, because rows need not be evenly spread.
    """
    places = np.array([some[0] for some in rows])
    order = np.argsort(places, kind="stable")
    frames = np.stack([array.ravel()[order] for array in arrays])[None, None, :, None, :]
    axes = Axes("CW", (len(arrays), len(rows)), ("number", word))
    kind = np.result_type(*(part.dtype for part in parts))
    part = Part("", axes, kind, (range(len(arrays)), places[order].tolist()))
    (panel,) = pictures.of(part, frames)
    names = tuple(part.name for part in parts) if len(parts) > 1 else ()
    return [replace(panel, names=names)]


def _notes(part: Part) -> list[str]:
    name = f"{part.name}: " if part.name else ""
    notes = [f"{name}{said}" for said in part.left_out()]
    if not part.axes.certain:
        notes.append(
            f"{name}the axes, {part.axes.letters}, are a guess: `layout` says which they are"
        )
    return notes


def _rows(
    dataset: Dataset, positions: NDArray[np.int64]
) -> tuple[tuple[tuple[int, ...], ...], list[str]]:
    """Return the rows in storage of each element, and its label."""
    if not isinstance(dataset, View | Windows):
        return tuple((int(one),) for one in positions), [f"element {one:,}" for one in positions]
    rows = _row_numbers(dataset, positions).tolist()
    return tuple(tuple(some) for some in rows), [_label(some) for some in rows]


def _row_numbers(dataset: View | Windows, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the numbers of the rows of each element, shape (elements, rows)."""
    if isinstance(dataset, View):
        return take(dataset.rows, positions)[:, None]
    first = (dataset.inputs - 1) * dataset.stride + dataset.horizon
    within = [number * dataset.stride for number in range(dataset.inputs)]
    within += [first + number * dataset.stride for number in range(dataset.targets)]
    starts = dataset.starts(take(dataset.chosen, positions))
    return take(dataset.view.rows, starts[:, None] + np.array(within))


def _label(rows: Sequence[int]) -> str:
    """Return rows in words.

    Examples
    --------
    >>> _label([7]), _label([7, 8]), _label([7, 8, 9])
    ('row 7', 'rows 7 and 8', 'rows 7 to 9')
    """
    if len(rows) == 1:
        return f"row {rows[0]:,}"
    word = "and" if len(rows) == 2 else "to"
    return f"rows {rows[0]:,} {word} {rows[-1]:,}"
