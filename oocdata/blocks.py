"""Describe which positions of a dataset are stored together. Orders know nothing else of storage.

All kinds number the blocks, and define *slots*: positions along the blocks laid end to end in the
order of their numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Ints
from oocdata.stretches import sorted_positions
from oocdata.threads import cached_property

_PIECE = 1 << 16
"""Positions processed at a time, so that temporary arrays stay in the processor's cache."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """Runs of positions that are stored and decoded together. A position is its own slot.

    A run has `length` positions, 1 if every element has an address; the first run has `first`,
    which may be fewer: 1 ≤ first ≤ length.
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
class BlockTable:
    """Blocks of any length, in a table.

    `begins` is the first slot of each block, int64 of shape (blocks + 1,), ascending from 0 to the
    number of positions. `order` is the position at each slot, int32 or int64; None if a position is
    its own slot.
    """

    begins: Ints = field(repr=False)
    order: NDArray[np.signedinteger] | None = field(default=None, repr=False)

    @classmethod
    def of_ids(cls, ids: NDArray[np.signedinteger]) -> BlockTable:
        """Return the blocks of positions with equal ids, in ascending order of the ids."""
        order: Any = np.empty(len(ids), np.int32 if len(ids) < 2**31 else np.int64)
        start, borders = 0, [np.zeros(1, np.int64)]
        for positions in sorted_positions(len(ids), ids.take):
            ordered = ids[positions]
            borders.append(np.flatnonzero(ordered[1:] != ordered[:-1]) + start + 1)
            order[start : start + len(positions)] = positions
            start += len(positions)
            borders.append(np.array([start]))
        return cls(np.concatenate(borders), order)

    def __getstate__(self) -> dict[str, Any]:
        return {"begins": self.begins, "order": self.order}

    @property
    def count(self) -> int:
        """Number of positions."""
        return int(self.begins[-1])

    @property
    def nbytes(self) -> int:
        """Bytes of the tables."""
        return self.begins.nbytes + (0 if self.order is None else 2 * self.order.nbytes)

    @cached_property
    def _numbers(self) -> NDArray[np.signedinteger]:
        """Number of the block of each position, if there is an order."""
        assert self.order is not None
        numbers = np.empty_like(self.order)
        every = np.arange(len(self.begins) - 1, dtype=numbers.dtype)
        numbers[self.order] = np.repeat(every, np.diff(self.begins))
        return numbers

    def of(self, positions: Ints) -> Ints:
        """Return the number of the block of each position."""
        if self.order is None:
            return np.searchsorted(self.begins, positions, side="right") - 1
        return self._numbers.take(positions).astype(np.int64, copy=False)

    def starts(self, numbers: Ints) -> Ints:
        """Return the first slot of blocks, by number; for the number after the last, the count."""
        return self.begins.take(numbers)

    def number(self, count: int) -> int:
        """Return the number of blocks."""
        return len(self.begins) - 1

    def positions(self, slots: Ints) -> Ints:
        """Return the positions at slots."""
        return slots if self.order is None else self.order.take(slots).astype(np.int64, copy=False)


AnyBlocks: TypeAlias = Blocks | BlockTable

ADDRESSABLE = Blocks(1, 1)
"""Blocks of a dataset whose elements are read separately."""


def typical_length(blocks: AnyBlocks, count: int) -> int:
    """Return the average number of positions that are stored together."""
    if isinstance(blocks, Blocks):
        return min(blocks.length, count)
    return count // blocks.number(count)


def blocks_from_ids(count: int, ids_of: Callable[[Ints], Ints]) -> BlockTable:
    """Return the blocks of `count` positions, whose block ids the function returns.

    If the ids never decrease, only the first positions of blocks are stored: some thousand numbers
    for millions of windows in order. Otherwise, the order of all positions is.
    """
    starts = range(0, count, _PIECE)
    begins, last = [np.zeros(0, np.int64)], None
    for start in starts:
        ids = ids_of(np.arange(start, min(start + _PIECE, count)))
        steps = np.diff(ids, prepend=ids[0] - 1 if last is None else last)
        if (steps < 0).any():
            every = [ids_of(np.arange(each, min(each + _PIECE, count))) for each in starts]
            return BlockTable.of_ids(np.concatenate(every))
        begins.append(np.flatnonzero(steps) + start)
        last = ids[-1]
    return BlockTable(np.concatenate([*begins, [count]]))
