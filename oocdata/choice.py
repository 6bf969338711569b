"""Which order suits a dataset: what `shuffle` means, given how the rows are stored."""

from __future__ import annotations

import numpy as np

from oocdata.datasets.dataset import Dataset
from oocdata.errors import ArgumentError
from oocdata.order import BlockShuffle, Order, Sequential, Shuffle
from oocdata.sources.adapt import chunk_bytes
from oocdata.sources.slots import chunk_budget

__all__ = ["choose_order"]

_LONGEST_RUN = 16
"""Chunks that make a block of windows, at most."""

_FEWEST_RUNS = 32
"""Blocks that a window of the shuffle holds, at least."""


def choose_order(dataset: Dataset, shuffle: bool | str | Order) -> tuple[Order, str]:
    """Return the order that `shuffle` asks for, and the reason in words.

    Raises
    ------
    oocdata.errors.ArgumentError
        If `shuffle` is none of those.
    """
    if isinstance(shuffle, Order) and not isinstance(shuffle, type):
        return shuffle, "you gave it"
    if shuffle is False:
        return Sequential(), "`shuffle` is False"
    if shuffle not in (True, "global", "block"):
        raise ArgumentError(
            f"`shuffle` must be False, True, 'global', 'block' or an order; got {shuffle!r}."
        )
    if shuffle == "global":
        return Shuffle(), "you asked for a permutation of all elements"
    blocks = dataset.blocks
    if shuffle is True and blocks.length == 1:
        return Shuffle(), "each row is addressable, so a permutation of all elements costs nothing"
    # Half of what is kept: one window is read while the last batches of another one still are.
    budget = chunk_budget() // 2
    chunks = max(1, budget // max(1, _decoded_together(dataset)))
    if shuffle is True and chunks * blocks.length >= len(dataset):
        return Shuffle(), "all chunks fit into the budget, so each is decoded once anyway"
    run = _chunks_in_a_run(dataset, chunks)
    block = blocks.length * run
    reason = (
        f"rows are stored in chunks: {chunks // run * run} at a time are mixed, in random runs of "
        f"{run} ({budget / 2**20:.0f} MiB decoded)"
    )
    return BlockShuffle(block, max(1, chunks // run), blocks.first), reason


def _chunks_in_a_run(dataset: Dataset, chunks: int) -> int:
    """Return how many chunks that follow one another make a block.

    One where an element lies in one chunk. The last elements of a block reach into the chunk after
    it, which is decoded for them alone; so windows take longer runs, as long as a window of the
    shuffle still holds many of them.
    """
    first = dataset.requests(np.zeros(1, np.int64))
    rows = np.concatenate([request.rows.ravel() for request in first])
    alone = len(first) == 1 and rows.size == 1
    return 1 if alone else max(1, min(_LONGEST_RUN, chunks // _FEWEST_RUNS))


def _decoded_together(dataset: Dataset) -> int:
    """Return the bytes of decoded chunks at one place along the rows, over all sources."""
    requests = dataset.requests(np.zeros(1, np.int64))
    sources = {id(request.source): request.source for request in requests}
    return sum(chunk_bytes(source) for source in sources.values())
