"""Define `windows` of several arrays over the same rows, and `episodes` from flags or times."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from oocdata import registry
from oocdata.box import Ints
from oocdata.datasets.dataset import Dataset
from oocdata.datasets.episodes import crosses_gaps, crosses_parts, episodes_of
from oocdata.datasets.ids import as_ids, as_ticks
from oocdata.datasets.open import open as open_array
from oocdata.datasets.spec import is_column, leaves
from oocdata.datasets.view import View
from oocdata.datasets.window_arrays import Offsets, WindowArray
from oocdata.datasets.windows import Windows
from oocdata.errors import ArgumentError, EmptyError, PartBorderWarning
from oocdata.index import as_array, as_count, as_flag, as_whole, distinct

_LARGEST_OFFSET = 2**62
"""Bound of offsets, so that int64 sums of rows and offsets do not overflow."""

_FLOAT_TOLERANCE = 1e-3
"""Relative tolerance of floating-point steps: 0.1 added ten times is not 1."""


def windows(
    *arrays: Any,
    shift: int = 1,
    episodes: ArrayLike | str | Mapping[str, Any] | None = None,
    pad: bool = False,
    mask: bool = True,
    time_axis: bool = True,
) -> Windows:
    """Return windows of several arrays over the same rows as elements.

    There is one element for each anchor: a position from which the offsets of all arrays are inside
    the episode. (If all are, e.g., positive, the first anchors lie before the first row.)

    Parameters
    ----------
    *arrays : View, (View, int) or (View, sequence of int)
        One argument gives elements of one array, several give tuples, and a dict gives dicts;
        tuples and dicts may be nested. ``(view, n)`` is the array of rows 0 … n - 1 from the
        anchor; ``(view, offsets)`` the rows at these ascending offsets, negative ones before the
        anchor. Both have shape ``(rows, *element)``. A View alone gives the anchor's row, without a
        time axis.
    shift : int
        Distance in rows between consecutive anchors.
    episodes : array_like of int, str, or dict, optional
        As for `View.windows`; a dict has the episodes of each array by its name. All arrays must
        have equally many episodes, of equal lengths; some may be one row longer, e.g. states
        compared to the actions between them. By default an array without episodes takes those of
        another one that has as many rows.
    pad : bool
        Make an element for each row (each `shift`-th row) that all arrays have. Rows outside the
        episode repeat its first or last row.
    mask : bool
        With `pad`, add bool masks that are True for rows inside the episode. A dict gets
        ``"name_mask"`` beside ``"name"``, for each array with an offset other than 0. A tuple ends
        with the mask of its last array (in the same structure, if that is a tuple or dict):
        ``(x, y, mask)``, which Keras uses as sample weights.
    time_axis : bool
        False: arrays of one row have no time axis.

    Returns
    -------
    Windows

    Raises
    ------
    oocdata.errors.EmptyError
        If no window fits.
    oocdata.errors.ArgumentError
        If an argument is invalid, or the episodes of the arrays do not match.

    Examples
    --------
    >>> import numpy as np, oocdata as ooc
    >>> image, action = ooc.open(np.arange(10)), ooc.open(np.arange(10) * 10)
    >>> both = ooc.windows({"image": (image, (-1, 0)), "action": (action, 3)}, pad=True)
    >>> both[8]["image"], both[8]["action"], both[8]["action_mask"]
    (array([7, 8]), array([80, 90, 90]), array([ True,  True, False]))

    States are one longer than the actions between them, in each of four episodes:

    >>> s, a = ooc.open(np.zeros((4, 11, 3)), axis=(0, 1)), ooc.open(np.zeros((4, 10)), axis=(0, 1))
    >>> steps = ooc.windows({"s": s, "a": a, "next": (s, (1,))}, time_axis=False)
    >>> len(steps), steps[0]["next"].shape
    (40, (3,))
    """
    as_flag("time_axis", time_axis)
    tree: Any = arrays[0] if len(arrays) == 1 else arrays
    tree = dict(tree) if isinstance(tree, Mapping) else tree
    views: list[Any] = []

    def array(view: Any, rows: Any, episodes: Any) -> WindowArray:
        if not isinstance(view, View) or view.is_multi_array:
            raise ArgumentError(
                f"`windows` must get Views; got {view!r}. Make windows of dense Views first, then "
                "zip, cut or map them."
            )
        number = next((at for at, known in enumerate(views) if known is view), len(views))
        views[number:] = views[number:] or [view]
        offsets = range(1) if rows is None else _as_rows("offsets", rows)
        has_time = rows is not None and (time_axis or len(offsets) > 1)
        own = None if episodes is None else episodes_of(view, episodes)
        return WindowArray(number, offsets, has_time, own)

    described = _each_array(tree, episodes, array)
    pad, mask = as_flag("pad", pad), as_flag("mask", mask)
    found = Windows(tuple(views), described, as_count("shift", shift), pad, mask, range(0))
    found.layout  # noqa: B018  # raises if two arrays have one name
    if not (number := found.count()):
        raise EmptyError(
            f"a window must fit into the data; the offsets span {found.span} rows, and the longest "
            f"episode has {found.longest}. Ask for fewer `inputs` and `targets`, a smaller "
            "`stride` or `horizon`; or repeat rows at the edges, `pad=True`."
        )
    if episodes is None and found.span > 1 and any(map(crosses_parts, views)):
        warnings.warn(
            "windows cross from one part into the next: files, or arrays, of a list are taken for "
            "one series. Pass episodes='none' if they are, or episodes='parts' if each is its own.",
            PartBorderWarning,
            stacklevel=_level_of_caller(),
        )
    elif episodes is None and found.span > 1 and any(map(crosses_gaps, views)):
        warnings.warn(
            "windows cross gaps: some rows that follow one another in the selection do not in the "
            "array. Make windows first, then split, filter or select them. Else pass "
            "episodes=ooc.episodes(time=view.rows, step=1), or 'none' if the rows are one series.",
            PartBorderWarning,
            stacklevel=_level_of_caller(),
        )
    return replace(found, chosen=range(number))


def _level_of_caller() -> int:
    """Return how many calls lie between the function that calls this one and the user's code."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals["__name__"].startswith("oocdata."):
        frame, level = frame.f_back, level + 1
    return level


