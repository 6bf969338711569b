"""Parse the units of times by the CF conventions, 4.4, e.g. ``hours since 1900-01-01``.

The rules are xarray's (``xarray.coding.times``), so that ``ooc.open(path, "time", decode=True)``
equals ``xarray.open_dataset(path)["time"]``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from oocdata.engines.decoded import Dates, Packing
from oocdata.errors import UnsupportedDtypeError
from oocdata.formats.dimensions import as_text

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
    """Return the days since 1970 of a date in the Julian calendar."""
    years = year + 4800 - (month < 3)
    months = (month + 9) % 12  # since March
    return day + (153 * months + 2) // 5 + 365 * years + years // 4 - 32083 - 2440588
