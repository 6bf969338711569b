"""What `bench` found: limits, ways, and what to change; it prints itself."""

from __future__ import annotations

import textwrap
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from oocdata.explain import as_typed, size
from oocdata.tools.info import Opening

__all__ = ["Advice", "Bench", "Limit", "Way"]

_WIDTH = 80

_STATES = {
    "warm": "The page cache was left as it is (--cold: dropped before each epoch).",
    "cold": "The file was dropped from the page cache before each epoch.",
    "memory": "The data are not in a file that is here, so neither warm nor cold.",
}

_LIMITS = {
    "disk in sequence": ("disk, in sequence, cold", "stored"),
    "disk at random": ("disk, at random, cold", "stored"),
    "decoder": ("decoder, {threads} threads", "decoded"),
    "memory": ("memory, copied by {threads} threads", "delivered"),
}

_SHORT = {"disk in sequence": "disk", "disk at random": "disk, random"}


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
    estimated : bool
        A single read of it would have taken longer than there was time for: worked out from what it
        decodes and the decoder's limit.
    """

    order: str
    batch_size: int
    reader: str
    rounds: tuple[float, ...]
    amplification: float = 1.0
    estimated: bool = False

    @property
    def rate(self) -> float:
        """The median, in elements a second."""
        return median(self.rounds)

    @property
    def spread(self) -> float:
        """From the slowest round to the fastest, as a share of the median."""
        return (max(self.rounds) - min(self.rounds)) / max(self.rate, 1e-9)


@dataclass(frozen=True, slots=True)
class Advice:
    """What to change.

    Attributes
    ----------
    kind : str
        One word for scripts: ``"order"``, ``"chunks"``, ``"codec"``, ``"batch"``, ``"memory"``,
        ``"disk"``, ``"layout"`` or ``"nothing"``.
    text : str
        In plain sentences.
    command : str or None
        What to type.
    """

    kind: str
    text: str
    command: str | None = None


@dataclass(frozen=True, slots=True)
class Bench:
    """What was measured; ``print`` it.

    Attributes
    ----------
    path, key : str or None
    opening : Opening or None
        How the file is opened; None where that is not known, or there are several.
    format, storage, codec : str
        As `oocdata.engines.source.Storage` has them; `storage` is its ``layout``.
    stored_bytes : int or None
    elements : int
        In an epoch.
    element : str
        Shape and dtype of an element's arrays.
    element_bytes : int
        As delivered.
    chunk_rows : int
        Rows that are decoded together.
    cache : str
        ``"warm"``: the page cache was left as it is; ``"cold"``: the file was dropped from it
        before each epoch; ``"memory"``: there is no file.
    limits : tuple of Limit
    ways : tuple of Way
    advice : tuple of Advice
    notes : tuple of str
        What else must be known to read the figures.
    threads : int
        Of the limits.
    memory_bytes : int
        What measuring may take, at most.
    seconds : float
        How long it took.
    """

    path: str | None
    key: str | None
    opening: Opening | None
    format: str
    storage: str
    codec: str
    stored_bytes: int | None
    elements: int
    element: str
    element_bytes: int
    chunk_rows: int
    cache: str
    limits: tuple[Limit, ...]
    ways: tuple[Way, ...]
    advice: tuple[Advice, ...]
    notes: tuple[str, ...]
    threads: int
    memory_bytes: int
    seconds: float

    def limit(self, name: str) -> Limit | None:
        """Return the limit of a name; None where it does not apply."""
        return next((limit for limit in self.limits if limit.name == name), None)

    def best(self, order: str, *, measured: bool = False) -> Way | None:
        """Return the fastest way in an order; of those that were measured, if asked for."""
        ways = [way for way in self.ways if way.order == order and not (measured and way.estimated)]
        return max(ways, key=lambda way: way.rate, default=None)

    def bound(self, way: Way) -> Limit | None:
        """Return the limit that a way comes up against first."""
        names = ["decoder", "memory"]
        if self.cache == "cold":
            at_random = way.order == "full shuffle" and self.limit("disk at random")
            names.append("disk at random" if at_random else "disk in sequence")
        limits = [limit for name in names if (limit := self.limit(name))]
        return min(limits, key=lambda limit: limit.elements, default=None)

    def __str__(self) -> str:
        return "\n\n".join(
            [self._head(), self._limit_lines(), self._way_lines(), self._to_change()]
        )

    def _head(self) -> str:
        where = as_typed(self.path) if self.path else "memory"
        key = f", {self.key}" if self.key else ""
        stored = "" if self.stored_bytes is None else f", {size(self.stored_bytes)} stored"
        noun = "element" if self.elements == 1 else "elements"
        lines = [
            f"{where}{key}: {self.elements:,} {noun} of {self.element}",
            f"{self.format}, {self.storage}, codec {self.codec}{stored}",
            _STATES[self.cache],
            *self.notes,
            f"Measured in {self.seconds:.0f} s, within {size(self.memory_bytes)} of memory.",
        ]
        return "\n".join(_wrapped(line) for line in lines)

    def _limit_lines(self) -> str:
        lines = [f"{'what the machine allows':<40}{'MB/s':>10}{'spread':>8}{'elements/s':>15}"]
        for limit in self.limits:
            words, of = _LIMITS[limit.name]
            name = f"{words.format(threads=self.threads)} ({of})"
            lines.append(
                f"{name:<40}{limit.rate / 1e6:>10,.0f}{_spread(limit.rounds):>8}"
                f"{limit.elements:>15,.0f}"
            )
        return "\n".join(lines)

    def _way_lines(self) -> str:
        titles = f"{'elements/s':>12}{'MB/s':>8}{'spread':>7}{'decoded':>9}  of its limit"
        lines = [f"{'way':<14}{'batch':>6}  {'reader':<7}{titles}"]
        lines += map(self._way_line, self.ways)
        if any(way.estimated for way in self.ways):
            lines.append("≈ worked out from what one read decodes: it would have taken too long")
        return "\n".join(lines)

    def _way_line(self, way: Way) -> str:
        bound = self.bound(way)
        of = "-"
        if bound:
            of = f"{way.rate / bound.elements:.0%} {_SHORT.get(bound.name, bound.name)}"
        about = "≈" if way.estimated else ""
        return (
            f"{way.order:<14}{way.batch_size:>6,}  {way.reader:<7}{about + f'{way.rate:,.0f}':>12}"
            f"{way.rate * self.element_bytes / 1e6:>8,.0f}{_spread(way.rounds):>7}"
            f"{f'{way.amplification:,.1f}×':>9}  {of}"
        )

    def _to_change(self) -> str:
        lines = ["what to change"]
        for one in self.advice:
            lines.append(_wrapped(one.text, "- ", "  "))
            if one.command:
                lines.append(f"    {one.command}")
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """Return everything for ``json.dumps``, with medians beside the rounds."""
        found = asdict(self)
        for limit, described in zip(self.limits, found["limits"], strict=True):
            described |= {"bytes_per_second": limit.rate, "elements_per_second": limit.elements}
        for way, described in zip(self.ways, found["ways"], strict=True):
            bound = self.bound(way)
            described |= {
                "elements_per_second": way.rate,
                "bytes_per_second": way.rate * self.element_bytes,
                "spread": way.spread,
                "limit": bound.name if bound else None,
                "share_of_limit": way.rate / bound.elements if bound else None,
            }
        return found


def _spread(rounds: tuple[float, ...]) -> str:
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
