"""Elements of like length together: the order of ``batches(bucket=…)``.

The elements, sorted by bucket and within each in an order of its own, are cut into batches from end
to end; an epoch visits these batches in a random order. So every element comes once, all batches
but the last are full, and only where one bucket ends and the next begins a batch has both.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from oocdata.blocks import BlockIds
from oocdata.errors import ArgumentError
from oocdata.order.lanes import Walk, walk_of
from oocdata.order.order import Order, check_epoch, check_places
from oocdata.order.permutation import epoch_key, forward

__all__ = ["Bucketed"]

Ints = NDArray[np.int64]

_MOST_EPOCHS = 2
"""Whose walks are remembered: while one ends, the next is read ahead."""


@dataclass(frozen=True, eq=False)
class Bucketed:
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
    _walks: dict[tuple[int, int], list[Walk]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        """Check that the parts fit together."""
        if len(self.orders) != self.blocks.number(self.blocks.count) or self.batch_size < 1:
            raise ArgumentError(
                "`orders` must be one for each bucket, and `batch_size` at least 1; got "
                f"{len(self.orders)} orders and {self.batch_size}."
            )

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "_walks": {}}

    @property
    def nbytes(self) -> int:
        """Bytes of the tables: the bucket of each position, and the positions sorted by it."""
        return self.blocks.nbytes

    def positions(
        self, count: int, start: int, stop: int, *, seed: int, epoch: int
    ) -> NDArray[np.int64]:
        """Return the positions at a range of places; see `oocdata.order.Order.positions`."""
        count, start, stop = check_places(count, start, stop)
        seed, epoch = check_epoch(seed, epoch)
        if count != self.blocks.count:
            raise ArgumentError(
                f"`count` must be the {self.blocks.count} positions whose bucket is known; got "
                f"{count}."
            )
        slots = self._slots(np.arange(start, stop), seed, epoch)
        begins = self.blocks.starts(np.arange(len(self.orders) + 1))
        buckets = np.searchsorted(begins, slots, side="right") - 1
        walks = self._walks_of(begins, seed, epoch)
        for bucket in np.unique(buckets).tolist():
            own = np.flatnonzero(buckets == bucket)
            slots[own] = begins[bucket] + walks[bucket].at(slots[own] - begins[bucket])
        return self.blocks.positions(slots)

    def _slots(self, places: Ints, seed: int, epoch: int) -> Ints:
        """Return where places lie among the elements as they are sorted by bucket."""
        full, rest = divmod(self.blocks.count, self.batch_size)
        batches, within = np.divmod(places, self.batch_size)
        short = full  # the batches before which the short one is cut out
        if self.shuffled and full:
            short = int(epoch_key(seed, epoch, "short batch")[0]) % (full + 1)
            whole = batches < full
            key = epoch_key(seed, epoch, "batches")
            batches[whole] = forward(batches[whole].view(np.uint64), full, key).view(np.int64)
            batches[~whole] = short
            within[whole & (batches >= short)] += rest
        return batches * self.batch_size + within

    def _walks_of(self, begins: Ints, seed: int, epoch: int) -> list[Walk]:
        """Return an epoch of each bucket's order."""
        found = self._walks.get((seed, epoch))
        if found is None:
            counts = np.diff(begins).tolist()
            # Buckets of one length are not shuffled alike.
            found = [
                walk_of(order, count, seed + (bucket << 64), epoch)
                for bucket, (order, count) in enumerate(zip(self.orders, counts, strict=True))
            ]
            self._walks[seed, epoch] = found
            for old in list(self._walks)[:-_MOST_EPOCHS]:
                self._walks.pop(old, None)
        return found
