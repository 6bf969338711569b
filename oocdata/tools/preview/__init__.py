"""Show a few elements of a dataset as pictures."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from oocdata.axes import Axes
from oocdata.datasets.dataset import Dataset
from oocdata.datasets.spec import leaves
from oocdata.datasets.view import View
from oocdata.engines.atomic import atomic_file, write_errors
from oocdata.errors import EmptyError
from oocdata.index import as_count
from oocdata.threads import silent
from oocdata.tools.opening import Opening
from oocdata.tools.preview.parts import (
    fitted,
    listed,
    parts_of,
    read,
    view_of,
)
from oocdata.tools.preview.scale import COLOUR, Panel, Scale, panels_of
from oocdata.tools.preview.sheet import FILMS, check_picture, film, sheet
from oocdata.tools.report import Report, counted, fields_text, rows_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_ELEMENTS = 256


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Preview(Report):
    """Pictures of a few elements, the result of `preview`. A notebook displays them."""

    name: str  #: the file and the dataset in it
    array: str  #: shape and dtype in words
    axes: dict[str, Axes]  #: axes of each array of an element, by name; ``""`` for a single array
    #: The stored rows of each element; its position, if it does not consist of stored rows.
    rows: tuple[tuple[int, ...], ...]
    labels: tuple[str, ...]  #: of each element; a single one for numbers, drawn as curves
    elements: tuple[tuple[Panel, ...], ...]
    scales: tuple[Scale, ...]  #: scales of colours and heights
    notes: tuple[str, ...]  #: what was left out, is packed, or is a guess

    def __repr__(self) -> str:
        return f"<Preview: {len(self.rows)} elements of {self.array}>"

    def __str__(self) -> str:
        first_rows = [rows[0] for rows in self.rows]
        single = all(len(rows) == 1 for rows in self.rows)
        axes = {name: str(axes) for name, axes in self.axes.items() if axes.letters}
        if len(set(axes.values())) == 1:
            axes = {"": next(iter(axes.values()))}
        noun = "row" if single and self.labels[0].startswith("row") else "element"
        number = counted(len(first_rows), noun)
        return fields_text(
            [
                ("file", self.name),
                ("array", self.array),
                *(("axes", f"{name}: {text}" if name else text) for name, text in axes.items()),
                ("shown", f"{number}{':' if single else ', from rows'} {listed(first_rows)}"),
                *(("note", note) for note in self.notes),
                *(("scale", _scale_text(scale)) for scale in self.scales),
            ]
        )

    def to_json(self) -> dict[str, Any]:
        """Return a dict of everything but the pictures, for ``json.dumps``."""
        found = Report.to_json(replace(self, elements=()))
        del found["elements"]
        return {**found, "panels": [panel.place for panel in self.elements[0]]}

    def figure(self) -> Figure:
        """Return the contact sheet as a matplotlib figure that is not registered with pyplot.

        Raises
        ------
        oocdata.errors.MissingDependencyError
            If matplotlib isn't installed.
        """
        return sheet(self)

    def _repr_png_(self) -> bytes:
        return self._encoded("png")

    def save(self, path: str | Path, *, fps: float = 10.0) -> None:
        """Write the contact sheet, or a film with one frame for each element.

        Parameters
        ----------
        path : path
            Ends in ``.png``, ``.jpg``, ``.pdf`` or ``.svg``; for a film, ``.gif`` or ``.webp``.
        fps : float
            Frames per second of a film, at most 50.

        Raises
        ------
        oocdata.errors.ArgumentError
            If the suffix is another one, or `fps` is out of range.
        oocdata.errors.SourceError
            If the path can't be written; an existing picture stays.
        oocdata.errors.MissingDependencyError
            If matplotlib isn't installed.
        """
        target = check_picture(Path(path))
        encoded = self._encoded(target.suffix[1:].lower(), fps)
        # A link is kept, and the file that it points to is written.
        with write_errors(str(target)), atomic_file(os.path.realpath(target)) as file:
            file.write(encoded)

    def _encoded(self, suffix: str, fps: float = 10.0) -> bytes:
        buffer = io.BytesIO()
        # Matplotlib warns of letters that the font lacks; the picture shows boxes for them.
        with silent("(Glyph|Matplotlib currently does not)"):
            if f".{suffix}" in FILMS:
                film(self, buffer, suffix, fps)
            else:
                self.figure().savefig(buffer, format=suffix)
        return buffer.getvalue()


def _scale_text(scale: Scale) -> str:
    """Describe the range and the colours of a scale."""
    colours = f", {scale.colormap}" if scale.colormap else ""
    return f"{scale.label or 'all'}: {scale.low:.5g} to {scale.high:.5g}, {scale.how}{colours}"


def preview(
    target: Any,
    key: str | None = None,
    *,
    count: int | None = None,
    layout: str = "auto",
) -> Preview:
    """Show a few elements of a dataset as pictures.

    About 128 MiB are read from a file of any size, or one element, unless `count` is given. Of
    frames of more than 512 lines or columns, some are skipped.

    Parameters
    ----------
    target : Dataset, or a path or another target of `oocdata.open`
        A View is shown row by row; next-frame pairs, and other tuples of two arrays of the same
        kind, with their difference; windows time by time; zipped datasets array by array; a table
        as a curve for each column, over the rows.
    key : str, optional
        The dataset in the file; for other arguments, give the View that `oocdata.open` returns.
    count : int, optional
        Number of elements, evenly spread, at most 256; by default 12, or 4 of several pictures
        each. For numbers, which are drawn as curves, 2,048. To choose elements, give a part of the
        dataset: ``preview(view[100:148], count=48).save("film.gif")``.
    layout : str
        A letter for each axis of a row: H (y, downwards), W (x), C (channel), D (depth) or T
        (time); ``"auto"``: by the names in the file, or by lengths, see `oocdata.axes`.
        The first channels are shown; ``view[:, 40:44]`` shows others. Three channels of uint8, or
        of floats from 0 to 1, are one colour image.

    Returns
    -------
    Preview
        ``print`` it, ``.save("a.png")``, ``.save("film.gif")``; a notebook displays it.

    Raises
    ------
    oocdata.errors.ArgumentError
        If an argument breaks its rule.
    oocdata.errors.SourceError
        If the file can't be read.

    Examples
    --------
    >>> import numpy as np, oocdata as ooc
    >>> frames = ooc.open(np.arange(5 * 8 * 6).reshape(5, 8, 6))
    >>> pictures = ooc.preview(frames.next_frame(), count=2)
    >>> [panel.place for panel in pictures.elements[0]]
    ['x', 'y', 'y - x']
    >>> pictures.labels, pictures.axes["x"].letters
    (('rows 0, 1', 'rows 3, 4'), 'HW')
    """
    dataset = Opening.of(target, key).numbers()
    if len(dataset) == 0:
        raise EmptyError(f"a dataset must have an element to show; {dataset!r} has none.")
    if count is not None:
        as_count("count", count, at_most=_MOST_ELEMENTS)
    parts, number = fitted(dataset, parts_of(dataset, layout), count)
    positions = np.linspace(0, len(dataset) - 1, number).round().astype(np.int64)
    arrays = read(dataset, parts, positions)
    pictures = panels_of(dataset, parts, positions, arrays)
    view, notes = view_of(dataset), list[str]()
    if view is not None and view.storage.packed:
        notes.append(f"packed ({view.storage.packed}): shown as stored; decode=True decodes them")
    notes += [note for part in parts for note in part.notes()]
    if any(part.dtype.kind == "c" for part in parts):
        notes.append("complex numbers are shown as their magnitude")
    if any(scale.how == COLOUR for scale in pictures["scales"]):
        notes.append(f"channels 0, 1, 2 are shown as {COLOUR}")
    return Preview(
        name=Opening.of(dataset).name,
        array=_array(dataset),
        axes={part.name: part.axes for part in parts},
        **pictures,
        notes=tuple(dict.fromkeys(notes)),
    )


def _array(dataset: Dataset) -> str:
    """Describe the shape and dtype of a dataset."""
    if isinstance(dataset, View):
        return rows_text(dataset.shape, dataset.dtype)
    arrays = list(map(str, leaves(dataset.spec)))
    same = len(arrays) > 1 and len({*arrays}) == 1
    words = f"{len(arrays)} arrays of {arrays[0]}" if same else " and ".join(arrays)
    return f"{counted(len(dataset), 'element')} of {words}"
