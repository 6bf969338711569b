"""Integer arithmetic: rows, positions, cuts, splits. No storage, no arrays of data.

Regular selections stay Python ``range`` objects, which slice and compose in O(1) however long they
are; only a selection that is irregular (an int array, a mask) becomes an int64 array.
"""

from __future__ import annotations

import itertools
import operator
import os
from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from oocdata.errors import ArgumentError, PositionError

__all__ = [
    "Cut", "Selection", "as_array", "as_axes", "as_bounds", "as_count", "as_flag", "as_path",
    "as_positions", "as_run", "as_shard", "as_whole", "compose_ranges", "cut",
    "expand_key", "is_all", "is_same", "is_several", "repeated", "select", "slice_range",
    "take",
]  # fmt: skip

Cut: TypeAlias = int | range
"""What is kept of an axis: an int drops the axis, a range keeps those places."""

Selection: TypeAlias = range | NDArray[np.int64]
"""Chosen integers in order: a range where they are regular, else an int64 array."""

_END = 2**63


def as_count(name: str, value: object, *, at_least: int = 1, at_most: int | None = None) -> int:
    """Return an argument as a Python int, checked to be a whole number within bounds."""
    count = _whole(value)
    # Rows are int64: beyond, arithmetic with them would overflow.
    if count is None or not at_least <= count < _END:
        below = " and less than 2**63" if count is not None and count >= _END else ""
        raise ArgumentError(
            f"`{name}` must be a whole number of at least {at_least}{below}; got {value!r}."
        )
    if at_most is not None and count > at_most:
        raise ArgumentError(
            f"`{name}` must be a whole number from {at_least} to {at_most}; got {value!r}."
        )
    return count


def _whole(value: Any) -> int | None:
    """Return a whole number as a Python int; None of anything else, and of True and False."""
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


def is_several(given: object) -> bool:
    """Return whether one can go through an argument: not through an array of one number."""
    return isinstance(given, Iterable) and getattr(given, "ndim", 1) != 0


def as_array(name: str, given: Any) -> NDArray[Any]:
    """Return an argument as an array, or the error that it is none: its rows differ in length."""
    try:
        return np.asarray(given)
    except ValueError as error:
        raise ArgumentError(
            f"`{name}` must be an array, all of whose rows have one length; got "
            f"{type(given).__name__}: {error}"
        ) from error


def as_flag(name: str, given: Any) -> bool:
    """Return an argument that must be True or False."""
    if not isinstance(given, bool | np.bool_):
        raise ArgumentError(f"`{name}` must be True or False; got {given!r}.")
    return bool(given)


def as_path(name: str, given: Any) -> str:
    """Return an argument that must be the path of a file or folder here, ``~`` as the home."""
    if not isinstance(given, str | bytes | os.PathLike):
        raise ArgumentError(f"`{name}` must be a path; got {given!r}.")
    return os.path.expanduser(os.fsdecode(given))


def as_axes(given: Iterable[Any], ndim: int) -> list[int] | None:
    """Return axes counted from 0; None if one is none of so many, or is there twice."""
    try:
        numbers = [operator.index(axis) for axis in given]
    except TypeError:  # names, or one number
        return None
    axes = [axis + ndim if axis < 0 else axis for axis in numbers]
    return axes if set(axes) <= set(range(ndim)) and len(set(axes)) == len(axes) else None


def as_bounds(name: str, value: Any) -> tuple[int, ...]:
    """Return bounds that a caller gave: whole numbers from 1 that ascend."""
    try:
        found = tuple(as_count(name, bound) for bound in value)
    except (TypeError, ArgumentError):
        found = ()
    if not found or any(high <= low for low, high in itertools.pairwise(found)):
        raise ArgumentError(
            f"`{name}` must be lengths that ascend, e.g. (16, 32, 64); got {value!r}."
        )
    return found


def as_shard(num_shards: object, index: object) -> tuple[int, int]:
    """Return which part of how many is meant, checked."""
    shards, place = as_count("num_shards", num_shards), as_count("index", index, at_least=0)
    if place >= shards:
        raise ArgumentError(f"`index` must be less than `num_shards` ({shards}); got {place}.")
    return shards, place


