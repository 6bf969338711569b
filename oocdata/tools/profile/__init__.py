"""`Loader.profile`: whether it is the model that takes the time, or the data.

The two are timed alone and together, in rounds that take turns, so that a busy machine slows all of
them down alike. Only batches by (step, epoch) are read, which is what iteration does too, so no
epoch is used up and the loader is as it was.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

from oocdata.cost import amplification
from oocdata.datasets.dataset import Draw
from oocdata.datasets.spec import leaves
from oocdata.errors import ArgumentError
from oocdata.tools.profile.pacing import Pace, check_seconds, pace, steps_of_a_period
from oocdata.tools.profile.result import Profile

if TYPE_CHECKING:
    from oocdata.loader import Loader

__all__ = ["profile"]

_ROUNDS = 3
_WARM_UP = 2
_BATCHES = 4
"""Batches that are read and mapped one by one, to tell the one from the other."""


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
    epochs = _epochs(loader, to_tf)
    consume = None if model_step is None else _step(model_step, epochs)
    mapped = _mapped_share(loader)
    share = max(0.0, seconds - (perf_counter() - begun)) / _ROUNDS / (3 if consume else 1)
    period = steps_of_a_period(loader)
    data: list[Pace] = []
    model: list[Pace] = []
    both: list[Pace] = []
    for number in range(_ROUNDS):
        data.append(pace(epochs, share, period=period, first=number))
        if consume is not None:
            model.append(_model_alone(consume, epochs, share))
            both.append(pace(epochs, share, period=period, first=number, consume=consume))
    return Profile(
        data_rate=median(one.rate for one in data),
        model_rate=median(one.rate for one in model) if model else None,
        both_rate=median(one.rate for one in both) if both else None,
        waited=median(one.waited / max(one.seconds, 1e-9) for one in both) if both else None,
        mapped=mapped,
        decodes=loader.chunked,
        amplification=amplification(loader),
        order=type(loader.order).__name__,
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
    """Wait for a result that a framework computes later (JAX, TensorFlow on a GPU)."""
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


def _mapped_share(loader: Loader) -> float:
    """Return the share of a batch's time that mapped functions take, over a few batches."""
    if not loader.dataset.is_mapped:
        return 0.0
    read = mapped = 0.0
    for step in range(min(_BATCHES, len(loader))):
        positions = loader.positions(step)
        draw = Draw(loader.seed, 0, step, 0, positions)
        began = perf_counter()
        arrays = [request.read() for request in loader.dataset.requests(positions, draw)]
        between = perf_counter()
        loader.dataset.assemble(iter(arrays), draw)
        read, mapped = read + between - began, mapped + perf_counter() - between
    return mapped / max(read + mapped, 1e-9)
