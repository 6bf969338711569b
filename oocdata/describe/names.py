"""Import paths: what a class or function is called, and what is found under such a name."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import reduce
from importlib import import_module
from typing import Any

__all__ = ["find", "import_path"]


def import_path(thing: Any) -> str:
    """Return ``module:name`` of a class or function; ValueError if others don't find it so."""
    module = getattr(thing, "__module__", None)
    name = getattr(thing, "__qualname__", getattr(thing, "__name__", None))
    if not isinstance(module, str) or not isinstance(name, str):
        raise ValueError(f"{type(thing).__name__} objects have no import path")
    if module == "__main__":
        raise ValueError(f"{name} is defined in the script itself, which nobody else can import")
    if "<lambda>" in name:
        raise ValueError("a lambda has no name")
    if "<locals>" in name:
        raise ValueError(f"{name} is defined inside a function, where only that function finds it")
    if _get(sys.modules.get(module), name) is not thing:
        raise ValueError(f"importing {module}:{name} gives something else")
    return f"{module}:{name}"


def find(path: str, allow: Sequence[str]) -> Any:
    """Return what has an import path, from allowed modules and packages alone, or raise ValueError.

    It must be called so where it is at home: what an allowed module itself has imported is not
    allowed by that.
    """
    module, _, name = path.partition(":")
    if not any(module == allowed or module.startswith(f"{allowed}.") for allowed in allow):
        raise ValueError(f"the module {module!r} is not allowed")
    try:
        found = _get(import_module(module), name)
    except ImportError as error:
        raise ValueError(f"the module {module!r} can't be imported: {error}") from error
    if found is None:
        raise ValueError(f"the module {module!r} has no {name!r}")
    if import_path(found) != path:
        raise ValueError(f"it is at home at {import_path(found)}")
    return found


def _get(module: Any, name: str) -> Any:
    return reduce(lambda held, part: getattr(held, part, None), name.split("."), module)