def as_positions(positions: ArrayLike, length: int) -> NDArray[np.int64]:
    """Return positions, or those of a bool mask, as a new int64 array, each checked.

    Negative ones count from the end of what has this length, as in NumPy; nothing wraps around.
    """
    try:
        array = np.asarray(positions)
    except ValueError as error:
        raise ArgumentError(
            f"positions must be integers or a bool mask in one dimension; {error}."
        ) from error
    if array.size == 0 and array.ndim == 1 and not isinstance(positions, np.ndarray):
        array = array.astype(np.int64)  # NumPy makes an empty list float64
    # Python ints beyond 64 bits make an object array; they are integers that do not exist.
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
    low, high = int(array.min()), int(array.max())
    if low < -length or high >= length:
        wrong = high if high >= length else low
        raise PositionError(
            f"positions must lie within [{-length}, {length}) for a length of {length}; got "
            f"{wrong}."
        )
    chosen = array.astype(np.int64)  # a copy: what a description holds must not change
    return np.where(chosen < 0, chosen + length, chosen) if low < 0 else chosen


def as_run(positions: NDArray[np.int64]) -> Selection:
    """Return positions as a range, if each is the one after the one before.

    Others stay as they are: where a step divides no chunk, positions one by one tell exactly which
    are stored together.

    Examples
    --------
    >>> as_run(np.array([3, 4, 5])), as_run(np.array([3, 5, 7]))
    (range(3, 6), array([3, 5, 7]))
    """
    if len(positions) == 0:
        return range(0)
    run = range(int(positions[0]), int(positions[-1]) + 1)
    return run if len(run) == len(positions) and (np.diff(positions) == 1).all() else positions


def is_all(selection: Selection, length: int) -> bool:
    """Return whether a selection is everything in its order: ``range(length)``."""
    return isinstance(selection, range) and selection == range(length)


def is_same(one: Selection, other: Selection) -> bool:
    """Return whether the same integers are chosen, in the same order."""
    if isinstance(one, range) and isinstance(other, range):
        return one == other
    return np.array_equal(one, other)


def compose_ranges(old: range, new: range) -> range:
    """Return ``[old[place] for place in new]`` as a range; each place within ``[0, len(old))``.

    Examples
    --------
    >>> compose_ranges(range(100, 0, -10), range(4, -1, -2))
    range(60, 120, 20)
    """
    # By its length: a stop of -1 means "before 0" here, and "the last" in a slice.
    step = old.step * new.step
    start = old.start + new.start * old.step
    return range(start, start + len(new) * step, step)


def select(selection: Selection, places: Selection) -> Selection:
    """Select checked places of a selection: a range of a range stays a range, at no cost."""
    if not isinstance(places, range):
        chosen = take(selection, places)
        chosen.flags.writeable = False  # it becomes part of a description
        return chosen
    if isinstance(selection, range):
        return compose_ranges(selection, places)
    if not places:
        return selection[:0]
    stop = places.stop if places.stop >= 0 else None
    return selection[places.start : stop : places.step]


def repeated(rows: Selection) -> int | None:
    """Return the first row that is chosen more than once, if any is; ranges never do that."""
    if isinstance(rows, range) or (rows[1:] > rows[:-1]).all():
        return None
    ordered = np.sort(rows)
    again = ordered[1:][ordered[1:] == ordered[:-1]]
    return int(again[0]) if len(again) else None


def take(selection: Selection, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the integers at checked positions of any shape."""
    if isinstance(selection, range):
        return positions * selection.step + selection.start
    return selection[positions]


def expand_key(key: Any, ndim: int) -> tuple[Any, tuple[Any, ...]]:
    """Split an indexing key into the row key and one key for each element axis, as `cut` takes it.

    Examples
    --------
    >>> expand_key((slice(None), ..., 3), 4)
    (slice(None, None, None), (slice(None, None, None), slice(None, None, None), 3))
    """
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
    """Return ``places[part]``, or the error that the slice is wrong."""
    try:
        return places[part]
    except (TypeError, ValueError):
        raise ArgumentError(
            f"a slice must hold whole numbers and a step other than 0; got {part!r}."
        ) from None


def cut(places: range, part: Any) -> Cut:
    """Return what an int or a slice keeps of an axis of which only some places were left."""
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
