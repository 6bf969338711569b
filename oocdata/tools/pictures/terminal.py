"""Pictures in a terminal: as graphics where it has them, else in half-blocks of colour.

Only a terminal whose name promises graphics is asked for them, by textual-image: Sixel (iTerm2,
WezTerm, foot, xterm, Konsole, Windows Terminal) or the graphics protocol of kitty. It waits a tenth
of a second for each answer, so nothing hangs; but an answer that comes later, from far away, would
be left on the screen, which is why others are not asked. These get half-blocks: a character ``▀``
in two colours is two pixels.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocdata.tools.pictures.panel import Panel, painted

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from oocdata.tools.preview import Preview

__all__ = ["can_show", "half_blocks", "show"]

_NARROWEST, _WIDEST = 14, 40
_MOST_LINES = 48
_HALVES = "▀"
_TALLEST = 80
_GRAPHICAL = ("contour", "foot", "ghostty", "iterm", "kitty", "mintty", "mlterm", "rio", "sixel",
              "wezterm")  # fmt: skip
_GRAPHICAL_VARIABLES = ("KITTY_WINDOW_ID", "KONSOLE_VERSION", "WT_SESSION", "XTERM_VERSION")


def can_show(console: Console) -> bool:
    """Return whether colours reach a person: no pipe, no file, no dumb terminal, no NO_COLOR."""
    try:
        _HALVES.encode(console.encoding)
    except UnicodeEncodeError:
        return False
    plain = console.no_color or console.is_dumb_terminal or not console.color_system
    return console.is_terminal and not plain


def show(preview: Preview, console: Console) -> None:
    """Print a preview's pictures, the way the terminal can."""
    graphics = _graphics() if console.file is sys.stdout else None
    if graphics is not None:
        import io

        from PIL import Image

        with Image.open(io.BytesIO(preview.png())) as sheet:
            console.print(graphics(sheet, width=min(console.width, 160), height="auto"))
        return
    for line in half_blocks(preview.labels, preview.elements, console.width):
        console.print(line)


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


def half_blocks(
    labels: Sequence[str], elements: Sequence[Sequence[Panel]], width: int
) -> list[Any]:
    """Return a contact sheet as lines of rich text.

    Parameters
    ----------
    labels : sequence of str
        Of the elements.
    elements : sequence of sequence of Panel
    width : int
        Columns of the terminal. As many elements are shown as fit in 48 lines.

    Returns
    -------
    list of rich.text.Text
    """
    from rich.text import Text

    each = len(elements[0])
    columns, cell = _cells(len(elements), elements[0], max(width, _NARROWEST + 1) - 1)
    tall = max(_height(panel, cell) for panel in elements[0])
    groups = max(1, columns // each)
    lines: list[Any] = []
    for first in range(0, len(elements), groups):
        some = [panel for panels in elements[first : first + groups] for panel in panels]
        band = [_words(labels[first : first + groups], cell * each + each - 1)]
        for start in range(0, len(some), columns):
            row = some[start : start + columns]
            if any(panel.place for panel in row):
                band.append(_words([panel.place for panel in row], cell))
            band += _rows([painted(panel, _height(panel, cell), cell) for panel in row], tall)
        if lines and len(lines) + len(band) > _MOST_LINES:
            lines.append(Text(f"… and {len(elements) - first} more"))
            break
        lines += band
    return lines


def _cells(count: int, panels: Sequence[Panel], width: int) -> tuple[int, int]:
    """Return how many panels stand in a line, and the characters of each."""
    each = len(panels)
    fitting = max(1, width // (_NARROWEST + 1))
    if each > 1:
        columns = min(fitting // each, count) * each or min(fitting, each)
    elif count == 1:
        columns = 1
    else:
        # As square a sheet as fits.
        columns = min(fitting, count, max(-(-width // _WIDEST), math.isqrt(count - 1) + 1))
    # So that a tall panel is not too tall.
    widest = (
        width if panels[0].kind == "curve" else min(_WIDEST, round(_TALLEST / _aspect(panels[0])))
    )
    return columns, max(1, min(widest, width // columns - 1))


def _words(texts: Sequence[str], cell: int) -> Any:
    from rich.text import Text

    return Text("".join(f"{_shortened(text, cell):<{cell + 1}}" for text in texts).rstrip())


def _shortened(text: str, most: int) -> str:
    """Return a text with its beginning and its end, which tell one from the other.

    Examples
    --------
    >>> _shortened("y - x, channel 10", 14)
    'y - x,…nnel 10'
    """
    if len(text) <= most:
        return text
    head = (most - 1) // 2
    return f"{text[:head]}…{text[len(text) - most + 1 + head :]}"


def _height(panel: Panel, cell: int) -> int:
    """Return the pixels of a panel's height: an even number, not too tall."""
    if panel.kind == "curve":
        return max(2, min(cell // 4 * 2, 2 * _NARROWEST))
    return max(2, round(cell * _aspect(panel) / 2) * 2)


def _aspect(panel: Panel) -> float:
    """Return height by width, for a very tall or wide panel that of one which can be seen."""
    height, width = panel.size
    return min(max(height / width, 0.1), 4.0)


def _rows(images: Sequence[NDArray[np.uint8]], height: int) -> list[Any]:
    """Return images side by side, two of `height` lines in each line of text."""
    from rich.color import Color
    from rich.style import Style
    from rich.text import Text

    lines = []
    for top in range(0, height, 2):
        line = Text()
        for number, image in enumerate(images):
            if number:
                line.append(" ")
            if top >= len(image):
                line.append(" " * image.shape[1])
                continue
            for upper, lower in zip(image[top].tolist(), image[top + 1].tolist(), strict=True):
                line.append(
                    _HALVES, Style(color=Color.from_rgb(*upper), bgcolor=Color.from_rgb(*lower))
                )
        lines.append(line)
    return lines
