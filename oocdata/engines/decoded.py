"""Packed numbers, decoded in the write of the batch: scale, offset, and NaN for what misses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent, covered
from oocdata.engines.places import read_through
from oocdata.engines.source import Annotations, Storage
from oocdata.engines.wrapped import Wrapped
from oocdata.errors import SourceError
from oocdata.threads import cached_property

if TYPE_CHECKING:
    from oocdata.engines.dates import Dates

__all__ = ["Decoded", "Packing"]

_PIECE_BYTES = 4 << 20
"""Of packed numbers that are read at a time, so that chunks are decoded side by side."""

_BLOCK_BYTES = 256 << 10
"""Of numbers that are decoded at a time: they stay in the processor's cache."""


@dataclass(frozen=True, slots=True)
class Packing:
    """How numbers are packed: ``number = packed * scale + offset``, NaN where one of `missing`.

    Attributes
    ----------
    packed : numpy.dtype
        By which the stored numbers are read: of another sign than the stored dtype's, perhaps.
    missing : tuple
        Packed numbers.
    scale, offset : number or None
        Of NumPy's scalar types or Python's, which makes a difference in rounding.
    dtype : numpy.dtype
        Of the numbers.
    """

    packed: np.dtype[Any]
    missing: tuple[Any, ...]
    scale: Any
    offset: Any
    dtype: np.dtype[Any]

    @property
    def date_unit(self) -> str:
        """Empty: they are no dates."""
        return ""

    def decode(self, packed: NDArray[Any], out: NDArray[Any]) -> None:
        """Write numbers into memory of any dtype; it may be that of the packed ones.

        Examples
        --------
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


@dataclass(frozen=True, eq=False)
class Decoded(Wrapped):
    """A source of packed numbers as the numbers, or as dates.

    Attributes
    ----------
    packing : Packing or Dates
    described : str
        How they are packed, in words.
    attributes : mapping
        For each attribute that is not true of the numbers, None.
    """

    packing: Packing | Dates
    described: str
    attributes: Mapping[str, None]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the numbers."""
        return self.packing.dtype

    def storage(self) -> Storage:
        """Return how the array is stored."""
        return self._storage

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
            annotations=partial(_true_of_numbers, inner, self.attributes),
        )

    def read(self, origins: NDArray[np.int64], extent: Extent, out: NDArray[Any]) -> None:
        """Write ``out[i] = the box at origins[i]``; see `oocdata.engines.source.Source.read`."""
        if out.size == 0:
            return
        count = max(1, _BLOCK_BYTES // (extent.size * self.dtype.itemsize))
        pieces = read_through(self.source, origins, extent, self.source.dtype, _PIECE_BYTES)
        for some, boxes in pieces:
            piece = out[some]
            for start in range(0, len(boxes), count):
                block = slice(start, start + count)
                try:
                    self.packing.decode(boxes[block], piece[block])
                except SourceError as error:
                    stored = self.source.storage()
                    error.path, error.key = stored.path, stored.key
                    if len(self.shape) == 1:  # times; of several axes it is not known which rows
                        error.concern(covered(origins[some][block], extent, 0))
                    raise


def _true_of_numbers(stored: Storage, changed: Mapping[str, None]) -> Annotations:
    """Return what storage says of the array, but for what is said of packed numbers."""
    found = stored.annotations()
    kept = {
        name: changed.get(name, value)
        for name, value in found.attributes.items()
        if name not in changed or name.startswith("valid")
    }
    return Annotations(kept)
