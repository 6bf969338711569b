"""Some parts at a time, neighbours from each in turn: `tf.data.Dataset.interleave` as an order.

Between two ends of parts the order repeats itself: each of the open parts gives its elements in
turn, round after round. So an epoch is a few stretches a part, found once, and the position at any
place follows by arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocdata.errors import ArgumentError
from oocdata.index import as_count
from oocdata.order.order import Walked
from oocdata.order.permutation import epoch_key, forward

__all__ = ["Interleave"]

Ints = NDArray[np.int64]


class _Stretch(NamedTuple):
    """Rounds in which the same parts give as many elements each."""

    starts: Ints  # where each part goes on
    taken: Ints  # elements of each, in a round
    rounds: int


@dataclass(frozen=True, eq=False)
class Interleave(Walked):
    """Elements of some parts in turn, as ``tf.data.Dataset.interleave`` of them would give.

    It mixes less than a block shuffle: elements of a batch come from `cycle_length` parts, and
    neighbours stay together. It is for those who want that order.

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
        lengths = np.asarray(self.lengths)
        if lengths.ndim != 1 or lengths.dtype.kind not in "iu" or not (lengths >= 0).all():
            raise ArgumentError(
                f"`lengths` must be the whole numbers of elements of each part; got {lengths!r}."
            )
        object.__setattr__(self, "lengths", lengths.astype(np.int64))
        as_count("cycle_length", self.cycle_length)
        as_count("block_length", self.block_length)

    @property
    def nbytes(self) -> int:
        """Bytes of the stretches of two epochs, at most."""
        return 2 * (4 * len(self.lengths) + 2) * (16 * self.cycle_length + 200)

    def walk(self, count: int, seed: int, epoch: int) -> InterleaveEpoch:
        """Return one epoch, ready to be asked at any places."""
        if int(self.lengths.sum()) != count:
            raise ArgumentError(
                f"`lengths` must add up to the {count} elements; got a sum of "
                f"{int(self.lengths.sum())}. Those of a view's files are view.parts.lengths."
            )
        return InterleaveEpoch(list(self._stretches(seed, epoch)))

    def _stretches(self, seed: int, epoch: int) -> Iterator[_Stretch]:
        """Yield the stretches of an epoch, in order; see TensorFlow's InterleaveDataset op."""
        begins = np.cumsum(self.lengths) - self.lengths
        count, block = len(self.lengths), self.block_length
        parts = np.arange(count)
        if self.shuffle_parts:
            order = forward(parts.astype(np.uint64), count, epoch_key(seed, epoch, "interleave"))
            parts = order.view(np.int64)
        waiting = iter(zip(begins[parts].tolist(), self.lengths[parts].tolist(), strict=True))
        # Of each that is open, where it goes on and how many are left; None where one has ended.
        open_parts: list[list[int] | None] = [None] * min(self.cycle_length, max(1, count))
        while open_parts:
            if all(part is not None and part[1] >= block for part in open_parts):
                at, left = np.array(open_parts, np.int64).T
                rounds = int(left.min()) // block
                yield _Stretch(at, np.full(len(at), block), rounds)
                done = rounds * block
                open_parts = np.stack([at + done, left - done], axis=1).tolist()
                continue
            starts, taken, still = [], [], []
            for part in open_parts:
                if part is None:
                    following = next(waiting, None)
                    if following is None:
                        continue  # nothing will be open in its place any more
                    part = list(following)
                some = min(block, part[1])
                starts.append(part[0])
                taken.append(some)
                # A part that ends here is known to have ended when more is asked of it.
                still.append([part[0] + some, part[1] - some] if some == block else None)
            open_parts = still
            if sum(taken):
                yield _Stretch(np.array(starts), np.array(taken), 1)


class InterleaveEpoch:
    """One epoch of interleaved parts."""

    def __init__(self, stretches: list[_Stretch]) -> None:
        sizes = [stretch.rounds * int(stretch.taken.sum()) for stretch in stretches]
        self._stretches, self._ends = stretches, np.cumsum([0, *sizes])
        self.borders = self._ends[[0, -1]]

    def at(self, places: Ints) -> Ints:
        """Return the positions at places, in any order of them, shape (n,)."""
        found = np.empty(len(places), np.int64)
        numbers = np.searchsorted(self._ends, places, side="right") - 1
        for number in np.unique(numbers).tolist():
            own, stretch = np.flatnonzero(numbers == number), self._stretches[number]
            ends = np.cumsum(stretch.taken)
            rounds, within = np.divmod(places[own] - self._ends[number], int(ends[-1]))
            part = ends.searchsorted(within, side="right")
            taken = stretch.taken[part]
            found[own] = stretch.starts[part] + rounds * taken + within - (ends[part] - taken)
        return found
