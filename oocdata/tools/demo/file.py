"""The demonstration on a user's own array: the same steps, in bounded time."""

from __future__ import annotations

import threading
from dataclasses import replace
from math import prod
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.datasets.dataset import Dataset
from oocdata.datasets.view import View
from oocdata.datasets.windows import Windows
from oocdata.errors import ArgumentError, EmptyError
from oocdata.explain import size
from oocdata.tools.demo import (
    INPUTS,
    Plan,
    checks,
    finish,
    measure,
    measuring,
    prepare,
    report,
    train,
)
from oocdata.tools.demo.measuring import Subject
from oocdata.tools.demo.memory import resident_bytes
from oocdata.tools.demo.screen import Screen
from oocdata.tools.demo.workspace import Signals, memory_of
from oocdata.tools.info import Opening

__all__ = ["Scale", "demo_on_file"]

_LONGEST_SIDE = 256
_LONGEST_ROW = 16_384
_VALUES_IN_BATCH = 1 << 22
_SAMPLE_BYTES = 32 << 20
_SAMPLE_ELEMENTS = 256


class Scale:
    """Shift and scale a batch, in place, to mean 0 and deviation 1; what is no number becomes 0.

    Parameters
    ----------
    mean, deviation : float

    Attributes
    ----------
    replaced : int
        Values so far that were NaN or infinite.

    Examples
    --------
    >>> scale = Scale(1.0, 2.0)
    >>> scale(np.array([3.0, np.nan]), np.array([1.0]))
    (array([1., 0.]), array([0.]))
    >>> scale.replaced
    1
    """

    def __init__(self, mean: float, deviation: float) -> None:
        self.mean = mean
        self.deviation = deviation
        self.replaced = 0
        self._lock = threading.Lock()

    def __call__(
        self, x: NDArray[np.floating[Any]], y: NDArray[np.floating[Any]]
    ) -> tuple[NDArray[np.floating[Any]], NDArray[np.floating[Any]]]:
        """Scale both arrays of a batch."""
        for array in (x, y):
            array -= array.dtype.type(self.mean)
            array *= array.dtype.type(1 / self.deviation)
            finite = np.isfinite(array)
            wrong = array.size - int(np.count_nonzero(finite))
            if wrong:
                array[~finite] = 0
                with self._lock:
                    self.replaced += wrong
        return x, y


