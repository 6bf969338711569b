"""Define the result of a check: datasets and findings, to print or to convert to JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from oocdata.advice import size
from oocdata.tools.report import Report, counted, labelled, rows_text, wrapped

KINDS = {
    "truncated": "bytes that must be there are beyond the end of a file",
    "missing": "a file, or a part of one, does not exist",
    "damaged": "bytes do not decode, or fail the checksum of their format",
    "unreadable": "the system, or the format's library, can't read it",
    "trailing": "a file is longer than it must be",
    "changed": "rows differ from their checksums in the manifest",
    "unwritten": "chunks that were never written, or have been lost",
    "nan": "numbers that are NaN",
    "inf": "numbers that are infinite",
    "unchecked": "not an array of numbers, or needs a library or permission that is missing",
}
"""Kinds of findings, the most severe first."""

NOTES = ("unchecked",)
"""Kinds of findings that are reported but are no fault."""


_MOST_LISTED = 10
"""Findings of a dataset, and runs of rows of a finding, in the text; more healthy datasets are only
counted."""

_MOST_RANGES = 10_000
"""Runs of rows kept in a finding; rows of further runs are only counted."""


@dataclass(slots=True)
class Finding:
    """A fault, and the rows that it affects."""

    kind: str  # one of `KINDS`
    reason: str  # what must hold, and what was found; the first of several faults
    rows: tuple[range, ...] = ()  # the first 10,000 runs; empty if no row can be named
    row_count: int = 0  # of all runs
    values: int | None = None  # count of numbers, for "nan" and "inf"
    path: str = ""  # of the file
    key: str | None = None  # of the dataset; None for the whole file, or its only dataset

    def add(self, ranges: Iterable[range]) -> None:
        """Append rows, and join adjacent runs."""
        runs = list(self.rows)
        for rows in filter(len, ranges):
            self.row_count += len(rows)
            if runs and runs[-1].stop == rows.start:
                runs[-1] = range(runs[-1].start, rows.stop)
            elif len(runs) < _MOST_RANGES:
                runs.append(rows)
        self.rows = tuple(runs)


@dataclass(frozen=True, slots=True)
class CheckedDataset:
    """A dataset that was checked."""

    path: str
    key: str | None
    shape: tuple[int, ...]  # (rows, *element)
    dtype: str
    nbytes: int  # of all rows, in memory

    def __str__(self) -> str:
        return f"{_title(self)}: {rows_text(self.shape, self.dtype)}, {size(self.nbytes)}"


@dataclass(frozen=True, slots=True)
class Health(Report):
    """The result of a check; ``print`` it.

    Examples
    --------
    >>> finding = Finding("nan", "9 numbers are NaN.", path="a.npy")
    >>> finding.add([range(3, 5), range(7, 8)])
    >>> checked = CheckedDataset("a.npy", None, (10, 3), "float32", 120)
    >>> print(Health("a.npy", (checked,), findings=(finding,)))
    a.npy: 10 rows of (3,) float32, 120 bytes
      nan         3 rows: 3-4, 7
                  9 numbers are NaN.
    1 finding: nan.
    """

    name: str  #: the target
    #: Path, key, shape, dtype and nbytes of each dataset.
    datasets: tuple[CheckedDataset, ...] = ()
    #: Kind, path, key, rows (ranges), row_count, values and reason of each fault.
    findings: tuple[Finding, ...] = ()
    compared: tuple[str, ...] = ()  #: manifests that the files were compared with
    written: tuple[str, ...] = ()  #: manifests that were written

    def healthy(self) -> bool:
        """Return whether all findings are notes."""
        return not _faults(self.findings)

    def to_json(self) -> dict[str, Any]:
        """Return a dict for ``json.dumps``; rows are ``[[first, one past the last], …]``."""
        return {**Report.to_json(self), "healthy": self.healthy()}

    def __str__(self) -> str:
        by_title: dict[str, list[Finding]] = {_title(dataset): [] for dataset in self.datasets}
        others = [finding for finding in self.findings if _title(finding) not in by_title]
        for finding in self.findings:
            by_title.setdefault(_title(finding), []).append(finding)
        healthy = {title for title in map(_title, self.datasets) if not _faults(by_title[title])}
        listed = len(healthy) <= _MOST_LISTED
        lines = list(_lines(_faults(others), with_title=True))
        for dataset in self.datasets:
            title = _title(dataset)
            if listed or title not in healthy:
                lines.append(wrapped(f"{dataset}{', healthy' * (title in healthy)}", rest="  "))
                lines += _lines(by_title[title])
        notes = [finding for finding in others if finding.kind in NOTES]
        lines += _lines(notes, with_title=True)
        lines += [f"compared with {manifest}" for manifest in self.compared]
        lines += [f"wrote {manifest}" for manifest in self.written]
        faults = _faults(self.findings)
        if faults:
            kinds = ", ".join(dict.fromkeys(finding.kind for finding in faults))
            lines.append(f"{counted(len(faults), 'finding')}: {kinds}.")
        if healthy or not faults:
            lines.append(f"Nothing wrong with {counted(len(healthy), 'dataset')}.")
        return "\n".join(lines)


def _faults(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings that are not notes."""
    return [finding for finding in findings if finding.kind not in NOTES]


def _title(entry: Finding | CheckedDataset) -> str:
    return entry.path + (f" {entry.key}" if entry.key else "")


def _lines(findings: Sequence[Finding], with_title: bool = False) -> Iterator[str]:
    for finding in findings[:_MOST_LISTED]:
        count = finding.row_count
        reason = f"{_title(finding)}: {finding.reason}" if with_title else finding.reason
        rows = f"{counted(count, 'row')}: {_ranges_text(finding.rows)}"
        for number, text in enumerate((rows, reason) if count else (reason,)):
            yield labelled("" if number else f"  {finding.kind}", text, indent=14)
    if len(findings) > _MOST_LISTED:
        yield f"  … and {len(findings) - _MOST_LISTED:,} more."


def _ranges_text(ranges: Sequence[range]) -> str:
    """Return ranges as text, with the first and last row of each."""
    words = [f"{run.start}-{run.stop - 1}" if len(run) > 1 else f"{run.start}" for run in ranges]
    return ", ".join([*words[:_MOST_LISTED], *["…"] * (len(words) > _MOST_LISTED)])
