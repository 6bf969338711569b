"""`oocdata bench`: how fast a file can be read, beside what the machine allows, and what to change.

Everything is measured in one process, in rounds in which all ways and limits take turns, so that a
busy machine slows all of them down alike. A figure is the median of the rounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from time import perf_counter
from typing import Any

from oocdata.blocks import Blocks
from oocdata.cost import amplification
from oocdata.datasets.dataset import Dataset
from oocdata.datasets.spec import leaves
from oocdata.engines.cache import cache as decoded_chunks
from oocdata.errors import ArgumentError
from oocdata.explain import size
from oocdata.index import as_count
from oocdata.loader import Loader
from oocdata.tools.bench.advising import advice
from oocdata.tools.bench.command import known_opening
from oocdata.tools.bench.files import Files, available_memory, files_of
from oocdata.tools.bench.limits import (
    THREADS,
    Measure,
    copying,
    decoding,
    disk_at_random,
    disk_in_sequence,
)
from oocdata.tools.bench.result import Bench, Limit, Way
from oocdata.tools.info import Opening
from oocdata.tools.profile.pacing import check_seconds, pace, steps_of_a_period
from oocdata.tools.progress import progress as shown_progress

__all__ = ["BATCH_SIZES", "SECONDS", "Bench", "bench"]

BATCH_SIZES = (32, 256)
SECONDS = 15.0

_ORDERS: dict[str, bool | str] = {
    "sequential": False,
    "full shuffle": "global",
    "block shuffle": "block",
}
_ROUNDS = 3
_IN_FLIGHT = 4
"""Batches that exist at a time in plain iteration, where each is read alone."""

# Shares of the time: a round of a limit, all rounds of all ways, and the most that one may take.
_LIMIT, _WAYS, _LONGEST = 0.03, 0.6, 0.15


def bench(
    dataset: Dataset,
    *,
    batch_sizes: Sequence[int] | None = None,
    seconds: float = SECONDS,
    to_tf: bool = False,
    cold: bool = False,
    progress: bool = False,
    opening: Opening | None = None,
) -> Bench:
    """Measure how fast elements can be read, beside what disk, decoder and memory allow.

    Nothing is written, and nothing of the dataset changes. Each epoch decodes anew.

    Parameters
    ----------
    dataset : Dataset
        A `View`, or windows of one.
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
    opening : Opening, optional
        How the file was opened, for the commands that are advised. By default in the usual way, if
        that gives the same array; else no command is advised.

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
        If storage can't deliver a row.

    Examples
    --------
    >>> import numpy as np, oocdata as ooc
    >>> found = bench(ooc.open(np.zeros((1000, 8))), batch_sizes=[10], seconds=0.1)
    >>> [way.order for way in found.ways], found.cache
    (['sequential', 'full shuffle'], 'memory')
    """
    _check_dataset(dataset)
    if to_tf:
        import oocdata.frontends.tfdata  # noqa: F401  # before the clock starts
    begun = perf_counter()
    check_seconds(seconds)
    nbytes = sum(leaf.nbytes for leaf in leaves(dataset.spec))
    if nbytes == 0 and len(dataset):
        raise ArgumentError("elements must hold numbers to be measured; these have none.")
    sizes, notes = _batch_sizes(dataset, nbytes, batch_sizes)
    candidates = _candidates(dataset, sizes, ["NumPy", "to_tf"] if to_tf else ["NumPy"])
    files = files_of(dataset)
    if cold and files.nbytes and not files.evict():
        why = "another process has mapped them, or they lie in memory"
        notes += (f"The files could not be dropped from the page cache: {why}.",)
        cold = False
    state = "memory" if not files.nbytes else "cold" if cold else "warm"
    measures = _measures(dataset, max(sizes), files, state)
    steps = _ROUNDS * (len(measures) + len(candidates))
    with shown_progress("measuring", steps, "stretches", progress) as advance:
        limits, ways = _rounds(dataset, candidates, measures, files, state, seconds, advance)
    first = dataset.sources()[0].storage()
    blocks = dataset.blocks
    found = Bench(
        path=first.path,
        key=first.key,
        opening=known_opening(first.path, first.key, dataset, opening),
        format=first.format,
        storage=first.layout,
        codec=first.codec,
        stored_bytes=first.stored_bytes,
        elements=len(dataset),
        element=" and ".join(str(leaf) for leaf in leaves(dataset.spec)),
        element_bytes=nbytes,
        chunk_rows=min(blocks.length, len(dataset)) if isinstance(blocks, Blocks) else 1,
        cache=state,
        limits=limits,
        ways=ways,
        advice=(),
        notes=notes,
        threads=THREADS,
        memory_bytes=max(one.loader.explain().resident_bytes for one in candidates)
        + sum(measure.nbytes for measure in measures.values()),
        seconds=perf_counter() - begun,
    )
    return replace(found, advice=advice(found, dataset))


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A way that is to be measured."""

    order: str
    reader: str
    loader: Loader
    amplification: float

    def measure(self, seconds: float, epoch: int, files: Files | None) -> float:
        """Read for some seconds, from the beginning of an epoch; return elements a second."""

        def epochs(number: int) -> Iterator[Any]:
            decoded_chunks.forget()
            if files is not None:  # a small file has many epochs in a stretch
                files.drop()
            if self.reader == "NumPy":
                return self.loader.epoch(number)
            return iter(self.loader.to_tf(start=(number, 0)))

        return pace(epochs, seconds, period=steps_of_a_period(self.loader), first=epoch).rate


