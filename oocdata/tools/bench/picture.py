"""The picture of a `Bench`: a bar for each way, beside lines for the limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oocdata.errors import MissingDependencyError
from oocdata.tools.bench.result import Bench, Limit
from oocdata.tools.preview.sheet import check_folder

__all__ = ["SUFFIXES", "draw"]

SUFFIXES = (".png", ".svg", ".pdf")

_COLOURS = {"sequential": "#4c78a8", "full shuffle": "#b5651d", "block shuffle": "#0b6e4f"}
_LINES = {
    "disk in sequence": ("#7a5195", "--"),
    "disk at random": ("#7a5195", ":"),
    "decoder": ("#c0392b", "-"),
    "memory": ("#444444", "-."),
}
_WIDTH = 9.0
_INCHES_A_BAR = 0.34
_BESIDE = 2.1
"""Inches for what stands above and below the bars."""

_REACH = 3.0
"""A limit that is so many times the fastest way is named at the edge, not drawn to scale."""

_PIXELS_AN_INCH = 130


def draw(found: Bench, path: str) -> None:
    """Draw the ways beside the limits, and write it to a file.

    Parameters
    ----------
    found : Bench
    path : str
        Its ending says which kind of picture: ``.png``, ``.svg``, ``.pdf``.

    Raises
    ------
    oocdata.errors.MissingDependencyError
        If Matplotlib is not installed.
    oocdata.errors.ArgumentError
        If there is no folder for it, or it has another ending.
    """
    check_folder(Path(path).absolute(), SUFFIXES)
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingDependencyError(
            f"a picture of the bench is drawn with Matplotlib; {error}. Install it: "
            "pip install 'oocdata[pictures]'."
        ) from error
    height = _BESIDE + _INCHES_A_BAR * len(found.ways)
    picture = Figure(figsize=(_WIDTH, height), layout="constrained")
    FigureCanvasAgg(picture)
    axes = picture.add_subplot()
    _bars(axes, found)
    _limits(axes, found)
    axes.set_xlabel("elements/s")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.set_title(_title(found), loc="left", fontsize=10, parse_math=False)
    picture.savefig(path, dpi=_PIXELS_AN_INCH)


def _title(found: Bench) -> str:
    name = Path(found.path).name if found.path else "memory"
    key = f", {found.key}" if found.key else ""
    state = {"cold": "not in the page cache"}.get(found.cache, "")
    return f"{name}{key}: {found.element}\n{found.storage}, codec {found.codec}; {state}".rstrip(
        "; "
    )


def _bars(axes: Any, found: Bench) -> None:
    several = len({way.reader for way in found.ways}) > 1
    widest = max(way.rate for way in found.ways)
    for place, way in enumerate(found.ways):
        low, high = min(way.rounds), max(way.rounds)
        axes.barh(
            place,
            way.rate,
            height=0.72,
            color=_COLOURS.get(way.order, "#888888"),
            alpha=0.45 if way.estimated else 0.9,
            hatch="//" if way.estimated else None,
            xerr=[[way.rate - low], [high - way.rate]] if high > low else None,
            error_kw={"ecolor": "#222222", "elinewidth": 0.9, "capsize": 2},
        )
        about = "≈" if way.estimated else ""
        axes.text(
            max(high, way.rate) + widest * 0.012,
            place,
            f"{about}{way.rate:,.0f}",
            va="center",
            fontsize=8,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.85},
            zorder=4,
        )
    labels = [
        f"{way.order}, {way.batch_size:,}" + (f", {way.reader}" if several else "")
        for way in found.ways
    ]
    axes.set_yticks(range(len(found.ways)), labels, fontsize=8.5)
    axes.set_ylim(len(found.ways) - 0.4, -0.6)


def _limits(axes: Any, found: Bench) -> None:
    """Draw a line for each limit in reach; name the others in the legend all the same."""
    widest = max(max(way.rounds) for way in found.ways)
    near = [limit for limit in found.limits if limit.elements <= _REACH * widest]
    edge = max([widest, *(limit.elements for limit in near)]) * 1.14
    axes.set_xlim(0, edge)
    for limit in found.limits:
        colour, dashes = _LINES[limit.name]
        label = _label(limit)
        if limit in near:
            axes.axvline(limit.elements, color=colour, linestyle=dashes, linewidth=1.4, label=label)
        else:
            axes.plot(
                [], [], color=colour, linestyle=dashes, label=f"{label}: beyond the right edge"
            )
    axes.figure.legend(loc="outside lower center", ncols=2, fontsize=8, frameon=False)


def _label(limit: Limit) -> str:
    words = {
        "disk in sequence": "disk, in sequence, cold",
        "disk at random": "disk, at random, cold",
        "decoder": "decoder alone",
        "memory": "copying in memory",
    }
    return f"{words[limit.name]} {limit.elements:,.0f}"
