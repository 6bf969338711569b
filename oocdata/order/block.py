"""A shuffle for compressed chunks: each block is visited within one short stretch of an epoch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.blocks import BlockIds, Blocks
from oocdata.errors import ArgumentError
from oocdata.index import as_count
from oocdata.order.order import check_epoch, check_places
from oocdata.order.permutation import derive_keys, epoch_key, forward
from oocdata.order.recent import Recent
from oocdata.order.visits import Groups, RegularVisits, TableVisits, Visits

__all__ = ["MOST_LANES", "BlockShuffle"]

MOST_LANES = 64


@dataclass(frozen=True)
class BlockShuffle:
    """Blocks in random order, positions mixed within a window of several blocks.

    Each epoch visits the blocks in an order of its own. Laid end to end, the visited blocks are
    cut into equal *lanes*. Each lane walks its own stretch; the positions of
    ``blocks_mixed // lanes`` blocks that follow one another in a lane are permuted, and lanes begin
    their windows at different times. A batch takes the same number of positions from each lane, so
    it mixes ``blocks_mixed`` blocks, and a rank that reads some of the lanes decodes only their
    chunks. A block is needed from when its window begins until it ends; only the blocks that a
    border between lanes cuts, at most ``lanes - 1``, are needed twice in an epoch.

    For regular blocks no table is kept, whatever the count; for irregular ones one that is as long
    as the ids.

    Parameters
    ----------
    blocks : int, Blocks or BlockIds
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

    blocks: Blocks | BlockIds
    blocks_mixed: int
    lanes: int | None = None
    # Two epochs: while one ends, the next one is read ahead.
    _epochs: Recent = field(
        default_factory=lambda: Recent(2), init=False, repr=False, compare=False
    )
    _groups: Recent = field(
        default_factory=lambda: Recent(1), init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        """Check the arguments."""
        given: Any = self.blocks
        if isinstance(given, Blocks):
            length = as_count("blocks.length", given.length)
            first = as_count("blocks.first", given.first)
            if first > length:
                raise ArgumentError(
                    f"`blocks.first` must be at most `blocks.length` ({length}); got {first}. "
                    "It is the number of positions in the first block."
                )
            period = None if given.period is None else as_count("blocks.period", given.period)
            object.__setattr__(self, "blocks", Blocks(length, first, period))
        elif not isinstance(given, BlockIds):
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

    def positions(
        self, count: int, start: int, stop: int, *, seed: int, epoch: int
    ) -> NDArray[np.int64]:
        """Return the positions at a range of places; see `Order.positions`.

        Places go through the lanes one after the other: lane l has places ``l * count // lanes``
        to ``(l + 1) * count // lanes - 1``. A loader walks all lanes side by side, by `at`.
        """
        count, start, stop = check_places(count, start, stop)
        return self.at(np.arange(start, stop), count, *check_epoch(seed, epoch))

    def at(self, places: NDArray[np.int64], count: int, seed: int, epoch: int) -> NDArray[np.int64]:
        """Return the positions at places, each in ``range(count)``; not checked.

        Parameters
        ----------
        places : ndarray of int64, shape (n,)
        count, seed, epoch : int

        Returns
        -------
        ndarray of int64, shape (n,)
        """
        if not places.size:
            return np.empty(0, np.int64)
        visits, borders = self._visits(count, seed, epoch), self.borders(count)
        lanes = len(borders) - 1
        width = max(1, min(self.blocks_mixed, visits.number) // lanes)
        # Where each lane's second window begins: not all at once, so that decoding is spread.
        second = visits.visits_of(np.minimum(borders[:-1], count - 1))
        second += np.arange(lanes) * width // lanes
        lane = np.searchsorted(borders, places, side="right") - 1
        begin = second[lane]
        begin += (visits.visits_of(places) - begin) // width * width

        # From here on by runs of places that lie in one window.
        changes = (begin[1:] != begin[:-1]) | (lane[1:] != lane[:-1])
        runs = np.concatenate(([0], np.flatnonzero(changes) + 1))
        lengths = np.diff(runs, append=len(places))
        lane, first = lane[runs], np.maximum(begin[runs], 0)
        last = np.minimum(begin[runs] + width, visits.number)
        low = np.maximum(visits.slots_of(first), borders[lane])
        high = np.minimum(visits.slots_of(last), borders[lane + 1])
        keys = derive_keys(epoch_key(seed, epoch, "windows"), low.view(np.uint64))
        start = np.repeat(low, lengths)
        offsets = (places - start).view(np.uint64)
        slots = forward(offsets, (high - low).view(np.uint64), keys, lengths).view(np.int64)
        slots += start

        visited, each = visits.visits_of(slots), last - first
        if each.sum() > len(places):
            return visits.positions(visits.begins_of(visited), slots - visits.slots_of(visited))
        # Fewer blocks than places: each is looked up once.
        table = first - (np.cumsum(each) - each)  # from a visit to its number in the table
        blocks = np.arange(each.sum()) + np.repeat(table, each)
        visited -= np.repeat(table, lengths)
        starts = visits.slots_of(blocks)[visited]
        return visits.positions(visits.begins_of(blocks)[visited], slots - starts)

    def borders(self, count: int) -> NDArray[np.int64]:
        """Return where each lane begins among the places, and the count, shape (lanes + 1,)."""
        lanes = self.lanes or 1
        return np.array([lane * count // lanes for lane in range(lanes + 1)], np.int64)

    def block_count(self, count: int) -> int:
        """Return the number of blocks that `count` positions are cut into.

        Examples
        --------
        >>> BlockShuffle(Blocks(4, 1), 2).block_count(10)
        4
        """
        return self._visits(count, 0, 0).number if count else 0

    def elements_mixed(self, count: int) -> int:
        """Return how many positions are mixed at a time, on average.

        Examples
        --------
        >>> BlockShuffle(4, 3).elements_mixed(100)
        12
        """
        blocks = self.block_count(count)
        return min(count, self.blocks_mixed * count // max(1, blocks))

    def _visits(self, count: int, seed: int, epoch: int) -> Visits:
        if isinstance(self.blocks, Blocks):
            return RegularVisits(self.blocks, count, seed, epoch)
        if len(self.blocks.ids) != count:
            raise ArgumentError(
                f"`count` must be the {len(self.blocks.ids)} positions whose blocks the order "
                f'knows; got {count}. Make the order for this dataset: shuffle="block".'
            )
        visits: Visits | None = self._epochs.get((seed, epoch))
        if visits is None:
            groups = self._groups.get(0) or Groups.of(self.blocks)
            self._groups.add(0, groups)
            visits = TableVisits(groups, seed, epoch)
            self._epochs.add((seed, epoch), visits)
        return visits
