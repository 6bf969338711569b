"""Explain a loader: what is read, in which order, and how much memory it takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocdata.advice import Advice, advise, as_typed, reading_of, size
from oocdata.blocks import AnyBlocks, Blocks
from oocdata.cost import Fetching, cached_bytes, chunk_bytes, fetching
from oocdata.datasets.dataset import Dataset
from oocdata.datasets.spec import leaves
from oocdata.engines.buffers import ALIGNMENT
from oocdata.engines.source import Storage, stored_sources
from oocdata.index import as_count
from oocdata.memory import cache_share, scratch_share
from oocdata.order import BlockShuffle
from oocdata.order.mixing import Mixing
from oocdata.runs import Ahead
from oocdata.threads import cores

if TYPE_CHECKING:
    from oocdata.engines.prefetch import Cost
    from oocdata.loader import Loader

_SCRATCH_BYTES = 20 << 20
"""Memory for rearranging and converting, the stacks of threads, and what allocators keep."""

_CHUNK_BYTES, _PLAN_BYTES = 400, 500
"""Bytes for each chunk that is cached besides its own, and, of a store, for each that will be."""

_COPIED_BYTES = 4 << 20
"""Scratch memory of a thread that reads boxes which are rearranged, converted or not whole rows."""

_DECODING_BYTES = 32 << 20
"""Memory for decoding, whatever the chunks: libraries, buffers of their threads, malloc's."""

_LINK_BYTES = 48 << 20
"""Memory of the stores' client, its connections, and cached metadata."""

_RETAINED_RUNS = 3
"""Runs of byte rows whose memory malloc keeps, or TensorFlow holds as strings."""

_PIECE_BYTES = 4 << 20
"""Bytes that a thread reads at a time before it makes byte rows of them."""

_PROCESS_BYTES = 32 << 20
"""Memory of a worker process with NumPy and this package; imports of its functions come on top."""

_POOR_MIXING = 0.9
"""Share of a full shuffle's batch entropy below which batches hold too many neighbours."""

_MOST_STORAGES = 6
"""Most arrays that are listed."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The result of `Loader.explain`, to print."""

    elements: int  #: of one epoch
    batch_size: int
    steps: int
    arrays: tuple[str, ...]  #: shape and dtype of each array of an element
    storages: tuple[Storage, ...]  #: where and how each source is stored and read
    order: str
    reason: str  #: why the order was chosen
    #: How well batches mix storage chunks beside a full shuffle; None for sequential order.
    mixing: Mixing | None
    #: Bytes read (and decoded) per byte used, over the first epoch or some steps of it; without
    #: blocks of small rows, which are read once.
    amplification: float
    batch_bytes: int
    #: Upper bound on the memory for reading: batches in flight, decoded chunks, tables, scratch,
    #: worker processes. The memory of your process, model and mapped functions comes on top.
    resident_bytes: int
    #: Bytes of these for index arrays, rows of masks, weights, episodes, places of chunks.
    table_bytes: int
    #: Most batches that exist at a time: being read and ready (in whole runs, if several share a
    #: read), handed out, and in use.
    in_flight: int
    steps_together: int  #: batches that share a read
    #: Most ranks that can read the order without decoding each other's chunks; 1 without lanes.
    lanes: int
    #: Requests to stores, before the first batch and in an epoch; None if all data is local.
    fetching: Fetching | None
    advice: tuple[Advice, ...]

    def __str__(self) -> str:
        lines = [
            f"{self.elements:,} elements of {' and '.join(self.arrays)}",
            f"in {self.steps:,} batches of {self.batch_size} ({size(self.batch_bytes)} each)",
        ]
        for storage in self.storages[:_MOST_STORAGES]:
            where = "memory" if storage.path is None else as_typed(storage.path)
            key = f", {storage.key}" if storage.key else ""
            lines.append(
                f"from   {where}{key}: {storage.format}, {storage.layout}, codec {storage.codec}"
            )
            lines.append(f"read   {storage.reading}")
            if storage.chunks or not storage.cached_whole:  # else whole blocks, once, for all
                times = f"{self.amplification:.2g}"
                bytes_read = "1 byte" if times == "1" else f"{times} bytes"
                lines[-1] += f"; {bytes_read} read for each one used"
        if len(self.storages) > _MOST_STORAGES:
            lines.append(f"       and {len(self.storages) - _MOST_STORAGES} more arrays")
        lanes = f"; in {self.lanes} lanes, so up to {self.lanes} ranks share the chunks"
        lines.append(f"order  {self.order}: {self.reason}{lanes if self.lanes > 1 else ''}")
        if self.mixing is not None and self.mixing.full_shuffle_entropy > 0.01:  # else one block
            entropy, full = self.mixing.entropy, self.mixing.full_shuffle_entropy
            words = "mixes as well as a full shuffle" if entropy >= 0.99 * full else "mixes well"
            if entropy < _POOR_MIXING * full:
                words = "mixes poorly: neighbours stay together"
            lines.append(
                f"mixing {entropy:.2f} bits of batch entropy, {full:.2f} in a full shuffle; {words}"
            )
        if self.fetching is not None:
            lines.append(f"fetch  {_fetching_words(self.fetching)}")
        together = f", {self.steps_together} to a read" if self.steps_together > 1 else ""
        lines.append(
            f"memory at most {size(self.resident_bytes)}: {self.in_flight} batches in flight"
            f"{together}; cached chunks or small rows; scratch"
            + (f"; tables of {size(self.table_bytes)}" if self.table_bytes > 1 << 20 else "")
        )
        lines += [f"advice {advice.text}" for advice in self.advice]
        return "\n".join(lines)


