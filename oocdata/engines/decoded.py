"""Decode packed numbers as the batch is written: scale, offset, and NaN for missing values.

Times, stored as numbers of a unit since a date, become datetime64[ns], durations timedelta64[ns].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent, Ints, covered_positions
from oocdata.engines.copying import read_through
from oocdata.engines.source import Annotations, Storage, WithStorage
from oocdata.engines.wrapped import Wrapped
from oocdata.errors import SourceError
from oocdata.threads import cached_property

_PIECE_BYTES = 4 << 20
"""Packed bytes read at a time: enough for several chunks, which are decoded in parallel."""

_BLOCK_BYTES = 256 << 10
"""Bytes decoded at a time, which stay in the processor's cache. Shuffled int16 fields of 130 KB,
with a scale and an offset, take 1 / 1.25 of the processor time."""

_NAT = np.iinfo(np.int64).min
_MICROSECOND = 1000

_ROUNDED = 2048
"""Maximum rounding error of float64 nanoseconds."""


@dataclass(frozen=True, slots=True)
class Packing:
    """Packing of numbers: ``number = packed * scale + offset``, NaN for values in `missing`."""

    packed: np.dtype[Any]  # its sign may differ from that of the stored dtype
    missing: tuple[Any, ...]  # packed values that mean NaN
    scale: Any  # a scalar of NumPy or Python, which differ in rounding, or None; so is `offset`
    offset: Any
    dtype: np.dtype[Any]  # of the decoded numbers

    date_unit: ClassVar[str] = ""
    """Empty: the numbers are not dates."""

    def decode(self, packed: NDArray[Any], out: NDArray[Any]) -> None:
        """Write numbers into memory of any dtype; it may be the memory of the packed ones.

        >>> packed = np.array([10, -9, 20], "i2")
        >>> out = np.empty(3, "f4")
        >>> Packing(packed.dtype, (-9,), 0.5, None, out.dtype).decode(packed, out)
        >>> out
        array([ 5., nan, 10.], dtype=float32)
        """
        packed = packed.view(self.packed)
        absent = None
        for value in self.missing:
            absent = packed == value if absent is None else absent | (packed == value)
        numbers = packed.astype(self.dtype)
        if self.scale is not None:
            numbers *= self.scale
        if self.offset is not None:
            numbers += self.offset
        if absent is not None:
            np.putmask(numbers, absent, np.nan)
        out[...] = numbers


@dataclass(frozen=True, slots=True)
class Dates:
    """Packing of times: ``date = since + number * unit``, NaT for missing numbers."""

    packing: Packing  # of the numbers; whole numbers without a scale stay whole
    unit: int  # in nanoseconds
    since: int  # in nanoseconds since 1970
    rounded: bool
    """Whether fractions are rounded to microseconds, as `cftime` does, which xarray uses if the
    numbers count from a date that datetime64 has not. Otherwise they are cut to nanoseconds."""

    date_unit: str = "datetime64[ns]"
    """The default of xarray; or timedelta64[ns] for durations, whose `since` is 0."""

    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.int64)

    def decode(self, packed: NDArray[Any], out: NDArray[Any]) -> None:
        """Write dates into memory of any dtype; it may be the memory of the packed numbers.

        Raises `SourceError` for a date outside the years 1678 to 2262, those of datetime64[ns].

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
        # Whole numbers apart: in nanoseconds, float64 would round them, or int64 overflow.
        dates = (numbers.astype(np.int64) + shift) * self.unit + rest
        if numbers.dtype.kind == "f":
            whole = np.trunc(numbers)
            if self.rounded:
                fractions = np.rint((numbers - whole) * (self.unit / _MICROSECOND)) * _MICROSECOND
            else:
                fractions = numbers * self.unit - whole * self.unit
            dates += fractions.astype(np.int64)
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


@dataclass(frozen=True, eq=False)
class Decoded(WithStorage, Wrapped):
    """A source of packed numbers, decoded into numbers or dates."""

    packing: Packing | Dates
    described: str  # the packing
    attributes: Mapping[str, None]  # names of those that do not apply to decoded numbers

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.packing.dtype

    @cached_property
    def _storage(self) -> Storage:
        inner = self.source.storage()
        return replace(
            inner,
            reading=f"{inner.reading.partition('; delivered as stored')[0]}; decoded "
            f"({self.described})",
            strides=None,
            packed="",
            unit=self.packing.date_unit,
            opened=None if inner.opened is None else {**inner.opened, "decode": True},
            annotations=partial(_annotations, inner, self.attributes),
        )

    def read(self, origins: Ints, extent: Extent, out: NDArray[Any]) -> None:
        if out.size == 0:
            return
        count = max(1, _BLOCK_BYTES // (extent.size * self.dtype.itemsize))
        pieces = read_through(self.source, origins, extent, self.source.dtype, _PIECE_BYTES)
        for part, boxes in pieces:
            target = out[part]
            for start in range(0, len(boxes), count):
                block = slice(start, start + count)
                try:
                    self.packing.decode(boxes[block], target[block])
                except SourceError as error:
                    stored = self.source.storage()
                    error.path, error.key = stored.path, stored.key
                    if len(self.shape) == 1:  # times; with several axes the rows are not known
                        error.set_rows(covered_positions(origins[part][block], extent, 0))
                    raise


def _annotations(stored: Storage, changed: Mapping[str, None]) -> Annotations:
    """Return the annotations of storage without attributes that describe packed numbers."""
    attributes = {
        name: changed.get(name, value)
        for name, value in stored.annotations().attributes.items()
        if name not in changed or name.startswith("valid")
    }
    return Annotations(attributes)
