"""What a check found: to print, to keep as JSON, to ask whether all is well."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from oocdata.explain import size
from oocdata.tools.lines import Report, labelled, wrapped

__all__ = ["KINDS", "NOTES", "Checked", "Finding", "Health"]

KINDS = {
    "truncated": "bytes that must be there are beyond the end of a file",
    "missing": "a file, or a part of another one, is not there",
    "damaged": "bytes do not decode, or fail the checksum of their format",
    "unreadable": "the system, or the format's library, can't read it",
    "trailing": "a file is longer than it must be",
    "changed": "rows that are not what the manifest says",
    "unwritten": "never written, and read as the fill value",
    "nan": "numbers that are NaN",
    "inf": "numbers that are infinite",
    "unchecked": "no array of numbers, or needs what is not allowed or installed",
}
"""What a finding can be; the worst first."""

NOTES = ("unchecked",)
"""Findings that are told, and wrong only if something else was to be there."""


_MOST_RANGES = 10_000
"""Runs of rows that are kept of one finding; those beyond them are counted."""


@dataclass(slots=True)
class Finding:
    """One thing that is wrong, with all rows that it concerns.

    Examples
    --------
    >>> found = Finding("nan", "9 numbers are NaN.")
    >>> found.add([range(0, 4), range(4, 6), range(9, 10)])
    >>> found.rows, found.row_count
    ((range(0, 6), range(9, 10)), 7)
    """

    kind: str  # one of `KINDS`
    reason: str  # what must hold, and what came; of several faults the first
    rows: tuple[range, ...] = ()  # the first 10,000 runs; empty where no row can be named
    row_count: int = 0  # of all of them
    values: int | None = None  # how many numbers, for "nan" and "inf"
    path: str = ""  # of the file
    key: str | None = None  # of the dataset in it; None where it concerns the file, or the only one

    def add(self, ranges: Iterable[range]) -> None:
        """Add rows behind those that there are, and join neighbours."""
        kept = list(self.rows)
        for rows in filter(len, ranges):
            self.row_count += len(rows)
            if kept and kept[-1].stop == rows.start:
                kept[-1] = range(kept[-1].start, rows.stop)
            elif len(kept) < _MOST_RANGES:
                kept.append(rows)
        self.rows = tuple(kept)


@dataclass(frozen=True, slots=True)
class Checked:
    """A dataset that was checked."""

    path: str
    key: str | None
    shape: tuple[int, ...]  # (rows, *element)
    dtype: str
    nbytes: int  # of all rows, in memory

    def __str__(self) -> str:
        rows, element = self.shape[0], self.shape[1:]
        of = f"{element} {self.dtype}" if element else self.dtype
        return f"{_place(self)}: {rows:,} row{'s' * (rows != 1)} of {of}, {size(self.nbytes)}"


@dataclass(frozen=True, slots=True)
class Health(Report):
    """What a check found; ``print`` it."""

    name: str  #: what was checked
    #: Path, key, shape, dtype and nbytes of each dataset.
    datasets: tuple[Checked, ...] = ()
    #: Kind, path, key, rows (ranges), row_count, values and reason of each thing that is wrong.
    findings: tuple[Finding, ...] = ()
    compared: tuple[str, ...] = ()  #: manifests that the files were compared with
    written: tuple[str, ...] = ()  #: manifests that were written

    def healthy(self, allow: Collection[str] = ()) -> bool:
        """Return whether nothing was found but notes, and what is allowed, of `KINDS`."""
        return all(finding.kind in (*NOTES, *allow) for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """Return all for ``json.dumps``: rows as ``[[first, one past the last], …]``."""
        return {**Report.to_json(self), "healthy": self.healthy()}

    def __str__(self) -> str:
        return self.text()

    def text(self, show: int = 10, every: bool = False) -> str:
        """Return lines for a terminal.

        Parameters
        ----------
        show : int
            Runs of rows of a finding, and files, that are named at most.
        every : bool
            Name every healthy dataset; otherwise more than `show` of them are only counted.

        Examples
        --------
        >>> found = Finding("nan", "9 numbers are NaN.", path="a.npy")
        >>> found.add([range(3, 5), range(7, 8)])
        >>> checked = Checked("a.npy", None, (10, 3), "float32", 120)
        >>> print(Health("a.npy", (checked,), findings=(found,)))
        a.npy: 10 rows of (3,) float32, 120 bytes
          nan         3 rows: 3-4, 7
                      9 numbers are NaN.
        1 finding: nan.
        """
        by_place: dict[str, list[Finding]] = {_place(one): [] for one in self.datasets}
        others = [one for one in self.findings if _place(one) not in by_place]
        for finding in self.findings:
            by_place.setdefault(_place(finding), []).append(finding)
        healthy = {_place(one) for one in self.datasets if not _wrong(by_place[_place(one)])}
        listed = every or len(healthy) <= show
        lines = list(_lines(_wrong(others), show, named=True))
        for one in self.datasets:
            well = _place(one) in healthy
            if listed or not well:
                lines.append(wrapped(f"{one}{', healthy' * well}", rest="  "))
                lines += _lines(by_place[_place(one)], show)
        notes = [one for one in others if one.kind in NOTES]
        lines += _lines(notes, show, named=True)
        lines += [f"compared with {manifest}" for manifest in self.compared]
        lines += [f"wrote {manifest}" for manifest in self.written]
        wrong = _wrong(self.findings)
        if wrong:
            kinds = ", ".join(dict.fromkeys(finding.kind for finding in wrong))
            lines.append(f"{len(wrong):,} finding{'s' * (len(wrong) > 1)}: {kinds}.")
        if healthy or not wrong:
            things = f"{len(healthy):,} dataset{'s' * (len(healthy) != 1)}"
            lines.append(f"Nothing wrong with {things}{'' if listed else '; -v names them'}.")
        return "\n".join(lines)


def _wrong(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings that are more than notes."""
    return [finding for finding in findings if finding.kind not in NOTES]


def _place(one: Finding | Checked) -> str:
    return one.path + (f" {one.key}" if one.key else "")


def _lines(findings: Sequence[Finding], show: int, named: bool = False) -> Iterator[str]:
    for one in findings[:show]:
        reason = f"{_place(one)}: {one.reason}" if named else one.reason
        rows = f"{one.row_count:,} row{'s' * (one.row_count != 1)}: {_said(one.rows, show)}"
        for number, text in enumerate((rows, reason) if one.row_count else (reason,)):
            yield labelled("" if number else f"  {one.kind}", text, indent=14)
    if len(findings) > show:
        yield f"  … and {len(findings) - show:,} more."


def _said(ranges: Sequence[range], most: int) -> str:
    """Return ranges in words, with the last row of each.

    Examples
    --------
    >>> _said([range(3, 4), range(17, 21), range(40, 50)], most=2)
    '3, 17-20, …'
    """
    words = [f"{one.start}-{one.stop - 1}" if len(one) > 1 else f"{one.start}" for one in ranges]
    return ", ".join([*words[:most], *["…"] * (len(words) > most)])
