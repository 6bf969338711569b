"""The figures as Markdown tables and as JSON."""

from __future__ import annotations

import dataclasses
from typing import Any

from benchmarks.case import Case
from benchmarks.results import Figure, Results, ratio
from benchmarks.section import Section

__all__ = ["as_json", "head", "section_table"]

_EVICTED = 0.99
"""Below this share of a file dropped from the page cache, a cold round was not cold."""

_HEADS = (
    "elements/s",
    "GB/s",
    "of the limit",
    "first batch",
    "memory: most, held itself, mapped",
    "mixing, bits",
    "rows once",
)

NOTES = """\
Medians of interleaved rounds, each way in a process of its own; ratios are medians of each round's
ratio. A way that has not delivered a quarter of its epoch when the seconds of a round are over is
stopped there, after at least eight batches; the others go on to its end. First batch: from opening
the file, libraries imported already. Memory: growth of the resident set over all rounds, worker
processes included; what the process holds itself told from pages of mapped files, which the kernel
can drop. Mixing: mean entropy of which 64th of the array the elements of a batch come from, beside
that of a full shuffle. Rows once: every row holds its number; an untimed pass counts those that
came, and fails a way that delivers one twice or wrong."""


def head(machine: dict[str, Any], rounds: int, seconds: float) -> str:
    """Return what holds for all tables."""
    versions = ", ".join(f"{name} {v}" for name, v in machine["packages"].items() if v)
    where = f"{machine['cpu']}, {machine['cores']} cores, {machine['kernel']}"
    what = f"Python {machine['python']}; {rounds} rounds of at most {seconds:g} s"
    return f"# Benchmarks\n\n{where}, {what}.\n\n{NOTES}\n\nVersions: {versions}."


def describe(case: Case) -> str:
    """Return a case in words."""
    stored = f"`{case.rows} × {case.element} {case.dtype}`, {case.format}"
    if case.chunk_rows:
        stored += f", chunks of {case.chunk_rows} rows"
    if case.shard_rows:
        stored += f" in shards of {case.shard_rows}"
    if case.codec != "none":
        stored += f", {case.codec}"
    wanted = f"{'pairs, ' if case.pairs else ''}batch {case.batch}, {case.order} shuffle"
    return f"{case.name}: {stored}; {wanted}, {case.cache} cache"


def section_table(section: Section, results: Results) -> str:
    """Return the table of a section."""
    several = len(section.cases) > 1
    names = ("case", "way") if several else ("way",)
    lines = [f"## {section.name}: {section.title}", ""]
    lines += [f"- {describe(case)}" for case in section.cases]
    lines += [
        "",
        _row([*names, *_HEADS]),
        _row([*("---" for _ in names), *("---:" for _ in _HEADS)]),
    ]
    for figure in results:
        named = (figure.case, figure.label) if several else (figure.label,)
        cells = _cells(results, figure)
        if section.first_batch_only and figure.rates:
            cells[:3] = ["", "", ""]  # one batch is no rate
        lines.append(_row([*named, *cells]))
    return "\n".join(lines)


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cells(results: Results, figure: Figure) -> list[str]:
    if not figure.rates:
        return [figure.status.replace("|", "\\|"), *("" for _ in _HEADS[1:])]
    case = results.cases[figure.case]
    of_limit = ratio(figure, results.limit(figure.case))
    found = figure.check
    memory = f"{_mib(figure.growth)} MiB"
    if found:
        memory += f", {_mib(found['anonymous'])}, {_mib(found['file'])}"
    if figure.bound:
        memory += f" (says {_mib(figure.bound)})"
    rate = f"{figure.rate:,.0f}"
    if figure.evicted < _EVICTED:
        rate += f" ({1 - figure.evicted:.0%} of the file stayed in the page cache)"
    return [
        rate,
        f"{figure.rate * case.element_bytes / 1e9:.3g}",
        "" if of_limit is None else f"{of_limit:.2f}",
        f"{figure.first * 1000:,.0f} ms" if figure.first_batch else "",
        memory,
        f"{found['entropy']:.2f} / {found['full_entropy']:.2f}"
        if found and found["entropy"] is not None
        else "",
        _rows_once(case, figure),
    ]


def _rows_once(case: Case, figure: Figure) -> str:
    found = figure.check
    if not found or not case.stamped:
        return ""
    if not figure.sound:
        return f"**{found['wrong']} wrong, {found['elements'] - found['distinct']} twice**"
    if found["elements"] == case.elements:
        return "all"
    return f"{found['elements']:,}{'' if found['complete'] else ' looked at'}"


def _mib(nbytes: float) -> str:
    return f"{nbytes / 2**20:,.0f}"


def as_json(
    machine: dict[str, Any],
    rounds: int,
    seconds: float,
    measured: list[tuple[Section, Results]],
) -> dict[str, Any]:
    """Return everything that was measured, each round of it."""
    return {
        "machine": machine,
        "rounds": rounds,
        "seconds": seconds,
        "sections": [
            {
                "name": section.name,
                "title": section.title,
                "cases": [dataclasses.asdict(case) for case in section.cases],
                "figures": [
                    dataclasses.asdict(figure) | {"rate": figure.rate} for figure in results
                ],
            }
            for section, results in measured
        ],
    }
