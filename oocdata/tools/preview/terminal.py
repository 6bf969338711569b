"""Pictures in a terminal: the contact sheet where it has graphics, else blocks of colour.

Only a terminal whose name promises graphics is asked for them, by textual-image: Sixel (iTerm2,
WezTerm, foot, xterm, Konsole, Windows Terminal) or the protocol of kitty. Others would show the
question, or an answer from far away. They get half-blocks: a character ``▀`` in two colours is two
pixels.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from math import isqrt
from typing import TYPE_CHECKING

import numpy as np

from oocdata.tools.preview.scale import Panel, colours

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from oocdata.tools.preview import Preview

__all__ = ["blocks", "can_show", "show"]

_NARROWEST, _WIDEST = 14, 40
_CURVE_LINES = 4
_MOST_LINES = 48
_HEIGHTS = " ▁▂▃▄▅▆▇█"
_GRAPHICAL = ("contour", "foot", "ghostty", "iterm", "kitty", "mintty", "mlterm", "rio", "sixel",
              "wezterm")  # fmt: skip
_GRAPHICAL_VARIABLES = ("KITTY_WINDOW_ID", "KONSOLE_VERSION", "WT_SESSION", "XTERM_VERSION")


def can_show(console: Console) -> bool:
    """Return whether pictures can be made, and reach a person: no pipe or file, no NO_COLOR."""
    if find_spec("matplotlib") is None or find_spec("PIL") is None:
        return False
    try:
        "▀".encode(console.encoding)
    except UnicodeEncodeError:
        return False
    plain = console.no_color or console.is_dumb_terminal or not console.color_system
    return console.is_terminal and not plain


def show(preview: Preview, console: Console) -> None:
    """Print a preview's pictures, the way the terminal can."""
    if console.file is sys.stdout and _promises_graphics(os.environ):
        with suppress(ImportError, OSError, ValueError):
            from PIL import Image
            from textual_image import renderable  # asks the terminal

            if renderable.Image in (renderable.SixelImage, renderable.TGPImage):
                with Image.open(io.BytesIO(preview._repr_png_())) as sheet:
                    width = min(console.width, 160)
                    console.print(renderable.Image(sheet, width=width, height="auto"))
                return
    console.print(blocks(preview, console.width))


def _promises_graphics(environment: Mapping[str, str]) -> bool:
    """Return whether the terminal's name is one that may draw graphics.

    Examples
    --------
    >>> _promises_graphics({"TERM": "xterm-kitty"}), _promises_graphics({"TERM": "xterm-256color"})
    (True, False)
    """
    names = f"{environment.get('TERM', '')} {environment.get('TERM_PROGRAM', '')}".lower()
    return any(name in names for name in _GRAPHICAL) or any(
        name in environment for name in _GRAPHICAL_VARIABLES
    )


def blocks(preview: Preview, width: int) -> Table:
    """Return a contact sheet of characters: as many elements as fit in 48 lines."""
    from rich.table import Table
    from rich.text import Text

    each, count = len(preview.elements[0]), len(preview.elements)
    fitting = max(1, (width + 1) // (_NARROWEST + 1))
    if each == 1:
        columns = min(fitting, isqrt(count - 1) + 1)  # as square a sheet as fits
    else:  # an element begins a line
        columns = max(some for some in range(1, min(each, fitting) + 1) if each % some == 0)
    rows = max(1, each // columns)
    high = _MOST_LINES // rows - 2  # an element fits
    tall = max(panel.aspect for panel in preview.elements[0])
    widest = min(_WIDEST * (3 if columns == 1 else 1), int(2 * high / tall))
    cell = max(1, min(widest, (width + 1) // columns - 1))
    table = Table.grid(padding=(0, 1, 0, 0))
    for _ in range(columns):
        table.add_column(width=cell, no_wrap=True, overflow="ellipsis")
    panels = [panel for element in preview.elements for panel in element]
    labels = [one for label in preview.labels for one in (label, *[""] * (each - 1))]
    lines = 0
    for start in range(0, len(panels), columns):
        line = slice(start, start + columns)
        needed = max(_height(panel, cell) for panel in panels[line]) + 2
        if start and start % each == 0 and lines + rows * needed > _MOST_LINES:
            table.add_row(f"… and {count - start // each} more")
            break
        lines += needed
        for texts in (labels[line], [panel.place for panel in panels[line]]):
            if any(texts):
                table.add_row(*map(Text, texts))
        table.add_row(*(_drawn(panel, cell) for panel in panels[line]))
    return table


def _height(panel: Panel, width: int) -> int:
    """Return how many lines a panel of so many characters has: one of them is twice as high."""
    return _CURVE_LINES if panel.kind == "curve" else max(1, round(width * panel.aspect / 2))


def _drawn(panel: Panel, width: int) -> Text:
    """Return a panel as lines of so many characters."""
    from rich.text import Text

    if panel.kind == "curve":
        return Text("\n".join(_curve(panel, width)))
    from PIL import Image

    image = Image.fromarray(colours(panel.scale, panel.values))
    smaller = image.resize((width, 2 * _height(panel, width)), Image.Resampling.BOX)
    pixels = np.asarray(smaller).reshape(-1, 2, width, 3).transpose(0, 2, 1, 3)
    text = Text()
    for number, line in enumerate(pixels.tolist()):
        text.append("\n" if number else "")
        for above, below in line:
            text.append(
                "▀",
                f"rgb({above[0]},{above[1]},{above[2]}) on rgb({below[0]},{below[1]},{below[2]})",
            )
    return text


def _curve(panel: Panel, width: int) -> list[str]:
    """Return a panel's first curve as columns of blocks, each the mean of some values."""
    values = np.array_split(panel.values[0], min(width, panel.values.shape[1]))
    finite = [some[np.isfinite(some)] for some in values]
    means = np.array([some.mean() if some.size else panel.scale.low for some in finite])
    low, high = panel.scale.low, panel.scale.high
    eighths = np.clip((means - low) / (high - low), 0, 1) * 8 * _CURVE_LINES
    return [
        "".join(_HEIGHTS[round(min(max(one - 8 * line, 0), 8))] for one in eighths.tolist())
        for line in reversed(range(_CURVE_LINES))
    ]
