"""What the demonstration says: while it runs, in the end, and as a picture."""

from __future__ import annotations

import tempfile
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from oocdata.datasets.open import open as open_view
from oocdata.datasets.zip import zip as zip_datasets
from oocdata.errors import ArgumentError
from oocdata.explain import size
from oocdata.tools.demo.measure import Model, Subject, Training, Usual
from oocdata.tools.preview import preview
from oocdata.tools.progress import progress

__all__ = ["Demo", "Measured", "Screen", "check_output", "draw"]

_WIDTH = 80
_SHOWN = 6


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured of one array.

    Attributes
    ----------
    name, order : str
    array_bytes, disk_bytes, element_bytes : int
        Of the array in memory, its file (0 where that isn't known), and an element.
    bound, memory : int
        Bytes that ``loader.explain()`` states for reading, and by which the process grew at most.
    elements_per_second : float
        Of reading alone.
    usual : Usual or None
        The usual way of reading, beside it.
    training : Training
    """

    name: str
    order: str
    array_bytes: int
    disk_bytes: int
    element_bytes: int
    bound: int
    memory: int | None
    elements_per_second: float
    usual: Usual | None
    training: Training


_ROWS: dict[str, Callable[[Measured], str]] = {
    "array in memory": lambda one: size(one.array_bytes),
    "on disk": lambda one: _size(one.disk_bytes),
    "order": lambda one: one.order,
    "memory: stated bound": lambda one: size(one.bound),
    "  taken by reading": lambda one: _size(one.memory),
    "  taken by training": lambda one: _size(one.training.memory),
    "reading, per second": lambda one: size(one.elements_per_second * one.element_bytes),
    "  elements/s": lambda one: f"{one.elements_per_second:,.0f}",
    "  from_generator, elements/s": lambda one: (
        f"{one.usual.elements_per_second:,.0f}" if one.usual else "-"
    ),
    "training, elements/s": lambda one: f"{one.training.elements_per_second:,.0f}",
    "  steps": lambda one: f"{one.training.steps:,}",
    "validation loss": lambda one: f"{one.training.val_loss:.6f}",
    "test loss": lambda one: f"{one.training.test_loss:.6f}",
    "  copying the last frame": lambda one: f"{one.training.copy_loss:.6f}",
    "  model's share of that": lambda one: (
        f"{one.training.test_loss / one.training.copy_loss:.0%}"
        if one.training.is_better
        else "no better"
    ),
}


def _size(nbytes: int | None) -> str:
    return size(nbytes) if nbytes else "-"


@dataclass(frozen=True, slots=True)
class Demo:
    """All that a demonstration measured, an entry for each array; ``print`` it.

    Attributes
    ----------
    arrays : tuple of Measured
    notes : tuple of str
        What was checked, and how the numbers are to be read.
    picture : str or None
        The file of the picture.
    seconds : float
    """

    arrays: tuple[Measured, ...]
    notes: tuple[str, ...]
    picture: str | None
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Return everything as dicts, lists, texts and numbers, for ``json.dumps``."""
        return asdict(self)

    def __str__(self) -> str:
        from rich.console import Console
        from rich.table import Table

        table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
        table.add_column("measured")
        for one in self.arrays:
            table.add_column(one.name, justify="right")
        for label, said in _ROWS.items():
            table.add_row(label, *map(said, self.arrays))
        console = Console(width=_WIDTH, color_system=None)
        with console.capture() as capture:
            console.print(table)
        picture = [f"Picture: {self.picture}"] if self.picture else []
        notes = [*map(_filled, self.notes), *picture, f"Time: {self.seconds:.0f} s"]
        return "\n".join([capture.get(), *notes])


def _filled(text: str) -> str:
    return textwrap.fill(text, _WIDTH, break_long_words=False, break_on_hyphens=False)


class Screen:
    """What is said while it runs, on standard error where standard output is for JSON."""

    def __init__(self, aside: bool = False) -> None:
        from rich.console import Console

        self._console = Console(stderr=aside, highlight=False)

    def say(self, text: str) -> None:
        """Print a paragraph."""
        self.show(_filled(text))

    def show(self, text: object) -> None:
        """Print a text that has its lines already."""
        self._console.print(str(text), markup=False, soft_wrap=True)

    @contextmanager
    def step(self, label: str, total: int = 1, unit: str = "steps") -> Iterator[Any]:
        """Show a bar while the block runs, and the time it took when it is done."""
        begun = perf_counter()
        with progress(f"  {label}", total, unit, shown=total > 1) as advance:
            yield advance
        self.show(f"  {label:<58}{perf_counter() - begun:>7.1f} s")


def check_output(path: Path | None) -> None:
    """Draw something of no matter, so that whatever a picture lacks is told before all the work."""
    if path is None:
        return
    if not path.expanduser().parent.is_dir():
        raise ArgumentError(f"the picture's folder must exist; got '{path.parent}'.")
    with tempfile.TemporaryDirectory() as folder:
        preview(open_view(np.eye(8)[np.newaxis])).save(Path(folder) / path.name)


def draw(path: Path, subject: Subject, model: Model) -> None:
    """Write pictures of test elements: what the model saw last, what came, what it said."""
    places = np.linspace(0, len(subject.parts[2]) - 1, _SHOWN).astype(np.int64)
    batch: Any = subject.scaled(subject.parts[2]).take(np.unique(places))
    x, y = batch
    predicted = model.keras.predict(x, verbose=0)
    shown = {
        "last frame": x[:, -1],
        "next frame": y[:, 0],
        "prediction": predicted[:, 0],
        "its error": predicted[:, 0] - y[:, 0],
    }
    views = {name: open_view(frames) for name, frames in shown.items()}
    preview(zip_datasets(views)).save(path.expanduser())
