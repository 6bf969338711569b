"""Read boxes through scratch memory, and copy arrays between orders of axes in small blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from math import gcd, prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from oocdata.box import Extent, Ints
from oocdata.engines.buffers import scratch_memory
from oocdata.engines.source import Source

_SCRATCH_BYTES = 4 << 20

_BLOCK_BYTES = 256 << 10
"""Bytes copied at a time where the order of axes changes. NumPy follows the order of `out`: 13
frames out of (384, 384, 49) took 13 passes over all bytes, three times as long."""

_LEAST_BYTES = 32 << 10
"""Size of the processor's first-level cache, below which any order of copying is fast."""

_FAR, _MANY, _LINE = 512, 16, 64
"""Numbers whose addresses differ by a multiple of `_FAR` bytes share few sets of that cache, each
of fewer than `_MANY` lines. So they are first copied to memory padded by a line of `_LINE` bytes.
Frames of 4 KiB with time as the last axis (PDEBench's advection) take 1 / 2 of the processor time.
"""

_NARROW = 4
"""Runs of at most so many numbers are copied number by number, each by one call for all runs. Two
of the three channels of pictures of 48 KB take 1 / 4 of the processor time."""

_LARGEST_UNIT = 16
"""Adjacent numbers of up to so many bytes in all are copied as one. The Well's 8 channels of 4
fields take 1 / 1.2 of the processor time."""

_APART_BYTES = 1 << 20
"""Bytes copied at a time by way of such padded memory."""


def all_values(source: Source) -> list[Any]:
    """Return all values of a source as Python objects, with texts as ``str``."""
    values = read_all(source).tolist()
    return [value.decode() if isinstance(value, bytes) else value for value in values]


def read_all(source: Source) -> NDArray[Any]:
    """Read a source as one array."""
    found: NDArray[Any] = np.empty(source.shape, source.dtype)
    source.read(np.zeros((1, found.ndim), np.int64), Extent.of(source.shape), found[None])
    return found


def read_to(
    source: Source, origins: Ints, extent: Extent, out: NDArray[Any], places: Ints | None
) -> None:
    """Write ``out[places[i]] = the box at origins[i]``; `places` ascend; None: all in order.

    Sources that can write boxes to any positions have a method `read_to`, which saves a copy:
    shuffled rows of 64 KB in uncompressed chunks of 8 files take 1 / 1.5 of the processor time.
    """
    if places is None:
        source.read(origins, extent, out)
        return
    if out.size == 0 or len(places) == 0:
        return
    first, last = int(places[0]), int(places[-1]) + 1
    if last - first == len(places):
        source.read(origins, extent, out[first:last])
    elif method := getattr(source, "read_to", None):
        method(origins, extent, out, places)
    else:
        for batch, boxes in read_through(source, origins, extent, out.dtype, _SCRATCH_BYTES):
            out[places[batch]] = boxes


