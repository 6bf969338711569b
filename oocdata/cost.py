"""Estimate the cost of reading in an order: bytes decoded per byte used, and requests to stores.

The first steps of the real order are simulated with an LRU cache of the budget's size. Nothing is
read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import inf, prod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent, split_at_gaps, split_into_points
from oocdata.datasets.chunking import chunks_along
from oocdata.datasets.dataset import Dataset
from oocdata.datasets.request import ArrayRequest, Request, of_sources
from oocdata.engines.prefetch import Cost, Fetch, cost_of, fetches
from oocdata.engines.source import Source, Storage, stored_boxes
from oocdata.memory import cache_share, scratch_share
from oocdata.order.order import order_with_lanes

if TYPE_CHECKING:
    from oocdata.loader import Loader

__all__ = [
    "Chunks", "Fetching", "amplification", "cached_bytes", "chunk_bytes", "chunk_numbers",
    "chunks_of", "fetching",
]  # fmt: skip

_MOST_TOUCHES = 1 << 16  # uses of chunks that are followed
_MOST_ELEMENTS = 1 << 18  # elements that are followed
_MOST_POINTS = 1 << 18  # parts of boxes that are compared to find bytes shared by elements
_NEIGHBOURS = 2048  # consecutive elements that are compared

_COUNTED_RUNS = 4
"""Runs of an epoch whose requests are counted."""

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
    cached = min(most, sum(nbytes for nbytes in storage.cached_whole if nbytes <= most))
    if storage.chunks is not None:
        grid = [-(-n // chunk) for n, chunk in zip(source.shape, storage.chunks, strict=True)]
        cached += prod(grid) * chunk_bytes(source, storage)
    return cached


def chunk_numbers(
    shape: Sequence[int], storage: Storage, origins: NDArray[np.int64], extent: Extent
) -> NDArray[np.int64]:
    """Return the numbers of the chunks that boxes cover, each once, in C order of the grid.

    `shape` is the array's. If the array has several parts, chunks begin anew in each part.

    Examples
    --------
    >>> storage = Storage("example", chunks=(4, 10))
    >>> chunk_numbers((8, 30), storage, np.array([[3, 5], [2, 8]]), Extent.of((1, 10)))
    array([0, 1])
    """
    assert storage.chunks is not None
    if not len(origins) or 0 in extent.lengths:
        return np.empty(0, np.int64)
    origins, extent = split_at_gaps(origins, extent, storage.chunks)
    sides, kind = [], np.zeros(len(origins), np.int64)
    for axis, chunk in enumerate(storage.chunks):
        first = origins[:, axis]
        last = first + (extent.spans[axis] - 1)
        (low, high), count = chunks_along(storage, axis, shape[axis], chunk, first, last)
        most = int((high - low).max()) + 1
        sides.append((low, high, most, count))
        kind = (kind * count + low) * most + (high - low)
    # Most boxes of a batch cover the same chunks as others: list each set of chunks once.
    boxes = np.unique(kind, return_index=True)[1]
    numbers = np.zeros((len(boxes), 1), np.int64)
    for low, high, most, count in sides:
        along = np.minimum(low[boxes, None] + np.arange(most), high[boxes, None])
        numbers = (numbers[:, :, None] * count + along[:, None, :]).reshape(len(boxes), -1)
    return np.unique(numbers)


def chunks_of(requests: Iterable[ArrayRequest]) -> Chunks:
    """Return the chunks that requests need, each once."""
    chunks: Chunks = {}
    for request in of_sources(requests):
        for boxes in stored_boxes(request.source, request.origins, request.extent):
            source, origins, extent = boxes
            if (storage := source.storage()).chunks is not None:
                numbers = chunk_numbers(source.shape, storage, origins, extent)
                nbytes = chunk_bytes(source, storage)
                chunks.update(((id(source), number), nbytes) for number in numbers.tolist())
    return chunks


def amplification(loader: Loader) -> float:
    """Return bytes read and decoded per byte used."""
    if not loader.chunked:
        return 1.0
    chunked, addressed = _used(loader.dataset)
    if not chunked:
        return 1.0
    return max(1.0, (_decoded(loader) + addressed) / (chunked + addressed))


def _decoded(loader: Loader, budget: int | None = None, readers: int = 1) -> float:
    """Return the bytes decoded per element, over some steps of an epoch.

    Chunks are cached within a budget, by default the cache's. Several `readers` take turns at the
    runs; they divide the budget, and share no chunks.
    """
    pass_, share = loader.pass_from(0), loader.batch_size // loader.num_shards
    caches: list[OrderedDict[tuple[int, int], int]] = [OrderedDict() for _ in range(readers)]
    budget = (cache_share() if budget is None else budget) // readers
    cached = [0] * readers

    def followed_run(number: int) -> tuple[int, Chunks]:
        """Return the number of elements of a run of the first epoch, and the chunks it needs."""
        run = pass_.run(number)
        elements = sum(loader.steps.lengths(run.start, run.stop))
        return elements, chunks_of(loader.requests(run))

    def read(run: int, chunks: Chunks) -> int:
        """Return the bytes decoded for a run; evict the least recently used chunks, except one."""
        reader, decoded = run % readers, 0
        cache = caches[reader]
        for chunk, nbytes in chunks.items():
            if chunk in cache:
                cache.move_to_end(chunk)
                continue
            decoded += nbytes
            cache[chunk] = nbytes
            cached[reader] += nbytes
            while cached[reader] > budget and len(cache) > 1:
                cached[reader] -= cache.popitem(last=False)[1]
        return decoded

    touched = len(followed_run(0)[1])
    most = min(_MOST_TOUCHES // max(1, touched), _MOST_ELEMENTS // (share * pass_.together))
    runs, most = len(pass_), max(4, most)
    followed = range(runs)
    if runs > most:
        # Runs from the middle of the epoch, after filling the cache as it would be by then.
        followed = range(runs // 2, runs // 2 + most // 2)
        span = most // 2
        order = order_with_lanes(loader.order)
        if order is not None:
            mixed = order.elements_mixed(len(loader.dataset)) // loader.num_shards
            span = max(span, 2 * mixed // (share * pass_.together))
        begin, end = max(0, followed.start - span), followed.start
        before = np.linspace(begin, end, most // 2, endpoint=False)
        for run in np.unique(before.astype(np.int64)).tolist():
            read(run, followed_run(run)[1])
    decoded = elements = 0
    for run in followed:
        count, chunks = followed_run(run)
        elements += count
        decoded += read(run, chunks)
    return decoded / max(1, elements)


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
        Cost of an epoch, estimated from its first reads.
    """

    first: Cost
    trips: int
    epoch: Cost


