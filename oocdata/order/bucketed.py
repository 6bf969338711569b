"""Batch elements of similar length together: the order of ``batches(bucket=…)``.

The elements, sorted by bucket and within each bucket in an order of its own, are cut into batches;
an epoch visits these batches in random order. So every element comes once, all batches but the last
are full, and a batch has elements of two buckets only where one bucket ends and the next begins.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oocdata.blocks import BlockTable
from oocdata.box import Ints, groups_of
from oocdata.order.order import EpochOrder, Order
from oocdata.order.permutation import epoch_key, forward


@dataclass(frozen=True, eq=False)
class Bucketed(Order):
    """Batches of elements of one bucket, in random order if `shuffled`, or by bucket.

    `blocks` has the bucket of each position, `orders` an order within each bucket that has
    positions.
    """

    blocks: BlockTable
    orders: tuple[Order, ...]
    batch_size: int
    shuffled: bool

    @property
    def nbytes(self) -> int:
        return self.blocks.nbytes

    def epoch_order(self, count: int, seed: int, epoch: int) -> EpochOrder:
        self._check_count(count, self.blocks.count, "positions whose bucket is known")
        begins = self.blocks.starts(np.arange(len(self.orders) + 1))
        counts = np.diff(begins).tolist()
        # The seeds differ, so that buckets of equal length are not shuffled equally.
        orders = [
            order.epoch_order(length, seed + (bucket << 64), epoch)
            for bucket, (order, length) in enumerate(zip(self.orders, counts, strict=True))
        ]

        def at(places: Ints) -> Ints:
            slots = self._slots(places, seed, epoch)
            buckets = np.searchsorted(begins, slots, side="right") - 1
            for bucket, matching in groups_of(buckets):
                begin = begins[bucket]
                slots[matching] = begin + orders[bucket](slots[matching] - begin)
            return self.blocks.positions(slots)

        return at

    def words(self, count: int) -> str:
        words = sorted({order.words(count) for order in self.orders})
        return f"{len(self.orders)} buckets by length, each: {' or '.join(words)}"

    def _slots(self, places: Ints, seed: int, epoch: int) -> Ints:
        """Return the slots of places among the elements sorted by bucket."""
        full, rest = divmod(self.blocks.count, self.batch_size)
        batches, within = np.divmod(places, self.batch_size)
        if self.shuffled and full:
            # The short batch is cut out before this one.
            short = int(epoch_key(seed, epoch, "short batch")[0]) % (full + 1)
            whole = batches < full
            drawn = forward(batches[whole].view(np.uint64), full, epoch_key(seed, epoch, "batches"))
            batches[whole] = drawn.view(np.int64)
            batches[~whole] = short
            within[whole & (batches >= short)] += rest
        return batches * self.batch_size + within
