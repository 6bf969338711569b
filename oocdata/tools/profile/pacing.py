"""How fast batches come: the clock that `bench` and `profile` share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from time import perf_counter
from typing import Any, NamedTuple

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


def check_seconds(seconds: object) -> None:
    """Raise unless `seconds` is a time to measure for.

    Examples
    --------
    >>> check_seconds(0.5)
    """
    number = isinstance(seconds, int | float | np.number) and not isinstance(seconds, bool)
    if not number or not 0 < seconds <= _DAY:  # type: ignore[operator]  # it is a number
        raise ArgumentError(f"`seconds` must be a number above 0, up to a day; got {seconds!r}.")


class Pace(NamedTuple):
    """What came in a stretch of time: elements a second, and the share spent waiting for them."""

    rate: float
    waited: float


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

    Batches that are read together arrive together, so the clock runs from the first arrival to the
    first of a later period. In a steady flow as much is on its way then as at the start.

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
    >>> ticks = iter(range(100))
    >>> pace(lambda epoch: iter([[1, 2]] * 9), seconds=6, clock=lambda: next(ticks))
    Pace(rate=1.0, waited=0.5)
    """
    start, asked, elements, waited = None, 0.0, 0, 0.0
    for epoch in count(first):
        iterator = epochs(epoch)
        try:
            for number, batch in enumerate(iterator):
                now = clock()
                if start is None:
                    start = asked = now
                waited += now - asked
                spent = now - start
                whole = number % period == 0 or spent > _SLOW * seconds
                if elements and whole and spent >= seconds:
                    return Pace(elements / max(spent, 1e-9), waited / max(spent, 1e-9))
                elements += len(next(leaves(batch)))
                if consume is not None:
                    consume(batch)
                del batch
                asked = clock()
        finally:
            close = getattr(iterator, "close", None)
            if close is not None:
                close()
    raise AssertionError("epochs go on for ever")
