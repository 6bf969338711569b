"""Describe which positions of a dataset are stored together. Orders know nothing else of storage.

All kinds number the blocks, and define *slots*: positions along the blocks laid end to end in the
order of their numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Ints
from oocdata.threads import cached_property

__all__ = [
    "ADDRESSABLE", "AnyBlocks", "BlockIds", "BlockRuns", "Blocks", "blocks_from_ids", "join_blocks",
    "typical_length",
]  # fmt: skip

_PIECE = 1 << 16
"""Positions processed at a time, so that temporary arrays stay in the processor's cache."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """Runs of positions that are stored and decoded together. A position is its own slot.

    Attributes
    ----------
    length : int
        Positions in a block; 1 if every element has an address.
    first : int
        Positions in the first block, which may be shorter: 1 ≤ first ≤ length.

    Examples
    --------
    >>> blocks = Blocks(4, 2)
    >>> blocks.starts(np.arange(4)), blocks.of(np.arange(9)), blocks.number(9)
    (array([ 0,  2,  6, 10]), array([0, 0, 1, 1, 1, 1, 2, 2, 2]), 3)
    """

    length: int
    first: int

    def of(self, positions: Ints) -> Ints:
        """Return the number of the block of each position."""
        return (positions + (self.length - self.first)) // self.length

    def starts(self, numbers: Ints) -> Ints:
        """Return the first position of blocks, by their numbers."""
        return np.maximum((numbers - 1) * self.length + self.first, 0)

    def number(self, count: int) -> int:
        """Return the number of blocks that `count` positions are cut into."""
        return 1 - (self.first - count) // self.length if count else 0

    def positions(self, slots: Ints) -> Ints:
        """Return the positions at slots."""
        return slots

    @property
    def nbytes(self) -> int:
        """Bytes of tables: none."""
        return 0


@dataclass(frozen=True, eq=False)
class BlockIds:
    """The block of each position of an irregular selection.

    Blocks are in ascending order of their ids; slots are positions sorted by block.

    Attributes
    ----------
    ids : ndarray of int32 or int64, shape (positions,)
        Any numbers; positions with the same number are stored together.

    Examples
    --------
    >>> blocks = BlockIds(np.array([7, 3, 7, 7]))
    >>> blocks.starts(np.arange(3)), blocks.positions(np.arange(4))
    (array([0, 1, 4]), array([1, 0, 2, 3]))
    """

    ids: NDArray[np.signedinteger] = field(repr=False)

    @property
    def count(self) -> int:
        """The positions whose blocks are known."""
        return len(self.ids)

    @property
    def nbytes(self) -> int:
        """Bytes of the tables: the ids, and the positions sorted by them."""
        return self.ids.nbytes + sum(table.nbytes for table in self._sorted)

    def __getstate__(self) -> dict[str, NDArray[np.signedinteger]]:
        return {"ids": self.ids}

    @cached_property
    def _sorted(self) -> tuple[NDArray[np.signedinteger], Ints]:
        """The positions sorted by block, and where each block begins among them."""
        positions = np.argsort(self.ids, kind="stable")
        if len(positions) < 2**31:
            positions = positions.astype(np.int32)
        ordered = self.ids[positions]
        borders = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
        return positions, np.concatenate(([0], borders, [len(positions)]))

    def of(self, positions: Ints) -> Ints:
        """Return the id of the block of each position."""
        return self.ids.take(positions).astype(np.int64, copy=False)

    def starts(self, numbers: Ints) -> Ints:
        """Return the first slot of blocks, by number; for the number after the last, the count."""
        return self._sorted[1].take(numbers)

    def number(self, count: int) -> int:
        """Return the number of blocks."""
        return len(self._sorted[1]) - 1

    def positions(self, slots: Ints) -> Ints:
        """Return the positions at slots."""
        return self._sorted[0].take(slots).astype(np.int64, copy=False)


@dataclass(frozen=True, eq=False)
class BlockRuns:
    """Runs of positions of any length that are stored together. A position is its own slot.

    Attributes
    ----------
    begins : ndarray of int64, shape (blocks + 1,)
        First position of each block, ascending from 0; and the number of all positions.

    Examples
    --------
    >>> blocks = BlockRuns(np.array([0, 3, 4, 9]))
    >>> blocks.number(9), blocks.of(np.array([0, 2, 3, 8]))
    (3, array([0, 0, 1, 2]))
    """

    begins: Ints = field(repr=False)

    @property
    def count(self) -> int:
        """Number of positions."""
        return int(self.begins[-1])

    @property
    def nbytes(self) -> int:
        """Bytes of the table."""
        return self.begins.nbytes

    def of(self, positions: Ints) -> Ints:
        """Return the number of the block of each position."""
        return np.searchsorted(self.begins, positions, side="right") - 1

    def starts(self, numbers: Ints) -> Ints:
        """Return the first position of blocks, given by number."""
        return self.begins.take(numbers)

    def number(self, count: int) -> int:
        """Return the number of blocks."""
        return len(self.begins) - 1

    def positions(self, slots: Ints) -> Ints:
        """Return the positions at slots."""
        return slots


AnyBlocks: TypeAlias = Blocks | BlockIds | BlockRuns

ADDRESSABLE = Blocks(1, 1)
"""Blocks of a dataset whose elements are read separately."""


def typical_length(blocks: AnyBlocks, count: int) -> int:
    """Return the average number of positions that are stored together."""
    if isinstance(blocks, Blocks):
        return min(blocks.length, count)
    return count // blocks.number(count)


def blocks_from_ids(count: int, ids_of: Callable[[Ints], Ints]) -> BlockIds | BlockRuns:
    """Return the blocks of `count` positions, whose block ids the function returns.

    If the ids never decrease, blocks are runs, and only their first positions are stored: some
    thousand numbers for millions of windows in order. Otherwise, the id of each position is.

    Examples
    --------
    >>> blocks_from_ids(9, lambda positions: positions // 4).begins
    array([0, 4, 8, 9])
    >>> blocks_from_ids(6, lambda positions: positions % 4).ids
    array([0, 1, 2, 3, 0, 1], dtype=int32)
    """
    pieces = [range(start, min(start + _PIECE, count)) for start in range(0, count, _PIECE)]
    begins, last = [np.zeros(0, np.int64)], None
    for piece in pieces:
        ids = ids_of(np.arange(piece.start, piece.stop))
        steps = np.diff(ids, prepend=ids[0] - 1 if last is None else last)
        if (steps < 0).any():
            return BlockIds(np.concatenate([_ids(ids_of, piece) for piece in pieces]))
        begins.append(np.flatnonzero(steps) + piece.start)
        last = ids[-1]
    return BlockRuns(np.concatenate([*begins, [count]]))


def _ids(ids_of: Callable[[Ints], Ints], piece: range) -> NDArray[np.signedinteger]:
    """Return the block ids of a range of positions, as int32 if they fit."""
    ids = ids_of(np.arange(piece.start, piece.stop))
    small = ids.min() >= -(2**31) and ids.max() < 2**31
    return ids.astype(np.int32) if small else ids


def join_blocks(parts: Sequence[tuple[AnyBlocks, int]]) -> AnyBlocks:
    """Return the blocks of parts laid end to end, given with the number of their positions.

    A block never spans two parts. If only some parts have blocks, the others are cut into runs of
    the shortest block length, so that all are visited alike.

    Examples
    --------
    >>> join_blocks([(Blocks(4, 2), 7), (Blocks(3, 3), 6)]).begins
    array([ 0,  2,  6,  7, 10, 13])
    """
    if all(blocks == ADDRESSABLE for blocks, _ in parts):
        return ADDRESSABLE
    if len(parts) == 1:
        return parts[0][0]
    if any(isinstance(blocks, BlockIds) for blocks, _ in parts):
        ids_of_parts, before = [], 0
        for blocks, count in parts:
            ids = np.unique(blocks.of(np.arange(count)), return_inverse=True)[1]
            ids_of_parts.append(ids + before)
            before += int(ids.max()) + 1
        ids = np.concatenate(ids_of_parts)
        return blocks_from_ids(len(ids), lambda positions: ids[positions])
    lengths = [
        -(-count // blocks.number(count)) for blocks, count in parts if blocks != ADDRESSABLE
    ]
    run = Blocks(min(lengths), min(lengths))
    begins, start = [], 0
    for blocks, count in parts:
        runs = run if blocks == ADDRESSABLE else blocks
        begins.append(runs.starts(np.arange(runs.number(count))) + start)
        start += count
    return BlockRuns(np.concatenate([*begins, [start]]))
