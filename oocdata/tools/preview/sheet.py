"""Draw contact sheets and films: the panels in a grid, with a colour bar for each scale below.

The panels of an element are in one line, and several elements share a line if that makes panels
larger. Matplotlib's constrained layout places the texts; only the size of the sheet is chosen here.
"""

from __future__ import annotations

import io
import logging
import os
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from itertools import chain
from math import ceil
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from oocdata.errors import ArgumentError
from oocdata.tools.libraries import matplotlib
from oocdata.tools.preview.scale import BAD, Panel, Scale, colours

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Console

    from oocdata.tools.preview import Preview

FILMS = (".gif", ".webp")
"""Suffixes of films."""

_WIDTH, _HEIGHT = 12.0, 7.5
"""The most inches for all panels."""

_SMALLEST, _LARGEST = 0.8, 4.0
"""Limits of a panel's height, in inches."""

_TITLE, _LABEL, _SCALE = 0.2, 0.4, 0.7
"""Inches for the title of a panel, the label left of an element, and a colour bar."""

_POINTS = 7.5
_SCALES_IN_LINE = 6
_SLOWEST, _FASTEST = 0.02, 50.0
"""Frames per second: players slow down faster films, and a GIF can't hold longer durations."""


def sheet(preview: Preview) -> Figure:
    """Return the contact sheet of a preview as a figure that is not registered with pyplot."""
    elements = preview.elements
    single = len(elements) == 1 or len(elements[0]) == 1  # each panel has its own title
    groups = [(panel,) for panel in chain(*elements)] if single else elements
    columns, panel_height = _grid(groups)
    panel_widths = [panel_height / panel.aspect for panel in groups[0]]
    lines = ceil(len(groups) / columns)
    group_width = sum(panel_widths) + 0.1 * len(panel_widths) + _LABEL * (not single)
    grid_width = columns * group_width
    grid_height = lines * (panel_height + (_TITLE if single else 0.06)) + 2 * _TITLE
    width = max(grid_width + 0.4, 6.0)
    coloured = [scale for scale in preview.scales if scale.colormap is not None]
    in_line = min(max(len(coloured), 1), _SCALES_IN_LINE, max(2, int(grid_width / 2)))
    bar_lines = ceil(len(coloured) / in_line)
    notes = [line for note in preview.notes for line in textwrap.wrap(note, int(width * 16))]
    height = grid_height + bar_lines * _SCALE + 0.16 * len(notes) + 0.65
    figure: Figure = matplotlib("figure").Figure((width, height), dpi=130, layout="constrained")
    matplotlib("backends.backend_agg").FigureCanvasAgg(figure)
    title = textwrap.fill(f"{preview.name}: {preview.array}", int(width * 12))
    title += f"\n{preview.labels[0]}" if len(elements) == 1 else ""
    figure.suptitle(title, x=0.01, ha="left", fontsize=9, fontweight="bold", parse_math=False)
    if notes:
        figure.supxlabel("\n".join(notes), x=0.01, ha="left", fontsize=_POINTS, parse_math=False)
    ratios = (grid_height, bar_lines * _SCALE) if bar_lines else (1,)
    halves = figure.add_gridspec(len(ratios), 1, height_ratios=ratios)
    in_group = len(panel_widths)
    grid = halves[0].subgridspec(lines, columns * in_group, width_ratios=panel_widths * columns)
    for number, group in enumerate(groups):
        line, column = divmod(number, columns)
        label = preview.labels[number] if len(elements) > 1 else ""
        is_corner, labelled = column == 0 and number + columns >= len(groups), list[Any]()
        for at, panel in enumerate(group):
            axes: Any = figure.add_subplot(grid[line, column * in_group + at])
            # Panels with the same axes are labelled once.
            panel_axes = panel.kind == "curve", panel.x, panel.y
            _draw(axes, panel, is_corner and panel_axes not in labelled)
            labelled.append(panel_axes)
            texts = [label if len(group) == 1 else "", panel.place if single or line == 0 else ""]
            title = ", ".join(filter(None, texts))
            axes.set_title(title or " " * single, fontsize=_POINTS, pad=3, parse_math=False)
            if len(group) > 1 and at == 0:
                left = f"{label}\n{axes.get_ylabel()}".strip()
                axes.set_ylabel(left, fontsize=_POINTS, parse_math=False)
    if coloured:
        grid = halves[1].subgridspec(bar_lines, in_line, wspace=0.1)
        for number, scale in enumerate(coloured):
            _draw_scale(figure.add_subplot(grid[divmod(number, in_line)]), scale)
    return figure


