"""Decode times, stored as numbers of a unit since a date, into datetime64[ns]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.decoded import Packing
from oocdata.errors import SourceError

__all__ = ["Dates"]

_NAT = np.iinfo(np.int64).min
_MICROSECOND = 1000

_ROUNDED = 2048
"""Maximum rounding error of float64 nanoseconds."""


@dataclass(frozen=True, slots=True)
class Dates:
    """Packing of times: ``date = since + number * unit``, NaT for missing numbers.

    Attributes
    ----------
    packing : Packing
        Packing of the numbers. Whole numbers without a scale stay whole.
    unit, since : int
        In nanoseconds; `since` counts from 1970.
    rounded : bool
        Whether fractions are rounded to microseconds, as `cftime` does for dates before 1582.
        Otherwise they are truncated to nanoseconds.
    """

    packing: Packing
    unit: int
    since: int
    rounded: bool

    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.int64)
    date_unit: ClassVar[str] = "datetime64[ns]"
    """The default of xarray."""

    @property
    def packed(self) -> np.dtype[Any]:
        """Dtype of the stored numbers."""
        return self.packing.packed

    def decode(self, packed: NDArray[Any], out: NDArray[Any]) -> None:
        """Write dates into memory of any dtype; it may be the memory of the packed numbers.

        Raises
        ------
        oocdata.errors.SourceError
            If a date is out of the range of datetime64[ns], the years 1678 to 2262.

        Examples
        --------
        >>> hours = Packing(np.dtype("i4"), (), None, None, np.dtype("i4"))
        >>> out = np.empty(2, "i8")
        >>> Dates(hours, 3600 * 10**9, 0, False).decode(np.array([1, 24], "i4"), out)
        >>> out.view("M8[ns]")
        array(['1970-01-01T01:00:00.000000000', '1970-01-02T00:00:00.000000000'],
              dtype='datetime64[ns]')
        """
        numbers, missing = self._numbers(packed)
        shift, rest = divmod(self.since, self.unit)
        present = numbers[~missing]
        for number in (present.min().item(), present.max().item()) if present.size else ():
            if not abs((number + shift) * self.unit + rest) < 2**63 - 2 * _ROUNDED - self.unit:
                raise SourceError(
                    f"dates must lie within the years 1678 to 2262, those of {self.date_unit}; "
                    f"one is {number} in its unit. Leave out decode=True, and the numbers are "
                    "delivered as stored."
                )
        numbers[missing] = 0
        if numbers.dtype.kind == "f" and self.rounded:
            parts = (numbers + shift) * (self.unit // _MICROSECOND)
            dates = np.rint(parts).astype(np.int64) * _MICROSECOND + rest
        elif numbers.dtype.kind == "f":
            dates = (numbers * self.unit).astype(np.int64) + self.since
        else:
            dates = (numbers + shift) * self.unit + rest
        dates[missing] = _NAT
        out[...] = dates

    def _numbers(self, packed: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Return the numbers as int64 or float64, in fresh memory, and a mask of missing ones."""
        packing = self.packing
        if packing.scale is None and packing.offset is None and packing.packed.kind in "iu":
            packed = packed.view(packing.packed)
            numbers = packed.astype(np.int64)
            missing = numbers == _NAT
            for value in packing.missing:
                missing |= packed == value
            return numbers, missing
        decoded = np.empty(packed.shape, packing.dtype)
        packing.decode(packed, decoded)
        numbers = decoded.astype(np.float64)
        return numbers, np.isnan(numbers)
