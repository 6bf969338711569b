"""Estimate the cost of reading in an order: bytes decoded per byte used, and requests to stores.

The first steps of the real order are simulated with an LRU cache of the budget's size. No data is
read; of a sparse matrix, where its rows begin.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import expm1, inf, prod
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from oocdata.blocks import typical_length
from oocdata.box import Extent, Ints, split_into_points
from oocdata.datasets.dataset import Dataset
from oocdata.datasets.request import ArrayRequest, Request, singles_of, stored_reads
from oocdata.engines.cache import MANY_TIMES, cache
from oocdata.engines.columns import is_sparse
from oocdata.engines.gather.grid import covered_chunks
from oocdata.engines.planned import PlannedCache
from oocdata.engines.prefetch import Cost, cost_of
from oocdata.engines.source import Boxes, Source, Storage, stored_boxes
from oocdata.memory import cache_share, scratch_share
from oocdata.order.order import Sequential
from oocdata.runs import Run

if TYPE_CHECKING:
    from oocdata.loader import Loader

_MOST_TOUCHES = 1 << 16  # uses of chunks that are followed
_MOST_ELEMENTS = 1 << 18  # elements that are followed
_MOST_POINTS = 1 << 18  # parts of boxes that are compared to find bytes shared by elements
_NEIGHBOURS = 2048  # consecutive elements that are compared
_RUNS_FOLLOWED = 128  # runs into which the elements that are followed far apart are divided
_USES_FOLLOWED = 8  # uses of a chunk by which a miss is told from a first use
_CHUNKS_FOLLOWED = 16  # chunks that a sequential stretch uses one after the other

_FEWEST_PLANNED = 8
"""Runs of an epoch that are planned, at least: most have the usual length by then."""

_MOST_INDICES = 512
"""Indices of shards that are fetched to plan the reads of an epoch."""

Chunks = dict[tuple[int, int], int]
"""Bytes of each chunk, by (source, number)."""


def chunk_bytes(source: Source, storage: Storage) -> int:
    """Return the bytes of a decoded chunk; 0 if nothing is decoded."""
    if storage.chunks is None:
        return 0
    if storage.chunk_bytes is not None:
        return storage.chunk_bytes
    return prod(map(min, storage.chunks, source.shape)) * source.dtype.itemsize


def cached_bytes(source: Source, storage: Storage) -> int:
    """Return the bytes of an array that the cache may hold."""
    most = cache_share()
    largest = most if storage.is_remote else MANY_TIMES * most
    cached = min(most, sum(nbytes for nbytes in storage.cached_whole if nbytes <= largest))
    if storage.chunks is not None:
        grid = [-(-n // chunk) for n, chunk in zip(source.shape, storage.chunks, strict=True)]
        cached += prod(grid) * chunk_bytes(source, storage)
    return cached


def chunks_of(requests: Iterable[ArrayRequest], *, exact: bool = False) -> Chunks:
    """Return the chunks that requests need, each once.

    Sparse rows need chunks of average rows; if `exact`, those of the arrays that store them, after
    reading where rows begin.
    """
    chunks: Chunks = {}
    for request in singles_of(requests):
        boxes = stored_boxes(request.source, request.origins, request.extent)
        for source, origins, extent in _with_sparse_arrays(boxes) if exact else boxes:
            storage = source.storage()
            if storage.chunks is not None:
                parts = storage.parts, storage.parts_axis
                numbers = covered_chunks(source.shape, storage.chunks, origins, extent, *parts)
                nbytes = chunk_bytes(source, storage)
                chunks.update(((id(source), number), nbytes) for number in numbers.tolist())
    return chunks


def _with_sparse_arrays(several: Iterable[Boxes]) -> Iterator[Boxes]:
    """Yield boxes; for those of sparse rows, boxes of the arrays that store the rows."""
    for source, origins, extent in several:
        if is_sparse(source):
            yield from _with_sparse_arrays(cast(Any, source).read_boxes(origins, extent))
        else:
            yield source, origins, extent


def amplification(loader: Loader) -> float:
    """Return bytes read and decoded per byte used."""
    if not loader.chunked:
        return 1.0
    chunked, addressed = _used(loader.dataset)
    if not chunked:
        return 1.0
    return max(1.0, (_decoded(loader, chunked) + addressed) / (chunked + addressed))


def _decoded(loader: Loader, least: float) -> float:
    """Return the bytes decoded per element, in some steps of an epoch; each adds `least` bytes."""
    cached, known = PlannedCache(cache_share()), PlannedCache(inf)
    runs, first, times = _runs_to_follow(loader)
    used = elements = loaded = before = 0
    for number, run in enumerate(runs):
        if number == first:
            loaded, before = cached.loaded, known.loaded
        chunks = chunks_of(loader.requests(run), exact=True)
        cached.load(chunks)
        known.load(chunks)
        if number >= first:
            used += sum(chunks.values())
            elements += _elements(loader, run)
    new, loaded = known.loaded - before, cached.loaded - loaded
    order, count = loader.order, len(loader.dataset)
    if times == 1:
        whole, part = loader.steps_together, max(run.stop - run.start for run in runs)
        sharing = _distinct_chunks(loader, whole) / whole / (_distinct_chunks(loader, part) / part)
        return loaded / max(1, elements) * sharing
    # Steps between those followed need no new chunks, and miss others as often.
    missed = (loaded - new) / max(1, used - new)
    middle = len(loader) // 2
    run = Run(0, middle, min(middle + loader.steps_together, len(loader)))
    each = sum(chunks_of(loader.requests(run), exact=True).values()) / _elements(loader, run)
    added = new / (times * elements)
    if order.lanes is not None and used < _USES_FOLLOWED * new:
        mixed = order.elements_mixed(count) // loader.num_shards * max(added, least)
        room = cache_share() - each * _elements(loader, run)
        missed = 0.0 if mixed <= cache_share() else min(1.0, 1 - room / mixed)
    return added + (each - added) * missed


def _elements(loader: Loader, run: Run) -> int:
    return sum(loader.steps.lengths(run.start, run.stop))


def _runs_to_follow(loader: Loader) -> tuple[list[Run], int, float]:
    """Return runs of an epoch, the number of the first to follow, and how many each stands for.

    Those before fill the cache. All runs of an epoch, or some in its middle; if chunks are used for
    long in this order, far enough apart that many chunks come and go.
    """
    pass_, order, count = loader.pass_from(0), loader.order, len(loader.dataset)
    steps, together, most = pass_.steps, pass_.together, _most_runs(loader, pass_.together)
    if len(pass_) <= most:
        return [pass_.run(number) for number in range(len(pass_))], 0, 1.0
    length = 0
    if order.lanes is not None:
        length = 2 * order.elements_mixed(count)
    elif isinstance(order, Sequential):
        length = _CHUNKS_FOLLOWED * typical_length(loader.dataset.blocks, count)
    span = length // loader.batch_size
    if span > 2 * most * together or most == 2:
        share = loader.batch_size // loader.num_shards
        parts = (_RUNS_FOLLOWED if span else 4) * share
        together = max(1, min(together, _MOST_ELEMENTS // parts))
        most = _most_runs(loader, together)
        span = max(span, most // 2 * together)
    else:
        span = most // 2 * together
    first = most // 2 if 2 * span < steps else 0
    begin, end = (steps // 2 - span, steps // 2 + span) if first else (0, steps)
    starts = np.linspace(begin, end, most, endpoint=False).astype(np.int64).tolist()
    runs = [Run(0, start, min(start + together, steps)) for start in starts]
    return runs, first, (end - begin) / (most * together)


def _most_runs(loader: Loader, together: int) -> int:
    """Return the most runs of steps that may be followed: an even number."""
    most = _MOST_ELEMENTS // (loader.batch_size // loader.num_shards * together)
    if most > 2:
        chunks = chunks_of(loader.requests(Run(0, 0, min(together, len(loader)))))
        most = min(most, _MOST_TOUCHES // max(1, len(chunks)))
    return 2 * max(1, most // 2)


def _distinct_chunks(loader: Loader, steps: int) -> float:
    """Return about how many blocks are hit by the elements of a run in random order."""
    number = loader.dataset.blocks.number(len(loader.dataset))
    return number * -expm1(-steps * (loader.batch_size // loader.num_shards) / number)


@dataclass(frozen=True, slots=True)
class Fetching:
    """Requests that a loader sends to stores.

    Attributes
    ----------
    first : Cost
        Cost of the first batch of the first epoch, except what is in memory already.
    trips : int
        Consecutive round trips of that read.
    epoch : Cost
        Cost of the first epoch; of a long one, estimated from some of its reads.
    """

    first: Cost
    trips: int
    epoch: Cost


def fetching(loader: Loader) -> Fetching | None:
    """Return the requests that a loader sends to stores; None if all data is on disk or in memory.

    Plans the reads of an epoch, or of some of its runs, as its readers will. Fetches no data; only
    the indices of shards of a sharded Zarr array, and where rows of sparse matrices begin.
    """
    if not loader.dataset.is_remote or not len(loader):
        return None
    from oocdata.stores.link import REQUESTS, link  # not for `import oocdata`

    dataset, pass_ = loader.dataset, loader.pass_from(0)
    is_cold, count = link().is_cold(), 0
    first = cost_of(stored_reads(loader.requests(pass_.run(0))), cold=is_cold)
    trips = max(-(-first.requests // REQUESTS), -(-first.nbytes // scratch_share()))
    in_folder = not dataset.is_refetched  # what memory evicts stays there
    # Each worker process fetches its own bytes, unless the processes share a cache folder.
    readers = 1 if in_folder else max(1, loader.workers)
    budget = inf if in_folder else cache_share() // readers
    cached = {} if loader.workers else cache.listed()
    planned = [PlannedCache(budget, cached) for _ in range(readers)]
    chunks, others, elements = list[Cost](), list[Cost](), list[int]()
    sent = link().traffic.requests
    # Planning a read takes eight times as long as finding its chunks. The first runs are short.
    for number in range(
        min(len(pass_), max(_FEWEST_PLANNED, _most_runs(loader, pass_.together) // 8))
    ):
        run, reader = pass_.run(number), planned[number % readers]
        with reader.used():
            reads = stored_reads(loader.requests(run))
        cold = is_cold and count < REQUESTS
        chunks.append(cost_of([one for one in reads if one.cached], cold=cold))
        others.append(cost_of([one for one in reads if not one.cached], cold=cold))
        count += chunks[-1].requests + others[-1].requests
        elements.append(_elements(loader, run))
        if link().traffic.requests - sent > _MOST_INDICES:
            break
    rest, loaded = loader.steps.length - sum(elements), sum(one.loaded for one in planned)
    decoded = sum(cached_bytes(source, source.storage()) for source in dataset.sources())
    # If all chunks fit, each reader loads each once: by bytes, that many times those loaded so far.
    most = max(1, readers * decoded / max(1, loaded)) if decoded <= budget else inf
    rows = _used(dataset)[1] * loader.steps.length / max(1, sum(cost.nbytes for cost in others))
    parts = (
        _extended(chunks, elements, rest, most),
        _extended(others, elements, rest, rows if in_folder else inf),
    )
    requests, nbytes, exact = zip(*parts, strict=True)
    is_exact = not rest and all(exact) and not (in_folder or loaded)
    return Fetching(first, trips, Cost(sum(requests), sum(nbytes), is_exact))


def _extended(costs: Sequence[Cost], elements: Sequence[int], rest: int, most: float) -> Cost:
    """Return the cost of an epoch, at most that many times the cost of its first runs.

    The rest of its elements cost as much as those of the later half of these runs: the first runs
    are shorter, and fill the cache.
    """
    half = len(costs) // 2
    times = rest / max(1, sum(elements[half:]))

    def total(amounts: Sequence[int]) -> int:
        first, later = sum(amounts), times * sum(amounts[half:])
        return round(min(first + later, most * first)) if first else 0

    requests, nbytes, exact = zip(*costs, strict=True)
    return Cost(total(requests), total(nbytes), all(exact))


def _used(dataset: Dataset) -> tuple[float, float]:
    """Return the bytes that an element adds to its neighbours': in chunks, and in addressable rows.

    Rows that several windows share count once.
    """
    length = len(dataset)
    if length <= 2 * _NEIGHBOURS:
        chunked, addressed = (_distinct(dataset, np.arange(length)) / length).tolist()
    else:
        middle = length // 2 + np.arange(-_NEIGHBOURS, _NEIGHBOURS)
        more = _distinct(dataset, middle) - _distinct(dataset, middle[:_NEIGHBOURS])
        chunked, addressed = (more / _NEIGHBOURS).tolist()
    return chunked, addressed


def _distinct(dataset: Dataset, positions: Ints) -> Ints:
    """Return the distinct bytes that elements consist of: in chunks, and in addressable rows."""
    parts: dict[tuple[int, Extent], tuple[Source, list[Ints]]] = {}
    for request in dataset.boxes(positions):
        if request.extent.size and len(request.origins):
            extent, numbers = _points(request)
            key = id(request.source), extent
            parts.setdefault(key, (request.source, []))[1].append(numbers)
    totals = np.zeros(2, np.int64)
    for (_, extent), (source, several) in parts.items():
        number = len(np.unique(np.concatenate(several)))
        storage, nbytes = source.storage(), float(extent.size * source.dtype.itemsize)
        if storage.chunk_bytes is not None and storage.chunks is not None:
            nbytes = extent.size / prod(storage.chunks) * storage.chunk_bytes
        totals[1 if storage.chunks is None else 0] += round(number * nbytes)
    return totals


def _points(request: Request) -> tuple[Extent, Ints]:
    """Cut boxes along axes where they differ; return the parts' extent and origin numbers."""
    origins, extent = request.origins, request.extent
    for axis in range(origins.shape[1]):
        length = extent.lengths[axis]
        varies = length > 1 and int(np.ptp(origins[:, axis])) > 0
        if varies and len(origins) * length <= _MOST_POINTS:
            origins, extent = split_into_points(origins, extent, axis)
    return extent, np.ravel_multi_index(tuple(origins.T), request.source.shape)
