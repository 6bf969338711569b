"""Pictures in a terminal, by textual-image: the contact sheet where it has graphics, else blocks.

textual-image asks the terminal for graphics: Sixel (iTerm2, WezTerm, foot, xterm, Konsole, Windows
Terminal) or the protocol of kitty. Others get half-blocks: a character in two colours is two
pixels.
"""

from __future__ import annotations

import io
import os
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING

from oocdata.tools.libraries import matplotlib

if TYPE_CHECKING:
    from rich.console import Console

    from oocdata.tools.preview import Preview

__all__ = ["can_show", "show"]

_WIDEST = 120
"""Characters: a wider sheet would be higher than a screen."""


def can_show(console: Console) -> bool:
    """Return whether pictures can be made, and reach a person: no pipe or file, no NO_COLOR."""
    if not all(map(find_spec, ("matplotlib", "PIL", "textual_image"))):
        return False
    try:
        "▀".encode(console.encoding)
    except UnicodeEncodeError:
        return False
    with suppress(OSError):  # standard output is no terminal
        if 0 in os.get_terminal_size():  # some tools make such ones; textual-image divides by both
            return False
    plain = console.no_color or console.is_dumb_terminal or not console.color_system
    return console.is_terminal and not plain


def show(preview: Preview, console: Console) -> None:
    """Print a preview's pictures, the way the terminal can."""
    from textual_image import renderable  # which asks the terminal

    picture = io.BytesIO(preview._repr_png_())
    kind = renderable.Image
    if kind not in (renderable.SixelImage, renderable.TGPImage):
        kind, picture = renderable.HalfcellImage, _without_texts(preview)
    console.print(kind(picture, width=min(console.width, _WIDEST), height="auto"))


def _without_texts(preview: Preview) -> io.BytesIO:
    """Return the panels of the contact sheet alone: nobody can read letters of a few blocks."""
    figure, buffer = preview.figure(), io.BytesIO()
    for text in figure.findobj(matplotlib("text").Text):
        text.set_visible(False)
    for axes in figure.axes:
        axes.tick_params(length=0)
        for curve in axes.lines:
            curve.set_linewidth(5)  # or it would be thinner than a pixel
    figure.savefig(buffer, format="png")
    return buffer
