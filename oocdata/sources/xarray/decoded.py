"""Stored numbers, decoded as xarray decodes them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.index import Cut
from oocdata.sources.adapt import Wrapper, cut_source, layout_of, through_scratch
from oocdata.sources.dimensions import as_stored
from oocdata.sources.source import Annotations, Layout, Source
from oocdata.sources.xarray.annotations import annotations_of
from oocdata.sources.xarray.stored import Decode, decoding_of

__all__ = ["Decoded"]

_BLOCK_BYTES = 256 << 10


@dataclass(frozen=True, eq=False)
class Decoded(Wrapper):
    """Rows of a source, each element through the functions by which xarray decodes it.

    Attributes
    ----------
    source : Source
        The stored numbers.
    variable : xarray.Variable
        Decoded in the same way, and not to be loaded.
    """

    source: Source
    variable: Any

    converts = True

    @cached_property
    def functions(self) -> tuple[Decode, ...]:
        """xarray's, the first one first."""
        return decoding_of(self.variable)

    @property
    def shape(self) -> tuple[int, ...]:
        """``(rows, *element)``."""
        return self.source.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Native byte order."""
        native: np.dtype[Any] = np.dtype(self.variable.dtype).newbyteorder("=")
        return native

    def layout(self) -> Layout:
        """Return where and how the array is stored."""
        stored = layout_of(self.source)
        how = stored.reading.removesuffix(as_stored(stored.packed))
        words = f"{how}; decoded by xarray's own functions"
        if stored.packed:
            words += f" ({stored.packed})"
        return replace(stored, reading=words, packed="")

    def annotations(self) -> Annotations:
        """Return the attributes of the numbers as decoded."""
        return annotations_of(self.variable)

    def cut(self, cuts: tuple[Cut, ...]) -> Source:
        """Return the source of ``row[cuts]``."""
        return replace(self, source=cut_source(self.source, cuts))

    def read_into(self, rows: NDArray[np.int64], out: NDArray[Any]) -> None:
        """Write ``out[i] = row rows[i]``, decoded; `out` may have any numeric dtype."""
        if out.size == 0:
            return
        count = max(1, _BLOCK_BYTES // max(1, prod(self.shape[1:]) * self.dtype.itemsize))
        for part, stored in through_scratch(self.source, rows):
            filled = out[part]
            # What a function makes is small enough to stay in the processor's cache.
            for start in range(0, len(stored), count):
                values = stored[start : start + count]
                for function in self.functions:
                    values = function(values)
                # By way of the decoded dtype, whatever `out` has.
                filled[start : start + count] = values.astype(self.dtype, copy=False)