def _candidates(
    dataset: Dataset, batch_sizes: Sequence[int], readers: Sequence[str]
) -> list[_Candidate]:
    found = []
    for order, shuffle in _ORDERS.items():
        for batch_size in batch_sizes:
            loader = dataset.batches(batch_size, shuffle=shuffle)
            if order == "block shuffle" and not loader.chunked:
                continue  # as good as a full one
            again = amplification(loader)
            found += [_Candidate(order, reader, loader, again) for reader in readers]
    return found


def _measures(dataset: Dataset, batch_size: int, files: Files, state: str) -> dict[str, Measure]:
    """Return what measures each limit that applies."""
    measures = {"memory": copying(dataset, batch_size)}
    decoder = decoding(dataset)
    if decoder is not None:
        measures["decoder"] = decoder
    if state == "cold":
        measures["disk in sequence"] = disk_in_sequence(files)
        measures["disk at random"] = disk_at_random(files, _stored_unit(dataset))
    return measures


def _rounds(
    dataset: Dataset,
    candidates: list[_Candidate],
    measures: dict[str, Measure],
    files: Files,
    state: str,
    seconds: float,
    advance: Any,
) -> tuple[tuple[Limit, ...], tuple[Way, ...]]:
    """Let limits and ways take turns.

    All ways have a round. Those of which one read alone would take too long are worked out from the
    decoder's limit instead; where time is short, later rounds are left out.
    """
    end = perf_counter() + seconds
    share = _WAYS * seconds / (_ROUNDS * max(1, len(candidates)))
    rates: dict[str, list[float]] = {name: [] for name in measures}
    rounds: dict[int, list[float]] = {}
    lasted: dict[int, float] = {}
    for number in range(_ROUNDS):
        for name, measure in measures.items():
            if name.startswith("disk"):
                files.evict()
            rates[name].append(measure.once(_LIMIT * seconds))
            advance(1)
        for place, one in enumerate(candidates):
            late = number and perf_counter() + lasted.get(place, 0.0) > end
            slow = number == 0 and _seconds_of_a_read(one, rates) > _LONGEST * seconds
            if late or slow or (lasted.get(place) is None and number):
                advance(1)
                continue
            begun = perf_counter()
            if number == 0:  # so that none pays for what all of them load
                one.measure(0.0, _ROUNDS, None)
            rate = one.measure(share, number, files if state == "cold" else None)
            rounds.setdefault(place, []).append(rate)
            lasted[place] = perf_counter() - begun
            advance(1)
    limits = tuple(
        Limit(name, tuple(found), _needed(dataset, name)) for name, found in rates.items()
    )
    ways = []
    for place, one in enumerate(candidates):
        found, estimated = tuple(rounds.get(place, ())), place not in rounds
        if estimated:
            found = (max(rates["decoder"]) / (one.amplification * _needed(dataset, "decoder")),)
        ways.append(
            Way(one.order, one.loader.batch_size, one.reader, found, one.amplification, estimated)
        )
    return limits, tuple(ways)


