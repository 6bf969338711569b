"""Define the result of `bench`: limits, ways to read, and advice."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Any

from oocdata.advice import Advice, size
from oocdata.tools.report import Report, counted, table, wrapped

_STATES = {
    "warm": "The page cache was left as it is (--cold: dropped before each epoch).",
    "cold": "The system was asked to drop the file from the page cache before each epoch.",
    "memory": "The data are not in a local file, so neither warm nor cold.",
    "store": "The data are in a store: each epoch fetches them again.",
}


@dataclass(frozen=True, slots=True)
class Limit:
    """The limit that one part of the machine sets."""

    name: str  # "decoder" or "disk"
    rounds: tuple[float, ...]  # bytes a second, as decoded or stored
    element_bytes: float  # bytes of an epoch that reads each once, divided by its elements

    @property
    def rate(self) -> float:
        """Bytes a second in the best round, as other programs may slow down the others."""
        return max(self.rounds)

    @property
    def elements(self) -> float:
        """Elements a second; no epoch can be faster."""
        return self.rate / max(self.element_bytes, 1e-9)


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
        """Elements a second; the median of the rounds."""
        return median(self.rounds)


@dataclass(frozen=True, slots=True)
class Bench(Report):
    """The result of `bench`; ``print`` it."""

    name: str  # the file and the dataset in it
    format: str
    storage: str  # the layout of the array in the file
    codec: str
    stored_bytes: int | None
    elements: int  # in an epoch
    element: str  # shape and dtype of an element's arrays
    element_bytes: int  # as delivered
    cache: str  # page cache: "warm" (as it was) or "cold"; "memory" or "store" without local files
    limits: tuple[Limit, ...]
    ways: tuple[Way, ...]
    advice: tuple[Advice, ...]
    notes: tuple[str, ...]
    memory_bytes: int  # the most that measuring may take
    seconds: float  # how long measuring took

    @property
    def bound(self) -> Limit | None:
        """The lowest limit; None if nothing is decoded and the page cache is used."""
        return min(self.limits, key=lambda limit: limit.elements, default=None)

    def share(self, way: Way) -> float | None:
        """Return the share of the lowest limit that a way reaches."""
        return None if self.bound is None else way.rate / self.bound.elements

    def __str__(self) -> str:
        stored = "" if self.stored_bytes is None else f", {size(self.stored_bytes)} stored"
        head = [
            f"{self.name}: {counted(self.elements, 'element')} of {self.element}",
            f"{self.format}, {self.storage}, codec {self.codec}{stored}",
            _STATES[self.cache],
            *self.notes,
            f"Measured in {self.seconds:.0f} s, within {size(self.memory_bytes)} of memory.",
        ]
        limits = table(
            ["limit of the machine", "MB/s", "elements/s"],
            [(one.name, f"{one.rate / 1e6:,.0f}", f"{one.elements:,.0f}") for one in self.limits],
        )
        bound, header = self.bound, ["order", "batch", "reader", "elements/s", "decoded"]
        rows = [
            [
                *(way.order, f"{way.batch_size:,}", way.reader, f"{way.rate:,.0f}"),
                f"{way.amplification:,.1f}×",
                *([f"{self.share(way):.0%} {bound.name}"] if bound else []),
            ]
            for way in self.ways
        ]
        ways = table([*header, "of the limit"] if bound else header, rows, left=(0, 2, 5))
        best = max(self.ways, key=lambda way: way.rate)
        reached = f"{best.order} is the fastest"
        if bound:
            share = min(1.0, best.rate / bound.elements)
            reached = f"{best.order} reaches {share:.0%} of its limit ({bound.name})"
        advice = [str(advice) for advice in self.advice]
        advice = advice or [wrapped(f"Nothing stands out: {reached}.", "- ", "  ")]
        blocks = map(wrapped, head), [limits] if bound else [], [ways], ["what to change", *advice]
        return "\n\n".join("\n".join(lines) for block in blocks if (lines := list(block)))

    def to_json(self) -> dict[str, Any]:
        """Return a dict for ``json.dumps``, with rates in addition to the rounds."""
        bound, found = self.bound, Report.to_json(self)
        for limit, entry in zip(self.limits, found["limits"], strict=True):
            entry |= {"bytes_per_second": limit.rate, "elements_per_second": limit.elements}
        for way, entry in zip(self.ways, found["ways"], strict=True):
            entry |= {"elements_per_second": way.rate, "share_of_limit": self.share(way)}
            entry["limit"] = bound and bound.name
        return found
