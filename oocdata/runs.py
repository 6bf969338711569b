"""Which steps are read together, and how many of them are under way.

What a read costs besides the bytes (arithmetic, handing the GIL over, a call from TensorFlow) is
the same for 30 rows as for 3,000. So steps that follow one another are read at once, up to a few
MiB, and handed out one by one; the batches are the same as if each had been read alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from oocdata.memory import batch_share

__all__ = ["MOST_WORKERS", "Ahead", "Pass", "Passes", "Run", "plan_ahead", "steps_together"]

_RUN_BYTES = 32 << 20
"""More steps are not read together: by then the bytes are the cost."""

_RUNS = 4
"""Runs that share the memory for batches: two are read, one is handed out, one is in use."""

_RUNS_FAR = 16
"""The same where bytes lie in a store. Shorter runs are there sooner (the first of Zarr behind 100
ms after 0.7 s, with 8 after 1.0), and those that follow are asked for anyway."""

_MOST_STEPS = 64
"""The cost besides the bytes is divided by as much: what is left of it no longer matters."""

MOST_WORKERS = 1024
"""Worker processes of a loader: more are a slip of the keyboard, and would end the machine."""

_FEWEST_RUNS = 8
"""Runs in an epoch, at least: reading ahead needs several."""

_OBJECT_BYTES = 8 << 20
"""The same where elements are Python objects. Their memory is not recycled here: of more of it at a
time, malloc gives the system back what it takes again for the next run."""


def steps_together(
    steps: int,
    batch_bytes: int,
    *,
    share_chunks: bool = False,
    objects: bool = False,
    far: bool = False,
) -> int:
    """Return how many steps of an epoch to read at once.

    Where each epoch fetches bytes from a store (`far`), they are cut so that more runs fit side by
    side.

    With `share_chunks` the more the better: each row costs the decoding of a chunk, unless others
    of the same read lie in it too.
    """
    share = batch_share() // (_RUNS_FAR if far else _RUNS)
    most_bytes = min(_OBJECT_BYTES if objects else _RUN_BYTES, share)
    by_bytes = most_bytes // max(1, batch_bytes)
    most = by_bytes if share_chunks else min(by_bytes, _MOST_STEPS)
    return max(1, min(most, steps // _FEWEST_RUNS))


@dataclass(frozen=True, slots=True)
class Ahead:
    """How many runs of steps are under way at a time.

    Attributes
    ----------
    together : int
        Steps of a run.
    reading : int
        Runs that are read at a time, at least 1.
    ready : int
        Runs that may lie ready besides.
    """

    together: int
    reading: int
    ready: int

    @property
    def batches(self) -> int:
        """Batches that exist at a time, at most: one run is handed out besides, and one in use."""
        return self.together * (self.reading + self.ready + 2)


def plan_ahead(
    together: int,
    batch_bytes: int,
    parallel: int,
    prefetch: int,
    *,
    cached: bool = True,
) -> Ahead:
    """Return how many runs to have under way, within the memory for batches.

    At most `parallel` of them are read at a time, and `prefetch` batches kept ready besides, in
    whole runs.
    """
    most = batch_share(cached=cached) // max(1, together * batch_bytes) - 2
    reading = max(1, min(parallel, most))
    return Ahead(together, reading, max(0, min(prefetch // together, most - reading)))


class Run(NamedTuple):
    """Steps ``start`` to ``stop - 1`` of one epoch."""

    epoch: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Pass:
    """Steps that follow one another through epochs, cut into runs.

    A run ends where its epoch does, so only its last batch can be a short one.

    With `waits`, for bytes that take long to come, the first step is a run of its own: no batch of
    a pass is waited for as the first one is.

    Attributes
    ----------
    first : int
        Where the pass begins, in steps counted through all epochs.
    length : int
        Its steps.
    steps : int
        Steps of an epoch.
    together : int
        Steps of a run, at most.
    waits : bool

    Examples
    --------
    >>> over = Pass(first=7, length=8, steps=10, together=2)
    >>> [tuple(over.run(number)) for number in range(len(over))]
    [(0, 7, 9), (0, 9, 10), (1, 0, 2), (1, 2, 4), (1, 4, 5)]
    >>> [tuple(Pass(0, 5, 5, 3, waits=True).run(number)) for number in range(3)]
    [(0, 0, 1), (0, 1, 3), (0, 3, 5)]
    """

    first: int
    length: int
    steps: int
    together: int
    waits: bool = False

    def __len__(self) -> int:
        """Return the number of runs."""
        head = self._head
        epochs, rest = divmod(self.length - head, self.steps)
        runs = self._runs(head) + epochs * self._runs(self.steps) + self._runs(rest)
        return runs + self._cuts_first

    @property
    def _cuts_first(self) -> bool:
        return self.waits and min(self._head, self.together) > 1

    @property
    def _head(self) -> int:
        """Steps up to the end of the first epoch."""
        return min(self.length, self.steps - self.first % self.steps)

    def _runs(self, steps: int) -> int:
        return -(-steps // self.together)

    def run(self, number: int) -> Run:
        """Return one run, of ``0 <= number < len(self)``."""
        if self._cuts_first:
            run = replace(self, waits=False).run(max(0, number - 1))
            second = run.start + 1
            if number > 1:
                return run
            return run._replace(start=second) if number else run._replace(stop=second)
        head = self._head
        epoch, start = divmod(self.first, self.steps)
        stop = start + head
        if number < self._runs(head):
            start += number * self.together
        else:
            epochs, number = divmod(number - self._runs(head), self._runs(self.steps))
            epoch += 1 + epochs
            start = number * self.together
            stop = min(self.steps, max(0, self.length - head - epochs * self.steps))
        return Run(epoch, min(start, stop), min(start + self.together, stop))


class Passes:
    """Passes over a loader's steps, each of which follows the one before.

    Parameters
    ----------
    begin : callable
        Returns the `Pass` after those that end at a step, counted through all epochs.

    Examples
    --------
    >>> passes = Passes(lambda end: Pass(first=end, length=10, steps=10, together=2))
    >>> passes().first, passes().first
    (0, 10)
    >>> passes.follow(Pass(first=50, length=10, steps=10, together=2))
    >>> passes().first
    60
    """

    def __init__(self, begin: Callable[[int], Pass]) -> None:
        self._begin, self._end, self._lock = begin, 0, threading.Lock()

    def __call__(self) -> Pass:
        """Begin the next pass."""
        with self._lock:
            over = self._begin(self._end)
            self._end = over.first + over.length
            return over

    def follow(self, over: Pass) -> None:
        """Have those to come follow another one too, which was saved elsewhere."""
        with self._lock:
            self._end = max(self._end, over.first + over.length)
