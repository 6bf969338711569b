"""Define `windows` of several arrays over the same rows, and `episodes` from flags or times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from oocdata import registry
from oocdata.box import Ints
from oocdata.datasets.dataset import Dataset, nonzero_positions
from oocdata.datasets.ids import as_ticks
from oocdata.datasets.offsets import as_rows, each_array
from oocdata.datasets.open import open as open_array
from oocdata.datasets.spec import ArraySpec
from oocdata.datasets.view import View
from oocdata.datasets.window_arrays import WindowArray
from oocdata.datasets.windows import Windows, fitting_windows
from oocdata.errors import ArgumentError
from oocdata.index import as_array, as_flag

__all__ = ["episodes", "windows"]

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

    There is one element for each anchor: a row from which the offsets of all arrays are inside the
    episode.

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
        compared to the actions between them.
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
        if not isinstance(view, View):
            raise ArgumentError(
                f"`windows` must get Views; got {view!r}. Make windows of Views first, then zip, "
                "cut or map them."
            )
        if not any(view is known for known in views):
            views.append(view)
        number = [view is known for known in views].index(True)
        offsets = range(1) if rows is None else as_rows("offsets", rows)
        has_time = rows is not None and (time_axis or len(offsets) > 1)
        runs = None if episodes is None else view.runs(episodes)
        return WindowArray(number, offsets, has_time, runs)

    if isinstance(episodes, Mapping):
        names = list(tree) if isinstance(tree, dict) else []
        if not names or set(names) != set(episodes):
            raise ArgumentError(
                f"`episodes` must have the names of the arrays, {names}; got {list(episodes)}."
            )
        described: Any = {
            name: each_array(part, partial(array, episodes=episodes[name]))
            for name, part in tree.items()
        }
    else:
        described = each_array(tree, partial(array, episodes=episodes))
    return fitting_windows(tuple(views), described, shift, pad, mask, "the offsets")


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
    ids : View or array_like of int, shape (rows,)
        Numbers of episodes. A new episode starts where the number changes.
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
        isinstance(entry, Dataset) or np.ndim(entry) for entry in done
    )
    flags = [] if done is None else list(done) if several else [done]
    views = [_numbers_per_row("done", array) for array in flags]
    ends = [(len(view), nonzero_positions("done", view)) for view in views]
    if ids is not None:
        ends.append(_rows_before_breaks(_numbers_per_row("ids", ids), 0, 0))
    if time is not None:
        ends.append(_rows_before_breaks(*_coordinate(time, step, tolerance)))
    elif step is not None or tolerance is not None:
        raise ArgumentError("`time` must be given with `step` and `tolerance`; got None.")
    if not ends:
        raise ArgumentError("`done`, `ids` or `time` must be given; got None for all.")
    rows = ends[0][0]
    if any(length != rows for length, _ in ends):
        lengths = ", ".join(str(length) for length, _ in ends)
        raise ArgumentError(f"`done`, `ids` and `time` must have one length; got {lengths} rows.")
    if rows == 0:
        return np.zeros(0, np.int64)
    last = np.unique(np.concatenate([last_rows for _, last_rows in ends] + [np.array([rows - 1])]))
    return np.diff(last, prepend=-1)


def _numbers_per_row(name: str, argument: Any) -> Dataset:
    """Return an array in memory or a dataset as a dataset of one number per row."""
    dataset = argument if isinstance(argument, Dataset) else open_array(as_array(name, argument))
    spec = dataset.spec
    if not isinstance(spec, ArraySpec) or {*spec.shape, 1} != {1} or spec.dtype.kind in "cSUO":
        raise ArgumentError(f"`{name}` must have one number for each row; got {dataset!r}.")
    return dataset


def _coordinate(time: Any, step: Any, tolerance: Any) -> tuple[Dataset, Any, Any]:
    """Return a coordinate of time as numbers, with its step and tolerance, checked."""
    unit = getattr(time, "unit", "") if isinstance(time, Dataset) else ""
    if not isinstance(time, Dataset):
        time = as_array("time", time)
        if time.dtype.kind in "mM":
            unit, time = str(time.dtype), time.astype(np.int64)
    if unit:
        step = as_ticks("step", step, np.dtype(unit))
        tolerance = 0 if tolerance is None else as_ticks("tolerance", tolerance, np.dtype(unit))
    view = _numbers_per_row("time", time)
    whole = view.spec.dtype.kind != "f" and not isinstance(step, float | np.floating)  # type: ignore[union-attr]
    for name, value in {"step": step, "tolerance": 0 if tolerance is None else tolerance}.items():
        if isinstance(value, np.timedelta64) or not isinstance(value, int | float | np.number):
            raise ArgumentError(
                f"`{name}` must be a number where `time` is numbers; got {value!r}."
            )
    if tolerance is None:
        tolerance = 0 if whole else abs(step) * _FLOAT_TOLERANCE
    if not (step != 0 and abs(step) < np.inf and tolerance >= 0):
        raise ArgumentError(
            "`step` must be a number other than 0, and `tolerance` not be negative; got "
            f"{step} and {tolerance}."
        )
    return view, step, tolerance


def _rows_before_breaks(view: Dataset, step: Any, tolerance: Any) -> tuple[int, Ints]:
    """Return the number of rows, and the rows after which a coordinate advances otherwise."""

    def breaks(values: NDArray[Any]) -> NDArray[np.intp]:
        steps = np.diff(values)  # next to NaT, the lowest int64, differences wrap around
        return np.flatnonzero(~((steps >= step - tolerance) & (steps <= step + tolerance)))

    def ends(block: Any) -> tuple[int, Ints, NDArray[Any]]:
        values = block.values.reshape(-1)
        values = values.astype(np.float64 if values.dtype.kind == "f" else np.int64)
        return block.rows.start, breaks(values) + block.rows.start, values[[0, -1]]

    row_numbers, last = [np.zeros(0, np.int64)], np.zeros(0)
    blocks: Iterable[Any] = registry.call("each_block", view, ends)
    for row, inner, outer in blocks:
        border = np.concatenate([last.astype(outer.dtype), outer[:1]])  # between two blocks
        row_numbers += [breaks(border) + (row - 1), inner]
        last = outer[1:]
    return len(view), np.concatenate(row_numbers)
