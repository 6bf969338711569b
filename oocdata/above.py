"""The one place where an arrow points up.

``view.map(f).batches(32).to_tf()`` reads well because each thing has a method that makes the next,
which lives on a higher floor or beside it. Imports point down only; these few methods name what
they make and import it when they are called, which also keeps TensorFlow out of ``import oocdata``.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["above"]


def above(module: str, name: str) -> Any:
    """Return `name` of ``oocdata.<module>``, imported now.

    Examples
    --------
    >>> above("errors", "ArgumentError").__name__
    'ArgumentError'
    """
    return getattr(import_module(f"oocdata.{module}"), name)
