"""Encode attributes of arrays for HDF5 and Zarr."""

from __future__ import annotations

import base64
import io
import json
import struct
from contextlib import suppress
from typing import Any

import numpy as np

from oocdata.writers.codec import Format

__all__ = ["encode_attribute"]

_RESERVED = ("DIMENSION_LABELS", "DIMENSION_LIST", "REFERENCE_LIST")
"""Attributes of HDF5's dimension scales; HDF5 crashes if they hold any other values."""


def encode_attribute(name: str, value: Any, target: Format) -> Any:
    """Return the value of an attribute as a format holds it; None if it can't.

    In Zarr, NaN and infinities are text.

    Examples
    --------
    >>> encode_attribute("range", np.arange(3), "zarr"), encode_attribute("units", "K", "npy")
    ([0, 1, 2], None)
    """
    if value is None or target == "npy":
        return None
    return _as_json(name, value) if target == "zarr" else _as_hdf5(name, value)


def _as_json(name: str, value: Any) -> Any:
    if name == "_FillValue" and isinstance(value, np.inexact):
        # The encoding of xarray (xarray.backends.zarr.FillValueCoder).
        parts = (value.real, value.imag) if isinstance(value, np.complexfloating) else (value,)
        texts = [base64.standard_b64encode(struct.pack("<d", part)).decode() for part in parts]
        return texts if len(texts) > 1 else texts[0]
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.item()  # netCDF writes single numbers as arrays of length 1
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    with suppress(TypeError, ValueError, AttributeError):
        text = json.dumps(value, default=lambda array: array.tolist())
        return json.loads(text, parse_constant=str)
    return None


def _as_hdf5(name: str, value: Any) -> Any:
    from oocdata.formats.hdf5.file import hdf5_library

    if name in _RESERVED:
        return None
    if isinstance(value, dict):
        return json.dumps(value)
    with suppress(TypeError, ValueError, OSError, RuntimeError):
        array = np.asarray(value)
        if array.dtype.kind in "OSU":
            texts = np.ravel(np.array(value, object)).tolist()
            if not texts or not all(isinstance(text, str | bytes) for text in texts):
                return None
        converted = array.astype(object) if array.dtype.kind == "U" and array.ndim else value
        with hdf5_library().File(io.BytesIO(), "w") as file:  # raises if HDF5 can't hold it
            file.attrs["it"] = converted
        return converted
    return None
