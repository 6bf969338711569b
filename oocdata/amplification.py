"""What an order costs in reading: rows read and decoded for each row used."""

from __future__ import annotations

from collections import OrderedDict
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from oocdata.choice import chunk_bytes_together, chunk_numbers
from oocdata.datasets.dataset import Dataset, Request
from oocdata.order import BlockShuffle, Sequential
from oocdata.sources.slots import chunk_budget
from oocdata.sources.source import Source

if TYPE_CHECKING:
    from oocdata.loader import Loader

__all__ = ["amplification", "being_read", "kept_share", "row_bytes"]

_MOST_POSITIONS = 1 << 16
"""Positions followed, at most, unless a few reads take more."""

_BEING_READ = 2
"""Reads that are under way at a time: a chunk that both want is decoded once."""

_FEWEST_READS = 8
_FEWEST_WINDOWS = 3


def row_bytes(source: Source) -> int:
    """Return the bytes of one row as delivered."""
    return prod(source.shape[1:]) * source.dtype.itemsize


def amplification(loader: Loader) -> float:
    """Return rows read per row used, over a stretch of an epoch that shares what is kept.

    The order is followed through a cache of the budget's size, from which the chunks used longest
    ago go first.

    Examples
    --------
    >>> import oocdata as ooc
    >>> amplification(ooc.open(np.zeros((100, 3))).batches(10, shuffle=True))
    1.0
    """
    count, order = len(loader.dataset), loader.order
    if isinstance(order, Sequential):
        positions = np.arange(min(count, _MOST_POSITIONS))
        return _decoded_rows(loader, positions, 1) / max(1, _rows(loader.dataset, len(positions)))
    chunked = _chunked_bytes(loader)
    # Where each row is addressable, a window may hold millions of blocks, and nothing is shared.
    if isinstance(order, BlockShuffle) and chunked:
        return _of_windows(loader, order)
    positions = order.positions(count, 0, being_read(loader), seed=loader.seed, epoch=0)
    read = _rows_of(loader.dataset, positions)
    touched = [
        min(len(np.unique(chunk_numbers(source, rows))) * source.chunk_rows, source.shape[0])
        for source, rows in read
    ]
    touched_bytes = sum(
        number * row_bytes(source)
        for number, (source, _) in zip(touched, read, strict=True)
        if source.chunk_rows > 1
    )
    kept = kept_share(touched_bytes, chunked)
    used = [len(rows) for _, rows in read]
    decoded = [max(one, number * (1 - kept)) for one, number in zip(used, touched, strict=True)]
    return sum(decoded) / max(1, sum(used))


def being_read(loader: Loader) -> int:
    """Return the elements that are read at a time."""
    return min(len(loader.dataset), _BEING_READ * loader.batch_size * loader.steps_together)


def kept_share(touched_bytes: float, all_bytes: float) -> float:
    """Return the share of the chunks of random reads that are there already.

    Those used longest ago make room. So reads that touch more than is kept find nothing: by the
    time they come to a chunk, what they have decoded has taken its place.

    Examples
    --------
    >>> kept_share(1.0, 4.0 * chunk_budget()), kept_share(2.0 * chunk_budget(), 1e12)
    (0.25, 0.0)
    """
    budget = chunk_budget()
    return 0.0 if touched_bytes > budget else min(1.0, budget / max(1, all_bytes))


