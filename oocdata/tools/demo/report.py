"""What the demonstration shows in the end: a table of what was measured, and a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocdata.errors import MissingDependencyError
from oocdata.explain import size
from oocdata.tools.demo.measuring import Reading, Subject, Training
from oocdata.tools.demo.model import channels_last, is_frame

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["as_json", "draw", "pyplot", "summary"]

_EXAMPLES = 7
_MOST_SERIES = 7
"""Rows of up to so many numbers are drawn over time."""

_IN_SERIES = 100


def pyplot() -> Any:
    """Return ``matplotlib.pyplot``, drawing to files.

    Raises
    ------
    oocdata.errors.MissingDependencyError
        If matplotlib isn't installed.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise MissingDependencyError(
            f"the demonstration draws with matplotlib; {error}. Install it: "
            "pip install 'oocdata[demo]'."
        ) from error
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def summary(
    subjects: Sequence[Subject], readings: Sequence[Reading], trainings: Sequence[Training]
) -> Table:
    """Return everything that was measured, a column for each subject."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    table.add_column("measured")
    for subject in subjects:
        table.add_column(subject.name, justify="right")

    def row(label: str, values: Sequence[str], *, end_section: bool = False) -> None:
        table.add_row(label, *values, end_section=end_section)

    row("array in memory", [size(subject.memory_bytes) for subject in subjects])
    row("on disk", [size(one.disk_bytes) if one.disk_bytes else "-" for one in subjects])
    row("order", [reading.order.partition(",")[0] for reading in readings])
    row("memory bound stated", [size(reading.bound) for reading in readings])
    row("memory taken by reading", [size(reading.growth) for reading in readings])
    row("reading, elements/s", [f"{one.elements / one.seconds:,.0f}" for one in readings])
    row("reading, per second", [size(one.nbytes / one.seconds) for one in readings])
    row("training, elements/s", [f"{one.elements_per_second:,.0f}" for one in trainings])
    row("training steps", [f"{one.steps:,} of {one.steps_planned:,}" for one in trainings])
    row("memory taken by training", [size(one.growth) for one in trainings])
    row("validation loss", [f"{one.val_loss:.6f}" for one in trainings])
    row("  copying the last frame", [f"{one.val_copy_last:.6f}" for one in trainings])
    row("test loss", [f"{one.test_loss:.6f}" for one in trainings])
    row("  copying the last frame", [f"{one.test_copy_last:.6f}" for one in trainings])
    row("  model's share of that", [_share(one) for one in trainings])
    return table


def as_json(
    subjects: Sequence[Subject],
    readings: Sequence[Reading],
    trainings: Sequence[Training],
    picture: Path,
) -> dict[str, Any]:
    """Return everything that was measured, for ``json.dumps``.

    Returns
    -------
    dict
        ``{"picture": path, "arrays": [{"name", "memory_bytes", "disk_bytes", "reading": {…},
        "training": {…}}, …]}``, with the fields of `Reading` and of `Training`, the model aside.
    """
    arrays = []
    for subject, reading, training in zip(subjects, readings, trainings, strict=True):
        measured = {
            field.name: getattr(training, field.name)
            for field in fields(training)
            if field.name != "model"
        }
        arrays.append(
            {
                "name": subject.name,
                "memory_bytes": subject.memory_bytes,
                "disk_bytes": subject.disk_bytes or None,
                "reading": asdict(reading),
                "training": measured,
            }
        )
    return {"picture": str(picture), "arrays": arrays}


def _share(training: Training) -> str:
    if training.test_copy_last == 0:
        return "-"
    return f"{training.test_loss / training.test_copy_last:.0%}"


def draw(path: Path, subject: Subject, training: Training, title: str) -> None:
    """Draw test elements: inputs, target, prediction, and both errors.

    Parameters
    ----------
    path : Path
        A PNG.
    subject : Subject
    training : Training
    title : str
    """
    frames, count = is_frame(subject.element), len(subject.test)
    series = prod(subject.element) <= _MOST_SERIES
    places = np.arange(min(_IN_SERIES, count)) if series else np.linspace(0, count - 1, _EXAMPLES)
    batch: Any = subject.test.take(np.unique(places.astype(int)))
    x, y = batch
    predicted: NDArray[Any] = training.model.predict(x, verbose=0)
    if frames and prod(subject.element) > prod(_image(x[0, 0]).shape):
        title += " (first channel)"
    drawing = _draw_frames if frames else _draw_series if series else _draw_rows
    figure = drawing(x, y, predicted)
    figure.suptitle(title, fontsize=10)
    figure.savefig(path, dpi=130, bbox_inches="tight", facecolor="white")
    pyplot().close(figure)


def _image(frame: NDArray[Any]) -> NDArray[Any]:
    """Return one channel of a frame, shape (height, width)."""
    images = np.moveaxis(frame, -1, 0) if channels_last(frame.shape) else frame
    image: NDArray[Any] = images.reshape(-1, *images.shape[-2:])[0]
    return image


def _draw_frames(x: NDArray[Any], y: NDArray[Any], predicted: NDArray[Any]) -> Any:
    last = x.shape[1] - 1
    rows = [(f"input, frame t{place - last or ''}", x[:, place]) for place in range(last + 1)]
    rows += [("target, frame t+1", y[:, 0]), ("prediction", predicted[:, 0])]
    errors = [
        ("error of prediction", predicted[:, 0] - y[:, 0]),
        ("error of copying t", x[:, last] - y[:, 0]),
    ]
    shown = np.stack([_image(frame) for _, frames in rows[:-1] for frame in frames])
    low, high = np.percentile(shown, [0.1, 99.9])
    wide = max(float(np.percentile(np.abs(errors[1][1]), 99.5)), 1e-9)
    lines, count = len(rows) + 2, len(x)
    figure, axes = pyplot().subplots(
        lines, count, figsize=(count + 1.9, lines + 0.2), squeeze=False, layout="constrained"
    )
    figure.get_layout_engine().set(w_pad=0.02, h_pad=0.02, wspace=0, hspace=0)
    for line, (label, frames) in enumerate(rows + errors):
        is_error = line >= len(rows)
        options: dict[str, Any] = (
            {"cmap": "RdBu_r", "vmin": -wide, "vmax": wide}
            if is_error
            else {"cmap": "magma", "vmin": low, "vmax": max(high, low + 1e-9)}
        )
        for axis, frame in zip(axes[line], frames, strict=True):
            drawn = axis.imshow(_image(frame), interpolation="nearest", **options)
            axis.set_xticks([])
            axis.set_yticks([])
        axes[line, 0].set_ylabel(label, rotation=0, ha="right", va="center", fontsize=8)
        if line == 0:
            bar = figure.colorbar(drawn, ax=axes[: len(rows)], aspect=30, pad=0.01)
            bar.ax.tick_params(labelsize=7)
        if line == len(rows):
            bar = figure.colorbar(drawn, ax=axes[len(rows) :], aspect=30, pad=0.01)
            bar.ax.tick_params(labelsize=7)
    return figure


def _draw_rows(x: NDArray[Any], y: NDArray[Any], predicted: NDArray[Any]) -> Any:
    """Draw each example as lines along the row."""
    figure, axes = pyplot().subplots(
        len(x), 1, figsize=(7, 1.2 * len(x) + 0.6), squeeze=False, sharex=True, layout="constrained"
    )
    for axis, before, target, guess in zip(axes[:, 0], x, y, predicted, strict=True):
        axis.plot(before[-1].reshape(-1), color="0.7", label="input, row t")
        axis.plot(target[0].reshape(-1), color="black", label="target, row t+1")
        axis.plot(guess[0].reshape(-1), color="tab:red", linestyle="--", label="prediction")
        axis.tick_params(labelsize=7)
    axes[-1, 0].set_xlabel("place in the row", fontsize=8)
    axes[0, 0].legend(fontsize=7, ncols=3, loc="upper right")
    return figure


def _draw_series(x: NDArray[Any], y: NDArray[Any], predicted: NDArray[Any]) -> Any:
    """Draw each of a row's few numbers over consecutive elements."""
    before, target, guess = (
        part.reshape(len(part), -1) for part in (x[:, -1], y[:, 0], predicted[:, 0])
    )
    count = target.shape[1]
    figure, axes = pyplot().subplots(
        count, 1, figsize=(7, 1.6 * count + 1), squeeze=False, sharex=True, layout="constrained"
    )
    for place, axis in enumerate(axes[:, 0]):
        axis.plot(before[:, place], color="0.7", label="input, row t")
        axis.plot(target[:, place], color="black", label="target, row t+1")
        axis.plot(guess[:, place], color="tab:red", linestyle="--", label="prediction")
        axis.tick_params(labelsize=7)
    axes[-1, 0].set_xlabel("test element", fontsize=8)
    axes[0, 0].legend(fontsize=7, ncols=3)
    return figure
