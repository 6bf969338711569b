"""Train a next-frame model on more data than fit into its memory bound, and measure everything.

All printed figures are measured in this run. Reading that takes more memory than the stated bound
is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocdata.advice import size
from oocdata.axes import row_axes
from oocdata.blocks import Blocks
from oocdata.datasets.episodes import likely_episodes
from oocdata.datasets.open import open as open_view
from oocdata.datasets.view import View
from oocdata.datasets.windows import Windows
from oocdata.errors import ArgumentError, OocdataError
from oocdata.memory import lowered_limit
from oocdata.order import BlockShuffle
from oocdata.tools.demo.data import Clips, growth, workspace, write
from oocdata.tools.demo.training import Subject, train
from oocdata.tools.info import contents
from oocdata.tools.libraries import import_tensorflow
from oocdata.tools.opening import Opening
from oocdata.tools.report import Report, progress, table, wrapped
from oocdata.tools.stats import stats

if TYPE_CHECKING:
    from rich.console import Console

_INPUTS = 2
"""Frames that the model sees; two show a velocity."""

_WARM_UP = 512
"""Elements that are read one by one before memory is measured, so that threads have started."""

_LONGEST_SIDE = 256
_LONGEST_ROW = 16_384
_VALUES_IN_BATCH = 1 << 22
_MOST_EPOCHS = 20
_SAMPLE_BYTES, _SAMPLE_ROWS = 4 << 20, 512

_ALLOCATORS_BYTES = 16 << 20
"""The most that the allocators of TensorFlow's threads were measured to take, in any run."""

