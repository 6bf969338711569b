"""Describe how a loader reads: the storage and the cost on which advice is based."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from math import log2, prod
from os.path import basename, splitext
from typing import TYPE_CHECKING, Any

import numpy as np

from oocdata.blocks import typical_length
from oocdata.cost import amplification, cached_bytes, chunk_bytes
from oocdata.datasets.dataset import Dataset
from oocdata.datasets.view import View
from oocdata.engines.source import Storage, stored_sources
from oocdata.memory import cache_share
from oocdata.order import BlockShuffle, Sequential
from oocdata.order.mixing import Mixing, mixing
from oocdata.order.mixture import Mixture
from oocdata.order.weighted import Weighted

if TYPE_CHECKING:
    from oocdata.loader import Loader

_CHUNK_BYTES = 128 << 10
"""Bytes of an advised chunk: cheap to decode for a single row, and few enough chunks."""


def size(nbytes: float) -> str:
    """Return a number of bytes as text, in binary units: ``'1.5 KiB'``."""
    if nbytes < 1024:
        return "1 byte" if nbytes == 1 else f"{nbytes:.0f} bytes"
    power = min(4, int(log2(nbytes)) // 10)
    return f"{nbytes / 1024**power:.1f} {' KMGT'[power]}iB"


def as_typed(path: str) -> str:
    """Return a path below the current folder as a user would type it."""
    below = path.removeprefix(f"{os.getcwd()}{os.sep}")
    return f"./{below}" if below.startswith("-") else below


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The storage, order and cost of a loader."""

    storage: Storage  # of the source with the largest chunks
    axes: tuple[int, ...] | None = (0,)  # sample axes of the array; None for several arrays
    order: str = "sequential"  # or "full shuffle", "block shuffle"
    batch_size: int = 32
    workers: int = 0
    row_bytes: int = 1  # of a stored row, counting only the bytes that elements use
    block_length: int = 1  # neighbouring elements that are decoded together
    amplification: float = 1.0  # bytes decoded per byte used
    full_amplification: float = 1.0  # the same for a full shuffle; 1 if all chunks are cached
    has_block_shuffle: bool = True  # whether shuffle=True mixes blocks of these elements
    chunks_per_row: int = 1  # chunks that divide each row; 1 if elements are parts of rows
    chunk_rows: int = 1  # rows of which a chunk holds the whole or a piece
    mixing: Mixing | None = None  # None for sequential order
    span_bytes: int = 0  # span of an element in the file if it interleaves with others, else 0

    @property
    def fitting_rows(self) -> int:
        """The number of rows of a chunk that suits any order, a power of two."""
        rows = min(_CHUNK_BYTES // max(1, self.row_bytes), self.batch_size)
        return 1 << int(log2(max(1, rows)))

    def convert(
        self, *, chunks: int | None = None, codec: str | None = None, chunked: bool = False
    ) -> str | None:
        """Return an `oocdata convert` command, or None if no command can open the array.

        With `chunked`, `oocdata convert` chooses the chunks; without any argument it writes
        ``.npy``.
        """
        options = dict(self.storage.opened or {})
        target = options.pop("target", None)
        if not isinstance(target, str) or self.axes is None:
            return None
        is_flat = chunks is None and codec is None and not chunked
        suffix = ".zarr" if "Zarr" in self.storage.format else ".npy" if is_flat else ".h5"
        stem, _ = splitext(basename(target))
        words = ["oocdata", "convert", as_typed(target), as_typed(f"{stem}-new{suffix}")]
        axis = "none" if "axis" in options else self.axes
        options |= {"axis": axis, "chunks": chunks, "codec": codec}
        for name, value in options.items():
            defaults = (None,) if name == "pad" else (None, 0, (0,))
            if value in defaults:
                continue
            words.append(f"--{name}")
            if value is not True:
                is_list = isinstance(value, tuple | list)
                words.append(",".join(map(str, value)) if is_list else str(value))
        return shlex.join(words)


def reading_of(loader: Loader) -> Reading:
    """Return how a loader reads, from its description and that of its sources; reads no data."""
    dataset, order, count = loader.dataset, loader.order, len(loader.dataset)
    requests = dataset.boxes(np.array([0, count - 1]))
    request = max(requests, key=lambda each: chunk_bytes(each.source, each.source.storage()))
    storage, itemsize = request.source.storage(), request.source.dtype.itemsize
    view = view_below(dataset)
    axes = None if view is None else view.axes
    # For several arrays, sample axes are those along which the origins differ.
    is_sample_axis = np.ptp(request.origins, axis=0) > 0
    if axes is not None:
        is_sample_axis = np.isin(np.arange(len(is_sample_axis)), axes)
    lengths, spans = np.array(request.extent.lengths), np.array(request.extent.spans)
    chunks_per_row, chunk_rows, span_bytes = 1, 1, 0
    if storage.strides is not None and is_sample_axis.any():
        strides = np.abs(storage.strides)
        reach = int(((spans - 1) * strides)[~is_sample_axis].sum())
        if reach >= strides[is_sample_axis].min():  # other elements are stored in between
            span_bytes = reach + itemsize
    elif storage.strides is None and storage.chunks is not None:
        chunks, first = np.array(storage.chunks), request.origins[0]
        covered = np.maximum(1, (first + spans - 1) // chunks - first // chunks + 1)
        # The chunks of a stack end where a channel does, whatever the chunks of its arrays.
        stacked = hasattr(request.source, "views")  # only of `Stacked`
        is_whole = not stacked and (lengths == request.source.shape)[~is_sample_axis].all()
        chunks_per_row = int(covered[~is_sample_axis].prod()) if is_whole else 1
        chunk_rows = int(chunks[is_sample_axis].prod())
    order_mixing, orders = None, [order]
    if isinstance(order, Mixture | Weighted):  # not comparable with a permutation of all elements
        orders = list(order.orders)
    elif not isinstance(order, Sequential):
        blocks = dataset.blocks
        if blocks.number(count) == count and isinstance(order, BlockShuffle):
            blocks = order.blocks  # each element is stored alone, but the order keeps runs together
        order_mixing = mixing(loader.positions, len(loader), blocks, count)
    shuffled = "full shuffle" if order.lanes is None else "block shuffle"
    is_sequential = all(isinstance(each, Sequential) for each in orders)
    name = "sequential" if is_sequential else shuffled
    full_amplification, has_block_shuffle = 1.0, True
    stored = stored_sources(dataset.sources())
    decoded = sum(cached_bytes(source, source.storage()) for source in stored)
    if loader.chunked and dataset.blocks.number(count) < count and decoded > cache_share():
        full_amplification = amplification(dataset.batches(loader.batch_size, shuffle="global"))
        mixed = dataset.batches(loader.batch_size, shuffle=True).order
        has_block_shuffle = mixed.lanes is not None
    return Reading(
        storage=storage,
        axes=axes,
        order=name,
        batch_size=loader.batch_size,
        workers=loader.workers,
        row_bytes=prod(lengths[~is_sample_axis].tolist()) * itemsize,
        block_length=typical_length(dataset.blocks, count),
        amplification=amplification(loader),
        full_amplification=full_amplification,
        has_block_shuffle=has_block_shuffle,
        chunks_per_row=chunks_per_row,
        chunk_rows=chunk_rows,
        mixing=order_mixing,
        span_bytes=span_bytes,
    )


def view_below(dataset: Any) -> View | None:
    """Return the single view from which windows, maps and the like are made; None for several."""
    while not isinstance(dataset, View) and dataset is not None:
        inner = (getattr(dataset, name, None) for name in ("view", "source", "dataset"))
        dataset = next((each for each in inner if isinstance(each, Dataset)), None)
    return dataset
