"""Which steps are read together, and how many of them are under way.

What a read costs besides the bytes (arithmetic, handing the GIL over, a call from TensorFlow) is
the same for 30 rows as for 3,000. So steps that follow one another are read at once, up to a few
MiB, and handed out one by one; the batches are the same as if each had been read alone.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from oocdata.datasets.dataset import fields_of
from oocdata.datasets.spec import Batch
from oocdata.engines.buffers import ALIGNMENT
from oocdata.memory import batch_share

if TYPE_CHECKING:
    from oocdata.loader import Loader
    from oocdata.stream import Stream

__all__ = [
    "MOST_WORKERS", "Ahead", "Epochs", "Pass", "Passes", "Run", "plan_ahead", "run_bytes",
    "steps_together",
]  # fmt: skip

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


class Epochs:
    """What is iterated over again and again, a frozen dataclass: a loader, or a stream."""

    array_bytes: Any
    epoch: Any

    def __getstate__(self) -> dict[str, Any]:
        return fields_of(self)

    @property
    def batch_bytes(self) -> int:
        """Bytes of a batch that is read here; of rows of any length, at most."""
        return sum(self.array_bytes)

    @property
    def _epochs(self) -> Iterator[int]:
        """Which epoch comes next: of whoever iterates, not of the description."""
        # In one step: threads that begin together share it.
        epochs: Iterator[int] = self.__dict__.setdefault("_epochs", itertools.count())
        return epochs

    def __iter__(self) -> Iterator[Batch]:
        """Iterate over the next epoch: 0 first, then 1, … An epoch counts once it is begun."""
        yield from self.epoch(next(self._epochs))


def run_bytes(loader: Loader | Stream, steps: int) -> int:
    """Return the bytes of the batches of a run of steps, with the padding between arrays.

    Examples
    --------
    >>> import numpy as np, oocdata as ooc
    >>> run_bytes(ooc.open(np.zeros((8, 3), "f4")).batches(4), steps=2)
    128
    """
    return steps * sum(-(-nbytes // ALIGNMENT) * ALIGNMENT for nbytes in loader.array_bytes)


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

    Epochs are cut alike wherever a pass begins. A run ends where its epoch does, so only its last
    batch can be a short one.

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
    [(0, 7, 8), (0, 8, 10), (1, 0, 2), (1, 2, 4), (1, 4, 5)]
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
        if not self.length:
            return 0
        last = self.first + self.length - 1
        return 1 + self._number(last) - self._number(self.first) + self._cuts_first

    @property
    def _cuts_first(self) -> bool:
        """Whether the first run would have more than its first step."""
        second = self._number(self.first + 1)
        return self.waits and self.length > 1 and second == self._number(self.first)

    @property
    def _runs(self) -> int:
        """Of a whole epoch."""
        return -(-self.steps // self.together)

    def _number(self, step: int) -> int:
        """Return which run a step lies in, those of all epochs counted."""
        epoch, at = divmod(step, self.steps)
        return epoch * self._runs + at // self.together

    def run(self, number: int) -> Run:
        """Return one run, of ``0 <= number < len(self)``."""
        if self._cuts_first:
            run = replace(self, waits=False).run(max(0, number - 1))
            second = run.start + 1
            if number > 1:
                return run
            return run._replace(start=second) if number else run._replace(stop=second)
        epoch, at = divmod(self._number(self.first) + number, self._runs)
        begins, start = epoch * self.steps, at * self.together
        stop = min(start + self.together, self.steps, self.first + self.length - begins)
        return Run(epoch, max(start, self.first - begins), stop)


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
