"""Which steps of each epoch were delivered to a trainer, and which to ask for again.

tf.data service promises each element at most once: what a worker held that ended is lost, and
whoever reads waits until somebody starts a worker at the same address. Here every batch brings its
step, so an epoch is complete when all steps have come, whatever the workers say. Once a worker has
said that there is nothing more to deal out, and nothing has come for a while, what is missing is
lost: it is asked for anew, of the workers that there are. What the first time would still have
brought is never looked at, so nothing comes twice.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from oocdata.errors import WorkerError
from oocdata.runs import Pass

__all__ = ["ATTEMPTS", "Delivery", "parts_of"]

ATTEMPTS = 8
"""Times that what is missing is asked for."""

PATIENCE = 10.0
"""Seconds without a batch after which it is lost, if no more are dealt out; then twice as many."""


@dataclass(slots=True)
class _Epoch:
    """One epoch of one pass: its first step, which have come, how often it was asked for before."""

    start: int
    came: NDArray[np.bool_]
    attempt: int = 0
    quiet: float | None = None
    """Monotonic time since which only end-of-data messages arrived. (Not since the last batch:
    whoever trains may have taken long before asking for the next.)"""


@dataclass(slots=True)
class Delivery:
    """What one dataset has got so far; safe to use from several threads.

    A worker is `dealt` so many neighbouring steps of an epoch at a time, at most. Each `Pass` ends
    with an epoch. If `shared`, others get batches of the same epochs: nobody knows what is missing.

    Examples
    --------
    >>> begin = lambda: Pass(first=0, length=4, steps=4, together=1)
    >>> delivery = Delivery(4, 3, begin, shared=False)
    >>> begun = delivery.begin()
    >>> delivery.missing(begun, epoch=0, attempt=0).tolist()
    [[0, 3], [3, 4]]
    >>> for step in (3, 0, 1):
    ...     goes_on = delivery.arrived(begun, epoch=0, step=step)
    >>> delivery.missing(begun, epoch=0, attempt=1).tolist()
    [[2, 3]]
    """

    steps: int
    dealt: int
    begin_pass: Callable[[], Pass]
    shared: bool
    _epochs: dict[tuple[int, int], _Epoch] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self) -> int:
        """Begin the next pass; return where, in steps counted through all epochs."""
        return self.begin_pass().first

    def missing(self, begun: int, epoch: int, attempt: int) -> NDArray[np.int64]:
        """Return the steps of an epoch that have not come, in parts; see `parts_of`.

        `begun` is what `begin` returned, `attempt` 0 for the first time. WorkerError if something
        is still missing in attempt `ATTEMPTS`.
        """
        start = max(0, begun - epoch * self.steps)
        if self.shared:
            return parts_of(np.arange(start, start if attempt else self.steps), self.dealt)
        with self._lock:
            if attempt == 0:
                self._epochs[begun, epoch] = _Epoch(start, np.zeros(self.steps - start, np.bool_))
            state = self._epochs[begun, epoch]
            state.attempt, state.quiet = attempt, None
            left = start + np.flatnonzero(~state.came)
            if attempt == ATTEMPTS:
                del self._epochs[begun, epoch]
        if attempt == ATTEMPTS and len(left):
            raise WorkerError(
                f"the workers of the service must read every step of epoch {epoch}; {len(left)} "
                f"did not come, though asked for {ATTEMPTS} times. See what the workers print.",
                epoch=epoch,
                step=int(left[0]),
            )
        return parts_of(left, self.dealt)

    def arrived(self, begun: int, epoch: int, step: int) -> bool:
        """Note that a step has come, or with -1 that a worker has nothing more to read.

        Returns whether more can still come; if not, what is missing is lost.
        """
        with self._lock:
            state, now = self._epochs[begun, epoch], time.monotonic()
            if step < 0:
                state.quiet = now if state.quiet is None else state.quiet
                return bool(now - state.quiet < PATIENCE * 2**state.attempt)
            state.came[step - state.start], state.quiet = True, None
            return True


def parts_of(steps: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Return ascending steps as parts of neighbours, first step and end, shape (n, 2).

    A part ends at a multiple of `most`, so it has no more steps.

    Examples
    --------
    >>> parts_of(np.array([1, 2, 3, 4, 7]), 3).tolist()
    [[1, 3], [3, 5], [7, 8]]
    """
    begins = (np.diff(steps, prepend=-2) != 1) | (steps % most == 0)
    firsts = np.flatnonzero(begins)
    ends = np.append(firsts[1:], len(steps))[: len(firsts)]
    return np.stack([steps[firsts], steps[ends - 1] + 1], axis=1)
