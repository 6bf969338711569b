"""Check and compose integer arguments and selections: rows, positions, axes, shards.

Regular selections are Python ``range`` objects, which slice and compose in O(1) at any length; only
an irregular selection (an int array, a mask) becomes an int64 array.
"""

from __future__ import annotations

import operator
import os
import re
import sys
from bisect import bisect_left
from collections.abc import Iterable
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from oocdata.box import Ints
from oocdata.errors import ArgumentError, PositionError

Cut: TypeAlias = int | range
"""Selection along an axis: an int drops the axis, a range keeps these places."""

Selection: TypeAlias = range | Ints
"""Selected integers in order: a range if they are regular, else an int64 array."""

Value = TypeVar("Value", bound=np.generic)

_END = 2**63


def as_count(name: str, value: object, *, at_least: int = 1, at_most: int = _END - 1) -> int:
    """Return an argument as a Python int; raise if it is not a whole number within bounds.

    By default less than 2**63, because rows are int64.
    """
    count = _whole(value)
    if count is None or not at_least <= count <= at_most:
        bounds = f"of at least {at_least}"
        if at_most < _END - 1 or (count or 0) > at_most:
            bounds = f"from {at_least} to {at_most}"
        raise ArgumentError(f"`{name}` must be a whole number {bounds}; got {value!r}.")
    return count


def _whole(value: Any) -> int | None:
    """Return a whole number as a Python int; None for anything else, also for True and False."""
    try:
        return None if isinstance(value, bool | np.bool_) else operator.index(value)
    except TypeError:
        return None


def as_whole(name: str, value: object) -> int:
    """Return an argument as a Python int of any sign and size."""
    number = _whole(value)
    if number is None:
        raise ArgumentError(f"`{name}` must be a whole number; got {value!r}.")
    return number


def is_iterable(value: object) -> bool:
    """Return whether an argument is iterable; a zero-dimensional array is not."""
    return isinstance(value, Iterable) and getattr(value, "ndim", 1) != 0


def is_masked(value: object) -> bool:
    """Return whether an array has masked values, which `np.asarray` would unmask."""
    has_mask = type(value) is not np.ndarray and hasattr(value, "_mask")
    # NumPy imports it on first use, which takes a while.
    return has_mask and "numpy.ma" in sys.modules and bool(np.ma.is_masked(value))


def distinct(values: NDArray[Value]) -> NDArray[Value]:
    """Return the distinct values, in order.

    ``np.unique`` would import ``numpy.ma``: 12 ms of the first read, in which Ctrl-C may leave
    Python's import lock locked. Of many integers it takes ten times as long.
    """
    values = np.sort(values)
    first = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=first[1:])
    return values[first]


def as_array(name: str, value: Any) -> NDArray[Any]:
    """Return an argument as an array; raise if its rows differ in length or values are masked."""
    if is_masked(value):
        raise ArgumentError(
            f"`{name}` must not be masked; some of its values are. Replace them: array.filled(0)."
        )
    try:
        return np.asarray(value)
    except ValueError as error:
        raise ArgumentError(
            f"`{name}` must be an array, all of whose rows have one length; got "
            f"{type(value).__name__}: {error}"
        ) from error


def as_flag(name: str, value: Any) -> bool:
    """Return an argument as a bool; raise if it is not True or False."""
    if not isinstance(value, bool | np.bool_):
        raise ArgumentError(f"`{name}` must be True or False; got {value!r}.")
    return bool(value)


def looks_like_url(path: str) -> bool:
    """Return whether a path is a URL, perhaps malformed: messages must not quote a password.

    >>> [looks_like_url(one) for one in ("https:/user:key@host/x", "user:key@host")]
    [True, True]
    >>> [looks_like_url(one) for one in ("12:30/a@b", "sim.h5::/u")]
    [False, False]
    """
    return "://" in path or bool(re.match(r"[^/\\:]*:([/\\]|[^/\\]*@)", path))


def as_path(name: str, value: Any, *, allows_url: bool = False) -> str:
    """Return a local path as a str, with ``~`` expanded; raise if it is a URL, unless allowed."""
    if not isinstance(value, str | bytes | os.PathLike):
        raise ArgumentError(f"`{name}` must be a path; got {value!r}.")
    path = os.fsdecode(value)
    scheme, found, _ = path.partition("://")  # the rest may hold a password
    if found and allows_url:
        return path
    exists = not found and os.path.lexists(re.split(r"[/\\]", path)[0])
    if looks_like_url(path) and not exists:
        got = f"a URL, {scheme}://…" if found and scheme.isalnum() else "what looks like a URL"
        if allows_url or name == "target":
            got += ". Give URLs as text, with two slashes after the colon"
        raise ArgumentError(f"`{name}` must be a path on this machine; got {got}.")
    return os.path.expanduser(path)


