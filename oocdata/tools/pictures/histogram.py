"""What a contact sheet says of a scale: the histogram of its values, and its colours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from oocdata.tools.pictures.scale import DRAWABLE, Scale, drawable

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["POINT", "SCALE_HEIGHT", "SCALE_WIDTH", "draw_scale", "summary"]

POINT = 7.5
"""Of letters, in points."""

SCALE_WIDTH, SCALE_HEIGHT = 3.1, 2.4
"""In inches, of what `draw_scale` draws."""


def draw_scale(
    axes: Callable[..., Any], scale: Scale, left: float, top: float, unit: str | None
) -> None:
    """Draw the counts of a scale's values, and under them its colours."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    values = scale.values
    drawn = axes(left + 0.45, top + 0.2, SCALE_WIDTH - 0.45, 0.72)
    drawn.set_title(
        f"{scale.label or 'values shown'}: {values.count:,}",
        fontsize=POINT,
        pad=2.5,
        loc="left",
        parse_math=False,
    )
    drawn.tick_params(labelsize=POINT - 1, length=2, pad=1.5)
    drawn.set_ylabel("count", fontsize=POINT - 1, labelpad=1)
    if values.minimum is not None:
        edges = np.clip(values.edges, -DRAWABLE, DRAWABLE)
        drawn.stairs(values.counts, edges, fill=True, color="0.45")
        drawn.set_yscale("log", nonpositive="clip")
        drawn.set_ylim(0.7, max(10, 2 * max(values.counts)))
        drawn.set_xlim(*drawable(edges[0], edges[-1]))
        for border in drawable(scale.low, scale.high):
            if edges[0] <= border <= edges[-1]:
                drawn.axvline(border, color="tab:red", linewidth=0.8, linestyle="--")
        drawn.locator_params(axis="x", nbins=4)
        drawn.xaxis.get_offset_text().set_fontsize(POINT - 1)
    else:
        drawn.set_xticks([])
        drawn.set_yticks([])
    text = axes(left, top + 1.2, SCALE_WIDTH, 0.5)
    text.set_axis_off()
    text.text(0, 1, summary(scale), fontsize=POINT - 1, va="top", linespacing=1.25)
    if scale.colormap is None:
        return
    bar = axes(left + 0.45, top + 1.78, SCALE_WIDTH - 0.45, 0.1)
    mapping = ScalarMappable(Normalize(*drawable(scale.low, scale.high)), scale.colormap)
    made = bar.figure.colorbar(mapping, cax=bar, orientation="horizontal")
    made.ax.tick_params(labelsize=POINT - 1, length=2, pad=1.5)
    made.ax.locator_params(nbins=5)
    made.ax.xaxis.get_offset_text().set_fontsize(POINT - 1)
    if unit:
        bar.text(-0.02, 0.5, unit[:10], fontsize=POINT - 1, ha="right", va="center",
                 transform=bar.transAxes, parse_math=False)  # fmt: skip


def summary(scale: Scale) -> str:
    """Return a scale's values in short lines.

    Examples
    --------
    >>> import numpy as np
    >>> from oocdata.tools.pictures.scale import scale_of
    >>> print(summary(scale_of("", np.arange(101.0))))
    min 0, max 100
    mean 50, std 29.155
    NaN 0, infinite 0
    colours: percentiles 1 to 99
    """
    values = scale.values
    wrong = f"NaN {values.nan:,}, infinite {values.infinite:,}"
    if values.minimum is None:
        return f"{wrong}\nnothing finite"
    return (
        f"min {values.minimum:.5g}, max {values.maximum:.5g}\n"
        f"mean {values.mean:.5g}, std {values.std:.5g}\n"
        f"{wrong}\n{'colours' if scale.colormap else 'range'}: {scale.how}"
    )
