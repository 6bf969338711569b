"""Parse the names of axes, attributes and fill value of an array's metadata.

Version 3 has them in ``zarr.json`` (core specification 3.0, "Array metadata"). Version 2 has
attributes in ``.zattrs``, with names under ``_ARRAY_DIMENSIONS``, xarray's convention, for which
the fill value is the missing value; in version 3 that is an attribute, of floats in base64. Errors
in names and attributes are ignored: reading needs none.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from oocdata.engines.dtypes import is_small_float


def names_and_attributes(
    version: int, node: dict[str, Any], fill_value: Any, ndim: int, dtype: np.dtype[Any]
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Return the names of the axes, and the attributes.

    `node` is the content of ``zarr.json`` or ``.zattrs``. The name is "" for an axis without one;
    names are empty if no axis has one. ``_FillValue`` is decoded to a number.
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
            attributes["_FillValue"] = fill_value  # as xarray does, whatever the attribute says
    if not isinstance(names, list) or len(names) != ndim or not any(names):
        return (), attributes
    return tuple(str(one) if one else "" for one in names), attributes


def level_names(attributes: Mapping[str, Any], level: str, ndim: int) -> tuple[str, ...]:
    """Return the names of the axes of a level of a picture pyramid; empty if it is none.

    `attributes` are those of the group of the levels. Source: OME-Zarr 0.3 to 0.5, "multiscales".
    """
    with suppress(AttributeError, KeyError, TypeError):  # not of this form
        for pyramid in attributes.get("ome", attributes).get("multiscales", ()):
            if level in [dataset["path"] for dataset in pyramid["datasets"]]:
                names = [
                    axis if isinstance(axis, str) else axis["name"] for axis in pyramid["axes"]
                ]
                return tuple(map(str, names)) if len(names) == ndim else ()
    return ()


def fill_value_of(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return the fill value as a number; None if there is none, or elements are no numbers.

    Raises `ValueError` or `TypeError` for what is no number.
    """
    if value is None or (dtype.kind in "SUVO" and not is_small_float(dtype)):
        return None
    if dtype.kind == "c" and isinstance(value, list) and len(value) == 2:
        part = np.dtype(f"f{dtype.itemsize // 2}")
        return complex(*(_number(one, part) for one in value))
    return _number(value, dtype)


def _number(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return a number; version 3 has the bytes of a float in hexadecimal digits as well."""
    if isinstance(value, int | float):
        return value
    if value == "NaT" and dtype == np.int64:  # a date (Zarr 2, "Fill value encoding")
        return np.iinfo(np.int64).min
    if dtype.kind in "biu":
        return int(value)
    if str(value).startswith("0x"):
        if len(value) != 2 + 2 * dtype.itemsize or not value.isalnum():
            raise ValueError(f"{value!r} must have {2 * dtype.itemsize} hexadecimal digits")
        return float(np.array(int(value, 16), f"u{dtype.itemsize}").view(dtype))
    return float(value)


def _decoded(value: Any, dtype: np.dtype[Any]) -> Any:
    """Decode a number as encoded by xarray (xarray.backends.zarr.FillValueCoder)."""
    try:
        if dtype.kind in "fc":
            texts = [value] if isinstance(value, str) else value
            parts = [struct.unpack("<d", base64.standard_b64decode(text))[0] for text in texts]
            return parts[0] if dtype.kind == "f" else complex(*parts)
    except (ValueError, TypeError, struct.error):  # not as xarray writes it
        pass
    return value
