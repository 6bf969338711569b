"""Figures of the ways, and what is computed from them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from benchmarks.case import Case

__all__ = ["Figure", "Results", "ratio"]


@dataclass(slots=True)
class Figure:
    """What one way did on one case.

    Attributes
    ----------
    case, way, kind : str
    consumer : str
        ``"loop"``: a plain ``for`` in Python; ``"graph"``: a reduction inside TensorFlow.
    status : str
        ``"measured"``, ``"not installed: …"`` or ``"failed: …"``.
    rates : list of float
        Elements a second, one for each round; of one round, the same place in every list.
    first_batch : list of float
        Seconds from opening to the first batch, one for each time the dataset was made.
    growth : int
        The most that resident memory grew, in bytes, at any time.
    bound : int or None
        What the way itself says it needs.
    evicted : float
        The share of the file that was out of the page cache before a cold round, at least.
    check : dict
        What a pass that was not timed delivered: see `benchmarks.check.Check`.
    """

    case: str
    way: str
    kind: str
    consumer: str = "loop"
    status: str = "measured"
    rates: list[float] = field(default_factory=list)
    first_batch: list[float] = field(default_factory=list)
    growth: int = 0
    bound: int | None = None
    evicted: float = 1.0
    check: dict[str, Any] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """Median over the rounds, in elements a second; 0 where nothing was measured."""
        return statistics.median(self.rates) if self.rates else 0.0

    @property
    def first(self) -> float:
        """Median time to the first batch, in seconds."""
        return statistics.median(self.first_batch) if self.first_batch else 0.0

    @property
    def label(self) -> str:
        """The way, and how its batches were consumed where that is not a plain loop."""
        return f"{self.way}, in a graph" if self.consumer == "graph" else self.way

    @property
    def sound(self) -> bool:
        """Whether no row came twice, or wrong, where that was looked at."""
        found = self.check
        return not found or (not found["wrong"] and found["distinct"] == found["elements"])


class Results:
    """The figures of a section."""

    def __init__(self, cases: tuple[Case, ...], figures: list[Figure]) -> None:
        self.cases = {case.name: case for case in cases}
        self.figures = figures

    def __iter__(self) -> Iterator[Figure]:
        return iter(self.figures)

    def limit(self, case: str) -> Figure | None:
        """Return the fastest limit of a case."""
        found = [f for f in self.figures if f.kind == "limit" and f.case == case and f.rates]
        return max(found, key=lambda figure: figure.rate, default=None)


def ratio(ours: Figure | None, than: Figure | None) -> float | None:
    """Return how many times faster one is: the median over the rounds of each round's ratio."""
    if ours is None or than is None or not ours.rates or not than.rates:
        return None
    pairs = zip(ours.rates, than.rates, strict=False)
    return statistics.median(a / b if b else math.inf for a, b in pairs)
