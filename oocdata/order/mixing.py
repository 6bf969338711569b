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
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oocdata.blocks import BlockIds, Blocks
from oocdata.errors import ArgumentError

__all__ = ["Mixing", "batch_entropy", "block_of", "full_shuffle_entropy", "mixing"]

# Batches looked at in an epoch: the most, the fewest, and the most positions in all of them.
_MOST_BATCHES = 32
_FEWEST_BATCHES = 2
_MOST_POSITIONS = 2**17


@dataclass(frozen=True, slots=True)
class Mixing:
    """How well an order mixes.

    Attributes
    ----------
    entropy : float
        Mean entropy of the blocks in a batch, in bits.
    full_shuffle_entropy : float
        What a shuffle of all positions reaches with the same batches and blocks, in bits.
    """

    entropy: float
    full_shuffle_entropy: float


def batch_entropy(blocks: NDArray[np.int64]) -> float:
    """Return the mean Shannon entropy of the block numbers in a batch.

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


def full_shuffle_entropy(count: int, batch_size: int, blocks: Blocks | BlockIds) -> float:
    """Return the expected entropy of the blocks in a batch drawn from all positions.

    How many positions a batch takes from a block follows the hypergeometric distribution, so the
    value is computed, not sampled.

    Parameters
    ----------
    count : int
        Number of positions.
    batch_size : int
        Positions in a batch, at most ``count``.
    blocks : Blocks or BlockIds

    Returns
    -------
    float
        The expectation, in bits.

    Examples
    --------
    >>> round(full_shuffle_entropy(10**6, 32, Blocks(32, 32)), 3)
    4.999
    >>> round(full_shuffle_entropy(64, 32, Blocks(32, 32)), 3)
    0.988
    """
    if batch_size > count:
        raise ArgumentError(
            f"`batch_size` must be at most `count` ({count}); got {batch_size}. "
            "A batch holds each position once at most."
        )
    repeated = sum(
        times * _expected_repeats(count, batch_size, length)
        for length, times in _lengths(count, blocks).items()
    )
    return math.log2(batch_size) - repeated / batch_size


def mixing(
    positions: Callable[[int], NDArray[np.int64]], steps: int, blocks: Blocks | BlockIds, count: int
) -> Mixing:
    """Measure how well an order mixes, on some batches of an epoch.

    Parameters
    ----------
    positions : callable
        Returns the positions of a step.
    steps : int
        Steps of the epoch; the last one may be short.
    blocks : Blocks or BlockIds
        Positions of one block count as neighbours, whatever the order is.
    count : int
        Number of positions.

    Returns
    -------
    Mixing
        The order's entropy and that of a full shuffle.

    Examples
    --------
    >>> in_order = lambda step: np.arange(32 * step, 32 * step + 32)
    >>> mixing(in_order, 200, Blocks(32, 32), 6400).entropy
    0.0
    """
    size = len(positions(0))
    whole = max(1, steps - 1 if steps > 1 and len(positions(steps - 1)) < size else steps)
    wanted = max(_FEWEST_BATCHES, min(_MOST_BATCHES, _MOST_POSITIONS // size))
    sampled = min(whole, wanted)
    batches = [positions(row * whole // sampled) for row in range(sampled)]
    found = batch_entropy(block_of(np.stack(batches), blocks))
    return Mixing(found, full_shuffle_entropy(count, size, blocks))


def block_of(positions: NDArray[np.int64], blocks: Blocks | BlockIds) -> NDArray[np.int64]:
    """Return a number for the block that each position lies in.

    Examples
    --------
    >>> block_of(np.arange(9), Blocks(4, 2, 9)).tolist()
    [0, 0, 1, 1, 1, 1, 2, 2, 2]
    """
    if isinstance(blocks, BlockIds):
        return blocks.ids[positions]
    if blocks.period is None:
        return (positions + (blocks.length - blocks.first)) // blocks.length
    each = 1 - (blocks.first - blocks.period) // blocks.length  # blocks of a stretch
    stretch, within = np.divmod(positions, blocks.period)
    numbers: NDArray[np.int64] = (within + (blocks.length - blocks.first)) // blocks.length
    numbers += stretch * each
    return numbers


def _lengths(count: int, blocks: Blocks | BlockIds) -> dict[int, int]:
    """Return how many blocks there are of each length."""
    if isinstance(blocks, BlockIds):
        each = np.unique(blocks.ids, return_counts=True)[1]
        return dict(
            zip(*(part.tolist() for part in np.unique(each, return_counts=True)), strict=True)
        )
    period = count if blocks.period is None else min(blocks.period, count)
    lengths: Counter[int] = Counter()
    for stretch, times in ((period, count // period), (count % period, 1)):
        full, last = divmod(max(stretch - blocks.first, 0), blocks.length)
        for length, number in ((min(blocks.first, stretch), 1), (blocks.length, full), (last, 1)):
            if length and number:
                lengths[length] += number * times
    return lengths


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
