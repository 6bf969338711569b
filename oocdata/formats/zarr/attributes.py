"""Tell what an array's metadata say beside how it is stored: names of its axes, and attributes.

Version 3 keeps both in ``zarr.json`` (``dimension_names``, ``attributes``; core specification 3.0,
"Array metadata"). Version 2 knows attributes only, in ``.zattrs``; names are there under
``_ARRAY_DIMENSIONS``, the convention of xarray ("Zarr Encoding Specification"), whose missing value
is then the array's fill value. In version 3 it is an attribute, floats of it in base64.

Reading needs none of them, so what is wrong with them is no error.
"""

from __future__ import annotations

import base64
import struct
from typing import Any

import numpy as np

__all__ = ["fill_value_of", "names_and_attributes"]


def names_and_attributes(
    version: int, node: dict[str, Any], fill_value: Any, ndim: int, dtype: np.dtype[Any]
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Return the names of the axes, and the other attributes.

    `node` is ``zarr.json`` or ``.zattrs``. A name is empty for an axis without one; there are no
    names where no axis has one. ``_FillValue`` is the number that it stands for.

    Examples
    --------
    >>> node = {"_ARRAY_DIMENSIONS": ["time", "lat"], "units": "K"}
    >>> names_and_attributes(2, node, -9, 2, np.dtype("i2"))
    (('time', 'lat'), {'units': 'K', '_FillValue': -9})
    """
    attributes = node.get("attributes") if version == 3 else node
    attributes = dict(attributes) if isinstance(attributes, dict) else {}
    if version == 3:
        names = node.get("dimension_names")
        if "_FillValue" in attributes:
            attributes["_FillValue"] = _decoded(attributes["_FillValue"], dtype)
    else:
        names = attributes.pop("_ARRAY_DIMENSIONS", None)
        if names is not None and fill_value is not None:
            attributes.setdefault("_FillValue", fill_value)
    if not isinstance(names, list) or len(names) != ndim or not any(names):
        return (), attributes
    return tuple(str(one) if one else "" for one in names), attributes


def fill_value_of(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return the fill value as a number; None where the array has none, or none that is known.

    Examples
    --------
    >>> fill_value_of("NaN", np.dtype("f4")), fill_value_of([0, "Infinity"], np.dtype("c8"))
    (nan, infj)
    """
    if dtype.kind == "c" and isinstance(value, list) and len(value) == 2:
        parts = [_number(part) for part in value]
        return None if None in parts else complex(*parts)
    return _number(value)


def _number(value: Any) -> Any:
    if value in ("NaN", "Infinity", "-Infinity"):
        return float(value)
    return value if isinstance(value, int | float) else None


def _decoded(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return the number that xarray has encoded (xarray.backends.zarr.FillValueCoder)."""
    try:
        if dtype.kind in "fc":
            texts = [value] if isinstance(value, str) else value
            parts = [struct.unpack("<d", base64.standard_b64decode(text))[0] for text in texts]
            return parts[0] if dtype.kind == "f" else complex(*parts)
    except (ValueError, TypeError, struct.error):  # not as xarray writes it
        pass
    return value
