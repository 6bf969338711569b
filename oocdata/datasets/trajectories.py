"""Trajectories: windows of several arrays over the same rows, and where episodes end."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from oocdata import chain
from oocdata.datasets.anchors import Asked
from oocdata.datasets.dataset import Dataset, rows_where
from oocdata.datasets.offsets import as_rows, each_array
from oocdata.datasets.open import open as open_array
from oocdata.datasets.spec import ArraySpec
from oocdata.datasets.view import View
from oocdata.datasets.windows import Windows, checked_episodes, fitting
from oocdata.errors import ArgumentError
from oocdata.index import as_array, as_flag

__all__ = ["episodes", "windows"]

_FLOAT_TOLERANCE = 1e-3
"""Of a step, where numbers are not whole: 0.1 added ten times is not 1."""


def windows(
    *arrays: Any,
    shift: int = 1,
    episodes: ArrayLike | str | Mapping[str, Any] | None = None,
    pad: bool = False,
    mask: bool = True,
    time_axis: bool = True,
) -> Windows:
    """Return windows of several arrays over the same rows as elements.

    There is an element for each row, the anchor, around which the rows of every array lie in the
    episode.

    Parameters
    ----------
    *arrays : View, (View, int) or (View, sequence of int)
        One makes elements of one array, several make tuples, a dict makes dicts; tuples and dicts
        may be nested. With a number n, the array is the rows 0 … n - 1 from the anchor; with a
        sequence, the rows at these offsets, ascending, negative ones before the anchor: shape
        ``(rows, *element)``. A View alone is the anchor's row, without a time axis.
    shift : int
        Rows from anchor to anchor.
    episodes : array_like of int, "files", or dict, optional
        As for `View.windows`; a dict has those of each array by its name. Each View has its own:
        there must be equally many, of the same length in all, or in some one row longer, such as
        the states beside the actions between them.
    pad : bool
        Make an element for each row, every `shift`-th, that all arrays have. Rows outside of the
        episode repeat its first or its last one.
    mask : bool
        With `pad`, add masks that are True where a row lies in the episode, bool, one number a
        row. A dict gets ``"name_mask"`` beside ``"name"``, for each array with an offset other
        than 0; a tuple ends with the mask of its last array (in the structure of that, if it is a
        tuple or dict): ``(x, y, mask)``, which Keras takes as sample weights.
    time_axis : bool
        False: an array of one row has no time axis.

    Returns
    -------
    Windows

    Raises
    ------
    oocdata.errors.EmptyError
        If no window fits.
    oocdata.errors.ArgumentError
        If an argument breaks its rule, or the episodes of the arrays don't go together.

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

    def asked(view: Any, given: Any, episodes: Any) -> Asked:
        if not isinstance(view, View):
            raise ArgumentError(
                f"`windows` must get Views; got {view!r}. Make windows of Views first, then zip, "
                "cut or map them."
            )
        if not any(view is known for known in views):
            views.append(view)
        number = [view is known for known in views].index(True)
        offsets = range(1) if given is None else as_rows("offsets", given)
        has_time = given is not None and (time_axis or len(offsets) > 1)
        return Asked(number, offsets, has_time, checked_episodes(view, episodes))

    if isinstance(episodes, Mapping):
        names = list(tree) if isinstance(tree, dict) else []
        if not names or set(names) != set(episodes):
            raise ArgumentError(
                f"`episodes` must have the names of the arrays, {names}; got {list(episodes)}."
            )
        made: Any = {
            name: each_array(part, partial(asked, episodes=episodes[name]))
            for name, part in tree.items()
        }
    else:
        made = each_array(tree, partial(asked, episodes=episodes))
    return fitting(tuple(views), made, shift, pad, mask, "the offsets")


