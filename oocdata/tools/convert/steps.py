"""In which boxes a conversion reads and writes, so that each chunk is decoded about once.

Where a run of whole rows fits into memory that is long against the stored chunks, the array is read
in such runs and written as it comes. Where it doesn't (chunks that span all rows but few columns,
Fortran order), no order of reading is good for both sides. Then it goes through a file, as in
rechunker (Abernathey and others, https://rechunker.readthedocs.io): *tiles* of whole stored chunks
are read once, and written there in pieces; *blocks* of whole chunks of the result are read from
there. Tiles and blocks both fit into memory, and their common pieces each lie in one run of bytes.
Integer arithmetic alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from math import lcm, prod

from oocdata.writers.target import Box

__all__ = ["Grid", "Steps", "steps_of"]

_MOST_DECODES = 1.5
"""Decodes of a chunk, on average, up to which going through a file costs more than it saves."""


@dataclass(frozen=True, slots=True)
class Grid:
    """An array cut into boxes; the first along the rows may be shorter.

    Attributes
    ----------
    shape, step : tuple of int
    lead : int
        Rows of the first box, if not 0.

    Examples
    --------
    >>> [box[0] for box in Grid((10, 2), (4, 2), 3).boxes()]
    [slice(0, 3, None), slice(3, 7, None), slice(7, 10, None)]
    """

    shape: tuple[int, ...]
    step: tuple[int, ...]
    lead: int = 0

    def boxes(self) -> Iterator[Box]:
        """Yield the boxes in C order."""
        return product(*(self._cells(axis) for axis in range(len(self.shape))))

    def touched(self, box: Box) -> Iterator[Box]:
        """Yield, of the boxes that touch a box, what lies in it."""
        axes = []
        for axis, part in enumerate(box):
            lead, step = (self.lead if axis == 0 else 0), self.step[axis]
            first = lead + (part.start - lead) // step * step  # may lie before the array
            bounds = range(first, part.stop, step)
            axes.append([slice(max(at, part.start), min(at + step, part.stop)) for at in bounds])
        return product(*axes)

    def count(self) -> int:
        """Return how many boxes there are."""
        return prod(len(self._cells(axis)) for axis in range(len(self.shape)))

    def _cells(self, axis: int) -> list[slice]:
        length, step = self.shape[axis], self.step[axis]
        lead = min(self.lead, length) if axis == 0 else 0
        edges = [0, *range(lead or step, length, step), length] if length else [0]
        return [slice(start, stop) for start, stop in pairwise(edges)]

    @property
    def most(self) -> int:
        """Elements of the largest box."""
        return prod(min(step, length) for step, length in zip(self.step, self.shape, strict=True))


@dataclass(frozen=True, slots=True)
class Steps:
    """How an array goes from one storage to the other.

    Attributes
    ----------
    blocks : Grid
        What is written at a time.
    tiles : Grid or None
        What is read at a time where the array goes through a file; None: the blocks.
    decodes : float
        How often a stored chunk is decoded, on average.
    """

    blocks: Grid
    tiles: Grid | None
    decodes: float


def steps_of(
    shape: Sequence[int],
    itemsize: int,
    chunk: Sequence[int],
    unit: Sequence[int],
    nbytes: int,
    *,
    lead: int = 0,
) -> Steps:
    """Return the boxes in which to read and write.

    Parameters
    ----------
    shape : sequence of int
        ``(rows, *element)``.
    itemsize : int
        Bytes of a number.
    chunk : sequence of int
        What is decoded together on the side that is read.
    unit : sequence of int
        What is written together on the other side.
    nbytes : int
        Of a block or tile, unless a unit or a chunk is larger.
    lead : int
        Rows before the first border of stored chunks.

    Examples
    --------
    Rows in chunks of some: runs of rows.

    >>> steps_of((1000, 64), 4, (10, 64), (100, 64), 100_000).blocks.step
    (300, 64)

    Each chunk a few columns of all rows: through a file.

    >>> steps = steps_of((1000, 64), 4, (1000, 2), (100, 64), 32_000)
    >>> steps.tiles.step, steps.blocks.step, steps.decodes
    ((1000, 8), (100, 64), 1.0)
    """
    full = tuple(shape)
    if not prod(full):
        return Steps(Grid(full, tuple(unit)), None, 1.0)
    axes = range(len(full) - 1, -1, -1)
    block = _grown(unit, full, nbytes // itemsize, axes)
    together = lcm(chunk[0], unit[0])
    if block[0] > together:  # borders of the blocks are borders of chunks
        block = (block[0] // together * together, *block[1:])
    blocks = Grid(full, block)
    decodes = _decodes(full, chunk, lead, block)
    if decodes <= _MOST_DECODES:
        return Steps(blocks, None, decodes)
    tile = _grown(chunk, full, nbytes // itemsize, axes)
    return Steps(blocks, Grid(full, tile, lead), 1.0)


def _grown(
    unit: Sequence[int], shape: Sequence[int], elements: int, axes: Sequence[int]
) -> tuple[int, ...]:
    """Return whole units together, along one axis after the other, up to so many elements."""
    box = [min(step, max(1, length)) for step, length in zip(unit, shape, strict=True)]
    for axis in axes:
        others = prod(box) // box[axis]
        times = min(-(-shape[axis] // unit[axis]), max(1, elements // max(1, others * unit[axis])))
        box[axis] = max(box[axis], unit[axis] * times)
    return tuple(box)


def _decodes(shape: Sequence[int], chunk: Sequence[int], lead: int, block: Sequence[int]) -> float:
    """Return how many blocks touch a chunk, on average."""
    average = 1.0
    for axis, (length, step, long) in enumerate(zip(shape, chunk, block, strict=True)):
        if length == 0:
            return 1.0
        shift = (-lead) % step if axis == 0 else 0
        touched = sum(
            (shift + min(start + long, length) - 1) // step - (shift + start) // step + 1
            for start in range(0, length, long)
        )
        average *= touched / ((shift + length - 1) // step + 1)
    return average