def demo_on_file(
    plan: Plan,
    output: Path,
    path: str,
    key: str | None,
    opening: Opening,
    episodes: int | str | None,
    *,
    aside: bool = False,
) -> dict[str, Any]:
    """Run the demonstration on an array of the user's.

    Parameters
    ----------
    plan : Plan
        Its times and batch size hold; training is for as many epochs as fit into the time, up to
        20.
    output : Path
        The picture.
    path, key, opening
        As for `oocdata.open`.
    episodes : int, "files" or None
        Rows in an episode (the last may have fewer); no window crosses from one to the next.
    aside : bool
        Say everything on standard error.

    Returns
    -------
    dict
        See `oocdata.tools.demo.report.as_json`.

    Raises
    ------
    oocdata.errors.OocdataError
        If it can't be opened, holds no real numbers or too few rows, or a check fails.
    """
    begun = perf_counter()
    signals = Signals()
    screen = Screen(signals.check, aside)
    whole = opening.view(path, key)
    if whole.dtype.kind == "c":
        raise ArgumentError(
            f"the demonstration must get real numbers; '{path}' holds {whole.dtype}."
        )
    if prod(whole.element) == 0:
        raise EmptyError(f"rows must hold at least one number; those of '{path}' hold none.")
    view = _cut(whole).astype(np.float32)
    parts = _parts(view, episodes)
    storage = whole.storage
    name = storage.format
    where = f"{path}, {storage.key}" if storage.key else path
    screen.say(
        f"{where}: {len(whole):,} rows of {whole.element} {whole.dtype}, {size(whole.nbytes)} in "
        f"memory; {storage.format}, {storage.layout}, codec {storage.codec}."
    )
    if view.element != whole.element:
        screen.say(f"Of each row the middle {view.element} is used, to keep the time short.")
    counts = ", ".join(f"{len(part):,}" for part in parts)
    screen.say(
        f"The model sees {INPUTS} rows and predicts the next: {counts} such windows for training, "
        "validation and testing."
    )
    screen.say()
    with signals, memory_of(plan.reading_bytes):
        with screen.progress("import TensorFlow and matplotlib", 1):
            prepare(output)
        with screen.progress("mean and deviation of a sample of the training part", 1):
            scale = _scale(parts[0])
        subject = _subject(name, whole, parts, scale, plan)
        with screen.progress("set up the model, once, before memory is measured", 1):
            measuring.warm_up(subject)
        reading = measure(screen, subject, plan, resident_bytes())
        with screen.progress("check the order of an epoch, and some rows", 1):
            counted = checks.check_order(subject.loader)
            compared = checks.check_rows(whole, path)
        steps = len(subject.loader)
        training = train(screen, subject, replace(plan, epochs=max(1, min(20, 2000 // steps))))
        report.draw(output, subject, training, f"{path}: next row, from the test part")
    screen.say()
    screen.console.print(report.summary([subject], [reading], [training]))
    screen.say()
    screen.say(
        f"Scaled by the mean {scale.mean:.4g} and deviation {scale.deviation:.4g} of a sample of "
        "the training part; losses are in that scale."
    )
    if scale.replaced:
        screen.say(
            f"{scale.replaced:,} values read were NaN or infinite; they were taken as the mean."
        )
    if counted is not None:
        screen.say(f"Checked: an epoch visits each of {counted:,} elements exactly once.")
    if compared:
        screen.say(f"Checked: {compared}.")
    if min(len(parts[1]), len(parts[2])) > plan.most_evaluated:
        screen.say(f"Losses are those of the first {plan.most_evaluated:,} elements of each part.")
    if not training.test_loss < training.test_copy_last:
        screen.say("The model did not beat copying the last row: it is small, and saw little.")
    finish(screen, [subject], [reading], [training], output, None, begun)
    return report.as_json([subject], [reading], [training], output)


def _cut(view: View) -> View:
    """Return the middle of rows that are too large for a short demonstration; only that is read."""
    if len(view.element) == 1:
        cut: View = view[:, :_LONGEST_ROW]
        return cut
    cuts = []
    for length in view.element:
        start = max(0, length - _LONGEST_SIDE) // 2
        cuts.append(slice(start, start + min(length, _LONGEST_SIDE)))
    middle: View = view[:, *cuts]
    return middle


def _parts(view: View, episodes: int | str | None) -> tuple[Windows, ...]:
    named: Any = episodes
    if isinstance(episodes, int):
        named = np.arange(len(view)) // episodes
    return view.windows(INPUTS, 1, episodes=named).split(0.6, 0.2, 0.2)


def _scale(part: Windows) -> Scale:
    """Return the scale of a sample of a part's inputs."""
    spec: Any = part.spec
    most = min(_SAMPLE_ELEMENTS, max(1, _SAMPLE_BYTES // sum(leaf.nbytes for leaf in spec)))
    places = np.unique(np.linspace(0, len(part) - 1, most).astype(np.int64))
    batch: Any = part.take(places)
    sample = batch[0].astype(np.float64)
    numbers = sample[np.isfinite(sample)]
    if not numbers.size:
        raise ArgumentError("the rows must hold numbers; a sample of them is all NaN or infinite.")
    # A constant array has no deviation to divide by.
    return Scale(float(numbers.mean()), float(numbers.std()) or 1.0)


def _subject(
    name: str, whole: View, parts: tuple[Windows, ...], scale: Scale, plan: Plan
) -> Subject:
    spec: Any = parts[0].spec
    values = sum(prod(leaf.shape) for leaf in spec)
    batch = max(1, min(plan.batch_size, _VALUES_IN_BATCH // values, len(parts[0])))
    scaled: list[Dataset] = [part.map(scale, spec=spec) for part in parts]
    return Subject(
        name=name,
        train=scaled[0],
        val=scaled[1],
        test=scaled[2],
        batch_size=batch,
        seed=plan.seed,
        disk_bytes=whole.storage.stored_bytes or 0,
        memory_bytes=whole.nbytes,
    )
