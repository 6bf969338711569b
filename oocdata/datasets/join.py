"""Joins: elements of several datasets that belong together by a coordinate or an id."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from datetime import timedelta
from math import floor
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from oocdata.datasets.dataset import Dataset
from oocdata.datasets.ids import as_ids
from oocdata.datasets.zip import Zip
from oocdata.datasets.zip import zip as zipped
from oocdata.errors import ArgumentError, EmptyError, MissingPartnerWarning
from oocdata.index import as_run

__all__ = ["How", "join", "matches"]

How: TypeAlias = Literal["exact", "nearest", "previous"]

_MANY = 5
"""Ids that a message shows."""

_FARTHEST = 2**64 - 1
"""Of two whole numbers."""


def join(
    *datasets: Dataset | Mapping[str, Dataset],
    on: Sequence[ArrayLike | Any] | Mapping[str, ArrayLike | Any],
    how: How = "exact",
    tolerance: Any = None,
    missing: Literal["drop", "error"] | None = None,
) -> Zip:
    """Put elements side by side that belong together by a coordinate or an id; reads no element.

    Parameters
    ----------
    *datasets : Dataset
        Two or more, or one dict of them. To each element of the first belongs one of each other.
    on : sequence or dict of array_like, shapes (len,)
        Of each dataset, an id for each element: numbers, dates (datetime64) or texts; arrays, or
        Views, which are read. Those of the first may come in any order and more than once, those of
        the others in any order and once.
    how : {"exact", "nearest", "previous"}
        The partner has the same id; or the nearest one (of two as near, the lower); or the largest
        that is not above. As `pandas.merge_asof`, but nothing need be sorted.
    tolerance : number or timedelta64, optional
        Partners must not be farther away than that.
    missing : {"drop", "error"}, optional
        What to do about elements of the first that have no partner: leave them out, or raise. By
        default they are left out, and a warning says how many.

    Returns
    -------
    Zip
        Tuples, or dicts, in the order of the first. An element of another dataset may be the
        partner of several: parts of a split never share one.

    Warns
    -----
    oocdata.errors.MissingPartnerWarning
        If elements were left out and `missing` is not given.

    Raises
    ------
    oocdata.errors.ArgumentError
        If ids don't fit to the datasets or to each other, or are there twice; or one has no partner
        and `missing` is ``"error"``.
    oocdata.errors.EmptyError
        If none has a partner.

    Examples
    --------
    >>> import oocdata as ooc
    >>> radar, satellite = ooc.open(np.arange(6)), ooc.open(np.arange(3) * 100)
    >>> minutes = np.array([0, 5, 10, 15, 20, 25]), np.array([1, 11, 21])
    >>> both = ooc.join(radar, satellite, on=minutes, how="nearest", tolerance=4)
    >>> [tuple(map(int, both[at])) for at in range(len(both))]
    [(0, 0), (1, 0), (2, 100), (3, 100), (4, 200), (5, 200)]
    """
    named: dict[str, Any] = {}
    if len(datasets) == 1 and isinstance(datasets[0], Mapping):
        named = dict(datasets[0])
    parts: list[Any] = list(named.values()) or list(datasets)
    if len(parts) < 2 or not all(isinstance(part, Dataset) for part in parts):
        raise ArgumentError(f"`join` must get two datasets or more; got {datasets!r}.")
    given = _each(on, named, len(parts))
    _check_units(given)
    ids = [_of(part, as_ids("on", one, "iufmMU")) for part, one in zip(parts, given, strict=True)]
    partners = [np.arange(len(ids[0]))]
    partners += [matches(ids[0], others, how, tolerance) for others in ids[1:]]
    found = np.logical_and.reduce([one >= 0 for one in partners])
    _tell_missing(ids[0][~found], len(found), missing, tolerance)
    chosen = [part._select(as_run(one[found])) for part, one in zip(parts, partners, strict=True)]
    return zipped(dict(zip(named, chosen, strict=True))) if named else zipped(*chosen)


def matches(
    ids: NDArray[Any], others: NDArray[Any], how: How = "exact", tolerance: Any = None
) -> NDArray[np.int64]:
    """Return the position in `others` of the partner of each id; -1 for one that has none."""
    if not isinstance(how, str) or how not in ("exact", "nearest", "previous"):
        raise ArgumentError(f"`how` must be 'exact', 'nearest' or 'previous'; got {how!r}.")
    ids, others = _alike(ids, others)
    if ids.dtype.kind == "U" and how != "exact":
        raise ArgumentError(
            f"`how` must be 'exact' for texts, which have no distance; got {how!r}."
        )
    order = np.argsort(others, kind="stable")
    ordered = others[order]
    twice = ordered[1:][ordered[1:] == ordered[:-1]]
    if len(twice):
        raise ArgumentError(
            f"`on` must hold each id of a partner once; these come back: {_shown(twice)}. Leave "
            "all but one of each out first."
        )
    if not len(ordered):
        return np.full(len(ids), -1)
    below = np.searchsorted(ordered, ids, side="right") - 1
    at, found = np.maximum(below, 0), below >= 0
    if how == "exact":
        found &= ordered[at] == ids
    if how == "nearest":
        above = np.minimum(below + 1, len(ordered) - 1)
        nearer = _distance(ids, ordered[above]) < _distance(ids, ordered[at])
        at, found = np.where(nearer, above, at), np.ones(len(ids), np.bool_)
    if tolerance is not None:
        if how == "exact":
            raise ArgumentError(
                f"`tolerance` must come with how='nearest' or 'previous'; got {tolerance!r}."
            )
        found &= _distance(ids, ordered[at]) <= _limit(tolerance, ids.dtype)
    return np.where(found, order[at], -1)


def _each(on: Any, named: Mapping[str, Any], number: int) -> list[Any]:
    """Return the ids of each dataset, in their order."""
    if named and isinstance(on, Mapping) and set(on) == set(named):
        return [on[name] for name in named]
    if isinstance(on, tuple | list) and len(on) == number and not named:
        return list(on)
    wanted = f"a dict of {list(named)}" if named else f"{number} arrays of ids, one a dataset"
    got = f"a dict of {list(on)}" if isinstance(on, Mapping) else f"{type(on).__name__}"
    raise ArgumentError(f"`on` must be {wanted}; got {got}.")


def _check_units(given: list[Any]) -> None:
    """Raise if numbers of several files count in units that differ, such as days since a date."""
    views = [one for one in given if isinstance(one, Dataset) and not getattr(one, "unit", "")]
    storages = [getattr(one, "storage", None) for one in views]
    found = [one.annotations().attributes.get("units") for one in storages if one is not None]
    texts = [one.decode(errors="replace") if isinstance(one, bytes) else one for one in found]
    units = list(dict.fromkeys(one for one in texts if isinstance(one, str)))
    if len(units) > 1:
        raise ArgumentError(
            f"`on` must hold ids of one unit; got {units[0]!r} and {units[1]!r}. Dates of both can "
            "be compared: ooc.open(path, 'time', decode=True)."
        )


def _of(part: Dataset, ids: NDArray[Any]) -> NDArray[Any]:
    """Return ids if there is one for each element."""
    if len(ids) != len(part):
        raise ArgumentError(
            f"`on` must hold an id for each element; got {len(ids)} for {len(part)} elements."
        )
    return ids


def _alike(ids: NDArray[Any], others: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return ids in one dtype that holds all of them as they are."""
    kinds = {"number" if one.dtype.kind in "iuf" else one.dtype.kind for one in (ids, others)}
    if len(kinds) == 1:
        dtype = np.result_type(ids, others)
        alike = ids.astype(dtype), others.astype(dtype)
        if all(
            (one.astype(given.dtype) == given).all()
            for one, given in zip(alike, (ids, others), strict=True)
        ):
            return alike
    raise ArgumentError(
        "`on` must hold ids that can be compared, all numbers, dates or texts; got "
        f"{ids.dtype} and {others.dtype}."
    )


