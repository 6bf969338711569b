"""Decode numbers and times that are packed by the CF conventions, by the rules of xarray.

(``xarray.coding.variables``: `CFMaskCoder`, `CFScaleOffsetCoder`, `BooleanCoder`.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from oocdata.engines.alike import check_same_shape
from oocdata.engines.concat import Concat
from oocdata.engines.decoded import Dates, Decoded, Packing
from oocdata.engines.ragged_rows import is_ragged
from oocdata.engines.source import Source
from oocdata.errors import UnsupportedDtypeError, error_location
from oocdata.formats.dimensions import PACKING, SCALED, TIME, VALID, as_text, is_time, packing
from oocdata.formats.times import dates_of


def decoded(source: Source) -> Source:
    """Return a source that decodes packed numbers to floats or bools, and times to dates.

    A source without attributes of packing is returned unchanged. Values outside the valid range
    (``valid_min`` etc.) are not masked.
    """
    if type(source) is Concat:
        parts = [decoded(part) for part in source.parts]
        if all(new is old for new, old in zip(parts, source.parts, strict=True)):
            return source
        pairs = [(part, part.storage()) for part in parts]
        check_same_shape(
            [(part.shape, part.dtype, at.path, at.key) for part, at in pairs], source.axis
        )
        opened = source.storage().opened
        return source.with_parts(
            parts, opened=None if opened is None else {**opened, "decode": True}
        )
    storage = source.storage()
    attributes = storage.annotations().attributes
    removed = dict.fromkeys((*PACKING, "dtype"))
    with error_location(storage.path, storage.key):
        numbers = packing_of(source.dtype, attributes)
        coding: Packing | Dates | None = numbers
        if is_time(attributes) and source.dtype.kind in "iuf":
            plain = Packing(source.dtype, (), None, None, source.dtype)
            coding = dates_of(numbers or plain, attributes)
            removed |= dict.fromkeys(TIME)
        if coding is None:
            return source
        if is_ragged(source):
            raise UnsupportedDtypeError(
                "rows of varying length must not be packed to be decoded; these are "
                f"({packing(attributes)}). Leave out decode=True, and scale what is delivered as "
                "stored with `.map`."
            )
    if any(name in attributes for name in SCALED):
        removed |= dict.fromkeys(VALID)
    return Decoded(source, coding, packing(attributes) or "bool", removed)


def packing_of(dtype: np.dtype[Any], attributes: Mapping[str, Any]) -> Packing | None:
    """Return how numbers of a stored dtype are packed according to attributes, or None.

    Raises `UnsupportedDtypeError` for a scale or an offset that is not a single number.
    """
    if dtype.kind not in "iuf":
        return None
    scale, offset = (_number(attributes, name) for name in ("scale_factor", "add_offset"))
    packed, fills = dtype, _fills(dtype, attributes)
    unsigned = as_text(np.ravel(attributes.get("_Unsigned") or "")[0])
    kind = {"true": "u", "false": "i"}.get(unsigned)
    if kind is not None and dtype.kind in "iu" and kind != dtype.kind:
        packed = np.dtype(f"{kind}{dtype.itemsize}")
        fill_value = fills.get("_FillValue")
        if fill_value is not None:
            fills["_FillValue"] = np.asarray(fill_value).astype(dtype).astype(packed)
    missing = tuple(
        dict.fromkeys(value for values in fills.values() for value in values if value == value)
    )
    scaled = scale is not None or offset is not None
    if not scaled and not missing and packed == dtype:
        as_bool = dtype.kind in "iu" and as_text(attributes.get("dtype")) == "bool"
        return Packing(packed, (), None, None, np.dtype(np.bool_)) if as_bool else None
    result = packed
    if scaled and (missing or not fills):
        result = _float_for(packed, scale, offset)
    elif missing and packed.kind in "iu":
        result = np.dtype(np.float32 if packed.itemsize <= 2 else np.float64)
    if missing and result.kind in "iu":  # integers have no NaN
        result = np.dtype(np.float64)
    return Packing(packed, missing, scale, offset, result)


def _fills(dtype: np.dtype[Any], attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that stand for missing numbers, by attribute; no NaN for integers."""
    fills = {}
    for name in ("missing_value", "_FillValue"):
        values = np.ravel(attributes[name]) if attributes.get(name) is not None else np.zeros(0)
        is_numeric = len(values) > 0 and values.dtype.kind in "iuf"
        if is_numeric and (dtype.kind == "f" or (values == values).any()):
            fills[name] = values
    return fills


def _number(attributes: Mapping[str, Any], name: str) -> Any:
    """Return an attribute's single number with its own type; None if there is no attribute."""
    if attributes.get(name) is None:
        return None
    values = np.ravel(attributes[name])
    if len(values) != 1 or values.dtype.kind not in "iuf":
        raise UnsupportedDtypeError(
            f"`{name}` must be one number for numbers to be decoded; got {attributes[name]!r}. "
            "Leave out decode=True, and scale what is delivered as stored with `.map`."
        )
    return attributes[name] if np.isscalar(attributes[name]) else values[0]


def _float_for(dtype: np.dtype[Any], scale: Any, offset: Any) -> np.dtype[Any]:
    """Return the dtype of scaled numbers (xarray's ``_choose_float_dtype``)."""
    dtypes = [np.dtype(type(number)) for number in (scale, offset) if number is not None]
    if len(dtypes) == 2 and dtypes[0] == dtypes[1] and dtypes[0] in (np.float32, np.float64):
        # Integers of 32 bits have more digits than float32.
        return np.dtype(np.float64) if dtype.itemsize == 4 and dtype.kind in "iu" else dtypes[0]
    # A large offset could cost digits in float32.
    if offset is not None:
        return np.dtype(np.float64)
    # xarray takes the dtype of an integer scale, in which results may overflow.
    return dtypes[0] if dtypes[0].kind == "f" else np.result_type(dtype, dtypes[0])
