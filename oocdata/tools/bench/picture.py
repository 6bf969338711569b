"""The picture of a `Bench`: a bar for each way, beside lines for the limits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from oocdata.errors import ArgumentError, MissingDependencyError
from oocdata.tools.bench.result import LIMITS, Bench

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["SUFFIXES", "draw"]

SUFFIXES = (".png", ".svg", ".pdf")

_COLOURS = {"sequential": "#4c78a8", "full shuffle": "#b5651d", "block shuffle": "#0b6e4f"}
_LINES = {
    "disk in sequence": ("#7a5195", "--"),
    "disk at random": ("#7a5195", ":"),
    "decoder": ("#c0392b", "-"),
    "memory": ("#444444", "-."),
}
_REACH = 3.0
"""A limit that is so many times the fastest way is named in the legend, not drawn to scale."""


def draw(found: Bench, path: str) -> None:
    """Draw the ways beside the limits, and write it to a .png, .svg or .pdf."""
    if Path(path).suffix.lower() not in SUFFIXES:
        raise ArgumentError(f"a picture's name must end in {', '.join(SUFFIXES)}; got {path!r}.")
    if not Path(path).absolute().parent.is_dir():
        raise ArgumentError(f"the picture's folder must exist; got {path!r}.")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingDependencyError(
            f"a picture of the bench is drawn with Matplotlib; {error}. Install it: "
            "pip install 'oocdata[pictures]'."
        ) from error
    figure = Figure(figsize=(9.0, 2.1 + 0.34 * len(found.ways)), layout="constrained")
    axes = figure.add_subplot()
    _bars(axes, found)
    _limits(axes, found)
    axes.set_xlabel("elements/s")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.spines[["top", "right"]].set_visible(False)
    title = f"{found.name}: {found.element}\n{found.storage}, codec {found.codec}"
    axes.set_title(title, loc="left", fontsize=10, parse_math=False)
    figure.savefig(path, dpi=130)


def _bars(axes: Axes, found: Bench) -> None:
    ways = found.ways
    several = len({way.reader for way in ways}) > 1
    spreads = [(way.rate - min(way.rounds), max(way.rounds) - way.rate) for way in ways]
    bars = axes.barh(
        range(len(ways)),
        [way.rate for way in ways],
        color=[_COLOURS[way.order] for way in ways],
        xerr=np.array(spreads).T,
        error_kw={"ecolor": "#222222", "elinewidth": 0.9, "capsize": 2},
    )
    box: Any = {"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.85}
    axes.bar_label(bars, [f"{way.rate:,.0f}" for way in ways], padding=4, fontsize=8, bbox=box)
    labels = [f"{way.order}, {way.batch_size:,}{f', {way.reader}' * several}" for way in ways]
    axes.set_yticks(range(len(ways)), labels, fontsize=8.5)
    axes.invert_yaxis()


def _limits(axes: Axes, found: Bench) -> None:
    """Draw a line for each limit in reach; name the others in the legend all the same."""
    widest = max(max(way.rounds) for way in found.ways)
    near = [limit for limit in found.limits if limit.elements <= _REACH * widest]
    axes.set_xlim(0, 1.14 * max([widest, *(limit.elements for limit in near)]))
    for limit in found.limits:
        colour, dashes = _LINES[limit.name]
        beyond = "" if limit in near else ": beyond the right edge"
        axes.axvline(
            limit.elements if limit in near else -1.0,  # out of sight
            color=colour,
            linestyle=dashes,
            linewidth=1.4,
            label=f"{LIMITS[limit.name]} {limit.elements:,.0f}{beyond}",
        )
    axes.figure.legend(loc="outside lower center", ncols=2, fontsize=8, frameon=False)
