"""The demonstration, on clips of bouncing digits or on an array of the user's."""

from __future__ import annotations

import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from oocdata.axes import trajectory_axes
from oocdata.blocks import Blocks
from oocdata.datasets.open import open as open_view
from oocdata.datasets.view import View
from oocdata.errors import ArgumentError, EmptyError, OocdataError
from oocdata.explain import as_typed, size
from oocdata.memory import at_most
from oocdata.order import BlockShuffle
from oocdata.tools.demo.data import Clips, write
from oocdata.tools.demo.measure import Model, Subject, check_frames, read, usual_way
from oocdata.tools.demo.memory import growth
from oocdata.tools.demo.model import import_tensorflow
from oocdata.tools.demo.report import Demo, Measured, Screen, check_output, draw
from oocdata.tools.demo.scaling import scaling_of

__all__ = ["Plan", "demo_on_digits", "demo_on_file"]

_INPUTS = 2
"""Frames that the model sees: two show a velocity."""

_WARM = 512
"""Elements that are read one by one before memory is measured: threads have begun then."""

_LONGEST_SIDE = 256
_LONGEST_ROW = 16_384
_VALUES_IN_BATCH = 1 << 22
_MOST_EPOCHS = 20

_ALLOCATORS_BYTES = 16 << 20
"""What the allocators of TensorFlow's threads were seen to take, differing from run to run."""

_MEMORY = (
    "Memory is by how much the process grew, with all libraries and the model loaded before. The "
    "bound is the one that loader.explain() states for reading; what the allocators of "
    f"TensorFlow's threads take, up to {_ALLOCATORS_BYTES >> 20} MiB, comes on top."
)
_CODE = """
  frames = ooc.open("digits.h5", axis=("clip", "time"))
  train, val, test = frames.windows({inputs}, 1).split(0.6, 0.2, 0.2)
  loader = train.batches({batch}, shuffle=ooc.BlockShuffle({block}, {mixed}), seed={seed})
  model.fit(loader.to_tf(), shuffle=False,
            validation_data=val.batches({batch}).to_tf())

So {mixed} clips at a time are mixed, in little memory; .npy is shuffled in full.
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is done.

    Attributes
    ----------
    clips, clips_mixed : int
        A multiple of 5; and how many are mixed at a time, where they are compressed.
    memory : int
        Bytes that reading may take.
    read_seconds, train_seconds : float
        The most time that reading and training may take for one array.
    seed, batch_size : int
    """

    clips: int
    clips_mixed: int
    memory: int
    read_seconds: float
    train_seconds: float
    seed: int
    batch_size: int = 32

    @classmethod
    def full(cls, seed: int) -> Plan:
        """About a minute and a half, and 700 MB of disk."""
        return cls(1500, 64, 64 << 20, read_seconds=3, train_seconds=12, seed=seed)

    @classmethod
    def quick(cls, seed: int) -> Plan:
        """About half a minute, and 150 MB of disk."""
        return cls(300, 32, 32 << 20, read_seconds=1, train_seconds=4, seed=seed)


