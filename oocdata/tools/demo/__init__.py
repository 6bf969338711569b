"""`oocdata demo`: train a next-frame model on more data than the memory it takes, and measure.

Everything printed is measured in this run. Reading that takes more memory than it states is an
error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocdata.axes import row_axes
from oocdata.blocks import Blocks
from oocdata.datasets.open import open as open_view
from oocdata.datasets.view import View
from oocdata.datasets.windows import Windows
from oocdata.errors import ArgumentError, OocdataError
from oocdata.explain import size
from oocdata.memory import at_most
from oocdata.order import BlockShuffle
from oocdata.tools.demo.data import Clips, growth, workspace, write
from oocdata.tools.demo.training import Subject, draw, train
from oocdata.tools.info import contents
from oocdata.tools.libraries import check_picture, import_tensorflow
from oocdata.tools.lines import Report, progress, table, wrapped
from oocdata.tools.opening import Opening
from oocdata.tools.stats import stats

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Demo", "Plan", "demo_on_digits", "demo_on_file"]

_INPUTS = 2
"""Frames that the model sees: two show a velocity."""

_WARM = 512
"""Elements that are read one by one before memory is measured: threads have begun then."""

_LONGEST_SIDE = 256
_LONGEST_ROW = 16_384
_VALUES_IN_BATCH = 1 << 22
_MOST_EPOCHS = 20
_SAMPLE_BYTES, _SAMPLE_ROWS = 4 << 20, 512

_ALLOCATORS_BYTES = 16 << 20
"""What the allocators of TensorFlow's threads were seen to take, differing from run to run."""

