"""What the demonstration measured: it prints itself."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from oocdata.explain import size
from oocdata.tools.lines import table, wrapped

__all__ = ["Demo", "Measured"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What was measured of one array; losses are mean squared errors."""

    name: str
    order: str
    array_bytes: int  # in memory
    disk_bytes: int | None  # of its file
    element_bytes: int
    bound: int  # bytes that ``loader.explain()`` states for reading
    memory: int | None  # bytes by which the process grew at most
    elements_per_second: float  # of reading alone
    steps: float  # of training
    trained_per_second: float  # elements
    val_loss: float
    test_loss: float
    copy_loss: float  # of the last frame as a forecast of the next one, on the test part

    @property
    def is_better(self) -> bool:
        """Whether the model beats copying the last frame."""
        return self.test_loss < self.copy_loss

    def said(self) -> dict[str, str]:
        """Return each line of the table."""
        share = f"{self.test_loss / self.copy_loss:.0%}" if self.is_better else "no better"
        return {
            "array in memory": size(self.array_bytes),
            "on disk": "-" if self.disk_bytes is None else size(self.disk_bytes),
            "order": self.order,
            "memory: stated bound": size(self.bound),
            "  taken by reading": "-" if self.memory is None else size(self.memory),
            "reading, per second": size(self.elements_per_second * self.element_bytes),
            "  elements/s": f"{self.elements_per_second:,.0f}",
            "training, elements/s": f"{self.trained_per_second:,.0f}",
            "  steps": f"{self.steps:,}",
            "validation loss": f"{self.val_loss:.6f}",
            "test loss": f"{self.test_loss:.6f}",
            "  copying the last frame": f"{self.copy_loss:.6f}",
            "  model's share of that": share,
        }


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
