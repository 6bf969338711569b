"""What the demonstration says: while it runs, in the end, and as a picture."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from oocdata.datasets.open import open as open_view
from oocdata.datasets.zip import zip as zip_datasets
from oocdata.explain import size
from oocdata.tools.demo.measure import Subject, Training, Usual
from oocdata.tools.lines import table, wrapped
from oocdata.tools.preview import preview
from oocdata.tools.progress import progress

if TYPE_CHECKING:
    import keras

__all__ = ["Demo", "Measured", "Screen", "draw"]

_SHOWN = 6


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured of one array."""

    name: str
    order: str
    array_bytes: int  # in memory
    disk_bytes: int  # of its file; 0 where that isn't known
    element_bytes: int
    bound: int  # bytes that ``loader.explain()`` states for reading
    memory: int | None  # bytes by which the process grew at most
    elements_per_second: float  # of reading alone
    usual: Usual | None
    training: Training

    def said(self) -> dict[str, str]:
        """Return each line of the table."""
        training, usual = self.training, self.usual
        share = training.test_loss / training.copy_loss if training.is_better else None
        return {
            "array in memory": size(self.array_bytes),
            "on disk": _size(self.disk_bytes),
            "order": self.order,
            "memory: stated bound": size(self.bound),
            "  taken by reading": _size(self.memory),
            "  taken by training": _size(training.memory),
            "reading, per second": size(self.elements_per_second * self.element_bytes),
            "  elements/s": f"{self.elements_per_second:,.0f}",
            "  from_generator, elements/s": f"{usual.elements_per_second:,.0f}" if usual else "-",
            "training, elements/s": f"{training.elements_per_second:,.0f}",
            "  steps": f"{training.steps:,}",
            "validation loss": f"{training.val_loss:.6f}",
            "test loss": f"{training.test_loss:.6f}",
            "  copying the last frame": f"{training.copy_loss:.6f}",
            "  model's share of that": "no better" if share is None else f"{share:.0%}",
        }


def _size(nbytes: int | None) -> str:
    return size(nbytes) if nbytes else "-"


@dataclass(frozen=True, slots=True)
class Demo:
    """All that a demonstration measured, an entry for each array; ``print`` it."""

    arrays: tuple[Measured, ...]
    notes: tuple[str, ...]  # what was checked, and how the numbers are to be read
    picture: str | None  # the file of the picture
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Return everything as dicts, lists, texts and numbers, for ``json.dumps``."""
        return asdict(self)

    def __str__(self) -> str:
        each = [one.said() for one in self.arrays]
        rows = [(label, *(said[label] for said in each)) for label in each[0]]
        measured = table(["measured", *(one.name for one in self.arrays)], rows)
        picture = [f"Picture: {self.picture}"] if self.picture else []
        notes = [*map(wrapped, self.notes), *picture, f"Time: {self.seconds:.0f} s"]
        return "\n".join([measured, "", *notes])


class Screen:
    """What is said while it runs, on standard error where standard output is for JSON."""

    def __init__(self, aside: bool = False) -> None:
        from rich.console import Console

        self.begun = perf_counter()
        self._console = Console(stderr=aside, highlight=False)

    def say(self, text: str) -> None:
        """Print a paragraph."""
        self.show(wrapped(text))

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


def draw(path: Path, subject: Subject, model: keras.Model) -> None:
    """Write pictures of test elements: what the model saw last, what came, what it said."""
    places = np.linspace(0, len(subject.parts[2]) - 1, _SHOWN).astype(np.int64)
    batch: Any = subject.batches(subject.parts[2]).dataset.take(np.unique(places))
    x, y = batch
    predicted = model.predict(x, verbose=0)
    shown = {
        "last frame": x[:, -1],
        "next frame": y[:, 0],
        "prediction": predicted[:, 0],
        "its error": predicted[:, 0] - y[:, 0],
    }
    views = {name: open_view(frames) for name, frames in shown.items()}
    preview(zip_datasets(views)).save(path)
