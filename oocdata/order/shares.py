"""Shares: which member of a mixture gives the next element, in closed form.

A tree halves the members again and again (Huffman's, so that large shares are decided first). At
each node, of the first x elements ``floor(x * share + phase)`` go to one side. So every place of a
training is computed by itself, and after any number of elements each member has given its share: of
two members to within half an element, of more to within two elements. Where a batch is dealt out in
lanes, each has phases of its own, spread evenly: by Hermite's identity the lanes' counts of a node
sum up to the rounded share of all of them together.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["MOST", "Shares"]

Ints: TypeAlias = NDArray[np.int64]

Node: TypeAlias = "int | tuple[Node, Node, int, int]"
"""A member; or two sides and the share of the first, as numerator and denominator."""

MOST = 2**48
"""Sums of weights up to this are exact."""

_GOLDEN = 0.6180339887498949


class Shares:
    """How often each member gives an element.

    Parameters
    ----------
    weights : tuple of int
        Each at least 1; their ratios count.
    lanes : int

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

        Parameters
        ----------
        rows : ndarray of int64, shape (n,)
            Elements of a lane, counted through the whole training.

        Returns
        -------
        ndarray of int64, shape (members, lanes, n)
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
        rows = range(2 * most + 2)
        return bisect_right(rows, draw, key=lambda row: self._total(member, row)) - 1

    def _total(self, member: int, row: int) -> int:
        return int(self.given(np.array([row]))[member].sum())


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
