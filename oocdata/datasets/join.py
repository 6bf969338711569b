"""Join datasets: combine elements with matching coordinates or ids."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from oocdata.box import Ints
from oocdata.datasets.dataset import Dataset
from oocdata.datasets.ids import as_ids, as_ticks
from oocdata.datasets.view import View
from oocdata.datasets.zip import Zip
from oocdata.datasets.zip import zip as zipped
from oocdata.errors import ArgumentError, EmptyError, MissingPartnerWarning
from oocdata.formats.dimensions import as_text
from oocdata.index import as_range
from oocdata.stretches import stretches

How: TypeAlias = Literal["exact", "nearest", "previous"]

_SHOWN = 5
"""Number of ids that a message lists."""


def join(
    *datasets: Dataset | Mapping[str, Dataset],
    on: Sequence[ArrayLike | Any] | Mapping[str, ArrayLike | Any],
    how: How = "exact",
    tolerance: Any = None,
) -> Zip:
    """Combine elements with matching coordinates or ids, like a database join; reads no elements.

    Parameters
    ----------
    *datasets : Dataset
        Two or more, or one dict of them. Each element of the first is combined with its partner in
        each other dataset.
    on : sequence or dict of array_like, shapes (len,)
        For each dataset, an id of each element: numbers, dates (datetime64) or strings, as arrays
        or Views, which are read. In any order. Ids of the first dataset may repeat, ids of the
        others must be unique.
    how : {"exact", "nearest", "previous"}
        The partner has an equal id; the nearest id (of two equally near, the lower); or the largest
        id that is not greater. As in `pandas.merge_asof`, but ids need not be sorted.
    tolerance : number or timedelta64, optional
        Largest distance of a partner's id; of dates a whole number of their units.

    Returns
    -------
    Zip
        Tuples or dicts, in the order of the first dataset, without its elements that have no
        partner. Several elements may have the same partner; parts of a split do not share one.

    Warns
    -----
    oocdata.errors.MissingPartnerWarning
        If elements have no partner, with their number.

    Raises
    ------
    oocdata.errors.ArgumentError
        If ids don't match a dataset in length or each other in kind, or ids of partners repeat.
    oocdata.errors.EmptyError
        If no element has a partner.

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
    arguments = _ids_of_each(on, named, len(parts))
    _check_units(arguments)
    pairs = zip(arguments, parts, strict=True)
    ids = [as_ids("on", argument, "iufmMU", len(part)) for argument, part in pairs]
    partners = [matches(ids[0], others, how, tolerance) for others in ids[1:]]
    matched = np.logical_and.reduce([positions >= 0 for positions in partners])
    _report_missing(ids[0][~matched], len(matched), ids[1])
    chosen = [np.flatnonzero(matched), *(positions[matched] for positions in partners)]
    selected = [part._select(as_range(each)) for part, each in zip(parts, chosen, strict=True)]
    return zipped(dict(zip(named, selected, strict=True))) if named else zipped(*selected)


def matches(
    ids: NDArray[Any], others: NDArray[Any], how: How = "exact", tolerance: Any = None
) -> Ints:
    """Return the position in `others` of each id's partner, or -1 if it has none."""
    if not isinstance(how, str) or how not in ("exact", "nearest", "previous"):
        raise ArgumentError(f"`how` must be 'exact', 'nearest' or 'previous'; got {how!r}.")
    ids, others = _in_common_dtype(ids, others)
    if ids.dtype.kind == "U" and how != "exact":
        raise ArgumentError(
            f"`how` must be 'exact' for texts, which have no distance; got {how!r}."
        )
    order = np.argsort(others, kind="stable")
    ordered = others[order]
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    if len(repeated):
        raise ArgumentError(
            f"`on` must hold each id of a partner once; these come back: {_shown(repeated)}. Leave "
            "all but one of each out first."
        )
    partners = np.full(len(ids), -1)
    if not len(ordered):
        return partners
    if tolerance is not None and how == "exact":
        raise ArgumentError(
            f"`tolerance` must come with how='nearest' or 'previous'; got {tolerance!r}."
        )
    limit = None if tolerance is None else _limit(tolerance, ids.dtype)
    for part in stretches(len(ids)):
        places = _places(ids[part], ordered, how, limit)
        np.copyto(partners[part], order[places], where=places >= 0)
    return partners