def demo_on_digits(
    plan: Plan, keep: Path | None = None, output: Path | None = None, *, aside: bool = False
) -> Demo:
    """Run the demonstration on clips that are made for it.

    Files are temporary unless there is a folder in which to `keep` them, a picture is drawn where
    an `output` is named, and with `aside` everything is printed on standard error. A check that
    fails, a model that is no better than copying the last frame, and reading that takes more
    memory than it states are an `OocdataError`.
    """
    begun, screen, clips = perf_counter(), Screen(aside), Clips(plan.clips, seed=plan.seed)
    check_output(output)
    clips.digits  # noqa: B018  # fails now where scikit-learn is missing
    block = clips.frames - _INPUTS  # windows that start in a clip
    with workspace(keep) as folder, at_most(plan.memory):
        screen.say(
            f"Two handwritten digits bounce in each of {clips.count:,} clips of {clips.frames} "
            f"frames, stored as (clip, time, y, x): {size(4 * prod(clips.shape))} of float32. "
            "Both first axes are sample axes: each frame is a row, and no window crosses clips."
        )
        code = {"inputs": _INPUTS, "batch": plan.batch_size, "block": block}
        screen.show(_CODE.format(**code, mixed=plan.clips_mixed, seed=plan.seed))
        with screen.step("import TensorFlow"):
            import_tensorflow()
        with screen.step("write .npy, HDF5 and Zarr", clips.count, "clips") as advance:
            paths, sums = write(clips, folder, advance)
        subjects = []
        for path in paths:
            is_npy = path.endswith(".npy")
            frames = open_view(path, axis=(0, 1) if is_npy else ("clip", "time"))
            parts = frames.windows(_INPUTS, 1).split(0.6, 0.2, 0.2)
            mixed = BlockShuffle(Blocks(block, block), plan.clips_mixed)
            order = True if is_npy else mixed
            subjects.append(Subject(frames, parts, plan.batch_size, plan.seed, order))
        check = partial(check_frames, sums=sums)
        arrays = _measure(plan, screen, subjects, 1, output, check=check)
    count = len(subjects[0].parts[0])
    checked = (
        f"Checked in each format: an epoch delivered each of {count:,} elements exactly once, "
    )
    notes = [checked + "every frame as it was before it was written."]
    if keep is not None:
        notes.append(f"Files: {keep}")
    found = _finish(screen, arrays, notes, output, begun)
    for training in (one.training for one in arrays):
        if not training.is_better:
            raise OocdataError(
                "the model must beat copying the last frame on the test clips; its loss is "
                f"{training.test_loss:.6f}, the copy's {training.copy_loss:.6f}. Was the machine "
                f"so slow that it took only {training.steps} steps?"
            )
    return found


