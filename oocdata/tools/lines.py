"""Text that several tools print alike: labelled lines, and tables."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence

__all__ = ["labelled", "table"]


def labelled(label: str, text: str, width: int = 80, indent: int = 11) -> str:
    """Return a text behind its label, wrapped in a column of its own where words allow it.

    Examples
    --------
    >>> print(labelled("codec", "shuffle, gzip 4: a sample comes down to 84 %", width=40))
    codec      shuffle, gzip 4: a sample
               comes down to 84 %
    """
    return textwrap.fill(
        text,
        max(width, 40),
        initial_indent=f"{label:<{indent - 1}} ",
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table without lines: the first column begins, the others end, at one place.

    Examples
    --------
    >>> print(table(["", "mean"], [["u", "1.5"], ["all", "-0.25"]]))
          mean
    u      1.5
    all  -0.25
    """
    from rich.console import Console
    from rich.table import Column, Table

    columns = [Column(name, justify="right" if at else "left") for at, name in enumerate(header)]
    made = Table(*columns, box=None, pad_edge=False, padding=(0, 2, 0, 0), show_edge=False)
    for row in rows:
        made.add_row(*row)
    console = Console(file=io.StringIO(), width=200, color_system=None)
    console.print(made, markup=False)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in lines)
