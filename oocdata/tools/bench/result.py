"""What `bench` found: limits, ways, where the time goes, and what to change."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from oocdata.tools.info import Opening
from oocdata.tools.profile.sampling import Spent

__all__ = ["Advice", "Bench", "Limit", "Look", "Way"]


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
        """Bytes a second: the best round, for a limit is what others on the machine leave of it."""
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
    estimated : bool
        A single read of it would have taken longer than there was time for: worked out from what it
        decodes or fetches, and the limit of that.
    """

    order: str
    batch_size: int
    reader: str
    rounds: tuple[float, ...]
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
class Look:
    """Where the time of one order goes, and what it reads.

    Of the threads that read, that is: the loop that takes the batches does nothing with them here,
    so it has no share that would say anything. `Loader.profile` times a loop that does.

    Attributes
    ----------
    order : str
    batch_size : int
    spent : Spent
    amplification : float or None
        Rows decoded for each row used in an epoch; None where nothing is decoded.
    counted : bool
        They were counted, for there was time for a whole epoch; else as `Loader.explain` tells.
    chunks : int
        Chunks decoded meanwhile.
    rows : int
        Rows delivered meanwhile.
    disk_bytes : int or None
        Bytes that came from the disk meanwhile; None where the system doesn't tell.
    """

    order: str
    batch_size: int
    spent: Spent
    amplification: float | None
    counted: bool
    chunks: int
    rows: int
    disk_bytes: int | None


@dataclass(frozen=True, slots=True)
class Advice:
    """What to change, and by how much that helps.

    Attributes
    ----------
    kind : str
        One word for scripts: ``"order"``, ``"chunks"``, ``"codec"``, ``"batch"``, ``"budget"``,
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
        As in `oocdata.sources.source.Layout`.
    stored_bytes : int or None
    elements : int
        In an epoch.
    element : str
        Shape and dtype of an element's arrays.
    element_bytes : int
        As delivered.
    chunk_rows : int
    cache : str
        ``"warm"``: the file was in the page cache; ``"cold"``: it was dropped from it before each
        epoch; ``"memory"``: there is no file.
    limits : tuple of Limit
    ways : tuple of Way
    kept : Way or None
        The rate from the second epoch on, where all that is decoded is kept.
    looks : tuple of Look
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
    kept: Way | None
    looks: tuple[Look, ...]
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
        if way is self.kept:  # nothing is decoded or read any more
            return self.limit("memory")
        names = ["decoder", "memory"]
        if self.cache == "cold":
            in_blocks = self.kept is not None and self.chunk_rows == 1  # small rows, read once
            scattered = way.order == "full shuffle" and not in_blocks
            at_random = scattered and self.limit("disk at random")
            names.append("disk at random" if at_random else "disk in sequence")
        limits = [limit for name in names if (limit := self.limit(name))]
        return min(limits, key=lambda limit: limit.elements, default=None)

    def __str__(self) -> str:
        from oocdata.tools.bench.text import bench_text

        return bench_text(self)

    def as_json(self) -> dict[str, Any]:
        """Return everything for ``json.dumps``, with medians beside the rounds."""
        found = asdict(self)
        for limit, described in zip(self.limits, found["limits"], strict=True):
            described |= {"bytes_per_second": limit.rate, "elements_per_second": limit.elements}
        ways = [*zip(self.ways, found["ways"], strict=True)]
        if self.kept is not None:
            ways.append((self.kept, found["kept"]))
        for way, described in ways:
            bound = self.bound(way)
            described |= {
                "elements_per_second": way.rate,
                "bytes_per_second": way.rate * self.element_bytes,
                "spread": way.spread,
                "limit": bound.name if bound else None,
                "share_of_limit": way.rate / bound.elements if bound else None,
            }
        return found
