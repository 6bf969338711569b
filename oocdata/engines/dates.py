"""Times that are stored as numbers of a unit since a date, decoded into datetime64[ns]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.decoded import Packing
from oocdata.errors import SourceError

__all__ = ["Dates"]

_NAT = np.iinfo(np.int64).min
_MICROSECOND = 1000

_ROUNDED = 2048
"""What float64 may round off nanoseconds, at most."""


@dataclass(frozen=True, slots=True)
class Dates:
    """How times are packed: ``date = since + number * unit``, NaT where a number is missing.

    Attributes
    ----------
    packing : Packing
        How the numbers are packed in their turn. Whole ones without a scale stay whole.
    unit, since : int
        In nanoseconds; since 1970.
    rounded : bool
        Whether fractions are rounded to microseconds, as `cftime` does for dates before 1582. Else
        they are cut to nanoseconds.
    """

    packing: Packing
    unit: int
    since: int
    rounded: bool

    @property
    def packed(self) -> np.dtype[Any]:
        """By which the stored numbers are read."""
        return self.packing.packed

    @property
    def dtype(self) -> np.dtype[Any]:
        """int64."""
        return np.dtype(np.int64)

    @property
    def date_unit(self) -> str:
        """``"datetime64[ns]"``, as xarray decodes them by default."""
        return "datetime64[ns]"

    def decode(self, packed: NDArray[Any], out: NDArray[Any]) -> None:
        """Write dates into memory of any dtype; it may be that of the packed numbers.

        Raises
        ------
        oocdata.errors.SourceError
            If a date is not within the years 1678 to 2262, those of datetime64[ns].

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
        there = numbers[~missing]
        for number in (there.min().item(), there.max().item()) if there.size else ():
            if not abs((number + shift) * self.unit + rest) < 2**63 - 2 * _ROUNDED - self.unit:
                raise SourceError(
                    f"dates must lie within the years 1678 to 2262, those of {self.date_unit}; "
                    f"one is {number} in its unit. Leave out decode=True, and the numbers are "
                    "delivered as stored."
                )
        numbers[missing] = 0
        if numbers.dtype.kind == "f" and self.rounded:
            parts = (numbers + shift) * (self.unit // _MICROSECOND)
            found = np.rint(parts).astype(np.int64) * _MICROSECOND + rest
        elif numbers.dtype.kind == "f":
            found = (numbers * self.unit).astype(np.int64) + self.since
        else:
            found = (numbers + shift) * self.unit + rest
        found[missing] = _NAT
        out[...] = found

    def _numbers(self, packed: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Return what is packed as int64 or float64, in fresh memory, and where it is missing."""
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