def episodes(
    *,
    done: Any = None,
    time: Any = None,
    step: Any = None,
    tolerance: Any = None,
) -> NDArray[np.int64]:
    """Return the lengths of episodes, as `View.windows` takes them, from flags or a coordinate.

    Parameters
    ----------
    done : View or array_like of bool, shape (rows,), or list of them
        An episode ends with each row whose flag is true (a number other than 0), in any of several
        arrays: ``[terminals, timeouts]``. Rows after the last one are an episode of their own.
    time : View or array_like, shape (rows,)
        Numbers or dates. An episode begins where they do not advance by `step`, also
        at NaN and NaT. With `done`, either begins one.
    step : number or timedelta64
        From one row to the next.
    tolerance : number or timedelta64, optional
        Difference from `step` that is none. By default 0 for whole numbers and dates, else a
        thousandth of `step`.

    Returns
    -------
    ndarray of int64, shape (episodes,)
        Views are read once, in blocks, in the memory for batches.

    Raises
    ------
    oocdata.errors.ArgumentError
        If an argument breaks its rule, or the arrays differ in length.
    oocdata.errors.SourceError
        If a row can't be read.

    Examples
    --------
    >>> import numpy as np, oocdata as ooc
    >>> ooc.episodes(done=[0, 0, 1, 0, 1, 0])
    array([3, 2, 1])
    >>> days = np.array(["2020-01-01", "2020-01-02", "2020-01-05"], "M8[D]")
    >>> ooc.episodes(time=days, step=np.timedelta64(1, "D"))
    array([2, 1])
    """
    several = isinstance(done, list | tuple) and any(
        isinstance(one, Dataset) or np.ndim(one) for one in done
    )
    flags = [] if done is None else list(done) if several else [done]
    views = [_numbers("done", one) for one in flags]
    found = [(len(view), rows_where("done", view)) for view in views]
    if time is not None:
        found.append(_gaps(time, step, tolerance))
    elif step is not None or tolerance is not None:
        raise ArgumentError("`time` must be given with `step` and `tolerance`; got None.")
    if not found:
        raise ArgumentError("`done` or `time` must be given; got None for both.")
    rows = found[0][0]
    if any(length != rows for length, _ in found):
        lengths = ", ".join(str(length) for length, _ in found)
        raise ArgumentError(f"`done` and `time` must have one length; got {lengths} rows.")
    if rows == 0:
        return np.zeros(0, np.int64)
    last = np.unique(np.concatenate([ends for _, ends in found] + [np.array([rows - 1])]))
    return np.diff(last, prepend=-1)


def _numbers(name: str, given: Any) -> Dataset:
    """Return an array, in memory or not, as a dataset of one number a row."""
    dataset = given if isinstance(given, Dataset) else open_array(as_array(name, given))
    spec = dataset.spec
    if not isinstance(spec, ArraySpec) or {*spec.shape, 1} != {1} or spec.dtype.kind in "cSUO":
        raise ArgumentError(f"`{name}` must have one number for each row; got {dataset!r}.")
    return dataset


def _gaps(time: Any, step: Any, tolerance: Any) -> tuple[int, NDArray[np.int64]]:
    """Return how many rows there are, and those after which a coordinate does not advance."""
    unit = getattr(time, "unit", "") if isinstance(time, Dataset) else ""
    if not isinstance(time, Dataset):
        time = as_array("time", time)
        if time.dtype.kind in "mM":
            unit, time = str(time.dtype), time.astype(np.int64)
    if unit:
        step = _ticks("step", step, np.dtype(unit))
        tolerance = 0 if tolerance is None else _ticks("tolerance", tolerance, np.dtype(unit))
    view = _numbers("time", time)
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

    def breaks(values: NDArray[Any]) -> NDArray[np.intp]:
        steps = np.diff(values)  # beside NaT, the lowest number, they wrap around
        return np.flatnonzero(~((steps >= step - tolerance) & (steps <= step + tolerance)))

    def ends(block: Any) -> tuple[int, NDArray[np.int64], NDArray[Any]]:
        values = block.values.reshape(-1)
        values = values.astype(np.float64 if values.dtype.kind == "f" else np.int64)
        return block.rows.start, breaks(values) + block.rows.start, values[[0, -1]]

    found, last = [np.zeros(0, np.int64)], np.zeros(0)
    for row, inner, outer in chain.make("each_block", view, ends):
        border = np.concatenate([last.astype(outer.dtype), outer[:1]])  # of two blocks
        found += [breaks(border) + (row - 1), inner]
        last = outer[1:]
    return len(view), np.concatenate(found)


def _ticks(name: str, given: Any, time: np.dtype[Any]) -> int:
    """Return a difference of dates as a whole number of a coordinate's units."""
    unit, count = np.datetime_data(time)
    if isinstance(given, np.timedelta64 | timedelta):
        try:
            found = np.timedelta64(given)
            ticks = found.astype(f"m8[{count}{unit}]")
            if np.datetime_data(found.dtype)[0] != "generic" and ticks == found:
                return int(ticks.astype(np.int64))
        except TypeError:  # months have no length in days
            pass
    raise ArgumentError(
        f"`{name}` must be a timedelta64 of whole units of `time`, which is {time}; got {given!r}."
    )
