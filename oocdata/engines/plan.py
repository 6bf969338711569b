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

_HOLE = 1024
"""Holes of up to so many bytes cost less to read over than another request, however short the runs:
the disk delivers the same pages. One of 10 channels of 4 bytes takes 1 / 80 of the processor time;
64 × 64 patches of rows of 1024 × 1024 bytes 1 / 2.5, 1 / 1.25 of the time if nothing is cached."""

_LARGEST_HOLE = 4096
"""Holes up to the length of their runs are read over if they are at most this long: windows of
every second frame of 60 KB took 2.1 times as long when their holes were read too."""

_SCRATCH_BYTES = 2 << 20
"""Boxes that are rearranged or converted pass through scratch memory of this size, in cache."""

_MOST_PLANS = 64
"""Plans that are cached; arrays of equal layout share them."""

_MOST_RUNS = 1 << 16
_MOST_BYTES = 128 << 20
"""Limits of one read, so that tables stay small and Ctrl-C ends long reads soon."""


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Plan to read boxes of one extent into memory of certain strides."""

    direct: bool  # runs are read into the caller's memory; otherwise into scratch memory
    boxes: int  # read at a time
    nbytes: int  # of a box in memory
    run: int  # bytes of each run
    file_offsets: Ints  # of the runs, from the first number of the box
    memory_offsets: Ints
    strides: tuple[int, ...]  # of a box in memory, in bytes
    slabs: tuple[int, int] | None  # axis along which too large a box is cut, and length of a slab
    inner: tuple[int, ...]  # axes from the fastest in storage on, without those of length 1

    def runs(
        self,
        origins: Ints,
        extent: Extent,
        steps: Ints,
        addresses: Ints,
        chunks: ChunkOffsets | None = None,
    ) -> tuple[Ints, Ints, Ints | int, Ints | None]:
        """Return the runs of bytes of boxes whose memory begins at `addresses`.

        `steps` are the strides of the array in the file, in bytes, within a chunk. Returns the
        offset of each run from the first byte of the array in the file, its address in memory, its
        length in bytes, and the number of its box (None if all boxes have the same number of runs,
        in order).
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
    """Return the plan to read a box with at least one position along each axis.

    `lengths` and `strides` are those of the box, in positions. `file_strides` (at least 0) are
    those of the array in the file, and `memory` those of the caller's memory, in bytes; `memory` is
    None if its dtype differs. `holes` says whether small holes between runs may be read too.

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
