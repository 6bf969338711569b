"""Mix members by their shares, each in an order of its own.

The k-th element drawn from a member of n elements, counted through the whole training, is at place
k % n of the member's own epoch k // n. So a member gives every element once before it gives one
again, however long an epoch of the mixture is.

The member of each element is known in closed form. A tree halves the members repeatedly (a Huffman
tree, so that large shares are decided first). At each node, ``floor(x * share + phase)`` of the
first x elements go to one side. So every place of a training is computed separately, and after any
number of elements the count of each member is near its share: of two members within half an
element, of more within two elements. If a batch is divided into lanes, each lane has its own
phases, spread evenly: by Hermite's identity, the counts of all lanes at a node sum up to the
rounded share of all of them together.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate
from typing import TypeAlias

import numpy as np

from oocdata.box import Ints, groups_of
from oocdata.errors import ArgumentError
from oocdata.order.block import BlockShuffle
from oocdata.order.order import EpochOrder, Order, checked_epoch
from oocdata.threads import cached_property

MemberEpochs: TypeAlias = Callable[[int, int], tuple[Ints | None, EpochOrder]]
"""Function of a member and an epoch of its own; see `Mixture._member_epoch`."""

Node: TypeAlias = "int | tuple[Node, Node, int, int]"
"""A member; or two sides, and the share of the first as numerator and denominator."""

MOST = 2**48
"""Sums of weights up to this are exact."""

_GOLDEN = 0.6180339887498949

_MOST_EPOCHS = 16
"""Epochs of members that are cached."""


@dataclass(frozen=True)
class Mixture(Order):
    """Members mixed by their shares; see `oocdata.mix`.

    Members are numbered end to end. `weights` are their shares, up to a common factor; `length` is
    the number of places of an epoch, a multiple of the lanes; `lanes` that of every member that has
    lanes, None if none has.
    """

    orders: tuple[Order, ...]
    counts: tuple[int, ...]
    weights: tuple[int, ...]
    length: int
    lanes: int | None = None

    @cached_property
    def shares(self) -> Shares:
        """The shares of members among the elements."""
        return Shares(self.weights, self.lanes or 1)

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """The first position of each member."""
        return tuple(accumulate(self.counts[:-1], initial=0))

    def epoch_length(self, count: int) -> int:
        return self.length

    def epoch_order(self, count: int, seed: int, epoch: int) -> EpochOrder:
        self._check_count(count, sum(self.counts), "positions of the members")
        if (epoch + 1) * self.length > 2**61:  # elements are numbered through the whole training
            raise ArgumentError(
                f"`epoch` must be less than {2**61 // self.length} for this mixture; got {epoch}."
            )
        lanes = self.lanes or 1
        each = self.length // lanes
        epochs = lru_cache(_MOST_EPOCHS)(partial(self._member_epoch, seed))

        def at(places: Ints) -> Ints:
            lane, row = np.divmod(places, each)
            # Rows of a lane are numbered through the whole training.
            rows, column = np.unique(row + epoch * each, return_inverse=True)
            members, nth, draws = (found[lane, column] for found in self.shares.turns(rows))
            positions = np.empty(len(lane), np.int64)
            for member, here in groups_of(members):
                own = self._of_member(member, draws[here], lane[here], nth[here], epochs)
                positions[here] = own + self.starts[member]
            return positions

        return at

    def elements_mixed(self, count: int) -> int:
        """Return how many elements are mixed at a time, if members mix blocks."""
        total = sum(self.weights)
        members = zip(self.orders, self.counts, self.weights, strict=True)
        mixed = [
            order.elements_mixed(length) * total // weight
            for order, length, weight in members
            if order.lanes is not None
        ]
        return min(mixed, default=self.length)

    def words(self, count: int) -> str:
        pairs = zip(self.orders, self.counts, strict=True)
        words = sorted({order.words(length) for order, length in pairs})
        return f"mixture of {len(self.orders)} members, each: {' or '.join(words)}"

    def _of_member(
        self, member: int, draws: Ints, lane: Ints, nth: Ints, member_epochs: MemberEpochs
    ) -> Ints:
        """Return a member's own positions.

        `draws` and `nth` number its draws in all lanes, and in the lane of each draw.
        """
        positions, count = np.empty(len(draws), np.int64), self.counts[member]
        epochs = draws // count
        for epoch, here in groups_of(epochs):
            begins, drawn = member_epochs(member, epoch)
            places = draws[here] - epoch * count
            if begins is not None:
                places = begins[lane[here]] + nth[here]
            positions[here] = drawn(places)
        return positions

    def _member_epoch(self, seed: int, member: int, epoch: int) -> tuple[Ints | None, EpochOrder]:
        """Return the first place of each lane of a member's epoch, if any, and the epoch's order.

        The place is less by the elements that the lane gave before. Each lane of the epoch is as
        long as the number of elements that it gives.
        """
        order, count = self.orders[member], self.counts[member]
        seed += member << 64  # so that members of equal length are not shuffled equally
        if not isinstance(order, BlockShuffle) or self.lanes is None:
            return None, checked_epoch(order, count, seed, epoch)
        before, after = (self._lane_counts(member, at * count) for at in (epoch, epoch + 1))
        borders = np.concatenate(([0], np.cumsum(after - before)))
        return borders[:-1] - before, order.epoch_order(count, seed, epoch, borders)

    def _lane_counts(self, member: int, draws: int) -> Ints:
        """Return how many of a member's first `draws` elements each lane gives."""
        shares = self.shares
        row = shares.row_of(member, draws)
        before, after = shares.counts(np.array([row, row + 1]))[member].T
        rest, gives = draws - int(before.sum()), after - before
        counts: Ints = before + gives * (np.cumsum(gives) <= rest)
        return counts


