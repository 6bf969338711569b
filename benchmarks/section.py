"""Which cases and ways are run together, and what is asked of the figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.case import Case
from benchmarks.results import Results
from benchmarks.ways import WAYS, Way

__all__ = ["Section", "Target"]


@dataclass(frozen=True, slots=True)
class Target:
    """One figure that is asked for.

    Attributes
    ----------
    what : str
        In words, with the name of what it is compared to.
    asked : float
    measure : callable
        Gets the results of the section; None where something it needs was not measured.
    unit : str
    at_most : bool
        Whether less is better.
    """

    what: str
    asked: float
    measure: Callable[[Results], float | None]
    unit: str = "×"
    at_most: bool = False

    def met(self, measured: float) -> bool:
        """Return whether a measured figure is what was asked for."""
        return measured <= self.asked if self.at_most else measured >= self.asked


@dataclass(frozen=True, slots=True)
class Section:
    """Cases whose ways take turns in one run, so that their figures can be compared.

    Attributes
    ----------
    name, title : str
    cases : tuple of Case
    ways : tuple of str
        Their names; empty for all that apply.
    targets : tuple of Target
    graph : bool
        Whether tf.data ways are also drained inside a graph, as a compiled loop would.
    first_batch_only : bool
        Whether a round is opening the file and one batch, in a fresh process.
    whole : bool
        Whether every round goes to the end of the epoch, however long that takes.
    """

    name: str
    title: str
    cases: tuple[Case, ...]
    ways: tuple[str, ...] = ()
    targets: tuple[Target, ...] = ()
    graph: bool = False
    first_batch_only: bool = False
    whole: bool = False

    def entries(self) -> list[tuple[Case, Way]]:
        """Return the cases with the ways that apply to them, in the order of the table."""
        chosen = [WAYS[name] for name in self.ways] if self.ways else list(WAYS.values())
        return [(case, way) for case in self.cases for way in chosen if way.applies(case)]
