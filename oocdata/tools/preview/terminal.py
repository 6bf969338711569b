"""Pictures in a terminal: the contact sheet where it has graphics, else blocks of colour.

Only a terminal whose name promises graphics is asked for them, by textual-image: Sixel (iTerm2,
WezTerm, foot, xterm, Konsole, Windows Terminal) or the graphics protocol of kitty. It waits a tenth
of a second for each answer, so nothing hangs; but an answer that comes later, from far away, would
be left on the screen, which is why others are not asked. These get half-blocks: a character ``▀``
in two colours is two pixels.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from math import ceil, isqrt
from typing import TYPE_CHECKING, Any

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
    graphics = _graphics() if console.file is sys.stdout else None
    if graphics is None:
        console.print(blocks(preview, console.width))
        return
    from PIL import Image

    with Image.open(io.BytesIO(preview._repr_png_())) as sheet:
        console.print(graphics(sheet, width=min(console.width, 160), height="auto"))


def _graphics() -> Callable[..., Any] | None:
    """Return what prints an image as graphics, if the terminal says that it can."""
    streams = (sys.__stdin__, sys.__stdout__)
    if not all(stream is not None and stream.isatty() for stream in streams):
        return None
    if not _promises_graphics(os.environ):
        return None
    try:
        from textual_image import renderable  # asks the terminal
    except (ImportError, OSError, ValueError):
        return None
    found: Callable[..., Any] = renderable.Image
    return found if found in (renderable.SixelImage, renderable.TGPImage) else None


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

    columns = _columns(preview, max(1, (width + 1) // (_NARROWEST + 1)), ceil(width / _WIDEST))
    cell = max(1, min(_WIDEST * (3 if columns == 1 else 1), (width + 1) // columns - 1))
    table = Table.grid(padding=(0, 1, 0, 0))
    for _ in range(columns):
        table.add_column(width=cell, no_wrap=True, overflow="ellipsis")
    each, lines = len(preview.elements[0]), 0
    beside = max(1, columns // each)
    for first in range(0, len(preview.elements), beside):
        some = slice(first, first + beside)
        panels = [panel for element in preview.elements[some] for panel in element]
        labels = [one for label in preview.labels[some] for one in (label, *[""] * (each - 1))]
        for start in range(0, len(panels), columns):
            line = slice(start, start + columns)
            drawn = [_drawn(panel, cell) for panel in panels[line]]
            words = [labels[line], [panel.place for panel in panels[line]]]
            high = len(words) + max(text.plain.count("\n") + 1 for text in drawn)
            if lines and lines + high > _MOST_LINES:
                table.add_row(f"… and {len(preview.elements) - first} more")
                return table
            lines += high
            for texts in filter(any, words):
                table.add_row(*map(Text, texts))
            table.add_row(*drawn)
    return table


def _columns(preview: Preview, fitting: int, least: int) -> int:
    """Return how many panels stand in a line: whole elements, or an equal share of one."""
    each, count = len(preview.elements[0]), len(preview.elements)
    if each > fitting:
        return max((some for some in range(2, fitting) if each % some == 0), default=fitting)
    # As square a sheet as fits.
    return each * min(fitting // each, count, max(ceil(least / each), isqrt(count - 1) + 1))


def _drawn(panel: Panel, width: int) -> Text:
    """Return a panel as lines of so many characters."""
    from rich.text import Text

    if panel.kind == "curve":
        return Text("\n".join(_curve(panel, width)))
    from PIL import Image

    height = 2 * max(1, round(width * panel.aspect / 2))
    image = Image.fromarray(colours(panel.scale, panel.values))
    smaller = image.resize((width, height), Image.Resampling.BOX)
    pixels = np.asarray(smaller).reshape(height // 2, 2, width, 3).transpose(0, 2, 1, 3)
    text = Text()
    for number, line in enumerate(pixels.tolist()):
        text.append("\n" if number else "")
        for upper, lower in line:
            text.append(
                "▀", f"rgb({','.join(map(str, upper))}) on rgb({','.join(map(str, lower))})"
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
