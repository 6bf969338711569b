"""What `bench` found: limits, ways to read, and what to change; it prints itself."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from oocdata.advice import Advice, size
from oocdata.tools.lines import table

__all__ = ["LIMITS", "Bench", "Limit", "Way"]

_WIDTH = 80

_STATES = {
    "warm": "The page cache was left as it is (--cold: dropped before each epoch).",
    "cold": "The file was dropped from the page cache before each epoch.",
    "memory": "The data are not in a file that is here, so neither warm nor cold.",
}

LIMITS = {
    "memory": "copying in memory",
    "decoder": "decoding",
    "disk in sequence": "disk, in sequence",
    "disk at random": "disk, at random",
}
"""What each limit is called, by its name."""


@dataclass(frozen=True, slots=True)
class Limit:
    """What one part of the machine allows.

    Attributes
    ----------
    name : str
        ``"disk in sequence"``, ``"disk at random"``, ``"decoder"`` or ``"memory"``.
    rounds : tuple of float
        Bytes a second, measured again and again: of what is stored, decoded or delivered.
    element_bytes : float
        Bytes of these that an epoch needs for each of its elements, if it asks for each once.
    """

    name: str
    rounds: tuple[float, ...]
    element_bytes: float

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
    """One way to read.

    Attributes
    ----------
    order : str
        ``"sequential"``, ``"full shuffle"`` or ``"block shuffle"``.
    batch_size : int
    reader : str
        ``"NumPy"`` for plain iteration, or ``"to_tf"``.
    rounds : tuple of float
        Elements a second, one for each round.
    amplification : float
        Bytes decoded or read for each byte used: `Loader.explain`.
    """

    order: str
    batch_size: int
    reader: str
    rounds: tuple[float, ...]
    amplification: float = 1.0

    @property
    def rate(self) -> float:
        """The median, in elements a second."""
        return median(self.rounds)


@dataclass(frozen=True, slots=True)
class Bench:
    """What was measured; ``print`` it.

    Attributes
    ----------
    name : str
        The file and the dataset in it.
    format, storage, codec : str
        As `oocdata.engines.source.Storage` has them; `storage` is its ``layout``.
    stored_bytes : int or None
    elements : int
        In an epoch.
    element : str
        Shape and dtype of an element's arrays.
    element_bytes : int
        As delivered.
    cache : str
        ``"warm"``: the page cache was left as it is; ``"cold"``: the file was dropped from it
        before each epoch; ``"memory"``: there is no file.
    limits : tuple of Limit
    ways : tuple of Way
    advice : tuple of Advice
    notes : tuple of str
        What else must be known to read the figures.
    memory_bytes : int
        What measuring may take, at most.
    seconds : float
        How long it took.
    """

    name: str
    format: str
    storage: str
    codec: str
    stored_bytes: int | None
    elements: int
    element: str
    element_bytes: int
    cache: str
    limits: tuple[Limit, ...]
    ways: tuple[Way, ...]
    advice: tuple[Advice, ...]
    notes: tuple[str, ...]
    memory_bytes: int
    seconds: float

    def bound(self, way: Way) -> Limit:
        """Return the limit that a way comes up against first."""
        disk = "disk at random" if way.order == "full shuffle" else "disk in sequence"
        limits = [one for one in self.limits if one.name in ("memory", "decoder", disk)]
        return min(limits, key=lambda limit: limit.elements)

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
        limits = table(
            ["what the machine allows", " MB/s", " spread", " elements/s"],
            [
                (
                    LIMITS[one.name],
                    f"{one.rate / 1e6:,.0f}",
                    _spread(one.rounds),
                    f"{one.elements:,.0f}",
                )
                for one in self.limits
            ],
        )
        titles = ["way", " batch", "reader", " elements/s", " spread", " decoded", "of its limit"]
        ways = table(titles, map(self._row, self.ways))
        parts = ["\n".join(map(_wrapped, head)), limits, ways, "\n".join(self._to_change())]
        return "\n\n".join(parts)

    def _row(self, way: Way) -> Sequence[str]:
        bound = self.bound(way)
        return (
            way.order,
            f"{way.batch_size:,}",
            way.reader,
            f"{way.rate:,.0f}",
            _spread(way.rounds),
            f"{way.amplification:,.1f}×",
            f"{way.rate / bound.elements:.0%} {bound.name}",
        )

    def _to_change(self) -> list[str]:
        lines = ["what to change"]
        for one in self.advice:
            lines.append(_wrapped(one.text, "- ", "  "))
            lines += [f"    {one.command}"] if one.command else []
        if not self.advice:
            best = max(self.ways, key=lambda way: way.rate / self.bound(way).elements)
            bound = self.bound(best)
            share = min(1.0, best.rate / bound.elements)
            reached = f"{best.order} reaches {share:.0%} of the limit of {LIMITS[bound.name]}"
            lines.append(_wrapped(f"Nothing stands out: {reached}.", "- ", "  "))
        return lines

    def to_json(self) -> dict[str, Any]:
        """Return everything for ``json.dumps``, with medians beside the rounds."""
        found = asdict(self)
        for limit, described in zip(self.limits, found["limits"], strict=True):
            described |= {"bytes_per_second": limit.rate, "elements_per_second": limit.elements}
        for way, described in zip(self.ways, found["ways"], strict=True):
            bound = self.bound(way)
            described |= {
                "elements_per_second": way.rate,
                "limit": bound.name,
                "share_of_limit": way.rate / bound.elements,
            }
        return found


def _spread(rounds: tuple[float, ...]) -> str:
    """Return from the slowest round to the fastest, as a share of the median."""
    middle = median(rounds)
    return f"{(max(rounds) - min(rounds)) / middle:.0%}" if middle and len(rounds) > 1 else "-"


def _wrapped(text: str, first: str = "", rest: str = "") -> str:
    return textwrap.fill(
        text,
        _WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
