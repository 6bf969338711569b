"""Carry metadata from one format to another: attributes, dimension names, the fill value.

Numbers packed by the CF conventions (8.1) have no meaning without their own ``scale_factor``.
Metadata that the target format can't hold, or that do not apply to the result, are reported.
"""

from __future__ import annotations

import base64
import io
import json
import struct
from contextlib import suppress
from typing import Any

import numpy as np

from oocdata.datasets.episodes import crosses_parts
from oocdata.datasets.view import View
from oocdata.engines.dtypes import can_hold, is_small_float
from oocdata.errors import UnsupportedDtypeError
from oocdata.formats.dimensions import PACKING, VALID
from oocdata.formats.npy import LONGEST_HEADER
from oocdata.writers.storage import npy_header
from oocdata.writers.target import NAMES, NONE, Codec, Format, Target

_UNFIT: dict[Format, str] = {"hdf5": "UMm", "zarr": "SUV"}
"""Kinds of dtypes that can't be written to a format, or can't be opened from it."""

_NAMES = "the names of its dimensions"

_MISSING = ("_FillValue", "missing_value")
"""Attributes that hold a number of the array."""


def target_for(view: View, target: Format, key: str | None = None, codec: Codec = NONE) -> Target:
    """Return the array to be written of a view, with its metadata; chunks are chosen later."""
    storage = view.storage
    annotations = storage.annotations()
    dtypes = {view.source.dtype, view.dtype}
    # Another dtype holds the numbers as stored, not as unsigned numbers.
    is_unsigned = "_Unsigned" in annotations.attributes and len(dtypes) > 1
    not_applicable = {*PACKING, *VALID} if is_unsigned else set()
    attributes: list[tuple[str, Any]] = []
    lost: list[str] = []
    for name, stored in annotations.attributes.items():
        value = None if name in not_applicable else stored
        if name in _MISSING:
            value = _as_dtypes(value, dtypes, view.dtype)
        encoded = _encoded(name, value, target)
        if encoded is None:
            lost.append(name)
        else:
            attributes.append((name, encoded))
    # The storage may know the packing from elsewhere than the attributes.
    packing = {name for name in PACKING if f"{name} " in storage.packed}
    lost += [name for name in PACKING if name in packing - set(annotations.attributes)]
    if view.unit:
        lost.append(f"the unit of its dates ({view.unit})")
    names = view.names
    fits = any(names) and len(names) == view.ndim and target != "npy"
    if any(names) and not fits:
        lost.append(_NAMES)
    if len(view.default_episodes.lengths) > 1 or crosses_parts(view):
        lost.append("where its files or episodes begin: give windows `episodes`, their lengths")
    fill_value = annotations.fill_value
    return Target(
        format=target,
        key=key,
        shape=view.shape,
        dtype=view.dtype,
        codec=codec,
        attributes=tuple(attributes),
        dimension_names=names if fits else None,
        fill_value=_as_dtypes(fill_value, dtypes, view.dtype) if target != "npy" else None,
        lost=tuple(lost),
    )


def _as_dtypes(value: Any, through: set[np.dtype[Any]], dtype: np.dtype[Any]) -> Any:
    """Convert numbers to `dtype`; return None if a conversion to one of `through` changes one."""
    try:
        numbers = np.ravel(value)
    except ValueError:  # lists of unequal length
        return None
    same = [can_hold(one, number) for one in through for number in numbers]
    if not same or not all(same):
        return None
    converted = numbers.astype(dtype)
    return converted[0] if len(converted) == 1 else converted


def refuse_dtype(view: View, kind: Format) -> None:
    """Raise if a format can't hold the elements, or they can't be opened from it."""
    if kind == "npy":
        with suppress(ValueError):
            if len(npy_header(view.dtype, view.shape)) <= LONGEST_HEADER:
                return
    elif not is_small_float(view.dtype) and _kinds(view.dtype).isdisjoint(_UNFIT[kind]):
        return
    hint = f"Write {'.h5' if kind == 'npy' else '.npy'}"
    if view.dtype.names:
        hint += ", or one field at a time"
    elif is_small_float(view.dtype):
        hint += ", or convert them: .astype('f4'), --to-dtype f4"
    raise UnsupportedDtypeError(
        f"elements must be of a dtype that can be written to {NAMES[kind]}; got {view.dtype}. "
        f"{hint}.",
        path=view.storage.path,
        key=view.storage.key,
    )


def _kinds(dtype: np.dtype[Any]) -> set[str]:
    """Return the kinds of a dtype and of its fields, at any depth."""
    fields = (dtype[name].base for name in dtype.names or ())
    return {dtype.kind}.union(*map(_kinds, fields))


_RESERVED = ("DIMENSION_LABELS", "DIMENSION_LIST", "REFERENCE_LIST")
"""Attributes of HDF5's dimension scales; HDF5 crashes if they hold any other values."""


def _encoded(name: str, value: Any, target: Format) -> Any:
    """Return the value of an attribute as a format holds it; None if it can't.

    In Zarr, NaN and infinities are text.
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
