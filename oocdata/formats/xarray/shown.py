"""Boxes of what a DataArray shows of a stored array: a selection, decoded by xarray."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent
from oocdata.engines.source import Annotations, Source, Storage
from oocdata.formats.dimensions import SCALED, VALID, as_stored
from oocdata.formats.xarray.stored import Decode, Places, decoding_of

__all__ = ["Shown", "annotations_of"]

_SCRATCH_BYTES = 256 << 10
"""What a function of xarray makes is small enough to stay in the processor's cache."""


@dataclass(frozen=True, eq=False)
class Shown:
    """A part of a stored array, each number through the functions by which xarray decodes it.

    Of each axis of `source`, `places` are shown: an int drops the axis. The xarray `variable` is
    decoded in the same way, and empty, so that it is not loaded.
    """

    source: Source
    places: tuple[Places, ...]
    variable: Any

    @cached_property
    def functions(self) -> tuple[Decode, ...]:
        """xarray's, the first one first; none where the values are shown as stored."""
        return decoding_of(self.variable)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """As shown."""
        return tuple(len(place) for place in self.places if isinstance(place, range))

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """Native byte order."""
        native: np.dtype[Any] = np.dtype(self.variable.dtype).newbyteorder("=")
        return native

    def storage(self) -> Storage:
        """Return how the array is stored."""
        inner = self.source.storage()
        chunks = inner.chunks
        if chunks is not None:
            # A selection that begins within a chunk shifts the grid: its blocks then cross borders.
            chunks = tuple(
                max(1, chunk // abs(place.step))
                for chunk, place in zip(chunks, self.places, strict=True)
                if isinstance(place, range)
            )
        reading = inner.reading.removesuffix(as_stored(inner.packed))
        if self.functions:
            reading += "; decoded by xarray's own functions"
            reading += f" ({inner.packed})" if inner.packed else ""
        return replace(
            inner,
            reading=reading,
            chunks=chunks,
            strides=None,
            dimensions=tuple(map(str, self.variable.dims)),
            packed="",
            opened=None,
            annotations=partial(annotations_of, self.variable),
        )

    def read(self, origins: NDArray[np.int64], extent: Extent, out: NDArray[Any]) -> None:
        """Write ``out[i] = the box at origins[i]``; see `oocdata.engines.source.Source.read`."""
        if out.size == 0:
            return
        moved = np.empty((len(origins), len(self.places)), np.int64)
        lengths, strides, shown = [], [], 0
        for axis, place in enumerate(self.places):
            if isinstance(place, int):
                moved[:, axis], length, stride = place, 1, 1
                out = np.expand_dims(out, axis + 1)
            else:
                first, length = origins[:, shown], extent.lengths[shown]
                stride = extent.strides[shown] * place.step
                if stride < 0:  # read forwards into a reversed view
                    first = first + (length - 1) * extent.strides[shown]
                    out = np.flip(out, axis + 1)
                moved[:, axis] = place.start + place.step * first
                shown += 1
            lengths.append(length)
            strides.append(abs(stride))
        stored = Extent(tuple(lengths), tuple(strides))
        if not self.functions:
            self.source.read(moved, stored, out)
            return
        count = max(1, _SCRATCH_BYTES // max(1, stored.size * self.dtype.itemsize))
        scratch = np.empty((min(count, len(moved)), *lengths), self.source.dtype)
        for start in range(0, len(moved), count):
            some = moved[start : start + count]
            values: NDArray[Any] = scratch[: len(some)]
            self.source.read(some, stored, values)
            for function in self.functions:
                values = function(values)
            # By way of the decoded dtype, whatever `out` has.
            out[start : start + count] = values.astype(self.dtype, copy=False)


def annotations_of(variable: Any) -> Annotations:
    """Return the attributes of an ``xarray.Variable``, as far as they are true of its values.

    Those that xarray has decoded by are no longer among them; the bounds of packed numbers are.

    Examples
    --------
    >>> import xarray
    >>> packed = {"scale_factor": 0.5, "valid_max": 100, "units": "K"}
    >>> variable = xarray.Variable("x", [2, 4], packed)
    >>> annotations_of(xarray.conventions.decode_cf_variable("u", variable)).attributes
    {'valid_max': None, 'units': 'K'}
    """
    found = {str(name): value for name, value in variable.attrs.items()}
    if any(name in variable.encoding for name in SCALED):
        found.update(dict.fromkeys(found.keys() & set(VALID)))
    return Annotations(found)
