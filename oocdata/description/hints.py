"""Whether a value is of an annotated type: descriptions come from elsewhere."""

from __future__ import annotations

import types
import typing
from collections.abc import Hashable
from typing import Any, get_args, get_origin

import numpy as np

__all__ = ["fits", "hints_of", "is_frozen"]


def hints_of(kind: Any) -> dict[str, Any]:
    """Return the annotations of a class or function.

    Raises
    ------
    ValueError
        If they name what is only there for a type checker.
    """
    try:
        return typing.get_type_hints(kind)
    except NameError as error:
        raise ValueError(f"its annotations can't be resolved: {error}") from error


def is_frozen(kind: type) -> bool:
    """Return whether a class is a frozen dataclass."""
    return bool(getattr(getattr(kind, "__dataclass_params__", None), "frozen", False))


def fits(value: Any, hint: Any) -> bool:
    """Return whether a value is of a type.

    Examples
    --------
    >>> fits((1, 2), tuple[int, ...]), fits((1, "2"), tuple[int, ...]), fits(None, int | None)
    (True, False, True)
    """
    hint = _meant(hint)
    if hint is Any or isinstance(hint, typing.TypeVar):
        return True
    if hint is None:
        return value is None
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is typing.Union or origin is types.UnionType:
        return any(fits(value, one) for one in arguments)
    if origin is typing.Literal:
        return any(type(value) is type(one) and value == one for one in arguments)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        if arguments[1:] == (...,):
            return all(fits(part, arguments[0]) for part in value)
        return len(value) == len(arguments) and all(map(fits, value, arguments))
    if origin is dict:
        return isinstance(value, dict) and all(
            fits(name, arguments[0]) and fits(part, arguments[1]) for name, part in value.items()
        )
    kind = origin or hint
    if getattr(kind, "_is_protocol", False) and kind is not Hashable:
        # Not isinstance, which asks for the values of properties.
        members = [name for name in vars(kind) if not name.startswith("_")]
        held = getattr(value, "__dataclass_fields__", {})
        return all(name in held or hasattr(type(value), name) for name in members)
    if kind is int or kind is float:
        return type(value) in (int, kind)
    if kind is np.ndarray and arguments:
        (scalar,) = get_args(arguments[1])
        return isinstance(value, np.ndarray) and fits(value.dtype.type(), scalar)
    return not isinstance(kind, type) or isinstance(value, kind)


def _meant(hint: Any) -> Any:
    """Return what an alias of a ``type`` statement (Python 3.12) stands for; else the hint.

    `numpy.typing.NDArray` is one from NumPy 2.5 on.
    """
    alias = getattr(typing, "TypeAliasType", ())
    if isinstance(hint, alias):
        return _meant(hint.__value__)
    if isinstance(get_origin(hint), alias):
        return _meant(get_origin(hint).__value__[get_args(hint)])
    return hint
