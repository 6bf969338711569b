"""Offsets: which rows an array of a window is made of, counted from its anchor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from oocdata.datasets.dataset import Dataset
from oocdata.errors import ArgumentError
from oocdata.index import as_count, as_whole

__all__ = ["REACH", "Offsets", "as_offsets", "as_rows", "each_array", "is_listed"]

Offsets: TypeAlias = range | tuple[int, ...]
"""Rows counted from the anchor, ascending: a range where they are regular."""

REACH = 2**62
"""Offsets lie within it on either side: rows are int64, and arithmetic with both must not wrap."""


def as_offsets(name: str, given: Any) -> Offsets:
    """Return offsets that were given one by one, or as a range.

    Examples
    --------
    >>> as_offsets("inputs", [-4, -2, 0]), as_offsets("inputs", (-4, -1, 0))
    (range(-4, 1, 2), (-4, -1, 0))
    """
    numbers = given if isinstance(given, range) else tuple(as_whole(name, one) for one in given)
    steps = {numbers.step} if isinstance(numbers, range) else set(np.diff(numbers).tolist())
    if not len(numbers) or min(steps, default=1) < 1:
        raise ArgumentError(
            f"`{name}` must be offsets that ascend, e.g. (-4, -1, 0); got {given!r}."
        )
    if max(-numbers[0], numbers[-1]) >= REACH:
        raise ArgumentError(f"`{name}` must be offsets between -2**62 and 2**62; got {given!r}.")
    if len(steps) > 1:
        return tuple(numbers)
    return range(numbers[0], numbers[-1] + 1, max(steps, default=1))


def is_listed(given: Any) -> bool:
    """Return whether offsets are given one by one, and not as a number of rows."""
    return isinstance(given, Sequence) or getattr(given, "ndim", 0) > 0


def as_rows(name: str, given: Any, stride: int = 1) -> Offsets:
    """Return offsets given one by one, or those of a number of rows from the anchor on."""
    if is_listed(given):
        return as_offsets(name, given)
    return range(0, as_count(name, given) * stride, stride)


def each_array(tree: Any, make: Callable[[Any, Any], Any]) -> Any:
    """Return a tree of ``view`` and ``(view, offsets)`` with what is made of each.

    Examples
    --------
    >>> import oocdata as ooc
    >>> view = ooc.open(np.arange(9))
    >>> each_array({"x": (view, 4), "y": view}, lambda view, offsets: offsets)
    {'x': 4, 'y': None}
    """
    if isinstance(tree, Dataset):
        return make(tree, None)
    if isinstance(tree, dict) and tree:
        return {name: each_array(part, make) for name, part in tree.items()}
    if isinstance(tree, tuple) and tree:
        if len(tree) == 2 and isinstance(tree[0], Dataset):
            several = isinstance(tree[1], dict | Dataset) or (
                isinstance(tree[1], tuple)
                and any(isinstance(one, tuple | Dataset) for one in tree[1])
            )
            if not several:
                return make(*tree)
        return tuple(each_array(part, make) for part in tree)
    raise ArgumentError(
        "`windows` must get Views, alone or with offsets, e.g. (view, 4) or (view, (-1, 0)), in "
        f"tuples and dicts; got {tree!r}."
    )
