"""The positions of each step: an order cut into batches, and batches into the shares of ranks."""

from __future__ import annotations

import itertools
import os
import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.order.order import Order, Walk, laned, length_of, walk_of
from oocdata.threads import cached_property

__all__ = ["Steps"]

_STRETCH = 32768
"""Positions computed at once: an order is some seventy array operations, on thirty integers or on
thousands, and each waits for the GIL. The stretch around a step is computed once, and the next
steps are slices of it. Against 8,192: 1.2 times (rows of 784 bytes, batches of 32, by NumPy)."""

_computing = threading.RLock()
"""Threads that read neighbouring runs need the same stretch at the same time."""


@dataclass(frozen=True, eq=False)
class Steps:
    """The steps of an epoch, as one rank sees them.

    Of an order with lanes every batch takes the same number of positions from each lane, and a rank
    has whole lanes; of other orders it has a part of every batch. Either way the global batches are
    the same for any number of ranks. All ranks get as many elements of a short last batch: those
    that can't be dealt out are dropped.

    Attributes
    ----------
    order, count, batch_size, seed, drop_remainder
        Of a loader: all ranks together.
    num_shards, index : int
        Which rank this is. `num_shards` divides the batch size and the lanes.

    Examples
    --------
    >>> from oocdata.order import Sequential
    >>> steps = Steps(Sequential(), 10, 4, seed=0, drop_remainder=False, num_shards=2, index=1)
    >>> steps.number, [steps.positions(step, epoch=0).tolist() for step in range(3)]
    (3, [[2, 3], [6, 7], [9]])
    """

    order: Order
    count: int
    batch_size: int
    seed: int
    drop_remainder: bool
    num_shards: int = 1
    index: int = 0
    _stretches: dict[tuple[int, int], NDArray[np.int64]] = field(default_factory=dict, init=False)
    _epochs: dict[int, Walk] = field(default_factory=dict, init=False)

    @cached_property
    def length(self) -> int:
        """Places in an epoch: the positions, unless the order says otherwise."""
        return length_of(self.order, self.count)

    @cached_property
    def used(self) -> int:
        """Places visited in an epoch, by all ranks together."""
        rest = self.length % self.batch_size
        return self.length - (rest if self.drop_remainder else rest % self.num_shards)

    @cached_property
    def number(self) -> int:
        """Steps in an epoch."""
        return -(-self.used // self.batch_size)

    @cached_property
    def lanes(self) -> int:
        """Parts of a batch that ranks of their own can read."""
        order = laned(self.order)
        return self.batch_size if order is None else order.lanes or 1

    @cached_property
    def lane(self) -> int:
        """The first lane of this rank."""
        return self.index * self.lanes // self.num_shards

    @cached_property
    def _share(self) -> int:
        """Positions of a full step of this rank."""
        return self.batch_size // self.num_shards

    @cached_property
    def _together(self) -> int:
        return max(1, _STRETCH // self.batch_size)

    def positions(self, step: int, epoch: int) -> NDArray[np.int64]:
        """Return the positions of a step of this rank, read-only; nothing is checked."""
        number = step // self._together
        try:
            stretch = self._stretches[epoch, number]
        except KeyError:
            stretch = self._computed(number, epoch)
        first = (step - number * self._together) * self._share
        return stretch[first : first + self._share]

    def run(self, start: int, stop: int, epoch: int) -> list[NDArray[np.int64]]:
        """Return the positions of steps of this rank, one step after the other, in a few arrays."""
        parts = []
        for number in range(start // self._together, (stop - 1) // self._together + 1):
            try:
                stretch = self._stretches[epoch, number]
            except KeyError:
                stretch = self._computed(number, epoch)
            first = number * self._together
            parts.append(
                stretch[max(0, start - first) * self._share : (stop - first) * self._share]
            )
        return parts

    def lengths(self, start: int, stop: int) -> list[int]:
        """Return how many positions each of some steps of this rank has."""
        lengths = [self._share] * (stop - start)
        if stop == self.number:
            used = self.used - (stop - 1) * self.batch_size
            lengths[-1] = used // self.num_shards
        return lengths

    def _computed(self, number: int, epoch: int) -> NDArray[np.int64]:
        """Return a stretch of steps, computed by the first thread that asks, and remembered."""
        with _computing:
            found = self._stretches.get((epoch, number))
            if found is not None:
                return found
            start = number * self._together
            stop = min(start + self._together, self.number)
            walk = self._epochs.get(epoch)
            if walk is None:
                walk = walk_of(self.order, self.count, self.seed, epoch)
                _keep(self._epochs, epoch, walk, most=2)  # while one ends, the next is read ahead
            of_steps = self._of_all if laned(self.order) is None else self._of_lanes
            stretch = of_steps(walk, start, stop).view()
            stretch.flags.writeable = False
            _keep(self._stretches, (epoch, number), stretch, most=8)
            return stretch

    def _of_all(self, walk: Walk, start: int, stop: int) -> NDArray[np.int64]:
        """Return this rank's part of each batch, of an order without lanes."""
        size, shards = self.batch_size, self.num_shards
        positions = walk.at(np.arange(start * size, min(stop * size, self.used)))
        if shards == 1:
            return positions
        batches = [positions[first : first + size] for first in range(0, len(positions), size)]
        return np.concatenate([np.split(batch, shards)[self.index] for batch in batches])

    def _of_lanes(self, walk: Walk, start: int, stop: int) -> NDArray[np.int64]:
        """Return what this rank's lanes give to each batch."""
        each, mine = self.batch_size // self.lanes, self.lanes // self.num_shards
        borders = walk.borders[self.lane : self.lane + mine + 1]
        whole = min(stop, self.used // self.batch_size)
        # Lane by lane: neighbouring places lie in one window.
        number = whole - start
        places = borders[:-1, None] + np.arange(start * each, whole * each)
        last = []
        if stop > whole:  # the last step takes what each lane has left
            ends = itertools.pairwise(borders.tolist())
            rest = [np.arange(first + whole * each, end) for first, end in ends]
            share = (self.used - whole * self.batch_size) // self.num_shards
            last = [np.concatenate(rest)[:share]]
        positions = walk.at(np.concatenate([places.ravel(), *last]))
        of_lanes = positions[: places.size].reshape(mine, number, each)
        return np.concatenate([of_lanes.transpose(1, 0, 2).ravel(), positions[places.size :]])


def _keep(recent: dict[Any, Any], key: Any, value: Any, *, most: int) -> None:
    """Add an entry, and drop those added longest ago. No thread can divide any of the steps."""
    recent[key] = value
    for old in list(recent)[:-most]:
        recent.pop(old, None)


def _fresh_after_fork() -> None:
    global _computing
    _computing = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_fresh_after_fork)