class Shares:
    """The number of elements of each member, by integer weights from 1 on."""

    def __init__(self, weights: tuple[int, ...], lanes: int) -> None:
        self.weights, self.lanes = weights, lanes
        self._tree = _tree(weights)

    def counts(self, rows: Ints) -> Ints:
        """Return how many elements each member has given before the rows of each lane.

        Rows are counted through the whole training. The shape is (members, lanes, rows).
        """
        counts = np.empty((len(self.weights), self.lanes, len(rows)), np.int64)

        def divide(node: Node, elements: Ints, phase: Ints) -> None:
            if isinstance(node, int):
                counts[node] = elements
                return
            left, phase = self._left(node, elements, phase[:, None]), _next(phase)
            divide(node[0], left, phase)
            divide(node[1], elements - left, phase)

        divide(self._tree, np.broadcast_to(rows, counts.shape[1:]), self._phase)
        return counts

    def turns(self, rows: Ints) -> Ints:
        """Return the member that gives each element of some rows, and numbers of the element.

        These are its number in its lane, and in all lanes, among the elements of the member. The
        rows ascend. The shape is (3, lanes, rows).
        """
        turns = np.empty((3, self.lanes, len(rows)), np.int64)
        members, nth, _ = turns.reshape(3, -1)

        def divide(node: Node, elements: Ints, phase: Ints, where: Ints) -> None:
            if isinstance(node, int):
                members[where], nth[where] = node, elements
                return
            phases, phase = phase[where // len(rows)], _next(phase)
            left = self._left(node, elements, phases)
            first = self._left(node, elements + 1, phases) > left
            divide(node[0], left[first], phase, where[first])
            divide(node[1], (elements - left)[~first], phase, where[~first])

        divide(self._tree, np.tile(rows, self.lanes), self._phase, np.arange(len(members)))
        # Elements of a run of rows are numbered from those of all rows before, lane after lane.
        begins = np.flatnonzero(np.diff(rows, prepend=rows[0] - 2) > 1)
        run = np.repeat(np.arange(len(begins)), np.diff(begins, append=len(rows)))
        key = (turns[0].T * len(begins) + run[:, None]).ravel()
        before = self.counts(rows[begins]).sum(axis=1).ravel()
        numbers = np.empty_like(key)
        for one, here in groups_of(key):
            numbers[here] = np.arange(len(here)) + before[one]
        turns[2] = numbers.reshape(len(rows), self.lanes).T
        return turns

    @cached_property
    def _phase(self) -> Ints:
        """Phase of each lane at the root."""
        return _next(np.arange(self.lanes))

    def _left(self, node: tuple[Node, Node, int, int], elements: Ints, phase: Ints) -> Ints:
        """Return how many of the first elements of a node go to its first side."""
        _, _, share, of = node
        lanes = self.lanes
        # In two steps, a quotient that is off by 1 at most, and a small remainder: so the result is
        # exact although the products wrap around.
        whole, rest = np.divmod(elements, of)
        near = (rest * (share / of)).astype(np.int64)
        over = rest * np.int64(share) - near * np.int64(of)
        return whole * share + near + (over * 2 * lanes + (2 * phase + 1) * of) // (2 * lanes * of)

    def row_of(self, member: int, draw: int) -> int:
        """Return the last row before which a member has given at most `draw` elements."""
        # No count is further from its share than this.
        most = (draw + 4 * self.lanes) * sum(self.weights) // (self.lanes * self.weights[member])

        def total(row: int) -> int:
            return int(self.counts(np.array([row]))[member].sum())

        return bisect_right(range(2 * most + 2), draw, key=total) - 1


def _next(phase: Ints) -> Ints:
    """Return the phase of each lane in the next node; lanes with adjacent phases become distant."""
    return np.argsort(np.argsort(phase * _GOLDEN % 1))


def _tree(weights: tuple[int, ...]) -> Node:
    """Return a Huffman tree of the members."""
    from fractions import Fraction  # imports decimal; needed only here

    nodes: list[tuple[int, int, Node]] = [(w, at, at) for at, w in enumerate(weights)]
    heapq.heapify(nodes)
    number = len(weights)
    while len(nodes) > 1:
        light, heavy = heapq.heappop(nodes), heapq.heappop(nodes)
        share = Fraction(heavy[0], heavy[0] + light[0]).limit_denominator(MOST)
        node: Node = (heavy[2], light[2], share.numerator, share.denominator)
        heapq.heappush(nodes, (heavy[0] + light[0], number, node))
        number += 1
    return nodes[0][2]
