"""Train a next-frame model on more data than fit into its memory bound, and measure everything.

All printed figures are measured in this run. Reading that takes more memory than the stated bound
is an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from time import perf_counter
from typing import TYPE_CHECKING, Any

from oocdata.advice import size
from oocdata.blocks import Blocks
from oocdata.datasets.open import open as open_view
from oocdata.errors import OocdataError
from oocdata.memory import lowered_limit
from oocdata.order import BlockShuffle
from oocdata.tools.demo.data import Clips, growth, workspace, write
from oocdata.tools.demo.training import INPUTS, train
from oocdata.tools.libraries import import_tensorflow
from oocdata.tools.report import Report, progress, table, wrapped

if TYPE_CHECKING:
    from rich.console import Console

_WARM_UP = 512
"""Elements that are read one by one before memory is measured, so that threads have started."""

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
    seconds: float

    def __str__(self) -> str:
        columns = list(map(_column, self.arrays))
        rows = [(label, *(column[label] for column in columns)) for label in columns[0]]
        measured = table(["measured", *(array["name"] for array in self.arrays)], rows)
        return "\n".join([measured, "", wrapped(_MEMORY), f"Time: {self.seconds:.0f} s"])


def _column(array: dict[str, Any]) -> dict[str, str]:
    """Return the column of an array in the table, with the labels of its cells."""
    test, copy, read = array["test_loss"], array["copy_loss"], array["elements_per_second"]
    return {
        "array in memory": size(array["array_bytes"]),
        "on disk": size(array["disk_bytes"]),
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


def demo(plan: Plan, console: Console) -> Demo:
    """Run the demonstration, and print it on a console.

    Files are temporary. Reading that takes more memory than the stated bound is an `OocdataError`.
    """
    began, clips = perf_counter(), Clips(plan.clips, seed=plan.seed)
    clips.digits  # noqa: B018  # raises if scikit-learn is missing
    block = clips.frames - INPUTS  # windows that start in a clip
    text = (
        f"Two handwritten digits fly in each of {clips.count:,} clips of {clips.frames} frames, "
        f"stored as (clip, time, y, x): {size(4 * prod(clips.shape))} of float32. The first two "
        "axes are sample axes: each frame is a row, and no window crosses clips."
    )
    _show(console, wrapped(text))
    code = {"inputs": INPUTS, "batch": plan.batch_size, "block": block, "seed": plan.seed}
    _show(console, _CODE.format(**code, mixed=plan.clips_mixed))
    with workspace() as folder, lowered_limit(plan.memory):
        with _step(console, "write .npy, HDF5 and Zarr", clips.count) as advance:
            paths = write(clips, folder, advance)
        with _step(console, "import TensorFlow"):
            import_tensorflow()
        mixed = BlockShuffle(Blocks(block, block), plan.clips_mixed)
        arrays = [
            _measured(plan, console, path, True if path.endswith(".npy") else mixed)
            for path in paths
        ]
    found = Demo(tuple(arrays), perf_counter() - began)
    _show(console, f"\n{found}")
    for array in arrays:
        memory, bound = array["memory"], array["bound"]
        if memory is not None and memory > bound + _ALLOCATORS_BYTES:
            raise OocdataError(
                f"reading must stay within its bound; {array['name']} took {size(memory)}, and "
                f"explain() states {size(bound)}. Please report this, with the lines above."
            )
    return found


def _measured(
    plan: Plan, console: Console, path: str, shuffle: BlockShuffle | bool
) -> dict[str, Any]:
    """Read and train on an array; return its column of `Demo.arrays`."""
    frames = open_view(path, axis=(0, 1))
    parts = frames.windows(INPUTS, 1).split(0.6, 0.2, 0.2)
    loader = parts[0].batches(plan.batch_size, shuffle=shuffle, seed=plan.seed)
    explained, name = loader.explain(), frames.storage.format
    for _ in parts[0][:_WARM_UP].batches(1).to_tf():
        pass
    with _step(console, f"{name}: read in shuffled order"), growth() as grown:
        read = loader.profile(seconds=plan.read_seconds, to_tf=True)
    with _step(console, f"{name}: train and evaluate", len(loader)) as advance:
        training = train(loader, parts[1:], plan.train_seconds, advance)
    return {
        "name": name,
        "order": explained.order.partition(",")[0],
        "array_bytes": frames.nbytes,
        "disk_bytes": frames.storage.stored_bytes,
        "element_bytes": explained.batch_bytes // explained.batch_size,
        "bound": explained.resident_bytes,
        "memory": grown[0] if grown else None,
        "elements_per_second": read.data_rate,
        **training,
    }


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
