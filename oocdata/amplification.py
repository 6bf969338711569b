"""What an order costs in reading: rows read and decoded for each row used."""

from __future__ import annotations

from collections import OrderedDict
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from oocdata.choice import chunk_numbers
from oocdata.datasets.dataset import Dataset, Request
from oocdata.order import BlockShuffle, Sequential
from oocdata.sources.slots import chunk_budget
from oocdata.sources.source import Source

if TYPE_CHECKING:
    from oocdata.loader import Loader

__all__ = ["amplification", "row_bytes"]

_MOST_POSITIONS = 1 << 16
"""Positions followed, at most."""


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
    if isinstance(order, Sequential | BlockShuffle):
        stop = min(count, _MOST_POSITIONS)
        if isinstance(order, BlockShuffle):  # whole windows: the rest of one is used later
            stop = max(
                order.window_bounds(count, window, seed=loader.seed, epoch=0)[1]
                for window in range(max(1, stop // (order.window * order.block)))
            )
        positions = order.positions(count, 0, stop, seed=loader.seed, epoch=0)
        # Rows at the ends of blocks belong to elements of others too: in order, each counts once.
        in_order = _rows_of(loader.dataset, np.arange(stop))
        return _decoded_rows(loader, positions) / max(1, sum(len(rows) for _, rows in in_order))
    stop = min(count, loader.batch_size * loader.steps_together)
    positions = order.positions(count, 0, stop, seed=loader.seed, epoch=0)
    kept = min(1.0, chunk_budget() / max(1, _chunked_bytes(loader)))  # there already
    decoded = used = 0.0
    for source, rows in _rows_of(loader.dataset, positions):
        touched = len(np.unique(chunk_numbers(source, rows))) * source.chunk_rows
        decoded += max(len(rows), min(touched, source.shape[0]) * (1 - kept))
        used += len(rows)
    return decoded / max(used, 1)


def _decoded_rows(loader: Loader, positions: NDArray[np.int64]) -> float:
    """Return the rows read for positions in order, when the chunks used last are kept."""
    rows_of = _rows_of(loader.dataset, positions)
    decoded = float(sum(len(rows) for source, rows in rows_of if source.chunk_rows == 1))
    kept_bytes, budget = 0, chunk_budget()
    kept: OrderedDict[tuple[int, int], int] = OrderedDict()
    length = loader.batch_size * loader.steps_together
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
