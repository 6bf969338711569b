"""A look at an array: some rows, or pairs of them, as pictures, with what their values are like."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from oocdata.axes import Axes
from oocdata.datasets.dataset import Dataset
from oocdata.datasets.view import View
from oocdata.errors import ArgumentError, EmptyError, SourceError
from oocdata.index import as_count, as_positions
from oocdata.threads import silent
from oocdata.tools.libraries import PICTURES, check_picture
from oocdata.tools.lines import Report, labelled, plain, table
from oocdata.tools.opening import OpenArguments, Opening
from oocdata.tools.preview.parts import listed, named_leaves, parts_of, view_of
from oocdata.tools.preview.reading import (
    MOST_ELEMENTS,
    Rows,
    choose_positions,
    fitted,
    read,
    usual_count,
)
from oocdata.tools.preview.scale import COLOUR, Panel, Scale, colormap_of, panels_of
from oocdata.tools.preview.sheet import FILMS, film, sheet

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Preview", "preview"]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Preview(Report):
    """What `preview` gives: pictures of some elements. Shows itself in a notebook."""

    name: str  #: the file that the rows come from, and the dataset in it
    array: str  #: shape and dtype in words
    axes: dict[str, Axes]  #: of each array of an element, by its name; ``""`` where there is one
    #: Of each element the rows in storage; positions, where it is not made of rows as they are.
    rows: tuple[tuple[int, ...], ...]
    labels: tuple[str, ...]  #: of each element; one where all are numbers, drawn as curves
    elements: tuple[tuple[Panel, ...], ...]
    scales: tuple[Scale, ...]  #: what colours or heights mean; the values shown in numbers
    unit: str | None  #: the file's unit of the values
    notes: tuple[str, ...]  #: what was left out, packed or is a guess

    def __repr__(self) -> str:
        return f"<Preview: {len(self.rows)} elements of {self.array}>"

    def __str__(self) -> str:
        firsts = [some[0] for some in self.rows]
        alone = all(len(some) == 1 for some in self.rows)
        said = {name: str(axes) for name, axes in self.axes.items() if axes.letters}
        if len(set(said.values())) == 1:
            said = {"": next(iter(said.values()))}
        noun = "row" if alone and self.labels[0].startswith("row") else "element"
        number = f"{len(firsts):,} {noun}{'s' * (len(firsts) > 1)}"
        fields = [
            ("file", self.name),
            ("array", self.array + (f", in {self.unit}" if self.unit else "")),
            *(("axes", f"{name}: {words}" if name else words) for name, words in said.items()),
            ("shown", f"{number}{':' if alone else ', from rows'} {listed(firsts)}"),
            *(("note", note) for note in self.notes),
            *(("drawn", words) for words in dict.fromkeys(map(_drawn, self.scales))),
        ]
        wrong = any(scale.values.finite < scale.values.count for scale in self.scales)
        values = [
            one.values.cells(one.label or f"{one.values.count:,} shown", wrong)
            for one in self.scales
        ]
        header = ["values of", "mean", "std", "min", "max", *(["not finite"] * wrong)]
        return "\n".join([*(labelled(*one) for one in fields), "", table(header, values)])

    def to_json(self) -> dict[str, Any]:
        """Return everything but the pictures, for ``json.dumps``."""
        return {
            "name": self.name,
            "array": self.array,
            "unit": self.unit,
            "axes": plain(self.axes),
            "rows": self.rows,
            "labels": self.labels,
            "panels": [panel.place for panel in self.elements[0]],
            "scales": plain(self.scales),
            "notes": self.notes,
        }

    def figure(self) -> Figure:
        """Return the contact sheet as a matplotlib figure, which pyplot doesn't know of.

        Raises
        ------
        oocdata.errors.MissingDependencyError
            If matplotlib isn't installed.
        """
        return sheet(self)

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self._write(buffer, "png")
        return buffer.getvalue()

    def save(self, path: str | Path, *, fps: float = 10.0) -> None:
        """Write the contact sheet; or a film, one frame for each element.

        Parameters
        ----------
        path : path
            Ends in ``.png``, ``.jpg``, ``.pdf`` or ``.svg``; a film in ``.gif`` or ``.webp``.
        fps : float
            Frames per second of a film, at most 50.

        Raises
        ------
        oocdata.errors.ArgumentError
            If the name or the speed doesn't do.
        oocdata.errors.MissingDependencyError
            If matplotlib isn't installed.
        """
        target = check_picture(Path(path), PICTURES + FILMS)
        self._write(target, target.suffix[1:].lower(), fps)

    def _write(self, target: Any, suffix: str, fps: float = 10.0) -> None:
        # A box stands for a letter that the font lacks, which anybody sees.
        with silent("(Glyph|Matplotlib currently does not)"):
            if f".{suffix}" in FILMS:
                film(self, target, fps)
            else:
                self.figure().savefig(target, format=suffix)


def _drawn(scale: Scale) -> str:
    """Return which range of the values is drawn, and how."""
    span = f": {scale.low:.5g} to {scale.high:.5g}" if scale.how == "as given" else ""
    return f"{scale.how}{span}" + (f", {scale.colormap}" if scale.colormap else "")


def preview(
    target: Any,
    key: str | None = None,
    *,
    rows: Rows = None,
    count: int | None = None,
    next_frame: bool = False,
    consecutive: bool = False,
    layout: str = "auto",
    channel: int | Sequence[int] | None = None,
    limits: tuple[float, float] | None = None,
    colormap: str | None = None,
    **arguments: Unpack[OpenArguments],
) -> Preview:
    """Look at some elements of a dataset.

    Little is read whatever the size of the file: at most about 128 MiB, unless you say how many.
    Means and ranges are of the values that are read, not of the whole file.

    Parameters
    ----------
    target : Dataset, or what `oocdata.open` takes
        A View is shown row by row; next-frame pairs, and other tuples of two equal arrays, with
        their difference; windows moment by moment; zipped datasets array by array; a table of
        numbers column by column, over its rows.
    key, **arguments
        As for `oocdata.open`.
    rows : slice or sequence of int, optional
        Positions: a range of which `count` are chosen, or a list of at most 256, each shown; then
        `count` is left out.
    count : int, optional
        How many elements, at most 256; by default as many as make about 24 pictures, at most 12.
        Of numbers, which are drawn as curves, 2,048.
    next_frame : bool
        Show pairs of rows, one after the other, and their difference.
    consecutive : bool
        The first `count` elements instead of evenly spread ones, as a film wants them.
    layout : str
        The axes of a row: a letter for each, of H (y, downwards), W (x), C (channel), D (depth) and
        T (time); ``"auto"``: by the names in the file, or by lengths, see `oocdata.axes`.
    channel : int or sequence of int, optional
        The channels to show; by default the first ones, and three channels of uint8, or of floats
        from 0 to 1, as one colour image.
    limits : (float, float), optional
        The range of values that colours stand for. By default it is that from the 1st to the 99th
        percentile of the values shown; symmetric around 0, with diverging colours, where values of
        both signs matter.
    colormap : str, optional
        A name of matplotlib's.

    Returns
    -------
    Preview
        Shows itself in a notebook; ``print`` it, ``.save("a.png")``, ``.save("film.gif")``.

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
    >>> found = ooc.preview(frames, next_frame=True, count=2)
    >>> [panel.place for panel in found.elements[0]]
    ['x', 'y', 'y - x']
    >>> found.labels, found.axes["x"].letters
    (('rows 0, 1', 'rows 3, 4'), 'HW')
    """
    dataset = Opening.of(target, key, **arguments).numbers()
    if next_frame:
        if not isinstance(dataset, View):
            raise ArgumentError(f"`next_frame` must be left out for {dataset!r}: it needs a View.")
        dataset = dataset.next_frame()
    if limits is not None:
        try:
            low, high = limits = tuple(map(float, limits))  # type: ignore[assignment]
        except (TypeError, ValueError):
            low = high = np.nan
        if not -np.inf < low < high < np.inf:
            raise ArgumentError(f"`limits` must be two numbers, the lower one first; got {limits}.")
    if colormap is not None:
        colormap_of(colormap)
    if len(dataset) == 0:
        raise EmptyError(f"a dataset must have an element to show; {dataset!r} has none.")
    if count is not None and as_count("count", count) > MOST_ELEMENTS:
        raise ArgumentError(f"`count` must be at most {MOST_ELEMENTS}; got {count}.")
    parts = parts_of(dataset, layout, channel)
    if rows is None or isinstance(rows, slice):
        count = min(count or usual_count(dataset, parts), len(dataset))
        positions = choose_positions(dataset, count, rows, consecutive=consecutive)
    elif count is not None:
        raise ArgumentError(
            f"`count` must be left out where `rows` is a list, which is shown in full; got {count}."
        )
    else:
        positions = as_positions(rows, len(dataset))
        if not 1 <= len(positions) <= MOST_ELEMENTS:
            raise ArgumentError(
                f"`rows` must name 1 to {MOST_ELEMENTS} positions; got {len(positions)}. "
                "Give a range, of which some are chosen: 0:1000."
            )
    parts = fitted(dataset, parts, len(positions))
    arrays = read(dataset, parts, positions)
    shown = panels_of(dataset, parts, positions, arrays, limits, colormap)
    unit, notes = _unit(view_of(dataset))
    notes += [note for part in parts for note in part.notes()]
    if any(part.dtype.kind == "c" for part in parts):
        notes.append("complex numbers are shown as their magnitude")
    if any(scale.how == COLOUR for scale in shown["scales"]):
        notes.append(f"channels 0, 1, 2 are shown as {COLOUR}")
    return Preview(
        name=Opening.of(dataset).name,
        array=_array(dataset),
        axes={part.name: part.axes for part in parts},
        **shown,
        unit=unit,
        notes=tuple(dict.fromkeys(notes)),
    )


def _unit(view: View | None) -> tuple[str | None, list[str]]:
    """Return the file's unit of the values (CF conventions, 3.1), or that they are packed."""
    if view is None:
        return None, []
    if view.storage.packed:  # the unit is that of the numbers once unpacked
        return None, [f"packed ({view.storage.packed}): as stored"]
    try:
        unit = view.storage.annotations().attributes.get("units")
    except SourceError:  # a unit only labels a picture
        return None, []
    unit = unit.decode("utf-8", "replace") if isinstance(unit, bytes) else unit
    return (str(unit) if isinstance(unit, str) and unit else None), []


def _array(dataset: Dataset) -> str:
    """Return shape and dtype in words."""
    arrays = [str(leaf) for _, leaf in named_leaves(dataset.spec)]
    number, many = f"{len(dataset):,}", "s" * (len(dataset) > 1)
    if isinstance(dataset, View):
        if not dataset.element:
            return f"{number} number{many}, {dataset.dtype}"
        return f"{number} row{many} of {arrays[0]}"
    if len(arrays) > 1 and len(set(arrays)) == 1:
        kind = f"pair{many}" if len(arrays) == 2 else f"element{many} of {len(arrays)} arrays"
        return f"{number} {kind} of {arrays[0]}"
    return f"{number} element{many} of {' and '.join(arrays)}"
