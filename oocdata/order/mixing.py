"""Measure how well an order mixes: the entropy of the blocks in a batch.

A full shuffle draws a batch from the whole dataset; an order for compressed chunks draws it from a
few blocks. The difference is measured by the Shannon entropy of the block numbers in a batch, as
scDataset [1]_ does for the labels of a minibatch: 0 bits if a batch comes from one block,
``log2(batch_size)`` bits if every position comes from a different block.

References
----------
.. [1] D. D'Ascenzo and S. Cultrera di Montesano, "scDataset: Scalable Data Loading for Deep
   Learning on Large-Scale Single-Cell Omics", 2025, arXiv:2506.01883.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from oocdata.blocks import AnyBlocks
from oocdata.box import Ints
from oocdata.order.order import Shuffle

# Batches of an epoch that are measured: maximum, minimum, and maximum of their positions.
_MOST_BATCHES = 32
_FEWEST_BATCHES = 2
_MOST_POSITIONS = 2**17


@dataclass(frozen=True, slots=True)
class Mixing:
    """Mean entropy of the blocks in a batch, in bits, of an order and of a full shuffle."""

    entropy: float
    full_shuffle_entropy: float


def batch_entropy(blocks: Ints) -> float:
    """Return the mean Shannon entropy of the block numbers of each batch, in bits.

    `blocks` has the shape (batches, batch_size).
    """
    ordered = np.sort(blocks, axis=1)
    begins = np.ones(ordered.shape, dtype=np.bool_)
    np.not_equal(ordered[:, 1:], ordered[:, :-1], out=begins[:, 1:])
    counts = np.diff(np.flatnonzero(begins), append=blocks.size)
    # -sum p log2(p) with p = count / batch_size, all batches at once.
    repeated = float((counts * np.log2(counts)).sum()) / blocks.size
    return math.log2(blocks.shape[1]) - repeated


def full_shuffle_entropy(count: int, batch_size: int, blocks: AnyBlocks) -> float:
    """Return the entropy of the blocks in a batch of a `Shuffle` of `count` positions, in bits."""
    batches = min(count // batch_size, _batches(batch_size))
    drawn = Shuffle().positions(count, 0, batches * batch_size, seed=0, epoch=0)
    return batch_entropy(blocks.of(drawn).reshape(batches, batch_size))


def _batches(size: int) -> int:
    return max(_FEWEST_BATCHES, min(_MOST_BATCHES, _MOST_POSITIONS // size))


def mixing(positions: Callable[[int], Ints], steps: int, blocks: AnyBlocks, count: int) -> Mixing:
    """Measure how well an order of `count` positions mixes, on some steps of an epoch.

    `positions` returns the positions of a step; the last step may be short. Positions are compared
    by their blocks in storage, whatever the order.
    """
    size = len(positions(0))
    whole = max(1, steps - 1 if steps > 1 and len(positions(steps - 1)) < size else steps)
    sampled = min(whole, _batches(size))
    batches = [positions(row * whole // sampled) for row in range(sampled)]
    entropy = batch_entropy(blocks.of(np.stack(batches)))
    return Mixing(entropy, full_shuffle_entropy(count, size, blocks))
