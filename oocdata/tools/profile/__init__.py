"""Measure whether the model or the data is the bottleneck of training (`Loader.profile`).

Both are timed alone and together, in alternating rounds, so that other load on the machine slows
all of them equally. Batches are read by (step, epoch), so the loader has no state that changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
from math import inf
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

from oocdata.advice import Advice, Measured, advise, reading_of, size
from oocdata.datasets.dataset import Draw
from oocdata.datasets.spec import leaves
from oocdata.errors import ArgumentError
from oocdata.index import as_flag
from oocdata.reading.ahead import Reader
from oocdata.tools.profile.pacing import (
    ROUNDS,
    Epochs,
    Measure,
    check_seconds,
    pace,
    steps_of_a_period,
    take_turns,
)
from oocdata.tools.report import Report

if TYPE_CHECKING:
    from oocdata.loader import Loader
    from oocdata.stores.link import Traffic

_LIMIT = 0.5
"""The link is the limit if requests are in flight for at least this share of the waiting time."""


@dataclass(frozen=True, slots=True)
class LinkUse:
    """Traffic over the link to stores while batches were read."""

    requests: int  # with retries
    nbytes: int
    waited: float  # of the time spent waiting for batches, the share with a request in flight

    @property
    def is_limit(self) -> bool:
        """Whether a faster link would give faster batches."""
        return self.waited >= _LIMIT

    @property
    def range_bytes(self) -> int:
        """Bytes of a request, on average."""
        return self.nbytes // max(1, self.requests)

    def __str__(self) -> str:
        limit = "is the limit" if self.is_limit else "is not the limit"
        return (
            f"The link {limit}: requests were in flight during {self.waited:.0%} of the time spent "
            f"waiting\nfor batches. {self.requests:,} requests of {size(self.range_bytes)}."
        )


_SAME_RATE = 1.25
"""Rates within this factor are about the same."""

_SENTENCES = {
    "alone": "The loader alone gives {:,.0f} elements/s.",
    "model": "The model is the bottleneck.",
    "data": "The data are the bottleneck.",
    "balanced": "Model and data are about as fast as each other.",
}


@dataclass(frozen=True, slots=True)
class Profile(Report):
    """Whether the model or the data are the bottleneck; ``print`` it."""

    # Elements a second from the loader alone. Cached chunks stay cached: if all of them fit, this
    # is the rate of later epochs.
    data_rate: float
    model_rate: float | None  # elements a second of the model alone, on the same batch repeatedly
    waited: float | None  # the share of the time that the model waited for data
    mapped: float  # of the time to read a batch, the share of functions given to `map`
    batch_size: int
    reader: str  # "NumPy" for plain iteration, or "to_tf"
    advice: tuple[Advice, ...]  # what to change, if the model waits
    seconds: float  # how long measuring took
    # Traffic with stores meanwhile; None if all data are on disks, or other processes read them.
    link: LinkUse | None = None

    @property
    def verdict(self) -> Literal["data", "model", "balanced", "alone"]:
        """The bottleneck; "alone" if no model was given."""
        if self.model_rate is None:
            return "alone"
        if self.data_rate > _SAME_RATE * self.model_rate:
            return "model"
        return "data" if self.model_rate > _SAME_RATE * self.data_rate else "balanced"

    def __str__(self) -> str:
        lines = []
        if self.model_rate is not None:
            rates = (self.data_rate, self.model_rate)
            data, model = (1000 * self.batch_size / max(rate, 1e-9) for rate in rates)
            waited = f"the model waited {self.waited or 0:.0%} of the time."
            lines.append(f"data {data:,.1f} ms, model {model:,.1f} ms a batch; {waited}")
        sentence = _SENTENCES[self.verdict].format(self.data_rate)
        if self.verdict == "model" and not self.advice:
            sentence += " Nothing is to be gained by reading faster."
        lines.append(sentence)
        if self.link is not None and self.verdict != "model":
            lines.append(str(self.link))
        return "\n".join([*lines, *map(str, self.advice)])

    def to_json(self) -> dict[str, Any]:
        """Return a dict for ``json.dumps``."""
        return {**Report.to_json(self), "verdict": self.verdict}


_WARM_UP = 2
_BATCHES = 4
"""Batches that are read and mapped one by one, to time both parts separately."""

_WAITS = 0.1
"""Advice is given if the model waits for at least this share of the time."""


def profile(
    loader: Loader,
    model_step: Callable[..., object] | None = None,
    *,
    seconds: float = 5.0,
    to_tf: bool = False,
) -> Profile:
    """Measure whether the model or the data is the bottleneck; see `oocdata.Loader.profile`."""
    check_seconds(seconds)
    if model_step is not None and not callable(model_step):
        raise ArgumentError(
            f"`model_step` must be a function of a batch, such as model.train_on_batch; got "
            f"{model_step!r}."
        )
    begun = perf_counter()

    # One reader, and one dataset, for all rounds: as in `fit`, worker processes are started once.
    reader = Reader(loader, parallel=2, prefetch=2, runs_in_use=1)
    dataset = loader.to_tf() if as_flag("to_tf", to_tf) else None

    def epochs(number: int) -> Iterator[Any]:
        # A generator, which has `close`.
        yield from reader.batches(loader.pass_from(number)) if dataset is None else dataset

    traffic = None
    if loader.dataset.is_remote:
        from oocdata.stores.link import link  # its libraries may be missing without remote data

        traffic = link().traffic
    before = replace(traffic) if traffic else None
    mapped = _mapped_share(loader)
    with closing(reader):
        consume = None if model_step is None else _step(model_step, epochs)
        left = seconds - (perf_counter() - begun)
        rates, waited = _rates(epochs, consume, max(0.0, left), steps_of_a_period(loader), traffic)
    use = None
    if traffic and before and traffic.requests > before.requests:
        use = LinkUse(traffic.requests - before.requests, traffic.nbytes - before.nbytes, waited)
    found = Profile(
        *rates,
        mapped=mapped,
        batch_size=loader.batch_size // loader.num_shards,
        reader="to_tf" if to_tf else "NumPy",
        advice=(),
        seconds=perf_counter() - begun,
        link=use,
    )
    limited = use is not None and use.is_limit
    fast = found.waited is None or (found.verdict == "model" and found.waited < _WAITS)
    if fast and not (limited and found.verdict == "alone"):
        return found
    fetched = use.range_bytes if use is not None and limited else None
    measured = Measured(map_share=mapped, request_bytes=fetched)
    return replace(found, advice=advise(reading_of(loader), measured))


def _rates(
    epochs: Epochs,
    consume: Callable[[Any], object] | None,
    seconds: float,
    period: int,
    traffic: Traffic | None = None,
) -> tuple[tuple[float, float | None, float | None], float]:
    """Return elements/s of the data and of the model, and the share of time the model waited.

    Also return the share of the time spent on the data alone with a request in flight.
    """
    batch = _first(epochs)
    read = partial(pace, epochs, period=period)
    waited = busy = 0.0

    def data(share: float, number: int) -> float:
        nonlocal waited, busy
        began, busy_before = perf_counter(), traffic.busy if traffic else 0.0
        rate = read(share, first=number).rate
        waited += perf_counter() - began
        busy += traffic.busy - busy_before if traffic else 0.0
        return rate

    measures: dict[str, Measure] = {"data": data}
    if consume is not None:
        step = partial(pace, lambda _: repeat(batch), consume=consume)
        measures |= {
            "model": lambda share, _: step(share).rate,
            "both": lambda share, number: read(share, first=number, consume=consume).waited,
        }
    share = seconds / ROUNDS / len(measures)
    timed = {name: (measure, share) for name, measure in measures.items()}
    rates = take_turns(timed, inf)
    medians = {name: median(rounds) for name, rounds in rates.items()}
    found = medians["data"], medians.get("model"), medians.get("both")
    return found, min(1.0, busy / max(waited, 1e-9))


def _step(model_step: Callable[..., object], epochs: Epochs) -> Callable[[Any], object]:
    """Return a function that runs the model on a batch, and waits for the result.

    The model is called a few times here, so that building and tracing it is not timed.
    """
    batch = _first(epochs)

    def consume(batch: Any) -> None:
        _settle(model_step(*batch) if isinstance(batch, tuple) else model_step(batch))

    for _ in range(_WARM_UP):
        consume(batch)
    return consume


def _first(epochs: Epochs) -> Any:
    """Return the first batch of epoch 0, and stop reading."""
    with closing(epochs(0)) as iterator:  # type: ignore[type-var]  # both kinds are generators
        return next(iterator)


def _settle(result: Any) -> None:
    """Wait for a result that a framework computes asynchronously (JAX, TensorFlow on a GPU)."""
    for leaf in leaves(tuple(result) if isinstance(result, list) else result):
        wait, read = getattr(leaf, "block_until_ready", None), getattr(leaf, "numpy", None)
        if callable(wait):
            wait()
        elif callable(read):
            # PyTorch raises for a loss that has a gradient, but its value is computed.
            with suppress(TypeError, NotImplementedError, AttributeError, RuntimeError):
                read()


def _mapped_share(loader: Loader) -> float:
    """Return the share of a batch's time that mapped functions take, measured in this process."""
    read = mapped = 0.0
    for step in range(min(_BATCHES, len(loader)) if loader.dataset.is_mapped else 0):
        positions = loader.positions(step)
        draw = Draw(loader.seed, 0, step, 0, positions)
        began = perf_counter()
        arrays = [request.read() for request in loader.dataset.requests(positions, draw)]
        between = perf_counter()
        loader.dataset.assemble(iter(arrays), positions, draw)
        read, mapped = read + between - began, mapped + perf_counter() - between
    return mapped / max(read + mapped, 1e-9)
