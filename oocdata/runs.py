"""Decide which steps are read together, and how many of them are in flight.

A read has a fixed cost besides its bytes, so consecutive steps are read at once and handed out one
by one. The batches are the same as if each had been read alone.

A *run* is some steps of an epoch that are read together. A *pass* is what one iteration reads:
consecutive runs of one or more epochs. `Ahead` says how many runs of a pass are in flight.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from oocdata.datasets.dataset import fields_of
from oocdata.engines.buffers import ALIGNMENT
from oocdata.memory import account, batch_share

if TYPE_CHECKING:
    from oocdata.loader import Loader
    from oocdata.stream import Stream

_RUN_BYTES = 32 << 20
"""Largest run: beyond this size, the bytes dominate the cost of a read."""

_RUNS = 4
"""Runs that share the memory for batches: two being read, one handed out, one in use."""

_RUNS_FAR = 16
"""The same for data in a store: behind 100 ms, epochs of Zarr took 1.09 times as long with 4."""

_MOST_STEPS = 256
"""Most steps of a run: batches of 32 cached rows of 784 bytes come 1.5 times as fast as with 64."""

_LONG_RUN = 8 << 20
"""Bytes of a run beyond which it has at most `_MOST_LONG_STEPS` steps."""

_MOST_LONG_STEPS = 64

MOST_WORKERS = 1024
"""Most worker processes of a loader. A larger number is probably a typing error, and could bring
the machine down."""

_FEWEST_RUNS = 8
"""Fewest runs of an epoch: reading ahead needs several."""

_GROWTH = 8
"""Factor by which runs grow at the beginning of a pass: the first batch of a full shuffle of gzip
chunks comes after 15 ms, of long runs alone after 200 ms."""


def steps_together(
    steps: int,
    batch_bytes: int,
    *,
    share: int | None = None,
    share_chunks: bool = False,
    far: bool = False,
) -> int:
    """Return how many steps of an epoch to read at once.

    `share` is the memory for all batches in flight, by default as `set_memory` says. With
    `share_chunks`, as many as memory allows: each row costs the decoding of a chunk, unless other
    rows of the same run are in that chunk too. Where every epoch fetches its bytes from a store
    (`far`), fewer, so that more runs are in flight.
    """
    share = batch_share() if share is None else share
    by_bytes = min(_RUN_BYTES, share // (_RUNS_FAR if far else _RUNS)) // max(1, batch_bytes)
    if not share_chunks:
        many = min(_MOST_STEPS, _LONG_RUN // max(1, batch_bytes))
        by_bytes = min(by_bytes, max(many, _MOST_LONG_STEPS))
    return max(1, min(by_bytes, steps // _FEWEST_RUNS))


@dataclass(frozen=True, slots=True)
class Ahead:
    """How many runs of steps are in flight at a time."""

    together: int  # steps of a run
    reading: int  # runs that are read at a time, at least 1
    ready: int  # runs that may be complete and waiting besides

    @property
    def batches(self) -> int:
        """Most batches that exist at a time, with those of one run handed out and of one in use."""
        return self.together * (self.reading + self.ready + 2)


class Epochs:
    """Base class of `Loader` and `Stream`: frozen dataclasses, iterated over epoch by epoch."""

    array_bytes: Any
    epoch: Any

    def __getstate__(self) -> dict[str, Any]:
        return fields_of(self)

    @property
    def batch_bytes(self) -> int:
        """Bytes of a batch, as read here; for ragged rows, an upper bound."""
        return sum(self.array_bytes)

    @property
    def _epochs(self) -> Iterator[int]:
        """Counter of the epochs of `__iter__`; not part of the description."""
        # `setdefault` is atomic: threads that begin at the same time share one counter.
        epochs: Iterator[int] = self.__dict__.setdefault("_epochs", itertools.count())
        return epochs

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the next epoch: 0 first, then 1, … An epoch counts once it has begun."""
        yield from self.epoch(next(self._epochs))


