"""Which positions of a dataset are stored together: all that an order knows of storage.

All kinds number the blocks, and count *slots*: positions along the blocks laid end to end in the
order of their numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["ADDRESSABLE", "AnyBlocks", "BlockIds", "BlockRuns", "Blocks", "joined"]

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Blocks:
    """Runs of positions that are stored, and decoded, together. A position is its own slot.

    Attributes
    ----------
    length : int
        Positions in a block; 1 where every element has an address of its own.
    first : int
        Positions in the first block of a stretch, which may be cut: 1 ≤ first ≤ length.
    period : int or None
        Positions in a stretch, e.g. the rows of one trajectory: each begins with a block of `first`
        positions and may end with a short one. None: all positions are one stretch.

    Examples
    --------
    >>> blocks = Blocks(4, 2, 9)
    >>> blocks.starts(np.arange(6)), blocks.of(np.arange(9))
    (array([ 0,  2,  6,  9, 11, 15]), array([0, 0, 1, 1, 1, 1, 2, 2, 2]))
    """

    length: int
    first: int
    period: int | None = None

    @property
    def each(self) -> int:
        """Blocks of a stretch, in an epoch of one stretch beyond any number."""
        return 2**62 if self.period is None else 1 - (self.first - self.period) // self.length

    def of(self, positions: Ints) -> Ints:
        """Return the number of the block that each position lies in."""
        if self.period is None:
            return (positions + (self.length - self.first)) // self.length
        stretch = positions // self.period
        within = positions - stretch * self.period
        return (within + (self.length - self.first)) // self.length + stretch * self.each

    def starts(self, numbers: Ints) -> Ints:
        """Return the first position of blocks, by their numbers."""
        stretch, place = np.divmod(numbers, self.each)
        starts: Ints = np.maximum((place - 1) * self.length + self.first, 0)
        starts += stretch * (self.period or 0)
        return starts

    def within(self, count: int) -> Blocks:
        """Return the same blocks of `count` positions, no length longer than that."""
        period = count if self.period is None else min(self.period, count)
        length, first = min(self.length, period), min(self.first, period)
        return Blocks(length, first, period if period < count else None)

    def number(self, count: int) -> int:
        """Return the number of blocks that `count` positions are cut into."""
        return int(self.within(count).of(np.array([count - 1]))[0]) + 1 if count else 0

    def positions(self, slots: Ints) -> Ints:
        """Return the positions at slots."""
        return slots


@dataclass(frozen=True, eq=False)
class BlockIds:
    """The block that each position of an irregular selection lies in.

    Blocks are numbered by their ids, ascending; slots are positions sorted by block.

    Attributes
    ----------
    ids : ndarray of int64, shape (positions,)
        Any numbers; positions of one number are stored together.

    Examples
    --------
    >>> blocks = BlockIds(np.array([7, 3, 7, 7]))
    >>> blocks.starts(np.arange(3)), blocks.positions(np.arange(4))
    (array([0, 1, 4]), array([1, 0, 2, 3]))
    """

    ids: Ints = field(repr=False)

    @property
    def count(self) -> int:
        """The positions whose blocks are known."""
        return len(self.ids)

    def __getstate__(self) -> dict[str, Ints]:
        return {"ids": self.ids}

    @cached_property
    def _sorted(self) -> tuple[NDArray[np.signedinteger], Ints]:
        """The positions sorted by block, and where each block begins among them."""
        positions = np.argsort(self.ids, kind="stable")
        borders = np.flatnonzero(np.diff(self.ids[positions])) + 1
        starts = np.concatenate(([0], borders, [len(positions)]))
        small = np.int32 if len(positions) < 2**31 else np.int64  # it is as long as the dataset
        return positions.astype(small, copy=False), starts

    def of(self, positions: Ints) -> Ints:
        """Return the id of the block that each position lies in."""
        return self.ids[positions]

    def starts(self, numbers: Ints) -> Ints:
        """Return the first slot of blocks, by their numbers; of the number after all, the count."""
        found: Ints = self._sorted[1][numbers]
        return found

    def number(self, count: int) -> int:
        """Return the number of blocks."""
        return len(self._sorted[1]) - 1

    def positions(self, slots: Ints) -> Ints:
        """Return the positions at slots."""
        found: Ints = self._sorted[0][slots].astype(np.int64, copy=False)
        return found


@dataclass(frozen=True, eq=False)
class BlockRuns:
    """Runs of positions of any lengths that are stored together. A position is its own slot.

    Attributes
    ----------
    begins : ndarray of int64, shape (blocks + 1,)
        The first position of each block, ascending from 0; and the count of all.

    Examples
    --------
    >>> blocks = BlockRuns(np.array([0, 3, 4, 9]))
    >>> blocks.number(9), blocks.of(np.array([0, 2, 3, 8]))
    (3, array([0, 0, 1, 2]))
    """

    begins: Ints = field(repr=False)

    @property
    def count(self) -> int:
        """The positions whose blocks are known."""
        return int(self.begins[-1])

    def of(self, positions: Ints) -> Ints:
        """Return the number of the block that each position lies in."""
        return np.searchsorted(self.begins, positions, side="right") - 1

    def starts(self, numbers: Ints) -> Ints:
        """Return the first position of blocks, by their numbers."""
        found: Ints = self.begins[numbers]
        return found

    def number(self, count: int) -> int:
        """Return the number of blocks."""
        return len(self.begins) - 1

    def positions(self, slots: Ints) -> Ints:
        """Return the positions at slots."""
        return slots


AnyBlocks: TypeAlias = Blocks | BlockIds | BlockRuns

ADDRESSABLE = Blocks(1, 1)
"""Every element is read by itself."""


def joined(parts: Sequence[tuple[AnyBlocks, int]]) -> AnyBlocks:
    """Return the blocks of parts laid end to end, each given with the number of its positions.

    Blocks of unlike parts are never one block. What has addresses of its own beside blocks is cut
    into runs as long as these, so that it is visited as they are.

    Examples
    --------
    >>> joined([(Blocks(4, 2), 7), (Blocks(3, 3), 6)]).begins
    array([ 0,  2,  6,  7, 10, 13])
    """
    if all(blocks == ADDRESSABLE for blocks, _ in parts):
        return ADDRESSABLE
    if len(parts) == 1:
        return parts[0][0]
    if any(isinstance(blocks, BlockIds) for blocks, _ in parts):
        found, before = [], 0
        for blocks, count in parts:
            ids = np.unique(blocks.of(np.arange(count)), return_inverse=True)[1]
            found.append(ids + before)
            before += int(ids.max()) + 1
        return BlockIds(np.concatenate(found))
    lengths = [
        -(-count // blocks.number(count)) for blocks, count in parts if blocks != ADDRESSABLE
    ]
    run = Blocks(min(lengths), min(lengths))
    begins, start = [], 0
    for blocks, count in parts:
        cut = run if blocks == ADDRESSABLE else blocks
        begins.append(cut.starts(np.arange(cut.number(count))) + start)
        start += count
    return BlockRuns(np.concatenate([*begins, [start]]))
