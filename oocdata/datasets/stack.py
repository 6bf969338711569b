"""Combine several arrays of the same rows, e.g. variables as channels of one tensor."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from oocdata.datasets.dataset import Dataset
from oocdata.datasets.stacked import Part, Stacked, rows_text
from oocdata.datasets.view import View
from oocdata.engines.dtypes import can_hold, check_dtype
from oocdata.errors import ArgumentError
from oocdata.index import Selection, as_array, as_axes, is_iterable, same_selection


def stack(parts: Iterable[View | ArrayLike], axis: int = -1) -> View:
    """Stack arrays of the same rows along a new axis of their elements.

    Neighbours that are positions along one axis (``v[..., 0]``, ``v[..., 1]``) are read together.

    Parameters
    ----------
    parts : iterable of View or array_like
        Views of the same rows, with elements of one shape or broadcastable to it. A View with fewer
        sample axes, e.g. (trajectory,) next to (trajectory, time), is repeated along the missing
        ones; its axes are identified by name, or else are the outermost. An array or number is the
        same in each row; read one from a file by ``np.asarray(view)``.
    axis : int
        Position of the new axis among the element's axes; -1: last, i.e. channels last.

    Returns
    -------
    View
        With the sample axes of the parts.

    Raises
    ------
    oocdata.errors.ArgumentError
        If rows or shapes do not match, or no part's dtype can represent the values of all parts.
    oocdata.errors.MismatchedPartsError
        If the names of axes say that an axis goes together with another one.

    Examples
    --------
    >>> import oocdata as ooc
    >>> u, v = ooc.open(np.zeros((90, 128, 64))), ooc.open(np.ones((90, 128, 64)))
    >>> ooc.stack([u, v, np.zeros((128, 64))])
    <View: 90 rows of (128, 64, 3) float64>
    """
    return _combine("stack", parts, axis, new=True)


def concatenate(parts: Iterable[View | ArrayLike], axis: int = -1) -> View:
    """Concatenate arrays of the same rows along an existing axis of their elements.

    To concatenate rows, open a list or glob of files with `open`, or use `concat`.

    Parameters
    ----------
    parts : iterable of View or array_like
        As for `stack`; element shapes may differ along `axis`.
    axis : int
        Axis of the elements; the row axis is not counted.

    Returns
    -------
    View
        With the same rows.

    Raises
    ------
    oocdata.errors.ArgumentError
        If an argument is invalid, or the parts do not match.

    Examples
    --------
    >>> import oocdata as ooc
    >>> velocity, pressure = ooc.open(np.zeros((90, 32, 32, 2))), ooc.open(np.ones((90, 32, 32, 1)))
    >>> ooc.concatenate([velocity, pressure])
    <View: 90 rows of (32, 32, 3) float64>
    """
    return _combine("concatenate", parts, axis, new=False)


def _combine(name: str, arguments: Iterable[Any], axis: int, *, new: bool) -> View:
    if isinstance(arguments, Dataset) or not is_iterable(arguments):
        raise ArgumentError(
            f"`{name}` must get Views in a list; got {arguments!r}. Write ooc.{name}([one, other])."
        )
    parts = _with_common_dtype(name, list(arguments))
    views, rows = _without_selection([part for part in parts if isinstance(part, View)])
    ndim = max(len(part.element if isinstance(part, View) else part.shape) for part in parts) + new
    number = None if isinstance(axis, bool) else as_axes([axis], ndim)
    if number is None:
        raise ArgumentError(
            f"`axis` must be one of the {ndim} axes of an element, rows not counted; got {axis!r}."
        )
    unselected = iter(views)
    parts = [next(unselected) if isinstance(part, View) else part for part in parts]
    stacked = Stacked(tuple(parts), number[0], new)
    return replace(View.of(stacked, range(len(stacked.rows.axes))), rows=rows)


def _with_common_dtype(name: str, arguments: list[Any]) -> list[Part]:
    """Return the parts converted to the dtype of a part that can represent the values of all."""
    for part in arguments:
        if isinstance(part, Dataset) and (part.is_multi_array or not isinstance(part, View)):
            raise ArgumentError(
                f"`{name}` must get Views; got {part!r}. Make windows, patches and maps of the "
                f"result: ooc.{name}([…]).windows(…)."
            )
    if not any(isinstance(part, View) for part in arguments):
        raise ArgumentError(
            f"`{name}` must get at least one View, which has rows; got {arguments!r}."
        )
    is_scalar = [type(part) in (int, float) for part in arguments]  # these adopt the others' dtype
    parts = [part if isinstance(part, View) else as_array("values", part) for part in arguments]
    for part in parts:
        check_dtype(part.dtype)
    dtypes = [part.dtype for part, scalar in zip(parts, is_scalar, strict=True) if not scalar]
    scalars = [part for part, scalar in zip(arguments, is_scalar, strict=True) if scalar]
    common = _common_dtype(dtypes, scalars)
    if common is None:
        raise ArgumentError(
            f"`{name}` must get parts of one dtype, or one of theirs must hold the numbers of all; "
            f"got {', '.join(map(str, (*dtypes, *scalars)))}. Convert some with .astype."
        )
    units = dict.fromkeys(part.unit or "none" for part in arguments if isinstance(part, View))
    if len(units) > 1 and common == np.int64:  # dates as stored
        raise ArgumentError(
            f"`{name}` must get dates of one unit; got {', '.join(units)}. Keep them side by side, "
            "ooc.zip(…), or save them in one unit."
        )
    return [part if part.dtype == common else part.astype(common) for part in parts]


def _common_dtype(dtypes: list[np.dtype[Any]], numbers: list[int | float]) -> np.dtype[Any] | None:
    """Return the one of some dtypes that can represent the values of all, and numbers; or None."""
    try:
        common = np.result_type(*dtypes, *numbers)
    except TypeError:  # such as text and numbers
        return None
    represents_all = all(_can_represent(common, dtype) for dtype in dtypes)
    represents_all &= all(can_hold(common, number) for number in numbers)
    return common if common in dtypes and represents_all else None


def _can_represent(dtype: np.dtype[Any], other: np.dtype[Any]) -> bool:
    """Return whether a dtype can represent all values of another."""
    rounded = other.kind in "iu" and other.itemsize == 8 and dtype.kind in "fc"
    return np.can_cast(other, dtype, "safe") and not rounded


def _without_selection(views: list[View]) -> tuple[list[View], Selection]:
    """Return views without the selection of rows that they share, and the selection.

    Stored chunks then start at the same rows as in the whole array, so that an order can follow
    them.
    """
    whole = max(views, key=lambda view: len(view.axes))
    with_all_axes = [view for view in views if len(view.axes) == len(whole.axes)]
    rows: Selection = range(prod(whole.sample_shape))
    if all(
        same_selection(view.rows, whole.rows) and _lengths(view) == _lengths(whole)
        for view in with_all_axes
    ):
        rows = whole.rows
        ambiguous = [view for view in views if view not in with_all_axes and len(view) == len(rows)]
        if ambiguous and len(whole.sample_shape) != len(whole.axes):
            raise ArgumentError(
                "parts of fewer sample axes must not have as many rows as were chosen along "
                "several, because they could go together one by one, or be repeated; got "
                f"{rows_text(ambiguous[0])} beside {len(rows)} of "
                f"{' × '.join(map(str, _lengths(whole)))}. Select after stacking."
            )
        views = [_with_all_rows(view) if view in with_all_axes else view for view in views]
    for view in views:
        if len(view.sample_shape) != len(view.axes):
            raise ArgumentError(
                "parts of several sample axes must have every row, or the same ones; got "
                f"{rows_text(view)} of {' × '.join(map(str, _lengths(view)))}. Select after "
                "stacking."
            )
    return views, rows


def _lengths(view: View) -> tuple[int, ...]:
    """Return the lengths of the sample axes, regardless of selected rows."""
    return tuple(map(len, view.grid))


def _with_all_rows(view: View) -> View:
    return replace(view, rows=range(prod(_lengths(view))))
