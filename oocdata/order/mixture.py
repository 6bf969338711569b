"""A mixture: several members in turn, by their shares, each in an order of its own.

The k-th element that a member of n elements gives, counted through the whole training, is at place
k % n of its own epoch k // n: it gives every element once before it gives one again, whatever an
epoch of the mixture is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.errors import ArgumentError
from oocdata.order.block import BlockEpoch, BlockShuffle
from oocdata.order.order import Order, Walked, laned, walk_of
from oocdata.order.shares import Shares

__all__ = ["Mixture", "MixtureEpoch"]

Ints = NDArray[np.int64]

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

    def walk(self, count: int, seed: int, epoch: int) -> MixtureEpoch:
        """Return one epoch, ready to be asked at any places."""
        if count != sum(self.counts):
            raise ArgumentError(
                f"`count` must be the {sum(self.counts)} positions of the members; got {count}."
            )
        return MixtureEpoch(self, seed, epoch)

    def elements_mixed(self, count: int) -> int:
        """Return how many elements are mixed at a time where members mix blocks."""
        total = sum(self.weights)
        mixed = [
            found.elements_mixed(own) * total // weight
            for order, own, weight in zip(self.orders, self.counts, self.weights, strict=True)
            if (found := laned(order)) is not None
        ]
        return min(mixed, default=self.length)


class MixtureEpoch:
    """One epoch of a mixture.

    Attributes
    ----------
    borders : ndarray of int64, shape (lanes + 1,)
        Where each lane begins among the places, and their number.
    """

    def __init__(self, order: Mixture, seed: int, epoch: int) -> None:
        self._order, self._seed = order, seed
        lanes = order.lanes or 1
        self._each = order.length // lanes
        self.borders = np.arange(lanes + 1) * self._each
        self._first = epoch * self._each  # of a lane's elements, through the whole training
        self._walks: dict[tuple[int, int], tuple[Ints, BlockEpoch]] = {}

    def at(self, places: Ints) -> Ints:
        """Return the positions at places, in any order of them, shape (n,)."""
        lane, row = np.divmod(places, self._each)
        rows, at = np.unique(row + self._first, return_inverse=True)
        order = self._order
        given, gives = order.shares.turns(rows)
        found = np.empty(len(lane), np.int64)
        for member, start in enumerate(order.starts):
            own = np.flatnonzero(gives[member][lane, at])
            if not len(own):
                continue
            lanes, columns = lane[own], at[own]
            # Through the whole training: those of earlier rows, and of earlier lanes in this row.
            earlier = np.cumsum(gives[member], axis=0) - gives[member]
            draws = given[member].sum(axis=0)[columns] + earlier[lanes, columns]
            nth = given[member][lanes, columns]
            found[own] = self._of_member(member, draws, lanes, nth) + start
        return found

    def _of_member(self, member: int, draws: Ints, lane: Ints, nth: Ints) -> Ints:
        """Return a member's own positions, by its draws in all lanes and in their own lane."""
        order, count = self._order.orders[member], self._order.counts[member]
        seed = self._seed + (member << 64)  # members of one length are not shuffled alike
        found = np.empty(len(draws), np.int64)
        begun, last = int(draws.min()) // count, int(draws.max()) // count
        epochs = draws // count if last > begun else None
        for epoch in range(begun, last + 1):
            own: Any = slice(None) if epochs is None else np.flatnonzero(epochs == epoch)
            if epochs is not None and not len(own):
                continue
            if isinstance(order, BlockShuffle) and self._order.lanes is not None:
                before, walk = self._walk(order, member, epoch, seed)
                lanes = lane[own]
                found[own] = walk.at(walk.borders[lanes] + nth[own] - before[lanes])
            else:
                found[own] = walk_of(order, count, seed, epoch).at(draws[own] - epoch * count)
        return found

    def _walk(
        self, order: BlockShuffle, member: int, epoch: int, seed: int
    ) -> tuple[Ints, BlockEpoch]:
        """Return a member's epoch, each lane as long as it gives elements in it.

        And what each lane has given before.
        """
        known = self._walks.get((member, epoch))
        if known is None:
            count = self._order.counts[member]
            before, after = (self._given(member, at * count) for at in (epoch, epoch + 1))
            borders = np.concatenate(([0], np.cumsum(after - before)))
            own = replace(order, lanes=self._order.lanes)
            known = before, BlockEpoch(own, count, seed, epoch, borders)
            self._walks[member, epoch] = known
            for old in list(self._walks)[:-_MOST_WALKS]:
                self._walks.pop(old, None)
        return known

    def _given(self, member: int, draws: int) -> Ints:
        """Return how many of a member's first `draws` elements each lane has given."""
        shares = self._order.shares
        row = shares.row_of(member, draws)
        given, gives = (one[member, :, 0] for one in shares.turns(np.array([row])))
        rest = draws - int(given.sum())
        return given + gives * (np.cumsum(gives) <= rest)
