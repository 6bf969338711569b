"""`oocdata bench`: how fast a file can be read, beside what the machine allows, and what to change.

Everything is measured in one process, in rounds in which all ways and limits take turns, so that a
busy machine slows all of them down alike. A figure is the median of the rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from time import perf_counter
from typing import Any

from oocdata.datasets.dataset import Dataset
from oocdata.datasets.spec import leaves
from oocdata.errors import ArgumentError
from oocdata.explain import explain, size
from oocdata.index import as_count
from oocdata.sources.adapt import layout_of
from oocdata.tools.bench.advising import advice
from oocdata.tools.bench.command import known_opening
from oocdata.tools.bench.files import available_memory, files_of
from oocdata.tools.bench.limits import THREADS
from oocdata.tools.bench.result import Bench
from oocdata.tools.bench.session import Session, stretches
from oocdata.tools.bench.ways import ORDERS, candidates, element_bytes
from oocdata.tools.info import Opening
from oocdata.tools.profile.needed import sources_of
from oocdata.tools.profile.pacing import check_seconds
from oocdata.tools.progress import progress as shown_progress

__all__ = ["BATCH_SIZES", "SECONDS", "Bench", "bench"]

BATCH_SIZES = (32, 256)
SECONDS = 15.0

_IN_FLIGHT = 4
"""Batches that exist at a time in plain iteration, where each is read alone."""


def bench(
    dataset: Dataset,
    *,
    batch_sizes: Sequence[int] | None = None,
    seconds: float = SECONDS,
    to_tf: bool = False,
    cold: bool | None = None,
    progress: bool = False,
    opening: Opening | None = None,
) -> Bench:
    """Measure how fast elements can be read, beside what disk, decoder and memory allow.

    Nothing is written, and nothing of the dataset changes. The page cache is emptied for its files,
    then filled again if they fit into half of the free memory.

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
    cold : bool, optional
        Empty the page cache before each epoch, or don't. By default where the files would not fit
        into half of the free memory.
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
    (['sequential', 'full shuffle', 'block shuffle'], 'memory')
    """
    _check_dataset(dataset)
    if to_tf:
        import_module("oocdata.frontends.tfdata")  # before the clock starts
    begun = perf_counter()
    check_seconds(seconds)
    nbytes = element_bytes(dataset)
    if nbytes == 0 and len(dataset):
        raise ArgumentError("elements must hold numbers to be measured; these have none.")
    sizes, notes = _batch_sizes(dataset, batch_sizes)
    ways = candidates(dataset, sizes, ["NumPy", "to_tf"] if to_tf else ["NumPy"])
    files = files_of(dataset)
    if dataset.blocks.length > 1 and len({one.order for one in ways}) < len(ORDERS):
        notes += ("Orders that take in millions of tiny rows at a time are left out.",)
    with shown_progress("measuring", stretches(ways), "stretches", progress) as advance:
        session = Session(dataset, ways, files, seconds, advance)
        session.disk()
        cache = session.fill(cold)
        session.rounds()
        looks = session.looks()
        kept = session.kept()
    first = sources_of(dataset)[0]
    layout = layout_of(first)
    found = Bench(
        path=layout.path,
        key=layout.key,
        opening=known_opening(layout.path, layout.key, dataset, opening),
        format=layout.format,
        storage=layout.storage,
        codec=layout.codec,
        stored_bytes=layout.stored_bytes,
        elements=len(dataset),
        element=" and ".join(str(leaf) for leaf in leaves(dataset.spec)),
        element_bytes=nbytes,
        chunk_rows=first.chunk_rows,
        cache=cache,
        limits=session.limits,
        ways=session.ways,
        kept=kept,
        looks=looks,
        advice=(),
        notes=(*notes, *session.notes),
        threads=THREADS,
        memory_bytes=max(explain(one.loader).resident_bytes for one in ways) + session.nbytes,
        seconds=perf_counter() - begun,
    )
    return replace(found, advice=advice(found, dataset))


def _check_dataset(dataset: Any) -> None:
    if not isinstance(dataset, Dataset):
        hint = "Give `loader.dataset`." if hasattr(dataset, "dataset") else "Use `ooc.open`."
        raise ArgumentError(f"`dataset` must be a Dataset; got {type(dataset).__name__}. {hint}")


def _batch_sizes(
    dataset: Dataset, given: Sequence[int] | None
) -> tuple[list[int], tuple[str, ...]]:
    """Return the batch sizes to measure, and what to say of those that are left out."""
    room = available_memory() // 2
    nbytes = element_bytes(dataset)

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