def as_axes(axes: Iterable[Any], ndim: int) -> list[int] | None:
    """Return axes counted from 0; None if one is out of range or repeated, or not an int."""
    try:
        numbers = [operator.index(axis) for axis in axes]
    except TypeError:  # names, or one number
        return None
    found = [axis + ndim if axis < 0 else axis for axis in numbers]
    return found if set(found) <= set(range(ndim)) and len(set(found)) == len(found) else None


def as_bounds(name: str, value: Any) -> tuple[int, ...]:
    """Return ascending bounds of at least 1 as a tuple of int."""
    bounds = as_lengths(name, value, at_least=1)
    if not len(bounds) or (bounds[1:] <= bounds[:-1]).any():
        raise ArgumentError(
            f"`{name}` must be lengths that ascend, e.g. (16, 32, 64); got {value!r}."
        )
    return tuple(bounds.tolist())


def as_lengths(
    name: str, value: Any, total: int | None = None, *, of: str = "rows", at_least: int = 0
) -> Ints:
    """Return lengths as a new int64 array; raise if they are invalid, or do not sum to `total`."""
    array = as_array(name, value)
    array = array if array.size else np.zeros(0, np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu" or (array < at_least).any():
        raise ArgumentError(
            f"`{name}` must be lengths, whole numbers of at least {at_least} in one dimension; got "
            f"{value!r}."
        )
    if total is not None and ((array > total).any() or array.sum() != total):
        raise ArgumentError(
            f"`{name}` must be lengths that sum to the {total} {of}; got {len(array)} numbers with "
            f"a sum of {array.sum()}."
        )
    return array.astype(np.int64)


def as_shard(num_shards: object, index: object) -> tuple[int, int]:
    """Return the number of shards and the number of one of them, checked."""
    shards, shard = as_count("num_shards", num_shards), as_count("index", index, at_least=0)
    if shard >= shards:
        raise ArgumentError(f"`index` must be less than `num_shards` ({shards}); got {shard}.")
    return shards, shard


def as_positions(positions: ArrayLike, length: int) -> Ints:
    """Return positions, or the positions of a bool mask, as a new int64 array, checked.

    Negative positions count from the end of `length`, as in NumPy; nothing wraps around.
    """
    array = as_array("positions", positions)
    if array.size == 0 and array.ndim == 1 and not isinstance(positions, np.ndarray):
        array = array.astype(np.int64)  # NumPy makes an empty list float64
    # Python ints beyond 64 bits make an object array; they are integers out of range.
    beyond = array.dtype.kind == "O" and all(isinstance(number, int) for number in array.flat)
    if array.ndim != 1 or not (array.dtype.kind in "iub" or beyond):
        raise ArgumentError(
            "positions must be integers or a bool mask in one dimension; got "
            f"{array.dtype} of shape {array.shape}."
        )
    if array.dtype.kind == "b":
        if len(array) != length:
            raise ArgumentError(f"a bool mask must have {length} entries; got {len(array)}.")
        return np.flatnonzero(array).astype(np.int64, copy=False)
    if array.size == 0:
        return array.astype(np.int64)
    low, high = int(np.minimum.reduce(array)), int(np.maximum.reduce(array))
    if low < -length or high >= length:
        wrong = high if high >= length else low
        raise PositionError(
            f"positions must lie within [{-length}, {length}) for a length of {length}; got "
            f"{wrong}."
        )
    chosen = array.astype(np.int64)  # a copy: descriptions must not change
    if low < 0:
        np.add(chosen, length, out=chosen, where=chosen < 0)
    return chosen


def as_range(positions: Ints) -> Selection:
    """Return positions as a range, if they are consecutive; else unchanged.

    Ranges with other steps are not made: where a step does not divide the chunk length, explicit
    positions tell exactly which are stored together.
    """
    if len(positions) == 0:
        return range(0)
    run = range(int(positions[0]), int(positions[-1]) + 1)
    return run if len(run) == len(positions) and ascends(positions) else positions


def is_all(selection: Selection, length: int) -> bool:
    """Return whether a selection is ``range(length)``."""
    return isinstance(selection, range) and selection == range(length)


def same_selection(first: Selection, second: Selection) -> bool:
    """Return whether two selections are the same integers in the same order."""
    if isinstance(first, range) and isinstance(second, range):
        return first == second
    return np.array_equal(first, second)


def compose_ranges(old: range, new: range) -> range:
    """Return ``[old[place] for place in new]`` as a range; places must be in ``[0, len(old))``."""
    # Use the length: a stop of -1 means "before 0" here, but "the last" in a slice.
    step = old.step * new.step
    start = old.start + new.start * old.step
    return range(start, start + len(new) * step, step)


def as_numbers(selection: Selection) -> Ints:
    """Return a selection as an array; `np.asarray` takes 50 times as long for a long range."""
    if isinstance(selection, range):
        return np.arange(selection.start, selection.stop, selection.step)
    return selection


def as_index(selection: Selection) -> slice | Ints:
    """Return a selection as an index of an array; of a range a slice, which copies nothing."""
    if not isinstance(selection, range):
        return selection
    stop = selection.stop if selection.stop >= 0 else None
    return slice(selection.start, stop, selection.step) if selection else slice(0)


def ascends(selection: Selection) -> bool:
    """Return whether each number is larger than the one before it."""
    if isinstance(selection, range):
        return selection.step > 0 or len(selection) < 2
    return bool((selection[1:] > selection[:-1]).all())


def select(selection: Selection, places: Selection) -> Selection:
    """Select checked places of a selection; a range of a range is a range."""
    if not isinstance(places, range):
        whole = isinstance(selection, range) and selection[:1] == range(1) and selection.step == 1
        chosen = places if whole else take(selection, places)
        chosen.flags.writeable = False  # it is part of a description
        return chosen
    if isinstance(selection, range):
        return compose_ranges(selection, places)
    return selection[as_index(places)]


def shifted(selection: Selection, distance: int) -> Selection:
    """Return the numbers of a selection plus a distance."""
    if isinstance(selection, range):
        return range(selection.start + distance, selection.stop + distance, selection.step)
    return selection + distance


def within(ascending: Selection, start: int, stop: int) -> Selection:
    """Return the numbers in ``[start, stop)`` of an ascending selection, relative to `start`."""
    if isinstance(ascending, range) and len(ascending) < 2:  # the step may be negative
        ascending = range(ascending.start, ascending.start + len(ascending))
    inside = ascending[bisect_left(ascending, start) : bisect_left(ascending, stop)]
    return shifted(inside, -start)


def repeats(rows: Selection) -> bool:
    """Return whether a row is selected more than once."""
    if isinstance(rows, range) or ascends(rows):
        return False
    ordered = np.sort(rows)
    return bool((ordered[1:] == ordered[:-1]).any())


def take(selection: Selection, positions: Ints) -> Ints:
    """Return the integers of a selection at checked positions of any shape."""
    if isinstance(selection, range):
        numbers = positions * selection.step
        numbers += selection.start
        return numbers
    return selection[positions]


def expand_key(key: Any, ndim: int) -> tuple[Any, tuple[Any, ...]]:
    """Split an indexing key into the row key and one key per element axis, for `cut`."""
    parts: tuple[Any, ...] = key if isinstance(key, tuple) else (key,)
    dots = [place for place, part in enumerate(parts) if part is Ellipsis]
    if len(dots) > 1:
        raise ArgumentError(f"an index must have at most one ellipsis; got {key!r}.")
    missing = ndim - (len(parts) - len(dots))
    if missing < 0:
        raise ArgumentError(f"an index must have at most {ndim} axes; got {key!r}.")
    at = dots[0] if dots else len(parts)
    full = (*parts[:at], *[slice(None)] * missing, *parts[at + 1 :])
    return full[0], full[1:]


def slice_range(places: range, part: slice) -> range:
    """Return ``places[part]``; raise `ArgumentError` if the slice is invalid."""
    try:
        return places[part]
    except (TypeError, ValueError):
        raise ArgumentError(
            f"a slice must hold whole numbers and a step other than 0; got {part!r}."
        ) from None


def cut(places: range, part: Any) -> Cut:
    """Return the places that an int or a slice selects from the places of an axis."""
    if isinstance(part, slice):
        return slice_range(places, part)
    length = len(places)
    at = _whole(part)
    if at is None:
        raise ArgumentError(
            f"element axes must be indexed by ints, slices and arrays of one axis; got {part!r}. "
            "Take the whole axis and choose in `.map`."
        )
    if not -length <= at < length:
        raise PositionError(
            f"an element axis of length {length} must be indexed within [{-length}, {length}); "
            f"got {part}."
        )
    return places[at]
