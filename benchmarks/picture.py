"""The picture: a panel for each case, a bar for each way, as a share of the limit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.results import Figure, Results
from benchmarks.section import Section

__all__ = ["draw"]

_COLOURS = {"ours": "#0b6e4f", "peer": "#8d99ae", "limit": "#d8c99b"}
_COLUMNS = 2
_INCHES_A_BAR = 0.24
_INCHES_ABOVE, _INCHES_BELOW = 0.6, 0.55  # for the title; for the scale
_WIDTH = 15.0
_NAMES_SHARE, _BARS_SHARE = 0.31, 0.65  # of a column's width


def draw(measured: list[tuple[Section, Results]], path: Path) -> None:
    """Write a picture of the rates.

    Parameters
    ----------
    measured : list of (Section, Results)
    path : Path
        Its ending says which kind of picture.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Picture

    panels = [
        (f"{section.title}\n{case.name}", bars, results.limit(case.name))
        for section, results in measured
        if not section.first_batch_only
        for case in section.cases
        if (bars := _bars(results, case.name))
    ]
    if not panels:
        return
    columns = _balanced(panels)
    tallest = max(sum(_inches(bars) for _, bars, _ in column) for column in columns)
    picture = Picture(figsize=(_WIDTH, tallest))
    FigureCanvasAgg(picture)
    for number, column in enumerate(columns):
        top = tallest
        left, width = (number + _NAMES_SHARE) / _COLUMNS, _BARS_SHARE / _COLUMNS
        for title, bars, limit in column:
            top -= _inches(bars)
            bottom, height = top + _INCHES_BELOW, _INCHES_A_BAR * len(bars)
            axes = picture.add_axes((left, bottom / tallest, width, height / tallest))
            _panel(axes, title, bars, limit)
    picture.savefig(path, dpi=110)


def _inches(bars: list[Figure]) -> float:
    return _INCHES_ABOVE + _INCHES_BELOW + _INCHES_A_BAR * len(bars)


def _balanced(panels: list[Any]) -> list[list[Any]]:
    """Deal panels out in order, each to the column that is the shortest."""
    columns: list[list[Any]] = [[] for _ in range(min(_COLUMNS, len(panels)))]
    filled = [0.0] * len(columns)
    for panel in panels:
        shortest = filled.index(min(filled))
        columns[shortest].append(panel)
        filled[shortest] += _inches(panel[1])
    return columns


def _bars(results: Results, case: str) -> list[Figure]:
    found = [figure for figure in results if figure.case == case and figure.rates]
    return sorted(found, key=lambda figure: figure.rate)


def _panel(axes: Any, title: str, bars: list[Figure], limit: Figure | None) -> None:
    whole = limit.rate if limit else max(bar.rate for bar in bars)
    shares = [bar.rate / whole for bar in bars]
    axes.barh(range(len(bars)), shares, color=[_COLOURS[bar.kind] for bar in bars], height=0.75)
    widest = max(*shares, 1.0)
    for place, (bar, share) in enumerate(zip(bars, shares, strict=True)):
        axes.text(
            share + widest * 0.01,
            place,
            f"{bar.rate:,.0f}",
            va="center",
            fontsize=8,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6},
        )
    if limit:
        axes.axvline(1.0, color="#5f5a45", linewidth=0.8, linestyle=":")
    axes.set_yticks(range(len(bars)), [bar.label for bar in bars], fontsize=8)
    axes.set_xlim(0, widest * 1.22)
    axes.set_ylim(-0.6, len(bars) - 0.4)
    axes.tick_params(axis="x", labelsize=7)
    axes.set_title(title, fontsize=9, loc="left")
    than = limit.label if limit else "the fastest"
    axes.set_xlabel(f"elements/s; bars: share of {than}", fontsize=7)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
