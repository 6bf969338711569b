"""Let methods of lower modules call higher ones, as ``view.batches(32).to_tf()`` needs.

Imports point down only, so a lower module can't import a higher one. Instead it calls a function by
name, which `oocdata/__init__`, above all modules, has entered in a table.
"""

from __future__ import annotations

from functools import cache
from pkgutil import resolve_name
from typing import Any, TypeVar

functions: dict[str, str] = {}
"""Functions by name, each as ``"module:name"``."""

_Result = TypeVar("_Result")

_resolved = cache(resolve_name)
"""Also keeps AutoGraph out, which warns that it can't convert Python's import."""


def call(name: str, *arguments: Any, **options: Any) -> _Result:  # type: ignore[type-var]
    """Call the function of a name; its module is imported on the first call."""
    result: _Result = _resolved(functions[name])(*arguments, **options)
    return result
