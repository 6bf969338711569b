"""Cut an order into batches, and batches into the shares of ranks."""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from oocdata.box import Ints
from oocdata.order.order import EpochOrder, Order, checked_epoch
from oocdata.threads import cached_property, fork_safe

_STRETCH = 32768
"""Positions computed at once. An order takes some seventy array operations, whether on thirty or
thousands of integers, and each waits for the GIL. So the stretch around a step is computed once,
and the next steps are slices of it. 1.2 times as fast as 8,192 (rows of 784 bytes, batches of 32,
by NumPy)."""

_computing = fork_safe(threading.RLock())
"""Held while a stretch is computed: threads that read adjacent runs need the same one."""


@dataclass(frozen=True, eq=False)
class Steps:
    """The steps of an epoch of one rank, `index` of `num_shards`.

    If the order has lanes, every batch takes the same number of positions from each lane, and a
    rank has whole lanes; otherwise a rank has a part of every batch. Either way the global batches
    are the same for any number of ranks, which divides the batch size and the lanes. All ranks get
    equally many elements of a short last batch; elements left over are dropped.
    """

    order: Order
    count: int
    batch_size: int
    seed: int
    drop_remainder: bool
    num_shards: int = 1
    index: int = 0
    _stretches: dict[tuple[int, int], Ints] = field(default_factory=dict, init=False)
    _epochs: dict[int, EpochOrder] = field(default_factory=dict, init=False)

    @cached_property
    def length(self) -> int:
        """Places of an epoch."""
        return self.order.epoch_length(self.count)

    @cached_property
    def used(self) -> int:
        """Places visited in an epoch by all ranks together."""
        rest = self.length % self.batch_size
        return self.length - (rest if self.drop_remainder else rest % self.num_shards)

    @cached_property
    def number(self) -> int:
        """Steps in an epoch."""
        return -(-self.used // self.batch_size)

    @cached_property
    def lanes(self) -> int:
        """Parts of a batch that different ranks can read."""
        return self.order.lanes or self.batch_size

    @cached_property
    def lane(self) -> int:
        """The first lane of this rank."""
        return self.index * self.lanes // self.num_shards

    @cached_property
    def _rank_size(self) -> int:
        """Positions of a full step of this rank."""
        return self.batch_size // self.num_shards

    @cached_property
    def _stretch_steps(self) -> int:
        return max(1, _STRETCH // self.batch_size)

    def positions(self, step: int, epoch: int) -> Ints:
        """Return the positions of a step of this rank, read-only; arguments are not checked."""
        (positions,) = self.run(step, step + 1, epoch)
        return positions

    def run(self, start: int, stop: int, epoch: int) -> list[Ints]:
        """Return the positions of consecutive steps of this rank, in a few read-only arrays."""
        parts = []
        size = self._rank_size
        for number in range(start // self._stretch_steps, (stop - 1) // self._stretch_steps + 1):
            try:
                stretch = self._stretches[epoch, number]
            except KeyError:
                stretch = self._stretch(number, epoch)
            first = number * self._stretch_steps
            parts.append(stretch[max(0, start - first) * size : (stop - first) * size])
        return parts

    def lengths(self, start: int, stop: int) -> list[int]:
        """Return the number of positions of each of a range of steps of this rank."""
        lengths = [self._rank_size] * (stop - start)
        if stop == self.number:
            used = self.used - (stop - 1) * self.batch_size
            lengths[-1] = used // self.num_shards
        return lengths

    def _stretch(self, number: int, epoch: int) -> Ints:
        """Return the positions of a stretch of steps, computed once for all threads."""
        with _computing:
            cached = self._stretches.get((epoch, number))
            if cached is not None:
                return cached
            start = number * self._stretch_steps
            stop = min(start + self._stretch_steps, self.number)
            order = self._epochs.get(epoch)
            if order is None:
                order = checked_epoch(self.order, self.count, self.seed, epoch)
                _add(self._epochs, epoch, order, most=2)  # while one ends, the next is read ahead
            stretch = self._positions(order, start, stop).view()
            stretch.flags.writeable = False
            _add(self._stretches, (epoch, number), stretch, most=8)
            return stretch

    def _positions(self, order: EpochOrder, start: int, stop: int) -> Ints:
        """Return the positions of a range of steps of this rank."""
        size, full = self.batch_size, min(stop, self.used // self.batch_size)
        share = (self.used - full * size) // self.num_shards if stop > full else 0
        last = []  # places of this rank in a short last step
        if self.order.lanes is None:
            each, width = size, self._rank_size
            begins = np.array([self.index * width])
            last = [np.arange(share) + (full * size + self.index * share)]
        else:
            each = width = size // self.lanes
            lanes = self.lanes // self.num_shards
            own = range(self.lane, self.lane + lanes + 1)
            borders = [lane * self.length // self.lanes for lane in own]
            begins = np.array(borders[:-1])
            if share:  # the last step takes the rest of each lane
                ends = itertools.pairwise(borders)
                rest = [np.arange(first + full * each, end) for first, end in ends]
                last = [np.concatenate(rest)[:share]]
        # Lane by lane: adjacent places are in one window.
        steps = np.arange(start, full)[:, None] * each
        # Without a full step, none of its places: a batch may be larger than the dataset.
        places = begins[:, None, None] + (steps + np.arange(width if len(steps) else 0))
        every = np.concatenate([places.ravel(), *last])
        positions = order(every) if len(every) else every
        by_lane = positions[: places.size].reshape(places.shape)
        return np.concatenate([by_lane.transpose(1, 0, 2).ravel(), positions[places.size :]])


def _add(cached: dict[Any, Any], key: Any, value: Any, *, most: int) -> None:
    """Add an entry, and drop the oldest ones beyond `most`. Each operation is atomic."""
    cached[key] = value
    for old in list(cached)[:-most]:
        cached.pop(old, None)
