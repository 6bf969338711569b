"""Take neighbours from several parts in turn: `tf.data.Dataset.interleave` as an order."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapreplace

import numpy as np

from oocdata.box import Ints
from oocdata.index import as_count, as_flag, as_lengths
from oocdata.order.order import EpochOrder, Order
from oocdata.order.permutation import epoch_key, forward


@dataclass(frozen=True, eq=False)
class Interleave(Order):
    """Elements of several parts in turn, as ``tf.data.Dataset.interleave`` would give them.

    It mixes less than a block shuffle: the elements of a batch come from `cycle_length` parts, and
    neighbours stay together. Use it if you need exactly that order. An epoch takes 8 bytes per
    element.

    Attributes
    ----------
    lengths : ndarray of int64, shape (parts,)
        Number of elements of each part, e.g. of each file: ``view.parts.lengths``.
    cycle_length : int
        Number of parts that are open at a time.
    block_length : int
        Consecutive elements taken from each part in turn.
    shuffle_parts : bool
        Visit the parts in a different order in each epoch, by the loader's seed.

    Raises
    ------
    oocdata.errors.ArgumentError
        If an argument is out of its range; from `positions`, if the lengths do not add up to the
        number of elements.

    Examples
    --------
    >>> order = Interleave(np.array([5, 2, 3]), cycle_length=2, block_length=2)
    >>> order.positions(10, 0, 10, seed=0, epoch=0)
    array([0, 1, 5, 6, 2, 3, 4, 7, 8, 9])
    """

    lengths: Ints
    cycle_length: int = 4
    block_length: int = 1
    shuffle_parts: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "lengths", as_lengths("lengths", self.lengths))
        as_count("cycle_length", self.cycle_length)
        as_count("block_length", self.block_length)
        as_flag("shuffle_parts", self.shuffle_parts)

    @property
    def nbytes(self) -> int:
        """Bytes of the tables of two epochs: while one ends, the next is read ahead."""
        return 16 * int(self.lengths.sum())

    def epoch_order(self, count: int, seed: int, epoch: int) -> EpochOrder:
        self._check_count(count, int(self.lengths.sum()), "elements that `lengths` add up to")
        parts = np.arange(len(self.lengths))
        if self.shuffle_parts:
            key = epoch_key(seed, epoch, "interleave")
            parts = forward(parts.astype(np.uint64), len(parts), key).view(np.int64)
        # Each open part gives a block per round. A part that gives fewer elements has ended, and
        # the next part takes its place in the next round; see TensorFlow's InterleaveDataset op.
        cycle = min(self.cycle_length, len(parts))
        free = [(0, place) for place in range(cycle)]  # the round from which each place is free
        begins, rounds = np.zeros(len(parts), np.int64), self.lengths // self.block_length + 1
        for part in parts.tolist():
            first_round, place = free[0]
            begins[part] = first_round * cycle + place
            heapreplace(free, (first_round + int(rounds[part]), place))
        within = np.arange(count) - np.repeat(np.cumsum(self.lengths) - self.lengths, self.lengths)
        turns = np.repeat(begins, self.lengths) + within // self.block_length * cycle
        return np.argsort(turns, kind="stable").__getitem__

    def words(self, count: int) -> str:
        return f"{self.cycle_length} parts at a time, {self.block_length} from each in turn"
