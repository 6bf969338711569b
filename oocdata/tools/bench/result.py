"""What `bench` found: limits, ways to read, and what to change."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Any

from oocdata.advice import Advice, size
from oocdata.tools.lines import Report, table, wrapped

__all__ = ["LIMITS", "Bench", "Limit", "Way"]

_STATES = {
    "warm": "The page cache was left as it is (--cold: dropped before each epoch).",
    "cold": "The file was dropped from the page cache before each epoch.",
    "memory": "The data are not in a file that is here, so neither warm nor cold.",
    "store": "The data lie in a store: each epoch fetches them anew.",
}

LIMITS = {
    "memory": "copying in memory",
    "decoder": "decoding",
    "link": "link to the store",
    "disk": "disk",
}
"""What each limit is called, by its name."""


@dataclass(frozen=True, slots=True)
class Limit:
    """What one part of the machine allows."""

    name: str  # "memory", "decoder", "link" or "disk"
    rounds: tuple[float, ...]  # bytes a second: of what is stored, decoded or delivered
    element_bytes: float  # that an epoch needs for each element, if it asks for each once

    @property
    def rate(self) -> float:
        """Bytes a second: the best round, for other programs take their part of the machine."""
        return max(self.rounds)

    @property
    def elements(self) -> float:
        """Elements a second: no epoch can be faster."""
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
        """The median, in elements a second."""
        return median(self.rounds)


@dataclass(frozen=True, slots=True)
class Bench(Report):
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
    limits: tuple[Limit, ...]
    ways: tuple[Way, ...]
    advice: tuple[Advice, ...]
    notes: tuple[str, ...]
    memory_bytes: int  # what measuring may take, at most
    seconds: float  # how long it took

    @property
    def bound(self) -> Limit:
        """The limit that reading comes up against first."""
        return min(self.limits, key=lambda limit: limit.elements)

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
        allowed = table(
            ["what the machine allows", "MB/s", "spread", "elements/s"],
            [
                (LIMITS[one.name], f"{one.rate / 1e6:,.0f}", _spread(one), f"{one.elements:,.0f}")
                for one in self.limits
            ],
        )
        bound = self.bound
        ways = table(
            ["way", "batch", "reader", "elements/s", "spread", "decoded", "of its limit"],
            [
                (
                    *(way.order, f"{way.batch_size:,}", way.reader, f"{way.rate:,.0f}"),
                    *(_spread(way), f"{way.amplification:,.1f}×"),
                    f"{way.rate / bound.elements:.0%} {bound.name}",
                )
                for way in self.ways
            ],
            left=(0, 2, 6),
        )
        best = max(self.ways, key=lambda way: way.rate)
        share = min(1.0, best.rate / bound.elements)
        reached = f"{best.order} reaches {share:.0%} of the limit of {LIMITS[bound.name]}"
        advice = [str(one) for one in self.advice]
        advice = advice or [wrapped(f"Nothing stands out: {reached}.", "- ", "  ")]
        blocks = map(wrapped, head), [allowed], [ways], ["what to change", *advice]
        return "\n\n".join(map("\n".join, blocks))

    def to_json(self) -> dict[str, Any]:
        """Return everything for ``json.dumps``, with medians beside the rounds."""
        found = Report.to_json(self)
        for limit, told in zip(self.limits, found["limits"], strict=True):
            told |= {"bytes_per_second": limit.rate, "elements_per_second": limit.elements}
        for way, told in zip(self.ways, found["ways"], strict=True):
            share = way.rate / self.bound.elements
            told |= {"elements_per_second": way.rate, "share_of_limit": share}
            told["limit"] = self.bound.name
        return found


def _spread(one: Limit | Way) -> str:
    """Return from the slowest round to the fastest, as a share of the median."""
    rounds, middle = one.rounds, median(one.rounds)
    return f"{(max(rounds) - min(rounds)) / middle:.0%}" if middle and len(rounds) > 1 else "-"
