"""A bar with rate, amount and time left, for whatever takes long."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from oocdata.explain import size

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import ProgressColumn

__all__ = ["progress"]


@contextmanager
def progress(
    label: str, total: int, unit: str = "bytes", shown: bool = True, console: Console | None = None
) -> Iterator[Callable[[int], None]]:
    """Show on standard error how far a block has come; nothing where that is no terminal.

    Parameters
    ----------
    label : str
        What is done.
    total : int
        What there is to do, in `unit`.
    unit : str
        "bytes", or the plural of what is counted: "elements", "chunks".
    shown : bool
        Whether to show anything.
    console : rich.console.Console, optional
        Where to show it instead.

    Yields
    ------
    callable
        To be called with what was done since the last call; from any thread.

    Examples
    --------
    >>> with progress("reading", total=3, unit="rows") as advance:
    ...     for _ in range(3):
    ...         advance(1)
    """
    if not shown:
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn
    from rich.progress import TimeRemainingColumn as TimeLeft

    console = console or Console(stderr=True, highlight=False)
    columns: list[ProgressColumn] = [
        _label_column(),
        BarColumn(12),
        TaskProgressColumn(),
        _amount_column(unit),
        TimeLeft(),
    ]
    with Progress(
        *columns,
        console=console,
        transient=True,
        disable=not (console.is_terminal or console.is_jupyter),
    ) as bar:
        task = bar.add_task(label, total=total)
        yield lambda count: bar.advance(task, count)


def _label_column() -> ProgressColumn:
    from rich.progress import ProgressColumn, Task
    from rich.text import Text

    class Label(ProgressColumn):
        def render(self, task: Task) -> Text:
            # The first to be cut short where a terminal is narrow.
            return Text(task.description, no_wrap=True, overflow="ellipsis")

    return Label()


def _amount_column(unit: str) -> ProgressColumn:
    from rich.progress import ProgressColumn, Task
    from rich.table import Column
    from rich.text import Text

    class Amount(ProgressColumn):
        def render(self, task: Task) -> Text:
            done, total = task.completed, task.total or 0
            if unit == "bytes":
                text = f"{size(done)} of {size(total)}"
                rate = size(task.speed or 0)
            else:
                text = f"{done:,.0f} of {total:,.0f} {unit}"
                rate = f"{task.speed or 0:,.0f}"
            return Text(f"{text}, {rate}/s" if task.speed else text, no_wrap=True)

    return Amount(Column(no_wrap=True))
