"""One epoch of a `BlockShuffle`: when each block is visited, and which places its window takes up.

Three coordinates are involved. A *place* counts within the epoch. A *visit* counts blocks in the
order in which they are visited. A *slot* counts positions along the visited blocks laid end to
end: the places of a window are a permutation of the slots of the same range.

Were all blocks of full length, the window of a place and the visit of a slot would be one division
away. At most two blocks, the first and the last, are short. So both divisions are made in full
coordinates, as if no block were short, and what the short ones lack is added to everything that
comes after them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from oocdata.order.permutation import Keys, derive_keys, epoch_key, forward, inverse

__all__ = ["Visits", "visits_of_epoch"]


@dataclass(frozen=True, slots=True, eq=False)
class Visits:
    """The visits of one epoch.

    Parameters
    ----------
    count : int
        Number of positions, from 1 to ``2**62``.
    block, first : int
        Positions in a full block, and in the first one; at most ``count``.
    blocks : int
        Number of blocks.
    window : int
        Blocks in a full window, at most ``blocks``.
    block_key, window_key : ndarray of uint64, shape (1,)
        Keys of the order of the blocks, and of the orders within the windows.
    short : tuple of (int, int)
        Visits of the blocks that are short, ascending, each with the positions that it lacks.

    Examples
    --------
    >>> visits = visits_of_epoch(10, block=4, first=4, window=2, seed=7, epoch=0)
    >>> visits.blocks, [visits.window_bounds(window) for window in range(2)]
    (3, [(0, 8), (8, 10)])
    """

    count: int
    block: int
    first: int
    blocks: int
    window: int
    block_key: Keys
    window_key: Keys
    short: tuple[tuple[int, int], ...]

    def window_bounds(self, window: int) -> tuple[int, int]:
        """Range of the places, and of the slots, of a window."""
        return self._slot_of(window * self.window), self._slot_of((window + 1) * self.window)

    def window_at(self, place: int) -> int:
        """Window that a place lies in."""
        full = place
        for visit, lack in self.short:
            # Everything after the window of a short block has moved up by what the block lacks.
            if place >= self._slot_of((visit // self.window + 1) * self.window):
                full += lack
        return full // (self.window * self.block)

    def blocks_at(self, start: int, stop: int) -> NDArray[np.int64]:
        """Blocks visited at visits ``start`` to ``stop - 1``."""
        visits = np.arange(start, min(stop, self.blocks), dtype=np.uint64)
        return forward(visits, self.blocks, self.block_key).view(np.int64)

    def starts_of(self, blocks: NDArray[np.int64]) -> NDArray[np.int64]:
        """First positions of blocks."""
        starts = blocks * self.block
        starts -= self.block - self.first
        return np.maximum(starts, 0, out=starts)

    def positions(self, start: int, stop: int) -> NDArray[np.int64]:
        """Positions visited at places ``start`` to ``stop - 1``; at least one place."""
        slots = np.empty(stop - start, dtype=np.uint64)
        for part_start, part_stop, window in self._parts(start, stop):
            part = slots[part_start - start : part_stop - start]
            self._fill_slots(part, part_start, window)
        full = slots.copy()
        missing = 0
        for visit, lack in self.short:
            missing += lack
            end = (visit + 1) * self.block - missing
            full += (slots >= np.uint64(end)) * np.uint64(lack)
        visits = full // np.uint64(self.block)
        full -= visits * np.uint64(self.block)
        positions = self._starts_at(visits, self.window_at(start), self.window_at(stop - 1))
        positions += full.view(np.int64)
        return positions

    def _slot_of(self, visit: int) -> int:
        """First slot of a visit; of those beyond the last, the count."""
        lacking = sum(lack for short, lack in self.short if short < visit)
        return min(visit * self.block - lacking, self.count)

    def _parts(self, start: int, stop: int) -> Iterator[tuple[int, int, int | None]]:
        """Cut a range of places into single short windows, named, and runs of full ones."""
        last = (self.blocks - 1) // self.window
        short = {visit // self.window for visit, _ in self.short} | {last}
        for window in sorted(short):
            window_start, window_stop = self.window_bounds(window)
            if start < min(window_start, stop):
                yield start, min(window_start, stop), None
            start = max(start, window_start)
            if start < min(window_stop, stop):
                yield start, min(window_stop, stop), window
            start = max(start, window_stop)

    def _fill_slots(self, slots: NDArray[np.uint64], start: int, window: int | None) -> None:
        """Write the slots of the places from ``start`` on, which `_parts` cut out."""
        places = np.arange(start, start + slots.size, dtype=np.uint64)
        if window is not None:
            window_start, window_stop = self.window_bounds(window)
            places -= np.uint64(window_start)
            key = derive_keys(self.window_key, np.array([window], dtype=np.uint64))
            np.add(
                forward(places, window_stop - window_start, key),
                np.uint64(window_start),
                out=slots,
            )
            return
        size = self.window * self.block
        low, high = self.window_at(start), self.window_at(start + slots.size - 1)
        # A run of full windows: from here on a window begins every `size` places.
        places -= np.uint64(self.window_bounds(low)[0])
        windows = places // np.uint64(size)
        np.multiply(windows, np.uint64(size), out=slots)
        places -= slots
        keys = derive_keys(self.window_key, np.arange(low, high + 1, dtype=np.uint64))
        if low < high:
            keys = keys[windows.view(np.int64)]
        slots += forward(places, size, keys)
        slots += np.uint64(self.window_bounds(low)[0])

    def _starts_at(self, visits: NDArray[np.uint64], low: int, high: int) -> NDArray[np.int64]:
        """First positions of the blocks at visits, which lie in windows ``low`` to ``high``."""
        start, stop = low * self.window, min((high + 1) * self.window, self.blocks)
        if stop - start > visits.size:
            blocks = forward(visits, self.blocks, self.block_key).view(np.int64)
            return self.starts_of(blocks)
        # Fewer visits than positions: permute each visit once and look it up.
        starts = self.starts_of(self.blocks_at(start, stop))
        return starts[(visits - np.uint64(start)).view(np.int64)]


# Successive calls for parts of one epoch are the rule.
@lru_cache(maxsize=64)
def visits_of_epoch(
    count: int, *, block: int, first: int, window: int, seed: int, epoch: int
) -> Visits:
    """Work out when the short blocks of an epoch are visited.

    Parameters
    ----------
    count : int
        Number of positions, at least 1.
    block, first, window : int
        As `BlockShuffle` has them, ``first`` given.
    seed, epoch : int
        As in `Order.positions`, Python integers.

    Returns
    -------
    Visits
        The epoch.
    """
    # No larger than what they cut, so that every sum in `Visits` stays within 64 bits.
    block, first = min(block, count), min(first, count)
    blocks = 1 + -(-(count - first) // block)
    block_key = epoch_key(seed, epoch, "blocks")
    lacks = {0: block - first}
    if blocks > 1:
        lacks[blocks - 1] = first + (blocks - 1) * block - count
    lacks = {number: lack for number, lack in lacks.items() if lack}
    when = inverse(np.array(list(lacks), dtype=np.uint64), blocks, block_key).tolist()
    return Visits(
        count=count,
        block=block,
        first=first,
        blocks=blocks,
        window=min(window, blocks),
        block_key=block_key,
        window_key=epoch_key(seed, epoch, "windows"),
        short=tuple(sorted(zip(when, lacks.values(), strict=True))),
    )
