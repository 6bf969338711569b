"""Attributes of a DataArray, as far as they are true of the values that it shows."""

from __future__ import annotations

from typing import Any

from oocdata.sources.dimensions import SCALED, VALID
from oocdata.sources.source import Annotations

__all__ = ["annotations_of"]


def annotations_of(variable: Any) -> Annotations:
    """Return the attributes of an ``xarray.Variable``.

    What xarray has decoded by is no longer among them, but the bounds of packed numbers are.

    Examples
    --------
    >>> import xarray
    >>> packed = {"scale_factor": 0.5, "valid_max": 100, "units": "K"}
    >>> variable = xarray.Variable("x", [2, 4], packed)
    >>> annotations_of(xarray.conventions.decode_cf_variable("u", variable)).attributes
    {'valid_max': None, 'units': 'K'}
    """
    found = {str(name): value for name, value in variable.attrs.items()}
    if any(name in variable.encoding for name in SCALED):
        found.update(dict.fromkeys(found.keys() & set(VALID)))
    return Annotations(found)
