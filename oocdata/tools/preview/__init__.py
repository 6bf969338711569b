"""A look at an array: some rows, or pairs of them, as pictures, with what their values are like."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from oocdata.datasets.dataset import Dataset
from oocdata.datasets.open import open as open_view
from oocdata.datasets.view import View
from oocdata.datasets.windows import Windows
from oocdata.errors import ArgumentError, EmptyError
from oocdata.index import as_count, as_positions
from oocdata.tools.pictures.panel import Panel, check_folder
from oocdata.tools.pictures.scale import Scale, check_colormap
from oocdata.tools.preview.axes import Axes
from oocdata.tools.preview.names import Named, names_in_file
from oocdata.tools.preview.panels import named_leaves, panels_of, parts_of
from oocdata.tools.preview.pictures import Drawing, as_range
from oocdata.tools.preview.reading import (
    MOST_ELEMENTS,
    Rows,
    choose_positions,
    fitted,
    read,
    usual_count,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["SHEETS", "Preview", "preview"]

SHEETS = (".png", ".pdf", ".svg", ".jpg", ".jpeg", ".webp")
"""What a contact sheet's name may end in."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Preview:
    """What `preview` gives: pictures of some elements. Shows itself in a notebook.

    Attributes
    ----------
    path, key : str or None
        Of the file that the rows come from, where it is one.
    array : str
        Shape and dtype in words.
    axes : dict of str to Axes
        Of each array of an element, by its name; ``""`` where there is one.
    rows : tuple of tuple of int
        Of each element, the rows in storage that it is made of; positions, where it is not made of
        rows as they are.
    labels : tuple of str
        Of each element.
    elements : tuple of tuple of Panel
    scales : tuple of Scale
        What colours, or heights of curves, mean; with the values that are shown in numbers.
    unit : str or None
        The file's unit of the values.
    notes : tuple of str
        What was left out, thinned, packed or is a guess.
    """

    path: str | None
    key: str | None
    array: str
    axes: dict[str, Axes]
    rows: tuple[tuple[int, ...], ...]
    labels: tuple[str, ...]
    elements: tuple[tuple[Panel, ...], ...]
    scales: tuple[Scale, ...]
    unit: str | None
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        return f"<Preview: {len(self.elements)} elements of {self.array}>"

    def __str__(self) -> str:
        from oocdata.tools.preview.text import as_text

        return as_text(self)

    @property
    def shown_path(self) -> str | None:
        """The path; one below the current folder as seen from there."""
        return None if self.path is None else self.path.removeprefix(f"{os.getcwd()}{os.sep}")

    @property
    def title(self) -> str:
        """File, dataset, shape and dtype."""
        where = [word for word in (self.shown_path or "in memory", self.key) if word]
        return f"{', '.join(where)}: {self.array}"

    def as_json(self) -> dict[str, Any]:
        """Return everything but the pictures, for ``json.dumps``; no number in it is NaN."""
        from oocdata.tools.preview.text import as_json

        return as_json(self)

    def figure(self) -> Figure:
        """Return the contact sheet as a matplotlib figure of its own.

        Raises
        ------
        oocdata.errors.MissingDependencyError
            If matplotlib isn't installed.
        """
        from oocdata.tools.pictures.sheet import sheet

        return sheet(self)

    def png(self) -> bytes:
        """Return the contact sheet as a PNG."""
        return _encoded(self.figure(), "png")

    def _repr_png_(self) -> bytes:
        return self.png()

    def save(self, path: str | Path) -> None:
        """Write the contact sheet.

        Parameters
        ----------
        path : path
            Ends in ``.png``, or ``.pdf``, ``.svg``, ``.jpg``, ``.webp``.

        Raises
        ------
        oocdata.errors.ArgumentError
            If the name has another suffix, or its folder doesn't exist.
        """
        target = Path(path).expanduser()
        check_folder(target, SHEETS)
        target.write_bytes(_encoded(self.figure(), target.suffix[1:].lower()))

    def animate(self, path: str | Path, frames_per_second: float = 10.0) -> None:
        """Write a film: one frame for each element, all with the same scales.

        Parameters
        ----------
        path : path
            Ends in ``.gif`` or ``.webp``.
        frames_per_second : float
            From 0.02 to 50.

        Raises
        ------
        oocdata.errors.ArgumentError
            If the name or the speed doesn't do.
        oocdata.errors.MissingDependencyError
            If Pillow or matplotlib isn't installed.
        """
        from oocdata.tools.pictures.film import film

        target = Path(path).expanduser()
        film(target, self.title, self.labels, self.elements, frames_per_second)


def _encoded(figure: Figure, suffix: str) -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        # A box stands for a letter that the font lacks, which anybody sees.
        warnings.filterwarnings("ignore", message="(Glyph|Matplotlib currently does not support)")
        figure.savefig(buffer, format=suffix)
    return buffer.getvalue()


