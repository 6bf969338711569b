"""Plan which runs of bytes a box takes in a file, and their addresses in memory. Reads nothing."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent, Ints

if TYPE_CHECKING:
    from oocdata.engines.strided import ChunkOffsets

_HOLE = 512
"""Holes between two runs, in bytes, that cost less to read over than another request, however short
the runs: one of 10 channels of 4 bytes takes 1 / 80 of the processor's time by NumPy iteration."""

_LARGEST_HOLE = 4096
"""Holes up to the length of their runs are read over if they are at most this long. Above, half of
the bytes would be read for nothing: windows of every second frame of 60 KB took 2.1 times as long.
"""

_SCRATCH_BYTES = 2 << 20
"""Boxes that are rearranged or converted pass through scratch memory of this size, in cache."""

_MOST_PLANS = 64
"""Plans that are cached; arrays of equal layout share them."""

_MOST_RUNS = 1 << 16
_MOST_BYTES = 128 << 20
"""Limits of one read, so that tables stay small and Ctrl-C ends long reads soon."""


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Plan to read boxes of one extent into memory of certain strides.

    Attributes
    ----------
    direct : bool
        Whether runs are read into the caller's memory. Otherwise they are read into scratch memory,
        where a box has `nbytes` bytes and `strides`.
    boxes : int
        Boxes read at a time.
    nbytes : int
        Bytes of a box in memory.
    run : int
        Bytes of each run.
    file_offsets, memory_offsets : ndarray of int64, shape (runs,)
        Offsets of the runs from the first number of the box.
    strides : tuple of int
        Strides of a box in memory, in bytes.
    slabs : (int, int) or None
        Axis along which a box is cut, and length of the slabs, if it is too large for one read.
    inner : tuple of int
        Axes from the fastest in storage to the slowest, without those of length 1.
    """

    direct: bool
    boxes: int
    nbytes: int
    run: int
    file_offsets: Ints
    memory_offsets: Ints
    strides: tuple[int, ...]
    slabs: tuple[int, int] | None
    inner: tuple[int, ...]

    def runs(
        self,
        origins: Ints,
        extent: Extent,
        steps: Ints,
        addresses: Ints,
        chunks: ChunkOffsets | None = None,
    ) -> tuple[Ints, Ints, Ints | int, Ints | None]:
        """Return the runs of bytes of boxes.

        Parameters
        ----------
        origins : ndarray of int64, shape (n, N)
        extent : Extent
        steps : ndarray of int64, shape (N,)
            Strides of the array in the file, in bytes, within a chunk.
        addresses : ndarray of int64, shape (n,)
            Address of each box in memory.
        chunks : ChunkOffsets, optional

        Returns
        -------
        starts, addresses : ndarray of int64, shape (runs,)
            Offsets from the first byte of the array in the file, and addresses in memory.
        lengths : ndarray of int64 or int
        boxes : ndarray of int64, shape (runs,), or None
            Box of each run; None if all boxes have the same number of runs, in order.
        """
        if chunks is None:
            starts: Ints = origins.dot(steps)
        else:
            shape = np.array(chunks.chunk_shape)
            crossing = (origins % shape + extent.spans > shape).any(axis=0)
            if crossing.any():
                return self._split(chunks, shape, crossing, origins, extent, steps, addresses)
            starts = _offsets_in_chunks(chunks, origins, shape, steps)
        if self.file_offsets.size > 1:
            starts = (starts[:, None] + self.file_offsets).ravel()
            addresses = (addresses[:, None] + self.memory_offsets).ravel()
        return starts, addresses, self.run, None

    def _split(
        self,
        chunks: ChunkOffsets,
        shape: Ints,
        crossing: NDArray[np.bool_],
        origins: Ints,
        extent: Extent,
        steps: Ints,
        addresses: Ints,
    ) -> tuple[Ints, Ints, Ints | int, Ints]:
        """Return the runs of boxes some of which cross chunks; see `runs`.

        Along the fast axis, a run that crosses is cut at the border; along other axes, boxes are
        cut into points, which are separate runs anyway.
        """
        itemsize = self.nbytes // extent.size
        run, cut, outer = itemsize, -1, list(self.inner)
        while outer and cut < 0:
            axis = outer[0]
            stride = extent.strides[axis]
            if steps[axis] * stride != run or self.strides[axis] != run:
                break
            if crossing[axis] and stride > 1:
                break
            run *= extent.lengths[axis]
            cut = axis if crossing[axis] else -1
            outer.pop(0)
        boxes: Ints = np.arange(len(origins))
        # Slowest in storage first, so that adjacent runs are joined.
        for axis in reversed(outer):
            count = extent.lengths[axis]
            along = np.arange(count)
            addresses = (addresses[:, None] + along * self.strides[axis]).ravel()
            boxes, origins = np.repeat(boxes, count), np.repeat(origins, count, axis=0)
            origins[:, axis] += np.tile(along * extent.strides[axis], len(origins) // count)
        lengths: Ints | int = run
        if cut >= 0:
            count, chunk = extent.lengths[cut], int(shape[cut])
            unit = run // count
            first = origins[:, cut, None]
            border = (first // chunk + np.arange((count - 2) // chunk + 2)) * chunk
            low, high = np.maximum(first, border), np.minimum(first + count, border + chunk)
            inside = high > low
            at = inside.nonzero()[0]
            addresses = addresses[at] + ((low - first) * unit)[inside]
            boxes, origins, lengths = boxes[at], origins[at], ((high - low) * unit)[inside]
            origins[:, cut] = low[inside]
        return _offsets_in_chunks(chunks, origins, shape, steps), addresses, lengths, boxes


def _offsets_in_chunks(chunks: ChunkOffsets, origins: Ints, shape: Ints, steps: Ints) -> Ints:
    """Return the byte offsets in the file of positions of an array that is stored in chunks."""
    numbers, within = np.divmod(origins, shape)
    offsets: Ints = chunks.offsets(numbers) + within.dot(steps)
    return offsets


@lru_cache(_MOST_PLANS)
def plan_box(
    lengths: tuple[int, ...],
    strides: tuple[int, ...],
    file_strides: tuple[int, ...],
    itemsize: int,
    memory: tuple[int, ...] | None,
    *,
    holes: bool = True,
) -> Plan:
    """Return the plan to read a box.

    Parameters
    ----------
    lengths, strides : tuple of int
        Of the box, all at least 1.
    file_strides : tuple of int
        Strides of the array in the file, in bytes, at least 0.
    itemsize : int
        Bytes of one number.
    memory : tuple of int or None
        Strides of the caller's memory, in bytes; None if its dtype differs.
    holes : bool
        Whether small holes between runs may be read too.

    Examples
    --------
    >>> plan = plan_box((2, 3), (1, 1), (4000, 4), 4, (12, 4))
    >>> plan.direct, plan.run, plan.file_offsets.tolist(), plan.memory_offsets.tolist()
    (True, 12, [0, 4000], [0, 12])
    """
    size = prod(lengths) * itemsize
    steps = [stride * step for stride, step in zip(strides, file_strides, strict=True)]
    axes = [axis for axis, length in enumerate(lengths) if length > 1]
    axes.sort(key=lambda axis: steps[axis])
    # Join axes into runs in the file, with small holes.
    run = itemsize  # bytes of a run
    dense, inside = True, [0] * len(lengths)
    joined = 0
    for axis in axes:
        step, length = steps[axis], lengths[axis]
        hole = step - run
        if hole and not (holes and 0 < hole <= max(min(run, _LARGEST_HOLE), _HOLE)):
            break
        dense, inside[axis] = dense and not hole, step
        run, joined = run + (length - 1) * step, joined + 1
    outer = axes[joined:]
    direct = (
        memory is not None and dense and all(memory[axis] == steps[axis] for axis in axes[:joined])
    )
    nbytes = run
    for axis in outer:
        inside[axis] = nbytes
        nbytes *= lengths[axis]
    in_memory = tuple(inside)
    if direct and memory is not None:
        in_memory, nbytes = memory, size
    from_file, from_memory = [steps[axis] for axis in outer], [in_memory[axis] for axis in outer]
    slabs = None
    runs = prod(lengths[axis] for axis in outer)
    most = _MOST_BYTES if direct else _SCRATCH_BYTES
    excess = max(runs / _MOST_RUNS, 0 if direct else nbytes / most)
    if excess > 1 and axes:
        axis = axes[-1]
        slabs = axis, max(1, int(lengths[axis] / excess))
        outer = from_file = from_memory = []  # the slabs have tables of their own
    return Plan(
        direct,
        max(1, min(most // nbytes, _MOST_RUNS // runs)),
        nbytes,
        run,
        _offsets(outer, lengths, from_file),
        _offsets(outer, lengths, from_memory),
        in_memory,
        slabs,
        tuple(axes),
    )


def _offsets(axes: list[int], lengths: tuple[int, ...], steps: list[Any]) -> Ints:
    """Return the offset of every position along some axes, the last axis slowest."""
    offsets = np.zeros(1, np.int64)
    for axis, step in zip(axes, steps, strict=True):
        offsets = (np.arange(lengths[axis])[:, None] * step + offsets).ravel()
    return offsets
