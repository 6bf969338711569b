"""Draw elements by weight: each as often as its weight says, to within one, in every epoch.

Systematic sampling [1]_: an epoch of n draws from n elements takes the points ``(j + u) / n``, j
from 0 to n - 1, of the cumulative weights, with one random u for the epoch. Consecutive draws are
neighbours in storage: a shuffle of the draws by blocks decodes each chunk once, as without weights.
Evenly spaced points may all fall on one class of several that alternate. So the elements of a block
are in random order in the cumulative sum; without blocks all elements are, sorted by weight.

References
----------
.. [1] W. G. Madow, "On the theory of systematic sampling, II", Annals of Mathematical Statistics
   20, 1949, doi:10.1214/aoms/1177729988.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.blocks import AnyBlocks, BlockTable
from oocdata.box import Ints
from oocdata.order.block import BlockShuffle
from oocdata.order.order import EpochOrder, Order, Shuffle, checked_epoch
from oocdata.order.permutation import epoch_key
from oocdata.stretches import sorted_positions, stretches

_BITS, _FEWEST_BITS = 40, 8
"""Bits of the sum, and of a draw at least: rounding a float64 sum has an error below a unit."""


def cumulated(weights: NDArray[Any], elements: NDArray[np.signedinteger] | None = None) -> Ints:
    """Return the cumulative weights, in units such that a draw has a power of two of them.

    In the order of `elements`, or as they are.
    """
    count = len(weights)
    whole = float(count << max(_FEWEST_BITS, _BITS - count.bit_length()))
    sums, total = np.empty(count), np.float64(0)
    for part in stretches(count):
        each = weights[part] if elements is None else weights[elements[part]]
        each = each.astype(np.float64)
        each[0] += total
        np.cumsum(each, out=sums[part])
        total = sums[part.stop - 1]
    cumulative = sums.view(np.int64)  # in the same memory
    for part in stretches(count):
        cumulative[part] = np.rint(sums[part] / total * whole)
    cumulative.flags.writeable = False
    return cumulative


def _grouped(weights: NDArray[Any], blocks: AnyBlocks | None) -> NDArray[np.signedinteger]:
    """Return all elements by block, or by weight without blocks, equal ones in random order."""
    mixed = np.empty(len(weights), np.int32 if len(weights) < 2**31 else np.int64)
    for part in stretches(len(mixed)):
        mixed[part] = Shuffle().positions(len(mixed), part.start, part.stop, seed=0, epoch=0)

    def keys_of(places: Ints) -> NDArray[Any]:
        drawn = mixed[places].astype(np.int64)
        return weights[drawn].astype(np.float64) if blocks is None else blocks.of(drawn)

    elements, start = np.empty_like(mixed), 0
    for places in sorted_positions(len(mixed), keys_of):
        elements[start : start + len(places)] = mixed[places]
        start += len(places)
    return elements


@dataclass(frozen=True, eq=False)
class Weighted(Order):
    """Draws with replacement, by weight: the order of ``batches(weights=…)``.

    `order` is that of an epoch's draws, which are as many as the elements. `sums` are the
    cumulative weights, from `cumulated`; `elements` the element of each entry of `sums` (those of a
    block are adjacent), or None if they are in order.
    """

    order: Order
    sums: Ints = field(repr=False)
    elements: NDArray[np.signedinteger] | None = field(default=None, repr=False)

    @classmethod
    def of(cls, order: Order, weights: NDArray[Any]) -> Weighted:
        """Return the order of draws from elements of these weights."""
        if not isinstance(order, BlockShuffle | Shuffle):
            return cls(order, cumulated(weights))
        blocks = order.blocks if isinstance(order, BlockShuffle) else None
        elements = _grouped(weights, blocks)
        return cls(order, cumulated(weights, elements), elements)

    @property
    def orders(self) -> tuple[Order]:
        """The order of the draws, as a tuple."""
        return (self.order,)

    @property
    def nbytes(self) -> int:
        return self.sums.nbytes + (0 if self.elements is None else self.elements.nbytes)

    @property
    def lanes(self) -> int | None:
        return self.order.lanes

    def epoch_order(self, count: int, seed: int, epoch: int) -> EpochOrder:
        self._check_count(count, len(self.sums), "elements that have weights")
        unit = int(self.sums[-1]) // count  # from one draw to the next
        begin = int(epoch_key(seed, epoch, "weights")[0]) % unit
        inner = self.order
        if isinstance(inner, BlockShuffle):
            slots = inner.blocks.starts(np.arange(inner.blocks.number(count) + 1))
            # The first draw of each block, at or after the cumulative weight before the block.
            before = np.append(0, self.sums[np.minimum(slots[1:], count) - 1])
            first = np.unique(np.maximum(-((begin - before) // unit), 0))
            inner = replace(inner, blocks=BlockTable(first))
        drawn = checked_epoch(inner, count, seed, epoch)

        def at(places: Ints) -> Ints:
            draws = drawn(places)
            # A search in ascending order is five times as fast among millions of sums.
            order, slots = np.argsort(draws), np.empty(len(draws), np.int64)
            points = draws[order] * unit + begin
            slots[order] = np.searchsorted(self.sums, points, side="right")
            return slots if self.elements is None else self.elements[slots].astype(np.int64)

        return at

    def elements_mixed(self, count: int) -> int:
        return self.order.elements_mixed(count)

    def words(self, count: int) -> str:
        return f"draws by weight, {self.order.words(count)}"
