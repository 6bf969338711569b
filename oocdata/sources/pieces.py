"""A row as runs of bytes: which bytes it takes, and how its element lies in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.index import Cut

__all__ = ["Pieces", "contiguous_strides", "cut_strides", "deliver", "pieces_of"]

_SCRATCH_BYTES = 1 << 20
"""Rows that must be rearranged or converted pass through a block of about this size, in cache."""

_SPARSE = 8
"""A row is read as one span when the span is at most this many times its bytes."""


def contiguous_strides(
    shape: tuple[int, ...], itemsize: int, *, fortran: bool = False
) -> tuple[int, ...]:
    """Return the byte strides of a contiguous array.

    Examples
    --------
    >>> contiguous_strides((10, 3, 4), 8)
    (96, 32, 8)
    >>> contiguous_strides((10, 3, 4), 8, fortran=True)
    (8, 80, 240)
    """
    strides = [0] * len(shape)
    step = itemsize
    for axis in range(len(shape)) if fortran else reversed(range(len(shape))):
        strides[axis] = step
        step *= shape[axis]
    return tuple(strides)


def cut_strides(
    offset: int, shape: tuple[int, ...], strides: tuple[int, ...], cuts: Sequence[Cut]
) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Return offset, shape and strides after cuts of the element axes.

    Examples
    --------
    >>> cut_strides(0, (9, 4, 5), (20, 5, 1), (2, range(3, 0, -1)))
    (13, (9, 3), (20, -1))
    """
    kept, steps = [shape[0]], [strides[0]]
    for cut, stride in zip(cuts, strides[1:], strict=True):
        if isinstance(cut, int):
            offset += cut * stride
        else:
            offset += cut.start * stride
            kept.append(len(cut))
            steps.append(cut.step * stride)
    return offset, tuple(kept), tuple(steps)


@dataclass(frozen=True, slots=True)
class Pieces:
    """One row as runs of bytes, and the element as it lies in them once they are read.

    Attributes
    ----------
    dense : bool
        The row is one run and is the element in C order.
    offsets : ndarray of int64, shape (pieces,)
        From the row's own offset.
    nbytes : int
        Of each piece.
    row_bytes : int
        Of all pieces: what one row takes once it is read.
    shape, strides : tuple of int
        Of the element within those bytes.
    origin : int
        Byte offset of element (0, …) within them.
    """

    dense: bool
    offsets: NDArray[np.int64]
    nbytes: int
    row_bytes: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    origin: int = 0

    @property
    def bounds(self) -> tuple[int, int]:
        """Where a row's bytes begin and end, from the row's own offset."""
        return int(self.offsets.min()), int(self.offsets.max()) + self.nbytes

    def view(self, scratch: NDArray[np.uint8], rows: int, stored: np.dtype[Any]) -> NDArray[Any]:
        """Return bytes that were read as elements, shape (rows, *shape)."""
        strides = (self.row_bytes, *self.strides)
        return np.ndarray((rows, *self.shape), stored, scratch, self.origin, strides)


@lru_cache(maxsize=256)
def pieces_of(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> Pieces:
    """Return the pieces of an element.

    Parameters
    ----------
    shape, strides : tuple of int
        Of one element; strides in bytes, of any sign.
    itemsize : int
        Bytes of one number.

    Examples
    --------
    >>> pieces = pieces_of((2, 3), (400, 4), 4)  # three numbers of each of two lines, far apart
    >>> pieces.offsets.tolist(), pieces.nbytes
    ([0, 400], 12)
    """
    nbytes = prod(shape) * itemsize
    if strides == contiguous_strides(shape, itemsize):
        return Pieces(True, np.zeros(1, np.int64), nbytes, nbytes, shape, strides)
    reach = [(length - 1) * step for length, step in zip(shape, strides, strict=True)]
    low = sum(step for step in reach if step < 0)
    span = sum(abs(step) for step in reach) + itemsize
    if span <= _SPARSE * nbytes:
        # The row with its holes and its own strides (cuts, steps, flips): one request.
        return Pieces(False, np.array([low]), span, span, shape, strides, -low)
    # Far apart: the axes that are dense in storage, innermost first, make a piece; the others,
    # places. By stride, not by axis: a Fortran row has its dense axis first.
    inner = sorted(range(len(shape)), key=lambda axis: abs(strides[axis]))
    piece, dense = itemsize, 0
    for axis in inner:
        if shape[axis] != 1 and strides[axis] != piece:
            break
        piece *= shape[axis]
        dense += 1
    offsets = np.zeros(1, np.int64)
    inside = [0] * len(shape)
    step = itemsize
    for axis in inner:
        inside[axis] = step
        step *= shape[axis]
    for axis in reversed(inner[dense:]):
        offsets = (offsets[:, None] + np.arange(shape[axis]) * strides[axis]).ravel()
    return Pieces(False, offsets, piece, nbytes, shape, tuple(inside))


def deliver(
    pieces: Pieces,
    stored: np.dtype[Any],
    rows: NDArray[np.int64],
    out: NDArray[Any],
    read: Callable[[NDArray[np.int64], Pieces, NDArray[np.uint8]], None],
) -> None:
    """Read rows into a batch: straight where storage is the batch, else through a small block.

    Parameters
    ----------
    pieces : Pieces
        Of every row.
    stored : numpy.dtype
        As stored, with its byte order.
    rows : ndarray of int64, shape (n,)
    out : ndarray, shape (n, *element)
        Of any numeric dtype.
    read : callable
        ``read(some rows, pieces, memory)`` fills one-dimensional memory with the rows' pieces.
    """
    if pieces.dense and out.dtype == stored.newbyteorder("=") and out.flags.c_contiguous:
        # Storage is the batch but for byte order: read in place.
        read(rows, pieces, out.reshape(-1).view(np.uint8))
        if not stored.isnative:
            out.byteswap(inplace=True)
        return
    count = max(1, _SCRATCH_BYTES // pieces.row_bytes)
    scratch = np.empty(min(count, len(rows)) * pieces.row_bytes, np.uint8)
    for start in range(0, len(rows), count):
        some = rows[start : start + count]
        used = scratch[: len(some) * pieces.row_bytes]
        read(some, pieces, used)
        out[start : start + count] = pieces.view(used, len(some), stored)