def _of_windows(loader: Loader, order: BlockShuffle) -> float:
    """Return the same for a block shuffle, over whole windows: the rest of one is used later."""
    chunk = loader.dataset.blocks.length
    window = -(-order.block // chunk) * order.window * chunk_bytes_together(loader.dataset)
    step = _step(order, chunk)
    if step > 1 and window > chunk_budget():
        return _of_a_beginning(loader, order)
    return _of_neighbours(loader, order, step)


def _step(order: BlockShuffle, chunk: int) -> int:
    """Return for how many neighbours one position may stand: a divisor of a block's."""
    most = min(order.window * order.block // _MOST_POSITIONS, chunk // 4)
    return max((n for n in range(1, most + 1) if order.block % n == 0), default=1)


def _of_neighbours(loader: Loader, order: BlockShuffle, step: int) -> float:
    """Follow whole windows, where one position stands for some neighbours.

    That finds every chunk of a window, but not how often it is asked for: enough where it is kept.
    """
    count = len(loader.dataset)
    first = order.block if order.first is None else order.first
    coarse = BlockShuffle(order.block // step, order.window, max(1, first // step))
    number = -(-count // step)
    windows = max(_FEWEST_WINDOWS, _MOST_POSITIONS // (order.window * coarse.block))
    stop = max(
        coarse.window_bounds(number, place, seed=loader.seed, epoch=0)[1]
        for place in range(min(windows, -(-coarse.block_count(number) // order.window)))
    )
    positions = coarse.positions(number, 0, stop, seed=loader.seed, epoch=0)
    if step > 1:  # the first and the last of the neighbours
        starts = first - max(1, first // step) * step + positions * step
        positions = np.stack([starts, starts + step - 1], axis=1).clip(0, count - 1).ravel()
    # Rows at the ends of blocks belong to elements of others too: in order, each counts once.
    used = _rows(loader.dataset, min(stop * step, count))
    return _decoded_rows(loader, positions, step) / max(1, used)


def _of_a_beginning(loader: Loader, order: BlockShuffle) -> float:
    """Follow a window for a while: the rest of it costs what the second half of that did."""
    count = len(loader.dataset)
    stop = order.window_bounds(count, 0, seed=loader.seed, epoch=0)[1]
    reads = _FEWEST_READS * loader.batch_size * loader.steps_together
    some = min(stop, max(_MOST_POSITIONS, reads))
    positions = order.positions(count, 0, some, seed=loader.seed, epoch=0)
    half, whole = (_decoded_rows(loader, positions[:n], 1) for n in (some // 2, some))
    rest = (whole - half) * (stop - some) / max(1, some - some // 2)
    return (whole + rest) / max(1, _rows(loader.dataset, stop))


def _rows(dataset: Dataset, stop: int, chunked: bool | None = None) -> float:
    """Return how many rows the first elements are made of; of sources in chunks or not, if said.

    Of many elements, from what the first ones take and what more of them add.
    """

    def counted(elements: int) -> int:
        found = _rows_of(dataset, np.arange(elements))
        return sum(len(rows) for source, rows in found if chunked in (None, source.chunk_rows > 1))

    if stop <= _MOST_POSITIONS:
        return counted(stop)
    half = _MOST_POSITIONS // 2
    some, whole = counted(half), counted(2 * half)
    return whole + (whole - some) / half * (stop - 2 * half)


def _decoded_rows(loader: Loader, positions: NDArray[np.int64], step: int) -> float:
    """Return the rows read for positions in order, when the chunks used last are kept."""
    each = 1 if step == 1 else 2
    decoded = _rows(loader.dataset, min(len(positions) // each * step, len(loader.dataset)), False)
    kept_bytes, budget = 0, chunk_budget()
    kept: OrderedDict[tuple[int, int], int] = OrderedDict()
    length = max(1, loader.batch_size * loader.steps_together // step) * each
    for start in range(0, len(positions), length):
        for source, rows in _rows_of(loader.dataset, positions[start : start + length]):
            if source.chunk_rows == 1:
                continue
            nbytes = source.chunk_rows * row_bytes(source)
            for number in np.unique(chunk_numbers(source, rows)).tolist():
                chunk = (id(source), number)
                if chunk in kept:
                    kept.move_to_end(chunk)
                    continue
                decoded += min(source.chunk_rows, source.shape[0])
                kept[chunk] = nbytes
                kept_bytes += nbytes
                while kept_bytes > budget and len(kept) > 1:
                    kept_bytes -= kept.popitem(last=False)[1]
    return decoded


def _rows_of(
    dataset: Dataset, positions: NDArray[np.int64]
) -> list[tuple[Source, NDArray[np.int64]]]:
    """Return each source with its rows that elements are made of, ascending."""
    requests_of: dict[int, list[Request]] = {}
    for request in dataset.requests(positions):
        requests_of.setdefault(id(request.source), []).append(request)
    return [
        (few[0].source, np.unique(np.concatenate([request.rows.ravel() for request in few])))
        for few in requests_of.values()
    ]


def _chunked_bytes(loader: Loader) -> int:
    requests = loader.dataset.requests(np.zeros(1, np.int64))
    sources = {id(request.source): request.source for request in requests}.values()
    return sum(row_bytes(s) * s.shape[0] for s in sources if s.chunk_rows > 1)
