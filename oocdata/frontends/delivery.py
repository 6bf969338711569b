"""Track which steps of each epoch were delivered to a trainer, and which to request again.

tf.data service delivers each element at most once: batches held by a worker that ends are lost.
Here every batch carries its step, so an epoch is complete when all steps have arrived. If a worker
has reported the end of its data and nothing has arrived for a while, the missing steps are lost,
and are requested again, from the workers that are alive. Late answers to the first request are
ignored, so nothing is delivered twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Ints
from oocdata.errors import WorkerError
from oocdata.runs import Pass

ATTEMPTS = 8
"""Number of times that missing steps are requested."""

PATIENCE = 10.0
"""Seconds without a batch, after all parts were dealt out, until the missing steps count as lost;
the time doubles with each attempt."""


@dataclass(slots=True)
class _Epoch:
    """One epoch of one pass: for each step whether it arrived or is not needed, and the attempt."""

    has_arrived: NDArray[np.bool_]
    attempt: int = 0
    quiet: float | None = None
    """Monotonic time since which only end-of-data messages arrived. (Not the time of the last
    batch: a trainer may take long before it requests the next.)"""


@dataclass(slots=True)
class Delivery:
    """The steps that one dataset has received.

    Passes may be read in several threads, an epoch of a pass in one at a time.
    A worker is dealt at most `part_steps` neighbouring steps of an epoch at a time, and step
    `alone`, whose batch is short, by itself. Each `Pass` ends with an epoch. If `shared`, other
    trainers receive batches of the same epochs, so missing steps are unknown.
    """

    steps: int
    part_steps: int
    begin_pass: Callable[[], Pass]
    shared: bool
    alone: int = -1
    _epochs: dict[tuple[int, int], _Epoch] = field(default_factory=dict)

    def begin(self) -> int:
        """Begin the next pass; return its first step, counted through all epochs."""
        return self.begin_pass().first

    def missing(self, begun: int, epoch: int, attempt: int) -> Ints:
        """Return the steps of an epoch that have not arrived, as parts; see `parts_of`.

        `begun` is the result of `begin`; `attempt` is 0 for the first request. Raises WorkerError
        if steps are still missing in attempt `ATTEMPTS`.
        """
        start = max(0, begun - epoch * self.steps)
        if self.shared:
            asked = np.arange(start, start if attempt else self.steps)
            return parts_of(asked, self.part_steps, self.alone)
        if attempt == 0:
            self._epochs[begun, epoch] = _Epoch(np.arange(self.steps) < start)
        state = self._epochs[begun, epoch]
        state.attempt, state.quiet = attempt, None
        missing_steps = np.flatnonzero(~state.has_arrived)
        if attempt == ATTEMPTS:
            del self._epochs[begun, epoch]
        if attempt == ATTEMPTS and len(missing_steps):
            raise WorkerError(
                f"the workers of the service must read every step of epoch {epoch}; "
                f"{len(missing_steps)} did not come, though asked for {ATTEMPTS} times. See what "
                "the workers print.",
                epoch=epoch,
                step=int(missing_steps[0]),
            )
        return parts_of(missing_steps, self.part_steps, self.alone)

    def arrived(self, begun: int, epoch: int, step: int) -> bool:
        """Record that a step has arrived, or, with -1, that a worker has nothing more to read.

        Returns whether more steps can still arrive; if not, the missing steps are lost.
        """
        state, now = self._epochs[begun, epoch], time.monotonic()
        if step < 0:
            state.quiet = now if state.quiet is None else state.quiet
            return bool(now - state.quiet < PATIENCE * 2**state.attempt)
        state.has_arrived[step], state.quiet = True, None
        return True


def parts_of(steps: Ints, most: int, alone: int = -1) -> Ints:
    """Divide ascending steps into parts of neighbours; return (first, stop) of each, shape (n, 2).

    A part ends at a multiple of `most`, so it has at most as many steps. The step `alone`, the last
    of an epoch, is a part by itself.
    """
    begins = (np.diff(steps, prepend=-2) != 1) | (steps % most == 0) | (steps == alone)
    firsts = np.flatnonzero(begins)
    ends = np.append(firsts[1:], len(steps))[: len(firsts)]
    return np.stack([steps[firsts], steps[ends - 1] + 1], axis=1)