def _places(ids: NDArray[Any], ordered: NDArray[Any], how: How, limit: Any) -> Ints:
    """Return the place of each id's partner among ascending ids, or -1 if it has none."""
    below, ascending = np.empty(len(ids), np.int64), np.argsort(ids)
    # A search in ascending order is several times as fast among millions.
    below[ascending] = np.searchsorted(ordered, ids[ascending], side="right") - 1
    at, matched = np.maximum(below, 0), below >= 0
    if how == "exact":
        matched &= ordered[at] == ids
    if how == "nearest":
        above = np.minimum(below + 1, len(ordered) - 1)
        nearer = _distance(ids, ordered[above]) < _distance(ids, ordered[at])
        at, matched = np.where(nearer, above, at), np.ones(len(ids), np.bool_)
    if limit is not None:
        matched &= _distance(ids, ordered[at]) <= limit
    return np.where(matched, at, -1)


def _ids_of_each(on: Any, named: Mapping[str, Any], number: int) -> list[Any]:
    if named and isinstance(on, Mapping) and set(on) == set(named):
        return [on[name] for name in named]
    if isinstance(on, tuple | list) and len(on) == number and not named:
        return list(on)
    expected = f"a dict of {list(named)}" if named else f"{number} arrays of ids, one a dataset"
    got = f"a dict of {list(on)}" if isinstance(on, Mapping) else f"{type(on).__name__}"
    raise ArgumentError(f"`on` must be {expected}; got {got}.")


def _check_units(arguments: list[Any]) -> None:
    """Raise ArgumentError if numbers have different units, e.g. days since different dates."""
    views = [ids for ids in arguments if isinstance(ids, View) and not ids.unit]
    texts = [as_text(view.storage.annotations().attributes.get("units")) for view in views]
    units = list(dict.fromkeys(filter(None, texts)))
    if len(units) > 1:
        raise ArgumentError(
            f"`on` must hold ids of one unit; got {units[0]!r} and {units[1]!r}. Dates of both can "
            "be compared: ooc.open(path, 'time', decode=True)."
        )


def _in_common_dtype(ids: NDArray[Any], others: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return both arrays of ids in one dtype that represents all of them exactly."""
    kinds = {"number" if one.dtype.kind in "iuf" else one.dtype.kind for one in (ids, others)}
    if len(kinds) == 1:
        dtype = np.result_type(ids, others)
        converted = ids.astype(dtype, copy=False), others.astype(dtype, copy=False)
        if all(
            array is original or (array.astype(original.dtype) == original).all()
            for array, original in zip(converted, (ids, others), strict=True)
        ):
            return converted
    raise ArgumentError(
        "`on` must hold ids that can be compared, all numbers, dates or texts; got "
        f"{ids.dtype} and {others.dtype}."
    )


def _distance(one: NDArray[Any], other: NDArray[Any]) -> NDArray[Any]:
    """Return the distances between ids; as uint64 for integers and dates."""
    if one.dtype.kind in "mM":
        one, other = one.view(np.int64), other.view(np.int64)
    high, low = np.maximum(one, other), np.minimum(one, other)
    if high.dtype.kind != "f":  # modulo 2**64 exact, even if int64 would overflow
        high, low = high.astype(np.uint64), low.astype(np.uint64)
    distances: NDArray[Any] = high - low
    return distances


def _limit(tolerance: Any, dtype: np.dtype[Any]) -> Any:
    """Return the tolerance as a number that can be compared with distances."""
    limit = as_ticks("tolerance", tolerance, dtype) if dtype.kind in "mM" else tolerance
    is_number = isinstance(limit, int | float | np.number) and not isinstance(limit, np.timedelta64)
    if not is_number or not limit >= 0:
        raise ArgumentError(
            "`tolerance` must be a number of at least 0, or a timedelta where ids are dates; got "
            f"{tolerance!r}."
        )
    return limit if dtype.kind == "f" or limit == inf else int(limit)


def _report_missing(ids: NDArray[Any], total: int, others: NDArray[Any]) -> None:
    """Warn of ids without a partner; raise if none has one."""
    if not len(ids):
        return
    report = f"{len(ids):,} of {total:,} elements have no partner: {_shown(ids)}"
    if len(ids) == total:
        raise EmptyError(
            f"`on` must hold ids of partners for some elements; {report}. The second ids are "
            f"{_shown(others)}. Do both name the same things, or is `tolerance` too small?"
        )
    warnings.warn(f"{report}. They are left out.", MissingPartnerWarning, stacklevel=3)


def _shown(ids: NDArray[Any]) -> str:
    return ", ".join(map(str, ids[:_SHOWN])) + (", …" if len(ids) > _SHOWN else "")
