"""How fast batches come: the clock that `bench` and `profile` share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from oocdata.datasets.spec import leaves
from oocdata.errors import ArgumentError
from oocdata.loader import Loader
from oocdata.order import BlockShuffle

__all__ = ["Clock", "Epochs", "Pace", "check_seconds", "pace", "steps_of_a_period"]

Clock = Callable[[], float]
Epochs = Callable[[int], Iterator[Any]]
"""Return the batches of an epoch; the iterator is closed where it can be."""

_DAY = 86_400

_SLOW = 4.0
"""How many times as long as asked for a stretch may take to complete a period."""

_STEADY = 16
"""Periods of an epoch; in a shorter one, what is read ahead is too much of it."""


def check_seconds(seconds: object) -> None:
    """Refuse what is no time to measure for.

    Raises
    ------
    oocdata.errors.ArgumentError

    Examples
    --------
    >>> check_seconds(0.5)
    """
    number = isinstance(seconds, int | float | np.number) and not isinstance(seconds, bool)
    if not number or not 0 < seconds <= _DAY:  # type: ignore[operator]  # it is a number
        raise ArgumentError(f"`seconds` must be a number above 0, up to a day; got {seconds!r}.")


@dataclass(frozen=True, slots=True)
class Pace:
    """What came in a stretch of time.

    Attributes
    ----------
    elements, batches : int
    seconds : float
    waited : float
        Seconds of these in which whoever consumes waited for a batch.
    """

    elements: int = 0
    batches: int = 0
    seconds: float = 0.0
    waited: float = 0.0

    @property
    def rate(self) -> float:
        """Elements a second."""
        return self.elements / max(self.seconds, 1e-9)

    def since(self, other: Pace) -> Pace:
        """Return what came after an earlier time."""
        return self.plus(Pace(-other.elements, -other.batches, -other.seconds, -other.waited))

    def plus(self, other: Pace) -> Pace:
        """Return two stretches as one."""
        return Pace(
            self.elements + other.elements,
            self.batches + other.batches,
            self.seconds + other.seconds,
            self.waited + other.waited,
        )


def steps_of_a_period(loader: Loader) -> int:
    """Return after how many steps reading is where it was: a run, or a window of the shuffle.

    Examples
    --------
    >>> import numpy as np, oocdata as ooc
    >>> from oocdata.testing import RecordingSource
    >>> view = ooc.View.of(RecordingSource(np.zeros((100, 3)), chunks=10))
    >>> steps_of_a_period(view.batches(8, shuffle=ooc.BlockShuffle(10, 4)))
    5
    """
    order = loader.order
    mixed = 0
    if isinstance(order, BlockShuffle) and loader.chunked:
        mixed = order.elements_mixed(len(loader.dataset))
    return max(loader.steps_together, -(-mixed // loader.batch_size))


def pace(
    epochs: Epochs,
    seconds: float,
    *,
    period: int = 1,
    first: int = 0,
    consume: Callable[[Any], object] | None = None,
    clock: Clock = perf_counter,
) -> Pace:
    """Take batches for some time, epoch after epoch.

    What is read together arrives together, so the clock starts and stops only where a new period
    begins to arrive. What came with the first of an epoch counts, the wait for it doesn't: in a
    steady flow there is as much on its way at the end as at the start. An epoch that ends after few
    periods is clocked from end to end: nothing is on its way at its end.

    Parameters
    ----------
    epochs : callable
    seconds : float
        The stretch ends with the first period to arrive after so many.
    period : int
        Batches; see `steps_of_a_period`.
    first : int
        The epoch to begin with.
    consume : callable, optional
        Called with each batch.
    clock : callable
        Returns seconds.

    Examples
    --------
    >>> import numpy as np, oocdata as ooc
    >>> loader = ooc.open(np.zeros((100, 3))).batches(10)
    >>> pace(loader.epoch, seconds=0.0).batches  # one, and the next ends it
    1
    """
    end = clock() + _SLOW * seconds
    total, epoch = Pace(), first
    while True:
        left = seconds - total.seconds
        total = total.plus(_epoch(epochs(epoch), left, end, period, consume, clock))
        if total.seconds >= seconds or clock() > end:
            return total
        epoch += 1


def _epoch(
    iterator: Iterator[Any],
    left: float,
    end: float,
    period: int,
    consume: Callable[[Any], object] | None,
    clock: Clock,
) -> Pace:
    """Take batches of one epoch, to its end or until the time that is left is over."""
    asked = clock()
    begun, start, last = Pace(seconds=asked), None, None
    elements, batches, waited = 0, 0, 0.0
    try:
        for batch in iterator:
            now = clock()
            waited += now - asked
            if batches % period == 0 or (start and now > end):
                last = Pace(elements, batches, now, waited)
                start = start or last
                if last is not start and now - start.seconds >= left:
                    return last.since(start)
            elements += len(next(leaves(batch)))
            batches += 1
            if consume is not None:
                consume(batch)
            del batch
            asked = clock()
    finally:
        close = getattr(iterator, "close", None)
        if close is not None:
            close()
    if start and last and batches >= _STEADY * period:
        return last.since(start)
    return Pace(elements, batches, asked, waited).since(begun)