_MEMORY = (
    "Memory is the growth of the process while reading, with the libraries loaded before. The "
    "bound is the one that loader.explain() states; the allocators of TensorFlow's threads take "
    f"up to {_ALLOCATORS_BYTES >> 20} MiB in addition."
)
_CODE = """
  frames = ooc.open("digits.h5", axis=(0, 1))
  train, val, test = frames.windows({inputs}, 1).split(0.6, 0.2, 0.2)
  loader = train.batches({batch}, shuffle=ooc.BlockShuffle({block}, {mixed}), seed={seed})
  model.fit(loader.to_tf(), shuffle=False,
            validation_data=val.batches({batch}).to_tf())

This mixes {mixed} clips at a time, in little memory; .npy is shuffled in full.
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """The size of a demonstration; by default, a minute and a half, and 700 MB of disk."""

    clips: int = 1500
    clips_mixed: int = 64  # at a time, in compressed formats
    memory: int = 64 << 20  # bytes for reading
    read_seconds: float = 3  # for one array
    train_seconds: float = 12
    seed: int = 7
    batch_size: int = 32

    @classmethod
    def quick(cls) -> Plan:
        """Return a plan of half a minute, and 150 MB of disk."""
        return cls(300, 32, 32 << 20, read_seconds=1, train_seconds=4)


@dataclass(frozen=True, slots=True)
class Demo(Report):
    """The result of a demonstration; ``print`` it."""

    #: Name and order of each array; bytes (``bound`` is the memory that ``loader.explain()``
    #: states, ``memory`` the growth of the process); rates in elements a second; and mean squared
    #: errors (``copy_loss`` is that of the last frame as a forecast of the next one).
    arrays: tuple[dict[str, Any], ...]
    notes: tuple[str, ...]  #: how to read the figures
    seconds: float

    def __str__(self) -> str:
        columns = list(map(_column, self.arrays))
        rows = [(label, *(column[label] for column in columns)) for label in columns[0]]
        measured = table(["measured", *(array["name"] for array in self.arrays)], rows)
        notes = [*map(wrapped, self.notes), f"Time: {self.seconds:.0f} s"]
        return "\n".join([measured, "", *notes])


def _column(array: dict[str, Any]) -> dict[str, str]:
    """Return the column of an array in the table, with the labels of its cells."""
    test, copy, read = array["test_loss"], array["copy_loss"], array["elements_per_second"]
    return {
        "array in memory": size(array["array_bytes"]),
        "on disk": "-" if array["disk_bytes"] is None else size(array["disk_bytes"]),
        "order": array["order"],
        "memory: stated bound": size(array["bound"]),
        "  taken by reading": "-" if array["memory"] is None else size(array["memory"]),
        "reading, per second": size(read * array["element_bytes"]),
        "  elements/s": f"{read:,.0f}",
        "training, elements/s": f"{array['trained_per_second']:,.0f}",
        "  steps": f"{array['steps']:,}",
        "validation loss": f"{array['val_loss']:.6f}",
        "test loss": f"{test:.6f}",
        "  copying the last frame": f"{copy:.6f}",
        "  model's share of that": f"{test / copy:.0%}" if test < copy else "no better",
    }


def demo_on_digits(plan: Plan, console: Console) -> Demo:
    """Run the demonstration on generated clips, and print it on a console.

    Files are temporary. Reading that takes more memory than the stated bound is an `OocdataError`.
    """
    began, clips = perf_counter(), Clips(plan.clips, seed=plan.seed)
    clips.digits  # noqa: B018  # raises if scikit-learn is missing
    block = clips.frames - _INPUTS  # windows that start in a clip
    text = (
        f"Two handwritten digits fly in each of {clips.count:,} clips of {clips.frames} frames, "
        f"stored as (clip, time, y, x): {size(4 * prod(clips.shape))} of float32. The first two "
        "axes are sample axes: each frame is a row, and no window crosses clips."
    )
    _show(console, wrapped(text))
    code = {"inputs": _INPUTS, "batch": plan.batch_size, "block": block, "seed": plan.seed}
    _show(console, _CODE.format(**code, mixed=plan.clips_mixed))
    with workspace() as folder, lowered_limit(plan.memory):
        with _step(console, "write .npy, HDF5 and Zarr", clips.count) as advance:
            paths = write(clips, folder, advance)
        subjects = []
        for path in paths:
            is_npy = path.endswith(".npy")
            frames = open_view(path, axis=(0, 1))
            parts = frames.windows(_INPUTS, 1).split(0.6, 0.2, 0.2)
            order = True if is_npy else BlockShuffle(Blocks(block, block), plan.clips_mixed)
            subjects.append(Subject(frames, parts, plan.batch_size, plan.seed, order))
        return _measured(plan, console, began, subjects, 1, [])


def demo_on_file(plan: Plan, console: Console, array: Opening) -> Demo:
    """Run the demonstration on an array of the user's; see `demo_on_digits`."""
    began = perf_counter()
    whole = Opening.of(array.numbers()).view()
    frames = _middle(whole)
    episodes = likely_episodes(frames, _INPUTS + 1)
    parts = frames.windows(_INPUTS, 1, episodes=episodes).split(0.6, 0.2, 0.2)
    _show(console, f"{array.name}\n\n{contents(array)}\n")
    counts = ", ".join(f"{len(part):,}" for part in parts)
    text = (
        f"The model sees {_INPUTS} rows and predicts the next one: {counts} windows for training, "
        "validation and test."
    )
    if frames.element != whole.element:
        text += f" To save time, only the middle {frames.element} of each row is used."
    _show(console, f"{wrapped(text)}\n")
    with lowered_limit(plan.memory):
        with _step(console, "mean and deviation of rows for training"):
            scale, note = scaling(frames, parts[0])
        values = (_INPUTS + 1) * prod(frames.element)
        batch = max(1, min(plan.batch_size, _VALUES_IN_BATCH // values, len(parts[0])))
        subject = Subject(frames, [part.map(scale) for part in parts], batch, plan.seed)
        return _measured(plan, console, began, [subject], _MOST_EPOCHS, [note])


def _middle(view: View) -> View:
    """Return the view cut to the middle of its rows, if they are large."""
    longest = _LONGEST_SIDE if len(view.element) > 1 else _LONGEST_ROW
    starts = [max(0, length - longest) // 2 for length in view.element]
    middle: View = view[:, *(slice(start, start + longest) for start in starts)]
    return middle


def scaling(frames: View, part: Windows) -> tuple[Callable[..., Any], str]:
    """Return a function that scales a batch by a sample of the training part, and a note.

    Each channel or column is scaled to mean 0 and deviation 1. NaN and infinities become the mean.
    """
    most = min(_SAMPLE_ROWS, len(part), max(1, _SAMPLE_BYTES // max(1, frames.spec.nbytes)))
    positions = np.linspace(0, len(part) - 1, most).astype(np.int64)
    sample = stats(part.view[part.rows(positions)[:, 0]])
    not_finite = int(sample.overall.count - sample.overall.finite)
    if not_finite == sample.overall.count:
        raise ArgumentError(f"rows must hold finite numbers; {most:,} of them hold none.")
    each = f", each {row_axes(frames).name('C')} by its own" if sample.axis else ""
    note = (
        f"Losses are of values scaled by the mean and deviation of {most:,} rows for "
        f"training{each}. {not_finite:,} of their values are NaN or infinite, and replaced by the "
        "mean."
    )

    def scale(*arrays: NDArray[Any]) -> tuple[Any, ...]:
        scaled = sample.standardize(*arrays)
        return tuple(np.nan_to_num(array, copy=False, posinf=0.0, neginf=0.0) for array in scaled)

    return scale, note


def _measured(
    plan: Plan,
    console: Console,
    began: float,
    subjects: Sequence[Subject],
    epochs: int,
    notes: list[str],
) -> Demo:
    """Read and train on arrays of equal frames, one after the other; print and return figures."""
    with _step(console, "import TensorFlow"):
        import_tensorflow()
    with _step(console, "warm up, before memory is measured"):
        for subject in subjects:
            for _ in subject.parts[0][:_WARM_UP].batches(1).to_tf():
                pass
    arrays: list[dict[str, Any]] = []
    for subject in subjects:
        loader, explained = subject.loader, subject.loader.explain()
        name, steps = subject.frames.storage.format, len(loader)
        with _step(console, f"{name}: read in shuffled order"), growth() as grown:
            read = loader.profile(seconds=plan.read_seconds, to_tf=True)
        with _step(console, f"{name}: train and evaluate", epochs * steps) as advance:
            training = train(subject, epochs, plan.train_seconds, advance)
        arrays.append(
            {
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
        )
    demo = Demo(tuple(arrays), (*notes, _MEMORY), perf_counter() - began)
    _show(console, f"\n{demo}")
    for array in arrays:
        memory, bound = array["memory"], array["bound"]
        if memory is not None and memory > bound + _ALLOCATORS_BYTES:
            raise OocdataError(
                f"reading must stay within its bound; {array['name']} took {size(memory)}, and "
                f"explain() states {size(bound)}. Please report this, with the lines above."
            )
    return demo


def _show(console: Console, text: str) -> None:
    """Print a text that is wrapped already."""
    console.print(text, markup=False, soft_wrap=True)


@contextmanager
def _step(console: Console, label: str, total: int = 1) -> Iterator[Any]:
    """Show a progress bar while the block runs, and then the time that it took."""
    began = perf_counter()
    with progress(f"  {label}", total, shown=total > 1) as advance:
        yield advance
    _show(console, f"  {label:<58}{perf_counter() - began:>7.1f} s")
