"""A mixture: several members in turn, by their shares, each in an order of its own.

The k-th element that a member of n elements gives, counted through the whole training, is at place
k % n of its own epoch k // n: it gives every element once before it gives one again, whatever an
epoch of the mixture is.

Which member gives the next element is known in closed form. A tree halves the members again and
again (Huffman's, so that large shares are decided first). At each node, of the first x elements
``floor(x * share + phase)`` go to one side. So every place of a training is computed by itself, and
after any number of elements each member has given its share: of two members to within half an
element, of more to within two elements. Where a batch is dealt out in lanes, each has phases of its
own, spread evenly: by Hermite's identity the lanes' counts of a node sum up to the rounded share of
all of them together.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from oocdata.errors import ArgumentError
from oocdata.order.block import BlockShuffle
from oocdata.order.order import Order, Walk, Walked, laned, walk_of
from oocdata.threads import cached_property

__all__ = ["MOST", "Mixture", "Shares"]

Ints = NDArray[np.int64]

Walks = dict[tuple[int, int], tuple[Ints, Walk]]
"""A member's epochs: what each lane has given before, and the epoch; by member and number."""

Node: TypeAlias = "int | tuple[Node, Node, int, int]"
"""A member; or two sides and the share of the first, as numerator and denominator."""

MOST = 2**48
"""Sums of weights up to this are exact."""

_GOLDEN = 0.6180339887498949

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
        epochs = draws // count
        for epoch in np.unique(epochs).tolist():
            own = np.flatnonzero(epochs == epoch)
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


class Shares:
    """How often each member gives an element: of weights from 1 on, the ratios count.

    Examples
    --------
    >>> shares = Shares((7, 3), 1)
    >>> shares.given(np.arange(11))[:, 0].tolist()
    [[0, 1, 1, 2, 3, 4, 4, 5, 6, 6, 7], [0, 0, 1, 1, 1, 1, 2, 2, 2, 3, 3]]
    """

    def __init__(self, weights: tuple[int, ...], lanes: int) -> None:
        self.weights, self.lanes = weights, lanes
        self._tree = _tree(weights)

    def given(self, rows: Ints) -> Ints:
        """Return what members have given in each lane before its elements `rows`.

        These are counted through the whole training; the shape is (members, lanes, rows).
        """
        found = np.empty((len(self.weights), self.lanes, len(rows)), np.int64)
        first = np.argsort(np.argsort(np.arange(self.lanes) * _GOLDEN % 1))
        counts = np.broadcast_to(rows, found.shape[1:])
        self._divide(self._tree, counts, first[:, None], found)
        return found

    def turns(self, rows: Ints) -> tuple[Ints, Ints]:
        """Return what members have given before rows, and 1 for who gives in each."""
        given = self.given(rows)
        return given, self.given(rows + 1) - given

    def _divide(self, node: Node, counts: Ints, phase: Ints, found: Ints) -> None:
        """Divide the elements of a node among its members."""
        if isinstance(node, int):
            found[node] = counts
            return
        one, other, share, of = node
        lanes = self.lanes
        # In two steps: a quotient that is off by 1 at most, and what is over, which is small: so it
        # is right although the products wrap around.
        whole, rest = np.divmod(counts, of)
        near = (rest * (share / of)).astype(np.int64)
        over = rest * np.int64(share) - near * np.int64(of)
        left = whole * share + near + (over * 2 * lanes + (2 * phase + 1) * of) // (2 * lanes * of)
        # Lanes that follow on one another in this phase lie apart in the next one.
        phase = np.argsort(np.argsort(phase[:, 0] * _GOLDEN % 1))[:, None]
        self._divide(one, left, phase, found)
        self._divide(other, counts - left, phase, found)

    def row_of(self, member: int, draw: int) -> int:
        """Return the last row before which a member has given at most `draw` elements."""
        # A member is never further from its share than this.
        most = (draw + 4 * self.lanes) * sum(self.weights) // (self.lanes * self.weights[member])

        def total(row: int) -> int:
            return int(self.given(np.array([row]))[member].sum())

        return bisect_right(range(2 * most + 2), draw, key=total) - 1


def _tree(weights: tuple[int, ...]) -> Node:
    from fractions import Fraction  # with decimal behind it, only here

    numbered: list[tuple[int, int, Node]] = [(w, at, at) for at, w in enumerate(weights)]
    heapq.heapify(numbered)
    number = len(weights)
    while len(numbered) > 1:
        light, heavy = heapq.heappop(numbered), heapq.heappop(numbered)
        share = Fraction(heavy[0], heavy[0] + light[0]).limit_denominator(MOST)
        node: Node = (heavy[2], light[2], share.numerator, share.denominator)
        heapq.heappush(numbered, (heavy[0] + light[0], number, node))
        number += 1
    return numbered[0][2]
