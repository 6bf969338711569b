"""Films: the elements of a preview one after the other, as an animated GIF or WebP."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.errors import ArgumentError
from oocdata.tools.pictures.panel import Panel, check_folder, painted, pillow

__all__ = ["FASTEST", "FILMS", "SLOWEST", "film"]

FILMS = (".gif", ".webp")
"""What a film's name may end in."""

SLOWEST, FASTEST = 0.02, 50.0
"""Frames per second: players show what is faster slowly, and a GIF holds no longer times."""

_LEAST, _MOST = 256, 512
_GAP = 6
_TEXT = 15
_MOST_BESIDE = 4


def film(
    path: Path,
    title: str,
    labels: Sequence[str],
    elements: Sequence[Sequence[Panel]],
    frames_per_second: float,
) -> None:
    """Write one frame for each element: its panels side by side, with its label.

    Colours mean the same in all frames, because these share their scales.

    Parameters
    ----------
    path : Path
        Ends in ``.gif`` or ``.webp``.
    title : str
    labels : sequence of str
        Of the elements.
    elements : sequence of sequence of Panel
        As many panels in each.
    frames_per_second : float
        At least 0.02, at most 50. A GIF's frames last whole hundredths of a second.

    Raises
    ------
    oocdata.errors.ArgumentError
        If the name or the speed doesn't do.
    oocdata.errors.MissingDependencyError
        If Pillow isn't installed.
    """
    check_folder(path, FILMS)
    if not SLOWEST <= frames_per_second <= FASTEST:
        raise ArgumentError(
            f"`frames_per_second` must be from {SLOWEST} to {FASTEST:.0f}; got {frames_per_second}."
        )
    image = pillow("Image")
    count = len(labels)
    heads = [(title, f"{label}  ({number} of {count})") for number, label in enumerate(labels, 1)]
    width = max(_wide(text) for head in heads for text in head)
    milliseconds = max(1, round(100 / frames_per_second)) * 10
    options: dict[str, Any] = {"format": path.suffix[1:].upper()}
    if options["format"] == "WEBP":
        options["lossless"] = True

    def drawn() -> Iterator[Any]:
        for head, panels in zip(heads, elements, strict=True):
            frame = image.fromarray(_frame(head, panels, width))
            gif = options["format"] == "GIF"
            yield frame.quantize(256, dither=image.Dither.NONE) if gif else frame

    frames = drawn()  # one at a time: all together would be large
    buffer = io.BytesIO()
    next(frames).save(
        buffer, save_all=True, append_images=frames, duration=milliseconds, loop=0, **options
    )
    path.write_bytes(buffer.getvalue())


def _size_of(panel: Panel) -> tuple[int, int]:
    """Return the height and width at which a panel is painted: whole pixels a value."""
    if panel.kind == "curve":
        return _LEAST, 2 * _LEAST
    height, width = panel.size
    longer = max(height, width)
    times = max(1, round(_LEAST / longer)) if longer <= _MOST else _MOST / longer
    return max(1, round(height * times)), max(1, round(width * times))


def _font() -> Any:
    return pillow("ImageFont").load_default(_TEXT - 3)


def _wide(text: str) -> int:
    return int(_font().getlength(text)) + 1


def _text(panel: Panel) -> str:
    """Return what a panel shows, and the range of its colours or heights."""
    span = f"{panel.scale.low:.4g} to {panel.scale.high:.4g}"
    return f"{panel.place}: {span}" if panel.place else span


def _columns(count: int) -> int:
    """Return how many of an element's panels stand side by side: as square as fits.

    Examples
    --------
    >>> [_columns(count) for count in (1, 3, 4, 6, 9)]
    [1, 3, 4, 3, 3]
    """
    if count <= _MOST_BESIDE:
        return count
    return next(columns for columns in range(math.isqrt(count - 1) + 1, count + 1)
                if count % columns == 0)  # fmt: skip


def _frame(head: Sequence[str], panels: Sequence[Panel], width: int) -> NDArray[np.uint8]:
    image, font = pillow("Image"), _font()
    sizes = [_size_of(panel) for panel in panels]
    texts = [_text(panel) for panel in panels]
    # Cells of one size, each with its line of text.
    across = max(max(size[1] for size in sizes), *map(_wide, texts)) + _GAP
    down = max(size[0] for size in sizes) + _TEXT + _GAP
    columns = _columns(len(panels))
    top = _GAP + _TEXT * len(head) + _GAP // 2
    width = max(across * columns - _GAP, width) + 2 * _GAP
    frame = image.new("RGB", (width, top + down * (len(panels) // columns)), "white")
    pen = pillow("ImageDraw").Draw(frame)
    for line, text in enumerate(head):
        pen.text((_GAP, _GAP + line * _TEXT), text, "black", font=font)
    for place, (panel, size) in enumerate(zip(panels, sizes, strict=True)):
        left, upper = _GAP + across * (place % columns), top + down * (place // columns)
        pen.text((left, upper), texts[place], "black", font=font)
        drawn = image.fromarray(painted(panel, *size))
        frame.paste(drawn, (left, upper + _TEXT))
    return np.asarray(frame, np.uint8)
