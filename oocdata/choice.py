"""Which order suits a dataset: what `shuffle` means, given how the rows are stored."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from oocdata.datasets.dataset import Dataset
from oocdata.errors import ArgumentError
from oocdata.order import BlockShuffle, Order, Sequential, Shuffle
from oocdata.sources.adapt import chunk_bytes, part_starts
from oocdata.sources.slots import chunk_budget
from oocdata.sources.source import Source

__all__ = ["choose_order", "chunk_bytes_together", "chunk_numbers"]

_LONGEST_RUN = 16
"""Chunks that make a block of windows, at most."""

_FEWEST_RUNS = 8
"""Blocks that a window of the shuffle holds, at least, unless elements reach over many chunks."""

_WORTH = 3
"""A block should be this many times as long as what it shares: a third more is decoded then. For
that a window may hold only four blocks; by chunks it mixes as well as one of more, shorter ones."""

_BORDERS = 16
"""Borders between blocks looked at to see how many chunks lie on both sides."""


def choose_order(dataset: Dataset, shuffle: bool | str | Order) -> tuple[Order, str]:
    """Return the order that `shuffle` asks for, and the reason in words.

    Raises
    ------
    oocdata.errors.ArgumentError
        If `shuffle` is none of those.
    """
    if isinstance(shuffle, Order) and not isinstance(shuffle, type):
        return shuffle, "you gave it"
    if isinstance(shuffle, np.bool_):
        shuffle = bool(shuffle)
    if shuffle is False:
        return Sequential(), "`shuffle` is False"
    # 1 is equal to True, but no bool.
    if shuffle is not True and shuffle not in ("global", "block"):
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
    chunks = max(1, budget // max(1, chunk_bytes_together(dataset)))
    if shuffle is True and chunks * blocks.length >= len(dataset):
        return Shuffle(), "all chunks fit into the budget, so each is decoded once anyway"
    shared = _shared_chunks(dataset)
    run = _chunks_in_a_run(shared, chunks)
    runs = max(1, chunks // (run + shared))
    reason = (
        f"rows are stored in chunks: {runs * run} at a time are mixed, in random runs of "
        f"{run} ({budget / 2**20:.0f} MiB decoded)"
    )
    return BlockShuffle(blocks.length * run, runs, blocks.first), reason


def _chunks_in_a_run(shared: int, chunks: int) -> int:
    """Return how many chunks that follow one another make a block.

    One where no two blocks share a chunk. Shared ones are decoded for either; so there blocks are
    longer runs, as long as a window of the shuffle still holds many of them, but no shorter than
    what they share.
    """
    if not shared:
        return 1
    enough = min(_WORTH * shared, chunks // 4 - shared)
    mixed = min(_LONGEST_RUN, chunks // _FEWEST_RUNS - shared)
    return max(1, mixed, enough, min(shared, chunks // 4))


def _shared_chunks(dataset: Dataset) -> int:
    """Return how many chunks two neighbouring blocks share, at most, where it was looked at.

    Windows reach into the next chunks; files end within a chunk; a step may not divide one.
    """
    blocks, count = dataset.blocks, len(dataset)
    borders = -(-max(count - blocks.first, 0) // blocks.length)
    if not borders:
        return 0
    looked_at = np.unique(np.linspace(0, borders - 1, min(borders, _BORDERS)).astype(np.int64))
    after = blocks.first + looked_at * blocks.length
    ranges: dict[int, list[NDArray[np.int64]]] = {}
    for request in dataset.requests(np.concatenate([after - 1, after])):
        numbers = chunk_numbers(request.source, request.rows.reshape(2 * len(after), -1))
        ranges.setdefault(id(request.source), []).append(numbers)
    most = 0
    for numbers in (np.concatenate(parts, axis=1) for parts in ranges.values()):
        low, high = numbers.min(axis=1), numbers.max(axis=1)
        before, behind = slice(0, len(after)), slice(len(after), None)
        both = np.minimum(high[before], high[behind]) - np.maximum(low[before], low[behind]) + 1
        most = max(most, int(both.max()))
    return most


def chunk_numbers(source: Source, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of the chunk that each row lies in, through all files of a source.

    Examples
    --------
    >>> from oocdata.testing import RecordingSource
    >>> chunk_numbers(RecordingSource(np.zeros(40), chunk_rows=8), np.array([7, 8, 39]))
    array([0, 1, 4])
    """
    starts = np.asarray(part_starts(source), np.int64)
    if len(starts) == 1:
        return rows // source.chunk_rows
    part = np.searchsorted(starts, rows, side="right") - 1
    first = np.concatenate(([0], np.cumsum(-(-np.diff(starts) // source.chunk_rows))))
    numbers: NDArray[np.int64] = first[part] + (rows - starts[part]) // source.chunk_rows
    return numbers


def chunk_bytes_together(dataset: Dataset) -> int:
    """Return the bytes of decoded chunks at one place along the rows, over all sources."""
    requests = dataset.requests(np.zeros(1, np.int64))
    sources = {id(request.source): request.source for request in requests}
    return sum(chunk_bytes(source) for source in sources.values())