def _distance(one: NDArray[Any], other: NDArray[Any]) -> NDArray[Any]:
    """Return how far ids are from each other; of whole numbers and dates as uint64."""
    if one.dtype.kind == "f":
        apart: NDArray[Any] = np.abs(one - other)
        return apart
    if one.dtype.kind in "mM":
        one, other = one.view(np.int64), other.view(np.int64)
    # Modulo 2**64 the larger less the smaller is exact, also where int64 would overflow.
    high, low = np.maximum(one, other), np.minimum(one, other)
    whole: NDArray[Any] = high.astype(np.uint64) - low.astype(np.uint64)
    return whole


def _limit(tolerance: Any, dtype: np.dtype[Any]) -> Any:
    """Return a tolerance as a number to compare distances with."""
    try:
        if dtype.kind in "mM":
            if not isinstance(tolerance, np.timedelta64 | timedelta):
                raise TypeError
            unit, found = np.datetime_data(dtype), np.timedelta64(tolerance)
            if np.datetime_data(found.dtype)[0] == "generic":
                raise TypeError
            limit = found.astype(f"m8[{unit[1]}{unit[0]}]").astype(np.int64)
        elif isinstance(tolerance, np.timedelta64):  # which compares as a number
            raise TypeError
        else:
            limit = tolerance if dtype.kind == "f" else floor(min(tolerance, _FARTHEST))
        if limit >= 0:
            return limit if dtype.kind == "f" else np.uint64(limit)
    except (TypeError, ValueError, OverflowError):
        pass
    what = "a timedelta64 or timedelta" if dtype.kind in "mM" else "a number"
    raise ArgumentError(f"`tolerance` must be {what} of at least 0; got {tolerance!r}.")


def _tell_missing(ids: NDArray[Any], total: int, missing: str | None, tolerance: Any) -> None:
    """Say how many elements have no partner, as the caller wants it."""
    if not (missing is None or (isinstance(missing, str) and missing in ("drop", "error"))):
        raise ArgumentError(f"`missing` must be 'drop' or 'error'; got {missing!r}.")
    if not len(ids):
        return
    told = f"{len(ids):,} of {total:,} elements have no partner: {_shown(ids)}"
    if missing == "error":
        raise ArgumentError(
            f"`on` must hold an id of a partner for every element; {told}. Leave them out: "
            "missing='drop'."
        )
    if len(ids) == total:
        hint = (
            "Do both number the same things?" if tolerance is None else "Is `tolerance` too small?"
        )
        raise EmptyError(f"`on` must hold ids of partners for some elements; {told}. {hint}")
    if missing is None:
        warnings.warn(
            f"{told}. They are left out; missing='drop' accepts it, missing='error' refuses it.",
            MissingPartnerWarning,
            stacklevel=3,
        )


def _shown(ids: NDArray[Any]) -> str:
    return ", ".join(map(str, ids[:_MANY])) + (", …" if len(ids) > _MANY else "")
