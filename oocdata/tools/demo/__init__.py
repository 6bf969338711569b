"""`oocdata demo`: train a next-frame model on more data than the memory it takes, and measure.

Everything printed is measured in this run. On data of its own it also checks every frame that comes
back against what was written, that an epoch is each element once, and that the model beats copying
the last frame.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from oocdata.datasets.open import open as open_view
from oocdata.errors import ArgumentError, OocdataError
from oocdata.explain import size
from oocdata.tools.demo import checks, measuring, report
from oocdata.tools.demo.data import Clips, Written, check_disk, write_formats
from oocdata.tools.demo.measuring import Reading, Subject, Training
from oocdata.tools.demo.memory import resident_bytes
from oocdata.tools.demo.model import import_tensorflow
from oocdata.tools.demo.screen import Screen
from oocdata.tools.demo.workspace import Signals, memory_of, workspace

__all__ = ["INPUTS", "Plan", "demo_on_digits", "finish", "measure", "prepare", "train"]

INPUTS = 2
"""Frames that the model sees: two show a velocity."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is done.

    Attributes
    ----------
    clips : int
        Clips of 20 frames; a multiple of 5, so that the parts are whole clips.
    batch_size, seed : int
    epochs : int
    train_seconds, read_seconds : float
        The most time that training and reading may take for one array.
    most_evaluated : int
        Elements of the validation and test parts that are looked at.
    reading_bytes : int
        What reading may take: `oocdata.set_memory`.
    """

    clips: int
    epochs: int
    train_seconds: float
    reading_bytes: int
    seed: int
    read_seconds: float = 20.0
    most_evaluated: int = 8192
    batch_size: int = 32

    @classmethod
    def full(cls, seed: int) -> Plan:
        """About three minutes and 1 GB of disk."""
        return cls(clips=2000, epochs=1, train_seconds=35, reading_bytes=128 << 20, seed=seed)

    @classmethod
    def quick(cls, seed: int) -> Plan:
        """Under a minute and 200 MB of disk."""
        return cls(
            clips=300, epochs=2, train_seconds=7, reading_bytes=32 << 20, seed=seed, read_seconds=3
        )


def prepare(output: Path) -> Any:
    """Find out what is missing before anything takes time; return TensorFlow."""
    report.pyplot()
    folder = output.expanduser().resolve().parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise ArgumentError(
            f"`--output` must be in a folder that can be written to; '{folder}' is none."
        )
    if output.suffix.lower() != ".png":
        raise ArgumentError(f"`--output` must end in .png; got '{output}'.")
    return import_tensorflow()


def demo_on_digits(
    plan: Plan, output: Path, keep: Path | None, *, aside: bool = False
) -> dict[str, Any]:
    """Run the demonstration on data of its own.

    Parameters
    ----------
    plan : Plan
    output : Path
        The picture.
    keep : Path or None
        Where files are kept; None for temporary ones.
    aside : bool
        Say everything on standard error.

    Returns
    -------
    dict
        See `oocdata.tools.demo.report.as_json`.

    Raises
    ------
    oocdata.errors.OocdataError
        If something is missing, the disk is full, or a check fails.
    """
    begun = perf_counter()
    clips = Clips(plan.clips, seed=plan.seed)
    clips.digits  # noqa: B018  # fails now where scikit-learn is missing
    with Signals() as signals, workspace(keep) as folder, memory_of(plan.reading_bytes):
        screen = Screen(signals.check, aside)
        check_disk(folder, clips)
        rows, height, width = clips.shape
        screen.say(
            f"Handwritten digits bounce, two in a clip: {plan.clips:,} clips of "
            f"{clips.frames} frames, {rows:,} frames of {height} × {width} float32, "
            f"{size(clips.nbytes)} in memory. 60 % of the clips are for training, 20 % for "
            "validation, 20 % for testing, each part with digits of its own. "
            f"The model sees {INPUTS} frames and predicts the next."
        )
        screen.say()
        with screen.progress("import TensorFlow and matplotlib", 1):
            prepare(output)
        with screen.progress(
            "write .npy, HDF5 (gzip) and Zarr v3 (zstd)", rows, "frames"
        ) as advance:
            written = write_formats(clips, folder, advance)
        subjects = [
            _subject(name, path, clips, written, plan) for name, path in written.paths.items()
        ]
        with screen.progress("set up the model, once, before memory is measured", 1):
            for subject in subjects:
                measuring.warm_up(subject)
        baseline = resident_bytes()
        readings = [measure(screen, subject, plan, baseline) for subject in subjects]
        for subject in subjects:
            loader = subject.loader
            with screen.progress(f"check every frame from {subject.name}", len(loader)) as advance:
                checked = checks.check_elements(loader, written.sums, advance)
                compared = checks.check_frames(loader, clips)
        trainings = [train(screen, subject, plan) for subject in subjects]
        title = f"{subjects[0].name}: next frame, test clips with digits that training never saw"
        report.draw(output, subjects[0], trainings[0], title)
    screen.say()
    screen.console.print(report.summary(subjects, readings, trainings))
    screen.say()
    screen.say(
        f"Checked in each format: an epoch delivered each of {checked:,} elements exactly once, "
        f"every frame with the checksum that it had before it was written; {compared} frames of a "
        "shuffled batch are bit for bit those that the physics gives when they are made again."
    )
    finish(screen, subjects, readings, trainings, output, keep, begun)
    _require_better(trainings)
    return report.as_json(subjects, readings, trainings, output)


def _subject(name: str, path: Path, clips: Clips, written: Written, plan: Plan) -> Subject:
    frames = open_view(path)
    train, val, test = (
        part.windows(INPUTS, 1, episodes=np.full(len(part) // clips.frames, clips.frames))
        for part in frames.split(0.6, 0.2, 0.2)
    )
    return Subject(
        name=name,
        train=train,
        val=val,
        test=test,
        batch_size=plan.batch_size,
        seed=plan.seed,
        disk_bytes=written.disk_bytes(name),
        memory_bytes=frames.nbytes,
    )


def measure(screen: Screen, subject: Subject, plan: Plan, baseline: int) -> Reading:
    """Measure reading alone, with a progress bar."""
    loader = subject.loader
    with screen.progress(
        f"read {subject.name}, an epoch in shuffled order", len(loader)
    ) as advance:
        return measuring.measure_reading(loader, baseline, plan.read_seconds, advance)


def train(screen: Screen, subject: Subject, plan: Plan) -> Training:
    """Train and evaluate, with a progress bar."""
    steps = plan.epochs * len(subject.loader)
    with screen.progress(f"train and evaluate from {subject.name}", steps) as advance:
        return measuring.train(
            subject, plan.epochs, plan.train_seconds, plan.most_evaluated, advance
        )


def finish(
    screen: Screen,
    subjects: Sequence[Subject],
    readings: Sequence[Reading],
    trainings: Sequence[Training],
    output: Path,
    keep: Path | None,
    begun: float,
) -> None:
    """Say how the numbers were measured, and where things are."""
    how = (
        "the kernel's record of the peak resident set"
        if readings[0].exact
        else "the resident set, looked at 100 times a second"
    )
    screen.say(
        f"Memory is {how}, less what the process held with TensorFlow and a model set up before "
        "the first batch was read. The bound is the one that loader.explain() states for reading."
    )
    for subject, reading in zip(subjects, readings, strict=True):
        if reading.growth > reading.bound:
            screen.say(
                f"Reading {subject.name} took {size(reading.growth - reading.bound)} more than its "
                "bound."
            )
    for training in trainings:
        if training.stopped_early:
            screen.say(
                f"Training stopped when its time was up, after {training.steps:,} of "
                f"{training.steps_planned:,} steps."
            )
    screen.say()
    screen.say(f"Picture: {output}")
    if keep is not None:
        screen.say(f"Files: {keep}")
    screen.say(f"Time: {perf_counter() - begun:.0f} s")


def _require_better(trainings: Sequence[Training]) -> None:
    for training in trainings:
        if not training.test_loss < training.test_copy_last:
            raise OocdataError(
                f"the model must beat copying the last frame on the test clips; its loss is "
                f"{training.test_loss:.6f}, the copy's {training.test_copy_last:.6f}. Was the "
                f"machine so slow that it took only {training.steps} steps?"
            )
