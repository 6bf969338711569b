"""A bar with amount, rate and time left, for whatever takes long."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["progress"]

_OTHER_COLUMNS = 56
"""Characters beside the label, which is cut short where a terminal is narrow."""


@contextmanager
def progress(
    label: str, total: int, unit: str = "bytes", shown: bool = True, console: Console | None = None
) -> Iterator[Callable[[int], None]]:
    """Show on standard error how far a block has come; nothing where that is no terminal.

    Gives what is to be called, from any thread, with what was done since the last call: bytes, or
    whatever the `unit`, a plural, names.

    Examples
    --------
    >>> with progress("reading", total=3, unit="rows") as advance:
    ...     for _ in range(3):
    ...         advance(1)
    """
    if not shown:
        yield lambda count: None
        return
    from rich import progress as bars
    from rich.console import Console

    console = console or Console(stderr=True, highlight=False)
    nbytes = unit == "bytes"
    columns: list[bars.ProgressColumn] = [
        bars.TextColumn("{task.description}", markup=False),
        bars.BarColumn(12),
        bars.TaskProgressColumn(),
        bars.DownloadColumn(binary_units=True) if nbytes else bars.MofNCompleteColumn(" of "),
        bars.TransferSpeedColumn() if nbytes else bars.TextColumn(unit),
        bars.TimeRemainingColumn(),
    ]
    room = max(8, console.width - _OTHER_COLUMNS)
    label = label if len(label) <= room else f"{label[: room - 1]}…"
    silent = not (console.is_terminal or console.is_jupyter)
    with bars.Progress(*columns, console=console, transient=True, disable=silent) as bar:
        task = bar.add_task(label, total=total)
        yield lambda count: bar.advance(task, count)
