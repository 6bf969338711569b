"""Boxes read a few at a time through small memory, and copies that suit the processor's cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from oocdata.box import Extent
from oocdata.engines.buffers import empty
from oocdata.engines.source import Source

__all__ = ["blocks", "copy_across", "copy_boxes", "read_through", "read_to"]

_SCRATCH_BYTES = 4 << 20

_BLOCK_BYTES = 256 << 10
"""Copied at a time where the order of axes changes. NumPy follows the order of `out`: 13 frames out
of (384, 384, 49) took 13 passes over all bytes, three times as long."""

_LEAST_BYTES = 32 << 10
"""The processor's first cache holds as many, in whatever order."""

_FAR, _MANY, _LINE = 512, 16, 64
"""Numbers a multiple of so many bytes apart share few places of that cache, each of fewer lines
than so many; so they are moved apart by a line first. Frames of 4 KiB, time moved last (PDEBench's
advection), take 1 / 2.0 of the processor's time by NumPy iteration, 1 / 1.8 through `to_tf`; of
64 KiB, four variables between one another, 1 / 1.2."""

_APART_BYTES = 1 << 20
"""Copied at a time there."""


def read_to(
    source: Source,
    origins: NDArray[np.int64],
    extent: Extent,
    out: NDArray[Any],
    places: NDArray[np.int64],
) -> None:
    """Write ``out[places[i]] = the box at origins[i]``; `places` ascend.

    Sources that write boxes wherever they go have a method `read_to`, so that none is copied once
    more.
    """
    if out.size == 0 or len(places) == 0:
        return
    first, last = int(places[0]), int(places[-1]) + 1
    if last - first == len(places):
        source.read(origins, extent, out[first:last])
    elif scattering := getattr(source, "read_to", None):
        scattering(origins, extent, out, places)
    else:
        for some, boxes in read_through(source, origins, extent, out.dtype, _SCRATCH_BYTES):
            out[places[some]] = boxes


def read_through(
    source: Source,
    origins: NDArray[np.int64],
    extent: Extent,
    dtype: DTypeLike,
    nbytes: int,
) -> Iterator[tuple[slice, NDArray[Any]]]:
    """Yield which boxes were read, and the boxes; a few at a time, in memory that is used again.

    Parameters
    ----------
    source : Source
    origins : ndarray of int64, shape (n, N)
    extent : Extent
        Of at least one number.
    dtype : dtype_like
        By which the boxes are read.
    nbytes : int
        Of the memory, unless a single box is larger.

    Examples
    --------
    >>> from oocdata.engines.memory_array import Numbers
    >>> origins = np.array([[7], [2], [5]])
    >>> for some, boxes in read_through(Numbers(9), origins, Extent.of((2,)), "i8", 32):
    ...     print(some, boxes.tolist())
    slice(0, 2, None) [[7, 8], [2, 3]]
    slice(2, 3, None) [[5, 6]]
    """
    kind, count = np.dtype(dtype), len(origins)
    few = max(1, min(count, nbytes // (extent.size * kind.itemsize)))
    scratch = empty((few, *extent.lengths), kind)
    for start in range(0, count, few):
        some = slice(start, min(start + few, count))
        boxes = scratch[: some.stop - start]
        source.read(origins[some], extent, boxes)
        yield some, boxes


def copy_boxes(
    arrays: NDArray[Any], origins: NDArray[np.int64], extent: Extent, out: NDArray[Any]
) -> None:
    """Write ``out[i] = the box at origins[i] of arrays[i]``.

    Parameters
    ----------
    arrays : ndarray, shape (n, …)
    origins : ndarray of int64, shape (n, N), n > 0
        By the axes of one array.
    extent : Extent
    out : ndarray, shape ``(n, *extent.lengths)``

    Examples
    --------
    >>> out = np.zeros((2, 2), int)
    >>> copy_boxes(np.arange(10).reshape(2, 5), np.array([[0], [2]]), Extent((2,), (2,)), out)
    >>> out.tolist()
    [[0, 2], [7, 9]]
    """
    alike = bool((origins == origins[0]).all())
    for number in range(1 if alike else len(origins)):
        some = slice(None) if alike else slice(number, number + 1)
        steps = zip(origins[number].tolist(), extent.spans, extent.strides, strict=True)
        cut = (slice(first, first + span, stride) for first, span, stride in steps)
        out[some] = arrays[(some, *cut)]


def copy_across(array: NDArray[Any], out: NDArray[Any]) -> None:
    """Write ``out[...] = array`` in blocks that stay in cache, if the axes lie in another order.

    Parameters
    ----------
    array, out : ndarray, shape (…)
        Any strides, of memory that they do not share.

    Examples
    --------
    >>> out = np.zeros((500, 400), order="F")
    >>> copy_across(np.ones((500, 400)), out)
    >>> out.all()
    np.True_
    """
    fast = _fastest(out)
    if array.nbytes <= _LEAST_BYTES or _fastest(array) == fast:
        out[...] = array
        return
    crowded = array.strides[fast] % _FAR == 0 and array.shape[fast] >= _MANY
    # Cut where neighbours are far apart in both: elsewhere two blocks would share cache lines.
    steps = [min(abs(a), abs(b)) for a, b in zip(array.strides, out.strides, strict=True)]
    most = _APART_BYTES if crowded else _BLOCK_BYTES
    for block in blocks(array.shape, steps, max(1, most // array.itemsize)):
        out[block] = _moved_apart(array[block], fast) if crowded else array[block]


def _moved_apart(array: NDArray[Any], axis: int) -> NDArray[Any]:
    """Return a copy with the axes in the same order, and a gap from place to place along one.

    Examples
    --------
    >>> _moved_apart(np.zeros((3, 4, 128), "f4"), 1).strides
    (2304, 576, 4)
    """
    order = sorted(range(array.ndim), key=lambda at: -abs(array.strides[at]))
    turned = array.transpose(order)
    outer = turned.shape[: order.index(axis) + 1]
    inner = prod(turned.shape[len(outer) :])
    spread = empty((*outer, inner + -(-_LINE // array.itemsize)), array.dtype)
    copied = spread[..., :inner].reshape(turned.shape)
    copied[...] = turned
    return copied.transpose(np.argsort(order))


def blocks(lengths: Sequence[int], steps: Sequence[int], most: int) -> Iterator[tuple[slice, ...]]:
    """Yield blocks of at most so many numbers, halved along the axis with the largest steps.

    Examples
    --------
    >>> list(blocks((5, 4), (1, 8), 10))
    [(slice(0, 5, None), slice(0, 2, None)), (slice(0, 5, None), slice(2, 4, None))]
    """
    cut = list(lengths)
    while prod(cut) > most:
        long = (axis for axis, length in enumerate(cut) if length > 1)
        axis = max(long, key=lambda axis: (steps[axis], cut[axis]))
        cut[axis] = -(-cut[axis] // 2)
    cuts = zip(lengths, cut, strict=True)
    yield from product(
        *[[slice(at, min(at + n, end)) for at in range(0, end, n)] for end, n in cuts]
    )


def _fastest(array: NDArray[Any]) -> int:
    """Return the axis along which neighbours lie closest together; 0 of a single number."""
    long = (axis for axis, length in enumerate(array.shape) if length > 1)
    return min(long, key=lambda axis: abs(array.strides[axis]), default=0)
