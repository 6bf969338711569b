"""What `bench` found: ways to read, and what to change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from oocdata.advice import Advice, size
from oocdata.tools.lines import table, wrapped

__all__ = ["Bench", "Way"]

_STATES = {
    "warm": "The page cache was left as it is (--cold: dropped before each epoch).",
    "cold": "The file was dropped from the page cache before each epoch.",
    "memory": "The data are not in a file that is here, so neither warm nor cold.",
    "store": "The data lie in a store: each epoch fetches them anew.",
}


@dataclass(frozen=True, slots=True)
class Way:
    """One way to read."""

    order: str  # "sequential", "full shuffle" or "block shuffle"
    batch_size: int
    reader: str  # "NumPy" for plain iteration, or "to_tf"
    rounds: tuple[float, ...]  # elements a second
    amplification: float = 1.0  # bytes decoded or read for each byte used

    @property
    def rate(self) -> float:
        """The median, in elements a second."""
        return median(self.rounds)


@dataclass(frozen=True, slots=True)
class Bench:
    """What was measured; ``print`` it."""

    name: str  # the file and the dataset in it
    format: str
    storage: str  # how the array lies in the file
    codec: str
    stored_bytes: int | None
    elements: int  # in an epoch
    element: str  # shape and dtype of an element's arrays
    element_bytes: int  # as delivered
    # The page cache: "warm" (left as it was) or "cold"; "memory" or "store" without a file here.
    cache: str
    ways: tuple[Way, ...]
    advice: tuple[Advice, ...]
    notes: tuple[str, ...]
    memory_bytes: int  # what measuring may take, at most
    seconds: float  # how long it took

    def __str__(self) -> str:
        stored = "" if self.stored_bytes is None else f", {size(self.stored_bytes)} stored"
        noun = "element" if self.elements == 1 else "elements"
        head = [
            f"{self.name}: {self.elements:,} {noun} of {self.element}",
            f"{self.format}, {self.storage}, codec {self.codec}{stored}",
            _STATES[self.cache],
            *self.notes,
            f"Measured in {self.seconds:.0f} s, within {size(self.memory_bytes)} of memory.",
        ]
        header = ["way", "batch", "reader", "elements/s", "MB/s", "spread", "decoded"]
        rows = [_way_row(way, self.element_bytes) for way in self.ways]
        advice = ["what to change", *map(str, self.advice or ("- Nothing stands out.",))]
        parts = ["\n".join(map(wrapped, head)), table(header, rows, left=(0, 2)), "\n".join(advice)]
        return "\n\n".join(parts)

    def to_json(self) -> dict[str, Any]:
        """Return everything for ``json.dumps``, with medians beside the rounds."""
        found = asdict(self)
        for way, described in zip(self.ways, found["ways"], strict=True):
            described["elements_per_second"] = way.rate
        return found


def _way_row(way: Way, nbytes: int) -> Sequence[str]:
    return (
        way.order,
        f"{way.batch_size:,}",
        way.reader,
        f"{way.rate:,.0f}",
        f"{way.rate * nbytes / 1e6:,.0f}",
        _spread(way.rounds),
        f"{way.amplification:,.1f}×",
    )


def _spread(rounds: tuple[float, ...]) -> str:
    """Return from the slowest round to the fastest, as a share of the median."""
    middle = median(rounds)
    return f"{(max(rounds) - min(rounds)) / middle:.0%}" if middle and len(rounds) > 1 else "-"