def demo_on_file(
    plan: Plan,
    whole: View,
    episodes: int | str | None = None,
    output: Path | None = None,
    *,
    aside: bool = False,
) -> Demo:
    """Run the demonstration on an array of the user's; no window crosses `episodes`.

    These are so many rows each, or "files". A picture is drawn where an `output` is named, and
    with `aside` everything is printed on standard error.
    """
    begun, screen = perf_counter(), Screen(aside)
    if whole.dtype.kind == "c":
        raise ArgumentError(f"rows must hold real numbers; those of {whole!r} are complex.")
    if prod(whole.element) == 0:
        raise EmptyError(f"rows must hold at least one number; those of {whole!r} hold none.")
    check_output(output)
    frames, storage = _middle(whole), whole.storage
    rows = np.arange(len(frames)) // episodes if isinstance(episodes, int) else episodes
    parts = frames.windows(_INPUTS, 1, episodes=rows).split(0.6, 0.2, 0.2)
    name = "memory" if storage.path is None else as_typed(storage.path)
    counts = ", ".join(f"{len(part):,}" for part in parts)
    screen.say(
        f"{', '.join(filter(None, (name, storage.key)))}: {len(whole):,} rows of "
        f"{whole.element} {whole.dtype}, {size(whole.nbytes)} in memory; {storage.format}, "
        f"{storage.layout}, codec {storage.codec}. The model sees {_INPUTS} rows and predicts the "
        f"next: {counts} such windows to train, to validate and to test."
    )
    if frames.element != whole.element:
        screen.say(f"Of each row the middle {frames.element} is used, to keep the time short.")
    steps = trajectory_axes(whole.source.shape, storage.dimensions)
    if steps and whole.axes == (0,):
        axes = ",".join(map(str, steps))
        screen.say(
            f"Axes {axes} look like trajectory and time: then --axis {axes} suits it better."
        )
    screen.show("")
    with at_most(plan.memory):
        with screen.step("import TensorFlow"):
            import_tensorflow()
        with screen.step("mean and deviation of rows for training"):
            scaling = scaling_of(frames, parts[0])
        spec: Any = parts[0].spec
        values = sum(prod(leaf.shape) for leaf in spec)
        batch = max(1, min(plan.batch_size, _VALUES_IN_BATCH // values, len(parts[0])))
        subject = Subject(frames, parts, batch, plan.seed, scale=scaling.scale)
        arrays = _measure(plan, screen, [subject], _MOST_EPOCHS, output, scaling.change)
    notes = [scaling.note]
    if not arrays[0].training.is_better:
        notes.append("The model did not beat copying the last row: it is small, and saw little.")
    if usual := arrays[0].usual:
        notes.append(
            f"Checked: {usual.compared} elements are bit for bit what {usual.library} reads."
        )
    return _finish(screen, arrays, notes, output, begun)


def _middle(view: View) -> View:
    """Return the middle of rows that are too large for a short demonstration; only that is read."""
    longest = _LONGEST_SIDE if len(view.element) > 1 else _LONGEST_ROW
    starts = [max(0, length - longest) // 2 for length in view.element]
    middle: View = view[:, *(slice(start, start + longest) for start in starts)]
    return middle


def _measure(
    plan: Plan,
    screen: Screen,
    subjects: Sequence[Subject],
    epochs: int,
    output: Path | None,
    change: ArrayLike = 1.0,
    check: Callable[..., int] | None = None,
) -> tuple[Measured, ...]:
    """Read, check and train on arrays of equal frames, one after the other; draw the first."""
    with screen.step("set up model and libraries, before memory is measured"):
        model = Model(subjects[0], change)
        for subject in subjects:
            for _ in subject.parts[0][:_WARM].batches(1).to_tf():
                pass
    arrays = []
    for subject in subjects:
        loader, explained = subject.loader, subject.loader.explain()
        name, steps = subject.frames.storage.format, len(loader)
        with screen.step(f"{name}: read in shuffled order"), growth() as grown:
            rate = read(loader, plan.read_seconds)
        if check is not None:
            with screen.step(f"{name}: check every frame of an epoch", steps) as advance:
                check(subject, advance=advance)
        with screen.step(f"{name}: read by from_generator, and compare"):
            usual = usual_way(subject, plan.read_seconds)
        with screen.step(f"{name}: train and evaluate", epochs * steps) as advance:
            training = model.train(subject, epochs, plan.train_seconds, advance)
        measured = Measured(
            name=name,
            order=explained.order.partition(",")[0],
            array_bytes=subject.frames.nbytes,
            disk_bytes=subject.frames.storage.stored_bytes or 0,
            element_bytes=explained.batch_bytes // explained.batch_size,
            bound=explained.resident_bytes,
            memory=grown.nbytes,
            elements_per_second=rate,
            usual=usual,
            training=training,
        )
        arrays.append(measured)
    if output is not None:
        with screen.step("draw"):
            draw(output, subjects[0], model)
    return tuple(arrays)


def _finish(
    screen: Screen,
    arrays: tuple[Measured, ...],
    notes: Sequence[str],
    output: Path | None,
    begun: float,
) -> Demo:
    """Print and return what was measured; raise where reading took more than it states."""
    picture = None if output is None else str(output)
    found = Demo(arrays, (*notes, _MEMORY), picture, perf_counter() - begun)
    screen.show(f"\n{found}")
    for one in arrays:
        if one.memory is not None and one.memory > one.bound + _ALLOCATORS_BYTES:
            raise OocdataError(
                f"reading must stay within its bound; {one.name} took {size(one.memory)}, and "
                f"explain() states {size(one.bound)}. Please report this, with the lines above."
            )
    return found


@contextmanager
def workspace(keep: Path | None) -> Iterator[Path]:
    """Give a folder for files; one that is not kept goes, also where SIGTERM ends the process."""
    if keep is not None:
        if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
            raise ArgumentError(f"`keep` must be a new or empty folder; '{keep}' is not.")
        keep.mkdir(parents=True, exist_ok=True)
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix="oocdata-demo-") as folder:
        if threading.current_thread() is not threading.main_thread():
            yield Path(folder)
            return
        before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
        try:
            yield Path(folder)
        finally:
            signal.signal(signal.SIGTERM, before)
