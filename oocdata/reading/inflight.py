"""How many bytes the batches of a run of steps take, of those that `oocdata.memory` counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from oocdata.datasets.dataset import Draw
from oocdata.datasets.spec import leaves
from oocdata.engines.buffers import ALIGNMENT

if TYPE_CHECKING:
    from oocdata.loader import Loader

__all__ = ["input_bytes", "run_bytes"]


def run_bytes(loader: Loader, steps: int) -> int:
    """Return the bytes of the batches of a run of steps, with the padding between arrays.

    Examples
    --------
    >>> import oocdata as ooc
    >>> run_bytes(ooc.open(np.zeros((8, 3), "f4")).batches(4), steps=2)
    128
    """
    elements = loader.batch_size // loader.num_shards
    arrays: list[int] = [leaf.nbytes * elements for leaf in leaves(loader.dataset.spec)]
    dense = sum(-(-nbytes // ALIGNMENT) * ALIGNMENT for nbytes in arrays)
    return steps * (dense + loader.byte_rows)


def input_bytes(loader: Loader) -> int:
    """Return the bytes that a mapped function gets for a batch; 0 where there is no function."""
    if not loader.dataset.is_mapped:
        return 0
    first = np.zeros(1, np.int64)
    requests = loader.dataset.requests(first, Draw(positions=first))
    return loader.batch_size // loader.num_shards * sum(each.nbytes for each in requests)
