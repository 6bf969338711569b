"""What `stats` found, as text of at most 80 columns."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from oocdata.tools.lines import labelled

if TYPE_CHECKING:
    from oocdata.tools.stats.result import Stats
    from oocdata.tools.stats.summary import Summary

__all__ = ["text"]

_MOST_CHANNELS = 16
_MOST_ROWS = 6


def text(found: Stats) -> str:
    """Return labelled lines, and a table of the channels.

    Parameters
    ----------
    found : Stats
    """
    element = found.shape[1:]
    of = f"{found.shape[0]:,} rows of {element}" if element else f"{found.shape[0]:,} numbers"
    fields = [
        ("read", found.read),
        ("array", f"{of} {found.dtype}"),
        ("packed", found.packed and f"{found.packed}: all here is of the numbers as stored"),
        ("channels", _channels(found)),
        ("values", _values(found.overall)),
        ("constant", _constant(found)),
        ("repeated", _repeated(found)),
    ]
    lines = [labelled(label, words) for label, words in fields if words]
    return "\n".join([*lines, "", *_table(found), "", "std: of the population, divided by n."])


def _channels(found: Stats) -> str:
    said = found.axis_reason
    if found.axis is None:
        words = f"none: {said}"
    else:
        words = f"{len(found.channels.count):,}, on axis {found.axis}: {said}"
    guessed = len(found.shape) > 1 and said != "as asked" and not found.is_complex
    return f"{words}. For others: --channels (axis= in Python)" if guessed else words


def _values(overall: Summary) -> str:
    if overall.finite == overall.count:
        return f"{overall.count:,}, all finite" if overall.count else "none"
    return (
        f"{overall.count:,}: {overall.nan:,} NaN, {overall.inf:,} infinite; all that follows is of "
        f"the other {overall.finite:,}"
    )


def _constant(found: Stats) -> str:
    if found.rows.constant is None:
        return f"not looked for: {_too_small(found)}"
    shown = [f"{row:,}" for row in found.rows.constant_shown]
    return _listed(found.rows.constant, "of one value only", shown)


def _too_small(found: Stats) -> str:
    return "a row is one number" if prod(found.shape[1:]) else "a row holds no number"


def _repeated(found: Stats) -> str:
    if found.rows.repeats is None:
        return "not looked for" + (f": {_too_small(found)}" if found.rows.constant is None else "")
    shown = [f"{row:,} (as {earlier:,})" for row, earlier in found.rows.repeats_shown]
    if found.rows.compared == "neighbours":
        return (
            _listed(found.rows.repeats, "bit for bit like the one before", shown)
            + "; too many rows to compare any two"
        )
    return _listed(found.rows.repeats, "bit for bit like an earlier one", shown)


def _listed(count: int, words: str, shown: list[str]) -> str:
    if not count:
        return f"no row is {words}"
    some = ", ".join(shown[:_MOST_ROWS]) + (", …" if count > _MOST_ROWS else "")
    return f"{count:,} {'row is' if count == 1 else 'rows are'} {words}: {some}"


def _table(found: Stats) -> list[str]:
    header = ["", "mean", "std", "min", "max"]
    damaged = found.overall.finite != found.overall.count
    if damaged:
        header.append("not finite")
    rows = [header]
    number = len(found.channels.count)
    if found.axis is not None:
        names = ("real", "imaginary") if found.is_complex else range(number)
        some = found.channels[:_MOST_CHANNELS]
        for place, name in zip(range(len(some.count)), names, strict=False):
            rows.append(_cells(str(name), some[place], damaged))
    rows.append(_cells("all", found.overall, damaged))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    if found.axis is not None and number > _MOST_CHANNELS:
        lines.insert(-1, f"… {number - _MOST_CHANNELS:,} more: --json, or .channels")
    return lines


def _cells(name: str, one: Summary, damaged: bool) -> list[str]:
    defined = bool(one.finite)
    numbers = [one.mean, one.std, one.min, one.max]
    cells = [name, *(_number(number) if defined else "-" for number in numbers)]
    return [*cells, f"{one.count - one.finite:,}"] if damaged else cells


def _number(value: Any) -> str:
    return str(value) if isinstance(value, np.integer) else f"{value:.6g}"
