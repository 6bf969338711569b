"""How fast batches come: the clock that `bench` and `profile` share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import count
from math import prod
from time import perf_counter
from typing import Any, NamedTuple, TypeVar

import numpy as np

from oocdata.datasets.spec import leaves
from oocdata.errors import ArgumentError
from oocdata.loader import Loader
from oocdata.memory import cache_share
from oocdata.order import Sequential
from oocdata.order.order import laned

__all__ = [
    "ROUNDS", "Clock", "Epochs", "Measure", "Pace", "check_seconds", "pace", "steps_of_a_period",
    "take_turns",
]  # fmt: skip

Clock = Callable[[], float]
Measure = Callable[[float, int], float]
"""Does its work for about so many seconds, in a round of that number, and returns a rate."""

Epochs = Callable[[int], Iterator[Any]]
"""Return the batches of an epoch; the iterator is closed where it can be."""

K = TypeVar("K")

ROUNDS = 3
_DAY = 86_400
_SLOW = 4.0
"""How many times as long as asked for a stretch may take to complete a period."""


def check_seconds(seconds: object) -> None:
    """Raise unless `seconds` is a time to measure for."""
    number = isinstance(seconds, int | float | np.number) and not isinstance(seconds, bool)
    if not number or not 0 < seconds <= _DAY:  # type: ignore[operator]  # it is a number
        raise ArgumentError(f"`seconds` must be a number above 0, up to a day; got {seconds!r}.")


class Pace(NamedTuple):
    """What came in a stretch of time: elements a second, and the share spent waiting for them."""

    rate: float
    waited: float


def steps_of_a_period(loader: Loader) -> int:
    """Return the steps after which reading is where it was: a run, a window, or an epoch.

    Examples
    --------
    >>> import numpy as np, oocdata as ooc
    >>> from oocdata.testing import RecordingSource
    >>> view = ooc.View.of(RecordingSource(np.zeros((100, 3)), chunks=10))
    >>> steps_of_a_period(view.batches(8, shuffle=ooc.BlockShuffle(10, 4)))
    5
    """
    order, dataset = laned(loader.order), loader.dataset
    together = 0
    if loader.chunked and order is not None:
        together = order.elements_mixed(len(dataset))
    elif loader.chunked and not isinstance(loader.order, Sequential):
        decoded = sum(prod(source.shape) * source.dtype.itemsize for source in dataset.sources())
        together = len(dataset) if decoded <= cache_share() else 0  # decoded by the first reads
    return max(loader.steps_together, -(-together // loader.batch_size))


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
    first of a later period. In a steady flow as much is on its way then as at the start. Where a
    period is too long, its share of the wait for the first arrival is counted instead. `consume`
    is called with each batch.

    Examples
    --------
    >>> ticks = iter(range(100))
    >>> pace(lambda epoch: iter([[1, 2]] * 9), seconds=6, clock=lambda: next(ticks))
    Pace(rate=1.0, waited=0.5)
    """
    start, elements, waited, wait = None, 0, 0.0, 0.0
    asked = clock()
    for epoch in count(first):
        iterator = epochs(epoch)
        try:
            for number, batch in enumerate(iterator):
                now = clock()
                if start is None:
                    start, wait, asked = now, now - asked, now
                waited += now - asked
                spent, part = now - start, number % period / period
                if elements and spent >= seconds and (not part or spent > _SLOW * seconds):
                    spent, waited = spent + wait * part, waited + wait * part
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


def take_turns(
    measures: Mapping[K, tuple[Measure, float]],
    seconds: float,
    advance: Callable[[int], object] = lambda count: None,
    clock: Clock = perf_counter,
) -> dict[K, tuple[float, ...]]:
    """Let measures take turns, each for its share of the time; return their rates.

    Each has a first round; in later ones those are left out for which time is too short.
    """
    end = clock() + seconds
    rates: dict[K, list[float]] = {name: [] for name in measures}
    lasted = dict.fromkeys(measures, 0.0)
    for number in range(ROUNDS):
        for name, (measure, share) in measures.items():
            begun = clock()
            if not number or begun + lasted[name] <= end:
                rates[name].append(measure(share, number))
                lasted[name] = clock() - begun
            advance(1)
    return {name: tuple(found) for name, found in rates.items()}
