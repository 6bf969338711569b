"""Shuffle by blocks: each compressed chunk is needed within one short stretch of an epoch only.

A *visit* is the number of a block in the shuffled order of blocks; a *place* is a position along
the blocks laid end to end in that order. `RegularVisits` and `TableVisits` convert visits to
places, places to visits, and visits to slots of the blocks: in closed form and constant memory for
`Blocks`, with a table for the other kinds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from oocdata.blocks import AnyBlocks, Blocks, BlockTable
from oocdata.box import Ints
from oocdata.errors import ArgumentError
from oocdata.index import as_count
from oocdata.order.order import EpochOrder, Order
from oocdata.order.permutation import derive_keys, epoch_key, forward

MOST_LANES = 64
"""Maximum number of lanes."""


@dataclass(frozen=True, slots=True)
class BlockShuffle(Order):
    """Blocks in random order, and positions mixed within a window of several blocks.

    Each epoch visits the blocks in a different order. Laid end to end in that order, they are cut
    into equal *lanes*. In each lane, the positions of every ``blocks_mixed // lanes`` consecutive
    blocks, a window, are permuted; the windows of different lanes begin at different times. A batch
    takes the same number of positions from each lane, so it mixes ``blocks_mixed`` blocks, and a
    rank that reads some of the lanes decodes only their chunks. A block is needed from the
    beginning of its window to the end. Only blocks that a border between lanes cuts, at most
    ``lanes - 1``, are needed twice in an epoch.

    Regular blocks take no table. For irregular ones there is a table with an entry per block, or
    per position if the positions of a block are not consecutive.

    Parameters
    ----------
    blocks : int, Blocks or BlockTable
        Positions that are stored and decoded together. An int is the number of positions in each
        block.
    blocks_mixed : int
        Blocks whose positions are mixed, in all lanes together; at least one in each lane.
    lanes : int, optional
        A power of two up to 64. By default the loader chooses it to suit the batch size.

    Raises
    ------
    ArgumentError
        If an argument is out of its range.

    See Also
    --------
    oocdata.order.mixing : Compare the mixing of an order with that of a full shuffle.

    Examples
    --------
    >>> order = BlockShuffle(4, 2)
    >>> order.positions(20, 0, 20, seed=7, epoch=0)
    array([ 9, 11, 14, 12,  8, 10, 13, 15, 18, 19, 17,  5,  4, 16,  6,  7,  2,
            0,  1,  3])
    """

    blocks: AnyBlocks
    blocks_mixed: int
    lanes: int | None = None

    def __post_init__(self) -> None:
        """Check the arguments."""
        blocks: Any = self.blocks
        if not isinstance(blocks, Blocks | BlockTable):
            length = as_count("blocks", blocks)
            object.__setattr__(self, "blocks", Blocks(length, length))
        object.__setattr__(self, "blocks_mixed", as_count("blocks_mixed", self.blocks_mixed))
        if self.lanes is not None:
            lanes = as_count("lanes", self.lanes)
            if lanes > MOST_LANES or lanes & (lanes - 1):
                raise ArgumentError(
                    f"`lanes` must be a power of two up to {MOST_LANES}; got {lanes}."
                )
            object.__setattr__(self, "lanes", lanes)

    def epoch_order(
        self, count: int, seed: int, epoch: int, borders: Ints | None = None
    ) -> EpochOrder:
        """Return the order of one epoch, with the lanes at `borders`, by default equal lanes."""
        blocks = self.blocks
        if isinstance(blocks, Blocks):
            visits: RegularVisits | TableVisits = RegularVisits(blocks, count, seed, epoch)
        else:
            self._check_count(count, blocks.count, "positions whose blocks the order knows")
            visits = TableVisits(blocks, seed, epoch)
        lanes = self.lanes or 1
        equal = [lane * count // lanes for lane in range(lanes + 1)]
        ends = np.array(equal, np.int64) if borders is None else borders
        width = max(1, min(self.blocks_mixed, visits.number) // lanes)
        # First visit of each lane's second window: staggered, so that decoding is spread.
        second = visits.visits_of(np.minimum(ends[:-1], count - 1))
        second += np.arange(lanes) * width // lanes
        key = epoch_key(seed, epoch, "windows")

        def at(places: Ints) -> Ints:
            lane = np.searchsorted(ends, places, side="right") - 1
            begin = second[lane]
            begin += (visits.visits_of(places) - begin) // width * width

            # From here on by runs of places that are in one window.
            changes = (begin[1:] != begin[:-1]) | (lane[1:] != lane[:-1])
            runs = np.concatenate(([0], np.flatnonzero(changes) + 1))
            lengths = np.diff(runs, append=len(places))
            lane, first = lane[runs], np.maximum(begin[runs], 0)
            last = np.minimum(begin[runs] + width, visits.number)
            low = np.maximum(visits.places_of(first), ends[lane])
            high = np.minimum(visits.places_of(last), ends[lane + 1])
            keys = derive_keys(key, low.view(np.uint64))
            start = np.repeat(low, lengths)
            offsets = (places - start).view(np.uint64)
            mixed = forward(offsets, (high - low).view(np.uint64), keys, lengths).view(np.int64)
            mixed += start

            visited = visits.visits_of(mixed)
            return blocks.positions(visits.slots_of(visited) - visits.places_of(visited) + mixed)

        return at

    def elements_mixed(self, count: int) -> int:
        return min(count, self.blocks_mixed * count // max(1, self.blocks.number(count)))

    def words(self, count: int) -> str:
        length = self.elements_mixed(count) // self.blocks_mixed
        return f"block shuffle, {self.blocks_mixed} blocks of {length} elements mixed"


class RegularVisits:
    """The visits of `Blocks`, in closed form.

    Full blocks are permuted among themselves, so short blocks keep their place among them; but if
    the first or last block is short, an epoch begins at a random block.
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
        wrapped = numbers >= self.number
        numbers -= wrapped * np.int64(self.number)
        return self._blocks.starts(numbers) - self._begin_place + wrapped * np.int64(self._count)

    def visits_of(self, places: Ints) -> Ints:
        """Return the visit that each place belongs to."""
        slots = places + self._begin_place
        wrapped = slots >= self._count
        slots -= wrapped * np.int64(self._count)
        return self._blocks.of(slots) - self._begin + wrapped * np.int64(self.number)

    def slots_of(self, visits: Ints) -> Ints:
        """Return the first slot of the block of each visit."""
        numbers, full = (visits + self._begin) % self.number, self._full
        permuted = np.flatnonzero((numbers >= full.start) & (numbers < full.stop))
        if len(permuted):
            among = (numbers[permuted] - full.start).view(np.uint64)
            numbers[permuted] = forward(among, len(full), self._key).view(np.int64) + full.start
        return self._blocks.starts(numbers)


class TableVisits:
    """The visits of a `BlockTable`, in a table with one entry per block."""

    def __init__(self, blocks: BlockTable, seed: int, epoch: int) -> None:
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
