"""Draws by weight: each element as often as its weight says, to within one, in every epoch.

Systematic sampling [1]_: an epoch of n draws over n elements takes the points ``(j + u) / n``, j
from 0 to n - 1, of the cumulated weights, with one random u for the epoch. So an element of share w
comes ``floor(n w)`` or ``ceil(n w)`` times, and draws that follow one another lie side by side in
storage: to shuffle them by blocks decodes each chunk once, as without weights.

Evenly spaced points may all fall on one class of several that take turns: a third of the elements,
one in three, would come twice in one epoch and once in the next. So the elements of a block are
cumulated in a random order; and all of them, where there are no blocks, those of one weight side by
side: then classes of unlike weights come as often as they should, to within one draw.

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

from oocdata.blocks import BlockRuns
from oocdata.errors import ArgumentError
from oocdata.order.block import BlockShuffle
from oocdata.order.order import Order, Shuffle, Walk, Walked, walk_of
from oocdata.order.permutation import epoch_key

__all__ = ["Weighted", "cumulated"]

Ints = NDArray[np.int64]

_BITS, _FEWEST_BITS = 40, 8
"""Of the whole sum, and of a draw: the rounding of a sum in floating point stays below a unit."""


def cumulated(weights: NDArray[np.float64]) -> Ints:
    """Return the cumulated weights in units of which each draw has a power of two.

    Examples
    --------
    >>> cumulated(np.array([1.0, 0.0, 3.0, 4.0])) / 2**37
    array([0.5, 0.5, 2. , 4. ])
    """
    count = len(weights)
    whole = float(count << max(_FEWEST_BITS, _BITS - count.bit_length()))
    sums = np.cumsum(weights)
    sums /= sums[-1]
    sums *= whole
    found = np.rint(sums, out=sums).astype(np.int64)
    found.flags.writeable = False
    return found


@dataclass(frozen=True, eq=False)
class Weighted(Walked):
    """With replacement, by weight: the order of ``batches(weights=…)``.

    Attributes
    ----------
    order : Order
        Of an epoch's draws, which are as many as there are elements.
    sums : ndarray of int64, shape (elements,)
        The cumulated weights, as `cumulated` returns them.
    elements : ndarray of int32 or int64, shape (elements,), optional
        Which element each of `sums` is of: those of a block side by side. By default they are in
        order.

    Examples
    --------
    >>> from oocdata.order import Sequential
    >>> order = Weighted.of(Sequential(), np.array([1.0, 0.0, 3.0, 4.0]))
    >>> order.positions(4, 0, 4, seed=7, epoch=0)
    array([0, 2, 3, 3])
    """

    order: Order
    sums: Ints = field(repr=False)
    elements: NDArray[np.signedinteger] | None = field(default=None, repr=False)

    @classmethod
    def of(cls, order: Order, weights: NDArray[np.float64]) -> Weighted:
        """Return the draws of elements that have these weights."""
        positions = np.arange(len(weights))
        if isinstance(order, BlockShuffle):
            groups: NDArray[Any] = order.blocks.of(positions)
        elif isinstance(order, Shuffle):
            groups = weights
        else:
            return cls(order, cumulated(weights))
        mixed = Shuffle().positions(len(weights), 0, len(weights), seed=0, epoch=0)
        elements = mixed[np.argsort(groups[mixed], kind="stable")]
        if len(weights) < 2**31:
            elements = elements.astype(np.int32)
        return cls(order, cumulated(weights[elements]), elements)

    @property
    def orders(self) -> tuple[Order]:
        """That of the draws."""
        return (self.order,)

    @property
    def nbytes(self) -> int:
        """Bytes of the tables."""
        return self.sums.nbytes + (0 if self.elements is None else self.elements.nbytes)

    @property
    def lanes(self) -> int | None:
        """Those of a block shuffle."""
        return self.order.lanes if isinstance(self.order, BlockShuffle) else None

    def walk(self, count: int, seed: int, epoch: int) -> Walk:
        """Return one epoch, ready to be asked at any places."""
        if count != len(self.sums):
            raise ArgumentError(
                f"`count` must be the {len(self.sums)} elements that have weights; got {count}."
            )
        unit = int(self.sums[-1]) // count  # from one draw to the next
        begin = int(epoch_key(seed, epoch, "weights")[0]) % unit
        inner = self.order
        if isinstance(inner, BlockShuffle):
            slots = inner.blocks.starts(np.arange(inner.blocks.number(count) + 1))
            # The first draw of each block: those before it lie below what was cumulated before it.
            before = np.concatenate(([0], self.sums))[np.minimum(slots, count)]
            first = np.unique(np.maximum(-((begin - before) // unit), 0))
            inner = replace(inner, blocks=BlockRuns(first))
        walk = walk_of(inner, count, seed, epoch)

        def at(places: Ints) -> Ints:
            draws = walk.at(places)
            # Sought in ascending order the sums are walked once: five times as fast among millions.
            order, slots = np.argsort(draws), np.empty(len(draws), np.int64)
            points = draws[order] * unit + begin
            slots[order] = np.searchsorted(self.sums, points, side="right")
            return slots if self.elements is None else self.elements[slots].astype(np.int64)

        return Walk(walk.borders, at)

    def elements_mixed(self, count: int) -> int:
        """Return how many elements a block shuffle mixes at a time."""
        order = self.order
        return order.elements_mixed(count) if isinstance(order, BlockShuffle) else count
