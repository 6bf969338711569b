"""Some parts at a time, neighbours from each in turn: `tf.data.Dataset.interleave` as an order."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapreplace

import numpy as np
from numpy.typing import NDArray

from oocdata.errors import ArgumentError
from oocdata.index import as_array, as_count, as_flag
from oocdata.order.order import Walk, Walked
from oocdata.order.permutation import epoch_key, forward

__all__ = ["Interleave"]

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Interleave(Walked):
    """Elements of some parts in turn, as ``tf.data.Dataset.interleave`` of them would give.

    It mixes less than a block shuffle: elements of a batch come from `cycle_length` parts, and
    neighbours stay together. It is for those who want that order. An epoch takes 8 bytes an
    element.

    Attributes
    ----------
    lengths : ndarray of int64, shape (parts,)
        Elements of each part, e.g. of each file: ``view.parts.lengths``.
    cycle_length : int
        Parts that are open at a time.
    block_length : int
        Neighbours taken from each in turn.
    shuffle_parts : bool
        Take the parts in another order each epoch, by the loader's seed.

    Raises
    ------
    oocdata.errors.ArgumentError
        If an argument breaks its rule; from `positions`, if the lengths do not add up to the
        elements.

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
        lengths = as_array("lengths", self.lengths)
        if lengths.ndim != 1 or lengths.dtype.kind not in "iu" or not (lengths >= 0).all():
            raise ArgumentError(
                f"`lengths` must be the whole numbers of elements of each part; got {lengths!r}."
            )
        object.__setattr__(self, "lengths", lengths.astype(np.int64))
        as_count("cycle_length", self.cycle_length)
        as_count("block_length", self.block_length)
        as_flag("shuffle_parts", self.shuffle_parts)

    @property
    def nbytes(self) -> int:
        """Bytes of the tables of two epochs: one ends while the next is read ahead."""
        return 16 * int(self.lengths.sum())

    def walk(self, count: int, seed: int, epoch: int) -> Walk:
        """Return one epoch, ready to be asked at any places."""
        if int(self.lengths.sum()) != count:
            raise ArgumentError(
                f"`lengths` must add up to the {count} elements; got a sum of "
                f"{int(self.lengths.sum())}. Those of a view's files are view.parts.lengths."
            )
        parts = np.arange(len(self.lengths))
        if self.shuffle_parts:
            key = epoch_key(seed, epoch, "interleave")
            parts = forward(parts.astype(np.uint64), len(parts), key).view(np.int64)
        # Who is open gives a block each round. A part that gives less of it has ended, and leaves
        # its place to the next one from the round after on; see TensorFlow's InterleaveDataset op.
        cycle = min(self.cycle_length, len(parts))
        free = [(0, place) for place in range(cycle)]  # from which round on each place is free
        begins, rounds = np.zeros(len(parts), np.int64), self.lengths // self.block_length + 1
        for part in parts.tolist():
            at, place = free[0]
            begins[part] = at * cycle + place
            heapreplace(free, (at + int(rounds[part]), place))
        within = np.arange(count) - np.repeat(np.cumsum(self.lengths) - self.lengths, self.lengths)
        turns = np.repeat(begins, self.lengths) + within // self.block_length * cycle
        return Walk.whole(count, np.argsort(turns, kind="stable").__getitem__)
