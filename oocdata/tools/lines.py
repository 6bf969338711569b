"""Lines of text that several tools print alike."""

from __future__ import annotations

import textwrap

__all__ = ["labelled"]


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