def windows_of_view(
    view: View,
    inputs: int | Sequence[int],
    targets: int | Sequence[int],
    stride: int,
    horizon: int,
    **options: Any,
) -> Windows:
    """Return windows of the inputs and targets of one View; see `View.windows`."""
    stride = as_count("stride", stride)
    horizon = as_count("horizon", horizon, at_least=-_LARGEST_OFFSET)
    x, listed = _as_rows("inputs", inputs, stride), _is_listed(targets)
    if (listed and horizon != 1) or (
        _is_listed(inputs) and (listed or not targets) and stride != 1
    ):
        raise ArgumentError(
            "`stride` and `horizon` must be left out where offsets are given one by one; got "
            f"{stride} and {horizon}."
        )
    if listed:
        y = _as_offsets("targets", targets)
    else:
        first, number = x[-1] + horizon, as_count("targets", targets, at_least=0)
        y = range(first, first + number * stride, stride)
    return windows(*[(view, offsets) for offsets in (x, y) if offsets], **options)


def _as_offsets(name: str, argument: Any) -> Offsets:
    """Return checked offsets from a sequence or range."""
    if isinstance(argument, range):
        numbers: Offsets = argument
        steps = {argument.step}
    else:
        numbers = tuple(as_whole(name, offset) for offset in argument)
        steps = {after - before for before, after in pairwise(numbers)}
    is_ascending = len(numbers) and min(steps, default=1) > 0
    if not is_ascending or max(-numbers[0], numbers[-1]) >= _LARGEST_OFFSET:
        raise ArgumentError(
            f"`{name}` must be offsets that ascend, e.g. (-4, -1, 0), between -2**62 and 2**62; "
            f"got {argument!r}."
        )
    if len(steps) > 1:
        return tuple(numbers)
    return range(numbers[0], numbers[-1] + 1, max(steps, default=1))


