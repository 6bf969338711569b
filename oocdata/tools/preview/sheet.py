"""Draw contact sheets and films: panels in a grid, with a colour bar for each scale below.

The panels of an element are in one line; elements of one panel share lines. Matplotlib's
constrained layout places everything; only the size of the sheet is chosen here.
"""

from __future__ import annotations

import io
import logging
import os
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from itertools import chain
from math import ceil
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from oocdata.errors import ArgumentError
from oocdata.tools.libraries import matplotlib
from oocdata.tools.preview.scale import Panel, Scale

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Console

    from oocdata.tools.preview import Preview

FILMS = (".gif", ".webp")
_SUFFIXES = (".png", ".jpg", ".jpeg", ".pdf", ".svg", *FILMS)

_WIDTH, _HEIGHT = 12.0, 7.5
"""The most inches for all panels, unless they are many."""

_SMALLEST, _LARGEST = 0.8, 4.0
"""Limits of a panel's height, in inches."""

_BAD = (255, 0, 255)
"""The colour of NaN and infinities: magenta, which is in none of the colormaps used here."""

_POINTS = 7.5
_SLOWEST, _FASTEST = 0.02, 50.0
"""Frames per second: players slow down faster films, and a GIF can't hold longer durations."""


def check_picture(path: Path) -> Path:
    """Return the path of a picture or film with ``~`` expanded; raise if its format is unknown."""
    path = path.expanduser()
    if path.suffix.lower() not in _SUFFIXES:
        raise ArgumentError(
            f"the picture's name must end in {', '.join(_SUFFIXES)}; got {path.name!r}."
        )
    matplotlib("figure")
    return path