def explain(loader: Loader, parallel: int = 2, prefetch: int = 2) -> Explanation:
    """Return an explanation of a loader; see `Loader.explain`. Reads no data.

    For a sparse matrix, it reads where rows begin.
    """
    order, dataset, count = loader.order, loader.dataset, len(loader.dataset)
    parallel, prefetch = as_count("parallel", parallel), as_count("prefetch", prefetch, at_least=0)
    ahead = loader.ahead(parallel, prefetch)
    reading = reading_of(loader)
    resident, records = _resident_bytes(loader, ahead), loader.tf_loader
    if records is not loader:  # `to_tf` reads runs of records, and parses a run at a time
        runs = records.ahead(parallel, prefetch)
        parsed = 2 * runs.together * loader.batch_bytes
        resident = max(resident, parsed + _resident_bytes(records, runs))
    return Explanation(
        elements=loader.steps.length,
        batch_size=loader.batch_size,
        steps=len(loader),
        arrays=tuple(str(leaf) for leaf in leaves(dataset.spec)),
        storages=tuple(source.storage() for source in dataset.sources()),
        order=order.words(count),
        reason=loader.reason,
        mixing=reading.mixing,
        amplification=reading.amplification,
        batch_bytes=loader.batch_bytes,
        resident_bytes=resident,
        table_bytes=_table_bytes(loader) * (1 + loader.workers),
        in_flight=ahead.batches,
        steps_together=ahead.together,
        lanes=order.lanes or 1,
        fetching=fetching(loader),
        advice=advise(reading),
    )


def _fetching_words(fetching: Fetching) -> str:
    """Describe the requests to stores in words."""
    first, epoch = fetching.first, fetching.epoch
    if not first.requests:
        return f"nothing for the first batch, which is cached; {_cost_words(epoch)} in an epoch"
    trips = "1 round trip" if fetching.trips == 1 else f"{fetching.trips} round trips"
    return f"{_cost_words(first)} in {trips} for the first batch; {_cost_words(epoch)} in an epoch"


def _cost_words(cost: Cost) -> str:
    if not cost.requests:
        return "nothing"
    about = "" if cost.exact else "about "
    plural = "request" if cost.requests == 1 else "requests"
    return f"{about}{cost.requests:,} {plural} ({size(cost.nbytes)})"


