"""`Loader.profile`: whether it is the model that takes the time, or the data.

The two are timed alone and together, in rounds that take turns, and reading is looked at from
beside it. Where all that the first epoch decodes is kept for later ones, these are what is timed,
and the first one beside them. Only batches by (step, epoch) are read, which is what iteration does
too, so no epoch is used up and the loader is as it was.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

from oocdata.amplification import amplification
from oocdata.datasets.spec import leaves
from oocdata.errors import ArgumentError
from oocdata.tools.profile.counts import Counts, counted, disk_bytes, fresh
from oocdata.tools.profile.needed import all_kept
from oocdata.tools.profile.pacing import Pace, check_seconds, pace, steps_of_a_period
from oocdata.tools.profile.result import Epochs, Profile
from oocdata.tools.profile.sampling import Sampler, Spent
from oocdata.tools.profile.verdict import remedy_of, sentence_of, verdict_of

if TYPE_CHECKING:
    from oocdata.loader import Loader

__all__ = ["profile"]

_ROUNDS = 3
_WARM_UP = 2
_TOLD = 0.1
_LOOK = 0.2
"""The share of the time for looking at where it goes."""

_FIRST, _FILLING = 0.1, 0.25
"""The shares for the first epoch where later ones differ: to time it, and to read all of it."""


def profile(
    loader: Loader,
    model_step: Callable[..., object] | None = None,
    *,
    seconds: float = 5.0,
    to_tf: bool = False,
) -> Profile:
    """Say whether the model or the data is the bottleneck; see `oocdata.Loader.profile`."""
    check_seconds(seconds)
    if model_step is not None and not callable(model_step):
        raise ArgumentError(
            f"`model_step` must be a function of a batch, such as model.train_on_batch; got "
            f"{model_step!r}."
        )
    begun = perf_counter()
    kind, first_rate = _state(loader, to_tf, seconds)
    epochs = _anew(loader, to_tf) if kind == "first" else _epochs(loader, to_tf)
    consume = None if model_step is None else _step(model_step, epochs)
    left = max(0.0, (1 - _LOOK) * seconds - (perf_counter() - begun))
    share = left / _ROUNDS / (1 if consume is None else 3)
    period = steps_of_a_period(loader, anew=kind == "first")
    data: list[Pace] = []
    model: list[Pace] = []
    both: list[Pace] = []
    for number in range(_ROUNDS):
        data.append(pace(epochs, share, period=period, first=number))
        if consume is not None:
            model.append(_model_alone(consume, epochs, share))
            both.append(pace(epochs, share, period=period, first=number, consume=consume))
    spent = _look(loader, _LOOK * seconds, kind)
    again = amplification(loader)
    data_rate = median(one.rate for one in data)
    model_rate = median(one.rate for one in model) if model else None
    both_rate = median(one.rate for one in both) if both else None
    waited = median(one.waited / max(one.seconds, 1e-9) for one in both) if both else None
    verdict = verdict_of(data_rate, model_rate)
    return Profile(
        verdict=verdict,
        sentence=sentence_of(verdict, data_rate, model_rate, waited),
        remedy=remedy_of(verdict, loader, spent, again, waited),
        data_rate=data_rate,
        epochs=kind,
        first_rate=data_rate if kind == "first" else first_rate,
        model_rate=model_rate,
        both_rate=both_rate,
        waited=waited,
        overlap=_overlap(data_rate, model_rate, both_rate),
        spent=spent,
        amplification=again,
        batch_size=loader.batch_size // loader.num_shards,
        workers=loader.workers,
        reader="to_tf" if to_tf else "NumPy",
        seconds=perf_counter() - begun,
    )


def _epochs(loader: Loader, to_tf: bool) -> Callable[[int], Iterator[Any]]:
    if not to_tf:
        return loader.epoch

    def epoch(number: int) -> Iterator[Any]:
        # In a generator, so that the dataset lives exactly as long as its iterator.
        dataset = loader.to_tf(start=(number, 0))
        yield from dataset

    return epoch


def _anew(loader: Loader, to_tf: bool) -> Callable[[int], Iterator[Any]]:
    """Return the epochs of a loader, each of which finds nothing that another one decoded."""
    return lambda number: _epochs(replace(loader, dataset=fresh(loader.dataset)), to_tf)(number)


def _state(loader: Loader, to_tf: bool, seconds: float) -> tuple[Epochs, float | None]:
    """Return which epochs can be timed, having read the first one if that is told from others."""
    if loader.workers or not all_kept(loader.dataset):  # each epoch has its own worker processes
        return "all", None
    period = steps_of_a_period(loader, anew=True)
    rate = pace(_anew(loader, to_tf), _FIRST * seconds, period=period).rate
    if len(loader.dataset) > _FILLING * seconds * rate:
        return "first", rate
    for _ in loader.epoch(0):
        pass
    return "later", rate


def _step(
    model_step: Callable[..., object], epochs: Callable[[int], Iterator[Any]]
) -> Callable[[Any], object]:
    """Return the function that takes a batch, and waits until its result is there.

    The first calls build and trace what a framework builds and traces; they are made here, so that
    nothing of them is timed.
    """
    batch = _first(epochs)
    spread = isinstance(batch, tuple) and _takes(model_step, len(batch))

    def consume(batch: Any) -> object:
        result = model_step(*batch) if spread else model_step(batch)
        return _settled(result)

    for _ in range(_WARM_UP):
        consume(_first(epochs))
    return consume


def _first(epochs: Callable[[int], Iterator[Any]]) -> Any:
    """Return the first batch of epoch 0, and stop reading."""
    iterator = epochs(0)
    try:
        return next(iter(iterator))
    finally:
        close = getattr(iterator, "close", None)
        if close is not None:
            close()


def _takes(function: Callable[..., object], count: int) -> bool:
    """Return whether a function takes the arrays of a tuple as arguments, as those of `map` do."""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # written in C, without a signature
        return True
    return True


def _settled(result: Any) -> Any:
    """Wait for a result that a framework has only promised (JAX, TensorFlow on a GPU)."""
    for leaf in leaves(tuple(result) if isinstance(result, list) else result):
        wait, read = getattr(leaf, "block_until_ready", None), getattr(leaf, "numpy", None)
        if callable(wait):
            wait()
        elif callable(read):
            # PyTorch refuses to hand out a loss that has a gradient; it is there all the same.
            with suppress(TypeError, NotImplementedError, AttributeError, RuntimeError):
                read()
    return result


def _model_alone(
    consume: Callable[[Any], object], epochs: Callable[[int], Iterator[Any]], seconds: float
) -> Pace:
    """Call the model with one batch, again and again, while nothing is read."""
    batch = _first(epochs)
    length = len(next(leaves(batch)))
    calls = 0
    began = perf_counter()
    while True:
        consume(batch)
        calls += 1
        spent = perf_counter() - began
        if spent >= seconds:
            return Pace(calls * length, calls, spent, 0.0)


def _look(loader: Loader, seconds: float, kind: Epochs) -> Spent:
    """Return where the time of reading goes, in the epochs that were timed."""
    counts = Counts()
    watched = replace(loader, workers=0)
    before = disk_bytes()
    with Sampler() as sampler:
        pace(
            # What is kept is found only by the loader itself, which then decodes nothing.
            watched.epoch
            if kind == "later"
            else lambda number: counted(loader, counts)[0].epoch(number),
            seconds,
            period=steps_of_a_period(watched, anew=kind != "later"),
            first=_ROUNDS,
        )
    after = disk_bytes()
    fetched = None if before is None or after is None else after - before
    return sampler.spent(counts.from_disk(fetched))


def _overlap(data: float, model: float | None, both: float | None) -> float | None:
    """Return how much of the shorter of two times is hidden behind the longer.

    Examples
    --------
    >>> _overlap(100.0, 100.0, 50.0), _overlap(100.0, 100.0, 100.0)
    (0.0, 1.0)
    """
    if model is None or both is None or not math.isfinite(1 / max(both, 1e-12)):
        return None
    times = [1 / max(rate, 1e-12) for rate in (data, model, both)]
    if min(times[:2]) < _TOLD * max(times[:2]):  # less than what rounds differ by
        return None
    hidden = times[0] + times[1] - times[2]
    return min(1.0, max(0.0, hidden / min(times[0], times[1])))