def _seconds_of_a_read(one: _Candidate, rates: dict[str, list[float]]) -> float:
    """Return how long decoding for the batches that are read first takes, at least."""
    if "decoder" not in rates:
        return 0.0
    read = 2 * one.loader.steps_together * one.loader.batch_bytes
    return read * one.amplification / max(rates["decoder"])


def _needed(dataset: Dataset, limit: str) -> float:
    """Return the bytes of a limit that an epoch needs for each element, each asked for once."""
    if limit == "memory":
        return float(sum(leaf.nbytes for leaf in leaves(dataset.spec)))
    storages = [(source, source.storage()) for source in dataset.sources()]
    decoded = float(sum(prod(source.shape) * source.dtype.itemsize for source, _ in storages))
    stored = sum(
        float(prod(source.shape) * source.dtype.itemsize)
        if storage.stored_bytes is None
        else float(storage.stored_bytes)
        for source, storage in storages
    )
    return max(1.0, decoded if limit == "decoder" else stored) / max(1, len(dataset))


def _stored_unit(dataset: Dataset) -> int:
    """Return the bytes that the smallest useful read fetches: a stored row, or a stored chunk."""
    source = dataset.sources()[0]
    storage, nbytes = source.storage(), prod(source.shape) * source.dtype.itemsize
    if storage.chunks is None:
        return max(1, prod(source.shape[1:]) * source.dtype.itemsize)
    share = (storage.stored_bytes or nbytes) / max(1, nbytes)
    return max(1, int(prod(map(min, storage.chunks, source.shape)) * source.dtype.itemsize * share))


def _check_dataset(dataset: Any) -> None:
    if not isinstance(dataset, Dataset):
        hint = "Give `loader.dataset`." if hasattr(dataset, "dataset") else "Use `ooc.open`."
        raise ArgumentError(f"`dataset` must be a Dataset; got {type(dataset).__name__}. {hint}")


def _batch_sizes(
    dataset: Dataset, nbytes: int, given: Sequence[int] | None
) -> tuple[list[int], tuple[str, ...]]:
    """Return the batch sizes to measure, and what to say of those that are left out."""
    room = available_memory() // 2

    def fits(batch_size: int) -> bool:
        return _IN_FLIGHT * batch_size * nbytes <= room

    if given is not None:
        if not given:
            raise ArgumentError("`batch_sizes` must name at least one; got none.")
        sizes = [as_count("batch_sizes", one) for one in dict.fromkeys(given)]
        for one in sizes:
            if not fits(one):
                raise ArgumentError(
                    f"{_IN_FLIGHT} batches must fit into half of the free memory, {size(room)}; "
                    f"{one} elements are {size(one * nbytes)}. Take a smaller batch."
                )
        return sizes, ()
    length = max(1, len(dataset))
    usual = list(dict.fromkeys(min(one, length) for one in BATCH_SIZES))
    sizes = [one for one in usual if fits(one)] or [max(1, min(length, room // (8 * nbytes)))]
    out = [one for one in usual if one not in sizes]
    return sizes, tuple(
        f"Batches of {one:,} are left out: each is {size(one * nbytes)}." for one in out
    )
