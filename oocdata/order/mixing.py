"""How well an order mixes: the entropy of the blocks that a batch is made of.

A full shuffle draws a batch from all over the dataset; an order made for compressed chunks draws
it from a few blocks. The Shannon entropy of the block numbers in a batch, as scDataset [1]_
measures it on the labels of a minibatch, says how far apart the two are: 0 bits when a batch
comes from one block, ``log2(batch_size)`` bits when every position comes from a block of its own.

References
----------
.. [1] D. D'Ascenzo and S. Cultrera di Montesano, "scDataset: Scalable Data Loading for Deep
   Learning on Large-Scale Single-Cell Omics", 2025, arXiv:2506.01883.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oocdata.errors import ArgumentError
from oocdata.index import as_count
from oocdata.order.checks import as_first
from oocdata.order.order import Order

__all__ = ["Mixing", "batch_entropy", "full_shuffle_entropy", "mixing"]

# Batches looked at in an epoch: the most, the fewest, and the most positions in all of them.
_MOST_BATCHES = 32
_FEWEST_BATCHES = 2
_MOST_POSITIONS = 2**17


@dataclass(frozen=True, slots=True)
class Mixing:
    """How well an order mixes.

    Parameters
    ----------
    entropy : float
        Mean entropy of the blocks in a batch, in bits.
    full_shuffle_entropy : float
        What a shuffle of all positions reaches with the same batches and blocks, in bits.
    """

    entropy: float
    full_shuffle_entropy: float


def batch_entropy(blocks: NDArray[np.int64]) -> float:
    """Mean Shannon entropy of the block numbers in a batch.

    Parameters
    ----------
    blocks : ndarray of integers, shape (batches, batch_size)
        Block of each position of each batch.

    Returns
    -------
    float
        The mean over the batches, in bits.

    Raises
    ------
    ArgumentError
        When there is no batch, or nothing in it, or the array has not two axes.

    Examples
    --------
    >>> batch_entropy(np.array([[5, 5, 5, 5], [0, 1, 2, 3]]))
    1.0
    """
    blocks = np.asarray(blocks)
    if blocks.ndim != 2 or not blocks.size:
        raise ArgumentError(
            f"`blocks` must have shape (batches, batch_size), both at least 1; got {blocks.shape}. "
            "A single batch is `blocks[np.newaxis]`."
        )
    ordered = np.sort(blocks, axis=1)
    begins = np.ones(ordered.shape, dtype=np.bool_)
    np.not_equal(ordered[:, 1:], ordered[:, :-1], out=begins[:, 1:])
    counts = np.diff(np.flatnonzero(begins), append=blocks.size)
    # -sum p log2(p) with p = count / batch_size, all batches at once.
    repeated = float((counts * np.log2(counts)).sum()) / blocks.size
    return math.log2(blocks.shape[1]) - repeated


def full_shuffle_entropy(
    count: int, batch_size: int, block: int, *, first: int | None = None
) -> float:
    """Compute the expected entropy of the blocks in a batch drawn from all positions.

    How many positions a batch takes from a block follows the hypergeometric distribution, so the
    value is computed, not sampled.

    Parameters
    ----------
    count : int
        Number of positions.
    batch_size : int
        Positions in a batch, at most ``count``.
    block, first : int
        Positions in a block and in the first one, as `BlockShuffle` has them.

    Returns
    -------
    float
        The expectation, in bits.

    Raises
    ------
    ArgumentError
        When an argument is out of its range.

    Examples
    --------
    >>> round(full_shuffle_entropy(10**6, 32, 32), 3)
    4.999
    >>> round(full_shuffle_entropy(64, 32, 32), 3)
    0.988
    """
    count, batch_size, block, first = _check(count, batch_size, block, first)
    if batch_size > count:
        raise ArgumentError(
            f"`batch_size` must be at most `count` ({count}); got {batch_size}. "
            "A batch holds each position once at most."
        )
    full, last = divmod(max(count - first, 0), block)
    lengths = {min(first, count): 1}
    for length, times in ((block, full), (last, 1)):
        if length and times:
            lengths[length] = lengths.get(length, 0) + times
    repeated = sum(
        times * _expected_repeats(count, batch_size, length) for length, times in lengths.items()
    )
    return math.log2(batch_size) - repeated / batch_size


def mixing(
    order: Order,
    count: int,
    batch_size: int,
    block: int,
    *,
    first: int | None = None,
    seed: int = 0,
    epochs: int = 1,
) -> Mixing:
    """Measure how well an order mixes, on some batches of its first epochs.

    Parameters
    ----------
    order : Order
        The order to measure.
    count : int
        Number of positions.
    batch_size : int
        Positions in a batch; a batch larger than the epoch counts as the whole epoch.
    block, first : int
        Positions in a block and in the first one, as `BlockShuffle` has them; whatever the order
        is, these say what counts as "from the same block".
    seed : int, optional
        Seed of the order.
    epochs : int, optional
        Number of epochs to look at, with at most 32 batches in each.

    Returns
    -------
    Mixing
        The order's entropy and that of a full shuffle.

    Raises
    ------
    ArgumentError
        When an argument is out of its range.

    Examples
    --------
    >>> from oocdata.order import BlockShuffle, Sequential
    >>> mixing(Sequential(), 6400, 32, 32).entropy
    0.0
    >>> found = mixing(BlockShuffle(block=32, window=16), 640_000, 32, 32)
    >>> round(found.entropy, 1), round(found.full_shuffle_entropy, 1)
    (3.6, 5.0)
    """
    count, batch_size, block, first = _check(count, batch_size, block, first)
    epochs = as_count("epochs", epochs)
    batch_size = min(batch_size, count)
    steps = count // batch_size
    wanted = max(_FEWEST_BATCHES, min(_MOST_BATCHES, _MOST_POSITIONS // batch_size))
    sampled = min(steps, wanted)
    found = 0.0
    for epoch in range(epochs):
        blocks = np.empty((sampled, batch_size), dtype=np.int64)
        for row in range(sampled):
            start = row * steps // sampled * batch_size
            positions = order.positions(count, start, start + batch_size, seed=seed, epoch=epoch)
            np.floor_divide(positions + (block - first), block, out=blocks[row])
        found += batch_entropy(blocks)
    return Mixing(found / epochs, full_shuffle_entropy(count, batch_size, block, first=first))


def _check(count: int, batch_size: int, block: int, first: int | None) -> tuple[int, int, int, int]:
    """Check the arguments that two functions share; the first block gets its length."""
    block = as_count("block", block)
    first = block if first is None else as_first(first, block)
    return as_count("count", count), as_count("batch_size", batch_size), block, first


def _expected_repeats(count: int, drawn: int, length: int) -> float:
    """Expect ``k * log2(k)``, k of ``drawn`` positions being in a block of ``length``."""
    least, most = max(0, drawn - (count - length)), min(drawn, length)
    k = np.arange(least, most, dtype=np.float64)
    # Ratios of neighbouring probabilities, in logarithms: the factorials themselves overflow.
    up = np.log(length - k) + np.log(drawn - k)
    down = np.log(k + 1) + np.log(count - length - drawn + k + 1)
    logarithms = np.concatenate([[0.0], np.cumsum(up - down)])
    weights = np.exp(logarithms - logarithms.max())
    k = np.arange(least, most + 1, dtype=np.float64)
    return float((weights * k * np.log2(np.maximum(k, 1))).sum() / weights.sum())
