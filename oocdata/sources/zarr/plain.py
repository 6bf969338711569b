"""Where the elements of a Zarr chunk lie that is nothing but elements."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from oocdata.sources.pieces import contiguous_strides

__all__ = ["PlainChunk"]


@dataclass(frozen=True, slots=True)
class PlainChunk:
    """A chunk, of its own or in a shard, that is nothing but elements.

    Attributes
    ----------
    nbytes : int
    dtype : numpy.dtype
        As stored, with its byte order.
    strides : tuple of int
        Bytes from one element to the next, for each axis of the array.
    """

    nbytes: int
    dtype: np.dtype[Any]
    strides: tuple[int, ...]

    @classmethod
    def of(cls, dtype: np.dtype[Any], chunk: tuple[int, ...], axes: tuple[int, ...]) -> PlainChunk:
        """Return the chunk whose stored axes, slowest first, are these of the array.

        Examples
        --------
        >>> PlainChunk.of(np.dtype("<f4"), (2, 3), (1, 0)).strides
        (4, 8)
        """
        stored = contiguous_strides(tuple(chunk[axis] for axis in axes), dtype.itemsize)
        strides = tuple(stored[axes.index(axis)] for axis in range(len(chunk)))
        return cls(prod(chunk) * dtype.itemsize, dtype, strides)