def _resident_bytes(loader: Loader, ahead: Ahead) -> int:
    """Return an upper bound on the memory for reading."""
    sources = loader.dataset.sources()
    storages = [source.storage() for source in sources]
    stored = [(source, source.storage()) for source in stored_sources(sources)]
    chunks = [chunk_bytes(*pair) for pair in stored]
    tables = _table_bytes(loader)
    # The inputs of a mapped function, and its results copied to memory that TensorFlow may keep;
    # for sparse rows, the arrays as stored.
    elements = ahead.together * loader.largest_batch
    reading = loader.input_bytes(ahead.together)
    reading += ahead.together * loader.batch_bytes if loader.dataset.is_mapped else 0
    if ahead.together > 1:  # `to_tf` copies what does not begin at aligned addresses
        reading += ahead.together * sum(n for n in loader.array_bytes if n % ALIGNMENT)
    reading += max(storage.scratch_bytes for storage in storages)
    reading += loader.dataset.location_bytes(elements)
    for request in loader.dataset.boxes(np.zeros(1, np.int64)):
        extent, source = request.extent, request.source
        # Parts of chunks or whole rows, as stored, take no scratch memory.
        whole = extent.lengths[1:] == source.shape[1:] and set(extent.strides) <= {1}
        if request.dtype != source.dtype or not (whole or source.storage().chunks):
            reading += _COPIED_BYTES
            break
    processes = max(1, loader.workers)
    # Worker processes divide the limit; each allows at least one chunk.
    sizes = [min(cache_share() // processes, cached_bytes(*pair)) for pair in stored]
    cached = min(cache_share() // processes, sum(sizes))
    if any(chunks):
        each = [nbytes // chunk for nbytes, chunk in zip(sizes, chunks, strict=True) if chunk]
        number = min(sum(each), cached // min(filter(None, chunks)))
        tables += number * (_CHUNK_BYTES + _PLAN_BYTES * loader.dataset.is_remote)
    decoding = _DECODING_BYTES if cached else 0
    if any(leaf.form != "dense" for leaf in leaves(loader.dataset.spec)):
        # `to_tf` copies padded rows and rows that TensorFlow parses: of the batch in use and of the
        # next, and malloc keeps as much as one of them. For sparse and ragged rows, a reserve.
        decoding += 3 * loader.batch_bytes
    if any(leaf.dtype.hasobject for leaf in leaves(loader.dataset.spec)):
        decoding += _RETAINED_RUNS * ahead.together * loader.batch_bytes
        # Each thread reads the bytes of some rows, and its arena of malloc keeps a run's rows.
        reading += _PIECE_BYTES + ahead.together * loader.batch_bytes
    decoding += _RETAINED_RUNS * ahead.together * loader.text_bytes
    if any(leaf.dtype.kind == "U" for leaf in leaves(loader.dataset.spec)):
        # NumPy encodes strings by way of Python's: 8 bytes to refer to each, and 33 in its head.
        reading += ahead.together * (2 * loader.batch_bytes + 2 * loader.text_bytes)
    if any(chunks):
        cached = max(cached, max(chunks))  # at least the chunk that is read
        # Each thread has the stored bytes of a chunk, and the chunk between two filters.
        threads = cores() + ahead.reading
        most = max(2 * max(chunks), *(storage.chunk_scratch for _, storage in stored))
        decoding += min(threads * most, max(scratch_share() // processes, most))
    fetched = 0
    if loader.dataset.is_remote:
        # Answers not taken yet, and answers of runs that are being read; twice on the way into a
        # cache folder.
        copies = 2 if any(storage.cache for storage in storages) else 1
        run = ahead.together * loader.batch_bytes
        fetched = _LINK_BYTES + scratch_share() // processes + copies * ahead.reading * run
    per_process = _SCRATCH_BYTES + cached + decoding + tables + fetched + ahead.reading * reading
    workers = loader.workers * _PROCESS_BYTES + (tables if loader.workers else 0)
    return ahead.batches * loader.batch_bytes + processes * per_process + workers


def _arrays(dataset: Dataset) -> Iterator[NDArray[Any]]:
    """Yield the arrays in which a dataset looks up its elements: of selections and of episodes."""
    owners = [dataset, *(array.episodes for array in getattr(dataset, "anchored", ()))]
    for owner in owners:
        yield from (value for value in vars(owner).values() if isinstance(value, np.ndarray))
    for member in dataset._members:
        yield from _arrays(member)


def _table_bytes(loader: Loader) -> int:
    """Return the bytes of the tables of sources, and of those in which positions are looked up."""
    tables: list[AnyBlocks] = [loader.dataset.blocks]
    orders = [loader.order]
    nbytes = sum(source.storage().table_bytes for source in loader.dataset.sources())
    nbytes += sum({id(array): array.nbytes for array in _arrays(loader.dataset)}.values())
    for order in orders:
        nbytes += order.nbytes
        orders += getattr(order, "orders", ())
        if isinstance(order, BlockShuffle):
            tables.append(order.blocks)
            if not isinstance(order.blocks, Blocks):  # two epochs, each with two integers a block
                nbytes += 2 * 16 * order.blocks.number(order.blocks.count)
    distinct = {id(blocks): blocks for blocks in tables}  # an order mostly shares the dataset's
    return nbytes + sum(blocks.nbytes for blocks in distinct.values())
