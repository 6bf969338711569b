"""What a preview found, as text and as JSON."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from oocdata.tools.lines import labelled
from oocdata.tools.pictures.scale import COLOUR, Scale
from oocdata.tools.preview.parts import listed

if TYPE_CHECKING:
    from oocdata.tools.preview import Preview

__all__ = ["as_json", "as_text"]

_BARS = " ▁▂▃▄▅▆▇█"
_MOST_HISTOGRAMS = 3


def as_text(preview: Preview) -> str:
    """Return a preview as aligned lines of at most 80 characters where words allow it."""
    where = [word for word in (preview.shown_path, preview.key) if word]
    fields = [
        ("file", ", ".join(where)),
        ("array", preview.array + (f", in {preview.unit}" if preview.unit else "")),
        *(("axes", said) for said in _axes(preview)),
        ("shown", _shown(preview)),
        *(("note", note) for note in preview.notes),
    ]
    lines = [labelled(label, text) for label, text in fields if text]
    for scale in preview.scales:
        lines += _scale_lines(scale, len(preview.scales) <= _MOST_HISTOGRAMS)
    return "\n".join(lines)


def _shown(preview: Preview) -> str:
    firsts = [some[0] for some in preview.rows]
    number = f"{len(firsts):,}"
    if all(len(some) == 1 for some in preview.rows):
        return f"{number} row{'s' * (len(firsts) > 1)}: {listed(firsts)}"
    return f"{number} element{'s' * (len(firsts) > 1)}, from rows {listed(firsts)} on"


def _axes(preview: Preview) -> list[str]:
    """Return the axes of an element's arrays in words, once where they are the same."""
    said = {name: str(axes) for name, axes in preview.axes.items() if axes.letters}
    if len(set(said.values())) == 1:
        return list(said.values())[:1]
    return [f"{name}: {words}" for name, words in said.items()]


def _scale_lines(scale: Scale, histogram: bool) -> list[str]:
    values = scale.values
    name = f"{scale.label}: " if scale.label else ""
    wrong = f"{values.nan:,} NaN, {values.infinite:,} infinite"
    if values.minimum is None:
        return [labelled("values", f"{name}{values.count:,} shown, {wrong}, none finite")]
    said = (
        f"{name}{values.count:,} shown, {wrong}; min {values.minimum:.6g}, max "
        f"{values.maximum:.6g}, mean {values.mean:.6g}, std {values.std:.6g}"
    )
    label = "colours" if scale.colormap or scale.how == COLOUR else "heights"
    drawn = f"{scale.low:.6g} to {scale.high:.6g} ({scale.how})"
    if scale.colormap is not None:
        drawn += f", {scale.colormap}"
    return [
        labelled("values", said),
        labelled(label, drawn),
        *([labelled("log counts", _bars(values.counts))] if histogram else []),
    ]


def _bars(counts: tuple[int, ...]) -> str:
    """Return a histogram as one character a bin, by the logarithm; a single value is seen.

    Examples
    --------
    >>> _bars((0, 1, 10, 100))
    ' ▁▄█'
    """
    most = math.log1p(max(counts))
    high = len(_BARS) - 1
    return "".join(
        _BARS[0 if count == 0 else max(1, round(math.log1p(count) / most * high))]
        for count in counts
    )


def as_json(preview: Preview) -> dict[str, Any]:
    """Return everything but the pictures."""
    return {
        "path": preview.path,
        "key": preview.key,
        "array": preview.array,
        "unit": preview.unit,
        "axes": {
            name: {
                "letters": axes.letters,
                "sizes": list(axes.sizes),
                "names": list(axes.names),
                "certain": axes.certain,
            }
            for name, axes in preview.axes.items()
        },
        "rows": [list(some) for some in preview.rows],
        "labels": list(preview.labels),
        "panels": [panel.place for panel in preview.elements[0]],
        "scales": [_scale_json(scale) for scale in preview.scales],
        "notes": list(preview.notes),
    }


def _scale_json(scale: Scale) -> dict[str, Any]:
    values = scale.values
    return {
        "label": scale.label,
        "low": _number(scale.low),
        "high": _number(scale.high),
        "colormap": scale.colormap,
        "how": scale.how,
        "count": values.count,
        "nan": values.nan,
        "infinite": values.infinite,
        "minimum": _number(values.minimum),
        "maximum": _number(values.maximum),
        "mean": _number(values.mean),
        "std": _number(values.std),
        "histogram": {
            "edges": [_number(edge) for edge in values.edges],
            "counts": list(values.counts),
        },
    }


def _number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
