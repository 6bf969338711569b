"""`oocdata bench`: how fast a file can be read, beside what the machine allows, and what to change.

Everything is measured in one process, in rounds in which all ways and limits take turns, so that a
busy machine slows all of them down alike. A figure is the median of the rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from time import perf_counter
from typing import Any, Unpack

from oocdata.advice import Advice, Measured, Reading, advise, reading_of, size
from oocdata.cost import chunk_bytes
from oocdata.datasets.dataset import Dataset
from oocdata.datasets.spec import leaves
from oocdata.engines.cache import cache as decoded_chunks
from oocdata.errors import ArgumentError
from oocdata.index import as_count
from oocdata.loader import Loader
from oocdata.tools.bench.files import Files, available_memory, files_of
from oocdata.tools.bench.limits import MEMORY, Measure, copying, decoding, disk_reading
from oocdata.tools.bench.result import Bench, Limit, Way
from oocdata.tools.opening import OpenArguments, Opening
from oocdata.tools.profile.pacing import Clock, check_seconds, pace, steps_of_a_period
from oocdata.tools.progress import progress as shown_progress

__all__ = ["Bench", "bench"]

_BATCH_SIZES = (32, 256)
_ORDERS: dict[str, bool | str] = {
    "sequential": False,
    "full shuffle": "global",
    "block shuffle": "block",
}
_ROUNDS = 3
_IN_FLIGHT = 4
"""Batches that exist at a time in plain iteration, where each is read alone."""

# Shares of the time: a round of a limit, all rounds of all ways, and the most that a read may take.
_LIMIT, _WAYS, _LONGEST = 0.03, 0.6, 0.15


def bench(
    target: Any,
    key: str | None = None,
    *,
    batch_sizes: Sequence[int] | None = None,
    seconds: float = 15.0,
    to_tf: bool = False,
    cold: bool = False,
    progress: bool = False,
    **arguments: Unpack[OpenArguments],
) -> Bench:
    """Measure how fast elements can be read, beside what disk, decoder and memory allow.

    Nothing is written, and nothing of the dataset changes. Each epoch decodes anew.

    Parameters
    ----------
    target, key, **arguments
        As for `oocdata.open`; or a dataset, such as windows of a View.
    batch_sizes : sequence of int, optional
        By default 32 and 256, as far as they fit into memory.
    seconds : float
        About how long it may take; a single read that takes longer is not interrupted.
    to_tf : bool
        Measure ``to_tf`` beside plain iteration. Loads TensorFlow, on top of `seconds`.
    cold : bool
        Drop the files from the page cache before each epoch, and measure the disk. Other programs
        that read them wait for the disk again. By default the page cache is left alone.
    progress : bool
        Show how far it is, on standard error.

    Returns
    -------
    Bench

    Raises
    ------
    oocdata.errors.ArgumentError
        If an argument breaks its rule, or a batch would not fit into memory.
    oocdata.errors.MissingDependencyError
        If TensorFlow is asked for and not installed.
    oocdata.errors.SourceError
        If the target can't be opened, or storage can't deliver a row.

    Examples
    --------
    >>> import numpy as np, oocdata as ooc
    >>> found = bench(ooc.open(np.zeros((1000, 8))), batch_sizes=[10], seconds=0.1)
    >>> [way.order for way in found.ways], found.cache
    (['sequential', 'full shuffle'], 'memory')
    """
    check_seconds(seconds)
    dataset = Opening.of(target, key, **arguments).dataset()
    if to_tf:
        import oocdata.frontends.tfdata  # noqa: F401  # before the clock starts
    begun = perf_counter()
    nbytes = sum(leaf.nbytes for leaf in leaves(dataset.spec))
    if nbytes == 0 and len(dataset):
        raise ArgumentError("elements must hold numbers to be measured; these have none.")
    sizes, notes = _batch_sizes(dataset, nbytes, batch_sizes)
    files = files_of(dataset)
    if cold and files.nbytes:
        files.drop()
        cold = files.are_gone()
        if not cold:
            why = "another process has mapped them, or they lie in memory"
            notes.append(f"The files could not be dropped from the page cache: {why}.")

    def before() -> None:  # each epoch; a small file has many in a stretch
        decoded_chunks.forget()
        if cold:
            files.drop()

    ways = _ways(dataset, sizes, ["NumPy", "to_tf"] if to_tf else ["NumPy"], before)
    limits = _limits(dataset, max(sizes), files if cold else None)
    if "decoder" in limits:
        rate = limits["decoder"](_LIMIT * seconds, 0)
        slow = [
            one
            for one in ways
            if one.order != "sequential" and one.seconds_of_a_read(rate) > _LONGEST * seconds
        ]
        ways = [one for one in ways if one not in slow]
        notes += [one.left_out(rate) for one in slow]
    share = _WAYS * seconds / (_ROUNDS * max(1, len(ways)))
    measures = {name: (limit, _LIMIT * seconds) for name, limit in limits.items()}
    measures |= {one.name: (one.measure, share) for one in ways}
    for one in ways:
        one.measure(0.0, _ROUNDS)  # so that none pays for what all of them load
    steps = _ROUNDS * len(measures)
    with shown_progress("measuring", steps, "stretches", progress) as advance:
        rates = take_turns(measures, seconds, advance)
    storage = dataset.sources()[0].storage()
    found = Bench(
        name=Opening.of(dataset).name,
        format=storage.format,
        storage=storage.layout,
        codec=storage.codec,
        stored_bytes=storage.stored_bytes,
        elements=len(dataset),
        element=" and ".join(str(leaf) for leaf in leaves(dataset.spec)),
        element_bytes=nbytes,
        cache="memory" if not files.nbytes else "cold" if cold else "warm",
        limits=tuple(Limit(name, rates[name], _needed(dataset, name)) for name in limits),
        ways=tuple(
            Way(one.order, one.loader.batch_size, one.reader, rates[one.name], one.amplification)
            for one in ways
        ),
        advice=(),
        notes=tuple(notes),
        memory_bytes=MEMORY + max([0, *(one.resident_bytes for one in ways)]),
        seconds=perf_counter() - begun,
    )
    reading = reading_of(dataset.batches(min(sizes), shuffle=True))
    return replace(found, advice=_advice(found, reading))


@dataclass(frozen=True, slots=True)
class _Reader:
    """A way that is to be measured."""

    order: str
    reader: str
    loader: Loader
    amplification: float
    resident_bytes: int
    before: Callable[[], None]

    @property
    def name(self) -> str:
        return f"{self.order}, batches of {self.loader.batch_size:,}, {self.reader}"

    def measure(self, seconds: float, epoch: int) -> float:
        """Read for some seconds, from the beginning of an epoch; return elements a second."""

        def epochs(number: int) -> Iterator[Any]:
            self.before()
            if self.reader == "NumPy":
                return self.loader.epoch(number)
            return iter(self.loader.to_tf(start=(number, 0)))

        return pace(epochs, seconds, period=steps_of_a_period(self.loader), first=epoch).rate

    def seconds_of_a_read(self, decoder: float) -> float:
        """Return how long decoding for the batches that are read first takes, at least."""
        read = 2 * self.loader.steps_together * self.loader.batch_bytes
        return read * self.amplification / decoder

    def left_out(self, decoder: float) -> str:
        return (
            f"Left out: {self.name}. A read decodes {self.amplification:,.0f} bytes for each byte "
            f"used, and takes about {self.seconds_of_a_read(decoder):.2g} s."
        )


def _ways(
    dataset: Dataset, sizes: Sequence[int], readers: Sequence[str], before: Callable[[], None]
) -> list[_Reader]:
    found = []
    for order, shuffle in _ORDERS.items():
        for batch_size in sizes:
            loader = dataset.batches(batch_size, shuffle=shuffle)
            if order == "block shuffle" and not loader.chunked:
                continue  # as good as a full one
            explained = loader.explain()
            again, resident = explained.amplification, explained.resident_bytes
            found += [_Reader(order, one, loader, again, resident, before) for one in readers]
    return found


def _limits(dataset: Dataset, batch_size: int, files: Files | None) -> dict[str, Measure]:
    """Return what measures each limit that applies; that of the disk where files are given."""
    measures = {"memory": copying(dataset, batch_size)}
    decoder = decoding(dataset)
    if decoder is not None:
        measures["decoder"] = decoder
    if files is not None and files.nbytes:
        measures["disk in sequence"] = disk_reading(files)
        measures["disk at random"] = disk_reading(files, _stored_unit(dataset))
    return measures


def take_turns(
    measures: Mapping[str, tuple[Measure, float]],
    seconds: float,
    advance: Callable[[int], object],
    clock: Clock = perf_counter,
) -> dict[str, tuple[float, ...]]:
    """Let measures take turns, each for its share of the time; return their rates.

    Each has a first round; in later ones those are left out for which time is too short.

    Examples
    --------
    >>> take_turns({"a": (lambda seconds, number: 1.0 + number, 0.0)}, 1.0, lambda count: None)
    {'a': (1.0, 2.0, 3.0)}
    """
    end = clock() + seconds
    rates: dict[str, list[float]] = {name: [] for name in measures}
    lasted = dict.fromkeys(measures, 0.0)
    for number in range(_ROUNDS):
        for name, (measure, share) in measures.items():
            begun = clock()
            if not number or begun + lasted[name] <= end:
                rates[name].append(measure(share, number))
                lasted[name] = clock() - begun
            advance(1)
    return {name: tuple(found) for name, found in rates.items()}


def _needed(dataset: Dataset, limit: str) -> float:
    """Return the bytes of a limit that an epoch needs for each element, each asked for once."""
    if limit == "memory":
        return float(sum(leaf.nbytes for leaf in leaves(dataset.spec)))
    nbytes = 0
    for source in dataset.sources():
        stored = source.storage().stored_bytes
        decoded = prod(source.shape) * source.dtype.itemsize
        nbytes += decoded if limit == "decoder" or stored is None else stored
    return max(1.0, nbytes) / max(1, len(dataset))


def _stored_unit(dataset: Dataset) -> int:
    """Return the bytes that the smallest useful read fetches: a stored row, or a stored chunk."""
    source = dataset.sources()[0]
    storage, nbytes = source.storage(), prod(source.shape) * source.dtype.itemsize
    if storage.chunks is None:
        return max(1, nbytes // max(1, source.shape[0]))
    share = (storage.stored_bytes or nbytes) / max(1, nbytes)
    return max(1, int(chunk_bytes(source, storage) * share))


def _batch_sizes(
    dataset: Dataset, nbytes: int, given: Sequence[int] | None
) -> tuple[list[int], list[str]]:
    """Return the batch sizes to measure, and what to say of those that are left out."""
    room = available_memory() // 2 // _IN_FLIGHT // max(1, nbytes)
    if given is not None:
        if not given:
            raise ArgumentError("`batch_sizes` must name at least one; got none.")
        sizes = [as_count("batch_sizes", one) for one in dict.fromkeys(given)]
        if max(sizes) > room:
            raise ArgumentError(
                f"`batch_sizes` must be at most {room:,}, so that {_IN_FLIGHT} batches fit into "
                f"half of the free memory; got {max(sizes):,}."
            )
        return sizes, []
    length = max(1, len(dataset))
    usual = list(dict.fromkeys(min(one, length) for one in _BATCH_SIZES))
    sizes = [one for one in usual if one <= room] or [max(1, min(length, room))]
    return sizes, [
        f"Batches of {one:,} are left out: each is {size(one * nbytes)}."
        for one in usual
        if one not in sizes
    ]


def _advice(found: Bench, reading: Reading) -> tuple[Advice, ...]:
    rates: dict[str, dict[int, tuple[float, ...]]] = {}
    for way in found.ways:
        if way.reader == "NumPy":
            rates.setdefault(way.order, {})[way.batch_size] = way.rounds
        if way.order == "full shuffle":
            reading = replace(reading, full=way.amplification)
    limits = {limit.name: limit.elements for limit in found.limits}
    return advise(reading, Measured(rates=rates, limits=limits))
