"""Tell data from coordinates, and describe packed numbers, by the CF conventions (chapter 5).

So a file with one array of data beside its coordinates needs no key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from oocdata.formats.tree import Array

SCALED = ("scale_factor", "add_offset", "_Unsigned")
"""Attributes that describe packed numbers (CF conventions, 8.1; NetCDF Users Guide)."""

PACKING = (*SCALED, "_FillValue", "missing_value")
"""Attributes that describe packed or missing numbers (CF conventions, 8.1 and 2.5.1)."""

VALID = ("valid_range", "valid_min", "valid_max")
"""Attributes whose values are packed like the array's (CF conventions, 2.5.1 and 8.1)."""

BOUNDS = ("bounds", "climatology")
"""Attributes of coordinates that name their bounds (CF conventions, 7.1 and 7.4)."""

OTHERS = ("coordinates", *BOUNDS)
"""Attributes that name other arrays."""

TIME = ("units", "calendar", "dtype")
"""Attributes that describe times (CF conventions, 4.4), and xarray's durations."""


def data_variables(arrays: Mapping[str, Array | None]) -> list[str]:
    """Return the names of the arrays that are data, or all names if all are coordinates.

    Coordinates are one-dimensional arrays with the name of their dimension, and arrays named in the
    attributes ``coordinates`` or `BOUNDS` of another array in their group (CF conventions, 5). Of
    an array without metadata, None, nothing is known.
    """
    coordinates = set()
    for name, array in arrays.items():
        attributes = array.attributes if array else {}
        for attribute in OTHERS:
            for other in as_text(attributes.get(attribute)).split():
                coordinates.add(f"{name.rpartition('/')[0]}/{other}".lstrip("/"))
    data = []
    for name, array in arrays.items():
        is_own_axis = array and array.dimensions == (name.rpartition("/")[2],)
        if not is_own_axis and name.lstrip("/") not in coordinates:
            data.append(name)
    return data or list(arrays)


def packing(attributes: Mapping[str, Any]) -> str:
    """Describe packed, missing or time values as text; empty for plain numbers.

    Attributes are those of the CF conventions, 8.1 ("packed data") and 2.5.1 ("missing data").
    """
    values = {name: _first(attributes[name]) for name in PACKING if name in attributes}
    # A fill value of NaN needs no decoding.
    words = [f"{name} {value}" for name, value in values.items() if value == value]
    if is_time(attributes):
        words += [as_text(attributes[name]) for name in TIME if name in attributes]
    return ", ".join(words)


def is_time(attributes: Mapping[str, Any]) -> bool:
    """Return whether an array holds times (CF conventions, 4.4), or durations that xarray wrote."""
    is_duration = as_text(attributes.get("dtype")).startswith("timedelta64")
    return is_duration or " since " in as_text(attributes.get("units"))


def units_of_numbers(attributes: Mapping[str, Any]) -> str:
    """Return the physical units of an array's numbers; empty for times."""
    return "" if is_time(attributes) else as_text(attributes.get("units"))


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
    """Return the text that tells users how to decode packed numbers; empty for other numbers."""
    return f"; delivered as stored ({packed}): decode=True decodes" if packed else ""
