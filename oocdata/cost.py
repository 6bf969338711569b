"""Estimate the cost of reading in an order: bytes decoded per byte used, and requests to stores.

Steps of the real order are followed through an LRU cache of the budget's size. No data is read; of
a sparse matrix, where its rows begin.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, zip_longest
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
from oocdata.engines.plan import plan_box
from oocdata.engines.planned import PlannedCache
from oocdata.engines.prefetch import Cost, Fetch, cost_of
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
_FEWEST_RUNS = 8  # runs that are followed
_MOST_PARTS = 64  # parts of long runs that are looked at, times sources
_WINDOWS_FOLLOWED = 2  # windows of a block shuffle
_BLOCKS_FOLLOWED = 16  # blocks in order

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
        return 1.0 if loader.dataset.is_remote else _with_holes(loader.dataset)
    chunked, addressed = _used(loader.dataset)
    if not chunked:
        return 1.0
    return max(1.0, (_decoded(loader, cache_share()) + addressed) / (chunked + addressed))


def _with_holes(dataset: Dataset) -> float:
    """Return bytes read per byte used where each has an address; small holes are read over."""
    read = used = 0
    for each in singles_of(dataset.boxes(np.array([0]))):
        for source, origins, extent in stored_boxes(each.source, each.origins, each.extent):
            storage, itemsize = source.storage(), source.dtype.itemsize
            nbytes = extent.size * itemsize
            used += len(origins) * nbytes
            if storage.strides is not None and not storage.cached_whole:
                plan = plan_box(extent.lengths, extent.strides, storage.strides, itemsize, None)
                nbytes = plan.nbytes
            read += len(origins) * nbytes
    return read / used if used else 1.0


def _decoded(loader: Loader, budget: float) -> float:
    """Return the bytes decoded per element, in some steps of an epoch, with so large a cache."""
    runs, steps, times = _runs_to_follow(loader)
    cached, known = PlannedCache(budget), PlannedCache(inf)
    # The first half of some runs fills the cache. All runs of an epoch begin without one.
    first = len(runs) // 4 * 2 if runs[-1].stop < len(loader) else 0
    used = elements = loaded = before = 0
    for number in range(0, len(runs), 2):
        if number == first:
            used = elements = 0
            loaded, before = cached.loaded, known.loaded
        # Two runs are read at a time, so requests of both alternate.
        pair = [(run, _chunks_of_run(loader, run, steps)) for run in runs[number : number + 2]]
        for chunks in chain.from_iterable(zip_longest(*(each for _, each in pair), fillvalue={})):
            cached.load(chunks)
            known.load(chunks)
            used += sum(chunks.values())
        elements += sum(_elements(loader, run) for run, _ in pair)
    new, loaded = known.loaded - before, cached.loaded - loaded
    if not _mixing(loader)[1]:
        new = 0  # any use of a chunk may be the first, so first uses are misses like others
    # Runs between those followed need no new chunks, and miss others as often. Some steps of a run
    # need fewer chunks than all.
    added, missed = new / (times * elements), (loaded - new) / max(1, used - new)
    longest = max(run.stop - run.start for run in runs)
    more = _distinct_chunks(loader, longest) / _distinct_chunks(loader, min(steps, longest))
    return added + (used / elements * more - added) * missed


def _chunks_of_run(loader: Loader, run: Run, steps: int) -> list[Chunks]:
    """Return the chunks of each request of a run, from about `steps` steps spread over it."""
    parts = [run]
    if steps < run.stop - run.start:
        number = max(1, min(steps, _MOST_PARTS // max(4, len(loader.dataset.sources()))))
        each = steps // number
        starts = np.linspace(run.start, run.stop - each, number).astype(np.int64)
        parts = [Run(run.epoch, start, start + each) for start in starts.tolist()]
    requests = zip_longest(*map(loader.requests, parts))
    return [chunks_of(filter(None, alike), exact=True) for alike in requests]


def _elements(loader: Loader, run: Run) -> int:
    return sum(loader.steps.lengths(run.start, run.stop))


def _mixing(loader: Loader) -> tuple[int, int]:
    """Return how many elements an order mixes, and through how many such windows to follow it.

    That is 0 windows if all elements are mixed. In order, a window is a block.
    """
    order, count = loader.order, len(loader.dataset)
    if order.lanes is not None:
        return order.elements_mixed(count), _WINDOWS_FOLLOWED
    if isinstance(order, Sequential):
        return typical_length(loader.dataset.blocks, count), _BLOCKS_FOLLOWED
    return count, 0


def _distinct_chunks(loader: Loader, steps: int) -> float:
    """Return about how many blocks the elements of some steps need, of those that are mixed."""
    length = typical_length(loader.dataset.blocks, len(loader.dataset))
    number = max(1.0, _mixing(loader)[0] / max(1, length))
    return number * -expm1(-steps * (loader.batch_size // loader.num_shards) / number)


def _runs_to_follow(loader: Loader) -> tuple[list[Run], int, float]:
    """Return runs of an epoch, the most steps to look at in each, and how many each stands for.

    That is all runs, or as many as may be followed: further apart if windows are longer.
    """
    pass_, share = loader.pass_from(0), loader.batch_size // loader.num_shards
    steps = max(1, min(pass_.together, _MOST_ELEMENTS // (_FEWEST_RUNS * share)))
    whole = Run(0, 0, min(pass_.together, len(loader)))
    touches = sum(map(len, _chunks_of_run(loader, whole, steps)))
    most = min(_MOST_ELEMENTS // (share * steps), _MOST_TOUCHES // max(1, touches))
    most = max(_FEWEST_RUNS, most)
    if len(pass_) <= most:
        return [pass_.run(number) for number in range(len(pass_))], steps, 1.0
    span = max(prod(_mixing(loader)) // loader.batch_size, most * pass_.together)
    span = min(len(loader), span)
    starts = np.linspace(0, span, most, endpoint=False).astype(np.int64).tolist()
    runs = [Run(0, start, min(start + pass_.together, len(loader))) for start in starts]
    return runs, steps, max(1.0, span / (most * pass_.together))


@dataclass(frozen=True, slots=True)
class Fetching:
    """Requests that a loader sends to stores.

    `first` is the cost of the first batch of the first epoch, except what is in memory already, in
    so many consecutive round `trips`; `epoch` of the first epoch, of a long one estimated from some
    of its reads.
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
    in_folder = not dataset.is_refetched  # what memory evicts stays there
    # Each worker process fetches its own bytes, unless the processes share a cache folder.
    readers = 1 if in_folder else max(1, loader.workers)
    budget = inf if in_folder else cache_share() // readers
    cached = {} if loader.workers else cache.listed()
    planned = [PlannedCache(budget, cached) for _ in range(readers)]
    followed = PlannedCache(budget)
    with PlannedCache(inf, cached).used():
        first = cost_of(stored_reads(loader.requests(pass_.run(0))), cold=is_cold)
    trips = max(-(-first.requests // REQUESTS), -(-first.nbytes // scratch_share()))
    costs = list[tuple[Cost, Cost]]()  # of chunks, and of rows that are not cached
    elements, rows = list[int](), list[Fetch]()
    sent = link().traffic.requests
    # Planning a read takes eight times as long as finding its chunks. The first runs are short.
    for number in range(len(pass_)):
        if number >= _FEWEST_PLANNED and sum(elements) >= _MOST_ELEMENTS // 8:
            break
        run, reader = pass_.run(number), planned[number % readers]
        needed = loader.requests(run)
        with reader.used():
            reads = stored_reads(needed)
        for request in needed:
            followed.load(chunks_of([request]))
        cold = is_cold and count < REQUESTS
        uncached = [one for one in reads if not one.cached]
        chunks = cost_of([one for one in reads if one.cached], cold=cold)
        costs.append((chunks, cost_of(uncached, cold=cold)))
        rows += uncached
        count += sum(cost.requests for cost in costs[-1])
        elements.append(_elements(loader, run))
        if link().traffic.requests - sent > _MOST_INDICES:
            break
    each = np.array(costs, np.float64)[:, :, :2]  # by run, kind, and requests or bytes
    total, length, half = each.sum(0), loader.steps.length, len(elements) // 2
    rest, loaded = length - sum(elements), sum(one.loaded for one in planned)
    # The rest costs as much as the later half of these runs: the first are shorter, and fill the
    # cache.
    epoch = total + each[half:].sum(0) * rest / max(1, sum(elements[half:]))
    if rest and loader.order.lanes is not None:
        # Windows load most of their chunks when they begin, maybe before the later half of these
        # runs, and other windows may begin in it.
        whole = _decoded(loader, budget) * length
        epoch[0] = total[0] * max(1.0, whole / max(1, followed.loaded))
    decoded = sum(cached_bytes(source, source.storage()) for source in dataset.sources())
    if decoded <= budget:  # each reader loads each chunk once
        epoch[0] = np.minimum(epoch[0], total[0] * max(1, readers * decoded / max(1, loaded)))
    if in_folder and total[1, 1]:  # rows are fetched once, in whole pages
        once = max(_used(dataset)[1] * length, cost_of(rows).nbytes)
        epoch[1] = np.minimum(epoch[1], total[1] * once / total[1, 1])
    # Over a cold link ranges are cut as answers come; what does not fit is fetched again.
    fits = all(4 * cost.nbytes <= scratch_share() for _, cost in costs)
    is_exact = all(cost.exact for both in costs for cost in both)
    is_exact &= fits and not (rest or in_folder or loaded or is_cold)
    requests, nbytes = np.rint(epoch.sum(0)).astype(np.int64).tolist()
    return Fetching(first, trips, Cost(requests, nbytes, is_exact))


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