def _is_listed(argument: Any) -> bool:
    """Return whether an argument lists offsets, instead of giving a number of rows."""
    return isinstance(argument, Sequence) or getattr(argument, "ndim", 0) > 0


def _as_rows(name: str, argument: Any, stride: int = 1) -> Offsets:
    """Return listed offsets, or the offsets of a number of rows that start at the anchor."""
    if not _is_listed(argument):
        argument = range(0, as_count(name, argument) * stride, stride)
    return _as_offsets(name, argument)


def _each_array(tree: Any, episodes: Any, make: Callable[[Any, Any, Any], Any]) -> Any:
    """Apply a function to each view, its offsets (or None) and its episodes in a tree."""
    names = list(tree) if isinstance(tree, dict) else []
    of = episodes if isinstance(episodes, Mapping) else dict.fromkeys(names, episodes)
    if isinstance(episodes, Mapping) and (not names or set(names) != set(episodes)):
        raise ArgumentError(
            f"`episodes` must have the names of the arrays, {names}; got {list(episodes)}."
        )
    if isinstance(tree, Dataset):
        return make(tree, None, episodes)
    if names:
        return {name: _each_array(tree[name], of[name], make) for name in names}
    if isinstance(tree, tuple) and tree:
        has_views = [any(isinstance(leaf, Dataset) for leaf in leaves(part)) for part in tree]
        if has_views == [True, False] and isinstance(tree[0], Dataset):
            return make(tree[0], tree[1], episodes)
        return tuple(_each_array(part, episodes, make) for part in tree)
    raise ArgumentError(
        "`windows` must get Views, alone or with offsets, e.g. (view, 4) or (view, (-1, 0)), in "
        f"tuples and dicts; got {tree!r}."
    )


def episodes(
    *,
    done: Any = None,
    ids: Any = None,
    time: Any = None,
    step: Any = None,
    tolerance: Any = None,
) -> Ints:
    """Return lengths of episodes, for `View.windows`, from flags, ids or a time coordinate.

    Views are read once, in blocks, in the memory for batches.

    Parameters
    ----------
    done : View or array_like of bool, shape (rows,), or list of them
        Flags (True or nonzero) of the last rows of episodes. With several arrays, e.g.
        ``[terminals, timeouts]``, a flag in any of them ends an episode. Rows after the last flag
        are another episode.
    ids : View or array_like of int or str, shape (rows,)
        Numbers or names of episodes. A new episode starts where they change.
    time : View or array_like, shape (rows,)
        Numbers or dates. A new episode starts where `time` does not advance by `step`, and at NaN
        and NaT. With several of `done`, `ids` and `time`, it starts where any of them says so.
    step : number or timedelta64
        Difference of `time` between consecutive rows.
    tolerance : number or timedelta64, optional
        Accepted deviation from `step`. By default 0 for integers and dates, else a thousandth of
        `step`.

    Returns
    -------
    ndarray of int64, shape (episodes,)

    Raises
    ------
    oocdata.errors.ArgumentError
        If an argument is invalid, or the arrays differ in length.
    oocdata.errors.SourceError
        If a row can't be read.

    Examples
    --------
    >>> import numpy as np, oocdata as ooc
    >>> ooc.episodes(done=[0, 0, 1, 0, 1, 0])
    array([3, 2, 1])
    >>> ooc.episodes(ids=[7, 7, 7, 2, 2, 9])
    array([3, 2, 1])
    >>> days = np.array(["2020-01-01", "2020-01-02", "2020-01-05"], "M8[D]")
    >>> ooc.episodes(time=days, step=np.timedelta64(1, "D"))
    array([2, 1])
    """
    several = isinstance(done, list | tuple) and any(
        isinstance(entry, Dataset) or np.ndim(entry) for entry in done[:1]
    )
    flags = [] if done is None else list(done) if several else [done]
    ends = [_last_rows(_column("done", array), _flagged) for array in flags]
    if ids is not None:
        column = ids if isinstance(ids, Dataset) else as_ids("ids", ids, "biufmMU")
        ends.append(_last_rows(_column("ids", column), np.not_equal))
    if time is not None:
        view = _column("time", time)
        ends.append(_last_rows(view, _jumps(view, step, tolerance)))
    elif step is not None or tolerance is not None:
        raise ArgumentError("`time` must be given with `step` and `tolerance`; got None.")
    if not ends:
        raise ArgumentError("`done`, `ids` or `time` must be given; got None for all.")
    lengths = [int(rows[-1]) + 1 for rows in ends]
    if len(set(lengths)) > 1:
        raise ArgumentError(
            "`done`, `ids` and `time` must have one length; got "
            f"{', '.join(map(str, lengths))} rows."
        )
    starts = distinct(np.concatenate([np.array([-1]), *ends]))
    return np.diff(starts).astype(np.int64, copy=False)


