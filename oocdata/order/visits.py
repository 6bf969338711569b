"""Blocks in the order in which one epoch visits them, laid end to end.

A *visit* counts blocks in the order in which they are visited, a *place* positions along the
visited blocks laid end to end. Both classes go from one to the other and to slots of the blocks: in
closed form and constant memory for `Blocks`, by a table for other kinds.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from oocdata.blocks import BlockIds, BlockRuns, Blocks
from oocdata.order.permutation import epoch_key, forward

__all__ = ["RegularVisits", "TableVisits"]

Ints = NDArray[np.int64]


class RegularVisits:
    """The visits of `Blocks`, in closed form.

    Full blocks are permuted among themselves, so the lengths follow one another as they do in
    storage; but where the first or the last one is short, an epoch begins anywhere among them.

    Examples
    --------
    >>> visits = RegularVisits(Blocks(4, 2), 11, seed=8, epoch=0)
    >>> visits.places_of(np.arange(visits.number + 1)), visits.slots_of(np.arange(visits.number))
    (array([ 0,  4,  5,  7, 11]), array([ 2, 10,  0,  6]))
    """

    def __init__(self, blocks: Blocks, count: int, seed: int, epoch: int) -> None:
        self._blocks = blocks = Blocks(min(blocks.length, count), min(blocks.first, count))
        self._count = count
        self.number = number = blocks.number(count)
        self._full = range(
            int(blocks.first < blocks.length), (count - blocks.first) // blocks.length + 1
        )
        self._key = epoch_key(seed, epoch, "blocks")
        cut = len(self._full) < number
        self._begin = int(epoch_key(seed, epoch, "begin")[0]) % number if cut else 0
        self._begin_place = int(blocks.starts(np.array([self._begin]))[0])

    def places_of(self, visits: Ints) -> Ints:
        """Return the first place of each visit; of the visit after the last one, the count."""
        numbers = visits + self._begin
        around = numbers >= self.number
        numbers -= around * np.int64(self.number)
        return self._blocks.starts(numbers) - self._begin_place + around * np.int64(self._count)

    def visits_of(self, places: Ints) -> Ints:
        """Return the visit that each place belongs to."""
        slots = places + self._begin_place
        around = slots >= self._count
        slots -= around * np.int64(self._count)
        return self._blocks.of(slots) - self._begin + around * np.int64(self.number)

    def slots_of(self, visits: Ints) -> Ints:
        """Return the first slot of the block of each visit."""
        numbers, full = (visits + self._begin) % self.number, self._full
        own = np.flatnonzero((numbers >= full.start) & (numbers < full.stop))
        if len(own):
            among = (numbers[own] - full.start).view(np.uint64)
            numbers[own] = forward(among, len(full), self._key).view(np.int64) + full.start
        return self._blocks.starts(numbers)


class TableVisits:
    """The visits of `BlockIds` or `BlockRuns`: a table with one entry for each block.

    Examples
    --------
    >>> visits = TableVisits(BlockIds(np.array([7, 3, 7, 7])), seed=7, epoch=0)
    >>> visits.places_of(np.arange(3)), visits.slots_of(np.arange(2))
    (array([0, 1, 4]), array([0, 1]))
    """

    def __init__(self, blocks: BlockIds | BlockRuns, seed: int, epoch: int) -> None:
        self.number = blocks.number(blocks.count)
        numbers = np.arange(self.number, dtype=np.uint64)
        order = forward(numbers, self.number, epoch_key(seed, epoch, "blocks")).view(np.int64)
        self._slots = blocks.starts(order)
        self._places = np.concatenate(([0], np.cumsum(blocks.starts(order + 1) - self._slots)))

    def places_of(self, visits: Ints) -> Ints:
        """Return the first place of each visit."""
        return self._places[visits]

    def visits_of(self, places: Ints) -> Ints:
        """Return the visit that each place belongs to."""
        return np.searchsorted(self._places, places, side="right") - 1

    def slots_of(self, visits: Ints) -> Ints:
        """Return the first slot of the block of each visit."""
        return self._slots[visits]
