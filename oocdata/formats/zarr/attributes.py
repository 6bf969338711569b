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

from oocdata.engines.dtypes import can_hold, is_small_float


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


def fill_element(fill: Any, dtype: np.dtype[Any]) -> Any:
    """Return the element that a fill value stands for; of null, or if there is none, zero or NaT.

    That of a compound or of bytes is in base64 (Zarr storage specification 2, "Fill value
    encoding"). Raises `ValueError` or `TypeError` for a number that is none.
    """
    if isinstance(fill, dict) and dtype.names:
        fields = {name: dtype[name] for name in dtype.names}
        return np.array(tuple(fill_element(fill[name], fields[name]) for name in fields), dtype)
    if dtype.kind in "mM":
        return np.array("NaT" if fill is None else fill, dtype)
    if dtype.kind in "OU":
        return fill if isinstance(fill, str) else ""
    is_number = dtype.kind not in "SV" or is_small_float(dtype)
    if fill is None or not (is_number or isinstance(fill, str)):
        return np.zeros((), dtype)[()]
    if not is_number:
        stored = base64.b64decode(fill).ljust(dtype.itemsize if dtype.kind == "S" else 0, b"\0")
        return np.frombuffer(stored, dtype, 1)[0]
    if dtype.kind == "c" and isinstance(fill, list) and len(fill) == 2:
        part = np.dtype(f"f{dtype.itemsize // 2}")
        return complex(*(_number(one, part) for one in fill))
    number = _number(fill, dtype)
    if dtype.kind in "biu" and not can_hold(dtype, number):
        raise ValueError(f"fill_value must be of {dtype}; got {number!r}")
    return number


def _number(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return a number; version 3 has the bytes of a float in hexadecimal digits as well."""
    if isinstance(value, int | float):
        return value
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
