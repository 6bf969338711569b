"""What goes along with the numbers: attributes, names of dimensions, the fill value.

Numbers packed by the CF conventions (8.1) mean nothing without their ``scale_factor``, and
something else with that of others. What one format has no place for, or what is not true of the
result, is named, so that nothing is lost without a word.
"""

from __future__ import annotations

import base64
import io
import json
import math
import struct
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib import format as npy_format

from oocdata.datasets.view import View
from oocdata.engines.dtypes import is_small_float
from oocdata.errors import UnsupportedDtypeError
from oocdata.formats.dimensions import PACKING, VALID
from oocdata.writers.codec import NAMES, Format
from oocdata.writers.target import holds

__all__ = ["Carried", "carried", "refuse_dtype"]

_UNFIT: dict[Format, str] = {"hdf5": "UMm", "zarr": "SUV"}
"""Kinds of elements that can't be written to a format, or not be opened again from it."""

_NAMES = "the names of its dimensions"

_MISSING = ("_FillValue", "missing_value")
"""Attributes that hold a number of the array."""


@dataclass(frozen=True, slots=True)
class Carried:
    """What goes along, and what can't."""

    attributes: tuple[tuple[str, Any], ...] = ()
    dimension_names: tuple[str | None, ...] | None = None  # rows first
    fill_value: Any = None
    lost: tuple[str, ...] = ()  # names of what the result has no place for, or is not true of it


def carried(view: View, target: Format) -> Carried:
    """Return what goes along with an array that is written in a format."""
    storage = view.storage
    said = storage.annotations()
    dtypes = {view.source.dtype, view.dtype}
    # Numbers of another dtype are those as stored, without the sign that the attribute gives them.
    untrue = {*PACKING, *VALID} if "_Unsigned" in said.attributes and len(dtypes) > 1 else set()
    kept: list[tuple[str, Any]] = []
    lost: list[str] = []
    for name, value in said.attributes.items():
        true = None if name in untrue else value
        if name in _MISSING:
            true = _as_dtypes(true, dtypes, view.dtype)
        made = None
        if true is not None and target != "npy":
            made = _as_hdf5(true) if target == "hdf5" else _as_json(name, true)
        if made is None:
            lost.append(name)
        else:
            kept.append((name, made))
    # An attribute that tells how numbers are packed may be known to the storage alone.
    told = {name for name in PACKING if f"{name} " in storage.packed}
    lost += [name for name in PACKING if name in told - set(said.attributes)]
    if view.unit:
        lost.append(f"the unit of its dates ({view.unit})")
    names = view.names
    fit = any(names) and len(names) == view.ndim and target != "npy"
    if any(names) and not fit:
        lost.append(_NAMES)
    return Carried(
        attributes=tuple(kept),
        dimension_names=names if fit else None,
        fill_value=_as_dtypes(said.fill_value, dtypes, view.dtype) if target != "npy" else None,
        lost=tuple(lost),
    )


def _as_dtypes(value: Any, through: set[np.dtype[Any]], dtype: np.dtype[Any]) -> Any:
    """Return numbers as the array has them now; None where they are none, or others by now."""
    try:
        numbers = np.ravel(value)
    except ValueError:  # lists of unequal length
        return None
    same = [holds(one, number) for one in through for number in numbers]
    if not same or not all(same):
        return None
    made = numbers.astype(dtype)
    return made[0] if len(made) == 1 else made


def _as_json(name: str, value: Any) -> Any:
    """Return an attribute as JSON has it; None for what it can't say."""
    if name == "_FillValue" and isinstance(value, np.inexact):
        # So xarray reads and writes it (xarray.backends.zarr.FillValueCoder).
        parts = (value.real, value.imag) if isinstance(value, np.complexfloating) else (value,)
        texts = [base64.standard_b64encode(struct.pack("<d", part)).decode() for part in parts]
        return texts if len(texts) > 1 else texts[0]
    if isinstance(value, np.ndarray | np.generic):
        # netCDF writes single numbers as arrays of one.
        value = value.item() if value.size == 1 else value.tolist()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return _without_nan(value)
    return value


def _without_nan(value: Any) -> Any:
    """Return floats that JSON has not as the words that Zarr has for them."""
    if isinstance(value, list):
        made = [_without_nan(one) for one in value]
        return None if any(one is None for one in made) else made
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value if isinstance(value, int | float | str) else None


def _as_hdf5(value: Any) -> Any:
    """Return an attribute as HDF5 has it; None for what it can't hold."""
    from oocdata.formats.hdf5.file import hdf5_library

    if value is None or isinstance(value, dict):
        return json.dumps(value) if isinstance(value, dict) else None
    with suppress(TypeError, ValueError, OSError, RuntimeError):
        array = np.asarray(value)
        if array.dtype.kind in "OSU":
            texts = np.ravel(np.array(value, object)).tolist()
            if not texts or not all(isinstance(one, str | bytes) for one in texts):
                return None
        made = array.astype(object) if array.dtype.kind == "U" and array.ndim else value
        with hdf5_library().File(io.BytesIO(), "w") as file:  # which says whether it can
            file.attrs["it"] = made
        return made
    return None


def refuse_dtype(view: View, kind: Format) -> None:
    """Refuse elements that a format has no place for, or that are not opened again from it."""
    taken = "numbers" if kind == "zarr" else "numbers, bytes, or fields of them"
    hint = f"Write .npy instead{', or one field at a time' if view.dtype.names else ''}"
    if kind == "npy":
        with suppress(ValueError):
            npy_format.dtype_to_descr(view.dtype)  # the header has words for it
            return
        taken, hint = "fields in the order of their bytes", "Write .h5, or one field at a time"
    elif is_small_float(view.dtype):
        taken = "of a dtype that its files tell of"
        hint = "Write .npy, which keeps their bytes, or float32: .astype('f4'), --to-dtype f4"
    elif _kinds(view.dtype).isdisjoint(_UNFIT[kind]):
        return
    raise UnsupportedDtypeError(
        f"elements must be {taken} to be written to {NAMES[kind]}; got {view.dtype}. {hint}.",
        path=view.storage.path,
        key=view.storage.key,
    )


def _kinds(dtype: np.dtype[Any]) -> set[str]:
    """Return the kinds of a dtype and of its fields, at any depth."""
    fields = (dtype[name].base for name in dtype.names or ())
    return {dtype.kind}.union(*map(_kinds, fields))
