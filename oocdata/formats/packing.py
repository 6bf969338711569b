"""Decode numbers and times that are packed by the CF conventions, by the rules of xarray.

(``xarray.coding.variables``: `CFMaskCoder`, `CFScaleOffsetCoder`, `BooleanCoder`; and of times
``xarray.coding.times``, CF conventions, 4.4, e.g. ``hours since 1900-01-01``.)
"""

from __future__ import annotations

import re
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

_UNITS = {
    "nanosecond nanoseconds": 1,
    "microsecond microseconds microsec microsecs": 10**3,
    "millisecond milliseconds millisec millisecs msec msecs ms": 10**6,
    "second seconds sec secs s": 10**9,
    "minute minutes min mins": 60 * 10**9,
    "hour hours hr hrs h": 3600 * 10**9,
    "day days d": 86400 * 10**9,
}
_NANOSECONDS = {word: length for words, length in _UNITS.items() for word in words.split()}

_MIXED = ("standard", "gregorian")
"""Calendars that are Julian before 15 October 1582."""

_CALENDARS = (*_MIXED, "proleptic_gregorian")
"""Calendars that datetime64 can represent."""

_REFORM = np.datetime64("1582-10-15")

_DATE = re.compile(
    r"(\d{1,4})-(\d{1,2})-(\d{1,2})"
    r"(?:[T ]+(\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?)?)?)?"
    r"\s*(?:Z|UTC|GMT|([+-])(\d{1,2})(?::?(\d{2}))?)?"
)


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


def dates_of(packing: Packing, attributes: Mapping[str, Any]) -> Dates:
    """Return the decoding of times or durations, from their packing and their attributes.

    Raises `UnsupportedDtypeError` for a calendar, a unit or a date that datetime64 can't represent.
    """
    units, calendar = as_text(attributes.get("units")), as_text(attributes.get("calendar")).lower()
    if calendar not in ("", *_CALENDARS):
        raise UnsupportedDtypeError(
            f"times must be in the standard calendar to be decoded; these are in {calendar!r}, "
            "which has other days than datetime64. Leave out decode=True, and the numbers are "
            f"delivered as stored ({units}); cftime.num2date makes dates of them."
        )
    word, since_date, date = units.partition(" since ")
    unit, parsed = _NANOSECONDS.get(word.strip().lower()), _DATE.fullmatch(date.strip())
    if unit and not since_date:
        return Dates(packing, unit, 0, False, "timedelta64[ns]")
    try:
        if unit is None or parsed is None:
            raise ValueError
        since, julian = _since(parsed, mixed=calendar in ("", *_MIXED))
    except ValueError:
        raise UnsupportedDtypeError(
            "times must be a number of days, hours, minutes or seconds since a date to be decoded, "
            f"e.g. 'hours since 1900-01-01'; got {units!r}. Leave out decode=True, and the numbers "
            "are delivered as stored."
        ) from None
    return Dates(packing, unit, since, julian or abs(since) >= 2**63)


def _since(parsed: re.Match[str], *, mixed: bool) -> tuple[int, bool]:
    """Return a date in nanoseconds since 1970, and whether it is in the Julian calendar."""
    year, month, day = (int(parsed[at]) for at in (1, 2, 3))
    hour, minute, second, east, more = (int(parsed[at] or 0) for at in (4, 5, 6, 9, 10))
    minute += (east * 60 + more) * (1 if parsed[8] == "-" else -1)  # to UTC
    fraction = int((parsed[7] or "0").ljust(9, "0")[:9])
    date = np.datetime64(f"{year:04}-{month:02}-{day:02}")  # ValueError for an invalid date
    julian = mixed and bool(date < _REFORM)
    days = _julian(year, month, day) if julian else int(date.astype(np.int64))
    seconds = ((days * 24 + hour) * 60 + minute) * 60 + second
    return seconds * 10**9 + fraction, julian


def _julian(year: int, month: int, day: int) -> int:
    years = year + 4800 - (month < 3)
    months = (month + 9) % 12  # since March
    return day + (153 * months + 2) // 5 + 365 * years + years // 4 - 32083 - 2440588
