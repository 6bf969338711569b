"""Measure the rate of batches, for `bench` and `profile`."""

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

Measure = Callable[[float, int], float]
"""A function of seconds and the round's number that works for about so long, and returns a rate."""

Epochs = Callable[[int], Iterator[Any]]
"""A function from an epoch's number to its batches; an iterator with `close` is closed."""

K = TypeVar("K")

ROUNDS = 3
_DAY = 86_400
_SLOW = 4.0
"""To complete a period, measuring may take so many times the requested time."""


def check_seconds(seconds: object) -> None:
    """Raise `ArgumentError` unless `seconds` is a time to measure for."""
    is_number = isinstance(seconds, int | float | np.number) and not isinstance(seconds, bool)
    if not is_number or not 0 < seconds <= _DAY:  # type: ignore[operator]  # a number by now
        raise ArgumentError(f"`seconds` must be a number above 0, up to a day; got {seconds!r}.")


class Pace(NamedTuple):
    """Elements a second, and the share of the time spent waiting for them."""

    rate: float
    waited: float


def steps_of_a_period(loader: Loader) -> int:
    """Return the steps of a period: a run of batches, a window of blocks, or an epoch."""
    order, dataset = loader.order, loader.dataset
    elements = 0
    if loader.chunked and order.lanes is not None:
        elements = order.elements_mixed(len(dataset))
    elif loader.chunked and not isinstance(order, Sequential):
        decoded = sum(prod(source.shape) * source.dtype.itemsize for source in dataset.sources())
        if decoded <= cache_share():  # the first reads of an epoch decode all chunks
            elements = len(dataset)
    return max(loader.steps_together, -(-elements // loader.batch_size))


def pace(
    epochs: Epochs,
    seconds: float,
    *,
    period: int = 1,
    first: int = 0,
    consume: Callable[[Any], object] | None = None,
) -> Pace:
    """Take batches for some time, epoch after epoch, and call `consume` with each.

    Batches that are read together arrive together, so time is measured from the first arrival to
    the first arrival of a later period: in a steady state, as much is in flight then as at the
    start. If a period takes too long, measuring stops within it, and the same share of the first
    wait is added.
    """
    start, elements, waited, first_wait = None, 0, 0.0, 0.0
    requested = perf_counter()
    for epoch in count(first):
        iterator = epochs(epoch)
        try:
            for number, batch in enumerate(iterator):
                now = perf_counter()
                if start is None:
                    start, first_wait, requested = now, now - requested, now
                waited += now - requested
                spent, part = now - start, number % period / period
                if elements and spent >= seconds and (not part or spent > _SLOW * seconds):
                    spent, waited = spent + first_wait * part, waited + first_wait * part
                    return Pace(elements / max(spent, 1e-9), waited / max(spent, 1e-9))
                elements += len(next(leaves(batch)))
                if consume is not None:
                    consume(batch)
                del batch
                requested = perf_counter()
        finally:
            close = getattr(iterator, "close", None)
            if close is not None:
                close()
    raise AssertionError("epochs go on for ever")


def take_turns(
    measures: Mapping[K, tuple[Measure, float]],
    seconds: float,
    advance: Callable[[int], object] = lambda count: None,
) -> dict[K, tuple[float, ...]]:
    """Run measures in alternating rounds, each for its share of the time; return their rates.

    Every measure has a first round; in later rounds, a measure is skipped if time is too short.
    """
    end = perf_counter() + seconds
    rates: dict[K, list[float]] = {name: [] for name in measures}
    durations = dict.fromkeys(measures, 0.0)
    for number in range(ROUNDS):
        for name, (measure, share) in measures.items():
            began = perf_counter()
            if not number or began + durations[name] <= end:
                rates[name].append(measure(share, number))
                durations[name] = perf_counter() - began
            advance(1)
    return {name: tuple(rounds) for name, rounds in rates.items()}
