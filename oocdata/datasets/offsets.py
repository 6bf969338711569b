"""Convert the arguments of `windows` to offsets of rows from an anchor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from oocdata.datasets.dataset import Dataset
from oocdata.datasets.spec import leaves
from oocdata.errors import ArgumentError
from oocdata.index import as_count, as_whole

Offsets: TypeAlias = range | tuple[int, ...]
"""Ascending offsets of rows from the anchor: a range if they are regular."""

LARGEST_OFFSET = 2**62
"""Bound of offsets, so that int64 sums of rows and offsets do not overflow."""


def as_offsets(name: str, argument: Any) -> Offsets:
    """Return checked offsets from a sequence or range."""
    if isinstance(argument, range):
        numbers: Offsets = argument
    else:
        numbers = tuple(as_whole(name, offset) for offset in argument)
    steps = {numbers.step} if isinstance(numbers, range) else set(np.diff(numbers).tolist())
    is_ascending = len(numbers) and min(steps, default=1) > 0
    if not is_ascending or max(-numbers[0], numbers[-1]) >= LARGEST_OFFSET:
        raise ArgumentError(
            f"`{name}` must be offsets that ascend, e.g. (-4, -1, 0), between -2**62 and 2**62; "
            f"got {argument!r}."
        )
    if len(steps) > 1:
        return tuple(numbers)
    return range(numbers[0], numbers[-1] + 1, max(steps, default=1))


def is_listed(argument: Any) -> bool:
    """Return whether an argument lists offsets, instead of giving a number of rows."""
    return isinstance(argument, Sequence) or getattr(argument, "ndim", 0) > 0


def as_rows(name: str, argument: Any, stride: int = 1) -> Offsets:
    """Return listed offsets, or the offsets of a number of rows that start at the anchor."""
    if not is_listed(argument):
        argument = range(0, as_count(name, argument) * stride, stride)
    return as_offsets(name, argument)


def each_array(tree: Any, make: Callable[[Any, Any], Any]) -> Any:
    """Apply a function to each view and its offsets (or None) in a tree of tuples and dicts."""
    if isinstance(tree, Dataset):
        return make(tree, None)
    if isinstance(tree, dict) and tree:
        return {name: each_array(part, make) for name, part in tree.items()}
    if isinstance(tree, tuple) and tree:
        has_views = [any(isinstance(leaf, Dataset) for leaf in leaves(part)) for part in tree]
        if has_views == [True, False] and isinstance(tree[0], Dataset):
            return make(*tree)
        return tuple(each_array(part, make) for part in tree)
    raise ArgumentError(
        "`windows` must get Views, alone or with offsets, e.g. (view, 4) or (view, (-1, 0)), in "
        f"tuples and dicts; got {tree!r}."
    )