def sheet(preview: Preview) -> Figure:
    """Return the contact sheet of a preview as a figure that is not registered with pyplot."""
    elements, panels = preview.elements, list(chain(*preview.elements))
    widths = [1 / panel.aspect for panel in elements[0]]
    single = len(elements) == 1 or len(widths) == 1  # each panel has its own title
    if single:  # as many in a line as make them largest

        def panel_height(columns: int) -> float:
            return min(_HEIGHT / ceil(len(panels) / columns), _WIDTH / columns / widths[0])

        widths = [widths[0]] * max(range(1, len(panels) + 1), key=panel_height)
    columns, lines = len(widths), ceil(len(panels) / len(widths))
    side = min(max(min(_HEIGHT / lines, _WIDTH / sum(widths)), _SMALLEST), _LARGEST)
    width = max(side * sum(widths) + 0.1 * columns + 0.4, 6.0)
    coloured = [scale for scale in preview.scales if scale.colormap is not None]
    in_line = min(max(len(coloured), 1), int(width / 2))
    notes = [line for note in preview.notes for line in textwrap.wrap(note, int(width * 16))]
    heights = lines * (side + 0.2) + 0.3, ceil(len(coloured) / in_line) * 0.7 or 0.01
    size = width, sum(heights) + 0.16 * len(notes) + 0.5
    figure: Figure = matplotlib("figure").Figure(size, dpi=130, layout="constrained")
    matplotlib("backends.backend_agg").FigureCanvasAgg(figure)
    title = textwrap.fill(f"{preview.name}: {preview.array}", int(width * 12))
    title += f"\n{preview.labels[0]}" if len(elements) == 1 else ""
    figure.suptitle(title, x=0.01, ha="left", fontsize=9, fontweight="bold", parse_math=False)
    if notes:
        figure.supxlabel("\n".join(notes), x=0.01, ha="left", fontsize=_POINTS, parse_math=False)
    halves = figure.add_gridspec(2, 1, height_ratios=heights)
    grid = halves[0].subgridspec(lines, columns, width_ratios=widths)
    labelled, images = list[Any](), dict[Scale, Any]()
    for number, panel in enumerate(panels):
        axes = figure.add_subplot(grid[divmod(number, columns)])
        # Panels with the same axes are labelled once, in the last line.
        panel_axes = panel.kind, panel.x, panel.y
        is_labelled = number >= columns * (lines - 1) and panel_axes not in labelled
        labelled += [panel_axes] * is_labelled
        images[panel.scale] = _draw(axes, panel, is_labelled)
        label = preview.labels[number * len(elements) // len(panels)] if len(elements) > 1 else ""
        if single or number < columns:
            title = ", ".join(filter(None, (label * single, panel.place)))
            axes.set_title(title, fontsize=_POINTS, pad=3, parse_math=False)
        if not single and number % columns == 0:
            label = f"{label}\n{axes.get_ylabel()}".strip()
            axes.set_ylabel(label, fontsize=_POINTS, parse_math=False)
    grid = halves[1].subgridspec(ceil(len(coloured) / in_line) or 1, in_line, wspace=0.1)
    for number, scale in enumerate(coloured):
        axes = figure.add_subplot(grid[divmod(number, in_line)])
        ends: Any = {"orientation": "horizontal", "extend": "both", "extendfrac": 0.03}
        figure.colorbar(images[scale], cax=axes, **ends)
        axes.set_title(scale.label or "values shown", fontsize=_POINTS, pad=2, parse_math=False)
        axes.tick_params(labelsize=_POINTS - 1, length=2, pad=1.5)
        axes.locator_params(axis="x", nbins=4)
        axes.xaxis.get_offset_text().set_fontsize(_POINTS - 1)
    return figure


def _draw(axes: Any, panel: Panel, labelled: bool) -> Any:
    """Draw a panel, and return its image; if `labelled`, with the names of its axes and ticks."""
    (x, across), (y, down), scale = panel.x, panel.y, panel.scale
    axes.tick_params(labelsize=_POINTS - 1, length=2, pad=1.5)
    if panel.kind == "curve":
        _draw_curves(axes, panel)
        if not labelled:
            axes.set_xticks([])
        axes.set_xlabel(x if labelled else "", fontsize=_POINTS, parse_math=False)
        return None
    colours: Any = {"vmin": scale.low, "vmax": scale.high}
    values: Any = np.ma.masked_invalid(panel.values)
    if scale.colormap is None:
        is_bad = values.mask.any(axis=-1, keepdims=True)
        values = np.where(is_bad, _BAD, np.round(values.filled(0) / scale.high * 255)).astype("u1")
    else:
        colormap = matplotlib().colormaps[scale.colormap]
        colours["cmap"] = colormap.with_extremes(bad=np.array(_BAD) / 255)
    extent = across[0] - 0.5, across[-1] + 0.5, down[-1] + 0.5, down[0] - 0.5
    image = axes.imshow(values, aspect="auto", extent=extent, **colours)
    axes.set_box_aspect(panel.aspect)
    axes.set_xticks([across[0], across[-1]] if labelled else [])
    axes.set_yticks([down[0], down[-1]] if labelled else [])
    if labelled:
        axes.set_xlabel(f"{x} →", fontsize=_POINTS, labelpad=-4, parse_math=False)
        axes.set_ylabel(f"← {y}", fontsize=_POINTS, labelpad=-4, parse_math=False)
    return image


def _draw_curves(axes: Any, panel: Panel) -> None:
    across = np.asarray(panel.x[1])
    for curve in panel.values:
        not_finite = ~np.isfinite(curve)
        marker = "." if len(across) < 3 else None
        axes.plot(across, np.where(not_finite, np.nan, curve), linewidth=0.8, marker=marker)
        if not_finite.any():
            height = np.full(not_finite.sum(), 0.02)
            axes.plot(across[not_finite], height, "|", color=np.array(_BAD) / 255,
                      transform=axes.get_xaxis_transform())  # fmt: skip
    low, high = panel.scale.low, panel.scale.high
    margin = 0.015 * (high - low)
    axes.set_ylim(low - margin, high + margin)
    axes.margins(x=0.01)
    axes.locator_params(axis="x", nbins=6, integer=True)
    axes.locator_params(axis="y", nbins=4)
    axes.yaxis.get_offset_text().set_fontsize(_POINTS - 1)


def film(preview: Preview, file: IO[bytes], suffix: str, fps: float) -> None:
    """Write a film with one frame for each element, on the scales of the preview."""
    if not _SLOWEST <= fps <= _FASTEST:
        raise ArgumentError(f"`fps` must be from {_SLOWEST} to {_FASTEST:.0f}; got {fps}.")
    frames = _frames(preview)  # a generator, as all frames would take much memory
    duration = max(1, round(100 / fps)) * 10  # in ms; GIF counts hundredths of a second
    next(frames).save(file, suffix, save_all=True, append_images=frames, duration=duration, loop=0)


def _frames(preview: Preview) -> Iterator[Any]:
    """Yield the contact sheet of each element as a picture; all are laid out the same."""
    from PIL import Image

    for label, element in zip(preview.labels, preview.elements, strict=True):
        figure: Any = sheet(replace(preview, labels=(label,), elements=(element,)))
        figure.set_dpi(100)
        figure.canvas.draw()
        yield Image.fromarray(np.asarray(figure.canvas.buffer_rgba())[..., :3])


_WIDEST = 120
"""Characters; a wider sheet would be higher than a screen."""


def can_show(console: Console) -> bool:
    """Return whether the libraries are there, and the console is a terminal with colours."""
    if not all(map(find_spec, ("matplotlib", "PIL", "textual_image"))):
        return False
    try:
        "▀".encode(console.encoding)
    except UnicodeEncodeError:
        return False
    with suppress(OSError):  # raised if standard output is not a terminal
        if 0 in os.get_terminal_size():  # some tools set this; textual-image divides by the size
            return False
    no_colours = console.no_color or console.is_dumb_terminal or not console.color_system
    return console.is_terminal and not no_colours


def show(preview: Preview, console: Console) -> None:
    """Print the pictures of a preview in the best way that the terminal supports."""
    # textual-image queries the terminal, and logs a traceback if there is no answer.
    logging.getLogger("textual_image").setLevel(logging.ERROR)
    from textual_image import renderable

    picture, kind = io.BytesIO(preview._repr_png_()), renderable.Image
    if kind not in (renderable.SixelImage, renderable.TGPImage):
        # Without texts, which are not readable as half-cell blocks.
        kind, figure, picture = renderable.HalfcellImage, preview.figure(), io.BytesIO()
        for text in figure.findobj(matplotlib("text").Text):
            text.set_visible(False)
        for axes in figure.axes:
            axes.tick_params(length=0)
            for curve in axes.lines:
                curve.set_linewidth(5)  # thinner curves would be less than a pixel
        figure.savefig(picture, format="png")
    console.print(kind(picture, width=min(console.width, _WIDEST), height="auto"))