def fetching(loader: Loader) -> Fetching | None:
    """Return the requests that a loader sends to stores; None if all data is on disk or in memory.

    Fetches no data; only the indices of the shards of a sharded Zarr array that the first reads
    need, and where rows of sparse matrices begin.
    """
    if not loader.dataset.is_remote or not len(loader):
        return None
    from oocdata.stores.link import REQUESTS  # not for `import oocdata`

    dataset, pass_, steps = loader.dataset, loader.pass_from(0), len(loader)
    first = cost_of(chain.from_iterable(_store_reads(loader.requests(pass_.run(0)))))
    pass_ = replace(pass_, grows=False)  # with runs of the usual length
    costs = list[list[Cost]]()
    chunks, elements, followed = 0, 0, 0
    for run in map(pass_.run, range(min(len(pass_), _COUNTED_RUNS))):
        requests, followed = loader.requests(run), run.stop
        costs.append([cost_of(reads) for reads in _store_reads(requests)])
        chunks += sum(chunks_of(requests).values())
        elements += sum(loader.steps.lengths(run.start, followed))
    chunked, blocked, addressed = map(_sum, zip(*costs, strict=True))
    in_folder = not dataset.is_refetched
    # Each worker process fetches its own bytes, unless the processes share a cache folder.
    readers = 1 if in_folder else max(1, loader.workers)
    once, share, most = 1.0, 1.0, inf
    used = _used(dataset) if chunks or in_folder else (0.0, 0.0)
    if chunks:
        # Chunks that several reads share are fetched once, as long as they stay in memory or in a
        # folder. Chunks cached before the steps that are followed were fetched, too.
        decoded = _decoded(loader, 1 << 62 if in_folder else None, readers)
        once = min(1.0, max(decoded, used[0]) * elements / chunks)
    if in_folder:
        most = used[1] * loader.steps.length
    if blocked.nbytes:  # blocks of small rows stay in memory; enough positions to touch all blocks
        count = min(len(dataset), _MOST_TOUCHES)
        positions = np.linspace(0, len(dataset) - 1, count).astype(np.int64)
        blocks = _store_reads(dataset.boxes(positions))[1]
        share = cost_of(blocks).nbytes / blocked.nbytes * readers
    times = steps / followed
    share = min(share, times)
    parts = _times(chunked, times * once), _times(blocked, share), _times(addressed, times, most)
    epoch = _sum(parts)
    if followed < steps or chunks or in_folder:
        epoch = epoch._replace(exact=False)
    trips = max(-(-first.requests // REQUESTS), -(-first.nbytes // scratch_share()))
    return Fetching(first, trips, epoch)


def _store_reads(requests: Iterable[ArrayRequest]) -> tuple[list[Fetch], list[Fetch], list[Fetch]]:
    """Return what requests read from stores: chunks, blocks of small rows, and others."""
    chunks, blocks, others = list[Fetch](), list[Fetch](), list[Fetch]()
    for request in of_sources(requests):
        cached = blocks if request.source.storage().chunks is None else chunks
        for read in fetches(request.source, request.origins, request.extent):
            (cached if read.cached else others).append(read)
    return chunks, blocks, others


def _sum(costs: Iterable[Cost]) -> Cost:
    """Return the sum of costs."""
    requests, nbytes, exact = zip(*costs, strict=True)
    return Cost(sum(requests), sum(nbytes), all(exact))


def _times(cost: Cost, times: float, most: float = inf) -> Cost:
    """Return a cost multiplied by a factor, limited to `most` bytes."""
    requests, nbytes, exact = cost
    times = min(times, most / max(1, nbytes))
    return Cost(round(requests * times), round(nbytes * times), exact)


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


def _distinct(dataset: Dataset, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the distinct bytes that elements consist of: in chunks, and in addressable rows."""
    parts: dict[tuple[int, Extent], tuple[Source, list[NDArray[np.int64]]]] = {}
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


def _points(request: Request) -> tuple[Extent, NDArray[np.int64]]:
    """Cut boxes along axes where they differ; return the parts' extent and origin numbers."""
    origins, extent = request.origins, request.extent
    for axis in range(origins.shape[1]):
        length = extent.lengths[axis]
        varies = length > 1 and int(np.ptp(origins[:, axis])) > 0
        if varies and len(origins) * length <= _MOST_POINTS:
            origins, extent = split_into_points(origins, extent, axis)
    return extent, np.ravel_multi_index(tuple(origins.T), request.source.shape)
