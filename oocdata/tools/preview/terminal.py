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
from typing import TYPE_CHECKING, Any

import numpy as np

from oocdata.tools.libraries import matplotlib

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from oocdata.tools.preview import Preview

__all__ = ["blocks", "can_show", "show"]

_WIDEST = 120
"""Characters: a wider sheet would be higher than a screen."""

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
    console.print(blocks(preview, min(console.width, _WIDEST)))


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


def blocks(preview: Preview, width: int) -> Text:
    """Return the panels of the contact sheet, so many characters wide, without its texts."""
    from PIL import Image
    from rich.text import Text

    figure = preview.figure()
    for text in figure.findobj(matplotlib("text").Text):
        text.set_visible(False)
    for axes in figure.axes:
        axes.tick_params(length=0)
        for curve in axes.lines:
            curve.set_linewidth(5)  # or it would be thinner than a pixel
    figure.draw_without_rendering()  # which lays it out anew
    canvas: Any = figure.canvas
    canvas.draw()
    drawn = Image.fromarray(np.asarray(canvas.buffer_rgba())[..., :3])
    lines = max(1, round(width * drawn.height / drawn.width / 2))
    pixels = np.asarray(drawn.resize((width, 2 * lines), Image.Resampling.BOX))
    text = Text(no_wrap=True)
    for line in range(lines):
        for above, below in zip(*pixels[2 * line : 2 * line + 2].tolist(), strict=True):
            text.append("▀", "rgb({},{},{}) on rgb({},{},{})".format(*above, *below))
        text.append("\n" * (line < lines - 1))
    return text