def _column(name: str, argument: Any) -> Dataset:
    """Return an array or a dataset as a dataset of one number per row; of `ids`, also a text."""
    dataset = argument if isinstance(argument, Dataset) else open_array(as_array(name, argument))
    spec: Any = dataset.spec
    if not is_column(spec) or spec.dtype.kind in ("c" if name == "ids" else "cSUO"):
        noun = "number or text" if name == "ids" else "number"
        raise ArgumentError(f"`{name}` must have one {noun} for each row; got {dataset!r}.")
    return dataset


def _last_rows(column: Dataset, ends: Callable[[NDArray[Any], NDArray[Any]], Any]) -> Ints:
    """Return the last row of each episode: where ``ends(rows, next rows)``, and the last row."""
    found, before = [], np.zeros(0, column.spec.dtype)  # type: ignore[union-attr]
    blocks: Iterable[Any] = registry.call("each_block", column, lambda block: block)
    for block in blocks:
        values = np.concatenate((before, block.values.reshape(-1)))
        found.append(np.flatnonzero(ends(values[:-1], values[1:])) + block.rows.start - len(before))
        before = values[-1:].copy()
    return np.concatenate([*found, np.array([len(column) - 1])])


def _flagged(flags: NDArray[Any], following: NDArray[Any]) -> Any:
    if np.isnan(flags).any() or np.isnan(following).any():
        raise ArgumentError("`done` must hold flags; got NaN.")
    return flags != 0


def _jumps(view: Dataset, step: Any, tolerance: Any) -> Callable[[NDArray[Any], NDArray[Any]], Any]:
    """Return a function that tells where a coordinate does not advance by `step`, checked."""
    if unit := getattr(view, "unit", ""):
        step = as_ticks("step", step, np.dtype(unit))
        tolerance = 0 if tolerance is None else as_ticks("tolerance", tolerance, np.dtype(unit))
    dtype = np.dtype(np.float64 if view.spec.dtype.kind == "f" else np.int64)  # type: ignore[union-attr]
    numbers = [step] if tolerance is None else [step, tolerance]
    if not all(
        isinstance(value, int | float | np.number) and not isinstance(value, np.timedelta64)
        for value in numbers
    ) or not (0 < abs(step) < np.inf and (tolerance or 0) >= 0):
        is_difference = any(isinstance(value, np.timedelta64 | timedelta) for value in numbers)
        hint = " Time numbers become dates by ooc.open(path, 'time', decode=True)." * is_difference
        raise ArgumentError(
            "`step` must be a number other than 0, and `tolerance` not be negative; got "
            f"{step!r} and {tolerance!r}.{hint}"
        )
    if tolerance is None:
        whole = dtype.kind == "i" and not isinstance(step, float | np.floating)
        tolerance = 0 if whole else abs(step) * _FLOAT_TOLERANCE

    def jumps(times: NDArray[Any], following: NDArray[Any]) -> Any:
        # Next to NaT, the lowest int64, differences wrap around.
        steps = following.astype(dtype) - times.astype(dtype)
        return ~((steps >= step - tolerance) & (steps <= step + tolerance))

    return jumps
