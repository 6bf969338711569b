"""Elements of like length together: the order of ``batches(bucket=…)``.

The elements, sorted by bucket and within each in an order of its own, are cut into batches from end
to end; an epoch visits these batches in a random order. So every element comes once, all batches
but the last are full, and only where one bucket ends and the next begins a batch has both.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oocdata.blocks import BlockIds
from oocdata.errors import ArgumentError
from oocdata.order.order import Order, Walked, walk_of
from oocdata.order.permutation import epoch_key, forward

__all__ = ["Bucketed"]

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Bucketed(Walked):
    """Batches of elements of one bucket, in a random order or by bucket.

    Attributes
    ----------
    blocks : BlockIds
        The bucket of each position.
    orders : tuple of Order
        Of each bucket that has positions: places of its epochs.
    batch_size : int
    shuffled : bool
        Whether batches come in a random order, drawn anew each epoch.

    Examples
    --------
    >>> from oocdata.order import Sequential
    >>> blocks = BlockIds(np.array([1, 0, 1, 0, 0, 1, 1]))
    >>> order = Bucketed(blocks, (Sequential(), Sequential()), 2, shuffled=False)
    >>> order.positions(7, 0, 7, seed=0, epoch=0)
    array([1, 3, 4, 0, 2, 5, 6])
    >>> order = Bucketed(blocks, (Sequential(), Sequential()), 2, shuffled=True)
    >>> order.positions(7, 0, 7, seed=7, epoch=0)
    array([5, 6, 0, 2, 1, 3, 4])
    """

    blocks: BlockIds
    orders: tuple[Order, ...]
    batch_size: int
    shuffled: bool

    @property
    def nbytes(self) -> int:
        """Bytes of the tables: the bucket of each position, and the positions sorted by it."""
        return self.blocks.nbytes

    def walk(self, count: int, seed: int, epoch: int) -> BucketedEpoch:
        """Return one epoch, ready to be asked at any places."""
        if count != self.blocks.count:
            raise ArgumentError(
                f"`count` must be the {self.blocks.count} positions whose bucket is known; got "
                f"{count}."
            )
        return BucketedEpoch(self, seed, epoch)


class BucketedEpoch:
    """One epoch of batches by bucket."""

    def __init__(self, order: Bucketed, seed: int, epoch: int) -> None:
        self._order, blocks = order, order.blocks
        self.borders = np.array([0, blocks.count])
        self._begins = blocks.starts(np.arange(len(order.orders) + 1))
        # Buckets of one length are not shuffled alike.
        self._walks = [
            walk_of(one, count, seed + (bucket << 64), epoch)
            for bucket, (one, count) in enumerate(
                zip(order.orders, np.diff(self._begins).tolist(), strict=True)
            )
        ]
        full = blocks.count // order.batch_size
        self._key = epoch_key(seed, epoch, "batches")
        # The batches before which the short one is cut out.
        self._short = full
        if order.shuffled:
            self._short = int(epoch_key(seed, epoch, "short batch")[0]) % (full + 1)

    def at(self, places: Ints) -> Ints:
        """Return the positions at places, in any order of them, shape (n,)."""
        slots = self._slots(places)
        buckets = np.searchsorted(self._begins, slots, side="right") - 1
        for bucket in np.unique(buckets).tolist():
            own, begin = np.flatnonzero(buckets == bucket), self._begins[bucket]
            slots[own] = begin + self._walks[bucket].at(slots[own] - begin)
        return self._order.blocks.positions(slots)

    def _slots(self, places: Ints) -> Ints:
        """Return where places lie among the elements as they are sorted by bucket."""
        size = self._order.batch_size
        full, rest = divmod(self._order.blocks.count, size)
        batches, within = np.divmod(places, size)
        if self._order.shuffled and full:
            whole = batches < full
            drawn = forward(batches[whole].view(np.uint64), full, self._key)
            batches[whole] = drawn.view(np.int64)
            batches[~whole] = self._short
            within[whole & (batches >= self._short)] += rest
        return batches * size + within
