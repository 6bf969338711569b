"""Whether chunks suit shuffling: what a full one decodes, and how well one by blocks mixes."""

from __future__ import annotations

from math import log2

from oocdata.amplification import being_read, kept_share
from oocdata.datasets.dataset import Dataset
from oocdata.order.mixing import mixing
from oocdata.sources.adapt import chunk_bytes
from oocdata.tools.bench.result import Bench
from oocdata.tools.profile.needed import needed, sources_of

__all__ = ["again", "again_with", "gains", "mixes_poorly", "row_bytes", "shorter_chunks"]

_AGAIN = 4.0
"""Rows decoded for each row used, from which on chunks are too long for shuffling."""

_POOR_MIXING = 0.9
"""Below this share of a full shuffle's batch entropy, batches hold too many neighbours."""

_CHUNK_BYTES = 128 << 10
"""Chunks of about this size cost little to decode for one row, and little each."""


def again(found: Bench, order: str) -> float:
    """Return the rows decoded for each row used."""
    found_again = (look.amplification for look in found.looks if look.order == order)
    return next(found_again, None) or 1.0


def row_bytes(dataset: Dataset) -> int:
    """Return the bytes that a row takes in a decoded chunk; the most, where several are read.

    Examples
    --------
    >>> import numpy as np, oocdata as ooc
    >>> row_bytes(ooc.open(np.zeros((10, 3))))
    24
    """
    return max(chunk_bytes(source) // source.chunk_rows for source in sources_of(dataset))


def mixes_poorly(found: Bench, dataset: Dataset) -> bool:
    """Return whether batches of a block shuffle hold too many neighbours, by their entropy."""
    if found.best("block shuffle") is None:
        return False
    smallest = min(way.batch_size for way in found.ways)
    loader, blocks = dataset.batches(smallest, shuffle="block"), dataset.blocks
    mixed = mixing(loader.order, len(dataset), smallest, blocks.length, first=blocks.first, seed=0)
    return mixed.entropy < _POOR_MIXING * mixed.full_shuffle_entropy


def shorter_chunks(found: Bench, dataset: Dataset) -> int | None:
    """Return the rows that chunks should have, if theirs are too many for shuffling."""
    if found.chunk_rows <= 1 or found.kept is not None:
        return None
    row = max(1, row_bytes(dataset))
    smallest = min(way.batch_size for way in found.ways)
    rows = 1 << int(log2(max(1, min(_CHUNK_BYTES // row, smallest))))
    if found.chunk_rows < 2 * rows:
        return None
    return rows if gains(found, dataset, rows) or mixes_poorly(found, dataset) else None


def gains(found: Bench, dataset: Dataset, chunk_rows: int) -> bool:
    """Return whether a full shuffle decodes much, and much less with shorter chunks."""
    now = again(found, "full shuffle")
    smallest = min(way.batch_size for way in found.ways)
    return now >= _AGAIN and now >= 2 * again_with(chunk_rows, dataset, smallest)


def again_with(chunk_rows: int, dataset: Dataset, batch_size: int) -> float:
    """Return the rows that a full shuffle would decode for each row used, with other chunks.

    Of n rows that lie in k chunks, d drawn at random touch ``k (1 - (1 - d/n)^(n/k))``, on average;
    of these, as large a share is kept from before as the budget is of the whole.
    """
    drawn = being_read(dataset.batches(batch_size, shuffle="global"))
    chunked = [one for one in needed(dataset) if one.source.chunk_rows > 1]
    rows = max(1.0, sum(one.rows for one in chunked))
    # Rows that are far apart lie in a chunk each, however short.
    reach = sum(one.chunks * one.source.chunk_rows for one in chunked)
    chunks = max(1.0, min(reach / chunk_rows, rows))
    touched: float = chunks * (1 - (1 - min(1.0, drawn / rows)) ** (rows / chunks))
    nbytes = chunk_rows * row_bytes(dataset)
    kept = kept_share(touched * nbytes, chunks * nbytes)
    return max(1.0, touched * chunk_rows * (1 - kept) / drawn)