_MEMORY = (
    "Memory is by how much the process grew while it read, with what reads loaded before. The "
    "bound is the one that loader.explain() states; what the allocators of TensorFlow's threads "
    f"take, up to {_ALLOCATORS_BYTES >> 20} MiB, comes on top."
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
    """How much is done: by default a minute and a half, and 700 MB of disk."""

    clips: int = 1500  # a multiple of 5
    clips_mixed: int = 64  # at a time, where they are compressed
    memory: int = 64 << 20  # bytes that reading may take
    read_seconds: float = 3  # the most time that reading may take for one array
    train_seconds: float = 12
    seed: int = 7
    batch_size: int = 32

    @classmethod
    def quick(cls, seed: int = 7) -> Plan:
        """Half a minute, and 150 MB of disk."""
        return cls(300, 32, 32 << 20, read_seconds=1, train_seconds=4, seed=seed)


@dataclass(frozen=True, slots=True)
class Demo(Report):
    """All that a demonstration measured; ``print`` it."""

    #: Of each array its name and order, bytes (``bound`` is the memory that ``loader.explain()``
    #: states, ``memory`` by how much the process grew), rates in elements a second, and losses:
    #: mean squared errors, ``copy_loss`` that of the last frame as a forecast of the next one.
    arrays: tuple[dict[str, Any], ...]
    notes: tuple[str, ...]  #: what was checked, and how the numbers are to be read
    picture: str | None  #: the file of the picture
    seconds: float

    def __str__(self) -> str:
        rows = zip(_LABELS, *map(_column, self.arrays), strict=True)
        measured = table(["measured", *(one["name"] for one in self.arrays)], rows)
        picture = [f"Picture: {self.picture}"] if self.picture else []
        notes = [*map(wrapped, self.notes), *picture, f"Time: {self.seconds:.0f} s"]
        return "\n".join([measured, "", *notes])


_LABELS = (
    *("array in memory", "on disk", "order", "memory: stated bound", "  taken by reading"),
    *("reading, per second", "  elements/s", "training, elements/s", "  steps"),
    *("validation loss", "test loss", "  copying the last frame", "  model's share of that"),
)


def _column(one: dict[str, Any]) -> list[str]:
    """Return a column of the table: what was measured of an array, by `_LABELS`."""
    test, copy, read = one["test_loss"], one["copy_loss"], one["elements_per_second"]
    share = f"{test / copy:.0%}" if test < copy else "no better"
    nbytes = ["-" if one[name] is None else size(one[name])
              for name in ("array_bytes", "disk_bytes", "bound", "memory")]  # fmt: skip
    rates = (size(read * one["element_bytes"]), f"{read:,.0f}", f"{one['trained_per_second']:,.0f}")
    losses = (f"{loss:.6f}" for loss in (one["val_loss"], test, copy))
    return [*nbytes[:2], one["order"], *nbytes[2:], *rates, f"{one['steps']:,}", *losses, share]


def demo_on_digits(
    plan: Plan, console: Console, keep: Path | None = None, output: Path | None = None
) -> Demo:
    """Run the demonstration on clips that are made for it, and print it on a console.

    Files are temporary unless there is a folder in which to `keep` them, and a picture is drawn
    where an `output` is named. Reading that takes more memory than it states is an `OocdataError`.
    """
    begun, clips = perf_counter(), Clips(plan.clips, seed=plan.seed)
    output = output and check_picture(output)
    clips.digits  # noqa: B018  # fails now where scikit-learn is missing
    block = clips.frames - _INPUTS  # windows that start in a clip
    text = (
        f"Two handwritten digits fly in each of {clips.count:,} clips of {clips.frames} frames, "
        f"stored as (clip, time, y, x): {size(4 * prod(clips.shape))} of float32. Both first axes "
        "are sample axes: each frame is a row, and no window crosses clips."
    )
    _show(console, wrapped(text))
    code = {"inputs": _INPUTS, "batch": plan.batch_size, "block": block, "seed": plan.seed}
    _show(console, _CODE.format(**code, mixed=plan.clips_mixed))
    with workspace(keep) as folder, at_most(plan.memory):
        with _step(console, "write .npy, HDF5 and Zarr", clips.count, "clips") as advance:
            paths = write(clips, folder, advance)
        subjects = []
        for path in paths:
            is_npy = path.endswith(".npy")
            frames = open_view(path, axis=(0, 1) if is_npy else ("clip", "time"))
            parts = frames.windows(_INPUTS, 1).split(0.6, 0.2, 0.2)
            order = True if is_npy else BlockShuffle(Blocks(block, block), plan.clips_mixed)
            subjects.append(Subject(frames, parts, plan.batch_size, plan.seed, order))
        notes = [] if keep is None else [f"Files: {keep}"]
        return _measured(plan, console, begun, subjects, 1, output, notes)


def demo_on_file(plan: Plan, console: Console, array: Opening, output: Path | None = None) -> Demo:
    """Run the demonstration on an array of the user's; see `demo_on_digits`."""
    begun = perf_counter()
    output = output and check_picture(output)
    array.numbers()
    whole = array.view()
    frames = _middle(whole)
    parts = frames.windows(_INPUTS, 1).split(0.6, 0.2, 0.2)
    _show(console, f"{array.name}\n\n{contents(array)}\n")
    counts = ", ".join(f"{len(part):,}" for part in parts)
    text = (
        f"The model sees {_INPUTS} rows and predicts the next: {counts} such windows to train, to "
        "validate and to test."
    )
    if frames.element != whole.element:
        text += f" Of each row the middle {frames.element} is used, to keep the time short."
    _show(console, f"{wrapped(text)}\n")
    with at_most(plan.memory):
        with _step(console, "mean and deviation of rows for training"):
            scale, note = scaling(frames, parts[0])
        values = (_INPUTS + 1) * prod(frames.element)
        batch = max(1, min(plan.batch_size, _VALUES_IN_BATCH // values, len(parts[0])))
        subject = Subject(frames, parts, batch, plan.seed, scale=scale)
        return _measured(plan, console, begun, [subject], _MOST_EPOCHS, output, [note])


def _middle(view: View) -> View:
    """Return the middle of rows that are too large for a short demonstration; only that is read."""
    longest = _LONGEST_SIDE if len(view.element) > 1 else _LONGEST_ROW
    starts = [max(0, length - longest) // 2 for length in view.element]
    middle: View = view[:, *(slice(start, start + longest) for start in starts)]
    return middle


def scaling(frames: View, part: Windows) -> tuple[Callable[..., Any], str]:
    """Return what scales a batch by a sample of the training part, and a note of it.

    Each channel or column is scaled to mean 0 and deviation 1; what is not finite is the mean.
    """
    most = min(_SAMPLE_ROWS, len(part), max(1, _SAMPLE_BYTES // max(1, frames.spec.nbytes)))
    places = np.unique(np.linspace(0, len(part) - 1, most).astype(np.int64))
    found = stats(part.view[part.rows(places)[:, 0]], duplicates=False)
    wrong = int(found.overall.count - found.overall.finite)
    if wrong == found.overall.count:
        raise ArgumentError(f"rows must hold numbers; in {len(places):,} of them none is finite.")
    each = f", each {row_axes(frames).name('C')} by its own" if found.axis else ""
    note = (
        f"Losses are of values scaled by the mean and deviation of {len(places):,} rows for "
        f"training{each}. {wrong:,} of their values are NaN or infinite; such are taken as the "
        "mean."
    )
    scale = found.standardize

    def finite(x: NDArray[Any], y: NDArray[Any]) -> tuple[Any, ...]:
        return tuple(np.nan_to_num(one, posinf=0.0, neginf=0.0) for one in scale(x, y))

    return finite, note


def _measured(
    plan: Plan,
    console: Console,
    begun: float,
    subjects: Sequence[Subject],
    epochs: int,
    output: Path | None,
    notes: list[str],
) -> Demo:
    """Read and train on arrays of equal frames, one after the other; say what came."""
    with _step(console, "import TensorFlow"):
        import_tensorflow()
    with _step(console, "load what reads, before memory is measured"):
        for subject in subjects:
            for _ in subject.parts[0][:_WARM].batches(1).to_tf():
                pass
    arrays: list[dict[str, Any]] = []
    for subject in subjects:
        loader, explained = subject.loader, subject.loader.explain()
        name, steps = subject.frames.storage.format, len(loader)
        with _step(console, f"{name}: read in shuffled order"), growth() as grown:
            read = loader.profile(seconds=plan.read_seconds, to_tf=True)
        with _step(console, f"{name}: train and evaluate", epochs * steps) as advance:
            model, training = train(subject, epochs, plan.train_seconds, advance)
        one: dict[str, Any] = {
            "name": name,
            "order": explained.order.partition(",")[0],
            "array_bytes": subject.frames.nbytes,
            "disk_bytes": subject.frames.storage.stored_bytes,
            "element_bytes": explained.batch_bytes // explained.batch_size,
            "bound": explained.resident_bytes,
            "memory": grown[0] if grown else None,
            "elements_per_second": read.data_rate,
            **training,
        }
        arrays.append(one)
        if one["test_loss"] >= one["copy_loss"]:
            notes.append(f"{name}: the model did not beat copying the last row; it saw little.")
    if output is not None:
        with _step(console, "draw"):
            draw(output, subjects[-1], model)
    picture = None if output is None else str(output)
    found = Demo(tuple(arrays), (*notes, _MEMORY), picture, perf_counter() - begun)
    _show(console, f"\n{found}")
    for one in arrays:
        if one["memory"] is not None and one["memory"] > one["bound"] + _ALLOCATORS_BYTES:
            raise OocdataError(
                f"reading must stay within its bound; {one['name']} took {size(one['memory'])}, "
                f"and explain() states {size(one['bound'])}. Please report this, with the lines "
                "above."
            )
    return found


def _show(console: Console, text: str) -> None:
    """Print a text that has its lines already."""
    console.print(text, markup=False, soft_wrap=True)


@contextmanager
def _step(console: Console, label: str, total: int = 1, unit: str = "steps") -> Iterator[Any]:
    """Show a bar while the block runs, and the time it took when it is done."""
    begun = perf_counter()
    with progress(f"  {label}", total, unit, shown=total > 1) as advance:
        yield advance
    _show(console, f"  {label:<58}{perf_counter() - begun:>7.1f} s")
