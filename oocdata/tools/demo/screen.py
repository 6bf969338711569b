"""What the demonstration says while it runs."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING

from oocdata.tools.progress import progress

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Screen"]


class Screen:
    """What is said while it runs: lines on standard output, progress bars on a terminal.

    Parameters
    ----------
    check : callable
        Called again and again; raises when the work should end.
    aside : bool
        Say everything on standard error: standard output is for something else.
    """

    def __init__(self, check: Callable[[], None] = lambda: None, aside: bool = False) -> None:
        from rich.console import Console

        self.console: Console = Console(highlight=False, stderr=aside)
        self._errors = Console(stderr=True, highlight=False)
        self._check = check

    def say(self, text: str = "") -> None:
        """Print a paragraph, wrapped at 80 columns or fewer."""
        width = min(self.console.width, 80)
        wrapped = textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)
        self.console.print(wrapped, markup=False, soft_wrap=True)

    @contextmanager
    def progress(
        self, label: str, total: int, unit: str = "steps"
    ) -> Iterator[Callable[[int], None]]:
        """Show a bar while the block runs, and the time it took when it is done."""
        begun = perf_counter()
        with progress(f"  {label}", total, unit, shown=total > 1, console=self._errors) as advance:

            def checked(count: int) -> None:
                self._check()
                advance(count)

            yield checked
        self._check()
        self.say(f"  {label:<58}{perf_counter() - begun:>7.1f} s")
