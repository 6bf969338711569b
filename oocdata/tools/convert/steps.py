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
from itertools import product
from math import lcm, prod

from oocdata.writers.storage import cells
from oocdata.writers.target import Box

__all__ = ["Grid", "Steps", "steps_of"]

_MOST_DECODES = 1.5
"""Decodes of a chunk, on average, up to which going through a file costs more than it saves."""


@dataclass(frozen=True, slots=True)
class Grid:
    """An array of some shape cut into boxes of `step`; those at its end are shorter.

    Examples
    --------
    >>> [box[0] for box in Grid((10, 2), (4, 2)).boxes()]
    [slice(0, 4, None), slice(4, 8, None), slice(8, 10, None)]
    """

    shape: tuple[int, ...]
    step: tuple[int, ...]

    def boxes(self) -> Iterator[Box]:
        """Yield the boxes in C order."""
        return cells(tuple(slice(0, length) for length in self.shape), self.step)

    def pieces(self, box: Box) -> Iterator[Box]:
        """Yield the parts of a box that lie in one box of the grid each, in C order."""
        axes = []
        for part, step in zip(box, self.step, strict=True):
            starts = range(part.start // step * step, part.stop, step)
            axes.append([slice(max(at, part.start), min(at + step, part.stop)) for at in starts])
        return product(*axes)

    @property
    def count(self) -> int:
        """The number of boxes."""
        return prod(-(-length // step) for step, length in zip(self.step, self.shape, strict=True))

    @property
    def most(self) -> int:
        """Elements of the largest box."""
        return prod(map(min, self.step, self.shape))


@dataclass(frozen=True, slots=True)
class Steps:
    """How an array goes from one storage to the other."""

    blocks: Grid
    """What is written at a time."""
    tiles: Grid | None
    """What is read at a time where the array goes through a file; None: the blocks."""
    decodes: float
    """How often a stored chunk is decoded, on average."""


def steps_of(
    shape: Sequence[int], itemsize: int, chunk: Sequence[int], unit: Sequence[int], nbytes: int
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
    block = _grown(unit, full, nbytes // itemsize)
    together = lcm(chunk[0], unit[0])
    if block[0] > together:  # borders of the blocks are borders of chunks
        block = (block[0] // together * together, *block[1:])
    decodes = prod(map(_decodes, full, chunk, block))
    if decodes <= _MOST_DECODES:
        return Steps(Grid(full, block), None, decodes)
    return Steps(Grid(full, block), Grid(full, _grown(chunk, full, nbytes // itemsize)), 1.0)


def _grown(unit: Sequence[int], shape: Sequence[int], elements: int) -> tuple[int, ...]:
    """Return whole units together, along the last axis first, up to so many elements."""
    box = list(map(min, unit, shape))
    for axis in range(len(box) - 1, -1, -1):
        others = prod(box) // box[axis]
        times = min(-(-shape[axis] // unit[axis]), max(1, elements // max(1, others * unit[axis])))
        box[axis] = max(box[axis], unit[axis] * times)
    return tuple(box)


def _decodes(length: int, chunk: int, block: int) -> float:
    """Return how many blocks touch a chunk along an axis, on average."""
    touched = sum(
        (min(start + block, length) - 1) // chunk - start // chunk + 1
        for start in range(0, length, block)
    )
    return touched / -(-length // chunk)
