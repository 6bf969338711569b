"""Contact sheets: all panels, and beside them what their colours and values are.

Every length is in inches and chosen here, so that nothing can overlap: a panel has a line of text
above it, the first panels of the last line have their axes labelled, and each scale has its own
histogram with the colour bar under it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from oocdata.errors import MissingDependencyError
from oocdata.tools.pictures.histogram import POINT, SCALE_HEIGHT, SCALE_WIDTH, draw_scale
from oocdata.tools.pictures.panel import Panel, averaged
from oocdata.tools.pictures.scale import BAD, DRAWABLE, colours, drawable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from oocdata.tools.preview import Preview

__all__ = ["DOTS_PER_INCH", "sheet"]

DOTS_PER_INCH = 130
_LEFT, _TOP, _BOTTOM, _RIGHT = 0.75, 0.75, 0.55, 0.2
_TEXT, _LINE = 0.2, 0.15
_CHARACTERS = 15.5
"""Of text in an inch."""
_GAP, _APART, _AXES = 0.12, 0.2, 0.6
_PANELS_WIDTH, _PANELS_HEIGHT = 8.4, 7.4
_SMALLEST, _LARGEST = 0.7, 2.7


@dataclass(frozen=True, slots=True)
class _Grid:
    """Where panels stand: how many in a line, their size, the text over and left of them."""

    columns: int
    lines: int
    margins: tuple[float, ...]  # of an element's panels
    width: float
    height: float  # of the tallest
    text: float
    stacked: bool

    @property
    def each(self) -> int:
        """How many panels an element has."""
        return len(self.margins)

    @property
    def total(self) -> tuple[float, float]:
        """Width and height of all panels with their text."""
        return (
            self.left(self.columns - 1) + self.width,
            self.lines * (self.height + self.text + _GAP) - _GAP,
        )

    def left(self, column: int) -> float:
        """Return where a column begins: elements stand a little apart."""
        elements, place = divmod(column, self.each)
        between = elements * (_APART * (self.each > 1) + sum(self.margins))
        return column * (self.width + _GAP) + between + sum(self.margins[: place + 1])


def _aspect(panel: Panel) -> float:
    """Return height by width, within bounds."""
    if panel.kind == "curve":
        return 0.6
    height, width = panel.size
    return min(max(height / width, 0.15), 4.0)


def _has_new_axes(panels: Sequence[Panel]) -> list[bool]:
    """Return of each panel whether its axes are others than those of the panels before."""
    axes = [(panel.kind == "curve", panel.x, panel.y) for panel in panels]
    return [one not in axes[:place] for place, one in enumerate(axes)]


def _grid(preview: Preview) -> _Grid:
    """Return the grid of the largest panels; those of an element stay in one line."""
    each, count = len(preview.elements[0]), len(preview.elements)
    panels = preview.elements[0]
    if panels[0].kind == "curve" and each == count == 1:
        return _Grid(1, 1, (0.0,), _PANELS_WIDTH, 3.2, _TEXT, False)
    aspect = max(map(_aspect, panels))
    # The first stands at the margin of the sheet.
    margins = (0.0, *(_AXES * new for new in _has_new_axes(panels)[1:]))
    places = [one.place for one in preview.elements[0]]
    stacked = max(map(len, places)) > _CHARACTERS * _PANELS_WIDTH / each
    over = max(one.count(", ") for one in places) if stacked else 0
    text = _TEXT + _LINE * (over + (each > 1))

    def of(groups: int) -> _Grid:
        columns, lines = each * groups, -(-count // groups)
        apart = (groups - 1) * _APART * (each > 1) + groups * sum(margins)
        wide = (_PANELS_WIDTH + _GAP - apart) / columns - _GAP
        high = (_PANELS_HEIGHT + _GAP) / lines - _GAP - text
        width = max(_SMALLEST, min(wide, high / aspect, _LARGEST / max(1.0, aspect)))
        return _Grid(columns, lines, margins, width, width * aspect, text, stacked)

    # The smallest sheet of those with the largest panels.
    return max(
        (of(groups) for groups in range(1, min(count, 16) + 1)),
        key=lambda grid: (round(grid.width, 3), -max(grid.total)),
    )


def sheet(preview: Preview) -> Figure:
    """Return the contact sheet of a preview as a figure, which no display or pyplot knows of.

    Raises
    ------
    oocdata.errors.MissingDependencyError
        If matplotlib isn't installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingDependencyError(
            f"pictures are drawn with matplotlib; {error}. Install it: "
            "pip install 'oocdata[pictures]'."
        ) from error
    grid = _grid(preview)
    scales = preview.scales
    # Beside the panels, in as many columns as keep the sheet low.
    high = max(1, int((max(grid.total[1], 9.4) + 0.3) / SCALE_HEIGHT))
    width = _LEFT + grid.total[0] + -(-len(scales) // high) * (0.45 + SCALE_WIDTH) + _RIGHT
    characters = int(width * 13)
    title = textwrap.wrap(preview.title, characters) + [
        line for note in preview.notes for line in textwrap.wrap(note, int(characters * 1.15))
    ]
    top = _TOP - 0.5 + 0.19 * len(title)
    under = _BOTTOM + _TEXT
    height = top + max(grid.total[1], SCALE_HEIGHT * min(high, len(scales)) - 0.3) + under
    figure = Figure(figsize=(width, height), dpi=DOTS_PER_INCH, facecolor="white")
    FigureCanvasAgg(figure)
    for number, words in enumerate(title):
        figure.text(
            0.15 / width,
            1 - (0.2 + 0.19 * number) / height,
            words,
            fontsize=POINT + (2 if number == 0 else 0.5),
            fontweight="bold" if number == 0 else "normal",
            va="center",
            parse_math=False,
        )

    def axes(left: float, down: float, wide: float, high: float) -> Any:
        return figure.add_axes(
            (left / width, 1 - (down + high) / height, wide / width, high / height)
        )

    flat = [(number, panel) for number, some in enumerate(preview.elements) for panel in some]
    each = grid.each
    labelled = _has_new_axes(preview.elements[0])
    tallest = max(map(_aspect, preview.elements[0]))
    for place, (number, panel) in enumerate(flat):
        line, column = divmod(place, grid.columns)
        drawn = axes(
            _LEFT + grid.left(column),
            top + grid.text + line * (grid.height + grid.text + _GAP),
            grid.width,
            grid.height * _aspect(panel) / tallest,
        )
        corner = line == grid.lines - 1 and column < each and labelled[column]
        _draw(drawn, panel, corner, grid.width, preview.unit)
        label = preview.labels[number] if each == 1 else ""
        said = ", ".join(word for word in (label, panel.place, panel.remark) if word)
        for above, words in enumerate(reversed(said.split(", ") if grid.stacked else [said])):
            _title(drawn, words, grid.width, 2.5 + 72 * _LINE * above)
        if each > 1 and place % each == 0:
            # A line of its own, over the panels of the element.
            room = each * (grid.width + _GAP)
            _title(drawn, preview.labels[number], room, 2.5 + 72 * (grid.text - _TEXT))
    left = _LEFT + grid.total[0] + 0.45
    for place, scale in enumerate(scales):
        across, down = divmod(place, high)
        start = left + across * (0.45 + SCALE_WIDTH)
        draw_scale(axes, scale, start, top + down * SCALE_HEIGHT, preview.unit)
    return figure


def _title(drawn: Any, words: str, inches: float, above: float) -> None:
    """Write over a panel, from its left end, `above` points from it."""
    most = max(6, int(inches * _CHARACTERS))
    drawn.annotate(
        words if len(words) <= most else f"{words[: most - 1]}…",
        (0, 1),
        (0, above),
        xycoords="axes fraction",
        textcoords="offset points",
        fontsize=POINT,
        va="bottom",
        parse_math=False,
        annotation_clip=False,
    )


def _draw(drawn: Any, panel: Panel, corner: bool, inches: float, unit: str | None) -> None:
    drawn.tick_params(labelsize=POINT - 1, length=2, pad=1.5)
    (x, across), (y, down) = panel.x, panel.y
    first, last, top, bottom = across[0], across[-1], down[0], down[-1]
    if panel.kind == "curve":
        _curves(drawn, panel)
        drawn.set_xlim(*((first, last) if first != last else (first - 0.5, last + 0.5)))
        drawn.set_ylim(*drawable(panel.scale.low, panel.scale.high))
        if not corner:
            drawn.set_xticks([])
            drawn.set_yticks([])
        else:
            drawn.set_xlabel(x, fontsize=POINT, labelpad=1, parse_math=False)
            drawn.locator_params(nbins=max(3, int(inches * 1.4)))
            drawn.locator_params(axis="x", integer=True)  # places
            drawn.xaxis.get_offset_text().set_fontsize(POINT - 1)
            drawn.set_ylabel(unit or "value", fontsize=POINT, labelpad=1, parse_math=False)
            # To the left of the panel's title.
            drawn.yaxis.get_offset_text().set(fontsize=POINT - 1, horizontalalignment="right")
        return
    box = drawn.get_window_extent()
    image = averaged(panel.values, max(1, int(box.height)), max(1, int(box.width)))
    # Nearest: each value is seen as it is. The first line is at the top.
    drawn.imshow(
        colours(panel.scale, image),
        interpolation="nearest",
        aspect="auto",
        extent=(first - 0.5, last + 0.5, bottom + 0.5, top - 0.5),
    )
    drawn.set_xticks([first, last] if corner and first != last else [])
    tall = drawn.bbox.height > 30  # room for two numbers
    drawn.set_yticks([top, bottom] if corner and top != bottom and tall else [])
    if corner:
        drawn.set_xticklabels([f"{one:,.0f}" for one in drawn.get_xticks()])
        drawn.set_yticklabels([f"{one:,.0f}" for one in drawn.get_yticks()])
        for text, align in zip(drawn.get_xticklabels(), ("left", "right"), strict=False):
            text.set_horizontalalignment(align)
        for text, align in zip(drawn.get_yticklabels(), ("top", "bottom"), strict=False):
            text.set_verticalalignment(align)
        drawn.set_xlabel(f"{x} →", fontsize=POINT, labelpad=-4, parse_math=False)
        drawn.set_ylabel(
            f"← {y}",
            fontsize=POINT,
            labelpad=-8 if drawn.bbox.height > 80 else 2,
            parse_math=False,
        )


def _curves(drawn: Any, panel: Panel) -> None:
    across = np.asarray(panel.x[1])
    lines: list[Any] = []
    for curve in panel.values:
        mark = "." if len(across) < 3 else None
        wrong = ~np.isfinite(curve)
        line = np.where(wrong, np.nan, np.clip(curve, -DRAWABLE, DRAWABLE))
        lines += drawn.plot(across, line, linewidth=0.8, marker=mark)
        if wrong.any():
            drawn.plot(
                across[wrong],
                np.full(wrong.sum(), 0.02),
                linestyle="none",
                marker="|",
                color=np.array(BAD) / 255,
                transform=drawn.get_xaxis_transform(),
            )
    if panel.names:
        # Any line with a name that means nothing to matplotlib, and then its own name.
        words = [f"line {number}" for number in range(len(panel.names))]
        made = drawn.legend(
            lines, words, fontsize=POINT - 2, loc="upper right", framealpha=0.6, borderpad=0.2
        )
        for text, name in zip(made.get_texts(), panel.names, strict=True):
            text.set(parse_math=False, text=name)