def _grid(groups: Sequence[Sequence[Panel]]) -> tuple[int, float]:
    """Return the number of groups in a line, and the height of panels, as large as fits."""
    label = 0.0 if len(groups[0]) == 1 else _LABEL
    width_by_height = sum(1 / panel.aspect for panel in groups[0])

    def panel_height(columns: int) -> float:
        fitting = _HEIGHT / ceil(len(groups) / columns) - _TITLE
        return min(fitting, (_WIDTH / columns - label - 0.1 * len(groups[0])) / width_by_height)

    columns = max(range(1, len(groups) + 1), key=panel_height)
    return columns, min(max(panel_height(columns), _SMALLEST), _LARGEST)


def _draw(axes: Any, panel: Panel, labelled: bool) -> None:
    """Draw a panel; if `labelled`, with the names of its axes and ticks."""
    (x, across), (y, down) = panel.x, panel.y
    axes.tick_params(labelsize=_POINTS - 1, length=2, pad=1.5)
    if panel.kind == "curve":
        _draw_curves(axes, panel)
        if not labelled:
            axes.set_xticks([])
        axes.set_xlabel(x if labelled else "", fontsize=_POINTS, parse_math=False)
        return
    axes.imshow(
        colours(panel.scale, panel.values),
        aspect="auto",
        extent=(across[0] - 0.5, across[-1] + 0.5, down[-1] + 0.5, down[0] - 0.5),
    )
    axes.set_box_aspect(panel.aspect)
    axes.set_xticks([across[0], across[-1]] if labelled else [])
    axes.set_yticks([down[0], down[-1]] if labelled else [])
    if labelled:
        axes.set_xlabel(f"{x} →", fontsize=_POINTS, labelpad=-4, parse_math=False)
        axes.set_ylabel(f"← {y}", fontsize=_POINTS, labelpad=-4, parse_math=False)


def _draw_curves(axes: Any, panel: Panel) -> None:
    across = np.asarray(panel.x[1])
    for curve in panel.values:
        not_finite = ~np.isfinite(curve)
        marker = "." if len(across) < 3 else None
        axes.plot(across, np.where(not_finite, np.nan, curve), linewidth=0.8, marker=marker)
        if not_finite.any():
            height = np.full(not_finite.sum(), 0.02)
            axes.plot(across[not_finite], height, "|", color=np.array(BAD) / 255,
                      transform=axes.get_xaxis_transform())  # fmt: skip
    axes.set_ylim(panel.scale.low, panel.scale.high)
    axes.margins(x=0.01)
    axes.locator_params(axis="x", nbins=6, integer=True)
    axes.locator_params(axis="y", nbins=4)
    axes.yaxis.get_offset_text().set_fontsize(_POINTS - 1)


def _draw_scale(axes: Any, scale: Scale) -> None:
    """Draw the colour bar of a scale."""
    norm = matplotlib("colors").Normalize(scale.low, scale.high)
    colours_of = matplotlib("cm").ScalarMappable(norm, scale.colormap)
    bar = {"orientation": "horizontal", "extend": "both", "extendfrac": 0.03}
    axes.figure.colorbar(colours_of, cax=axes, **bar)
    axes.set_title(scale.label or "values shown", fontsize=_POINTS, pad=2, parse_math=False)
    axes.tick_params(labelsize=_POINTS - 1, length=2, pad=1.5)
    axes.locator_params(axis="x", nbins=4)
    axes.xaxis.get_offset_text().set_fontsize(_POINTS - 1)


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