def run_bytes(loader: Loader | Stream, steps: int) -> int:
    """Return the bytes of the batches of a run, with the padding between arrays."""
    return steps * sum(-(-nbytes // ALIGNMENT) * ALIGNMENT for nbytes in loader.array_bytes)


def plan_ahead(
    together: int,
    batch_bytes: int,
    parallel: int,
    prefetch: int,
    *,
    cached: bool = True,
) -> Ahead:
    """Return how many runs to keep in flight, within the memory for batches.

    At most `parallel` runs are read at a time; besides, `prefetch` batches are kept ready, rounded
    down to whole runs.
    """
    most = batch_share(cached=cached) // max(1, together * batch_bytes) - 2
    reading = max(1, min(parallel, most))
    return Ahead(together, reading, max(0, min(prefetch // together, most - reading)))


def fitted(loader: Loader, pass_: Pass) -> Pass:
    """Return a pass whose runs fit into the memory that other iterations leave now.

    As in `steps_together`, a run takes a quarter of it: so the next iterations find room too.
    """
    step = run_bytes(loader, 1) + loader.input_bytes()
    together = account().room(cached=loader.cached) // (_RUNS * max(1, step))
    return replace(pass_, together=max(1, min(pass_.together, together)))


class Run(NamedTuple):
    """Steps ``start`` to ``stop - 1`` of one epoch.

    `most` is the number of steps of the longest runs, which reuse the memory of this one; 0 for the
    loader's `steps_together`.
    """

    epoch: int
    start: int
    stop: int
    most: int = 0


@dataclass(frozen=True, slots=True)
class Pass:
    """Consecutive steps through one or more epochs, divided into runs.

    Epochs are divided in the same way wherever a pass begins. No run crosses the end of an epoch.
    Runs grow from one step, each eight times as long as the one before: the first batch arrives as
    soon as if it were read alone.

    The pass has `length` steps from `first`, counted through all epochs of `steps` each; a run has
    at most `together`. With `last_alone`, the last step of each epoch is a run of its own: if its
    batch is short, the batches of every run have one length.
    """

    first: int
    length: int
    steps: int
    together: int
    last_alone: bool = False

    def __len__(self) -> int:
        """Return the number of runs."""
        first, _, short = self._skip_short(self.length)
        left = self.first + self.length - first
        return short + (1 + self._number(first + left - 1) - self._number(first) if left else 0)

    def run(self, number: int) -> Run:
        """Return run `number`, for ``0 <= number < len(self)``."""
        first, most, short = self._skip_short(number)
        return self._run(first, number - short, most)

    def _skip_short(self, number: int) -> tuple[int, int, int]:
        """Skip up to `number` short runs at the beginning.

        Returns the first step after them, the most steps of the next run, and how many there were.
        """
        first, most, short = self.first, 1, 0
        while most < self.together and short < number and first < self.first + self.length:
            run = self._run(first, 0, most)
            first, most, short = first + run.stop - run.start, most * _GROWTH, short + 1
        return first, most, short

    def _run(self, first: int, number: int, most: int) -> Run:
        """Return run `number` of those from step `first` on, cut to `most` steps."""
        epoch, at = divmod(self._number(first) + number, self._runs)
        begins, full = epoch * self.steps, self.steps - self.last_alone
        start = min(at * self.together, full)
        end = min(full if start < full else self.steps, self.first + self.length - begins)
        stop, start = min(start + self.together, end), max(start, first - begins)
        return Run(epoch, start, min(stop, start + most), self.together)

    @property
    def _runs(self) -> int:
        """Runs of a whole epoch."""
        return -(-(self.steps - self.last_alone) // self.together) + self.last_alone

    def _number(self, step: int) -> int:
        """Return the number of the run that holds a step, counted through all epochs.

        The short runs at the beginning of a pass are parts of one.
        """
        epoch, at = divmod(step, self.steps)
        is_alone = self.last_alone and at == self.steps - 1
        return epoch * self._runs + (self._runs - 1 if is_alone else at // self.together)


class Passes:
    """Consecutive passes over a loader's steps.

    `begin` takes the step, counted through all epochs, at which the passes so far end, and returns
    the `Pass` that follows.
    """

    def __init__(self, begin: Callable[[int], Pass]) -> None:
        self._begin, self._end, self._lock = begin, 0, threading.Lock()

    def __call__(self) -> Pass:
        """Begin the next pass."""
        with self._lock:
            pass_ = self._begin(self._end)
            self._end = pass_.first + pass_.length
            return pass_

    def follow(self, pass_: Pass) -> None:
        """Let later passes begin after this one too: a pass that was saved and restored."""
        with self._lock:
            self._end = max(self._end, pass_.first + pass_.length)
