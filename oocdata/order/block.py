"""A shuffle for compressed chunks: each block is visited within one short stretch of an epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.blocks import AnyBlocks, BlockIds, BlockRuns, Blocks
from oocdata.errors import ArgumentError
from oocdata.index import as_count
from oocdata.order.order import Walk, Walked
from oocdata.order.permutation import derive_keys, epoch_key, forward
from oocdata.order.visits import RegularVisits, TableVisits

__all__ = ["MOST_LANES", "BlockShuffle"]

MOST_LANES = 64


@dataclass(frozen=True, slots=True)
class BlockShuffle(Walked):
    """Blocks in random order, positions mixed within a window of several blocks.

    Each epoch visits the blocks in an order of its own. Laid end to end, the visited blocks are
    cut into equal *lanes*. Each lane walks its own stretch; the positions of
    ``blocks_mixed // lanes`` blocks that follow one another in a lane are permuted, and lanes begin
    their windows at different times. A batch takes the same number of positions from each lane, so
    it mixes ``blocks_mixed`` blocks, and a rank that reads some of the lanes decodes only their
    chunks. A block is needed from when its window begins until it ends; only the blocks that a
    border between lanes cuts, at most ``lanes - 1``, are needed twice in an epoch.

    Regular blocks take no table; irregular ones one with an entry for each block, or for each
    position where those of a block do not follow one another.

    Parameters
    ----------
    blocks : int, Blocks, BlockIds or BlockRuns
        What storage keeps and decodes together. An int: so many positions in each block.
    blocks_mixed : int
        Blocks whose positions are mixed, in all lanes together; at least one in each lane.
    lanes : int, optional
        A power of two up to 64. By default a loader finds one that suits its batch size.

    Raises
    ------
    ArgumentError
        When an argument is out of its range.

    See Also
    --------
    oocdata.order.mixing : How well an order mixes, against a full shuffle.

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
        given: Any = self.blocks
        if not isinstance(given, Blocks | BlockIds | BlockRuns):
            length = as_count("blocks", given)
            object.__setattr__(self, "blocks", Blocks(length, length))
        object.__setattr__(self, "blocks_mixed", as_count("blocks_mixed", self.blocks_mixed))
        if self.lanes is not None:
            lanes = as_count("lanes", self.lanes)
            if lanes > MOST_LANES or lanes & (lanes - 1):
                raise ArgumentError(
                    f"`lanes` must be a power of two up to {MOST_LANES}; got {lanes}."
                )
            object.__setattr__(self, "lanes", lanes)

    def walk(
        self, count: int, seed: int, epoch: int, borders: NDArray[np.int64] | None = None
    ) -> Walk:
        """Return one epoch, ready to be asked at any places; `borders` of lanes may be given."""
        blocks = self.blocks
        if isinstance(blocks, Blocks):
            visits: RegularVisits | TableVisits = RegularVisits(blocks, count, seed, epoch)
        elif blocks.count == count:
            visits = TableVisits(blocks, seed, epoch)
        else:
            raise ArgumentError(
                f"`count` must be the {blocks.count} positions whose blocks the order knows; "
                f'got {count}. Make the order for this dataset: shuffle="block".'
            )
        ends = self.borders(count) if borders is None else borders
        lanes = len(ends) - 1
        width = max(1, min(self.blocks_mixed, visits.number) // lanes)
        # Where each lane's second window begins: not all at once, so that decoding is spread.
        second = visits.visits_of(np.minimum(ends[:-1], count - 1))
        second += np.arange(lanes) * width // lanes
        key = epoch_key(seed, epoch, "windows")

        def at(places: NDArray[np.int64]) -> NDArray[np.int64]:
            lane = np.searchsorted(ends, places, side="right") - 1
            begin = second[lane]
            begin += (visits.visits_of(places) - begin) // width * width

            # From here on by runs of places that lie in one window.
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

        return Walk(ends, at)

    def borders(self, count: int) -> NDArray[np.int64]:
        """Return where each lane begins among the places, and the count, shape (lanes + 1,)."""
        lanes = self.lanes or 1
        return np.array([lane * count // lanes for lane in range(lanes + 1)], np.int64)

    def elements_mixed(self, count: int) -> int:
        """Return how many positions are mixed at a time, on average."""
        return min(count, self.blocks_mixed * count // max(1, self.blocks.number(count)))
