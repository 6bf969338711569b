"""What a check found, as text for a terminal, a file or a pipe."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from oocdata.explain import size
from oocdata.tools.check import NOTES, Checked, Finding, Health
from oocdata.tools.info.text import reason as why
from oocdata.tools.ranges import said

__all__ = ["health_text"]

_LABEL = 14


def health_text(health: Health, width: int = 80, show: int = 10) -> str:
    """Return what was found as lines of at most `width` characters where words allow it.

    Parameters
    ----------
    health : Health
    width : int
        Characters.
    show : int
        Runs of rows of a finding, and files, that are named at most.

    Examples
    --------
    >>> rows, reason = (range(3, 5), range(7, 8)), "9 numbers are NaN."
    >>> finding = Finding("nan", "a.npy", None, rows, 3, 9, reason)
    >>> checked = Checked("a.npy", None, (10, 3), "float32", 120)
    >>> print(health_text(Health("a.npy", (checked,), (), (finding,))))
    a.npy: 10 rows of (3,) float32, 120 bytes
      nan         3 rows: 3-4, 7
                  9 numbers are NaN.
    1 finding: nan.
    """
    lines: list[str] = []
    about = [one for one in health.findings if one.key is None and not _of(one, health.datasets)]
    lines += _findings(about, width, show, named=True)
    for checked in health.datasets:
        place = checked.path + (f" {checked.key}" if checked.key else "")
        found = [one for one in health.findings if _is_of(one, checked)]
        lines += textwrap.wrap(
            f"{place}: {_shape(checked)}{'' if _counted(found) else ', healthy'}", width,
            subsequent_indent="  ", break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
        lines += _findings(found, width, show)
    keys = {(one.path, one.key) for one in health.datasets}
    gone = [one for one in health.findings if one.key and (one.path, one.key) not in keys]
    for finding in gone:
        lines.append(f"{finding.path} {finding.key}:")
        lines += _findings([finding], width, show)
    lines += [f"{health.path} {one.key}: not checked, {why(one)}" for one in health.unchecked]
    lines += [f"compared with {manifest}" for manifest in health.compared]
    lines += [f"wrote {manifest}" for manifest in health.written]
    lines.append(_summary(health))
    return "\n".join(lines)


def _summary(health: Health) -> str:
    counted = _counted(health.findings)
    count = len(counted)
    if not count:
        things = len(health.datasets)
        return f"Nothing wrong with {things:,} dataset{'s' if things != 1 else ''}."
    kinds = ", ".join(dict.fromkeys(finding.kind for finding in counted))
    return f"{count:,} finding{'s' if count != 1 else ''}: {kinds}."


def _counted(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings that are more than notes."""
    return [finding for finding in findings if finding.kind not in NOTES]


def _is_of(finding: Finding, checked: Checked) -> bool:
    return (finding.path, finding.key) == (checked.path, checked.key)


def _of(finding: Finding, datasets: Sequence[Checked]) -> bool:
    return any(_is_of(finding, checked) for checked in datasets)


def _shape(checked: Checked) -> str:
    rows, element = checked.shape[0], checked.shape[1:]
    what = f"{rows:,} rows of {element} {checked.dtype}" if element else f"{rows:,} {checked.dtype}"
    return f"{what}, {size(checked.nbytes)}"


def _findings(
    findings: Sequence[Finding], width: int, show: int, named: bool = False
) -> Iterator[str]:
    for finding in findings[:show]:
        rows = f"{finding.row_count:,} row{'s' if finding.row_count != 1 else ''}: "
        where = rows + said(finding.rows, show) if finding.row_count else ""
        label = f"  {finding.kind:<{_LABEL - 3}} "
        for text in (where, f"{finding.path}: {finding.reason}" if named else finding.reason):
            if text:
                yield from textwrap.wrap(
                    text,
                    width,
                    initial_indent=label,
                    subsequent_indent=" " * _LABEL,
                    break_long_words=False,
                    break_on_hyphens=False,
                )
                label = " " * _LABEL
    if len(findings) > show:
        yield f"  … and {len(findings) - show:,} more."
