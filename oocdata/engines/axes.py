"""Resolve the sample axes of an array, given by name or number."""

from __future__ import annotations

from collections.abc import Sequence

from oocdata.engines.source import Storage
from oocdata.errors import ArgumentError, location_text
from oocdata.index import as_axes

__all__ = ["axis_numbers"]


def axis_numbers(
    axis: int | str | Sequence[int | str], ndim: int, storage: Storage
) -> tuple[int, ...]:
    """Return the sample axes, given by number or name, as numbers, outermost first.

    Raises
    ------
    oocdata.errors.ArgumentError
        If there is none, the array has no such axis or no axes, or one is named twice.

    Examples
    --------
    >>> names = Storage(".nc", dimensions=("time", "lat", "lon"))
    >>> axis_numbers(("lat", -1), 3, names)
    (1, 2)
    """
    where = _where(storage)
    if ndim == 0:
        raise ArgumentError(f"an array must have a row axis; got a single number.{where}")
    named = [axis] if isinstance(axis, str) or not isinstance(axis, Sequence) else list(axis)
    axes = tuple(_number(name, ndim, storage) for name in named)
    if not axes:
        raise ArgumentError(f"`axis` must name at least one sample axis; got {axis!r}.{where}")
    if len(set(axes)) < len(axes):
        raise ArgumentError(f"`axis` must name each sample axis once; got {axis!r}.{where}")
    return axes


def _number(axis: int | str, ndim: int, storage: Storage) -> int:
    names = storage.dimensions
    if isinstance(axis, str):
        present = [name for name in names if name]
        if not present:
            raise ArgumentError(
                f"`axis` must be an axis of the {ndim}-dimensional array by its number, because it "
                f"has no dimension names; got {axis!r}. Its axes are 0 to {ndim - 1}."
                f"{_where(storage)}"
            )
        if present.count(axis) != 1:
            problem = f"got {axis!r}" + (", which several axes have" if axis in present else "")
            raise ArgumentError(
                f"`axis` must name one dimension of the array ({', '.join(map(repr, names))}) or "
                f"be its number; {problem}.{_where(storage)}"
            )
        return list(names).index(axis)
    numbers = None if isinstance(axis, bool) else as_axes([axis], ndim)
    if numbers is None:
        raise ArgumentError(
            f"`axis` must be an axis of the {ndim}-dimensional array; got {axis!r}."
            f"{_where(storage)}"
        )
    return numbers[0]


def _where(storage: Storage) -> str:
    where = location_text(storage.path, storage.key)
    return f" [{where}]" if where else ""
