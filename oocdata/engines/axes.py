"""Resolve the sample axes of an array, given by name or number."""

from __future__ import annotations

from collections.abc import Sequence

from oocdata.engines.source import Storage
from oocdata.errors import ArgumentError, location_text
from oocdata.index import as_axes


def axis_numbers(
    axis: int | str | Sequence[int | str] | None, ndim: int, storage: Storage
) -> tuple[int, ...]:
    """Return the sample axes, given by number or name, as numbers, outermost first.

    None, for arrays that are one row each, means the axis that is put before theirs. Raises
    `ArgumentError` if there is none, the array has no such axis or no axes, or one is named twice.

    >>> names = Storage(".nc", dimensions=("time", "lat", "lon"))
    >>> axis_numbers(("lat", -1), 3, names)
    (1, 2)
    """
    names, where = storage.dimensions, location_text(storage.path, storage.key)
    where = f" [{where}]" if where else ""
    if axis is None:
        return (0,)
    if ndim == 0:
        raise ArgumentError(
            "an array must have a row axis; got a single number or text. With axis=None it is one "
            f"row.{where}"
        )
    named = [axis] if isinstance(axis, str) or not isinstance(axis, Sequence) else axis
    axes: list[int] = []
    for one in named:
        if isinstance(one, str):
            found = [at for at, name in enumerate(names) if name and name == one]
        else:
            found = list(as_axes([] if isinstance(one, bool) else [one], ndim) or ())
        if len(found) != 1:
            known = f" ({', '.join(map(repr, names))})" if any(names) else ""
            raise ArgumentError(
                f"`axis` must be an axis of the {ndim}-dimensional array"
                f"{known or ', which has no dimension names'}; got {one!r}"
                f"{', which several axes have' if found else ''}. Its axes are 0 to {ndim - 1}."
                f"{where}"
            )
        axes += found
    if not axes or len(set(axes)) < len(axes):
        raise ArgumentError(
            "`axis` must name at least one sample axis, and each sample axis once; got "
            f"{axis!r}.{where}"
        )
    return tuple(axes)
