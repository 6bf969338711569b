"""Which cases and ways are run together."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.case import Case
from benchmarks.ways import WAYS, Way

__all__ = ["Section"]


@dataclass(frozen=True, slots=True)
class Section:
    """Cases whose ways take turns in one run, so that their figures can be compared.

    Attributes
    ----------
    name, title : str
    cases : tuple of Case
    ways : tuple of str
        Their names; empty for all that apply.
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
    graph: bool = False
    first_batch_only: bool = False
    whole: bool = False

    def entries(self) -> list[tuple[Case, Way]]:
        """Return the cases with the ways that apply to them, in the order of the table."""
        chosen = [WAYS[name] for name in self.ways] if self.ways else list(WAYS.values())
        return [(case, way) for case in self.cases for way in chosen if way.applies(case)]
