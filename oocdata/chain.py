"""Methods that make something of a higher room: ``view.batches(32).to_tf()``.

Imports point down only, so a lower room does not know the higher one. It asks here by name, and
`oocdata/__init__`, above all of them, says who makes what.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["make", "provide"]

_makers: dict[str, Callable[..., Any]] = {}


def provide(name: str, maker: Callable[..., Any]) -> None:
    """Say who makes what is asked for by a name."""
    _makers[name] = maker


def make(name: str, *arguments: Any, **options: Any) -> Any:
    """Return what the maker of a name makes of the arguments."""
    return _makers[name](*arguments, **options)
