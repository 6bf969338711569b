"""Format reports for the terminal (paragraphs, labelled lines, tables, progress) and as JSON."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from rich.console import Console


def wrapped(text: str, first: str = "", rest: str = "", width: int = 80) -> str:
    """Wrap a text at `width`; prefix the first line with `first`, the others with `rest`.

    Longer words are not broken.
    """
    return textwrap.fill(
        text,
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def labelled(label: str, text: str, indent: int = 11) -> str:
    """Return a label and a text, wrapped in a column of its own to the width of the terminal."""
    width = max(get_terminal_size().columns, 40)
    return wrapped(text, f"{label:<{indent - 1}} ", " " * indent, width)


def fields_text(fields: Iterable[tuple[str, str | None]]) -> str:
    """Return lines of labels and texts; fields without a text are left out."""
    return "\n".join(labelled(label, text) for label, text in fields if text)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def rows_text(shape: Sequence[int], dtype: object) -> str:
    """Describe an array by its rows; `shape` is ``(rows, *element)``."""
    element = f"{tuple(shape[1:])} " if len(shape) > 1 else ""
    return f"{counted(shape[0], 'row')} of {element}{dtype}"


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    left: Collection[int] = (0,),
    width: int = 200,
) -> str:
    """Return a table without rules; columns numbered in `left` are aligned left, others right."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    rows = list(rows)
    longest = max((len(row[0]) for row in rows), default=0)
    for number, name in enumerate(header):
        whole = not number and longest <= width // 2  # names are copied
        justify: Literal["left", "right"] = "left" if number in left else "right"
        grid.add_column(name, justify=justify, overflow="fold", no_wrap=whole)
    for row in rows:
        grid.add_row(*map(Text, row))  # as Text, brackets in names are not markup
    console = Console(width=width, color_system=None, force_terminal=False)
    with console.capture() as captured:
        console.print(grid)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


class Report:
    """Base of the dataclasses that tools return; ``print`` them, or convert them to JSON."""

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        """Return all fields as dicts, lists, text and numbers, for ``json.dumps``."""
        return {field.name: plain(getattr(self, field.name)) for field in fields(self)}  # type: ignore[arg-type]


def plain(value: Any) -> Any:
    """Convert a value for ``json.dumps``; numbers that are not finite become None."""
    if isinstance(value, Report):
        return value.to_json()
    if is_dataclass(value):
        return Report.to_json(value)  # type: ignore[arg-type]
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, range):
        return [value.start, value.stop]
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@contextmanager
def progress(
    label: str, total: int, shown: bool = True, console: Console | None = None
) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on standard error, if that is a terminal.

    The context is a function to call, from any thread, with the amount done since its last call.
    """
    if not shown:
        yield lambda count: None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress

    console = console or Console(stderr=True, highlight=False)
    silent = not (console.is_terminal or console.is_jupyter)
    with Progress(console=console, transient=True, disable=silent) as bar:
        task = bar.add_task(escape(label[: max(8, console.width - 58)]), total=total)
        yield lambda count: bar.advance(task, count)
