"""Batches that are several arrays: sparse rows, and rows of unequal length.

Each is a value like an array of its rows, and takes the place of one in the tree of a batch. Some
of its arrays are as long as there are numbers in the batch (`rooms`), one has a fixed shape.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from oocdata.engines.buffers import empty_parts

__all__ = ["Composed", "room_for", "rooms"]

_ALIGNED = 64
"""Numbers of any dtype that take a multiple of `buffers.ALIGNMENT` bytes."""


class Composed(ABC):
    """A batch that is several arrays."""

    __slots__ = ()

    @property
    @abstractmethod
    def long(self) -> tuple[NDArray[Any], ...]:
        """The arrays that are as long as there are numbers."""

    @property
    @abstractmethod
    def fixed(self) -> NDArray[np.int64]:
        """The array by which the others are understood; of one shape for batches of one length."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def rows(self, start: int, stop: int) -> Self:
        """Return the rows of a range, copied."""


def room_for(numbers: int) -> int:
    """Return so many numbers, or a few more so that they end at an aligned place.

    Examples
    --------
    >>> room_for(3), room_for(128)
    (64, 128)
    """
    return -(-numbers // _ALIGNED) * _ALIGNED


def rooms(
    sizes: Sequence[int], inner: tuple[int, ...], dtype: DTypeLike, number: int
) -> list[NDArray[Any]]:
    """Return memory for arrays of unlike lengths, one for each batch that is read together.

    Each is the beginning of as much memory as the longest takes, so that they are tensors of one
    shape side by side. One alone has no more than it needs, because TensorFlow copies a part of a
    tensor that does not end at an aligned place.

    Parameters
    ----------
    sizes : sequence of int
    inner : tuple of int
        Shape of one place.
    dtype : dtype_like
    number : int
        Of the read; see `oocdata.engines.buffers.Pool.empty_parts`.

    Examples
    --------
    >>> [part.shape for part in rooms([3, 0, 5], (2,), "f4", 0)]
    [(3, 2), (0, 2), (5, 2)]
    """
    room = sizes[0] if len(sizes) == 1 else room_for(max(sizes, default=0))
    _, parts = empty_parts([(room, *inner)] * len(sizes), dtype, number)
    return [part[:size] for part, size in zip(parts, sizes, strict=True)]
