"""A mixture: several members in turn, by their shares, each in an order of its own.

The k-th element that a member of n elements gives, counted through the whole training, is at place
k % n of its own epoch k // n: it gives every element once before it gives one again, whatever an
epoch of the mixture is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.errors import ArgumentError
from oocdata.order.block import BlockShuffle
from oocdata.order.order import Order, Walk, Walked, laned, walk_of
from oocdata.order.shares import Shares

__all__ = ["Mixture"]

Ints = NDArray[np.int64]

Walks = dict[tuple[int, int], tuple[Ints, Walk]]
"""A member's epochs: what each lane has given before, and the epoch; by member and number."""

_MOST_WALKS = 16
"""Epochs of members that are remembered."""


@dataclass(frozen=True)
class Mixture(Walked):
    """Members in turn, by their shares: the order of a mixture; see `oocdata.mix`.

    Attributes
    ----------
    orders : tuple of Order
        Of each member: places of its epochs.
    counts : tuple of int
        Positions of each member; those of one follow on those of the one before.
    weights : tuple of int
        The shares, up to a factor.
    length : int
        Places of an epoch, a multiple of the lanes.
    lanes : int or None
        Of the members that have lanes, as many; None where none has.

    Examples
    --------
    >>> from oocdata.order import Sequential
    >>> order = Mixture((Sequential(), Sequential()), (70, 10), (7, 3), length=10)
    >>> order.positions(80, 0, 10, seed=0, epoch=0)
    array([ 0, 70,  1,  2,  3, 71,  4,  5, 72,  6])
    >>> order.positions(80, 0, 10, seed=0, epoch=3)
    array([21, 79, 22, 23, 24, 70, 25, 26, 71, 27])
    """

    orders: tuple[Order, ...]
    counts: tuple[int, ...]
    weights: tuple[int, ...]
    length: int
    lanes: int | None = None

    @cached_property
    def shares(self) -> Shares:
        """Which member gives which element."""
        return Shares(self.weights, self.lanes or 1)

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """The first position of each member."""
        return tuple(accumulate(self.counts[:-1], initial=0))

    @property
    def epoch_length(self) -> int:
        """Places of an epoch; see `oocdata.order.order.length_of`."""
        return self.length

    def walk(self, count: int, seed: int, epoch: int) -> Walk:
        """Return one epoch, ready to be asked at any places."""
        if count != sum(self.counts):
            raise ArgumentError(
                f"`count` must be the {sum(self.counts)} positions of the members; got {count}."
            )
        lanes = self.lanes or 1
        each = self.length // lanes
        walks: Walks = {}

        def at(places: Ints) -> Ints:
            lane, row = np.divmod(places, each)
            # Elements of a lane, through the whole training.
            rows, at = np.unique(row + epoch * each, return_inverse=True)
            given, gives = self.shares.turns(rows)
            found = np.empty(len(lane), np.int64)
            for member, start in enumerate(self.starts):
                own = np.flatnonzero(gives[member][lane, at])
                if not len(own):
                    continue
                lanes, columns = lane[own], at[own]
                # Those of earlier rows, and of earlier lanes in this row.
                earlier = np.cumsum(gives[member], axis=0) - gives[member]
                draws = given[member].sum(axis=0)[columns] + earlier[lanes, columns]
                nth = given[member][lanes, columns]
                found[own] = self._of_member(member, seed, draws, lanes, nth, walks) + start
            return found

        return Walk(np.arange(lanes + 1) * each, at)

    def elements_mixed(self, count: int) -> int:
        """Return how many elements are mixed at a time where members mix blocks."""
        total = sum(self.weights)
        mixed = [
            found.elements_mixed(own) * total // weight
            for order, own, weight in zip(self.orders, self.counts, self.weights, strict=True)
            if (found := laned(order)) is not None
        ]
        return min(mixed, default=self.length)

    def _of_member(
        self, member: int, seed: int, draws: Ints, lane: Ints, nth: Ints, walks: Walks
    ) -> Ints:
        """Return a member's own positions, by its draws in all lanes and in their own lane."""
        order, count = self.orders[member], self.counts[member]
        seed += member << 64  # members of one length are not shuffled alike
        found = np.empty(len(draws), np.int64)
        begun, last = int(draws.min()) // count, int(draws.max()) // count
        epochs = draws // count if last > begun else None
        for epoch in range(begun, last + 1):
            own: Any = slice(None) if epochs is None else np.flatnonzero(epochs == epoch)
            if epochs is not None and not len(own):
                continue
            if isinstance(order, BlockShuffle) and self.lanes is not None:
                before, walk = self._walk(order, member, epoch, seed, walks)
                lanes = lane[own]
                found[own] = walk.at(walk.borders[lanes] + nth[own] - before[lanes])
            else:
                found[own] = walk_of(order, count, seed, epoch).at(draws[own] - epoch * count)
        return found

    def _walk(
        self, order: BlockShuffle, member: int, epoch: int, seed: int, walks: Walks
    ) -> tuple[Ints, Walk]:
        """Return a member's epoch, each lane as long as it gives elements in it.

        And what each lane has given before.
        """
        known = walks.get((member, epoch))
        if known is None:
            count = self.counts[member]
            before, after = (self._given(member, at * count) for at in (epoch, epoch + 1))
            borders = np.concatenate(([0], np.cumsum(after - before)))
            known = before, order.walk(count, seed, epoch, borders)
            walks[member, epoch] = known
            for old in list(walks)[:-_MOST_WALKS]:
                walks.pop(old, None)
        return known

    def _given(self, member: int, draws: int) -> Ints:
        """Return how many of a member's first `draws` elements each lane has given."""
        shares = self.shares
        row = shares.row_of(member, draws)
        given, gives = (one[member, :, 0] for one in shares.turns(np.array([row])))
        rest = draws - int(given.sum())
        return given + gives * (np.cumsum(gives) <= rest)
