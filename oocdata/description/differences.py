"""What differs between two descriptions, in words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from numpy.typing import NDArray

from oocdata.description.arrays import decode_array, decode_dtype, decode_integers

__all__ = ["differences"]

_NO_MATTER = ("reason", "described", "workers")
"""Fields that change no batch."""

_KINDS = ("array", "dict", "dtype", "float", "import", "int64", "range", "slice")

_SHOWN = 60
"""Characters of a value, at most."""


def differences(one: Any, other: Any, *, here: str = "here", there: str = "there") -> list[str]:
    """Return what differs between two descriptions, a line for each thing.

    What changes no batch, such as the reason why an order was chosen, is left out.

    Parameters
    ----------
    one, other : dict
        As `oocdata.description.describe` returns them.
    here, there : str
        What to call the one and the other.

    Returns
    -------
    list of str
        Empty where both loaders make the same batches.

    Examples
    --------
    >>> differences({"batch_size": 32, "seed": 1}, {"batch_size": 64, "seed": 1})
    ['batch_size: 32 here, 64 there']
    """
    found = _differing(_plain(one), _plain(other), "")
    return [f"{place or 'it'}: {mine} {here}, {theirs} {there}" for place, mine, theirs in found]


def _plain(value: Any) -> Any:
    """Return JSON as it would be read: lists for tuples."""
    return json.loads(json.dumps(value))


def _differing(one: Any, other: Any, place: str) -> Iterator[tuple[str, str, str]]:
    """Yield where two values differ, and both in words."""
    if type(one) is type(other) and one == other:
        return
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        if any(isinstance(part, dict | list) for part in one):
            yield from _by_name(dict(enumerate(one)), dict(enumerate(other)), place)
            return
    elif isinstance(one, dict) and isinstance(other, dict):
        kind, parts = _kind(one)
        other_kind, others = _kind(other)
        if kind == other_kind:
            if kind in ("int64", "array"):
                yield from _arrays(_array(kind, parts), _array(kind, others), place)
                return
            if kind == "dict":
                parts, others = dict(parts), dict(others)
            elif kind and isinstance(parts, list) and ":" in kind:
                parts, others = parts[1], others[1]  # what a process keeps, without its number
            if isinstance(parts, dict) and isinstance(others, dict):
                yield from _by_name(parts, others, place)
                return
            if kind and ":" in kind:
                yield from _differing(parts, others, place)
                return
    yield place, _said(one), _said(other)


def _by_name(
    one: dict[Any, Any], other: dict[Any, Any], place: str
) -> Iterator[tuple[str, str, str]]:
    if list(one) != list(other) and set(one) == set(other):
        yield f"{place} (order)", _list(one), _list(other)
    for name in [*one, *(name for name in other if name not in one)]:
        # The loader is what it is all about, and need not be named.
        inner = place if name == "loader" else f"{place}.{name}" if place else str(name)
        if name in _NO_MATTER:
            continue
        if name in one and name in other:
            yield from _differing(one[name], other[name], inner)
        elif name in one:
            yield inner, _said(one[name]), "nothing"
        else:
            yield inner, "nothing", _said(other[name])


def _arrays(one: NDArray[Any], other: NDArray[Any], place: str) -> Iterator[tuple[str, str, str]]:
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        yield place, _shape(one), _shape(other)
        return
    unequal = one.ravel() != other.ravel()
    at = int(unequal.argmax())
    more = f" and {int(unequal.sum()) - 1} more" if unequal.sum() > 1 else ""
    yield f"{place}[{at}]{more}", str(one.ravel()[at]), str(other.ravel()[at])


def _kind(value: dict[str, Any]) -> tuple[str, Any]:
    """Return the kind of a described thing and its parts; no kind for plain fields."""
    if len(value) == 1:
        ((kind, parts),) = value.items()
        if ":" in kind or kind in _KINDS:
            return kind, parts
    return "", value


def _array(kind: str, parts: Any) -> NDArray[Any]:
    return decode_integers(parts) if kind == "int64" else decode_array(parts)


def _shape(array: NDArray[Any]) -> str:
    return f"{array.dtype} of shape {array.shape}"


def _said(value: Any) -> str:
    kind, parts = _kind(value) if isinstance(value, dict) else ("", value)
    if kind in ("range", "slice"):
        text = f"{kind}({', '.join(map(str, parts))})"
    elif kind == "dtype":
        text = decode_dtype(parts).name
    elif kind in ("int64", "array"):
        text = _shape(_array(kind, parts))
    elif ":" in kind:
        text = kind.rpartition(":")[2]
    elif kind:
        text = str(parts) if kind != "dict" else _list(dict(parts))
    elif isinstance(value, list):
        text = f"({', '.join(map(_said, value))}{',' if len(value) == 1 else ''})"
    else:
        text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _list(names: dict[Any, Any]) -> str:
    return ", ".join(map(str, names))
