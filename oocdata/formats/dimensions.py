"""Tell which of several arrays is the data, and how numbers are packed (CF conventions).

A netCDF file, or a Zarr group of xarray, holds an array for each axis beside the data: ``time``,
``lat``, ``lon``. The CF conventions say which arrays are such coordinates (chapter 5), so that a
file with one array of data needs no key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from oocdata.errors import MissingKeyError, SeveralDatasetsError

__all__ = [
    "PACKING",
    "SCALED",
    "TIME",
    "VALID",
    "Named",
    "as_stored",
    "as_text",
    "choose_key",
    "data_variables",
    "is_time",
    "listed",
    "packing",
]

SCALED = ("scale_factor", "add_offset", "_Unsigned")
"""Attributes by which packed numbers are read (CF conventions, 8.1; NetCDF Users Guide)."""

PACKING = (*SCALED, "_FillValue", "missing_value")
"""And missing ones (CF conventions, 2.5.1)."""

VALID = ("valid_range", "valid_min", "valid_max")
"""Attributes that hold numbers packed as the array's are (CF conventions, 2.5.1 and 8.1)."""

TIME = ("units", "calendar")
"""Attributes by which times are read (CF conventions, 4.4)."""


def choose_key(keys: Sequence[str], key: str | None, path: str) -> str:
    """Return the key of the dataset to open: the one asked for, or the only one."""
    if key is not None:
        if key not in keys:
            raise MissingKeyError(
                f"`key` must name a dataset in the file; got {key!r}. It holds: {listed(keys)}.",
                path=path,
            )
        return key
    if not keys:
        raise MissingKeyError("the file must hold a dataset; it holds none.", path=path)
    if len(keys) > 1:
        raise SeveralDatasetsError(
            f"`key` must be given, because the file holds several datasets: {listed(keys)}.",
            path=path,
        )
    return keys[0]


def listed(names: Sequence[str]) -> str:
    """Return names for a message, the first twenty of them."""
    return ", ".join(map(repr, names[:20])) + (", …" if len(names) > 20 else "") or "nothing"


@dataclass(frozen=True, slots=True)
class Named:
    """An array of a file, and what its metadata say of the others."""

    key: str
    """With the groups it is in: ``"a/t2m"``."""
    dimensions: tuple[str, ...]
    """Names of its axes; empty where they have none."""
    refers: tuple[str, ...] = ()
    """Arrays of the same group that its attributes ``coordinates`` and ``bounds`` name."""

    @classmethod
    def of(cls, key: str, dimensions: tuple[str, ...], attributes: Mapping[str, Any]) -> Named:
        """Return an array with what its attributes refer to."""
        refers: list[str] = []
        for attribute in ("coordinates", "bounds"):
            refers.extend(as_text(attributes.get(attribute)).split())
        return cls(key, dimensions, tuple(refers))


def data_variables(arrays: Sequence[Named]) -> list[str]:
    """Return the keys of the arrays that are data; of all, if all are coordinates.

    Coordinates are one-dimensional arrays called like their dimension (CF conventions, chapter 5,
    "coordinate variable"), and those that the attributes ``coordinates`` (5, "auxiliary coordinate
    variable") or ``bounds`` (7.1) of another array name.

    Examples
    --------
    >>> data_variables([Named("t2m", ("time", "lat")), Named("time", ("time",)), Named("lat", ())])
    ['t2m', 'lat']
    """
    named = {
        f"{one.key.rpartition('/')[0]}/{name}".lstrip("/") for one in arrays for name in one.refers
    }
    data = [
        one.key
        for one in arrays
        if one.dimensions != (one.key.rpartition("/")[2],) and one.key.lstrip("/") not in named
    ]
    return data or [one.key for one in arrays]


def packing(attributes: Mapping[str, Any]) -> str:
    """Say how numbers are packed, and what stands for missing ones; empty where nothing does.

    By the CF conventions, 8.1 ("packed data") and 2.5.1 ("missing data").

    Examples
    --------
    >>> packing({"scale_factor": 0.5, "_FillValue": -9999, "units": "K"})
    'scale_factor 0.5, _FillValue -9999'
    >>> packing({"_FillValue": float("nan")}), packing({"units": "days since 1900-01-01"})
    ('', 'days since 1900-01-01')
    """
    said = {name: _first(attributes[name]) for name in PACKING if name in attributes}
    # NaN says of itself what it is.
    words = [f"{name} {value}" for name, value in said.items() if value == value]
    if is_time(attributes):
        words += [as_text(attributes[name]) for name in TIME if name in attributes]
    return ", ".join(words)


def is_time(attributes: Mapping[str, Any]) -> bool:
    """Return whether an array holds times, by its attribute ``units`` (CF conventions, 4.4).

    Examples
    --------
    >>> is_time({"units": "days since 1900-01-01"}), is_time({"units": "days"})
    (True, False)
    """
    return " since " in as_text(attributes.get("units"))


def as_text(value: Any) -> str:
    """Return an attribute as text; empty for what is none."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else ""


def _first(value: Any) -> Any:
    """Return an attribute's one value."""
    found = np.ravel(value)
    return found[0] if len(found) else "empty"


def as_stored(packed: str) -> str:
    """Return what `reading` adds where numbers are packed: they are delivered as stored.

    Examples
    --------
    >>> as_stored("scale_factor 0.5")
    '; delivered as stored, packed (scale_factor 0.5): decode=True decodes'
    >>> as_stored("_FillValue -9")
    '; delivered as stored, missing ones too (_FillValue -9): decode=True makes them NaN'
    """
    if not packed:
        return ""
    what, how = "packed", "decodes"
    if " since " in packed:
        what, how = "times", "makes them dates"
    elif not packed.startswith(SCALED):
        what, how = "missing ones too", "makes them NaN"
    return f"; delivered as stored, {what} ({packed}): decode=True {how}"