def preview(
    target: Any,
    *,
    rows: Rows = None,
    count: int | None = None,
    horizon: int | None = None,
    consecutive: bool = False,
    layout: str = "auto",
    channel: int | Sequence[int] | None = None,
    limits: tuple[float, float] | None = None,
    percentile: tuple[float, float] = (1.0, 99.0),
    colormap: str | None = None,
) -> Preview:
    """Look at some elements of a dataset.

    Little is read whatever the size of the file: see `oocdata.tools.preview.reading`. Histograms,
    means and ranges are of the values that are read, not of the whole file.

    Parameters
    ----------
    target : Dataset, or what `oocdata.open` takes
        A View is shown row by row; next-frame pairs, and other tuples of two equal arrays, with
        their difference; windows moment by moment; zipped datasets array by array.
    rows : slice or sequence of int, optional
        Positions: a range of which `count` are chosen, or a list of at most 256, each shown; then
        `count` is left out.
    count : int, optional
        How many elements, at most 256; by default as many as make about 24 pictures, at most 12.
    horizon : int, optional
        Show pairs ``(row i, row i + horizon)`` of a View.
    consecutive : bool
        The first `count` elements instead of evenly spread ones: for `Preview.animate`.
    layout : str
        The axes of a row: a letter for each, of H (y, downwards), W (x), C (channel), D (depth) and
        T (time); ``"auto"``: see `oocdata.tools.preview.axes`.
    channel : int or sequence of int, optional
        The channels to show; by default the first ones, and three channels of uint8, or of floats
        from 0 to 1, as one colour image.
    limits : (float, float), optional
        The range of values that colours stand for.
    percentile : (float, float)
        Without `limits`: percentiles of the values shown, between which the range lies. It is
        symmetric around 0, with diverging colours, where values of both signs matter.
    colormap : str, optional
        A name of matplotlib's.

    Returns
    -------
    Preview
        Shows itself in a notebook; ``print`` it, ``.save("a.png")``, ``.animate("a.gif")``.

    Raises
    ------
    oocdata.errors.ArgumentError, oocdata.errors.PositionError
        If an argument breaks its rule.
    oocdata.errors.SourceError
        If the file can't be read.

    Examples
    --------
    >>> import numpy as np, oocdata as ooc
    >>> frames = ooc.open(np.arange(5 * 8 * 6).reshape(5, 8, 6))
    >>> found = preview(frames.next_frame(), count=2)
    >>> [panel.place for panel in found.elements[0]]
    ['x', 'y', 'y - x']
    >>> found.labels, found.axes["x"].letters
    (('rows 0 and 1', 'rows 3 and 4'), 'HW')
    """
    dataset = target if isinstance(target, Dataset) else open_view(target)
    if horizon is not None:
        if not isinstance(dataset, View):
            raise ArgumentError(f"`horizon` must be left out for {dataset!r}: pairs need a View.")
        dataset = dataset.next_frame(horizon)
    drawing = Drawing(as_range("limits", limits), as_range("percentile", percentile), colormap)
    if colormap is not None:
        check_colormap(colormap)
    if len(dataset) == 0:
        raise EmptyError(f"a dataset must have an element to show; {dataset!r} has none.")
    most = None if count is None else as_count("count", count)
    if most is not None and most > MOST_ELEMENTS:
        raise ArgumentError(f"`count` must be at most {MOST_ELEMENTS}; got {most}.")
    if rows is not None and not isinstance(rows, slice):
        rows = as_positions(rows, len(dataset)).tolist()
        if most is not None:
            raise ArgumentError(
                "`count` must be left out where `rows` is a list, which is shown in full; got "
                f"{most}."
            )
    named, view = _named(dataset)
    parts = parts_of(dataset, layout, _channels(channel), named)
    number = min(most or usual_count(dataset, parts), len(dataset))
    if isinstance(rows, list):
        number = max(1, min(len(rows), MOST_ELEMENTS))
    parts = fitted(dataset, parts, number)
    positions = choose_positions(dataset, parts, number, rows, consecutive=consecutive)
    made = panels_of(dataset, parts, positions, read(dataset, parts, positions), drawing)
    source = None if view is None else view.storage
    packed = [f"packed ({source.packed}): as stored"] if source and source.packed else []
    return Preview(
        path=None if source is None else source.path,
        key=None if source is None else source.key,
        array=_array(dataset),
        axes={part.name: part.axes for part in parts},
        rows=made.rows,
        labels=made.labels,
        elements=made.elements,
        scales=made.scales,
        unit=None if packed else named.unit,  # it is that of the numbers once unpacked
        notes=(*made.notes, *packed),
    )


def _channels(given: int | Sequence[int] | None) -> tuple[int, ...] | None:
    if given is None:
        return None
    try:
        return tuple(map(index, given if np.ndim(given) else [given]))  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"`channel` must be a whole number, or some of them; got {given!r}."
        ) from error


def _named(dataset: Dataset) -> tuple[Named, View | None]:
    """Return the names in the file that all rows come from, if it is one."""
    view = dataset.view if isinstance(dataset, Windows) else dataset
    if not isinstance(view, View):
        return Named(), None
    return names_in_file(view), view


def _array(dataset: Dataset) -> str:
    arrays = [str(leaf) for _, leaf in named_leaves(dataset.spec)]
    one = len(dataset) == 1
    if isinstance(dataset, View):
        if not dataset.element:
            return f"{len(dataset):,} number{'' if one else 's'}, {dataset.dtype}"
        return f"{len(dataset):,} row{'' if one else 's'} of {arrays[0]}"
    if len(arrays) == 2 and len(set(arrays)) == 1:
        return f"{len(dataset):,} pair{'' if one else 's'} of {arrays[0]}"
    return f"{len(dataset):,} element{'' if one else 's'} of {' and '.join(arrays)}"