def read_through(
    source: Source, origins: Ints, extent: Extent, dtype: DTypeLike, nbytes: int
) -> Iterator[tuple[slice, NDArray[Any]]]:
    """Read boxes a few at a time into reused memory; yield a slice of their numbers, and the boxes.

    The boxes are not empty, and are read as `dtype`. The memory has `nbytes`, or the size of one
    box if that is larger.
    """
    box_dtype, count = np.dtype(dtype), len(origins)
    at_once = max(1, min(count, nbytes // (extent.size * box_dtype.itemsize)))
    scratch = scratch_memory((at_once, *extent.lengths), box_dtype)
    for start in range(0, count, at_once):
        batch = slice(start, min(start + at_once, count))
        boxes = scratch[: batch.stop - start]
        source.read(origins[batch], extent, boxes)
        yield batch, boxes


def copy_boxes(arrays: NDArray[Any], origins: Ints, extent: Extent, out: NDArray[Any]) -> None:
    """Write ``out[i] = the box at origins[i] of arrays[i]``, for at least one box."""
    same_origin = bool((origins == origins[0]).all())
    for number in range(1 if same_origin else len(origins)):
        which = slice(None) if same_origin else slice(number, number + 1)
        steps = zip(origins[number].tolist(), extent.spans, extent.strides, strict=True)
        cut = (slice(first, first + span, stride) for first, span, stride in steps)
        out[which] = arrays[(which, *cut)]


def copy_reordered(array: NDArray[Any], out: NDArray[Any]) -> None:
    """Write ``out[...] = array``, in blocks that stay in cache if the order of axes differs.

    Both may have any strides; they share no memory.
    """
    if array.nbytes <= _LEAST_BYTES:
        out[...] = array
        return
    if _fastest(array) == (fast := _fastest(out)):
        axes = _run_axes(array, out)
        if prod(array.shape[axis] for axis in axes) <= _NARROW * _LARGEST_UNIT:
            runs, target = _as_units(_runs_last(array, axes), _runs_last(out, axes))
            if runs.shape[-1] <= _NARROW:
                for number in range(runs.shape[-1]):
                    target[..., number] = runs[..., number]
                return
        out[...] = array
        return
    collides = array.strides[fast] % _FAR == 0 and array.shape[fast] >= _MANY
    # Cut along axes of large strides in both arrays; else two blocks would share cache lines.
    steps = [min(abs(a), abs(b)) for a, b in zip(array.strides, out.strides, strict=True)]
    nbytes = _APART_BYTES if collides else _BLOCK_BYTES
    for block in blocks(array.shape, steps, max(1, nbytes // array.itemsize)):
        out[block] = _copy_padded(array[block], fast) if collides else array[block]


def _copy_padded(array: NDArray[Any], axis: int) -> NDArray[Any]:
    """Return a copy with the same order of axes, and a gap between positions along one axis.

    >>> _copy_padded(np.zeros((3, 4, 128), "f4"), 1).strides
    (2304, 576, 4)
    """
    order = sorted(range(array.ndim), key=lambda at: -abs(array.strides[at]))
    ordered = array.transpose(order)
    outer = ordered.shape[: order.index(axis) + 1]
    inner = prod(ordered.shape[len(outer) :])
    padded = scratch_memory((*outer, inner + -(-_LINE // array.itemsize)), array.dtype)
    copied = padded[..., :inner].reshape(ordered.shape)
    copied[...] = ordered
    return copied.transpose(np.argsort(order))


def blocks(lengths: Sequence[int], steps: Sequence[int], most: int) -> Iterator[tuple[slice, ...]]:
    """Yield blocks of at most `most` numbers; halves an array along the axis of the largest steps.

    >>> list(blocks((5, 4), (1, 8), 10))
    [(slice(0, 5, None), slice(0, 2, None)), (slice(0, 5, None), slice(2, 4, None))]
    """
    block = list(lengths)
    while prod(block) > most:
        divisible = (axis for axis, length in enumerate(block) if length > 1)
        axis = max(divisible, key=lambda axis: (steps[axis], block[axis]))
        block[axis] = -(-block[axis] // 2)
    pairs = zip(lengths, block, strict=True)
    yield from product(
        *[[slice(at, min(at + n, end)) for at in range(0, end, n)] for end, n in pairs]
    )


def _runs_last(array: NDArray[Any], axes: list[int]) -> NDArray[Any]:
    """View an array with its runs along the given axes, fastest first, as the last axis."""
    others = [axis for axis in range(array.ndim) if axis not in axes]
    runs = array.transpose(*others, *axes[::-1])
    return runs.reshape(*runs.shape[: len(others)], -1)


def _as_units(*arrays: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """View arrays of equal shape and dtype with several adjacent numbers of the last axis as one.

    >>> channels = np.zeros((5, 8), "f4")
    >>> [view.shape for view in _as_units(np.zeros((5, 4), "f4"), channels[:, 2:6])]
    [(5, 2), (5, 2)]
    """
    itemsize = arrays[0].itemsize
    if any(each.dtype != arrays[0].dtype or each.strides[-1] != itemsize for each in arrays):
        return arrays
    steps = (step for each in arrays for step in (each.ctypes.data, *each.strides[:-1]))
    unit = gcd(_LARGEST_UNIT, itemsize * arrays[0].shape[-1], *steps)
    dtype = np.dtype("c16" if unit == _LARGEST_UNIT else f"u{unit}")
    return tuple(each.view(dtype) for each in arrays) if unit > itemsize else arrays


def _run_axes(array: NDArray[Any], out: NDArray[Any]) -> list[int]:
    """Return the axes, from the fastest, along which both arrays are runs of one stride.

    >>> frames = np.zeros((5, 4, 2, 3))
    >>> _run_axes(frames, np.zeros((5, 6, 2, 3))[:, 1:5])
    [3, 2, 1]
    >>> _run_axes(frames, np.zeros((5, 4, 2, 4))[..., 1:])
    [3]
    """
    axes = [axis for axis, length in enumerate(array.shape) if length > 1]
    axes.sort(key=lambda axis: abs(out.strides[axis]))
    for number, (inner, axis) in enumerate(pairwise(axes), 1):
        both = ((each.strides[axis], each.strides[inner]) for each in (array, out))
        if any(outer != stride * array.shape[inner] for outer, stride in both):
            return axes[:number]
    return axes


def _fastest(array: NDArray[Any]) -> int:
    """Return the axis of the smallest stride; 0 for a single number."""
    axes = (axis for axis, length in enumerate(array.shape) if length > 1)
    return min(axes, key=lambda axis: abs(array.strides[axis]), default=0)
