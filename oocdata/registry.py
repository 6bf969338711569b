"""Let methods of lower modules call higher ones, as ``view.batches(32).to_tf()`` needs.

Imports point down only, so a lower module can't import a higher one. Instead it calls a function by
name, which `oocdata/__init__`, above all modules, has registered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["call", "register"]

_functions: dict[str, Callable[..., Any]] = {}


def register(name: str, function: Callable[..., Any]) -> None:
    """Register the function to call for a name."""
    _functions[name] = function


def call(name: str, *arguments: Any, **options: Any) -> Any:
    """Call the function of a name."""
    return _functions[name](*arguments, **options)
