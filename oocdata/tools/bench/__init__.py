"""Measure how fast a dataset can be read, compared with the limits of the machine.

All ways to read and all limits are measured in one process, in alternating rounds, so that other
load on the machine slows all of them equally. A figure is the median of the rounds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from time import perf_counter
from typing import Any

from oocdata.advice import Measured, advise, reading_of, size
from oocdata.datasets.dataset import Dataset
from oocdata.datasets.spec import leaves
from oocdata.engines.cache import cache as decoded_chunks
from oocdata.errors import ArgumentError
from oocdata.index import as_flag
from oocdata.loader import Loader
from oocdata.tools.bench.limits import MEMORY, Limited, decoding, disk_reading, drop, files_of
from oocdata.tools.bench.result import Bench, Limit, Way
from oocdata.tools.opening import Opening
from oocdata.tools.profile.pacing import (
    ROUNDS,
    Epochs,
    Measure,
    check_seconds,
    pace,
    steps_of_a_period,
    take_turns,
)
from oocdata.tools.report import progress as shown_progress

__all__ = ["Bench", "bench"]

_BATCH_SIZES = (32, 256)
_ORDERS: dict[str, bool | str] = {
    "sequential": False,
    "full shuffle": "global",
    "block shuffle": "block",
}
_IN_FLIGHT = 4
"""Batches, or runs of batches, that exist at a time in plain iteration."""

_DECODED_BYTES = 32 << 20
"""Bytes that may be decoded before the first batches, for each second of measuring."""

_LIMIT_SHARE, _WAYS_SHARE = 0.03, 0.6
"""Shares of the time: for a round of a limit, and for all rounds of all ways."""


def bench(
    target: Any,
    key: str | None = None,
    *,
    seconds: float = 15.0,
    to_tf: bool = False,
    cold: bool = False,
    progress: bool = False,
) -> Bench:
    """Measure how fast elements can be read, compared with the decoder and the disk.

    Nothing is written. The cache of decoded chunks is emptied before each epoch.

    Parameters
    ----------
    target : Dataset, or a path or another target of `oocdata.open`
    key : str, optional
        The dataset in the file; for other arguments, give the View that `oocdata.open` returns.
    seconds : float
        About how long measuring may take; a single read that takes longer is not interrupted.
    to_tf : bool
        Measure ``to_tf`` as well as plain iteration. Imports TensorFlow, on top of `seconds`.
    cold : bool
        Drop the files from the page cache before each epoch, and measure the disk. Other programs
        that read these files become slower for a while. Files that a process has mapped, or that
        are stored in memory, stay in it. By default the page cache is left alone.
    progress : bool
        Show a progress bar on standard error.

    Returns
    -------
    Bench

    Raises
    ------
    oocdata.errors.ArgumentError
        If an argument breaks its rule, or elements hold no numbers.
    oocdata.errors.MissingDependencyError
        If TensorFlow is needed and not installed.
    oocdata.errors.SourceError
        If the target can't be opened, or a row can't be read.

    Examples
    --------
    >>> import numpy as np, oocdata as ooc
    >>> found = bench(ooc.open(np.zeros((1000, 8))), seconds=0.1)
    >>> sorted({way.order for way in found.ways}), found.cache
    (['full shuffle', 'sequential'], 'memory')
    """
    check_seconds(seconds)
    dataset = Opening.of(target, key).dataset()
    if as_flag("to_tf", to_tf):
        import oocdata.frontends.tfdata  # noqa: F401  # before the clock starts
    began = perf_counter()
    nbytes = sum(leaf.nbytes for leaf in leaves(dataset.spec))
    if nbytes == 0 and len(dataset):
        raise ArgumentError("elements must hold numbers to be measured; these have none.")
    epoch_length = len(dataset.batches(1))  # an epoch of a mixture is shorter than the mixture
    fitting = _memory() // _IN_FLIGHT // max(1, nbytes)
    sizes = list(dict.fromkeys(max(1, min(size, epoch_length, fitting)) for size in _BATCH_SIZES))
    loaders, resident, notes = _loaders(dataset, sizes, to_tf, seconds)
    files = files_of(dataset)
    state = "warm" if files else "store" if dataset.is_remote else "memory"
    if as_flag("cold", cold) and files:
        state = "cold"
    limits: dict[str, Limited] = {}
    decoder = None if dataset.is_remote else decoding(dataset)  # from a store it fetches as well
    if decoder is not None:
        limits["decoder"] = decoder
    if state == "cold":
        limits["disk"] = disk_reading(files, dataset)
    measures: dict[str | Way, tuple[Measure, float]] = {
        name: (partial(_rate, epochs), _LIMIT_SHARE * seconds)
        for name, (epochs, _) in limits.items()
    }
    for way, loader in loaders.items():
        epochs = partial(_epoch, way, loader, files if state == "cold" else ())
        measure = partial(_rate, epochs, period=steps_of_a_period(loader))
        if way.order == "sequential":
            measure(0.0, ROUNDS)  # warm up: no way is charged for work that all of them share
        measures[way] = (measure, _WAYS_SHARE * seconds / (ROUNDS * len(loaders)))
    shown = as_flag("progress", progress)
    with shown_progress("measuring", ROUNDS * len(measures), shown) as advance:
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
        cache=state,
        limits=tuple(Limit(name, rates[name], needed) for name, (_, needed) in limits.items()),
        ways=tuple(replace(way, rounds=rates[way]) for way in loaders),
        advice=(),
        notes=tuple(notes),
        memory_bytes=MEMORY + resident,
        seconds=perf_counter() - began,
    )
    best: dict[str, float] = {}
    for way in found.ways:
        if way.reader == "NumPy":
            best[way.order] = max(way.rate, best.get(way.order, 0.0))
    allowed = next((one.elements for one in found.limits if one.name == "decoder"), inf)
    measured = Measured(rates=best, decoder=allowed)
    reading = reading_of(dataset.batches(min(sizes), shuffle=True))
    return replace(found, advice=advise(reading, measured))


def _loaders(
    dataset: Dataset, sizes: Sequence[int], to_tf: bool, seconds: float
) -> tuple[dict[Way, Loader], int, list[str]]:
    """Return the loader of each way to measure, the memory they take, and notes on skipped ways."""
    loaders: dict[Way, Loader] = {}
    resident, notes = 0, []
    for order, shuffle in _ORDERS.items():
        for batch_size in sizes:
            loader = dataset.batches(batch_size, shuffle=shuffle)
            if order == "block shuffle" and not loader.chunked:
                continue  # a full shuffle is as fast without chunks
            explained = loader.explain()
            amplification = explained.amplification
            decoded = _IN_FLIGHT * loader.steps_together * loader.batch_bytes * amplification
            if order != "sequential" and loader.chunked and decoded > _DECODED_BYTES * seconds:
                notes.append(
                    f"Left out: {order}, batches of {batch_size:,}. It decodes {amplification:,.0f}"
                    f" bytes for each byte used, {size(decoded)} before the first batches come."
                )
                continue
            resident = max(resident, explained.resident_bytes)
            for reader in ("NumPy", "to_tf") if to_tf else ("NumPy",):
                loaders[Way(order, batch_size, reader, (), amplification)] = loader
    return loaders, resident, notes


def _epoch(way: Way, loader: Loader, cold: Sequence[str], number: int) -> Iterator[Any]:
    """Return the batches of an epoch, read with empty caches."""
    decoded_chunks.forget()
    drop(cold)  # a round may read a small file in many epochs
    if way.reader == "NumPy":
        return loader.epoch(number)
    return iter(loader.to_tf(start=(number, 0)))


def _rate(epochs: Epochs, seconds: float, number: int, *, period: int = 1) -> float:
    """Read for some seconds, from the beginning of an epoch; return elements a second."""
    return pace(epochs, seconds, period=period, first=number).rate


def _memory() -> int:
    """Return the bytes that batches may take: a quarter of the machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
