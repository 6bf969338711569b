"""Tell data from coordinates, and describe packed numbers, by the CF conventions.

A netCDF file, or a Zarr group of xarray, has arrays of coordinates beside the data: ``time``,
``lat``, ``lon``. The CF conventions (chapter 5) define which arrays are coordinates, so a file with
one array of data needs no key.
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
    "as_text",
    "choose_key",
    "data_variables",
    "decoding_hint",
    "is_time",
    "packing",
    "quoted",
]

SCALED = ("scale_factor", "add_offset", "_Unsigned")
"""Attributes that describe packed numbers (CF conventions, 8.1; NetCDF Users Guide)."""

PACKING = (*SCALED, "_FillValue", "missing_value")
"""Attributes that describe packed or missing numbers (CF conventions, 8.1 and 2.5.1)."""

VALID = ("valid_range", "valid_min", "valid_max")
"""Attributes whose values are packed like the array's (CF conventions, 2.5.1 and 8.1)."""

TIME = ("units", "calendar")
"""Attributes that describe times (CF conventions, 4.4)."""


def choose_key(keys: Sequence[str], key: str | None, path: str) -> str:
    """Return the key of the dataset to open: `key` if given, or the only one there is."""
    if key is not None:
        if key not in keys:
            raise MissingKeyError(
                f"`key` must name a dataset in the file; got {key!r}. It holds: {quoted(keys)}.",
                path=path,
            )
        return key
    if not keys:
        raise MissingKeyError("the file must hold a dataset; it holds none.", path=path)
    if len(keys) > 1:
        raise SeveralDatasetsError(
            f"`key` must be given, because the file holds several datasets: {quoted(keys)}.",
            path=path,
        )
    return keys[0]


def quoted(names: Sequence[str]) -> str:
    """Return the first twenty names as text for a message."""
    return ", ".join(map(repr, names[:20])) + (", …" if len(names) > 20 else "") or "nothing"


@dataclass(frozen=True, slots=True)
class Named:
    """An array of a file, with the names of its axes and its references to other arrays."""

    key: str
    """Name with its groups: ``"a/t2m"``."""
    dimensions: tuple[str, ...]
    """Names of the axes; empty if they have none."""
    refers: tuple[str, ...] = ()
    """Names of arrays of the same group in the attributes ``coordinates`` and ``bounds``."""

    @classmethod
    def of(cls, key: str, dimensions: tuple[str, ...], attributes: Mapping[str, Any]) -> Named:
        """Return an array with the references in its attributes."""
        refers: list[str] = []
        for attribute in ("coordinates", "bounds"):
            refers.extend(as_text(attributes.get(attribute)).split())
        return cls(key, dimensions, tuple(refers))


def data_variables(arrays: Sequence[Named]) -> list[str]:
    """Return the keys of the arrays that are data, or all keys if all are coordinates.

    Coordinates are one-dimensional arrays with the name of their dimension (CF conventions, chapter
    5, "coordinate variable"), and arrays named in the attributes ``coordinates`` (5, "auxiliary
    coordinate variable") or ``bounds`` (7.1) of another array.

    Examples
    --------
    >>> data_variables([Named("t2m", ("time", "lat")), Named("time", ("time",)), Named("lat", ())])
    ['t2m', 'lat']
    """
    coordinates = {
        f"{array.key.rpartition('/')[0]}/{name}".lstrip("/")
        for array in arrays
        for name in array.refers
    }
    data = []
    for array in arrays:
        is_own_axis = array.dimensions == (array.key.rpartition("/")[2],)
        if not is_own_axis and array.key.lstrip("/") not in coordinates:
            data.append(array.key)
    return data or [array.key for array in arrays]


def packing(attributes: Mapping[str, Any]) -> str:
    """Describe packed, missing or time values as text; empty for plain numbers.

    Attributes are those of the CF conventions, 8.1 ("packed data") and 2.5.1 ("missing data").

    Examples
    --------
    >>> packing({"scale_factor": 0.5, "_FillValue": -9999, "units": "K"})
    'scale_factor 0.5, _FillValue -9999'
    >>> packing({"_FillValue": float("nan")}), packing({"units": "days since 1900-01-01"})
    ('', 'days since 1900-01-01')
    """
    values = {name: _first(attributes[name]) for name in PACKING if name in attributes}
    # A fill value of NaN needs no decoding.
    words = [f"{name} {value}" for name, value in values.items() if value == value]
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
    """Return an attribute as text; empty if it is no text."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else ""


def _first(value: Any) -> Any:
    """Return the first value of an attribute; ``"empty"`` if it has none."""
    values = np.ravel(value)
    return values[0] if len(values) else "empty"


def decoding_hint(packed: str) -> str:
    """Return the text that tells users how to decode packed numbers; empty for other numbers.

    Examples
    --------
    >>> decoding_hint("scale_factor 0.5")
    '; delivered as stored (scale_factor 0.5): decode=True decodes'
    """
    return f"; delivered as stored ({packed}): decode=True decodes" if packed else ""
